//! The changes that a session was told of and that may not be durable yet, and those that a restart of the server has lost
//! (rule P3).
//!
//! Promise: an fsync through a handle that was open when a change of its inode was lost fails, whatever the server answers.

use crate::codec::session::{Changed, RECLAIM_ITEMS_MAX};
use crate::{Answer, Position};
use base::{Ino, Op, Reply};
use std::collections::{BTreeMap, BTreeSet};

/// Inodes with changes that may not be durable, above which the client has the server make everything durable: a few MiB.
pub const INODES_MAX: usize = 1 << 14;

/// Losses that a byte tells apart: half of its values, since an earlier one is told from a later one by their difference.
const LOSSES_APART: u8 = 128;

/// The last change of an inode, and its number among those of the session.
#[derive(Clone, Copy)]
struct Last {
    position: Position,
    number: u64,
    /// The start of the server that told it.
    start: u64,
}

/// Changes by inode.
#[derive(Default)]
pub struct Changes {
    /// The start of the server that tells of changes now.
    start: u64,
    /// Number of changes so far.
    number: u64,
    unsynced: BTreeMap<Ino, Last>,
    /// Inodes that have lost changes, with the last loss.
    lost: BTreeMap<Ino, Loss>,
    /// Number of losses so far, modulo 256: handles have a byte for it.
    losses: u8,
    /// Number of inodes whose loss no operator was told of, and the last one.
    untold: Option<(u64, Ino)>,
    /// The handles that were told of the last loss of their inode.
    told: BTreeSet<(Ino, u32)>,
}

/// A loss of changes.
#[derive(Clone, Copy)]
struct Loss {
    /// Its number among all, modulo 256.
    number: u8,
    /// True once a handle was told of it.
    is_seen: bool,
}

/// Bits of a handle's own number. Above them lies the number of losses before it was opened, modulo 256.
pub const NUMBER_BITS: u32 = 24;

/// A handle of this number that was opened after so many losses.
pub fn handle_since(losses: u8, number: u32) -> u32 {
    assert!(number < 1 << NUMBER_BITS, "handles are numbered within their bits");
    u32::from(losses) << NUMBER_BITS | number
}

/// The own number of a handle.
pub fn number_of(handle: u32) -> u32 {
    handle & ((1 << NUMBER_BITS) - 1)
}

/// The number of losses before a handle was opened, modulo 256.
fn losses_of(handle: u32) -> u8 {
    (handle >> NUMBER_BITS) as u8
}

