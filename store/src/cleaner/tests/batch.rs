//! The batch: order, rounds, memory, and segments that come free one after the other.

use super::super::{Batch, Survivor};
use crate::format::summary::SummaryEntry;
use base::{GroupId, Index, Ino, Life, SegmentId, VolumeId};
use runtime::random::SplitMix;
use std::collections::BTreeMap;

fn entry(volume: u32, ino: u64, offset: u64) -> SummaryEntry {
    SummaryEntry {
        block: offset as u16,
        group: GroupId(0),
        volume: VolumeId(volume),
        ino: Ino(ino),
        offset,
        index: Index(1),
        crc: 7,
    }
}

fn batch_of(victims: &[(u32, &[u64])]) -> Batch {
    let mut batch = Batch::new(1 << 20);
    for (segment, offsets) in victims {
        batch.join(SegmentId(*segment), Life(1), offsets.iter().map(|&offset| entry(1, 1, offset)).collect());
    }
    batch
}

fn offsets(run: &[Survivor]) -> Vec<u64> {
    run.iter().map(|one| one.entry.offset).collect()
}

#[test]
fn survivors_of_all_victims_come_in_the_order_of_files() {
    let mut batch = Batch::new(1 << 20);
    batch.join(SegmentId(1), Life(3), vec![entry(2, 1, 0), entry(1, 9, 4), entry(1, 2, 8)]);
    batch.join(SegmentId(2), Life(4), vec![entry(1, 2, 9), entry(1, 9, 3), entry(1, 2, 7)]);
    let run = batch.next_run(256).expect("six blocks");
    let seen: Vec<_> = run.iter().map(|one| (one.entry.volume.0, one.entry.ino.0, one.entry.offset)).collect();
    assert_eq!(seen, [(1, 2, 7), (1, 2, 8), (1, 2, 9), (1, 9, 3), (1, 9, 4), (2, 1, 0)]);
    assert_eq!((run[0].segment, run[0].life, run[1].life), (SegmentId(2), Life(4), Life(3)));
    assert_eq!(batch.note_moved(&run), [(SegmentId(1), Life(3)), (SegmentId(2), Life(4))]);
    assert!(batch.next_run(256).is_none() && !batch.contains(SegmentId(1)));
}

#[test]
fn who_joins_late_is_served_from_the_sweep_on_and_then_from_the_beginning() {
    let mut batch = batch_of(&[(1, &[10, 20, 30, 40])]);
    let first = batch.next_run(2).expect("blocks are left");
    assert_eq!(offsets(&first), [10, 20]);
    batch.join(SegmentId(2), Life(1), [5, 20, 25, 45].map(|offset| entry(1, 1, offset)).into());
    let second = batch.next_run(256).expect("blocks are left");
    assert_eq!(offsets(&second), [20, 25, 30, 40, 45], "what lies before waits for the next round");
    assert_eq!(batch.left(), 1);
    let third = batch.next_run(256).expect("one is left");
    assert_eq!(offsets(&third), [5]);
    // A segment is emptied when all of its runs count, whichever comes last.
    assert_eq!(batch.note_moved(&third), []);
    assert_eq!(batch.note_moved(&first), []);
    assert_eq!(batch.note_moved(&second), [(SegmentId(1), Life(1)), (SegmentId(2), Life(1))]);
}

#[test]
fn a_victim_that_is_removed_is_never_said_to_be_emptied() {
    let mut batch = batch_of(&[(1, &[1, 3]), (2, &[2, 4])]);
    let run = batch.next_run(3).expect("four blocks");
    batch.remove(&run[0]);
    assert_eq!((batch.note_moved(&run), batch.left()), (vec![], 1));
    let rest = batch.next_run(3).expect("one is left");
    assert_eq!(batch.note_moved(&rest), [(SegmentId(2), Life(1))]);
}

