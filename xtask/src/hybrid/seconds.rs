//! The seconds of a load: how many requests ended in each, by fio's log of single requests, and how even that is.

use std::collections::BTreeMap;

/// Largest share of CPU time that the host may have taken in a second that says something about who is measured.
pub const STOLEN_MAX: f64 = 0.05;

/// The requests that ended, by the wall clock's second.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Ended {
    counts: BTreeMap<u64, u64>,
    /// The longest request, in nanoseconds.
    pub longest_ns: u64,
}

/// A line of fio's log: milliseconds since 1970, nanoseconds that the request took, and more. Errors: it is none of fio's.
pub fn request(line: &str) -> Result<(u64, u64), String> {
    let mut fields = line.split(',').map(|field| field.trim().parse::<u64>().ok());
    let both = fields.next().flatten().zip(fields.next().flatten());
    both.ok_or_else(|| format!("fio's log: not understood: {line}"))
}

impl Ended {
    /// Reads a log. Errors: a line is none of fio's.
    pub fn read<E: ToString>(lines: impl Iterator<Item = Result<String, E>>) -> Result<Ended, String> {
        let mut ended = Ended::default();
        for line in lines {
            let (ms, ns) = request(&line.map_err(|error| error.to_string())?)?;
            *ended.counts.entry(ms / 1000).or_default() += 1;
            ended.longest_ns = ended.longest_ns.max(ns);
        }
        Ok(ended)
    }
    /// The requests that ended in a second.
    pub fn at(&self, second: u64) -> u64 {
        self.counts.get(&second).copied().unwrap_or(0)
    }
    /// Mean rate of some seconds; None: there are none.
    pub fn mean(&self, seconds: std::ops::Range<u64>) -> Option<f64> {
        let (count, ended) = (seconds.end.checked_sub(seconds.start)?, self.counts.range(seconds));
        (count > 0).then(|| ended.map(|(_, ended)| *ended).sum::<u64>() as f64 / count as f64)
    }
}

/// The evenness of a load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Evenness {
    pub seconds: u64,
    pub mean: f64,
    /// The least of a second in which the host left the CPUs alone; so are the counts below.
    pub lowest: u64,
    pub below_half: u64,
    pub idle: u64,
    /// Seconds below half of the mean, or without any request, in which the host took CPU time.
    pub excused: u64,
}

/// Looks at all seconds of a range. `stolen`: the share of CPU time that the host took in a second. None: the range is empty.
pub fn evenness(ended: &Ended, range: std::ops::Range<u64>, stolen: impl Fn(u64) -> f64) -> Option<Evenness> {
    let mean = ended.mean(range.clone())?;
    let mut even =
        Evenness { seconds: range.end - range.start, mean, lowest: u64::MAX, below_half: 0, idle: 0, excused: 0 };
    for second in range {
        let count = ended.at(second);
        let is_low = (count as f64) < mean / 2.0;
        if stolen(second) > STOLEN_MAX {
            even.excused += u64::from(is_low);
            continue;
        }
        even.lowest = even.lowest.min(count);
        even.below_half += u64::from(is_low);
        even.idle += u64::from(count == 0);
    }
    // The host took CPU time in all of them.
    even.lowest = if even.lowest == u64::MAX { 0 } else { even.lowest };
    Some(even)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str =
        "1000, 500, 1, 4096, 0, 0\n1999, 700, 1, 4096, 0, 0\n2000, 600, 1, 4096, 0, 0\n4400, 9000, 1, 4096, 0, 0\n";

    fn ended(log: &str) -> Result<Ended, String> {
        Ended::read(log.lines().map(|line| Ok::<_, String>(line.to_string())))
    }

    #[test]
    fn requests_are_counted_where_they_ended() {
        let ended = ended(LOG).expect("that is fio's log");
        assert_eq!((1..6).map(|second| ended.at(second)).collect::<Vec<_>>(), [2, 1, 0, 1, 0]);
        assert_eq!(ended.longest_ns, 9000);
        assert_eq!((ended.mean(1..5), ended.mean(1..3), ended.mean(2..2)), (Some(1.0), Some(1.5), None));
    }

    #[test]
    fn a_log_that_is_cut_short_is_an_error() {
        assert!(ended("1000, 5\n20").is_err());
        assert!(ended("fio: no such file").is_err());
        assert!(Ended::read([Err("it is gone".to_string())].into_iter()).is_err());
    }

    #[test]
    fn slow_seconds_count_unless_the_host_took_the_cpu() {
        let ended = ended(LOG).expect("that is fio's log");
        let even = evenness(&ended, 1..5, |_| 0.0).expect("there are seconds");
        let expected = Evenness { seconds: 4, mean: 1.0, lowest: 0, below_half: 1, idle: 1, excused: 0 };
        assert_eq!(even, expected);
        let even = evenness(&ended, 1..5, |second| if second == 3 { 0.2 } else { 0.05 }).expect("there are seconds");
        assert_eq!(even, Evenness { lowest: 1, below_half: 0, idle: 0, excused: 1, ..expected });
        assert_eq!(evenness(&ended, 3..4, |_| 1.0).map(|even| even.lowest), Some(0));
        assert_eq!(evenness(&ended, 3..3, |_| 0.0), None);
    }
}
