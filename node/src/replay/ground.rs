//! The state that must be there before a replay: directories, files of their sizes, links, and handles that were open.

use super::live::{DIRECTORY_MODE, FILE_MODE, Live};
use super::room::Room;
use crate::failure::{Exit, Failure};
use crate::progress::Progress;
use base::limits::IO_BYTES_MAX;
use recording::FileShape;
use recording::plan::{NodeId, Plan};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags};
use rustix::fs::{fstatvfs, mkdirat, mknodat, openat, statx, symlinkat, syncfs};
use rustix::io::{Result, pwrite};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;
use store::progress::Step;

/// Seed of the bytes that files have before: any will do.
const SEED: u64 = 1;
/// Files of so many bytes leave a file system with something to do.
const SETTLED_BYTES: u64 = 4 << 20;
/// The time for that: Sinter's own checkpoint begins two seconds after the last change.
const SETTLING: Duration = Duration::from_secs(4);
/// The target of symbolic links that were there before.
const TARGET: &str = "target";

/// Opens the directory of a replay. Errors: it is none; something is in it.
pub fn check_empty(directory: &Path) -> std::result::Result<OwnedFd, Failure> {
    let shown = directory.display();
    let failed = |error: std::io::Error| Failure::io(format!("can't use {shown}"), &error);
    if std::fs::read_dir(directory).map_err(failed)?.next().is_some() {
        let failure = Failure::new(Exit::Failed, format!("{shown} is not empty"));
        return Err(failure.next("give an empty directory: a replay makes and removes files in it"));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, directory, flags, Mode::empty()).map_err(|error| failed(error.into()))
}

/// Makes all that must be there, durably.
pub fn prepare(live: &Live<'_>, directory: &Path, progress: &Progress) -> std::result::Result<(), Failure> {
    let plan = live.plan;
    let failed =
        |error: rustix::io::Errno| Failure::io(format!("can't prepare {}", directory.display()), &error.into());
    let space = fstatvfs(live.top()).map_err(failed)?;
    let (free, needed) = (space.f_bavail.saturating_mul(space.f_frsize), plan.bytes());
    if needed > free {
        let text =
            format!("the recording needs files of {needed} bytes, and {} has room for {free}", directory.display());
        return Err(Failure::new(Exit::Failed, text).next("give a directory with more room"));
    }
    let mut room = Room::new(SEED);
    let order = top_down(plan);
    for (done, &node) in order.iter().enumerate() {
        progress.step(Step { what: "files", done: done as u64, of: order.len() as u64 });
        make(live, node, &mut room).map_err(failed)?;
    }
    syncfs(live.top()).map_err(failed)?;
    if plan.bytes() >= SETTLED_BYTES {
        progress.step(Step::begin("settling"));
        std::thread::sleep(SETTLING);
    }
    // Its handles come last: a file that may not be written could not be filled through them.
    for &node in &order {
        for flags in &plan.nodes[node].ready {
            live.open(node, plan.nodes[node].place, *flags, OFlags::empty()).map_err(failed)?;
        }
        if plan.nodes[node].told_anew {
            let (directory, name) = live.at(plan.nodes[node].place).map_err(failed)?;
            statx(directory, &*name, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS).map_err(failed)?;
        }
    }
    Ok(())
}

/// The nodes that must be there, each behind the directory in which it lies.
fn top_down(plan: &Plan) -> Vec<NodeId> {
    let depth =
        |node: NodeId| std::iter::successors(plan.nodes[node].place, |place| plan.nodes[place.directory].place).count();
    let mut order: Vec<NodeId> = (0..plan.nodes.len()).filter(|&node| plan.nodes[node].place.is_some()).collect();
    order.sort_by_cached_key(|&node| depth(node));
    order
}

fn make(live: &Live<'_>, node: NodeId, room: &mut Room) -> Result<()> {
    let wanted = &live.plan.nodes[node];
    let (directory, name) = live.at(wanted.place)?;
    match wanted.shape {
        FileShape::Directory => {
            mkdirat(directory, &*name, DIRECTORY_MODE)?;
            live.note(node, wanted.place);
            live.directory(node).map(drop)
        }
        FileShape::SymLink => symlinkat(TARGET, directory, &*name),
        FileShape::Other => mknodat(directory, &*name, FileType::Fifo, FILE_MODE, 0),
        FileShape::File => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            let file = openat(directory, &*name, flags, FILE_MODE)?;
            fill(&file, wanted.size, room)
        }
    }
}

fn fill(file: &OwnedFd, size: u64, room: &mut Room) -> Result<()> {
    let mut done = 0;
    while done < size {
        done += pwrite(file, room.for_write((size - done).min(IO_BYTES_MAX as u64)), done)? as u64;
    }
    Ok(())
}
