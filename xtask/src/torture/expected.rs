//! The contents that the clients were told, and their verification as a whole.
//!
//! Promises: all that is in the volume is looked at, and nothing else may be there.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes of a block, and blocks of a file.
pub const BLOCK: u64 = 4096;
pub const BLOCKS: u64 = 1024;
/// The directory of the clients of names.
pub const NAMES: &str = "names";

/// A block, which says throughout whose it is, which, and of what version.
#[repr(align(4096))]
pub struct Block(pub [u8; BLOCK as usize]);

impl Block {
    /// Makes one. Version 0 was never written, and is zeros.
    pub fn new(writer: u64, block: u64, version: u64) -> Block {
        let mut made = Block([0; BLOCK as usize]);
        if version > 0 {
            let words = [writer, block, version].into_iter().cycle();
            made.0.chunks_exact_mut(8).zip(words).for_each(|(place, word)| place.copy_from_slice(&word.to_le_bytes()));
        }
        made
    }
    /// Tells how it differs from what it must be.
    pub fn differs(&self, writer: u64, block: u64, version: u64) -> Option<String> {
        differs(&self.0, (writer, block, version))
    }
}

fn differs(found: &[u8], (writer, block, version): (u64, u64, u64)) -> Option<String> {
    let wanted = Block::new(writer, block, version);
    let at = found.iter().zip(&wanted.0).position(|(found, wanted)| found != wanted)?;
    let word = |at: usize| {
        found.get(at..at + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("a slice of eight bytes")))
    };
    let (from, told) = (at / 24 * 24, format!("block {block} of {writer}: version {version} was answered"));
    Some(format!("{told}; from byte {at} on it has ({}, {}, {})", word(from), word(from + 8), word(from + 16)))
}

/// The line of a log.
pub fn line(writer: u64, number: u64) -> String {
    format!("{writer} {number}\n")
}

/// Lists a directory, in order.
pub fn listed(directory: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = entries.collect::<io::Result<Vec<String>>>()?;
    names.sort();
    Ok(names)
}

/// The contents that a client was told.
#[derive(Debug)]
pub enum Expected {
    Log {
        number: u64,
        lines: u64,
    },
    Blocks {
        number: u64,
        versions: Vec<u64>,
    },
    Names {
        names: BTreeMap<String, u64>,
    },
    /// Its share of the counter.
    Counted(u64),
    /// Nothing.
    Gone,
}

