//! A brick's log: one stream of items, written batch by batch; a crash keeps what is durable, and any part of what is under way.

use crate::random::Random;
use base::{Index, ReplicaId, Term};
use order_raft::{HardState, Position, Record, Shadow, TermRuns, Ticket};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
pub enum Item {
    Record(Record),
    Vote(Term, Option<ReplicaId>),
    /// A hint of what is committed.
    Commit(Index),
    /// Records up to this one are kept no longer.
    Truncated(Position),
}

#[derive(Clone, Copy, Debug)]
pub struct Write {
    pub number: u64,
    pub since: u64,
    end: usize,
    ticket: Option<Ticket>,
}

pub type Records = BTreeMap<u64, (Term, Shadow)>;

#[derive(Default)]
pub struct Disk {
    items: Vec<Item>,
    durable: usize,
    ticket: Option<Ticket>,
    writes: u64,
    pub under_way: Option<Write>,
    /// The write under way is done but for the hang.
    pub is_stuck: bool,
    pub hangs: bool,
    /// Every write takes so much longer, in nanoseconds.
    pub slowness: u64,
    /// Records that are durable.
    pub settled: Records,
}

/// The state that replay finds.
pub struct Found {
    pub hard: HardState,
    pub runs: TermRuns,
    pub records: Records,
}

fn apply(records: &mut Records, item: &Item) {
    match item {
        Item::Record(record) => {
            records.split_off(&record.position.index.0);
            records.insert(record.position.index.0, (record.position.term, record.shadow));
        }
        Item::Truncated(to) => *records = records.split_off(&(to.index.0 + 1)),
        Item::Vote(..) | Item::Commit(_) => {}
    }
}

impl Disk {
    pub fn append(&mut self, items: impl IntoIterator<Item = Item>, ticket: Option<Ticket>) {
        self.items.extend(items);
        self.ticket = ticket.or(self.ticket);
    }
    /// Begins to write what waits, if nothing is under way: the write's number and how long it takes.
    pub fn begin(&mut self, now: u64, random: &mut Random) -> Option<(u64, u64)> {
        if self.under_way.is_some() || self.durable == self.items.len() {
            return None;
        }
        self.writes += 1;
        let ticket = self.ticket.take();
        self.under_way = Some(Write { number: self.writes, since: now, end: self.items.len(), ticket });
        let time = random.within(20_000..200_000) + random.within(0..self.slowness + 1);
        Some((self.writes, time))
    }
    /// The write's device is done: what was so made durable, unless the disk hangs.
    pub fn done(&mut self, number: u64) -> Option<Ticket> {
        let write = self.under_way.filter(|write| write.number == number)?;
        if self.hangs {
            self.is_stuck = true;
            return None;
        }
        self.under_way = None;
        self.is_stuck = false;
        self.settle(write.end);
        write.ticket
    }
    fn settle(&mut self, end: usize) {
        self.items[self.durable..end].iter().for_each(|item| apply(&mut self.settled, item));
        self.durable = end;
    }
    /// True if all that was given is durable.
    pub fn is_clean(&self) -> bool {
        self.durable == self.items.len()
    }
    /// The end of the process: of what was under way some of the beginning is there.
    pub fn crash(&mut self, random: &mut Random) {
        let end = self.under_way.take().map_or(self.durable, |write| write.end);
        let kept = self.durable + random.index(end - self.durable + 1);
        self.items.truncate(kept);
        self.settle(kept);
        (self.ticket, self.is_stuck) = (None, false);
    }
    pub fn replay(&self) -> Found {
        assert!(self.is_clean() && self.under_way.is_none());
        let mut hard = HardState::default();
        let mut runs = TermRuns::default();
        for item in &self.items {
            match item {
                Item::Record(record) => runs.push(record.position),
                Item::Vote(term, vote) => (hard.term, hard.vote) = (*term, *vote),
                Item::Commit(index) => hard.commit = *index,
                Item::Truncated(to) => runs.keep_from(Index(to.index.0 + 1)),
            }
        }
        Found { hard, runs, records: self.settled.clone() }
    }
}
