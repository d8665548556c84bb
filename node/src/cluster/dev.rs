//! The directory of a cluster on one machine: its file, and a brick, two sockets and a log for each node.
//!
//! Promises: one process at a time runs the cluster; making it can be interrupted and done again; a directory that others may write, or that
//! holds something else, is refused. Absent by design: anything of it that a node needs, which lies in its brick's directory.

use super::config::{Cluster, FILE, GROUPS, Place, SOCKET_BYTES_MAX, Spot};
use crate::assembly;
use crate::cli::Geometry;
use crate::directory;
use crate::failure::{Exit, Failure};
use crate::host;
use crate::network::secret;
use crate::progress::Progress;
use base::limits::BRICK_BYTES_MIN;
use base::{Error, Kind};
use runtime::real::{Access, Directory};
use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use store::format::Uuid;

/// Number of nodes: the fewest of which one may fail.
const NODES: u64 = 3;
/// A file that is there while the cluster is being made: whatever else is there was made for it, and never used.
const MAKING: &str = "making";
/// The lock of who runs the cluster; it holds the number of the process.
const LOCK: &str = "lock";
/// Share of the free space, in percent, that the bricks get together.
const FREE_SHARE: u64 = 80;
/// Names that may lie in a directory that becomes a cluster's.
const INNOCENT: [&str; 2] = [LOCK, "lost+found"];

/// The directory of a cluster that nobody else runs.
pub struct Home {
    directory: Directory,
    _lock: File,
}

/// Opens the directory of a cluster; it must have one. Errors: it has none.
pub fn existing(path: &Path) -> Result<(Directory, Cluster), Failure> {
    let shown = path.display();
    let none = || {
        let failure = Failure::new(Exit::Usage, format!("{shown} is no cluster's directory"));
        failure.next(format!(
            "check the path; `sinter cluster dev {shown} MOUNT` makes a cluster of three bricks on this machine"
        ))
    };
    let failed = |error: Error| Failure::of(format!("can't look at the cluster {shown}"), &error);
    let directory = match Directory::open(path) {
        Err(error) if matches!(error.kind, Kind::NotFound | Kind::NotDirectory) => return Err(none()),
        directory => directory.map_err(failed)?,
    };
    match Cluster::read(&directory).map_err(failed)? {
        Some((cluster, None)) => Ok((directory, cluster)),
        Some((_, Some(_))) => {
            let failure = Failure::new(Exit::Usage, format!("{shown} is the directory of a cluster's brick"));
            Err(failure.next("give the cluster's own directory, in which it lies"))
        }
        None => Err(none()),
    }
}

/// The place of a node's brick.
pub fn brick(directory: &Directory, node: &Place) -> PathBuf {
    directory.path().join(&node.name)
}

