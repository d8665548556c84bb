//! A warm read or write allocates nothing between the kernel's request and its answer (mission S2). Needs root and
//! /dev/fuse; says so and passes otherwise.

use base::{Attr, Error, FileKind, GroupId, Ino, Inode, Kind, Op, Reply, Result, SessionId, Time, VolumeId};
use front::fuse::{self, Entries, Identity, MountOptions, OP_NAMES, Rings, Target};
use layer::{Answer, Call, Context};
use runtime::{Runtime, Shared};
use std::alloc::{GlobalAlloc, Layout, System};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: passes every call on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// One file of 1 MiB of zeros that keeps nothing.
struct OneFile {
    zeros: Shared,
}

fn root() -> Ino {
    Ino::new(1, GroupId(0))
}

fn attr(ino: Ino) -> Attr {
    let kind = if ino == root() { FileKind::Directory } else { FileKind::File };
    let (zero, size) = (Time(0), 1 << 20);
    let inode = Inode {
        kind,
        mode: 0o755,
        uid: 0,
        gid: 0,
        links: 1,
        rdev: 0,
        project: 0,
        generation: 0,
        size,
        trim: 0,
        entries: 0,
        parent: root(),
        atime: zero,
        mtime: zero,
        ctime: zero,
        btime: zero,
        dead: false,
        xattrs: base::Attributes::default(),
        guard: base::Guard::default(),
    };
    Attr::new(ino, inode)
}

impl Target for OneFile {
    async fn call(&self, _: &Context, call: Call) -> Result<Answer> {
        // Half of the requests have to wait, so that both ways through the front are taken.
        if matches!(call.op, Op::Read { offset, .. } if offset > 0) {
            runtime::tasks::yield_now().await;
        }
        let (mut data, length) = (None, call.data.as_ref().map_or(0, |data| data.len() as u32));
        let reply = match call.op {
            Op::Read { length, .. } => {
                data = Some(self.zeros.slice(0..length as usize));
                Reply::Data { length }
            }
            Op::Write { .. } => Reply::Wrote { offset: 0, length },
            Op::Lookup { .. } => Reply::Attr(attr(Ino::new(2, GroupId(0)))),
            Op::GetAttr { ino } | Op::Open { ino, .. } => Reply::Attr(attr(ino)),
            Op::Release { .. } => Reply::Done,
            _ => return Err(Error::new(Kind::Unsupported, "not part of this test")),
        };
        Ok(Answer { reply, data, position: None })
    }
}

/// Memory at a page boundary, as O_DIRECT needs it.
#[repr(align(4096))]
struct Pages([u8; 16384]);

fn traffic(file: &std::fs::File, pages: &mut Pages, rounds: u64) {
    for round in 0..rounds {
        file.read_exact_at(&mut pages.0[..4096], round % 2 * 4096).expect("read");
        file.write_all_at(&pages.0, 0).expect("write");
    }
}

fn measure(runtime: &Runtime, directory: &std::path::Path) {
    let path = directory.join("mount");
    let wanted = std::env::var_os("SINTER_TRANSPORT").is_some_and(|name| name == "uring");
    let rings = wanted.then(|| Rings::new(runtime, &Entries::of(runtime)).expect("there is memory for it"));
    let options = MountOptions { path: path.clone(), source: "test".into(), restrictions: Vec::new(), shares: false };
    let mount = fuse::mount(&options, rings);
    let mut zeros = runtime.buffer(1 << 20).expect("memory");
    zeros.fill(0);
    let identity = Identity { volume: VolumeId(1), root: root(), session: SessionId(1), brick: 7 };
    let target = Arc::new(OneFile { zeros: zeros.share() });
    let serving =
        fuse::serve_target(runtime, mount.expect("it can be mounted"), target, identity).expect("it can be served");
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(path.join("f")).expect("open");
    let mut pages = Box::new(Pages([0; 16384]));
    traffic(&file, &mut pages, 1000);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    traffic(&file, &mut pages, 1000);
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    drop(file);
    serving.stop(Duration::from_secs(30)).expect("it can be unmounted");
    // The process's other threads (a watchdog, a timer) may allocate now and then.
    assert!(allocations < 20, "{allocations} allocations in 2000 warm requests");
}

#[test]
fn warm_requests_allocate_nothing() {
    // SAFETY: takes nothing, can't fail.
    if unsafe { libc::geteuid() } != 0 || !std::path::Path::new("/dev/fuse").exists() {
        eprintln!("skipped: needs root and /dev/fuse");
        return;
    }
    let directory = std::env::temp_dir().join(format!("sinter-front-allocations-{}", std::process::id()));
    for name in ["mount", "brick"] {
        std::fs::create_dir_all(directory.join(name)).expect("a temporary directory");
    }
    let options = runtime::real::Options::new(
        runtime::real::Directory::open(&directory.join("brick")).expect("ours"),
        256 << 20,
        OP_NAMES,
    );
    let (runtime, reactors) = runtime::real::start(options).expect("the cores start");
    measure(&runtime, &directory);
    drop(reactors);
    std::fs::remove_dir_all(directory).expect("nothing is mounted");
}
