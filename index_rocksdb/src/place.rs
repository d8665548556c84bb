//! The directory before RocksDB sees it: RocksDB would make what is missing and delete tables that it doesn't know. And it
//! opens its files by their paths: nobody else may be able to put links among them.

use crate::{Options, manifest};
use base::{Error, Kind, Result};
use runtime::real::Directory;
use std::fs;
use std::io;
use std::path::Path;

/// The content of the directory.
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

/// Opens the directory and checks that it fits the options; makes it, durably, for a new index.
pub(crate) fn prepare(parent: &Directory, name: &str, options: &Options) -> Result<Directory> {
    let path = parent.path().join(name);
    if options.create && options.read_only {
        return Err(Error::new(Kind::Invalid, "a new index can't be read-only"));
    }
    let opened = match parent.child(name) {
        Err(error) if error.kind == Kind::NotFound => None,
        opened => Some(opened?),
    };
    let found = opened.as_ref().map_or(Ok(Found::Absent), look)?;
    match (found, options.create) {
        (Found::Index, false) => Ok(()),
        (Found::Empty, true) => Ok(()),
        (Found::Absent, true) => make(parent, name),
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
    .map_err(|error| error.with(path.display()))?;
    let directory = opened.map_or_else(|| parent.child(name), Ok)?;
    directory.check_regular()?;
    if !options.create {
        manifest::check(&directory).map_err(|error| error.with(path.display()))?;
    }
    // RocksDB's own lock says nothing within one process.
    if !options.read_only && !directory.hold()? {
        let what = "the index is open in another process: stop that one first";
        return Err(Error::new(Kind::Busy, what).with(path.display()));
    }
    Ok(directory)
}

fn look(directory: &Directory) -> Result<Found> {
    let failed =
        |error: io::Error| refused("the index's directory can't be listed: check its device", directory.path(), &error);
    let mut remains = false;
    for entry in fs::read_dir(directory.at("")).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_string_lossy();
        if name == "CURRENT" {
            return Ok(Found::Index);
        }
        remains |= name.starts_with("MANIFEST-") || name.ends_with(".sst");
    }
    Ok(if remains { Found::Remains } else { Found::Empty })
}

/// Makes the directory and syncs its parent: the index's own files are worth nothing if their directory is lost.
fn make(parent: &Directory, name: &str) -> Result<()> {
    fs::create_dir(parent.at(name)).and_then(|()| parent.sync()).map_err(|error| {
        let path = parent.path().join(name);
        refused("the index's directory can't be made: check the mode of the one above", &path, &error)
    })
}

fn refused(what: &'static str, path: &Path, error: &io::Error) -> Error {
    match error.raw_os_error() {
        Some(errno) => Error::os(what, errno),
        None => Error::new(Kind::Io, what).with(error),
    }
    .with(path.display())
}
