//! The leaf (rule X3): places and checksums of 64 consecutive blocks. A leaf is sparse, and so are its bytes: a mask
//! and the slots that are set. A patch has the same form and is laid over a leaf.

use super::bytes::{Reader, Writer, corrupt};
use base::limits::{BLOCKS_PER_LEAF, SEGMENTS_MAX};
use base::{Place, Result, SegmentId};
use std::ops::Range;

const VERSION: u8 = 1;
/// Version, flags, mask.
const HEAD_BYTES: usize = 10;
/// Flag: the trim number follows the head.
const HAS_TRIM: u8 = 1;
const TRIM_BYTES: usize = 8;
/// Bytes per slot.
pub const SLOT_BYTES: usize = 16;
/// Position of the birth in a slot; it extends to the slot's end.
const BIRTH: usize = 12;
/// No segment has the number of the place of missing blocks.
const _: () = assert!(SEGMENTS_MAX < Place::MISSING.segment.0);
const _: () = assert!(BIRTH + 4 == SLOT_BYTES && BLOCKS_PER_LEAF == u64::BITS as usize);

/// The content of a slot: the state of its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// No data: reads as zeros. In a patch: removes what was there.
    Hole,
    /// The block lies whole and plain at a place of this brick.
    Local {
        /// Its place; `Place::MISSING` if the brick lacks the block and other replicas of the group have it (`heal`).
        place: Place,
        /// CRC-32C of its 4 KiB.
        crc: u32,
        /// The low 32 bits of the log epoch in which it was written. In an overlay's patch `BIRTH_KEPT`: the block was
        /// only moved.
        birth: u32,
    },
}

/// No epoch: the leaf that the patch is laid over knows the block's birth.
pub const BIRTH_KEPT: u32 = 0;
/// The first epoch. Nobody moves a hole; but laying must be associative for whatever is laid.
const BIRTH_LOST: u32 = 1;
const _: () = assert!(BIRTH_LOST != BIRTH_KEPT);

mod tag {
    pub const HOLE: u8 = 0;
    pub const LOCAL: u8 = 1;
    // Numbers that later versions use; this build refuses them as corrupt, and features guard their first use.
    // 2 stripe, 3 shared, 4 remote, 5 inline, 6 unwritten, 7 compressed, 8 encrypted.
    pub const MISSING: u8 = 9;

    /// True for a slot that maps its block, and has checksum and birth.
    pub fn maps(tag: u8) -> bool {
        matches!(tag, LOCAL | MISSING)
    }
}

/// A leaf or a patch in memory: the set slots in block order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leaf {
    mask: u64,
    slots: Vec<Slot>,
    /// The latest truncation of the inode that this leaf is newer than, if that was not yet carried out everywhere when
    /// the leaf was written (rule K6, see `purge`); 0 = none.
    pub trim: u64,
}

