//! Two mounts of one volume, of clients or of the server itself: what one was told, the other sees at its next call, and locks hold between them. All
//! are processes of this machine; nothing but the server connects them.

use crate::daemon::{Daemon, Home, setting, succeed, text};
use runtime::random::SplitMix;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A server, and two clients of it.
struct Both {
    home: Home,
    server: Option<Daemon>,
    one: Daemon,
    two: Daemon,
    mounts: [PathBuf; 2],
}

impl Both {
    fn new(name: &str) -> Both {
        let home = Home::new(name);
        let server = Some(home.serve(&[]));
        let one = Daemon::start(home.client());
        let other = home.scratch.directory("other");
        let two = Daemon::start(home.other_client(&other));
        let mounts = [home.mount.clone(), other];
        Both { home, server, one, two, mounts }
    }
    fn end(self) {
        self.one.terminate();
        self.two.terminate();
        if let Some(server) = self.server {
            server.terminate();
        }
        self.home.check();
    }
}

/// The number of trials of one thread, and of threads.
fn trials() -> (u64, u64) {
    (setting("SINTER_TRIALS", 1_500), 4)
}

/// One trial: a change through one mount, and what the other one must see of it. `before`: a handle of the other mount's, opened
/// long before, of the file `kept`.
fn trial(draw: &mut SplitMix, number: u64, (here, there): (&Path, &Path), before: &File) {
    let (mine, theirs) = (here.join(format!("n{}", number % 7)), there.join(format!("n{}", number % 7)));
    let text = format!("{number:020}");
    match draw.below(8) {
        0 => {
            fs::write(&mine, &text).expect("writable");
            assert_eq!(fs::read_to_string(&theirs).expect("it was made"), text, "a new content");
        }
        1 => {
            let _ = fs::remove_file(&mine);
            assert!(!theirs.exists(), "it was removed");
            assert!(!names(there).contains(&format!("n{}", number % 7)), "its name is gone from the list");
        }
        2 => {
            fs::write(&mine, &text).expect("writable");
            let (to, seen) = (here.join(&text), there.join(&text));
            fs::rename(&mine, to).expect("it is there");
            assert!(!theirs.exists() && fs::read_to_string(&seen).expect("it has that name") == text, "a new name");
            assert!(names(there).contains(&text), "it is in the list");
            fs::remove_file(seen).expect("it is there");
        }
        3 => {
            let length = draw.below(10_000);
            File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(&mine)
                .and_then(|file| file.set_len(length))
                .expect("writable");
            assert_eq!(fs::metadata(&theirs).expect("it is there").len(), length, "a new length");
        }
        4 => {
            // The kept file, through a handle from before, at any place of it.
            let at = draw.below(30_000);
            let kept = File::options().write(true).open(here.join("kept")).expect("it is there");
            kept.write_all_at(text.as_bytes(), at).expect("writable");
            let mut seen = [0; 20];
            before.read_exact_at(&mut seen, at).expect("readable");
            assert_eq!(&seen, text.as_bytes(), "through a handle that was opened before");
        }
        5 => {
            // The time that programs go by is as before.
            let path = here.join("kept");
            let kept = File::options().write(true).open(&path).expect("it is there");
            let times = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1));
            kept.write_all_at(text.as_bytes(), 0).expect("writable");
            kept.set_times(times).expect("it may be set");
            let mut seen = [0; 20];
            before.read_exact_at(&mut seen, 0).expect("readable");
            assert_eq!(&seen, text.as_bytes(), "although its time is the same");
        }
        6 => {
            let directory = here.join(format!("d{text}"));
            fs::create_dir(&directory).expect("a fresh name");
            fs::write(directory.join("in"), &text).expect("writable");
            let seen = there.join(format!("d{text}"));
            assert_eq!(names(&seen), ["in"]);
            fs::remove_dir_all(&directory).expect("it is there");
            assert_eq!(fs::metadata(&seen).expect_err("it is gone").kind(), io::ErrorKind::NotFound);
        }
        _ => {
            use std::os::unix::fs::PermissionsExt;
            fs::write(&mine, &text).expect("writable");
            let mode = 0o600 | draw.below(8) as u32;
            fs::set_permissions(&mine, fs::Permissions::from_mode(mode)).expect("it may be set");
            assert_eq!(fs::metadata(&theirs).expect("it is there").mode() & 0o777, mode);
        }
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("readable");
    entries.map(|entry| entry.expect("readable").file_name().into_string().expect("text")).collect()
}

