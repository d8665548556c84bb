//! The machine and the disk, looked at in each second while clients work.

use crate::disk::Place;
use crate::flash::cpu;
use runtime::sim::spindle::Counters;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A second that went by.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Second {
    /// Its number since 1970.
    pub second: u64,
    /// The share of CPU time that the host took.
    pub stolen: f64,
    /// Bytes that the disk has written since it was made.
    pub disk_bytes: u64,
}

/// All seconds of a watch.
#[derive(Default)]
pub struct Watch {
    pub seconds: Vec<Second>,
}

/// The wall clock.
pub fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl Watch {
    /// Waits for the end of a second, and adds what it was like.
    pub fn look(&mut self, spindle: &Place) -> Result<Counters, String> {
        let began = cpu::begin(&[])?;
        let second = now().as_secs();
        std::thread::sleep(Duration::from_secs(second + 1).saturating_sub(now()));
        let counters = spindle.counters()?;
        let stolen = began.end(&[])?.stolen;
        self.seconds.push(Second { second, stolen, disk_bytes: counters.written_bytes });
        Ok(counters)
    }
    /// The share of CPU time that the host took in a second.
    pub fn stolen(&self, second: u64) -> f64 {
        let found = self.seconds.iter().find(|seen| seen.second == second);
        found.map_or(0.0, |seen| seen.stolen)
    }
    /// The seconds that were seen as a whole: the first and the last are cut.
    pub fn range(&self) -> std::ops::Range<u64> {
        let end = self.seconds.last().map_or(0, |last| last.second);
        let first = self.seconds.first().map_or(end, |first| first.second + 1);
        first..end.max(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_seconds_count() {
        let second = |second, stolen| Second { second, stolen, disk_bytes: 0 };
        let watch = Watch { seconds: vec![second(7, 0.5), second(8, 0.1), second(9, 0.0), second(10, 0.0)] };
        assert_eq!((watch.range(), watch.stolen(8), watch.stolen(11)), (8..10, 0.1, 0.0));
        assert_eq!(Watch::default().range(), 0..0);
    }
}
