//! Trees of files: made from a seed, compared name by name and byte by byte.

use runtime::random::SplitMix;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Files per directory.
const PER_DIRECTORY: u64 = 50;

/// Makes `files` files below `root`: mostly small, some of a few blocks, a few larger; names of many kinds, links,
/// empty directories, modes.
pub fn make(root: &Path, files: u64, seed: u64) {
    let mut random = SplitMix(seed);
    let mut directory = root.to_path_buf();
    for number in 0..files {
        if number % PER_DIRECTORY == 0 {
            let below = if random.one_in(3) { &directory } else { root };
            directory = below.join(format!("directory {number}"));
            std::fs::create_dir(&directory).expect("the tree's parent is writable");
        }
        make_one(&directory, number, &mut random);
    }
    std::fs::create_dir(root.join("empty")).expect("the tree's parent is writable");
}

fn make_one(directory: &Path, number: u64, random: &mut SplitMix) {
    let name = match random.below(20) {
        0 => format!("ünïcode-{number}"),
        1 => format!("{number}{}", "x".repeat(240)),
        2 => format!("with space and 'quotes' {number}"),
        _ => format!("file-{number}"),
    };
    let path = directory.join(name);
    if random.one_in(25) {
        return symlink(format!("../target {number}"), &path).expect("the tree is writable");
    }
    let bytes = match random.below(100) {
        0..10 => 0,
        10..70 => random.below(4096),
        70..95 => random.below(40 << 10),
        95..99 => random.below(400 << 10),
        _ => random.below(3 << 20),
    };
    let mut content = vec![0; bytes as usize];
    for chunk in content.chunks_mut(8) {
        chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]);
    }
    std::fs::write(&path, content).expect("the tree is writable");
    let mode = [0o644, 0o600, 0o755, 0o444][random.below(4) as usize];
    std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("own file");
}

/// The object behind a name.
#[derive(PartialEq, Eq, Debug)]
struct Entry {
    mode: u32,
    owner: (u32, u32),
    /// Nanoseconds since 1970; of directories it depends on the order of copying.
    changed: Option<(i64, i64)>,
    size: u64,
    /// A file's checksum, a link's target.
    content: Vec<u8>,
}

fn entry(path: &Path) -> Entry {
    let found = std::fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let read = || {
        let content = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(content.len() as u64, found.len(), "{}: its length differs from what is read", path.display());
        base::checksum::crc32c(&content).to_le_bytes().to_vec()
    };
    let content = match found.file_type() {
        kind if kind.is_file() => read(),
        kind if kind.is_symlink() => std::fs::read_link(path).expect("a link").as_os_str().as_bytes().to_vec(),
        _ => Vec::new(),
    };
    Entry {
        mode: found.mode(),
        owner: (found.uid(), found.gid()),
        changed: found.is_file().then(|| (found.mtime(), found.mtime_nsec())),
        size: if found.is_dir() { 0 } else { found.len() },
        content,
    }
}

fn walk(root: &Path, below: &Path, found: &mut BTreeMap<PathBuf, Entry>) {
    let listing = std::fs::read_dir(root.join(below)).unwrap_or_else(|error| panic!("{}: {error}", below.display()));
    for one in listing {
        let one = one.expect("a directory can be read to its end");
        let path = below.join(one.file_name());
        let is_directory = one.file_type().expect("it has a type").is_dir();
        let before = found.insert(path.clone(), entry(&root.join(&path)));
        assert!(before.is_none(), "{} is listed twice", path.display());
        if is_directory {
            walk(root, &path, found);
        }
    }
}

/// Compares two trees; the number of their entries.
pub fn compare(expected: &Path, found: &Path) -> usize {
    let tree = |root: &Path| {
        let mut entries = BTreeMap::new();
        walk(root, Path::new(""), &mut entries);
        entries
    };
    let (expected, found) = (tree(expected), tree(found));
    for (path, entry) in &expected {
        match found.get(path) {
            Some(other) => assert_eq!(other, entry, "{} differs", path.display()),
            None => panic!("{} is missing", path.display()),
        }
    }
    if let Some(extra) = found.keys().find(|path| !expected.contains_key(*path)) {
        panic!("{} was never made", extra.display());
    }
    expected.len()
}
