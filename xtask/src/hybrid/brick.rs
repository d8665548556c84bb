//! A brick of flash and a disk, served and mounted.

use super::asked::Asked;
use crate::disk::{Disks, Place};
use crate::flash::ground::{Ground, looped_apart, text, told};
use crate::flash::sides::{Places, in_own_session, serve};
use crate::flash::undo::{Undo, quoted};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Child;

/// The disk's name among the run's own.
const DISK: &str = "hybrid";
/// The part of the brick that is filled.
const FILLED_PERCENT: u64 = 75;
const MIB: u64 = 1 << 20;

/// Flash and disk, before and below the brick.
pub struct Devices {
    flash: String,
    /// The disk's device.
    pub disk: String,
    pub spindle: Place,
    /// The shell command that lets the disk go on.
    pub goes_on: String,
}

impl Devices {
    /// Makes both.
    pub fn make(asked: &Asked, ground: &Ground, undo: &Undo) -> Result<Devices, String> {
        let flash = flash_device(&ground.root.join("flash"), asked.flash_bytes, undo)?;
        let root = ground.root.join("disks");
        let disks = Disks::below(&root)?;
        let disk = disks.make_during(undo, DISK, asked.disk_bytes())?;
        let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
        let (program, root) = (quoted(&program), quoted(&root));
        let goes_on = format!("{program} disk slow {DISK} 1 --dir {root}");
        Ok(Devices { flash, disk, spindle: disks.place(DISK), goes_on })
    }
}

/// Makes a device of flash on a new file of so many bytes, whole MiB by fours.
pub fn flash_device(image: &Path, bytes: u64, undo: &Undo) -> Result<String, String> {
    eprintln!("writing the flash's image, {} MiB", bytes >> 20);
    // All its blocks: whoever writes to new ones would pay for the host's allocation.
    let how = ["if=/dev/zero", "bs=4M", "oflag=direct", "conv=fsync", "status=none"];
    let to = [format!("count={}", bytes >> 22), format!("of={}", image.display())];
    told("dd", &[&how[..], &[&to[0], &to[1]]].concat())?;
    let flash = looped_apart(image)?;
    undo.add(&format!("losetup -d {flash}"))?;
    // A discard would give them back.
    let discard = format!("{}/queue/discard_max_bytes", flash.replace("/dev/", "/sys/class/block/"));
    std::fs::write(&discard, "0").map_err(|error| format!("{discard}: {error}"))?;
    Ok(flash)
}

/// The brick.
pub struct Brick {
    binary: PathBuf,
    data: PathBuf,
    mount: PathBuf,
    log: PathBuf,
    daemon: Option<(Child, String)>,
}

impl Brick {
    /// Formats the devices, and mounts the brick.
    pub fn make(
        asked: &Asked,
        binary: &Path,
        ground: &Ground,
        devices: &Devices,
        undo: &Undo,
    ) -> Result<Brick, String> {
        let on = ["--flash", &devices.flash, "--disk", &devices.disk, "--segment-size", &asked.segment_size, "--force"];
        Brick::on(binary, &ground.root, &on, &[], undo)
    }
    /// Formats devices as `on` says, and mounts the brick, all below `root`; its daemon starts with these options.
    pub fn on(binary: &Path, root: &Path, on: &[&str], options: &[&str], undo: &Undo) -> Result<Brick, String> {
        let [data, mount, log] = ["data", "mount", "log"].map(|name| root.join(name));
        std::fs::create_dir(&mount).map_err(|error| format!("{}: {error}", mount.display()))?;
        told(text(binary), &[&["format", text(&data)], on].concat())?;
        let mut brick = Brick { binary: binary.to_path_buf(), data, mount, log, daemon: None };
        brick.up(options, undo)?;
        Ok(brick)
    }
    /// Its mount point.
    pub fn mount(&self) -> &Path {
        &self.mount
    }
    /// A file of the volume.
    pub fn file(&self, name: &str) -> PathBuf {
        self.mount.join(name)
    }
    /// The size of a file that fills an empty brick as far as is wanted.
    pub fn filling_bytes(&self) -> Result<u64, String> {
        let size = self.status()?["size_bytes"].as_u64();
        let size = size.ok_or("sinter status tells no size_bytes")?;
        let mib = size * FILLED_PERCENT / 100 / MIB;
        Ok(mib * MIB)
    }
    /// The answer of `sinter status`.
    pub fn status(&self) -> Result<Value, String> {
        self.asked(&["status", text(&self.data)])
    }
    /// The answer of `sinter brick devices`.
    pub fn devices(&self) -> Result<Value, String> {
        self.asked(&["brick", "devices", text(&self.data)])
    }
    /// The answer of `sinter explain` about the next seconds.
    pub fn explained(&self, seconds: u64) -> Result<Value, String> {
        self.asked(&["explain", text(&self.data), "--seconds", &seconds.to_string()])
    }
    fn asked(&self, arguments: &[&str]) -> Result<Value, String> {
        let said = told(text(&self.binary), &[arguments, &["--json"]].concat())?;
        serde_json::from_str(&said).map_err(|error| format!("sinter {}: {error}: {said}", arguments.join(" ")))
    }
    /// Starts its daemon anew, which has then nothing in memory.
    pub fn restart(&mut self, undo: &Undo) -> Result<(), String> {
        self.restart_with(&[], undo)
    }
    /// The same, with options.
    pub fn restart_with(&mut self, options: &[&str], undo: &Undo) -> Result<(), String> {
        told(text(&self.binary), &["down", text(&self.data)])?;
        if let Some((mut daemon, how)) = self.daemon.take() {
            daemon.wait().map_err(|error| format!("{}: {error}", self.binary.display()))?;
            undo.forget(&how)?;
        }
        self.up(options, undo)
    }
    fn up(&mut self, options: &[&str], undo: &Undo) -> Result<(), String> {
        let places = Places { binary: &self.binary, brick: &self.data, mount: &self.mount, log: &self.log };
        self.daemon = Some(serve(in_own_session(), places, options, undo)?);
        Ok(())
    }
}
