//! The set of blocks that is overwritten, as the store would map it: each write goes to the next place of the log.

use runtime::random::SplitMix;
use store::index::IndexEdit;

pub const SLOTS: usize = 64;
pub const SLOT_BYTES: usize = 16;
/// Blocks of a 64 MiB segment.
const SEGMENT_BLOCKS: u64 = 16_384;

pub type Slot = [u8; SLOT_BYTES];

pub struct Set {
    slots: Vec<Slot>,
    random: SplitMix,
    /// Places handed out so far.
    next: u64,
    segments: Vec<Segment>,
}

#[derive(Clone)]
struct Segment {
    live: Vec<u8>,
    changed: bool,
}

/// A block that a checkpoint changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Changed {
    pub leaf: u64,
    pub slot: usize,
}

impl Set {
    /// A set of `blocks`, all written once in order.
    pub fn new(blocks: u64, seed: u64) -> Set {
        assert!(blocks.is_multiple_of(SLOTS as u64));
        let slots = vec![[0; SLOT_BYTES]; blocks as usize];
        let mut set = Set { slots, random: SplitMix(seed), next: 0, segments: Vec::new() };
        (0..blocks as usize).for_each(|block| set.write(block));
        set
    }
    pub fn leaves(&self) -> u64 {
        (self.slots.len() / SLOTS) as u64
    }
    pub fn leaf(&self, leaf: u64) -> &[Slot; SLOTS] {
        let first = leaf as usize * SLOTS;
        self.slots[first..first + SLOTS].try_into().expect("64 slots")
    }
    pub fn slot(&self, changed: Changed) -> Slot {
        self.leaf(changed.leaf)[changed.slot]
    }
    pub fn random_leaf(&mut self) -> u64 {
        let leaves = self.leaves();
        self.random.below(leaves)
    }

    fn write(&mut self, block: usize) {
        let old = self.slots[block];
        if old[0] != 0 {
            let at = u16::from_le_bytes([old[2], old[3]]);
            self.mark(u32::from_le_bytes([old[4], old[5], old[6], old[7]]) as usize, at, false);
        }
        let (segment, at) = ((self.next / SEGMENT_BLOCKS) as u32, (self.next % SEGMENT_BLOCKS) as u16);
        self.next += 1;
        self.mark(segment as usize, at, true);
        let slot = &mut self.slots[block];
        // Tag, room for a stored length, block and segment of the place, checksum, birth epoch.
        slot[0] = 1;
        slot[2..4].copy_from_slice(&at.to_le_bytes());
        slot[4..8].copy_from_slice(&segment.to_le_bytes());
        slot[8..12].copy_from_slice(&(self.random.next() as u32).to_le_bytes());
        slot[12..].copy_from_slice(&7u32.to_le_bytes());
    }
    fn mark(&mut self, segment: usize, at: u16, live: bool) {
        if segment == self.segments.len() {
            self.segments.push(Segment { live: vec![0; SEGMENT_BLOCKS as usize / 8], changed: true });
        }
        let segment = &mut self.segments[segment];
        let (byte, bit) = (usize::from(at / 8), 1 << (at % 8));
        segment.live[byte] = if live { segment.live[byte] | bit } else { segment.live[byte] & !bit };
        segment.changed = true;
    }

    /// Overwrites blocks at random; returns those that changed, in key order, each once.
    pub fn overwrite(&mut self, writes: u64) -> Vec<Changed> {
        let blocks = self.slots.len() as u64;
        let mut changed: Vec<Changed> = (0..writes)
            .map(|_| {
                let block = self.random.below(blocks);
                self.write(block as usize);
                Changed { leaf: block / SLOTS as u64, slot: (block % SLOTS as u64) as usize }
            })
            .collect();
        changed.sort_unstable();
        changed.dedup();
        changed
    }

    /// The rows of segments whose live bitmap changed since the last call.
    pub fn segment_rows(&mut self) -> Vec<IndexEdit> {
        let mut rows = Vec::new();
        for (number, segment) in self.segments.iter_mut().enumerate().filter(|(_, segment)| segment.changed) {
            segment.changed = false;
            let mut key = vec![0xff; 4];
            key.extend_from_slice(&[0, 0, 0, 0, 0x30]);
            key.extend_from_slice(&(number as u32).to_be_bytes());
            rows.push(IndexEdit::Put(key, segment.live.clone()));
        }
        rows
    }
}
