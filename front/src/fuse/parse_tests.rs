//! Requests are parsed byte by byte, and no bytes can do harm.

use super::super::abi::{IN_HEADER_BYTES, Writer};
use super::*;
use runtime::random::SplitMix;

const ROOT: Ino = Ino(1 << 20 | 5);
const NODE: u64 = 77 << 20 | 3;

fn header_of(opcode: u32) -> Header {
    Header { opcode, unique: 10, nodeid: NODE, uid: 1000, gid: 100, umask: 0, pid: 0 }
}

fn body(build: impl for<'a, 'b> FnOnce(&'a mut Writer<'b>) -> &'a mut Writer<'b>) -> Vec<u8> {
    let mut bytes = vec![0; 8192];
    let mut writer = Writer::new(&mut bytes);
    build(&mut writer);
    let length = writer.len();
    bytes.truncate(length);
    bytes
}

fn asked(opcode: u32, build: impl for<'a, 'b> FnOnce(&'a mut Writer<'b>) -> &'a mut Writer<'b>) -> Result<Ask> {
    ask(&header_of(opcode), &body(build), 0, ROOT)
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a valid name")
}

#[test]
fn headers() {
    let bytes = body(|w| w.u32(40).u32(opcode::GETATTR).u64(8).u64(1).u32(5).u32(6).u32(7).u32(0));
    assert_eq!(
        header(&bytes, 40),
        Ok(Header { opcode: opcode::GETATTR, unique: 8, nodeid: 1, uid: 5, gid: 6, umask: 0, pid: 7 })
    );
    assert!(header(&bytes, 41).is_err(), "the length must be what was read");
    assert!((0..40).all(|cut| header(&bytes[..cut], 40).is_err()));
    assert_eq!((ino_of(1, ROOT), ino_of(NODE, ROOT)), (ROOT, Ino(NODE)));
}

#[test]
fn a_release_tells_who_opened() {
    let handle = body(|w| w.u32(libc::O_RDWR as u32).u32(1234).u32(0).u32(0).u64(0));
    for (opcode, expected) in [(opcode::RELEASE, Some(1234)), (opcode::RELEASEDIR, Some(1234)), (opcode::READ, None)] {
        assert_eq!(opener(opcode, &handle), expected);
    }
    assert_eq!(opener(opcode::RELEASE, &handle[..7]), Some(0), "a process that nobody sees");
}

fn write_of(write_flags: u32, flags: i32) -> Op {
    let bytes = body(|w| w.u64(0).u64(8192).u32(4096).u32(write_flags).u64(0).u32(flags as u32).u32(0));
    match ask(&header_of(opcode::WRITE), &bytes, 4096, ROOT) {
        Ok(Ask::Write { op, .. }) => op,
        other => panic!("not a write: {other:?}"),
    }
}

#[test]
fn the_flags_of_a_write_say_when_it_is_acknowledged() {
    let op = |at, sync| Op::Write { ino: Ino(NODE), at, sync, kill_privileges: false };
    let (here, none) = (At::Offset(8192), 0);
    assert_eq!(write_of(none, libc::O_RDWR), op(here, Sync::Ordered));
    assert_eq!(write_of(none, libc::O_DIRECT), op(here, Sync::Written));
    assert_eq!(write_of(none, libc::O_DSYNC), op(here, Sync::Data));
    assert_eq!(write_of(none, libc::O_DSYNC | libc::O_DIRECT), op(here, Sync::Data));
    assert_eq!(write_of(none, libc::O_SYNC), op(here, Sync::All));
    assert_eq!(write_of(abi::WRITE_CACHE, libc::O_SYNC), op(here, Sync::Ordered));
    let kill = Op::Write { ino: Ino(NODE), at: here, sync: Sync::Ordered, kill_privileges: true };
    assert_eq!(write_of(abi::WRITE_KILL_SUIDGID, 0), kill);
}

