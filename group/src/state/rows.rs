//! The rows of the index that a group's state begins with.

use super::State;
use base::Result;
use store::format::values::{GroupRow, SessionRow, TermRow};
use store::format::{keys, values};
use store::index::Index;

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
