//! The report of a run: calls, faults, stalls, findings; as a table and as JSON.

use super::cuts::Outcome;
use super::faults::{Fault, Part};
use super::kinds::{Goal, KILLED, Kind, LEASE};
use super::run::{Call, LONG, Seen};
use crate::hybrid::asked::Form;
use serde_json::{Value, json};
use std::time::Duration;

/// The report.
pub struct Report {
    pub seed: u64,
    pub time: Duration,
    pub faults: Vec<Fault>,
    pub seen: Seen,
}

/// The goal for how much longer the slowest hundredth of syncs may take while a follower's disk is slow.
const SLOW_RATIO: f64 = 1.3;

/// The stall of each fault: the longest call in which it was the first fault, or which began between it and the next one. 0: none took
/// long.
fn stalls(faults: &[Fault], long: &[Call]) -> Vec<Duration> {
    longest(faults, long).into_iter().map(|call| call.map_or(Duration::ZERO, |call| call.took)).collect()
}

fn longest(faults: &[Fault], long: &[Call]) -> Vec<Option<Call>> {
    let mut found: Vec<Option<Call>> = vec![None; faults.len()];
    for call in long {
        let after = faults.partition_point(|fault| fault.at < call.began);
        let within = faults.get(after).is_some_and(|fault| fault.at <= call.began + call.took);
        let of = if within { Some(after) } else { after.checked_sub(1) };
        if let Some(of) = of
            && found[of].is_none_or(|known| known.took < call.took)
        {
            found[of] = Some(*call);
        }
    }
    found
}

/// The value that this share of sorted ones does not exceed.
fn quantile(sorted: &[Duration], share: f64) -> Duration {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or_default()
}

/// A duration as it is printed.
fn shown(stall: Duration) -> String {
    if stall < LONG { format!("< {} ms", LONG.as_millis()) } else { format!("{} ms", stall.as_millis()) }
}

/// The stalls of some faults.
struct Row {
    name: &'static str,
    /// Sorted by length.
    stalls: Vec<Duration>,
    goal: Option<Goal>,
}

impl Row {
    fn half(&self) -> Duration {
        quantile(&self.stalls, 0.5)
    }
    fn most(&self) -> Duration {
        quantile(&self.stalls, 0.99)
    }
    fn longest(&self) -> Duration {
        self.stalls.last().copied().unwrap_or_default()
    }
    fn is_met(&self) -> Option<bool> {
        self.goal.map(|goal| self.most() <= goal.most && self.longest() <= goal.always)
    }
    fn line(&self) -> String {
        let (half, most, longest) = (shown(self.half()), shown(self.most()), shown(self.longest()));
        let of = |goal: Goal| match goal.most == goal.always {
            true => format!("{} ms", goal.always.as_millis()),
            false => format!("99%: {} ms, all: {} ms", goal.most.as_millis(), goal.always.as_millis()),
        };
        let goal = match (self.goal, self.is_met()) {
            (Some(goal), Some(true)) => format!("   {}: met", of(goal)),
            (Some(goal), _) => format!("   {}: MISSED", of(goal)),
            _ => String::new(),
        };
        format!("{:<32} {:>7} {half:>11} {most:>11} {longest:>11}{goal}", self.name, self.stalls.len())
    }
    fn json(&self) -> Value {
        let ms = |time: Duration| time.as_millis() as u64;
        let goal = self.goal.map(|goal| json!({ "p99_ms": ms(goal.most), "max_ms": ms(goal.always) }));
        json!({ "fault": self.name, "faults": self.stalls.len(), "stall_ms_p50": ms(self.half()),
            "stall_ms_p99": ms(self.most()), "stall_ms_max": ms(self.longest()), "goal": goal, "met": self.is_met() })
    }
}

/// The outcomes of cuts: whether the leader stayed that was cut off from one follower, and for how long one led on that was parted from the
/// majority.
struct Leads {
    kept: Vec<bool>,
    led_on: Vec<Duration>,
}

impl Leads {
    fn lines(&self) -> Vec<String> {
        let judged = |is_met: bool| if is_met { "met" } else { "MISSED" };
        let mut lines = Vec::new();
        if let Some(longest) = self.led_on.last() {
            let (times, half, met) = (self.led_on.len(), quantile(&self.led_on, 0.5), judged(*longest <= LEASE));
            let goal = format!("   {} ms: {met}", LEASE.as_millis());
            lines.push(format!(
                "led on without a majority, {times} times: 50% {} ms, longest {} ms{goal}",
                half.as_millis(),
                longest.as_millis()
            ));
        }
        if !self.kept.is_empty() {
            let (kept, all) = (self.kept.iter().filter(|kept| **kept).count(), self.kept.len());
            let met = judged(kept == all);
            lines.push(format!("led on in the same term, cut off from one follower: {kept} of {all}   all: {met}"));
        }
        if !lines.is_empty() {
            lines.insert(0, String::new());
        }
        lines
    }
    fn json(&self) -> Value {
        let led_on: Vec<u64> = self.led_on.iter().map(|time| time.as_millis() as u64).collect();
        json!({ "led_on_ms": led_on, "lease_ms": LEASE.as_millis() as u64, "pairs": self.kept.len(),
            "pairs_kept": self.kept.iter().filter(|kept| **kept).count() })
    }
}

