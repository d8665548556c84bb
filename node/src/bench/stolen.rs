//! The processors' time that the host of a virtual machine gave to others: it is no part of what is measured here, and
//! the cause of slow seconds.

/// The time stolen since the last look.
pub struct Stolen {
    /// Ticks that were stolen, and all ticks, of all processors together since they started.
    seen: [u64; 2],
}

impl Stolen {
    /// Counts from now on.
    pub fn start() -> Stolen {
        Stolen { seen: ticks() }
    }
    /// Hundredths of the processors' time that the host took since the last call; 0 where the kernel doesn't tell.
    pub fn percent(&mut self) -> u64 {
        let now = ticks();
        let [stolen, all] = [0, 1].map(|at| now[at].saturating_sub(self.seen[at]));
        self.seen = now;
        (stolen * 100).checked_div(all).unwrap_or(0)
    }
}

fn ticks() -> [u64; 2] {
    parse(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// The first line has the sum of all processors: user, nice, system, idle, iowait, irq, softirq, steal, and then times of guests,
/// which are part of the first two (proc_stat(5)).
fn parse(text: &str) -> [u64; 2] {
    let line = text.lines().next().and_then(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    let times: Vec<u64> = line.split_whitespace().take(8).map_while(|time| time.parse().ok()).collect();
    [times.get(7).copied().unwrap_or(0), times.iter().sum()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_eighth_time_is_the_stolen_one() {
        assert_eq!(parse("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n"), [8, 36]);
        assert_eq!(parse("cpu  1 2 3\n"), [0, 6]);
        assert_eq!(parse(""), [0, 0]);
        assert_eq!(parse("nonsense"), [0, 0]);
    }

    #[test]
    fn time_passes_without_more_than_all_of_it_stolen() {
        let mut stolen = Stolen::start();
        assert!(stolen.percent() <= 100 && stolen.percent() <= 100);
    }
}
