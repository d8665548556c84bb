//! setuid, setgid and file capabilities, by what a program may do that is executed: not by what stat says.

use crate::asynchronous::{Queue, Way};
use crate::calls::Mapping;
use crate::daemon::{Home, system, text};
use std::fs::{self, File, Permissions};
use std::io::{Error, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const NOBODY: u32 = 65_534;
/// Bytes behind the program's own: data written there does not change what it does.
const SPARE_BYTES: u64 = 64 << 10;
/// cap_net_raw, permitted and effective, as `setcap` writes it: version 2.
const NET_RAW: [u8; 20] = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// A change of a program, whose spare bytes begin at the given offset.
type Change = fn(&Path, u64);

/// Runs `work` as nobody, in a thread whose identity is its own.
fn as_nobody(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: these calls take numbers, and change this thread alone.
            unsafe {
                assert_eq!(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()), 0);
                assert_eq!(libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY), 0);
                assert_eq!(libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY), 0);
            }
            work();
        });
        thread.join().expect("nobody's work succeeds");
    });
}

/// Runs a program as nobody; what it says.
fn said_to_nobody(program: &Path, arguments: &[&str]) -> String {
    loop {
        match Command::new(program).args(arguments).uid(NOBODY).gid(NOBODY).output() {
            Ok(output) => return String::from_utf8(output.stdout).expect("text").trim().to_string(),
            // Another test has just forked, and its child still has what was open for writing here.
            Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) => std::thread::yield_now(),
            Err(error) => panic!("it does not run: {error}"),
        }
    }
}

/// The user and the group as which nobody runs `program`, a copy of `id`.
fn identity(program: &Path) -> (String, String) {
    (said_to_nobody(program, &["-u"]), said_to_nobody(program, &["-g"]))
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
}

/// A program of the system's with spare bytes, made anew; their offset.
fn program(path: &Path, original: &str) -> u64 {
    drop(fs::remove_file(path));
    let mut bytes = fs::read(original).expect("the program is installed");
    let spare = (bytes.len() as u64).next_multiple_of(SPARE_BYTES);
    bytes.resize((spare + 2 * SPARE_BYTES) as usize, 1);
    fs::write(path, bytes).expect("create");
    spare
}

fn open(path: &Path, flags: i32) -> File {
    File::options().read(true).write(true).custom_flags(flags).open(path).expect("open")
}

fn allocate(path: &Path, mode: i32, offset: u64, length: u64) {
    // SAFETY: the call takes numbers.
    let done = unsafe { libc::fallocate(open(path, 0).as_raw_fd(), mode, offset as i64, length as i64) };
    assert_eq!(done, 0, "fallocate: {}", Error::last_os_error());
}

fn asynchronous(path: &Path, way: Way, flags: i32, spare: u64) {
    let (file, bytes) = (open(path, flags), Mapping::anonymous(4096));
    let mut queue = Queue::new(way, 1);
    queue.write(&file, 1, bytes.bytes(), spare);
    assert_eq!(queue.next(), (1, 4096));
}

/// Spare bytes of the program itself go to others of its.
fn copied(path: &Path, spare: u64) {
    let file = open(path, 0);
    let (mut from, mut to) = (spare as i64, (spare + SPARE_BYTES) as i64);
    // SAFETY: the offsets outlive the call.
    let copied =
        unsafe { libc::copy_file_range(file.as_raw_fd(), &raw mut from, file.as_raw_fd(), &raw mut to, 4096, 0) };
    assert_eq!(copied, 4096, "copy_file_range: {}", Error::last_os_error());
}

fn spliced(path: &Path, spare: u64) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(&[7; 4096]).expect("it fits the pipe");
    let (file, mut to) = (open(path, 0), spare as i64);
    // SAFETY: the offset outlives the call.
    let moved =
        unsafe { libc::splice(reader.as_raw_fd(), std::ptr::null_mut(), file.as_raw_fd(), &raw mut to, 4096, 0) };
    assert_eq!(moved, 4096, "splice: {}", Error::last_os_error());
}

fn vectored(path: &Path, flags: i32, spare: u64) {
    let (file, bytes) = (open(path, 0), [7u8; 4096]);
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: one part, whose bytes outlive the call.
    let wrote = unsafe { libc::pwritev2(file.as_raw_fd(), &raw const part, 1, spare as i64, flags) };
    assert_eq!(wrote, 4096, "pwritev2: {}", Error::last_os_error());
}

fn direct(path: &Path, spare: u64) {
    open(path, libc::O_DIRECT).write_all_at(Mapping::anonymous(4096).bytes(), spare).expect("write");
}

/// A store through a mapping, written back.
fn mapped(path: &Path, spare: u64) {
    let file = open(path, 0);
    let mut mapping = Mapping::of(&file, (spare + 2 * SPARE_BYTES) as usize, libc::MAP_SHARED).expect("mmap");
    mapping.bytes_mut()[spare as usize] ^= 1;
    mapping.sync();
}

