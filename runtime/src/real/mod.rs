//! The real world: one thread per core on io_uring, files of a directory that bypass the page cache, sockets, the
//! machine's clocks, and an adaptive pool for blocking jobs.
//!
//! Promises: a transfer's buffers live until the kernel is done with them, whatever happens to its future; a warm I/O
//! or wake-up allocates nothing; an idle daemon uses no CPU; several worlds fit in one process (tests). Absent by
//! design: no options beyond `Options` (decision D7), no retry of a failed flush (rule U4).

mod abort;
mod block_device;
mod block_on;
#[cfg(feature = "ablations")]
mod blocking;
mod clock;
mod concurrency_limit;
mod cores;
mod device;
mod directory;
mod disk;
mod eventfd;
mod executor;
mod figures;
mod files;
mod held;
mod inbox;
mod listener;
mod net;
mod pm_qos;
mod poller;
mod pool;
mod reactor;
mod ring;
mod ring_entry;
mod scheduling;
mod shares;
mod socket;
mod stamps;
#[cfg(test)]
mod tests;
#[cfg(feature = "seeded-bugs")]
mod volatile;
mod ways;

pub use block_on::block_on;
pub use cores::core_of_cpu;
pub use directory::{Access, Directory};
pub use figures::{CoreSummary, IoSummary, Probe, Verb};
pub use files::raise_open_files;
pub use poller::{Readable, readable};
pub use pool::PoolSummary;
pub use ring_entry::{Fetch, HEAD_BYTES, RingEntry};
pub use scheduling::{set_batch_policy, set_core_priority, set_least_priority};
pub use stamps::Stamps;
pub(crate) use stamps::ticks;
pub use ways::{Way, Ways};

use crate::disk::device_name;
use crate::random::{Random, SplitMix};
use crate::{Budget, Disk, Ledger, Runtime, Slabs};
use base::ablated::{Ablation, is_on, workers};
use base::{Error, Kind, Result};
use rustix::rand::{GetRandomFlags, getrandom};
use std::future::Future;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// Largest number of cores: as many as an affinity mask holds.
const CORES_MAX: usize = 1024;

/// The options of a world.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of cores; None: as many as the process may use (tests give it).
    pub cores: Option<usize>,
    /// The brick's directory.
    pub directory: Directory,
    /// Largest number of bytes that all buffers together may take.
    pub memory_max_bytes: u64,
    /// Names of the operations that the ledger distinguishes.
    pub op_names: &'static [&'static str],
    /// The block device of the brick; None: the link `device` in its directory leads to it, if there is one.
    pub device: Option<PathBuf>,
    /// Further block devices, `device-2` and so on, of a brick that is being formatted; links lead to those of others.
    pub further: Vec<PathBuf>,
    /// True if no file may be changed, and the lock is only shared (for checks).
    pub read_only: bool,
    /// True if unflushed writes stay in memory, as in a drive with a volatile cache, and die with the process.
    #[cfg(feature = "seeded-bugs")]
    pub volatile_cache: bool,
    /// The number of threads for jobs that clients wait for, if a measurement says it.
    #[cfg(feature = "seeded-bugs")]
    pub pool_threads: Option<usize>,
}

impl Options {
    /// Options for a directory; the other fields can be changed afterwards.
    pub fn new(directory: Directory, memory_max_bytes: u64, op_names: &'static [&'static str]) -> Options {
        Options {
            cores: None,
            directory,
            memory_max_bytes,
            op_names,
            device: None,
            further: Vec::new(),
            read_only: false,
            #[cfg(feature = "seeded-bugs")]
            volatile_cache: false,
            #[cfg(feature = "seeded-bugs")]
            pool_threads: None,
        }
    }
}

/// The running cores and the pool. They end with `stop`, or when this is dropped.
pub struct Reactors {
    cores: Arc<cores::Cores>,
    threads: Vec<JoinHandle<()>>,
}

/// Starts the world. Errors: `Busy` when the brick is in use; `Host` when the machine lacks something, with the next
/// step; those of opening the directory.
pub fn start(options: Options) -> Result<(Runtime, Reactors)> {
    files::raise_open_files();
    let cpus = cores::cpus();
    let count = options.cores.unwrap_or(cpus.len()) + workers();
    assert!((1..=CORES_MAX).contains(&count), "between 1 and 1024 cores");
    let further = options.further.iter().cloned().zip(2..).map(|(path, number)| (device_name(number), path));
    let told = options.device.clone().map(|path| (device_name(1), path)).into_iter().chain(further).collect();
    let files = files::Files::of_directory(options.directory.clone(), told, options.read_only)?;
    let stamps = Arc::new(Stamps::start());
    let figures: Vec<Arc<figures::Figures>> =
        (0..count).map(|_| Arc::new(figures::Figures::new(stamps.clone()))).collect();
    let inboxes = cores::inboxes(count)?;
    let watched = (!is_on(Ablation::SleepyCpus)).then(|| pm_qos::PmQos::start(&figures)).flatten();
    let (pm_qos, watcher) = watched.unzip();
    let foreign_slots = crate::transfer::SlotPool::new();
    let active = inboxes.iter().map(|_| reactor::Active::default()).collect();
    let net = listener::Network::new(count);
    let world = Arc::new(reactor::World { inboxes, figures, files, net, foreign_slots, active, pm_qos });
    let mut threads = cores::start(&world, &cpus)?;
    threads.extend(watcher);
    let (pool, background) = match pools(&options, cpus.len(), &stamps) {
        Ok(pools) => pools,
        Err(error) => {
            cores::stop(&world, threads);
            return Err(error);
        }
    };
    let cores = Arc::new(cores::Cores { world, pool, background });
    let reactors = Reactors { cores: cores.clone(), threads };
    let runtime = Runtime {
        budget: Arc::new(Budget::new(clock::now_ns())),
        clock: Arc::new(clock::RealClock(stamps.clone())),
        disk: disk(&options, &cores)?,
        net: Arc::new(net::RealNet::new(cores.world.clone())),
        tasks: cores,
        random: Arc::new(Entropy::new()?),
        slabs: Arc::new(Slabs::prepared(count, options.memory_max_bytes, ask_huge)),
        ledger: Ledger::in_ticks(count, options.op_names, stamps),
    };
    Ok((runtime, reactors))
}

