//! Sparse files on a real mount: holes, zeroed ranges, seeks and copies beside a plain model, kills in between; holes on a
//! full brick, and one of the largest size.

use crate::daemon::{Home, system, text};
use crate::space::{content, settle, space};
use runtime::random::SplitMix;
use std::fs::{File, OpenOptions};
use std::io::Error;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// The file of the random operations: several leaves.
const SIZE_MAX: u64 = 2 * MIB;
const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;

fn allocate(file: &File, mode: i32, offset: u64, length: u64) -> Result<(), i32> {
    // SAFETY: the descriptor is open; nothing else is passed but numbers.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as i64, length as i64) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error().raw_os_error().expect("an errno")),
    }
}

fn seek(file: &File, offset: u64, whence: i32) -> Result<u64, i32> {
    // SAFETY: as above.
    match unsafe { libc::lseek(file.as_raw_fd(), offset as i64, whence) } {
        -1 => Err(Error::last_os_error().raw_os_error().expect("an errno")),
        found => Ok(found as u64),
    }
}

/// The file's bytes are the model's, and what is told to be a hole holds nothing; how many bytes lie in holes.
fn compare(file: &File, model: &[u8]) -> u64 {
    let mut bytes = vec![0; model.len() + 1];
    let mut read = 0;
    while let more @ 1.. = file.read_at(&mut bytes[read..], read as u64).expect("it reads") {
        read += more;
    }
    assert_eq!(read, model.len());
    assert!(bytes[..read] == *model, "differs at {:?}", bytes.iter().zip(model).position(|(one, other)| one != other));
    let (mut at, end, mut holes) = (0, model.len() as u64, 0);
    while at < end {
        let data = seek(file, at, libc::SEEK_DATA).unwrap_or_else(|errno| {
            assert_eq!(errno, libc::ENXIO);
            end
        });
        assert!(
            data >= at && model[at as usize..data as usize].iter().all(|&byte| byte == 0),
            "data in a hole at {at}"
        );
        holes += data - at;
        if data == end {
            break;
        }
        at = seek(file, data, libc::SEEK_HOLE).expect("the end is a hole");
        assert!(at > data && at <= end);
    }
    for whence in [libc::SEEK_DATA, libc::SEEK_HOLE] {
        assert_eq!(seek(file, end, whence), Err(libc::ENXIO));
    }
    holes
}

/// One random change, of the file and of the model.
fn change(random: &mut SplitMix, file: &File, model: &mut Vec<u8>, number: u64) {
    let (mut offset, mut length) = (random.below(SIZE_MAX / 2), 1 + random.below(SIZE_MAX / 4));
    if random.one_in(2) {
        (offset, length) = (offset / 4096 * 4096, length.next_multiple_of(4096));
    } else if random.one_in(2) {
        length = 1 + length % 10_000;
    }
    let grown = |model: &mut Vec<u8>| model.resize(model.len().max((offset + length) as usize), 0);
    let clear = |model: &mut Vec<u8>| {
        let within = |byte: u64| (byte as usize).min(model.len());
        let (from, to) = (within(offset), within(offset + length));
        model[from..to].fill(0);
    };
    match random.below(6) {
        0 | 1 => {
            let bytes = content(1, number, length as usize);
            file.write_all_at(&bytes, offset).expect("there is room");
            grown(model);
            model[offset as usize..(offset + length) as usize].copy_from_slice(&bytes);
        }
        2 => {
            allocate(file, PUNCH, offset, length).expect("a hole");
            clear(model);
        }
        3 => {
            allocate(file, ZERO, offset, length).expect("there is room");
            clear(model);
            grown(model);
        }
        4 => {
            allocate(file, ZERO | KEEP, offset, length).expect("there is room");
            clear(model);
        }
        _ => {
            file.set_len(offset).expect("files can be cut");
            model.resize(offset as usize, 0);
        }
    }
}

#[test]
fn random_holes_agree_with_a_plain_model_and_outlive_kills() {
    let home = Home::new("sparse");
    let path = home.mount.join("file");
    let (mut random, mut model, mut holes) = (SplitMix(5), Vec::new(), 0);
    for life in 0..3 {
        let daemon = home.up();
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).expect("it opens");
        compare(&file, &model);
        for number in 0..300 {
            change(&mut random, &file, &mut model, 1000 * life + number);
            if number % 10 == 0 {
                holes += compare(&file, &model);
            }
        }
        file.sync_all().expect("a healthy brick syncs");
        daemon.kill();
        home.check();
    }
    assert!(holes > MIB, "no hole was ever told: {holes}");
}