impl Changes {
    /// Number of changes so far, for `synced`.
    pub fn number(&self) -> u64 {
        self.number
    }
    /// Number of losses so far, modulo 256.
    pub fn losses(&self) -> u8 {
        self.losses
    }
    /// Number of inodes with changes that may not be durable.
    pub fn inodes(&self) -> usize {
        self.unsynced.len()
    }
    /// Notes what an operation has changed. `start`: that of the server which has told it.
    pub fn note(&mut self, op: &Op, answer: &Answer, start: u64) {
        let Some(position) = answer.position.filter(|position| !position.durable) else { return };
        self.number += 1;
        let other = match op {
            Op::Rename { parent, .. } | Op::Exchange { parent, .. } => Some(*parent),
            _ => None,
        };
        // What was made is lost with its name, and its own handles are told of that.
        let made = match (op, &answer.reply) {
            (Op::Create { .. } | Op::TempFile { .. } | Op::MakeDir { .. }, Reply::Attr(attr)) => Some(attr.ino),
            _ => None,
        };
        for ino in op.home().into_iter().chain(other).chain(made) {
            if start == self.start {
                self.unsynced.insert(ino, Last { position, number: self.number, start });
            } else {
                // The next start was asked before this answer was looked at: nobody knows.
                self.lose([ino]);
            }
        }
    }
    /// Notes that an inode's changes up to a number are durable; without an inode those of all.
    pub fn synced(&mut self, ino: Option<Ino>, number: u64) {
        match ino {
            Some(ino) if self.unsynced.get(&ino).is_some_and(|last| last.number <= number) => {
                self.unsynced.remove(&ino);
            }
            Some(_) => {}
            None => self.unsynced.retain(|_, last| last.number > number),
        }
    }
    /// All that may not be durable, for a start of the server that is to be asked what it has of it; in parts of a size that a frame
    /// has. What the former start told from now on counts as lost.
    pub fn ask(&mut self, start: u64) -> Vec<Vec<Changed>> {
        self.start = start;
        let changed = |(&ino, last): (&Ino, &Last)| {
            let Position { group, term, index, .. } = last.position;
            Changed { ino, group, term, index, start: last.start }
        };
        let all: Vec<_> = self.unsynced.iter().map(changed).collect();
        all.chunks(RECLAIM_ITEMS_MAX).map(<[Changed]>::to_vec).collect()
    }
    /// Notes what the server has lost.
    pub fn lose(&mut self, inodes: impl IntoIterator<Item = Ino>) {
        let next = self.losses.wrapping_add(1);
        for ino in inodes {
            self.losses = next;
            self.unsynced.remove(&ino);
            self.lost.insert(ino, Loss { number: next, is_seen: false });
            let told: Vec<_> = self.told.range((ino, 0)..=(ino, u32::MAX)).copied().collect();
            told.iter().for_each(|handle| _ = self.told.remove(handle));
            self.untold = Some((self.untold.map_or(0, |(count, _)| count) + 1, ino));
        }
        // Later ones can't be told from these.
        let now = self.losses;
        self.lost.retain(|_, loss| now.wrapping_sub(loss.number) < LOSSES_APART);
    }
    /// True, once for each loss, if the inode has lost changes while a handle was open, or before it was opened and nobody was told yet: who
    /// writes with one handle and syncs with another learns of it too (as Linux does, `errseq_sample`). The handle's highest byte is
    /// `losses` at its open.
    pub fn tell_loss_of(&mut self, ino: Ino, handle: u32) -> bool {
        let Some(loss) = self.lost.get_mut(&ino) else { return false };
        let was_open = (1..LOSSES_APART).contains(&loss.number.wrapping_sub(losses_of(handle)));
        if loss.is_seen && !was_open {
            return false;
        }
        loss.is_seen = true;
        self.told.insert((ino, handle))
    }
    /// Forgets the losses of an inode that nobody has open any more, if somebody was told.
    pub fn closed(&mut self, ino: Ino) {
        if self.lost.get(&ino).is_some_and(|loss| loss.is_seen) {
            self.lost.remove(&ino);
            self.told.retain(|(other, _)| *other != ino);
        }
    }
    /// Number of inodes that have lost changes since the last call, and one of them.
    pub fn news_of_loss(&mut self) -> Option<(u64, Ino)> {
        self.untold.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{At, GroupId, Index, Reply, Sync, Term};

    fn changed(changes: &mut Changes, ino: u64, index: u64, start: u64) {
        let op = Op::Write { ino: Ino(ino), at: At::End, sync: Sync::Ordered, kill_privileges: false };
        let position = Position { group: GroupId(1), term: Term(1), index: Index(index), durable: false };
        changes.note(&op, &Answer { reply: Reply::Done, data: None, position: Some(position) }, start);
    }
    fn asked(changes: &mut Changes, start: u64) -> Vec<(u64, u64, u64)> {
        let all = changes.ask(start).concat();
        all.iter().map(|changed| (changed.ino.0, changed.index.0, changed.start)).collect()
    }

    #[test]
    fn the_last_change_of_each_inode_is_asked_about_until_it_is_durable() {
        let mut changes = Changes::default();
        assert!(asked(&mut changes, 1).is_empty());
        [(5, 1), (6, 2), (5, 3)].into_iter().for_each(|(ino, index)| changed(&mut changes, ino, index, 1));
        assert_eq!(asked(&mut changes, 2), [(5, 3, 1), (6, 2, 1)]);
        let number = changes.number();
        changed(&mut changes, 5, 4, 2);
        changes.synced(Some(Ino(5)), number);
        assert_eq!(changes.inodes(), 2, "a change came after what is durable");
        assert_eq!(asked(&mut changes, 3), [(5, 4, 2), (6, 2, 1)], "each with the start that told it");
        changes.synced(Some(Ino(6)), number);
        assert_eq!(asked(&mut changes, 4), [(5, 4, 2)]);
        changes.synced(None, changes.number());
        assert_eq!(changes.inodes(), 0);
    }

    #[test]
    fn handles_that_were_open_at_a_loss_learn_of_it() {
        let mut changes = Changes::default();
        changes.ask(1);
        changed(&mut changes, 5, 1, 1);
        changes.ask(2);
        let before = changes.losses();
        changes.lose([Ino(5)]);
        let later = changes.losses();
        assert!(!changes.tell_loss_of(Ino(6), handle_since(before, 1)));
        for number in [1, 2] {
            assert!(changes.tell_loss_of(Ino(5), handle_since(before, number)), "each handle");
            assert!(!changes.tell_loss_of(Ino(5), handle_since(before, number)), "once");
            assert!(!changes.tell_loss_of(Ino(5), handle_since(later, 3)), "opened later");
        }
        assert_eq!((changes.news_of_loss(), changes.news_of_loss()), (Some((1, Ino(5))), None));
        changes.lose([Ino(5)]);
        for opened in [before, later] {
            assert!(changes.tell_loss_of(Ino(5), handle_since(opened, 1)), "of the next loss too");
            assert!(!changes.tell_loss_of(Ino(5), handle_since(opened, 1)), "once");
        }
        changes.closed(Ino(5));
        assert!(!changes.tell_loss_of(Ino(5), handle_since(before, 7)), "it is forgotten");
        let losses = changes.losses();
        changes.lose([]);
        assert_eq!(changes.losses(), losses);
    }

    #[test]
    fn a_loss_that_nobody_was_told_of_is_told_to_who_opens_later() {
        let mut changes = Changes::default();
        changes.lose([Ino(5)]);
        changes.closed(Ino(5));
        let later = changes.losses();
        assert!(changes.tell_loss_of(Ino(5), handle_since(later, 1)), "whoever wrote has closed it");
        assert!(
            !changes.tell_loss_of(Ino(5), handle_since(later, 1))
                && !changes.tell_loss_of(Ino(5), handle_since(later, 2))
        );
        assert!(changes.tell_loss_of(Ino(5), handle_since(later - 1, 3)), "this one was open");
    }

    #[test]
    fn old_losses_are_not_taken_for_those_to_come() {
        let mut changes = Changes::default();
        changes.lose([Ino(5)]);
        (0..130).for_each(|_| changes.lose([Ino(6)]));
        assert!((0..=u8::MAX).all(|losses| !changes.tell_loss_of(Ino(5), handle_since(losses, 1))), "it is forgotten");
    }

    #[test]
    fn what_a_former_start_told_too_late_counts_as_lost() {
        let mut changes = Changes::default();
        changes.ask(1);
        changes.ask(2);
        changed(&mut changes, 5, 1, 1);
        assert!(changes.tell_loss_of(Ino(5), handle_since(0, 1)) && changes.inodes() == 0);
    }
}
