//! The peer: GlusterFS with volumes of one brick, or of three that have the same, over loopback, served by a management daemon of this
//! run's own. CPU is that of bricks and mounts. The self-heal daemon of volumes with copies, which all of them share, is left out: it has
//! nothing to do while all bricks are there.

use crate::flash::ground::{Ground, ended, text, told, unmounted, with_argument};
use crate::flash::sides::is_mounted;
use crate::flash::undo::{Undo, quoted};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// An address of the loopback device: the peer refuses 127.0.0.1 as that of a brick.
const HOST: &str = "127.0.0.2";
/// Longest wait until a daemon answers.
const READY_MAX: Duration = Duration::from_secs(60);

/// Options that make the peer faster on one flash device: direct I/O reaches it, nothing is cached twice, more threads.
const TUNED: [(&str, &str); 10] = [
    ("performance.strict-o-direct", "on"),
    ("network.remote-dio", "disable"),
    ("performance.stat-prefetch", "on"),
    ("performance.read-ahead", "off"),
    ("performance.io-cache", "off"),
    ("performance.quick-read", "off"),
    ("performance.open-behind", "off"),
    ("client.event-threads", "4"),
    ("server.event-threads", "4"),
    ("performance.client-io-threads", "on"),
];
const TUNED_MOUNT: &str = "reader-thread-count=4";

/// The settings of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Tuned,
    Default,
}

impl How {
    /// Its side's and its volume's name.
    pub fn name(self) -> &'static str {
        match self {
            How::Tuned => "gluster-tuned",
            How::Default => "gluster-default",
        }
    }
}

/// The management daemon.
pub struct Peer {
    socket: PathBuf,
}

/// A volume, mounted.
pub struct Volume {
    how: How,
    /// One, or its copies.
    bricks: Vec<PathBuf>,
    mount: PathBuf,
    mounted: String,
}

/// The management daemon's settings, with all that it writes below `home`.
fn settings(home: &Path) -> String {
    let home = home.display();
    format!(
        "volume management\n    type mgmt/glusterd\n    option working-directory {home}/state\n    \
         option run-directory {home}/run\n    option logging-directory {home}/log\n    \
         option glusterd-sockfile {home}/socket\n    option transport-type socket\n    \
         option transport.socket.listen-port 24007\n    option max-port 60999\nend-volume\n"
    )
}

/// The bricks of a volume.
fn bricks(directory: &Path, how: How, copies: u64) -> Vec<PathBuf> {
    match copies {
        1 => vec![directory.join(how.name())],
        _ => (1..=copies).map(|number| directory.join(format!("{}-{number}", how.name()))).collect(),
    }
}

/// The words that create a volume. All bricks are on one machine, which has to be forced if they are copies.
fn creating(name: &str, bricks: &[PathBuf]) -> Vec<String> {
    let mut words: Vec<String> = ["volume", "create", name].map(str::to_string).to_vec();
    if bricks.len() > 1 {
        words.extend(["replica".to_string(), bricks.len().to_string()]);
    }
    words.extend(["transport", "tcp"].map(str::to_string));
    words.extend(bricks.iter().map(|brick| format!("{HOST}:{}", brick.display())));
    words.push("force".to_string());
    words
}

