//! A brick of flash and a disk, served and mounted.

use super::asked::Asked;
use crate::disk::{Disks, Place};
use crate::flash::ground::{Ground, looped_apart, text, told};
use crate::flash::sides::{Places, in_own_session, serve};
use crate::flash::undo::{Undo, quoted};
use crate::verdicts::load::{FILE, lay_out};
use crate::verdicts::process::Running;
use runtime::sim::spindle::Counters;
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Size of a small flash: the 4 GiB of segments that the product wants of a first device, and what comes before them.
pub const SMALL_FLASH_BYTES: u64 = 17 << 28;
/// Size of segments: of larger ones so small a flash would have too few to keep some free.
pub const SEGMENT_SIZE: &str = "8M";
/// The first disk's name among the run's own; a further one has its number behind it.
const DISK: &str = "hybrid";
/// The part of the brick that is filled.
const FILLED_PERCENT: u64 = 75;
const MIB: u64 = 1 << 20;

/// Flash and disks, before and below the brick.
pub struct Devices {
    flash: String,
    /// The first disk's device.
    pub disk: String,
    pub spindle: Place,
    /// The devices and places of the others.
    more: Vec<(String, Place)>,
    /// The shell command that lets the disk go on.
    pub goes_on: String,
}

impl Devices {
    /// Makes them.
    pub fn make(asked: &Asked, ground: &Ground, undo: &Undo) -> Result<Devices, String> {
        let flash = flash_device(&ground.root.join("flash"), asked.flash_bytes, undo)?;
        let root = ground.root.join("disks");
        let disks = Disks::below(&root)?;
        let disk = disks.make_during(undo, DISK, asked.disk_bytes())?;
        let named = (1..asked.disks).map(|number| format!("{DISK}{number}"));
        let more = named.map(|name| Ok((disks.make_during(undo, &name, asked.disk_bytes())?, disks.place(&name))));
        let more = more.collect::<Result<_, String>>()?;
        let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
        let (program, root) = (quoted(&program), quoted(&root));
        let goes_on = format!("{program} disk slow {DISK} 1 --dir {root}");
        Ok(Devices { flash, disk, spindle: disks.place(DISK), more, goes_on })
    }
    /// The counters of each disk.
    pub fn counters(&self) -> Result<Vec<Counters>, String> {
        let places = std::iter::once(&self.spindle).chain(self.more.iter().map(|(_, place)| place));
        places.map(Place::counters).collect()
    }
    /// The words of `sinter format` that name them.
    fn words(&self) -> Vec<&str> {
        let more = self.more.iter().map(|(device, _)| device.as_str());
        ["--flash", &self.flash, "--disk", &self.disk].into_iter().chain(more).collect()
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
        let on = [&devices.words()[..], &["--segment-size", &asked.segment_size, "--force"]].concat();
        Brick::on(binary, &ground.root, &on, &[], undo)
    }
    /// The same on one device of flash of so many bytes, all below a new directory.
    pub fn all_flash(
        asked: &Asked,
        binary: &Path,
        (root, bytes): (&Path, u64),
        options: &[&str],
        undo: &Undo,
    ) -> Result<Brick, String> {
        std::fs::create_dir(root).map_err(|error| format!("{}: {error}", root.display()))?;
        let flash = flash_device(&root.join("flash"), bytes, undo)?;
        let on = ["--flash", &flash, "--segment-size", &asked.segment_size, "--force"];
        Brick::on(binary, root, &on, options, undo)
    }
    /// Formats devices as `on` says, and mounts the brick, all below `root`; its daemon starts with these options.
    fn on(binary: &Path, root: &Path, on: &[&str], options: &[&str], undo: &Undo) -> Result<Brick, String> {
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
    /// Fills an empty one with a file, as far as is wanted.
    pub fn fill(&self, undo: &Undo) -> Result<(), String> {
        let size = self.status()?["size_bytes"].as_u64();
        let size = size.ok_or("sinter status tells no size_bytes")?;
        let mib = size * FILLED_PERCENT / 100 / MIB;
        eprintln!("writing a file of {mib} MiB in sequence");
        lay_out(&self.file(FILE), mib * MIB, undo)
    }
    /// A new directory, whose files belong on a tier: on `disk` once their segments are cleaned, or on `flash`.
    pub fn on_tier(&self, name: &str, tier: &str) -> Result<PathBuf, String> {
        let path = self.file(name);
        std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        told("setfattr", &["-n", "user.sinter.tier", "-v", tier, text(&path)])?;
        Ok(path)
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
    /// The answer of `sinter tiers`.
    pub fn tiers(&self) -> Result<Value, String> {
        self.asked(&["tiers", text(&self.data)])
    }
    /// Mounts a new volume that stays on flash.
    pub fn flash_only(&self, mount: &Path, undo: &Undo) -> Result<(), String> {
        let (data, volume) = (text(&self.data), "flash-only");
        std::fs::create_dir(mount).map_err(|error| format!("{}: {error}", mount.display()))?;
        told(text(&self.binary), &["volume", "create", data, volume])?;
        told(text(&self.binary), &["volume", "set", data, volume, "--policy", "flash-only"])?;
        // A daemon that ends unmounts all, unless it is killed.
        let mounted = quoted(mount);
        undo.add(&format!("! mountpoint -q {mounted} || umount -l {mounted}"))?;
        told(text(&self.binary), &["mount", data, volume, text(mount)]).map(drop)
    }
    /// Runs `sinter bench` with these arguments; what it tells.
    pub fn bench(&self, arguments: &[&str], undo: &Undo) -> Result<Value, String> {
        told_by_bench(Running::start(&mut self.bench_command(arguments), undo)?, undo)
    }
    /// Starts it; what it says of its course goes into a file.
    pub fn start_bench(&self, arguments: &[&str], course: &Path, undo: &Undo) -> Result<Running, String> {
        let file = File::create(course).map_err(|error| format!("{}: {error}", course.display()))?;
        Running::start(self.bench_command(arguments).stderr(file), undo)
    }
    fn bench_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg("bench").args(arguments).arg("--json").stdout(Stdio::piped());
        command
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

/// The figures of a bench that was started, at its end. Errors: it ended without any.
pub fn told_by_bench(bench: Running, undo: &Undo) -> Result<Value, String> {
    let said = bench.output(undo)?;
    // It fails if anything does, and tells the others' figures all the same.
    let told: Value = serde_json::from_str(&said).map_err(|error| format!("sinter bench: {error}: {said}"))?;
    told["notes"].as_array().into_iter().flatten().for_each(|note| eprintln!("{note}"));
    Ok(told)
}

/// A number that a command has told.
pub fn number(told: &Value, name: &str) -> Result<f64, String> {
    told[name].as_f64().ok_or_else(|| format!("no {name} is told: {told}"))
}
