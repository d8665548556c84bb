//! The inodes that sessions have open, and those that their clients know. For each of the latter it counts the answers by which
//! the client learnt of the inode, less those that the client has taken back (in FUSE: look-ups less FORGETs). A client that
//! knows an inode may use its number at any time, so an inode without a name stays until the client forgets it.
//!
//! Promise: an answer is counted when it is decided, under the group's lock. So the inode can't be freed before the
//! answer arrives, and a client never takes back more answers than were counted. Absent by design: anything on the
//! device. The end of a session ends all of its counts; after a crash a client on another machine tells again what it has
//! (rule P11).

use crate::state::cache::Budget;
use crate::state::hash::Map;
use base::{Ino, SessionId, VolumeId};
use runtime::seeded::{Bug, active};
use std::sync::Arc;

/// Number of answers by which the client learnt of an inode, and in its highest bit the mark `NAMELESS`.
type Count = u64;

/// The mark that the inode has no name.
const NAMELESS: Count = 1 << 63;
const TIMES: Count = NAMELESS - 1;
const _: () = assert!(NAMELESS & TIMES == 0);

const _: () = assert!(size_of::<(Ino, Count)>() == 16);

/// Number of known inodes that take as much memory as one cached inode takes with its key (see `open.rs`).
const PER_CACHED: usize = 10;

/// Factor by which a table's capacity may exceed its content before it is made smaller.
const SHRINK_AT: usize = 8;

/// Capacity below which a table is left as it is.
const KEPT_MIN: usize = 1024;

/// The inodes of a session.
struct Table {
    volume: VolumeId,
    session: SessionId,
    known: Map<Ino, Count>,
    /// Number of opens of each inode, over all handles.
    opens: Map<Ino, u64>,
}

/// The inodes of one group that sessions have open or know; see the module.
pub struct Known {
    /// Tables by session: few are mounted, mostly one.
    tables: Vec<Table>,
    inodes: usize,
    nameless: usize,
    /// Volumes of which a session has not told yet, after a start, which inodes it has open: each inode of these counts as open.
    untold: Vec<VolumeId>,
    /// The budget that is shared with the caches of inodes, which shrink for known inodes.
    budget: Arc<Budget>,
    taken: usize,
}

/// The state of an inode after a client has taken answers back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// The client still knows the inode, from other answers.
    Told,
    /// No client knows the inode.
    Nobody,
    /// No client knows the inode, and it has no name.
    Nameless,
}

