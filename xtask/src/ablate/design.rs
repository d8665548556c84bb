//! The designs that are measured against ours.

use crate::flash::sides::Over;
use base::ablated::Ablation;

/// Number of older designs, from the first, that a field report named: `together` has them all.
const REPORTED: usize = 6;
/// The names of ours, and of the older design beside which others are measured too.
pub const OURS: &str = "ours";
const DEV_FUSE: &str = "dev-fuse";
const NETWORK: &str = "network";

/// A design: one older one, or several together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Design {
    pub name: &'static str,
    /// The design in words.
    pub title: &'static str,
    /// The design that it is compared with: it has one older design more than that, or several.
    pub beside: &'static str,
    /// Its older designs.
    pub on: Vec<Ablation>,
    /// The way from the mount to the brick.
    pub over: Over,
}

impl Design {
    /// Ours.
    pub fn ours() -> Design {
        Design { name: OURS, title: OURS, beside: OURS, on: Vec::new(), over: Over::Nothing }
    }
    /// Every older design, and those of the field report together. Over io_uring a hand-off on the way down brings one on the
    /// way back along; each by itself is measured over /dev/fuse, and compared with that. Those of messages are compared with ours over
    /// a network.
    pub fn all() -> Vec<Design> {
        use Ablation::{BlockingIo, Buffers, DevFuse, HandBack, HandDown, History, Queue, SleepyCpus};
        use Ablation::{OneConnection, WritePerMessage};
        let beside_ours: [(&'static str, &'static str, &[Ablation]); 8] = [
            ("history", "operations kept in one ring under one mutex", &[History]),
            ("queue", "one core fetches all requests", &[Queue]),
            (DEV_FUSE, "/dev/fuse instead of io_uring", &[DevFuse]),
            ("buffers", "one pool of buffers under one mutex", &[Buffers]),
            ("hand-offs", "requests handed to worker threads, and answers back, over io_uring", &[HandDown]),
            ("blocking-io", "device I/O by 16 threads that block", &[BlockingIo]),
            ("sleepy-cpus", "CPUs sleep between dense requests", &[SleepyCpus]),
            ("together", "the first four and both hand-offs together", &Ablation::ALL[..REPORTED]),
        ];
        let beside_dev_fuse: [(&'static str, &'static str, &[Ablation]); 2] = [
            ("hand-down", "/dev/fuse and a hand-off to a worker thread on the way down", &[DevFuse, HandDown]),
            ("hand-back", "/dev/fuse and a hand-off to another thread on the way back", &[DevFuse, HandBack]),
        ];
        let over_network: [(&'static str, &'static str, &[Ablation]); 2] = [
            ("one-connection", "a client's cores share one connection", &[OneConnection]),
            ("write-per-message", "each message is sent by a system call of its own", &[WritePerMessage]),
        ];
        let of = |beside, over| {
            move |(name, title, on): (_, _, &[Ablation])| Design { name, title, beside, on: on.to_vec(), over }
        };
        let mut all: Vec<Design> = beside_ours.into_iter().map(of(OURS, Over::Nothing)).collect();
        let at = all.len() - 3;
        all.splice(at..at, beside_dev_fuse.into_iter().map(of(DEV_FUSE, Over::Nothing)));
        all.push(of(OURS, Over::Network)((NETWORK, "a client's mount over TLS on loopback", &[])));
        all.extend(over_network.into_iter().map(of(NETWORK, Over::Network)));
        all
    }
    /// The design of a name.
    pub fn named(name: &str) -> Result<Design, String> {
        let all = Design::all();
        let known: Vec<&str> = all.iter().map(|design| design.name).collect();
        let found = all.iter().find(|design| design.name == name).cloned();
        found.ok_or_else(|| format!("no design {name}; there are {}", known.join(", ")))
    }
    /// The design that it is compared with.
    pub fn other(&self) -> Design {
        Design::named(self.beside).unwrap_or_else(|_| Design::ours())
    }
    /// The switches as the daemon reads them.
    pub fn switches(&self) -> String {
        self.on.iter().map(|ablation| ablation.name()).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn together_are_the_reported_ones() {
        let together = Design::named("together").expect("it is one");
        assert_eq!(together.switches(), "history,queue,dev-fuse,buffers,hand-down,hand-back");
        assert_eq!(Design::ours().switches(), "");
        assert!(Design::named("ours").is_err());
    }

    #[test]
    fn each_switch_is_alone_in_what_a_design_adds() {
        for ablation in Ablation::ALL {
            let adds = |design: &Design| {
                let other = design.other();
                design.on.iter().filter(|one| !other.on.contains(one)).eq([&ablation])
            };
            assert!(Design::all().iter().any(adds), "{ablation:?}");
        }
        assert_eq!(Design::named("hand-back").expect("it is one").other().switches(), "dev-fuse");
    }

    #[test]
    fn messages_are_compared_over_a_network() {
        for name in ["one-connection", "write-per-message"] {
            let design = Design::named(name).expect("it is one");
            let other = design.other();
            assert_eq!((design.switches(), design.over, other.over), (name.to_string(), Over::Network, Over::Network));
            assert_eq!(other.switches(), "");
        }
    }
}