#[cfg(feature = "seeded-bugs")]
#[test]
fn the_seeded_bug_forgets_the_flags() {
    seeded::set(Some(Bug::WriteFlagsIgnored));
    let sync = |flags| match write_of(0, flags) {
        Op::Write { sync, .. } => sync,
        other => panic!("{other:?}"),
    };
    assert_eq!((sync(libc::O_DSYNC), sync(libc::O_DIRECT)), (Sync::Ordered, Sync::Ordered));
    seeded::set(None);
    assert_eq!(sync(libc::O_DSYNC), Sync::Data);
}

#[test]
fn appends_go_to_the_end_unless_parts_may_overtake_each_other() {
    let at = |write_flags, flags| match write_of(write_flags, flags) {
        Op::Write { at, .. } => at,
        other => panic!("{other:?}"),
    };
    assert_eq!(at(0, libc::O_APPEND), At::End);
    assert_eq!(at(0, libc::O_APPEND | libc::O_DSYNC), At::End);
    assert_eq!(at(0, libc::O_APPEND | libc::O_DIRECT), At::Offset(8192));
    assert_eq!(at(abi::WRITE_CACHE, libc::O_APPEND), At::Offset(8192));
}

#[test]
fn it_is_told_what_goes_past_the_page_cache() {
    assert_eq!([0, abi::LOCK_OWNER, abi::WRITE_CACHE].map(write_way), [Way::Cached, Way::Direct, Way::Back]);
    let read = |flags: u32| match asked(opcode::READ, |w| w.zeros(16).u32(7).u32(flags).zeros(16)) {
        Ok(Ask::Read { way, .. }) => way,
        other => panic!("not a read: {other:?}"),
    };
    assert_eq!([0, abi::LOCK_OWNER].map(read), [Way::Cached, Way::Direct]);
}

#[test]
fn a_payload_has_the_announced_length() {
    let write = |announced: u32, landed| {
        let bytes = body(|w| w.u64(0).u64(0).u32(announced).u32(0).u64(0).u32(0).u32(0));
        ask(&header_of(opcode::WRITE), &bytes, landed, ROOT)
    };
    assert!(write(4096, 4096).is_ok() && write(0, 0).is_ok());
    assert!(write(4096, 4095).is_err() && write(4096, 4097).is_err());
    assert!(write((1 << 20) + 1, (1 << 20) + 1).is_err());
    let read = |length: u32| asked(opcode::READ, |w| w.u64(0).u64(5).u32(length).u32(0).u64(0).u32(0).u32(0));
    let op = Op::Read { ino: Ino(NODE), offset: 5, length: 1 << 20 };
    assert_eq!(read(1 << 20), Ok(Ask::Read { op, noatime: false, flags: 0, way: Way::Cached }));
    let with = |flags: i32| asked(opcode::READ, |w| w.zeros(16).u32(7).zeros(12).u32(flags as u32).u32(0));
    let op = || Op::Read { ino: Ino(NODE), offset: 0, length: 7 };
    let flags = libc::O_NOATIME as u32;
    assert_eq!(with(libc::O_NOATIME), Ok(Ask::Read { op: op(), noatime: true, flags, way: Way::Cached }));
    for flags in [libc::O_DIRECT, libc::O_DSYNC] {
        let told = flags as u32;
        assert_eq!(with(flags), Ok(Ask::Read { op: op(), noatime: false, flags: told, way: Way::Cached }));
    }
    assert!(read((1 << 20) + 1).is_err());
}

