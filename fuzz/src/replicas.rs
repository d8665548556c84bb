//! Messages of bricks with replicas of a group to each other. What is decoded must be encoded to the same bytes again.

use crate::targets::{Answer, answer, scale};
use crate::wire_frames::variant;
use base::{
    Blocks, Edit, FileKind, GroupId, Index, Ino, Inode, IntentId, Name, ReplicaId, SessionId, Term, Time, VolumeId,
};
use group::across_codec::{self, Across, Found, Want};
use group::heal_codec::{self, Heal};
use group::replica_codec::{Pulse, Told, pulse_bytes, put_told, take_pulse, take_told};
use order_raft::support::{Answer as Answered, Ask, Epoch, Spell, Stamp, Wish};
use order_raft::{Body, Entry, Message, Number, Position, Shadow, Stage};

fn position(number: u64) -> Position {
    Position { index: Index(number), term: Term(number / 2) }
}

fn bodies() -> Vec<Body> {
    let shadow = Shadow { length: 7, crc: 8, kind: 9 };
    let entries = vec![Entry { term: Term(3), shadow }, Entry { term: Term(4), shadow: Shadow::TERM }];
    let (number, index, commit) = (Number(5), Index(6), Index(4));
    vec![
        Body::Append { number, previous: position(9), commit, entries },
        Body::Append { number, previous: position(0), commit, entries: Vec::new() },
        Body::Appended { number, index, commit },
        Body::Refused { number, index, hint: position(3), commit },
        Body::Vote { stage: Stage::Ask, last: position(20), commit: position(18), released: false },
        Body::Vote { stage: Stage::Vote, last: position(20), commit: position(18), released: true },
        Body::Voted { stage: Stage::Vote, granted: true, commit: position(2) },
        Body::Release,
    ]
}

fn heals() -> [Heal; 7] {
    let (volume, position) = (VolumeId(1), Position { index: Index(7), term: Term(3) });
    [
        Heal::Lacks { first: Index(9) },
        Heal::Ask(1, heal_codec::Ask::Rows { heal: 5, cursor: vec![1, 2] }),
        Heal::Ask(2, heal_codec::Ask::Blocks { volume, ino: Ino(2), first: 64, crcs: vec![7, 8] }),
        Heal::Answer(1, heal_codec::Answer::Not),
        Heal::Answer(2, heal_codec::Answer::Page { position, next: vec![1], length: 60 }),
        Heal::Answer(3, heal_codec::Answer::Blocks { mask: 5 }),
        Heal::Done,
    ]
}

fn of_several_groups() -> Vec<Across> {
    let (ino, id, group) = (Ino(7), IntentId { group: GroupId(2), number: 9 }, GroupId(1));
    let (volume, name) = (VolumeId(1), Name::new(b"name").expect("a name"));
    let wants = vec![
        Want::Inode(ino),
        Want::Entry(ino, name.clone()),
        Want::Xattrs(ino),
        Want::Opens(ino),
        Want::Fresh,
        Want::Turn,
    ];
    let inode = Inode::blank(FileKind::File, ino, Ino(3), Time(4));
    let found = vec![
        Found::Inode(ino, Some((inode, Blocks { count: 6, exact: true }))),
        Found::Inode(ino, None),
        Found::Entry(ino, name, None),
        Found::Xattrs(ino, None),
        Found::Opens(ino, 2),
        Found::Fresh(ino),
    ];
    let (number, session, edits) = (3, SessionId(5), vec![Edit::InodeDrop { ino }, Edit::LockDrop { id }]);
    vec![
        Across::Ask(across_codec::Ask { number, id: Some(id), holds: true, volume, session, wants }),
        Across::Answer(3, across_codec::Answer::Found(found)),
        Across::Answer(4, across_codec::Answer::Busy),
        Across::Drop(id),
        Across::Part { id, volume, edits },
        Across::Done { id, group },
        Across::Fate { id, group },
    ]
}

pub fn told_seeds() -> Vec<Vec<u8>> {
    let under = Some(Spell { epoch: Epoch(11), number: 12 });
    let message = |(at, body)| {
        let message = Message { term: Term(21), under: under.filter(|_| at % 2 == 0), body };
        Told::Message { from: ReplicaId(3), everyone: Index(2), message }
    };
    let mut all: Vec<_> = bodies().into_iter().enumerate().map(message).collect();
    all.extend([Told::Record { bytes: vec![1, 2, 3], more: 2 }, Told::Piece]);
    all.extend(heals().into_iter().map(Told::Heal));
    all.extend(of_several_groups().into_iter().map(Told::Across));
    let encode = |told: &Told| {
        let mut bytes = Vec::new();
        put_told(&mut bytes, told);
        bytes
    };
    all.iter().map(encode).collect()
}

pub fn told(bytes: &[u8]) -> Answer {
    let read = take_told(bytes);
    if let Ok(told) = &read {
        let mut again = Vec::new();
        put_told(&mut again, told);
        assert!(again == bytes, "what is told has two forms");
    }
    answer(&read, |told| match told {
        Told::Record { bytes, more } => scale(bytes.len()) << 1 | u64::from(*more > 0),
        Told::Piece => 1 << 10,
        Told::Heal(heal) => 1 << 11 | variant(heal) << 4 | scale(bytes.len()),
        Told::Across(across) => 1 << 12 | variant(across) << 4 | scale(bytes.len()),
        Told::Message { message, .. } => {
            let entries = if let Body::Append { entries, .. } = &message.body { entries.len() } else { 0 };
            variant(&message.body) ^ (scale(entries) << 1 | u64::from(message.under.is_some()))
        }
    })
}

pub fn pulse_seeds() -> Vec<Vec<u8>> {
    let stamp = |at| Stamp { epoch: Epoch(3), at };
    let ask = |wish, seen| Pulse::Ask(Ask { asked: stamp(8), wish, seen });
    let answer = |spell| Pulse::Answer(Answered { asked: stamp(1), answered: stamp(2), spell });
    let pulses = [
        ask(Wish::Support, Some(stamp(5))),
        ask(Wish::Nothing, None),
        ask(Wish::Freedom, Some(stamp(5))),
        answer(None),
        answer(Some(4)),
    ];
    pulses.iter().map(pulse_bytes).collect()
}

pub fn pulse(bytes: &[u8]) -> Answer {
    let read = take_pulse(bytes);
    if let Ok(pulse) = &read {
        assert!(pulse_bytes(pulse) == bytes, "a pulse has two forms");
    }
    answer(&read, |pulse| match pulse {
        Pulse::Ask(Ask { wish, seen, .. }) => variant(wish) ^ u64::from(seen.is_some()),
        Pulse::Answer(Answered { spell, .. }) => u64::from(spell.is_some()),
    })
}
