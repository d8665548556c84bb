//! Runs a bench on a directory, cell by cell. Promises that its files are gone afterwards, unless it keeps them for a later run.

use super::engine::{Course, Ground};
use super::report::{Form, Report, Row};
use crate::failure::{Exit, Failure};
use std::io::{Error, Result};
use std::path::Path;

/// A measurement, in cells that follow each other.
pub trait Bench {
    /// Its identity in the report.
    fn form(&self) -> Form;
    /// Refuses what can't be measured.
    fn check(&self) -> std::result::Result<(), Failure> {
        Ok(())
    }
    /// Makes its own directory in the one that is measured.
    fn ground(&self, directory: &Path, name: &str) -> std::result::Result<Ground, Failure> {
        Ground::make(directory, name)
    }
    /// Lays out what its cells need.
    fn prepare(&self, _ground: &Ground, _course: &mut Course) -> Result<()> {
        Ok(())
    }
    /// Number of its cells.
    fn cells(&self) -> usize;
    /// Measures one: its rows, the same ones each time, but fewer if it is interrupted.
    fn measure(&self, cell: usize, ground: &Ground, course: &mut Course) -> Result<Vec<Row>>;
}

/// The name of this process's directory; `suffix` tells several apart.
pub fn ground_name(suffix: &str) -> String {
    format!("sinter-bench-{}{suffix}", std::process::id())
}

/// A directory with what a bench has made in it.
pub struct Site<'a> {
    bench: &'a dyn Bench,
    /// The directory.
    pub directory: &'a Path,
    ground: Ground,
}

impl<'a> Site<'a> {
    /// Lays out what the bench needs; `suffix` tells two in the same directory apart.
    pub fn make(
        bench: &'a dyn Bench,
        directory: &'a Path,
        suffix: &str,
        course: &mut Course,
    ) -> std::result::Result<Site<'a>, Failure> {
        let ground = bench.ground(directory, &ground_name(suffix))?;
        bench.prepare(&ground, course).map_err(|error| failure(bench, directory, &error))?;
        Ok(Site { bench, directory, ground })
    }
    /// Measures a cell.
    pub fn measure(&self, cell: usize, course: &mut Course) -> std::result::Result<Vec<Row>, Failure> {
        self.bench.measure(cell, &self.ground, course).map_err(|error| failure(self.bench, self.directory, &error))
    }
}

/// Measures one directory; what was measured before an interruption is reported.
pub fn alone(bench: &dyn Bench, directory: &Path, course: &mut Course) -> std::result::Result<Report, Failure> {
    bench.check()?;
    let site = Site::make(bench, directory, "", course)?;
    let mut rows = Vec::new();
    for cell in 0..bench.cells() {
        if course.is_interrupted() {
            break;
        }
        rows.extend(site.measure(cell, course)?);
    }
    course.end();
    Ok(Report { form: bench.form(), directory: directory.display().to_string(), notes: course.take_notes(), rows })
}

fn failure(bench: &dyn Bench, directory: &Path, error: &Error) -> Failure {
    if bench.form().direct && error.raw_os_error() == Some(libc::EINVAL) {
        let refused = format!("the file system of {} refuses direct I/O (O_DIRECT)", directory.display());
        return Failure::new(Exit::Host, refused).next("measure another directory");
    }
    Failure::io(format!("bench in {}", directory.display()), error)
}
