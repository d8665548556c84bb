//! The inodes that clients know: how often each was told in an answer that its client takes back (FUSE: look-ups, less what
//! FORGET brings). Who knows an inode may come with its number at any time, so one that has no name any more stays until it
//! is forgotten.
//!
//! Promise: an inode counts from the moment at which the answer that tells of it is decided, under the group's lock. So
//! nobody can take it away between that and the answer, and what a client takes back has been counted: it answers an answer.
//! Absent by design: anything on the device. Clients that end, and crashes, take all of their counts with them.

use crate::state::cache::Room;
use crate::state::hash::Map;
use base::{Ino, VolumeId};
use runtime::seeded::{Bug, active};
use std::sync::Arc;

/// How often an inode was told, and a mark above that.
type Count = u64;

/// The inode has no name.
const NAMELESS: Count = 1 << 63;
const TIMES: Count = NAMELESS - 1;

const _: () = assert!(size_of::<(Ino, Count)>() == 16);

/// So many inodes that are known take as much memory as one that is cached with its place in the cache (see `open.rs`).
const PER_CACHED: usize = 10;

/// A table is made smaller once it could hold so many times what it holds.
const SHRINK_AT: usize = 8;

/// A table of fewer is left as it is.
const KEPT_MIN: usize = 1024;

/// See the module.
pub struct Known {
    /// Few volumes are mounted, mostly one.
    volumes: Vec<(VolumeId, Map<Ino, Count>)>,
    inodes: usize,
    nameless: usize,
    /// Caches give way to what is known.
    room: Arc<Room>,
    taken: usize,
}

/// What is left of an inode that a client has taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// Other answers told of it.
    Told,
    /// No client knows it.
    Nobody,
    /// No client knows it, and it has no name.
    Nameless,
}

impl Known {
    /// Nobody knows anything.
    pub fn new(room: &Arc<Room>) -> Known {
        Known { volumes: Vec::new(), inodes: 0, nameless: 0, room: room.clone(), taken: 0 }
    }
    fn table(&self, volume: VolumeId) -> Option<&Map<Ino, Count>> {
        self.volumes.iter().find(|(of, _)| *of == volume).map(|(_, table)| table)
    }
    fn count_mut(&mut self, volume: VolumeId, ino: Ino) -> Option<&mut Count> {
        self.volumes.iter_mut().find(|(of, _)| *of == volume)?.1.get_mut(&ino)
    }
    /// An answer tells of an inode, which has a name or not.
    pub fn told(&mut self, volume: VolumeId, ino: Ino, nameless: bool) {
        // Mostly it is known, and has a name.
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
    /// A client takes back `times` answers that told of an inode. What it never was told is not counted.
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
        self.inodes -= 1;
        self.nameless -= usize::from(nameless);
        self.settle();
        if nameless { Left::Nameless } else { Left::Nobody }
    }
    /// True if a client knows the inode.
    pub fn knows(&self, volume: VolumeId, ino: Ino) -> bool {
        self.table(volume).is_some_and(|table| table.contains_key(&ino))
    }
    /// An inode that may be known has lost its last name, or got one.
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
    /// Nobody knows anything of a volume any more.
    pub fn end(&mut self, volume: VolumeId) {
        self.volumes.retain(|(of, _)| *of != volume);
        let counts = self.volumes.iter().flat_map(|(_, table)| table.values());
        (self.inodes, self.nameless) = counts
            .fold((0, 0), |(inodes, nameless), count| (inodes + 1, nameless + usize::from(count & NAMELESS != 0)));
        self.settle();
    }
    /// How many inodes are known.
    pub fn len(&self) -> usize {
        self.inodes
    }
    /// How many of them have no name.
    pub fn nameless(&self) -> usize {
        self.nameless
    }
    /// Tells the caches how much room is taken.
    fn settle(&mut self) {
        let taken = self.inodes / PER_CACHED;
        if taken != self.taken {
            self.room.give_way(self.taken, taken);
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
        let mut known = Known::new(&Room::new(100, 1));
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
        let room = Room::new(2000, 2);
        let mut known = Known::new(&room);
        let mut cache = crate::state::cache::Cache::new(&room);
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