const CHANGES: [(&str, Change); 17] = [
    ("write", |path, spare| open(path, 0).write_all_at(&[7; 100], spare).expect("write")),
    ("append", |path, _| {
        File::options().append(true).open(path).and_then(|mut file| file.write_all(b"x")).expect("write");
    }),
    ("O_DSYNC", |path, spare| open(path, libc::O_DSYNC).write_all_at(&[7; 100], spare).expect("write")),
    ("O_DIRECT", direct),
    ("pwritev2", |path, spare| vectored(path, 0, spare)),
    ("pwritev2, RWF_DSYNC", |path, spare| vectored(path, libc::RWF_DSYNC, spare)),
    ("libaio", |path, spare| asynchronous(path, Way::Aio, 0, spare)),
    ("libaio, O_DIRECT", |path, spare| asynchronous(path, Way::Aio, libc::O_DIRECT, spare)),
    ("io_uring", |path, spare| asynchronous(path, Way::Ring, 0, spare)),
    ("io_uring, O_DIRECT", |path, spare| asynchronous(path, Way::Ring, libc::O_DIRECT, spare)),
    ("fallocate", |path, spare| allocate(path, 0, spare + 2 * SPARE_BYTES, 4096)),
    ("punch", |path, spare| allocate(path, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, spare, 8192)),
    ("zero range", |path, spare| allocate(path, libc::FALLOC_FL_ZERO_RANGE, spare, 8192)),
    ("copy_file_range", copied),
    ("splice", spliced),
    ("ftruncate", |path, spare| open(path, 0).set_len(spare + 100).expect("ftruncate")),
    ("ftruncate, growing", |path, spare| open(path, 0).set_len(spare + 3 * SPARE_BYTES).expect("ftruncate")),
];

/// A write into a setuid program makes it run as its caller, at once, however the kernel has cached it. The same beside
/// the machine's own file system.
#[test]
fn a_program_that_was_written_to_runs_as_its_caller() {
    let home = Home::new("executed");
    let daemon = home.up();
    let own = home.scratch.directory("own");
    chmod(home.scratch.path(), 0o755);
    for directory in [&own, &home.mount] {
        let program_of = directory.join("program");
        let caller = (NOBODY.to_string(), NOBODY.to_string());
        for (what, change) in CHANGES {
            let spare = program(&program_of, "/usr/bin/id");
            chmod(&program_of, 0o6777);
            assert_eq!(identity(&program_of), ("0".into(), "0".into()), "{what}");
            as_nobody(|| change(&program_of, spare));
            assert_eq!(identity(&program_of), caller, "{what} in {}", directory.display());
        }
        let spare = program(&program_of, "/usr/bin/id");
        chmod(&program_of, 0o6777);
        assert_eq!(identity(&program_of), ("0".into(), "0".into()));
        as_nobody(|| mapped(&program_of, spare));
        assert_eq!(identity(&program_of), ("0".into(), "0".into()), "a store through a mapping ends nothing");
    }
    daemon.terminate();
    home.check();
}

/// Capabilities of a program end with every write, root's too.
#[test]
fn a_program_that_was_written_to_has_no_capabilities() {
    let home = Home::new("capable");
    let daemon = home.up();
    let own = home.scratch.directory("own");
    chmod(home.scratch.path(), 0o755);
    let is_capable = |path: &Path| {
        let said = said_to_nobody(path, &["CapEff", "/proc/self/status"]);
        let mask = said.split_whitespace().last().and_then(|mask| u64::from_str_radix(mask, 16).ok());
        mask.expect("the kernel tells capabilities") != 0
    };
    for directory in [&own, &home.mount] {
        let path = directory.join("program");
        let ready = || {
            let spare = program(&path, "/usr/bin/grep");
            chmod(&path, 0o777);
            set_capability(&path);
            assert!(is_capable(&path));
            spare
        };
        for (what, change) in CHANGES {
            let spare = ready();
            as_nobody(|| change(&path, spare));
            assert!(!is_capable(&path), "{what} by nobody in {}", directory.display());
            let spare = ready();
            change(&path, spare);
            assert!(!is_capable(&path), "{what} by root in {}", directory.display());
        }
        let spare = ready();
        mapped(&path, spare);
        assert!(is_capable(&path), "a store through a mapping ends nothing in {}", directory.display());
    }
    daemon.terminate();
    home.check();
}

fn set_capability(path: &Path) {
    let hex: String = NET_RAW.iter().map(|byte| format!("{byte:02x}")).collect();
    system("setfattr", &["-n", "security.capability", "-v", &format!("0x{hex}"), text(path)]);
}

/// Data that is written back late was stored before the bits were set: it clears neither them nor capabilities.
#[test]
fn a_late_write_back_ends_nothing_that_came_after_the_store() {
    let home = Home::new("late");
    let daemon = home.up();
    let path = home.mount.join("program");
    let spare = program(&path, "/usr/bin/id");
    chmod(&path, 0o777);
    let mut opened = None;
    as_nobody(|| opened = Some(open(&path, 0)));
    let file = opened.expect("nobody may");
    let mut mapping = Mapping::of(&file, (spare + SPARE_BYTES) as usize, libc::MAP_SHARED).expect("mmap");
    mapping.bytes_mut()[spare as usize] ^= 1;
    chmod(&path, 0o6777);
    set_capability(&path);
    mapping.sync();
    file.sync_all().expect("fsync");
    drop((mapping, file));
    assert_eq!(identity(&path), ("0".into(), "0".into()));
    let found = Command::new("getfattr").args(["-n", "security.capability", text(&path)]).output().expect("it runs");
    assert!(found.status.success(), "the capabilities are there");
    daemon.terminate();
    home.check();
}
