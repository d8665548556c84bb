//! Leaves against segments: each block that a leaf names is one that is really there, whose it is, and nobody else's.

use super::summed::{Claimed, Spares};
use super::{EDITS_MAX, Repair};
use crate::check::blocks::Owner;
use crate::check::is_told;
use crate::format::keys::{self, Row};
use crate::format::leaf::{Leaf, Slot};
use crate::format::summary::SummaryEntry;
use crate::format::values::{self, SegmentState};
use crate::space::purge::Purges;
use base::limits::{BLOCK_BYTES, BLOCKS_PER_LEAF};
use base::{GroupId, Ino, LeafKey, Place, Result, SegmentId, VolumeId};
use std::collections::{BTreeMap, BTreeSet};

/// Summary entries held at once: some 60 MB.
const ENTRIES_MAX: u32 = 1 << 20;
/// The birth of blocks of which no leaf tells it: it only orders.
const BIRTH: u32 = 1;
const ZEROS: &str = "data; it reads as zeros now";
const FAILS: &str = "data that differs from its checksum; reading it fails";

/// A segment of which leaves say something else than its summary, or that should not hold anything.
struct Suspect {
    entries: BTreeMap<u16, SummaryEntry>,
    /// Named more than once.
    twice: BTreeSet<u16>,
    /// Those of them that have been given to somebody.
    given: BTreeSet<u16>,
    /// The table says that it is free: its blocks may have been overwritten.
    free: bool,
    /// They have been, or their file is gone.
    reused: bool,
}

type Suspects = BTreeMap<SegmentId, Suspect>;

/// The fate of a slot.
enum Verdict {
    Keep,
    Becomes(Place, u32),
    Lost,
}

/// State of the group and volume whose rows are being read.
struct Here {
    of: (GroupId, VolumeId),
    purges: Purges,
    /// The block after the last, of inodes. They come before leaves.
    ends: BTreeMap<Ino, u64>,
}