/// Verifies all contents; what is lost or wrong.
pub fn verify(mount: &Path, all: &[Expected]) -> Vec<String> {
    let mut wrong: Vec<String> = all.iter().filter_map(|expected| one(mount, expected).err()).collect();
    wrong.extend([counter(mount, all), names(mount, all), root(mount, all)].into_iter().filter_map(Result::err));
    wrong
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn one(mount: &Path, expected: &Expected) -> Result<(), String> {
    match expected {
        Expected::Log { number, lines } => {
            let found = read(&mount.join(format!("log-{number}")))?;
            let wanted: String = (0..*lines).map(|at| line(*number, at)).collect();
            let same = found.iter().zip(wanted.as_bytes()).take_while(|(found, wanted)| found == wanted).count();
            let whole = same == found.len() && same == wanted.len();
            let told = || format!("log-{number}: {} bytes, not {}; as it was up to {same}", found.len(), wanted.len());
            if whole { Ok(()) } else { Err(told()) }
        }
        Expected::Blocks { number, versions } => {
            let found = read(&mount.join(format!("blocks-{number}")))?;
            if found.len() as u64 != BLOCKS * BLOCK {
                return Err(format!("blocks-{number}: {} bytes", found.len()));
            }
            let blocks = found.chunks(BLOCK as usize).zip(versions).enumerate();
            let mut wrong = blocks.filter_map(|(at, (found, version))| differs(found, (*number, at as u64, *version)));
            wrong.next().map_or(Ok(()), |first| Err(format!("{first}; {} more", wrong.count())))
        }
        Expected::Names { names } => {
            let wrong = |(name, content): (&String, &u64)| match read(&mount.join(NAMES).join(name)) {
                Ok(found) if found == content.to_string().as_bytes() => None,
                Ok(found) => Some(format!("{name} has {:?}, not {content}", String::from_utf8_lossy(&found))),
                Err(error) => Some(error),
            };
            names.iter().find_map(wrong).map_or(Ok(()), Err)
        }
        Expected::Counted(_) | Expected::Gone => Ok(()),
    }
}

/// Verifies that each count of each client is there.
fn counter(mount: &Path, all: &[Expected]) -> Result<(), String> {
    let counted = |expected: &Expected| if let Expected::Counted(count) = expected { Some(*count) } else { None };
    let wanted: u64 = all.iter().filter_map(counted).sum();
    let found = read(&mount.join("counter"))?;
    let found = <[u8; 8]>::try_from(&found[..]).map_err(|_| format!("the counter has {} bytes", found.len()))?;
    let found = u64::from_le_bytes(found);
    if found == wanted { Ok(()) } else { Err(format!("the counter has {found}; {wanted} increments were answered")) }
}

/// Verifies that the common directory has all names, and no other.
fn names(mount: &Path, all: &[Expected]) -> Result<(), String> {
    let own = |expected: &Expected| match expected {
        Expected::Names { names } => names.keys().cloned().collect(),
        _ => Vec::new(),
    };
    exactly(&mount.join(NAMES), all.iter().flat_map(own).collect())
}

/// Verifies that nothing else is in the volume.
fn root(mount: &Path, all: &[Expected]) -> Result<(), String> {
    let own = |expected: &Expected| match expected {
        Expected::Log { number, .. } => Some(format!("log-{number}")),
        Expected::Blocks { number, .. } => Some(format!("blocks-{number}")),
        _ => None,
    };
    let beside = [NAMES, "counter"].map(str::to_string);
    exactly(mount, all.iter().filter_map(own).chain(beside).collect())
}

fn exactly(directory: &Path, wanted: Vec<String>) -> Result<(), String> {
    let found = listed(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    differing(directory, found, wanted).map_or(Ok(()), Err)
}

/// Tells how a listing differs from what it must be; each name in question is looked for by itself and in a second listing, which says
/// whether the listing was wrong or the directory is.
pub fn differing(directory: &Path, mut found: Vec<String>, mut wanted: Vec<String>) -> Option<String> {
    found.sort();
    wanted.sort();
    if found == wanted {
        return None;
    }
    let again = listed(directory);
    let told = |name: &String| {
        let there = match fs::symlink_metadata(directory.join(name)) {
            Ok(found) => format!("stat finds inode {}", found.ino()),
            Err(error) => format!("stat: {error}"),
        };
        let again = match &again {
            Ok(names) => {
                format!("a second listing has it {} times", names.iter().filter(|other| *other == name).count())
            }
            Err(error) => format!("a second listing: {error}"),
        };
        format!("{name} ({there}; {again})")
    };
    let missing: Vec<_> = wanted.iter().filter(|name| !found.contains(name)).map(told).collect();
    let extra: Vec<_> = found.iter().filter(|name| !wanted.contains(name)).map(told).collect();
    let twice: Vec<_> = found.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| told(&pair[0])).collect();
    let all = [("missing", missing), ("should not be there", extra), ("there twice", twice)];
    let parts = all.into_iter().filter(|(_, names)| !names.is_empty());
    let parts: Vec<String> = parts.map(|(how, names)| format!("{how}: {}", names.join(", "))).collect();
    Some(format!("{}, listed: {}", directory.display(), parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_torn_blocks_are_told() {
        let mut block = Block::new(3, 7, 2);
        assert_eq!(block.differs(3, 7, 2), None);
        let told = block.differs(3, 7, 3).expect("it is old");
        assert!(told.contains("version 3") && told.contains("(3, 7, 2)"), "{told}");
        block.0[2048..].copy_from_slice(&Block::new(3, 7, 1).0[2048..]);
        let told = block.differs(3, 7, 2).expect("it is torn");
        assert!(told.contains("(3, 7, 1)"), "{told}");
        assert_eq!(Block::new(3, 7, 0).differs(3, 7, 0), None);
    }

    #[test]
    fn names_that_a_listing_lacks_are_looked_for_again() {
        let directory = std::env::temp_dir().join(format!("sinter-cluster-torture-names-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("writable");
        fs::write(directory.join("a"), "").expect("writable");
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let of = |found: &[&str], wanted: &[&str]| differing(&directory, names(found), names(wanted));
        let told = [of(&["a", "b"], &["b", "a"]), of(&[], &["a"]), of(&["a", "a", "b"], &["a"])];
        fs::remove_dir_all(&directory).expect("it is there");
        let [None, Some(missing), Some(extra)] = told else { panic!("{told:?}") };
        assert!(missing.contains("missing: a (stat finds inode"), "{missing}");
        assert!(missing.contains("a second listing has it 1 times"), "{missing}");
        assert!(extra.contains("should not be there: b (stat: No such file"), "{extra}");
        assert!(extra.contains("there twice: a (stat finds"), "{extra}");
    }

    #[test]
    fn a_volume_is_verified_as_a_whole() {
        let name = format!("sinter-cluster-torture-test-{}", std::process::id());
        let mount = std::env::temp_dir().join(name);
        fs::create_dir_all(mount.join(NAMES)).expect("writable");
        let write = |name: &str, content: &[u8]| fs::write(mount.join(name), content).expect("writable");
        write("log-0", b"0 0\n0 1\n");
        write("counter", &5u64.to_le_bytes());
        write("names/0-1", b"1");
        let names = BTreeMap::from([("0-1".to_string(), 1)]);
        let mut all = vec![
            Expected::Log { number: 0, lines: 2 },
            Expected::Names { names },
            Expected::Counted(2),
            Expected::Counted(3),
            Expected::Gone,
        ];
        assert_eq!(verify(&mount, &all), Vec::<String>::new());
        write("unnamed", b"");
        write("names/0-2", b"2");
        all[0] = Expected::Log { number: 0, lines: 3 };
        all[3] = Expected::Counted(4);
        let wrong = verify(&mount, &all);
        fs::remove_dir_all(&mount).expect("it is there");
        for (told, part) in wrong.iter().zip(["log-0: 8 bytes, not 12", "6 increments", "0-2", "unnamed"]) {
            assert!(told.contains(part), "{told}");
        }
        assert_eq!(wrong.len(), 4);
    }
}
