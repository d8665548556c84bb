//! `sinter replay`: a recording's operations, done again.

use super::record::read;
use super::{print, print_json};
use crate::cli::Replay;
use crate::daemon::say;
use crate::failure::{Exit, Failure};
use crate::host;
use crate::progress::Progress;
use crate::replay::{Live, Pace, Report, check_empty, prepare, run as run_all};
use recording::Plan;

/// Prepares, replays, and tells how it went.
pub fn run(options: &Replay) -> Result<Exit, Failure> {
    let (recording, cut_bytes) = read(&options.file)?;
    if let Some(rest) = cut_bytes {
        say(&format!(
            "{} was cut short: {} operations are whole, {rest} bytes behind them are left out",
            options.file.display(),
            recording.operations.len()
        ));
    }
    if recording.operations.is_empty() {
        let failure = Failure::new(Exit::Failed, format!("{} holds no operation", options.file.display()));
        return Err(failure.next("record while clients work"));
    }
    let top = check_empty(&options.directory)?;
    host::open_many_files();
    let plan = Plan::of(&recording);
    let live = Live::new(&plan, top);
    let progress = Progress::new("replaying", None);
    prepare(&live, &options.directory, &progress)?;
    progress.clear();
    pause(options, "the first operation")?;
    let pace = if options.as_recorded { Pace::Recorded } else { Pace::Possible };
    let ran = run_all(&live, pace, &progress);
    progress.clear();
    let mut report = Report::of(&plan, &ran);
    (report.cut_bytes, report.dropped, report.opened_beside) = (cut_bytes, recording.end.dropped, live.beside());
    if options.json {
        print_json(&report)?
    } else {
        print(&report.table())?
    }
    pause(options, "what is open is closed")?;
    Ok(Exit::Done)
}

/// Waits for a line, if that was asked for.
fn pause(options: &Replay, before: &str) -> Result<(), Failure> {
    if !options.pause {
        return Ok(());
    }
    say(&format!("paused before {before}: waiting for a line"));
    let read = std::io::stdin().read_line(&mut String::new());
    read.map(drop).map_err(|error| Failure::io("can't read standard input", &error))
}
