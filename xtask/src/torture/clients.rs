//! The clients: each does one kind of work, checks what it reads as it goes, and tells at its end what must be there.
//!
//! Promises: a client expects only what it was told. Absent by design: clients that look at what is not answered yet.

use super::expected::{BLOCK, BLOCKS, Block, Expected, NAMES, differing, line, listed};
use super::run::{Client, Ended};
use rustix::fs::{Advice, FlockOperation, OFlags, fadvise, flock};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Names that a client of names has at most.
const NAMES_MAX: usize = 200;
/// The blocks of the file without a name.
const UNNAMED_BLOCKS: u64 = 64;

/// The way of a client: plain, or with more durability or fewer caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Plain,
    /// A sync at each third line, or O_DIRECT.
    Strict,
}

/// Appends numbered lines to a log.
pub fn log(client: &mut Client<'_>, number: u64, way: Way) -> Result<Expected, Ended> {
    let path = client.path(&format!("log-{number}"));
    let mut file = client.call("create", &path, || File::options().append(true).create_new(true).open(&path))?;
    let (mut lines, mut bytes) = (0, 0);
    while client.goes_on() {
        let text = line(number, lines);
        client.call("append", &path, || file.write_all(text.as_bytes()))?;
        lines += 1;
        bytes += text.len() as u64;
        if way == Way::Strict && lines % 3 == 0 {
            client.call("sync", &path, || file.sync_all())?;
        }
        if lines % 16 == 0 {
            let length = client.call("stat", &path, || fs::metadata(&path))?.len();
            if length != bytes {
                return client.wrong(&format!("{length} bytes where {bytes} were appended"));
            }
            let mut found = vec![0; text.len()];
            client.call("read", &path, || File::open(&path)?.read_exact_at(&mut found, bytes - text.len() as u64))?;
            if found != text.as_bytes() {
                return client.wrong(&format!("line {} is {:?}", lines - 1, String::from_utf8_lossy(&found)));
            }
        }
    }
    Ok(Expected::Log { number, lines })
}

/// Writes blocks at random places, and reads others.
pub fn blocks(client: &mut Client<'_>, number: u64, way: Way) -> Result<Expected, Ended> {
    let path = client.path(&format!("blocks-{number}"));
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    if way == Way::Strict {
        options.custom_flags(OFlags::DIRECT.bits() as i32);
    }
    let file = client.call("create", &path, || options.open(&path))?;
    client.call("truncate", &path, || file.set_len(BLOCKS * BLOCK))?;
    let mut versions = vec![0; BLOCKS as usize];
    while client.goes_on() {
        let block = client.draw.below(BLOCKS);
        let version = versions[block as usize];
        if client.draw.below(10) < 7 {
            let written = Block::new(number, block, version + 1);
            client.call("write", &path, || file.write_all_at(&written.0, block * BLOCK))?;
            versions[block as usize] = version + 1;
        } else {
            check(client, (&file, &path), (number, block, version))?;
        }
    }
    Ok(Expected::Blocks { number, versions })
}

/// Reads a block, which must have this version.
fn check(
    client: &mut Client<'_>,
    (file, path): (&File, &Path),
    (number, block, version): (u64, u64, u64),
) -> Result<(), Ended> {
    let mut found = Block([0; BLOCK as usize]);
    client.call("read", path, || {
        // The cluster is to answer, and not the kernel's cache.
        fadvise(file, block * BLOCK, NonZeroU64::new(BLOCK), Advice::DontNeed)?;
        file.read_exact_at(&mut found.0, block * BLOCK)
    })?;
    match found.differs(number, block, version) {
        None => Ok(()),
        Some(how) => client.wrong(&how),
    }
}

/// Creates, renames, links and unlinks names. Those of two clients lie in one directory, and each has its own.
pub fn names(client: &mut Client<'_>, number: u64) -> Result<Expected, Ended> {
    // The content of each name's file: the number of its creation.
    let mut names: BTreeMap<String, u64> = BTreeMap::new();
    let directory = client.path(NAMES);
    for round in 0u64.. {
        if !client.goes_on() {
            break;
        }
        let fresh = format!("{number}-{round}");
        let at = client.draw.below(names.len().max(1) as u64) as usize;
        let known = names.iter().nth(at).map(|(name, content)| (name.clone(), *content));
        let path = |name: &str| directory.join(name);
        let draw = if names.len() >= NAMES_MAX { 9 } else { client.draw.below(10) };
        match (known, draw) {
            (None, _) | (_, 0..4) => {
                client.call("create", &path(&fresh), || fs::write(path(&fresh), round.to_string()))?;
                names.insert(fresh, round);
            }
            (Some((name, content)), 4..6) => {
                client.call("rename", &path(&name), || fs::rename(path(&name), path(&fresh)))?;
                names.remove(&name);
                names.insert(fresh, content);
            }
            (Some((name, content)), 6..8) => {
                client.call("link", &path(&name), || fs::hard_link(path(&name), path(&fresh)))?;
                names.insert(fresh, content);
            }
            (Some((name, _)), _) => {
                client.call("unlink", &path(&name), || fs::remove_file(path(&name)))?;
                names.remove(&name);
            }
        }
        look(client, number, &names)?;
        if round % 16 == 0 {
            list(client, number, &names)?;
        }
    }
    Ok(Expected::Names { names })
}

