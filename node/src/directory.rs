//! The directory that is or becomes a brick, before it is opened: it exists, nobody else can change what is in it, and
//! nothing of somebody else's is. It is opened once, and all that is in it is reached through its descriptor.

use crate::assembly::INDEX;
use crate::failure::{Exit, Failure};
use base::{Error, Kind, Result as Outcome};
use control::{Held, files};
use runtime::disk::{device_name, is_device};
use runtime::real::{Access, Directory};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use store::media::device_table::FILE as DEVICE_TABLE;

/// Names that may lie in a directory that becomes a brick: the lock, the remains of a format that was interrupted, a
/// socket of a killed daemon, and the names that a file system begins with.
const INNOCENT: [&str; 5] = ["lock", "superblock", INDEX, crate::admin::SOCKET, "lost+found"];

/// The bytes of a small file of a brick's directory; None: there is none. Errors: `Invalid` over `bytes_max`; those of opening and reading.
pub fn read(data: &Directory, name: &str, bytes_max: u64) -> Outcome<Option<Vec<u8>>> {
    let shown = || data.path().join(name).display().to_string();
    let file = match data.file(name, Access::Read) {
        Err(error) if error.kind == Kind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    let read = file.take(bytes_max + 1).read_to_end(&mut bytes);
    read.map_err(|error| Error::os("can't read", error.raw_os_error().unwrap_or(libc::EIO)).with(shown()))?;
    if bytes.len() as u64 > bytes_max {
        let what = "a file is longer than any that Sinter writes: restore it from a backup";
        return Err(Error::new(Kind::Invalid, what).with(shown()));
    }
    Ok(Some(bytes))
}

/// Replaces such a file as a whole, durably. Errors: those of writing; `Busy`, if another process does so.
pub fn replace(data: &Directory, name: &str, bytes: &[u8]) -> Outcome<()> {
    // The lock lasts as long as the directory is open: the caller's stays open.
    let held = Held::lock(Directory::open(data.path())?, |from, to| std::fs::rename(from, to))?;
    files::replace(&held, name, bytes)
}

/// Opens the directory; makes it if only its last component is missing.
pub fn make(data: &Path) -> Result<Directory, Failure> {
    match std::fs::create_dir(data) {
        Ok(()) => sync_parent(data)?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let parent = data.parent().unwrap_or(data).display();
            let failure = Failure::new(Exit::Usage, format!("can't make {}: {parent} does not exist", data.display()));
            return Err(failure.next(format!("check the path, or: mkdir -p {parent}")));
        }
        Err(error) => return Err(Failure::io(format!("can't make the brick's directory {}", data.display()), &error)),
    }
    existing(data)
}

/// Opens the directory; it must exist.
pub fn existing(data: &Path) -> Result<Directory, Failure> {
    let shown = data.display();
    Directory::open(data).map_err(|error| match error.kind {
        Kind::NotFound => {
            let failure = Failure::new(Exit::Usage, format!("{shown} does not exist"));
            failure.next(format!("check the path; `sinter format {shown}` makes a brick"))
        }
        Kind::NotDirectory => {
            let failure = Failure::new(Exit::Usage, format!("{shown} is not a directory ({error})"));
            failure.next("give the directory of a brick, or an empty one")
        }
        _ => Failure::of(format!("can't use {shown}"), &error),
    })
}

/// Opens a file that somebody named, such as a config file or a log, as those of a brick are opened. Errors: as
/// `Directory::file`.
pub fn named_file(path: &Path, access: Access) -> Outcome<File> {
    let (directory, name) = Directory::of_file(path)?;
    directory.file(name, access)
}

/// A new brick must survive a crash with its name.
fn sync_parent(data: &Path) -> Result<(), Failure> {
    let absolute = std::path::absolute(data).map_err(|error| Failure::io(data.display(), &error))?;
    let parent = absolute.parent().expect("a directory that was just made has a parent");
    let synced = File::open(parent).and_then(|parent| parent.sync_all());
    synced.map_err(|error| Failure::io(format!("can't sync {}", parent.display()), &error))
}

/// A link to a block device before it has its name.
const DEVICE_NEW: &str = "device.new";

