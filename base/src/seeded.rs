//! Bugs that the suite must catch, compiled in only for tests (feature `seeded-bugs`). Each is one wrong decision in
//! the product's own code. A test switches one on, and some test must then fail.

/// The bugs, each described by the wrong behaviour.
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
    /// The cleaner's move of a block overwrites a newer mapping of that block (rule K2).
    MoveUnconditional,
    /// Segments are freed before the checkpoint that empties them is durable (rule K3).
    FreedBeforeCheckpoint,
    /// A segment that was freed is freed again by the next checkpoint, though it is in use (rule K3).
    FreedTwice,
    /// Segments are discarded before the checkpoint that empties them is durable (rule K3).
    DiscardedBeforeCheckpoint,
    /// The live bitmaps are not part of the checkpoint (rule K1).
    BitmapDropped,
    /// The row of a disk's segment that changes is written without its live bitmap (rule K1).
    BitmapUnloaded,
    /// Leaves that a truncation has cut off are read as if they were still the file's (rule K6).
    StaleLeafRead,
    /// A checkpoint does not note what it leaves to free (rule K6).
    PurgeForgotten,
    /// A record's frame names a life that its segment is not in (rule L1).
    FrameOfAnotherLife,
    /// Replay forgets which inode numbers were given out (rules L2, M1).
    InoReused,
    /// An open does not raise the log's epoch (rule L3).
    EpochKept,
    /// A bad batch below the durable end is taken for the torn tail (rule L5).
    DamageTakenForTail,
    /// Replay does not verify payloads above the durable end (rule L5).
    TornTailBelieved,
    /// An idle log does not carry `durable_through` forward (rule L5).
    MarkNotCarried,
    /// Records fill a segment to its end, and an idle log does not write its mark if the segment has no space for it
    /// (rule L5).
    MarkLeftOut,
    /// The check walks the log as if the index had all of it; a start does not (rule L5).
    StartAndCheckDisagree,
    /// Replay leaves out records that the index does not have (rule L6).
    RecordNotReplayed,
    /// Blocks that lie in batches are not in their segment's summary (rule L7).
    SummaryForgotten,
    /// A bulk write is ordered before its payload is on the device (rule U2).
    BulkOrderedEarly,
    /// A bulk payload that is said to be flushed is not (rule U1).
    BulkUnflushed,
    /// An open ticket does not keep its segment from being sealed (rule U2).
    TicketForgotten,
    /// fsync waits for nothing (rule U3).
    FsyncUnheard,
    /// Unsynced changes never become durable by themselves (rule U3).
    TimerForgotten,
    /// A failed write or flush counts as done (rule U4).
    FailureForgotten,
    /// No checkpoint comes by itself, however long a replay would take (rule X2).
    CheckpointNeverDue,
    /// Rows of a deleted volume stay in the index (rule X3).
    VolumeRowsKept,
    /// A brick with read-only features that are not known is written (rule X4).
    FeaturesIgnored,
    /// A damaged row of the index is read as if there were none (rule X4).
    BadRowReadAsNone,
    /// A volume gets layers without a mark in the superblock, and an older build serves it without them (rule X4).
    FeatureUnmarked,
    /// A brick is called larger before it has the space (rule X5).
    GrownBeforeRoom,
    /// A brick counts a device's segments before the device bears its label (rule X5).
    DeviceCountedEarly,
    /// A block on its way to a disk counts there before the disk has flushed it (rule U1).
    DestageUnflushed,
    /// Records that belong together are ordered as far as memory goes (rule L6).
    HeadersOneByOne,
    /// A device leaves the brick while something lies on it.
    RemovedInUse,
    /// Flushes leave a device out as soon as its removal has begun (rule U1).
    LeavingUnflushed,
    /// A flow's turns on a core are not charged to it, so that the others' shares are its own.
    TurnsUncharged,
    /// A core does not learn what its flows have had on the others.
    TagsNeverCorrected,
    /// A flow's reservation does not raise its share.
    ReserveForgotten,
    /// Background work does not ask whether clients suffer from it (decision D7).
    BudgetIgnored,
    /// A volume's limits hold from the change that sets them to the next start of the daemon, and no longer.
    LimitForgotten,
    /// A request that is given up while a limit holds it keeps its place in the line.
    PlaceKept,
    /// A start without a disk moves blocks there that no row of the index counts (rule K3).
    MissingBelieved,
    /// The cleaner takes segments as they come (rule K1).
    VictimsByNumber,
    /// Clients are not slowed when free segments run short (rule K4).
    DelayUnfelt,
    /// Clients are slowed only when the cleaner has fallen behind (rule K4).
    GlideMissing,
    /// Space gained from cheap victims is spent before the expensive victims of the same choice were cleaned (rule K4).
    SurplusSpent,
    /// A write that must wait for the cleaner is refused (rule K4).
    RefusedWhileBehind,
    /// Client data is admitted into the reserve (rule K5).
    AdmittedBeyondUsable,
    /// Deleting stops where client data does (rule K5).
    LadderFlat,
    /// Space that fallocate reserved is admitted a second time when it is written (rule K5).
    PromiseForgotten,
    /// Names and attributes are not charged against free space (rule K5).
    NamesNotCharged,
    /// Start-up does not purge orphans (rule K6).
    OrphansKept,
    /// A hole keeps the blocks that lay in it (rule K6).
    HoleKeepsBlocks,
    /// The commit stream uses segments that were never written (rule K7).
    ZerosSkipped,
    /// Freed segments are discarded in files, too (rule K7).
    FilesDiscarded,
    /// A freed segment is taken again beneath its readers (rule K8).
    PinIgnored,
    /// Blocks from the device are not compared with their checksums (rule K8).
    ChecksumIgnored,
    /// The overlay releases a payload before it is on the device (rule K8).
    PayloadLetGo,
    /// Entries of a directory share a cookie (rule M2).
    CookieReused,
    /// A truncation does not raise the trim number (rule M4).
    TrimKept,
    /// A write sets the size instead of raising it (rule M4).
    SizeReplaced,
    /// A write within a block does not keep the block's other bytes (rule M5).
    EdgeForgotten,
    /// Writers of one block do not exclude each other (rule M5).
    RangeFree,
    /// A truncation leaves the rest of its last block as it was (rule M5).
    TailKept,
    /// Two changes within one tick of the clock get the same timestamp (rule M6).
    TimeStandsStill,
    /// Setting one extended attribute removes the others (rule L1).
    XattrsReplaced,
    /// A request that is delivered twice is done twice (rule R1).
    ResultForgotten,
    /// A session's results are let go of by their number, though the client may not have the answers (rule P9).
    ResultsCutByCount,
    /// A change that a crash took counts as there if its index is used again (rule P3).
    FsyncIgnoresTerm,
    /// A start frees what clients on other machines have open before they have told so (rule P11).
    OrphansNotAwaited,
    /// An open is not counted whose request took effect before a start and is delivered again (rule P11).
    AgainUncounted,
    /// An unlinked file goes though it is open (rule R2).
    OpenUncounted,
    /// A client that takes back one of several answers about an inode counts as having forgotten the inode (rule R2).
    ForgetEndsEarly,
    /// Files left open by a session stay open when it ends, and its results are kept (rule R2).
    SessionsKept,
    /// A clean end leaves out its last commit and checkpoint (rule U3).
    EndedUncommitted,
    /// A volume is mounted at two places, and neither mount's cache learns of changes made through the other (rule R2).
    MountedTwice,
    /// A client whose session was ended is let in under it again (rule P10).
    EndedNotFenced,
    /// A client gets a volume although the kernel of another one still caches it (rule P12).
    SharedUnasked,
    /// A client says that its kernel has let go of its caches before it has (rule P12).
    RecallUnheeded,
    /// A kernel caches for an hour, whatever the lease (rule P12).
    LeaseIgnored,
    /// A client that comes back after a restart of the server does not tell which locks it has (rule P11).
    LocksNotReclaimed,
    /// A client's requests are done after a restart before the others have let go of what they cache and told which locks they have
    /// (rules P11, P12).
    OthersNotAwaited,
    /// Objects that a client creates belong to root (rule R3).
    CallerForgotten,
    /// Opens for synchronous writes go through the page cache (rule F1).
    DirectIoForgotten,
    /// The kernel keeps its cached pages of a range that was written past the page cache (rule R2).
    PagesKept,
    /// The kernel is asked to cache writes (writeback mode) (rule F2).
    WritebackAsked,
    /// The kernel is not asked for a feature, and sends look-ups in one directory one after the other (rule F4).
    FeatureForgotten,
    /// A write leaves setuid and setgid as they were (rule F4).
    PrivilegesKept,
    /// The kernel may keep the attributes of a program that runs as its owner, and executes by them (rule F4).
    PrivilegesKeptInMind,
    /// Buffers are given out beyond the bound (rule F5).
    MemoryUnbounded,
    /// A directory may move below itself (rule M3).
    LoopUnchecked,
    /// A block that differs from its checksum is not looked up again (rule K8).
    LookedUpOnce,
    /// State that a checkpoint has moved to the index is still looked up in memory alone (rule X1).
    YoungForEver,
    /// Prefetched blocks of a file are believed to be its blocks when it is read (rule K8).
    AheadBelieved,
    /// Blocks in the read cache are believed whatever their checksums, also after their segment began another life.
    CacheBelieved,
    /// Copies on flash of blocks on disk are looked up by their places alone: those of an earlier life of the segment
    /// count too (rule K8).
    CopyOutlived,
    /// Blocks that belong on flash go down to disks like all others (rule K1).
    HintUnread,
    /// A segment with copies is dropped, and its copies are still found (rule K8).
    CopyAfterDrop,
    /// A copy is looked up before flash has it (rule K8).
    CopyEarly,
    /// Blocks that were read ahead of a stream are believed whatever their places and checksums are by now (rule K8).
    UnitBelieved,
    /// Numbers after a crash start where the durable ones end, though others had been given out (rule L2).
    NumbersFromDurable,
    /// A core falls asleep without a last look at its inbox (decision D4).
    WakeUpLost,
    /// The slot of an I/O whose future is gone serves another I/O while the device still uses its buffers (decision
    /// D4).
    SlotFreedEarly,
    /// Readers are counted before the phase ends in which they began (rule K8).
    PinsReadEarly,
    /// A request waits for something that no stage of its span is named after (promise 3).
    WaitUnnamed,
    /// A frame is taken although its checksum is wrong (rule R3).
    FrameCrcUnchecked,
    /// A payload is taken although a checksum of its blocks is wrong (rule K8).
    PayloadCrcUnchecked,
    /// A record in the clear is taken although its tag is wrong (rule R3).
    RecordMacUnchecked,
    /// A vote is answered before its record is durable (rule L6).
    VoteBeforeDurable,
    /// A brick votes and campaigns against a leader whose brick it supports (rule P4).
    VoteAgainstSupported,
    /// A brick votes right after its start, though its former process may have promised support (rule P17).
    VoteAfterStart,
    /// A replica that hears of a higher term forgets that it is bound to its leader (rule P4).
    BondEndsWithTerm,
    /// A leader's lease counts whoever acknowledged its term in whatever spell of support (rule P4).
    AnySpellCounts,
    /// A leader keeps its lease when the support for its brick has ended (rule P4).
    LeaseOutlivesSupport,
    /// Support counts from the moment at which the answer comes, not from that of the question (rule P4).
    LeaseFromAnswer,
    /// A leader keeps its lease while it hands over to another replica (rule P4).
    LeaseKeptInTransfer,
    /// A brick goes on supporting one that hears nothing of it (rule P5).
    SupportOneWay,
    /// A brick whose disk hangs goes on asking for support (rule P6).
    HungDiskAsks,
    /// A brick does not look at since when its log's writes have been under way (rule P6).
    HungDiskLeads,
    /// A leader counts its own records as durable before they are (rule P1).
    OwnRecordsBelieved,
    /// A follower acknowledges records before they are durable (rule P1).
    AckBeforeRecords,
    /// A leader tells as committed what a single replica has durable (rule P1).
    CommitUncounted,
    /// A follower that lost records which it had acknowledged gets them again as if nothing were (rule P13).
    LossAccepted,
    /// A leader sends records that it read from its log when it led in an earlier term (rule P1).
    OldReadBelieved,
    /// A checkpoint that replay begins behind leaves out what a replica has promised in votes before it (rule L6).
    VoteForgotten,
    /// A reader of the running log does not keep its segments from being written again (rule K8).
    LogReadUnpinned,
    /// A checkpoint whose replay begins at an earlier cut frees segments as if it had all records before its own (rule K3).
    PendingFreed,
    /// A change of a replicated group is answered when it is ordered (rule P1).
    CommitUnawaited,
    /// A leader answers reads without its lease (rule P4).
    LeaseUnasked,
    /// A leader answers a read with what is not committed yet (rule P20).
    ReadUncommitted,
    /// A group tells what it holds for a change before that is committed.
    HoldUncommitted,
    /// Others look at what is held for a change, and change it.
    HoldIgnored,
    /// The parts of a change are sent before its decision is committed.
    PartBeforeDecision,
    /// A group takes its part of a change again when it is told again.
    PartTwice,
    /// A replica tells what became of a change though it may not know.
    FateGuessed,
    /// A leader that was deposed keeps what it had ordered and is void (rule L6).
    VoidKept,
    /// A checkpoint takes what is ordered and not committed (rule P21).
    UncommittedCheckpoint,
    /// A leader sends a follower one append after an answer, however much is left (rule P7).
    RestUnsent,
    /// A replica's row does not say which record came before those that replay finds (rule P7).
    EndNotKept,
    /// A replica that heals keeps blocks of files that have changed.
    StaleBlocksKept,
    /// A heal ends before all missing blocks have come (rule P8).
    HealEndsEarly,
    /// A leader asks a follower for the first record that is kept after each answer to an earlier question (rule P7).
    QuestionsRepeat,
}