#[test]
fn blocks_that_are_on_their_way_count_only_for_the_joining_that_gave_them() {
    let mut batch = batch_of(&[(1, &[1, 2, 3, 4])]);
    let (first, second) = (batch.next_run(2).expect("two blocks"), batch.next_run(2).expect("two more"));
    // A block of the first run could not be read, and the segment was chosen once more.
    batch.remove(&first[0]);
    batch.join(SegmentId(1), Life(1), [1, 2, 3].map(|offset| entry(1, 1, offset)).into());
    assert_eq!(batch.note_moved(&second), []);
    batch.remove(&second[0]);
    assert!(batch.contains(SegmentId(1)), "it has joined since");
    let all = batch.next_run(256).expect("three blocks");
    assert_eq!(batch.note_moved(&all), [(SegmentId(1), Life(1))]);
    batch.join(SegmentId(2), Life(1), vec![entry(1, 1, 9)]);
    batch.clear();
    assert!(batch.next_run(256).is_none() && !batch.contains(SegmentId(2)));
}

#[test]
fn memory_and_number_of_victims_are_bounded() {
    let mut batch = Batch::new(100 * 40);
    assert!(batch.wants(1_000, 2), "one always joins, or nothing would be destaged");
    batch.join(SegmentId(1), Life(1), (0..60).map(|offset| entry(1, 1, offset)).collect());
    assert!(!batch.wants(40, 4), "the next one comes later");
    batch.next_run(30);
    assert!(batch.wants(40, 4) && !batch.wants(41, 4) && !batch.wants(40, 1));
    assert!(!batch.wants(40, 2), "with half of the victims there, one follows the other");
    batch.next_run(22);
    assert!(batch.wants(40, 2));
    // What was given takes no memory, but the segment is not emptied yet.
    let rest = batch.next_run(256).expect("some are left");
    assert!(batch.wants(100, 2) && !batch.wants(101, 2) && !batch.wants(100, 1) && rest.len() == 8);
}

/// A stream of random victims: each block is given once, runs are sorted, and segments are emptied one after the other, soon as
/// many as join.
#[test]
fn segments_come_free_one_after_the_other() {
    const VICTIMS: usize = 16;
    const BLOCKS: u64 = 1_000;
    let random = &mut SplitMix(3);
    let mut batch = Batch::new(1 << 20);
    let (mut next, mut emptied_at, mut lumps) = (0, Vec::new(), 0);
    let mut left: BTreeMap<(u32, u64), u32> = BTreeMap::new();
    let mut pieces = 0;
    for run_number in 0..4_000_u64 {
        while batch.wants(BLOCKS as u32, VICTIMS) {
            let offsets: Vec<u64> = (0..BLOCKS).map(|_| random.below(1 << 30)).collect();
            offsets.iter().for_each(|&offset| *left.entry((next, offset)).or_default() += 1);
            batch.join(SegmentId(next), Life(1), offsets.iter().map(|&offset| entry(1, 1, offset)).collect());
            next += 1;
        }
        let run = batch.next_run(32).expect("there is always more");
        assert!(run.is_sorted_by_key(|one| one.entry.offset));
        for one in &run {
            let count = left.get_mut(&(one.segment.0, one.entry.offset)).expect("it was joined");
            *count = count.checked_sub(1).expect("each is given once");
        }
        pieces += u64::from(run.len() < 32);
        let emptied = batch.note_moved(&run);
        lumps = lumps.max(if run_number > 1_000 { emptied.len() } else { 0 });
        emptied_at.extend(emptied.iter().map(|_| run_number));
    }
    // 128,000 blocks are 128 victims, less those under way.
    assert!(emptied_at.len() > 110 && lumps <= 3, "{} segments, {lumps} at once", emptied_at.len());
    let gaps = emptied_at.windows(2).skip(32).map(|pair| pair[1] - pair[0]).max().expect("many");
    assert!(gaps <= 4 * BLOCKS / 32, "{gaps} runs without a segment");
    assert!(pieces <= emptied_at.len() as u64 / 4, "a run is cut short once in a round only: {pieces}");
}
