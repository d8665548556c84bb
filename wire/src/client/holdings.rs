//! The inodes that a session's client has open and knows: it tells a server that was started anew (rule P11).
//!
//! Promise: as many opens and answers are counted here as the server has counted, once all requests are answered.

use crate::Context;
use crate::codec::session::{Held, RECLAIM_ITEMS_MAX};
use base::{DirEntry, GroupId, Ino, LockWish, Op, Reply};
use std::collections::BTreeMap;

/// Opens and answers by inode.
#[derive(Default)]
pub struct Holdings {
    inodes: BTreeMap<Ino, (u64, u64)>,
    /// The group whose inodes its server counts; None: those of all.
    pub only: Option<GroupId>,
}

impl Holdings {
    /// Counts what an answered request has changed.
    pub fn note(&mut self, context: &Context, op: &Op, reply: &Reply) {
        match (op, reply) {
            (Op::Open { .. }, Reply::Attr(attr)) => self.more(attr.ino, 1, 0),
            (Op::Create { .. } | Op::TempFile { .. }, Reply::Attr(attr)) => {
                self.more(attr.ino, 1, u64::from(context.keeps));
            }
            (
                Op::Lookup { .. }
                | Op::Recall { .. }
                | Op::MakeDir { .. }
                | Op::SymLink { .. }
                | Op::MakeNode { .. }
                | Op::Link { .. },
                Reply::Attr(attr),
            ) if context.keeps => self.more(attr.ino, 0, 1),
            (Op::ReadDir { .. }, Reply::Entries { entries, .. }) if context.keeps => {
                let told = |entry: &&DirEntry| entry.attr.is_some();
                entries.iter().filter(told).for_each(|entry| self.more(entry.ino, 0, 1));
            }
            (Op::Release { ino }, _) => self.less(*ino, 1, 0),
            (Op::Forget { ino, times }, _) => self.less(*ino, 0, *times),
            _ => {}
        }
    }
    /// True if the inode is open.
    pub fn has_open(&self, ino: Ino) -> bool {
        self.inodes.get(&ino).is_some_and(|held| held.0 > 0)
    }
    /// All, each with whether it is open.
    pub fn inodes(&self) -> Vec<(Ino, bool)> {
        self.inodes.iter().map(|(&ino, &(opens, _))| (ino, opens > 0)).collect()
    }
    fn more(&mut self, ino: Ino, opens: u64, known: u64) {
        if self.only.is_none_or(|group| ino.group() == group) {
            let held = self.inodes.entry(ino).or_default();
            *held = (held.0 + opens, held.1 + known);
        }
    }
    fn less(&mut self, ino: Ino, opens: u64, known: u64) {
        let Some(held) = self.inodes.get_mut(&ino) else { return };
        *held = (held.0.saturating_sub(opens), held.1.saturating_sub(known));
        if *held == (0, 0) {
            self.inodes.remove(&ino);
        }
    }
    /// All, in parts of a size that a frame has; at least one part.
    pub fn parts(&self) -> Vec<Vec<Held>> {
        let held: Vec<_> = self.inodes.iter().map(|(&ino, &(opens, known))| Held { ino, opens, known }).collect();
        if held.is_empty() { vec![held] } else { held.chunks(RECLAIM_ITEMS_MAX).map(<[Held]>::to_vec).collect() }
    }
}

/// The operations that take back what an answered request has opened and made known, when nobody has waited for the answer.
pub fn undo(only: Option<GroupId>, context: &Context, op: &Op, reply: &Reply) -> Vec<Op> {
    let mut held = Holdings { only, ..Holdings::default() };
    held.note(context, op, reply);
    let of = |(ino, (opens, known)): (Ino, (u64, u64))| {
        let releases = (0..opens).map(move |_| Op::Release { ino });
        releases.chain((known > 0).then_some(Op::Forget { ino, times: known }))
    };
    let lock = match (op, reply) {
        (Op::Lock { lock, wish: LockWish::Take | LockWish::Queue }, Reply::InTheWay(None)) => {
            Some(Op::Lock { lock: lock.clone(), wish: LockWish::Release })
        }
        (Op::Lock { lock, wish: LockWish::Queue }, _) => Some(Op::Lock { lock: lock.clone(), wish: LockWish::Leave }),
        _ => None,
    };
    held.inodes.into_iter().flat_map(of).chain(lock).collect()
}
