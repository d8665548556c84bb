//! The bytes of what replicas of a group tell each other: the messages of the order, and the records that appends are about.
//!
//! A record travels in parcels of its own, before the append that names it: its replicated part with the first piece of its
//! payload, then the other pieces. So the order's messages stay small, and no frame is larger than others.

use super::across::{Across, put_across, take_across};
use super::heal::{Heal, put_heal, take_heal};
use base::limits::NUMBER_MAX;
use base::{Index, ReplicaId, Result, Term};
use order_raft::support::{Answer, Ask, Epoch, Spell, Stamp, Wish};
use order_raft::{Body, Entry, Message, Number, Position, Shadow, Stage};
use store::format::bytes::{Reader, Writer, corrupt};

/// Entries of one append: more than the order ever puts into one.
const ENTRIES_MAX: usize = 4096;

/// The contents of a parcel.
#[derive(Clone, PartialEq, Debug)]
pub enum Told {
    /// A record, with the first piece of its payload; `more` further pieces follow.
    Record {
        /// The replicated part.
        bytes: Vec<u8>,
        /// Pieces of the payload in the parcels behind this one.
        more: u8,
    },
    /// The next piece of the last record's payload.
    Piece,
    /// A message of the order.
    Message {
        /// The replica that says it.
        from: ReplicaId,
        /// The index up to which all replicas have the records, as far as it knows.
        everyone: Index,
        /// The message.
        message: Message,
    },
    /// A message about healing; the payload is an answer's.
    Heal(Heal),
    /// A message about a change of several groups.
    Across(Across),
}

/// The bytes in the place of a spell that there is not, and of a stamp.
const NO_SPELL: Spell = Spell { epoch: Epoch(0), number: 0 };
const NO_STAMP: Stamp = Stamp { epoch: Epoch(0), at: 0 };

const RECORD: u8 = 1;
const PIECE: u8 = 2;
const MESSAGE: u8 = 3;
const HEAL: u8 = 4;
const ACROSS: u8 = 5;

/// Appends a parcel's body.
pub fn put_told(out: &mut Vec<u8>, told: &Told) {
    let mut writer = Writer(out);
    match told {
        Told::Record { bytes, more } => {
            writer.u8(RECORD).u8(*more).u32(bytes.len() as u32).bytes(bytes);
        }
        Told::Piece => drop(writer.u8(PIECE)),
        Told::Message { from, everyone, message } => {
            writer.u8(MESSAGE).u64(from.0).u64(everyone.0).u64(message.term.0);
            let Spell { epoch, number } = message.under.unwrap_or(NO_SPELL);
            writer.u8(u8::from(message.under.is_some())).u64(epoch.0).u64(number);
            put_body(&mut writer, &message.body);
        }
        Told::Heal(heal) => put_heal(writer.u8(HEAL), heal),
        Told::Across(across) => put_across(writer.u8(ACROSS), across),
    }
}

/// Reads a parcel's body. Errors: `Corrupt`.
pub fn take_told(bytes: &[u8]) -> Result<Told> {
    let mut reader = Reader::new(bytes);
    let told = match reader.u8()? {
        RECORD => {
            let (more, length) = (reader.u8()?, reader.u32()? as usize);
            Told::Record { bytes: reader.bytes(length)?.to_vec(), more }
        }
        PIECE => Told::Piece,
        HEAL => Told::Heal(take_heal(&mut reader)?),
        ACROSS => Told::Across(take_across(&mut reader)?),
        MESSAGE => {
            let (from, everyone, term) =
                (ReplicaId(reader.u64()?), Index(take_number(&mut reader)?), Term(take_number(&mut reader)?));
            let is_under = take_flag(&mut reader)?;
            let spell = Spell { epoch: Epoch(take_number(&mut reader)?), number: take_number(&mut reader)? };
            let under = if_set(is_under, spell, NO_SPELL)?;
            let body = take_body(&mut reader)?;
            Told::Message { from, everyone, message: Message { term, under, body } }
        }
        _ => return Err(corrupt("a replica tells something unknown")),
    };
    if !reader.is_empty() {
        return Err(corrupt("a replica's message has bytes after its end"));
    }
    // These have rows of the index within them, which are not written by one build alone.
    if matches!(told, Told::Across(_)) {
        let mut again = Vec::with_capacity(bytes.len());
        put_told(&mut again, &told);
        if again != bytes {
            return Err(corrupt("what leaders tell each other has another form"));
        }
    }
    Ok(told)
}

/// A number that is counted up: nothing that is computed from it overflows.
pub(super) fn take_number(reader: &mut Reader<'_>) -> Result<u64> {
    match reader.u64()? {
        number if number <= NUMBER_MAX => Ok(number),
        _ => Err(corrupt("a number is higher than anybody counts")),
    }
}

