//! stress-ng's file system stressors on a real mount, each for `SINTER_STRESS` seconds (1 if not set; 100 take about an
//! hour). They verify what they read back; afterwards the brick's check finds nothing.

mod daemon;

use daemon::{Home, text};
use std::process::{Command, Stdio};

/// Those that work on files in a directory that they are given.
const STRESSORS: [&str; 38] = [
    "access",
    "aio",
    "chdir",
    "chmod",
    "chown",
    "copy-file",
    "dentry",
    "dir",
    "dirdeep",
    "dirmany",
    "fallocate",
    "file-ioctl",
    "filename",
    "flock",
    "fpunch",
    "fstat",
    "getdent",
    "hdd",
    "io",
    "iomix",
    "lease",
    "link",
    "locka",
    "lockf",
    "lockofd",
    "mknod",
    "msync",
    "open",
    "readahead",
    "rename",
    "revio",
    "seek",
    "sendfile",
    "symlink",
    "sync-file",
    "touch",
    "utime",
    "xattr",
];

fn seconds() -> u64 {
    let set = std::env::var("SINTER_STRESS").ok();
    set.map_or(1, |text| text.parse().expect("SINTER_STRESS is a number of seconds"))
}

#[test]
fn stressors_find_nothing() {
    let home = Home::new("stress");
    let daemon = home.up();
    let mut failed = Vec::new();
    for stressor in STRESSORS {
        let mut command = Command::new("stress-ng");
        command.args([&format!("--{stressor}"), "2", "--temp-path", text(&home.mount), "--verify", "--metrics-brief"]);
        command.args(["--timeout", &format!("{}s", seconds())]).stdin(Stdio::null());
        let output = command.output().expect("stress-ng is installed");
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        println!("{said}");
        if !output.status.success() {
            failed.push(format!("{stressor}: {:?}\n{said}", output.status));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let left = std::fs::read_dir(&home.mount).expect("readable").count();
    assert_eq!(left, 0, "each cleans up behind itself");
    daemon.terminate();
    home.check();
}
