//! A loop device on the slow disk, over a file that has all its blocks.

use super::process::Running;
use super::slow_disk::{self, Delays};
use crate::flash::ground::{Ground, device_number, looped_apart, text, told, unmounted};
use crate::flash::undo::Undo;
use crate::served;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Size of the disk in units of 4 MiB: the smallest brick is 4 GiB, and its superblock comes first.
const CHUNKS: u64 = 1088;
/// Time after which the disk's server must serve.
const READY_MAX: Duration = Duration::from_secs(20);
/// Time after which each of its loops has heeded a change: twice as long as between two looks.
const HEEDED: Duration = Duration::from_millis(50);

/// The disk.
pub struct Disk {
    /// The loop device.
    pub device: String,
    knobs: PathBuf,
}

impl Disk {
    /// Makes it in a directory of its own below the ground's root.
    pub fn make(ground: &Ground, undo: &Undo) -> Result<Disk, String> {
        let [backing, mount, knobs] = ["backing", "disk", "knobs"].map(|name| ground.root.join(name));
        println!("writing a disk image of {} MiB", CHUNKS * 4);
        let how = ["if=/dev/zero", "bs=4M", "oflag=direct", "conv=fsync", "status=none"];
        told("dd", &[&how[..], &[&format!("count={CHUNKS}"), &format!("of={}", backing.display())]].concat())?;
        std::fs::create_dir(&mount).map_err(|error| format!("{}: {error}", mount.display()))?;
        let disk = Disk { device: String::new(), knobs };
        disk.set(Delays::default())?;
        let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
        let mut command = Command::new("setsid");
        // A real disk waits for no CPU.
        command.args(["chrt", "--fifo", "1"]).arg(program);
        command.args(["verdicts", slow_disk::ARGUMENT, text(&backing), text(&mount), text(&disk.knobs)]);
        let mut server = Running::start(command.stdin(Stdio::null()), undo)?;
        undo.add(&unmounted(&mount))?;
        let (file, began) = (mount.join(served::NAME), Instant::now());
        while !file.exists() {
            if server.has_ended() || began.elapsed() > READY_MAX {
                return Err("the slow disk's server does not serve; it needs /dev/fuse".to_string());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let device = looped_apart(&file)?;
        undo.add(&format!("losetup -d {device}"))?;
        // The file must keep its blocks: whoever writes to new ones would pay for the host's allocation.
        let discard = queue(&device, "discard_max_bytes");
        std::fs::write(&discard, "0").map_err(|error| format!("{discard}: {error}"))?;
        Ok(Disk { device, ..disk })
    }
    /// Makes it as slow as this; true of every request that comes after the return.
    pub fn set(&self, delays: Delays) -> Result<(), String> {
        // By another name first: whoever reads it finds all of it.
        let new = self.knobs.with_extension("new");
        let written = std::fs::write(&new, delays.text()).and_then(|()| std::fs::rename(&new, &self.knobs));
        written.map_err(|error| format!("{}: {error}", self.knobs.display()))?;
        std::thread::sleep(HEEDED);
        Ok(())
    }
    /// Its number, as control groups name it.
    pub fn number(&self) -> Result<String, String> {
        device_number(&self.device)
    }
    /// Reads that it has answered so far.
    pub fn reads(&self) -> Result<u64, String> {
        let path = self.device.replace("/dev/", "/sys/class/block/") + "/stat";
        let stat = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let reads = stat.split_whitespace().next().and_then(|word| word.parse().ok());
        reads.ok_or_else(|| format!("{path}: not understood: {stat}"))
    }
}

fn queue(device: &str, name: &str) -> String {
    format!("{}/queue/{name}", device.replace("/dev/", "/sys/class/block/"))
}
