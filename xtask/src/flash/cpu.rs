//! The users of the CPUs: daemons, the whole machine, and the host of a virtual one.

use std::time::Duration;

/// The kernel tells times to programs in hundredths of a second, whatever its own clock (USER_HZ).
const TICKS_PER_SECOND: u64 = 100;

/// The machine's CPU time until now, in ticks of all cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    busy: u64,
    /// Time that the host of a virtual machine took.
    stolen: u64,
    all: u64,
}

/// The CPU time that a stretch of work took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// CPU time of a side's daemons.
    pub daemons: Duration,
    /// CPU time of everyone.
    pub machine: Duration,
    /// The share of all CPU time that the host took.
    pub stolen: f64,
}

/// A moment, from which work is measured.
pub struct Began {
    machine: Machine,
    daemons: u64,
}

/// The first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal.
fn machine(stat: &str) -> Option<Machine> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    let [user, nice, system, idle, iowait, irq, softirq, stolen] = ticks[..] else { return None };
    let busy = user + nice + system + irq + softirq;
    Some(Machine { busy, stolen, all: busy + idle + iowait + stolen })
}

/// User and system time in /proc/PID/stat, threads that have ended included. A name may hold blanks and brackets.
fn process(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Ticks that these processes have used.
pub fn of_processes(ids: &[u32]) -> Result<u64, String> {
    let one = |id: &u32| {
        let path = format!("/proc/{id}/stat");
        let stat = std::fs::read_to_string(&path).map_err(|error| format!("a daemon has ended: {path}: {error}"))?;
        process(&stat).ok_or_else(|| format!("{path}: not understood: {stat}"))
    };
    ids.iter().map(one).sum()
}

fn of_machine() -> Result<Machine, String> {
    let stat = std::fs::read_to_string("/proc/stat").map_err(|error| format!("/proc/stat: {error}"))?;
    machine(&stat).ok_or_else(|| "/proc/stat: not understood".to_string())
}

/// Begins to count.
pub fn begin(daemons: &[u32]) -> Result<Began, String> {
    Ok(Began { machine: of_machine()?, daemons: of_processes(daemons)? })
}

impl Began {
    /// The time since the beginning.
    pub fn end(&self, daemons: &[u32]) -> Result<Spent, String> {
        Ok(between(self.machine, of_machine()?, of_processes(daemons)?.saturating_sub(self.daemons)))
    }
}

fn between(first: Machine, last: Machine, daemons: u64) -> Spent {
    let time = |ticks: u64| Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND);
    // The kernel lets single counters step back a little.
    let all = last.all.saturating_sub(first.all).max(1);
    Spent {
        daemons: time(daemons),
        machine: time(last.busy.saturating_sub(first.busy)),
        stolen: last.stolen.saturating_sub(first.stolen) as f64 / all as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_busy_when_it_is_neither_idle_nor_waiting_nor_taken_away() {
        let stat = "cpu  100 20 30 4000 500 6 7 80 99 9\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(machine(stat), Some(Machine { busy: 163, stolen: 80, all: 4743 }));
        assert_eq!(machine("cpu0 1 2 3 4 5 6 7 8\n"), None);
        assert_eq!(machine("cpu  1 2 3 4\n"), None);
    }

    #[test]
    fn a_process_may_have_any_name() {
        let stat = "4711 (a (b) c d) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 5 0 100";
        assert_eq!(process(stat), Some(300));
        assert_eq!(process("4711 (short) S 1 2"), None);
    }

    #[test]
    fn what_was_spent_is_a_difference() {
        let first = Machine { busy: 100, stolen: 10, all: 1000 };
        let spent = between(first, Machine { busy: 150, stolen: 30, all: 1200 }, 25);
        let expected = Spent { daemons: Duration::from_millis(250), machine: Duration::from_millis(500), stolen: 0.1 };
        assert_eq!(spent, expected);
    }

    #[test]
    fn this_process_is_seen_and_one_that_ended_is_an_error() {
        assert!(of_processes(&[std::process::id()]).is_ok());
        assert!(of_processes(&[u32::MAX]).is_err());
    }
}
