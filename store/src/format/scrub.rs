//! The state of a scrub and its findings, as its row in the index says it (rule K8).

use base::{Ino, Life, Place, SegmentId, Time, VolumeId};

/// The state of the scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum State {
    /// It was never started.
    #[default]
    Never,
    /// A pass is under way.
    Running,
    /// A pass was stopped; starting goes on with it.
    Stopped,
    /// A pass has ended.
    Done,
}

/// The reason why blocks are bad.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// They differ from their checksums.
    Differs,
    /// The device can't read them.
    Unreadable,
    /// Nobody knows whose they are: the segment's summary can't be read.
    Untold,
}

impl Why {
    /// The reason in words.
    pub fn text(self) -> &'static str {
        match self {
            Why::Differs => "differs from its checksum",
            Why::Unreadable => "can't be read from the device",
            Why::Untold => "was not looked at: the summary of its segment is damaged",
        }
    }
}

/// Bad blocks that lie one after the other, in the segment and in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bad {
    /// The first one.
    pub place: Place,
    /// The segment's life.
    pub life: Life,
    /// Number of blocks.
    pub blocks: u32,
    /// The owner's volume; meaningless for a segment whose summary can't be read.
    pub volume: VolumeId,
    /// The inode.
    pub ino: Ino,
    /// The first block's number within the inode.
    pub offset: u64,
    /// The reason.
    pub why: Why,
}

impl Bad {
    /// True if it tells of the same already.
    pub(crate) fn covers(&self, other: &Bad) -> bool {
        let (from, block) = (u32::from(self.place.block), u32::from(other.place.block));
        let same = |bad: &Bad| (bad.place.segment, bad.life, bad.why);
        same(self) == same(other) && (from..from + self.blocks).contains(&block)
    }
    /// True if another one goes on where this one ends.
    pub(crate) fn goes_on_with(&self, next: &Bad) -> bool {
        let same = |bad: &Bad| (bad.place.segment, bad.life, bad.volume, bad.ino, bad.why);
        same(self) == same(next)
            && u32::from(self.place.block) + self.blocks == u32::from(next.place.block)
            && self.offset + u64::from(self.blocks) == next.offset
    }
}

/// The state of the scrub that checkpoints store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Position {
    /// Doing what.
    pub state: State,
    /// Time at which the pass began.
    pub began: Time,
    /// Time at which it ended; 0 before that.
    pub ended: Time,
    /// The segment that is looked at next.
    pub next: SegmentId,
    /// Blocks that this pass has read.
    pub blocks: u64,
    /// Its findings.
    pub bad: Vec<Bad>,
    /// Findings beyond those listed.
    pub unlisted: u64,
}
