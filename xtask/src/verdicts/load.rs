//! The requests of clients: fio, while something is injected.

use super::process::Running;
use crate::flash::ground::text;
use crate::flash::undo::Undo;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The file that clients read and write.
pub const FILE: &str = "load";
/// Longer than any load runs: it is stopped.
const SECONDS_MAX: u64 = 3600;

/// The durability of writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sync {
    No,
    /// Each with O_DSYNC.
    Each,
    /// An fdatasync after each.
    After,
}

/// A load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// fio's name of it.
    pub pattern: &'static str,
    pub block_bytes: u32,
    pub jobs: u32,
    /// Requests at a time, of each job.
    pub depth: u32,
    pub sync: Sync,
    /// Microseconds for which a client thinks after each request.
    pub think_us: u64,
    /// The CPUs that the clients may use.
    pub cpus: Option<&'static str>,
    /// Its turn when it wants a CPU.
    pub turn: Turn,
    /// The user whose processes the clients are; None: this program's.
    pub uid: Option<u32>,
    /// The places of random requests.
    pub places: Places,
}

/// The places of random requests in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Places {
    All,
    /// A percentage of the requests goes to the first two fifths, which were written first and went down to the disk, the others to the last
    /// fifth, which is still on flash.
    First(u32),
}

/// The turn of clients when they want a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// The turn that the kernel sees fit.
    Fair,
    /// The first turn of all, so that what takes CPUs from the daemon takes none from them.
    First,
}

/// A client that reads 4 KiB at random, one request after the other.
pub const READ: Load = Load {
    pattern: "randread",
    block_bytes: 4096,
    jobs: 1,
    depth: 1,
    sync: Sync::No,
    think_us: 0,
    cpus: None,
    turn: Turn::Fair,
    uid: None,
    places: Places::All,
};

/// The measurements of fio. A request that is made durable takes both its times.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Said {
    pub per_second: f64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

impl Load {
    /// fio's command line for it on a file, for so many seconds.
    pub fn command(&self, file: &Path, seconds: u64) -> Command {
        let mut command = Command::new("setsid");
        if let Some(cpus) = self.cpus {
            command.args(["taskset", "-c", cpus]);
        }
        if self.turn == Turn::First {
            command.args(["chrt", "--fifo", "1"]);
        }
        command.args(["fio", "--name=load", "--output-format=json", "--direct=1", "--time_based"]);
        match self.uid {
            None => command.arg("--thread"),
            // Threads would all be the first one's user.
            Some(uid) => command.arg(format!("--uid={uid}")),
        };
        command.args(["--group_reporting", "--norandommap", "--randrepeat=0", "--fallocate=none"]);
        // fio would take colons for the end of a name.
        command.arg(format!("--filename={}", text(file).replace(':', r"\:")));
        let Load { pattern, block_bytes, jobs, depth, think_us, .. } = self;
        command.args([format!("--rw={pattern}"), format!("--bs={block_bytes}"), format!("--numjobs={jobs}")]);
        command.arg(format!("--runtime={seconds}"));
        match depth {
            1 => command.arg("--ioengine=psync"),
            depth => command.args(["--ioengine=libaio".to_string(), format!("--iodepth={depth}")]),
        };
        match self.sync {
            Sync::No => {}
            Sync::Each => drop(command.arg("--sync=dsync")),
            Sync::After => drop(command.arg("--fdatasync=1")),
        }
        if let Places::First(percent) = self.places {
            command.arg(format!("--random_distribution=zoned:{percent}/40:0/40:{}/20", 100 - percent));
        }
        if *think_us > 0 {
            command.arg(format!("--thinktime={think_us}"));
        }
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    }
    /// Runs it on a file until it is stopped.
    pub fn start(&self, file: &Path, undo: &Undo) -> Result<Running, String> {
        let mut command = self.command(file, SECONDS_MAX);
        command.stdout(Stdio::null());
        Running::start(&mut command, undo)
    }
    /// Runs it for some seconds.
    pub fn measure(&self, file: &Path, seconds: u64, undo: &Undo) -> Result<Said, String> {
        self.measure_after(Duration::ZERO, file, seconds, undo)
    }
    /// Runs it for some time and then for some seconds, which alone are measured.
    pub fn measure_after(&self, begun: Duration, file: &Path, seconds: u64, undo: &Undo) -> Result<Said, String> {
        let mut command = self.command(file, seconds);
        command.arg(format!("--ramp_time={}ms", begun.as_millis())).stdout(Stdio::piped());
        let said = Running::start(&mut command, undo)?.output(undo)?;
        read(&said, if self.pattern.ends_with("read") { "read" } else { "write" })
    }
}

