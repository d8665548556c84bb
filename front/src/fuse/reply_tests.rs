//! Answers, byte by byte.

use super::super::abi::Fields;
use super::*;
use base::{Blocks, GroupId, Inode, Kind, Name, Time};

const ROOT: Ino = Ino(1 << 20);
const ORIGIN: Origin = Origin { root: ROOT, brick: 0xf0f0_0000, valid_s: VALID };
/// Seconds for which answers are valid.
const VALID: u64 = 77;

fn inode(kind: FileKind) -> Inode {
    Inode {
        kind,
        mode: 0o755,
        uid: 1,
        gid: 2,
        links: 3,
        rdev: 4,
        project: 0,
        generation: 5,
        size: 4097,
        trim: 0,
        entries: 0,
        parent: ROOT,
        atime: Time(-1),
        mtime: Time(1_000_000_007),
        ctime: Time(3),
        btime: Time(0),
        dead: false,
        xattrs: base::Attributes::default(),
        guard: base::Guard::default(),
    }
}

fn attr() -> Attr {
    attr_of(inode(FileKind::File))
}

/// Attributes that the kernel may cache.
fn attr_of(inode: Inode) -> Attr {
    let attr = Attr::new(Ino::new(9, GroupId(1)), inode);
    Attr { blocks: Blocks { exact: true, ..attr.blocks }, ..attr }
}

#[test]
fn what_is_known_better_a_moment_later_is_not_kept() {
    let head = Head::attr(42, &Attr { blocks: Blocks { count: 5, exact: false }, ..attr() }, VALID);
    let mut fields = opened(&head, 0, 0);
    assert_eq!((fields.u64(), fields.u32(), fields.u32()), (Ok(0), Ok(0), Ok(0)));
    assert_eq!((fields.u64(), fields.u64(), fields.u64()), (Ok(9 << 20 | 1), Ok(4097), Ok(40)));
    let head = Head::entry(42, &Attr { blocks: Blocks { count: 5, exact: false }, ..attr() }, ORIGIN);
    let mut fields = opened(&head, 0, 0);
    assert_eq!((fields.u64(), fields.u64()), (Ok(9 << 20 | 1), Ok(5 ^ u64::from(ORIGIN.brick))));
    assert_eq!((fields.u64(), fields.u64()), (Ok(VALID), Ok(0)));
}

/// Checks the header and gives what follows.
fn opened<'a>(head: &'a Head, error: i32, tail_bytes: usize) -> Fields<'a> {
    let mut fields = Fields(head.as_bytes());
    assert_eq!(fields.u32(), Ok((head.as_bytes().len() + tail_bytes) as u32));
    assert_eq!((fields.u32(), fields.u64()), (Ok(-error as u32), Ok(42)));
    fields
}

fn check_attr(fields: &mut Fields<'_>) {
    assert_eq!((fields.u64(), fields.u64(), fields.u64()), (Ok(9 << 20 | 1), Ok(4097), Ok(16)));
    assert_eq!((fields.u64(), fields.u64(), fields.u64()), (Ok(-1i64 as u64), Ok(1), Ok(0)));
    assert_eq!((fields.u32(), fields.u32(), fields.u32()), (Ok(999_999_999), Ok(7), Ok(3)));
    assert_eq!((fields.u32(), fields.u32()), (Ok(0o100_755), Ok(3)));
    assert_eq!((fields.u32(), fields.u32(), fields.u32()), (Ok(1), Ok(2), Ok(4)));
    assert_eq!((fields.u32(), fields.u32()), (Ok(4096), Ok(0)));
}

#[test]
fn statuses() {
    assert!(opened(&Head::status(42, 0), 0, 0).0.is_empty());
    assert!(opened(&Head::status(42, 2), 2, 0).0.is_empty());
    assert!(opened(&Head::before(42, 1 << 20), 0, 1 << 20).0.is_empty());
    let mut wrote = Head::wrote(42, 4096);
    assert_eq!(opened(&wrote, 0, 0).u32(), Ok(4096));
    for (caching, keeps) in [
        (DirCaching::Fills, fopen::KEEP_CACHE | fopen::CACHE_DIR),
        (DirCaching::Keeps, fopen::KEEP_CACHE),
        (DirCaching::None, 0),
    ] {
        wrote = Head::open_dir(42, (7, 9), caching);
        let mut fields = opened(&wrote, 0, 0);
        assert_eq!((fields.u32(), fields.u32()), (Ok(7), Ok(9)));
        assert_eq!((fields.u32(), fields.u32()), (Ok(keeps), Ok(0)));
    }
}

