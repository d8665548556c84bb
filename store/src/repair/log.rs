//! A log that is damaged below its durable end is cut before the damage: nothing behind it could be replayed. Which files
//! later records were about is told, as far as those can be read.

use super::Repair;
use crate::format::record::Logged;
use crate::recovery::Replayed;
use base::{Edit, Ino, Kind, Result, VolumeId};
use std::collections::BTreeSet;

const CHANGES: &str = "changes after the last checkpoint: it is as it was before them";

impl Repair<'_> {
    pub(super) async fn log(&mut self) -> Result<()> {
        let headers = self.opening.lost_headers().await?;
        for header in &headers {
            self.write_header(header).await?;
        }
        if !headers.is_empty() {
            // The next round reads the log with them.
            return Ok(());
        }
        let damage = match self.opening.damage().await {
            // A header that replay needs is missing: it is written anew first, and the next round goes on.
            Err(error) if error.kind == Kind::Corrupt => return Ok(()),
            damage => damage?,
        };
        let Some((tail, lost)) = damage else { return Ok(()) };
        self.opening.cut_log(&tail).await?;
        let batches = tail.durable - tail.number;
        self.mended(format!("the log was cut after batch {}: {batches} later ones had been durable", tail.number));
        let files: BTreeSet<_> = lost.iter().flat_map(files_of).collect();
        if files.is_empty() {
            self.lost((VolumeId(0), Ino(0)), CHANGES);
        }
        files.into_iter().for_each(|file| self.lost(file, CHANGES));
        Ok(())
    }
}

/// The inodes that a record changes.
fn files_of(replayed: &Replayed) -> Vec<(VolumeId, Ino)> {
    // What the cleaner moved is still where it was.
    let Logged::Record(record) = &replayed.logged else { return Vec::new() };
    let ino = |edit: &Edit| match edit {
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
        | Edit::Punch { ino, .. } => Some(*ino),
        Edit::EntryPut { dir, .. } | Edit::EntryDrop { dir, .. } => Some(*dir),
        _ => None,
    };
    record.edits.iter().filter_map(ino).map(|ino| (record.volume, ino)).collect()
}
