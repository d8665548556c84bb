//! `sinter check`: reads a whole brick that nobody serves, says what is wrong, and with `--repair` mends it.

use super::{print, print_json};
use crate::assembly::{self, Reading};
use crate::cli::Check;
use crate::cluster::refuse_alone;
use crate::daemon::say;
use crate::directory;
use crate::failure::{Exit, Failure};
use crate::host;
use crate::memory;
use crate::progress::Progress;
use crate::table::{Align, Table, count};
use runtime::real::Directory;
use std::path::{Path, PathBuf};
use store::check::Report;
use store::repair::gaps::Gap;
use store::repair::{Depth, Lost, Repaired};

/// The next step where no repair helps.
const RUNBOOK: &str = "restore from a backup; docs/operate/read-only.md, \"An index with bad blocks\"";
/// The name of the salvaged part of a damaged index before it takes its place.
const SALVAGED: &str = "index.salvaged";

/// A repair shows what another one can go on with: a log can be read once its segments have headers, it is replayed in between,
/// and what was found again has a name only then. Five rounds have always been enough.
const ROUNDS_MAX: usize = 6;

/// Runs `sinter check`. Exit codes as file system checkers have them: 1 for findings, and for anything lost by a repair.
pub fn run(options: &Check) -> Result<Exit, Failure> {
    let mut kept = None;
    let reading = if options.read_data || options.repair { Reading::Data } else { Reading::Structures };
    let data = directory::existing(&options.data).map_err(|failure| failure.exit(Exit::Usage))?;
    if options.repair {
        // Before anything is copied or changed.
        refuse_alone(&data, None).map_err(|failure| failure.exit(Exit::Usage))?;
    }
    let report = match look(&data, reading) {
        // The index's own blocks are bad.
        Err(failure) if options.repair && failure.exit == Exit::Corrupt => {
            kept = Some(salvage(&data, failure.exit(Exit::Usage))?);
            look(&data, reading)?
        }
        Err(failure) if failure.exit == Exit::Corrupt => {
            let next = "keep a copy of the brick, then `sinter check --repair`; docs/operate/read-only.md";
            return Err(failure.exit(Exit::Usage).next(next));
        }
        looked => looked.map_err(|failure| failure.exit(Exit::Usage))?,
    };
    let checked = Checked::of(&report);
    if !options.repair || (report.findings.is_empty() && kept.is_none()) {
        match options.json {
            true => print_json(&checked)?,
            false => print(&checked.text())?,
        }
        if !report.findings.is_empty() && !options.json {
            print(
                "nothing was changed; `sinter check --repair` mends what can be mended, and keeps a copy of the index\n",
            )?;
        }
        return Ok(if report.findings.is_empty() { Exit::Done } else { Exit::Failed });
    }
    if report.missing {
        let failure = Failure::new(Exit::Usage, "a disk of the brick is missing, and nothing was repaired");
        return Err(failure.next("bring it back, and repair then"));
    }
    let mended = mend(&data, &report, kept)?;
    match options.json {
        true => print_json(&mended)?,
        false => print(&mended.text())?,
    }
    let whole = mended.lost.is_empty() && mended.after.findings.is_empty();
    Ok(if whole { Exit::Done } else { Exit::Failed })
}

fn look(data: &Directory, reading: Reading) -> Result<Report, Failure> {
    let progress = Progress::new("checking", None);
    assembly::check(data, reading, memory::default_max_bytes(), progress.tell())
}

/// A damaged index that was replaced by what could be read of it.
struct Kept {
    copy: PathBuf,
    mended: Vec<String>,
}

