//! The gate decides which requests are admitted while a mount is being ended. It also counts what the mount still
//! serves: open handles, and requests under way.
//!
//! Promises: an admitted request is carried out completely and its answer counts; a request that comes after
//! `refuse_all` is answered with an error and has changed nothing; once `is_quiet` says so for a core, no admitted
//! request is under way there. Requests are counted by generation, so that the end of earlier ones can be waited for while
//! later ones come.

use super::parse::Ask;
use layer::number_of;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// The errno of a request that comes too late. It differs from the errno of a mount whose daemon is gone, because such
/// a mount may be taken over, and this one may not yet.
pub const REFUSED: i32 = libc::ESHUTDOWN;

/// Phase: every request is admitted.
const OPEN: u8 = 0;
/// Phase: requests that open something are refused.
const NO_OPENS: u8 = 1;
/// Phase: every request is refused.
const SHUT: u8 = 2;

/// A mount's gate.
pub struct Gate {
    phase: AtomicU8,
    under_way: Box<[Core]>,
    handles: Mutex<Handles>,
    /// Number of files' handles so far.
    numbers: AtomicU32,
    closed: Condvar,
}

/// Requests under way on one core, which alone changes the numbers. On a cache line of its own.
#[repr(align(64))]
#[derive(Default)]
struct Core {
    /// Number of the present generation.
    generation: AtomicUsize,
    /// Requests of even and of odd generations: the present one and the one before.
    under_way: [AtomicUsize; 2],
}

impl Core {
    fn before(&self) -> &AtomicUsize {
        &self.under_way[(self.generation.load(Ordering::Relaxed) + 1) % 2]
    }
}

/// Open handles, by the process that opened them.
#[derive(Default)]
struct Handles {
    by_process: HashMap<u32, usize>,
    count: usize,
}

/// A process and its open handles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opener {
    /// The process's number as seen by this one; 0 if it is not visible here.
    pub pid: u32,
    /// Number of its open handles.
    pub handles: usize,
}

/// A guard that counts a request as under way until it is dropped.
pub struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.store(self.0.load(Ordering::Relaxed) - 1, Ordering::Release);
    }
}

