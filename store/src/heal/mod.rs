//! Healing: a replica that was away too long to be fed from the log gets the group's rows from another one, as of one position and without
//! places; every block that it does not provably have is missing from then on, until it is fetched.
//!
//! Promises: a giver reads one snapshot (`give`); the taker's bitmaps are right after every write (`take`); a heal that is cut off can be
//! begun anew, with a later snapshot too. Absent: who carries pages, when to begin, and the fetching of blocks (`group`).

pub mod codec;
mod count;
pub mod give;
mod lacking;
pub mod take;
mod walk;

pub use codec::decode_page;
pub use give::{PAGE_BYTES, Page};
pub use lacking::{Found, Lacking, missing};

use crate::format::keys;
use crate::format::values::{self, HealRow};
use crate::index::Index;
use crate::space::purge::Purge;
use base::{GroupId, Ino, Result, Time, VolumeId};
use std::collections::{BTreeMap, BTreeSet};

/// The mark of a group's replica that heals, if it does. Blocks.
pub fn heal_row(index: &dyn Index, group: GroupId) -> Result<Option<HealRow>> {
    index.get(&keys::heal(group))?.map(|row| values::decode_heal(&row)).transpose()
}

/// The facts of a file that say which of its leaves count.
#[derive(Default)]
struct File {
    /// The time of its last change; None if it has no row.
    ctime: Option<Time>,
    /// It went with its volume, and all its leaves are left to free.
    gone: bool,
    /// Its cuts that are left to free.
    purge: Option<Purge>,
}

impl File {
    /// True if a leaf with this trim number is not left to free.
    fn counts(&self, leaf: u64, trim: u64) -> bool {
        !self.gone && trim >= self.purge.as_ref().map_or(0, |purge| purge.trim_of(leaf))
    }
}

/// Reads these facts of files of a group.
fn files(index: &dyn Index, group: GroupId, of: &BTreeSet<(VolumeId, Ino)>) -> Result<BTreeMap<(VolumeId, Ino), File>> {
    let mut gone = BTreeSet::new();
    let volumes: BTreeSet<_> = of.iter().map(|(volume, _)| *volume).collect();
    for volume in volumes {
        if index.get(&keys::purged_volume(group, volume))?.is_some() {
            gone.insert(volume);
        }
    }
    let get = |key: fn(VolumeId, Ino) -> Vec<u8>| {
        let rows: Vec<_> = of.iter().map(|(volume, ino)| key(*volume, *ino)).collect();
        index.get_many(&rows)
    };
    let (inodes, purges) = (get(keys::inode)?, get(keys::purge)?);
    assert!(inodes.len() == of.len() && purges.len() == of.len(), "the index answers for each key");
    let mut files = BTreeMap::new();
    for ((file, inode), purge) in of.iter().zip(inodes).zip(purges) {
        let ctime = inode.map(|row| values::decode_inode(&row).map(|inode| inode.ctime)).transpose()?;
        let purge = purge.map(|row| values::decode_purge(&row)).transpose()?;
        files.insert(*file, File { ctime, gone: gone.contains(&file.0), purge });
    }
    Ok(files)
}
