//! Loading of index content into a group's caches: rows in the engine's memory at once, others by blocking reads in the
//! pool (rule X1). Rows that were read while a checkpoint merged are stale and are read again.

use crate::state::State;
use crate::{CATALOGUE, Group, Groups};
use base::{Edit, Error, GroupId, Ino, Kind, LeafKey, Name, Result, VolumeId};
use names::{Entry, Need};
use runtime::seeded::{Bug, active};
use runtime::tasks::run_blocking;
use runtime::{Span, Stage};
use std::sync::Arc;
use store::format::leaf::Leaf;
use store::format::{keys, values};
use store::index::{Index, Peeked};

/// Largest number of rows that a core takes from memory in one go, a few microseconds each; longer lists go to the pool
/// at once.
const PEEKS_MAX: usize = 8;

/// A row of the index.
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

/// The decoded row, or its absence.
enum Found {
    Inode(Option<(base::Inode, u64)>),
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
            Wanted::Volume(_) => CATALOGUE,
            Wanted::Leaf(key) => key.ino.group(),
        }
    }
    fn key(&self, volume: VolumeId) -> Vec<u8> {
        match self {
            Wanted::Inode(ino) => keys::inode(volume, *ino),
            Wanted::Entry(dir, name) => keys::entry(volume, *dir, name.as_bytes()),
            Wanted::Target(ino) => keys::target(volume, *ino),
            Wanted::Xattrs(ino) => keys::xattrs(volume, *ino),
            Wanted::Volume(name) => keys::volume(name.as_bytes()),
            Wanted::Leaf(key) => keys::leaf(volume, *key),
        }
    }
    fn decode(&self, value: Option<Vec<u8>>, groups: usize) -> Result<Found> {
        let value = value.as_deref();
        let found = match self {
            Wanted::Inode(_) => Found::Inode(value.map(values::decode_counted_inode).transpose()?),
            Wanted::Entry(..) => {
                let entry = value.map(values::decode_entry).transpose()?;
                Found::Entry(entry.map(|(ino, kind, cookie)| Entry { ino, kind, cookie }))
            }
            Wanted::Target(_) => Found::Target(value.map(values::decode_target).transpose()?),
            Wanted::Xattrs(_) => Found::Xattrs(value.map(values::decode_xattrs).transpose()?.map(Arc::new)),
            Wanted::Volume(_) => Found::Volume(value.map(values::decode_volume).transpose()?),
            Wanted::Leaf(_) => {
                let leaf = value.map(Leaf::decode).transpose();
                Found::Leaf(
                    if active(Bug::BadRowReadAsNone) { leaf.unwrap_or_default() } else { leaf? }.unwrap_or_default(),
                )
            }
        };
        let named = match &found {
            Found::Entry(entry) => entry.as_ref().map(|entry| entry.ino),
            Found::Inode(inode) => inode.as_ref().map(|(inode, _)| inode.parent),
            _ => None,
        };
        Wanted::refuse_group(named, groups)?;
        Ok(found)
    }
    /// Refuses a row that names an inode of a group that does not exist: later code relies on the group's existence.
    fn refuse_group(named: Option<Ino>, groups: usize) -> Result<()> {
        match named.filter(|ino| ino.group().0 as usize >= groups) {
            None => Ok(()),
            Some(ino) => {
                let error = Error::new(Kind::Corrupt, "a row of the index names a group that the brick does not have");
                Err(error.with(format!("inode {ino}; stop the brick, then `sinter check --repair`")))
            }
        }
    }
    /// The next row to read in the same group: a caller that asks for a name also needs the inode behind it.
    fn next(&self, found: &Found) -> Option<Wanted> {
        match found {
            Found::Entry(Some(entry)) if entry.ino.group() == self.group() => Some(Wanted::Inode(entry.ino)),
            _ => None,
        }
    }
    fn read(&self, index: &dyn Index, volume: VolumeId, groups: usize) -> Result<Found> {
        self.decode(index.get(&self.key(volume))?, groups)
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

/// The row that evaluate needs; None if it needs something else.
pub fn wanted(need: Need) -> Option<Wanted> {
    match need {
        Need::Inode(ino) => Some(Wanted::Inode(ino)),
        Need::Entry(dir, name) => Some(Wanted::Entry(dir, name)),
        Need::Target(ino) => Some(Wanted::Target(ino)),
        Need::Xattrs(ino) => Some(Wanted::Xattrs(ino)),
        Need::Volume(name) => Some(Wanted::Volume(name)),
        Need::Group(_) | Need::Numbers => None,
    }
}

/// Reads one row, blocking, into a state that nobody else changes: for replay.
pub fn load_blocking(
    (index, groups): (&dyn Index, usize),
    state: &mut State,
    volume: VolumeId,
    wanted: &Wanted,
) -> Result<()> {
    let found = wanted.read(index, volume, groups)?;
    wanted.learn(state, volume, found);
    Ok(())
}

/// The inode that must be in memory before an edit of it is applied; None if the edit does not change an existing
/// inode.
pub(crate) fn rests_on(edit: &Edit) -> Option<Ino> {
    match edit {
        Edit::InodeTouch { ino, .. }
        | Edit::InodeParent { ino, .. }
        | Edit::InodeProject { ino, .. }
        | Edit::InodeExtend { ino, .. }
        | Edit::InodeCut { ino, .. }
        | Edit::Punch { ino, .. }
        | Edit::InodeDrop { ino } => Some(*ino),
        _ => None,
    }
}

impl Groups {
    /// Loads rows of one volume: those in the engine's memory at once, the others in one trip to the pool. `span`: the
    /// span of the request that waits.
    pub(crate) async fn load(&self, volume: VolumeId, mut wanted: Vec<Wanted>, span: Option<&Span>) -> Result<()> {
        if wanted.len() <= PEEKS_MAX {
            let known = self.recall(volume, &wanted)?;
            wanted.drain(..known);
        }
        while !wanted.is_empty() {
            wanted = self.fetch_rows(volume, wanted, span).await?;
        }
        span.inspect(|span| span.mark(Stage::Index, self.stamp()));
        Ok(())
    }

    /// Runs a job that reads the index in the pool. The waits for a thread there and for the core afterwards are booked
    /// in `span` apart from the reading.
    pub(crate) async fn in_pool<T: Send + 'static>(
        &self,
        span: Option<&Span>,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let runtime = self.store().runtime.clone();
        let timed = move || {
            let began = runtime.stamp();
            let result = job();
            (began, result, runtime.stamp())
        };
        let (began, result, ended) = run_blocking(&*self.store().runtime.tasks, timed).await;
        if let Some(span) = span {
            span.hop();
            span.mark(Stage::Pool, began);
            span.mark_ended(Stage::Index, ended, self.stamp());
        }
        result
    }

    /// Takes rows from the engine's memory up to the first one that is not there: that one and those behind it are read
    /// in the pool together. Returns the number of rows taken.
    pub(crate) fn recall(&self, volume: VolumeId, wanted: &[Wanted]) -> Result<usize> {
        for (number, one) in wanted.iter().enumerate() {
            let Group { state, .. } = self.state(one.group());
            loop {
                let merges = state.lock().merges;
                let Peeked::Known(value) = self.store().index.peek(&one.key(volume))? else { return Ok(number) };
                let found = one.decode(value, self.store().groups as usize)?;
                let mut state = state.lock();
                if state.merges == merges {
                    one.learn(&mut state, volume, found);
                    break;
                }
            }
        }
        Ok(wanted.len())
    }

    /// Reads rows in the pool for the request of `span`, and the inodes behind names. Returns the rows that must be read again.
    async fn fetch_rows(&self, volume: VolumeId, wanted: Vec<Wanted>, span: Option<&Span>) -> Result<Vec<Wanted>> {
        let merges: Vec<_> = wanted.iter().map(|one| self.state(one.group()).state.lock().merges).collect();
        let (index, groups) = (self.store().index.clone(), self.store().groups as usize);
        let read = move || {
            let read = |one: Wanted| {
                let found = one.read(&*index, volume, groups)?;
                let next = one.next(&found).map(|next| next.read(&*index, volume, groups).map(|found| (next, found)));
                Ok((one, found, next.transpose()?))
            };
            wanted.into_iter().map(read).collect::<Result<Vec<_>>>()
        };
        let mut left = Vec::new();
        let read = self.in_pool(span, read).await?;
        assert!(read.len() == merges.len(), "each row was read");
        for ((one, found, next), merges) in read.into_iter().zip(merges) {
            let mut state = self.state(one.group()).state.lock();
            if state.merges == merges {
                one.learn(&mut state, volume, found);
                next.into_iter().for_each(|(next, found)| next.learn(&mut state, volume, found));
            } else {
                left.push(one);
            }
        }
        Ok(left)
    }
}