impl Home {
    /// Opens the directory, which is made if only its last component is missing, and takes its lock. Errors: others may write in it;
    /// another process runs the cluster.
    pub fn open(path: &Path) -> Result<Home, Failure> {
        let shown = path.display();
        let directory = directory::make(path)?;
        let failed = |error: Error| Failure::of(format!("can't use {shown}"), &error);
        // A brick's directory may be one in which others may add names; here they could put sockets in the place of the nodes'.
        host::check_only_owner_writes(&directory).map_err(failed)?;
        let longest = directory.path().join(format!("n{NODES}.clients"));
        if longest.as_os_str().len() > SOCKET_BYTES_MAX {
            let bytes = longest.as_os_str().len();
            let text = format!(
                "the path {shown} is too long: its sockets' would have {bytes} bytes, and may have {SOCKET_BYTES_MAX}"
            );
            return Err(Failure::new(Exit::Usage, text).next("give a directory with a shorter path"));
        }
        let lock = match directory.file(LOCK, Access::Write) {
            Err(error) if error.kind == Kind::NotFound => directory.file(LOCK, Access::Create),
            lock => lock,
        };
        let mut lock = lock.map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let failure = Failure::new(
                    Exit::InUse,
                    format!("another process runs the cluster {shown}, or is just ending it"),
                );
                return Err(
                    failure.next(format!("look at it: sinter cluster status {shown}; end it: sinter down {shown}"))
                );
            }
            Err(TryLockError::Error(error)) => return Err(Failure::io(format!("can't lock {shown}"), &error)),
        }
        let noted = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
        noted.map_err(|error| Failure::io(format!("can't lock {shown}"), &error))?;
        Ok(Home { directory, _lock: lock })
    }
    /// The directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }
    /// The cluster, which is made if there is none yet. `size`: bytes of each new brick.
    pub fn cluster(&self, size: Option<u64>, memory_max: u64) -> Result<Cluster, Failure> {
        let failed =
            |error: Error| Failure::of(format!("can't start the cluster {}", self.directory.path().display()), &error);
        match Cluster::read(&self.directory).map_err(failed)? {
            None => self.make(size, memory_max),
            Some((_, Some(_))) => {
                let text = format!("{} is the directory of a cluster's brick", self.directory.path().display());
                Err(Failure::new(Exit::Usage, text).next("give the cluster's own directory, in which it lies"))
            }
            Some((cluster, None)) => self.check(cluster).map_err(failed),
        }
    }

    /// Makes the bricks, then their files, then the cluster's: with the last the cluster is there.
    fn make(&self, size: Option<u64>, memory_max: u64) -> Result<Cluster, Failure> {
        let directory = &self.directory;
        let shown = directory.path().display();
        let failed = |error: Error| Failure::of(format!("can't make the cluster {shown}"), &error);
        self.begin_making()?;
        let size = Some(size.map_or_else(|| self.size(), Ok)?);
        let groups = Some(GROUPS);
        let geometry = Geometry { size, segment_size: None, groups, device: None, flash: Vec::new(), disk: Vec::new() };
        let (id, wanted) = (secret()?, NODES as usize);
        let mut cluster = Cluster { id, name: None, wanted, groups: GROUPS, nodes: Vec::new() };
        for number in 1..=NODES {
            let name = format!("n{number}");
            let data = directory::make(&directory.path().join(&name))?;
            let progress = Progress::new("formatting", None);
            let brick = assembly::format_or_find(&data, &geometry, memory_max, &progress.tell())?;
            progress.clear();
            cluster.nodes.push(place(directory.path(), name, brick, number));
        }
        for node in &cluster.nodes {
            cluster.write(&directory.child(&node.name).map_err(failed)?, Some(node.brick)).map_err(failed)?;
        }
        cluster.write(directory, None).map_err(failed)?;
        let made = std::fs::remove_file(directory.at(MAKING)).and_then(|()| directory.sync());
        made.map_err(|error| Failure::io(format!("can't make the cluster {shown}"), &error))?;
        Ok(cluster)
    }
    /// Notes durably that all that is there from now on was made for the cluster. Errors: something else is there.
    fn begin_making(&self) -> Result<(), Failure> {
        let shown = self.directory.path().display();
        let failed = |error: std::io::Error| Failure::io(format!("can't make the cluster {shown}"), &error);
        if self.directory.file(MAKING, Access::Read).is_ok() {
            return Ok(());
        }
        for entry in std::fs::read_dir(self.directory.at("")).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if !INNOCENT.iter().any(|innocent| name == *innocent) {
                let text = format!("{shown} is no cluster's directory, and is not empty: it holds {}", name.display());
                return Err(
                    Failure::new(Exit::Usage, text).next("give an empty directory, or one that does not exist yet")
                );
            }
        }
        let made = self.directory.file(MAKING, Access::Create);
        made.map_err(|error| Failure::of(format!("can't make the cluster {shown}"), &error))?;
        self.directory.sync().map_err(failed)
    }
    /// The size of a new brick: the bricks share what is free.
    fn size(&self) -> Result<u64, Failure> {
        let shown = self.directory.path().display();
        let free = host::free_bytes(&self.directory);
        let free = free.map_err(|error| Failure::io(format!("can't ask for the room in {shown}"), &error))?;
        let each = free / 100 * FREE_SHARE / NODES;
        if each < BRICK_BYTES_MIN {
            let text = format!(
                "{shown} has room for {NODES} bricks of {} bytes, and each has at least {BRICK_BYTES_MIN}",
                each
            );
            return Err(
                Failure::new(Exit::Host, text).next("free some, or give --size 4G: bricks take the room as they fill")
            );
        }
        Ok(each)
    }
    /// Refuses bricks of another cluster. A cluster whose directory has moved gets its new addresses.
    fn check(&self, cluster: Cluster) -> base::Result<Cluster> {
        let here = |node: &Place| place(self.directory.path(), node.name.clone(), node.brick, node.replica);
        let placed = Cluster { nodes: cluster.nodes.iter().map(here).collect(), ..cluster.clone() };
        for node in &cluster.nodes {
            let data = self.directory.child(&node.name)?;
            let Some((found, brick)) = Cluster::read(&data)? else {
                let what = "a brick's file of its cluster is gone: restore it from a backup";
                return Err(Error::new(Kind::NotFound, what).with(data.path().join(FILE).display()));
            };
            if found.id != cluster.id || brick != Some(node.brick) {
                let what = "a brick is of another cluster, or another node's: bring back the one that was here";
                return Err(Error::new(Kind::Invalid, what).with(data.path().display()));
            }
            if found != placed {
                placed.write(&data, Some(node.brick))?;
            }
        }
        if placed != cluster {
            placed.write(&self.directory, None)?;
        }
        Ok(placed)
    }
}

