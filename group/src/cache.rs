//! A bounded cache of what the index holds, in two generations: when the young one is full it becomes the old one,
//! and what was not asked for since is forgotten. One pass over many keys costs at most half of what is hot.
//!
//! Groups share their room, because work is seldom spread over all of them: a group that is alone at work may use all
//! of it. Others have their share at any time; together they never hold more than twice the room.
//!
//! What lies beside a key in the index may be brought along, because it costs a tenth of what a look-up of its own would.
//! Such neighbours wait apart, so that they drive nothing out, and a cache counts whether they are asked for.

use crate::hash::{Map, MapEntries};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Entries that a cache gets even if others hold all the room.
const ENTRIES_MIN: usize = 16;

/// Entries that are forgotten for each that comes: those of a generation are gone before the next one is full, and
/// nobody waits for all of them at once.
const FORGOTTEN_PER_INSERT: usize = 4;

/// A neighbour that was asked for pays for so many that were not: a look-up of its own takes 3 to 4 us, to bring one along
/// about 1.
const GAIN_PER_USE: i32 = 3;
/// More is not counted, for or against, so that a change of habits shows after a few hundred uses.
const GAIN_MOST: i32 = 1024;
/// While neighbours do not pay, they are brought along for one miss in so many: that shows when they would again, at a
/// tenth of what a miss costs.
const PROBE_EVERY: u32 = 32;

/// How many entries the caches that share it may hold.
pub struct Room {
    held: AtomicUsize,
    /// So many together, as long as no cache needs its share.
    max: usize,
    share: usize,
}

impl Room {
    /// For caches of `sharers` groups, which hold at most `entries` together (but 16 each).
    pub fn new(entries: usize, sharers: usize) -> Arc<Room> {
        // All of the room in one cache, and each of the others' shares.
        let max = entries / 2;
        Arc::new(Room { held: AtomicUsize::new(0), max, share: (max / sharers).max(ENTRIES_MIN) })
    }
}