/// Asks the kernel for huge pages: it then hands a device one piece of memory per buffer instead of one per 4 KiB.
/// Without them everything works as well.
fn ask_huge(data: NonNull<u8>, bytes: usize) {
    // SAFETY: advice about memory that the caller has allocated does not change what it holds.
    unsafe { libc::madvise(data.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
}

/// The pool for jobs that clients wait for, and the pool for all others.
fn pools(options: &Options, cpus: usize, stamps: &Arc<Stamps>) -> Result<(Arc<pool::Pool>, Arc<pool::Pool>)> {
    #[cfg(feature = "seeded-bugs")]
    let pinned = options.pool_threads;
    #[cfg(not(feature = "seeded-bugs"))]
    let (pinned, _) = (None, options);
    let pool = pool::Pool::start(pool::Work::Client, cpus, pinned, stamps.clone())?;
    match pool::Pool::start(pool::Work::Background, cpus, None, stamps.clone()) {
        Ok(background) => Ok((pool, background)),
        Err(error) => {
            pool.stop();
            Err(error)
        }
    }
}

fn disk(options: &Options, cores: &Arc<cores::Cores>) -> Result<Arc<dyn Disk>> {
    let disk = disk::RealDisk::new(cores.world.clone());
    #[cfg(feature = "seeded-bugs")]
    if options.volatile_cache {
        let seed = Entropy::new()?.next_u64();
        return Ok(Arc::new(volatile::VolatileDisk::new(disk, cores.pool.clone(), seed)));
    }
    #[cfg(feature = "ablations")]
    if is_on(Ablation::BlockingIo) {
        return Ok(Arc::new(blocking::BlockingDisk::start(disk)?));
    }
    let _ = options;
    Ok(Arc::new(disk))
}

impl Reactors {
    /// Number of cores.
    pub fn cores(&self) -> usize {
        self.cores.world.inboxes.len()
    }
    /// Runs a future on a core and waits for its result: for start-up and tests, from threads that are not cores.
    /// Errors: `Interrupted` if the cores ended first.
    pub fn run<T, F>(&self, core: usize, make: impl FnOnce() -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        assert!(current_core().is_none(), "a core must not wait for a core");
        let (send, receive) = mpsc::sync_channel(1);
        let task = move || -> crate::tasks::Local {
            let future = make();
            Box::pin(async move {
                // If nobody waits any more, nobody needs the result.
                let _ = send.send(future.await);
            })
        };
        self.cores.world.inboxes[core].spawn(None, Box::new(task));
        receive.recv().map_err(|_| inbox::stopped())
    }
    /// A reader of the figures of cores and pool.
    pub fn probe(&self) -> Probe {
        Probe(self.cores.clone())
    }
    /// Ends everything: drops the tasks of every core, waits for I/O in flight and for the pool's jobs, joins the
    /// threads, closes connections, releases the brick's lock. Requests fail with `Interrupted` from then on. Not to be called on a core.
    pub fn stop(self) {}
}

impl Drop for Reactors {
    fn drop(&mut self) {
        assert!(self.cores.here().is_none(), "a core cannot wait for its own end");
        cores::stop(&self.cores.world, std::mem::take(&mut self.threads));
        self.cores.world.net.clear();
        self.cores.pool.stop();
        self.cores.background.stop();
        self.cores.world.files.unlock();
    }
}

/// The core of the calling thread, if it is one.
pub fn current_core() -> Option<usize> {
    reactor::with_current(|core| core.index)
}

/// A source of random numbers that differ from process to process.
struct Entropy {
    state: AtomicU64,
}

impl Entropy {
    fn new() -> Result<Entropy> {
        let mut seed = [0u8; 8];
        let got = getrandom(&mut seed, GetRandomFlags::empty())
            .map_err(|error| Error::new(Kind::Host, "no random numbers from the kernel").with(error))?;
        assert!(got == seed.len(), "the kernel gives so few at once");
        Ok(Entropy { state: AtomicU64::new(u64::from_ne_bytes(seed)) })
    }
}

impl Random for Entropy {
    fn next_u64(&self) -> u64 {
        // SplitMix's state only counts, so that threads can share it without a lock.
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        SplitMix(self.state.fetch_add(GOLDEN, Ordering::Relaxed)).next()
    }
}