impl Gate {
    /// An open gate for this many cores.
    pub fn new(cores: usize) -> Gate {
        Gate {
            phase: AtomicU8::new(OPEN),
            under_way: (0..cores).map(|_| Core::default()).collect(),
            handles: Mutex::default(),
            numbers: AtomicU32::new(0),
            closed: Condvar::new(),
        }
    }
    /// Counts a request as under way on a core; called on that core. The request counts first and then checks the
    /// phase, while the closing side sets the phase and then checks the counts, so that one of them sees the other.
    pub fn enter(&self, core: usize) -> UnderWay<'_> {
        let core = &self.under_way[core];
        let count = &core.under_way[core.generation.load(Ordering::Relaxed) % 2];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        UnderWay(count)
    }
    /// Number of requests under way on all cores; they come and go meanwhile.
    pub fn under_way(&self) -> usize {
        self.under_way.iter().flat_map(|core| &core.under_way).map(|count| count.load(Ordering::Relaxed)).sum()
    }
    /// True if the request that has entered must be refused. Requests that the stack never sees, and those that give a
    /// directory's handle back, are always admitted: they change nothing that is kept.
    pub fn refuses(&self, ask: &Ask) -> bool {
        match self.phase.load(Ordering::Relaxed) {
            OPEN => false,
            NO_OPENS => matches!(ask, Ask::Open { .. } | Ask::OpenDir { .. } | Ask::Create { .. }),
            _ => !matches!(ask, Ask::Silent | Ask::Answer(_) | Ask::CloseDir { .. }),
        }
    }
    /// True if every request that enters now is refused.
    pub fn is_shut(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == SHUT
    }
    /// Refuses everything that opens something, from now on.
    pub fn refuse_opens(&self) {
        self.phase.fetch_max(NO_OPENS, Ordering::SeqCst);
    }
    /// Refuses every request from now on. A core notices this once it has done something else.
    pub fn refuse_all(&self) {
        self.phase.fetch_max(SHUT, Ordering::SeqCst);
    }
    /// True if no admitted request is under way on this core. Called on the core, after `refuse_all`.
    pub fn is_quiet(&self, core: usize) -> bool {
        self.under_way[core].under_way.iter().all(|count| count.load(Ordering::Acquire) == 0)
    }
    /// True if no request of an earlier generation is under way on this core. Called on the core.
    pub fn is_through(&self, core: usize) -> bool {
        self.under_way[core].before().load(Ordering::Acquire) == 0
    }
    /// Begins another generation of requests on this core: `is_through` waits for those under way now. Called on the core,
    /// when it is through with the generation before.
    pub fn next_generation(&self, core: usize) {
        assert!(self.is_through(core), "two generations are told apart, not three");
        let generation = &self.under_way[core].generation;
        generation.store(generation.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
    /// The number of a file's handle that is opened now; it comes again after 16 million others.
    pub fn number(&self) -> u32 {
        number_of(self.numbers.fetch_add(1, Ordering::Relaxed))
    }
    /// Counts a handle of a process.
    pub fn opened(&self, pid: u32) {
        let mut handles = self.handles();
        handles.count += 1;
        *handles.by_process.entry(pid).or_default() += 1;
    }
    /// Counts a handle of a process as closed.
    pub fn closed(&self, pid: u32) {
        let mut handles = self.handles();
        // A handle that nobody counted would be a mistake of the kernel's, which must not end the daemon.
        let Some(left) = handles.by_process.get_mut(&pid) else { return };
        *left -= 1;
        if *left == 0 {
            handles.by_process.remove(&pid);
        }
        handles.count -= 1;
        if handles.count == 0 {
            self.closed.notify_all();
        }
    }
    /// Processes with open handles, those with the most first.
    pub fn openers(&self) -> Vec<Opener> {
        let handles = self.handles();
        let mut openers: Vec<Opener> =
            handles.by_process.iter().map(|(&pid, &handles)| Opener { pid, handles }).collect();
        openers.sort_by_key(|opener| (std::cmp::Reverse(opener.handles), opener.pid));
        openers
    }
    /// Number of open handles.
    pub fn open_handles(&self) -> usize {
        self.handles().count
    }
    /// Waits until no handle is open, at most for `patience`. True if none is.
    pub fn wait_closed(&self, patience: Duration) -> bool {
        let waited = self.closed.wait_timeout_while(self.handles(), patience, |handles| handles.count > 0);
        waited.expect("no panic while held").0.count == 0
    }
    fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().expect("no panic while held")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Ino;

    #[test]
    fn the_gate_shuts_in_two_steps() {
        let gate = Gate::new(1);
        let open = Ask::Open { ino: Ino(5), flags: 0, kill_privileges: false };
        let asks = [
            open,
            Ask::OpenDir { ino: Ino(5) },
            Ask::StatFs,
            Ask::Release { ino: Ino(5), handle: 3 },
            Ask::Answer(0),
            Ask::Silent,
        ];
        let refused = || asks.iter().map(|ask| u8::from(gate.refuses(ask))).collect::<Vec<_>>();
        assert_eq!(refused(), [0, 0, 0, 0, 0, 0]);
        gate.refuse_opens();
        assert_eq!(refused(), [1, 1, 0, 0, 0, 0]);
        gate.refuse_all();
        assert_eq!(refused(), [1, 1, 1, 1, 0, 0]);
        gate.refuse_opens();
        assert_eq!(refused(), [1, 1, 1, 1, 0, 0], "it does not open again");
    }

    #[test]
    fn it_is_quiet_once_what_was_let_in_has_ended() {
        let gate = Gate::new(2);
        let (one, other) = (gate.enter(1), gate.enter(1));
        assert!(gate.is_quiet(0) && !gate.is_quiet(1));
        drop(one);
        assert!(!gate.is_quiet(1));
        drop(other);
        assert!(gate.is_quiet(1));
    }

    #[test]
    fn a_generation_ends_with_its_last_request_whoever_comes_meanwhile() {
        let gate = Gate::new(1);
        let first = gate.enter(0);
        gate.next_generation(0);
        let second = gate.enter(0);
        assert!(!gate.is_through(0) && !gate.is_quiet(0));
        drop(first);
        assert!(gate.is_through(0) && !gate.is_quiet(0));
        gate.next_generation(0);
        let third = gate.enter(0);
        assert!(!gate.is_through(0));
        drop((second, third));
        assert!(gate.is_through(0) && gate.is_quiet(0));
    }

    #[test]
    fn handles_are_counted_by_who_opened_them() {
        let gate = Gate::new(1);
        [7, 9, 7].into_iter().for_each(|pid| gate.opened(pid));
        let openers = |pairs: &[(u32, usize)]| -> Vec<Opener> {
            pairs.iter().map(|&(pid, handles)| Opener { pid, handles }).collect()
        };
        assert_eq!(gate.openers(), openers(&[(7, 2), (9, 1)]));
        assert!(!gate.wait_closed(Duration::ZERO));
        [7, 7, 8].into_iter().for_each(|pid| gate.closed(pid));
        assert_eq!((gate.openers(), gate.open_handles()), (openers(&[(9, 1)]), 1));
        gate.closed(9);
        assert!(gate.openers().is_empty() && gate.wait_closed(Duration::ZERO));
    }
}
