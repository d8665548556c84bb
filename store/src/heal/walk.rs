//! The order in which a group's rows travel: all leaves of all volumes, then all other rows, then the group's own row. The first two parts
//! interleave in the index: whoever walks one of them jumps over the other.

use crate::format::bytes::corrupt;
use crate::format::keys::{self, Bounds, Row};
use crate::index::{Index, Pair};
use base::{GroupId, Result, VolumeId};

/// A part of the rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Phase {
    Leaves = 1,
    Others = 2,
    Group = 3,
}

impl Phase {
    pub fn from_code(code: u8) -> Result<Phase> {
        match code {
            1 => Ok(Phase::Leaves),
            2 => Ok(Phase::Others),
            3 => Ok(Phase::Group),
            _ => Err(corrupt("a heal has no such phase")),
        }
    }
    /// True for rows that travel in this phase. The others are what each brick decides by itself: what is left to free, and what that makes
    /// of counts; its promise; how it heals.
    pub fn takes(self, row: Row) -> bool {
        use Row::{
            Cookie, Entry, Followed, Inode, Intent, Lock, Orphan, Reserve, Session, Target, Terms, Volume, Xattrs,
        };
        match self {
            Phase::Leaves => row == Row::Leaf,
            Phase::Others => matches!(
                row,
                Inode
                    | Entry
                    | Cookie
                    | Target
                    | Xattrs
                    | Orphan
                    | Intent
                    | Followed
                    | Lock
                    | Session
                    | Terms
                    | Volume
                    | Reserve
            ),
            Phase::Group => row == Row::Group,
        }
    }
    /// The first key behind one of another phase that can be of this one; None: the next one.
    fn jump(self, key: &[u8]) -> Option<Vec<u8>> {
        let (group, volume, row) = keys::row(key)?;
        let (from, to) = keys::leaves_in_group(group, volume);
        match self {
            Phase::Leaves if row == Row::Leaf => None,
            Phase::Leaves if key < from.as_slice() => Some(from),
            Phase::Leaves => Some(after_volume(group, volume)),
            Phase::Others => (row == Row::Leaf).then_some(to),
            Phase::Group => None,
        }
    }
}

/// The first key behind all rows of a volume in a group.
fn after_volume(group: GroupId, volume: VolumeId) -> Vec<u8> {
    match volume.0 {
        u32::MAX => keys::in_group(group).1,
        _ => keys::volume_in_group(group, volume).1,
    }
}

/// The place in that order from which rows travel next.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Cursor {
    pub phase: Phase,
    pub from: Vec<u8>,
}

impl Cursor {
    /// The first row of a phase.
    pub fn start(phase: Phase, group: GroupId) -> Cursor {
        Cursor { phase, from: keys::in_group(group).0 }
    }
    pub fn encode(&self) -> Vec<u8> {
        assert!(!self.from.is_empty(), "`decode` refuses a cursor without a key");
        [&[self.phase as u8], self.from.as_slice()].concat()
    }
    /// Reads a cursor; nothing is the very first one. Errors: `Corrupt`, also if it leads out of the group.
    pub fn decode(bytes: &[u8], group: GroupId) -> Result<Cursor> {
        let Some((&code, from)) = bytes.split_first() else { return Ok(Cursor::start(Phase::Leaves, group)) };
        let (first, end) = keys::in_group(group);
        let cursor = Cursor { phase: Phase::from_code(code)?, from: from.to_vec() };
        match first <= cursor.from && cursor.from < end {
            true => Ok(cursor),
            false => Err(corrupt("a heal goes on outside of its group")),
        }
    }
    /// The keys of its phase from it on to the cursor of the next page. Errors: `Corrupt` if that does not follow.
    pub fn to(&self, next: Option<&Cursor>, group: GroupId) -> Result<Bounds> {
        let (from, end) = (self.from.clone(), keys::in_group(group).1);
        match (self.phase, next) {
            (Phase::Group, None) => Ok((from, end)),
            (phase, Some(next)) if next.phase == phase && next.from > from => Ok((from, next.from.clone())),
            (Phase::Leaves, Some(next)) if *next == Cursor::start(Phase::Others, group) => Ok((from, end)),
            (Phase::Others, Some(next)) if *next == Cursor::start(Phase::Group, group) => Ok((from, end)),
            _ => Err(corrupt("a heal does not go on behind its page")),
        }
    }
}

/// The first `count` rows of a phase between two keys of a group, in the order of their keys.
pub(super) fn scan(index: &dyn Index, phase: Phase, (mut from, to): Bounds, count: usize) -> Result<Vec<Pair>> {
    let mut found = Vec::new();
    while found.len() < count {
        let asked = count - found.len();
        let rows = index.scan(&from, &to, asked)?;
        let mut last = rows.len() < asked;
        for (key, value) in rows {
            from = keys::after(&key);
            if keys::row(&key).is_some_and(|(.., row)| phase.takes(row)) {
                found.push((key, value));
            } else if let Some(next) = phase.jump(&key) {
                (from, last) = (next, false);
                break;
            }
        }
        if last {
            break;
        }
    }
    assert!(found.len() <= count && found.is_sorted_by(|one, next| one.0 < next.0), "rows come in their order");
    Ok(found)
}

/// The volumes of which a group has rows; 0 stands for the group's own.
pub(super) fn volumes(index: &dyn Index, group: GroupId) -> Result<Vec<VolumeId>> {
    let (mut from, to) = keys::in_group(group);
    let mut volumes = Vec::new();
    while let Some((key, _)) = index.scan(&from, &to, 1)?.pop() {
        from = match keys::row(&key) {
            Some((_, volume, _)) => {
                volumes.push(volume);
                after_volume(group, volume)
            }
            None => keys::after(&key),
        };
    }
    assert!(volumes.is_sorted_by(|one, next| one < next), "each volume is one range of keys");
    Ok(volumes)
}