/// A node of a cluster in a directory.
fn place(directory: &Path, name: String, brick: Uuid, replica: u64) -> Place {
    let [clients, peers] = ["clients", "peers"].map(|who| Spot::Local(directory.join(format!("{name}.{who}"))));
    Place { name, brick, replica, clients, peers }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::os::unix::fs::PermissionsExt;

    /// A cluster whose bricks are directories with their files.
    fn made(home: &Home, id: [u8; 16]) -> Cluster {
        let path = home.directory.path();
        let node = |number: u8| place(path, format!("n{number}"), Uuid([number; 16]), number.into());
        let cluster = Cluster { id, name: None, wanted: 3, groups: GROUPS, nodes: (1..=3).map(node).collect() };
        for node in &cluster.nodes {
            let data = directory::make(&path.join(&node.name)).expect("ours");
            cluster.write(&data, Some(node.brick)).expect("writable");
        }
        cluster.write(&home.directory, None).expect("writable");
        cluster
    }

    #[test]
    fn a_directory_is_run_once_and_written_by_its_owner_alone() {
        let scratch = Scratch::new();
        let path = scratch.path().join("c");
        let home = Home::open(&path).expect("it is made");
        let refused = Home::open(&path).err().expect("it is in use");
        assert_eq!(refused.exit, Exit::InUse);
        assert!(refused.to_string().contains("sinter down"), "{refused}");
        drop(home);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o1777)).expect("ours");
        let refused = Home::open(&path).err().expect("others may write");
        assert!(refused.to_string().contains("others may write"), "{refused}");
        let long = scratch.path().join("x".repeat(100));
        let refused = Home::open(&long).err().expect("no socket has such a path");
        assert!(refused.to_string().contains("too long"), "{refused}");
    }

    #[test]
    fn bricks_of_others_are_refused_and_a_move_is_followed() {
        let scratch = Scratch::new();
        let path = scratch.path().join("c");
        let home = Home::open(&path).expect("it is made");
        let cluster = made(&home, [1; 16]);
        assert_eq!(home.check(cluster.clone()).expect("as it was made"), cluster);
        // Another cluster's brick, another node's, and one whose file is gone.
        let n2 = directory::existing(&path.join("n2")).expect("it is there");
        let other = Cluster { id: [2; 16], ..cluster.clone() };
        other.write(&n2, Some(Uuid([2; 16]))).expect("writable");
        assert!(home.check(cluster.clone()).expect_err("another's").to_string().contains("another cluster"));
        cluster.write(&n2, Some(Uuid([3; 16]))).expect("writable");
        assert!(home.check(cluster.clone()).expect_err("another node's").to_string().contains("another node's"));
        std::fs::remove_file(path.join("n2").join(FILE)).expect("it is there");
        assert!(home.check(cluster.clone()).expect_err("gone").to_string().contains("is gone"));
        cluster.write(&n2, Some(Uuid([2; 16]))).expect("writable");
        drop(home);
        let moved = scratch.path().join("moved");
        std::fs::rename(&path, &moved).expect("ours");
        let home = Home::open(&moved).expect("it is there");
        let placed = home.check(cluster).expect("the same bricks");
        let has_moved = |spot: &Spot| matches!(spot, Spot::Local(path) if path.starts_with(&moved));
        assert!(placed.nodes.iter().all(|node| has_moved(&node.clients) && has_moved(&node.peers)));
        assert_eq!(existing(&moved).expect("it is one").1, placed);
    }

    #[test]
    fn what_is_somebody_elses_is_no_cluster() {
        let scratch = Scratch::new();
        let refused = existing(scratch.path()).expect_err("nothing is there");
        assert!(refused.exit == Exit::Usage && refused.to_string().contains("sinter cluster dev"), "{refused}");
        std::fs::create_dir(scratch.path().join("photos")).expect("writable");
        let home = Home::open(scratch.path()).expect("ours");
        let refused = home.begin_making().expect_err("not empty");
        assert!(refused.to_string().contains("photos"), "{refused}");
        std::fs::remove_dir(scratch.path().join("photos")).expect("it is there");
        home.begin_making().expect("empty but for the lock");
        std::fs::create_dir(scratch.path().join("n1")).expect("writable");
        home.begin_making().expect("a making that was interrupted");
    }
}
