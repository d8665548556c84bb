//! The command line of `cargo xtask cluster-torture`.

use super::kinds::Kind;
use super::site::Wanted;
use crate::flash::asked::{absolute, number};
use crate::hybrid::asked::Form;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// The help text.
pub const HELP: &str = "\
cargo xtask cluster-torture [OPTION ...]

  A cluster of three bricks on this machine, made by `sinter cluster dev`, and 13 clients of its mount that check what they read, while the
  nodes' processes are killed, taken down and stopped. As root. Fails if anything is lost or wrong, if a client gets an error, or if a call
  has not returned after 30 s; the run ends at the first such finding, and its directory is kept. All is taken back otherwise, also after
  Ctrl-C.

  4 clients append numbered lines to a log each, half of them with a sync at each third line
  4 clients write blocks of 4 KiB at random places of a file each, half of them with O_DIRECT, and read others
  2 clients create, rename, link and unlink names in one directory
  2 clients count a number up under flock
  1 client reads and writes a file that is open and has no name any more

  Faults, drawn by the seed: a node killed and started again at once (kill-0: 16 of 100), after 0.2 s (kill-0.2: 6), after 1 s (kill-1: 20) or
  after 5 s (kill-5: 18), one taken down by `sinter down` and started again 1 s after its end (down: 20), one stopped for 1 to 6 s (stop: 10),
  two killed at once (two: 5), all three (three: 5). A single one is the node that leads in 60 of 100 cases. At the end all contents are
  verified, all nodes must have the same records, contents are verified again after an end and a new start, and `sinter check --data` must find
  nothing in any brick.

  With --networks each node is a machine with a network, /etc and /run of its own, and so are two clients: 10.77.0.1 to 10.77.0.5, each with
  a cable to one switch, in namespaces that end with the run. They become a cluster over TLS by `sinter cluster create` and `join`. The 13
  clients are spread over both mounts, and one more on each reads the counter without its lock and must never find an old number. As often
  as the faults above, these are drawn:

  cut     a node cut off from all others for 2 to 14 s (20 of 100)
  alone   the leader cut off from the other nodes, and reached by the clients (12)
  split   the leader and one client cut off from the other nodes and the other client for 1 to 8 s (12)
  deaf    a node that for 2 to 14 s hears no other node, in half of all cases no client either, and is heard (16)
  mute    the same the other way round (16)
  pair    the leader cut off from one follower for 3 to 10 s: it must go on, in the same term (12)
  client  a client cut off from the leader, and from nobody else, for 1 to 8 s (6)
  flap    a node's cable out and in for 0.1 s, 0.2 s and so on, for 6 s (6)

  With --disks each node's brick lies on a file system of its own, on a loop device in the run's directory. As often as is told, these
  are drawn beside the 200 above:

  hang       a node's disk hangs for 2 to 8 s: no write to its file system ends (20)
  hang-both  the disks of both followers hang for 0.5 to 4 s, in which nothing may be answered that changes a name; then all three nodes are
             killed, and the disks go on (8)
  slow       a follower's disk writes 1 MB/s for 10 s; the 10 s before it are compared with (6)

  A fault's stall is the longest call of any client in which the fault happened, or which began between it and the next one. Of clients that
  a fault cuts off (split, client), it has the time until the lift.
  The table names the goals, and which of them were missed; a machine that does other things beside misses them too, so that is no failure.
  For how long a leader went on without a majority is what it says itself, asked each 0.2 s.

  --networks         each node and client on a machine of its own
  --disks            the same, and each node's brick on a disk of its own
  --kind KIND,KIND   these faults only, each as often [all]
  --count N          the run ends after so many faults, 1 to 100000 [when the time is over]
  --minutes N        of faults, 1 to 10000 [30]
  --every N          seconds from one fault to the next one, 1 to 600; with --kind and --networks the next one also waits until all nodes
                     are there, and all clients go on [10]
  --seed N           of what is drawn; the same seed draws the same, and the machine's timing differs [the time]
  --volatile         nodes behind write caches that are lost when they are killed, as drives' are in a power cut; needs a build by
                     cargo build --release -p node --features seeded-bugs
  --sinter BINARY    [the checkout's release build]
  --json             prints JSON, and the table as an error [the table alone]
  --work DIR         made for the run, with 16 GiB free [/var/tmp/sinter-cluster-torture]

  300 power cuts, with the drives' caches lost:
    cargo xtask cluster-torture --kind three --count 300 --every 3 --volatile --minutes 120 --sinter BINARY
";

/// The options on the command line.
#[derive(Debug)]
pub struct Asked {
    pub time: Duration,
    pub every: Duration,
    pub seed: u64,
    pub sinter: PathBuf,
    pub wanted: Wanted,
    /// The kinds of faults, each with its share of the sum of all.
    pub shares: Vec<(Kind, u64)>,
    pub count: Option<u64>,
    /// True if a fault waits until all nodes are there.
    pub is_patient: bool,
    pub form: Form,
    pub work: PathBuf,
}

impl Asked {
    /// Reads the command line.
    pub fn read(arguments: &[String]) -> Result<Asked, String> {
        let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut asked = Asked {
            time: Duration::from_secs(30 * 60),
            every: Duration::from_secs(10),
            seed: now.as_secs(),
            sinter: program.with_file_name("sinter"),
            wanted: Wanted::default(),
            shares: Vec::new(),
            count: None,
            is_patient: false,
            form: Form::Table,
            work: PathBuf::from("/var/tmp/sinter-cluster-torture"),
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value =
                || words.next().ok_or_else(|| format!("{word}: not known, or its value is missing\n\n{HELP}"));
            match word.as_str() {
                "--networks" => asked.wanted.networks = true,
                "--disks" => asked.wanted = Wanted { networks: true, disks: true, ..asked.wanted },
                "--volatile" => asked.wanted.is_volatile = true,
                "--kind" => asked.shares = kinds(value()?)?,
                "--count" => asked.count = Some(number(word, value()?, 1, 100_000)?),
                "--json" => asked.form = Form::Json,
                "--minutes" => asked.time = Duration::from_secs(60 * number(word, value()?, 1, 10_000)?),
                "--every" => asked.every = Duration::from_secs(number(word, value()?, 1, 600)?),
                "--seed" => asked.seed = number(word, value()?, 0, u64::MAX)?,
                "--sinter" => asked.sinter = absolute(value()?)?,
                "--work" => asked.work = absolute(value()?)?,
                _ => return Err(format!("{word}: not known\n\n{HELP}")),
            }
        }
        asked.settled()
    }
    /// Fills in what follows from what was asked for.
    fn settled(mut self) -> Result<Asked, String> {
        let Wanted { networks, disks, .. } = self.wanted;
        if !networks && self.shares.iter().any(|(kind, _)| kind.is_of_networks()) {
            return Err("--kind: this cuts networks, which only --networks makes: give that too".to_string());
        }
        if !disks && self.shares.iter().any(|(kind, _)| kind.is_of_disks()) {
            return Err("--kind: this holds disks up, which only --disks makes: give that too".to_string());
        }
        self.is_patient = networks || !self.shares.is_empty();
        if self.shares.is_empty() {
            self.shares = Kind::shares(networks, disks);
        }
        Ok(self)
    }
}

/// The kinds of a list, each as often.
fn kinds(value: &str) -> Result<Vec<(Kind, u64)>, String> {
    let kind = |word: &str| {
        let kind = Kind::of(word).ok_or_else(|| format!("--kind {word}: not known; one or more of {}", Kind::words()));
        kind.map(|kind| (kind, 1))
    };
    value.split(',').map(kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Asked, String> {
        Asked::read(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read() {
        let asked = read("--minutes 2 --every 5 --seed 7 --json").expect("it is a good line");
        assert_eq!((asked.time.as_secs(), asked.every.as_secs(), asked.seed), (120, 5, 7));
        assert_eq!(asked.form, Form::Json);
        let asked = read("").expect("it is a good line");
        assert!(asked.form == Form::Table && !asked.is_patient && asked.count.is_none());
        assert_eq!(asked.shares, Kind::shares(false, false));
        let asked = read("--kind kill-0.2,three --count 300 --every 1 --volatile").expect("it is a good line");
        assert_eq!((asked.count, asked.shares), (Some(300), vec![(Kind::Kill02, 1), (Kind::Three, 1)]));
        assert!(asked.is_patient && asked.wanted.is_volatile && !asked.wanted.networks);
        let asked = read("--disks --volatile").expect("it is a good line");
        assert_eq!(asked.wanted, Wanted { networks: true, disks: true, is_volatile: true });
        assert_eq!(asked.shares, Kind::shares(true, true));
        let asked = read("--networks").expect("it is a good line");
        assert_eq!(asked.shares, Kind::shares(true, false));
        assert!(asked.is_patient && read("--kind deaf --networks").is_ok());
    }

    #[test]
    fn nonsense_is_refused() {
        for (line, why) in [
            ("--minutes 0", "1 to 10000"),
            ("--every 0", "1 to 600"),
            ("--seed", "value is missing"),
            ("--count 0", "1 to 100000"),
            ("--kind killed", "kill-0, kill-0.2"),
            ("--kind mute", "--networks makes: give that too"),
            ("--kind slow --networks", "--disks makes: give that too"),
            ("--loud", "--loud: not known"),
        ] {
            let error = read(line).expect_err(line);
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