impl Leaf {
    /// The slot of block `index` (0..64); None if the leaf says nothing of it.
    pub fn get(&self, index: usize) -> Option<Slot> {
        let bit = 1u64 << index;
        (self.mask & bit != 0).then(|| self.slots[self.rank(index)])
    }
    /// Sets a slot.
    pub fn set(&mut self, index: usize, slot: Slot) {
        assert!(index < BLOCKS_PER_LEAF, "block {index} is another leaf's");
        let rank = self.rank(index);
        if self.mask & 1 << index != 0 {
            self.slots[rank] = slot;
        } else {
            self.mask |= 1 << index;
            self.slots.insert(rank, slot);
        }
    }
    /// Forgets the slots of a range.
    pub fn clear(&mut self, range: Range<usize>) {
        assert!(range.end <= BLOCKS_PER_LEAF, "blocks up to {} are another leaf's", range.end);
        let from = self.rank(range.start);
        let forgotten = range.filter(|index| self.mask & 1 << index != 0).fold(0u64, |mask, index| mask | 1 << index);
        self.slots.drain(from..from + forgotten.count_ones() as usize);
        self.mask &= !forgotten;
        assert!(self.slots.len() == self.mask.count_ones() as usize, "a slot for each block of the mask");
    }
    /// Lays `patch` over this leaf.
    pub fn lay(&mut self, patch: &Leaf) {
        for (index, slot) in patch.iter() {
            let slot = match (slot, self.get(index)) {
                (Slot::Local { place, crc, birth: BIRTH_KEPT }, Some(below)) => {
                    let birth = if let Slot::Local { birth, .. } = below { birth } else { BIRTH_LOST };
                    Slot::Local { place, crc, birth }
                }
                _ => slot,
            };
            self.set(index, slot);
        }
        self.trim = self.trim.max(patch.trim);
    }
    /// The set slots: block index within the leaf, slot.
    pub fn iter(&self) -> impl Iterator<Item = (usize, Slot)> + '_ {
        let set = (0..BLOCKS_PER_LEAF).filter(|index| self.mask & 1 << index != 0);
        set.zip(self.slots.iter().copied())
    }
    /// The places of its blocks, those included that the brick lacks.
    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Local { place, .. } => Some(*place),
            Slot::Hole => None,
        })
    }
    /// Number of slots that are set.
    pub fn len(&self) -> usize {
        self.slots.len()
    }
    /// True if no slot is set.
    pub fn is_empty(&self) -> bool {
        self.mask == 0
    }
    /// Removes holes, which say nothing in a whole leaf.
    pub fn without_holes(&self) -> Leaf {
        let mut leaf = Leaf { trim: self.trim, ..Leaf::default() };
        self.iter().filter(|(_, slot)| *slot != Slot::Hole).for_each(|(index, slot)| leaf.set(index, slot));
        leaf
    }
    fn rank(&self, index: usize) -> usize {
        (self.mask & ((1u64 << index) - 1)).count_ones() as usize
    }

    /// The leaf's bytes.
    pub fn encode(&self) -> Vec<u8> {
        assert!(
            self.slots.len() == self.mask.count_ones() as usize,
            "`decode` reads a slot for each block of the mask"
        );
        let mut out = head(self.mask, self.trim);
        for slot in &self.slots {
            let mut writer = Writer(&mut out);
            match *slot {
                Slot::Hole => writer.u8(tag::HOLE).bytes(&[0; SLOT_BYTES - 1]),
                Slot::Local { place: Place::MISSING, crc, birth } => {
                    writer.u8(tag::MISSING).u8(0).u16(0).u32(0).u32(crc).u32(birth)
                }
                Slot::Local { place, crc, birth } => {
                    // The byte after the tag has room for a stored length (compressed blocks).
                    writer.u8(tag::LOCAL).u8(0).u16(place.block).u32(place.segment.0).u32(crc).u32(birth)
                }
            };
        }
        out
    }
    /// Reads a leaf. Errors: `Corrupt`.
    pub fn decode(bytes: &[u8]) -> Result<Leaf> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != VERSION {
            return Err(corrupt("a leaf has no known version"));
        }
        let flags = reader.u8()?;
        let mask = reader.u64()?;
        let trim = if flags & HAS_TRIM != 0 { reader.u64()? } else { 0 };
        let slot = |reader: &mut Reader<'_>| {
            let (tag, _stored, block) = (reader.u8()?, reader.u8()?, reader.u16()?);
            let (segment, crc, birth) = (SegmentId(reader.u32()?), reader.u32()?, reader.u32()?);
            match tag {
                tag::HOLE => Ok(Slot::Hole),
                tag::LOCAL => Ok(Slot::Local { place: Place { segment, block }, crc, birth }),
                tag::MISSING => Ok(Slot::Local { place: Place::MISSING, crc, birth }),
                _ => Err(corrupt("a leaf's slot has no known tag")),
            }
        };
        let slots = (0..mask.count_ones()).map(|_| slot(&mut reader)).collect::<Result<_>>()?;
        if !reader.is_empty() {
            return Err(corrupt("a leaf has bytes after its last slot"));
        }
        Ok(Leaf { mask, slots, trim })
    }
}

/// Lays patch bytes over leaf bytes without decoding the slots: what the index engine's merge operator calls.
/// Associative. Bytes that are no leaf yield an empty value, which `decode` reports as corrupt when it is read.
pub fn merge(value: Option<&[u8]>, patch: &[u8]) -> Vec<u8> {
    let Some(value) = value else { return patch.to_vec() };
    let (Some(below), Some(above)) = (split(value), split(patch)) else {
        return Vec::new();
    };
    let mut out = head(below.mask | above.mask, below.trim.max(above.trim));
    let (mut below_slots, mut above_slots) = (below.slots.iter(), above.slots.iter());
    for index in 0..BLOCKS_PER_LEAF {
        let bit = 1u64 << index;
        let lower = if below.mask & bit != 0 { below_slots.next() } else { None };
        let upper = if above.mask & bit != 0 { above_slots.next() } else { None };
        let Some(slot) = upper.or(lower) else { continue };
        out.extend_from_slice(slot);
        let moved = tag::maps(slot[0]) && slot[BIRTH..] == BIRTH_KEPT.to_le_bytes();
        if let (true, Some(lower)) = (moved, lower) {
            let birth = out.len() - (SLOT_BYTES - BIRTH);
            let lost = BIRTH_LOST.to_le_bytes();
            out[birth..].copy_from_slice(if tag::maps(lower[0]) { &lower[BIRTH..] } else { &lost });
        }
    }
    assert!(split(&out).is_some(), "what is laid over a leaf leaves a leaf");
    out
}