/// See the module.
pub struct Cache<K, V> {
    young: Map<K, V>,
    old: Map<K, V>,
    dying: MapEntries<K, V>,
    /// Neighbours that nobody has asked for yet.
    beside: Map<K, V>,
    fading: MapEntries<K, V>,
    /// What neighbours have saved, less what they cost.
    gain: i32,
    misses: u32,
    room: Arc<Room>,
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    /// An empty cache.
    pub fn new(room: &Arc<Room>) -> Cache<K, V> {
        let gone = || Map::default().into_iter();
        Cache {
            young: Map::default(),
            old: Map::default(),
            dying: gone(),
            beside: Map::default(),
            fading: gone(),
            gain: 0,
            misses: 0,
            room: room.clone(),
        }
    }
    /// A key's value; asking keeps it.
    pub fn get(&mut self, key: &K) -> Option<&V> {
        if !self.young.contains_key(key) {
            let (key, value) = self.old.remove_entry(key).or_else(|| self.use_neighbour(key))?;
            self.room.held.fetch_sub(1, Ordering::Relaxed);
            self.insert(key, value);
        }
        self.young.get(key)
    }
    /// Sets a key's value.
    pub fn insert(&mut self, key: K, value: V) {
        let held = self.len();
        self.dying.by_ref().take(FORGOTTEN_PER_INSERT).for_each(drop);
        self.fading.by_ref().take(FORGOTTEN_PER_INSERT).for_each(drop);
        if self.young.len() >= self.half() && !self.young.contains_key(&key) {
            self.dying = std::mem::replace(&mut self.old, std::mem::take(&mut self.young)).into_iter();
        }
        self.old.remove(&key);
        self.beside.remove(&key);
        self.young.insert(key, value);
        self.count(held);
    }
    fn use_neighbour(&mut self, key: &K) -> Option<(K, V)> {
        let found = self.beside.remove_entry(key)?;
        self.gain = (self.gain + GAIN_PER_USE).min(GAIN_MOST);
        Some(found)
    }
    /// True if what lies beside a key that was missed should be brought along.
    pub fn wants_neighbours(&mut self) -> bool {
        self.misses = self.misses.wrapping_add(1);
        self.gain >= 0 || self.misses.is_multiple_of(PROBE_EVERY)
    }
    /// Takes a key's neighbour, unless it is known.
    pub fn insert_neighbour(&mut self, key: K, value: V) {
        if self.young.contains_key(&key) || self.old.contains_key(&key) {
            return;
        }
        let held = self.len();
        self.fading.by_ref().take(FORGOTTEN_PER_INSERT).for_each(drop);
        // Half of a generation: with those that fade the caches stay within twice the room.
        if self.beside.len() >= self.half() / 2 {
            self.gain = self.gain.saturating_sub(self.beside.len() as i32).max(-GAIN_MOST);
            self.fading = std::mem::take(&mut self.beside).into_iter();
        }
        self.beside.insert(key, value);
        self.count(held);
    }
    /// Entries of a generation at most, now.
    fn half(&self) -> usize {
        let others = self.room.held.load(Ordering::Relaxed).saturating_sub(self.len());
        self.room.max.saturating_sub(others).max(self.room.share) / 2
    }
    /// Tells the others how many entries there are; there were `before`.
    fn count(&self, before: usize) {
        let held = self.len();
        if held >= before {
            self.room.held.fetch_add(held - before, Ordering::Relaxed);
        } else {
            self.room.held.fetch_sub(before - held, Ordering::Relaxed);
        }
    }
    /// Changes a key's value if it is there.
    pub fn change(&mut self, key: &K, with: impl FnOnce(&mut V)) {
        let known = self.young.get_mut(key).or_else(|| self.old.get_mut(key)).or_else(|| self.beside.get_mut(key));
        if let Some(value) = known {
            with(value);
        }
    }
    /// Forgets a key.
    pub fn remove(&mut self, key: &K) {
        let held = self.len();
        self.young.remove(key);
        self.old.remove(key);
        self.beside.remove(key);
        self.count(held);
    }
    /// Forgets keys.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        let held = self.len();
        self.young.retain(&mut keep);
        self.old.retain(&mut keep);
        self.beside.retain(&mut keep);
        self.count(held);
    }
    /// How many entries it holds in memory.
    fn len(&self) -> usize {
        self.young.len() + self.old.len() + self.dying.len() + self.beside.len() + self.fading.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone(entries: usize) -> Cache<u64, u64> {
        Cache::new(&Room::new(entries, 1))
    }

    #[test]
    fn it_holds_as_much_as_it_may() {
        let mut cache = alone(200);
        for key in 0..100u64 {
            cache.insert(key, key);
        }
        assert_eq!(cache.len(), 100);
        assert!((50..100).all(|key| cache.get(&key) == Some(&key)));
    }

    #[test]
    fn what_is_asked_for_stays_and_the_bound_holds() {
        let mut cache = alone(200);
        cache.insert(0u64, 0u64);
        for key in 1..10_000 {
            cache.insert(key, key);
            assert_eq!(cache.get(&0), Some(&0), "the hot key is gone after {key}");
            assert!(cache.len() <= 200);
        }
        assert_eq!(cache.get(&1), None);
        cache.change(&0, |value| *value = 7);
        assert_eq!(cache.get(&0), Some(&7));
        cache.remove(&0);
        assert_eq!(cache.get(&0), None);
    }

    #[test]
    fn neighbours_drive_nothing_out_and_are_known() {
        let mut cache = alone(4000);
        (0..900u64).for_each(|key| cache.insert(key, key));
        for key in 1000..100_000 {
            let before = cache.len();
            cache.insert_neighbour(key, key);
            assert!(cache.len() <= 4000 && before <= cache.len() + FORGOTTEN_PER_INSERT, "not all at once");
        }
        assert!((0..900).all(|key| cache.get(&key) == Some(&key)));
        cache.change(&99_999, |value| *value = 7);
        assert_eq!(cache.get(&99_999), Some(&7));
        cache.insert(99_998, 8);
        assert_eq!(cache.get(&99_998), Some(&8), "what comes by itself is newer");
        cache.remove(&99_997);
        assert_eq!(cache.get(&99_997), None);
        cache.insert_neighbour(0, 1);
        assert_eq!(cache.get(&0), Some(&0), "what is known stays");
        cache.retain(|key, _| *key < 1000);
        assert_eq!(cache.get(&99_996), None);
        assert_eq!(cache.len() - cache.dying.len() - cache.fading.len(), 900);
        assert_eq!(cache.room.held.load(Ordering::Relaxed), cache.len());
    }

    #[test]
    fn neighbours_are_brought_along_while_one_in_four_is_asked_for() {
        let mut cache = alone(4000);
        // Misses one key in 16, brings the 15 behind it along, and asks for so many of them. How many misses did.
        let pass = |cache: &mut Cache<u64, u64>, keys: std::ops::Range<u64>, asked: u64| {
            let mut count = 0;
            for first in keys.step_by(16) {
                assert_eq!(cache.get(&first), None);
                cache.insert(first, first);
                if cache.wants_neighbours() {
                    count += 1;
                    (first + 1..first + 16).for_each(|key| cache.insert_neighbour(key, key));
                }
                (first + 1..first + 1 + asked).for_each(|key| {
                    cache.get(&key);
                });
            }
            count
        };
        assert_eq!(pass(&mut cache, 0..160_000, 15), 10_000);
        assert_eq!(pass(&mut cache, 160_000..320_000, 5), 10_000);
        let in_vain = pass(&mut cache, 320_000..480_000, 0);
        assert!((300..1000).contains(&in_vain), "{in_vain} of 10,000: until it shows, and now and then to see");
        let in_vain = pass(&mut cache, 480_000..640_000, 1);
        assert!((300..400).contains(&in_vain), "{in_vain} of 10,000");
        let again = pass(&mut cache, 640_000..800_000, 15);
        assert!(again > 7000, "{again} of 10,000");
    }

    #[test]
    fn who_works_alone_has_all_the_room_and_others_still_get_their_share() {
        let room = Room::new(2000, 10);
        let mut caches: Vec<Cache<u64, u64>> = (0..10).map(|_| Cache::new(&room)).collect();
        let fill = |cache: &mut Cache<u64, u64>| (0..100_000).for_each(|key| cache.insert(key, key));
        fill(&mut caches[0]);
        assert!((500..=1000).contains(&caches[0].len()), "{}", caches[0].len());
        for cache in &mut caches[1..] {
            fill(cache);
            assert!((50..=200).contains(&cache.len()), "{}", cache.len());
        }
        let held = |caches: &[Cache<u64, u64>]| caches.iter().map(Cache::len).sum::<usize>();
        assert!(held(&caches) <= 2000);
        assert_eq!(held(&caches), room.held.load(Ordering::Relaxed));
        fill(&mut caches[0]);
        assert!(held(&caches) <= 1100, "who had all gives it back: {}", held(&caches));
        for cache in &mut caches {
            cache.retain(|_, _| false);
            fill(cache);
            cache.retain(|key, _| key % 2 == 0);
            cache.remove(&99_998);
        }
        assert_eq!(held(&caches), room.held.load(Ordering::Relaxed));
    }
}
