//! The support of bricks for each other: one value per brick, not per group, and pure: times come in as nanoseconds of the
//! brick's own clock, which counts suspended time (rule Q4) and goes on when a process ends.
//!
//! A brick that leads groups asks each other brick for support every 400 ms. One that grants it promises for 2 s of its clock neither to
//! vote nor to campaign against the asker (rule P4); the asker counts 9/10 of that, from the moment at which it asked. The grant
//! belongs to an *spell* of the giver, which ends when its support does and never comes back, so that who acknowledged a leader's term
//! in an earlier spell does not count for its lease. Stamps of asks rise, so what comes late or twice changes nothing.

use base::seeded::{self, Bug};
use std::collections::BTreeMap;

/// Nanoseconds of a brick's clock.
pub type Nanos = u64;

/// The time for which support is promised, by the giver's clock.
pub const PROMISE_NS: Nanos = 2_000_000_000;
/// The time for which it counts, by the asker's clock from its asking: 9/10, so that clocks may differ by a tenth.
pub const COUNTED_NS: Nanos = PROMISE_NS / 10 * 9;
/// The silence of a brick after its start: a promise of its former process may stand for so long, on a clock that is slower by
/// a tenth.
pub const SILENCE_NS: Nanos = PROMISE_NS / 9 * 10;
/// The time after which an asker that has heard nothing of the giver is supported no longer (rule P5).
pub const DEAF_NS: Nanos = 4_000_000_000;
/// A log write that has been under way for so long is taken for hung: its brick asks for no support (rule P6).
pub const HUNG_NS: Nanos = 1_000_000_000;
/// The time between two asks of a pair: four may be lost or late before support ends.
pub const ASK_EVERY_NS: Nanos = 400_000_000;

const _: () = assert!(COUNTED_NS < PROMISE_NS && PROMISE_NS < SILENCE_NS);
const _: () = assert!(ASK_EVERY_NS * 4 < COUNTED_NS && PROMISE_NS < DEAF_NS);

/// True if a log hangs whose oldest write under way has been so since then.
pub fn hangs(oldest_write: Option<Nanos>, now: Nanos) -> bool {
    oldest_write.is_some_and(|since| now.saturating_sub(since) >= HUNG_NS)
}

/// A brick, by its uuid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct BrickId(pub u128);

/// The epoch of a brick's log: each process that serves the brick has a higher one (rule L3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch(pub u64);

/// A time of unbroken support, as its giver numbers them. The process that numbers is part of it, so none comes twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Spell {
    /// The giver's process.
    pub epoch: Epoch,
    /// The spell's number there.
    pub number: u64,
}

/// The end of a brick's process before this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// It may have promised support to somebody.
    Somehow,
    /// It said durably that it supported nobody, as the last thing that it did. The note is for one start: who starts takes it
    /// away durably first.
    SupportingNobody,
}

/// The asker's wish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// Support me for another while.
    Support,
    /// Let your promise run out; I only show that I am here.
    Nothing,
    /// I count on your support no longer: you are free at once.
    Freedom,
}

/// A stamp of a brick's clock, and the process that made it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Stamp {
    /// The process.
    pub epoch: Epoch,
    /// Its time; such stamps of one process differ.
    pub at: Nanos,
}

/// A question from one brick to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// The asker's process and clock.
    pub asked: Stamp,
    /// The wish.
    pub wish: Wish,
    /// The stamp of the latest answer that the asker has had from the one that it asks.
    pub seen: Option<Stamp>,
}

/// The answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The stamp of the question.
    pub asked: Stamp,
    /// The giver's process and clock.
    pub answered: Stamp,
    /// The number of the spell, of the giver's process, if it grants support.
    pub spell: Option<u64>,
}

/// Support that this brick gives.
#[derive(Clone, Copy, Debug)]
struct Given {
    spell: u64,
    until: Nanos,
}

/// Support that this brick has.
#[derive(Clone, Copy, Debug)]
struct Had {
    spell: Spell,
    until: Nanos,
}

/// Another brick.
#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    /// Its latest question.
    asked: Option<Stamp>,
    given: Option<Given>,
    had: Option<Had>,
    /// Its latest answer.
    seen: Option<Stamp>,
    /// The time of the first one of its process.
    first_seen: Nanos,
}

/// All that a brick knows of supporting others and of being supported.
#[derive(Debug)]
pub struct Supports {
    epoch: Epoch,
    /// The end of the silence after the start.
    silent_until: Nanos,
    /// True once the brick gives no more support: its process is about to end.
    is_ending: bool,
    /// Spells that were begun, of all peers.
    spells: u64,
    /// The latest stamp of a question.
    stamp: Nanos,
    /// Answers to questions up to this stamp don't count: support was given back after them.
    floor: Nanos,
    peers: BTreeMap<BrickId, Peer>,
}

