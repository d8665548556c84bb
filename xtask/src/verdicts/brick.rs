//! A fresh brick on the disk, served by a test build and mounted, with the file that clients use.

use super::asked::Asked;
use super::cause::{Setup, Size};
use super::disk::Disk;
use super::load::{self, FILE};
use super::network::Link;
use super::slow_disk::Delays;
use super::tiers::Devices;
use crate::flash::ground::{Ground, make_directory, text, told};
use crate::flash::network::{self, PLACE};
use crate::flash::sides::{Places, in_own_session, serve};
use crate::flash::undo::Undo;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

/// Time after which the daemon's switches have heeded a change: twice as long as between two looks.
const HEEDED: Duration = Duration::from_millis(50);
/// The volume that `sinter up` mounts.
pub const VOLUME: &str = "default";
/// The directory of the file.
pub const TREE: &str = "/tree";
/// The other volume, where there is one.
const NEIGHBOUR: &str = "neighbour";

/// The devices that there are for bricks.
#[derive(Clone, Copy, Default)]
pub struct Below<'a> {
    /// The slow disk.
    pub disk: Option<&'a Disk>,
    /// Those of hybrid bricks.
    pub tiers: Option<&'a Devices>,
}

impl Below<'_> {
    /// Makes them as slow as a brick has them while nothing is injected.
    pub fn reset(&self, setup: &Setup) -> Result<(), String> {
        self.set(setup.disk.unwrap_or_default())?;
        self.set_slowness(setup, 1)
    }
    /// Makes the slow disk as slow as this.
    pub fn set(&self, delays: Delays) -> Result<(), String> {
        self.disk.map_or(Ok(()), |disk| disk.set(delays))
    }
    /// Makes the disk of a hybrid brick so many times as slow.
    pub fn set_slowness(&self, setup: &Setup, slowness: u64) -> Result<(), String> {
        let both = self.tiers.zip(setup.tiers);
        both.map_or(Ok(()), |(devices, tiers)| devices.set_slowness(&tiers, slowness))
    }
}

/// The brick.
pub struct Brick {
    pub setup: Setup,
    pub binary: PathBuf,
    /// Its directory.
    pub data: PathBuf,
    mount: PathBuf,
    /// The directory at which the other volume is mounted.
    neighbour: PathBuf,
    switches: PathBuf,
    log: PathBuf,
    daemon: Option<(Child, String)>,
    /// The way to the brick's server, if its volume is mounted by a client.
    pub link: Option<Link>,
}

