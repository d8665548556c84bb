//! The bounds of values that were read from the device. A checksum says that the bytes are those that were written, not
//! that a build of ours wrote them. So before a value is used to count, index or allocate, it is checked against the
//! properties of the brick. All readers of the log use these checks, start and check alike, so that neither accepts
//! what the other refuses.
//!
//! *Absent:* whether values agree with each other (`check`).

use crate::format::record::{Logged, Record, Run, Vote};
use crate::format::segment::SegmentHeader;
use crate::format::superblock::Superblock;
use crate::format::values::{ReplayRow, SegmentRow};
use crate::media::geometry::Geometry;
use base::limits::{BLOCK_BYTES, FILE_BYTES_MAX, NUMBER_MAX};
use base::{Edit, Error, GroupId, Ino, Kind, Place, Result, SegmentId};

/// Blocks of the largest file.
const FILE_BLOCKS_MAX: u64 = FILE_BYTES_MAX / BLOCK_BYTES as u64;

/// The numbers of groups, segments and so on that values may name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    groups: u32,
    segments: u32,
    blocks: u32,
    epoch: u64,
}

fn refused(what: &'static str, detail: impl std::fmt::Display) -> Error {
    Error::new(Kind::Corrupt, what).with(detail)
}

impl Bounds {
    /// Those of a brick.
    pub fn of(superblock: &Superblock, geometry: &Geometry) -> Bounds {
        let Superblock { groups, segments, epoch, .. } = *superblock;
        Bounds { groups, segments, blocks: geometry.blocks(), epoch }
    }

    /// A segment's header.
    pub fn header(&self, header: &SegmentHeader) -> Result<()> {
        let numbers = header.sequence < NUMBER_MAX && u64::from(header.life.0) < u64::from(u32::MAX / 2);
        match numbers && header.epoch <= self.epoch && header.segment.0 < self.segments {
            true => Ok(()),
            false => Err(refused("a segment's header has values that no brick reaches", format!("{header:?}"))),
        }
    }

    /// A row of the segment table.
    pub fn segment(&self, segment: SegmentId, row: &SegmentRow) -> Result<()> {
        if segment.0 >= self.segments {
            let what =
                "the superblock counts fewer segments than are in use: restore this brick's superblock from a backup";
            return Err(refused(what, format!("segment {segment} of {}", self.segments)));
        }
        let numbers = row.sequence < NUMBER_MAX && row.opened < NUMBER_MAX && row.life.0 < u32::MAX / 2;
        let blocks = row.used <= self.blocks && row.live.len() <= (self.blocks as usize).div_ceil(64);
        match numbers && blocks {
            true => Ok(()),
            false => Err(refused("the index says of a segment what no segment can be", format!("segment {segment}"))),
        }
    }

    /// Checks the place where replay begins.
    pub fn replay(&self, row: &ReplayRow) -> Result<()> {
        let numbers = [row.number, row.sequence].iter().chain(&row.next_sequence).all(|&number| number < NUMBER_MAX);
        match numbers && row.epoch <= self.epoch && self.has_block(row.segment, u32::from(row.block), 0) {
            true => Ok(()),
            false => Err(refused("the index says that the log begins where it can't", format!("{row:?}"))),
        }
    }

    /// Checks a record of the log: its group, its places and every number that somebody will count with.
    pub fn logged(&self, logged: &Logged, runs: &[Run]) -> Result<()> {
        for run in runs {
            if !self.has_block(run.place.segment, u32::from(run.place.block), u32::from(run.count)) {
                return Err(refused(
                    "the log holds a record whose payload lies outside the brick",
                    format!("{:?}", run.place),
                ));
            }
        }
        match logged {
            Logged::Record(record) => self.record(record),
            Logged::Vote(Vote { group, term, voted_for }) => {
                self.group(*group)?;
                self.number(term.0)?;
                self.number(voted_for.map_or(0, |replica| replica.0))
            }
            Logged::Moves(moves) => {
                self.group(moves.group)?;
                for moved in &moves.blocks {
                    self.ino(moved.ino)?;
                    self.blocks(moved.block, 1)?;
                    self.number(moved.index.0)?;
                    let Place { segment, block } = moved.old;
                    // A block that the brick lacked comes from nowhere.
                    if moved.old != Place::MISSING && !self.has_block(segment, u32::from(block), 1) {
                        return Err(refused("the log holds a move from outside the brick", format!("{:?}", moved.old)));
                    }
                }
                Ok(())
            }
        }
    }

    fn record(&self, record: &Record) -> Result<()> {
        self.group(record.group)?;
        self.number(record.index.0)?;
        self.number(record.term.0)?;
        record.edits.iter().try_for_each(|edit| self.edit(edit))
    }

