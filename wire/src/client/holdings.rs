//! The inodes that a session's client has open and knows: it tells a server that was started anew (rule P11).
//!
//! Promise: as many opens and answers are counted here as the server has counted, once all requests are answered.

use crate::Context;
use crate::codec::session::{Held, RECLAIM_ITEMS_MAX};
use base::{DirEntry, Ino, LockWish, Op, Reply};
use std::collections::BTreeMap;

/// Opens and answers by inode.
#[derive(Default)]
pub struct Holdings(BTreeMap<Ino, (u64, u64)>);

impl Holdings {
    /// Counts what an answered request has changed.
    pub fn note(&mut self, context: &Context, op: &Op, reply: &Reply) {
        match (op, reply) {
            (Op::Open { .. }, Reply::Attr(attr)) => self.0.entry(attr.ino).or_default().0 += 1,
            (Op::Create { .. } | Op::TempFile { .. }, Reply::Attr(attr)) => {
                let (opens, known) = self.0.entry(attr.ino).or_default();
                (*opens, *known) = (*opens + 1, *known + u64::from(context.keeps));
            }
            (
                Op::Lookup { .. }
                | Op::Recall { .. }
                | Op::MakeDir { .. }
                | Op::SymLink { .. }
                | Op::MakeNode { .. }
                | Op::Link { .. },
                Reply::Attr(attr),
            ) if context.keeps => self.0.entry(attr.ino).or_default().1 += 1,
            (Op::ReadDir { .. }, Reply::Entries { entries, .. }) if context.keeps => {
                let told = |entry: &&DirEntry| entry.attr.is_some();
                entries.iter().filter(told).for_each(|entry| self.0.entry(entry.ino).or_default().1 += 1);
            }
            (Op::Release { ino }, _) => self.less(*ino, 1, 0),
            (Op::Forget { ino, times }, _) => self.less(*ino, 0, *times),
            _ => {}
        }
    }
    /// True if the inode is open.
    pub fn has_open(&self, ino: Ino) -> bool {
        self.0.get(&ino).is_some_and(|held| held.0 > 0)
    }
    /// All, each with whether it is open.
    pub fn inodes(&self) -> Vec<(Ino, bool)> {
        self.0.iter().map(|(&ino, &(opens, _))| (ino, opens > 0)).collect()
    }
    fn less(&mut self, ino: Ino, opens: u64, known: u64) {
        let Some(held) = self.0.get_mut(&ino) else { return };
        *held = (held.0.saturating_sub(opens), held.1.saturating_sub(known));
        if *held == (0, 0) {
            self.0.remove(&ino);
        }
    }
    /// All, in parts of a size that a frame has; at least one part.
    pub fn parts(&self) -> Vec<Vec<Held>> {
        let held: Vec<_> = self.0.iter().map(|(&ino, &(opens, known))| Held { ino, opens, known }).collect();
        if held.is_empty() { vec![held] } else { held.chunks(RECLAIM_ITEMS_MAX).map(<[Held]>::to_vec).collect() }
    }
}

/// The operations that take back what an answered request has opened and made known, when nobody has waited for the answer.
pub fn undo(context: &Context, op: &Op, reply: &Reply) -> Vec<Op> {
    let mut held = Holdings::default();
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
    held.0.into_iter().flat_map(of).chain(lock).collect()
}
