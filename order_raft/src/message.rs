//! Messages between the replicas of a group, and a record as an order knows it.

use crate::support::Spell;
use base::{Index, Term};

/// A record as the order knows it: the record itself stays with the caller, by its index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Shadow {
    /// The bytes of the record's replicated part.
    pub length: u32,
    /// Their checksum.
    pub crc: u32,
    /// The record's kind, in the caller's numbering; not `Shadow::TERM`'s.
    pub kind: u8,
}

impl Shadow {
    /// The shadow of the record with which a leader begins its term: the order proposes it by itself, the caller makes the
    /// record.
    pub const TERM: Shadow = Shadow { length: 0, crc: 0, kind: 0 };
    /// The bytes that a shadow takes in the protocol's library.
    pub(crate) const BYTES: usize = 16;

    pub(crate) fn to_bytes(self) -> [u8; Shadow::BYTES] {
        let mut bytes = [0; Shadow::BYTES];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.crc.to_le_bytes());
        bytes[8] = self.kind;
        bytes
    }
    /// The shadow of an entry's bytes: none are the library's own entry, a leader's first.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Shadow {
        if bytes.is_empty() {
            return Shadow::TERM;
        }
        assert_eq!(bytes.len(), Shadow::BYTES, "entries are made of shadows alone");
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        Shadow { length: word(0), crc: word(4), kind: bytes[8] }
    }
}

/// A place in a group's order: an index, and the term of the record there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position {
    /// The index; 0 is before the first record.
    pub index: Index,
    /// The record's term.
    pub term: Term,
}

/// A record for the log: its position and its shadow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The position.
    pub position: Position,
    /// The shadow; the record itself is the caller's.
    pub shadow: Shadow,
}

/// A record on its way to a follower: its index follows from the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The record's term.
    pub term: Term,
    /// Its shadow.
    pub shadow: Shadow,
}

/// The number of an append among those that an order has sent since it was opened. The answer repeats it, so that the leader
/// knows what it had been told when it asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Number(pub u64);

/// The two rounds of an election.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Nobody's term rises yet: would you vote for me?
    Ask,
    /// The vote itself, which is durable before it is given.
    Vote,
}

/// A message from one replica of the group to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The sender's term; in the first round of an election the next one.
    pub term: Term,
    /// The spell in which the sender's brick supported the receiver's when this was said (rule P4).
    pub under: Option<Spell>,
    /// The contents.
    pub body: Body,
}

/// The contents of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// Leader to follower: the records after `previous`, perhaps none.
    Append {
        /// The append's number.
        number: Number,
        /// The position before the first of the records.
        previous: Position,
        /// The leader's commit index.
        commit: Index,
        /// The records.
        entries: Vec<Entry>,
    },
    /// Follower to leader: the log is the leader's up to here, and durable.
    Appended {
        /// The append's number.
        number: Number,
        /// The last index that is.
        index: Index,
        /// The follower's commit index.
        commit: Index,
    },
    /// Follower to leader: there is no such record at `previous`.
    Refused {
        /// The append's number.
        number: Number,
        /// The index that the append named.
        index: Index,
        /// The latest position at which both logs may agree.
        hint: Position,
        /// The follower's commit index.
        commit: Index,
    },
    /// Candidate to all.
    Vote {
        /// The round.
        stage: Stage,
        /// The end of the candidate's log.
        last: Position,
        /// The end of what the candidate knows to be committed.
        commit: Position,
        /// True if the leader of the term before gave up its lease for this candidate.
        released: bool,
    },
    /// The answer to it. What is granted names the term that was asked for.
    Voted {
        /// The round.
        stage: Stage,
        /// True if the vote is the candidate's.
        granted: bool,
        /// The end of what the voter knows to be committed.
        commit: Position,
    },
    /// Leader to the replica that is to lead: I serve no read any more in this term.
    Release,
}

impl Message {
    /// False for what no replica says: the library would take term 0 for a message of its own, and a log whose terms fall for a
    /// bug.
    pub(crate) fn is_sound(&self) -> bool {
        let rises = match &self.body {
            Body::Append { previous, entries, .. } => {
                let terms = entries.iter().map(|entry| entry.term);
                std::iter::once(previous.term).chain(terms).chain([self.term]).is_sorted()
            }
            _ => true,
        };
        rises && self.term > Term(0)
    }
    /// The append that a follower answers, by which it acknowledges the leader's term, and the follower's commit index; None of other
    /// messages.
    pub(crate) fn answers(&self) -> Option<(Number, Index)> {
        match self.body {
            Body::Appended { number, commit, .. } | Body::Refused { number, commit, .. } => Some((number, commit)),
            _ => None,
        }
    }
}