#[test]
fn copies_between_files_are_exact_and_other_modes_are_refused() {
    let home = Home::new("copy");
    let daemon = home.up();
    let open = |name: &str| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).open(home.mount.join(name)).expect("it opens")
    };
    let (source, target) = (open("source"), open("target"));
    let bytes = content(3, 1, 700_001);
    source.write_all_at(&bytes, 5000).expect("there is room");
    allocate(&source, PUNCH, 100_000, 300_000).expect("a hole");
    target.write_all_at(&content(4, 1, 900_000), 0).expect("there is room");
    let (mut from, mut to, mut left) = (1234i64, 777i64, 650_000usize);
    while left > 0 {
        // SAFETY: both descriptors are open, both offsets are ours.
        let copied = unsafe {
            libc::copy_file_range(source.as_raw_fd(), &raw mut from, target.as_raw_fd(), &raw mut to, left, 0)
        };
        assert!(copied > 0, "{}", Error::last_os_error());
        left -= copied as usize;
    }
    let mut expected = content(4, 1, 900_000);
    let mut whole = [vec![0; 5000], bytes].concat();
    whole[100_000..400_000].fill(0);
    expected[777..777 + 650_000].copy_from_slice(&whole[1234..1234 + 650_000]);
    compare(&target, &expected);
    for mode in [libc::FALLOC_FL_COLLAPSE_RANGE, libc::FALLOC_FL_INSERT_RANGE, libc::FALLOC_FL_PUNCH_HOLE] {
        assert_eq!(allocate(&source, mode, 0, 4096), Err(libc::EOPNOTSUPP));
    }
    compare(&source, &whole);
    daemon.terminate();
    home.check();
}

/// A full brick makes holes, also of the largest file, at once; what they free can be written.
#[test]
fn holes_are_made_on_a_full_brick() {
    let home = Home::new("sparse-full");
    let mut command = home.command();
    command.args(["--segment-size", "16M", "--memory-max", "256M", "--groups", "16"]);
    let daemon = crate::daemon::Daemon::start(command);
    let path = home.mount.join("file");
    let file = File::create_new(&path).expect("a new file");
    for number in 0..200 {
        file.write_all_at(&content(9, number, MIB as usize), number * MIB).expect("there is room");
    }
    file.set_len(16 << 40).expect("a file of 16 TiB");
    let before = settle(&home);
    let rest = (before.statfs_free / MIB).to_string() + "M";
    system("fallocate", &["--length", &rest, text(&home.mount.join("rest"))]);
    let refused = std::fs::write(home.mount.join("more"), vec![1; 4 << 20]);
    assert!(refused.is_err_and(|error| error.raw_os_error() == Some(libc::ENOSPC)), "the brick is not full");
    // It has room for what it holds.
    allocate(&file, ZERO | KEEP, 0, 50 * MIB).expect("no more than was there");
    let started = Instant::now();
    allocate(&file, PUNCH, 100 * MIB + 1, (16 << 40) - 100 * MIB - 1).expect("a full brick makes holes");
    assert!(started.elapsed() < Duration::from_secs(2), "a hole took {:?}", started.elapsed());
    file.sync_all().expect("a healthy brick syncs");
    daemon.kill();
    home.check();
    let daemon = home.up();
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("it is there");
    assert_eq!(seek(&file, 0, libc::SEEK_DATA), Ok(50 * MIB));
    assert_eq!(seek(&file, 50 * MIB, libc::SEEK_HOLE), Ok(100 * MIB + 4096));
    assert_eq!(seek(&file, 101 * MIB, libc::SEEK_DATA), Err(libc::ENXIO));
    let mut bytes = vec![1; MIB as usize];
    file.read_exact_at(&mut bytes, 100 * MIB).expect("it reads");
    assert!(bytes[0] == content(9, 100, 1)[0] && bytes[1..].iter().all(|&byte| byte == 0));
    // What the hole gave back, and what the zeros were promised.
    std::fs::write(home.mount.join("more"), content(2, 1, 80 << 20)).expect("the hole has given room back");
    for number in 0..50 {
        file.write_all_at(&content(10, number, MIB as usize), number * MIB).expect("it was promised");
    }
    file.sync_all().expect("a healthy brick syncs");
    assert!(space(&home).statfs_free < 40 * MIB);
    daemon.terminate();
    home.check();
}