/// Makes `each` trials in each of several threads: changes through `late`, looks through `early`, whose kernel has cached all that it may
/// before `come` mounts the other one.
fn try_all<T>(early: &Path, late: &Path, (each, threads): (u64, u64), come: impl FnOnce() -> T) -> T {
    let mut before = Vec::new();
    for thread in 0..threads {
        let directory = early.join(format!("t{thread}"));
        fs::create_dir(&directory).expect("writable");
        fs::write(directory.join("kept"), vec![7; 40_000]).expect("writable");
        let mut kept = File::open(directory.join("kept")).expect("it is there");
        io::copy(&mut kept, &mut io::sink()).expect("readable");
        assert!(fs::metadata(directory.join("absent")).is_err() && names(&directory) == ["kept"]);
        before.push(kept);
    }
    let came = come();
    std::thread::scope(|scope| {
        for (thread, before) in before.iter().enumerate() {
            let (here, there) = (late.join(format!("t{thread}")), early.join(format!("t{thread}")));
            scope.spawn(move || {
                let mut draw = SplitMix(thread as u64);
                fs::write(here.join("absent"), "x").expect("writable");
                assert!(there.join("absent").exists(), "what was absent before");
                for number in 0..each {
                    trial(&mut draw, number, (&here, &there), before);
                }
            });
        }
    });
    came
}

/// A mount of the server itself shares its volume with a client, whichever of the two was there before.
#[test]
fn the_servers_own_mount_shares_with_clients() {
    let home = Home::new("own");
    let server = home.serve(&[]);
    let (own, client) = (home.scratch.directory("own"), home.mount.clone());
    let mount_own = || succeed(&["mount", text(&home.data), "default", text(&own)]);
    let (each, threads) = trials();
    mount_own();
    let one = try_all(&own, &client, (each / 2, threads), || Daemon::start(home.client()));
    // Locks, with a wait on either side.
    for (here, there) in [(&own, &client), (&client, &own)] {
        let open = |mount: &Path| {
            let path = mount.join("locked");
            File::options().read(true).write(true).create(true).truncate(false).open(path).expect("writable")
        };
        let (mine, theirs) = (open(here), open(there));
        whole_lock(&mine, libc::LOCK_EX | libc::LOCK_NB).expect("free");
        assert!(is_refused(whole_lock(&theirs, libc::LOCK_SH | libc::LOCK_NB)));
        range_lock(&mine, libc::F_SETLK, libc::F_WRLCK, (0, 9)).expect("free");
        assert!(is_refused(range_lock(&theirs, libc::F_OFD_SETLK, libc::F_WRLCK, (5, 1))));
        let began = Instant::now();
        let waited = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| whole_lock(&theirs, libc::LOCK_EX).map(|()| began.elapsed()));
            std::thread::sleep(Duration::from_millis(200));
            drop(mine);
            waiter.join().expect("no panic").expect("it was given back")
        });
        assert!((200..900).contains(&waited.as_millis()), "it is told, and need not ask: {waited:?}");
    }
    // One that is open there lives on when it is removed here.
    let mut open = File::open(own.join("t0/kept")).expect("it is there");
    fs::remove_file(client.join("t0/kept")).expect("it is there");
    assert_eq!(open.read_to_end(&mut Vec::new()).expect("still there"), 40_000);
    drop(open);
    for thread in 0..threads {
        fs::remove_dir_all(own.join(format!("t{thread}"))).expect("writable");
    }
    // The client stays, and caches all again before the server mounts its own.
    succeed(&["umount", text(&own)]);
    std::thread::sleep(Duration::from_millis(2500));
    try_all(&client, &own, (each / 2, threads), mount_own);
    one.terminate();
    fs::write(own.join("alone"), "x").expect("writable");
    succeed(&["umount", text(&own)]);
    server.terminate();
    home.check();
}

