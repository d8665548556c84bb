//! Older designs in the place of ours, compiled in only for the workshop (feature `ablations`): each undoes one decision,
//! so that `cargo xtask ablate` can tell what the decision is worth. All of them serve requests correctly.
//!
//! Promise: without the feature nothing of this is left, neither code nor memory.

/// The designs, each described by what it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ablation {
    /// The last operations are kept in one ring for all threads, under one mutex (mission G3).
    History,
    /// One core fetches the requests of all clients (mission G4).
    Queue,
    /// Requests are read from /dev/fuse, one system call each, and answered by another (mission G4).
    DevFuse,
    /// Buffers of clients' requests come from one pool, under one mutex (mission G5).
    Buffers,
    /// The thread that fetches a request hands it to one of a pool of worker threads, which handles it (mission G8). Over
    /// io_uring the answer goes back to the ring's thread, which alone can give it to the kernel.
    HandDown,
    /// The thread that has handled a request hands the answer to another thread, which gives it to the kernel (mission G8).
    /// Over io_uring this changes nothing.
    HandBack,
    /// Device I/O is done by system calls that block a thread each, from a pool of threads (mission G8).
    BlockingIo,
    /// Nobody keeps CPUs awake between requests that follow each other closely.
    SleepyCpus,
    /// All cores of a client share one connection to its server (mission G6).
    OneConnection,
    /// Each message of a connection is sent by a system call of its own (decision 0077).
    WritePerMessage,
}

impl Ablation {
    /// Every one of them.
    pub const ALL: [Ablation; 10] = [
        Ablation::History,
        Ablation::Queue,
        Ablation::DevFuse,
        Ablation::Buffers,
        Ablation::HandDown,
        Ablation::HandBack,
        Ablation::BlockingIo,
        Ablation::SleepyCpus,
        Ablation::OneConnection,
        Ablation::WritePerMessage,
    ];
    /// The name under which it is switched on and told.
    pub fn name(self) -> &'static str {
        match self {
            Ablation::History => "history",
            Ablation::Queue => "queue",
            Ablation::DevFuse => "dev-fuse",
            Ablation::Buffers => "buffers",
            Ablation::HandDown => "hand-down",
            Ablation::HandBack => "hand-back",
            Ablation::BlockingIo => "blocking-io",
            Ablation::SleepyCpus => "sleepy-cpus",
            Ablation::OneConnection => "one-connection",
            Ablation::WritePerMessage => "write-per-message",
        }
    }
}

/// Number of threads in a pool of workers: what the storage systems that have such pools use unless told otherwise.
pub const WORKERS: usize = 16;

/// Number of worker threads beside the cores.
#[inline(always)]
pub fn workers() -> usize {
    if is_on(Ablation::HandDown) || is_on(Ablation::HandBack) { WORKERS } else { 0 }
}

#[cfg(feature = "ablations")]
mod switch {
    use super::Ablation;
    use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
    use std::sync::{Mutex, MutexGuard};

    // Set once for the process, before any thread starts.
    static ON: AtomicU32 = AtomicU32::new(0);

    /// True if the design is switched on.
    pub fn is_on(ablation: Ablation) -> bool {
        ON.load(Ordering::Relaxed) & bit(ablation) != 0
    }
    /// Switches designs on for the whole process.
    pub fn switch_on(ablations: &[Ablation]) {
        ON.store(ablations.iter().fold(0, |on, &ablation| on | bit(ablation)), Ordering::Relaxed);
    }
    fn bit(ablation: Ablation) -> u32 {
        1 << ablation as u32
    }

    /// The one mutex of an older design, around what has several or none in ours.
    #[derive(Default)]
    pub struct OneMutex(Mutex<()>);

    impl OneMutex {
        /// Holds it, if the design is switched on.
        pub fn hold(&self, ablation: Ablation) -> Option<MutexGuard<'_, ()>> {
            is_on(ablation).then(|| self.0.lock().expect("no panic while held"))
        }
    }

    /// The turns of workers.
    #[derive(Default)]
    pub struct Turns(AtomicUsize);

    impl Turns {
        /// The next one's number.
        pub fn next(&self) -> usize {
            self.0.fetch_add(1, Ordering::Relaxed)
        }
    }
}

#[cfg(feature = "ablations")]
pub use switch::{OneMutex, Turns, is_on, switch_on};

/// True if the design is switched on: never, in this build.
#[cfg(not(feature = "ablations"))]
#[inline(always)]
pub const fn is_on(_: Ablation) -> bool {
    false
}

/// The one mutex of an older design: not there, in this build.
#[cfg(not(feature = "ablations"))]
#[derive(Default)]
pub struct OneMutex(());

#[cfg(not(feature = "ablations"))]
impl OneMutex {
    /// Holds nothing.
    #[inline(always)]
    pub const fn hold(&self, _: Ablation) -> Option<std::convert::Infallible> {
        None
    }
}

/// The turns of workers: there are none, in this build.
#[cfg(not(feature = "ablations"))]
#[derive(Default)]
pub struct Turns(());

#[cfg(not(feature = "ablations"))]
impl Turns {
    /// No number counts.
    #[inline(always)]
    pub const fn next(&self) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_product_has_nothing_of_it() {
        if !cfg!(feature = "ablations") {
            assert!(Ablation::ALL.iter().all(|&ablation| !is_on(ablation)));
            assert_eq!((workers(), size_of::<OneMutex>(), size_of::<Turns>()), (0, 0, 0));
        }
    }

    #[cfg(feature = "ablations")]
    #[test]
    fn each_has_a_switch_of_its_own() {
        let on = || Ablation::ALL.into_iter().filter(|&ablation| is_on(ablation)).collect::<Vec<_>>();
        for ablation in Ablation::ALL {
            switch_on(&[ablation]);
            assert_eq!(on(), [ablation]);
        }
        switch_on(&[Ablation::Queue, Ablation::HandBack]);
        assert_eq!((on(), workers()), (vec![Ablation::Queue, Ablation::HandBack], WORKERS));
        let mutex = OneMutex::default();
        assert!(mutex.hold(Ablation::Queue).is_some() && mutex.hold(Ablation::History).is_none());
        switch_on(&[]);
        assert_eq!((on(), workers()), (vec![], 0));
    }
}
