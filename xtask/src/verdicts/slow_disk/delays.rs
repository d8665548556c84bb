//! The time by which a disk is late, and how many requests it serves at a time: pure.

use crate::served::Verb;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// The slowness of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Delays {
    pub read_us: u64,
    pub write_us: u64,
    pub flush_us: u64,
    /// Reads and writes whose delays run at the same time; others wait for one of them. 0: all.
    pub channels: u64,
}

impl Delays {
    /// Reads what `text` wrote: a name and a number on each line. Errors: the line that is not understood.
    pub fn read(text: &str) -> Result<Delays, String> {
        let mut delays = Delays::default();
        for line in text.lines() {
            let (name, number) = line.split_once(' ').ok_or(line)?;
            let number = number.parse().map_err(|_| line)?;
            match name {
                "read" => delays.read_us = number,
                "write" => delays.write_us = number,
                "flush" => delays.flush_us = number,
                "channels" => delays.channels = number,
                _ => return Err(line.to_string()),
            }
        }
        Ok(delays)
    }
    /// The text of a file that says it.
    pub fn text(&self) -> String {
        let Delays { read_us, write_us, flush_us, channels } = self;
        format!("read {read_us}\nwrite {write_us}\nflush {flush_us}\nchannels {channels}\n")
    }
    fn of(&self, verb: Verb) -> Duration {
        Duration::from_micros(match verb {
            Verb::Read => self.read_us,
            Verb::Write => self.write_us,
            Verb::Flush => self.flush_us,
        })
    }
}

/// Times at which answers are due.
#[derive(Debug, Default)]
pub struct Schedule {
    delays: Delays,
    /// The times at which the channels that are taken become free.
    taken: BinaryHeap<Reverse<Instant>>,
}

impl Schedule {
    /// Sets how late it is from now on.
    pub fn set(&mut self, delays: Delays) {
        if self.delays.channels != delays.channels {
            self.taken.clear();
        }
        self.delays = delays;
    }
    /// The time at which what the backing file has answered `now` is to be answered. A flush takes no channel.
    pub fn due(&mut self, verb: Verb, now: Instant) -> Instant {
        let delay = self.delays.of(verb);
        if self.delays.channels == 0 || verb == Verb::Flush {
            return now + delay;
        }
        while self.taken.peek().is_some_and(|Reverse(free)| *free <= now) {
            self.taken.pop();
        }
        let is_full = self.taken.len() as u64 >= self.delays.channels;
        let starts = if is_full { self.taken.pop().map_or(now, |Reverse(free)| free) } else { now };
        self.taken.push(Reverse(starts + delay));
        starts + delay
    }
}
