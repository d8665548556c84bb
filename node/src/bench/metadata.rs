//! `sinter bench metadata`: empty files of one directory are created, looked at cold, once without and once with their birth
//! time, listed cold and unlinked.

use super::engine::{Course, Ground, Step, Tickets, Worker, run, stride};
use super::report::{Form, Row};
use super::turns::Bench;
use crate::host;
use std::fs::{self, File};
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The plan of the measurement.
pub struct Plan {
    /// Numbers of threads.
    pub threads: Vec<u32>,
    /// Files.
    pub files: u64,
    /// Time per row, at most: rows end with their files.
    pub time: Duration,
}

/// The operation on each file.
#[derive(Clone, Copy)]
enum Act {
    Create,
    Stat,
    /// A statx as many libraries do it: with the birth time, which FUSE's look-ups do not bring.
    Statx,
    Unlink,
}

/// A cell is a number of threads, with all that is done.
impl Bench for Plan {
    fn form(&self) -> Form {
        Form {
            bench: "metadata",
            file_bytes: Some(0),
            direct: false,
            seconds: Some(self.time.as_secs()),
            threads: "threads",
            rate: "files/s",
            ..Form::default()
        }
    }
    fn cells(&self) -> usize {
        self.threads.len()
    }
    fn measure(&self, cell: usize, ground: &Ground, course: &mut Course) -> Result<Vec<Row>> {
        let (threads, directory) = (self.threads[cell], ground.path("metadata"));
        fs::create_dir(&directory)?;
        let created = Tickets::new(self.files);
        let mut rows = vec![self.each("create", Act::Create, threads, &directory, &created, course)?];
        let count = created.taken();
        for (mode, act) in [("stat", Act::Stat), ("statx", Act::Statx)] {
            if !course.is_interrupted() {
                course.forget_files();
                rows.push(self.each(mode, act, threads, &directory, &Tickets::new(count), course)?);
            }
        }
        if !course.is_interrupted() {
            course.forget_files();
            rows.push(self.list(threads, &directory, count, course)?);
        }
        if !course.is_interrupted() {
            rows.push(self.each("unlink", Act::Unlink, threads, &directory, &Tickets::new(count), course)?);
        }
        fs::remove_dir_all(&directory)?;
        Ok(rows)
    }
}

impl Plan {
    fn each(
        &self,
        mode: &str,
        act: Act,
        threads: u32,
        directory: &Path,
        tickets: &Arc<Tickets>,
        course: &mut Course,
    ) -> Result<Row> {
        course.begin(&format!("{mode}, {threads} threads"));
        let count = tickets.count();
        let stride = stride(count);
        let worker = |_| -> Worker {
            let (tickets, directory) = (tickets.clone(), directory.to_path_buf());
            Box::new(move || match (tickets.take(), act) {
                (None, _) => Ok(Step::End),
                (Some(ticket), Act::Create) => File::create_new(file_of(&directory, ticket)).map(|_| Step::Done(0)),
                // In another order than they were created: that one is the cheapest for some and means nothing.
                (Some(ticket), Act::Stat | Act::Statx) => look_at(act, &file_of(&directory, ticket * stride % count)),
                (Some(ticket), Act::Unlink) => {
                    fs::remove_file(file_of(&directory, ticket * stride % count)).map(|()| Step::Done(0))
                }
            })
        };
        let measured = run((0..threads).map(worker).collect(), self.time, course)?;
        Ok(Row::of(mode, threads, 0, &measured))
    }
    /// Each thread lists the whole directory; an operation is an entry.
    fn list(&self, threads: u32, directory: &Path, count: u64, course: &mut Course) -> Result<Row> {
        course.begin(&format!("readdir, {threads} threads"));
        let worker = |_| -> Worker {
            let (directory, mut entries, mut seen) = (directory.to_path_buf(), None, 0);
            Box::new(move || {
                let entries = match &mut entries {
                    Some(entries) => entries,
                    none => none.insert(fs::read_dir(&directory)?),
                };
                match entries.next() {
                    Some(entry) => entry.map(|_| seen += 1).map(|()| Step::Done(0)),
                    None if seen == count => Ok(Step::End),
                    None => Err(wrong(&directory, &format!("has {count} files, {seen} were listed"))),
                }
            })
        };
        let measured = run((0..threads).map(worker).collect(), self.time, course)?;
        Ok(Row::of("readdir", threads, 0, &measured))
    }
}

fn file_of(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("f{number}"))
}

fn look_at(act: Act, file: &Path) -> Result<Step> {
    let is_ours = match act {
        Act::Statx => fs::symlink_metadata(file).map(|found| found.is_file() && found.len() == 0)?,
        _ => host::is_empty_file(file)?,
    };
    if is_ours { Ok(Step::Done(0)) } else { Err(wrong(file, "is not the empty file that was made")) }
}

fn wrong(path: &Path, what: &str) -> Error {
    Error::other(format!("{} {what}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tests::silent;
    use crate::scratch::Scratch;

    #[test]
    fn a_listing_that_lacks_a_name_is_found() {
        let scratch = Scratch::new();
        (0..3).for_each(|number| drop(File::create_new(file_of(scratch.path(), number)).expect("ours")));
        let plan = Plan { threads: vec![1], files: 3, time: Duration::from_secs(60) };
        assert_eq!(plan.list(1, scratch.path(), 3, &mut silent()).expect("all are there").operations, 3);
        let failure = plan.list(1, scratch.path(), 4, &mut silent()).expect_err("one is not there").to_string();
        assert!(failure.contains("has 4 files, 3 were listed"), "{failure}");
    }

    #[test]
    fn a_file_that_is_not_empty_is_found() {
        let scratch = Scratch::new();
        let file = file_of(scratch.path(), 1);
        fs::write(&file, "x").expect("ours");
        for act in [Act::Stat, Act::Statx] {
            assert!(look_at(act, &file).is_err() && look_at(act, scratch.path()).is_err());
        }
    }
}