#[test]
fn entries_and_attributes() {
    let head = Head::entry(42, &attr(), ORIGIN);
    let mut fields = opened(&head, 0, 0);
    assert_eq!((fields.u64(), fields.u64()), (Ok(9 << 20 | 1), Ok(5 ^ 0xf0f0_0000)));
    assert_eq!((fields.u64(), fields.u64(), fields.u64()), (Ok(VALID), Ok(VALID), Ok(0)));
    check_attr(&mut fields);
    assert!(fields.0.is_empty());
    let head = Head::attr(42, &attr(), VALID);
    let mut fields = opened(&head, 0, 0);
    assert_eq!((fields.u64(), fields.u64()), (Ok(VALID), Ok(0)));
    check_attr(&mut fields);
    assert!(fields.0.is_empty());
    let head = Head::absent(42, VALID);
    let mut fields = opened(&head, 0, 0);
    assert_eq!((fields.u64(), fields.u64(), fields.u64()), (Ok(0), Ok(0), Ok(VALID)));
    assert_eq!(fields.0.len(), abi::ENTRY_OUT_BYTES - 24);
    let root = Head::entry(42, &Attr::new(ROOT, inode(FileKind::Directory)), ORIGIN);
    let mut fields = opened(&root, 0, 0);
    assert_eq!((fields.u64(), fields.u64()), (Ok(abi::ROOT_ID), Ok(0)));
}

#[test]
fn the_time_of_birth_is_told_on_request() {
    let device = Inode { rdev: 0x1234_5678, btime: Time(5_000_000_009), ..inode(FileKind::Character) };
    let told = statx(&attr_of(device), VALID);
    assert_eq!(told.len(), 288, "fuse_statx_out");
    let mut fields = Fields(&told);
    assert_eq!((fields.u64(), fields.u64(), fields.u64(), fields.u64()), (Ok(VALID), Ok(0), Ok(0), Ok(0)));
    assert_eq!((fields.u32(), fields.u32(), fields.u64()), (Ok(0xfff), Ok(4096), Ok(0)));
    assert_eq!((fields.u32(), fields.u32(), fields.u32(), fields.u32()), (Ok(3), Ok(1), Ok(2), Ok(0o20_755)));
    assert_eq!((fields.u64(), fields.u64(), fields.u64(), fields.u64()), (Ok(9 << 20 | 1), Ok(4097), Ok(0), Ok(0)));
    for (seconds, nanos) in [(-1i64 as u64, 999_999_999), (5, 9), (0, 3), (1, 7)] {
        assert_eq!((fields.u64(), fields.u32(), fields.u32()), (Ok(seconds), Ok(nanos), Ok(0)));
    }
    assert_eq!((fields.u32(), fields.u32()), (Ok(0x456), Ok(0x1_2378)), "of the device, major and minor");
}

fn alone(flags: u32) -> Opening {
    Opening { flags, is_shared: false, passes_locks: false }
}

#[test]
fn opens_of_a_shared_volume_bypass_the_cache_and_tell_of_each_close() {
    let read = alone(libc::O_RDONLY as u32);
    assert_eq!(open_flags(Opening { passes_locks: true, ..read }), fopen::KEEP_CACHE);
    let shared = Opening { is_shared: true, passes_locks: true, ..read };
    assert_eq!(open_flags(shared), fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES);
}

