//! The kernel: its version, and whether it lets anybody use io_uring.

use super::Finding;
use super::facts::Facts;
use super::transport::GAIN;

const NAME: &str = "kernel";
/// The oldest with which a daemon starts.
const OLDEST: (u32, u32) = (6, 1);
/// The oldest that hands requests over by io_uring.
pub(super) const FUSE_URING: (u32, u32) = (6, 14);

/// Checks the version and the switch.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![version(facts.kernel.version)];
    // 1 leaves it to root and a group of its own.
    if facts.kernel.uring_disabled.is_some_and(|how| how >= 2) {
        findings.push(Finding::warning(
            NAME,
            "io_uring is switched off",
            "sysctl kernel.io_uring_disabled=0",
            "it works: without io_uring a daemon can't start",
        ));
    }
    findings
}

fn version(version: Option<(u32, u32)>) -> Finding {
    let Some((major, minor)) = version else {
        return Finding::unknown(NAME, "the version is not known");
    };
    let found = format!("Linux {major}.{minor}");
    if (major, minor) < OLDEST {
        let gain = "it works: Linux 6.1 is the oldest that Sinter supports";
        return Finding::warning(NAME, found, "install Linux 6.14 or newer", gain);
    }
    if (major, minor) < FUSE_URING {
        let fix = "install Linux 6.14 or newer (Debian 12: from backports)";
        return Finding::advice(NAME, found + ": no requests over io_uring", fix, GAIN);
    }
    Finding::ok(NAME, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;
    use crate::doctor::facts::Kernel;

    fn of(version: (u32, u32), uring_disabled: Option<u64>) -> Vec<State> {
        let kernel = Kernel { version: Some(version), uring_disabled };
        check(&Facts { kernel, ..Facts::default() }).into_iter().map(|finding| finding.state).collect()
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let states = [(5, 19), (6, 1), (6, 9), (6, 14), (7, 0)].map(|version| of(version, None)[0]);
        assert_eq!(states, [State::Warning, State::Advice, State::Advice, State::Ok, State::Ok]);
    }

    #[test]
    fn io_uring_may_be_roots_own() {
        assert_eq!(of((6, 14), Some(0)), [State::Ok]);
        assert_eq!(of((6, 14), Some(1)), [State::Ok]);
        assert_eq!(of((6, 14), Some(2)), [State::Ok, State::Warning]);
    }
}
