//! The offline check: reads all that tells of data, changes nothing, reports every finding. It walks the log, holds the index of
//! the last checkpoint against itself (names, maps, live bits; rule K1), and segments against the index: headers,
//! and the summaries that tell of each block whose it is (rule L7).
//!
//! Memory: about 100 bytes per inode, as many more per directory, and a bit per block, whatever the blocks' owners are:
//! those go into a digest per segment, and are read once more for segments whose digest differs. A brick of 32 GiB with
//! 8 million live blocks in 100,000 files takes some 12 MB.
//!
//! *Absent:* reading the blocks themselves, unless `data` is asked to (the scrub does, and a read finds what differs, rule K8);
//! changing anything (`repair` does).

pub mod affected;
pub(crate) mod blocks;
pub mod data;
pub(crate) mod kinds;
pub mod logical;
mod names;
mod rows;
mod segments;
mod suspects;
pub(crate) mod tree;

use crate::format::{keys, values};
use crate::index::Index;
use crate::open::Opening;
use crate::progress::Step;
use crate::recovery::bounds::Bounds;
use crate::space::purge::Purges;
use base::{GroupId, Result, SegmentId, VolumeId};
use blocks::Claims;
use names::Names;
pub(crate) use rows::{each_place, is_in_place};
pub(crate) use segments::is_told;
use std::collections::{BTreeMap, BTreeSet};

/// Findings that are listed; a brick that lost a file of segments would have millions.
const FINDINGS_MAX: usize = 1000;

/// The figures and findings of a check.
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
    /// The log can't be replayed: a start refuses the brick.
    pub log_lost: bool,
    /// Cross-group changes that the next start will complete.
    pub intents: u64,
    /// Unlinked open files that the next start will free.
    pub orphans: u64,
    /// A disk is missing: what lies on it was not looked at, and nothing can be repaired.
    pub missing: bool,
    /// Blocks mapped by leaves that the brick lacks and other replicas have: it heals.
    pub lacking: u64,
    /// Groups whose rows are a mix, because the brick takes them from another one: names and counts were not looked at.
    pub mixed: u32,
    /// Blocks of data that were read and compared; None if they were not (`data`).
    pub data_blocks: Option<u64>,
    /// Sentences that say what is wrong, what that means and what to do; empty = clean.
    pub findings: Vec<String>,
}

impl Report {
    /// A sentence that says that the brick heals, if it does: that is no damage.
    pub fn healing(&self) -> Option<String> {
        let Report { lacking, mixed, .. } = self;
        match (mixed, lacking) {
            (0, 0) => None,
            (0, _) => Some(format!("{lacking} blocks are missing here: the brick heals")),
            _ => Some(format!(
                "{mixed} groups are being taken from another brick, and names and counts were not checked: the brick heals"
            )),
        }
    }
}

/// The meaning of a finding for the user's data, and the next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Means {
    /// The latest changes can't be replayed.
    LogLost,
    /// A segment that the log speaks of does not say what it is.
    Unheaded,
    /// Something can't be read.
    Unreadable,
    /// Two files name one block: at most one of them is right.
    Shared,
    /// A block may be overwritten though a file has it.
    AtRisk,
    /// Names and inodes contradict each other.
    Names,
    /// An inode is not what it says.
    Kind,
    /// A map and a summary disagree about a block.
    Differs,
    /// A segment does not tell of all its blocks.
    Untold,
    /// Nobody has it, and it takes space.
    Leak,
    /// The brick is of another version.
    Unknown,
}

impl Means {
    fn text(self) -> &'static str {
        match self {
            Means::LogLost => {
                "changes since the last checkpoint may be lost, and the brick will not start: keep a copy of its \
                 directory and check the device; `sinter check --repair` gives up what can't be replayed, and lists it"
            }
            Means::Unheaded => {
                "the brick will not start, though what the segment holds is there: `sinter check --repair` writes the header \
                 anew"
            }
            Means::Unreadable => {
                "what it held can't be read: `sinter check --repair` builds it again where it can, and lists what is lost"
            }
            Means::Shared => {
                "at most one of them is right, the others fail to be read: `sinter check --repair` finds out which, and \
                 looks for what belongs to the others"
            }
            Means::AtRisk => {
                "it can be read, but new data may overwrite it: `sinter check --repair` before the brick is started"
            }
            Means::Names => "data is intact, but a name or a count is wrong: `sinter check --repair` mends it",
            Means::Kind => "what it holds is there, but can't be used as what it is: `sinter check --repair` mends it",
            Means::Differs => {
                "either the map or the summary is damaged, and reads may fail: `sinter check --repair` keeps what the \
                 block itself agrees with"
            }
            Means::Untold => {
                "the data can be read, but the cleaner can't empty the segment, and the map could not be built again \
                 from it: `sinter check --repair` writes the summary anew"
            }
            Means::Leak => "no data is missing, but this space does not come back: `sinter check --repair` frees it",
            Means::Unknown => {
                "this version does not use it: check with the version that wrote it, or have `sinter check --repair` \
                 remove it"
            }
        }
    }
}