#[test]
fn what_one_was_told_the_other_sees_at_its_next_call() {
    let home = Home::new("shared");
    let server = home.serve(&[]);
    let one = Daemon::start(home.client());
    let other = home.scratch.directory("other");
    let two = try_all(&home.mount, &other, trials(), || Daemon::start(home.other_client(&other)));
    // A file that one removes while the other one has it open lives on for that one, and only for it.
    let (mut open, path) = (File::open(home.mount.join("t0/kept")).expect("it is there"), other.join("t0/kept"));
    let free = || {
        let space = rustix::fs::statvfs(&other).expect("it is mounted");
        space.f_bfree
    };
    fs::write(other.join("large"), vec![1; 4 << 20]).expect("writable");
    fs::metadata(home.mount.join("large")).expect("known here, not open");
    fs::remove_file(path).expect("it is there");
    let mut bytes = Vec::new();
    open.seek(SeekFrom::Start(0)).and_then(|_| open.read_to_end(&mut bytes)).expect("still there");
    assert_eq!(bytes.len(), 40_000);
    let before = free();
    fs::remove_file(other.join("large")).expect("it is there");
    let deadline = Instant::now() + Duration::from_secs(10);
    while free() < before + 1000 {
        assert!(Instant::now() < deadline, "what only the other kernel knows of is freed");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop((open, before));
    two.terminate();
    // Alone again, it caches again: names that are asked for again cost the server nothing.
    std::thread::sleep(Duration::from_millis(2500));
    fs::write(home.mount.join("again"), "x").expect("writable");
    one.terminate();
    server.terminate();
    home.check();
}

/// A lock of the kernel's interface: `kind` is F_RDLCK, F_WRLCK or F_UNLCK.
fn range_lock(file: &File, command: i32, kind: i32, (start, length): (i64, i64)) -> io::Result<libc::flock> {
    let mut lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: length,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the kernel writes only the structure.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &mut lock) };
    if done == 0 { Ok(lock) } else { Err(io::Error::last_os_error()) }
}

