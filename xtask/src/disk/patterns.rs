//! The patterns by which a disk is known, and the rates that a disk of 7200 turns per minute has in them.

use runtime::sim::spindle::Verb;

/// The order of places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    Random,
    /// Each behind the one before.
    Onward,
}

/// The unit of a pattern's rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    PerSecond,
    MegabytesPerSecond,
}

/// A pattern of requests.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pattern {
    pub name: &'static str,
    pub verb: Verb,
    pub order: Order,
    pub bytes: u64,
    /// Requests under way at a time.
    pub depth: u64,
    pub unit: Unit,
    /// The least and the largest rate of a real disk.
    pub rate: (f64, f64),
}

const BLOCK: u64 = 4 << 10;
const MIB: u64 = 1 << 20;
const ALONE: (f64, f64) = (60.0, 95.0);
const MANY: (f64, f64) = (150.0, 220.0);
const APPENDS: (f64, f64) = (110.0, 125.0);
const STREAM: (f64, f64) = (120.0, 150.0);

const fn small(name: &'static str, verb: Verb, order: Order, depth: u64, rate: (f64, f64)) -> Pattern {
    Pattern { name, verb, order, bytes: BLOCK, depth, unit: Unit::PerSecond, rate }
}

const fn large(name: &'static str, verb: Verb, depth: u64) -> Pattern {
    Pattern { name, verb, order: Order::Onward, bytes: MIB, depth, unit: Unit::MegabytesPerSecond, rate: STREAM }
}

/// All patterns.
pub const ALL: [Pattern; 6] = [
    small("4 KiB read at random, depth 1", Verb::Read, Order::Random, 1, ALONE),
    small("4 KiB read at random, depth 32", Verb::Read, Order::Random, 32, MANY),
    small("4 KiB written at random, depth 32", Verb::Write, Order::Random, 32, MANY),
    small("4 KiB appends, one after the other", Verb::Write, Order::Onward, 1, APPENDS),
    large("1 MiB read in sequence, depth 1", Verb::Read, 1),
    large("1 MiB written in sequence, depth 2", Verb::Write, 2),
];

impl Pattern {
    /// Its rate, of requests per second.
    pub fn rate_of(&self, requests_per_second: f64) -> f64 {
        match self.unit {
            Unit::PerSecond => requests_per_second,
            Unit::MegabytesPerSecond => requests_per_second * self.bytes as f64 / 1e6,
        }
    }
    /// fio's arguments for it.
    pub fn arguments(&self, device: &str, seconds: u64) -> Vec<String> {
        let pattern = match (self.order, self.verb) {
            (Order::Random, Verb::Read) => "randread",
            (Order::Random, Verb::Write) => "randwrite",
            (Order::Onward, Verb::Read) => "read",
            (Order::Onward, Verb::Write) => "write",
        };
        let (bytes, depth) = (self.bytes, self.depth);
        let engine = if depth == 1 { "--ioengine=psync" } else { "--ioengine=libaio" };
        let mut arguments = vec![
            format!("--filename={device}"),
            format!("--rw={pattern}"),
            format!("--bs={bytes}"),
            format!("--iodepth={depth}"),
            format!("--runtime={seconds}"),
            engine.to_string(),
        ];
        let rest = "--name=disk --output-format=json --thread --direct=1 --sync=dsync --time_based --norandommap";
        arguments.extend(rest.split(' ').map(str::to_string));
        arguments
    }
    /// The unit's name.
    pub fn unit_name(&self) -> &'static str {
        match self.unit {
            Unit::PerSecond => "/s",
            Unit::MegabytesPerSecond => "MB/s",
        }
    }
}
