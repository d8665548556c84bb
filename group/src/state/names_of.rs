//! The changed names of one directory, by hash: a search compares numbers, where names of a directory often begin alike.
//!
//! Promise: a search takes as many steps as the logarithm of the number of names, whatever names clients choose: those of one hash are in order.

use super::hash::Mix;
use names::Entry;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::hash::Hasher;

/// The names; see the module. `None` values mean that the name is gone.
#[derive(Default)]
pub struct NamesOf(BTreeMap<u64, Same>);

/// Names of one hash: nearly always one.
enum Same {
    One(Box<[u8]>, Option<Entry>),
    Several(BTreeMap<Box<[u8]>, Option<Entry>>),
}

fn hash(name: &[u8]) -> u64 {
    let mut mix = Mix::default();
    mix.write(name);
    mix.finish()
}

impl NamesOf {
    /// The value of a name; None if the name is not one of these.
    pub fn get(&self, name: &[u8]) -> Option<Option<Entry>> {
        match self.0.get(&hash(name))? {
            Same::One(known, value) => (**known == *name).then_some(*value),
            Same::Several(names) => names.get(name).copied(),
        }
    }
    /// Gives a name a value. True if the name was not one of these.
    pub fn set(&mut self, name: &[u8], value: Option<Entry>) -> bool {
        match self.0.entry(hash(name)) {
            Slot::Vacant(slot) => drop(slot.insert(Same::One(name.into(), value))),
            Slot::Occupied(slot) => return slot.into_mut().set(name, value),
        }
        true
    }
    /// All names with their values, in the order of hashes.
    pub fn iter(&self) -> impl Iterator<Item = (&Box<[u8]>, Option<Entry>)> {
        self.0.values().flat_map(|same| {
            let (one, several) = match same {
                Same::One(name, value) => (Some((name, value)), None),
                Same::Several(names) => (None, Some(names)),
            };
            one.into_iter().chain(several.into_iter().flatten()).map(|(name, value)| (name, *value))
        })
    }
}

impl Same {
    fn set(&mut self, name: &[u8], value: Option<Entry>) -> bool {
        match self {
            Same::One(known, before) if **known == *name => {
                *before = value;
                return false;
            }
            Same::One(known, before) => {
                let known = (std::mem::take(known), *before);
                *self = Same::Several(BTreeMap::from([known, (name.into(), value)]));
            }
            Same::Several(names) => return names.insert(name.into(), value).is_none(),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::hash::alike;
    use base::{FileKind, GroupId, Ino};

    fn entry(number: u64) -> Option<Entry> {
        Some(Entry { ino: Ino::new(number, GroupId(0)), kind: FileKind::File, cookie: number })
    }

    #[test]
    fn the_last_value_of_each_name_is_there_also_of_those_with_one_hash() {
        let plain = (0..100).map(|number| format!("name-{number}").into_bytes());
        let names: Vec<_> = plain.chain(alike(3)).collect();
        let hashes: Vec<_> = names[100..].iter().map(|name| hash(name)).collect();
        assert!(hashes[0] == hashes[1] && hashes[1] == hashes[2], "{hashes:?}");
        let mut all = NamesOf::default();
        let mut expected = BTreeMap::new();
        for (round, value) in [(0, None), (1, entry(7)), (2, None), (3, entry(9))] {
            for (at, name) in names.iter().enumerate().skip(round) {
                let value = value.filter(|_| at % 2 == 0);
                assert_eq!(all.get(name), expected.get(name).copied());
                assert_eq!(all.set(name, value), expected.insert(name.clone(), value).is_none());
                assert_eq!(all.get(name), Some(value));
            }
        }
        assert_eq!(all.get(b"absent"), None);
        assert_eq!(all.get(&alike(4)[3]), None, "its hash is there, and it is not");
        let seen: BTreeMap<_, _> = all.iter().map(|(name, value)| (name.to_vec(), value)).collect();
        assert_eq!((seen, all.iter().count()), (expected, 103));
    }
}
