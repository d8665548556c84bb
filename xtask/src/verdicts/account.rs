//! Is the clients' time accounted for? Stages with the way through the kernel, beside the kernel's own account of the same requests and what
//! fio measures.

use super::asked::Asked;
use super::brick::Brick;
use super::load::{Load, READ, Sync};
use crate::flash::ground::text;
use crate::flash::undo::Undo;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Seconds for which the load runs before `explain` looks, and after it.
const AROUND: u64 = 1;

/// The loads, by name, and the operation that is looked at, as the daemon calls it and as the kernel does.
const LOADS: [(&str, (&str, &str), Client); 10] = [
    ("random read, depth 1", ("read", "read"), Client::Fio(READ)),
    ("random read, depth 32", ("read", "read"), Client::Fio(Load { depth: 32, ..READ })),
    ("random write, depth 1", ("write-direct", "write"), Client::Fio(WRITE)),
    ("random write, depth 32", ("write-direct", "write"), Client::Fio(Load { depth: 32, ..WRITE })),
    ("random write, O_DSYNC, depth 1", ("write-sync", "write"), Client::Fio(Load { sync: Sync::Each, ..WRITE })),
    (
        "random write, O_DSYNC, depth 32",
        ("write-sync", "write"),
        Client::Fio(Load { sync: Sync::Each, depth: 32, ..WRITE }),
    ),
    ("small files made and synced, 1", ("fsync", "fsync"), Client::Files(1, small_file)),
    ("small files made and synced, 32", ("fsync", "fsync"), Client::Files(32, small_file)),
    ("files made and removed, 1", ("unlink", "unlink"), Client::Files(1, made_and_removed)),
    ("files made and removed, 32", ("unlink", "unlink"), Client::Files(32, made_and_removed)),
];
const WRITE: Load = Load { pattern: "randwrite", ..READ };
/// The content of a small file.
const CONTENT: [u8; 4096] = [7; 4096];
/// Files that a thread keeps before it writes the first one again.
const FILES: usize = 1000;

/// The client that asks.
#[derive(Clone, Copy)]
enum Client {
    Fio(Load),
    /// Threads, so many, that do this with one file after the other, and time the call that is looked at.
    Files(usize, fn(&Path) -> std::io::Result<Duration>),
}

impl Client {
    /// Asks for some seconds: the mean time of a call in microseconds.
    fn measure(self, brick: &Brick, seconds: u64, undo: &Undo) -> Result<f64, String> {
        let (threads, act) = match self {
            Client::Fio(load) => return Ok(load.measure(&brick.file(), seconds, undo)?.mean_us),
            Client::Files(threads, act) => (threads, act),
        };
        let directory = brick.file().with_file_name("files");
        let until = Instant::now() + Duration::from_secs(seconds);
        let run = |thread: usize| {
            let own = directory.join(thread.to_string());
            std::fs::create_dir_all(&own)?;
            let (mut calls, mut took) = (0u32, Duration::ZERO);
            while Instant::now() < until {
                took += act(&own.join((calls as usize % FILES).to_string()))?;
                calls += 1;
            }
            Ok::<_, std::io::Error>((calls, took))
        };
        let all = std::thread::scope(|scope| {
            let started: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
            started
                .into_iter()
                .map(|one| one.join().expect("a thread that panics ends the process"))
                .collect::<Vec<_>>()
        });
        let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
        let all = all.into_iter().collect::<Result<Vec<_>, _>>().map_err(failed)?;
        std::fs::remove_dir_all(&directory).map_err(failed)?;
        let (calls, took) = all.iter().fold((0, Duration::ZERO), |(calls, took), one| (calls + one.0, took + one.1));
        Ok(took.as_secs_f64() * 1e6 / f64::from(calls.max(1)))
    }
}

fn small_file(path: &Path) -> std::io::Result<Duration> {
    let mut file = File::create(path)?;
    file.write_all(&CONTENT)?;
    let began = Instant::now();
    file.sync_all()?;
    Ok(began.elapsed())
}

fn made_and_removed(path: &Path) -> std::io::Result<Duration> {
    File::create(path)?;
    let began = Instant::now();
    std::fs::remove_file(path)?;
    Ok(began.elapsed())
}

/// The bands of an operation that are compared, and the kernel's figures of the same.
const BANDS: [(&str, &str); 3] = [("mean", "mean_ns"), ("p50", "p50_ns"), ("p99", "p99_ns")];

/// A load's latency, as its client has it in the mean and as it is accounted for; in microseconds.
pub struct Account {
    name: &'static str,
    client_us: f64,
    daemon_us: f64,
    /// The way through the kernel, in the mean.
    way_us: f64,
    /// Mean, median and 99th percentile: way and stages, and the kernel's own account of all requests.
    bands: [(f64, f64); 3],
}

