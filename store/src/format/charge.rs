//! The space charged for names and attributes (rule K5): the bytes of their rows in the index, keys included. A row's
//! size follows from its content, so records tell by how much the sum changes.

use base::{FileKind, Name};

/// An inode: the larger of its two forms.
pub const INODE: u64 = 122;
/// The row of an inode's attributes without any: key, version, how many.
const XATTRS: u64 = 21 + 5;

/// A name in a directory: its entry and its cookie.
pub fn name(name: &Name) -> u64 {
    let bytes = name.as_bytes().len() as u64;
    // Directory, end and branch around the name; then kind, inode and cookie.
    let entry = (9 + 8 + bytes + 1 + 4) + (1 + 1 + 8 + 8);
    let cookie = (9 + 8 + 8 + 4) + (1 + 1 + 8 + bytes);
    entry + cookie
}

/// The charge for a symbolic link's target of this many bytes.
pub fn target(bytes: u64) -> u64 {
    21 + 1 + bytes
}

/// The charge that ends with an inode, besides that of its attributes: a link's size is its target's.
pub fn target_of(kind: FileKind, size: u64) -> u64 {
    if kind == FileKind::Link { target(size) } else { 0 }
}

/// An attribute, as if it were the inode's only one.
pub fn xattr(name: &Name, value: &[u8]) -> u64 {
    XATTRS + 2 + name.as_bytes().len() as u64 + 4 + value.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{keys, values};
    use base::{GroupId, Ino, Time, VolumeId, Xattrs};

    #[test]
    fn rows_are_as_long_as_they_are_counted() {
        let (volume, ino) = (VolumeId(1), Ino::new(9, GroupId(3)));
        let length = |key: Vec<u8>, value: Vec<u8>| (key.len() + value.len()) as u64;
        for text in [&b"a"[..], &[b'x'; 255]] {
            let of = Name::new(text).expect("a name");
            let entry = length(keys::entry(volume, ino, text), values::encode_entry(ino, FileKind::File, 7));
            let cookie = length(keys::cookie(volume, ino, 7), values::encode_cookie(text, ino, FileKind::File));
            assert_eq!(name(&of), entry + cookie);
            assert_eq!(target(text.len() as u64), length(keys::target(volume, ino), values::encode_target(text)));
            let one = Xattrs::from([(of.clone(), text.into())]);
            assert_eq!(xattr(&of, text), length(keys::xattrs(volume, ino), values::encode_xattrs(&one)));
        }
        let inode = base::Inode::blank(FileKind::File, ino, ino, Time(1));
        assert!((INODE - 8..=INODE).contains(&length(keys::inode(volume, ino), values::encode_inode(&inode))));
        assert_eq!((target_of(FileKind::Link, 5), target_of(FileKind::File, 5)), (target(5), 0));
    }
}
