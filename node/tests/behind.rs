//! Bytes that a shared mapping stores behind a file's end, within its last page, belong to nobody: when the file grows,
//! they are zeros.

use crate::calls::Mapping;
use crate::daemon::Home;
use std::fs::File;
use std::io::{Error, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// A page, and a file that ends within it.
const PAGE: usize = 4096;
const END: usize = 100;

/// Makes a file grow; the bytes that it wrote.
type Growth = fn(&Path) -> std::ops::Range<usize>;

fn open(path: &Path, flags: i32) -> File {
    File::options().read(true).write(true).custom_flags(flags).open(path).expect("open")
}

fn allocate(path: &Path, mode: i32) -> std::ops::Range<usize> {
    // SAFETY: the call takes numbers.
    let done = unsafe { libc::fallocate(open(path, 0).as_raw_fd(), mode, 4 * PAGE as i64, PAGE as i64) };
    assert_eq!(done, 0, "fallocate: {}", Error::last_os_error());
    0..0
}

fn write(path: &Path, flags: i32, at: usize, length: usize) -> std::ops::Range<usize> {
    let bytes = Mapping::anonymous(PAGE);
    open(path, flags).write_all_at(&bytes.bytes()[..length], at as u64).expect("write");
    at..at + length
}

const GROWTHS: [(&str, Growth); 6] = [
    ("ftruncate", |path| {
        open(path, 0).set_len(5 * PAGE as u64).expect("ftruncate");
        0..0
    }),
    ("ftruncate within the page", |path| {
        open(path, 0).set_len(300).expect("ftruncate");
        0..0
    }),
    ("fallocate", |path| allocate(path, 0)),
    ("zero range", |path| allocate(path, libc::FALLOC_FL_ZERO_RANGE)),
    ("O_DSYNC within the page", |path| write(path, libc::O_DSYNC, 200, 50)),
    ("append", |path| {
        File::options().append(true).open(path).and_then(|mut file| file.write_all(&[0; 10])).expect("append");
        END..END + 10
    }),
];

/// The bytes between the old end and the next page once the file has grown, as the page cache has them and as the file does.
fn grown(path: &Path, growth: Growth, written_back: bool) -> [Vec<u8>; 2] {
    drop(std::fs::remove_file(path));
    std::fs::write(path, [1; END]).expect("create");
    let file = open(path, 0);
    let mut mapping = Mapping::of(&file, PAGE, libc::MAP_SHARED).expect("mmap");
    mapping.bytes_mut()[END..].fill(7);
    if written_back {
        mapping.bytes_mut()[0] = 1;
        mapping.sync();
    }
    let written = growth(path);
    let behind = |flags: i32| {
        let mut bytes = Mapping::anonymous(PAGE);
        let length = open(path, flags).read_at(bytes.bytes_mut(), 0).expect("read");
        assert!(length > END, "it has grown");
        let of_file = bytes.bytes()[..length].iter().enumerate().skip(END);
        of_file.filter(|(at, _)| !written.contains(at)).map(|(_, byte)| *byte).collect()
    };
    let cached = behind(0);
    mapping.sync();
    [cached, behind(libc::O_DIRECT)]
}

#[test]
fn bytes_stored_behind_the_end_are_zeros_when_the_file_grows() {
    let home = Home::new("behind");
    let daemon = home.up();
    let path = home.mount.join("file");
    let mut wrong = Vec::new();
    for (what, growth) in GROWTHS {
        for written_back in [false, true] {
            let seen = grown(&path, growth, written_back).map(|bytes| bytes.iter().all(|&byte| byte == 0));
            if seen != [true; 2] {
                wrong.push((what, written_back, seen));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    daemon.terminate();
    home.check();
}

/// A limit: whoever answers a write does not know where the file ended before, and a plain write to that page has it locked.
#[test]
fn a_write_behind_the_end_makes_content_of_what_a_mapping_stored_there() {
    const BEHIND: [(&str, Growth); 3] = [
        ("O_DIRECT", |path| write(path, libc::O_DIRECT, 4 * PAGE, PAGE)),
        ("write behind", |path| write(path, 0, 4 * PAGE + 10, 10)),
        ("write within the page", |path| write(path, 0, 200, 50)),
    ];
    let home = Home::new("written-behind");
    let daemon = home.up();
    let path = home.mount.join("file");
    for (what, growth) in BEHIND {
        let seen = |written_back| grown(&path, growth, written_back).map(|bytes| bytes.iter().all(|&byte| byte == 0));
        assert_eq!(seen(true), [true; 2], "{what}: what was written back before is zeros");
        assert_eq!(seen(false), [false; 2], "{what}: if this is zeros now, the limit in SPECIFICATION has gone");
    }
    daemon.terminate();
    home.check();
}
