//! Small files that are replaced as a whole. Promises that after a crash at any step a file is the old one or the new
//! one, and that it is the new one once `replace` has returned; that files with keys are their owner's only; and that two
//! processes don't change one directory at once.

use base::{Error, Kind, Result};
use runtime::real::{Access, Directory};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// The steps of replacing a file, so that tests can end the world between two of them. Names are those of files in one
/// directory.
pub trait Files {
    /// The file's bytes; None if there is none. Errors: `Corrupt` over `bytes_max`; those of opening.
    fn read(&self, name: &str, bytes_max: usize) -> Result<Option<Found>>;
    /// Makes the file or empties it, and writes these bytes.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<()>;
    /// Makes the file's bytes durable.
    fn flush(&self, name: &str) -> Result<()>;
    /// Renames a file, over another one if there is one.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// Makes names durable.
    fn sync_names(&self) -> Result<()>;
    /// A file's path, for messages.
    fn shown(&self, name: &str) -> String;
}

impl Files for Box<dyn Files + Send> {
    fn read(&self, name: &str, bytes_max: usize) -> Result<Option<Found>> {
        (**self).read(name, bytes_max)
    }
    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        (**self).write(name, bytes)
    }
    fn flush(&self, name: &str) -> Result<()> {
        (**self).flush(name)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        (**self).rename(from, to)
    }
    fn sync_names(&self) -> Result<()> {
        (**self).sync_names()
    }
    fn shown(&self, name: &str) -> String {
        (**self).shown(name)
    }
}

/// A file that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// True if others than its owner may read or write it.
    pub is_open_to_others: bool,
}

/// The call that renames a file: `std::fs::rename`. Only who assembles the real world may name it.
pub type Rename = fn(&Path, &Path) -> std::io::Result<()>;

/// Replaces a file, durably. A crash leaves the old one or the new one; beside it may lie a rest, `NAME.new`, which the
/// next call overwrites and nobody reads.
pub fn replace(files: &dyn Files, name: &str, bytes: &[u8]) -> Result<()> {
    let new = format!("{name}.new");
    files.write(&new, bytes)?;
    files.flush(&new)?;
    files.rename(&new, name)?;
    files.sync_names()
}

/// The file's bytes, of a file that holds keys. Errors: those of reading; `Permission` if others may read it.
pub fn read_secret(files: &dyn Files, name: &str, bytes_max: usize) -> Result<Option<Vec<u8>>> {
    let Some(found) = files.read(name, bytes_max)? else { return Ok(None) };
    if found.is_open_to_others {
        let what = "a file with keys can be read by others: take that from them (chmod 600), and if others use this \
                    machine, revoke what it holds";
        return Err(Error::new(Kind::Permission, what).with(files.shown(name)));
    }
    Ok(Some(found.bytes))
}

/// A real directory, locked while this lives.
pub struct Held {
    directory: Directory,
    rename: Rename,
}

impl Held {
    /// Locks the directory. Errors: `Busy` if another process has it.
    pub fn lock(directory: Directory, rename: Rename) -> Result<Held> {
        if !directory.hold()? {
            let what = "another process uses this directory: let it end, or ask the daemon that serves the brick";
            return Err(Error::new(Kind::Busy, what).with(directory.path().display()));
        }
        Ok(Held { directory, rename })
    }
    fn failed(&self, what: &'static str, name: &str, error: &std::io::Error) -> Error {
        // Errors of these calls always come from the kernel; 5 is EIO.
        Error::os(what, error.raw_os_error().unwrap_or(5)).with(self.shown(name))
    }
}

impl Files for Held {
    fn read(&self, name: &str, bytes_max: usize) -> Result<Option<Found>> {
        let file = match self.directory.file(name, Access::Read) {
            Err(error) if error.kind == Kind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut bytes = Vec::new();
        let read = file.metadata().and_then(|about| {
            file.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
            Ok(about.mode() & 0o077 != 0)
        });
        let is_open_to_others = read.map_err(|error| self.failed("a file cannot be read", name, &error))?;
        if bytes.len() > bytes_max {
            let what = "a file is larger than any that Sinter writes here: restore it from a backup";
            return Err(Error::new(Kind::Corrupt, what).with(self.shown(name)));
        }
        Ok(Some(Found { bytes, is_open_to_others }))
    }
    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let mut file = match self.directory.file(name, Access::Create) {
            // The rest of a crash.
            Err(error) if error.kind == Kind::Exists => self.directory.file(name, Access::Write)?,
            made => made?,
        };
        let written = file.metadata().and_then(|about| {
            // Whoever left it may have left it open to others.
            let mut permissions = about.permissions();
            permissions.set_mode(0o600);
            file.set_permissions(permissions)?;
            file.set_len(0)?;
            file.write_all(bytes)
        });
        written.map_err(|error| self.failed("a file cannot be written", name, &error))
    }
    fn flush(&self, name: &str) -> Result<()> {
        let file = self.directory.file(name, Access::Write)?;
        file.sync_all().map_err(|error| self.failed("a file cannot be made durable", name, &error))
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let renamed = (self.rename)(&self.directory.at(from), &self.directory.at(to));
        renamed.map_err(|error| self.failed("a file cannot be renamed", to, &error))
    }
    fn sync_names(&self) -> Result<()> {
        self.directory.sync().map_err(|error| self.failed("names cannot be made durable", "", &error))
    }
    fn shown(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }
}
