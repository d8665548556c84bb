//! The front on a real mount, over a file tree in memory. Needs root and /dev/fuse; says so and passes otherwise.
//!
//! Clients and daemon are one process here, so a run that is killed while a client waits leaves a process that can't
//! end: `umount -f` its mount. With `SINTER_TRANSPORT=uring` requests come over io_uring, which must be on then.

mod durable;
mod life;
mod memory;
mod names;
mod random;
mod traffic;

use base::{SessionId, VolumeId};
use front::fuse::{self, Entries, Identity, MountOptions, OP_NAMES, Restriction, Rings, Serving, Transport};
use memory::Memory;
use runtime::Runtime;
use runtime::real::{Directory, Options, Reactors};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longer than anything here takes, even on a loaded machine.
pub const LONG: Duration = Duration::from_secs(30);

/// A mounted file tree; unmounted and removed when dropped.
pub struct Fixture {
    pub serving: Option<Serving>,
    pub memory: Arc<Memory>,
    pub runtime: Runtime,
    pub directory: PathBuf,
    reactors: Option<Reactors>,
}

/// False, with a word about it, where this machine can't mount.
pub fn possible() -> bool {
    // SAFETY: takes nothing, can't fail.
    let root = unsafe { libc::geteuid() } == 0;
    let possible = root && Path::new("/dev/fuse").exists();
    if !possible {
        eprintln!("skipped: needs root and /dev/fuse");
    }
    possible
}

/// A directory of our own, with `mount` and `brick` in it.
pub fn directory() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("sinter-front-{}-{number}", std::process::id()));
    std::fs::create_dir_all(directory.join("mount")).expect("a temporary directory");
    std::fs::create_dir_all(directory.join("brick")).expect("a temporary directory");
    directory
}

pub fn options(path: &Path) -> MountOptions {
    MountOptions { path: path.to_path_buf(), source: "test".into(), restrictions: Vec::new(), shares: false }
}

/// The memory for a mount over io_uring, if the environment asks for one.
fn rings(runtime: &Runtime) -> Option<Rings> {
    let wanted = std::env::var_os("SINTER_TRANSPORT").is_some_and(|name| name == "uring");
    wanted.then(|| Rings::new(runtime, &Entries::of(runtime)).expect("there is memory for it"))
}

impl Fixture {
    pub fn new() -> Option<Fixture> {
        possible().then(|| Fixture::at(directory()))
    }
    pub fn at(directory: PathBuf) -> Fixture {
        Fixture::with_memory(directory, 512 << 20)
    }
    pub fn with_memory(directory: PathBuf, memory_max_bytes: u64) -> Fixture {
        Fixture::with(directory, memory_max_bytes, Vec::new())
    }
    pub fn with(directory: PathBuf, memory_max_bytes: u64, restrictions: Vec<Restriction>) -> Fixture {
        let world = Options {
            cores: Some(2),
            ..Options::new(Directory::open(&directory.join("brick")).expect("ours"), memory_max_bytes, OP_NAMES)
        };
        let (runtime, reactors) = runtime::real::start(world).expect("the cores start");
        let options = MountOptions { restrictions, ..options(&directory.join("mount")) };
        let rings = rings(&runtime);
        let transport = if rings.is_some() { Transport::Rings } else { Transport::Device };
        let mount = fuse::mount(&options, rings).expect("it can be mounted");
        let memory = Arc::new(Memory::new(&runtime));
        let identity = Identity { volume: VolumeId(1), root: memory::root(), session: SessionId(1), brick: 7 };
        let serving = fuse::serve_target(&runtime, mount, memory.clone(), identity).expect("it can be served");
        std::fs::metadata(&options.path).expect("it answers");
        assert_eq!(
            serving.transport(),
            transport,
            "/sys/module/fuse/parameters/enable_uring says if there is a choice"
        );
        Fixture { serving: Some(serving), memory, runtime, directory, reactors: Some(reactors) }
    }
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join("mount").join(name)
    }
    pub fn serving(&self) -> &Serving {
        self.serving.as_ref().expect("there until dropped")
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let serving = self.serving.take().expect("dropped once");
        let stopped = serving.stop(LONG);
        drop(serving);
        drop(self.reactors.take());
        let _ = std::fs::remove_dir_all(self.directory.join("brick"));
        let _ = std::fs::remove_dir(self.directory.join("mount"));
        let _ = std::fs::remove_dir(&self.directory);
        if !std::thread::panicking() {
            stopped.expect("it can be unmounted");
        }
    }
}

/// Waits until `condition` holds.
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LONG, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
