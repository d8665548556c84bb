//! The nodes' disks: a file system on a loop device each, whose writes can be held back, as a hung disk does, or throttled.
//!
//! Promises: what hangs goes on when its time is over, and when the run ends. Absent by design: disks that fail, or lie.

use super::kinds::Kind;
use super::machine::{NAMES, NODES};
use super::nodes::Node;
use super::run::{Phase, Run};
use crate::flash::ground::{DEVICE_GROUPS, device_number, mounted_xfs, text, told};
use crate::flash::undo::{Undo, quoted};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The size of a disk: a brick and its file system.
const SIZE: &str = "5G";
/// Bytes that a slow disk writes in a second.
const SLOW: u64 = 1_000_000;
/// Time after which nodes are there again that were killed while disks hung.
const BACK: Duration = Duration::from_secs(1);

/// The disk of a node.
pub struct Disk<'a> {
    mount: PathBuf,
    /// The major and minor number of its device.
    number: String,
    /// The control group of its node's process.
    group: String,
    undo: &'a Undo,
}

impl<'a> Disk<'a> {
    /// Makes the disk of a node, mounted where its brick will lie.
    fn new(work: &Path, node: usize, undo: &'a Undo) -> Result<Disk<'a>, String> {
        let name = NAMES[node];
        let (image, mount) = (work.join(format!("{name}.disk")), work.join(name));
        told("truncate", &["-s", SIZE, text(&image)])?;
        let number = device_number(&mounted_xfs(&image, &mount, undo)?)?;
        let group = format!("{DEVICE_GROUPS}/sinter-torture-{name}");
        let made = std::fs::create_dir(&group);
        made.map_err(|error| format!("{group}: {error}; this takes control groups of version 1"))?;
        undo.add(&format!("rmdir {group}"))?;
        Ok(Disk { mount, number, group, undo })
    }
    /// Has a process count as its node's.
    fn serves(&self, process: u32) -> Result<(), String> {
        write(&format!("{}/cgroup.procs", self.group), &process.to_string())
    }
    /// Holds all writes back from now on, or lets them go on.
    fn hang(&self, hangs: bool) -> Result<(), String> {
        let goes_on = format!("fsfreeze --unfreeze {}", quoted(&self.mount));
        // A process that waits for it can't be killed, so it goes on first.
        if hangs {
            self.undo.add(&goes_on)?;
        }
        told("fsfreeze", &[if hangs { "--freeze" } else { "--unfreeze" }, text(&self.mount)])?;
        if hangs { Ok(()) } else { self.undo.forget(&goes_on) }
    }
    /// Bounds what its node writes per second, in bytes; 0: no bound.
    fn throttle(&self, bytes: u64) -> Result<(), String> {
        write(&format!("{}/blkio.throttle.write_bps_device", self.group), &format!("{} {bytes}", self.number))
    }
}

fn write(path: &str, value: &str) -> Result<(), String> {
    std::fs::write(path, value).map_err(|error| format!("{path}: {error}"))
}

/// The disks of all nodes.
pub struct Disks<'a>(Vec<Disk<'a>>);

impl<'a> Disks<'a> {
    /// Makes them.
    pub fn new(work: &Path, undo: &'a Undo) -> Result<Disks<'a>, String> {
        (0..NODES).map(|node| Disk::new(work, node, undo)).collect::<Result<Vec<Disk<'_>>, String>>().map(Disks)
    }
    /// Has a process count as a node's.
    pub fn serve(&self, node: usize, process: u32) -> Result<(), String> {
        self.0[node].serves(process)
    }
    fn hang(&self, nodes: &[usize], hang: bool) -> Result<(), String> {
        nodes.iter().try_for_each(|node| self.0[*node].hang(hang))
    }
}

/// A fault of disks as it is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    pub kind: Kind,
    pub nodes: Vec<usize>,
    pub time: Duration,
}

impl Plan {
    /// The plan in words.
    pub fn told(&self, names: &[&str]) -> String {
        let nodes: Vec<&str> = self.nodes.iter().map(|node| names[*node]).collect();
        let (nodes, time) = (nodes.join(", "), self.time);
        match self.kind {
            Kind::Slow => format!("for {time:?} nothing, and then {nodes}'s disk writes {SLOW} bytes/s for as long"),
            Kind::HangBoth => format!("disks of {nodes} hang for {time:?}, then all three are killed"),
            _ => format!("{nodes}'s disk hangs for {time:?}"),
        }
    }
}

/// A fault of disks under way.
pub struct UnderWay {
    plan: Plan,
    began: Instant,
    is_slow: bool,
}

impl UnderWay {
    /// Begins it.
    pub fn begin(plan: Plan, disks: &Disks<'_>, run: &Run) -> Result<UnderWay, String> {
        match plan.kind {
            Kind::Slow => run.enter(Phase::Before),
            _ => disks.hang(&plan.nodes, true)?,
        }
        if plan.kind == Kind::HangBoth {
            run.nothing_changes(true);
        }
        Ok(UnderWay { plan, began: Instant::now(), is_slow: false })
    }
    /// Ends it. `nodes`: all nodes, if those that are to be killed may be.
    pub fn end(&self, disks: &Disks<'_>, run: &Run, nodes: Option<&mut [Node<'_>]>) -> Result<(), String> {
        match (self.plan.kind, nodes) {
            (Kind::Slow, _) => {
                run.enter(Phase::Other);
                self.plan.nodes.iter().try_for_each(|node| disks.0[*node].throttle(0))
            }
            (Kind::HangBoth, Some(nodes)) => {
                // What waits for the disks may be written when they go on, unless its process is gone by then.
                nodes.iter_mut().for_each(Node::strike);
                run.nothing_changes(false);
                disks.hang(&self.plan.nodes, false)?;
                nodes.iter_mut().for_each(|node| node.kill(BACK));
                Ok(())
            }
            _ => {
                run.nothing_changes(false);
                disks.hang(&self.plan.nodes, false)
            }
        }
    }
    /// Goes on with it; true if it is over.
    pub fn tend(&mut self, disks: &Disks<'_>, run: &Run, nodes: &mut [Node<'_>]) -> Result<bool, String> {
        let lasts = self.began.elapsed();
        let halves = if self.plan.kind == Kind::Slow { 2 } else { 1 };
        if lasts >= self.plan.time * halves {
            self.end(disks, run, Some(nodes))?;
            return Ok(true);
        }
        if halves == 2 && lasts >= self.plan.time && !std::mem::replace(&mut self.is_slow, true) {
            self.plan.nodes.iter().try_for_each(|node| disks.0[*node].throttle(SLOW))?;
            run.enter(Phase::Slow);
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_told() {
        let told = |kind, nodes| Plan { kind, nodes, time: Duration::from_secs(3) }.told(&NAMES);
        assert_eq!(told(Kind::Hang, vec![1]), "n2's disk hangs for 3s");
        assert!(told(Kind::HangBoth, vec![0, 2]).starts_with("disks of n1, n3 hang for 3s"));
        assert!(told(Kind::Slow, vec![2]).contains("n3's disk writes 1000000 bytes/s"));
    }
}
