//! RocksDB tells errors by text. This is the only place that looks at it.

use base::{Error, Kind};
use rocksdb::ErrorKind;

/// The request to RocksDB, for the operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Doing {
    Open,
    Read,
    Write,
    Persist,
    Settle,
}

/// The product's error for one of RocksDB's; its text becomes the context.
pub(crate) fn failure(doing: Doing, error: rocksdb::Error) -> Error {
    let kind = kind(doing, &error);
    Error::new(kind, what(doing, kind)).with(without_descriptors(error.as_ref()))
}

/// RocksDB reaches its files through a descriptor of their directory, whose number tells nobody anything.
fn without_descriptors(text: &str) -> String {
    const THROUGH: &str = "/proc/self/fd/";
    let mut parts = text.split(THROUGH);
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |told, part| told + part.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches('/'))
}

fn kind(doing: Doing, error: &rocksdb::Error) -> Kind {
    match error.kind() {
        ErrorKind::Corruption => Kind::Corrupt,
        ErrorKind::Busy | ErrorKind::TryAgain | ErrorKind::TimedOut => Kind::Busy,
        ErrorKind::IOError => input_output(doing, error.as_ref()),
        ErrorKind::ShutdownInProgress | ErrorKind::Aborted => Kind::Interrupted,
        // RocksDB refuses what it does not know, such as a table format of a later version.
        ErrorKind::NotSupported => Kind::Newer,
        ErrorKind::InvalidArgument if doing == Doing::Open => Kind::Invalid,
        _ => Kind::Io,
    }
}

fn input_output(doing: Doing, text: &str) -> Kind {
    let says = |part: &str| text.contains(part);
    if says("No space left on device") || says("Space limit reached") || says("Disk quota exceeded") {
        Kind::NoSpace
    } else if says("No such file or directory") {
        // The manifest names a file that is gone.
        Kind::Corrupt
    } else if doing == Doing::Open && (says("While lock file") || says("lock hold by current process")) {
        Kind::Busy
    } else if doing == Doing::Open && says("Permission denied") {
        Kind::Permission
    } else if says("Read-only file system") {
        Kind::ReadOnly
    } else {
        Kind::Io
    }
}

fn what(doing: Doing, kind: Kind) -> &'static str {
    match (doing, kind) {
        (_, Kind::Corrupt) => {
            "the index contradicts its checksums: stop changing the brick, then rebuild or replace it from another copy"
        }
        (_, Kind::NoSpace) => "no space left for the index: free some on its file system, then restart",
        (_, Kind::ReadOnly) => "the index's file system is read-only: remount it writable, then restart",
        (Doing::Open, Kind::Busy) => "the index is open in another process: stop that one first",
        (Doing::Open, Kind::Permission) => "the index's directory refuses this user: check its owner and mode",
        (Doing::Open, Kind::Newer) => "the index was written by a newer version: use that one",
        (Doing::Open, _) => "the index can't be opened: check its device and directory",
        (Doing::Read, _) => "the index can't be read: check its device",
        (Doing::Write | Doing::Persist, _) => "the index can't be written: check its device, then restart",
        (Doing::Settle, _) => "the index's compaction failed: check its device, then restart",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_without_the_way_to_them() {
        let told = without_descriptors("While open /proc/self/fd/12/000004.sst: no; /proc/self/fd/7//CURRENT");
        assert_eq!(told, "While open 000004.sst: no; CURRENT");
        assert_eq!(without_descriptors("plain"), "plain");
    }
}
