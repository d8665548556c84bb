//! The forms that are compared: what a checkpoint writes for changed blocks, and how a leaf is read back.

use crate::set::{Changed, SLOT_BYTES, SLOTS, Set, Slot};
use base::Result;
use index_rocksdb::RocksIndex;
use store::index::{Index, IndexEdit};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// The whole leaf is put. The reads that the store would need to have it at hand are not counted.
    Whole,
    /// A merge operand with the changed slots.
    Patch,
    /// A key per block.
    Block,
}

impl Form {
    pub fn parse(name: &str) -> Option<Form> {
        [Form::Whole, Form::Patch, Form::Block].into_iter().find(|form| form.name() == name)
    }
    pub fn name(self) -> &'static str {
        match self {
            Form::Whole => "whole",
            Form::Patch => "patch",
            Form::Block => "block",
        }
    }
}

/// Leaves of one inode: 512 MiB.
const LEAVES_PER_INODE: u64 = 2048;

/// The key of a leaf, or of the block `number / 1` of an inode: 29 bytes as the store's are.
fn key(leaf: u64, number: u64) -> Vec<u8> {
    let (inode, volume, group) = (leaf / LEAVES_PER_INODE, 1u32, (leaf / LEAVES_PER_INODE % 64) as u32);
    let mut key = Vec::with_capacity(29);
    key.extend_from_slice(&group.to_be_bytes());
    key.extend_from_slice(&volume.to_be_bytes());
    key.push(0x14);
    key.extend_from_slice(&((inode + 2) << 20 | u64::from(group)).to_be_bytes());
    key.extend_from_slice(&number.to_be_bytes());
    key.extend_from_slice(&0u32.to_be_bytes());
    assert!(key.len() == 29);
    key
}

fn leaf_key(leaf: u64) -> Vec<u8> {
    key(leaf, leaf % LEAVES_PER_INODE)
}

fn block_key(leaf: u64, slot: usize) -> Vec<u8> {
    key(leaf, leaf % LEAVES_PER_INODE * SLOTS as u64 + slot as u64)
}

/// Bytes of a sparse leaf: a mask, then the slots of its set bits.
fn sparse(slots: impl Iterator<Item = (usize, Slot)>) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    let mut mask = 0u64;
    for (index, slot) in slots {
        mask |= 1 << index;
        bytes.extend_from_slice(&slot);
    }
    bytes[..8].copy_from_slice(&mask.to_le_bytes());
    bytes
}

/// Bytes of a full leaf.
pub fn whole(slots: &[Slot; SLOTS]) -> Vec<u8> {
    sparse(slots.iter().copied().enumerate())
}

fn split(bytes: &[u8]) -> (u64, &[Slot]) {
    let (mask, slots) = bytes.split_first_chunk::<8>().expect("a mask");
    let (slots, rest) = slots.as_chunks::<SLOT_BYTES>();
    assert!(rest.is_empty());
    (u64::from_le_bytes(*mask), slots)
}

/// Lays a sparse leaf over another.
pub fn merge(value: Option<&[u8]>, patch: &[u8]) -> Vec<u8> {
    let Some(value) = value else { return patch.to_vec() };
    let ((below, lower), (above, upper)) = (split(value), split(patch));
    let mask = below | above;
    let mut out = Vec::with_capacity(8 + SLOT_BYTES * mask.count_ones() as usize);
    out.extend_from_slice(&mask.to_le_bytes());
    let (mut lower, mut upper, mut left) = (lower.iter(), upper.iter(), mask);
    while left != 0 {
        let bit = left & left.wrapping_neg();
        left ^= bit;
        let under = if below & bit != 0 { lower.next() } else { None };
        let over = if above & bit != 0 { upper.next() } else { None };
        out.extend_from_slice(over.or(under).expect("the bit is of one of them"));
    }
    out
}

/// The edits that put a whole leaf.
pub fn full(form: Form, set: &Set, leaf: u64) -> Vec<IndexEdit> {
    let slots = set.leaf(leaf);
    match form {
        Form::Whole | Form::Patch => vec![IndexEdit::Put(leaf_key(leaf), whole(slots))],
        Form::Block => {
            let put = |(slot, bytes): (usize, &Slot)| IndexEdit::Put(block_key(leaf, slot), bytes.to_vec());
            slots.iter().enumerate().map(put).collect()
        }
    }
}

/// The edits of a checkpoint for blocks that changed.
pub fn edits(form: Form, set: &Set, changed: &[Changed]) -> Vec<IndexEdit> {
    let of_leaf = |blocks: &[Changed]| {
        let leaf = blocks[0].leaf;
        match form {
            Form::Whole => full(form, set, leaf),
            Form::Patch => {
                let slots = blocks.iter().map(|&block| (block.slot, set.slot(block)));
                vec![IndexEdit::Patch(leaf_key(leaf), sparse(slots))]
            }
            Form::Block => {
                let put = |&block: &Changed| IndexEdit::Put(block_key(leaf, block.slot), set.slot(block).to_vec());
                blocks.iter().map(put).collect()
            }
        }
    };
    changed.chunk_by(|a, b| a.leaf == b.leaf).flat_map(of_leaf).collect()
}

/// Reads a leaf; all forms yield the same bytes.
pub fn read(form: Form, index: &RocksIndex, leaf: u64) -> Result<Vec<u8>> {
    match form {
        Form::Whole | Form::Patch => Ok(index.get(&leaf_key(leaf))?.unwrap_or_default()),
        Form::Block => {
            let (from, to) = (block_key(leaf, 0), block_key(leaf, SLOTS));
            let pairs = index.scan(&from, &to, SLOTS)?;
            let slots = pairs.iter().map(|(_, value)| value.as_slice().try_into().expect("16 bytes"));
            Ok(sparse(slots.enumerate()))
        }
    }
}
