//! Idle states: a CPU that sleeps deeply is woken late, and at depth 1 a request waits for two wake-ups.

use super::Finding;
use super::facts::Facts;

const NAME: &str = "cpu sleep";
/// Wake-ups below this are lost beside a device's latency.
const LATE_US: u64 = 10;
const GAIN: &str = "shorter requests when few are under way: where CPUs were kept awake, random reads one at a time took \
                    76 us instead of 148, O_DSYNC writes 142 instead of 261 (decision 0018; a virtual machine)";

/// Checks whether the daemon can keep CPUs from deep sleep.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let idle = &facts.idle;
    let driver = idle.driver.as_deref().filter(|driver| *driver != "none");
    let Some(driver) = driver else {
        return vec![match &facts.hypervisor {
            Some(_) => Finding::unknown(NAME, "no idle driver: the host decides how long a wake-up takes"),
            None => Finding::unknown(NAME, "the kernel tells of no idle states"),
        }];
    };
    let enabled = idle.states.iter().filter(|state| !state.disabled);
    let Some(deepest) = enabled.max_by_key(|state| state.exit_us) else {
        return vec![Finding::unknown(NAME, format!("the driver {driver} tells of no states"))];
    };
    let found = format!("deepest state: {} ({driver}), left in {} us", deepest.name, deepest.exit_us);
    // The driver of virtual machines gives a CPU back to the host, and says that this takes a microsecond.
    let late = deepest.exit_us >= LATE_US || driver == "haltpoll";
    vec![match idle.bounded {
        _ if !late => Finding::ok(NAME, found),
        Some(true) => Finding::ok(NAME, found + "; CPUs are kept awake while requests are dense"),
        Some(false) => {
            let fix = "run the daemon as root, with /dev/cpu_dma_latency in its container; or by hand: \
                       cpupower idle-set --disable-by-latency 2";
            Finding::advice(NAME, found + "; the daemon may not keep CPUs awake", fix, GAIN)
        }
        None => Finding::unknown(NAME, found + "; whether the daemon may keep CPUs awake is not known"),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;
    use crate::doctor::facts::{Hypervisor, Idle, IdleState};

    fn state(driver: &str, states: &[(u64, bool)], bounded: Option<bool>) -> State {
        let state = |&(exit_us, disabled): &(u64, bool)| IdleState { name: "C".into(), exit_us, disabled };
        let states = states.iter().map(state).collect();
        let idle = Idle { driver: Some(driver.into()), states, bounded };
        check(&Facts { idle, ..Facts::default() })[0].state
    }

    #[test]
    fn deep_sleep_matters_if_nobody_may_forbid_it() {
        let deep = [(2, false), (133, false)];
        assert_eq!(state("intel_idle", &deep, Some(true)), State::Ok);
        assert_eq!(state("intel_idle", &deep, Some(false)), State::Advice);
        assert_eq!(state("intel_idle", &deep, None), State::Unknown);
        assert_eq!(state("intel_idle", &[(2, false), (133, true)], Some(false)), State::Ok, "it is switched off");
        assert_eq!(state("haltpoll", &[(0, false), (1, false)], Some(false)), State::Advice, "its figure is a lie");
    }

    #[test]
    fn without_states_nothing_is_known() {
        assert_eq!([state("none", &[], None), state("intel_idle", &[], None)], [State::Unknown; 2]);
        let guest = Facts { hypervisor: Some(Hypervisor::default()), ..Facts::default() };
        assert!(check(&guest)[0].found.contains("host"));
    }
}