/// Fills a new file, in order, with data that nothing can compress.
pub fn lay_out(file: &Path, bytes: u64, undo: &Undo) -> Result<(), String> {
    let load = Load { pattern: "write", block_bytes: 1 << 20, depth: 4, ..READ };
    let mut command = load.command(file, SECONDS_MAX);
    // What comes last counts: it ends with the file.
    command.args([format!("--size={bytes}"), "--time_based=0".to_string(), "--refill_buffers".to_string()]);
    command.arg("--end_fsync=1").stdout(Stdio::piped());
    let said = Running::start(&mut command, undo)?.output(undo)?;
    read(&said, "write").map(drop)
}

fn read(said: &str, kind: &str) -> Result<Said, String> {
    // Notes come before the JSON.
    let json = said.find('{').map_or("", |at| &said[at..]);
    let all: Value = serde_json::from_str(json).map_err(|error| format!("fio: {error}: {said}"))?;
    let job = &all["jobs"][0];
    let number = |value: &Value, name: &str| value.as_f64().ok_or_else(|| format!("fio told no {name}: {said}"));
    if job["error"] != 0 || job[kind]["total_ios"] == 0 {
        return Err(format!("fio failed or did nothing: {said}"));
    }
    let is_synced = job["sync"]["total_ios"].as_u64().is_some_and(|count| count > 0);
    let of = |latency: &Value, which: &str| match which {
        "mean" => number(&latency["mean"], which),
        _ => number(&latency["percentile"][which], which),
    };
    let us = |which: &str| {
        let synced = if is_synced { of(&job["sync"]["lat_ns"], which)? } else { 0.0 };
        Ok::<_, String>((of(&job[kind]["clat_ns"], which)? + synced) / 1000.0)
    };
    let per_second = number(&job[kind]["iops"], "iops")?;
    Ok(Said { per_second, mean_us: us("mean")?, p50_us: us("50.000000")?, p99_us: us("99.000000")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = r#"note: something
{"jobs": [{"error": 0, "read": {"total_ios": 0}, "write": {"total_ios": 60, "iops": 30.5, "clat_ns":
 {"mean": 80000.0, "percentile": {"50.000000": 78500, "99.000000": 250000}}}}]}"#;

    #[test]
    fn what_fio_says_is_read() {
        assert_eq!(read(SAID, "write"), Ok(Said { per_second: 30.5, mean_us: 80.0, p50_us: 78.5, p99_us: 250.0 }));
        let sync =
            r#"{"total_ios": 9, "lat_ns": {"mean": 1500, "percentile": {"50.000000": 1000, "99.000000": 2000}}}"#;
        let synced = SAID.replace("\"error\": 0", &format!("\"error\": 0, \"sync\": {sync}"));
        assert_eq!(read(&synced, "write"), Ok(Said { per_second: 30.5, mean_us: 81.5, p50_us: 79.5, p99_us: 252.0 }));
        assert!(read(SAID, "read").is_err());
        assert!(read(&SAID.replace("\"error\": 0", "\"error\": 5"), "write").is_err());
        assert!(read("fio: no such file", "write").is_err());
    }

    #[test]
    fn a_load_is_told_to_fio() {
        let load =
            Load { jobs: 2, depth: 8, sync: Sync::After, think_us: 300, cpus: Some("1"), turn: Turn::First, ..READ };
        let told = format!("{:?}", load.command(Path::new("/a:b"), 5));
        for word in ["taskset", "chrt", "--iodepth=8", "--fdatasync=1", "--thinktime=300", "--numjobs=2", "--runtime=5"]
        {
            assert!(told.contains(word), "{word}: {told}");
        }
        let first = Load { places: Places::First(30), ..READ };
        assert!(format!("{:?}", first.command(Path::new("/a"), 5)).contains("zoned:30/40:0/40:70/20"));
        let told = format!("{:?}", READ.command(Path::new("/a"), 5));
        assert!(told.contains("psync") && !told.contains("chrt") && !told.contains("fdatasync"), "{told}");
    }
}
