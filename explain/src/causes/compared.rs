//! Times against what is usual for their classes.

use super::time;
use crate::Window;

/// Multiple of the usual time that counts as slower: means of one class differ by a fifth from second to second.
pub(super) const SLOWER: f64 = 1.3;
/// Least share of the events whose usual time is known.
const KNOWN_MIN: f64 = 0.5;

/// Events of several classes, and their times.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Compared {
    count: f64,
    took_ns: f64,
    /// Events of classes whose usual time is known; their times, and the times that they usually take.
    known: f64,
    known_ns: f64,
    usual_ns: f64,
}

impl Compared {
    /// Adds events of one class, by its name, size and depth.
    pub fn add(&mut self, window: &Window, count: f64, took_ns: f64, class: (&str, u64, u64)) {
        self.count += count;
        self.took_ns += took_ns;
        if let Some(usual_ns) = window.after.baseline.usual_ns(class) {
            self.known += count;
            self.known_ns += took_ns;
            self.usual_ns += usual_ns * count;
        }
    }
    /// The time as a multiple of the usual one; 1 if that is not known of most events.
    pub fn slower(&self) -> f64 {
        match self.known >= self.count * KNOWN_MIN && self.usual_ns > 0.0 {
            true => (self.known_ns / self.usual_ns).max(1.0),
            false => 1.0,
        }
    }
    /// Nanoseconds that an event takes in the mean.
    pub fn mean_ns(&self) -> f64 {
        self.took_ns / self.count.max(1.0)
    }
    /// Nanoseconds of all events that would go if it were as it usually is.
    pub fn excess_ns(&self) -> f64 {
        self.took_ns * self.excess()
    }
    /// The share of the time that would go if it were as it usually is.
    pub fn excess(&self) -> f64 {
        1.0 - 1.0 / self.slower()
    }
    /// A sentence: what takes how long, with the name of such events.
    pub fn word(&self, what: &str, events: &str) -> String {
        let (mean_ns, slower) = (self.mean_ns(), self.slower());
        format!(
            "{what} {} where that usually takes {} ({slower:.1} times, {:.0} {events})",
            time(mean_ns),
            time(mean_ns / slower),
            self.count
        )
    }
}