/// Replaces an index whose blocks can't all be read by a copy of what can be. `why`: what was said of it. Errors: `why`, if it
/// is not about such blocks, or if what lay in them can't be missed; then nothing was changed.
fn salvage(data: &Directory, why: Failure) -> Result<Kept, Failure> {
    host::make_files_private();
    let gone = || {
        let removed = directory::remove_tree(&data.at(SALVAGED));
        removed.map_err(|error| Failure::io(format!("can't remove {}", data.path().join(SALVAGED).display()), &error))
    };
    gone()?;
    let salvaged = match assembly::salvage(data, SALVAGED, memory::default_max_bytes()) {
        Ok(salvaged) if !salvaged.gaps.is_empty() => salvaged,
        _ => {
            gone()?;
            return Err(why.next(RUNBOOK));
        }
    };
    let (mended, lost): (Vec<_>, Vec<_>) = salvaged.gaps.into_iter().partition(Gap::can_be_mended);
    if let Some(gap) = lost.first() {
        gone()?;
        let told = gap.told();
        let text = format!("bad blocks of the index, {told}: nothing else tells what they held; nothing was changed");
        return Err(Failure::new(Exit::Usage, text).next(RUNBOOK));
    }
    let copy = directory::keep_index(data)?;
    directory::replace_index(data, SALVAGED)?;
    let told = mended.iter().map(|gap| format!("what the index lacked {} is made anew from other rows", gap.told()));
    let rows = format!("the index was replaced by its {} rows that can be read", count(salvaged.rows));
    Ok(Kept { copy, mended: std::iter::once(rows).chain(told).collect() })
}

/// Repairs until nothing more is found, or nothing more can be mended.
fn mend(data: &Directory, before: &Report, kept: Option<Kept>) -> Result<Mended, Failure> {
    host::make_files_private();
    let memory_max = memory::default_max_bytes();
    let (mut report, mut all) = (before.clone(), Repaired::default());
    let copy = match kept {
        Some(Kept { copy, mended }) => {
            all.mended = mended;
            copy
        }
        None => directory::keep_index(data)?,
    };
    for _ in 0..ROUNDS_MAX {
        let settled = report.records == 0 && report.intents == 0 && !report.log_lost;
        let depth = if settled { Depth::All } else { Depth::Maps };
        let progress = Progress::new("repairing", None);
        let Repaired { mended, unlisted, lost } = assembly::repair(data, depth, memory_max, progress.tell())?;
        let idle = mended.is_empty() && lost.is_empty();
        all.mended.extend(mended);
        all.unlisted += unlisted;
        all.lost.extend(lost);
        progress.clear();
        if !settled {
            let progress = Progress::new("replaying", None);
            let replayed = assembly::settle(data, memory_max, progress.tell());
            progress.clear();
            if let Err(failure) = replayed {
                say(&failure.to_string());
            }
        }
        report = look(data, Reading::Structures)?;
        if report.findings.is_empty() || (settled && idle) {
            break;
        }
    }
    // A repair is whole only if all of each file can be read.
    report = look(data, Reading::Data)?;
    Ok(Mended::of(before, &all, &report, &copy))
}

/// The figures and findings of a check, as JSON shows them.
#[derive(serde::Serialize)]
struct Checked {
    inodes: u64,
    entries: u64,
    blocks: u64,
    segments: u64,
    log_batches: u64,
    log_records: u64,
    intents: u64,
    orphans: u64,
    /// None if data was not read.
    data_blocks: Option<u64>,
    /// Blocks that a healing brick of a cluster is still to get.
    missing_blocks: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    healing: Option<String>,
    findings: Vec<String>,
}

impl Checked {
    fn of(report: &Report) -> Checked {
        Checked {
            inodes: report.inodes,
            entries: report.entries,
            blocks: report.blocks,
            segments: report.segments,
            log_batches: report.batches,
            log_records: report.records,
            intents: report.intents,
            orphans: report.orphans,
            data_blocks: report.data_blocks,
            missing_blocks: report.lacking,
            healing: report.healing(),
            findings: report.findings.clone(),
        }
    }
    fn text(&self) -> String {
        let mut table = Table::new(&[("checked", Align::Left), ("count", Align::Right)]);
        for (name, value) in [
            ("inodes", self.inodes),
            ("directory entries", self.entries),
            ("mapped blocks", self.blocks),
            ("segments in use", self.segments),
            ("log batches since the last checkpoint", self.log_batches),
            ("log records since the last checkpoint", self.log_records),
            ("changes to complete at the next start", self.intents),
            ("orphans to free at the next start", self.orphans),
        ] {
            table.row(vec![name.to_string(), count(value)]);
        }
        let data = match self.data_blocks {
            Some(blocks) => format!("{} blocks of data were read and compared\n", count(blocks)),
            None => "data was not read: `sinter check --data` reads and compares all of it\n".to_string(),
        };
        let healing = self.healing.as_ref().map_or(String::new(), |healing| format!("{healing}\n"));
        let findings: String = self.findings.iter().map(|finding| format!("finding: {finding}\n")).collect();
        format!("{}{data}{healing}{findings}{} findings\n", table.render(), self.findings.len())
    }
}

