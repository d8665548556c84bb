//! Ways over the bad batches of a damaged log, and what a repair left out behind them: the second version of the row that
//! says where replay starts. A checkpoint writes that row anew, so they are gone as soon as replay does not need them.

use super::bytes::{Reader, Writer, corrupt};
use base::{GroupId, Index, Place, Result, SegmentId};

/// One way over bad batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passage {
    /// The first bad batch.
    pub from: u64,
    /// The whole batch that replay goes on with.
    pub to: u64,
    /// The epoch of that one.
    pub epoch: u64,
    /// The checksum of the header before it, as stored in it.
    pub previous_crc: u32,
    /// Its place.
    pub at: Place,
    /// The place of the first bad batch, if known: some of its records may be whole.
    pub bad: Option<Place>,
}

/// Records of a group that don't count, because some before them are lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The group.
    pub group: GroupId,
    /// The first of them.
    pub from: Index,
    /// The last batch that may hold one: later ones have other records of these numbers.
    pub through: u64,
}

/// All of a brick.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Passages {
    /// Ways over bad batches, in the order of the log.
    pub over: Vec<Passage>,
    /// The records that were left out.
    pub cuts: Vec<Cut>,
}

/// The place of a bad batch if it is not known.
const NOWHERE: Place = Place { segment: SegmentId(u32::MAX), block: 0 };

impl Passages {
    /// True for a record that does not count.
    pub fn leave_out(&self, (group, index): (GroupId, Index), batch: u64) -> bool {
        self.cuts.iter().any(|cut| cut.group == group && index >= cut.from && batch <= cut.through)
    }
    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.over.is_empty() && self.cuts.is_empty()
    }
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let mut writer = Writer(out);
        writer.u16(self.over.len() as u16).u16(self.cuts.len() as u16);
        for passage in &self.over {
            let Passage { from, to, epoch, previous_crc, at, bad } = *passage;
            assert!(from < to, "`take` refuses a way over bad batches that leads back");
            writer.u64(from).u64(to).u64(epoch).u32(previous_crc);
            for place in [at, bad.unwrap_or(NOWHERE)] {
                writer.u32(place.segment.0).u16(place.block);
            }
        }
        for cut in &self.cuts {
            writer.u32(cut.group.0).u64(cut.from.0).u64(cut.through);
        }
    }
    pub(super) fn take(reader: &mut Reader<'_>) -> Result<Passages> {
        let (over, cuts) = (reader.u16()?, reader.u16()?);
        let place = |reader: &mut Reader<'_>| Ok(Place { segment: SegmentId(reader.u32()?), block: reader.u16()? });
        let passage = |reader: &mut Reader<'_>| {
            let (from, to, epoch, previous_crc) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u32()?);
            let (at, bad) = (place(reader)?, place(reader)?);
            Ok(Passage { from, to, epoch, previous_crc, at, bad: (bad != NOWHERE).then_some(bad) })
        };
        let cut = |reader: &mut Reader<'_>| {
            Ok(Cut { group: GroupId(reader.u32()?), from: Index(reader.u64()?), through: reader.u64()? })
        };
        let over = (0..over).map(|_| passage(reader)).collect::<Result<Vec<_>>>()?;
        let onward = over.iter().all(|one| one.from < one.to) && over.is_sorted_by(|one, next| one.to <= next.from);
        if !onward {
            return Err(corrupt("a way over bad batches leads back"));
        }
        Ok(Passages { over, cuts: (0..cuts).map(|_| cut(reader)).collect::<Result<_>>()? })
    }
}
