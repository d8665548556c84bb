//! The ground of the sides: packages, an XFS on a loop device with direct I/O, and the host's own file system.

use crate::flash::undo::{Undo, quoted};
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::Command;

const GIB: u64 = 1 << 30;

/// The control groups of block I/O, of version 1.
pub const DEVICE_GROUPS: &str = "/sys/fs/cgroup/blkio";

/// The directories of a run.
pub struct Ground {
    /// The directory on the host's file system.
    pub root: PathBuf,
    /// The mount point of the XFS, and the device below it, once there is one.
    below: OnceCell<(PathBuf, String)>,
}

/// Makes a directory and those above it, as far as they are missing. Errors: with the path.
pub fn make_directory(path: &Path) -> Result<(), String> {
    std::fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Runs a program to its end; what it printed, or what it complained about.
pub fn told(program: &str, arguments: &[&str]) -> Result<String, String> {
    let shown = || format!("{program} {}", arguments.join(" "));
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("{}: {error}", shown()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_string());
    }
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(format!("{}: {}: {}{}", shown(), output.status, errors.trim(), said.trim()))
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("paths were made of text")
}

/// The shell's way to wait, for so many seconds at most, until a process has ended; one that nobody waited for counts.
pub fn ended(process: u32, seconds: u32) -> String {
    let rounds = seconds * 10;
    format!("n=0; while grep -qs . /proc/{process}/cmdline && [ $n -lt {rounds} ]; do sleep 0.1; n=$((n+1)); done")
}

/// Processes that have one of these words among their arguments.
pub fn with_argument(words: &[&str]) -> Result<Vec<u32>, String> {
    let listing = std::fs::read_dir("/proc").map_err(|error| format!("/proc: {error}"))?;
    let numbers = listing.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is = |number: &u32| {
        // One that has just ended has no arguments.
        let arguments = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        arguments.split(|&byte| byte == 0).any(|argument| words.iter().any(|word| argument == word.as_bytes()))
    };
    Ok(numbers.filter(is).collect())
}

/// The shell's way to unmount what may still be in use for a moment.
pub fn unmounted(mount: &Path) -> String {
    let mount = quoted(mount);
    format!("for n in $(seq 20); do mountpoint -q {mount} || exit 0; umount {mount} && exit 0; sleep 0.5; done; exit 1")
}

/// Makes a loop device on a file, past the page cache.
pub fn looped(file: &Path) -> Result<String, String> {
    let device = told("losetup", &["--find", "--show", "--direct-io=on", text(file)])?;
    if told("losetup", &["--noheadings", "--output", "DIO", &device])?.trim() == "1" {
        return Ok(device);
    }
    told("losetup", &["--detach", &device])?;
    Err(format!("{device} refuses direct I/O on {}: take a directory on another disk", file.display()))
}

/// Makes an XFS on a file, by a loop device, and mounts it; the device. All is undone at the end of the run.
pub fn mounted_xfs(image: &Path, mount: &Path, undo: &Undo) -> Result<String, String> {
    let device = looped(image)?;
    undo.add(&format!("losetup -d {device}"))?;
    // Without discarding, which would give the image's blocks back.
    told("mkfs.xfs", &["-q", "-K", &device])?;
    make_directory(mount)?;
    told("mount", &["-t", "xfs", &device, text(mount)])?;
    undo.add(&unmounted(mount))?;
    Ok(device)
}

/// The major and minor number of a device, as control groups name it.
pub fn device_number(device: &str) -> Result<String, String> {
    let path = device.replace("/dev/", "/sys/class/block/") + "/dev";
    let number = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    Ok(number.trim().to_string())
}

/// Numbers of loop devices whose queues the workshop changes: what is set stays until the machine ends, whatever file comes
/// next, and can't be set back once it is no discards. Others get the first free number, which is never one of these.
const APART: std::ops::Range<u32> = 900..1000;