impl Report {
    /// The stalls of each kind of fault that was done, then those of single nodes that were killed.
    fn rows(&self) -> Vec<Row> {
        let stalls = stalls(&self.faults, &self.seen.long);
        let row = |name, goal, wanted: &dyn Fn(&Fault) -> bool| {
            let own = self.faults.iter().zip(&stalls).filter(|(fault, _)| wanted(fault));
            let mut stalls: Vec<Duration> = own.map(|(_, stall)| *stall).collect();
            stalls.sort_unstable();
            Row { name, stalls, goal }
        };
        let mut rows: Vec<Row> =
            Kind::ALL.iter().map(|kind| row(kind.name(), kind.goal(), &|fault| fault.kind == *kind)).collect();
        let of = |part| move |fault: &Fault| fault.kind.is_kill() && fault.part == part;
        rows.push(row("any one killed", Some(KILLED), &|fault| fault.kind.is_kill()));
        rows.push(row("  of these, the one that led", None, &of(Part::Leads)));
        rows.push(row("  of these, one that followed", None, &of(Part::Follows)));
        rows.push(row("down, the one that led", None, &|fault| fault.kind == Kind::Down && fault.part == Part::Leads));
        rows.retain(|row| !row.stalls.is_empty());
        rows
    }
    /// The 99% of syncs, in nanoseconds, before a follower's disk became slow and while it was.
    fn slow(&self) -> Option<[u64; 2]> {
        let [before, slow] = &self.seen.syncs;
        (before.count > 0 && slow.count > 0).then(|| [before, slow].map(|syncs| syncs.quantile_ns(0.99)))
    }
    /// The outcomes of cuts.
    fn leads(&self) -> Leads {
        let over = |fault: &Fault| fault.outcome.map(|outcome| (fault.kind, outcome));
        let all: Vec<(Kind, Outcome)> = self.faults.iter().filter_map(over).collect();
        let pairs = all.iter().filter(|(kind, _)| *kind == Kind::Pair).map(|(_, outcome)| outcome.is_kept);
        let mut led_on: Vec<Duration> = all.iter().filter_map(|(_, outcome)| outcome.led_on).collect();
        led_on.sort_unstable();
        Leads { kept: pairs.collect(), led_on }
    }
    fn calls(&self) -> u64 {
        self.seen.durations.values().map(|durations| durations.count).sum()
    }
    /// Prints it.
    pub fn print(&self, form: Form) {
        match form {
            Form::Json => {
                eprint!("{}", self.table());
                println!("{:#}", self.json());
            }
            Form::Table => print!("{}", self.table()),
        }
    }
    fn table(&self) -> String {
        let (time, calls, faults) = (self.time.as_secs_f64(), self.calls(), self.faults.len());
        let head = |what, of| format!("{what:<32} {of:>7} {:>11} {:>11} {:>11}", "50%", "99%", "longest");
        let mut lines = vec![
            format!("seed {}, {time:.0} s, {calls} calls, {faults} faults", self.seed),
            String::new(),
            head("stalls by fault", "faults") + "   goal",
        ];
        lines.extend(self.rows().iter().map(Row::line));
        lines.extend(self.leads().lines());
        if let Some([before, slow]) = self.slow() {
            let (ratio, ms) = (slow as f64 / before as f64, |ns: u64| ns as f64 / 1e6);
            let judged = if ratio <= SLOW_RATIO { "met" } else { "MISSED" };
            lines.push(format!(
                "\n99% of syncs beside a follower's slow disk: {:.2} ms, {:.2} ms before: {ratio:.2} times   {SLOW_RATIO}: {judged}",
                ms(slow),
                ms(before)
            ));
        }
        lines.extend([String::new(), head("calls by kind", "calls")]);
        for (kind, durations) in &self.seen.durations {
            let of = |ns: u64| format!("{:.2} ms", ns as f64 / 1e6);
            let (half, most) = (of(durations.quantile_ns(0.5)), of(durations.quantile_ns(0.99)));
            let longest = of(durations.longest_ns);
            lines.push(format!("{kind:<32} {:>7} {half:>11} {most:>11} {longest:>11}", durations.count));
        }
        lines.push(String::new());
        for (what, found) in [
            ("changes lost, or anything else wrong", &self.seen.wrong),
            ("errors that clients got", &self.seen.errors),
            ("calls that did not return", &self.seen.hung),
        ] {
            lines.push(format!("{what}: {}", found.len()));
            lines.extend(found.iter().map(|what| format!("  {what}")));
        }
        lines.join("\n") + "\n"
    }
    fn json(&self) -> Value {
        let ms = |time: Duration| time.as_millis() as u64;
        let longest = longest(&self.faults, &self.seen.long);
        let each = self.faults.iter().zip(longest).map(|(fault, call)| {
            json!({ "at_ms": ms(fault.at), "fault": fault.kind.name(), "led": fault.part == Part::Leads, "what": fault.told,
                "stall_ms": call.map(|call| ms(call.took)),
                "call": call.map(|call| call.kind), "began_ms": call.map(|call| ms(call.began)),
                "leader_kept": fault.outcome.map(|outcome| outcome.is_kept),
                "led_on_ms": fault.outcome.and_then(|outcome| outcome.led_on).map(ms) })
        });
        let calls = self.seen.durations.iter().map(|(kind, durations)| {
            json!({ "kind": kind, "calls": durations.count, "us_p50": durations.quantile_ns(0.5) / 1000,
                "us_p99": durations.quantile_ns(0.99) / 1000, "us_max": durations.longest_ns / 1000 })
        });
        json!({
            "seed": self.seed,
            "seconds": self.time.as_secs(),
            "calls": self.calls(),
            "stalls": self.rows().iter().map(Row::json).collect::<Vec<_>>(),
            "leads": self.leads().json(),
            "syncs_us_p99_before_and_beside_slow_disk": self.slow().map(|syncs| syncs.map(|ns| ns / 1000)),
            "faults": each.collect::<Vec<_>>(),
            "calls_by_kind": calls.collect::<Vec<_>>(),
            "wrong": self.seen.wrong,
            "errors": self.seen.errors,
            "hung": self.seen.hung,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_call_belongs_to_the_fault_in_it_or_before_it() {
        let s = Duration::from_secs;
        let fault = |at| Fault { kind: Kind::Kill1, part: Part::Leads, at: s(at), told: String::new(), outcome: None };
        let call = |began, took| Call { kind: "read", began: s(began), took: s(took) };
        let faults = [fault(10), fault(20), fault(30)];
        let long = [call(1, 2), call(9, 3), call(12, 5), call(15, 20), call(40, 1)];
        assert_eq!(stalls(&faults, &long), [s(5), s(20), s(1)]);
        assert_eq!(stalls(&[], &long), []);
    }

    #[test]
    fn goals_are_met_or_missed() {
        let fault =
            |kind, part, at| Fault { kind, part, at: Duration::from_secs(at), told: String::new(), outcome: None };
        let call =
            |began, ms| Call { kind: "read", began: Duration::from_secs(began), took: Duration::from_millis(ms) };
        let faults = vec![
            fault(Kind::Kill0, Part::Leads, 10),
            fault(Kind::Kill5, Part::Follows, 20),
            fault(Kind::Down, Part::Leads, 30),
            fault(Kind::Stop, Part::Leads, 40),
        ];
        let seen = Seen { long: vec![call(10, 1001), call(20, 3500), call(30, 200)], ..Seen::default() };
        let report = Report { seed: 1, time: Duration::from_secs(50), faults, seen };
        let rows = report.rows();
        let of = |name: &str| rows.iter().find(|row| row.name == name).expect("it was done");
        assert_eq!(of("killed, back at once").is_met(), Some(false));
        assert_eq!(of("killed, back after 5 s").is_met(), Some(true));
        assert_eq!(of("down, back after 1 s").is_met(), Some(true));
        assert_eq!((of("stopped for 1 to 6 s").is_met(), of("any one killed").stalls.len()), (None, 2));
        assert!(rows.iter().all(|row| row.name != "killed, back after 1 s"));
        let table = report.table();
        assert!(table.contains("1001 ms   1000 ms: MISSED") && table.contains("200 ms   200 ms: met"), "{table}");
    }

    #[test]
    fn leaders_that_stay_or_go_are_judged() {
        let fault = |kind, is_kept, led_on: Option<u64>| Fault {
            kind,
            part: Part::Leads,
            at: Duration::ZERO,
            told: String::new(),
            outcome: Some(Outcome { is_kept, led_on: led_on.map(Duration::from_millis) }),
        };
        let mut report = Report { seed: 1, time: Duration::ZERO, faults: Vec::new(), seen: Seen::default() };
        assert!(report.leads().lines().is_empty());
        report.faults = vec![fault(Kind::Pair, true, None), fault(Kind::Cut, false, Some(1800))];
        let told = report.leads().lines().join("\n");
        assert!(told.contains("1 times: 50% 1800 ms, longest 1800 ms   2200 ms: met"), "{told}");
        assert!(told.contains("1 of 1   all: met"), "{told}");
        report.faults.extend([fault(Kind::Pair, false, None), fault(Kind::Deaf, false, Some(2300))]);
        let told = report.leads().lines().join("\n");
        assert!(told.contains("2200 ms: MISSED") && told.contains("1 of 2   all: MISSED"), "{told}");
    }

    #[test]
    fn quantiles_are_of_the_values() {
        let sorted: Vec<Duration> = (1..=10).map(Duration::from_secs).collect();
        assert_eq!(quantile(&sorted, 0.5), Duration::from_secs(5));
        assert_eq!(quantile(&sorted, 0.99), Duration::from_secs(10));
        assert_eq!(quantile(&[], 0.5), Duration::ZERO);
    }
}
