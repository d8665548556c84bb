//! The order of a recording's operations: which had been answered before another began, and how many were under way at a time.

use crate::operation::Operation;

/// The order of operations that are sorted by their beginning.
pub struct Overlap {
    /// The number, by operation, of those that had been answered when it began. Ascends, and those are the first ones by their end.
    pub ended_before: Vec<u32>,
    /// The position of each operation by the end.
    pub position_by_end: Vec<u32>,
    /// Largest number of operations under way at a time.
    pub depth_max: usize,
}

impl Overlap {
    /// The order of these operations.
    pub fn of(operations: &[Operation]) -> Overlap {
        assert!(operations.is_sorted_by_key(|operation| operation.start_ns), "a recording is sorted");
        let mut by_end: Vec<u32> = (0..operations.len() as u32).collect();
        // One that began no later is never behind one of the same end: it must not wait for what began after it.
        by_end.sort_by_key(|&at| (operations[at as usize].answered_ns(), at));
        let mut position_by_end = vec![0; operations.len()];
        (0u32..).zip(&by_end).for_each(|(position, &at)| position_by_end[at as usize] = position);
        let (mut ended, mut depth_max) = (0, 0);
        let mut ended_before = Vec::with_capacity(operations.len());
        for (at, operation) in operations.iter().enumerate() {
            let has_ended =
                |&other: &u32| operations[other as usize].answered_ns() <= operation.start_ns && (other as usize) < at;
            while by_end.get(ended).is_some_and(has_ended) {
                ended += 1;
            }
            ended_before.push(ended as u32);
            depth_max = depth_max.max(at + 1 - ended);
        }
        Overlap { ended_before, position_by_end, depth_max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Deed;

    #[test]
    fn what_had_ended_comes_first_and_what_overlapped_may_overlap() {
        let of = |(start_ns, duration_ns)| Operation { start_ns, duration_ns, ..Operation::new(Deed::Read, 1) };
        let operations = [(0, 10), (1, 30), (5, 4), (10, 5), (12, 1), (40, 0), (40, 0)].map(of);
        let overlap = Overlap::of(&operations);
        assert_eq!(overlap.ended_before, [0, 0, 0, 2, 2, 5, 6]);
        assert_eq!(overlap.position_by_end, [1, 4, 0, 3, 2, 5, 6]);
        assert_eq!(overlap.depth_max, 3);
        assert_eq!(Overlap::of(&[]).depth_max, 0);
    }
}