impl Account {
    /// It as a line.
    pub fn line(&self) -> String {
        let Account { name, client_us, daemon_us, way_us, bands } = self;
        let bands = bands.map(|(ours, kernel)| format!("{ours:.1} of {kernel:.1}: {:.3}", ours / kernel)).join(", ");
        format!(
            "{name:<32} client {client_us:>8.1} us, daemon {daemon_us:>8.1}, way {way_us:>6.1}; mean, p50, p99 {bands}"
        )
    }
    /// It as JSON.
    pub fn json(&self) -> Value {
        let Account { name, client_us, daemon_us, way_us, bands } = self;
        json!({ "load": name, "client_us": client_us, "daemon_us": daemon_us, "way_us": way_us, "bands_us": bands })
    }
}

/// Runs each load, and has it explained meanwhile.
pub fn run(asked: &Asked, brick: &Brick, undo: &Undo) -> Result<Vec<Account>, String> {
    let mut accounts = Vec::new();
    for (name, operation, client) in LOADS {
        let line = format!(
            "sleep {AROUND}; exec '{}' explain '{}' --seconds {} --json",
            text(&brick.binary),
            text(&brick.data),
            asked.seconds
        );
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", &line]).stdin(Stdio::null()).stdout(Stdio::piped());
        let explaining = command.spawn().map_err(|error| format!("sh: {error}"))?;
        let client_us = client.measure(brick, asked.seconds + 2 * AROUND, undo)?;
        let told = explaining.wait_with_output().map_err(|error| format!("sinter explain: {error}"))?;
        let told: Value = serde_json::from_slice(&told.stdout).map_err(|error| format!("sinter explain: {error}"))?;
        let account = account(name, operation, client_us, &told)?;
        eprintln!("{}", account.line());
        accounts.push(account);
    }
    Ok(accounts)
}

/// `kind`: the operation as the kernel calls it.
fn account(
    name: &'static str,
    (operation, kind): (&str, &str),
    client_us: f64,
    told: &Value,
) -> Result<Account, String> {
    let all = told["operations"].as_array().ok_or("sinter explain told no operations")?;
    let one = all.iter().find(|one| one["name"] == operation);
    let mean_ns = one.and_then(|one| one["mean_ns"].as_f64()).ok_or(format!("{name}: no {operation} was told"))?;
    if told["transport_is_measured"] != true {
        return Err("the kernel does not tell the ways of requests".to_string());
    }
    let listed = |list: &'static str, of: &Value, is: &dyn Fn(&Value) -> bool| -> Result<Value, String> {
        let found = of.as_array().and_then(|all| all.iter().find(|one| is(one)));
        found.cloned().ok_or_else(|| format!("{name}: nothing of it in {list}"))
    };
    let kernel = listed("kernel", &told["kernel"], &|one| one["kind"] == kind)?;
    let waterfall = one.map_or(&Value::Null, |one| &one["waterfall"]);
    let mut bands = [(0.0, 0.0); 3];
    let mut way_us = 0.0;
    for ((band, figure), both) in BANDS.into_iter().zip(&mut bands) {
        let ours = listed("the waterfall", waterfall, &|one| one["name"] == band)?;
        *both = (ours["duration_ns"].as_f64().unwrap_or(0.0) / 1e3, kernel[figure].as_f64().unwrap_or(0.0) / 1e3);
        if band == "mean" {
            let stages = ours["stages"].as_array().cloned().unwrap_or_default();
            let of_way = stages.iter().filter(|stage| stage[0] == "sent" || stage[0] == "returned");
            way_us = of_way.filter_map(|stage| stage[1].as_f64()).sum::<f64>() / 1e3;
        }
    }
    Ok(Account { name, client_us, daemon_us: mean_ns / 1000.0, way_us, bands })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_adds_up() {
        let band =
            |name: &str, ns: u64| json!({ "name": name, "duration_ns": ns, "stages": [["sent", 5000], ["read", 3]] });
        let waterfall = [band("mean", 90_000), band("p50", 80_000), band("p99", 300_000), band("max", 1)];
        let told = json!({
            "operations": [{ "name": "read", "mean_ns": 80_000, "waterfall": waterfall }],
            "transport_is_measured": true,
            "kernel": [{ "kind": "read", "mean_ns": 100_000, "p50_ns": 80_000, "p99_ns": 150_000 }],
        });
        let account = account("a load", ("read", "read"), 100.0, &told).expect("it is whole");
        assert_eq!((account.way_us, account.bands), (5.0, [(90.0, 100.0), (80.0, 80.0), (300.0, 150.0)]));
        assert!(super::account("a load", ("write", "write"), 100.0, &told).is_err());
        assert!(super::account("a load", ("read", "write"), 100.0, &told).is_err());
    }
}