impl Bug {
    /// Every bug, for tests and for naming one on a command line.
    pub const ALL: [Bug; 150] = [
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
        Bug::BitmapUnloaded,
        Bug::StaleLeafRead,
        Bug::PurgeForgotten,
        Bug::FrameOfAnotherLife,
        Bug::InoReused,
        Bug::EpochKept,
        Bug::DamageTakenForTail,
        Bug::TornTailBelieved,
        Bug::MarkNotCarried,
        Bug::MarkLeftOut,
        Bug::StartAndCheckDisagree,
        Bug::RecordNotReplayed,
        Bug::SummaryForgotten,
        Bug::BulkOrderedEarly,
        Bug::BulkUnflushed,
        Bug::TicketForgotten,
        Bug::FsyncUnheard,
        Bug::TimerForgotten,
        Bug::FailureForgotten,
        Bug::CheckpointNeverDue,
        Bug::VolumeRowsKept,
        Bug::FeaturesIgnored,
        Bug::BadRowReadAsNone,
        Bug::FeatureUnmarked,
        Bug::GrownBeforeRoom,
        Bug::DeviceCountedEarly,
        Bug::DestageUnflushed,
        Bug::HeadersOneByOne,
        Bug::RemovedInUse,
        Bug::LeavingUnflushed,
        Bug::TurnsUncharged,
        Bug::TagsNeverCorrected,
        Bug::ReserveForgotten,
        Bug::BudgetIgnored,
        Bug::LimitForgotten,
        Bug::PlaceKept,
        Bug::MissingBelieved,
        Bug::VictimsByNumber,
        Bug::DelayUnfelt,
        Bug::GlideMissing,
        Bug::SurplusSpent,
        Bug::RefusedWhileBehind,
        Bug::AdmittedBeyondUsable,
        Bug::LadderFlat,
        Bug::PromiseForgotten,
        Bug::NamesNotCharged,
        Bug::OrphansKept,
        Bug::HoleKeepsBlocks,
        Bug::ZerosSkipped,
        Bug::FilesDiscarded,
        Bug::PinIgnored,
        Bug::ChecksumIgnored,
        Bug::PayloadLetGo,
        Bug::CookieReused,
        Bug::TrimKept,
        Bug::SizeReplaced,
        Bug::EdgeForgotten,
        Bug::RangeFree,
        Bug::TailKept,
        Bug::TimeStandsStill,
        Bug::XattrsReplaced,
        Bug::ResultForgotten,
        Bug::ResultsCutByCount,
        Bug::FsyncIgnoresTerm,
        Bug::OrphansNotAwaited,
        Bug::AgainUncounted,
        Bug::OpenUncounted,
        Bug::ForgetEndsEarly,
        Bug::SessionsKept,
        Bug::EndedUncommitted,
        Bug::MountedTwice,
        Bug::EndedNotFenced,
        Bug::SharedUnasked,
        Bug::RecallUnheeded,
        Bug::LeaseIgnored,
        Bug::LocksNotReclaimed,
        Bug::OthersNotAwaited,
        Bug::CallerForgotten,
        Bug::DirectIoForgotten,
        Bug::PagesKept,
        Bug::WritebackAsked,
        Bug::FeatureForgotten,
        Bug::PrivilegesKept,
        Bug::PrivilegesKeptInMind,
        Bug::MemoryUnbounded,
        Bug::LoopUnchecked,
        Bug::LookedUpOnce,
        Bug::YoungForEver,
        Bug::AheadBelieved,
        Bug::CacheBelieved,
        Bug::CopyOutlived,
        Bug::HintUnread,
        Bug::CopyAfterDrop,
        Bug::CopyEarly,
        Bug::UnitBelieved,
        Bug::NumbersFromDurable,
        Bug::WakeUpLost,
        Bug::SlotFreedEarly,
        Bug::PinsReadEarly,
        Bug::WaitUnnamed,
        Bug::FrameCrcUnchecked,
        Bug::PayloadCrcUnchecked,
        Bug::RecordMacUnchecked,
        Bug::VoteBeforeDurable,
        Bug::VoteAgainstSupported,
        Bug::VoteAfterStart,
        Bug::BondEndsWithTerm,
        Bug::AnySpellCounts,
        Bug::LeaseOutlivesSupport,
        Bug::LeaseFromAnswer,
        Bug::LeaseKeptInTransfer,
        Bug::SupportOneWay,
        Bug::HungDiskAsks,
        Bug::HungDiskLeads,
        Bug::OwnRecordsBelieved,
        Bug::AckBeforeRecords,
        Bug::CommitUncounted,
        Bug::LossAccepted,
        Bug::OldReadBelieved,
        Bug::VoteForgotten,
        Bug::LogReadUnpinned,
        Bug::PendingFreed,
        Bug::CommitUnawaited,
        Bug::LeaseUnasked,
        Bug::ReadUncommitted,
        Bug::HoldUncommitted,
        Bug::HoldIgnored,
        Bug::PartBeforeDecision,
        Bug::PartTwice,
        Bug::FateGuessed,
        Bug::VoidKept,
        Bug::UncommittedCheckpoint,
        Bug::RestUnsent,
        Bug::EndNotKept,
        Bug::StaleBlocksKept,
        Bug::HealEndsEarly,
        Bug::QuestionsRepeat,
    ];
}

#[cfg(feature = "seeded-bugs")]
mod switch {
    use super::Bug;
    use std::cell::Cell;
    use std::panic::{UnwindSafe, catch_unwind};
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
    /// True if a test fails while the bug is on.
    pub fn fails(test: impl FnOnce() + UnwindSafe, bug: Bug) -> bool {
        set(Some(bug));
        let failed = catch_unwind(test).is_err();
        set(None);
        failed
    }
    /// Switches one bug on for the whole process.
    pub fn set_for_process(bug: Bug) {
        PROCESS.store(bug as u32, Ordering::Relaxed);
    }
}

#[cfg(feature = "seeded-bugs")]
pub use switch::{active, fails, set, set_for_process};

/// True if the bug is switched on: never, in this build.
#[cfg(not(feature = "seeded-bugs"))]
#[inline(always)]
pub const fn active(_: Bug) -> bool {
    false
}