#[test]
fn locks_are_told_as_the_kernel_encodes_them() {
    let lock = FileLock {
        ino: Ino(5),
        family: base::lock::Family::Range,
        mode: Mode::Exclusive,
        owner: 9,
        pid: 17,
        first: 3,
        last: 8,
    };
    let told = file_lock(Some(&lock));
    let mut fields = Fields(&told);
    assert_eq!((fields.u64(), fields.u64()), (Ok(3), Ok(8)));
    assert_eq!((fields.u32(), fields.u32()), (Ok(libc::F_WRLCK as u32), Ok(17)));
    let none = file_lock(None);
    let mut fields = Fields(&none[16..]);
    assert_eq!(fields.u32(), Ok(libc::F_UNLCK as u32));
}

#[test]
fn opens_bypass_the_cache_where_the_flags_say_so() {
    let direct = fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES;
    let cases = [
        (libc::O_RDONLY, fopen::KEEP_CACHE | fopen::NOFLUSH),
        (libc::O_RDWR, fopen::KEEP_CACHE),
        (libc::O_WRONLY | libc::O_APPEND, fopen::KEEP_CACHE),
        (libc::O_RDWR | libc::O_DIRECT, fopen::KEEP_CACHE | direct),
        (libc::O_RDWR | libc::O_DSYNC, fopen::KEEP_CACHE | direct),
        (libc::O_WRONLY | libc::O_SYNC, fopen::KEEP_CACHE | direct),
    ];
    for (flags, expected) in cases {
        let flags = flags as u32;
        let head = Head::open(42, alone(flags), (17, 3));
        let mut fields = opened(&head, 0, 0);
        assert_eq!((fields.u64(), fields.u32(), fields.u32()), (Ok(3 << 32 | 17), Ok(expected), Ok(0)), "{flags:#o}");
        let head = Head::create(42, &attr(), ORIGIN, alone(flags), (17, 3));
        let mut fields = opened(&head, 0, 0);
        fields.bytes(abi::ENTRY_OUT_BYTES).expect("the entry");
        assert_eq!((fields.u64(), fields.u32(), fields.u32()), (Ok(3 << 32 | 17), Ok(expected), Ok(0)));
    }
}

#[test]
fn attributes_of_what_runs_as_its_owner_are_asked_for_each_time() {
    let valid = |kind, mode| {
        let attr = Attr { inode: Inode { mode, ..inode(kind) }, ..attr() };
        let (entry, alone) = (Head::entry(42, &attr, ORIGIN), Head::attr(42, &attr, VALID));
        let mut fields = opened(&entry, 0, 0);
        fields.bytes(16).expect("ids");
        assert_eq!(fields.u64(), Ok(VALID), "the name stays");
        let of_entry = fields.u64();
        assert_eq!(of_entry, opened(&alone, 0, 0).u64());
        of_entry.expect("attributes")
    };
    assert_eq!([0o755, 0o1777].map(|mode| valid(FileKind::File, mode)), [VALID; 2]);
    assert_eq!([0o4755, 0o2755, 0o6777].map(|mode| valid(FileKind::File, mode)), [0; 3]);
    assert_eq!(valid(FileKind::Directory, 0o2755), VALID);
}

#[cfg(feature = "seeded-bugs")]
#[test]
fn attributes_that_the_kernel_keeps_are_noticed() {
    let bug = runtime::seeded::Bug::PrivilegesKeptInMind;
    let test = attributes_of_what_runs_as_its_owner_are_asked_for_each_time;
    assert!(runtime::seeded::fails(test, bug), "{bug:?} went unnoticed");
}

#[cfg(feature = "seeded-bugs")]
#[test]
fn opens_through_the_cache_are_noticed() {
    let bug = runtime::seeded::Bug::DirectIoForgotten;
    assert!(runtime::seeded::fails(opens_bypass_the_cache_where_the_flags_say_so, bug), "{bug:?} went unnoticed");
}

#[test]
fn space() {
    let head = Head::statfs(42, &StatFs { size_bytes: 40_960, free_bytes: 8191, inodes: 7 });
    let mut fields = opened(&head, 0, 0);
    assert_eq!((fields.u64(), fields.u64(), fields.u64()), (Ok(10), Ok(1), Ok(1)));
    assert_eq!((fields.u64(), fields.u64()), (Ok(7 + 31), Ok(31)));
    assert_eq!((fields.u32(), fields.u32(), fields.u32()), (Ok(4096), Ok(255), Ok(4096)));
    assert_eq!(fields.0, [0; 28]);
}

