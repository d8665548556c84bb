//! The sides of the comparison: a directory of the file system below, volumes of Sinter, volumes of the peer.

use crate::flash::cluster::{self, Cluster};
use crate::flash::gluster;
use crate::flash::ground::{Ground, ended, make_directory, text, told};
use crate::flash::network::{self, Network};
use crate::flash::rows::Place;
use crate::flash::undo::{Undo, quoted};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Memory of a daemon that leaves it no read cache.
pub const LITTLE_MEMORY: &str = "2G";
/// A daemon may replay its log before it serves.
pub const READY_MAX: Duration = Duration::from_secs(120);

/// A side, and where it is worked on.
pub struct Side {
    pub name: String,
    pub place: Place,
    /// The directory for files.
    pub directory: PathBuf,
    kind: Kind,
}

enum Kind {
    Raw,
    Sinter(Sinter),
    Cluster(Cluster),
    Gluster(gluster::Volume),
}

/// A brick that is served.
struct Sinter {
    binary: PathBuf,
    brick: PathBuf,
    mount: PathBuf,
    log: PathBuf,
    /// Variables of the daemon's environment.
    environment: Vec<(String, String)>,
    daemon: Option<Daemon>,
}

/// The daemons of a brick that is mounted.
enum Daemon {
    /// One, with the mount.
    Own(Started),
    /// A server's and a client's.
    Network(Network),
}

/// The way from a mount to its brick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    /// They are in one daemon.
    Nothing,
    /// Loopback, by TLS.
    Network,
}

impl Side {
    /// A directory on the file system itself.
    pub fn raw(ground: &Ground, place: Place) -> Result<Side, String> {
        let directory = home(ground, place).join("raw");
        make_directory(&directory)?;
        Ok(Side { name: "raw".to_string(), place, directory, kind: Kind::Raw })
    }
    /// A new brick of a build of Sinter, mounted.
    pub fn sinter(
        ground: &Ground,
        place: Place,
        name: &str,
        binary: &Path,
        gib: u64,
        undo: &Undo,
    ) -> Result<Side, String> {
        let on = if place == Place::Xfs { name.to_string() } else { format!("{name}-ext4") };
        let mount = ground.root.join("mount").join(&on);
        make_directory(&mount)?;
        let brick = home(ground, place).join(&on);
        let log = ground.root.join(format!("{on}.log"));
        let (binary, environment) = (binary.to_path_buf(), Vec::new());
        let mut sinter = Sinter { binary, brick, mount: mount.clone(), log, environment, daemon: None };
        sinter.up(Over::Nothing, &["--size", &format!("{gib}G")], undo)?;
        Ok(Side { name: name.to_string(), place, directory: mount, kind: Kind::Sinter(sinter) })
    }
    /// A new cluster of a build of Sinter, whose bricks have so many GiB, and a client that mounts its volume. The number is the build's.
    pub fn cluster(
        ground: &Ground,
        (name, binary): (&str, &Path),
        number: usize,
        gib: u64,
        undo: &Undo,
    ) -> Result<Side, String> {
        let mount = ground.root.join("mount").join(name);
        make_directory(&mount)?;
        let (bricks, directory) = (ground.xfs().join(name), ground.root.join(format!("{name}.cluster")));
        let places = cluster::Places { binary, name, bricks: &bricks, directory: &directory, mount: &mount, number };
        let kind = Kind::Cluster(Cluster::make(places, gib, undo)?);
        Ok(Side { name: name.to_string(), place: Place::Xfs, directory: mount, kind })
    }
    /// A new volume of the peer with so many copies, mounted.
    pub fn gluster(
        ground: &Ground,
        peer: &gluster::Peer,
        (how, copies): (gluster::How, u64),
        undo: &Undo,
    ) -> Result<Side, String> {
        let mount = ground.root.join("mount").join(how.name());
        make_directory(&mount)?;
        let volume = peer.volume(how, (&ground.xfs(), copies), &mount, undo)?;
        Ok(Side { name: how.name().to_string(), place: Place::Xfs, directory: mount, kind: Kind::Gluster(volume) })
    }
    /// Mounts it anew, so that it has forgotten what it cached beside the kernel; of a cluster the client has, and nodes cache no data.
    pub fn remount(&mut self, undo: &Undo) -> Result<(), String> {
        match &mut self.kind {
            Kind::Raw => Ok(()),
            Kind::Sinter(sinter) => {
                sinter.down(undo)?;
                sinter.up(Over::Nothing, &[], undo)
            }
            Kind::Cluster(cluster) => cluster.remount(&[], undo),
            Kind::Gluster(volume) => volume.remount(undo),
        }
    }
    /// Starts Sinter anew, mounted that way, with these options, and with variables in its environment from now on. Nothing happens to
    /// other sides.
    pub fn restart(
        &mut self,
        over: Over,
        environment: &[(&str, &str)],
        options: &[&str],
        undo: &Undo,
    ) -> Result<(), String> {
        let Kind::Sinter(sinter) = &mut self.kind else { return Ok(()) };
        sinter.down(undo)?;
        sinter.environment = environment.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        sinter.up(over, options, undo)
    }
    /// Starts Sinter with so little memory that it has no read cache; True if this side is Sinter's.
    pub fn leave_read_cache(&mut self, undo: &Undo) -> Result<bool, String> {
        let little = ["--memory-max", LITTLE_MEMORY];
        match &mut self.kind {
            Kind::Raw | Kind::Gluster(_) => return Ok(false),
            Kind::Cluster(cluster) => cluster.remount(&little, undo)?,
            Kind::Sinter(sinter) => {
                sinter.down(undo)?;
                sinter.up(Over::Nothing, &little, undo)?;
            }
        }
        Ok(true)
    }
    /// A volume of the peer's.
    pub fn is_peer(&self) -> bool {
        matches!(self.kind, Kind::Gluster(_))
    }
    /// The brick behind it.
    pub fn brick(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Sinter(sinter) => Some(&sinter.brick),
            Kind::Raw | Kind::Cluster(_) | Kind::Gluster(_) => None,
        }
    }
    /// Its daemons.
    pub fn daemons(&self) -> Result<Vec<u32>, String> {
        match &self.kind {
            Kind::Raw => Ok(Vec::new()),
            Kind::Sinter(sinter) => Ok(sinter.daemons()),
            Kind::Cluster(cluster) => Ok(cluster.daemons()),
            Kind::Gluster(volume) => volume.daemons(),
        }
    }
}

