//! Segments whose digests differ, block by block: the leaves are read once more, as often as it takes to hold the
//! summaries of all suspects against them, a bounded number at a time.

use super::blocks::{Owner, is_set};
use super::rows::each_place;
use super::segments::{Suspect, is_told};
use super::{Check, Means, Progress};
use crate::format::keys::{self, Row};
use crate::format::leaf::Leaf;
use crate::format::summary::SummaryEntry;
use crate::progress::Step;
use base::{Ino, Place, Result, SegmentId, VolumeId};
use std::collections::BTreeMap;

/// Summary entries held at once: 40 MB.
const ENTRIES_MAX: u32 = 1 << 20;

/// The fault of blocks of an inode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Wrong {
    NotLive,
    Untold,
    Differs,
}

#[derive(Default)]
struct Found {
    /// Number of faulty blocks and the first one's number within the inode, per segment and inode.
    wrong: BTreeMap<(SegmentId, VolumeId, Ino, Wrong), (u64, u64)>,
    /// Owners of blocks that are named more than once.
    shared: BTreeMap<Place, Vec<Owner>>,
}

struct Held<'a> {
    suspect: &'a Suspect,
    live: Vec<u64>,
    /// None if nothing tells of the segment, or what should can't be read.
    entries: Option<Vec<SummaryEntry>>,
}

impl Check<'_> {
    pub(super) async fn suspects(&mut self, suspects: Vec<Suspect>, progress: Progress<'_>) -> Result<()> {
        let at_once = (ENTRIES_MAX / self.opening.geometry().blocks()).max(1) as usize;
        for some in suspects.chunks(at_once) {
            progress(Step::begin("segments that differ"));
            let mut held = BTreeMap::new();
            for suspect in some {
                let row = self.opening.table().whole_row(suspect.segment).expect("the table has named it");
                let entries = match is_told(&row) {
                    // What can't be read was reported by the first look.
                    true => self.summary(suspect.segment, &row).await?.ok(),
                    false => None,
                };
                held.insert(suspect.segment, Held { suspect, live: row.live, entries });
            }
            let mut found = Found::default();
            self.each("segments that differ", progress, |_, key, value| {
                if let (Some((_, volume, Row::Leaf)), Ok(leaf)) = (keys::row(key), Leaf::decode(value)) {
                    each_place(volume, key, &leaf, |place, owner| found.take(&held, place, owner));
                }
                Ok(())
            })?;
            self.tell(found);
        }
        Ok(())
    }

    fn tell(&mut self, found: Found) {
        for ((segment, volume, ino, wrong), (count, first)) in found.wrong {
            let (what, means) = match wrong {
                Wrong::NotLive => ("don't count as live", Means::AtRisk),
                Wrong::Untold => ("are missing in the segment's summary", Means::Untold),
                Wrong::Differs => {
                    ("are another file's, or have another checksum, in the segment's summary", Means::Differs)
                }
            };
            let whose = format!("inode {ino} of volume {volume}, from block {first} on");
            self.find(format!("segment {segment}: {count} blocks of {whose}, {what}"), means);
        }
        for (place, owners) in found.shared {
            let Place { segment, block } = place;
            let owner =
                |owner: &Owner| format!("block {} of inode {} of volume {}", owner.offset, owner.ino, owner.volume);
            let owners: Vec<_> = owners.iter().map(owner).collect();
            let finding = format!("segment {segment}: its block {block} is named by {}", owners.join(" and by "));
            self.find(finding, Means::Shared);
        }
    }
}

impl Found {
    fn take(&mut self, held: &BTreeMap<SegmentId, Held<'_>>, place: Place, owner: Owner) {
        let Some(Held { suspect, live, entries }) = held.get(&place.segment) else { return };
        let mut note = |wrong| {
            let noted = self.wrong.entry((place.segment, owner.volume, owner.ino, wrong)).or_insert((0, owner.offset));
            noted.0 += 1;
        };
        if !is_set(live, place.block) {
            note(Wrong::NotLive);
        }
        if let Some(entries) = entries {
            match entries.binary_search_by_key(&place.block, |entry| entry.block) {
                Ok(at) if Owner::told(&entries[at]) == owner => {}
                Ok(_) => note(Wrong::Differs),
                Err(_) => note(Wrong::Untold),
            }
        }
        if suspect.claims.twice.contains(&place.block) {
            self.shared.entry(place).or_default().push(owner);
        }
    }
}
