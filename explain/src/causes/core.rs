//! The cores that serve requests: busy with them, or kept from them by others.

use super::{per_request, percent, time};
use crate::{Finding, Window};

/// Share of its time that a core sleeps at most, if it is busy.
const ASLEEP_MAX: f64 = 0.08;
/// Share of their time that the cores' threads wait for a CPU at least, if others take it.
const WAIT_MIN: f64 = 0.1;
/// Share of all their time that they wait at least then.
const WAIT_OF_ALL_MIN: f64 = 0.05;
/// Time that a request takes from the client to the daemon and back at least: two switches between processes.
const TRANSPORT_LEAST_NS: f64 = 15_000.0;
/// Volumes that are named, of those that share the cores.
const TENANTS_TOLD: usize = 3;

/// Cores that have no time left.
pub fn find_busy(window: &Window) -> Option<Finding> {
    let (least, mean) = window.asleep();
    if mean > ASLEEP_MAX || window.cores.is_empty() || waited(window) >= WAIT_MIN {
        return None;
    }
    let fetching_ns = (window.transport_ns() - TRANSPORT_LEAST_NS * window.requests() as f64).max(0.0);
    let excess_ns = window.stage_ns(&["core"]) + fetching_ns;
    let mut evidence = vec![
        format!("the cores sleep {} of the time, the busiest {}", percent(mean), percent(least)),
        format!("a request waits {} for its core", per_request(window, &["core"])),
    ];
    evidence.extend(shared(window));
    let next =
        "more or faster CPUs; see in the table of operations what the requests are, and whether larger ones would do";
    Some(Finding::new("core-busy", "the cores".into(), window, excess_ns, evidence, next))
}

/// Cores that could run, while others have their CPUs.
pub fn find_taken(window: &Window) -> Option<Finding> {
    let (run_ns, wait_ns) = window.scheduled();
    let (share, cores) = (waited(window), window.cores.len().max(1) as f64);
    // Cores that sleep most of the time and wait for a CPU at each waking are slowed down too, but not by much.
    if share < WAIT_MIN || (wait_ns as f64) < WAIT_OF_ALL_MIN * cores * window.ns as f64 {
        return None;
    }
    let at_once = (window.kernel_occupancy().unwrap_or(0.0).max(window.occupancy()) / cores).max(1.0);
    let excess_ns = (wait_ns + window.steal_ns) as f64 * at_once;
    let evidence = vec![
        format!(
            "the cores' threads ran for {} and waited for a CPU for {} ({})",
            time(run_ns as f64),
            time(wait_ns as f64),
            percent(share)
        ),
        format!("a hypervisor took {}", time(window.steal_ns as f64)),
    ];
    let next = "find who else runs (top, pidstat): give the daemon CPUs of its own, or the others a lower priority";
    Some(Finding::new("core-taken", "CPUs".into(), window, excess_ns, evidence, next))
}

/// Shares of volumes in the time for which they shared the cores; None if none did.
pub(super) fn shared(window: &Window) -> Option<String> {
    let all_ns: u64 = window.tenants.iter().map(|(_, served_ns)| served_ns).sum();
    let of = |(volume, served_ns): &(String, u64)| format!("{volume} {}", percent(*served_ns as f64 / all_ns as f64));
    let most: Vec<String> = window.tenants.iter().take(TENANTS_TOLD).map(of).collect();
    (!most.is_empty()).then(|| format!("volumes that share the cores have of their time: {}", most.join(", ")))
}

/// The share of the time in which the cores' threads could have run that they waited.
fn waited(window: &Window) -> f64 {
    let (run_ns, wait_ns) = window.scheduled();
    wait_ns as f64 / (run_ns + wait_ns).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Snapshot, Tenant};

    fn window(served_ns: [[u64; 3]; 2]) -> Window {
        let [before, after] = [0, 1].map(|which: usize| Snapshot {
            at_ns: 1 + which as u64,
            tenants: ["one", "two", "idle"]
                .into_iter()
                .zip(served_ns[which])
                .map(|(volume, served_ns)| Tenant { volume: volume.to_string(), served_ns })
                .collect(),
            ..Snapshot::default()
        });
        Window::between(&before, &after).expect("of one daemon, in order")
    }

    #[test]
    fn volumes_that_share_the_cores_are_named_by_what_they_had_meanwhile() {
        let told = "volumes that share the cores have of their time: two 75%, one 25%";
        assert_eq!(shared(&window([[900, 100, 5], [1000, 400, 5]])).as_deref(), Some(told));
        assert_eq!(shared(&window([[900, 100, 5], [1000, 100, 5]])), None, "it shares with nobody");
    }
}
