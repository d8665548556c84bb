//! The way from the kernel to the daemon: FUSE, over io_uring where the kernel may.

use super::Finding;
use super::facts::Facts;
use super::kernel::FUSE_URING;

const NAME: &str = "fuse";
/// Decision 0020's figures.
pub(super) const GAIN: &str = "measured (decision 0020), /dev/fuse and io_uring: 4 KiB random reads 56,000 and 61,200/s, \
                               writes 76,800 and 95,400/s, 16 O_DSYNC writers 43,800 and 50,500/s";

/// Checks that FUSE is there, and how requests come.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let fuse = &facts.fuse;
    if fuse.device == Some(false) {
        let fix = "modprobe fuse; in a container: give it /dev/fuse";
        return vec![Finding::warning(
            NAME,
            "/dev/fuse is not there",
            fix,
            "it works: nothing can be mounted without it",
        )];
    }
    if fuse.known == Some(false) {
        return vec![Finding::unknown(NAME, "not loaded yet; the first mount loads it")];
    }
    let too_old = facts.kernel.version.is_some_and(|version| version < FUSE_URING);
    let allow = "echo Y >/sys/module/fuse/parameters/enable_uring, then mount anew; for good: options fuse enable_uring=1 \
                 in /etc/modprobe.d/fuse.conf";
    vec![match fuse.uring.as_deref() {
        Some("Y" | "1") => Finding::ok(NAME, "requests come over io_uring"),
        Some("N" | "0") => Finding::advice(NAME, "requests come over /dev/fuse: io_uring is not allowed", allow, GAIN),
        // The kernel's own check says what to do.
        None if too_old => Finding::ok(NAME, "requests come over /dev/fuse, as this kernel offers nothing else"),
        _ => Finding::unknown(NAME, "whether requests may come over io_uring is not known"),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;
    use crate::doctor::facts::{Fuse, Kernel};

    fn of(known: bool, device: bool, uring: Option<&str>, version: (u32, u32)) -> State {
        let fuse = Fuse { known: Some(known), device: Some(device), uring: uring.map(str::to_string) };
        let kernel = Kernel { version: Some(version), ..Kernel::default() };
        check(&Facts { fuse, kernel, ..Facts::default() })[0].state
    }

    #[test]
    fn requests_come_over_io_uring_where_they_may() {
        assert_eq!(of(true, true, Some("Y"), (6, 14)), State::Ok);
        assert_eq!(of(true, true, Some("N"), (6, 14)), State::Advice);
        assert_eq!(of(true, true, None, (6, 1)), State::Ok);
        assert_eq!(of(true, true, Some("\u{1}"), (6, 14)), State::Unknown);
    }

    #[test]
    fn without_fuse_nothing_works() {
        assert_eq!(of(false, true, None, (6, 14)), State::Unknown, "the first mount loads it");
        assert_eq!(of(true, false, Some("Y"), (6, 14)), State::Warning);
    }
}
