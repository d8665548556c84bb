//! The life of a disk for tests, as its users see it. Needs root, /dev/fuse and loop devices.

use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory of a test's disks; all that is left of them is taken back.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        Dir(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id())))
    }
    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.arg("disk").args(words.split(' ')).arg("--dir").arg(&self.0);
        command
    }
    /// Runs a command. Returns its output; errors: its complaint.
    fn tell(&self, words: &str) -> Result<String, String> {
        let output = self.command(words).output().expect("the program starts");
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).trim().to_string());
        if output.status.success() { Ok(said[0].clone()) } else { Err(said[1].clone()) }
    }
    fn told(&self, words: &str) -> String {
        self.tell(words)
            .unwrap_or_else(|error| panic!("disk {words} (needs root, /dev/fuse and loop devices): {error}"))
    }
    fn json(&self, words: &str) -> Value {
        serde_json::from_str(&self.told(&format!("{words} --json"))).expect("it is JSON")
    }
    fn kill_server(&self, name: &str) {
        let number = std::fs::read_to_string(self.0.join(name).join("server")).expect("a server tells its number");
        assert!(Command::new("kill").args(["-KILL", &number]).status().expect("there is a kill").success());
    }
    /// The kernel's loop devices and mounts below the directory.
    fn held(&self) -> usize {
        let dir = self.0.to_str().expect("paths here are text");
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("it can be read");
        let blocks = std::fs::read_dir("/sys/class/block").expect("it can be read").flatten();
        let files = blocks.filter_map(|entry| std::fs::read_to_string(entry.path().join("loop/backing_file")).ok());
        mounts.lines().filter(|line| line.contains(dir)).count() + files.filter(|file| file.starts_with(dir)).count()
    }
    fn assert_nothing_is_left(&self) {
        assert_eq!(self.held(), 0);
        assert!(!self.0.exists(), "the directory goes with the last disk");
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        drop(self.tell("drop --all"));
    }
}

#[test]
fn a_disk_keeps_what_is_written_counts_it_and_leaves_nothing() {
    let dir = Dir::new("kept");
    let made = dir.json("make one --size 1G");
    let device = made["device"].as_str().expect("a device");
    let file = File::options().write(true).open(device).expect("root may write to it");
    file.write_all_at(&[7; 4096], 512 << 20).expect("it writes");
    file.sync_all().expect("it flushes");
    drop(file);
    let mut read = [0; 8192];
    File::open(device).and_then(|file| file.read_exact_at(&mut read, 512 << 20)).expect("it reads");
    assert_eq!((read[4095], read[4096]), (7, 0));
    let counters = dir.json("counters one");
    let number = |name: &str| counters[name].as_u64().expect("a number");
    assert!(number("writes") == 1 && number("reads") > 0 && number("seeks") > 0, "{counters}");
    // Half the stroke takes longer than this alone.
    assert!(number("busy_ns") > 10_000_000, "{counters}");
    assert!(dir.tell("make one").is_err_and(|error| error.contains("already")));
    dir.told("drop one");
    dir.assert_nothing_is_left();
    assert!(dir.tell("drop one").is_err() && dir.told("list --json") == "[]");
}

#[test]
fn what_a_killed_server_left_is_taken_back() {
    let dir = Dir::new("killed");
    dir.told("make one --size 64M");
    dir.kill_server("one");
    assert_eq!(dir.json("list")[0]["device"], Value::Null);
    assert!(dir.tell("counters one").is_err_and(|error| error.contains("nobody serves it")));
    dir.told("make two --size 64M");
    let disks = dir.json("list");
    assert_eq!((disks.as_array().map(Vec::len), disks[0]["name"].as_str()), (Some(1), Some("two")));
    assert_eq!(dir.held(), 2, "a mount and a loop device");
    dir.kill_server("two");
    dir.told("drop two");
    dir.assert_nothing_is_left();
}

#[test]
fn what_a_killed_command_left_is_taken_back() {
    let dir = Dir::new("stopped");
    // From before there is anything until after all is there.
    for pause_ms in [1, 4, 8, 12, 16, 24, 40] {
        let mut made = dir.command("make one --size 64M").spawn().expect("the program starts");
        std::thread::sleep(std::time::Duration::from_millis(pause_ms));
        drop(made.kill());
        made.wait().expect("it has ended");
        dir.told("make two --size 64M");
        dir.told("drop two");
        drop(dir.tell("drop one"));
        dir.assert_nothing_is_left();
    }
}

#[test]
fn a_disk_in_use_is_not_taken_from_its_user() {
    let dir = Dir::new("used");
    let made = dir.json("make one --size 64M");
    let file = File::open(made["device"].as_str().expect("a device")).expect("root may open it");
    assert!(dir.tell("drop one").is_err_and(|error| error.contains("in use")));
    file.read_exact_at(&mut [0; 512], 0).expect("it is still served");
    drop(file);
    dir.told("drop one");
    dir.assert_nothing_is_left();
}
