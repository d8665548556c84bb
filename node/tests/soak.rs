//! Churn on a nearly full brick on a real mount, for `SINTER_SOAK` seconds (120 if not set): several clients create,
//! overwrite, append, truncate, rename, delete, sync and read back, and know every byte that they wrote. At the end
//! the brick counts exactly the blocks that they know of, and none once all is deleted; the daemon's memory does not
//! grow meanwhile, and no operation fails or takes long.

#[path = "soak/client.rs"]
mod client;
mod daemon;
#[path = "daemon/series.rs"]
mod series;
#[path = "daemon/space.rs"]
mod space;

use client::{Action, Client, Figures};
use daemon::{Daemon, Home};
use series::Series;
use space::{BLOCK, settle};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Clients at the same time.
const CLIENTS: u64 = 3;
/// Percentage of the usable space that they fill: the cleaner has work, nobody hears "full".
const FILL_PERCENT: u64 = 90;
/// No operation takes longer: clients wait for the cleaner for half a second at most, for a device that others use as
/// well for some more.
const SLOWEST: Duration = Duration::from_secs(5);
/// The daemon's bound of memory: the least there is.
const MEMORY_MAX: u64 = 256 << 20;
/// Bytes of memory that the daemon may hold beyond the most of the first fifth of the time, and minute: what one
/// checkpoint takes for a moment (an overlay of a sixteenth of the bound, and its edits), if none of those early was
/// seen at its peak.
const PEAK_BYTES: u64 = MEMORY_MAX / 8;
/// Time in which caches fill: random overwrites take as long to touch every leaf. Seen: 160 MB after a minute, 210
/// after four to nine, and no more.
const WARM: Duration = Duration::from_secs(600);

/// Bytes by which the daemon's memory may grow after the early part.
fn growth_bytes() -> u64 {
    // The caches' share of the bound is a quarter.
    if early() < WARM { PEAK_BYTES + MEMORY_MAX / 4 } else { PEAK_BYTES }
}

/// The first minute at least belongs to the fill and to caches that warm up.
fn early() -> Duration {
    Duration::from_secs((seconds() / 5).max(60))
}

fn seconds() -> u64 {
    let seconds = daemon::setting("SINTER_SOAK", 120);
    assert!(seconds >= 120, "SINTER_SOAK: memory is compared with that of the first minute, which takes another");
    seconds
}

fn start(home: &Home) -> Daemon {
    let mut command = home.command();
    command.args(["--segment-size", "16M", "--groups", "16", "--memory-max", &format!("{}M", MEMORY_MAX >> 20)]);
    Daemon::start(command)
}

type Worker = JoinHandle<(Client, Result<(), String>)>;

fn spawn(home: &Home, quota: u64, stop: &Arc<AtomicBool>) -> Vec<Worker> {
    let one = |number: u64| {
        let (directory, stop) = (home.mount.join(format!("client-{number}")), stop.clone());
        std::thread::spawn(move || {
            let mut client = Client::new(&directory, number, quota);
            let worked = client.work(&stop);
            // The others need not go on.
            stop.store(stop.load(Ordering::SeqCst) || worked.is_err(), Ordering::SeqCst);
            (client, worked)
        })
    };
    (0..CLIENTS).map(one).collect()
}

fn summary(figures: &Figures, series: &Series) {
    println!("  operation     count  mean ms  slowest ms  at second");
    for action in Action::ALL {
        let one = figures.of(action);
        let mean = one.total.as_secs_f64() * 1e3 / one.count.max(1) as f64;
        let (name, slowest, at) = (format!("{action:?}"), one.slowest.as_millis(), one.slowest_at.as_secs());
        println!("  {name:9} {:9}  {mean:7.2}  {slowest:10}  {at:9}", one.count);
    }
    let (Some(first), Some(last)) = (series.0.first(), series.0.last()) else { return };
    let (client, device) = (last.space.client - first.space.client, last.space.device - first.space.device);
    let amplification = device as f64 / client.max(1) as f64;
    println!("  clients wrote {} MB, the device got {amplification:.2} times that", client >> 20);
    let [start, end] = series.ends().map(|bytes| bytes >> 20);
    let [before, after] = series.peaks(early()).map(|bytes| bytes >> 20);
    println!("  resident memory: {start} MB at the start, {end} at the end; peaks: {before} early, {after} later");
}

#[test]
fn churn_leaves_no_byte_behind() {
    let home = Home::new("soak");
    let daemon = start(&home);
    let before = settle(&home);
    let quota = before.usable / BLOCK * FILL_PERCENT / 100 / CLIENTS;
    let stop = Arc::new(AtomicBool::new(false));
    let mut series = Series::default();
    let workers = spawn(&home, quota, &stop);
    series.watch(&home, &daemon, Duration::from_secs(seconds()), &stop);
    let mut figures = Figures::default();
    let (mut clients, mut failures) = (Vec::new(), Vec::new());
    for worker in workers {
        let (client, worked) = worker.join().expect("no panic");
        figures.add(client.figures());
        failures.extend(worked.err());
        clients.push(client);
    }
    summary(&figures, &series);
    assert_eq!(failures, Vec::<String>::new());
    for action in Action::ALL {
        let one = figures.of(action);
        assert!(one.slowest < SLOWEST, "{action:?} took {:?} once, at {:?}", one.slowest, one.slowest_at);
    }
    let [early, late] = series.peaks(early());
    assert!(late <= early + growth_bytes(), "the daemon's memory grew from {early} to {late} bytes");
    assert!(late.max(early) <= MEMORY_MAX, "the daemon holds {late} bytes");

    // Not a byte more or less than what the clients know of.
    let blocks: u64 = clients.iter().map(Client::blocks).sum();
    let full = settle(&home);
    assert_eq!(full.logical, before.logical + blocks * BLOCK, "{blocks} blocks: {full:?}");
    assert!(blocks > CLIENTS * quota / 10 * 9, "the brick was to be held full: {blocks} blocks of {}", CLIENTS * quota);
    daemon.terminate();
    home.check();
    let daemon = start(&home);
    for client in &clients {
        client.verify_all().expect("what was written");
    }
    clients.iter().for_each(Client::delete_all);
    let empty = settle(&home);
    assert_eq!(empty.logical, before.logical, "{empty:?}");
    assert_eq!(empty.statfs_free, before.statfs_free, "{empty:?}");
    daemon.terminate();
    home.check();
}
