//! stress-ng's file system stressors.

use crate::daemon::text;
use std::path::Path;
use std::process::{Command, Stdio};

/// Those that work on files in a directory that they are given.
pub const STRESSORS: [&str; 38] = [
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

/// One of them in a directory, in so many processes for so many seconds. Errors: all that it said.
pub fn run(stressor: &str, processes: u32, seconds: u64, directory: &Path) -> Result<(), String> {
    let mut command = Command::new("stress-ng");
    // Some leave files where they are started.
    command.current_dir(directory);
    command.args([&format!("--{stressor}"), &processes.to_string(), "--temp-path", text(directory)]);
    command.args(["--verify", "--metrics-brief", "--timeout", &format!("{seconds}s")]).stdin(Stdio::null());
    let output = command.output().expect("stress-ng is installed");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{said}");
    if output.status.success() { Ok(()) } else { Err(format!("{stressor}: {:?}\n{said}", output.status)) }
}
