//! The directory before RocksDB sees it: RocksDB would make what is missing and delete tables that it doesn't know.

use crate::{Options, manifest};
use base::{Error, Kind, Result};
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// What lies in the directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    Absent,
    /// Nothing of an index, or only a lock and logs of an attempt that failed.
    Empty,
    /// `CURRENT` and more.
    Index,
    /// Tables or manifests without `CURRENT`.
    Remains,
}

/// Checks that the directory fits the options; makes it, durably, for a new index.
pub(crate) fn prepare(path: &Path, options: &Options) -> Result<()> {
    if options.create && options.read_only {
        return Err(Error::new(Kind::Invalid, "a new index can't be read-only"));
    }
    match (look(path)?, options.create) {
        (Found::Index, false) => manifest::check(path),
        (Found::Empty, true) => Ok(()),
        (Found::Absent, true) => make(path),
        (Found::Absent, false) => Err(Error::new(Kind::NotFound, "no index here: format the brick first")),
        (Found::Empty, false) => {
            Err(Error::new(Kind::NotFound, "the directory holds no index: format the brick first"))
        }
        (Found::Index, true) => Err(Error::new(Kind::Exists, "an index is here already: name another directory")),
        (Found::Remains, false) => Err(Error::new(
            Kind::Corrupt,
            "the index has lost its file CURRENT: rebuild or replace it from another copy",
        )),
        (Found::Remains, true) => Err(Error::new(
            Kind::Exists,
            "parts of a damaged index are here: save or remove them, or name another directory",
        )),
    }
    .map_err(|error| error.with(path.display()))
}

fn look(path: &Path) -> Result<Found> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Absent),
        Err(error) => {
            return Err(refused("the index's directory can't be listed: check its owner and mode", path, &error));
        }
    };
    let mut remains = false;
    for entry in entries {
        let entry =
            entry.map_err(|error| refused("the index's directory can't be listed: check its device", path, &error))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name == "CURRENT" {
            return Ok(Found::Index);
        }
        remains |= name.starts_with("MANIFEST-") || name.ends_with(".sst");
    }
    Ok(if remains { Found::Remains } else { Found::Empty })
}

/// Makes the directory and syncs its parent: the index's own files are worth nothing if their directory is lost.
fn make(path: &Path) -> Result<()> {
    let sync_parent = || match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => File::open(parent)?.sync_all(),
        None => File::open(".")?.sync_all(),
    };
    let made = fs::create_dir(path).and_then(|()| sync_parent());
    made.map_err(|error| {
        refused("the index's directory can't be made: make its parent first, or check its mode", path, &error)
    })
}

fn refused(what: &'static str, path: &Path, error: &io::Error) -> Error {
    match error.raw_os_error() {
        Some(errno) => Error::os(what, errno),
        None => Error::new(Kind::Io, what).with(error),
    }
    .with(path.display())
}
