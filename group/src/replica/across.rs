//! The bytes of what the leaders of groups tell each other of changes that concern several groups.

use super::codec::take_flag;
use base::{Blocks, Edit, GroupId, Ino, Inode, IntentId, Name, Result, SessionId, VolumeId, Xattrs};
use names::Entry;
use std::sync::Arc;
use store::format::bytes::{Reader, Writer, corrupt};
use store::format::{edits, values};

/// Most things that one question is about, and most edits of a part.
const WANTS_MAX: usize = 16;

/// A message; it is for the leader of a group.
#[derive(Clone, PartialEq, Debug)]
pub enum Across {
    /// A question.
    Ask(Ask),
    /// The answer to the question of this number.
    Answer(u64, Answer),
    /// The change will never be decided: what is held for it is free.
    Drop(IntentId),
    /// The change was decided, and this is the group's part.
    Part {
        /// The change.
        id: IntentId,
        /// The volume.
        volume: VolumeId,
        /// The edits.
        edits: Vec<Edit>,
    },
    /// A group has its part.
    Done {
        /// The change.
        id: IntentId,
        /// The group.
        group: GroupId,
    },
    /// A group holds inodes for the change, and has heard nothing for a while.
    Fate {
        /// The change.
        id: IntentId,
        /// The group.
        group: GroupId,
    },
}

/// A question about some of a group's state.
#[derive(Clone, PartialEq, Debug)]
pub struct Ask {
    /// Its number among those of the brick that asks.
    pub number: u64,
    /// The change that it is asked for; None for one that changes nothing.
    pub id: Option<IntentId>,
    /// True if all of it is to be held for the change.
    pub holds: bool,
    /// The volume.
    pub volume: VolumeId,
    /// The session of the client.
    pub session: SessionId,
    /// The pieces that are wanted.
    pub wants: Vec<Want>,
}

/// A piece of a group's state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Want {
    /// An inode.
    Inode(Ino),
    /// The entry of a name in a directory, and its inode, if that is of the same group.
    Entry(Ino, Name),
    /// An inode's extended attributes.
    Xattrs(Ino),
    /// The number of opens of an inode, as the view of names counts them.
    Opens(Ino),
    /// A number for a new inode.
    Fresh,
    /// The turn to do what only one change may at a time.
    Turn,
}

/// An answer.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// The pieces, each of them committed.
    Found(Vec<Found>),
    /// One of them is held for another change.
    Busy,
    /// Another brick leads the group, or will.
    Elsewhere,
}

/// A piece that was found.
#[derive(Clone, PartialEq, Debug)]
pub enum Found {
    /// An inode, and the blocks that it occupies.
    Inode(Ino, Option<(Inode, Blocks)>),
    /// An entry.
    Entry(Ino, Name, Option<Entry>),
    /// An inode's extended attributes.
    Xattrs(Ino, Option<Arc<Xattrs>>),
    /// The number of opens of an inode.
    Opens(Ino, u64),
    /// The number of a new inode.
    Fresh(Ino),
}

const ASK: u8 = 1;
const FOUND: u8 = 2;
const BUSY: u8 = 3;
const ELSEWHERE: u8 = 4;
const DROP: u8 = 5;
const PART: u8 = 6;
const DONE: u8 = 7;
const FATE: u8 = 8;

/// Appends a message.
pub fn put_across(writer: &mut Writer<'_>, across: &Across) {
    match across {
        Across::Ask(ask) => {
            writer.u8(ASK).u64(ask.number).u8(u8::from(ask.id.is_some()));
            put_id(writer, ask.id.unwrap_or(NO_ID));
            writer.u8(u8::from(ask.holds)).u32(ask.volume.0).u64(ask.session.0).u8(ask.wants.len() as u8);
            assert!(ask.wants.len() <= WANTS_MAX, "a question is about few things");
            ask.wants.iter().for_each(|want| put_want(writer, want));
        }
        Across::Answer(number, Answer::Found(found)) => {
            writer.u8(FOUND).u64(*number).u8(found.len() as u8);
            found.iter().for_each(|found| put_found(writer, found));
        }
        Across::Answer(number, Answer::Busy) => drop(writer.u8(BUSY).u64(*number)),
        Across::Answer(number, Answer::Elsewhere) => drop(writer.u8(ELSEWHERE).u64(*number)),
        Across::Drop(id) => put_id(writer.u8(DROP), *id),
        Across::Part { id, volume, edits } => {
            put_id(writer.u8(PART), *id);
            writer.u32(volume.0).u8(edits.len() as u8);
            assert!(edits.len() <= WANTS_MAX, "a part has few edits");
            edits.iter().for_each(|edit| edits::put_edit(writer.0, edit));
        }
        Across::Done { id, group } => {
            put_id(writer.u8(DONE), *id);
            writer.u32(group.0);
        }
        Across::Fate { id, group } => {
            put_id(writer.u8(FATE), *id);
            writer.u32(group.0);
        }
    }
}

