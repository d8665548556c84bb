//! The state of a run that its clients share: what was found, how long calls took, and whether it goes on.
//!
//! Promises: a finding ends the run; a call that does not return is one. Absent by design: the clients' own expectations.

use runtime::random::SplitMix;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Pause of a client between two rounds: the nodes need the CPUs too.
const PAUSE: Duration = Duration::from_millis(2);
/// Calls below this are counted and not kept.
pub const LONG: Duration = Duration::from_millis(10);

/// A call that takes longer counts as one that never returns. Longer than any fault, and the way back after it.
pub const NEVER: Duration = Duration::from_secs(30);

/// The kinds of calls that change the volume each time, and are answered when a majority has that.
const CHANGES: [&str; 4] = ["create", "rename", "link", "unlink"];

/// The phase of a run in which durations are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Other = 0,
    /// The time before a follower's disk becomes slow, and that while it is.
    Before = 1,
    Slow = 2,
}

/// A run.
pub struct Run {
    is_over: AtomicBool,
    began: Instant,
    calls: AtomicU64,
    longest_ns: AtomicU64,
    /// The clients that have the lock of the counter, and the number that the last of them wrote.
    holders: AtomicU64,
    counted: AtomicU64,
    /// The number of the phase.
    phase: AtomicU8,
    /// The nanosecond since which no change can be answered; `u64::MAX`: they can.
    frozen_ns: AtomicU64,
    /// The call of each client that makes one, by the client's name.
    under_way: Mutex<BTreeMap<String, UnderWay>>,
    seen: Mutex<Seen>,
}

/// A call that has not returned yet.
struct UnderWay {
    kind: &'static str,
    path: PathBuf,
    began: Duration,
    is_told: bool,
}

/// The things that clients have seen.
#[derive(Default)]
pub struct Seen {
    /// Calls that failed.
    pub errors: Vec<String>,
    /// Calls that did not return in time.
    pub hung: Vec<String>,
    /// Things that were lost or wrong.
    pub wrong: Vec<String>,
    /// Durations by kind of call.
    pub durations: BTreeMap<&'static str, Durations>,
    /// The calls that took long.
    pub long: Vec<Call>,
    /// Durations of syncs before a follower's disk became slow, and while it was.
    pub syncs: [Durations; 2],
}

impl Seen {
    /// True if nothing was found.
    pub fn is_clean(&self) -> bool {
        self.errors.is_empty() && self.hung.is_empty() && self.wrong.is_empty()
    }
}

/// A call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub kind: &'static str,
    pub began: Duration,
    pub took: Duration,
}

/// Durations, counted in buckets of an eighth of an octave.
#[derive(Clone, Default)]
pub struct Durations {
    buckets: BTreeMap<u64, u64>,
    pub count: u64,
    pub longest_ns: u64,
}

impl Durations {
    fn add(&mut self, ns: u64) {
        let octave = u64::from(ns.max(8).ilog2());
        let eighth = (ns.max(8) >> (octave - 3)) & 7;
        *self.buckets.entry(octave * 8 + eighth).or_default() += 1;
        self.count += 1;
        self.longest_ns = self.longest_ns.max(ns);
    }
    fn add_all(&mut self, others: &Durations) {
        for (bucket, count) in &others.buckets {
            *self.buckets.entry(*bucket).or_default() += count;
        }
        self.count += others.count;
        self.longest_ns = self.longest_ns.max(others.longest_ns);
    }
    /// The duration that this share of the calls does not exceed, in nanoseconds: the upper end of its bucket.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in &self.buckets {
            seen += count;
            if seen >= wanted {
                let end = (8 + bucket % 8 + 1) << (bucket / 8 - 3);
                return end.min(self.longest_ns);
            }
        }
        self.longest_ns
    }
}

