//! The offline check: reads everything, changes nothing, reports every finding. It holds the index of the last
//! checkpoint against itself (names, maps, live bits), the segments against the index, and walks the log.

use crate::format::leaf::{Leaf, Slot};
use crate::format::segment::SegmentHeader;
use crate::format::values::SegmentState;
use crate::format::{keys, summary, values};
use crate::open::Opening;
use crate::purge::Purges;
use base::limits::{BLOCK_BYTES, BLOCKS_PER_LEAF};
use base::{FileKind, GroupId, Ino, Inode, Place, Result, SegmentId, VolumeId};
use runtime::disk;
use std::collections::BTreeMap;

/// Rows read from the index at once.
const ROWS: usize = 4096;

/// What a check counted and found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Inodes in the index.
    pub inodes: u64,
    /// Directory entries in the index.
    pub entries: u64,
    /// Blocks mapped by leaves.
    pub blocks: u64,
    /// Segments in use.
    pub segments: u64,
    /// Log batches after the last checkpoint.
    pub batches: u64,
    /// Log records after the last checkpoint.
    pub records: u64,
    /// Cross-group changes that the next start will complete.
    pub intents: u64,
    /// Unlinked open files that the next start will free.
    pub orphans: u64,
    /// What is wrong; empty = clean.
    pub findings: Vec<String>,
}

#[derive(Default)]
struct Names {
    inodes: BTreeMap<(VolumeId, Ino), Inode>,
    /// Entries that point to an inode, and those of them that are directories below it.
    links: BTreeMap<(VolumeId, Ino), u64>,
    subdirectories: BTreeMap<(VolumeId, Ino), u64>,
    entries: BTreeMap<(VolumeId, Ino), u64>,
    roots: BTreeMap<VolumeId, Ino>,
}

struct Check<'a> {
    opening: &'a Opening,
    report: Report,
    names: Names,
    live: BTreeMap<SegmentId, Vec<u64>>,
    /// What the group that is looked at has yet to free.
    purges: Purges,
}

/// Checks a brick that nobody serves. Errors: only if the check itself can't go on.
pub async fn check(opening: &Opening, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let mut check = Check {
        opening,
        report: Report::default(),
        names: Names::default(),
        live: BTreeMap::new(),
        purges: Purges::default(),
    };
    check.report.findings.extend(opening.warnings.iter().cloned());
    progress("log");
    check.log().await;
    progress("index");
    check.volumes()?;
    for group in (0..opening.superblock().groups).map(GroupId) {
        check.group(group)?;
    }
    progress("names");
    check.names();
    progress("segments");
    check.segments().await?;
    Ok(check.report)
}

