//! The rows of the index that a group's state begins with.

use super::across::Across;
use super::cache::Budget;
use super::{CacheBudgets, State};
use crate::Options;
use base::{GroupId, Result};
use std::ops::Range;
use store::format::values::{GroupRow, SessionRow, TermRow};
use store::format::{keys, values};
use store::index::Index;
use store::purge::Purges;
use store::reserve::Reserves;

/// Rough number of bytes that a cached name or leaf takes, by which a cache's bytes become a number of entries.
const NAME_BYTES: u64 = 400;
const LEAF_BYTES: u64 = 1200;

/// The state of each group as the index has it; blocking. `secret`: that of the keys of cached names.
pub(crate) fn read_states(index: &dyn Index, count: u32, options: &Options, secret: u64) -> Result<Vec<State>> {
    read_some(index, (0..count, count), options, secret)
}

/// The state of one replicated group of so many as the index has it; blocking. `secret`: as for `read_states`.
pub(crate) fn read_state(
    index: &dyn Index,
    (group, count): (GroupId, u32),
    options: &Options,
    secret: u64,
) -> Result<State> {
    let mut state = read_some(index, (group.0..group.0 + 1, count), options, secret)?.pop().expect("there is one");
    state.across = Across::read(index, group)?;
    Ok(state)
}

fn read_some(
    index: &dyn Index,
    (numbers, count): (Range<u32>, u32),
    options: &Options,
    secret: u64,
) -> Result<Vec<State>> {
    let budget = |entries: u64| Budget::new(entries as usize, count as usize);
    let names = options.cache_bytes / 4 / NAME_BYTES;
    let budgets = CacheBudgets {
        inodes: budget(names),
        entries: budget(names),
        targets: budget(names / 16),
        xattrs: budget(names / 16),
        leaves: budget(options.cache_bytes / 2 / LEAF_BYTES),
        xattr_bytes: (options.cache_bytes / 8) as usize / count as usize,
        secret,
    };
    let (from, to) = keys::volumes();
    let volumes = index.scan(&from, &to, usize::MAX)?;
    let volumes = volumes.iter().map(|(_, value)| values::decode_volume(value).map(|volume| volume.id));
    let volumes: Vec<_> = volumes.collect::<Result<_>>()?;
    let state = |number| {
        let group = GroupId(number);
        let rows = Rows::read(index, group)?;
        let (purges, reserves) = (Purges::read(index, group, &volumes)?, Reserves::read(index, group, &volumes)?);
        let mut state = State::new(group, rows.row, purges, reserves, &budgets);
        state.set_rows(rows);
        Ok(state)
    };
    numbers.map(state).collect()
}

/// A group's rows of the index that a state begins with.
pub(crate) struct Rows {
    pub row: GroupRow,
    pub sessions: Vec<(base::SessionId, SessionRow)>,
    pub terms: Vec<TermRow>,
}

impl Rows {
    /// Reads them; blocking.
    pub fn read(index: &dyn Index, group: base::GroupId) -> Result<Rows> {
        let row = match index.get(&keys::group(group))? {
            Some(row) => values::decode_group(&row)?,
            None => GroupRow::fresh(),
        };
        let (from, to) = keys::sessions(group);
        let sessions = index.scan(&from, &to, usize::MAX)?;
        let session = |(key, value): &(Vec<u8>, Vec<u8>)| Ok((keys::session_id(key), values::decode_session(value)?));
        let sessions = sessions.iter().map(session).collect::<Result<_>>()?;
        let terms = index.get(&keys::terms(group))?.map_or(Ok(Vec::new()), |row| values::decode_terms(&row))?;
        Ok(Rows { row, sessions, terms })
    }
}

impl State {
    /// Takes what the index says of the group, in place of all that was applied since.
    pub fn set_rows(&mut self, rows: Rows) {
        let Rows { row, sessions, terms } = rows;
        (self.born, self.named, self.row) = (row.next_ino, row.next_cookie, row);
        self.sessions = sessions.into_iter().map(|(id, session)| (id, session.into())).collect();
        self.terms = terms;
        // Deletions that were void count no longer; of those that the index has, it holds no rows.
        self.dropped.clear();
        self.pending.clear();
        self.pending_order.clear();
    }
}
