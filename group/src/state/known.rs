//! The inodes that clients know. For each it counts the answers by which the client learnt of the inode, less those
//! that the client has taken back (in FUSE: look-ups less FORGETs). A client that knows an inode may use its number at
//! any time, so an inode without a name stays until the client forgets it.
//!
//! Promise: an answer is counted when it is decided, under the group's lock. So the inode can't be freed before the
//! answer arrives, and a client never takes back more answers than were counted. Absent by design: anything on the
//! device. The end of a client, or a crash, ends all of the client's counts.

use crate::state::cache::Budget;
use crate::state::hash::Map;
use base::{Ino, VolumeId};
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

/// The known inodes of one group; see the module.
pub struct Known {
    /// Tables by volume: few are mounted, mostly one.
    volumes: Vec<(VolumeId, Map<Ino, Count>)>,
    inodes: usize,
    nameless: usize,
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
    /// No known inodes.
    pub fn new(budget: &Arc<Budget>) -> Known {
        Known { volumes: Vec::new(), inodes: 0, nameless: 0, budget: budget.clone(), taken: 0 }
    }
    fn table(&self, volume: VolumeId) -> Option<&Map<Ino, Count>> {
        self.volumes.iter().find(|(of, _)| *of == volume).map(|(_, table)| table)
    }
    fn count_mut(&mut self, volume: VolumeId, ino: Ino) -> Option<&mut Count> {
        self.volumes.iter_mut().find(|(of, _)| *of == volume)?.1.get_mut(&ino)
    }
    /// Counts an answer by which the client learns of an inode.
    pub fn told(&mut self, volume: VolumeId, ino: Ino, nameless: bool) {
        // Nearly always the inode is known already, and has a name.
        match self.count_mut(volume, ino) {
            Some(count) if !nameless => *count += 1,
            _ => self.told_first(volume, ino, nameless),
        }
    }
    fn told_first(&mut self, volume: VolumeId, ino: Ino, nameless: bool) {
        let at = match self.volumes.iter().position(|(of, _)| *of == volume) {
            Some(at) => at,
            None => {
                self.volumes.push((volume, Map::default()));
                self.volumes.len() - 1
            }
        };
        let table = &mut self.volumes[at].1;
        let before = table.len();
        let count = table.entry(ino).or_insert(0);
        *count += 1;
        if nameless && *count & NAMELESS == 0 {
            *count |= NAMELESS;
            self.nameless += 1;
        }
        if table.len() != before {
            self.inodes += 1;
            self.settle();
        }
    }
    /// Takes back `times` answers about an inode, at most as many as were counted.
    pub fn forget(&mut self, volume: VolumeId, ino: Ino, times: u64) -> Left {
        let Some((_, table)) = self.volumes.iter_mut().find(|(of, _)| *of == volume) else { return Left::Nobody };
        let Some(count) = table.get_mut(&ino) else { return Left::Nobody };
        let left = (*count & TIMES).saturating_sub(times);
        if left > 0 && !active(Bug::ForgetEndsEarly) {
            *count = *count & !TIMES | left;
            return Left::Told;
        }
        let nameless = *count & NAMELESS != 0;
        table.remove(&ino);
        if table.capacity() > KEPT_MIN && table.len() < table.capacity() / SHRINK_AT {
            table.shrink_to(table.len() * 2);
        }
        assert!(self.inodes > 0, "a table has an inode that is not counted");
        self.inodes -= 1;
        self.nameless -= usize::from(nameless);
        self.settle();
        if nameless { Left::Nameless } else { Left::Nobody }
    }
    /// True if a client knows the inode.
    pub fn knows(&self, volume: VolumeId, ino: Ino) -> bool {
        self.table(volume).is_some_and(|table| table.contains_key(&ino))
    }
    /// Notes that an inode which may be known has lost its last name, or got one.
    pub fn name(&mut self, volume: VolumeId, ino: Ino, nameless: bool) {
        let Some(count) = self.count_mut(volume, ino) else { return };
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
    /// Forgets everything known of a volume.
    pub fn end(&mut self, volume: VolumeId) {
        self.volumes.retain(|(of, _)| *of != volume);
        let counts = self.volumes.iter().flat_map(|(_, table)| table.values());
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

    fn ino(sequence: u64) -> Ino {
        Ino::new(sequence, GroupId(0))
    }

    #[test]
    fn an_inode_is_known_until_all_answers_are_taken_back() {
        let mut known = Known::new(&Budget::new(100, 1));
        assert_eq!(known.forget(VOLUME, ino(5), 1), Left::Nobody, "it was never told");
        known.told(VOLUME, ino(5), false);
        known.told(VOLUME, ino(5), false);
        known.told(VolumeId(2), ino(5), false);
        assert_eq!(known.forget(VOLUME, ino(5), 1), Left::Told);
        assert!(known.knows(VOLUME, ino(5)));
        known.name(VOLUME, ino(5), true);
        assert_eq!(known.nameless(), 1);
        assert_eq!(known.forget(VOLUME, ino(5), 1), Left::Nameless);
        assert!(!known.knows(VOLUME, ino(5)) && known.knows(VolumeId(2), ino(5)));
        known.told(VOLUME, ino(5), true);
        known.name(VOLUME, ino(5), false);
        assert_eq!(known.forget(VOLUME, ino(5), 9), Left::Nobody, "it has a name again");
        known.told(VolumeId(2), ino(6), true);
        assert_eq!((known.len(), known.nameless()), (2, 1));
        known.end(VolumeId(2));
        assert_eq!((known.len(), known.nameless()), (0, 0));
    }

    #[test]
    fn caches_give_way_to_what_is_known_and_get_their_room_back() {
        let budget = Budget::new(2000, 2);
        let mut known = Known::new(&budget);
        let mut cache = crate::state::cache::Cache::new(&budget);
        let fill =
            |cache: &mut crate::state::cache::Cache<u64, u64>| (0..100_000).for_each(|key| cache.insert(key, key));
        (1..=20_000).for_each(|sequence| known.told(VOLUME, ino(sequence), false));
        fill(&mut cache);
        assert!(cache.len() <= 500, "no more than its share: {}", cache.len());
        (1..=20_000).for_each(|sequence| assert_eq!(known.forget(VOLUME, ino(sequence), 1), Left::Nobody));
        assert!(known.volumes[0].1.capacity() <= 2 * KEPT_MIN, "{}", known.volumes[0].1.capacity());
        fill(&mut cache);
        assert!(cache.len() > 500, "{}", cache.len());
    }
}