/// The result of a repair, as JSON shows it.
#[derive(serde::Serialize)]
struct Mended {
    before: Checked,
    mended: Vec<String>,
    mended_unlisted: u64,
    lost: Vec<Gone>,
    after: Checked,
    index_before: String,
}

/// Something lost.
#[derive(serde::Serialize)]
struct Gone {
    volume: u32,
    inode: u64,
    path: Option<String>,
    offset: Option<u64>,
    bytes: Option<u64>,
    what: &'static str,
}

impl Mended {
    fn of(before: &Report, all: &Repaired, after: &Report, copy: &Path) -> Mended {
        let gone = |lost: &Lost| Gone {
            volume: lost.volume.0,
            inode: lost.ino.0,
            path: lost.path.as_ref().map(|path| String::from_utf8_lossy(path).into_owned()),
            offset: lost.range.map(|(offset, _)| offset),
            bytes: lost.range.map(|(_, bytes)| bytes),
            what: lost.what,
        };
        Mended {
            before: Checked::of(before),
            mended: all.mended.clone(),
            mended_unlisted: all.unlisted,
            lost: all.lost.iter().map(gone).collect(),
            after: Checked::of(after),
            index_before: copy.display().to_string(),
        }
    }
    fn text(&self) -> String {
        let list = |name: &str, all: &[String]| all.iter().map(|one| format!("{name}: {one}\n")).collect::<String>();
        let mut text = list("finding", &self.before.findings) + &list("mended", &self.mended);
        if self.mended_unlisted > 0 {
            text += &format!("mended: {} more\n", count(self.mended_unlisted));
        }
        if !self.lost.is_empty() {
            let columns = [
                ("volume", Align::Right),
                ("inode", Align::Right),
                ("offset", Align::Right),
                ("bytes", Align::Right),
                ("path", Align::Left),
                ("lost", Align::Left),
            ];
            let mut table = Table::new(&columns);
            for Gone { volume, inode, path, offset, bytes, what } in &self.lost {
                let number = |number: &Option<u64>| number.map_or(String::new(), |number| number.to_string());
                let (offset, bytes) = (number(offset), number(bytes));
                let path = path.clone().unwrap_or_default();
                table.row(vec![volume.to_string(), inode.to_string(), offset, bytes, path, what.to_string()]);
            }
            text += &table.render();
        }
        text += &format!("the index as it was before: {}\n", self.index_before);
        text + &self.after.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repair_reads_well() {
        let (volume, ino) = (base::VolumeId(1), base::Ino(77));
        let path = Some(b"/a/b".to_vec());
        let lost = vec![Lost { volume, ino, path, range: Some((4096, 8192)), what: "data; it reads as zeros now" }];
        let all = Repaired { mended: vec!["segment 3: x".into()], unlisted: 2, lost };
        let before = Report { findings: vec!["f; means".into()], ..Report::default() };
        let told = Mended::of(&before, &all, &Report::default(), Path::new("/d/index.before-repair")).text();
        for line in [
            "finding: f; means",
            "mended: segment 3: x",
            "mended: 2 more",
            "     1     77    4096   8192  /a/b  data; it reads as zeros now",
            "the index as it was before: /d/index.before-repair",
            "0 findings",
        ] {
            assert!(told.lines().any(|own| own == line), "{line:?} is missing in\n{told}");
        }
    }
}
