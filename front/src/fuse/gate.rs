//! Who is let in while a mount is being ended, and what a mount still serves: handles that are open, requests under way.
//!
//! Promises: a request that was let in is carried out as a whole and its answer counts; one that comes after `refuse_all`
//! is answered with an error and has changed nothing; when `quiet` says so, none that was let in is under way any more.

use super::parse::Ask;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// What a request is told that comes too late. Not what a mount answers whose daemon is gone: nobody may take this one over yet.
pub const REFUSED: i32 = libc::ESHUTDOWN;

/// All are let in.
const OPEN: u8 = 0;
/// All but those that open something.
const NO_OPENS: u8 = 1;
/// None.
const SHUT: u8 = 2;

/// A mount's gate.
pub struct Gate {
    phase: AtomicU8,
    under_way: Box<[Core]>,
    handles: Mutex<Handles>,
    closed: Condvar,
}

/// Requests under way on one core, which alone changes the number; on a cache line of its own.
#[repr(align(64))]
#[derive(Default)]
struct Core(AtomicUsize);

/// Handles by the process that opened them.
#[derive(Default)]
struct Handles {
    by_process: HashMap<u32, usize>,
    count: usize,
}

/// Handles that one process opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opener {
    /// As this process sees its number; 0 if it does not.
    pub pid: u32,
    /// How many are open.
    pub handles: usize,
}

/// A request under way, until this is dropped.
pub struct UnderWay<'a>(&'a Core);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.0.store(self.0.0.load(Ordering::Relaxed) - 1, Ordering::Release);
    }
}

impl Gate {
    /// An open gate of so many cores.
    pub fn new(cores: usize) -> Gate {
        Gate {
            phase: AtomicU8::new(OPEN),
            under_way: (0..cores).map(|_| Core::default()).collect(),
            handles: Mutex::default(),
            closed: Condvar::new(),
        }
    }
    /// A request has come to a core, which calls this. First it counts and then it looks, while whoever shuts the gate does
    /// both the other way round.
    pub fn enter(&self, core: usize) -> UnderWay<'_> {
        let core = &self.under_way[core];
        core.0.store(core.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        UnderWay(core)
    }
    /// True if the request that has entered must be refused. What has no answer, and what gives a handle back, is always let in
    /// as far as that changes nothing that is kept.
    pub fn refuses(&self, ask: &Ask) -> bool {
        match self.phase.load(Ordering::Relaxed) {
            OPEN => false,
            NO_OPENS => matches!(ask, Ask::Open { .. } | Ask::OpenDir | Ask::Create { .. }),
            _ => !matches!(ask, Ask::Silent | Ask::Answer(_) | Ask::CloseDir { .. }),
        }
    }
    /// True if each request that enters now is refused.
    pub fn is_shut(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == SHUT
    }
    /// From now on nothing is opened.
    pub fn refuse_opens(&self) {
        self.phase.fetch_max(NO_OPENS, Ordering::SeqCst);
    }
    /// From now on each request is refused, on a core as soon as it has done something else.
    pub fn refuse_all(&self) {
        self.phase.fetch_max(SHUT, Ordering::SeqCst);
    }
    /// True if a core, which calls this after `refuse_all`, has nothing under way that was let in.
    pub fn is_quiet(&self, core: usize) -> bool {
        self.under_way[core].0.load(Ordering::Acquire) == 0
    }
    /// A process has a handle from now on.
    pub fn opened(&self, pid: u32) {
        let mut handles = self.handles();
        handles.count += 1;
        *handles.by_process.entry(pid).or_default() += 1;
    }
    /// A handle that this process opened is closed.
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
    /// Handles that are open, by who opened them; who has most comes first.
    pub fn openers(&self) -> Vec<Opener> {
        let handles = self.handles();
        let mut openers: Vec<Opener> =
            handles.by_process.iter().map(|(&pid, &handles)| Opener { pid, handles }).collect();
        openers.sort_by_key(|opener| (std::cmp::Reverse(opener.handles), opener.pid));
        openers
    }
    /// How many handles are open.
    pub fn open_handles(&self) -> usize {
        self.handles().count
    }
    /// Waits until no handle is open, not longer than this; whether it is so.
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
    use base::{Ino, Op};

    #[test]
    fn the_gate_shuts_in_two_steps() {
        let gate = Gate::new(1);
        let open = Ask::Open { ino: Ino(5), flags: 0, kill_privileges: false };
        let asks =
            [open, Ask::OpenDir, Ask::StatFs, Ask::Done(Op::Release { ino: Ino(5) }), Ask::Answer(0), Ask::Silent];
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