/// A value that is there if its flag is set. Without, its place holds `nothing`: a message has one form.
fn if_set<T: PartialEq>(is_set: bool, value: T, nothing: T) -> Result<Option<T>> {
    match is_set || value == nothing {
        true => Ok(is_set.then_some(value)),
        false => Err(corrupt("something is there and said not to be")),
    }
}

pub(super) fn put_position(writer: &mut Writer<'_>, position: Position) {
    writer.u64(position.index.0).u64(position.term.0);
}

pub(super) fn take_position(reader: &mut Reader<'_>) -> Result<Position> {
    Ok(Position { index: Index(take_number(reader)?), term: Term(take_number(reader)?) })
}

pub(super) fn take_flag(reader: &mut Reader<'_>) -> Result<bool> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(corrupt("a flag is neither set nor clear")),
    }
}

fn put_stage(writer: &mut Writer<'_>, stage: Stage) {
    writer.u8(u8::from(stage == Stage::Vote));
}

fn take_stage(reader: &mut Reader<'_>) -> Result<Stage> {
    Ok(if take_flag(reader)? { Stage::Vote } else { Stage::Ask })
}

fn put_body(writer: &mut Writer<'_>, body: &Body) {
    match body {
        Body::Append { number, previous, commit, entries } => {
            writer.u8(0).u64(number.0);
            put_position(writer, *previous);
            writer.u64(commit.0).u32(entries.len() as u32);
            for Entry { term, shadow } in entries {
                writer.u64(term.0).u32(shadow.length).u32(shadow.crc).u8(shadow.kind);
            }
        }
        Body::Appended { number, index, commit } => drop(writer.u8(1).u64(number.0).u64(index.0).u64(commit.0)),
        Body::Refused { number, index, hint, commit } => {
            writer.u8(2).u64(number.0).u64(index.0);
            put_position(writer, *hint);
            writer.u64(commit.0);
        }
        Body::Vote { stage, last, commit, released } => {
            writer.u8(3);
            put_stage(writer, *stage);
            put_position(writer, *last);
            put_position(writer, *commit);
            writer.u8(u8::from(*released));
        }
        Body::Voted { stage, granted, commit } => {
            writer.u8(4);
            put_stage(writer, *stage);
            writer.u8(u8::from(*granted));
            put_position(writer, *commit);
        }
        Body::Release => drop(writer.u8(5)),
    }
}

fn take_body(reader: &mut Reader<'_>) -> Result<Body> {
    Ok(match reader.u8()? {
        0 => {
            let (number, previous, commit) =
                (Number(take_number(reader)?), take_position(reader)?, Index(take_number(reader)?));
            let count = reader.u32()? as usize;
            if count > ENTRIES_MAX {
                return Err(corrupt("an append has more entries than one may have"));
            }
            let entry = |reader: &mut Reader<'_>| {
                let term = Term(take_number(reader)?);
                let shadow = Shadow { length: reader.u32()?, crc: reader.u32()?, kind: reader.u8()? };
                Ok(Entry { term, shadow })
            };
            let entries = (0..count).map(|_| entry(reader)).collect::<Result<_>>()?;
            Body::Append { number, previous, commit, entries }
        }
        1 => Body::Appended {
            number: Number(take_number(reader)?),
            index: Index(take_number(reader)?),
            commit: Index(take_number(reader)?),
        },
        2 => Body::Refused {
            number: Number(take_number(reader)?),
            index: Index(take_number(reader)?),
            hint: take_position(reader)?,
            commit: Index(take_number(reader)?),
        },
        3 => Body::Vote {
            stage: take_stage(reader)?,
            last: take_position(reader)?,
            commit: take_position(reader)?,
            released: take_flag(reader)?,
        },
        4 => Body::Voted { stage: take_stage(reader)?, granted: take_flag(reader)?, commit: take_position(reader)? },
        5 => Body::Release,
        _ => return Err(corrupt("a replica's message is of an unknown kind")),
    })
}

/// A pulse between two bricks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pulse {
    /// A question for support.
    Ask(Ask),
    /// The answer to one.
    Answer(Answer),
}

fn put_stamp(writer: &mut Writer<'_>, stamp: Stamp) {
    writer.u64(stamp.epoch.0).u64(stamp.at);
}

fn take_stamp(reader: &mut Reader<'_>) -> Result<Stamp> {
    Ok(Stamp { epoch: Epoch(take_number(reader)?), at: take_number(reader)? })
}

/// The bytes of a pulse.
pub fn pulse_bytes(pulse: &Pulse) -> Vec<u8> {
    let mut out = Vec::with_capacity(48);
    let mut writer = Writer(&mut out);
    match pulse {
        Pulse::Ask(Ask { asked, wish, seen }) => {
            let wish = match wish {
                Wish::Support => 0,
                Wish::Nothing => 1,
                Wish::Freedom => 2,
            };
            writer.u8(0).u8(wish);
            put_stamp(&mut writer, *asked);
            writer.u8(u8::from(seen.is_some()));
            put_stamp(&mut writer, seen.unwrap_or(NO_STAMP));
        }
        Pulse::Answer(Answer { asked, answered, spell }) => {
            writer.u8(1);
            put_stamp(&mut writer, *asked);
            put_stamp(&mut writer, *answered);
            writer.u8(u8::from(spell.is_some())).u64(spell.unwrap_or(0));
        }
    }
    out
}

