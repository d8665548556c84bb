//! Everything at once on one mount, for `SINTER_EVERYTHING` seconds (10 if not set; an hour by hand): churn that knows every
//! byte, fsx in all its modes, stress-ng's stressors, trees that come and go, SQLite, scrubs. Nobody finds a wrong byte,
//! nothing fails, the daemon's memory does not grow, and the brick's check finds nothing afterwards.

#[path = "soak/client.rs"]
mod client;
#[path = "daemon/series.rs"]
mod series;

use crate::daemon::{Daemon, Home, Scratch, run, sinter, text};
use crate::fsx_runs;
use crate::space;
use crate::space::BLOCK;
use crate::stressors;
use crate::tree;
use client::Client;
use series::Series;
use std::fmt::Display;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;
use std::time::Duration;

/// Clients that churn; each holds so many hundredths of what is usable.
const CLIENTS: u64 = 2;
const FILL_PERCENT: u64 = 15;
/// The least there is.
const MEMORY_MAX: u64 = 256 << 20;
/// Time whose observations count as early: caches fill in minutes.
const WARM: Duration = Duration::from_secs(600);
/// Bytes that the daemon may hold later beyond those held early: what a checkpoint takes for a moment.
const PEAK_BYTES: u64 = MEMORY_MAX / 8;

fn seconds() -> u64 {
    crate::daemon::setting("SINTER_EVERYTHING", 10)
}

/// The loads that run beside each other until they are told to stop, or until one of them fails.
struct Load<'a> {
    home: &'a Home,
    stop: AtomicBool,
}

impl Load<'_> {
    /// Starts a part that does one round after the other; counts them. A round that panics stops all.
    fn start<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        name: impl Display + Send + 's,
        mut round: impl FnMut(u64) + Send + 's,
    ) {
        scope.spawn(move || {
            let guard = StopOnPanic(&self.stop);
            let mut rounds = 0;
            while !self.stop.load(Ordering::SeqCst) {
                round(rounds);
                rounds += 1;
            }
            drop(guard);
            println!("{name}: {rounds} rounds");
        });
    }
}

struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::SeqCst);
        }
    }
}

/// A tree is made, copied, compared and removed.
fn tree_round(source: &Path, mount: &Path, round: u64) {
    let target = mount.join(format!("tree-{round}"));
    crate::daemon::system("cp", &["-a", text(source), text(&target)]);
    tree::compare(source, &target);
    std::fs::remove_dir_all(&target).expect("rm -r");
}

/// Transactions in one database; it finds itself sound.
fn sqlite_round(directory: &Path, round: u64) {
    let script = format!(
        "PRAGMA journal_mode={}; CREATE TABLE IF NOT EXISTS rows (round INTEGER, filler TEXT);\n\
         INSERT INTO rows VALUES ({round}, hex(randomblob(3000)));\n\
         UPDATE rows SET filler = hex(randomblob(2000)) WHERE round % 7 = {round} % 7;\n\
         DELETE FROM rows WHERE round < {round} - 500;\nPRAGMA integrity_check;",
        if round.is_multiple_of(2) { "wal" } else { "delete" }
    );
    let mut command = Command::new("sqlite3");
    let output = command.arg(directory.join("rows.db")).arg(script).stdin(Stdio::null()).output().expect("sqlite3");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.lines().last() == Some("ok"), "{output:?}");
}

/// A scrub of the whole brick finds nothing.
fn scrub_round(home: &Home) {
    let output = run(&["scrub", "start", "--wait", text(&home.data)]);
    assert!(output.status.success(), "{output:?}");
}

fn start(home: &Home) -> Daemon {
    let mut command = sinter();
    // Room for what stress-ng makes of its own (a GiB per writer).
    command.arg("up").arg(&home.data).arg(&home.mount).args(["--size", "12G", "--segment-size", "16M"]);
    command.args(["--memory-max", &format!("{}M", MEMORY_MAX >> 20)]);
    Daemon::start(command)
}

#[test]
fn everything_at_once_finds_nothing() {
    let home = Home::new("everything");
    let daemon = start(&home);
    let source = Scratch::new("everything-tree");
    tree::make(source.path(), 500, 11);
    let [stressed, database] = ["stress", "sqlite"].map(|name| home.mount.join(name));
    [&stressed, &database].into_iter().for_each(|path| std::fs::create_dir(path).expect("mkdir"));
    let quota = space::space(&home).usable / BLOCK * FILL_PERCENT / 100;
    let load = Load { home: &home, stop: AtomicBool::new(false) };
    let mut series = Series::default();
    let mut clients: Vec<_> =
        (0..CLIENTS).map(|number| Client::new(&home.mount.join(format!("client-{number}")), number, quota)).collect();
    std::thread::scope(|scope| {
        let load = &load;
        for client in &mut clients {
            load.start(scope, "churn", move |_| client.work(&load.stop).expect("nothing fails"));
        }
        for mode in fsx_runs::MODES {
            // Rounds of seconds, each with another seed.
            load.start(scope, format!("fsx {}", mode.0), move |round| {
                fsx_runs::run(load.home, mode, 100 * mode.1, round)
            });
        }
        let stressed = &stressed;
        load.start(scope, "stress-ng", move |round| {
            let stressor = stressors::STRESSORS[round as usize % stressors::STRESSORS.len()];
            stressors::run(stressor, 1, 5, stressed).expect("verified");
        });
        let (source, database) = (source.path(), &database);
        load.start(scope, "trees", move |round| tree_round(source, &load.home.mount, round));
        load.start(scope, "SQLite", move |round| sqlite_round(database, round));
        load.start(scope, "scrubs", move |_| scrub_round(load.home));
        series.watch(&home, &daemon, Duration::from_secs(seconds()), &load.stop);
    });
    let early = WARM.min(Duration::from_secs(seconds() / 3));
    let [before, after] = series.peaks(early);
    println!("resident memory: peaks {} MB early, {} MB later", before >> 20, after >> 20);
    assert!(before.max(after) <= MEMORY_MAX, "the daemon holds {} bytes", before.max(after));
    assert!(early < WARM || after <= before + PEAK_BYTES, "the daemon's memory grew from {before} to {after} bytes");
    clients.iter().for_each(|client| client.verify_all().expect("what was written"));
    daemon.terminate();
    home.check();
    let daemon = start(&home);
    for client in &clients {
        client.verify_all().expect("what was written");
        client.delete_all();
    }
    daemon.terminate();
    home.check();
}
