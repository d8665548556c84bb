//! Files that one run of a bench leaves for a later one. Promises that a later run finds only what was made with its options.

use super::engine::Ground;
use crate::cli::Phase;
use crate::failure::{Exit, Failure};
use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

/// Name of the file in each set of files that tells their number.
const COUNT: &str = "count";

/// The directory of a run that does this part of the work: its own, or `kept`, which runs share.
pub fn ground(directory: &Path, own: &str, kept: &str, phase: Phase) -> std::result::Result<Ground, Failure> {
    let shown = directory.display();
    match phase {
        Phase::Both => Ground::make(directory, own),
        Phase::Create if directory.join(kept).exists() => {
            let failure = Failure::new(Exit::Usage, format!("{shown} holds the files of an earlier run"));
            Err(failure.next("remove them with --phase remove"))
        }
        Phase::Create => Ground::make(directory, kept).map(Ground::keep),
        Phase::Read | Phase::Remove => {
            let missing = || Failure::new(Exit::Usage, format!("{shown} holds no files of an earlier run"));
            let ground =
                Ground::existing(directory, kept).ok_or_else(|| missing().next("make them with --phase create"))?;
            Ok(if phase == Phase::Read { ground.keep() } else { ground })
        }
    }
}

/// Notes how many files of a set were made.
pub fn set_count(set: &Path, count: u64) -> Result<()> {
    fs::write(set.join(COUNT), count.to_string())
}

/// The number of files of a set that an earlier phase made.
pub fn count(set: &Path) -> Result<u64> {
    let missing = |error: Error| match error.kind() {
        ErrorKind::NotFound => {
            let name = set.file_name().unwrap_or_default().display();
            Error::other(format!("no files {name} were created; use the same options for both phases"))
        }
        _ => error,
    };
    let text = fs::read_to_string(set.join(COUNT)).map_err(missing)?;
    text.parse().map_err(|_| Error::other(format!("{} is no count", set.join(COUNT).display())))
}