fn set_of(valid: u32) -> SetAttr {
    let parsed = asked(opcode::SETATTR, |w| {
        w.u32(valid)
            .u32(0)
            .u64(0)
            .u64(4711)
            .u64(0)
            .u64(-1i64 as u64)
            .u64(2)
            .u64(3)
            .u32(10)
            .u32(20)
            .u32(30)
            .u32(0o104_755)
            .u32(0)
            .u32(12)
            .u32(34)
            .u32(0)
    });
    match parsed {
        Ok(Ask::Attr(Op::SetAttr { ino: Ino(NODE), set })) => *set,
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_the_marked_attributes_are_set() {
    let none = SetAttr::default();
    assert_eq!(set_of(0), none);
    assert_eq!(set_of(fattr::MODE), SetAttr { mode: Some(0o4755), ..none });
    assert_eq!(set_of(fattr::UID | fattr::GID), SetAttr { uid: Some(12), gid: Some(34), ..none });
    assert_eq!(set_of(fattr::SIZE), SetAttr { size: Some(4711), ..none });
    assert_eq!(set_of(fattr::KILL_SUIDGID), SetAttr { kill_privileges: true, ..none });
    let time = |seconds, nanos| Some(SetTime::To(Time::from_parts(seconds, nanos)));
    assert_eq!(set_of(fattr::ATIME), SetAttr { atime: time(-1, 10), ..none });
    assert_eq!(set_of(fattr::MTIME), SetAttr { mtime: time(2, 20), ..none });
    assert_eq!(set_of(fattr::CTIME), SetAttr { ctime: Some(Time::from_parts(3, 30)), ..none });
    assert_eq!(set_of(fattr::ATIME | fattr::ATIME_NOW).atime, Some(SetTime::Now));
    assert_eq!(set_of(fattr::MTIME | fattr::MTIME_NOW).mtime, Some(SetTime::Now));
}

#[test]
fn names_are_taken_apart() {
    let parent = Ino(NODE);
    let string = |code, text: &str| asked(code, |w| w.bytes(text.as_bytes()).bytes(&[0]));
    assert_eq!(string(opcode::LOOKUP, "a"), Ok(Ask::Entry(Op::Lookup { parent, name: name("a") })));
    assert_eq!(string(opcode::LOOKUP, "."), Ok(Ask::Entry(Op::Recall { ino: parent })));
    assert_eq!(string(opcode::LOOKUP, ".."), Ok(Ask::Above(parent)));
    assert_eq!(string(opcode::UNLINK, "a"), Ok(Ask::Done(Op::Unlink { parent, name: name("a") })));
    assert_eq!(string(opcode::RMDIR, "a"), Ok(Ask::Done(Op::RemoveDir { parent, name: name("a") })));
    assert_eq!(string(opcode::LOOKUP, "").expect_err("empty").kind, Kind::Invalid);
    let open = asked(opcode::LOOKUP, |w| w.bytes(b"no end"));
    assert_eq!(open.expect_err("no terminator").kind, Kind::Invalid);
    let symlink = asked(opcode::SYMLINK, |w| w.bytes(b"link\0to/here\0"));
    let target = Box::from(&b"to/here"[..]);
    assert_eq!(symlink, Ok(Ask::Entry(Op::SymLink { parent, name: name("link"), target })));
    let long = asked(opcode::SYMLINK, |w| w.bytes(b"link\0").bytes(&[b'x'; 4096]).bytes(&[0]));
    assert_eq!(long.expect_err("over PATH_MAX").kind, Kind::NameTooLong);
    let mkdir = asked(opcode::MKDIR, |w| w.u32(0o41_777).u32(0o22).bytes(b"d\0"));
    assert_eq!(mkdir, Ok(Ask::Entry(Op::MakeDir { parent, name: name("d"), mode: 0o1777 })));
}

#[test]
fn nodes_and_creates() {
    let parent = Ino(NODE);
    let node = |mode: u32| asked(opcode::MKNOD, move |w| w.u32(mode).u32(0).u32(0).u32(0).bytes(b"n\0"));
    let op = Op::Create { parent, name: name("n"), mode: 0o644, exclusive: true };
    assert_eq!(node(libc::S_IFREG | 0o644), Ok(Ask::Node(op)));
    let fifo = Op::MakeNode { parent, name: name("n"), kind: FileKind::Fifo, mode: 0o644, rdev: 0 };
    assert_eq!(node(libc::S_IFIFO | 0o644), Ok(Ask::Entry(fifo)));
    assert_eq!(node(0o644).expect_err("the kernel makes it a file").kind, Kind::Invalid);
    let link = asked(opcode::LINK, |w| w.u64(77).bytes(b"n\0"));
    assert_eq!(link, Ok(Ask::Entry(Op::Link { ino: Ino(77), new_parent: parent, new_name: name("n") })));
    let create = |flags: i32, kill: u32| {
        asked(opcode::CREATE, move |w| w.u32(flags as u32).u32(0o100_600).u32(0).u32(kill).bytes(b"n\0"))
    };
    let made = |exclusive, flags: i32, kill_privileges| {
        let op = Op::Create { parent, name: name("n"), mode: 0o600, exclusive };
        Ok(Ask::Create { op, flags: flags as u32, kill_privileges })
    };
    assert_eq!(create(libc::O_RDWR, 0), made(false, libc::O_RDWR, false));
    assert_eq!(create(libc::O_EXCL, 1), made(true, libc::O_EXCL, true));
    let nameless = asked(opcode::TMPFILE, |w| w.u32(libc::O_RDWR as u32).u32(0o100_640).u32(0).u32(0).bytes(b"/\0"));
    let op = Op::TempFile { parent, mode: 0o640 };
    assert_eq!(nameless, Ok(Ask::Create { op, flags: libc::O_RDWR as u32, kill_privileges: false }));
    let open = asked(opcode::OPEN, |w| w.u32(libc::O_TRUNC as u32).u32(1));
    assert_eq!(open, Ok(Ask::Open { ino: parent, flags: libc::O_TRUNC as u32, kill_privileges: true }));
}

#[test]
fn renames() {
    let renamed = |new_parent, no_replace, whiteout| {
        let (name, new_name) = (name("a"), name("b"));
        Ok(Ask::Done(Op::Rename { parent: Ino(NODE), name, new_parent, new_name, no_replace, whiteout }))
    };
    assert_eq!(asked(opcode::RENAME, |w| w.u64(1).bytes(b"a\0b\0")), renamed(ROOT, false, false));
    let flagged = |flags: u32| asked(opcode::RENAME2, move |w| w.u64(9).u32(flags).u32(0).bytes(b"a\0b\0"));
    assert_eq!(flagged(0), renamed(Ino(9), false, false));
    assert_eq!(flagged(libc::RENAME_NOREPLACE), renamed(Ino(9), true, false));
    assert_eq!(flagged(libc::RENAME_WHITEOUT), renamed(Ino(9), false, true));
    assert_eq!(flagged(libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE), renamed(Ino(9), true, true));
    let (name_a, name_b) = (name("a"), name("b"));
    let exchange = Op::Exchange { parent: Ino(NODE), name: name_a, new_parent: Ino(9), new_name: name_b };
    assert_eq!(flagged(libc::RENAME_EXCHANGE), Ok(Ask::Done(exchange)));
    for flags in [libc::RENAME_NOREPLACE, libc::RENAME_WHITEOUT]
        .map(|other| libc::RENAME_EXCHANGE | other)
        .into_iter()
        .chain([8])
    {
        assert_eq!(flagged(flags).expect_err("unknown flag").kind, Kind::Invalid);
    }
}

#[test]
fn attributes_by_name() {
    let (ino, name) = (Ino(NODE), Name::of_attribute(b"user./").expect("any bytes but NUL"));
    let set = |flags: i32, more: u32| {
        asked(opcode::SETXATTR, move |w| w.u32(3).u32(flags as u32).u32(more).u32(0).bytes(b"user./\0v\0w"))
    };
    let op = |how, kill_setgid| {
        let value = (*b"v\0w").into();
        Ok(Ask::Done(Op::SetXattr { ino, name: name.clone(), value, how, kill_setgid }))
    };
    assert_eq!(set(0, 0), op(SetHow::Any, false));
    assert_eq!(set(libc::XATTR_CREATE, 1), op(SetHow::Create, true));
    assert_eq!(set(libc::XATTR_REPLACE, 0), op(SetHow::Replace, false));
    let short_form = asked(opcode::SETXATTR, |w| w.u32(3).u32(1).bytes(b"user./\0v\0w"));
    assert_eq!(short_form, op(SetHow::Create, false));
    assert_eq!(set(3, 0).expect_err("not both").kind, Kind::Invalid);
    let short = asked(opcode::SETXATTR, |w| w.u32(4).u32(0).u32(0).u32(0).bytes(b"user./\0v\0w"));
    assert_eq!(short.expect_err("the value is cut off").kind, Kind::Invalid);
    let get = asked(opcode::GETXATTR, |w| w.u32(7).u32(0).bytes(b"user./\0"));
    assert_eq!(get, Ok(Ask::Xattrs(Op::GetXattr { ino, name: name.clone() }, 7)));
    let list = asked(opcode::LISTXATTR, |w| w.u32(0).u32(0));
    assert_eq!(list, Ok(Ask::Xattrs(Op::ListXattr { ino }, 0)));
    let remove = asked(opcode::REMOVEXATTR, |w| w.bytes(b"user./\0"));
    assert_eq!(remove, Ok(Ask::Done(Op::RemoveXattr { ino, name })));
}

#[test]
fn what_creates_tells_the_umask() {
    let mkdir = body(|w| w.u32(0o777).u32(0o27).bytes(b"n\0"));
    let node = body(|w| w.u32(0o777).u32(0).u32(0o27).u32(0).bytes(b"n\0"));
    for (code, body) in [(opcode::MKDIR, &mkdir), (opcode::MKNOD, &node), (opcode::CREATE, &node)] {
        assert_eq!(umask(code, body), 0o27, "{code}");
        assert!((0..body.len()).all(|cut| umask(code, &body[..cut]) & !0o27 == 0));
    }
    assert_eq!(umask(opcode::WRITE, &node), 0);
}

#[test]
fn directories_are_read_in_pages() {
    let read =
        |opcode, size: u32| asked(opcode, move |w| w.u64(5 << 32 | 9).u64(7).u32(size).u32(0).u64(0).u32(0).u32(0));
    let expected = |size, plus| Ok(Ask::ReadDir { ino: Ino(NODE), handle: 9, offset: 7, size, plus, noatime: false });
    assert_eq!(read(opcode::READDIR, 4096), expected(4096, false));
    assert_eq!(read(opcode::READDIRPLUS, 4 << 20), expected(1 << 20, true));
    assert!(read(opcode::READDIR, 511).is_err());
    assert_eq!((entries_for(4096, false), entries_for(4096, true)), (102, 24));
    assert_eq!((entries_for(0, true), entries_for(1 << 20, false)), (1, 1024));
}

#[test]
fn locks() {
    use base::lock::{Family, FileLock, LockWish, Mode};
    let lock = |code, kind: i32, flags: u32| {
        asked(code, move |w| w.u64(9).u64(77).u64(10).u64(19).u32(kind as u32).u32(4000).u32(flags).u32(0))
    };
    let expected = |family, mode, (first, last), wish| {
        let lock = FileLock { ino: Ino(NODE), family, mode, owner: 77, pid: 4000, first, last };
        Ok(Ask::Lock(LockAsk { handle: 9, lock, wish }))
    };
    let range = (10, 19);
    assert_eq!(lock(opcode::GETLK, libc::F_RDLCK, 0), expected(Family::Range, Mode::Shared, range, LockWish::Test));
    assert_eq!(lock(opcode::SETLK, libc::F_WRLCK, 0), expected(Family::Range, Mode::Exclusive, range, LockWish::Take));
    assert_eq!(
        lock(opcode::SETLK, libc::F_UNLCK, 0),
        expected(Family::Range, Mode::Exclusive, range, LockWish::Release)
    );
    let all = (0, u64::MAX);
    assert_eq!(lock(opcode::SETLKW, libc::F_RDLCK, 1), expected(Family::Whole, Mode::Shared, all, LockWish::Queue));
    let backwards = asked(opcode::SETLK, |w| w.u64(9).u64(77).u64(20).u64(19).u32(0).u32(1).u32(0).u32(0));
    assert!(backwards.is_err());
    let flush = asked(opcode::FLUSH, |w| w.u64(9).u32(0).u32(0).u64(77));
    assert_eq!(flush, Ok(Ask::Flush { ino: Ino(NODE), owner: 77 }));
}

#[test]
fn what_the_kernel_should_not_ask_again_is_told_so() {
    let answers = |code| asked(code, |w| w);
    // access, copy_file_range, poll.
    for code in [34, 47, 40, 4711] {
        assert_eq!(answers(code), Ok(Ask::Answer(libc::ENOSYS)), "{code}");
    }
    assert_eq!(answers(opcode::NOTIFY_REPLY), Ok(Ask::Silent));
    assert_eq!(asked(opcode::INTERRUPT, |w| w.u64(17)), Ok(Ask::Interrupt(17)));
    assert_eq!(asked(opcode::RELEASEDIR, |w| w.u64(5 << 32 | 9)), Ok(Ask::CloseDir { ino: Ino(NODE), handle: 9 }));
    assert_eq!(
        asked(opcode::RELEASE, |w| w.u64(5 << 32 | 9)),
        Ok(Ask::Release { ino: Ino(NODE), handle: 5 << 32 | 9 })
    );
    assert_eq!(answers(opcode::OPENDIR), Ok(Ask::OpenDir { ino: Ino(NODE) }));
    assert_eq!(asked(opcode::STATX, |w| w.zeros(24)), Ok(Ask::Birth(Op::GetAttr { ino: Ino(NODE) })));
    assert_eq!(answers(opcode::SYNCFS), Ok(Ask::Sync { op: Op::SyncAll, handle: None }));
    for (flags, sync) in [(1u32, Sync::Data), (0, Sync::All)] {
        let op = Op::Fsync { ino: Ino(NODE), sync };
        let fsync = |code| asked(code, |w| w.u64(7 << 32 | 9).u32(flags).u32(0));
        assert_eq!(fsync(opcode::FSYNC), Ok(Ask::Sync { op: op.clone(), handle: Some(9) }));
        assert_eq!(fsync(opcode::FSYNCDIR), Ok(Ask::Sync { op, handle: Some(9) }));
    }
}

#[test]
fn inodes_are_forgotten_one_by_one_and_many_at_once() {
    let forgets = |all: &[(Ino, u64)]| Ok(Ask::ForgetAll(all.into()));
    assert_eq!(asked(opcode::FORGET, |w| w.u64(3)), Ok(Ask::Forget { ino: Ino(NODE), times: 3 }));
    assert!(asked(opcode::FORGET, |w| w.u32(3)).is_err());
    let two = |count: u32| asked(opcode::BATCH_FORGET, |w| w.u32(count).u32(0).u64(NODE).u64(2).u64(1).u64(9));
    assert_eq!(two(2), forgets(&[(Ino(NODE), 2), (ROOT, 9)]));
    assert_eq!(two(1), forgets(&[(Ino(NODE), 2)]));
    assert_eq!(two(u32::MAX), two(2), "no more than came");
    assert!(asked(opcode::BATCH_FORGET, |w| w.u32(1)).is_err());
}

#[test]
fn holes_are_made_zeroed_promised_and_looked_for() {
    let allocate = |mode: i32| asked(opcode::FALLOCATE, |w| w.u64(0).u64(5).u64(6).u32(mode as u32).u32(0));
    let (keep, punch, zero) = (libc::FALLOC_FL_KEEP_SIZE, libc::FALLOC_FL_PUNCH_HOLE, libc::FALLOC_FL_ZERO_RANGE);
    for (mode, keep_size, room) in [
        (0, false, Room::Promised),
        (keep, true, Room::Promised),
        (punch | keep, true, Room::Hole),
        (zero, false, Room::Zeroed),
        (zero | keep, true, Room::Zeroed),
    ] {
        let op = Op::Allocate { ino: Ino(NODE), offset: 5, length: 6, keep_size, room };
        assert_eq!(allocate(mode), Ok(Ask::Done(op)));
    }
    for mode in [punch, punch | zero | keep, libc::FALLOC_FL_COLLAPSE_RANGE, libc::FALLOC_FL_INSERT_RANGE | keep] {
        assert_eq!(allocate(mode), Ok(Ask::Answer(libc::EOPNOTSUPP)));
    }
    let seek = |whence: i32| asked(opcode::LSEEK, |w| w.u64(0).u64(5).u32(whence as u32).u32(0));
    for (whence, what) in [(libc::SEEK_DATA, Seek::Data), (libc::SEEK_HOLE, Seek::Hole)] {
        assert_eq!(seek(whence), Ok(Ask::Seek(Op::Seek { ino: Ino(NODE), offset: 5, what })));
    }
    assert!(seek(libc::SEEK_END).is_err());
}

#[test]
fn no_bytes_can_harm() {
    let mut random = SplitMix(7);
    for round in 0..200_000u64 {
        let length = random.below(300) as usize;
        let zeros = random.below(4);
        let byte = |random: &mut SplitMix| if random.below(4) < zeros { 0 } else { random.next() as u8 };
        let mut bytes: Vec<u8> = (0..length).map(|_| byte(&mut random)).collect();
        if length >= IN_HEADER_BYTES && round % 2 == 0 {
            bytes[..4].copy_from_slice(&(length as u32).to_ne_bytes());
            bytes[4..8].copy_from_slice(&(random.below(60) as u32).to_ne_bytes());
        }
        if let Ok(header) = header(&bytes, length) {
            let _ = ask(&header, &bytes[IN_HEADER_BYTES..], random.below(5000) as usize, ROOT);
        }
    }
}

#[test]
fn guards_are_set_by_flags_that_are_kept() {
    use super::super::abi::ioctl;
    let control = |command: u32, flags: Option<u32>, answer_bytes: u32| {
        asked(opcode::IOCTL, move |w| {
            let w = w.u64(0).u32(0).u32(command).u64(0).u32(if flags.is_some() { 4 } else { 0 }).u32(answer_bytes);
            match flags {
                Some(flags) => w.u32(flags),
                None => w,
            }
        })
    };
    let ino = Ino(NODE);
    assert_eq!(control(ioctl::GET_FLAGS, None, 4), Ok(Ask::Guard(Op::GetAttr { ino }, 4)));
    assert_eq!(control(ioctl::GET_X, None, 28), Ok(Ask::Guard(Op::GetAttr { ino }, 28)));
    assert_eq!(control(ioctl::GET_X, None, 27), Ok(Ask::Answer(libc::ENOTTY)));
    assert_eq!(control(ioctl::GET_FLAGS, None, 400), Ok(Ask::Answer(libc::ENOTTY)));
    for (flags, immutable, append_only) in
        [(0, false, false), (0x10, true, false), (0x20, false, true), (0x30, true, true)]
    {
        let guard = Some(Guard { immutable, append_only, ..Guard::default() });
        let set = SetAttr { guard, ..SetAttr::default() };
        assert_eq!(control(ioctl::SET_FLAGS, Some(flags), 0), Ok(Ask::SetGuard(Op::SetAttr { ino, set: set.into() })));
    }
    assert_eq!(control(ioctl::SET_FLAGS, Some(0x50), 0), Ok(Ask::Answer(libc::EOPNOTSUPP)), "nodump is not kept");
    assert!(control(ioctl::SET_FLAGS, None, 0).is_err(), "no flags");
    let set_x = |fields: [u32; 7]| {
        asked(opcode::IOCTL, move |w| w.u64(0).u32(0).u32(ioctl::SET_X).u64(0).u32(28).u32(0).u32s(fields))
    };
    for (flags, immutable, append_only) in [(0x8, true, false), (0x8000_0010, false, true), (0x200, false, false)] {
        let guard = Guard { immutable, append_only, hands_down_project: flags & 0x200 != 0 };
        let set = SetAttr { guard: Some(guard), project: Some(7), ..SetAttr::default() };
        assert_eq!(set_x([flags, 0, 9, 7, 0, 0, 0]), Ok(Ask::SetGuard(Op::SetAttr { ino, set: set.into() })));
    }
    for fields in [[0, 1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0, 0], [0x100, 0, 0, 0, 0, 0, 0]] {
        assert_eq!(set_x(fields), Ok(Ask::Answer(libc::EOPNOTSUPP)), "{fields:?}");
    }
    // The same with a 32-bit program's code, which the kernel has not looked at.
    assert_eq!(control(0x4004_6602, Some(0), 0), Ok(Ask::Answer(libc::ENOTTY)));
}
