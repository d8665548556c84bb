//! A bounded cache of index content, in two generations. An old entry that is read becomes young again. When the young
//! generation is full it becomes the old one, and the former old one is dropped. So one pass over many keys costs at
//! most half of the hot entries.
//!
//! The caches of all groups share a budget of entries, because work is seldom spread over all groups: if one group
//! works alone, its cache may use the whole budget. Every other cache may use its share at any time; together they hold
//! at most twice the budget's `max`.

use crate::state::hash::{Map, MapEntries};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of entries that a cache may hold even if other caches hold the whole budget.
const ENTRIES_MIN: usize = 16;

/// Number of dead entries that are freed for each new one. So a dropped generation is freed before the next one is
/// full, and no caller waits until all of it is freed.
const FORGOTTEN_PER_INSERT: usize = 4;

/// The number of entries that the caches sharing it may hold.
pub struct Budget {
    held: AtomicUsize,
    /// Largest number of entries of all caches together, as long as no cache needs its share.
    max: usize,
    share: usize,
}

impl Budget {
    /// A budget for the caches of `sharers` groups, which together hold at most `entries` (but each may hold 16).
    pub fn new(entries: usize, sharers: usize) -> Arc<Budget> {
        assert!(sharers > 0, "a budget is shared by some cache");
        // At worst one cache holds all of `max`, and then each other cache takes its share: twice `max` in all.
        let max = entries / 2;
        Arc::new(Budget { held: AtomicUsize::new(0), max, share: (max / sharers).max(ENTRIES_MIN) })
    }
    /// Takes as much of the budget as `now` entries for something that is no cache, instead of `before` so far.
    pub fn give_way(&self, before: usize, now: usize) {
        self.held.fetch_add(now, Ordering::Relaxed);
        let all = self.held.fetch_sub(before, Ordering::Relaxed);
        assert!(all >= before, "room for {before} entries was taken before");
    }
}

/// A cache; see the module.
pub struct Cache<K, V> {
    young: Map<K, V>,
    old: Map<K, V>,
    dying: MapEntries<K, V>,
    budget: Arc<Budget>,
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    /// An empty cache.
    pub fn new(budget: &Arc<Budget>) -> Cache<K, V> {
        Cache { young: Map::default(), old: Map::default(), dying: Map::default().into_iter(), budget: budget.clone() }
    }
    /// Reads a key's value by `take`, and marks it as recently used.
    #[inline]
    pub fn get<T>(&mut self, key: &K, take: impl FnOnce(&V) -> T) -> Option<T> {
        // Hot entries are young: one look-up finds them.
        match self.young.get(key) {
            Some(value) => Some(take(value)),
            None => self.revive(key).map(take),
        }
    }
    fn revive(&mut self, key: &K) -> Option<&V> {
        let (key, value) = self.old.remove_entry(key)?;
        let all = self.budget.held.fetch_sub(1, Ordering::Relaxed);
        assert!(all > 0, "the budget counts what this cache held");
        self.insert(key.clone(), value);
        self.young.get(&key)
    }
    /// Sets a key's value.
    pub fn insert(&mut self, key: K, value: V) {
        let held = self.len();
        self.dying.by_ref().take(FORGOTTEN_PER_INSERT).for_each(drop);
        if self.young.len() >= self.half() && !self.young.contains_key(&key) {
            self.dying = std::mem::replace(&mut self.old, std::mem::take(&mut self.young)).into_iter();
        }
        self.old.remove(&key);
        self.young.insert(key, value);
        self.count(held);
    }
    /// Largest number of entries of a generation at present.
    fn half(&self) -> usize {
        let others = self.budget.held.load(Ordering::Relaxed).saturating_sub(self.len());
        self.budget.max.saturating_sub(others).max(self.budget.share) / 2
    }
    /// Updates the shared count of entries; this cache had `before`.
    fn count(&self, before: usize) {
        let held = self.len();
        if held >= before {
            self.budget.held.fetch_add(held - before, Ordering::Relaxed);
        } else {
            let all = self.budget.held.fetch_sub(before - held, Ordering::Relaxed);
            assert!(all >= before - held, "the budget counts what this cache held");
        }
    }
    /// Changes a key's value if the cache has it.
    pub fn change(&mut self, key: &K, with: impl FnOnce(&mut V)) {
        if let Some(value) = self.young.get_mut(key).or(self.old.get_mut(key)) {
            with(value);
        }
    }
    /// Forgets a key.
    pub fn remove(&mut self, key: &K) {
        let held = self.len();
        self.young.remove(key);
        self.old.remove(key);
        self.count(held);
    }
    /// Drops keys for which `keep` is false.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        let held = self.len();
        self.young.retain(&mut keep);
        self.old.retain(&mut keep);
        self.count(held);
    }
    /// Number of entries in memory.
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len() + self.dying.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone(entries: usize) -> Cache<u64, u64> {
        Cache::new(&Budget::new(entries, 1))
    }

    #[test]
    fn it_holds_as_much_as_it_may() {
        let mut cache = alone(200);
        for key in 0..100u64 {
            cache.insert(key, key);
        }
        assert_eq!(cache.len(), 100);
        assert!((50..100).all(|key| cache.get(&key, |value| *value) == Some(key)));
    }

    #[test]
    fn what_is_asked_for_stays_and_the_bound_holds() {
        let mut cache = alone(200);
        cache.insert(0u64, 0u64);
        for key in 1..10_000 {
            cache.insert(key, key);
            assert_eq!(cache.get(&0, |value| *value), Some(0), "the hot key is gone after {key}");
            assert!(cache.len() <= 200);
        }
        assert_eq!(cache.get(&1, |value| *value), None);
        cache.change(&0, |value| *value = 7);
        assert_eq!(cache.get(&0, |value| *value), Some(7));
        cache.remove(&0);
        assert_eq!(cache.get(&0, |value| *value), None);
    }

    #[test]
    fn who_works_alone_has_all_the_room_and_others_still_get_their_share() {
        let budget = Budget::new(2000, 10);
        let mut caches: Vec<Cache<u64, u64>> = (0..10).map(|_| Cache::new(&budget)).collect();
        let fill = |cache: &mut Cache<u64, u64>| (0..100_000).for_each(|key| cache.insert(key, key));
        fill(&mut caches[0]);
        assert!((500..=1000).contains(&caches[0].len()), "{}", caches[0].len());
        for cache in &mut caches[1..] {
            fill(cache);
            assert!((50..=200).contains(&cache.len()), "{}", cache.len());
        }
        let held = |caches: &[Cache<u64, u64>]| caches.iter().map(Cache::len).sum::<usize>();
        assert!(held(&caches) <= 2000);
        assert_eq!(held(&caches), budget.held.load(Ordering::Relaxed));
        fill(&mut caches[0]);
        assert!(held(&caches) <= 1100, "who had all gives it back: {}", held(&caches));
        for cache in &mut caches {
            cache.retain(|_, _| false);
            fill(cache);
            cache.retain(|key, _| key % 2 == 0);
            cache.remove(&99_998);
        }
        assert_eq!(held(&caches), budget.held.load(Ordering::Relaxed));
    }
}