/// Reads a pulse. Errors: `Corrupt`.
pub fn take_pulse(bytes: &[u8]) -> Result<Pulse> {
    let mut reader = Reader::new(bytes);
    let pulse = match reader.u8()? {
        0 => {
            let wish = match reader.u8()? {
                0 => Wish::Support,
                1 => Wish::Nothing,
                2 => Wish::Freedom,
                _ => return Err(corrupt("a brick asks for something unknown")),
            };
            let asked = take_stamp(&mut reader)?;
            let (has_seen, seen) = (take_flag(&mut reader)?, take_stamp(&mut reader)?);
            Pulse::Ask(Ask { asked, wish, seen: if_set(has_seen, seen, NO_STAMP)? })
        }
        1 => {
            let (asked, answered) = (take_stamp(&mut reader)?, take_stamp(&mut reader)?);
            let (is_granted, spell) = (take_flag(&mut reader)?, take_number(&mut reader)?);
            Pulse::Answer(Answer { asked, answered, spell: if_set(is_granted, spell, 0)? })
        }
        _ => return Err(corrupt("a pulse is neither a question nor an answer")),
    };
    if reader.is_empty() { Ok(pulse) } else { Err(corrupt("a pulse has bytes after its end")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> Vec<Message> {
        let position = |number: u64| Position { index: Index(number), term: Term(number / 2) };
        let shadow = Shadow { length: 7, crc: 8, kind: 9 };
        let entries = vec![Entry { term: Term(3), shadow }, Entry { term: Term(4), shadow: Shadow::TERM }];
        let (number, index, commit) = (Number(5), Index(6), Index(4));
        let under = Some(Spell { epoch: Epoch(11), number: 12 });
        let bodies = [
            Body::Append { number, previous: position(9), commit, entries },
            Body::Append { number, previous: position(0), commit, entries: Vec::new() },
            Body::Appended { number, index, commit },
            Body::Refused { number, index, hint: position(3), commit },
            Body::Vote { stage: Stage::Ask, last: position(20), commit: position(18), released: false },
            Body::Vote { stage: Stage::Vote, last: position(20), commit: position(18), released: true },
            Body::Voted { stage: Stage::Vote, granted: true, commit: position(2) },
            Body::Release,
        ];
        let of = |(at, body)| Message { term: Term(21), under: under.filter(|_| at % 2 == 0), body };
        bodies.into_iter().enumerate().map(of).collect()
    }

    #[test]
    fn what_is_told_is_read_again_and_nothing_shorter_or_longer() {
        let mut all: Vec<_> = messages()
            .into_iter()
            .map(|message| Told::Message { from: ReplicaId(3), everyone: Index(2), message })
            .collect();
        all.extend([Told::Record { bytes: vec![1, 2, 3], more: 2 }, Told::Piece]);
        for told in all {
            let mut bytes = Vec::new();
            put_told(&mut bytes, &told);
            assert_eq!(take_told(&bytes), Ok(told.clone()));
            for length in 0..bytes.len() {
                assert!(take_told(&bytes[..length]).is_err(), "{told:?} cut to {length}");
            }
            bytes.push(0);
            assert!(take_told(&bytes).is_err(), "{told:?} with another byte");
        }
    }

    #[test]
    fn no_number_is_so_high_that_the_next_one_overflows() {
        let previous = Position { index: Index(u64::MAX), term: Term(1) };
        let body = Body::Append { number: Number(1), previous, commit: Index(0), entries: Vec::new() };
        for (term, everyone) in [(1, 0), (u64::MAX, 0), (1, u64::MAX)] {
            let message = Message { term: Term(term), under: None, body: body.clone() };
            let mut bytes = Vec::new();
            put_told(&mut bytes, &Told::Message { from: ReplicaId(3), everyone: Index(everyone), message });
            assert!(take_told(&bytes).is_err());
        }
    }

    #[test]
    fn pulses_are_read_again() {
        let stamp = |at| Stamp { epoch: Epoch(3), at };
        let asks = [Wish::Support, Wish::Nothing, Wish::Freedom];
        let asks = asks.map(|wish| Pulse::Ask(Ask { asked: stamp(8), wish, seen: Some(stamp(5)) }));
        let answer = |spell| Pulse::Answer(Answer { asked: stamp(1), answered: stamp(2), spell });
        let answers = [None, Some(4)].map(answer);
        for pulse in asks.into_iter().chain(answers) {
            let bytes = pulse_bytes(&pulse);
            assert_eq!(take_pulse(&bytes), Ok(pulse));
            (0..bytes.len()).for_each(|length| assert!(take_pulse(&bytes[..length]).is_err()));
        }
    }
}
