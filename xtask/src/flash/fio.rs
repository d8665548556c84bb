//! Loads that fio makes, and what it says about them.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Number of files that are laid out, and their size: together more than a device's own cache.
pub const FILES: u32 = 4;
pub const FILE_BYTES: u64 = 512 << 20;

/// The files that a load works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// Those that were laid out, each job another.
    Laid,
    /// The first of them, all jobs: random writes have scattered it.
    One,
    /// One more, which is only read and written in order.
    Ordered,
    /// New ones, each job another; gone afterwards.
    Fresh,
}

/// The durability of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    Some,
    /// O_DSYNC.
    Each,
    /// An fdatasync after each.
    After,
}

/// A load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// fio's name of it: `randread`, `write` ...
    pub pattern: &'static str,
    pub block_bytes: u32,
    pub jobs: u32,
    /// Requests at a time: beyond 1 through libaio, else through plain system calls.
    pub depth: u32,
    pub direct: bool,
    pub durable: Durable,
    pub files: Files,
    /// True to read again what the same load has just read.
    pub again: bool,
}

/// The measurements of fio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Said {
    pub operations: u64,
    pub operations_per_second: f64,
    pub bytes_per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

impl Load {
    /// True for reads that a cache beside the kernel may answer.
    pub fn may_be_kept(&self) -> bool {
        self.direct && self.pattern == "randread"
    }
    /// True if it needs the files that were laid out.
    pub fn needs_files(&self) -> bool {
        self.files != Files::Fresh
    }
    fn arguments(&self, seconds: u64, seed: u64) -> Vec<String> {
        let mut arguments = vec![
            format!("--rw={}", self.pattern),
            format!("--bs={}", self.block_bytes),
            format!("--numjobs={}", self.jobs),
            format!("--direct={}", u8::from(self.direct)),
            format!("--runtime={seconds}"),
            // The same places on each side, others in each round: fio heeds the seed only so.
            "--randrepeat=0".to_string(),
            format!("--randseed={seed}"),
        ];
        let mut more = |text: &str| arguments.extend(text.split_whitespace().map(str::to_string));
        more("--time_based --group_reporting --norandommap");
        match self.depth {
            1 => more("--ioengine=psync"),
            depth => more(&format!("--ioengine=libaio --iodepth={depth}")),
        }
        match self.durable {
            Durable::Some => {}
            Durable::Each => more("--sync=dsync"),
            Durable::After => more("--fdatasync=1"),
        }
        match self.files {
            Files::Laid => more(&format!("--filename_format=flash.$jobnum --size={FILE_BYTES}")),
            Files::One => more(&format!("--filename=flash.0 --size={FILE_BYTES}")),
            // Larger than what anyone appends in the time.
            Files::Ordered => more(&format!("--filename=flash.{FILES} --size={FILE_BYTES}")),
            Files::Fresh => more("--filename_format=fresh.$jobnum --size=4g --unlink=1"),
        }
        arguments
    }
    /// fio's command line in a directory.
    pub fn command(&self, directory: &Path, seconds: u64, seed: u64) -> Command {
        let mut command = base(directory);
        command.args(self.arguments(seconds, seed));
        command
    }
    /// Reads what fio printed.
    pub fn read(&self, said: &str) -> Result<Said, String> {
        let kind = if self.pattern.ends_with("read") { "read" } else { "write" };
        read(said, kind)
    }
}

fn base(directory: &Path) -> Command {
    let mut command = Command::new("fio");
    // Its threads share an address space: 64 writers start at once. Files are as the load itself makes them.
    command.args(["--name=flash", "--output-format=json", "--thread", "--fallocate=none"]);
    // fio would take colons for the end of a directory.
    command.arg(format!("--directory={}", directory.to_string_lossy().replace(':', r"\:")));
    command
}

/// fio's command line that lays the files out: the same on all sides, with data that nothing can compress.
pub fn lay_out(directory: &Path) -> Command {
    let mut command = base(directory);
    command.args(["--rw=write", "--bs=1m", "--direct=1", "--refill_buffers", "--end_fsync=1", "--ioengine=psync"]);
    command.args(["--filename_format=flash.$jobnum".to_string(), format!("--size={FILE_BYTES}")]);
    command.arg(format!("--numjobs={}", FILES + 1));
    command
}

/// Reads what fio printed about its reads, or its writes.
pub fn read(said: &str, kind: &str) -> Result<Said, String> {
    // Notes come before the JSON.
    let json = said.find('{').map_or("", |at| &said[at..]);
    let all: Value = serde_json::from_str(json).map_err(|error| format!("fio: {error}: {said}"))?;
    let job = &all["jobs"][0];
    if job["error"] != 0 {
        return Err(format!("fio: error {}: {said}", job["error"]));
    }
    let number = |value: &Value, name: &str| value.as_f64().ok_or_else(|| format!("fio told no {name}: {said}"));
    let percentile = |which: &str| {
        let nanoseconds = number(&job[kind]["clat_ns"]["percentile"][which], which)?;
        Ok::<_, String>(nanoseconds / 1000.0)
    };
    let operations = job[kind]["total_ios"].as_u64().filter(|&count| count > 0);
    Ok(Said {
        operations: operations.ok_or_else(|| format!("fio did nothing: {said}"))?,
        operations_per_second: number(&job[kind]["iops"], "iops")?,
        bytes_per_second: number(&job[kind]["bw_bytes"], "bw_bytes")?,
        p50_us: percentile("50.000000")?,
        p99_us: percentile("99.000000")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = r#"note: both iodepth >= 1 and synchronous I/O engine are selected
{"jobs": [{"error": 0, "read": {"total_ios": 0, "iops": 0.0, "bw_bytes": 0},
 "write": {"total_ios": 60, "iops": 30.5, "bw_bytes": 124928, "clat_ns": {"percentile":
 {"50.000000": 78500, "99.000000": 250000}}}}]}"#;

    #[test]
    fn what_fio_says_is_read() {
        let said = read(SAID, "write").expect("that is what fio says");
        let (operations_per_second, bytes_per_second) = (30.5, 124_928.0);
        let expected = Said { operations: 60, operations_per_second, bytes_per_second, p50_us: 78.5, p99_us: 250.0 };
        assert_eq!(said, expected);
    }

    #[test]
    fn fio_that_failed_or_did_nothing_is_an_error() {
        assert!(read(&SAID.replace("\"error\": 0", "\"error\": 5"), "write").is_err());
        assert!(read(SAID, "read").is_err());
        assert!(read("fio: no such engine", "write").is_err());
    }

    #[test]
    fn a_load_is_told_to_fio() {
        let (durable, files) = (Durable::Each, Files::One);
        let load = Load {
            pattern: "randwrite",
            block_bytes: 4096,
            jobs: 16,
            depth: 1,
            direct: true,
            durable,
            files,
            again: false,
        };
        let told = load.arguments(5, 3).join(" ");
        assert!(load.needs_files() && told.contains("--sync=dsync") && told.contains("--ioengine=psync"), "{told}");
        assert!(told.contains("--filename=flash.0") && told.contains("--numjobs=16 --direct=1"), "{told}");
        let load = Load { depth: 8, durable: Durable::After, files: Files::Fresh, direct: false, ..load };
        let told = load.arguments(5, 3).join(" ");
        assert!(!load.needs_files() && told.contains("--fdatasync=1") && told.contains("--iodepth=8"), "{told}");
        assert!(told.contains("--unlink=1") && told.contains("--direct=0"), "{told}");
    }
}
