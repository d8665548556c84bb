//! The peer: GlusterFS with volumes of one brick over loopback, served by a management daemon of this run's own.

use crate::flash::ground::{Ground, ended, text, told, unmounted};
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
    brick: PathBuf,
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

/// Processes that have one of these words among their arguments.
fn with_argument(words: &[&str]) -> Result<Vec<u32>, String> {
    let listing = std::fs::read_dir("/proc").map_err(|error| format!("/proc: {error}"))?;
    let numbers = listing.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is = |number: &u32| {
        // One that has just ended has no arguments.
        let arguments = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        arguments.split(|&byte| byte == 0).any(|argument| words.iter().any(|word| argument == word.as_bytes()))
    };
    Ok(numbers.filter(is).collect())
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
    /// Makes a volume of one brick and mounts it.
    pub fn volume(&self, how: How, brick: &Path, mount: &Path, undo: &Undo) -> Result<Volume, String> {
        let name = how.name();
        let at = format!("{HOST}:{}", brick.display());
        self.gluster(&["volume", "create", name, "transport", "tcp", &at, "force"])?;
        if how == How::Tuned {
            for (option, value) in TUNED {
                self.gluster(&["volume", "set", name, option, value])?;
            }
        }
        // It says "stopped" a little before the brick's process has ended.
        let stop =
            self.words(&["volume", "stop", name, "force"]).iter().map(|word| quoted(word.as_ref())).collect::<Vec<_>>();
        undo.add(&format!("gluster {}; n=0; while grep -qsF {} /proc/[0-9]*/cmdline --exclude=/proc/self/cmdline && [ $n -lt 5 ]; do sleep 0.2; n=$((n+1)); done", stop.join(" "), quoted(brick)))?;
        self.gluster(&["volume", "start", name])?;
        let mut volume = Volume { how, brick: brick.to_path_buf(), mount: mount.to_path_buf(), mounted: String::new() };
        volume.up(undo)?;
        Ok(volume)
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
    /// mount(8) may say nothing though nothing serves: what is written there must lie in the brick.
    fn proved(&self) -> Result<(), String> {
        let wrong = |error| format!("the peer's mount does not serve: {}: {error}", self.mount.display());
        if !is_mounted(&self.mount, "fuse.glusterfs")? {
            return Err(wrong(std::io::Error::other("nothing is mounted")));
        }
        let (above, below) = (self.mount.join("proof"), self.brick.join("proof"));
        std::fs::write(&above, "it serves").map_err(wrong)?;
        let there = std::fs::read_to_string(below).map_err(wrong)?;
        std::fs::remove_file(above).map_err(wrong)?;
        if there == "it serves" { Ok(()) } else { Err(wrong(std::io::Error::other("the brick holds something else"))) }
    }
    /// Mounts it anew.
    pub fn remount(&mut self, undo: &Undo) -> Result<(), String> {
        told("umount", &[text(&self.mount)])?;
        undo.forget(&self.mounted)?;
        self.up(undo)
    }
    /// The brick's process and the mount's.
    pub fn daemons(&self) -> Result<Vec<u32>, String> {
        let found = with_argument(&[text(&self.brick), text(&self.mount)])?;
        if found.len() == 2 { Ok(found) } else { Err(format!("{}: not two processes but {found:?}", self.how.name())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::Stdio;

    #[test]
    fn processes_are_found_by_whole_arguments() {
        let word = format!("flash-{}", std::process::id());
        let mut process = std::process::Command::new("sh");
        process.args(["-c", "echo; read line", &word]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = process.spawn().expect("there is a shell");
        // Its arguments are there once it runs, which is a little after it has started.
        let said = process.stdout.as_mut().expect("it was asked for").read_exact(&mut [0]);
        said.expect("it says a line");
        assert_eq!(with_argument(&["nobody has this", &word]), Ok(vec![process.id()]));
        assert_eq!(with_argument(&[&word[1..]]), Ok(vec![]));
        drop(process.stdin.take());
        process.wait().expect("it can be waited for");
    }

    #[test]
    fn the_management_daemon_keeps_to_its_own_directory() {
        let settings = settings(Path::new("/own"));
        let places = settings.lines().filter(|line| line.contains("directory") || line.contains("sockfile"));
        let places: Vec<&str> = places.collect();
        assert!(places.len() == 4 && places.iter().all(|line| line.contains(" /own/")), "{settings}");
    }
}
