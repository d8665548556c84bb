//! Connections between bricks: two in each direction of a pair, one for messages of orders and one for support. Each keeps its order,
//! they don't among each other, and what was under way when a connection was cut may be lost or come late.

use crate::random::Random;
use order_raft::Message;
use order_raft::support::{Answer, Ask};
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub enum Packet {
    Order(Message),
    Ask(Ask),
    Answer(Answer),
}

/// A direction between two bricks, by their numbers.
pub type Way = (usize, usize);

#[derive(Default)]
struct Lane {
    /// Nothing arrives before what was sent earlier.
    last: u64,
    /// The time until which everything is late, and by how much.
    late: (u64, u64),
}

#[derive(Default)]
pub struct Network {
    cut: BTreeMap<Way, bool>,
    generations: BTreeMap<Way, u64>,
    lanes: BTreeMap<(Way, bool), Lane>,
}

impl Network {
    pub fn is_cut(&self, way: Way) -> bool {
        self.cut.get(&way).copied().unwrap_or(false)
    }
    pub fn generation(&self, way: Way) -> u64 {
        self.generations.get(&way).copied().unwrap_or(0)
    }
    pub fn cut(&mut self, way: Way) {
        self.cut.insert(way, true);
        self.renew(way);
    }
    /// The way is open again, by another connection.
    pub fn heal(&mut self, way: Way) {
        self.cut.insert(way, false);
        self.renew(way);
    }
    pub fn renew(&mut self, way: Way) {
        *self.generations.entry(way).or_default() += 1;
        for is_support in [false, true] {
            self.lanes.insert((way, is_support), Lane::default());
        }
    }
    pub fn make_late(&mut self, way: Way, is_support: bool, until: u64, by: u64) {
        self.lanes.entry((way, is_support)).or_default().late = (until, by);
    }
    pub fn calm(&mut self) {
        self.lanes.values_mut().for_each(|lane| lane.late = (0, 0));
    }
    /// The arrival of a packet that is sent now; `None` if it is lost.
    pub fn arrival(&mut self, way: Way, packet: &Packet, now: u64, random: &mut Random) -> Option<u64> {
        if self.is_cut(way) {
            return None;
        }
        let lane = self.lanes.entry((way, !matches!(packet, Packet::Order(_)))).or_default();
        let mut time = random.within(50_000..300_000);
        if random.chance(20) {
            time += random.within(0..20_000_000);
        }
        if lane.late.0 > now {
            time += random.within(0..lane.late.1 + 1);
        }
        lane.last = lane.last.max(now + time);
        Some(lane.last)
    }
}