/// The bytes before the slots, with room for those.
fn head(mask: u64, trim: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES + TRIM_BYTES + SLOT_BYTES * mask.count_ones() as usize);
    match trim {
        0 => Writer(&mut out).u8(VERSION).u8(0).u64(mask),
        _ => Writer(&mut out).u8(VERSION).u8(HAS_TRIM).u64(mask).u64(trim),
    };
    assert!(out.len() == HEAD_BYTES + if trim == 0 { 0 } else { TRIM_BYTES }, "`split` finds the slots behind it");
    out
}

/// A leaf's bytes, of which few slots are read.
pub struct Encoded<'a>(Parts<'a>);

impl Encoded<'_> {
    /// Errors: `Corrupt` if the bytes are no leaf.
    pub fn new(bytes: &[u8]) -> Result<Encoded<'_>> {
        match bytes.len() >= HEAD_BYTES {
            true => split(bytes).map(Encoded).ok_or_else(|| corrupt("these bytes are no leaf")),
            false => Err(corrupt("a leaf is cut off")),
        }
    }
    /// Number of slots that are set.
    pub fn len(&self) -> usize {
        self.0.slots.len()
    }
    /// True if no slot is set.
    pub fn is_empty(&self) -> bool {
        self.0.slots.is_empty()
    }
    /// The place of a block, `Place::MISSING` if the brick lacks it; None if the leaf does not map it. Errors: `Corrupt`.
    pub fn place(&self, index: usize) -> Result<Option<Place>> {
        assert!(index < BLOCKS_PER_LEAF, "block {index} is another leaf's");
        let bit = 1u64 << index;
        if self.0.mask & bit == 0 {
            return Ok(None);
        }
        place(&self.0.slots[(self.0.mask & (bit - 1)).count_ones() as usize])
    }
    /// The places of its blocks, those included that the brick lacks; `Corrupt` for a slot of no known kind.
    pub fn places(&self) -> impl Iterator<Item = Result<Place>> + '_ {
        self.0.slots.iter().filter_map(|slot| place(slot).transpose())
    }
    /// The trim number; see `Leaf::trim`.
    pub fn trim(&self) -> u64 {
        self.0.trim
    }
}

/// The place of the block of an encoded slot; None for a hole.
fn place(slot: &[u8; SLOT_BYTES]) -> Result<Option<Place>> {
    match slot[0] {
        tag::HOLE => Ok(None),
        tag::LOCAL => {
            let block = u16::from_le_bytes([slot[2], slot[3]]);
            let segment = SegmentId(u32::from_le_bytes([slot[4], slot[5], slot[6], slot[7]]));
            Ok(Some(Place { segment, block }))
        }
        tag::MISSING => Ok(Some(Place::MISSING)),
        _ => Err(corrupt("a leaf's slot has no known tag")),
    }
}

/// A leaf's bytes, taken apart.
struct Parts<'a> {
    mask: u64,
    trim: u64,
    slots: &'a [[u8; SLOT_BYTES]],
}

fn split(bytes: &[u8]) -> Option<Parts<'_>> {
    let mask = u64::from_le_bytes(bytes.get(2..HEAD_BYTES)?.try_into().ok()?);
    let (trim, slots) = match bytes[1] & HAS_TRIM {
        0 => (0, &bytes[HEAD_BYTES..]),
        _ => {
            let (trim, slots) = bytes[HEAD_BYTES..].split_first_chunk::<TRIM_BYTES>()?;
            (u64::from_le_bytes(*trim), slots)
        }
    };
    let (slots, rest) = slots.as_chunks::<SLOT_BYTES>();
    let whole = bytes[0] == VERSION && rest.is_empty() && slots.len() == mask.count_ones() as usize;
    whole.then_some(Parts { mask, trim, slots })
}
