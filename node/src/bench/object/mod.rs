//! `sinter bench object`: what an object server does to a file system. Objects are put (a temporary file, its bytes, attributes,
//! fsync, a rename into a deep tree made on demand), got in several ways and deleted. Promises that each byte and attribute that is
//! read is compared with what was put, and that a pass goes on after a get or a deletion that failed, and tells how many did.

mod set;
#[cfg(test)]
mod tests;

use super::contents::LENGTH_RATIO_MAX;
use super::engine::{Course, Ground, Step, Tickets, Worker, run, stride};
use super::kept;
use super::report::{Form, Objects as Identity, Row};
use super::stolen::Stolen;
use super::turns::Bench;
use crate::cli::Phase;
use crate::failure::{Exit, Failure};
use crate::table::bytes;
use set::{After, MEAN_BYTES, Objects};
use std::fs;
use std::io::{Error, Result};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The directory that a run leaves for a later one.
const KEPT: &str = "sinter-bench-object";
/// Objects that fit into the memory of any server have about so many bytes together.
const FITTING_BYTES: u64 = 256 << 20;

/// The plan of the measurement.
pub struct Plan {
    /// Threads, each of which does one thing at a time.
    pub threads: u32,
    /// Bytes of all objects.
    pub bytes: u64,
    /// All objects follow from it.
    pub seed: u32,
    /// The part of the work that is done.
    pub phase: Phase,
    /// Time for each pass of gets, at most; none: all its objects are read.
    pub time: Option<Duration>,
}

/// The operation on each object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    Put,
    Get(After),
    Delete,
}

/// One act on the first `count` objects.
struct Pass {
    mode: &'static str,
    act: Act,
    count: u64,
    /// The kernel forgets all files first.
    is_cold: bool,
    /// Number of times that it is done, of which the last is told.
    times: u32,
}

/// Its one cell has all passes.
impl Bench for Plan {
    fn form(&self) -> Form {
        Form {
            bench: "object",
            seconds: self.time.map(|time| time.as_secs()),
            objects: Some(Identity { bytes: self.bytes, seed: self.seed }),
            threads: "threads",
            rate: "objects/s",
            ..Form::default()
        }
    }
    fn ground(&self, directory: &Path, name: &str) -> std::result::Result<Ground, Failure> {
        if matches!(self.phase, Phase::Both | Phase::Create) {
            self.check_room(directory)?;
        }
        kept::ground(directory, name, KEPT, self.phase)
    }
    fn cells(&self) -> usize {
        1
    }
    fn measure(&self, _cell: usize, ground: &Ground, course: &mut Course) -> Result<Vec<Row>> {
        let path = ground.path(&format!("{}-{}", self.bytes, self.seed));
        let objects = Arc::new(Objects::new(path, u64::from(self.seed)));
        let rows = self.passes(&objects, course);
        let left = match (&rows, self.phase) {
            (Ok(_), Phase::Both) => objects.path().to_path_buf(),
            // Nobody could read what was put in part.
            (Err(_), Phase::Create) => ground.path(""),
            _ => return rows,
        };
        course.begin("removing what is left");
        fs::remove_dir_all(left)?;
        rows
    }
}

