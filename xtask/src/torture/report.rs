//! The report of a run: calls, faults, stalls, findings; as a table and as JSON.

use super::faults::{Fault, Kind};
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

/// The stall of each fault: the longest call in which it was the first fault, or which began between it and the next one. 0: none took
/// long.
fn stalls(faults: &[Fault], long: &[Call]) -> Vec<Duration> {
    let mut stalls = vec![Duration::ZERO; faults.len()];
    for call in long {
        let after = faults.partition_point(|fault| fault.at < call.began);
        let within = faults.get(after).is_some_and(|fault| fault.at <= call.began + call.took);
        let of = if within { Some(after) } else { after.checked_sub(1) };
        if let Some(of) = of {
            stalls[of] = stalls[of].max(call.took);
        }
    }
    stalls
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

impl Report {
    /// The stalls of a kind of fault, in order of length.
    fn stalls(&self, kind: Kind) -> Vec<Duration> {
        let stalls = stalls(&self.faults, &self.seen.long);
        let own = self.faults.iter().zip(stalls).filter(|(fault, _)| fault.kind == kind);
        let mut own: Vec<Duration> = own.map(|(_, stall)| stall).collect();
        own.sort_unstable();
        own
    }
    fn calls(&self) -> u64 {
        self.seen.durations.values().map(|durations| durations.count).sum()
    }
    /// Prints it.
    pub fn print(&self, form: Form) {
        match form {
            Form::Json => println!("{:#}", self.json()),
            Form::Table => print!("{}", self.table()),
        }
    }
    fn table(&self) -> String {
        let mut lines = vec![
            format!(
                "seed {}, {:.0} s, {} calls, {} faults",
                self.seed,
                self.time.as_secs_f64(),
                self.calls(),
                self.faults.len()
            ),
            String::new(),
            format!("{:<28} {:>7} {:>11} {:>11} {:>11}", "stalls by fault", "faults", "50%", "99%", "longest"),
        ];
        for kind in Kind::ALL {
            let own = self.stalls(kind);
            if let Some(longest) = own.last() {
                let (half, most) = (shown(quantile(&own, 0.5)), shown(quantile(&own, 0.99)));
                let (name, longest) = (kind.name(), shown(*longest));
                lines.push(format!("{name:<28} {:>7} {half:>11} {most:>11} {longest:>11}", own.len()));
            }
        }
        let head = format!("{:<28} {:>7} {:>11} {:>11} {:>11}", "calls by kind", "calls", "50%", "99%", "longest");
        lines.extend([String::new(), head]);
        for (kind, durations) in &self.seen.durations {
            let of = |ns: u64| format!("{:.2} ms", ns as f64 / 1e6);
            let (half, most) = (of(durations.quantile_ns(0.5)), of(durations.quantile_ns(0.99)));
            let longest = of(durations.longest_ns);
            lines.push(format!("{kind:<28} {:>7} {half:>11} {most:>11} {longest:>11}", durations.count));
        }
        lines.push(String::new());
        lines.push(format!("lost or wrong: {}", self.seen.wrong.len()));
        lines.extend(self.seen.wrong.iter().map(|what| format!("  {what}")));
        lines.push(format!("errors that clients got: {}", self.seen.errors.len()));
        lines.extend(self.seen.errors.iter().map(|what| format!("  {what}")));
        lines.join("\n") + "\n"
    }
    fn json(&self) -> Value {
        let ms = |time: Duration| time.as_millis() as u64;
        let stalls = |kind: Kind| {
            let own = self.stalls(kind);
            let longest = own.last().copied().unwrap_or_default();
            json!({ "fault": kind.name(), "faults": own.len(), "stall_ms_p50": ms(quantile(&own, 0.5)),
                "stall_ms_p99": ms(quantile(&own, 0.99)), "stall_ms_max": ms(longest) })
        };
        let each = stalls_of_all(self).map(|(fault, stall)| {
            json!({ "at_ms": ms(fault.at), "fault": fault.kind.name(), "what": fault.told, "stall_ms": ms(stall) })
        });
        let calls = self.seen.durations.iter().map(|(kind, durations)| {
            json!({ "kind": kind, "calls": durations.count, "us_p50": durations.quantile_ns(0.5) / 1000,
                "us_p99": durations.quantile_ns(0.99) / 1000, "us_max": durations.longest_ns / 1000 })
        });
        json!({
            "seed": self.seed,
            "seconds": self.time.as_secs(),
            "calls": self.calls(),
            "stalls": Kind::ALL.map(stalls),
            "faults": each.collect::<Vec<_>>(),
            "calls_by_kind": calls.collect::<Vec<_>>(),
            "wrong": self.seen.wrong,
            "errors": self.seen.errors,
        })
    }
}

fn stalls_of_all(report: &Report) -> impl Iterator<Item = (&Fault, Duration)> {
    report.faults.iter().zip(stalls(&report.faults, &report.seen.long))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_call_belongs_to_the_fault_in_it_or_before_it() {
        let s = Duration::from_secs;
        let fault = |at| Fault { kind: Kind::Kill, at: s(at), told: String::new() };
        let call = |began, took| Call { began: s(began), took: s(took) };
        let faults = [fault(10), fault(20), fault(30)];
        let long = [call(1, 2), call(9, 3), call(12, 5), call(15, 20), call(40, 1)];
        assert_eq!(stalls(&faults, &long), [s(5), s(20), s(1)]);
        assert_eq!(stalls(&[], &long), []);
    }

    #[test]
    fn quantiles_are_of_the_values() {
        let sorted: Vec<Duration> = (1..=10).map(Duration::from_secs).collect();
        assert_eq!(quantile(&sorted, 0.5), Duration::from_secs(5));
        assert_eq!(quantile(&sorted, 0.99), Duration::from_secs(10));
        assert_eq!(quantile(&[], 0.5), Duration::ZERO);
    }
}
