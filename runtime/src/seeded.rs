//! Bugs that the suite must catch, compiled in only for tests (feature `seeded-bugs`): each is one wrong decision
//! in the product's own code, switched on by a test that then must fail.

/// The bugs, by what they do wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// FUA write counted as durable although plain writes before it were never flushed (rule U1).
    FuaAfterPlain,
    /// Batch N + 1 is acknowledged when it is on the device, though N is not (rule U1).
    AckOutOfOrder,
    /// Recovery appends to the old segment's tail (rule L4).
    TailReused,
    /// Records above the durable position reach the index (rule U5).
    AppliedBeforeDurable,
    /// A checkpoint is counted as durable without being persisted (rule X1).
    CheckpointDropped,
    /// Start-up does not redo intents (rule M3).
    IntentNotRedone,
    /// The front ignores O_DSYNC in a write's flags (rule F1).
    WriteFlagsIgnored,
    /// Waiters for durability are woken when the write completes, before the flush (rule U1).
    AckBeforeFlush,
    /// The cleaner's move overwrites whatever the block's owner says now (rule K2).
    MoveUnconditional,
    /// Segments are freed before the checkpoint that empties them is durable (rule K3).
    FreedBeforeCheckpoint,
    /// A segment that was freed is freed again by the next checkpoint, though it is in use (rule K3).
    FreedTwice,
    /// Segments are discarded before the checkpoint that empties them is durable (rule K3).
    DiscardedBeforeCheckpoint,
    /// The live bitmaps are not part of the checkpoint (rule K1).
    BitmapDropped,
    /// Leaves that a truncation left behind are read as if they counted (rule K6).
    StaleLeafRead,
    /// A checkpoint does not note what it leaves to free (rule K6).
    PurgeForgotten,
}

impl Bug {
    /// Every bug, for tests and for naming one on a command line.
    pub const ALL: [Bug; 15] = [
        Bug::FuaAfterPlain,
        Bug::AckOutOfOrder,
        Bug::TailReused,
        Bug::AppliedBeforeDurable,
        Bug::CheckpointDropped,
        Bug::IntentNotRedone,
        Bug::WriteFlagsIgnored,
        Bug::AckBeforeFlush,
        Bug::MoveUnconditional,
        Bug::FreedBeforeCheckpoint,
        Bug::FreedTwice,
        Bug::DiscardedBeforeCheckpoint,
        Bug::BitmapDropped,
        Bug::StaleLeafRead,
        Bug::PurgeForgotten,
    ];
}

#[cfg(feature = "seeded-bugs")]
mod switch {
    use super::Bug;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU32, Ordering};

    // Simulations run one per thread, side by side in a test process: their switch is per thread. A real daemon
    // has many threads: its switch is for the process and set once, before any starts.
    thread_local!(static HERE: Cell<Option<Bug>> = const { Cell::new(None) });
    static PROCESS: AtomicU32 = AtomicU32::new(u32::MAX);

    /// True if the bug is switched on.
    pub fn active(bug: Bug) -> bool {
        HERE.get() == Some(bug) || PROCESS.load(Ordering::Relaxed) == bug as u32
    }
    /// Switches one bug on, or all off, for this thread.
    pub fn set(bug: Option<Bug>) {
        HERE.set(bug);
    }
    /// Switches one bug on for the whole process.
    pub fn set_for_process(bug: Bug) {
        PROCESS.store(bug as u32, Ordering::Relaxed);
    }
}

#[cfg(feature = "seeded-bugs")]
pub use switch::{active, set, set_for_process};

/// True if the bug is switched on: never, in this build.
#[cfg(not(feature = "seeded-bugs"))]
#[inline(always)]
pub const fn active(_: Bug) -> bool {
    false
}
