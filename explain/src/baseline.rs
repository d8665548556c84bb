//! The usual service of a device, learned from its transfers by verb, size and depth.

use serde::{Deserialize, Serialize};

/// Number of seconds that a class remembers. More seconds replace those at random, so that old ones stay in for long: a
/// device that becomes slower for an hour is still compared with how it was.
const REMEMBERED: usize = 600;
/// Share of the seconds that were quicker than the baseline.
const LOW: f64 = 0.1;
/// Least number of transfers of a second that tells anything.
const TRANSFERS_MIN: u64 = 20;
/// Least number of seconds of which a quantile tells anything.
const SECONDS_MIN: usize = 3;

/// The learned service of one device.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Baseline {
    /// The classes that were ever seen.
    pub classes: Vec<Class>,
}

/// The service of a class of I/O.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Class {
    /// `read`, `write` or `flush`.
    pub verb: String,
    /// Largest size of the class, in bytes.
    pub bytes_max: u64,
    /// Least number of transfers of one core under way.
    pub depth: u64,
    /// Number of seconds learned from.
    pub seconds: u64,
    /// Mean service of remembered seconds, in nanoseconds.
    pub means_ns: Vec<u32>,
    /// Highest number of transfers in a second.
    pub rate_max: u64,
}

impl Class {
    /// The usual service in nanoseconds; none before some seconds were seen.
    pub fn usual_ns(&self) -> Option<u64> {
        if self.means_ns.len() < SECONDS_MIN {
            return None;
        }
        let mut means = self.means_ns.clone();
        means.sort_unstable();
        Some(u64::from(means[((means.len() - 1) as f64 * LOW) as usize]))
    }
}

impl Baseline {
    /// The class with these parts.
    pub fn class(&self, verb: &str, bytes_max: u64, depth: u64) -> Option<&Class> {
        self.classes.iter().find(|class| (&*class.verb, class.bytes_max, class.depth) == (verb, bytes_max, depth))
    }
    /// The usual service of a class in nanoseconds. If it was never seen at this depth: that of the nearest lower depth, as if twice as
    /// many at a time took twice as long each, or that of the next higher one.
    pub fn usual_ns(&self, (verb, bytes_max, depth): (&str, u64, u64)) -> Option<f64> {
        let at = |depth: u64| self.class(verb, bytes_max, depth).and_then(|class| class.usual_ns());
        let exact = at(depth).map(|ns| ns as f64);
        let mut lower = std::iter::successors(Some(depth / 2), |depth| Some(depth / 2)).take_while(|depth| *depth > 0);
        let from_lower = || lower.find_map(|lower| Some(at(lower)? as f64 * depth as f64 / lower as f64));
        let from_higher = || (1..6).find_map(|power| at(depth << power).map(|ns| ns as f64));
        exact.or_else(from_lower).or_else(from_higher)
    }
    /// Learns from a second in which `count` transfers took `mean_ns` in the mean. `random`: any number.
    pub fn learn(&mut self, (verb, bytes_max, depth): (&str, u64, u64), count: u64, mean_ns: u64, random: u64) {
        if count < TRANSFERS_MIN {
            return;
        }
        let known = |class: &Class| (&*class.verb, class.bytes_max, class.depth) == (verb, bytes_max, depth);
        let place = self.classes.iter().position(known).unwrap_or_else(|| {
            self.classes.push(Class { verb: verb.to_string(), bytes_max, depth, ..Class::default() });
            self.classes.len() - 1
        });
        let class = &mut self.classes[place];
        class.seconds += 1;
        class.rate_max = class.rate_max.max(count);
        let mean_ns = u32::try_from(mean_ns).unwrap_or(u32::MAX);
        if class.means_ns.len() < REMEMBERED {
            return class.means_ns.push(mean_ns);
        }
        // Vitter's algorithm R (1985): each second so far is remembered with the same chance.
        let place = random % class.seconds;
        if let Some(remembered) = class.means_ns.get_mut(place as usize) {
            *remembered = mean_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_service_is_a_low_quantile_that_a_slow_hour_does_not_move() {
        let mut baseline = Baseline::default();
        let key = ("read", 4096, 1);
        baseline.learn(key, 100, 50_000, 0);
        assert_eq!(baseline.class("read", 4096, 1).and_then(Class::usual_ns), None, "too little is known");
        (0..2000u64).for_each(|second| baseline.learn(key, 1000, 50_000 + second % 10 * 1000, second * 7919));
        (0..3600u64).for_each(|second| baseline.learn(key, 1000, 130_000, second * 104_729));
        let class = baseline.class("read", 4096, 1).expect("it was seen");
        assert!((50_000..60_000).contains(&class.usual_ns().expect("known")), "{:?}", class.usual_ns());
        assert_eq!((class.means_ns.len(), class.rate_max), (REMEMBERED, 1000));
        assert!(baseline.class("write", 4096, 1).is_none() && baseline.class("read", 4096, 2).is_none());
    }

    #[test]
    fn seconds_with_little_io_teach_nothing() {
        let mut baseline = Baseline::default();
        (0..100).for_each(|second| baseline.learn(("flush", 4096, 1), 19, 1, second));
        assert!(baseline.classes.is_empty());
    }
}