impl Plan {
    /// Refuses objects that would fill the file system: some suffer from that.
    fn check_room(&self, directory: &Path) -> std::result::Result<(), Failure> {
        // A directory that isn't there is refused by whoever makes ours in it.
        let Ok(found) = rustix::fs::statvfs(directory) else { return Ok(()) };
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        if free >= self.bytes.saturating_add(MEAN_BYTES * LENGTH_RATIO_MAX) {
            return Ok(());
        }
        let (shown, free, needed) = (directory.display(), bytes(free), bytes(self.bytes));
        let failure =
            Failure::new(Exit::Failed, format!("{shown} has {free} free, too little for {needed} of objects"));
        Err(failure.next("lower --bytes, or measure another directory"))
    }
    fn passes(&self, objects: &Arc<Objects>, course: &mut Course) -> Result<Vec<Row>> {
        let wants = |phase| self.phase == Phase::Both || self.phase == phase;
        let mut rows = Vec::new();
        if wants(Phase::Create) {
            objects.prepare()?;
            let count = objects.reaching(self.bytes);
            let row =
                self.pass(&Pass { mode: "put", act: Act::Put, count, is_cold: false, times: 1 }, objects, course)?;
            kept::set_count(objects.path(), row.operations)?;
            rows.push(row);
        }
        let count = kept::count(objects.path())?;
        let fitting = count.min(objects.reaching(FITTING_BYTES));
        let get = Pass { mode: "get cold", act: Act::Get(After::Keep), count, is_cold: true, times: 1 };
        let cached = Pass { mode: "get cached", count: fitting, is_cold: false, times: 2, ..get };
        let little = Pass { mode: "get with little memory", act: Act::Get(After::Drop), ..cached };
        let gets = [Pass { mode: "get cold again", ..get }, cached, little];
        let delete = Pass { mode: "delete", act: Act::Delete, count, is_cold: false, times: 1 };
        let gets = std::iter::once(get).chain(gets).filter(|_| wants(Phase::Read));
        for pass in gets.chain(Some(delete).filter(|_| wants(Phase::Remove))) {
            if !course.is_interrupted() {
                rows.push(self.pass(&pass, objects, course)?);
            }
        }
        Ok(rows)
    }
    fn pass(&self, pass: &Pass, objects: &Arc<Objects>, course: &mut Course) -> Result<Row> {
        if pass.is_cold {
            course.begin("forgetting all files");
            course.forget_files();
        }
        let faults = Arc::new(Faults::default());
        let time = match pass.act {
            Act::Get(_) => self.time.unwrap_or(Duration::MAX),
            Act::Put | Act::Delete => Duration::MAX,
        };
        let mut row = None;
        for turn in 1..=pass.times {
            let which = if pass.times > 1 { format!(", {turn} of {} times", pass.times) } else { String::new() };
            course.begin(&format!("{}{which}, {} objects, {} threads", pass.mode, pass.count, self.threads));
            let tickets = Tickets::new(pass.count);
            let workers = (0..self.threads).map(|_| worker(pass, objects, &tickets, &faults)).collect();
            let mut stolen = Stolen::start();
            let measured = run(workers, time, course)?;
            row = Some(Row {
                errors: Some(faults.count.load(Ordering::Relaxed)),
                stolen_percent: Some(stolen.percent()),
                ..Row::of(pass.mode, self.threads, MEAN_BYTES, &measured)
            });
        }
        if let Some(first) = faults.first.get() {
            let count = faults.count.load(Ordering::Relaxed);
            course.note(format!("{}: {count} failed, {first} to begin with", pass.mode));
        }
        Ok(row.expect("a pass is done at least once"))
    }
}

/// The failures of a pass.
#[derive(Default)]
struct Faults {
    count: AtomicU64,
    first: OnceLock<String>,
}

impl Faults {
    fn add(&self, error: &Error) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.first.get_or_init(|| error.to_string());
    }
}

fn worker(pass: &Pass, objects: &Arc<Objects>, tickets: &Arc<Tickets>, faults: &Arc<Faults>) -> Worker {
    let (objects, tickets, faults, act) = (objects.clone(), tickets.clone(), faults.clone(), pass.act);
    let (count, stride, mut buffer) = (pass.count, stride(pass.count), Vec::new());
    Box::new(move || {
        let Some(ticket) = tickets.take() else { return Ok(Step::End) };
        // In another order than they were put: that one is the cheapest for some and means nothing.
        let number = ticket * stride % count;
        let done = match act {
            // Later passes need all that was put: one that fails ends the bench.
            Act::Put => return objects.put(ticket).map(Step::Done),
            Act::Get(after) => objects.get(number, after, &mut buffer),
            Act::Delete => objects.delete(number).map(|()| 0),
        };
        Ok(match done {
            Ok(moved) => Step::Done(moved),
            Err(error) => {
                faults.add(&error);
                Step::Idle
            }
        })
    })
}
