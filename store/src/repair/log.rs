//! A log that is damaged below its durable end: replay gets ways over bad batches, and leaves out what builds on records
//! that are lost with them (decision 0044). Where nothing whole lies behind the damage, the log is cut before it. Which files
//! lost records were about is told, as far as those can be read.

use super::{Repair, kept};
use crate::format::record::Logged;
use crate::format::{keys, values};
use crate::recovery::Replayed;
use base::{Edit, Ino, Kind, Result, VolumeId};
use std::collections::BTreeSet;

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
        let lost = survey.records.iter().filter(|replayed| match &replayed.logged {
            Logged::Record(record) => passages.leave_out((record.group, record.index), replayed.batch),
            Logged::Moves(_) => false,
        });
        let files: BTreeSet<_> = lost.flat_map(files_of).collect();
        files.into_iter().for_each(|file| self.lost(file, CHANGES));
        if !survey.unread.is_empty() {
            self.lost((VolumeId(0), Ino(0)), UNREAD);
        }
        self.put(keys::replay(), Some(values::encode_damaged_replay(self.opening.replay_row(), &passages)));
        self.write()
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
    // What the cleaner moved is still where it was.
    let Logged::Record(record) = &replayed.logged else { return Vec::new() };
    let inos = |edit: &Edit| match edit {
        Edit::InodePut { ino, .. }
        | Edit::InodeTouch { ino, .. }
        | Edit::InodeParent { ino, .. }
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
