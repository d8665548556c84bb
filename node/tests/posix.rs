//! The promises of POSIX and Linux about names, locks, mappings and times, on a real mount; some of it after a kill.

use crate::calls::{Directory, Mapping, accessed, link_open, lock, name_of, nameless, rename_with, set_times};
use crate::daemon::{Home, system, text};
use runtime::random::SplitMix;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

const MIB: usize = 1 << 20;

fn read_write() -> OpenOptions {
    let mut options = File::options();
    options.read(true).write(true);
    options
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// O_TMPFILE: without a name until it is given one, in any directory; a kill ends those that have none.
#[test]
fn files_without_a_name_are_kept_by_a_name_alone() {
    let home = Home::new("nameless");
    let daemon = home.up();
    let mount = &home.mount;
    (0..4).for_each(|number| fs::create_dir(mount.join(format!("d{number}"))).expect("mkdir"));
    let lost = nameless(mount, 0).expect("O_TMPFILE");
    lost.write_all_at(&vec![1; 3 * MIB], 0).expect("write");
    lost.sync_all().expect("fsync");
    assert_eq!(lost.metadata().expect("fstat").nlink(), 0);
    for number in 0..4 {
        let file = nameless(mount, 0).expect("O_TMPFILE");
        file.write_all_at(&vec![number; MIB], 0).expect("write");
        let path = mount.join(format!("d{number}/named"));
        link_open(&file, &path).expect("linkat of an open file");
        assert_eq!(fs::metadata(&path).expect("stat").nlink(), 1);
        file.sync_all().expect("fsync");
        fs::remove_file(&path).expect("unlink");
        assert_eq!(errno(link_open(&file, &path)), Some(libc::ENOENT), "a removed file gets no name");
        let file = nameless(&mount.join("d0"), 0).expect("O_TMPFILE");
        file.write_all_at(&vec![number; MIB], 0).expect("write");
        link_open(&file, &path).expect("linkat of an open file");
        file.sync_all().expect("fsync");
    }
    let closed = nameless(mount, libc::O_EXCL).expect("O_TMPFILE");
    assert_eq!(errno(link_open(&closed, &mount.join("never"))), Some(libc::ENOENT), "O_EXCL: never a name");
    let named = fs::read_dir(mount).expect("opendir").count();
    assert_eq!(named, 4, "no name of a nameless file is to be seen");
    daemon.kill();
    drop((lost, closed));
    let daemon = home.up();
    for number in 0..4 {
        let path = mount.join(format!("d{number}/named"));
        assert!(fs::read(&path).expect("it has a name") == vec![number; MIB], "{}", path.display());
        assert_eq!(fs::metadata(&path).expect("stat").nlink(), 1);
        fs::remove_file(&path).expect("unlink");
    }
    daemon.terminate();
    home.check();
}

/// RENAME_WHITEOUT: old and new name change in one step, also between groups and over an existing name.
#[test]
fn a_whiteout_stays_where_something_was() {
    const FILES: u64 = 60;
    let home = Home::new("whiteout");
    let daemon = home.up();
    let mount = &home.mount;
    (0..6).for_each(|number| fs::create_dir(mount.join(format!("d{number}"))).expect("mkdir"));
    let from = |file: u64| mount.join(format!("d{}/from{file}", file % 5));
    let to = |file: u64| mount.join(format!("d{}/to{file}", if file.is_multiple_of(2) { file % 5 } else { 5 }));
    for file in 0..FILES {
        fs::write(from(file), file.to_string()).expect("create");
        if file % 3 == 0 {
            fs::write(to(file), "old").expect("create");
        }
        rename_with(&from(file), &to(file), libc::RENAME_WHITEOUT).expect("rename");
    }
    let both = libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE;
    assert_eq!(errno(rename_with(&to(0), &to(1), both)), Some(libc::EEXIST));
    // All that came before the last change is durable with it.
    File::open(to(FILES - 1)).and_then(|file| file.sync_all()).expect("fsync");
    let verify = || {
        for file in 0..FILES {
            assert_eq!(fs::read_to_string(to(file)).expect("it is there"), file.to_string());
            let left = fs::symlink_metadata(from(file)).expect("a whiteout");
            assert!(left.file_type().is_char_device(), "file {file}");
            assert_eq!((left.rdev(), left.mode() & 0o7777, left.nlink()), (0, 0, 1), "file {file}");
        }
    };
    verify();
    daemon.kill();
    let daemon = home.up();
    verify();
    (0..6).for_each(|number| fs::remove_dir_all(mount.join(format!("d{number}"))).expect("rm -r"));
    daemon.terminate();
    home.check();
}

/// relatime: the first read after a change is seen, reads of what the kernel has cached are not; a clean end keeps it.
#[test]
fn access_times_follow_reads() {
    let home = Home::new("atime");
    let daemon = home.up();
    let mount = &home.mount;
    let mounts = fs::read_to_string("/proc/self/mounts").expect("/proc is mounted");
    assert!(mounts.lines().any(|line| line.contains(text(mount)) && line.contains("relatime")), "it says so");
    let (path, dir) = (mount.join("file"), mount.join("dir"));
    fs::create_dir(&dir).expect("mkdir");
    fs::write(dir.join("entry"), b"x").expect("create");
    let mut direct = read_write();
    direct.create(true).custom_flags(libc::O_DIRECT);
    let file = direct.open(&path).expect("create");
    let block = Mapping::anonymous(4096);
    file.write_all_at(block.bytes(), 0).expect("write");
    let changed = fs::metadata(&path).expect("stat");
    std::thread::sleep(Duration::from_millis(10));
    fs::read(&path).expect("read");
    let first = accessed(&path);
    assert!(first > (changed.mtime(), changed.mtime_nsec()), "a read after a change is seen");
    std::thread::sleep(Duration::from_millis(10));
    file.read_exact_at(&mut vec![0; 4096], 0).expect("read");
    assert_eq!(accessed(&path), first, "relatime: nothing has changed since");
    file.write_all_at(block.bytes(), 0).expect("write");
    std::thread::sleep(Duration::from_millis(10));
    let quiet = OpenOptions::new().read(true).custom_flags(libc::O_NOATIME | libc::O_DIRECT).open(&path);
    quiet.and_then(|file| file.read_at(&mut [0; 4096], 0)).expect("read");
    assert_eq!(accessed(&path), first, "O_NOATIME");
    file.read_exact_at(&mut vec![0; 4096], 0).expect("read");
    let second = accessed(&path);
    assert!(second > first);
    let before = accessed(&dir);
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(fs::read_dir(&dir).expect("opendir").count(), 1);
    let listed = accessed(&dir);
    assert!(listed > before, "so is a listing");
    // utimensat: given, left alone, and now.
    let (omit, now) = ((0, libc::UTIME_OMIT), (0, libc::UTIME_NOW));
    set_times(&path, omit, (77, 5)).expect("utimensat");
    let told = fs::metadata(&path).expect("stat");
    assert_eq!((accessed(&path), (told.mtime(), told.mtime_nsec())), (second, (77, 5)));
    set_times(&path, (99, 1), omit).expect("utimensat");
    let told = fs::metadata(&path).expect("stat");
    assert_eq!((accessed(&path), (told.mtime(), told.mtime_nsec())), ((99, 1), (77, 5)));
    set_times(&path, now, omit).expect("utimensat");
    let last = accessed(&path);
    assert!(last > second);
    drop(file);
    daemon.terminate();
    let daemon = home.up();
    assert_eq!((accessed(&path), accessed(&dir)), (last, listed), "a clean end keeps what reads have moved");
    daemon.terminate();
    home.check();
}

/// The three kinds of locks between two handles; whole files and ranges; a close ends them.
#[test]
fn locks_exclude_each_other() {
    let home = Home::new("locks");
    let daemon = home.up();
    let path = home.mount.join("file");
    fs::write(&path, [0; 100]).expect("create");
    let open = || read_write().open(&path).expect("open");
    let (one, other) = (open(), open());
    one.lock_shared().expect("flock");
    other.try_lock_shared().expect("two readers");
    assert!(one.try_lock().is_err(), "another reader");
    other.unlock().expect("flock");
    one.lock().expect("flock");
    assert!(other.try_lock_shared().is_err() && other.try_lock().is_err());
    drop(one);
    other.try_lock().expect("the close has ended it");
    let (one, other) = (open(), open());
    for set in [libc::F_SETLK, libc::F_OFD_SETLK] {
        lock(&one, set, libc::F_WRLCK, 10, 20).expect("a free range");
        let mine = lock(&other, libc::F_OFD_SETLK, libc::F_RDLCK, 29, 1);
        assert!(matches!(errno(mine), Some(libc::EAGAIN | libc::EACCES)));
        lock(&other, libc::F_OFD_SETLK, libc::F_WRLCK, 30, 0).expect("behind it");
        lock(&other, libc::F_OFD_SETLK, libc::F_RDLCK, 0, 10).expect("before it");
        lock(&one, set, libc::F_UNLCK, 15, 5).expect("a hole in the middle");
        lock(&other, libc::F_OFD_SETLK, libc::F_WRLCK, 15, 5).expect("in the hole");
        assert!(lock(&other, libc::F_OFD_SETLK, libc::F_WRLCK, 14, 1).is_err());
        for file in [&one, &other] {
            [libc::F_SETLK, libc::F_OFD_SETLK]
                .into_iter()
                .for_each(|set| lock(file, set, libc::F_UNLCK, 0, 0).expect("unlock"));
        }
    }
    // POSIX locks are a process's: whichever handle it closes, they end.
    lock(&one, libc::F_SETLK, libc::F_WRLCK, 0, 0).expect("free");
    assert!(lock(&other, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 0).is_err());
    drop(open());
    lock(&other, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 0).expect("the close has ended them");
    drop((one, other));
    daemon.terminate();
}

/// Shared mappings, private ones, and reads and writes of all kinds see one file.
#[test]
fn mappings_and_direct_writes_see_each_other() {
    const BYTES: usize = 2 * MIB;
    let home = Home::new("mmap");
    let daemon = home.up();
    let path = home.mount.join("file");
    let mut model = vec![0; BYTES];
    fs::write(&path, &model).expect("create");
    let plain = read_write().open(&path).expect("open");
    let direct = read_write().custom_flags(libc::O_DIRECT).open(&path).expect("open");
    let shared = |file| Mapping::of(file, BYTES, libc::MAP_SHARED);
    // Kernels before 6.6 map no handle for direct I/O.
    let mut of_direct = shared(&direct).or_else(|_| shared(&plain)).expect("mmap");
    let mut shared = shared(&plain).expect("mmap");
    let mut private = Mapping::of(&plain, BYTES, libc::MAP_PRIVATE).expect("mmap");
    private.bytes_mut()[5] = 0xee;
    let mut rng = SplitMix(4);
    let mut block = Mapping::anonymous(4096);
    for round in 0..400 {
        let at = rng.below(BYTES as u64 / 4096) as usize * 4096;
        let byte = 1 + (round % 250) as u8;
        match rng.below(4) {
            0 => shared.bytes_mut()[at..at + 100].fill(byte),
            1 => of_direct.bytes_mut()[at..at + 100].fill(byte),
            2 => plain.write_all_at(&[byte; 100], at as u64).expect("write"),
            _ => {
                block.bytes_mut().copy_from_slice(&model[at..at + 4096]);
                block.bytes_mut()[..100].fill(byte);
                direct.write_all_at(block.bytes(), at as u64).expect("write");
            }
        }
        model[at..at + 100].fill(byte);
        let look = rng.below(BYTES as u64 / 4096) as usize * 4096;
        for at in [at, look] {
            let wanted = &model[at..at + 4096];
            assert!(shared.bytes()[at..at + 4096] == *wanted, "shared mapping, round {round}");
            assert!(of_direct.bytes()[at..at + 4096] == *wanted, "mapping of a direct handle, round {round}");
            let mut read = vec![0; 4096];
            plain.read_exact_at(&mut read, at as u64).expect("read");
            assert!(read == wanted, "read, round {round}");
            direct.read_exact_at(block.bytes_mut(), at as u64).expect("read");
            assert!(block.bytes() == wanted, "direct read, round {round}");
        }
    }
    assert_eq!(private.bytes()[5], 0xee, "a private page is its owner's");
    shared.sync();
    of_direct.sync();
    plain.sync_all().expect("fsync");
    assert!(fs::read(&path).expect("read") == model, "nothing of the private page is in the file");
    daemon.kill();
    drop((shared, of_direct, private, plain, direct));
    let daemon = home.up();
    assert!(fs::read(&path).expect("read") == model, "msync and fsync have made it durable");
    daemon.terminate();
    home.check();
}

/// Pipes, sockets and devices are names here; what they do is the kernel's business.
#[test]
fn pipes_sockets_and_devices_work() {
    let home = Home::new("special");
    let daemon = home.up();
    let mount = &home.mount;
    let pipe = mount.join("pipe");
    system("mkfifo", &[text(&pipe)]);
    let writer = {
        let pipe = pipe.clone();
        std::thread::spawn(move || File::options().write(true).open(pipe)?.write_all(b"through the pipe"))
    };
    let mut said = String::new();
    File::open(&pipe).and_then(|mut pipe| pipe.read_to_string(&mut said)).expect("read");
    writer.join().expect("no panic").expect("write");
    assert_eq!(said, "through the pipe");
    let socket = mount.join("socket");
    let listener = UnixListener::bind(&socket).expect("bind");
    assert!(fs::symlink_metadata(&socket).expect("stat").file_type().is_socket());
    let mut client = UnixStream::connect(&socket).expect("connect");
    client.write_all(b"over the socket").expect("write");
    drop(client);
    said.clear();
    listener.accept().and_then(|(mut server, _)| server.read_to_string(&mut said)).expect("read");
    assert_eq!(said, "over the socket");
    assert_eq!(errno(UnixListener::bind(&socket)), Some(libc::EADDRINUSE));
    let zero = mount.join("zero");
    system("mknod", &[text(&zero), "c", "1", "5"]);
    let mut bytes = [7; 16];
    File::open(&zero).and_then(|mut zero| zero.read_exact(&mut bytes)).expect("read");
    assert_eq!(bytes, [0; 16]);
    for path in [&pipe, &socket, &zero] {
        let moved = path.with_extension("moved");
        fs::rename(path, &moved).expect("rename");
        fs::hard_link(&moved, path).expect("link");
        assert_eq!(fs::symlink_metadata(path).expect("stat").nlink(), 2);
    }
    daemon.terminate();
    home.check();
}

/// A caller who may not write a running program can't truncate it either.
#[test]
fn a_running_program_stays_as_it_is() {
    let home = Home::new("busy");
    let daemon = home.up();
    let program = home.mount.join("sleep");
    fs::copy("/bin/sleep", &program).expect("copy");
    let length = fs::metadata(&program).expect("stat").len();
    let mut runs = std::process::Command::new(&program).arg("60").spawn().expect("it runs");
    let truncating = OpenOptions::new().read(true).custom_flags(libc::O_TRUNC).open(&program);
    assert_eq!(errno(truncating), Some(libc::ETXTBSY));
    assert_eq!(errno(File::create(&program)), Some(libc::ETXTBSY));
    assert_eq!(fs::metadata(&program).expect("stat").len(), length);
    assert!(runs.try_wait().expect("a child").is_none(), "it still runs");
    runs.kill().and_then(|()| runs.wait()).expect("it ends");
    File::create(&program).expect("nobody runs it");
    assert_eq!(fs::metadata(&program).expect("stat").len(), 0);
    daemon.terminate();
    home.check();
}

/// Names are bytes: 255 of them, any but two.
#[test]
fn names_are_any_bytes() {
    let home = Home::new("bytes");
    let daemon = home.up();
    let mount = &home.mount;
    let mut names: BTreeSet<Vec<u8>> = (1..=255u8).filter(|byte| *byte != b'/').map(|byte| vec![byte, b'_']).collect();
    names.extend([1, 100, 254, 255].map(|length| vec![0xff; length]));
    names.insert([&[b'.'; 254][..], b"\n"].concat());
    for name in &names {
        fs::write(mount.join(OsStr::from_bytes(name)), name).expect("create");
    }
    assert_eq!(errno(File::create(mount.join("n".repeat(256)))), Some(libc::ENAMETOOLONG));
    daemon.terminate();
    let daemon = home.up();
    let listed: BTreeSet<_> =
        fs::read_dir(mount).expect("opendir").map(|entry| name_of(&entry.expect("entry"))).collect();
    assert!(listed == names);
    for name in &names {
        assert!(fs::read(mount.join(OsStr::from_bytes(name))).expect("read") == *name);
    }
    daemon.terminate();
}

/// Files end at 16 TiB, and may be as sparse as one likes before.
#[test]
fn files_reach_sixteen_tebibytes() {
    const END: u64 = 16 << 40;
    let home = Home::new("large");
    let daemon = home.up();
    let path = home.mount.join("file");
    let file = read_write().create(true).open(&path).expect("create");
    for (number, at) in [0, 1 << 32, (1 << 41) + 5, (1 << 43) - 7, END - 13].into_iter().enumerate() {
        file.write_all_at(&[number as u8 + 1; 13], at).expect("write");
    }
    assert_eq!(errno(file.write_at(b"x", END)), Some(libc::EFBIG));
    assert_eq!(errno(file.set_len(END + 1)), Some(libc::EFBIG));
    file.sync_all().expect("fsync");
    daemon.kill();
    drop(file);
    let daemon = home.up();
    let file = read_write().open(&path).expect("open");
    assert_eq!(file.metadata().expect("stat").len(), END);
    let read = |at: u64| {
        let mut bytes = [0xff; 15];
        file.read_exact_at(&mut bytes, at).expect("read");
        bytes
    };
    for (number, at) in [1 << 32, (1 << 41) + 5, (1 << 43) - 7].into_iter().enumerate() {
        let mut wanted = [number as u8 + 2; 15];
        (wanted[0], wanted[14]) = (0, 0);
        assert_eq!(read(at - 1), wanted, "at {at}");
        assert_eq!(read(at + 100_000), [0; 15]);
    }
    assert_eq!(read(END - 15)[2..], [5; 13]);
    // SAFETY: the descriptor is open; nothing else is passed but numbers.
    let data = unsafe { libc::lseek(file.as_raw_fd(), 1 << 42, libc::SEEK_DATA) };
    assert_eq!(data as u64 / 4096, ((1 << 43) - 7) / 4096);
    file.set_len((1 << 41) + 6).expect("truncate");
    file.set_len(END).expect("truncate");
    assert_eq!(read((1 << 41) + 5)[0], 3);
    assert_eq!(read((1 << 41) + 6), [0; 15]);
    fs::remove_file(&path).expect("unlink");
    drop(file);
    daemon.terminate();
    home.check();
}

/// 20,000 entries, listed while others come and go: what was there all the time is listed once, what never was is not;
/// a position told stays good.
#[test]
fn listings_are_stable_under_change() {
    const KEPT: u32 = 20_000;
    let home = Home::new("listing");
    let daemon = home.up();
    let dir = home.mount.join("dir");
    fs::create_dir(&dir).expect("mkdir");
    let file = home.mount.join("file");
    fs::write(&file, b"one of many names").expect("create");
    for number in 0..KEPT {
        // Names of one file: they are made faster than files.
        fs::hard_link(&file, dir.join(format!("kept{number}"))).expect("link");
        if number % 10 == 0 {
            File::create(dir.join(format!("doomed{number}"))).expect("create");
        }
    }
    let mut listing = Directory::open(&dir);
    let mut seen = BTreeSet::new();
    let mut places = Vec::new();
    let mut count = 0;
    while let Some((name, place)) = listing.step() {
        count += 1;
        if count % 97 == 0 {
            // Before and behind where the listing is.
            drop(fs::remove_file(dir.join(format!("doomed{}", (count * 7919) % KEPT / 10 * 10))));
            File::create(dir.join(format!("new{count}"))).expect("create");
            let (from, to) = (format!("new{}", count - 97), format!("moved{count}"));
            drop(fs::rename(dir.join(from), dir.join(to)));
        }
        if count % 997 == 0 {
            places.push((place, name.clone()));
        }
        if name.starts_with("kept") {
            assert!(seen.insert(name), "an entry was listed twice");
        } else {
            assert!(
                name.starts_with('.')
                    || name.starts_with("doomed")
                    || name.starts_with("new")
                    || name.starts_with("moved")
            );
        }
    }
    assert_eq!(seen.len(), KEPT as usize);
    assert!(places.len() >= 10);
    for (place, name) in places.into_iter().rev().filter(|(_, name)| name.starts_with("kept")) {
        fs::remove_file(dir.join(&name)).expect("unlink");
        seen.remove(&name);
        // What comes behind the place is the same, though the entry before it is gone.
        listing.seek(place);
        let (behind, _) = listing.step().expect("not the last one");
        listing.seek(place);
        assert_eq!(listing.step().map(|(again, _)| again), Some(behind));
    }
    listing.seek(0);
    let again: BTreeSet<_> = std::iter::from_fn(|| listing.step()).map(|(name, _)| name).collect();
    assert!(seen.iter().all(|name| again.contains(name)));
    drop(listing);
    fs::remove_dir_all(&dir).expect("rm -r");
    daemon.terminate();
    home.check();
}

/// Reading a directory ends though each entry that it shows gets a new name at once. What was made meanwhile is there from the
/// start on, positions stay good, and no stream's end is another one's.
#[test]
fn a_listing_ends_while_all_that_it_shows_is_renamed() {
    const FILES: usize = 3000;
    let home = Home::new("endless");
    let daemon = home.up();
    let dir = home.mount.join("dir");
    fs::create_dir(&dir).expect("mkdir");
    let file = home.mount.join("file");
    fs::write(&file, b"one of many names").expect("create");
    (0..FILES).for_each(|number| fs::hard_link(&file, dir.join(format!("old{number}"))).expect("link"));
    let mut listing = Directory::open(&dir);
    let (mut renamed, mut places) = (0, Vec::new());
    while let Some((name, place)) = listing.step() {
        if !name.starts_with('.') {
            assert!(renamed < FILES, "{name} is one more than there were when reading began");
            assert!(name.starts_with("old"), "{name} was made later");
            fs::rename(dir.join(&name), dir.join(format!("new{renamed}"))).expect("rename");
            renamed += 1;
            places.push(place);
        }
    }
    assert_eq!(renamed, FILES);
    let rest = |listing: &mut Directory| std::iter::from_fn(|| listing.step()).collect::<Vec<_>>();
    assert_eq!(rest(&mut listing), [], "the end stays the end");
    let mut other = Directory::open(&dir);
    assert_eq!(rest(&mut other).len(), FILES + 2, "who opens it now sees the new names");
    File::create(dir.join("late")).expect("create");
    listing.seek(places[FILES / 2]);
    // The kernel compares what it keeps with the directory only where reading starts: a stream that goes back to another place may be
    // shown again what it was shown, or what there is now.
    let behind = rest(&mut listing);
    assert!([FILES / 2 - 1, FILES, FILES + 1].contains(&behind.len()), "{} entries behind the middle", behind.len());
    listing.seek(0);
    let again = rest(&mut listing);
    assert!(again.iter().any(|(name, _)| name == "late") && again.len() == FILES + 3, "{} entries", again.len());
    assert!(again.iter().all(|(name, _)| !name.starts_with("old")), "rewound, it shows what there is");
    for at in [3, FILES / 2, FILES] {
        listing.seek(again[at].1);
        assert_eq!(rest(&mut listing), again[at + 1..], "a position stays good");
    }
    other.seek(again[FILES / 2].1);
    assert_eq!(rest(&mut other), again[FILES / 2 + 1..], "a position is the same for each stream");
    // A stream that is rewound is shown what was made before, whether or not the kernel has kept what another one read.
    for whole in [true, false] {
        listing.seek(0);
        (0..FILES / 2).for_each(|_| drop(listing.step()));
        let newest = format!("newest-{whole}");
        File::create(dir.join(&newest)).expect("create");
        other.seek(0);
        let steps = if whole { usize::MAX } else { FILES / 2 };
        let read = std::iter::from_fn(|| other.step()).take(steps).count();
        assert!(read > FILES / 2 - 1);
        listing.seek(0);
        assert!(
            rest(&mut listing).iter().any(|(name, _)| *name == newest),
            "{newest} was there when reading began anew"
        );
    }
    drop((listing, other));
    daemon.terminate();
    home.check();
}

/// No directory comes to lie below itself, whoever tries at the same time: each directory lies in a group of its own.
#[test]
fn directories_never_close_a_loop() {
    const DIRECTORIES: u64 = 8;
    let home = Home::new("loops");
    let daemon = home.up();
    let mount = &home.mount;
    let deep = "a/b/c/d/e/f";
    fs::create_dir_all(mount.join(deep)).expect("mkdir -p");
    for below in ["a/b", "a/b/c/d", deep] {
        let into = mount.join(below).join("x");
        assert_eq!(errno(fs::rename(mount.join("a"), into)), Some(libc::EINVAL), "{below}");
    }
    assert_eq!(errno(fs::rename(mount.join(deep), mount.join("a"))), Some(libc::ENOTEMPTY));
    fs::rename(mount.join("a/b/c"), mount.join("c")).expect("rename");
    fs::rename(mount.join("a"), mount.join("c/d/e/f/a")).expect("rename");
    fs::rename(mount.join("c/d/e/f/a/b"), mount.join("c/b")).expect("rename");
    fs::remove_dir_all(mount.join("c")).expect("rm -r");
    // Everybody moves any directory below any other one.
    let path = |number: u64| mount.join(format!("m{number}"));
    (0..DIRECTORIES).for_each(|number| fs::create_dir(path(number)).expect("mkdir"));
    std::thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || shuffle(mount, seed, DIRECTORIES));
        }
    });
    // All are still reached from the root: with a loop some would not be.
    let reached = reach(mount);
    assert_eq!(reached, DIRECTORIES);
    daemon.terminate();
    home.check();
    let daemon = home.up();
    assert_eq!(reach(mount), DIRECTORIES);
    daemon.terminate();
}

fn reach(path: &Path) -> u64 {
    let entries = fs::read_dir(path).expect("opendir").map(|entry| entry.expect("entry").path());
    entries.map(|path| 1 + reach(&path)).sum()
}

/// The paths of directories of these names at the moment, as far as one can tell while they move.
fn find(path: &Path, found: &mut Vec<std::path::PathBuf>) {
    let Ok(entries) = fs::read_dir(path) else { return };
    for entry in entries.flatten() {
        found.push(entry.path());
        find(&entry.path(), found);
    }
}

fn shuffle(mount: &Path, seed: u64, count: u64) {
    let mut rng = SplitMix(seed);
    for _ in 0..300 {
        let mut found = Vec::new();
        find(mount, &mut found);
        if found.len() < 2 {
            continue;
        }
        let mut any = || found[rng.below(found.len() as u64) as usize].clone();
        let (from, into) = (any(), any());
        let into = if rng.below(count) == 0 { mount.to_path_buf() } else { into };
        let Some(name) = from.file_name() else { continue };
        // Refused if it would lie in itself, or if somebody was quicker.
        drop(fs::rename(&from, into.join(name)));
    }
}