/// Looks at one name: its content, and how many names its file has.
fn look(client: &mut Client<'_>, number: u64, names: &BTreeMap<String, u64>) -> Result<(), Ended> {
    let at = client.draw.below(names.len().max(1) as u64) as usize;
    let Some((name, content)) = names.iter().nth(at) else { return Ok(()) };
    let path = client.path(NAMES).join(name);
    let found = client.call("read", &path, || fs::read(&path))?;
    if found != content.to_string().as_bytes() {
        return client.wrong(&format!("{name} of {number} has {:?}, not {content}", String::from_utf8_lossy(&found)));
    }
    let links = client.call("stat", &path, || fs::metadata(&path))?.nlink();
    let wanted = names.values().filter(|other| *other == content).count() as u64;
    match links == wanted {
        true => Ok(()),
        false => client.wrong(&format!("{name} has {links} links, not {wanted}")),
    }
}

/// Lists the directory: each of the client's names must be there, and no other with its number.
fn list(client: &mut Client<'_>, number: u64, names: &BTreeMap<String, u64>) -> Result<(), Ended> {
    let directory = client.path(NAMES);
    let found = client.call("list", &directory, || listed(&directory))?;
    let own = format!("{number}-");
    let found = found.into_iter().filter(|name| name.starts_with(&own)).collect();
    match differing(&directory, found, names.keys().cloned().collect()) {
        None => Ok(()),
        Some(how) => client.wrong(&how),
    }
}

/// Counts a number up under a lock.
pub fn count(client: &mut Client<'_>) -> Result<Expected, Ended> {
    let path = client.path("counter");
    let mut counted = 0;
    while client.goes_on() {
        let file = client.call("open", &path, || File::options().read(true).write(true).open(&path))?;
        client.call("lock", &path, || Ok(flock(&file, FlockOperation::LockExclusive)?))?;
        if !client.locks() {
            return client.wrong("it has the lock of the counter, and so has another client");
        }
        let mut number = [0; 8];
        client.call("read", &path, || file.read_exact_at(&mut number, 0))?;
        let (number, wanted) = (u64::from_le_bytes(number), client.counted());
        if number != wanted {
            let mut again = [0; 8];
            client.call("read", &path, || file.read_exact_at(&mut again, 0))?;
            let again = u64::from_le_bytes(again);
            return client.wrong(&format!(
                "the counter has {number} where {wanted} was written under the lock; read again: {again}"
            ));
        }
        client.call("write", &path, || file.write_all_at(&(number + 1).to_le_bytes(), 0))?;
        counted += 1;
        client.unlocks(number + 1);
        client.call("close", &path, || {
            drop(file);
            Ok(())
        })?;
    }
    Ok(Expected::Counted(counted))
}

/// Reads the counter without its lock: it is never older than what was answered before, whoever wrote it and through which mount.
pub fn watch(client: &mut Client<'_>) -> Result<Expected, Ended> {
    let path = client.path("counter");
    while client.goes_on() {
        let least = client.counted();
        let file = client.call("open", &path, || File::open(&path))?;
        let mut number = [0; 8];
        client.call("read", &path, || file.read_exact_at(&mut number, 0))?;
        let (number, most) = (u64::from_le_bytes(number), client.counted() + 1);
        if !(least..=most).contains(&number) {
            return client.wrong(&format!(
                "the counter has {number}, where {least} was answered before, and {most} at most is written"
            ));
        }
    }
    Ok(Expected::Gone)
}

/// Reads and writes a file that is open and has no name any more.
pub fn unnamed(client: &mut Client<'_>) -> Result<Expected, Ended> {
    let (path, number) = (client.path("unnamed"), 99);
    let mut options = File::options();
    let file = client.call("create", &path, || options.read(true).write(true).create_new(true).open(&path))?;
    for block in 0..UNNAMED_BLOCKS {
        client.call("write", &path, || file.write_all_at(&Block::new(number, block, 1).0, block * BLOCK))?;
    }
    client.call("unlink", &path, || fs::remove_file(&path))?;
    let mut versions = vec![1; UNNAMED_BLOCKS as usize];
    while client.goes_on() {
        let block = client.draw.below(UNNAMED_BLOCKS);
        let version = &mut versions[block as usize];
        check(client, (&file, &path), (number, block, *version))?;
        if client.draw.one_in(8) {
            client.call("write", &path, || {
                file.write_all_at(&Block::new(number, block, *version + 1).0, block * BLOCK)
            })?;
            *version += 1;
        }
    }
    for (block, version) in versions.iter().enumerate() {
        check(client, (&file, &path), (number, block as u64, *version))?;
    }
    Ok(Expected::Gone)
}
