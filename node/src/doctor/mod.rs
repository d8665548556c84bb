//! The doctor: what of a machine is known to make storage slow or unsafe, and how to change it. Pure but for `gather`:
//! facts in, findings out, one module per check.
//!
//! Promises: nothing is changed and no lock is taken, so a daemon may serve meanwhile; what can't be read is told as
//! unknown, and never an error. A figure of what a change may bring is one that Sinter's documents measured.
//!
//! Absent by design: trust in `queue/rotational`, which is whatever the driver believes; advice on what has no remedy.

mod block_sizes;
mod clock;
mod cpu_sleep;
mod discard;
pub mod facts;
mod frequency;
pub mod gather;
mod host;
mod huge_pages;
mod iommu;
mod kernel;
mod layers;
mod limits;
mod others;
mod queue;
mod scheduler;
mod swap;
mod throttle;
mod transport;
mod virtual_machine;
mod write_cache;

use facts::Facts;
use serde::Serialize;

/// The verdict of a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing to do.
    Ok,
    /// It may be faster.
    Advice,
    /// It is unsafe, does not work, or is much slower than it has to be.
    Warning,
    /// The machine does not tell.
    Unknown,
}

impl State {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Advice => "advice",
            State::Warning => "warning",
            State::Unknown => "unknown",
        }
    }
}

/// The result of one check about one thing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// The check's name.
    pub check: &'static str,
    /// The verdict.
    pub state: State,
    /// The state of affairs, in half a line.
    pub found: String,
    /// The command or the step that changes it.
    pub fix: Option<String>,
    /// The gain to be expected of that.
    pub gain: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Finding {
        Finding { check, state: State::Ok, found: shown(found), fix: None, gain: None }
    }
    fn unknown(check: &'static str, why: impl Into<String>) -> Finding {
        Finding { state: State::Unknown, ..Finding::ok(check, why) }
    }
    fn advice(
        check: &'static str,
        found: impl Into<String>,
        fix: impl Into<String>,
        gain: impl Into<String>,
    ) -> Finding {
        let (fix, gain) = (Some(shown(fix)), Some(shown(gain)));
        Finding { check, state: State::Advice, found: shown(found), fix, gain }
    }
    fn warning(
        check: &'static str,
        found: impl Into<String>,
        fix: impl Into<String>,
        gain: impl Into<String>,
    ) -> Finding {
        Finding { state: State::Warning, ..Finding::advice(check, found, fix, gain) }
    }
}

/// Names that come from the machine may hold anything; a finding is one line on a terminal.
fn shown(text: impl Into<String>) -> String {
    text.into().chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// A check: what it finds in the facts, a finding for each thing that it looks at.
type Check = fn(&Facts) -> Vec<Finding>;

/// All checks, in the order in which they are shown: from the brick down to its disks, then what is around them.
const CHECKS: [Check; 19] = [
    host::check,
    layers::check,
    block_sizes::check,
    scheduler::check,
    queue::check,
    write_cache::check,
    discard::check,
    iommu::check,
    others::check,
    cpu_sleep::check,
    frequency::check,
    virtual_machine::check,
    clock::check,
    kernel::check,
    transport::check,
    huge_pages::check,
    swap::check,
    limits::check,
    throttle::check,
];

/// All findings about a machine.
pub fn examine(facts: &Facts) -> Vec<Finding> {
    CHECKS.iter().flat_map(|check| check(facts)).collect()
}

#[cfg(test)]
mod tests {
    use super::facts::{Block, Host, Layer, Place};
    use super::*;

    /// A machine that tells nothing but that a brick lies on one device.
    pub(super) fn on(block: Block) -> Facts {
        let layers = vec![Layer::Block(Box::new(block))];
        Facts { places: vec![Place { holds: "brick", layers }], ..Facts::default() }
    }

    #[test]
    fn a_machine_that_tells_nothing_gets_no_advice() {
        let all_unknown = |facts: &Facts| {
            let known: Vec<Finding> =
                examine(facts).into_iter().filter(|finding| finding.state != State::Unknown).collect();
            assert!(known.is_empty(), "{known:#?}");
        };
        all_unknown(&Facts::default());
        let layers = vec![Layer::Host(Host::default())];
        all_unknown(&Facts { places: vec![Place { holds: "brick", layers }], ..Facts::default() });
    }

    #[test]
    fn each_check_says_that_it_does_not_know() {
        let told = examine(&on(Block { role: facts::Role::Made { of: String::new() }, ..Block::default() }));
        assert!(told.iter().all(|finding| finding.state == State::Unknown), "{told:#?}");
        let facts = on(Block::default());
        let silent = CHECKS.iter().filter(|check| check(&facts).is_empty());
        assert_eq!(silent.count(), 0);
    }
}