/// Reads a message. Errors: `Corrupt`.
pub fn take_across(reader: &mut Reader<'_>) -> Result<Across> {
    Ok(match reader.u8()? {
        ASK => {
            let (number, is_of_change, id) = (reader.u64()?, take_flag(reader)?, take_id(reader)?);
            if !is_of_change && id != NO_ID {
                return Err(corrupt("a question of no change names one"));
            }
            let (holds, volume, session) = (take_flag(reader)?, VolumeId(reader.u32()?), SessionId(reader.u64()?));
            let wants = take_few(reader, take_want)?;
            Across::Ask(Ask { number, id: is_of_change.then_some(id), holds, volume, session, wants })
        }
        FOUND => Across::Answer(reader.u64()?, Answer::Found(take_few(reader, take_found)?)),
        BUSY => Across::Answer(reader.u64()?, Answer::Busy),
        ELSEWHERE => Across::Answer(reader.u64()?, Answer::Elsewhere),
        DROP => Across::Drop(take_id(reader)?),
        PART => {
            let (id, volume) = (take_id(reader)?, VolumeId(reader.u32()?));
            Across::Part { id, volume, edits: take_few(reader, edits::take_edit)? }
        }
        DONE => Across::Done { id: take_id(reader)?, group: GroupId(reader.u32()?) },
        FATE => Across::Fate { id: take_id(reader)?, group: GroupId(reader.u32()?) },
        _ => return Err(corrupt("a leader tells something unknown of a change of several groups")),
    })
}

/// The bytes in the place of a change that there is not.
const NO_ID: IntentId = IntentId { group: GroupId(0), number: 0 };

fn put_id(writer: &mut Writer<'_>, id: IntentId) {
    writer.u32(id.group.0).u64(id.number);
}

fn take_id(reader: &mut Reader<'_>) -> Result<IntentId> {
    Ok(IntentId { group: GroupId(reader.u32()?), number: reader.u64()? })
}

fn take_few<T>(reader: &mut Reader<'_>, take: impl Fn(&mut Reader<'_>) -> Result<T>) -> Result<Vec<T>> {
    match usize::from(reader.u8()?) {
        count if count <= WANTS_MAX => (0..count).map(|_| take(reader)).collect(),
        _ => Err(corrupt("a change of several groups has more pieces than any")),
    }
}

fn put_want(writer: &mut Writer<'_>, want: &Want) {
    match want {
        Want::Inode(ino) => drop(writer.u8(1).u64(ino.0)),
        Want::Entry(dir, name) => drop(writer.u8(2).u64(dir.0).counted(name.as_bytes())),
        Want::Xattrs(ino) => drop(writer.u8(3).u64(ino.0)),
        Want::Opens(ino) => drop(writer.u8(4).u64(ino.0)),
        Want::Fresh => drop(writer.u8(5)),
        Want::Turn => drop(writer.u8(6)),
    }
}

fn take_want(reader: &mut Reader<'_>) -> Result<Want> {
    Ok(match reader.u8()? {
        1 => Want::Inode(Ino(reader.u64()?)),
        2 => Want::Entry(Ino(reader.u64()?), Name::new(reader.counted()?)?),
        3 => Want::Xattrs(Ino(reader.u64()?)),
        4 => Want::Opens(Ino(reader.u64()?)),
        5 => Want::Fresh,
        6 => Want::Turn,
        _ => return Err(corrupt("a leader asks for something unknown")),
    })
}