/// Makes a loop device with direct I/O on a file, whose queue may be changed. Returns its path.
pub fn looped_apart(file: &Path) -> Result<String, String> {
    let mut last = String::new();
    for number in APART {
        let device = format!("/dev/loop{number}");
        match told("losetup", &["--direct-io=on", &device, text(file)]) {
            Ok(_) => return Ok(device),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Refuses to go on for who is not root.
pub fn need_root() -> Result<(), String> {
    match told("id", &["-u"])?.as_str() {
        "0" => Ok(()),
        _ => Err("loop devices and mounts need root: sudo cargo xtask flash ...".to_string()),
    }
}

/// Lets FUSE's requests come over io_uring until the run ends, where the kernel can.
pub fn allow_uring(undo: &Undo) -> Result<(), String> {
    let path = "/sys/module/fuse/parameters/enable_uring";
    if std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "N") {
        println!("allowing FUSE over io_uring: echo Y >{path}");
        std::fs::write(path, "Y").map_err(|error| format!("{path}: {error}"))?;
        undo.add(&format!("echo N >{path}"))?;
    }
    Ok(())
}

/// Installs Debian packages that are missing, each with the program by which it is known.
pub fn install(wanted: &[(&str, &str)]) -> Result<(), String> {
    let is_there = |program: &str| told("sh", &["-c", &format!("command -v {program}")]).is_ok();
    let missing: Vec<&str> =
        wanted.iter().filter(|(_, program)| !is_there(program)).map(|(package, _)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("installing Debian packages: {}", missing.join(" "));
    told("apt-get", &["-qq", "update"])?;
    let install = ["DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "install", "-y", "--no-install-recommends"];
    told("env", &[&install[..], &missing].concat()).map(drop)
}

/// Bytes that are free, and the kind of file system, at a path.
fn file_system(path: &Path) -> Result<(u64, String), String> {
    let said = told("stat", &["-f", "-c", "%a %S %T", text(path)])?;
    let fields: Vec<&str> = said.split(' ').collect();
    let wrong = || format!("stat -f {}: {said}", path.display());
    let [blocks, bytes, kind] = fields[..] else { return Err(wrong()) };
    let number = |word: &str| word.parse::<u64>().map_err(|_| wrong());
    Ok((number(blocks)? * number(bytes)?, kind.to_string()))
}

/// Bytes written, of a block device's `stat`: its seventh field counts sectors of 512 bytes, whatever the device's own.
fn written(stat: &str) -> Option<u64> {
    Some(stat.split_whitespace().nth(6)?.parse::<u64>().ok()? * 512)
}

impl Ground {
    /// Makes the directory in which all lies; `bytes` will be needed there.
    pub fn new(root: PathBuf, bytes: u64, undo: &Undo) -> Result<Ground, String> {
        let above = root.parent().filter(|above| above.is_dir());
        let above = above.ok_or_else(|| format!("--work {}: there is no directory above it", root.display()))?;
        let (free, _) = file_system(above)?;
        if free < bytes {
            let (bytes, free, above) = (bytes.div_ceil(GIB), free / GIB, above.display());
            return Err(format!(
                "this takes {bytes} GiB, and {above} has {free}: take another --work, or ask for less"
            ));
        }
        std::fs::create_dir(&root).map_err(|error| {
            format!(
                "{}: {error}; is another run under way? What a killed one left is to be unmounted and removed",
                root.display()
            )
        })?;
        undo.add(&format!("rm -rf --one-file-system {}", quoted(&root)))?;
        Ok(Ground { root, below: OnceCell::new() })
    }
    /// The directory on XFS.
    pub fn xfs(&self) -> PathBuf {
        self.below.get().expect("it is made before it is used").0.clone()
    }
    /// Takes a directory of an XFS that is there already, on which `gib` must be free.
    pub fn take_xfs(&self, above: &Path, gib: u64, undo: &Undo) -> Result<(), String> {
        let shown = above.display();
        match file_system(above)? {
            (_, kind) if kind != "xfs" => return Err(format!("--xfs {shown}: it is {kind}")),
            (free, _) if free < gib * GIB => {
                return Err(format!("--xfs {shown}: it has {} GiB, and --size says {gib}", free / GIB));
            }
            _ => {}
        }
        let own = above.join("sinter-flash");
        std::fs::create_dir(&own).map_err(|error| format!("{}: {error}", own.display()))?;
        undo.add(&format!("rm -rf --one-file-system {}", quoted(&own)))?;
        let device = told("findmnt", &["--noheadings", "--output", "SOURCE", "--target", text(above)])?;
        self.below.set((own, device)).expect("there is one XFS");
        Ok(())
    }
    /// Makes the XFS, on a file that has all its blocks: else who writes to new places would pay for the host's allocation.
    pub fn make_xfs(&self, gib: u64, undo: &Undo) -> Result<(), String> {
        let image = self.root.join("disk");
        for at in 0..gib {
            let (to, seek) = (format!("of={}", image.display()), format!("seek={}", at * 256));
            let how = ["bs=4M", "count=256", "oflag=direct", "conv=notrunc,fsync", "status=none", "if=/dev/zero"];
            told("dd", &[&how[..], &[&to, &seek]].concat())?;
            if (at + 1) % 4 == 0 || at + 1 == gib {
                println!("disk image: {} of {gib} GiB written", at + 1);
            }
        }
        let mount = self.root.join("xfs");
        let device = mounted_xfs(&image, &mount, undo)?;
        self.below.set((mount, device)).expect("there is one XFS");
        Ok(())
    }
    /// The device below the XFS.
    pub fn device(&self) -> &str {
        &self.below.get().expect("it is made before it is used").1
    }
    /// All bytes that the device below the XFS has written so far, whoever wrote them.
    pub fn written_bytes(&self) -> Result<u64, String> {
        let path = self.device().replace("/dev/", "/sys/class/block/") + "/stat";
        let stat = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        written(&stat).ok_or_else(|| format!("{path}: not understood: {stat}"))
    }
    /// Refuses a host file system that rows are not named after.
    pub fn need_ext4(&self) -> Result<(), String> {
        match file_system(&self.root)?.1.as_str() {
            "ext2/ext3" => Ok(()),
            kind => Err(format!(
                "rows on ext4 need a --work on ext4, and {} is {kind}; leave them out by --only",
                self.root.display()
            )),
        }
    }
}

/// Makes everything that was written durable.
pub fn sync() -> Result<(), String> {
    told("sync", &[]).map(drop)
}

/// Lets go of what the kernel caches: pages, names and inodes.
pub fn drop_caches() -> Result<(), String> {
    sync()?;
    std::fs::write("/proc/sys/vm/drop_caches", "3").map_err(|error| format!("/proc/sys/vm/drop_caches: {error}"))
}

/// Machine and versions, for who reads the figures.
pub fn described(work: &Path, with_peer: bool) -> Vec<(&'static str, String)> {
    let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
    let line = |text: String| text.lines().next().unwrap_or_default().to_string();
    let after = |text: &str, key: &str| {
        let found = text.lines().find(|line| line.starts_with(key)).and_then(|line| line.split_once(':'));
        found.map_or_else(String::new, |(_, value)| value.trim().to_string())
    };
    let program = |name: &str, argument: &str| line(told(name, &[argument]).unwrap_or_else(|error| error));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let mut facts = vec![
        ("kernel", file("/proc/sys/kernel/osrelease")),
        ("cores", format!("{cores}, {}", after(&file("/proc/cpuinfo"), "model name"))),
        ("memory", after(&file("/proc/meminfo"), "MemTotal")),
        ("Debian", file("/etc/debian_version")),
        ("host file system", file_system(work).map_or_else(|error| error, |(_, kind)| kind)),
        ("fio", program("fio", "--version")),
        ("XFS", program("mkfs.xfs", "-V")),
    ];
    if with_peer {
        facts.push(("GlusterFS", program("glusterfs", "--version")));
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::Stdio;

    #[test]
    fn sectors_are_of_512_bytes() {
        let stat =
            "    1234        5    67890      100     4321        6     2048      200        0      300      400\n";
        assert_eq!(written(stat), Some(1 << 20));
        assert_eq!(written("1 2 3"), None);
    }

    #[test]
    fn a_program_that_fails_says_why() {
        assert_eq!(told("echo", &["a", "b"]), Ok("a b".to_string()));
        assert!(told("ls", &["/there/is/no/such"]).is_err_and(|error| error.contains("/there/is/no/such")));
    }

    #[test]
    fn waiting_for_a_process_ends_when_it_does() {
        let mut process = Command::new("true").spawn().expect("there is such a program");
        // Nobody has waited for it: it stays in the table of processes.
        told("sh", &["-c", &format!("{}; [ $n -lt 100 ]", ended(process.id(), 10))]).expect("it has ended");
        process.wait().expect("it can be waited for");
        let own = told("sh", &["-c", &format!("{}; [ $n -lt 2 ]", ended(std::process::id(), 0))]);
        assert!(own.is_ok(), "no second is waited: {own:?}");
    }

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
    fn a_file_system_tells_its_room() {
        let (free, kind) = file_system(Path::new("/")).expect("there is a root");
        assert!(free > 0 && !kind.is_empty());
    }
}