impl Run {
    /// Begins a run.
    pub fn new() -> Run {
        Run {
            is_over: AtomicBool::new(false),
            began: Instant::now(),
            calls: AtomicU64::new(0),
            longest_ns: AtomicU64::new(0),
            holders: AtomicU64::new(0),
            counted: AtomicU64::new(0),
            phase: AtomicU8::new(Phase::Other as u8),
            frozen_ns: AtomicU64::new(u64::MAX),
            under_way: Mutex::default(),
            seen: Mutex::default(),
        }
    }
    /// The time since its begin.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }
    /// Enters a phase.
    pub fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::SeqCst);
    }
    /// Notes that no change can be answered from now on, or that they can again.
    pub fn nothing_changes(&self, is_so: bool) {
        let since_ns = if is_so { self.now().as_nanos() as u64 } else { u64::MAX };
        self.frozen_ns.store(since_ns, Ordering::SeqCst);
    }
    /// True until its time is over, or something was found.
    pub fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }
    /// Ends it: no client begins anything more.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
    /// Something is lost or wrong.
    pub fn wrong(&self, what: String) {
        eprintln!("after {:.1} s: wrong: {what}", self.now().as_secs_f64());
        self.see(|seen| seen.wrong.push(what));
        self.end();
    }
    fn error(&self, what: String) {
        eprintln!("after {:.1} s: error: {what}", self.now().as_secs_f64());
        self.see(|seen| seen.errors.push(what));
        self.end();
    }
    /// Tells each call that has been under way for too long, once; true if there was one.
    pub fn notices_hung(&self, patience: Duration) -> bool {
        let now = self.now();
        let mut under_way = self.under_way();
        let hung = under_way.iter_mut().filter(|(_, call)| !call.is_told && now.saturating_sub(call.began) > patience);
        let told = hung.map(|(client, call)| {
            call.is_told = true;
            let (kind, path, began) = (call.kind, call.path.display(), call.began.as_secs_f64());
            format!("{client}: {kind} of {path}, which began after {began:.1} s, has not returned for {patience:?}")
        });
        let told: Vec<String> = told.collect();
        drop(under_way);
        for what in &told {
            eprintln!("after {:.1} s: hung: {what}", now.as_secs_f64());
            self.see(|seen| seen.hung.push(what.clone()));
            self.end();
        }
        !told.is_empty()
    }
    /// True while a call is under way that began before this moment.
    pub fn waits_since(&self, moment: Duration) -> bool {
        self.under_way().values().any(|call| call.began <= moment)
    }
    fn under_way(&self) -> MutexGuard<'_, BTreeMap<String, UnderWay>> {
        self.under_way.lock().expect("nobody panics while it looks")
    }
    /// The calls that have ended, and the longest.
    pub fn calls(&self) -> (u64, Duration) {
        let longest = Duration::from_nanos(self.longest_ns.load(Ordering::Relaxed));
        (self.calls.load(Ordering::Relaxed), longest)
    }
    /// True if nothing was found.
    pub fn is_clean(&self) -> bool {
        self.see(|seen| seen.is_clean())
    }
    /// Looks at what was seen.
    pub fn see<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.seen.lock().expect("nobody panics while it looks"))
    }
}

/// The end of a client that has found something, which was told to the run.
#[derive(Debug)]
pub struct Ended;

/// A client.
pub struct Client<'a> {
    run: &'a Run,
    name: String,
    /// The mount in which it works.
    mount: PathBuf,
    /// The source of its choices.
    pub draw: SplitMix,
    durations: BTreeMap<&'static str, Durations>,
    long: Vec<Call>,
    syncs: [Durations; 2],
}

