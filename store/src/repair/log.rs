//! A log that is damaged below its durable end: replay gets ways over bad batches, and leaves out what builds on records
//! that are lost with them (decision 0044). Where nothing whole lies behind the damage, the log is cut before it. Which files
//! lost records were about is told, as far as those can be read.

use super::{Repair, kept};
use crate::format::record::Logged;
use crate::format::values::GroupRow;
use crate::format::{keys, values};
use crate::recovery::Replayed;
use base::limits::NUMBER_MAX;
use base::{Edit, GroupId, Ino, Kind, Numbers, Result, VolumeId};
use std::collections::{BTreeMap, BTreeSet};

/// More numbers than a group gives out between two checkpoints: those are due after fewer records (rule X2).
const LOST_NUMBERS_MAX: u64 = 1 << 24;

/// More volumes than anybody makes in that time.
const LOST_VOLUMES_MAX: u32 = 1 << 10;

const CHANGES: &str = "changes after the last checkpoint that build on lost ones: it is as it was before them";
const UNREAD: &str = "changes after the last checkpoint, of which nothing tells: any file may lack one";

impl Repair<'_> {
    pub(super) async fn log(&mut self) -> Result<()> {
        match self.opening.walk(async |_| Ok(())).await {
            Ok(_) => return Ok(()),
            Err(error) if error.kind == Kind::Corrupt => {}
            Err(error) => return Err(error),
        }
        let headers = self.opening.lost_headers().await?;
        for header in &headers {
            self.write_header(header).await?;
        }
        if !headers.is_empty() {
            // The next round reads the log with them.
            return Ok(());
        }
        let survey = match self.opening.survey().await {
            // A header that replay needs is missing: it is written anew first, and the next round goes on.
            Err(error) if error.kind == Kind::Corrupt => return Ok(()),
            survey => survey?,
        };
        let (tail, mut passages) = (survey.tail, survey.passages);
        for passage in &passages.over[self.opening.passages().over.len()..] {
            let (first, last) = (passage.from, passage.to - 1);
            self.mended(format!("the log goes on behind its bad batches {first} to {last}"));
        }
        if tail.number < tail.durable {
            self.opening.cut_log(&tail).await?;
            let batches = tail.durable - tail.number;
            self.mended(format!("the log was cut after batch {}: {batches} later ones had been durable", tail.number));
        }
        let cuts = kept::cuts(&*self.index, self.groups(), &survey.records, tail.number)?;
        for cut in &cuts {
            self.mended(format!(
                "group {}: records from {} on build on lost ones and were left out",
                cut.group, cut.from
            ));
        }
        passages.cuts.extend(cuts);
        for replayed in &survey.records {
            self.learn_names(replayed);
        }
        self.pass_lost_numbers(&survey.records)?;
        let lost = survey.records.iter().filter(|replayed| match &replayed.logged {
            Logged::Record(record) => passages.leave_out((record.group, record.index), replayed.batch),
            Logged::Moves(_) | Logged::Vote(_) => false,
        });
        let files: BTreeSet<_> = lost.flat_map(files_of).collect();
        files.into_iter().for_each(|file| self.lost(file, CHANGES));
        if !survey.unread.is_empty() {
            self.lost((VolumeId(0), Ino(0)), UNREAD);
        }
        self.put(keys::replay(), Some(values::encode_damaged_replay(self.opening.replay_row(), &passages)));
        self.write()
    }

    /// Continues each group's numbers far behind all that it can have given out. Lost records may have used numbers,
    /// and the records that reserved them may be lost too; so nobody's handle reaches another file (rule L2).
    fn pass_lost_numbers(&mut self, records: &[Replayed]) -> Result<()> {
        let end = Numbers { ino: Ino::SEQUENCE_END, cookie: NUMBER_MAX, intent: NUMBER_MAX };
        let mut reserved: BTreeMap<GroupId, Numbers> = BTreeMap::new();
        for replayed in records {
            let Logged::Record(record) = &replayed.logged else { continue };
            let told = record.edits.iter().filter_map(|edit| match edit {
                Edit::Numbers { numbers } => Some(*numbers),
                _ => None,
            });
            let of_group = reserved.entry(record.group).or_default();
            *of_group = told.fold(*of_group, Numbers::max);
        }
        for group in (0..self.groups()).map(GroupId) {
            let key = keys::group(group);
            let row = self.index.get(&key)?;
            // One that can't be read stops a start, and so nothing is given out.
            let Ok(mut row) = row.map_or(Ok(GroupRow::fresh()), |row| values::decode_group(&row)) else { continue };
            let before = reserved.get(&group).copied().unwrap_or_default();
            row.reserved = row.next().max(row.reserved).max(before).more_below(LOST_NUMBERS_MAX, end);
            if group == GroupId(0) {
                row.next_volume = row.next_volume.saturating_add(LOST_VOLUMES_MAX).min(u32::MAX - 1);
            }
            self.put(key, Some(values::encode_group(&row)));
        }
        Ok(())
    }

    /// Names that no checkpoint has seen: they tell where a lost file was.
    fn learn_names(&mut self, replayed: &Replayed) {
        let Logged::Record(record) = &replayed.logged else { return };
        for edit in &record.edits {
            if let Edit::EntryPut { dir, ino, name, .. } = edit {
                self.young_names.insert((record.volume, *ino), (*dir, name.clone()));
            }
        }
    }
}

/// The inodes that a record changes.
fn files_of(replayed: &Replayed) -> Vec<(VolumeId, Ino)> {
    // What the cleaner moved is still where it was, and a vote is about no file.
    let Logged::Record(record) = &replayed.logged else { return Vec::new() };
    let inos = |edit: &Edit| match edit {
        Edit::InodePut { ino, .. }
        | Edit::InodeTouch { ino, .. }
        | Edit::InodeParent { ino, .. }
        | Edit::InodeProject { ino, .. }
        | Edit::InodeExtend { ino, .. }
        | Edit::InodeCut { ino, .. }
        | Edit::InodeDrop { ino }
        | Edit::TargetPut { ino, .. }
        | Edit::XattrPut { ino, .. }
        | Edit::XattrDrop { ino, .. }
        | Edit::Map { ino, .. }
        | Edit::Reserve { ino, .. }
        | Edit::Punch { ino, .. } => vec![*ino],
        Edit::EntryPut { dir, ino, .. } => vec![*dir, *ino],
        Edit::EntryDrop { dir, .. } => vec![*dir],
        _ => Vec::new(),
    };
    record.edits.iter().flat_map(inos).map(|ino| (record.volume, ino)).collect()
}
