//! `sinter scrub`: has a brick's daemon read everything, and tells what it found.

use super::{print, print_json};
use crate::admin::client::{Client, unexpected};
use crate::admin::protocol::{Answer, Request, Rotten, Scrub};
use crate::cli;
use crate::failure::{Exit, Failure};
use crate::progress::{Progress, spoken};
use crate::table::{Align, Table, bytes, count};
use std::path::Path;
use std::time::Duration;
use store::progress::Step;

/// Interval at which a daemon is asked for its progress.
const LOOK: Duration = Duration::from_millis(200);

/// Runs `sinter scrub ...`. Findings are exit code 1, as those of `check`.
pub fn run(command: &cli::Scrub) -> Result<Exit, Failure> {
    let (scrub, json) = match command {
        cli::Scrub::Start(options) => {
            let started = ask(&options.data, &Request::ScrubStart)?;
            (if options.wait { waited(&options.data)? } else { started }, options.json)
        }
        cli::Scrub::Stop(of) => (ask(&of.data, &Request::ScrubStop)?, of.json),
        cli::Scrub::Status(of) => (ask(&of.data, &Request::ScrubStatus)?, of.json),
    };
    match json {
        true => print_json(&scrub)?,
        false => print(&text(&scrub))?,
    }
    Ok(if scrub.findings.is_empty() && scrub.unlisted == 0 { Exit::Done } else { Exit::Failed })
}

fn ask(data: &Path, request: &Request) -> Result<Scrub, Failure> {
    match Client::need(data)?.ask(request)? {
        Answer::Scrub(scrub) => Ok(scrub),
        _ => Err(unexpected()),
    }
}

/// Waits for the end of a pass, or until somebody stops it.
fn waited(data: &Path) -> Result<Scrub, Failure> {
    let progress = Progress::new("scrubbing", None);
    loop {
        let scrub = ask(data, &Request::ScrubStatus)?;
        if scrub.state != "running" {
            return Ok(scrub);
        }
        progress.step(Step { what: "sealed segments", done: scrub.done_bytes, of: scrub.of_bytes });
        std::thread::sleep(LOOK);
    }
}

/// The scrub's status in a line; also a line of `status`.
pub fn summary(scrub: &Scrub) -> String {
    let mut text = match scrub.state.as_str() {
        "running" | "stopped" => {
            let percent = (scrub.done_bytes * 100).checked_div(scrub.of_bytes).unwrap_or(0);
            format!("{}, {percent}% of {}", scrub.state, bytes(scrub.of_bytes))
        }
        state => state.to_string(),
    };
    if let Some(seconds) = scrub.left_seconds {
        text += &format!(", {} left", spoken(Duration::from_secs(seconds)));
    }
    if scrub.ended_ns != 0 {
        text += &format!(", ended {} UTC", super::volume::utc(scrub.ended_ns));
    }
    match scrub.findings.len() as u64 + scrub.unlisted {
        0 if scrub.state == "never started" => text,
        0 => text + ", nothing found",
        1 => text + ", 1 finding",
        findings => text + &format!(", {} findings", count(findings)),
    }
}

fn text(scrub: &Scrub) -> String {
    let mut text = format!("scrub: {}\n", summary(scrub));
    if !scrub.findings.is_empty() {
        let columns = [
            ("volume", Align::Left),
            ("inode", Align::Right),
            ("offset", Align::Right),
            ("bytes", Align::Right),
            ("path", Align::Left),
            ("what is wrong", Align::Left),
        ];
        let mut table = Table::new(&columns);
        for Rotten { volume, inode, path, offset, bytes, why, .. } in &scrub.findings {
            let path = path.clone().unwrap_or_default();
            let figures = [*inode, *offset, *bytes].map(|number| number.to_string());
            let [inode, offset, bytes] = figures;
            table.row(vec![volume.clone(), inode, offset, bytes, path, why.clone()]);
        }
        text += &table.render();
        text += "reads of these fail with EIO, and never give wrong data: restore the files from a backup, then delete \
                 the damaged ones; without a path: find MOUNT -inum INODE\n";
    }
    if scrub.unlisted > 0 {
        text += &format!("{} more findings are not listed\n", count(scrub.unlisted));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrub_reads_well() {
        let mut scrub = Scrub { state: "never started".into(), ..Scrub::default() };
        assert_eq!(text(&scrub), "scrub: never started\n");
        scrub = Scrub { state: "running".into(), done_bytes: 3 << 30, of_bytes: 4 << 30, ..scrub };
        scrub.left_seconds = Some(90);
        assert_eq!(text(&scrub), "scrub: running, 75% of 4 GiB, 91 s left, nothing found\n");
        let rotten = Rotten {
            volume: "home".into(),
            inode: 77,
            path: Some("/a/b".into()),
            offset: 4096,
            bytes: 8192,
            why: "differs from its checksum".into(),
            ..Rotten::default()
        };
        let findings = vec![rotten];
        scrub = Scrub { state: "done".into(), left_seconds: None, findings, ..scrub };
        let told = text(&scrub);
        assert!(told.starts_with("scrub: done, 1 finding\n"), "{told}");
        assert!(told.contains("home       77    4096   8192  /a/b  differs from its checksum\n"), "{told}");
    }
}