fn put_found(writer: &mut Writer<'_>, found: &Found) {
    match found {
        Found::Inode(ino, None) => drop(writer.u8(1).u64(ino.0)),
        Found::Inode(ino, Some((inode, blocks))) => {
            writer.u8(2).u64(ino.0).u64(blocks.count).u8(u8::from(blocks.exact));
            edits::put_inode(writer.0, inode);
        }
        Found::Entry(dir, name, entry) => {
            writer.u8(3).u64(dir.0).counted(name.as_bytes());
            let entry = entry.map(|entry| values::encode_entry(entry.ino, entry.kind, entry.cookie));
            writer.counted(&entry.unwrap_or_default());
        }
        Found::Xattrs(ino, None) => drop(writer.u8(4).u64(ino.0)),
        Found::Xattrs(ino, Some(all)) => {
            let all = values::encode_xattrs(all);
            writer.u8(5).u64(ino.0).u32(all.len() as u32).bytes(&all);
        }
        Found::Opens(ino, opens) => drop(writer.u8(6).u64(ino.0).u64(*opens)),
        Found::Fresh(ino) => drop(writer.u8(7).u64(ino.0)),
    }
}

fn take_found(reader: &mut Reader<'_>) -> Result<Found> {
    Ok(match reader.u8()? {
        1 => Found::Inode(Ino(reader.u64()?), None),
        2 => {
            let (ino, count, exact) = (Ino(reader.u64()?), reader.u64()?, take_flag(reader)?);
            Found::Inode(ino, Some((edits::take_inode(reader)?, Blocks { count, exact })))
        }
        3 => {
            let (dir, name, entry) = (Ino(reader.u64()?), Name::new(reader.counted()?)?, reader.counted()?);
            let entry = (!entry.is_empty()).then(|| values::decode_entry(entry)).transpose()?;
            Found::Entry(dir, name, entry.map(|(ino, kind, cookie)| Entry { ino, kind, cookie }))
        }
        4 => Found::Xattrs(Ino(reader.u64()?), None),
        5 => {
            let (ino, length) = (Ino(reader.u64()?), reader.u32()? as usize);
            Found::Xattrs(ino, Some(Arc::new(values::decode_xattrs(reader.bytes(length)?)?)))
        }
        6 => Found::Opens(Ino(reader.u64()?), reader.u64()?),
        7 => Found::Fresh(Ino(reader.u64()?)),
        _ => return Err(corrupt("a leader has found something unknown")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{FileKind, Time};

    fn all() -> Vec<Across> {
        let (ino, id) = (Ino(7), IntentId { group: GroupId(2), number: 9 });
        let name = Name::new(b"name").expect("a name");
        let wants = [
            Want::Inode(ino),
            Want::Entry(ino, name.clone()),
            Want::Xattrs(ino),
            Want::Opens(ino),
            Want::Fresh,
            Want::Turn,
        ];
        let ask = Ask {
            number: 3,
            id: Some(id),
            holds: true,
            volume: VolumeId(1),
            session: SessionId(5),
            wants: wants.into(),
        };
        let entry = Entry { ino: Ino(8), kind: FileKind::Directory, cookie: 4 };
        let blocks = Blocks { count: 6, exact: true };
        let inode = Inode::blank(FileKind::File, ino, Ino(3), Time(4));
        let attribute = Name::of_attribute(b"user.x").expect("a name");
        let xattrs = Xattrs::from([(attribute, Arc::from(*b"ab"))]);
        let found = vec![
            Found::Inode(ino, None),
            Found::Inode(ino, Some((inode, blocks))),
            Found::Entry(ino, name.clone(), None),
            Found::Entry(ino, name, Some(entry)),
            Found::Xattrs(ino, None),
            Found::Xattrs(ino, Some(Arc::new(xattrs))),
            Found::Opens(ino, 2),
            Found::Fresh(ino),
        ];
        vec![
            Across::Ask(Ask { id: None, holds: false, ..ask.clone() }),
            Across::Ask(ask),
            Across::Answer(3, Answer::Found(found)),
            Across::Answer(4, Answer::Busy),
            Across::Answer(5, Answer::Elsewhere),
            Across::Drop(id),
            Across::Part { id, volume: VolumeId(1), edits: vec![Edit::InodeDrop { ino }, Edit::LockDrop { id }] },
            Across::Done { id, group: GroupId(1) },
            Across::Fate { id, group: GroupId(1) },
        ]
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        for across in all() {
            let mut bytes = Vec::new();
            put_across(&mut Writer(&mut bytes), &across);
            let mut reader = Reader::new(&bytes);
            assert_eq!(take_across(&mut reader).expect("it is whole"), across);
            assert!(reader.is_empty());
            for length in 0..bytes.len() {
                assert!(take_across(&mut Reader::new(&bytes[..length])).is_err(), "{length} bytes of {across:?}");
            }
        }
    }
}
