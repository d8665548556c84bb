//! A block device as one file of the brick. While it is open for writing, nobody else holds it; its sectors are no
//! larger than a block; bytes that nobody needs can be discarded on it.

use super::files::failed;
use base::limits::BLOCK_BYTES;
use base::{Error, Kind, Result};
use rustix::io::Errno;
use rustix::ioctl;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// The request code of linux/fs.h for TRIM, on all machines but MIPS, PowerPC and SPARC.
const BLKDISCARD: ioctl::Opcode = 0x1277;
/// Longest time for which a process that was killed, or a program that probes new devices, may hold it.
const HELD_MAX: Duration = Duration::from_secs(2);

/// The error for a path without a device.
pub(super) fn not_found(path: &Path, error: &std::io::Error) -> Error {
    let what = "the brick's block device is not there: if it has another name now, give it with --device";
    failed(what, error).with(path.display())
}

/// Opens a device, bypassing the page cache. For writing it is opened exclusively: neither mounted, nor part of another
/// device, nor another brick's. Errors: `Busy` if it is; `Invalid` if it is no block device or has large sectors.
pub(super) fn open(path: &Path, writable: bool) -> Result<File> {
    let found = std::fs::metadata(path).map_err(|error| not_found(path, &error))?;
    if !found.file_type().is_block_device() {
        let what =
            "not a block device: give one such as /dev/nvme0n1, or leave --device out for a brick in a directory";
        return Err(Error::new(Kind::Invalid, what).with(path.display()));
    }
    let mut options = OpenOptions::new();
    let exclusive = if writable { libc::O_EXCL } else { 0 };
    options.read(true).write(writable).custom_flags(libc::O_DIRECT | exclusive);
    let start = Instant::now();
    let file = loop {
        match options.open(path) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && start.elapsed() < HELD_MAX => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                let what = "the device is mounted or in use otherwise: unmount it, or give another one";
                return Err(Error::new(Kind::Busy, what).with(path.display()));
            }
            Err(error) => return Err(failed("the device cannot be opened", &error).with(path.display())),
            Ok(file) => break file,
        }
    };
    let sector_bytes = rustix::fs::ioctl_blksszget(&file)
        .map_err(|error| failed("the device does not tell its sector size", &error.into()).with(path.display()))?;
    if sector_bytes > BLOCK_BYTES as u32 {
        let what = "the device's sectors are larger than 4096 bytes: give another one";
        return Err(Error::new(Kind::Invalid, what).with(path.display()).with(format_args!("{sector_bytes} bytes")));
    }
    Ok(file)
}

/// See `Disk::discard`.
pub(super) fn discard(device: &File, offset: u64, bytes: u64) -> Result<()> {
    // SAFETY: this call reads two numbers, and changes nothing of this process's memory.
    let done = unsafe { ioctl::ioctl(device, ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([offset, bytes])) };
    done.map_err(|error| match error {
        Errno::OPNOTSUPP | Errno::NOTTY => Error::new(Kind::Unsupported, "the device has no use for discards"),
        error => failed("the device refused a discard", &error.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;
    use std::process::Command;

    /// A device of 16 MiB over a file; both go when it is dropped.
    struct Loop {
        file: PathBuf,
        device: PathBuf,
    }

    impl Loop {
        /// A loop device; None without root.
        fn new(name: &str) -> Option<Loop> {
            let file = std::env::temp_dir().join(format!("sinter-loop-{name}-{}", std::process::id()));
            File::create(&file).and_then(|made| made.set_len(16 << 20)).expect("the temporary directory is writable");
            let found = Command::new("losetup").args(["--find", "--show"]).arg(&file).output();
            let found = found.ok().filter(|found| found.status.success());
            let device = found.map(|found| String::from_utf8_lossy(&found.stdout).trim().into());
            if device.is_none() {
                eprintln!("skipped: needs root and loop devices");
                std::fs::remove_file(&file).expect("just made");
            }
            device.map(|device| Loop { file, device })
        }
    }

    impl Drop for Loop {
        fn drop(&mut self) {
            drop(Command::new("losetup").arg("--detach").arg(&self.device).status());
            drop(std::fs::remove_file(&self.file));
        }
    }

    #[test]
    fn a_device_is_held_alone_for_writing_and_read_beside() {
        let Some(device) = Loop::new("held") else { return };
        let held = open(&device.device, true).expect("nobody has it");
        let refused = open(&device.device, true).expect_err("held");
        assert!(refused.kind == Kind::Busy && refused.to_string().contains("unmount"), "{refused}");
        open(&device.device, false).expect("reading needs nobody's leave");
        drop(held);
        open(&device.device, true).expect("nobody has it any more");
    }

    #[test]
    fn what_is_no_block_device_is_refused() {
        let refused = open(Path::new("/dev/null"), true).expect_err("of characters");
        assert!(refused.kind == Kind::Invalid && refused.to_string().contains("/dev/nvme"), "{refused}");
        let missing = open(Path::new("/dev/sinter-is-not-there"), true).expect_err("not there");
        assert!(missing.kind == Kind::NotFound && missing.to_string().contains("--device"), "{missing}");
    }

    #[test]
    fn what_was_discarded_is_gone() {
        let Some(device) = Loop::new("discard") else { return };
        std::fs::write(&device.device, vec![7; 4 << 20]).expect("root writes it");
        let held = open(&device.device, true).expect("nobody has it");
        discard(&held, 1 << 20, 2 << 20).expect("loop devices over files punch holes");
        drop(held);
        let mut bytes = vec![1; 4 << 20];
        File::open(&device.device).and_then(|read| read.read_exact_at(&mut bytes, 0)).expect("root reads it");
        let (kept, gone) = ([0..1 << 20, 3 << 20..4 << 20], 1 << 20..3 << 20);
        assert!(kept.into_iter().all(|range| bytes[range].iter().all(|&byte| byte == 7)));
        assert!(bytes[gone].iter().all(|&byte| byte == 0));
    }
}
