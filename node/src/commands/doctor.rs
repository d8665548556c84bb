//! `sinter doctor`: looks at the machine and at what a brick lies on, and says what to change.

use super::{print, print_json};
use crate::cli;
use crate::directory;
use crate::doctor::facts::Room;
use crate::doctor::gather::{Brick, Device, Tree, gather};
use crate::doctor::{Finding, State, examine};
use crate::failure::{Exit, Failure};
use crate::host;
use crate::table::{Align, Table};
use runtime::real::{Access, Directory};
use rustix::fs::{major, minor, statvfs};
use serde::Serialize;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

/// The time during which changes are counted: those of a moment say little, and nobody waits for minutes.
const WINDOW: Duration = Duration::from_secs(1);

/// The answer as JSON.
#[derive(Serialize)]
struct Report<'a> {
    brick: Option<String>,
    daemon: Option<u32>,
    warnings: usize,
    advice: usize,
    findings: &'a [Finding],
}

/// Looks, and shows what was found. Warnings are exit code 1, as the findings of `check`.
pub fn run(options: &cli::Doctor) -> Result<Exit, Failure> {
    let brick = options.data.as_deref().map(brick).transpose()?;
    let facts = gather(&Tree::new("/"), brick.as_ref(), || std::thread::sleep(WINDOW));
    let findings = examine(&facts);
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    let (warnings, advice) = (count(State::Warning), count(State::Advice));
    if options.json {
        let path = brick.as_ref().map(|brick| brick.path.display().to_string());
        let daemon = brick.as_ref().and_then(|brick| brick.daemon);
        print_json(&Report { brick: path, daemon, warnings, advice, findings: &findings })?;
    } else {
        print(&text(&findings))?;
    }
    Ok(if warnings == 0 { Exit::Done } else { Exit::Failed })
}

fn brick(data: &Path) -> Result<Brick, Failure> {
    let directory = directory::existing(data)?;
    let room = statvfs(directory.at("")).ok().map(|found| Room {
        all_bytes: found.f_blocks.saturating_mul(found.f_frsize),
        free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
    });
    let link = runtime::disk::DEVICE;
    let device = match directory.at(link).metadata() {
        Ok(found) if found.file_type().is_block_device() => {
            Some(Device::Found(major(found.rdev()), minor(found.rdev())))
        }
        _ if directory.at(link).is_symlink() => Some(Device::Missing),
        _ => None,
    };
    Ok(Brick { path: directory.path().to_path_buf(), room, device, daemon: daemon(&directory) })
}

/// The daemon that holds the brick's lock. Nothing is locked to find out: a daemon that starts meanwhile finds the lock free.
fn daemon(data: &Directory) -> Option<u32> {
    let mut text = String::new();
    data.file("lock", Access::Read).ok()?.take(32).read_to_string(&mut text).ok()?;
    let pid = text.trim().parse().ok()?;
    host::holds_lock(data, pid).ok()?.then_some(pid)
}

fn text(findings: &[Finding]) -> String {
    let mut table = Table::new(&[("check", Align::Left), ("state", Align::Left), ("found", Align::Left)]);
    for Finding { check, state, found, .. } in findings {
        table.row(vec![check.to_string(), state.word().to_string(), found.clone()]);
    }
    let mut text = table.render();
    for state in [State::Warning, State::Advice] {
        for finding in findings.iter().filter(|finding| finding.state == state) {
            text += &format!("\n{}: {}: {}\n", state.word(), finding.check, finding.found);
            for (title, line) in [("fix:      ", &finding.fix), ("may bring:", &finding.gain)] {
                if let Some(line) = line {
                    text += &format!("  {title} {line}\n");
                }
            }
        }
    }
    if findings.iter().filter_map(|finding| finding.fix.as_ref()).any(|fix| fix.contains("/sys/")) {
        text +=
            "\nwhat is written to /sys lasts until the machine restarts; docs/operate/doctor.md says how to keep it\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixes_stand_below_the_table_warnings_first() {
        let finding = |check, state, fix: Option<&str>| Finding {
            check,
            state,
            found: "as it is".into(),
            fix: fix.map(str::to_string),
            gain: fix.map(|_| "speed".to_string()),
        };
        let findings = [
            finding("clock", State::Ok, None),
            finding("scheduler", State::Advice, Some("echo none >/sys/x")),
            finding("swap", State::Warning, Some("less")),
        ];
        let expected = "check      state    found\nclock      ok       as it is\nscheduler  advice   as it is\n\
                        swap       warning  as it is\n\nwarning: swap: as it is\n  fix:       less\n  may bring: speed\n\n\
                        advice: scheduler: as it is\n  fix:       echo none >/sys/x\n  may bring: speed\n\nwhat is written";
        let told = text(&findings);
        assert!(told.starts_with(expected), "{told}");
        assert!(!text(&findings[..1]).contains("/sys"), "{told}");
    }
}
