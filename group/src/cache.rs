//! A bounded cache of what the index holds, in two generations: when the young one is full it becomes the old one,
//! and what was not asked for since is forgotten. One pass over many keys costs at most half of what is hot.

use crate::hash::Map;
use std::hash::Hash;

/// See the module.
pub struct Cache<K, V> {
    young: Map<K, V>,
    old: Map<K, V>,
    /// Entries of a generation at most.
    half: usize,
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    /// A cache of at most `entries` entries (at least 16).
    pub fn new(entries: usize) -> Cache<K, V> {
        Cache { young: Map::default(), old: Map::default(), half: (entries / 2).max(8) }
    }
    /// A key's value; asking keeps it.
    pub fn get(&mut self, key: &K) -> Option<&V> {
        if !self.young.contains_key(key) {
            let (key, value) = self.old.remove_entry(key)?;
            self.insert(key, value);
        }
        self.young.get(key)
    }
    /// Sets a key's value.
    pub fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.half && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&key);
        self.young.insert(key, value);
    }
    /// Changes a key's value if it is there.
    pub fn change(&mut self, key: &K, with: impl FnOnce(&mut V)) {
        if let Some(value) = self.young.get_mut(key).or(self.old.get_mut(key)) {
            with(value);
        }
    }
    /// Forgets a key.
    pub fn remove(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }
    /// Forgets keys.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        self.young.retain(&mut keep);
        self.old.retain(&mut keep);
    }
    /// How many entries it holds.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_as_much_as_it_may() {
        let mut cache = Cache::new(100);
        for key in 0..100u64 {
            cache.insert(key, key);
        }
        assert_eq!(cache.len(), 100);
    }

    #[test]
    fn what_is_asked_for_stays_and_the_bound_holds() {
        let mut cache = Cache::new(100);
        cache.insert(0u64, 0u64);
        for key in 1..10_000 {
            cache.insert(key, key);
            assert_eq!(cache.get(&0), Some(&0), "the hot key is gone after {key}");
            assert!(cache.len() <= 100);
        }
        assert_eq!(cache.get(&1), None);
        cache.change(&0, |value| *value = 7);
        assert_eq!(cache.get(&0), Some(&7));
        cache.remove(&0);
        assert_eq!(cache.get(&0), None);
    }
}