/// Has the directory say durably where the block device of a number is, or that there is none.
pub fn link_device(data: &Directory, number: u32, device: Option<&Path>) -> Outcome<()> {
    let name = device_name(number);
    let gone = |name: &str| match std::fs::remove_file(data.at(name)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    let linked = (|| {
        gone(DEVICE_NEW)?;
        match device {
            None => gone(&name)?,
            Some(device) => {
                std::os::unix::fs::symlink(std::path::absolute(device)?, data.at(DEVICE_NEW))?;
                std::fs::rename(data.at(DEVICE_NEW), data.at(&name))?;
            }
        }
        data.sync()
    })();
    linked.map_err(|error| {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        Error::os("the link to the block device can't be made", errno).with(data.path().join(&name).display())
    })
}

/// The place that a device's link leads to, for people to read.
pub fn linked(data: &Path, number: u32) -> Option<PathBuf> {
    std::fs::read_link(data.join(device_name(number))).ok()
}

/// Keeps the index as it is now under a name of its own, durably; its path. Tables never change once they are written:
/// they are linked, and take no room as long as both are there.
pub fn keep_index(data: &Directory) -> Result<PathBuf, Failure> {
    let index = data.child(INDEX).map_err(|error| Failure::of("can't keep a copy of the index", &error))?;
    let mut numbers = 1u32..;
    let name = loop {
        let number = numbers.next().expect("there are more numbers than copies");
        let name = format!("{INDEX}.before-repair-{number}");
        match std::fs::create_dir(data.at(&name)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => break made.map(|()| name),
        }
    };
    let copied = name.and_then(|name| {
        let copy = data.at(&name);
        for entry in std::fs::read_dir(index.at(""))? {
            let entry = entry?;
            let (from, to) = (entry.path(), copy.join(entry.file_name()));
            if from.extension().is_none_or(|kind| kind != "sst") || std::fs::hard_link(&from, &to).is_err() {
                let mut from = index.file(entry.file_name(), Access::Read).map_err(std::io::Error::other)?;
                let mut to = File::create_new(&to)?;
                std::io::copy(&mut from, &mut to)?;
                to.sync_all()?;
            }
        }
        File::open(&copy)?.sync_all()?;
        data.sync()?;
        Ok(name)
    });
    let name = copied.map_err(|error| {
        Failure::io(format!("can't keep a copy of {}; nothing was changed", index.path().display()), &error)
    })?;
    Ok(data.path().join(name))
}

/// Removes a directory with all that is in it, if it is there.
pub fn remove_tree(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Has an index that was made beside it take the place of the brick's; the brick keeps a copy of that (`keep_index`).
pub fn replace_index(data: &Directory, new: &str) -> Result<(), Failure> {
    let (index, old) = (data.at(INDEX), data.at(format!("{INDEX}.damaged")));
    let replaced = (|| {
        remove_tree(&old)?;
        std::fs::rename(&index, &old)?;
        std::fs::rename(data.at(new), &index)?;
        data.sync()?;
        remove_tree(&old)
    })();
    replaced.map_err(|error| Failure::io(format!("can't replace {}", data.path().join(INDEX).display()), &error))
}

/// Refuses a directory that holds something that no format left there; `again`: one was begun there.
pub fn check_empty(data: &Directory, again: bool) -> Result<(), Failure> {
    let shown = data.path().display();
    let failed = |error: std::io::Error| Failure::io(format!("can't list {shown}"), &error);
    for entry in std::fs::read_dir(data.at("")).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let ours = name.to_str().is_some_and(|name| is_device(name) || name == DEVICE_NEW);
        let link = again && ours && entry.file_type().is_ok_and(|it| it.is_symlink());
        let table = again && name == DEVICE_TABLE;
        if !link && !table && !INNOCENT.iter().any(|innocent| name == *innocent) {
            let text = format!("{shown} is neither empty nor a brick: it holds {}", name.to_string_lossy());
            return Err(Failure::new(Exit::Failed, text).next("give an empty directory"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn only_the_last_component_is_made() {
        let scratch = Scratch::new();
        let data = scratch.path().join("brick");
        let made = make(&data).expect("made");
        assert_eq!(made.path(), make(&data).expect("there already").path());
        let deep = make(&scratch.path().join("a/b")).expect_err("the parent is missing");
        assert_eq!(deep.exit, Exit::Usage);
        assert!(deep.to_string().contains("mkdir -p"), "{deep}");
        let file = scratch.path().join("file");
        std::fs::write(&file, "").expect("writable");
        assert!(make(&file).expect_err("a file").to_string().contains("not a directory"));
        let absent = existing(&scratch.path().join("absent")).expect_err("not there");
        assert!(absent.to_string().contains("sinter format"), "{absent}");
    }

    #[test]
    fn the_device_is_linked_again_and_again() {
        let scratch = Scratch::new();
        let data = existing(scratch.path()).expect("ours");
        let there = || std::fs::read_link(scratch.path().join(device_name(1))).ok();
        for path in ["/dev/one", "/dev/two"] {
            link_device(&data, 1, Some(Path::new(path))).expect("writable");
            assert_eq!(there().as_deref(), Some(Path::new(path)));
        }
        assert!(check_empty(&data, true).is_ok(), "a format left it");
        assert!(check_empty(&data, false).is_err(), "nobody knows whose it is");
        link_device(&data, 1, None).expect("writable");
        assert_eq!(there(), None);
    }

    #[test]
    fn the_index_is_kept_as_it_was() {
        let scratch = Scratch::new();
        let data = existing(scratch.path()).expect("ours");
        let index = scratch.path().join("index");
        std::fs::create_dir(&index).expect("writable");
        for (name, text) in [("1.sst", "table"), ("CURRENT", "before")] {
            std::fs::write(index.join(name), text).expect("writable");
        }
        let copies = [(); 2].map(|()| keep_index(&data).expect("there is room"));
        assert_ne!(copies[0], copies[1]);
        std::fs::write(index.join("CURRENT"), "after").expect("writable");
        std::fs::remove_file(index.join("1.sst")).expect("it is there");
        for copy in &copies {
            let read = |name: &str| std::fs::read_to_string(copy.join(name)).expect("it was kept");
            assert_eq!((read("1.sst").as_str(), read("CURRENT").as_str()), ("table", "before"));
        }
    }

    #[test]
    fn what_is_somebody_elses_is_refused() {
        let scratch = Scratch::new();
        let data = existing(scratch.path()).expect("ours");
        assert!(check_empty(&data, false).is_ok());
        for innocent in ["lock", "index"] {
            std::fs::create_dir(scratch.path().join(innocent)).expect("writable");
        }
        assert!(check_empty(&data, false).is_ok());
        std::fs::create_dir(scratch.path().join("photos")).expect("writable");
        let refused = check_empty(&data, false).expect_err("not empty");
        assert!(refused.to_string().contains("photos"), "{refused}");
    }
}
