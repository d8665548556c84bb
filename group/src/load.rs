//! Bringing index content into a group's caches: blocking reads in the pool (rule X1). What was read while a
//! checkpoint merged is stale and is read again.

use crate::state::State;
use crate::{Group, Groups};
use base::{GroupId, Ino, LeafKey, Name, Result, VolumeId};
use names::{Entry, Need};
use runtime::seeded::{Bug, active};
use runtime::tasks::run_blocking;
use std::sync::Arc;
use store::format::leaf::Leaf;
use store::format::{keys, values};
use store::index::Index;

/// Something that the index holds.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// An inode.
    Inode(Ino),
    /// A name in a directory.
    Entry(Ino, Name),
    /// A link's target.
    Target(Ino),
    /// An inode's extended attributes.
    Xattrs(Ino),
    /// A volume of the catalogue.
    Volume(Name),
    /// A leaf.
    Leaf(LeafKey),
}

/// What the index said.
enum Found {
    Inode(Option<base::Inode>),
    Entry(Option<Entry>),
    Target(Option<Box<[u8]>>),
    Xattrs(Option<Arc<base::Xattrs>>),
    Volume(Option<base::Volume>),
    Leaf(Leaf),
}

impl Wanted {
    fn group(&self) -> GroupId {
        match self {
            Wanted::Inode(ino) | Wanted::Entry(ino, _) | Wanted::Target(ino) | Wanted::Xattrs(ino) => ino.group(),
            Wanted::Volume(_) => GroupId(0),
            Wanted::Leaf(key) => key.ino.group(),
        }
    }
    fn read(&self, index: &dyn Index, volume: VolumeId) -> Result<Found> {
        let get = |key: Vec<u8>| index.get(&key);
        Ok(match self {
            Wanted::Inode(ino) => {
                let value = get(keys::inode(volume, *ino))?;
                Found::Inode(value.map(|value| values::decode_inode(&value)).transpose()?)
            }
            Wanted::Entry(dir, name) => {
                let value = get(keys::entry(volume, *dir, name.as_bytes()))?;
                let entry = value.map(|value| values::decode_entry(&value)).transpose()?;
                Found::Entry(entry.map(|(ino, kind, cookie)| Entry { ino, kind, cookie }))
            }
            Wanted::Target(ino) => {
                let value = get(keys::target(volume, *ino))?;
                Found::Target(value.map(|value| values::decode_target(&value)).transpose()?)
            }
            Wanted::Xattrs(ino) => {
                let value = get(keys::xattrs(volume, *ino))?;
                Found::Xattrs(value.map(|value| values::decode_xattrs(&value)).transpose()?.map(Arc::new))
            }
            Wanted::Volume(name) => {
                let value = get(keys::volume(name.as_bytes()))?;
                Found::Volume(value.map(|value| values::decode_volume(&value)).transpose()?)
            }
            Wanted::Leaf(key) => {
                let value = get(keys::leaf(volume, *key))?;
                let leaf = value.map(|value| Leaf::decode(&value)).transpose();
                Found::Leaf(
                    if active(Bug::BadRowReadAsNone) { leaf.unwrap_or_default() } else { leaf? }.unwrap_or_default(),
                )
            }
        })
    }
    fn learn(&self, state: &mut State, volume: VolumeId, found: Found) {
        match (self, found) {
            (Wanted::Inode(ino), Found::Inode(inode)) => state.learn_inode(volume, *ino, inode),
            (Wanted::Entry(dir, name), Found::Entry(entry)) => state.learn_entry(volume, *dir, name, entry),
            (Wanted::Target(ino), Found::Target(target)) => state.learn_target(volume, *ino, target),
            (Wanted::Xattrs(ino), Found::Xattrs(xattrs)) => state.learn_xattrs(volume, *ino, xattrs),
            (Wanted::Volume(name), Found::Volume(found)) => state.learn_volume(name, found),
            (Wanted::Leaf(key), Found::Leaf(leaf)) => state.learn_leaf(volume, *key, leaf),
            _ => unreachable!("each kind is read as itself"),
        }
    }
}

/// What evaluate needs from the index; None for a need of a lock.
pub fn wanted(need: Need) -> Option<Wanted> {
    match need {
        Need::Inode(ino) => Some(Wanted::Inode(ino)),
        Need::Entry(dir, name) => Some(Wanted::Entry(dir, name)),
        Need::Target(ino) => Some(Wanted::Target(ino)),
        Need::Xattrs(ino) => Some(Wanted::Xattrs(ino)),
        Need::Volume(name) => Some(Wanted::Volume(name)),
        Need::Group(_) => None,
    }
}

/// Reads one thing, blocking, into a state that nobody else changes: for replay.
pub fn load_blocking(index: &dyn Index, state: &mut State, volume: VolumeId, wanted: &Wanted) -> Result<()> {
    let found = wanted.read(index, volume)?;
    wanted.learn(state, volume, found);
    Ok(())
}

impl Groups {
    /// Loads things of one volume, all of them in one trip to the pool.
    pub(crate) async fn load(&self, volume: VolumeId, wanted: Vec<Wanted>) -> Result<()> {
        let mut left = wanted;
        while !left.is_empty() {
            let merges: Vec<_> = left.iter().map(|one| self.state(one.group()).state.lock().merges).collect();
            let index = self.store().index.clone();
            let read = move || {
                let found: Result<Vec<_>> = left.iter().map(|one| one.read(&*index, volume)).collect();
                found.map(|found| (left, found))
            };
            let (asked, found) = run_blocking(&*self.store().runtime.tasks, read).await?;
            left = Vec::new();
            for ((one, found), merges) in asked.into_iter().zip(found).zip(merges) {
                let Group { state, .. } = self.state(one.group());
                let mut state = state.lock();
                if state.merges == merges {
                    one.learn(&mut state, volume, found);
                } else {
                    left.push(one);
                }
            }
        }
        Ok(())
    }
}