impl Known {
    /// No inodes.
    pub fn new(budget: &Arc<Budget>) -> Known {
        let (tables, untold) = (Vec::new(), Vec::new());
        Known { tables, inodes: 0, nameless: 0, untold, budget: budget.clone(), taken: 0 }
    }
    fn of_volume(&self, volume: VolumeId) -> impl Iterator<Item = &Table> {
        self.tables.iter().filter(move |table| table.volume == volume)
    }
    fn table(&mut self, (volume, session): (VolumeId, SessionId)) -> Option<&mut Table> {
        self.tables.iter_mut().find(|table| table.session == session && table.volume == volume)
    }
    fn made_table(&mut self, (volume, session): (VolumeId, SessionId)) -> &mut Table {
        let at = match self.tables.iter().position(|table| table.session == session && table.volume == volume) {
            Some(at) => at,
            None => {
                self.tables.push(Table { volume, session, known: Map::default(), opens: Map::default() });
                self.tables.len() - 1
            }
        };
        &mut self.tables[at]
    }
    /// Counts an answer by which a session's client learns of an inode.
    pub fn told(&mut self, session: (VolumeId, SessionId), ino: Ino, nameless: bool) {
        // Nearly always the inode is known already, and has a name.
        match self.table(session).and_then(|table| table.known.get_mut(&ino)) {
            Some(count) if !nameless => *count += 1,
            _ => self.told_times(session, ino, nameless, 1),
        }
    }
    /// Counts several such answers.
    pub fn told_times(&mut self, session: (VolumeId, SessionId), ino: Ino, nameless: bool, times: u64) {
        if times == 0 {
            return;
        }
        let table = self.made_table(session);
        let before = table.known.len();
        let count = table.known.entry(ino).or_insert(0);
        *count += times;
        let marked = nameless && *count & NAMELESS == 0;
        if marked {
            *count |= NAMELESS;
        }
        let came = table.known.len() != before;
        self.nameless += usize::from(marked);
        if came {
            self.inodes += 1;
            self.settle();
        }
    }
    /// Takes back `times` answers of a session about an inode, at most as many as were counted.
    pub fn forget(&mut self, session: (VolumeId, SessionId), ino: Ino, times: u64) -> Left {
        let Some(Table { known, .. }) = self.table(session) else { return Left::Nobody };
        let Some(count) = known.get_mut(&ino) else { return Left::Nobody };
        let left = (*count & TIMES).saturating_sub(times);
        if left > 0 && !active(Bug::ForgetEndsEarly) {
            *count = *count & !TIMES | left;
            return Left::Told;
        }
        let nameless = *count & NAMELESS != 0;
        known.remove(&ino);
        if known.capacity() > KEPT_MIN && known.len() < known.capacity() / SHRINK_AT {
            known.shrink_to(known.len() * 2);
        }
        assert!(self.inodes > 0, "a table has an inode that is not counted");
        self.inodes -= 1;
        self.nameless -= usize::from(nameless);
        self.settle();
        match nameless {
            // If it is open, its last release frees it; another session's client may know it, too.
            true if self.holds(session.0, ino) => Left::Told,
            true => Left::Nameless,
            false => Left::Nobody,
        }
    }
    /// True if a client knows the inode.
    pub fn knows(&self, volume: VolumeId, ino: Ino) -> bool {
        self.of_volume(volume).any(|table| table.known.contains_key(&ino))
    }
    /// True if the session's client knows the inode. Those without a session know what any client knows.
    pub fn knows_in(&self, (volume, session): (VolumeId, SessionId), ino: Ino) -> bool {
        let mut tables = self.of_volume(volume).filter(|table| session == SessionId(0) || table.session == session);
        tables.any(|table| table.known.contains_key(&ino))
    }
    /// Forgets an inode for all sessions but one, which has removed its last name.
    pub fn forget_elsewhere(&mut self, (volume, session): (VolumeId, SessionId), ino: Ino) {
        if self.tables.len() < 2 || session == SessionId(0) {
            return;
        }
        for table in self.tables.iter_mut().filter(|table| table.volume == volume && table.session != session) {
            let Some(count) = table.known.remove(&ino) else { continue };
            assert!(self.inodes > 0, "a table has an inode that is not counted");
            self.inodes -= 1;
            self.nameless -= usize::from(count & NAMELESS != 0);
        }
        self.settle();
    }
    /// Counts an open of a session.
    pub fn opened(&mut self, session: (VolumeId, SessionId), ino: Ino) {
        self.opened_times(session, ino, 1);
    }
    /// Counts several opens.
    pub fn opened_times(&mut self, session: (VolumeId, SessionId), ino: Ino, times: u64) {
        if times == 0 {
            return;
        }
        *self.made_table(session).opens.entry(ino).or_insert(0) += times;
    }
    /// Takes one open of a session back.
    pub fn released(&mut self, session: (VolumeId, SessionId), ino: Ino) {
        let Some(Table { opens, .. }) = self.table(session) else { return };
        match opens.get_mut(&ino) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(opens.remove(&ino)),
        }
    }
    /// The inodes that a session's client knows or has open, each with whether it is open.
    pub fn of_session(&mut self, session: (VolumeId, SessionId)) -> Vec<(Ino, bool)> {
        let Some(Table { known, opens, .. }) = self.table(session) else { return Vec::new() };
        known.keys().map(|ino| (*ino, false)).chain(opens.keys().map(|ino| (*ino, true))).collect()
    }
    /// Number of opens of an inode in a session.
    pub fn opens_of(&mut self, session: (VolumeId, SessionId), ino: Ino) -> u64 {
        self.table(session).and_then(|table| table.opens.get(&ino).copied()).unwrap_or(0)
    }
    /// Number of opens of an inode, over all sessions; one more while a session has not told yet what it has open.
    pub fn opens(&self, volume: VolumeId, ino: Ino) -> u64 {
        let told: u64 = self.of_volume(volume).filter_map(|table| table.opens.get(&ino)).sum();
        told + u64::from(self.untold.contains(&volume))
    }
    /// True if the inode lives on without a name: a session has it open, or its client knows it.
    pub fn holds(&self, volume: VolumeId, ino: Ino) -> bool {
        self.opens(volume, ino) > 0 || self.knows(volume, ino)
    }
    /// Sets whether all inodes of a volume count as open, because a session has not told yet which it has open.
    pub fn set_untold(&mut self, volume: VolumeId, is_untold: bool) {
        self.untold.retain(|of| *of != volume);
        if is_untold {
            self.untold.push(volume);
        }
    }
    /// Notes that an inode which may be known has lost its last name, or got one.
    pub fn name(&mut self, volume: VolumeId, ino: Ino, nameless: bool) {
        for table in self.tables.iter_mut().filter(|table| table.volume == volume) {
            let Some(count) = table.known.get_mut(&ino) else { continue };
            match (nameless, *count & NAMELESS != 0) {
                (true, false) => {
                    *count |= NAMELESS;
                    self.nameless += 1;
                }
                (false, true) => {
                    *count &= !NAMELESS;
                    self.nameless -= 1;
                }
                _ => {}
            }
        }
    }
    /// True if a session has opened or learnt of anything.
    pub fn has(&self, session: SessionId) -> bool {
        self.tables.iter().any(|table| table.session == session)
    }
    /// Forgets everything of all sessions.
    pub fn end_all(&mut self) {
        self.tables.clear();
        (self.inodes, self.nameless) = (0, 0);
        self.untold.clear();
        self.settle();
    }
    /// Forgets everything of a session.
    pub fn end(&mut self, session: SessionId) {
        self.tables.retain(|table| table.session != session);
        let counts = self.tables.iter().flat_map(|table| table.known.values());
        (self.inodes, self.nameless) = counts
            .fold((0, 0), |(inodes, nameless), count| (inodes + 1, nameless + usize::from(count & NAMELESS != 0)));
        self.settle();
    }
    /// Number of known inodes.
    pub fn len(&self) -> usize {
        self.inodes
    }
    /// Number of known inodes without a name.
    pub fn nameless(&self) -> usize {
        self.nameless
    }
    /// Updates the part of the budget that is taken from the caches.
    fn settle(&mut self) {
        assert!(self.nameless <= self.inodes, "{} of {} known inodes have no name", self.nameless, self.inodes);
        let taken = self.inodes / PER_CACHED;
        if taken != self.taken {
            self.budget.give_way(self.taken, taken);
            self.taken = taken;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::GroupId;

    const VOLUME: VolumeId = VolumeId(1);
    const SESSION: (VolumeId, SessionId) = (VOLUME, SessionId(1));
    const OTHER: (VolumeId, SessionId) = (VolumeId(2), SessionId(2));

    fn ino(sequence: u64) -> Ino {
        Ino::new(sequence, GroupId(0))
    }

    #[test]
    fn an_inode_is_known_until_all_answers_are_taken_back() {
        let mut known = Known::new(&Budget::new(100, 1));
        assert_eq!(known.forget(SESSION, ino(5), 1), Left::Nobody, "it was never told");
        known.told(SESSION, ino(5), false);
        known.told(SESSION, ino(5), false);
        known.told(OTHER, ino(5), false);
        assert_eq!(known.forget(SESSION, ino(5), 1), Left::Told);
        assert!(known.knows(VOLUME, ino(5)));
        known.name(VOLUME, ino(5), true);
        assert_eq!(known.nameless(), 1);
        assert_eq!(known.forget(SESSION, ino(5), 1), Left::Nameless);
        assert!(!known.knows(VOLUME, ino(5)) && known.knows(VolumeId(2), ino(5)));
        known.told(SESSION, ino(5), true);
        known.name(VOLUME, ino(5), false);
        assert_eq!(known.forget(SESSION, ino(5), 9), Left::Nobody, "it has a name again");
        known.told(OTHER, ino(6), true);
        assert_eq!((known.len(), known.nameless()), (2, 1));
        known.end(OTHER.1);
        assert_eq!((known.len(), known.nameless()), (0, 0));
    }

    #[test]
    fn an_inode_is_held_until_the_last_session_lets_go() {
        let mut known = Known::new(&Budget::new(100, 1));
        let second = (VOLUME, SessionId(2));
        known.told(SESSION, ino(5), true);
        known.told(second, ino(5), true);
        known.opened(second, ino(6));
        known.opened(SESSION, ino(6));
        assert_eq!(known.forget(SESSION, ino(5), 1), Left::Told, "the second one knows it");
        assert_eq!(known.opens(VOLUME, ino(6)), 2);
        known.released(SESSION, ino(6));
        known.released(SESSION, ino(6));
        assert_eq!(known.opens(VOLUME, ino(6)), 1, "a session takes back no open of another one");
        known.end(second.1);
        assert!(!known.holds(VOLUME, ino(5)) && !known.holds(VOLUME, ino(6)));
        known.set_untold(VOLUME, true);
        assert!(known.holds(VOLUME, ino(7)) && !known.holds(VolumeId(2), ino(7)));
        known.set_untold(VOLUME, false);
        assert!(!known.holds(VOLUME, ino(7)));
    }

    #[test]
    fn caches_give_way_to_what_is_known_and_get_their_room_back() {
        let budget = Budget::new(2000, 2);
        let mut known = Known::new(&budget);
        let mut cache = crate::state::cache::Cache::new(&budget);
        let fill =
            |cache: &mut crate::state::cache::Cache<u64, u64>| (0..100_000).for_each(|key| cache.insert(key, key));
        (1..=20_000).for_each(|sequence| known.told(SESSION, ino(sequence), false));
        fill(&mut cache);
        assert!(cache.len() <= 500, "no more than its share: {}", cache.len());
        (1..=20_000).for_each(|sequence| assert_eq!(known.forget(SESSION, ino(sequence), 1), Left::Nobody));
        assert!(known.tables[0].known.capacity() <= 2 * KEPT_MIN, "{}", known.tables[0].known.capacity());
        fill(&mut cache);
        assert!(cache.len() > 500, "{}", cache.len());
    }
}
