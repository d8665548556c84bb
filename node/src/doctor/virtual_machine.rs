//! Virtual machines: a host may take CPU time, and decides what a flush does.

use super::Finding;
use super::facts::Facts;

const NAME: &str = "virtual machine";
/// Share from which on requests are seen to wait, in percent.
const MUCH_PERCENT: f64 = 5.0;

/// Checks what the host takes.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let window = &facts.window;
    let (Some(now), Some(ever)) = (window.stolen_percent, window.stolen_percent_ever) else {
        return vec![Finding::unknown(NAME, "the kernel does not tell what a host takes")];
    };
    let Some(hypervisor) = &facts.hypervisor else {
        return vec![Finding::ok(NAME, "no: nothing tells of a hypervisor")];
    };
    let maker = hypervisor.maker.as_deref().map(|maker| format!(" ({maker})")).unwrap_or_default();
    let found = format!("yes{maker}: the host takes {now:.0}% of the CPUs now, {ever:.0}% since the start");
    if now.max(ever) < MUCH_PERCENT {
        return vec![Finding::ok(NAME, found)];
    }
    vec![Finding::advice(
        NAME,
        found,
        "give the machine CPUs of its own on its host",
        "fewer slow seconds: with 24% taken, 144 of 480 seconds had less than half of the mean writes; with none, none of \
         14 minutes (docs/performance.md)",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;
    use crate::doctor::facts::{Hypervisor, Window};

    #[test]
    fn a_greedy_host_is_told() {
        let of = |now: Option<f64>, ever: f64, maker: Option<&str>| {
            let window = Window { stolen_percent: now, stolen_percent_ever: Some(ever), ..Window::default() };
            let hypervisor = maker.map(|maker| Hypervisor { maker: Some(maker.into()) });
            check(&Facts { window, hypervisor, ..Facts::default() }).remove(0)
        };
        assert_eq!(of(Some(0.4), 1.0, Some("QEMU")).state, State::Ok);
        assert_eq!(of(Some(20.0), 1.0, Some("QEMU")).state, State::Advice);
        let ever = of(Some(0.0), 7.5, Some("QEMU"));
        assert!(ever.state == State::Advice && ever.found.contains("QEMU"), "{ever:?}");
        assert_eq!(of(Some(0.0), 0.0, None).state, State::Ok);
        assert_eq!(of(None, 0.0, Some("QEMU")).state, State::Unknown);
    }
}
