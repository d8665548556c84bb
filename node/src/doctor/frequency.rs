//! CPU frequencies: a governor that saves power lets a CPU work slowly on the first requests after a rest.

use super::Finding;
use super::facts::Facts;

const NAME: &str = "cpu frequency";
const FIX: &str = "echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor";
const GAIN: &str = "less CPU time per request, above all at low load; not measured by us";

/// Checks the governor.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let frequency = &facts.frequency;
    if frequency.governors.is_empty() {
        let why = match &facts.hypervisor {
            Some(_) => "the host decides",
            None => "the kernel sets none: firmware does, or nobody",
        };
        return vec![Finding::unknown(NAME, why)];
    }
    let names = frequency.governors.join(", ");
    let found = match frequency.drivers.is_empty() {
        true => format!("governor {names}"),
        false => format!("governor {names} ({})", frequency.drivers.join(", ")),
    };
    if frequency.governors.iter().all(|governor| governor == "performance") {
        return vec![Finding::ok(NAME, found)];
    }
    // These two have governors in the processor: their `powersave` follows the load, as a preference says.
    let own = |driver: &String| driver == "intel_pstate" || driver == "amd-pstate-epp";
    let lowest = frequency.governors.iter().any(|governor| governor == "powersave");
    if lowest && !frequency.drivers.is_empty() && frequency.drivers.iter().all(own) {
        let saving = frequency.preferences.iter().find(|preference| preference.contains("power"));
        return vec![match saving {
            Some(preference) => Finding::advice(NAME, format!("{found}, which prefers {preference}"), FIX, GAIN),
            None => Finding::ok(NAME, found + ", which follows the load"),
        }];
    }
    vec![match lowest {
        true => Finding::warning(NAME, found + ": always the lowest frequency", FIX, GAIN),
        false => Finding::advice(NAME, found + ": follows the load, late", FIX, GAIN),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;
    use crate::doctor::facts::Frequency;

    fn state(driver: &str, governor: &str, preference: &str) -> State {
        let list = |text: &str| text.split_terminator(' ').map(str::to_string).collect();
        let frequency = Frequency { drivers: list(driver), governors: list(governor), preferences: list(preference) };
        check(&Facts { frequency, ..Facts::default() })[0].state
    }

    #[test]
    fn powersave_means_two_things() {
        assert_eq!(state("acpi-cpufreq", "powersave", ""), State::Warning);
        assert_eq!(state("intel_pstate", "powersave", "balance_performance"), State::Ok);
        assert_eq!(state("intel_pstate", "powersave", "balance_power"), State::Advice);
        assert_eq!(state("amd-pstate-epp", "powersave", ""), State::Ok);
        assert_eq!(state("intel_pstate acpi-cpufreq", "powersave", ""), State::Warning, "on some CPUs");
    }

    #[test]
    fn performance_is_asked_for() {
        assert_eq!(state("acpi-cpufreq", "performance", ""), State::Ok);
        assert_eq!(state("acpi-cpufreq", "performance schedutil", ""), State::Advice);
        assert_eq!(state("", "ondemand", ""), State::Advice);
        assert_eq!(state("", "", ""), State::Unknown);
    }
}