impl Check<'_> {
    fn find(&mut self, finding: String) {
        self.report.findings.push(finding);
    }

    async fn log(&mut self) {
        let mut records = 0;
        let walked = self
            .opening
            .walk(async |chunk| {
                records += chunk.len() as u64;
                Ok(())
            })
            .await;
        self.report.records = records;
        match walked {
            Ok(tail) => self.report.batches = tail.batches,
            Err(error) => self.find(format!("log: {error}")),
        }
    }

    fn volumes(&mut self) -> Result<()> {
        let (from, to) = keys::volumes();
        for (_, value) in self.opening.index().scan(&from, &to, usize::MAX)? {
            match values::decode_volume(&value) {
                Ok(volume) => drop(self.names.roots.insert(volume.id, volume.root)),
                Err(error) => self.find(format!("catalogue: {error}")),
            }
        }
        Ok(())
    }

    fn each(&mut self, (mut from, to): keys::Bounds, mut with: impl FnMut(&mut Self, &[u8], &[u8])) -> Result<()> {
        loop {
            let rows = self.opening.index().scan(&from, &to, ROWS)?;
            let Some((last, _)) = rows.last() else { return Ok(()) };
            from = [last.as_slice(), &[0]].concat();
            rows.iter().for_each(|(key, value)| with(self, key, value));
        }
    }

    fn group(&mut self, group: GroupId) -> Result<()> {
        let volumes: Vec<_> = self.names.roots.keys().copied().collect();
        self.purges = Purges::read(&**self.opening.index(), group, &volumes)?;
        for volume in volumes {
            self.each(keys::inodes_in_group(group, volume), |check, key, value| {
                check.inode(volume, key, value);
            })?;
            self.each(keys::cookies_in_group(group, volume), |check, key, value| {
                check.cookie(volume, key, value);
            })?;
            self.each(keys::leaves_in_group(group, volume), |check, key, value| {
                check.leaf(volume, key, value);
            })?;
            self.each(keys::orphans(group, volume), |check, _, _| check.report.orphans += 1)?;
        }
        for volume in self.purges.volumes.clone() {
            self.each(keys::leaves_in_group(group, volume), |check, key, value| {
                check.leaf(volume, key, value);
            })?;
        }
        self.each(keys::intents(group), |check, _, _| check.report.intents += 1)
    }

    fn inode(&mut self, volume: VolumeId, key: &[u8], value: &[u8]) {
        let ino = keys::first_ino(key);
        self.report.inodes += 1;
        match values::decode_inode(value) {
            Ok(inode) => drop(self.names.inodes.insert((volume, ino), inode)),
            Err(error) => self.find(format!("inode {ino:?} of volume {volume}: {error}")),
        }
    }

    fn cookie(&mut self, volume: VolumeId, key: &[u8], value: &[u8]) {
        let (dir, cookie) = (keys::first_ino(key), keys::cookie_number(key));
        self.report.entries += 1;
        let (name, ino, kind) = match values::decode_cookie(value) {
            Ok(entry) => entry,
            Err(error) => return self.find(format!("directory {dir:?}, cookie {cookie}: {error}")),
        };
        *self.names.links.entry((volume, ino)).or_default() += 1;
        *self.names.entries.entry((volume, dir)).or_default() += 1;
        if kind == FileKind::Directory {
            *self.names.subdirectories.entry((volume, dir)).or_default() += 1;
        }
        let row = self.opening.index().get(&keys::entry(volume, dir, name.as_bytes()));
        let entry = row.and_then(|row| row.map(|row| values::decode_entry(&row)).transpose());
        match entry {
            Ok(Some(entry)) if entry == (ino, kind, cookie) => {}
            Ok(_) => self.find(format!("directory {dir:?}: entry {name:?} and its cookie {cookie} differ")),
            Err(error) => self.find(format!("directory {dir:?}, entry {name:?}: {error}")),
        }
    }

    fn leaf(&mut self, volume: VolumeId, key: &[u8], value: &[u8]) {
        let at = keys::leaf_of(key);
        let leaf = match Leaf::decode(value) {
            Ok(leaf) => leaf,
            Err(error) => return self.find(format!("inode {:?}, leaf {}: {error}", at.ino, at.leaf)),
        };
        let blocks = match self.names.inodes.get(&(volume, at.ino)) {
            // To be freed: its blocks are still in use.
            _ if leaf.trim < self.purges.trim_of(volume, at) => u64::MAX,
            Some(inode) => inode.size.div_ceil(BLOCK_BYTES as u64),
            None => return self.find(format!("leaf {} of inode {:?}, which does not exist", at.leaf, at.ino)),
        };
        for (index, slot) in leaf.iter() {
            let Slot::Local { place, .. } = slot else { continue };
            self.report.blocks += 1;
            if at.leaf * BLOCKS_PER_LEAF as u64 + index as u64 >= blocks {
                self.find(format!("inode {:?}: leaf {} maps a block beyond the end", at.ino, at.leaf));
            }
            self.claim(place, at.ino);
        }
    }

    /// Counts a block as live; two claims of one block are damage.
    fn claim(&mut self, place: Place, ino: Ino) {
        let blocks = self.opening.geometry().blocks();
        if u32::from(place.block) >= blocks || place.segment.0 >= self.opening.superblock().segments {
            return self.find(format!("inode {ino:?} lies outside the brick: {place:?}"));
        }
        let words = self.live.entry(place.segment).or_insert_with(|| vec![0; blocks.div_ceil(64) as usize]);
        let (word, bit) = (usize::from(place.block / 64), 1u64 << (place.block % 64));
        let twice = words[word] & bit != 0;
        words[word] |= bit;
        if twice {
            self.find(format!("block {place:?} belongs to inode {ino:?} and to another block too"));
        }
    }

    fn names(&mut self) {
        let names = std::mem::take(&mut self.names);
        // A change between groups that was cut off leaves counts that its redo will mend.
        let settled = self.report.intents == 0;
        for ((volume, ino), inode) in &names.inodes {
            let key = (*volume, *ino);
            let count = |of: &BTreeMap<(VolumeId, Ino), u64>| of.get(&key).copied().unwrap_or(0);
            let root = names.roots.get(volume) == Some(ino);
            let links = match inode.is_directory() {
                true if inode.links == 0 => 0,
                true => 2 + count(&names.subdirectories),
                false => count(&names.links),
            };
            if settled && u64::from(inode.links) != links {
                self.find(format!("inode {ino:?} of volume {volume} says {} links, has {links}", inode.links));
            }
            if settled && inode.is_directory() && inode.entries != count(&names.entries) {
                let (says, has) = (inode.entries, count(&names.entries));
                self.find(format!("directory {ino:?} of volume {volume} says {says} entries, has {has}"));
            }
            if settled && !root && inode.links > 0 && count(&names.links) == 0 {
                self.find(format!("inode {ino:?} of volume {volume} has no name and is no orphan"));
            }
        }
        let dangling = names.links.keys().filter(|key| !names.inodes.contains_key(key) && settled);
        for (volume, ino) in dangling {
            self.report
                .findings
                .push(format!("an entry of volume {volume} leads to inode {ino:?}, which is not there"));
        }
        for (volume, root) in &names.roots {
            if !names.inodes.contains_key(&(*volume, *root)) && settled {
                self.report.findings.push(format!("volume {volume} has no root directory {root:?}"));
            }
        }
        self.names = names;
    }

    async fn segments(&mut self) -> Result<()> {
        let headers: BTreeMap<_, SegmentHeader> =
            self.opening.headers().map(|header| (header.segment, *header)).collect();
        let rows: Vec<_> = self.opening.table().iter().map(|(segment, row)| (segment, row.clone())).collect();
        for (segment, row) in rows {
            let counted = self.live.remove(&segment).unwrap_or_default();
            if !same_bits(&row.live, &counted) {
                let (says, has) = (ones(&row.live), ones(&counted));
                self.find(format!("segment {segment}: the table says {says} live blocks, leaves name {has}"));
            }
            if row.state == SegmentState::Free {
                continue;
            }
            self.report.segments += 1;
            // Without live blocks it may have been taken into another life since the checkpoint, and be overwritten.
            if ones(&row.live) == 0 {
                continue;
            }
            match headers.get(&segment) {
                Some(header) if (header.life, header.sequence) == (row.life, row.sequence) => {}
                _ => self.find(format!("segment {segment}: its header is damaged or missing")),
            }
            if row.state == SegmentState::Sealed {
                self.summary(segment, row.life).await?;
            }
        }
        Ok(())
    }

    async fn summary(&mut self, segment: SegmentId, life: base::Life) -> Result<()> {
        let last = self.opening.geometry().blocks() - 1;
        let place = Place { segment, block: last as u16 };
        let Some(spot) = self.opening.geometry().spot(place) else { return Ok(()) };
        let runtime = self.opening.runtime();
        let buffer = runtime.buffer(BLOCK_BYTES)?;
        let (buffer, result) = disk::read(&*runtime.disk, spot.file, spot.offset, buffer).await;
        match result.and_then(|()| summary::decode_footer(&buffer)) {
            Ok(footer) if (footer.segment, footer.life) == (segment, life) => {}
            Ok(_) => self.find(format!("segment {segment}: its summary is of another life")),
            Err(error) => self.find(format!("segment {segment}: {error}")),
        }
        Ok(())
    }
}

fn ones(words: &[u64]) -> u32 {
    words.iter().map(|word| word.count_ones()).sum()
}

fn same_bits(one: &[u64], other: &[u64]) -> bool {
    let word = |words: &[u64], at: usize| words.get(at).copied().unwrap_or(0);
    (0..one.len().max(other.len())).all(|at| word(one, at) == word(other, at))
}