fn entry(name: &str, attr: Option<Inode>) -> DirEntry {
    let name = Name::new(name.as_bytes()).expect("a valid name");
    DirEntry { cookie: 17, ino: Ino::new(9, GroupId(1)), kind: FileKind::Link, name, attr: attr.map(attr_of) }
}

#[test]
fn a_page_of_entries() {
    let mut bytes = [0xff; 100];
    let mut page = Entries::new(&mut bytes, false, ORIGIN);
    assert!(page.dot(b".", ROOT, 1));
    assert!(page.push(&entry("twelve bytes", None)));
    assert_eq!((page.used(), page.room()), (72, 28));
    assert!(!page.push(&entry("12345", None)), "five bytes do not fit in 28");
    assert!(page.used() == 72, "nothing is left of what did not fit");
    let mut fields = Fields(&bytes);
    assert_eq!((fields.u64(), fields.u64(), fields.u32(), fields.u32()), (Ok(ROOT.0), Ok(1), Ok(1), Ok(4)));
    assert_eq!(fields.bytes(8), Ok(&b".\0\0\0\0\0\0\0"[..]));
    assert_eq!((fields.u64(), fields.u64(), fields.u32(), fields.u32()), (Ok(9 << 20 | 1), Ok(17), Ok(12), Ok(10)));
    assert_eq!(fields.bytes(16), Ok(&b"twelve bytes\0\0\0\0"[..]));
}

#[test]
fn entries_with_attributes_count_as_looked_up_and_others_do_not() {
    let mut bytes = [0xff; 1024];
    let mut page = Entries::new(&mut bytes, true, ORIGIN);
    assert!(page.push(&entry("a", Some(inode(FileKind::File)))));
    assert!(page.push(&entry("b", None)));
    let size = abi::ENTRY_OUT_BYTES + 32;
    assert_eq!(page.used(), 2 * size);
    assert_eq!(Fields(&bytes).u64(), Ok(9 << 20 | 1));
    assert_eq!(bytes[size..size + abi::ENTRY_OUT_BYTES], [0; abi::ENTRY_OUT_BYTES]);
}

#[test]
fn no_error_of_the_stack_makes_the_kernel_stop_asking() {
    for kind in Kind::ALL {
        let errno = errno(&Error::new(kind, ""));
        assert!((1..512).contains(&errno) && errno != libc::ENOSYS, "{kind:?}");
    }
}

#[test]
fn guards_are_told_as_flags() {
    let guards =
        [(false, false, [0, 0]), (true, false, [0x10, 0x8]), (false, true, [0x20, 0x10]), (true, true, [0x30, 0x18])];
    for (immutable, append_only, flags) in guards {
        for (bytes, flags) in [4, 28].into_iter().zip(flags) {
            let told = guard_flags(Guard { immutable, append_only, ..Guard::default() }, bytes);
            let head = Head::control(42, told, 7, bytes);
            let mut fields = opened(&head, 0, 0);
            assert_eq!((fields.u64(), fields.u64(), fields.u32()), (Ok(0), Ok(0), Ok(flags)));
            assert_eq!(fields.0.len() as u32, bytes - 4);
            let words: Vec<u32> = std::iter::from_fn(|| fields.u32().ok()).collect();
            let expected: &[u32] = if bytes == 28 { &[0, 0, 7, 0, 0, 0] } else { &[] };
            assert_eq!(words, expected, "the project, where there is room for it");
        }
    }
    let immutable = Guard { immutable: true, ..Guard::default() };
    let append_only = Guard { append_only: true, ..Guard::default() };
    for (flags, expected) in [
        (libc::O_RDONLY, [false, false]),
        (libc::O_WRONLY, [true, true]),
        (libc::O_RDWR, [true, true]),
        (libc::O_WRONLY | libc::O_APPEND, [true, false]),
    ] {
        assert_eq!([immutable, append_only].map(|guard| is_guarded(guard, flags as u32)), expected);
        assert!(!is_guarded(Guard::default(), flags as u32));
    }
}
