//! Transfers that a concurrency limit holds back: those of each flow in their order, and flows in turns.

use std::collections::VecDeque;

/// The transfers of one kind that are held back on a core, by number.
#[derive(Default)]
pub(super) struct Held {
    /// Lines by flow; that of the program's own is the first.
    lines: Vec<VecDeque<usize>>,
    /// The line whose turn it is.
    turn: usize,
    count: usize,
}

impl Held {
    /// Holds a transfer of a flow back.
    pub fn push(&mut self, flow: usize, transfer: usize) {
        if self.lines.len() <= flow {
            self.lines.resize_with(flow + 1, VecDeque::new);
        }
        self.lines[flow].push_back(transfer);
        self.count += 1;
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
        let lines = self.lines.len();
        let next = (0..lines).map(|step| (self.turn + step) % lines).find(|line| !self.lines[*line].is_empty())?;
        self.turn = next + 1;
        self.count -= 1;
        self.lines[next].pop_front()
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
}
