//! Transfers that a concurrency limit holds back: those of each flow in their order, and flows in turns, by the weights by which they are
//! charged for a core's time (start-time fair queueing, as in `shares`; each transfer costs the same).

use super::shares::WEIGHT_UNITS;
use base::limits::WEIGHT;
use std::collections::VecDeque;

/// Virtual time that a transfer takes at a weight of 1: great enough that no weight's quotient is rounded to nothing.
const TRANSFER: u64 = 1 << 40;

/// The transfers of one kind that are held back on a core, by number.
#[derive(Default)]
pub(super) struct Held {
    /// Lines by flow; that of the program's own is the first.
    lines: Vec<Line>,
    /// The start tag of the transfer that was taken last.
    virtual_time: u64,
    count: usize,
}

/// The transfers of one flow.
struct Line {
    transfers: VecDeque<usize>,
    /// The tag of its next turn.
    start: u64,
    weight: u64,
}

impl Held {
    /// Holds a transfer of a flow back.
    pub fn push(&mut self, flow: usize, transfer: usize) {
        let virtual_time = self.virtual_time;
        let line = self.line(flow);
        if line.transfers.is_empty() {
            line.start = line.start.max(virtual_time);
        }
        line.transfers.push_back(transfer);
        self.count += 1;
    }
    /// Gives a flow another weight.
    pub fn weigh(&mut self, flow: usize, weight: u64) {
        self.line(flow).weight = weight.max(1);
    }
    fn line(&mut self, flow: usize) -> &mut Line {
        let usual = WEIGHT * WEIGHT_UNITS;
        if self.lines.len() <= flow {
            self.lines.resize_with(flow + 1, || Line { transfers: VecDeque::new(), start: 0, weight: usual });
        }
        &mut self.lines[flow]
    }
    /// True if nothing is held back.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
    /// Takes the next transfer.
    pub fn pop(&mut self) -> Option<usize> {
        if self.count == 0 {
            return None;
        }
        let waiting = self.lines.iter_mut().filter(|line| !line.transfers.is_empty());
        let next = waiting.min_by_key(|line| line.start)?;
        self.virtual_time = next.start;
        next.start += TRANSFER / next.weight;
        self.count -= 1;
        next.transfers.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_take_turns_and_each_keeps_its_order() {
        let mut held = Held::default();
        assert_eq!((held.pop(), held.is_empty()), (None, true));
        (0..5).for_each(|transfer| held.push(1, transfer));
        held.push(3, 10);
        held.push(0, 20);
        held.push(0, 21);
        let order: Vec<_> = std::iter::from_fn(|| held.pop()).collect();
        assert_eq!(order, [20, 0, 10, 21, 1, 2, 3, 4]);
        assert!(held.is_empty());
        held.push(1, 5);
        assert_eq!(held.pop(), Some(5));
    }

    #[test]
    fn turns_are_by_weight_and_nothing_is_saved() {
        let mut held = Held::default();
        (0..1000).for_each(|transfer| held.push(1, transfer));
        assert!((0..500).all(|_| held.pop().is_some()));
        // The second one was not there, and gets no more than its part now.
        held.weigh(1, 300 * WEIGHT_UNITS);
        (1000..2000).for_each(|transfer| held.push(2, transfer));
        let first = (0..400).filter(|_| held.pop().is_some_and(|transfer| transfer < 1000)).count();
        assert!((299..=301).contains(&first), "{first}");
    }
}
