//! Changes of an input: what storage and people do to bytes, and what parsers stumble over.

use runtime::random::SplitMix;

/// Inputs don't grow beyond this: two batch header blocks and more than any row.
const BYTES_MAX: usize = 12 << 10;
/// Changes on top of each other, at most.
const CHANGES_MAX: u64 = 6;

/// A changed copy. `others`: what parts may be taken from; `words`: what a text's parser knows.
pub fn changed(input: &[u8], others: &[Vec<u8>], words: &[&str], rng: &mut SplitMix) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..1 + rng.below(CHANGES_MAX) {
        change(&mut bytes, others, words, rng);
        bytes.truncate(BYTES_MAX);
    }
    bytes
}

fn change(bytes: &mut Vec<u8>, others: &[Vec<u8>], words: &[&str], rng: &mut SplitMix) {
    let at = position(bytes.len(), rng);
    match rng.below(if words.is_empty() { 9 } else { 12 }) {
        _ if bytes.is_empty() => bytes.push(rng.next() as u8),
        0 => bytes[at] ^= 1 << rng.below(8),
        1 => bytes[at] = [0, 1, 2, 0x7f, 0x80, 0xff][rng.below(6) as usize],
        2 => bytes[at] = rng.next() as u8,
        3..5 => number(&mut bytes[at..], rng),
        5 => bytes.truncate(at),
        6 => {
            let end = (at + 1 + rng.below(16) as usize).min(bytes.len());
            bytes.drain(at..end);
        }
        7 => {
            let end = (at + 1 + rng.below(64) as usize).min(bytes.len());
            let part = bytes[at..end].to_vec();
            bytes.splice(at..at, part);
        }
        8 => {
            let other = &others[rng.below(others.len() as u64) as usize];
            let from = position(other.len(), rng);
            let part = other[from..(from + 1 + rng.below(64) as usize).min(other.len())].to_vec();
            let end = if rng.one_in(2) { at } else { (at + part.len()).min(bytes.len()) };
            bytes.splice(at..end, part);
        }
        _ => {
            let word = words[rng.below(words.len() as u64) as usize].as_bytes();
            let end = if rng.one_in(2) { at } else { (at + word.len()).min(bytes.len()) };
            bytes.splice(at..end, word.iter().copied());
        }
    }
}

/// A position; most fields lie near the beginning.
fn position(length: usize, rng: &mut SplitMix) -> usize {
    let within = match rng.below(3) {
        0 => length,
        1 => length.min(128),
        _ => length.min(32),
    };
    rng.below(within.max(1) as u64) as usize
}

/// A number at an edge of its type, or near what is there.
fn number(bytes: &mut [u8], rng: &mut SplitMix) {
    let size = [2, 4, 8][rng.below(3) as usize].min(bytes.len());
    let field = &mut bytes[..size];
    let old = field.iter().rev().fold(0u64, |number, &byte| number << 8 | u64::from(byte));
    let edges = [0, 1, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX >> 1, u64::MAX, u64::MAX - 1];
    let new = match rng.below(3) {
        0 => edges[rng.below(edges.len() as u64) as usize],
        1 => old.wrapping_add(1 + rng.below(16)),
        _ => old.wrapping_sub(1 + rng.below(16)),
    };
    field.copy_from_slice(&new.to_le_bytes()[..size]);
}