fn home(ground: &Ground, place: Place) -> PathBuf {
    if place == Place::Xfs { ground.xfs() } else { ground.root.clone() }
}

/// True if something of this kind is mounted there.
pub fn is_mounted(mount: &Path, kind: &str) -> Result<bool, String> {
    let mounts = std::fs::read_to_string("/proc/mounts").map_err(|error| format!("/proc/mounts: {error}"))?;
    let wanted = [text(mount), kind];
    Ok(mounts.lines().any(|line| line.split(' ').skip(1).take(2).eq(wanted)))
}

/// The places of a daemon that the workshop starts.
#[derive(Clone, Copy)]
pub struct Places<'a> {
    pub binary: &'a Path,
    pub brick: &'a Path,
    pub mount: &'a Path,
    pub log: &'a Path,
}

/// A daemon, and the shell command that ends it, which is to be undone.
pub type Started = (Child, String);

/// Starts a daemon by `sinter up` with more arguments, by `command`, which may go through others (taskset) and has the environment;
/// returns it once its volume is mounted. Errors: it ends before that or takes too long; what it has written to its log is told.
pub fn serve(mut command: Command, places: Places<'_>, more: &[&str], undo: &Undo) -> Result<Started, String> {
    let Places { binary, brick, mount, log } = places;
    command.arg(binary).args(["up", text(brick), text(mount)]).args(more);
    let mut started = start(command, log, |process| ending(process, binary, brick, mount), undo)?;
    await_sign(&mut started.0, log, || is_mounted(mount, "fuse.sinter"))?;
    Ok(started)
}

/// Starts a daemon that writes to a log, and notes how it is ended, by its process.
pub fn start(mut command: Command, log: &Path, ending: impl Fn(u32) -> String, undo: &Undo) -> Result<Started, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", log.display());
    let output = File::create(log).map_err(failed)?;
    let errors = output.try_clone().map_err(failed)?;
    let daemon = command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn();
    let daemon = daemon.map_err(|error| format!("{command:?}: {error}"))?;
    let how = ending(daemon.id());
    undo.add(&how)?;
    Ok((daemon, how))
}

/// A command in a session of its own: Ctrl-C must not end a daemon before what works on it has ended.
pub fn in_own_session() -> Command {
    Command::new("setsid")
}

/// Waits until a daemon serves. Errors: it ends before that or takes too long.
pub fn await_sign(daemon: &mut Child, log: &Path, serves: impl Fn() -> Result<bool, String>) -> Result<(), String> {
    let began = Instant::now();
    while !serves()? {
        let status = daemon.try_wait().map_err(|error| format!("{}: {error}", log.display()))?;
        if status.is_some() || began.elapsed() > READY_MAX {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            return Err(format!("a daemon does not serve: {said}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The shell's way to end a daemon, whatever state it is in.
pub fn ending(process: u32, binary: &Path, brick: &Path, mount: &Path) -> String {
    let (binary, brick, mount) = (quoted(binary), quoted(brick), quoted(mount));
    let ended = ended(process, 60);
    let last = format!("mountpoint -q {mount} && {{ kill -9 {process}; umount -l {mount}; }}; ! mountpoint -q {mount}");
    // One that is just starting has no socket yet, but heeds signals.
    format!("{binary} down --timeout 60 {brick} || kill {process}; {ended}; {last}")
}

impl Sinter {
    fn up(&mut self, over: Over, more: &[&str], undo: &Undo) -> Result<(), String> {
        let Sinter { binary, brick, mount, log, environment, .. } = self;
        self.daemon = Some(match over {
            Over::Nothing => {
                let mut command = in_own_session();
                command.envs(environment.iter().map(|(name, value)| (name, value)));
                Daemon::Own(serve(command, Places { binary, brick, mount, log }, more, undo)?)
            }
            Over::Network => {
                let directory = &log.with_extension("network");
                let places = network::Places { binary, brick, mount, directory, behind: None };
                Daemon::Network(Network::up(places, environment, more, undo)?)
            }
        });
        Ok(())
    }
    fn down(&mut self, undo: &Undo) -> Result<(), String> {
        match self.daemon.take() {
            None => Ok(()),
            Some(Daemon::Network(network)) => network.down(undo),
            Some(Daemon::Own((mut daemon, how))) => {
                told(text(&self.binary), &["down", text(&self.brick)])?;
                daemon.wait().map_err(|error| format!("{}: {error}", self.binary.display()))?;
                undo.forget(&how)
            }
        }
    }
    fn daemons(&self) -> Vec<u32> {
        match &self.daemon {
            None => Vec::new(),
            Some(Daemon::Own((process, _))) => vec![process.id()],
            Some(Daemon::Network(network)) => network.daemons().to_vec(),
        }
    }
}
