//! The directory of a disk, and what makes, finds and removes all that belongs to it. Commands that change something hold one lock,
//! and each server holds another while it lives, so nobody has to trust what a killed one wrote.

use super::{SERVE, counted, queue};
use crate::flash::ground::{text, told};
use crate::flash::undo::{Undo, quoted};
use crate::served::{self, failed};
use runtime::sim::spindle::Counters;
use rustix::mount::{UnmountFlags, unmount};
use std::fs::{File, Metadata, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time after which a disk's server must serve, and after which what was told to end must have ended.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time after which a loop device that nobody uses is gone.
const PATIENCE_LOOP: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);
/// More than the figures take.
const FIGURES_BYTES_MAX: usize = 4096;

/// The directory of all disks.
pub struct Disks {
    root: PathBuf,
}

/// The directory of one.
pub struct Place {
    dir: PathBuf,
}

/// Waits until something is so. False: it never was.
fn wait_for(patience: Duration, mut is_so: impl FnMut() -> Result<bool, String>) -> Result<bool, String> {
    let began = Instant::now();
    while !is_so()? {
        if began.elapsed() > patience {
            return Ok(false);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(true)
}

impl Disks {
    /// The disks below a directory, which need not be there; the one above it must.
    pub fn below(root: &Path) -> Result<Disks, String> {
        let whole = std::path::absolute(root).map_err(|error| failed(root, error))?;
        let (Some(above), Some(name)) = (whole.parent(), whole.file_name()) else {
            return Err(format!("{}: not a directory for disks", root.display()));
        };
        // The kernel names files by their whole paths, without links.
        let above = std::fs::canonicalize(above).map_err(|error| failed(above, error))?;
        Ok(Disks { root: above.join(name) })
    }
    /// Makes a disk that goes with a run, however that ends.
    pub fn make_during(&self, undo: &Undo, name: &str, bytes: u64) -> Result<String, String> {
        let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
        let (program, root, place) = (quoted(&program), quoted(&self.root), quoted(&self.place(name).dir));
        undo.add(&format!("[ ! -d {place} ] || {program} disk drop {name} --dir {root}"))?;
        self.make(name, bytes)
    }
    /// The place of a disk, whether it is there or not.
    pub fn place(&self, name: &str) -> Place {
        Place { dir: self.root.join(name) }
    }
    /// The names of all, with those of which only something is left.
    pub fn names(&self) -> Result<Vec<String>, String> {
        let entries = match std::fs::read_dir(&self.root) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| failed(&self.root, error))?,
        };
        let dirs = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let mut names: Vec<String> = dirs.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }
    /// Makes the directory, and holds back all other commands until it is dropped.
    fn lock(&self) -> Result<File, String> {
        let number = |metadata: std::io::Result<Metadata>| metadata.map_or(0, |metadata| metadata.ino());
        loop {
            let opened = std::fs::create_dir_all(&self.root).and_then(|()| File::open(&self.root));
            let file = opened.map_err(|error| failed(&self.root, error))?;
            file.lock().map_err(|error| failed(&self.root, error))?;
            // Whoever held it may have removed it.
            if number(file.metadata()) == number(std::fs::metadata(&self.root)) {
                return Ok(file);
            }
        }
    }
    /// Makes a disk; its device. What is left of others is taken back before.
    pub fn make(&self, name: &str, bytes: u64) -> Result<String, String> {
        let _held = self.lock()?;
        for other in self.names()? {
            let place = self.place(&other);
            if place.whole().is_some() {
                if other == name {
                    return Err(format!("there is a disk {name} already: cargo xtask disk drop {name}"));
                }
            } else if let Err(error) = place.remove() {
                eprintln!("what is left of the disk {other} stays: {error}");
            }
        }
        let place = self.place(name);
        place.make(bytes).map_err(|error| match place.remove() {
            Ok(()) => error,
            Err(more) => format!("{error}\n{more}"),
        })
    }
    /// Takes disks back, and the directory with the last of them.
    pub fn drop(&self, names: &[String]) -> Result<(), String> {
        let _held = self.lock()?;
        let mut errors = Vec::new();
        for name in names {
            let place = self.place(name);
            match place.dir.exists() {
                true => errors.extend(place.remove().err()),
                false => errors.push(format!("there is no disk {name}: cargo xtask disk list")),
            }
        }
        match std::fs::remove_dir(&self.root) {
            Err(error) if error.kind() != ErrorKind::DirectoryNotEmpty => errors.push(failed(&self.root, error)),
            _ => {}
        }
        if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
    }
}

