//! The time that followers take to acknowledge what their leader sends them. It is compared with what it usually is, so it is told apart
//! by how much was under way: two appends at a time take each longer than one.

use base::Index;
use std::collections::VecDeque;

/// Numbers of appends under way that are told apart: 1, 2, 4 and so on.
const CLASSES: usize = 8;
/// Appends of which the time is remembered until they are acknowledged. The order has fewer under way.
const UNDER_WAY_MAX: usize = 1 << (CLASSES - 1);

/// Acknowledged appends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Acknowledged {
    /// Least number of them that were under way.
    pub depth: u64,
    /// Their number.
    pub count: u64,
    /// Nanoseconds from sending to acknowledgement, added up.
    pub took_ns: u64,
}

/// The acknowledgements of one follower. Appends whose records had to be read first are left out: they are for one that was away.
#[derive(Default)]
pub(crate) struct Acks {
    /// The last record of each append under way, when it was sent, and its class.
    under_way: VecDeque<(Index, u64, usize)>,
    classes: [(u64, u64); CLASSES],
    /// Records that became committed by this follower's acknowledgement.
    pub needed: u64,
}

impl Acks {
    /// An append was sent whose last record is this one.
    pub fn sent(&mut self, last: Index, now: u64) {
        if self.under_way.len() < UNDER_WAY_MAX {
            let class = (self.under_way.len() + 1).ilog2() as usize;
            self.under_way.push_back((last, now, class));
        }
    }
    /// All records up to this one are acknowledged.
    pub fn acknowledged(&mut self, matched: Index, now: u64) {
        while let Some((_, sent, class)) = self.under_way.pop_front_if(|(last, ..)| *last <= matched) {
            let (count, took_ns) = &mut self.classes[class];
            *count += 1;
            *took_ns += now.saturating_sub(sent);
        }
    }
    /// The connection broke, or the role ended: messages under way may never arrive.
    pub fn lost(&mut self) {
        self.under_way.clear();
    }
    /// The figures since this process began to lead for the first time.
    pub fn figures(&self) -> Vec<Acknowledged> {
        let classes = self.classes.iter().enumerate().filter(|(_, (count, _))| *count > 0);
        classes.map(|(class, &(count, took_ns))| Acknowledged { depth: 1 << class, count, took_ns }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_count_by_how_many_were_under_way() {
        let mut acks = Acks::default();
        acks.sent(Index(3), 100);
        acks.sent(Index(5), 110);
        acks.acknowledged(Index(4), 150);
        acks.acknowledged(Index(4), 160);
        acks.sent(Index(9), 170);
        acks.acknowledged(Index(9), 200);
        let told = |depth, count, took_ns| Acknowledged { depth, count, took_ns };
        assert_eq!(acks.figures(), [told(1, 1, 50), told(2, 2, 90 + 30)]);
        acks.sent(Index(10), 210);
        acks.lost();
        acks.acknowledged(Index(10), 300);
        assert_eq!(acks.figures().iter().map(|told| told.count).sum::<u64>(), 3, "what was lost was not acknowledged");
        (0..2 * UNDER_WAY_MAX as u64).for_each(|at| acks.sent(Index(20 + at), 400));
        assert_eq!(acks.under_way.len(), UNDER_WAY_MAX, "no more are remembered");
    }
}