impl<'a> Client<'a> {
    /// Makes a client of a mount, whose choices follow from a seed.
    pub fn new(run: &'a Run, name: String, mount: PathBuf, seed: u64) -> Client<'a> {
        let (durations, long, syncs) = Default::default();
        Client { run, name, mount, draw: SplitMix(seed), durations, long, syncs }
    }
    /// A path in the volume.
    pub fn path(&self, name: &str) -> PathBuf {
        self.mount.join(name)
    }
    /// Waits for the next round; false if there is none.
    pub fn goes_on(&self) -> bool {
        std::thread::sleep(PAUSE);
        self.run.goes_on()
    }
    /// Makes a call, and records how long it took.
    pub fn call<T>(
        &mut self,
        kind: &'static str,
        path: &Path,
        work: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, Ended> {
        let began = self.run.now();
        let call = UnderWay { kind, path: path.to_path_buf(), began, is_told: false };
        self.run.under_way().insert(self.name.clone(), call);
        let phase = self.run.phase.load(Ordering::SeqCst);
        let done = work();
        self.run.under_way().remove(&self.name);
        let took = self.run.now() - began;
        let ns = took.as_nanos() as u64;
        self.durations.entry(kind).or_default().add(ns);
        if kind == "sync" && phase != 0 && phase == self.run.phase.load(Ordering::SeqCst) {
            self.syncs[usize::from(phase) - 1].add(ns);
        }
        if CHANGES.contains(&kind) && began.as_nanos() as u64 > self.run.frozen_ns.load(Ordering::SeqCst) {
            self.run.wrong(format!("{}: {kind} was answered while two of three disks hung", self.name));
        }
        if took >= LONG {
            self.long.push(Call { kind, began, took });
        }
        self.run.calls.fetch_add(1, Ordering::Relaxed);
        self.run.longest_ns.fetch_max(ns, Ordering::Relaxed);
        done.map_err(|error| {
            let (name, path) = (&self.name, path.display());
            self.run.error(format!("{name}: {kind} of {path}: {error}, after {} ms", took.as_millis()));
            Ended
        })
    }
    /// It has the lock of the counter; true if nobody else has.
    pub fn locks(&self) -> bool {
        self.run.holders.fetch_add(1, Ordering::SeqCst) == 0
    }
    /// The number that who had the lock last was told to be written.
    pub fn counted(&self) -> u64 {
        self.run.counted.load(Ordering::SeqCst)
    }
    /// It has written this number, and gives the lock back.
    pub fn unlocks(&self, number: u64) {
        self.run.counted.store(number, Ordering::SeqCst);
        self.run.holders.fetch_sub(1, Ordering::SeqCst);
    }
    /// Ends it, since something is lost or wrong.
    pub fn wrong<T>(&self, what: &str) -> Result<T, Ended> {
        self.run.wrong(format!("{}: {what}", self.name));
        Err(Ended)
    }
    /// Hands its records to the run.
    pub fn end(self) {
        self.run.see(|seen| {
            seen.long.extend(self.long);
            seen.syncs.iter_mut().zip(&self.syncs).for_each(|(all, own)| all.add_all(own));
            for (kind, durations) in self.durations {
                seen.durations.entry(kind).or_default().add_all(&durations);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_an_eighth_of_an_octave() {
        let mut durations = Durations::default();
        (1..=1000).for_each(|number| durations.add(number * 1000));
        for (share, exact) in [(0.5, 500_000.0), (0.99, 990_000.0)] {
            let found = durations.quantile_ns(share) as f64;
            assert!((exact..exact * 1.15).contains(&found), "{share}: {found}");
        }
        assert_eq!((durations.quantile_ns(1.0), durations.count), (1_000_000, 1000));
        assert_eq!(Durations::default().quantile_ns(0.5), 0);
    }

    #[test]
    fn a_finding_ends_the_run() {
        let run = Run::new();
        let mut client = Client::new(&run, "log-0".to_string(), PathBuf::from("/nowhere"), 1);
        let path = client.path("log-0");
        assert_eq!(client.call("stat", &path, || Ok(7)).expect("it went well"), 7);
        assert!(run.goes_on() && run.is_clean());
        client.call::<()>("stat", &path, || Err(io::ErrorKind::NotFound.into())).expect_err("it failed");
        client.end();
        assert!(!run.goes_on() && !run.is_clean());
        assert_eq!(run.see(|seen| (seen.errors.len(), seen.durations["stat"].count)), (1, 2));
        assert!(run.see(|seen| seen.errors[0].starts_with("log-0: stat of /nowhere/log-0: ")));
    }

    #[test]
    fn a_change_that_nobody_could_answer_is_a_finding() {
        let run = Run::new();
        let mut client = Client::new(&run, "names 0".to_string(), PathBuf::from("/nowhere"), 1);
        let path = client.path("names");
        run.nothing_changes(true);
        client.call("sync", &path, || Ok(())).expect("it is no change");
        run.nothing_changes(false);
        client.call("link", &path, || Ok(())).expect("all disks work");
        assert!(run.is_clean());
        run.nothing_changes(true);
        client.call("link", &path, || Ok(())).expect("it went well");
        assert!(!run.is_clean());
    }

    #[test]
    fn syncs_are_compared_within_their_phases() {
        let run = Run::new();
        let mut client = Client::new(&run, "log-0".to_string(), PathBuf::from("/nowhere"), 1);
        let path = client.path("log-0");
        for phase in [Phase::Other, Phase::Before, Phase::Slow, Phase::Slow] {
            run.enter(phase);
            client.call("sync", &path, || Ok(())).expect("it went well");
        }
        let over = || {
            run.enter(Phase::Other);
            Ok(())
        };
        client.call("sync", &path, over).expect("it went well");
        client.end();
        assert_eq!(run.see(|seen| seen.syncs.each_ref().map(|syncs| syncs.count)), [1, 2]);
    }

    #[test]
    fn a_call_that_does_not_return_is_told_once() {
        let run = Run::new();
        let mut client = Client::new(&run, "log-0".to_string(), PathBuf::from("/nowhere"), 1);
        let path = client.path("log-0");
        let seen = client.call("sync", &path, || {
            assert!(!run.notices_hung(NEVER) && run.goes_on());
            assert!(run.waits_since(run.now()) && !run.waits_since(Duration::ZERO));
            Ok((run.notices_hung(Duration::ZERO), run.notices_hung(Duration::ZERO)))
        });
        assert_eq!(seen.expect("it returns all the same"), (true, false));
        assert!(!run.goes_on() && !run.is_clean() && !run.notices_hung(Duration::ZERO));
        assert!(run.see(|seen| seen.hung[0].starts_with("log-0: sync of /nowhere/log-0, which began")));
    }
}