impl Place {
    fn backing(&self) -> PathBuf {
        self.dir.join("backing")
    }
    fn mount(&self) -> PathBuf {
        self.dir.join("mount")
    }
    fn log(&self) -> PathBuf {
        self.dir.join("log")
    }
    fn server(&self) -> PathBuf {
        self.dir.join("server")
    }
    /// Its size.
    pub fn bytes(&self) -> u64 {
        std::fs::metadata(self.backing()).map_or(0, |metadata| metadata.len())
    }
    /// Its device, if all of it is there; it is not while `make` is under way.
    pub fn whole(&self) -> Option<String> {
        // Written last.
        let told = std::fs::read_to_string(self.dir.join("device")).ok()?;
        let attached = queue::attached(&self.mount()).ok()?;
        (self.is_served() && attached == [told.as_str()]).then_some(told)
    }
    /// The file of its state.
    fn state(&self) -> Result<PathBuf, String> {
        if !self.is_served() {
            let dir = self.dir.display();
            return Err(format!("{dir}: nobody serves it: cargo xtask disk list says which disks there are"));
        }
        Ok(self.mount().join(served::STATE))
    }
    /// Makes all that it does take so many times as long from now on.
    pub fn set_slowness(&self, slowness: u64) -> Result<(), String> {
        let path = self.state()?;
        // In one write: each is a change of its own.
        let change = format!("slowness {slowness}");
        let written = File::options().write(true).open(&path).and_then(|mut file| file.write_all(change.as_bytes()));
        written.map_err(|error| failed(&path, error))
    }
    /// The work of its spindle so far.
    pub fn counters(&self) -> Result<Counters, String> {
        let path = self.state()?;
        // In one read: the text is another at each.
        let mut text = vec![0; FIGURES_BYTES_MAX];
        let bytes = File::open(&path).and_then(|mut file| file.read(&mut text));
        let bytes = bytes.map_err(|error| failed(&path, error))?;
        let text = String::from_utf8_lossy(&text[..bytes]);
        counted::read(&text).ok_or_else(|| format!("{}: not understood: {text}", path.display()))
    }
    /// True while its server lives.
    fn is_served(&self) -> bool {
        let Ok(file) = File::open(self.server()) else { return false };
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
    }
    /// True while its file system is mounted, whether it is served or not.
    fn is_mounted(&self) -> Result<bool, String> {
        let path = Path::new("/proc/self/mountinfo");
        let all = std::fs::read_to_string(path).map_err(|error| failed(path, error))?;
        let mount = self.mount();
        Ok(all.lines().any(|line| line.split(' ').nth(4).is_some_and(|word| Path::new(word) == mount)))
    }
    fn make(&self, bytes: u64) -> Result<String, String> {
        let made = |path: &Path, done: std::io::Result<()>| done.map_err(|error| failed(path, error));
        made(&self.dir, std::fs::create_dir(&self.dir))?;
        made(&self.mount(), std::fs::create_dir(self.mount()))?;
        made(&self.backing(), File::create(self.backing()).and_then(|file| file.set_len(bytes)))?;
        let mut server = self.start()?;
        let file = self.mount().join(served::NAME);
        let serves = wait_for(PATIENCE, || match server.try_wait() {
            Ok(Some(_)) => Err(self.complaint()),
            _ => Ok(file.exists()),
        })?;
        if !serves {
            return Err(self.complaint());
        }
        let device = queue::attach(&file)?;
        made(&self.dir.join("device"), std::fs::write(self.dir.join("device"), &device))?;
        Ok(device)
    }
    fn complaint(&self) -> String {
        let said = std::fs::read_to_string(self.log()).unwrap_or_default();
        format!("the disk's server does not serve; it needs /dev/fuse: {}", said.trim())
    }
    /// Starts the server, in a session of its own: it outlives this command.
    fn start(&self) -> Result<Child, String> {
        let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
        let log = File::create(self.log()).map_err(|error| failed(&self.log(), error))?;
        // The lock goes with the open file: it is held as long as the server lives, and from its first moment.
        let lock = File::create(self.server()).and_then(|file| file.lock().map(|()| file));
        let lock = lock.map_err(|error| failed(&self.server(), error))?;
        let mut command = Command::new("setsid");
        // A real disk waits for no CPU.
        command.args(["chrt", "--fifo", "1"]).arg(program).args(["disk", SERVE]);
        command.args([self.backing(), self.mount(), self.server()]);
        command.stdin(lock).stdout(Stdio::null()).stderr(log);
        command.spawn().map_err(|error| format!("setsid (package util-linux): {error}"))
    }
    /// Removes all that there is of it, in whatever state that is.
    fn remove(&self) -> Result<(), String> {
        let mount = self.mount();
        for device in queue::attached(&mount)? {
            told("losetup", &["--detach", &device])?;
        }
        if !wait_for(PATIENCE_LOOP, || Ok(queue::attached(&mount)?.is_empty()))? {
            let devices = queue::attached(&mount)?.join(" ");
            return Err(format!(
                "{devices} is in use: unmount what is on it and end who has it open, then drop it again"
            ));
        }
        // A server that has just begun has yet to mount.
        let ended = || self.unmount().map(|()| !self.is_served());
        if !wait_for(PATIENCE, ended)? {
            self.kill()?;
        }
        self.unmount()?;
        std::fs::remove_dir_all(&self.dir).map_err(|error| failed(&self.dir, error))
    }
    /// Unmounts it at once, though somebody may look at its figures.
    fn unmount(&self) -> Result<(), String> {
        let mount = self.mount();
        while self.is_mounted()? {
            unmount(&mount, UnmountFlags::DETACH).map_err(|error| failed(&mount, error.into()))?;
        }
        Ok(())
    }
    /// Ends a server that does not end by itself.
    fn kill(&self) -> Result<(), String> {
        let number = std::fs::read_to_string(self.server()).map_err(|error| failed(&self.server(), error))?;
        let said = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        let backing = self.backing();
        if !said.split(|byte| *byte == 0).any(|word| word == text(&backing).as_bytes()) {
            return Err(format!("{} is held by a process that is not its server", self.server().display()));
        }
        told("kill", &["-KILL", &number])?;
        match wait_for(PATIENCE, || Ok(!self.is_served()))? {
            true => Ok(()),
            false => Err(format!("process {number} does not end: it serves {}", backing.display())),
        }
    }
}
