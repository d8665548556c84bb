//! The kernel's settings of a loop device: they become those of a hard disk without a write cache.

use crate::flash::ground::looped_apart;
use crate::served::failed;
use std::path::{Path, PathBuf};

/// The settings of the device's queue.
const SETTINGS: [(&str, &str); 4] = [
    ("rotational", "1"),
    // A write that is answered is on the platter: nobody needs to flush.
    ("write_cache", "write through"),
    ("discard_max_bytes", "0"),
    // The drive chooses among the requests, and not the kernel before it.
    ("scheduler", "none"),
];

/// Makes a loop device on a served file.
pub fn attach(file: &Path) -> Result<String, String> {
    let device = looped_apart(file)?;
    for (name, value) in SETTINGS {
        let path = PathBuf::from(format!("{}/queue/{name}", device.replace("/dev/", "/sys/class/block/")));
        std::fs::write(&path, value).map_err(|error| failed(&path, error))?;
    }
    Ok(device)
}

/// The loop devices on files below a directory.
pub fn attached(below: &Path) -> Result<Vec<String>, String> {
    let all = Path::new("/sys/class/block");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(all).map_err(|error| failed(all, error))?.flatten() {
        // Other devices have no such file, and loop devices only while they are used.
        let file = std::fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        if Path::new(file.trim_end()).starts_with(below) {
            found.push(format!("/dev/{}", entry.file_name().to_string_lossy()));
        }
    }
    found.sort();
    Ok(found)
}
