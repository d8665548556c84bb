//! Control groups: limits of I/O, CPU time and memory that hold for the daemon, or else for this process.

use super::Finding;
use super::facts::{Facts, Group};
use crate::table::{bytes, count};

const NAME: &str = "control group";

/// Checks the limits of the process's groups and of those above them.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let Some(groups) = &facts.process.groups else {
        return vec![Finding::unknown(NAME, "the kernel does not tell")];
    };
    let whose = match facts.process.daemon {
        Some(pid) => format!("for the daemon (process {pid})"),
        None => "for this shell; a service has its own".to_string(),
    };
    let mut findings: Vec<Finding> = groups.iter().flat_map(|group| of_group(facts, group)).collect();
    if findings.is_empty() {
        let least = groups.iter().filter_map(|group| group.memory_bytes_max).min();
        let found = match least {
            Some(least) => format!("no throttle {whose}; memory at most {}", bytes(least)),
            None => format!("no throttle {whose}"),
        };
        findings.push(Finding::ok(NAME, found));
    }
    findings
}

fn of_group(facts: &Facts, group: &Group) -> Vec<Finding> {
    let path = &group.path;
    let blocks = facts.blocks();
    let mut findings = Vec::new();
    for (number, limits) in &group.io {
        // Without a brick nobody knows which device matters.
        let name = blocks.iter().find(|block| block.number == *number).map(|block| block.name.as_str());
        if name.is_some() || blocks.is_empty() {
            findings.push(Finding::warning(
                NAME,
                format!("{path} limits I/O of {}: {limits}", name.unwrap_or(number)),
                "take IOReadBandwidthMax=, IOWriteBandwidthMax= and the like from the unit or slice, or the limit from the \
                 container",
                "all that the device can do: it idles while requests wait",
            ));
        }
    }
    if let Some(quota) = group.cpu {
        let wanted = facts.cpus.is_none_or(|cpus| quota.us < quota.period_us.saturating_mul(cpus));
        let throttled = group.throttled.unwrap_or(0);
        let fix = "take CPUQuota= from the unit or slice, or the limit from the container";
        let gain = "no stops of up to a period (100 ms as a rule) in the middle of requests; not measured by us";
        if throttled > 0 {
            let found = format!("{path} may use {quota}, and was stopped {} times", count(throttled));
            findings.push(Finding::warning(NAME, found, fix, gain));
        } else if wanted {
            findings.push(Finding::advice(NAME, format!("{path} may use {quota}"), fix, gain));
        }
    }
    if let Some(high) = group.memory_bytes_high {
        findings.push(Finding::advice(
            NAME,
            format!("{path} is slowed from {} of memory on", bytes(high)),
            "take MemoryHigh= from the unit or slice; MemoryMax= alone bounds it, and --memory-max follows that",
            "no stops for reclaiming the daemon's memory; not measured by us",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;
    use crate::doctor::facts::{Block, CpuQuota, Process};
    use crate::doctor::tests::on;

    fn of(group: Group) -> Vec<State> {
        let process = Process { groups: Some(vec![group]), ..Process::default() };
        let block = Block { name: "sda".into(), number: "8:0".into(), ..Block::default() };
        let facts = Facts { process, cpus: Some(4), ..on(block) };
        check(&facts).into_iter().map(|finding| finding.state).collect()
    }

    #[test]
    fn only_limits_of_the_bricks_devices_count() {
        let io = |number: &str| Group { io: vec![(number.into(), "wbps=1048576".into())], ..Group::default() };
        assert_eq!(of(io("8:0")), [State::Warning]);
        assert_eq!(of(io("8:16")), [State::Ok]);
        assert_eq!(of(Group { memory_bytes_max: Some(1 << 30), ..Group::default() }), [State::Ok]);
    }

    #[test]
    fn cpu_time_and_memory_are_limited_too() {
        let cpu = |us, throttled| {
            let cpu = Some(CpuQuota { us, period_us: 100_000 });
            of(Group { cpu, throttled: Some(throttled), ..Group::default() })
        };
        assert_eq!(cpu(150_000, 0), [State::Advice]);
        assert_eq!(cpu(150_000, 9), [State::Warning]);
        assert_eq!(cpu(400_000, 0), [State::Ok], "all CPUs");
        assert_eq!(of(Group { memory_bytes_high: Some(1 << 30), ..Group::default() }), [State::Advice]);
    }
}
