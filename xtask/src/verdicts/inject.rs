//! Brings a cause about, and takes it back. What is brought about outside of this process is taken back whatever happens.

use super::brick::{Below, Brick, TREE, VOLUME};
use super::cause::Injection;
use super::disk::Disk;
use super::load::{Load, READ};
use super::process::Running;
use crate::flash::ground::{DEVICE_GROUPS, text, told};
use crate::flash::undo::Undo;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The argument that makes this program a hog.
pub const HOG: &str = "--hog";
/// Seconds for which the rate is counted before it is limited.
const COUNT: Duration = Duration::from_secs(2);

/// The cause that is there, and all that is to be taken back.
pub struct Injected<'a> {
    injection: &'a Injection,
    running: Vec<Running>,
    /// A shell command, which the other process knows too.
    group: Option<String>,
}

/// The world in which a cause is brought about.
#[derive(Clone, Copy)]
pub struct World<'a> {
    pub below: Below<'a>,
    pub brick: &'a Brick,
    pub undo: &'a Undo,
}

impl World<'_> {
    /// Brings it about.
    pub fn inject<'a>(&self, injection: &'a Injection) -> Result<Injected<'a>, String> {
        let mut injected = Injected { injection, running: Vec::new(), group: None };
        match injection {
            Injection::Load(_) => {}
            Injection::Disk(delays) => self.below.set(*delays)?,
            Injection::Spindle(_, slowness) => self.below.set_slowness(&self.brick.setup, *slowness)?,
            Injection::Switch(text) => self.brick.switch(text)?,
            Injection::Layer(ms) => {
                self.brick.sinter(&["layer", "add", text(&self.brick.data), VOLUME, "delay", &ms.to_string()])?;
            }
            Injection::Limit(iops) => self.limit(&iops.to_string())?,
            Injection::TreeLimit(iops) => self.tree_limit(&iops.to_string())?,
            Injection::Neighbour(load) => injected.running.push(load.start(&self.brick.neighbours_file(), self.undo)?),
            Injection::Scrub(_) => {
                self.brick.sinter(&["scrub", "start", text(&self.brick.data)])?;
            }
            Injection::Beside(depth) => injected.running.push(self.beside(*depth)?),
            Injection::Hogs(count) => injected.running = self.hogs(*count)?,
            Injection::Link(megabits) => self.bound(*megabits)?,
            Injection::Throttle(percent) => injected.group = Some(self.throttle(*percent)?),
        }
        Ok(injected)
    }
    /// Takes it back.
    pub fn take_back(&self, injected: Injected) -> Result<(), String> {
        injected.running.into_iter().try_for_each(|running| running.stop(self.undo))?;
        if let Some(how) = injected.group {
            told("sh", &["-c", &how])?;
            self.undo.forget(&how)?;
        }
        match injected.injection {
            Injection::Disk(_) | Injection::Spindle(..) => self.below.reset(&self.brick.setup),
            Injection::Switch(_) => self.brick.switch(""),
            Injection::Layer(_) => {
                self.brick.sinter(&["layer", "remove", text(&self.brick.data), VOLUME, "1"]).map(drop)
            }
            Injection::Limit(_) => self.limit("none"),
            Injection::Link(_) => self.bound(0),
            Injection::TreeLimit(_) => self.tree_limit("none"),
            Injection::Scrub(_) => self.brick.sinter(&["scrub", "stop", text(&self.brick.data)]).map(drop),
            Injection::Load(_)
            | Injection::Neighbour(_)
            | Injection::Beside(_)
            | Injection::Hogs(_)
            | Injection::Throttle(_) => Ok(()),
        }
    }
    fn bound(&self, megabits: u64) -> Result<(), String> {
        self.brick.link.as_ref().map_or(Ok(()), |link| link.bound(megabits))
    }
    fn limit(&self, iops: &str) -> Result<(), String> {
        self.brick.sinter(&["volume", "set", text(&self.brick.data), VOLUME, "--iops-max", iops]).map(drop)
    }
    fn tree_limit(&self, iops: &str) -> Result<(), String> {
        self.brick.sinter(&["limit", text(&self.brick.data), VOLUME, TREE, "--iops-max", iops]).map(drop)
    }
    fn disk(&self) -> Result<&Disk, String> {
        self.below.disk.ok_or_else(|| "there is no slow disk".to_string())
    }
    /// A program that reads the disk itself.
    fn beside(&self, depth: u32) -> Result<Running, String> {
        let load = Load { depth, ..READ };
        load.start(Path::new(&self.disk()?.device), self.undo)
    }
    /// Hogs, so many on each CPU, ahead of the daemon's cores.
    fn hogs(&self, count: usize) -> Result<Vec<Running>, String> {
        let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let hog = |cpu: usize| {
            let mut command = Command::new("setsid");
            command.args(["taskset", "-c", &cpu.to_string(), "nice", "-n", "-20"]).arg(&program);
            command.args(["verdicts", HOG]).stdin(Stdio::null());
            Running::start(&mut command, self.undo)
        };
        (0..cpus).flat_map(|cpu| std::iter::repeat_n(cpu, count)).map(hog).collect()
    }
    /// Holds the daemon's requests back, by a control group; the shell command that ends this.
    fn throttle(&self, percent: u64) -> Result<String, String> {
        let group = format!("{DEVICE_GROUPS}/sinter-{}", self.brick.process());
        let wrong =
            |path: &str, error: std::io::Error| format!("{path}: {error}; this takes control groups of version 1");
        let disk = self.disk()?;
        let before = disk.reads()?;
        std::thread::sleep(COUNT);
        let rate = (disk.reads()? - before) / COUNT.as_secs();
        std::fs::create_dir(&group).map_err(|error| wrong(&group, error))?;
        let moved_back =
            format!("for p in $(cat {group}/cgroup.procs); do echo $p >{DEVICE_GROUPS}/cgroup.procs; done");
        let how = format!("{moved_back}; rmdir {group}");
        self.undo.add(&how)?;
        let limit = format!("{} {}", disk.number()?, (rate * percent / 100).max(1));
        for verb in ["read", "write"] {
            let path = format!("{group}/blkio.throttle.{verb}_iops_device");
            std::fs::write(&path, &limit).map_err(|error| wrong(&path, error))?;
        }
        let path = format!("{group}/cgroup.procs");
        std::fs::write(&path, self.brick.process().to_string()).map_err(|error| wrong(&path, error))?;
        Ok(how)
    }
}

/// Takes all of a CPU until it is killed.
pub fn hog() -> ! {
    loop {
        std::hint::spin_loop();
    }
}
