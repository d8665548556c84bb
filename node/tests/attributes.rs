//! Attributes beside those that every `stat` tells, on a real mount: the time of birth; what guards an inode, beside the file
//! system that the tests lie on.

use crate::calls::{Mapping, nameless, rename_with, set_times};
use crate::daemon::{Home, Scratch, system, text};
use std::fs::{self, File, Permissions};
use std::io::{Error, Result, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The birth time of a file, by statx. The other attributes must be those that the plain `stat` told before.
fn born(path: &Path) -> SystemTime {
    let found = fs::symlink_metadata(path).expect("statx");
    let plain = std::process::Command::new("stat").args(["-c", "%f %h %u %g %s %t %T %i"]).arg(path).output();
    let told = String::from_utf8(plain.expect("stat runs").stdout).expect("text");
    let (major, minor) = (libc::major(found.rdev()), libc::minor(found.rdev()));
    let expected = format!(
        "{:x} {} {} {} {} {major:x} {minor:x} {}\n",
        found.mode(),
        found.nlink(),
        found.uid(),
        found.gid(),
        found.size(),
        found.ino()
    );
    assert_eq!(told, expected, "{}", path.display());
    found.created().expect("a time of birth")
}

/// The birth time of each kind of object: nothing that is done to it moves that time, and a crash keeps it.
#[test]
fn the_time_of_birth_stays() {
    let home = Home::new("birth");
    let daemon = home.up();
    let begun = SystemTime::now();
    let made = |name: &str| home.mount.join(name);
    fs::write(made("file"), b"content").expect("create");
    fs::create_dir(made("dir")).expect("mkdir");
    std::os::unix::fs::symlink("file", made("link")).expect("symlink");
    system("mkfifo", &[text(&made("fifo"))]);
    system("mknod", &[text(&made("device")), "c", "300", "70000"]);
    let names = ["file", "dir", "link", "fifo", "device"];
    let births = names.map(|name| born(&made(name)));
    let slack = Duration::from_millis(100);
    assert!(births.iter().all(|time| *time + slack >= begun && *time <= SystemTime::now() + slack), "{births:?}");
    std::thread::sleep(Duration::from_millis(20));
    let mut file = File::options().append(true).open(made("file")).expect("open");
    file.write_all(b"more").expect("write");
    file.set_times(fs::FileTimes::new().set_modified(SystemTime::UNIX_EPOCH)).expect("futimens");
    fs::set_permissions(made("file"), Permissions::from_mode(0o4711)).expect("chmod");
    fs::hard_link(made("file"), made("dir/second")).expect("link");
    for name in names.iter().filter(|name| **name != "dir") {
        fs::rename(made(name), made("dir").join(name)).expect("rename");
    }
    fs::rename(made("dir"), made("moved")).expect("rename");
    let places = ["moved/file", "moved", "moved/link", "moved/fifo", "moved/device"];
    let after = places.map(|place| born(&made(place)));
    assert_eq!(after, births);
    assert_eq!(born(&made("moved/second")), births[0]);
    for place in ["moved/file", "moved", "."] {
        File::open(made(place)).expect("open").sync_all().expect("fsync");
    }
    daemon.kill();
    let daemon = home.up();
    assert_eq!(places.map(|place| born(&made(place))), births, "after a crash");
    fs::write(made("late"), b"x").expect("create");
    fs::rename(made("late"), made("moved/file")).expect("it replaces");
    assert!(born(&made("moved/file")) > births[0], "another file");
    daemon.terminate();
    home.check();
}

/// Numbers of errors, or 0, by what was tried.
type Told = Vec<(&'static str, i32)>;

fn errno<T>(result: Result<T>) -> i32 {
    result.err().map_or(0, |error| error.raw_os_error().expect("of the system"))
}

fn called(result: i32) -> i32 {
    if result == 0 { 0 } else { errno::<()>(Err(Error::last_os_error())) }
}

fn chattr(flag: &str, path: &Path) {
    system("chattr", &[flag, text(path)]);
}

fn opened(path: &Path, flags: i32) -> Result<File> {
    let access = flags & libc::O_ACCMODE;
    let mut options = File::options();
    options.read(access != libc::O_WRONLY).write(access != libc::O_RDONLY).custom_flags(flags & !libc::O_ACCMODE);
    options.open(path)
}

/// Operations on a file by its name, and through handles that were opened before.
fn done_to_file(path: &Path, early: &[(&'static str, &File)]) -> Told {
    let c_path = std::ffi::CString::new(text(path)).expect("no NUL");
    let open = |flags| errno(opened(path, flags));
    let mut told = vec![
        ("read", open(libc::O_RDONLY)),
        ("write", open(libc::O_WRONLY)),
        ("read and write", open(libc::O_RDWR)),
        ("append", open(libc::O_WRONLY | libc::O_APPEND)),
        ("create", open(libc::O_RDONLY | libc::O_CREAT)),
        ("truncate when opened", open(libc::O_RDWR | libc::O_TRUNC)),
        ("append and truncate", open(libc::O_WRONLY | libc::O_APPEND | libc::O_TRUNC)),
        ("create and truncate", open(libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC)),
        ("chmod", errno(fs::set_permissions(path, Permissions::from_mode(0o640)))),
        ("chown", errno(std::os::unix::fs::chown(path, Some(7), Some(8)))),
        ("times", errno(set_times(path, (5, 0), (6, 0)))),
        ("present", errno(set_times(path, (0, libc::UTIME_NOW), (0, libc::UTIME_NOW)))),
        ("link", errno(fs::hard_link(path, path.with_extension("link")))),
        ("rename", errno(fs::rename(path, path.with_extension("moved")))),
        ("unlink", errno(fs::remove_file(path))),
    ];
    // SAFETY: calls with strings and values that outlive them.
    unsafe {
        told.push(("truncate", called(libc::truncate(c_path.as_ptr(), 3))));
        let value = c"value".as_ptr().cast();
        told.push(("setxattr", called(libc::setxattr(c_path.as_ptr(), c"user.new".as_ptr(), value, 5, 0))));
        told.push(("removexattr", called(libc::removexattr(c_path.as_ptr(), c"user.old".as_ptr()))));
    }
    for (how, file) in early {
        let descriptor = file.as_raw_fd();
        told.push((how, errno((&**file).write_all(b"appended or written"))));
        told.push((how, errno(file.set_len(2))));
        told.push((how, errno(file.set_permissions(Permissions::from_mode(0o600)))));
        for mode in [0, libc::FALLOC_FL_KEEP_SIZE, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE] {
            // SAFETY: the call takes numbers.
            told.push((how, called(unsafe { libc::fallocate(descriptor, mode, 0, 4096) })));
        }
        told.push((how, errno(file.sync_all())));
    }
    told
}

/// Operations in a directory that has `file`, `other` and the empty `dir`.
fn done_in(path: &Path) -> Told {
    let at = |name: &str| path.join(name);
    let outside = |name: &str| path.with_extension(name);
    fs::write(outside("file"), b"x").expect("create");
    let told = vec![
        ("list", errno(fs::read_dir(path))),
        ("write to an entry", errno(fs::write(at("file"), b"new content"))),
        ("create", errno(File::create_new(at("new")))),
        ("O_CREAT", errno(opened(&at("file"), libc::O_WRONLY | libc::O_CREAT))),
        ("mkdir", errno(fs::create_dir(at("newdir")))),
        ("symlink", errno(std::os::unix::fs::symlink("x", at("newlink")))),
        ("link", errno(fs::hard_link(at("file"), at("second")))),
        ("nameless", errno(nameless(path, 0))),
        ("move in", errno(fs::rename(outside("file"), at("came")))),
        ("move out", errno(fs::rename(at("other"), outside("went")))),
        ("rename", errno(fs::rename(at("file"), at("renamed")))),
        ("replace", errno(fs::rename(at("file"), at("other")))),
        ("exchange", errno(rename_with(&at("file"), &at("other"), libc::RENAME_EXCHANGE))),
        ("unlink", errno(fs::remove_file(at("file")))),
        ("rmdir", errno(fs::remove_dir(at("dir")))),
        ("rmdir of the directory", errno(fs::remove_dir(path))),
        ("rename of the directory", errno(fs::rename(path, outside("elsewhere")))),
        ("chmod", errno(fs::set_permissions(path, Permissions::from_mode(0o700)))),
    ];
    drop(fs::remove_file(outside("file")));
    told
}

/// All that is tried with a guard at one place.
fn guarded(place: &Path, flag: &str) -> Told {
    let (file, dir) = (place.join("file"), place.join("dir"));
    fs::write(&file, vec![b'x'; 5000]).expect("create");
    system("setfattr", &["-n", "user.old", "-v", "1", text(&file)]);
    let append = opened(&file, libc::O_WRONLY | libc::O_APPEND).expect("open");
    chattr(&format!("+{flag}"), &file);
    let mut told = done_to_file(&file, &[("appending handle", &append)]);
    chattr(&format!("-{flag}"), &file);
    fs::create_dir(&dir).expect("mkdir");
    for name in ["file", "other"] {
        fs::write(dir.join(name), name).expect("create");
    }
    fs::create_dir(dir.join("dir")).expect("mkdir");
    chattr(&format!("+{flag}"), &dir);
    told.extend(done_in(&dir));
    chattr(&format!("-{flag}"), &dir);
    assert_eq!(done_in(&dir)[1..4], [("write to an entry", 0), ("create", errno_of_create(flag)), ("O_CREAT", 0)]);
    told
}

/// A directory that is only appended to has got the file by then.
fn errno_of_create(flag: &str) -> i32 {
    if flag == "a" { libc::EEXIST } else { 0 }
}

#[test]
fn a_guard_keeps_out_whom_the_file_system_below_keeps_out() {
    let (home, below) = (Home::new("guards"), Scratch::new("guards-below"));
    let daemon = home.up();
    for flag in ["i", "a"] {
        let told = [&home.mount, &below.path().to_path_buf()].map(|root| {
            let place = root.join(flag);
            fs::create_dir(&place).expect("mkdir");
            guarded(&place, flag)
        });
        assert!(told[0].iter().filter(|(_, errno)| *errno == libc::EPERM).count() > 15, "{told:?}");
        assert_eq!(told[0], told[1], "chattr +{flag}");
    }
    daemon.terminate();
    home.check();
}

/// Guards hold for files that were opened and mapped before, too: a later store is refused where it is written back.
/// Guards are as durable as other attributes, and only those are set that are kept.
#[test]
fn a_guard_stays_and_holds_for_what_was_opened_before() {
    let home = Home::new("guarded");
    let daemon = home.up();
    let path = home.mount.join("file");
    fs::write(&path, vec![b'x'; 8192]).expect("create");
    let early = opened(&path, libc::O_RDWR).expect("open");
    let direct = opened(&path, libc::O_RDWR | libc::O_DIRECT).expect("open");
    let mut mapping = Mapping::of(&early, 8192, libc::MAP_SHARED).expect("mmap");
    mapping.bytes_mut()[0] = b'1';
    for flag in ["i", "a"] {
        chattr(&format!("+{flag}"), &path);
        mapping.bytes_mut()[1] = b'2';
        assert_eq!(errno(early.write_at(b"3", 2)), libc::EPERM, "+{flag}");
        let block = Mapping::anonymous(4096);
        assert_eq!(errno(direct.write_at(block.bytes(), 4096)), libc::EPERM, "+{flag}");
        assert_ne!(errno(early.sync_all()), 0, "what was stored later is not kept, and that is said");
        let c_path = std::ffi::CString::new(text(&path)).expect("no NUL");
        // The limit: the kernel says yes without asking.
        // SAFETY: a call with a string that outlives it.
        assert_eq!(called(unsafe { libc::access(c_path.as_ptr(), libc::W_OK) }), 0);
        daemon_reads(&path, b"1xx");
        chattr(&format!("-{flag}"), &path);
    }
    let unkept = std::process::Command::new("chattr").arg("+d").arg(&path).output().expect("chattr runs");
    assert!(!unkept.status.success() && String::from_utf8_lossy(&unkept.stderr).contains("not supported"));
    let changed = fs::metadata(&path).expect("stat").ctime_nsec();
    chattr("+i", &path);
    assert_ne!(fs::metadata(&path).expect("stat").ctime_nsec(), changed, "a guard is a change");
    early.sync_all().expect("fsync");
    drop((early, direct, mapping));
    daemon.kill();
    let daemon = home.up();
    assert_eq!(errno(fs::remove_file(&path)), libc::EPERM, "after a crash");
    let said = std::process::Command::new("lsattr").arg(&path).output().expect("lsattr runs").stdout;
    let said = String::from_utf8(said).expect("text");
    assert!(said.starts_with("----i---------------"), "{said}");
    std::thread::scope(|scope| {
        let stranger = scope.spawn(|| {
            // SAFETY: the calls take numbers, and change this thread alone.
            unsafe { assert_eq!(libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534), 0) };
            let file = File::open(&path).expect("everybody may read");
            let none = 0u32;
            // SAFETY: FS_IOC_SETFLAGS reads a number that outlives it.
            called(unsafe { libc::ioctl(file.as_raw_fd(), 0x4008_6602, &raw const none) })
        });
        let told = stranger.join().expect("no panic");
        assert!([libc::EPERM, libc::EACCES].contains(&told), "only who may set it may lift it: {told}");
    });
    chattr("-i", &path);
    fs::remove_file(&path).expect("the guard is lifted");
    daemon.terminate();
    home.check();
}

/// The kernel has a number of its own for the root directory, by which it is told to ask again.
#[test]
fn a_guard_of_the_root_directory_is_seen_at_once() {
    let home = Home::new("guarded-root");
    let daemon = home.up();
    let changed = || {
        let root = fs::metadata(&home.mount).expect("stat");
        (root.ctime(), root.ctime_nsec())
    };
    for flag in ["+i", "-i"] {
        let before = changed();
        std::thread::sleep(Duration::from_millis(20));
        chattr(flag, &home.mount);
        assert!(changed() > before, "chattr {flag}");
        let expected = if flag == "+i" { libc::EPERM } else { 0 };
        assert_eq!(errno(fs::write(home.mount.join("file"), b"x")), expected);
    }
    daemon.terminate();
    home.check();
}

/// Flags that a file can't be asked or told: it is afterwards as it was.
#[test]
fn what_files_do_not_offer_is_refused_by_its_name() {
    let home = Home::new("refused");
    let daemon = home.up();
    let path = home.mount.join("file");
    let content = b"0123456789abcdef".repeat(4096);
    fs::write(&path, &content).expect("create");
    let file = opened(&path, libc::O_RDWR).expect("open");
    for mode in [libc::FALLOC_FL_COLLAPSE_RANGE, libc::FALLOC_FL_INSERT_RANGE] {
        // SAFETY: the call takes numbers.
        let told = called(unsafe { libc::fallocate(file.as_raw_fd(), mode, 4096, 4096) });
        assert_eq!(told, libc::EOPNOTSUPP, "{mode:#x}");
    }
    // struct fiemap for the whole file, without room for extents; its flags ask for a sync.
    let mut map = [0u64, u64::MAX, 1, 0];
    // SAFETY: FS_IOC_FIEMAP reads and writes the structure, which outlives it.
    let told = called(unsafe { libc::ioctl(file.as_raw_fd(), 0xC020_660B, &raw mut map) });
    assert_eq!(told, libc::EOPNOTSUPP, "FIEMAP");
    drop(file);
    assert!(fs::read(&path).expect("read") == content);
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("chmod");
    system("mkswap", &[text(&path)]);
    let c_path = std::ffi::CString::new(text(&path)).expect("no NUL");
    // SAFETY: a call with a string that outlives it.
    let told = called(unsafe { libc::swapon(c_path.as_ptr(), 0) });
    assert_eq!(told, libc::EINVAL, "swapon");
    for flag in ["+A", "+c", "+C", "+d", "+S", "+j", "+t", "+s", "+u", "+x"] {
        let said = std::process::Command::new("chattr").arg(flag).arg(&path).output().expect("chattr runs");
        let why = String::from_utf8_lossy(&said.stderr);
        assert!(!said.status.success() && why.contains("not supported"), "chattr {flag}: {why}");
    }
    let said = std::process::Command::new("lsattr").args(["-p", text(&path)]).output().expect("lsattr runs").stdout;
    assert!(said.starts_with(b"    0 ----------------------"), "{}", String::from_utf8_lossy(&said));
    // Hints for extents are not kept; guards can be set in this way too.
    let file = File::open(&path).expect("open");
    let set = |fields: [u32; 7]| {
        // SAFETY: FS_IOC_FSSETXATTR reads the structure, which outlives it.
        called(unsafe { libc::ioctl(file.as_raw_fd(), 0x401C_5820, &raw const fields) })
    };
    assert_eq!(set([0x800, 4096, 0, 0, 0, 0, 0]), libc::EOPNOTSUPP, "a hint");
    assert_eq!(set([0x8, 0, 0, 0, 0, 0, 0]), 0, "immutable");
    assert_eq!(errno(fs::write(&path, b"x")), libc::EPERM);
    assert_eq!(set([0; 7]), 0);
    fs::write(&path, b"x").expect("it may be written again");
    daemon.terminate();
    home.check();
}

/// Objects created in a directory that hands its project down belong to the project; no others come in. Kept as other
/// attributes are.
#[test]
fn projects_are_set_handed_down_and_kept() {
    let home = Home::new("projects");
    let daemon = home.up();
    let at = |name: &str| home.mount.join(name);
    let is = |name: &str| {
        let said = std::process::Command::new("lsattr").args(["-d", "-p", text(&at(name))]).output().expect("it runs");
        let said = String::from_utf8(said.stdout).expect("text");
        let (project, rest) = said.trim_start().split_once(' ').expect("two columns");
        (project.parse::<u32>().expect("a number"), rest.split(' ').next().is_some_and(|flags| flags.contains('P')))
    };
    for dir in ["home", "plain"] {
        fs::create_dir(at(dir)).expect("mkdir");
    }
    fs::write(at("plain/file"), vec![7; 100_000]).expect("create");
    system("chattr", &["-p", "12", "+P", text(&at("home"))]);
    assert_eq!((is("home"), is("plain"), is("plain/file")), ((12, true), (0, false), (0, false)));
    fs::create_dir(at("home/dir")).expect("mkdir");
    fs::write(at("home/dir/file"), vec![7; 100_000]).expect("create");
    assert_eq!((is("home/dir"), is("home/dir/file")), ((12, true), (12, false)));
    assert_eq!(errno(fs::rename(at("plain/file"), at("home/file"))), libc::EXDEV);
    assert_eq!(errno(fs::hard_link(at("plain/file"), at("home/file"))), libc::EXDEV);
    let exchanged = rename_with(&at("plain/file"), &at("home/dir/file"), libc::RENAME_EXCHANGE);
    assert_eq!(errno(exchanged), libc::EXDEV);
    system("mv", &[text(&at("plain/file")), text(&at("home/file"))]);
    assert_eq!(is("home/file"), (12, false), "mv copies it");
    system("chattr", &["-p", "4294967294", text(&at("home/file"))]);
    fs::rename(at("home/dir/file"), at("plain/went")).expect("out of it anything goes");
    let synced = |name: &str| File::open(at(name)).and_then(|file| file.sync_all()).expect("fsync");
    ["home/file", "plain/went", "home/dir", "."].into_iter().for_each(synced);
    let before = ["home", "home/dir", "home/file", "plain/went"].map(is);
    assert_eq!(before, [(12, true), (12, true), (4_294_967_294, false), (12, false)]);
    daemon.kill();
    let daemon = home.up();
    assert_eq!(["home", "home/dir", "home/file", "plain/went"].map(is), before, "after a crash");
    daemon.terminate();
    // What each project uses is what it has.
    home.check();
}

/// Numbers of inodes take more than 32 bits, and say nothing else than `stat` of 64 bits does: a program of 32 bits gets
/// them by `stat64`, and EOVERFLOW by the old `stat`, as on each file system with such numbers.
#[cfg(target_arch = "x86_64")]
#[test]
fn an_old_stat_is_told_that_a_number_does_not_fit() {
    const STAT: u32 = 106;
    const STAT64: u32 = 195;
    let home = Home::new("numbers");
    let daemon = home.up();
    daemon.terminate();
    // Each start gives numbers far beyond all before.
    let daemon = home.up();
    let path = home.mount.join("late");
    File::create_new(&path).expect("create");
    let number = fs::metadata(&path).expect("stat").ino();
    assert!(number > 1 << 32, "{number}");
    let (told, _) = of_32_bits(STAT, &path);
    assert_eq!(told, -libc::EOVERFLOW);
    let (told, found) = of_32_bits(STAT64, &path);
    assert_eq!(told, 0);
    // `st_ino` is the last field of the 96 bytes.
    assert_eq!(found[88..96], number.to_ne_bytes());
    daemon.terminate();
    home.check();
}

/// A call as programs of 32 bits make it, with a path and room for an answer; both lie where such programs have memory.
#[cfg(target_arch = "x86_64")]
fn of_32_bits(call: u32, path: &Path) -> (i32, Vec<u8>) {
    const PAGE: usize = 4096;
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT);
    // SAFETY: the kernel chooses the address; nothing lies there.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), 2 * PAGE, access, flags, -1, 0) }.cast::<u8>();
    assert_ne!(start.cast(), libc::MAP_FAILED);
    let mut result = call;
    // SAFETY: the path, ended by the zeros behind it, and the answer fit their pages; the call changes nothing else. The
    // compiler keeps rbx for itself, so it is put back.
    let answer = unsafe {
        std::ptr::copy_nonoverlapping(text(path).as_ptr(), start, path.as_os_str().len());
        std::arch::asm!(
            "xchg {path}, rbx", "int 0x80", "xchg {path}, rbx",
            path = inout(reg) start as u64 => _, inout("eax") result, in("ecx") start as u32 + PAGE as u32,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
        std::slice::from_raw_parts(start.add(PAGE), 96).to_vec()
    };
    // SAFETY: nothing refers to it any more.
    unsafe { libc::munmap(start.cast(), 2 * PAGE) };
    (result as i32, answer)
}

fn daemon_reads(path: &Path, start: &[u8]) {
    let direct = opened(path, libc::O_RDONLY | libc::O_DIRECT).expect("open");
    let mut block = Mapping::anonymous(4096);
    assert_eq!(direct.read_at(block.bytes_mut(), 0).expect("read"), 4096);
    assert_eq!(&block.bytes()[..start.len()], start);
}
