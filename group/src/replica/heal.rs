//! The bytes of what bricks ask and tell each other of healing.

use super::codec::{put_position, take_number, take_position};
use base::limits::BLOCKS_PER_LEAF;
use base::{Index, Ino, Result, VolumeId};
use order_raft::Position;
use store::format::bytes::{Reader, Writer, corrupt};

/// Most bytes of a cursor: it is a key, and a little more.
const CURSOR_BYTES_MAX: usize = 1024;

/// A message about healing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heal {
    /// Leader to follower: I no longer keep the records before this one.
    Lacks {
        /// The first that is kept.
        first: Index,
    },
    /// A question to another brick, by its number among those of the brick that asks.
    Ask(u64, Ask),
    /// The answer to the question of this number.
    Answer(u64, Answer),
    /// Follower to leader: the rows are here, and the log goes on behind them.
    Done,
}

/// A question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ask {
    /// A page of the group's rows.
    Rows {
        /// The heal, by a number that the brick has given it.
        heal: u64,
        /// The place where the page begins, as the page before told; empty for the first one.
        cursor: Vec<u8>,
    },
    /// Blocks of a leaf that have these checksums.
    Blocks {
        /// The volume.
        volume: VolumeId,
        /// The file.
        ino: Ino,
        /// The first block.
        first: u64,
        /// The checksum of each block.
        crcs: Vec<u32>,
    },
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// This brick does not lead, or can't answer now; rows are to be asked for from the first page on.
    Not,
    /// A page of rows.
    Page {
        /// The group's position that the rows are of.
        position: Position,
        /// The place where the next page begins; empty after the last one.
        next: Vec<u8>,
        /// The bytes of the rows, which are the message's payload, filled up to whole blocks.
        length: u32,
    },
    /// The blocks of this mask are the message's payload, in their order. The others have changed meanwhile, or are missing there too.
    Blocks {
        /// A bit for each block that was asked for.
        mask: u64,
    },
}

const LACKS: u8 = 1;
const ASK_ROWS: u8 = 2;
const ASK_BLOCKS: u8 = 3;
const NOT: u8 = 4;
const PAGE: u8 = 5;
const BLOCKS: u8 = 6;
const DONE: u8 = 7;

/// Appends a message.
pub fn put_heal(writer: &mut Writer<'_>, heal: &Heal) {
    match heal {
        Heal::Lacks { first } => drop(writer.u8(LACKS).u64(first.0)),
        Heal::Ask(number, Ask::Rows { heal, cursor }) => {
            writer.u8(ASK_ROWS).u64(*number).u64(*heal);
            put_cursor(writer, cursor);
        }
        Heal::Ask(number, Ask::Blocks { volume, ino, first, crcs }) => {
            writer.u8(ASK_BLOCKS).u64(*number).u32(volume.0).u64(ino.0).u64(*first).u8(crcs.len() as u8);
            for crc in crcs {
                writer.u32(*crc);
            }
        }
        Heal::Answer(number, Answer::Not) => drop(writer.u8(NOT).u64(*number)),
        Heal::Answer(number, Answer::Page { position, next, length }) => {
            put_position(writer.u8(PAGE).u64(*number), *position);
            put_cursor(writer.u32(*length), next);
        }
        Heal::Answer(number, Answer::Blocks { mask }) => drop(writer.u8(BLOCKS).u64(*number).u64(*mask)),
        Heal::Done => drop(writer.u8(DONE)),
    }
}

/// Reads a message. Errors: `Corrupt`.
pub fn take_heal(reader: &mut Reader<'_>) -> Result<Heal> {
    Ok(match reader.u8()? {
        LACKS => Heal::Lacks { first: Index(take_number(reader)?) },
        ASK_ROWS => {
            let (number, heal) = (reader.u64()?, reader.u64()?);
            Heal::Ask(number, Ask::Rows { heal, cursor: take_cursor(reader)? })
        }
        ASK_BLOCKS => {
            let (number, volume, ino) = (reader.u64()?, VolumeId(reader.u32()?), Ino(reader.u64()?));
            let (first, count) = (take_number(reader)?, usize::from(reader.u8()?));
            if count == 0 || count > BLOCKS_PER_LEAF {
                return Err(corrupt("a question is about a leaf's blocks"));
            }
            let crcs = (0..count).map(|_| reader.u32()).collect::<Result<_>>()?;
            Heal::Ask(number, Ask::Blocks { volume, ino, first, crcs })
        }
        NOT => Heal::Answer(reader.u64()?, Answer::Not),
        PAGE => {
            let number = reader.u64()?;
            let position = take_position(reader)?;
            let length = reader.u32()?;
            Heal::Answer(number, Answer::Page { position, next: take_cursor(reader)?, length })
        }
        BLOCKS => Heal::Answer(reader.u64()?, Answer::Blocks { mask: reader.u64()? }),
        DONE => Heal::Done,
        _ => return Err(corrupt("a replica tells something unknown of healing")),
    })
}

fn put_cursor(writer: &mut Writer<'_>, cursor: &[u8]) {
    assert!(cursor.len() <= CURSOR_BYTES_MAX, "a cursor of {} bytes", cursor.len());
    writer.u32(cursor.len() as u32).bytes(cursor);
}

fn take_cursor(reader: &mut Reader<'_>) -> Result<Vec<u8>> {
    match reader.u32()? as usize {
        length if length <= CURSOR_BYTES_MAX => Ok(reader.bytes(length)?.to_vec()),
        _ => Err(corrupt("a cursor is longer than any key")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Term;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let position = Position { index: Index(7), term: Term(3) };
        let all = [
            Heal::Lacks { first: Index(9) },
            Heal::Ask(1, Ask::Rows { heal: 5, cursor: Vec::new() }),
            Heal::Ask(2, Ask::Rows { heal: 5, cursor: vec![0; CURSOR_BYTES_MAX] }),
            Heal::Ask(3, Ask::Blocks { volume: VolumeId(1), ino: Ino(2), first: 64, crcs: vec![7; BLOCKS_PER_LEAF] }),
            Heal::Answer(1, Answer::Not),
            Heal::Answer(2, Answer::Page { position, next: vec![1, 2], length: 60_000 }),
            Heal::Answer(3, Answer::Blocks { mask: 5 }),
            Heal::Done,
        ];
        for heal in all {
            let mut bytes = Vec::new();
            put_heal(&mut Writer(&mut bytes), &heal);
            let mut reader = Reader::new(&bytes);
            assert_eq!(take_heal(&mut reader).expect("it is whole"), heal);
            assert!(reader.is_empty());
            for length in 0..bytes.len().min(2000) {
                let part = take_heal(&mut Reader::new(&bytes[..length]));
                assert!(part.is_err(), "{length} bytes of {heal:?}");
            }
        }
        for count in [0, BLOCKS_PER_LEAF + 1] {
            let mut bytes = Vec::new();
            let ask = Ask::Blocks { volume: VolumeId(1), ino: Ino(2), first: 0, crcs: vec![7; count] };
            put_heal(&mut Writer(&mut bytes), &Heal::Ask(1, ask));
            assert!(take_heal(&mut Reader::new(&bytes)).is_err(), "{count} blocks");
        }
    }
}
