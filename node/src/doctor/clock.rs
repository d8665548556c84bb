//! The kernel's clock: an operation takes about seven timestamps.

use super::Finding;
use super::facts::Facts;

const NAME: &str = "clock";
const BEST: &str = "tsc";
/// Sources that are read from a chip, by a system call.
const SLOW: [&str; 4] = ["hpet", "acpi_pm", "jiffies", "refined-jiffies"];
const GAIN: &str =
    "a few hundred nanoseconds of CPU time per timestamp, of which a request takes about seven; not measured by us";

/// Checks the source.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let clock = &facts.clock;
    let Some(source) = clock.source.as_deref() else {
        return vec![Finding::unknown(NAME, "the kernel does not tell its source")];
    };
    let has_best = clock.available.iter().any(|available| available == BEST);
    let switch = "echo tsc >/sys/devices/system/clocksource/clocksource0/current_clocksource";
    vec![if source == BEST {
        Finding::ok(NAME, source)
    } else if SLOW.contains(&source) {
        let fix = match has_best {
            true => switch,
            false => "see in the kernel's log (dmesg | grep -i tsc) why it does not trust the processor's counter",
        };
        Finding::warning(NAME, format!("{source}, read from a chip"), fix, GAIN)
    } else if has_best {
        let gain = "some 50 instructions less per timestamp, of which a request takes about seven";
        Finding::advice(NAME, format!("{source}, though there is {BEST}"), switch, gain)
    } else {
        Finding::ok(NAME, source)
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;
    use crate::doctor::facts::Clock;

    #[test]
    fn the_processors_counter_is_the_best() {
        let of = |source: &str, available: &str| {
            let available = available.split(' ').map(str::to_string).collect();
            let clock = Clock { source: Some(source.into()), available };
            check(&Facts { clock, ..Facts::default() }).remove(0)
        };
        assert_eq!(of("tsc", "tsc hpet").state, State::Ok);
        assert_eq!(of("arch_sys_counter", "arch_sys_counter").state, State::Ok);
        assert_eq!(of("kvm-clock", "kvm-clock tsc").state, State::Advice);
        assert!(of("hpet", "hpet tsc").fix.is_some_and(|fix| fix.starts_with("echo tsc")));
        assert!(of("acpi_pm", "hpet acpi_pm").fix.is_some_and(|fix| fix.contains("dmesg")));
    }
}