    /// Checks an edit of a record or an intent.
    pub fn edit(&self, edit: &Edit) -> Result<()> {
        match edit {
            Edit::InodePut { ino, inode } => {
                self.ino(*ino)?;
                self.parent(inode.parent)?;
                self.size(inode.size)
            }
            Edit::InodeTouch { ino, .. }
            | Edit::InodeDrop { ino }
            | Edit::InodeProject { ino, .. }
            | Edit::OrphanPut { ino }
            | Edit::OrphanDrop { ino }
            | Edit::TargetPut { ino, .. }
            | Edit::XattrPut { ino, .. }
            | Edit::XattrDrop { ino, .. } => self.ino(*ino),
            Edit::InodeParent { ino, parent } => self.ino(*ino).and_then(|()| self.parent(*parent)),
            Edit::InodeExtend { ino, size, .. } | Edit::InodeCut { ino, size, .. } => {
                self.ino(*ino).and_then(|()| self.size(*size))
            }
            Edit::EntryPut { dir, ino, cookie, .. } => {
                self.ino(*dir)?;
                self.ino(*ino)?;
                self.number(*cookie)
            }
            Edit::EntryDrop { dir, cookie, .. } => self.ino(*dir).and_then(|()| self.number(*cookie)),
            Edit::Map { ino, first, crcs } => self.ino(*ino).and_then(|()| self.blocks(*first, crcs.len() as u64)),
            // What counts blocks relies on a first and a last one.
            Edit::Punch { ino, count: 0, .. } => Err(refused("a record punches a hole of no blocks", ino)),
            Edit::Reserve { ino, first, count } | Edit::Punch { ino, first, count, .. } => {
                self.ino(*ino).and_then(|()| self.blocks(*first, *count))
            }
            Edit::IntentPut(intent) => self.intent(intent),
            Edit::LockPut { id, inos } => {
                inos.iter().try_for_each(|ino| self.ino(*ino))?;
                self.group(id.group).and_then(|()| self.number(id.number))
            }
            Edit::IntentDrop { id } | Edit::FollowedPut { id } | Edit::FollowedDrop { id } | Edit::LockDrop { id } => {
                self.group(id.group).and_then(|()| self.number(id.number))
            }
            Edit::VolumePut(volume) | Edit::VolumeChange { volume, .. } => match volume.id.0 < u32::MAX {
                true => self.ino(volume.root),
                false => Err(refused("a volume's number is none that is given", volume.id)),
            },
            Edit::Numbers { numbers } if numbers.ino >= Ino::SEQUENCE_END => {
                Err(refused("a number is higher than any that is given", numbers.ino))
            }
            Edit::Numbers { numbers } => self.number(numbers.cookie).and_then(|()| self.number(numbers.intent)),
            Edit::Term { term, .. } => self.number(term.0),
            Edit::VolumeDrop { .. } | Edit::SessionPut { .. } | Edit::SessionDrop { .. } => Ok(()),
        }
    }

    /// Checks the intent of a change across groups.
    pub fn intent(&self, intent: &base::Intent) -> Result<()> {
        self.group(intent.id.group)?;
        self.number(intent.id.number)?;
        for follow in &intent.follow {
            self.group(follow.group)?;
            follow.edits.iter().try_for_each(|edit| self.edit(edit))?;
        }
        Ok(())
    }

    fn group(&self, group: GroupId) -> Result<()> {
        match group.0 < self.groups {
            true => Ok(()),
            false => Err(refused(
                "the brick does not have a group that it names",
                format!("group {group} of {}", self.groups),
            )),
        }
    }

    /// An inode that may be there.
    pub fn ino(&self, ino: Ino) -> Result<()> {
        self.group(ino.group()).map_err(|error| error.with(format!("inode {ino}")))
    }

    /// A root has none above it, and a file may have had one that is gone.
    fn parent(&self, parent: Ino) -> Result<()> {
        if parent == Ino(0) { Ok(()) } else { self.ino(parent) }
    }

    fn size(&self, bytes: u64) -> Result<()> {
        match bytes <= FILE_BYTES_MAX {
            true => Ok(()),
            false => Err(refused("a file is said to be larger than one can be", format!("{bytes} bytes"))),
        }
    }

    fn blocks(&self, first: u64, count: u64) -> Result<()> {
        match first.checked_add(count).is_some_and(|end| end <= FILE_BLOCKS_MAX) {
            true => Ok(()),
            false => Err(refused("a record changes blocks that no file has", format!("{count} from {first} on"))),
        }
    }

    fn number(&self, number: u64) -> Result<()> {
        match number < NUMBER_MAX {
            true => Ok(()),
            false => Err(refused("a number is higher than any that is given", number)),
        }
    }

    fn has_block(&self, segment: SegmentId, block: u32, count: u32) -> bool {
        segment.0 < self.segments && block + count <= self.blocks
    }
}