/// True if a group's rows are a mix, because the brick takes them from another one. A mark that can't be read is a finding by itself.
pub(crate) fn is_mix(index: &dyn Index, group: GroupId) -> Result<bool> {
    let mark = index.get(&keys::heal(group))?;
    Ok(mark.and_then(|mark| values::decode_heal(&mark).ok()).is_some_and(|heal| heal.rows))
}

struct Check<'a> {
    opening: &'a Opening,
    report: Report,
    /// Findings that are not listed.
    unlisted: u64,
    /// Leaves that can't be read: nobody knows which blocks are theirs.
    unread_leaves: u64,
    volumes: BTreeSet<VolumeId>,
    names: Names,
    claims: BTreeMap<SegmentId, Claims>,
    /// The cuts that the present group has yet to free (rule K6).
    purges: Option<(GroupId, Purges)>,
    /// The space that volumes use.
    used: BTreeMap<(GroupId, VolumeId), rows::Used>,
    /// Groups and volumes that the next start goes on counting.
    uncounted: BTreeSet<(GroupId, VolumeId)>,
    /// Counts that differ from what there is.
    miscounted: Vec<String>,
}

/// The receiver of the check's progress.
type Progress<'a> = &'a mut dyn FnMut(Step);

/// Checks a brick that nobody serves. Errors: only if the check itself can't go on.
pub async fn check(opening: &Opening, progress: Progress<'_>) -> Result<Report> {
    let mut check = Check {
        opening,
        report: Report {
            missing: opening.geometry().has_missing(),
            findings: opening.warnings.clone(),
            ..Report::default()
        },
        unlisted: 0,
        unread_leaves: 0,
        volumes: BTreeSet::new(),
        names: Names::default(),
        claims: BTreeMap::new(),
        purges: None,
        used: BTreeMap::new(),
        uncounted: BTreeSet::new(),
        miscounted: Vec::new(),
    };
    progress(Step::begin("log"));
    check.log().await?;
    progress(Step::begin("index"));
    check.volumes()?;
    check.index(progress)?;
    if check.report.mixed == 0 {
        progress(Step::begin("names"));
        check.names();
    }
    progress(Step::begin("segments"));
    let suspects = check.segments(progress).await?;
    check.suspects(suspects, progress).await?;
    check.miscounts();
    if check.unlisted > 0 {
        check.report.findings.push(format!("{} more findings are not listed", check.unlisted));
    }
    Ok(check.report)
}

impl Check<'_> {
    fn find(&mut self, finding: impl std::fmt::Display, means: Means) {
        if self.report.findings.len() >= FINDINGS_MAX {
            self.unlisted += 1;
            return;
        }
        self.report.findings.push(format!("{finding}; {}", means.text()));
    }

    /// A change between groups that was cut off leaves counts and volumes that its redo will mend.
    fn is_settled(&self) -> bool {
        self.report.intents == 0
    }

    fn groups(&self) -> u32 {
        self.opening.superblock().groups
    }

    async fn log(&mut self) -> Result<()> {
        let mut records = 0;
        let walked = self.opening.walk(async |chunk| {
            records += chunk.len() as u64;
            Ok(())
        });
        let walked = walked.await;
        self.report.records = records;
        let error = match walked {
            Ok(tail) => {
                self.report.batches = tail.batches;
                return Ok(());
            }
            Err(error) => error,
        };
        self.report.log_lost = true;
        let lost = self.opening.lost_headers().await?;
        if lost.is_empty() {
            self.find(format!("log: {error}"), Means::LogLost);
        }
        for header in lost {
            self.find(format!("segment {}: its header is damaged or missing", header.segment), Means::Unheaded);
        }
        Ok(())
    }

    fn volumes(&mut self) -> Result<()> {
        let (from, to) = keys::volumes();
        for (_, value) in self.opening.index().scan(&from, &to, usize::MAX)? {
            match values::decode_volume(&value) {
                Ok(volume) => {
                    self.volumes.insert(volume.id);
                    self.names.roots.insert(volume.id, volume.root);
                }
                Err(error) => self.find(format!("catalogue of volumes: {error}"), Means::Unreadable),
            }
        }
        for group in (0..self.groups()).map(GroupId) {
            let (from, to) = keys::locks(group);
            for (_, value) in self.opening.index().scan(&from, &to, usize::MAX)? {
                if let Err(error) = values::decode_lock(&value) {
                    self.find(format!("what group {group} holds for a change: {error}"), Means::Unreadable);
                }
            }
            self.report.mixed += u32::from(is_mix(&**self.opening.index(), group)?);
            let (from, to) = keys::intents(group);
            let bounds = Bounds::of(self.opening.superblock(), self.opening.geometry());
            for (_, value) in self.opening.index().scan(&from, &to, usize::MAX)? {
                self.report.intents += 1;
                let intent = values::decode_intent(&value).and_then(|intent| bounds.intent(&intent));
                if let Err(error) = intent {
                    self.find(format!("a change between groups, begun in group {group}: {error}"), Means::Unreadable);
                }
            }
        }
        Ok(())
    }
}
