//! The table of mounts, `/proc/self/mountinfo`, parsed.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The kernel's number of the mount.
    pub id: u64,
    /// Device number of its file system, as "major:minor".
    pub device: String,
    /// Type of the file system, with its subtype.
    pub kind: String,
    /// The mounted source.
    pub source: String,
}

/// The topmost of the mounts exactly at `path` (the last one listed), from the text of mountinfo.
pub fn top_at(text: &[u8], path: &[u8]) -> Option<Entry> {
    text.split(|&byte| byte == b'\n').filter_map(|line| entry_at(line, path)).next_back()
}

/// The paths at which a file system with this device number is mounted, in the order of the mounts.
pub fn points_of(text: &[u8], device: &str) -> Vec<PathBuf> {
    let point = |line: &[u8]| {
        let mut fields = line.split(|&byte| byte == b' ').skip(2);
        let is_its = fields.next() == Some(device.as_bytes());
        is_its.then(|| fields.nth(1).map(|point| PathBuf::from(OsString::from_vec(unescape(point))))).flatten()
    };
    text.split(|&byte| byte == b'\n').filter_map(point).collect()
}

/// Parses a line if it is about `path`: "36 35 98:0 /root /mount/point options [optional fields] - type source
/// super-options".
fn entry_at(line: &[u8], path: &[u8]) -> Option<Entry> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = text(fields.next()?).parse().ok()?;
    let device = text(fields.nth(1)?);
    if unescape(fields.nth(1)?) != path {
        return None;
    }
    fields.find(|field| *field == b"-")?;
    let kind = text(fields.next()?);
    let source = text(fields.next()?);
    Some(Entry { id, device, kind, source })
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(field)).into_owned()
}

/// Decodes a field: space, tab, newline and backslash appear as `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|digits| byte == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match octal {
            Some(digits) => {
                plain.push(digits.iter().fold(0u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')));
                rest = &after[3..];
            }
            None => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
        40 22 0:35 / /mnt/a\\040b rw,relatime shared:9 master:2 - fuse.sinter main rw,user_id=0\n\
        41 40 0:36 / /mnt/a\\040b rw - tmpfs tmpfs rw\n\
        garbage\n";

    #[test]
    fn the_last_mount_at_a_path_is_the_top() {
        let top = top_at(TEXT, b"/mnt/a b").expect("two are there");
        assert_eq!((top.id, top.kind.as_str(), top.device.as_str()), (41, "tmpfs", "0:36"));
        assert_eq!(top_at(TEXT, b"/").map(|top| top.source), Some("/dev/vda".into()));
        assert_eq!(top_at(TEXT, b"/mnt"), None);
        assert_eq!(points_of(TEXT, "0:35"), [PathBuf::from("/mnt/a b")]);
        assert!(points_of(TEXT, "0:3").is_empty());
    }
}
