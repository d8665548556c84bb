//! The kinds of faults: their names, how often each is drawn, and the goals that figures are held against.

use std::time::Duration;

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// One killed and started again after a time.
    Kill0,
    Kill02,
    Kill1,
    Kill5,
    /// One taken down by `sinter down`.
    Down,
    /// One stopped by SIGSTOP.
    Stop,
    /// Two killed at once, and all three, as by a power cut.
    Two,
    Three,
    /// One cut off from all others, nodes and clients.
    Cut,
    /// The leader cut off from the other nodes, and reached by the clients.
    Alone,
    /// The leader and one client cut off from the other nodes and the other client.
    Split,
    /// One that hears nobody, and is heard.
    Deaf,
    /// One that is heard by nobody, and hears.
    Mute,
    /// The leader cut off from one follower only.
    Pair,
    /// One client cut off from the leader only.
    Client,
    /// One whose cable comes out and in.
    Flap,
    /// One whose disk hangs.
    Hang,
    /// Both followers' disks hang, and then all three are killed.
    HangBoth,
    /// A follower whose disk is slow.
    Slow,
    /// Any fault of one while another one was away.
    Beside,
}

/// The stalls that are aimed at: in 99 of 100 cases, and always.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Goal {
    pub most: Duration,
    pub always: Duration,
}

/// The goal for a node that is killed, whichever, every 10 s.
pub const KILLED: Goal = Goal { most: Duration::from_millis(3500), always: Duration::from_secs(6) };
/// The goal for how long a leader goes on that a cut has parted from the majority: the promise of 2 s that its lease is made of, and the pause
/// between two questions.
pub const LEASE: Duration = Duration::from_millis(2200);

impl Kind {
    pub const ALL: [Kind; 20] = [
        Kind::Kill0,
        Kind::Kill02,
        Kind::Kill1,
        Kind::Kill5,
        Kind::Down,
        Kind::Stop,
        Kind::Two,
        Kind::Three,
        Kind::Cut,
        Kind::Alone,
        Kind::Split,
        Kind::Deaf,
        Kind::Mute,
        Kind::Pair,
        Kind::Client,
        Kind::Flap,
        Kind::Hang,
        Kind::HangBoth,
        Kind::Slow,
        Kind::Beside,
    ];
    /// Its word on the command line, its name in tables, and how often it is drawn.
    fn row(self) -> (&'static str, &'static str, u64) {
        match self {
            Kind::Kill0 => ("kill-0", "killed, back at once", 16),
            Kind::Kill02 => ("kill-0.2", "killed, back after 0.2 s", 6),
            Kind::Kill1 => ("kill-1", "killed, back after 1 s", 20),
            Kind::Kill5 => ("kill-5", "killed, back after 5 s", 18),
            Kind::Down => ("down", "down, back after 1 s", 20),
            Kind::Stop => ("stop", "stopped for 1 to 6 s", 10),
            Kind::Two => ("two", "two killed at once", 5),
            Kind::Three => ("three", "all three killed at once", 5),
            Kind::Cut => ("cut", "cut off from all", 20),
            Kind::Alone => ("alone", "leader cut off from nodes alone", 12),
            Kind::Split => ("split", "leader cut off with a client", 12),
            Kind::Deaf => ("deaf", "hears nobody, and is heard", 16),
            Kind::Mute => ("mute", "is heard by nobody, and hears", 16),
            Kind::Pair => ("pair", "leader cut off from one follower", 12),
            Kind::Client => ("client", "client cut off from the leader", 6),
            Kind::Flap => ("flap", "cable out and in for 6 s", 6),
            Kind::Hang => ("hang", "disk hangs for 2 to 8 s", 20),
            Kind::HangBoth => ("hang-both", "followers' disks hang, all killed", 8),
            Kind::Slow => ("slow", "a follower's disk at 1 MB/s", 6),
            Kind::Beside => ("", "one while another was away", 0),
        }
    }
    /// Its name.
    pub fn name(self) -> &'static str {
        self.row().1
    }
    /// The kind of a word on the command line.
    pub fn of(word: &str) -> Option<Kind> {
        Kind::drawn().find(|kind| kind.row().0 == word)
    }
    /// The words of all kinds that can be asked for.
    pub fn words() -> String {
        Kind::drawn().map(|kind| kind.row().0).collect::<Vec<_>>().join(", ")
    }
    fn drawn() -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(|kind| *kind != Kind::Beside)
    }
    /// All kinds that are drawn if none were asked for, each with its share of the sum of all.
    pub fn shares(with_networks: bool, with_disks: bool) -> Vec<(Kind, u64)> {
        let is_possible =
            |kind: &Kind| (with_networks || !kind.is_of_networks()) && (with_disks || !kind.is_of_disks());
        Kind::drawn().filter(is_possible).map(|kind| (kind, kind.row().2)).collect()
    }
    /// True if one node is killed.
    pub fn is_kill(self) -> bool {
        matches!(self, Kind::Kill0 | Kind::Kill02 | Kind::Kill1 | Kind::Kill5)
    }
    /// True if it needs nodes with networks of their own.
    pub fn is_of_networks(self) -> bool {
        Kind::Cut <= self && self <= Kind::Flap
    }
    /// True if it needs nodes with disks of their own.
    pub fn is_of_disks(self) -> bool {
        Kind::Hang <= self && self <= Kind::Slow
    }
    /// True if it is done to the node that leads alone.
    pub fn needs_leader(self) -> bool {
        matches!(self, Kind::Alone | Kind::Split | Kind::Pair | Kind::Client)
    }
    /// True if a leader to which it is done can't have a majority's answers until it is over.
    pub fn parts_from_majority(self) -> bool {
        matches!(self, Kind::Cut | Kind::Alone | Kind::Split | Kind::Deaf | Kind::Mute)
    }
    /// The goal for it, if there is one.
    pub fn goal(self) -> Option<Goal> {
        let within = |ms| Some(Goal { most: Duration::from_millis(ms), always: Duration::from_millis(ms) });
        match self {
            Kind::Kill0 | Kind::Kill02 => within(1000),
            Kind::Kill1 | Kind::Kill5 | Kind::Cut => Some(KILLED),
            Kind::Down => within(200),
            Kind::Alone | Kind::Deaf | Kind::Mute => within(10_000),
            Kind::Hang => within(5000),
            Kind::Stop | Kind::Two | Kind::Three | Kind::Split | Kind::Pair | Kind::Client | Kind::Flap => None,
            Kind::HangBoth | Kind::Slow | Kind::Beside => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_known_by_their_words() {
        for kind in Kind::drawn() {
            assert_eq!(Kind::of(kind.row().0), Some(kind));
        }
        assert_eq!((Kind::of(""), Kind::of("kill")), (None, None));
        assert!(Kind::words().starts_with("kill-0, kill-0.2, kill-1,"));
        let share = |with, disks| Kind::shares(with, disks).iter().map(|(_, share)| share).sum::<u64>();
        assert_eq!((share(false, false), share(true, false), share(true, true)), (100, 200, 234));
        assert!(Kind::Deaf.is_of_networks() && !Kind::Three.is_of_networks() && !Kind::Beside.is_of_networks());
        assert!(Kind::Slow.is_of_disks() && !Kind::Flap.is_of_disks() && !Kind::Beside.is_of_disks());
    }
}