impl Supports {
    /// A brick's state at the start of its process.
    pub fn open(epoch: Epoch, ended: Ended, now: Nanos) -> Supports {
        let is_silent = ended == Ended::Somehow && !seeded::active(Bug::VoteAfterStart);
        let silent_until = if is_silent { now + SILENCE_NS } else { now };
        Supports { epoch, silent_until, is_ending: false, spells: 0, stamp: 0, floor: 0, peers: BTreeMap::new() }
    }
    /// The question to ask of `to` now. `oldest_write` says since when the oldest log write under way has been so.
    pub fn ask(&mut self, to: BrickId, oldest_write: Option<Nanos>, now: Nanos) -> Ask {
        let hangs = hangs(oldest_write, now) && !seeded::active(Bug::HungDiskAsks);
        let wish = if hangs || self.is_ending { Wish::Nothing } else { Wish::Support };
        self.question(to, wish, now)
    }
    /// Gives back all support that the brick has: who led by it leads no longer. The questions tell the others.
    pub fn give_back(&mut self, now: Nanos) -> Vec<(BrickId, Ask)> {
        self.peers.values_mut().for_each(|peer| peer.had = None);
        self.floor = now.max(self.stamp);
        let peers: Vec<BrickId> = self.peers.keys().copied().collect();
        peers.into_iter().map(|to| (to, self.question(to, Wish::Freedom, now))).collect()
    }
    fn question(&mut self, to: BrickId, wish: Wish, now: Nanos) -> Ask {
        // A nanosecond into the future makes it differ from the one before.
        self.stamp = now.max(self.stamp + 1);
        let seen = self.peers.entry(to).or_default().seen;
        Ask { asked: Stamp { epoch: self.epoch, at: self.stamp }, wish, seen }
    }
    /// Another brick's question: the answer, unless a later one came before it.
    pub fn asked(&mut self, from: BrickId, ask: Ask, now: Nanos) -> Option<Answer> {
        let hears = self.hears(ask.seen, now);
        let peer = self.peers.entry(from).or_default();
        if peer.asked >= Some(ask.asked) {
            return None;
        }
        let is_same_process = peer.asked.is_some_and(|before| before.epoch == ask.asked.epoch);
        peer.asked = Some(ask.asked);
        peer.given = peer.given.filter(|given| is_same_process && given.until > now && ask.wish != Wish::Freedom);
        assert!(peer.given.is_none_or(|given| given.until <= now + PROMISE_NS), "no promise is longer than any");
        let grants = ask.wish == Wish::Support && hears && !self.is_ending;
        if grants {
            let spell = peer.given.map_or_else(
                || {
                    self.spells += 1;
                    self.spells
                },
                |given| given.spell,
            );
            peer.given = Some(Given { spell, until: now + PROMISE_NS });
        }
        let spell = peer.given.filter(|_| grants).map(|given| given.spell);
        Some(Answer { asked: ask.asked, answered: Stamp { epoch: self.epoch, at: now }, spell })
    }
    /// True if who has seen this answer of ours has heard us lately.
    fn hears(&self, seen: Option<Stamp>, now: Nanos) -> bool {
        let lately = |seen: Stamp| seen.epoch == self.epoch && now.saturating_sub(seen.at) < DEAF_NS;
        seen.is_some_and(lately) || seeded::active(Bug::SupportOneWay)
    }
    /// An answer to a question of ours. True if it is the first one of its giver's process: no question before it can have been granted
    /// (rule P5), so the next one need not wait.
    pub fn answered(&mut self, from: BrickId, answer: Answer, now: Nanos) -> bool {
        let peer = self.peers.entry(from).or_default();
        let is_first = peer.seen.is_none_or(|seen| seen.epoch < answer.answered.epoch);
        peer.first_seen = if is_first { now } else { peer.first_seen };
        peer.seen = peer.seen.max(Some(answer.answered));
        self.count(from, answer, now);
        is_first
    }
    /// Counts the support that an answer grants.
    fn count(&mut self, from: BrickId, answer: Answer, now: Nanos) {
        // Nobody answers what was not asked; who says so is not believed.
        let was_asked = answer.asked.epoch == self.epoch && answer.asked.at <= self.stamp;
        if !was_asked || answer.asked.at <= self.floor {
            return;
        }
        let Some(number) = answer.spell else { return };
        let spell = Spell { epoch: answer.answered.epoch, number };
        let asked = if seeded::active(Bug::LeaseFromAnswer) { now } else { answer.asked.at };
        let until = asked + COUNTED_NS;
        let peer = self.peers.entry(from).or_default();
        let known = peer.had.filter(|had| had.spell >= spell);
        if known.is_none_or(|had| had.spell == spell && had.until < until) {
            peer.had = Some(Had { spell, until });
        }
    }
    /// The spell in which this brick supports another one now.
    pub fn given(&self, to: BrickId, now: Nanos) -> Option<Spell> {
        let given = self.peers.get(&to)?.given.filter(|given| given.until > now)?;
        Some(Spell { epoch: self.epoch, number: given.spell })
    }
    /// The time at which another one that this brick supports now asked for that last, as the brick granted it.
    pub fn asked_ns(&self, by: BrickId, now: Nanos) -> Option<Nanos> {
        let given = self.peers.get(&by)?.given.filter(|given| given.until > now)?;
        Some(given.until - PROMISE_NS)
    }
    /// The spell in which another brick supports this one now.
    pub fn had(&self, from: BrickId, now: Nanos) -> Option<Spell> {
        let had = self.peers.get(&from)?.had?;
        (had.until > now || seeded::active(Bug::LeaseOutlivesSupport)).then_some(had.spell)
    }
    /// True while another brick may be silent after its start: nothing was heard of it before.
    pub fn is_new(&self, brick: BrickId, now: Nanos) -> bool {
        self.peers.get(&brick).is_none_or(|peer| peer.seen.is_none() || now < peer.first_seen + SILENCE_NS)
    }
    /// True while a promise of the brick's former process may stand: it neither votes nor campaigns (rule P17).
    pub fn is_silent(&self, now: Nanos) -> bool {
        now < self.silent_until
    }
    /// Gives and asks for no more support: the process is about to end.
    pub fn end(&mut self) {
        self.is_ending = true;
    }
    /// True if the process may end saying that it supports nobody: neither it nor the one before has a promise that stands.
    pub fn supports_nobody(&self, now: Nanos) -> bool {
        let stands = |peer: &Peer| peer.given.is_some_and(|given| given.until > now);
        self.is_ending && !self.is_silent(now) && !self.peers.values().any(stands)
    }
}

#[cfg(test)]
mod tests;
