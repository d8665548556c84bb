//! The callers of requests and the files that they are about, as far as /proc tells: by the caller's thread, while it lives, and
//! by the files that its process has open.

use crate::admin::client::{Client, unexpected};
use crate::admin::protocol::{Answer, Request};
use crate::failure::Failure;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Most open files of a process that are looked at: a server with more would hold up the command.
const OPEN_FILES_MAX: usize = 4096;

/// A process.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its command, without arguments.
    pub command: String,
}

/// Callers and files that have been found out so far; nothing is asked twice.
pub struct Callers {
    /// Paths below which the volumes are.
    mounts: Vec<PathBuf>,
    processes: BTreeMap<u32, Option<Process>>,
    /// Paths by inode, by process.
    open: BTreeMap<u32, BTreeMap<u64, String>>,
}

impl Callers {
    /// Nothing found out yet, of the volumes that a daemon has mounted.
    pub fn of(client: &mut Client) -> Result<Callers, Failure> {
        let Answer::Status(status) = client.ask(&Request::Status)? else { return Err(unexpected()) };
        Ok(Callers::new(status.mounts.into_iter().map(|mount| mount.path.into()).collect()))
    }
    /// Nothing found out. `mounts`: the paths at which the daemon's volumes are.
    pub fn new(mounts: Vec<PathBuf>) -> Callers {
        Callers { mounts, processes: BTreeMap::new(), open: BTreeMap::new() }
    }
    /// The process of a thread, if it lives.
    pub fn process(&mut self, thread: u32) -> Option<Process> {
        self.processes.entry(thread).or_insert_with(|| process(thread)).clone()
    }
    /// The path of an inode that the process of a thread has open.
    pub fn path(&mut self, thread: u32, ino: u64) -> Option<String> {
        let pid = self.process(thread)?.pid;
        let mounts = &self.mounts;
        self.open.entry(pid).or_insert_with(|| open_files(pid, mounts)).get(&ino).cloned()
    }
}

fn process(thread: u32) -> Option<Process> {
    // The kernel says 0 for a request of its own, such as a write back.
    let status = fs::read_to_string(format!("/proc/{}/status", (thread > 0).then_some(thread)?)).ok()?;
    let field = |name: &str| status.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_string()));
    Some(Process { pid: field("Tgid:")?.parse().ok()?, command: field("Name:")? })
}

/// Paths below `mounts` that a process has open, by inode.
fn open_files(pid: u32, mounts: &[PathBuf]) -> BTreeMap<u64, String> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return BTreeMap::new() };
    let open = |entry: fs::DirEntry| {
        let path = fs::read_link(entry.path()).ok()?;
        let ours = mounts.iter().any(|mount| path.starts_with(mount));
        let ino = fs::metadata(entry.path()).ok().filter(|_| ours)?.ino();
        Some((ino, path.display().to_string()))
    };
    entries.flatten().take(OPEN_FILES_MAX).filter_map(open).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_file_of_a_living_process_has_a_path() {
        let own = std::process::id();
        let directory = crate::scratch::Scratch::new();
        let path = directory.path().join("a file");
        let file = fs::File::create(&path).expect("there is room");
        let ino = file.metadata().expect("it is open").ino();
        let mut callers = Callers::new(vec![directory.path().to_path_buf()]);
        assert_eq!(callers.process(own).map(|process| process.pid), Some(own));
        assert_eq!(callers.path(own, ino), Some(path.display().to_string()));
        assert_eq!((callers.path(own, ino + 1), callers.process(0), callers.path(0, ino)), (None, None, None));
        // Files outside the volumes are not told of: their inode numbers mean others.
        assert_eq!(Callers::new(vec!["/elsewhere".into()]).path(own, ino), None);
    }
}