impl Peer {
    /// Starts the management daemon: itself, for there may be no service manager.
    pub fn start(ground: &Ground, undo: &Undo) -> Result<Peer, String> {
        if told("pidof", &["glusterd"]).is_ok() {
            return Err(
                "a glusterd runs here, and this needs its port: end it (systemctl stop glusterd), or leave gluster \
                        out by --sides"
                    .to_string(),
            );
        }
        let home = ground.root.join("gluster");
        for part in ["state", "run", "log"] {
            std::fs::create_dir_all(home.join(part)).map_err(|error| format!("{}: {error}", home.display()))?;
        }
        let (file, number, log) = (home.join("glusterd.vol"), home.join("glusterd.pid"), home.join("log/glusterd.log"));
        std::fs::write(&file, settings(&home)).map_err(|error| format!("{}: {error}", file.display()))?;
        // Told before it starts: it leaves this process at once.
        let (shown, wait) = (quoted(&number), ended(0, 30).replace("/proc/0/", "/proc/$pid/"));
        undo.add(&format!("[ ! -e {shown} ] || {{ pid=$(cat {shown}); kill $pid; {wait}; }}"))?;
        told("setsid", &["glusterd", "-f", text(&file), "-p", text(&number), "-l", text(&log)])?;
        let peer = Peer { socket: home.join("socket") };
        let began = Instant::now();
        while let Err(error) = peer.gluster(&["volume", "list"]) {
            if began.elapsed() > READY_MAX {
                return Err(format!("glusterd does not answer: {error}"));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(peer)
    }
    fn words<'a>(&'a self, words: &[&'a str]) -> Vec<String> {
        let own = ["--mode=script".to_string(), format!("--glusterd-sock={}", self.socket.display())];
        own.into_iter().chain(words.iter().map(|word| word.to_string())).collect()
    }
    fn gluster(&self, words: &[&str]) -> Result<String, String> {
        let words = self.words(words);
        told("gluster", &words.iter().map(String::as_str).collect::<Vec<_>>())
    }
    /// Makes a volume of one brick in a directory, or of several that have the same, and mounts it.
    pub fn volume(
        &self,
        how: How,
        (directory, copies): (&Path, u64),
        mount: &Path,
        undo: &Undo,
    ) -> Result<Volume, String> {
        let (name, bricks) = (how.name(), bricks(directory, how, copies));
        self.gluster(&creating(name, &bricks).iter().map(String::as_str).collect::<Vec<_>>())?;
        if how == How::Tuned {
            for (option, value) in TUNED {
                self.gluster(&["volume", "set", name, option, value])?;
            }
        }
        undo.add(&self.stopping(name, &bricks))?;
        self.gluster(&["volume", "start", name])?;
        let mut volume = Volume { how, bricks, mount: mount.to_path_buf(), mounted: String::new() };
        volume.up(undo)?;
        Ok(volume)
    }
    /// The shell's way to stop a volume. The peer says "stopped" a little before the bricks' processes have ended.
    fn stopping(&self, name: &str, bricks: &[PathBuf]) -> String {
        let words = self.words(&["volume", "stop", name, "force"]);
        let stop: Vec<String> = words.iter().map(|word| quoted(word.as_ref())).collect();
        let bricks: Vec<String> = bricks.iter().map(|brick| format!("-e {}", quoted(brick))).collect();
        let is_there = format!("grep -qsF {} /proc/[0-9]*/cmdline --exclude=/proc/self/cmdline", bricks.join(" "));
        let wait = format!("n=0; while {is_there} && [ $n -lt 5 ]; do sleep 0.2; n=$((n+1)); done");
        format!("gluster {}; {wait}", stop.join(" "))
    }
}

impl Volume {
    fn up(&mut self, undo: &Undo) -> Result<(), String> {
        let (source, mount) = (format!("{HOST}:/{}", self.how.name()), text(&self.mount));
        let options: &[&str] = if self.how == How::Tuned { &["-o", TUNED_MOUNT] } else { &[] };
        self.mounted = unmounted(&self.mount);
        undo.add(&self.mounted)?;
        told("mount", &[&["-t", "glusterfs"], options, &[&source, mount]].concat())?;
        self.proved()
    }
    /// mount(8) may say nothing though nothing serves: what is written there must lie in all bricks. Of several, some may not be reached
    /// yet: what is written until then would have to be healed.
    fn proved(&self) -> Result<(), String> {
        let wrong = |error| format!("the peer's mount does not serve: {}: {error}", self.mount.display());
        if !is_mounted(&self.mount, "fuse.glusterfs")? {
            return Err(wrong(std::io::Error::other("nothing is mounted")));
        }
        let began = Instant::now();
        for number in 0.. {
            let name = format!("proof-{number}");
            let above = self.mount.join(&name);
            std::fs::write(&above, "it serves").map_err(wrong)?;
            let is_there = |brick: &PathBuf| std::fs::read(brick.join(&name)).is_ok_and(|proof| proof == b"it serves");
            let lacking = self.bricks.iter().find(|brick| !is_there(brick));
            std::fs::remove_file(above).map_err(wrong)?;
            match lacking {
                None => break,
                Some(brick) if self.bricks.len() == 1 || began.elapsed() > READY_MAX => {
                    let what = format!("{} does not hold what was written", brick.display());
                    return Err(wrong(std::io::Error::other(what)));
                }
                Some(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        }
        Ok(())
    }
    /// Mounts it anew.
    pub fn remount(&mut self, undo: &Undo) -> Result<(), String> {
        told("umount", &[text(&self.mount)])?;
        undo.forget(&self.mounted)?;
        self.up(undo)
    }
    /// The bricks' processes and the mount's.
    pub fn daemons(&self) -> Result<Vec<u32>, String> {
        let words: Vec<&str> = self.bricks.iter().chain([&self.mount]).map(|path| text(path)).collect();
        let found = with_argument(&words)?;
        match found.len() == words.len() {
            true => Ok(found),
            false => Err(format!("{}: not {} processes but {found:?}", self.how.name(), words.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_bricks_of_one_volume() {
        let words = |copies| creating("v", &bricks(Path::new("/x"), How::Tuned, copies)).join(" ");
        assert_eq!(words(1), "volume create v transport tcp 127.0.0.2:/x/gluster-tuned force");
        let bricks = [1, 2, 3].map(|number| format!("127.0.0.2:/x/gluster-tuned-{number}")).join(" ");
        assert_eq!(words(3), format!("volume create v replica 3 transport tcp {bricks} force"));
    }

    #[test]
    fn the_management_daemon_keeps_to_its_own_directory() {
        let settings = settings(Path::new("/own"));
        let places = settings.lines().filter(|line| line.contains("directory") || line.contains("sockfile"));
        let places: Vec<&str> = places.collect();
        assert!(places.len() == 4 && places.iter().all(|line| line.contains(" /own/")), "{settings}");
    }
}
