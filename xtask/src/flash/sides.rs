//! The sides of the comparison: a directory of the file system below, volumes of Sinter, volumes of the peer.

use crate::flash::gluster;
use crate::flash::ground::{Ground, ended, make_directory, text, told};
use crate::flash::rows::Place;
use crate::flash::undo::{Undo, quoted};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A daemon may replay its log before it serves.
const READY_MAX: Duration = Duration::from_secs(120);

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
    daemon: Option<(Child, String)>,
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
        sinter.up(&["--size", &format!("{gib}G")], undo)?;
        Ok(Side { name: name.to_string(), place, directory: mount, kind: Kind::Sinter(sinter) })
    }
    /// A new volume of the peer, mounted.
    pub fn gluster(ground: &Ground, peer: &gluster::Peer, how: gluster::How, undo: &Undo) -> Result<Side, String> {
        let mount = ground.root.join("mount").join(how.name());
        make_directory(&mount)?;
        let brick = ground.xfs().join(how.name());
        let volume = peer.volume(how, &brick, &mount, undo)?;
        Ok(Side { name: how.name().to_string(), place: Place::Xfs, directory: mount, kind: Kind::Gluster(volume) })
    }
    /// Mounts it anew, so that it has forgotten what it cached beside the kernel.
    pub fn remount(&mut self, undo: &Undo) -> Result<(), String> {
        match &mut self.kind {
            Kind::Raw => Ok(()),
            Kind::Sinter(sinter) => {
                sinter.down(undo)?;
                sinter.up(&[], undo)
            }
            Kind::Gluster(volume) => volume.remount(undo),
        }
    }
    /// Starts Sinter anew with these options, and with variables in its environment from now on. Nothing happens to other sides.
    pub fn restart(&mut self, environment: &[(&str, &str)], options: &[&str], undo: &Undo) -> Result<(), String> {
        let Kind::Sinter(sinter) = &mut self.kind else { return Ok(()) };
        sinter.down(undo)?;
        sinter.environment = environment.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        sinter.up(options, undo)
    }
    /// Starts Sinter with so little memory that it has no read cache; True if this side is Sinter's.
    pub fn leave_read_cache(&mut self, undo: &Undo) -> Result<bool, String> {
        let Kind::Sinter(sinter) = &mut self.kind else { return Ok(false) };
        sinter.down(undo)?;
        sinter.up(&["--memory-max", "2G"], undo)?;
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
            Kind::Raw | Kind::Gluster(_) => None,
        }
    }
    /// Its daemons.
    pub fn daemons(&self) -> Result<Vec<u32>, String> {
        match &self.kind {
            Kind::Raw => Ok(Vec::new()),
            Kind::Sinter(sinter) => Ok(sinter.daemon.iter().map(|(process, _)| process.id()).collect()),
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

/// Starts a daemon by `sinter up` with more arguments, by `command`, which may go through others (taskset) and has the environment;
/// returns it once its volume is mounted, with the shell command that ends it, which is to be undone. Errors: it ends before that or
/// takes too long; what it has written to its log is told.
pub fn serve(command: Command, places: Places<'_>, more: &[&str], undo: &Undo) -> Result<(Child, String), String> {
    start(command, places, &[&["up", text(places.brick), text(places.mount)], more].concat(), undo)
}

/// The same with all arguments of a daemon that mounts, whose brick may also be a server's volume.
pub fn start(mut command: Command, places: Places<'_>, all: &[&str], undo: &Undo) -> Result<(Child, String), String> {
    let Places { binary, brick, mount, log } = places;
    let failed = |error: std::io::Error| format!("{}: {error}", log.display());
    let output = File::create(log).map_err(failed)?;
    let errors = output.try_clone().map_err(failed)?;
    command.arg(binary).args(all);
    let daemon = command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn();
    let mut daemon = daemon.map_err(|error| format!("{command:?}: {error}"))?;
    let how = ending(daemon.id(), binary, brick, mount);
    undo.add(&how)?;
    await_served(&mut daemon, places)?;
    Ok((daemon, how))
}

/// A command in a session of its own: Ctrl-C must not end a daemon before what works on it has ended.
pub fn in_own_session() -> Command {
    Command::new("setsid")
}

fn await_served(daemon: &mut Child, Places { binary, mount, log, .. }: Places<'_>) -> Result<(), String> {
    let began = Instant::now();
    while !is_mounted(mount, "fuse.sinter")? {
        let status = daemon.try_wait().map_err(|error| format!("{}: {error}", binary.display()))?;
        if status.is_some() || began.elapsed() > READY_MAX {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            return Err(format!("{} does not serve: {said}", binary.display()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The shell's way to end a daemon, whatever state it is in.
fn ending(process: u32, binary: &Path, brick: &Path, mount: &Path) -> String {
    let (binary, brick, mount) = (quoted(binary), quoted(brick), quoted(mount));
    let ended = ended(process, 60);
    let last = format!("mountpoint -q {mount} && {{ kill -9 {process}; umount -l {mount}; }}; ! mountpoint -q {mount}");
    // One that is just starting has no socket yet, but heeds signals.
    format!("{binary} down --timeout 60 {brick} || kill {process}; {ended}; {last}")
}

impl Sinter {
    fn up(&mut self, more: &[&str], undo: &Undo) -> Result<(), String> {
        let mut command = in_own_session();
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let places = Places { binary: &self.binary, brick: &self.brick, mount: &self.mount, log: &self.log };
        self.daemon = Some(serve(command, places, more, undo)?);
        Ok(())
    }
    fn down(&mut self, undo: &Undo) -> Result<(), String> {
        told(text(&self.binary), &["down", text(&self.brick)])?;
        let Some((mut daemon, how)) = self.daemon.take() else { return Ok(()) };
        daemon.wait().map_err(|error| format!("{}: {error}", self.binary.display()))?;
        undo.forget(&how)
    }
}