impl Brick {
    /// Makes and mounts it, and lays the file out. `below`: what the setup needs.
    pub fn make(asked: &Asked, ground: &Ground, below: Below, setup: Setup, undo: &Undo) -> Result<Brick, String> {
        let [data, mount, switches, log] = ["data", "mount", "switches", "log"].map(|name| ground.root.join(name));
        let neighbour = ground.root.join(NEIGHBOUR);
        for directory in [&mount, &neighbour] {
            make_directory(directory)?;
        }
        below.set(Delays::default())?;
        below.set_slowness(&setup, 1)?;
        let binary = asked.sinter.clone();
        let on: Vec<&str> = match (below.disk.filter(|_| setup.disk.is_some()), below.tiers.zip(setup.tiers.as_ref())) {
            (Some(disk), _) => vec!["--size", "4G", "--force", "--device", &disk.device],
            (_, Some((devices, tiers))) => devices.words(tiers).to_vec(),
            _ => vec!["--size", "4G"],
        };
        told(text(&binary), &[&["format", text(&data)], &on[..]].concat())?;
        let link = if setup.network { Some(Link::make(undo)?) } else { None };
        let mut brick = Brick { setup, binary, data, mount, neighbour, switches, log, daemon: None, link };
        brick.switch("")?;
        if setup.network {
            brick.sinter(&["volume", "create", text(&brick.data), VOLUME])?;
        }
        brick.up(undo)?;
        if let Some(tiers) = setup.tiers {
            brick.sinter(&["volume", "set", text(&brick.data), VOLUME, "--policy", tiers.policy])?;
        }
        let bytes = match setup.file {
            Size::Bytes(bytes) => bytes,
            Size::Percent(percent) => brick.free_bytes()? * percent / 100,
        };
        make_directory(&brick.mount.join(&TREE[1..]))?;
        let mut files = vec![brick.file()];
        if setup.neighbour {
            brick.sinter(&["volume", "create", text(&brick.data), NEIGHBOUR])?;
            brick.sinter(&["mount", text(&brick.data), NEIGHBOUR, text(&brick.neighbour)])?;
            files.push(brick.neighbours_file());
        }
        for file in &files {
            load::lay_out(file, bytes, undo)?;
        }
        if let Some((load, seconds)) = setup.before {
            for file in &files {
                let running = load.start(file, undo)?;
                std::thread::sleep(Duration::from_secs(seconds));
                running.stop(undo)?;
            }
        }
        if setup.cold {
            // What was written is in memory until a checkpoint.
            brick.down(undo)?;
            brick.up(undo)?;
        }
        below.reset(&setup)?;
        Ok(brick)
    }
    /// The file.
    pub fn file(&self) -> PathBuf {
        self.mount.join(&TREE[1..]).join(FILE)
    }
    /// The file of the other volume.
    pub fn neighbours_file(&self) -> PathBuf {
        self.neighbour.join(FILE)
    }
    /// Its name for the daemon that mounts it.
    pub fn subject(&self) -> PathBuf {
        if self.setup.network { PLACE.into() } else { self.data.clone() }
    }
    /// The daemon's process.
    pub fn process(&self) -> u32 {
        let client = self.link.as_ref().and_then(Link::client);
        client.unwrap_or_else(|| self.daemon.as_ref().expect("a brick that was made is served").0.id())
    }
    /// Runs a command of the brick's build.
    pub fn sinter(&self, arguments: &[&str]) -> Result<String, String> {
        told(text(&self.binary), arguments)
    }
    /// Sets the test build's switches, and waits until they are heeded.
    pub fn switch(&self, text: &str) -> Result<(), String> {
        std::fs::write(&self.switches, text).map_err(|error| format!("{}: {error}", self.switches.display()))?;
        std::thread::sleep(HEEDED);
        Ok(())
    }
    /// Ends it, and removes its directory.
    pub fn remove(mut self, undo: &Undo) -> Result<(), String> {
        self.down(undo)?;
        if let Some(link) = self.link.take() {
            link.remove(undo)?;
        }
        let gone = |path: &Path| std::fs::remove_dir_all(path).map_err(|error| format!("{}: {error}", path.display()));
        if self.setup.network {
            gone(&self.membership())?;
        }
        gone(&self.data)
    }
    /// The directory with the client's membership.
    fn membership(&self) -> PathBuf {
        self.log.with_extension("network")
    }
    fn free_bytes(&self) -> Result<u64, String> {
        let said = told("stat", &["-f", "-c", "%a %S", text(&self.mount)])?;
        let product = said.split(' ').map(|word| word.parse::<u64>().ok()).product::<Option<u64>>();
        product.ok_or_else(|| format!("stat -f {}: {said}", self.mount.display()))
    }
    fn up(&mut self, undo: &Undo) -> Result<(), String> {
        let directory = self.membership();
        if let Some(link) = &mut self.link {
            let (binary, brick, mount) = (&*self.binary, &*self.data, &*self.mount);
            let places = network::Places { binary, brick, mount, directory: &directory, behind: None };
            let switches = ("SINTER_TEST_DELAYS".to_string(), text(&self.switches).to_string());
            return link.up(places, &[switches], undo);
        }
        let mut command = in_own_session();
        if let Some(cpus) = self.setup.cpus {
            command.args(["taskset", "-c", cpus]);
        }
        command.env("SINTER_TEST_DELAYS", &self.switches);
        command.env("SINTER_TEST_COLD", if self.setup.cold { "1" } else { "0" });
        let places = Places { binary: &self.binary, brick: &self.data, mount: &self.mount, log: &self.log };
        self.daemon = Some(serve(command, places, &["--memory-max", self.setup.memory], undo)?);
        Ok(())
    }
    fn down(&mut self, undo: &Undo) -> Result<(), String> {
        self.switch("")?;
        if let Some(link) = &mut self.link {
            return link.down(undo);
        }
        self.sinter(&["down", text(&self.data)])?;
        let Some((mut daemon, how)) = self.daemon.take() else { return Ok(()) };
        daemon.wait().map_err(|error| format!("{}: {error}", self.binary.display()))?;
        undo.forget(&how)
    }
}
