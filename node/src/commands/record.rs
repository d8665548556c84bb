//! `sinter record`: a daemon's operations, kept in a file.

use super::{print, print_json, read_at_most};
use crate::admin::client::{Client, unexpected};
use crate::admin::protocol::{Answer, Request, of_hex};
use crate::cli::Record;
use crate::failure::{Exit, Failure};
use crate::progress::Progress;
use crate::table::{Align, Table, count, duration};
use recording::Recording;
use recording::quantiles::{Row, rows};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use store::progress::Step;

/// Pause between two looks: a fraction of the time in which a core's tape gets full.
const PAUSE: Duration = Duration::from_millis(20);
/// Largest recording that is read: an hour of a busy brick, which takes several times as much memory.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// The figures of a recording.
#[derive(Serialize)]
struct Summary {
    seconds: f64,
    dropped: u64,
    operations: Vec<Row>,
}

/// Records, and tells what was recorded.
pub fn run(options: &Record) -> Result<Exit, Failure> {
    let mut client = Client::need(&options.data)?;
    let mut file = create(&options.file)?;
    let (number, begin) = part(client.ask(&Request::RecordBegin)?)?;
    if let Err(failure) = follow(&mut client, &mut file, number, &begin, options) {
        // Nobody takes the rest.
        drop(client.ask(&Request::RecordTake { number, last: true }));
        return Err(failure);
    }
    let (recording, _) = read(&options.file)?;
    let operations = recording.operations.iter().map(|one| (one.row(), one.duration_ns, one.errno != 0));
    let summary = Summary {
        seconds: recording.end.duration_ns as f64 / 1e9,
        dropped: recording.end.dropped,
        operations: rows(operations),
    };
    if options.json {
        print_json(&summary)?
    } else {
        print(&table(&summary))?
    }
    Ok(Exit::Done)
}

fn create(file: &Path) -> Result<File, Failure> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    created.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            let failure = Failure::new(Exit::Failed, format!("{} exists already", file.display()));
            failure.next("give the recording another name, or remove that file")
        }
        _ => Failure::io(format!("can't make {}", file.display()), &error),
    })
}

/// The number of the recording, and the bytes of the part.
fn part(answer: Answer) -> Result<(u64, Vec<u8>), Failure> {
    match answer {
        Answer::Recorded { number, hex } => Ok((number, of_hex(&hex).ok_or_else(unexpected)?)),
        _ => Err(unexpected()),
    }
}

fn follow(client: &mut Client, file: &mut File, number: u64, begin: &[u8], options: &Record) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::io(format!("can't write {}", options.file.display()), &error);
    let (progress, began) = (Progress::new("recording", None), Instant::now());
    let end = Duration::from_secs(options.seconds);
    file.write_all(begin).map_err(failed)?;
    loop {
        let done = began.elapsed();
        progress.step(Step { what: "seconds", done: done.as_secs(), of: options.seconds });
        std::thread::sleep(PAUSE.min(end.saturating_sub(done)));
        let last = began.elapsed() >= end;
        let (_, bytes) = part(client.ask(&Request::RecordTake { number, last })?)?;
        file.write_all(&bytes).map_err(failed)?;
        if last {
            return file.sync_data().map_err(failed);
        }
    }
}

/// Reads a recording; the number of bytes behind its last whole frame, if it was cut short.
pub fn read(file: &Path) -> Result<(Recording, Option<u64>), Failure> {
    let bytes = read_at_most(file, FILE_BYTES_MAX, || {
        let failure = Failure::new(Exit::Usage, format!("{} is too large for a recording", file.display()));
        failure.next("record for a shorter time")
    })?;
    match recording::read(&bytes) {
        Ok(recording::Reading::Whole(recording)) => Ok((recording, None)),
        Ok(recording::Reading::Cut(recording, rest)) => Ok((recording, Some(rest))),
        Err(error) => {
            let failure = Failure::of(format!("can't read {}", file.display()), &error);
            Err(if error.kind == base::Kind::Corrupt { failure.exit(Exit::Failed) } else { failure })
        }
    }
}

fn table(summary: &Summary) -> String {
    let right = Align::Right;
    let mut table =
        Table::new(&[("operation", Align::Left), ("count", right), ("failed", right), ("p50", right), ("p99", right)]);
    for row in &summary.operations {
        let times = [row.p50_ns, row.p99_ns].map(duration);
        let [p50, p99] = times;
        table.row(vec![row.name.clone(), count(row.count), count(row.failed), p50, p99]);
    }
    let all: u64 = summary.operations.iter().map(|row| row.count).sum();
    let told = format!("{} operations in {:.1} s, {} dropped\n", count(all), summary.seconds, count(summary.dropped));
    table.render() + &told
}