fn whole_lock(file: &File, how: i32) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    let done = unsafe { libc::flock(file.as_raw_fd(), how) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn is_refused(result: io::Result<impl std::fmt::Debug>) -> bool {
    result.expect_err("somebody has it").raw_os_error() == Some(libc::EAGAIN)
}

#[test]
fn locks_hold_between_mounts() {
    let both = Both::new("locks");
    let open = |mount: usize| {
        let path = both.mounts[mount].join("locked");
        File::options().read(true).write(true).create(true).truncate(false).open(path).expect("writable")
    };
    let (mine, theirs) = (open(0), open(1));
    use libc::{F_GETLK, F_OFD_SETLK, F_RDLCK, F_SETLK, F_UNLCK, F_WRLCK};
    // POSIX, also within one file, and with a reader beside a reader.
    range_lock(&mine, F_SETLK, F_WRLCK, (0, 100)).expect("free");
    assert!(is_refused(range_lock(&theirs, F_SETLK, F_RDLCK, (50, 10))));
    range_lock(&theirs, F_SETLK, F_WRLCK, (100, 0)).expect("free from there on");
    let seen = range_lock(&theirs, F_GETLK, F_WRLCK, (0, 10)).expect("it can be asked");
    assert_eq!((i32::from(seen.l_type), seen.l_start, seen.l_len), (F_WRLCK, 0, 100));
    range_lock(&mine, F_SETLK, F_RDLCK, (0, 100)).expect("it is its own");
    range_lock(&theirs, F_SETLK, F_RDLCK, (50, 10)).expect("two may read");
    range_lock(&theirs, F_SETLK, F_UNLCK, (0, 0)).expect("it is its own");
    // A process that closes any descriptor of the file gives its locks back.
    range_lock(&mine, F_SETLK, F_WRLCK, (0, 100)).expect("free");
    drop(open(0));
    range_lock(&theirs, F_SETLK, F_WRLCK, (0, 100)).expect("given back");
    range_lock(&theirs, F_SETLK, F_UNLCK, (0, 0)).expect("it is its own");
    // OFD: of the open file, until its end.
    let ofd = open(0);
    range_lock(&ofd, F_OFD_SETLK, F_WRLCK, (0, 10)).expect("free");
    drop(open(0));
    assert!(is_refused(range_lock(&theirs, F_OFD_SETLK, F_WRLCK, (5, 1))));
    drop(ofd);
    let taken = until_ok(|| range_lock(&theirs, F_OFD_SETLK, F_WRLCK, (5, 1)));
    assert!(taken, "its end gives it back");
    range_lock(&theirs, F_OFD_SETLK, F_UNLCK, (0, 0)).expect("it is its own");
    // flock, which those of fcntl are no concern of.
    range_lock(&theirs, F_SETLK, F_WRLCK, (0, 0)).expect("free");
    whole_lock(&mine, libc::LOCK_EX | libc::LOCK_NB).expect("free");
    assert!(is_refused(whole_lock(&theirs, libc::LOCK_SH | libc::LOCK_NB)));
    drop(mine);
    assert!(until_ok(|| whole_lock(&theirs, libc::LOCK_SH | libc::LOCK_NB)), "its end gives it back");
    both.end();
}

/// True if something succeeds soon: the kernel tells of the end of an open file a moment after its close.
fn until_ok<T>(mut done: impl FnMut() -> io::Result<T>) -> bool {
    let deadline = Instant::now() + Duration::from_secs(5);
    while done().is_err() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// A counter in a file that several threads of both mounts count up, each under a lock that it waits for. The server is killed
/// meanwhile: nobody has a lock twice, and nothing is lost.
#[test]
fn who_waits_for_a_lock_gets_it_also_after_the_server_was_killed() {
    let mut both = Both::new("counter");
    let (each, mounts) = (setting("SINTER_COUNTS", 40), both.mounts.clone());
    fs::write(mounts[0].join("count"), 0u64.to_le_bytes()).expect("writable");
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for worker in 0..4usize {
            let (path, done) = (mounts[worker % 2].join("count"), &done);
            scope.spawn(move || {
                for _ in 0..each {
                    let mut options = File::options();
                    // Each count is durable when it is told, so a kill takes none back.
                    let file =
                        options.read(true).write(true).custom_flags(libc::O_DSYNC).open(&path).expect("it is there");
                    match worker / 2 {
                        0 => drop(range_lock(&file, libc::F_OFD_SETLKW, libc::F_WRLCK, (0, 8)).expect("it comes")),
                        _ => drop(range_lock(&file, libc::F_OFD_SETLKW, libc::F_WRLCK, (4, 4)).expect("it comes")),
                    }
                    let mut count = [0; 8];
                    file.read_exact_at(&mut count, 0).expect("readable");
                    let next = u64::from_le_bytes(count) + 1;
                    file.write_all_at(&next.to_le_bytes(), 0).expect("writable");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for part in 1..=2 {
            while done.load(Ordering::Relaxed) < each * part {
                std::thread::sleep(Duration::from_millis(5));
            }
            both.server.take().expect("it runs").kill();
            both.server = Some(both.home.serve(&[]));
        }
    });
    let count = fs::read(mounts[1].join("count")).expect("readable");
    assert_eq!(u64::from_le_bytes(count.try_into().expect("eight bytes")), 4 * each);
    both.end();
}

/// A signal ends the wait for a lock; a client that is killed gives up what it has locked, after a lease.
#[test]
fn waits_for_locks_end_with_a_signal_and_locks_with_their_client() {
    let both = Both::new("signals");
    let path = both.mounts.each_ref().map(|mount| mount.join("file"));
    fs::write(&path[0], "x").expect("writable");
    let held = File::open(&path[0]).expect("it is there");
    whole_lock(&held, libc::LOCK_EX).expect("free");
    let text = |path: &Path| path.to_str().expect("text").to_string();
    let began = Instant::now();
    let waited = std::process::Command::new("timeout")
        .args(["-s", "KILL", "1"])
        .args(["flock", &text(&path[1]), "true"])
        .status();
    let waited = waited.expect("util-linux is here");
    assert!(!waited.success() && began.elapsed() < Duration::from_secs(5), "{waited}");
    let (is_there, other) = (AtomicBool::new(false), path[1].clone());
    let Both { home, server, one, two, .. } = both;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::open(&other).expect("it is there");
            whole_lock(&file, libc::LOCK_EX).expect("its owner is gone");
            is_there.store(true, Ordering::Relaxed);
        });
        std::thread::sleep(Duration::from_millis(500));
        assert!(!is_there.load(Ordering::Relaxed));
        one.kill();
        let killed = Instant::now();
        while !is_there.load(Ordering::Relaxed) {
            assert!(killed.elapsed() < Duration::from_secs(30), "a lease is over");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(killed.elapsed() > Duration::from_secs(8), "not before: it could have come back");
    });
    drop(held);
    two.terminate();
    server.expect("it runs").terminate();
    home.check();
}