impl Repair<'_> {
    pub(super) async fn maps(&mut self) -> Result<()> {
        let claimed = self.claims()?;
        let mut spares = self.spares(&claimed).await?;
        let names = self.suspects(&claimed).await?;
        let at_once = (ENTRIES_MAX / self.opening.geometry().blocks()).max(1) as usize;
        let chunks: Vec<_> = names.chunks(at_once).collect();
        // What has nothing to do with segments is looked at once, also if none is suspected.
        for number in 0..chunks.len().max(1) {
            let mut suspects = match chunks.get(number) {
                Some(names) => self.held(names, &claimed).await?,
                None => Suspects::new(),
            };
            self.leaves(&mut suspects, &mut spares, number == 0).await?;
        }
        self.missing_leaves(spares).await
    }

    async fn suspects(&mut self, claimed: &Claimed) -> Result<Vec<SegmentId>> {
        let opening = self.opening;
        let mut suspects = Vec::new();
        for (segment, claims) in claimed {
            let row = opening.table().whole_row(*segment).expect("the claim lies within the brick");
            let odd = row.state == SegmentState::Free || !claims.twice.is_empty();
            if odd || !self.summary(*segment, &row).await?.is_some_and(|entries| claims.are_told(&entries)) {
                suspects.push(*segment);
            }
        }
        Ok(suspects)
    }

    async fn held(&mut self, names: &[SegmentId], claimed: &Claimed) -> Result<Suspects> {
        let opening = self.opening;
        let mut suspects = Suspects::new();
        for &segment in names {
            let row = opening.table().whole_row(segment).expect("it was claimed");
            let entries = self.summary(segment, &row).await?.unwrap_or_default();
            let first = Place { segment, block: 0 };
            let later = opening.headers().any(|header| header.segment == segment && header.life > row.life);
            let suspect = Suspect {
                entries: entries.into_iter().map(|entry| (entry.block, entry)).collect(),
                twice: claimed[&segment].twice.iter().copied().collect(),
                given: BTreeSet::new(),
                free: row.state == SegmentState::Free,
                reused: row.life.0 == 0 || (later && !is_told(&row)) || opening.geometry().spot(first).is_none(),
            };
            suspects.insert(segment, suspect);
        }
        Ok(suspects)
    }

    /// One pass over all leaves. `first`: what does not depend on suspects is looked at too.
    async fn leaves(&mut self, suspects: &mut Suspects, spares: &mut Spares, first: bool) -> Result<()> {
        let mut here: Option<Here> = None;
        let mut from = Some(keys::all().0);
        while let Some(start) = from {
            let (rows, next) = self.page("maps", &start)?;
            for (key, value) in &rows {
                let Some((group, volume, row)) = keys::row(key) else { continue };
                if here.as_ref().is_none_or(|here| here.of != (group, volume)) {
                    here = Some(Here { of: (group, volume), purges: self.purges(group)?, ends: BTreeMap::new() });
                }
                let here = here.as_mut().expect("just made");
                match row {
                    Row::Inode => {
                        if let Ok(inode) = values::decode_inode(value) {
                            here.ends.insert(keys::first_ino(key), inode.size.div_ceil(BLOCK_BYTES as u64));
                        }
                    }
                    Row::Leaf => match Leaf::decode(value) {
                        Ok(leaf) => self.leaf(here, key, &leaf, (&mut *suspects, &mut *spares), first).await?,
                        Err(_) if first => self.rotten_leaf(here, key, spares).await?,
                        Err(_) => {}
                    },
                    _ => {}
                }
            }
            if self.edits.len() >= EDITS_MAX {
                self.write()?;
            }
            from = next;
        }
        self.write()
    }

    async fn leaf(
        &mut self,
        here: &Here,
        key: &[u8],
        leaf: &Leaf,
        (suspects, spares): (&mut Suspects, &mut Spares),
        first: bool,
    ) -> Result<()> {
        let (group, volume) = here.of;
        let at = keys::leaf_of(key);
        let stale = leaf.trim < here.purges.trim_of(volume, at);
        let end = here.ends.get(&at.ino).copied().filter(|_| !stale).unwrap_or(u64::MAX);
        let mut new = leaf.clone();
        for (slot, value) in leaf.iter() {
            let Slot::Local { place, crc, birth } = value else { continue };
            let offset = at.leaf * BLOCKS_PER_LEAF as u64 + slot as u64;
            let owner = Owner { group, volume, ino: at.ino, offset, crc };
            if first && offset >= end {
                new.clear(slot..slot + 1);
                self.mended(format!(
                    "block {offset} of inode {} of volume {volume}, beyond its end, was freed",
                    at.ino
                ));
                continue;
            }
            match self.verdict((&mut *suspects, &mut *spares), place, &owner, first).await? {
                Verdict::Keep => {}
                Verdict::Becomes(place, crc) => {
                    new.set(slot, Slot::Local { place, crc, birth });
                    self.mended(format!("block {offset} of inode {} of volume {volume} was found again", at.ino));
                }
                Verdict::Lost => {
                    new.clear(slot..slot + 1);
                    if !stale {
                        self.lost_block((volume, at.ino), offset, ZEROS);
                    }
                }
            }
        }
        if new != *leaf {
            self.put(key.to_vec(), (!new.is_empty()).then(|| new.encode()));
        }
        Ok(())
    }

    /// The right content of a slot whose block is in doubt.
    async fn verdict(
        &mut self,
        (suspects, spares): (&mut Suspects, &mut Spares),
        place: Place,
        owner: &Owner,
        first: bool,
    ) -> Result<Verdict> {
        if place == Place::MISSING {
            return Ok(Verdict::Keep);
        }
        if self.is_outside(place) {
            return Ok(if first { found_again(spares, owner) } else { Verdict::Keep });
        }
        let Some(suspect) = suspects.get_mut(&place.segment) else { return Ok(Verdict::Keep) };
        if suspect.reused {
            return Ok(found_again(spares, owner));
        }
        let told = suspect.entries.get(&place.block).map(Owner::told);
        let shared = suspect.twice.contains(&place.block);
        if told == Some(*owner) && !suspect.free {
            suspect.given.insert(place.block);
            return Ok(Verdict::Keep);
        }
        let is_owner = told.is_some_and(|told| Owner { crc: owner.crc, ..told } == *owner);
        if shared && told.is_some() && !is_owner {
            return Ok(found_again(spares, owner));
        }
        let crc = self.crc_of(place).await?;
        if let Some(told) = told.filter(|told| is_owner && crc == Some(told.crc)) {
            suspect.given.insert(place.block);
            return Ok(Verdict::Becomes(place, told.crc));
        }
        // The map says another's, or the summary is damaged: what it should be may still be there.
        if let Some(spare) = spares.take(owner) {
            return Ok(Verdict::Becomes(spare.place, spare.crc));
        }
        let alone = !shared || suspect.given.insert(place.block);
        let holds = crc == Some(owner.crc);
        // A place of its own whose content is bad goes on to fail: that is never taken for data.
        let fails = !holds && !shared && !suspect.free && (told.is_none() || is_owner);
        if fails {
            self.lost_block((owner.volume, owner.ino), owner.offset, FAILS);
        }
        Ok(if (holds && alone) || fails { Verdict::Keep } else { Verdict::Lost })
    }

    /// A leaf that can't be read is made anew from summaries. One that a truncation or hole may have cut can't be told from
    /// what was written after that: it counts as cut.
    async fn rotten_leaf(&mut self, here: &Here, key: &[u8], spares: &mut Spares) -> Result<()> {
        let (_, volume) = here.of;
        let at = keys::leaf_of(key);
        let cut = here.purges.trim_of(volume, at) > 0;
        let end = here.ends.get(&at.ino).copied().unwrap_or(u64::MAX);
        let new = self.told_leaf((volume, at), spares, (if cut { u64::MAX } else { end }, !cut)).await?;
        if cut {
            for (slot, _) in new.iter() {
                self.lost_block((volume, at.ino), at.leaf * BLOCKS_PER_LEAF as u64 + slot as u64, ZEROS);
            }
        }
        self.put(key.to_vec(), (!new.is_empty()).then(|| new.encode()));
        let blocks = new.len();
        self.mended(format!("leaf {} of inode {} of volume {volume} was made anew, {blocks} blocks", at.leaf, at.ino));
        Ok(())
    }

    /// A leaf as summaries tell it: blocks before `end`. `counts`: what of them can't be read is a loss.
    async fn told_leaf(
        &mut self,
        (volume, at): (VolumeId, LeafKey),
        spares: &mut Spares,
        (end, counts): (u64, bool),
    ) -> Result<Leaf> {
        let mut new = Leaf::default();
        for (offset, spare) in spares.take_leaf(volume, at) {
            if offset >= end {
                continue;
            }
            if counts && self.crc_of(spare.place).await? != Some(spare.crc) {
                self.lost_block((volume, at.ino), offset, FAILS);
            }
            let slot = (offset % BLOCKS_PER_LEAF as u64) as usize;
            new.set(slot, Slot::Local { place: spare.place, crc: spare.crc, birth: BIRTH });
        }
        Ok(new)
    }

    /// Leaves that are gone, but whose blocks are marked live. A block that its leaf does not name was freed, and only its
    /// bit is wrong.
    async fn missing_leaves(&mut self, mut spares: Spares) -> Result<()> {
        while let Some((volume, at)) = spares.first_leaf() {
            let is_there = self.index.get(&keys::leaf(volume, at))?.is_some();
            let known = self.volumes.contains_key(&volume) && at.ino.group().0 < self.groups();
            if is_there || !known || self.purges(at.ino.group())?.trim_of(volume, at) > 0 {
                spares.take_leaf(volume, at);
                continue;
            }
            let inode = self.index.get(&keys::inode(volume, at.ino))?;
            let inode = inode.and_then(|row| values::decode_inode(&row).ok());
            let end = inode.map_or(u64::MAX, |inode| inode.size.div_ceil(BLOCK_BYTES as u64));
            let new = self.told_leaf((volume, at), &mut spares, (end, true)).await?;
            if !new.is_empty() {
                self.put(keys::leaf(volume, at), Some(new.encode()));
                let (ino, blocks) = (at.ino, new.len());
                self.mended(format!("leaf {} of inode {ino} of volume {volume} was missing, {blocks} blocks", at.leaf));
            }
        }
        self.write()
    }
}

/// The block that summaries tell of, or none.
fn found_again(spares: &mut Spares, owner: &Owner) -> Verdict {
    spares.take(owner).map_or(Verdict::Lost, |spare| Verdict::Becomes(spare.place, spare.crc))
}
