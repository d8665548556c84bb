//! Data acknowledged as durable is there after each of many kills, behind a write cache that dies with the process,
//! under a mixed load; and the same check notices a daemon that acknowledges before it flushes. `SINTER_KILLS` sets the
//! number of kills (25 if not set: about a minute).

#![cfg(feature = "seeded-bugs")]

#[path = "kill/claims.rs"]
mod claims;

use crate::daemon::{Daemon, Home, succeed, text};
use claims::{Appended, Blocks, Churn, Claim, Replaced, Small, Syncing};
use runtime::random::SplitMix;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A load that has not ended so long after its daemon did hangs.
const HANGS: Duration = Duration::from_secs(60);

fn kills() -> u64 {
    crate::daemon::setting("SINTER_KILLS", 25)
}

/// A daemon behind a volatile write cache; small segments and few groups, so that making and replaying them is quick.
fn start(home: &Home, bug: Option<&str>) -> Daemon {
    let mut command = home.command();
    command.args(["--segment-size", "4M", "--groups", "8"]).env("SINTER_TEST_VOLATILE_CACHE", "1");
    if let Some(bug) = bug {
        command.env("SINTER_TEST_BUG", bug);
    }
    Daemon::start(command)
}

/// The objects of a round's load: files that every round overwrites, and a directory of its own.
fn round_claims(home: &Home, round: u64, kept: Vec<Box<dyn Claim>>) -> Vec<Box<dyn Claim>> {
    let directory = home.mount.join(format!("round-{round}"));
    let made = std::fs::create_dir(&directory).and_then(|()| std::fs::File::open(&home.mount)?.sync_all());
    made.expect("the mount is writable");
    let mut all = kept;
    all.push(Box::new(Appended::new(&directory, 1, Syncing::Fdatasync)));
    all.push(Box::new(Appended::new(&directory, 2, Syncing::Fsync)));
    all.push(Box::new(Small::new(&directory, round)));
    all.push(Box::new(Replaced::new(&directory)));
    all
}

fn blocks(home: &Home) -> Vec<Box<dyn Claim>> {
    let modes = [(1, Syncing::EachWrite), (2, Syncing::EachWrite), (3, Syncing::Fdatasync), (4, Syncing::Fsync)];
    modes.into_iter().map(|(file, mode)| Box::new(Blocks::new(&home.mount, file, mode)) as Box<dyn Claim>).collect()
}

type Worker = JoinHandle<Box<dyn Claim>>;

/// One thread per claim; each works until its first error, which must not come before the kill.
fn spawn(claims: Vec<Box<dyn Claim>>, seed: u64, killed: &Arc<AtomicBool>) -> Vec<Worker> {
    let work = |(number, mut claim): (usize, Box<dyn Claim>)| {
        let killed = killed.clone();
        let mut random = SplitMix(seed ^ ((number as u64 + 1) << 32));
        std::thread::spawn(move || {
            let error = claim.work(&mut random).expect_err("work ends by an error only");
            assert!(killed.load(Ordering::SeqCst), "{}: failed before the kill: {error}", claim.name());
            claim
        })
    };
    claims.into_iter().enumerate().map(work).collect()
}

fn join(worker: Worker) -> Box<dyn Claim> {
    let deadline = Instant::now() + HANGS;
    while !worker.is_finished() {
        assert!(Instant::now() < deadline, "a load hangs although its daemon is dead");
        std::thread::sleep(Duration::from_millis(2));
    }
    worker.join().expect("no panic")
}

/// The findings of all rounds.
#[derive(Default)]
struct Found {
    violations: Vec<String>,
    kills: u64,
    acknowledged: u64,
    moved_bytes: u64,
}

/// Bytes that the cleaner has moved since the daemon started.
fn moved_bytes(home: &Home) -> u64 {
    let status: serde_json::Value =
        serde_json::from_str(&succeed(&["status", text(&home.data), "--json"])).expect("status prints JSON");
    status["space"]["moved_bytes"].as_u64().expect("a number of bytes")
}

/// Loads, kills and checks until `kills` are done, or until the first violations.
fn torture(home: &Home, kills: u64, seed: u64, bug: Option<&str>, churn: Option<(u64, u64)>) -> Found {
    let mut random = SplitMix(seed);
    let mut found = Found::default();
    let mut kept = blocks(home);
    let mut past = Vec::new();
    let mut daemon = start(home, bug);
    if let Some((bytes, again)) = churn {
        kept.push(Box::new(Churn::lay_out(&home.mount, bytes, again)));
    }
    let overwritten = kept.len();
    while found.kills < kills && found.violations.is_empty() {
        let killed = Arc::new(AtomicBool::new(false));
        let workers = spawn(round_claims(home, found.kills, kept), random.next(), &killed);
        std::thread::sleep(Duration::from_millis(50 + random.below(350)));
        found.moved_bytes += moved_bytes(home);
        killed.store(true, Ordering::SeqCst);
        daemon.kill();
        let mut claims: Vec<_> = workers.into_iter().map(join).collect();
        daemon = start(home, bug);
        for claim in &mut claims {
            found.acknowledged += claim.acknowledged();
            claim.check(&mut found.violations);
        }
        past.extend(claims.drain(overwritten..));
        kept = claims;
        found.kills += 1;
    }
    // Later rounds took nothing away from what earlier ones left.
    past.iter_mut().for_each(|claim| claim.check(&mut found.violations));
    daemon.terminate();
    found
}

#[test]
fn nothing_acknowledged_as_durable_is_lost_by_kills() {
    let home = Home::new("kills");
    let found = torture(&home, kills(), 1, None, None);
    assert!(found.violations.is_empty(), "kill {}: {:#?}", found.kills, found.violations);
    println!("{} kills, {} durable acknowledgements, no violation", found.kills, found.acknowledged);
    assert!(found.acknowledged > found.kills * 20, "only {} acknowledgements", found.acknowledged);
    home.check();
}

#[test]
fn an_acknowledgement_before_the_flush_is_noticed() {
    let home = Home::new("kills-seeded");
    let found = torture(&home, 100, 2, Some("AckBeforeFlush"), None);
    assert!(!found.violations.is_empty(), "{} kills noticed nothing", found.kills);
    println!("noticed at kill {}: {}", found.kills, found.violations[0]);
}

/// The same on a brick of 4 GiB that is full but for what the cleaner frees.
#[test]
fn nothing_is_lost_by_kills_while_the_cleaner_works() {
    let home = Home::new("kills-cleaner");
    let found = torture(&home, kills().div_ceil(2), 3, None, Some((3200 << 20, 850 << 20)));
    assert!(found.violations.is_empty(), "kill {}: {:#?}", found.kills, found.violations);
    let Found { kills, acknowledged, moved_bytes, .. } = found;
    println!("{kills} kills, {acknowledged} durable acknowledgements, {moved_bytes} bytes moved, no violation");
    assert!(moved_bytes > kills * (1 << 20), "the cleaner has moved {moved_bytes} bytes only");
    home.check();
}
