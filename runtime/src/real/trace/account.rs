//! The account of a window: pairs the beginnings and ends that the tracepoints tell, and adds up their durations. Pure:
//! facts in, figures out.
//!
//! Promises: a pair counts if both its facts lie in the window; all others are counted as unmatched; whatever is told,
//! memory stays bounded. Facts may come in any order, as long as none is older than those that were settled.

use crate::histogram::{Histogram, Summary};
use std::collections::BTreeMap;

/// Beginnings that wait for their ends, of requests and of I/O: several times as many as a kernel has under way. What comes
/// beyond counts as lost.
const OPEN_MAX: usize = 1 << 16;
/// Issuers that are told by name; those beyond are told together.
const ISSUERS_MAX: usize = 64;
/// The name of those.
const OTHERS: &str = "others";

/// The kernel's number of a device or a FUSE connection, as its tracepoints tell it.
pub fn kernel_number(major: u32, minor: u32) -> u32 {
    major << 20 | minor
}

/// The choice of what is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sampling {
    /// Everything.
    All,
    /// One in 64: of requests, and of I/O of at most 64 KiB.
    Sparse,
}

impl Sampling {
    /// One request in so many is looked at.
    pub fn one_in(self) -> u64 {
        match self {
            Sampling::All => 1,
            Sampling::Sparse => super::points::ONE_IN,
        }
    }
    /// The same, of an I/O of this length.
    fn one_io_in(self, sectors: u64) -> u64 {
        if (1..=super::points::SAMPLED_SECTORS_MAX).contains(&sectors) { self.one_in() } else { 1 }
    }
}

/// The kind of an I/O of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verb {
    /// Data is read.
    Read,
    /// Data is written.
    Write,
    /// The device makes durable what it has.
    Flush,
    /// The device is told what nobody needs.
    Discard,
    /// Commands of drivers, zones and the like.
    Other,
}

impl Verb {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Read => "read",
            Verb::Write => "write",
            Verb::Flush => "flush",
            Verb::Discard => "discard",
            Verb::Other => "other",
        }
    }
    /// The verb in the kernel's letters (`WS`, `FWFS`, `RA`): an F before it asks for a flush first.
    pub(super) fn of(letters: &[u8]) -> Verb {
        let verb = match letters {
            [b'F', verb @ (b'R' | b'W' | b'D' | b'F'), ..] => *verb,
            [verb, ..] => *verb,
            [] => 0,
        };
        match verb {
            b'R' => Verb::Read,
            b'W' => Verb::Write,
            b'F' => Verb::Flush,
            b'D' => Verb::Discard,
            _ => Verb::Other,
        }
    }
}

/// An I/O of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Io {
    pub device: u32,
    pub sector: u64,
    /// Sectors of 512 bytes; 0 for a flush.
    pub sectors: u64,
    pub verb: Verb,
}

impl Io {
    /// Tells it from all others under way: flushes have no place.
    fn key(&self) -> (u32, u64, bool) {
        (self.device, self.sector, self.sectors == 0)
    }
}

/// One thing that a tracepoint tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fact {
    /// A request is handed to the server of its connection.
    Sent { connection: u32, unique: u64, opcode: u32 },
    /// A request was answered.
    Ended { connection: u32, unique: u64 },
    /// An I/O is handed to a device's driver, by a thread of this process and name.
    Issued { io: Io, pid: u32, name: [u8; 16] },
    /// An I/O is done.
    Completed { io: Io },
}

/// Beginnings or ends without their counterpart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unmatched {
    /// Ends whose beginning was before the window.
    pub begun_before: u64,
    /// Beginnings whose end was not seen: under way when the window ended, for nearly all.
    pub not_ended: u64,
    /// Facts that were dropped because the reader was too slow.
    pub lost: u64,
}

/// Requests of FUSE connections, from their sending to the server to their end.
#[derive(Clone)]
pub struct RequestAccount {
    /// The choice that was made. Figures are those of what was looked at.
    pub sampling: Sampling,
    /// Durations by opcode.
    pub opcodes: BTreeMap<u32, Summary>,
    /// Those that are not among them.
    pub unmatched: Unmatched,
    /// Requests that the kernel told before it had numbered them, as some kernels before Linux 6.18 do: nothing tells their ends.
    pub unnumbered: u64,
}

/// The lengths that are told together, by the longest one: the next power of four of KiB, up to 1 MiB; None: longer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Length {
    /// The longest of them.
    pub bytes_max: Option<u64>,
}

impl Length {
    fn of(sectors: u64) -> Length {
        const CLASSES: [u64; 6] = [0, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
        Length { bytes_max: CLASSES.into_iter().find(|&longest| sectors.saturating_mul(512) <= longest) }
    }
}

/// The I/O that is told together: device, verb, length.
pub type Class = (u32, Verb, Length);

/// The figures of a class.
#[derive(Clone)]
pub struct Service {
    /// Durations from the driver's taking it over to its completion.
    pub times: Summary,
    /// One I/O in so many of this class was looked at.
    pub one_in: u64,
}

/// The issuer of I/O.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Issuer {
    /// True for a thread of this process.
    pub own: bool,
    /// The thread's name.
    pub name: String,
}

/// The I/O of an issuer; an estimate if there was sampling.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Issued {
    /// Number of I/Os.
    pub count: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes discarded.
    pub discarded_bytes: u64,
}

/// I/O of devices, from the driver's taking it over to its completion.
#[derive(Clone)]
pub struct DeviceAccount {
    /// The choice that was made.
    pub sampling: Sampling,
    /// Durations by class. Figures are those of what was looked at.
    pub services: BTreeMap<Class, Service>,
    /// Those that are not among them.
    pub unmatched: Unmatched,
    /// All that was issued in the window, by issuer.
    pub issuers: BTreeMap<Issuer, Issued>,
}

/// Facts that are not settled yet, and what the others came to.
pub(super) struct Account {
    own_pid: u32,
    /// Facts before this time are of no account.
    began_ns: u64,
    /// No fact before this time comes any more.
    settled_ns: u64,
    facts: Vec<(u64, Fact)>,
    requests: Requests,
    devices: Devices,
}

struct Requests {
    sampling: Sampling,
    open: BTreeMap<(u32, u64), (u64, u32)>,
    opcodes: BTreeMap<u32, Histogram>,
    unmatched: Unmatched,
    unnumbered: u64,
}

struct Devices {
    sampling: Sampling,
    open: BTreeMap<(u32, u64, bool), (u64, Io)>,
    services: BTreeMap<Class, (Histogram, u64)>,
    unmatched: Unmatched,
    issuers: BTreeMap<Issuer, Issued>,
}

impl Account {
    /// An account of the window that began at `began_ns`, made by process `own_pid`.
    pub fn new(own_pid: u32, began_ns: u64, requests: Sampling, devices: Sampling) -> Account {
        let unmatched = Unmatched::default();
        Account {
            own_pid,
            began_ns,
            settled_ns: began_ns,
            facts: Vec::new(),
            requests: Requests {
                sampling: requests,
                open: BTreeMap::new(),
                opcodes: BTreeMap::new(),
                unmatched,
                unnumbered: 0,
            },
            devices: Devices {
                sampling: devices,
                open: BTreeMap::new(),
                services: BTreeMap::new(),
                unmatched,
                issuers: BTreeMap::new(),
            },
        }
    }
    /// Takes a fact in.
    pub fn add(&mut self, at_ns: u64, fact: Fact) {
        if at_ns >= self.began_ns {
            self.facts.push((at_ns, fact));
        }
    }
    /// Pairs all facts before `until_ns`, of which no more will come.
    pub fn settle(&mut self, until_ns: u64) {
        assert!(until_ns >= self.settled_ns, "time goes on: {until_ns} after {}", self.settled_ns);
        self.settled_ns = until_ns;
        // CPUs tell theirs one after the other.
        self.facts.sort_by_key(|&(at_ns, _)| at_ns);
        let end = self.facts.partition_point(|&(at_ns, _)| at_ns < until_ns);
        for (at_ns, fact) in self.facts.drain(..end) {
            match fact {
                Fact::Sent { connection, unique, opcode } => self.requests.sent((connection, unique), at_ns, opcode),
                Fact::Ended { connection, unique } => self.requests.ended((connection, unique), at_ns),
                Fact::Issued { io, pid, name } => {
                    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
                    let name = String::from_utf8_lossy(name).into_owned();
                    self.devices.issued(io, at_ns, Issuer { own: pid == self.own_pid, name });
                }
                Fact::Completed { io } => self.devices.completed(io, at_ns),
            }
        }
    }
    /// The window's figures: facts at `ended_ns` and later are of no account. `lost`: facts of requests and of devices that
    /// never came.
    pub fn end(mut self, ended_ns: u64, lost: [u64; 2]) -> (RequestAccount, DeviceAccount) {
        self.settle(ended_ns);
        let (mut requests, mut devices) = (self.requests, self.devices);
        requests.unmatched.not_ended += requests.open.len() as u64;
        requests.unmatched.lost += lost[0];
        devices.unmatched.not_ended += devices.open.len() as u64;
        devices.unmatched.lost += lost[1];
        let opcodes = requests.opcodes.into_iter().map(|(opcode, times)| (opcode, times.summary()));
        let services = devices.services.into_iter();
        let services = services.map(|(class, (times, one_in))| (class, Service { times: times.summary(), one_in }));
        let requests = RequestAccount {
            sampling: requests.sampling,
            opcodes: opcodes.collect(),
            unmatched: requests.unmatched,
            unnumbered: requests.unnumbered,
        };
        let devices = DeviceAccount {
            sampling: devices.sampling,
            services: services.collect(),
            unmatched: devices.unmatched,
            issuers: devices.issuers,
        };
        (requests, devices)
    }
}

impl Requests {
    fn sent(&mut self, key: (u32, u64), at_ns: u64, opcode: u32) {
        match key {
            (_, 0) => self.unnumbered += 1,
            key => open(&mut self.open, &mut self.unmatched, key, (at_ns, opcode)),
        }
    }
    fn ended(&mut self, key: (u32, u64), at_ns: u64) {
        match self.open.remove(&key) {
            Some((sent_ns, opcode)) => self.opcodes.entry(opcode).or_default().record(at_ns.saturating_sub(sent_ns)),
            None => self.unmatched.begun_before += 1,
        }
    }
}

impl Devices {
    fn issued(&mut self, io: Io, at_ns: u64, issuer: Issuer) {
        let known = self.issuers.len() < ISSUERS_MAX || self.issuers.contains_key(&issuer);
        let issuer = if known { issuer } else { Issuer { name: OTHERS.into(), ..issuer } };
        let issued = self.issuers.entry(issuer).or_default();
        let times = self.sampling.one_io_in(io.sectors);
        let bytes = io.sectors.saturating_mul(512 * times);
        issued.count += times;
        match io.verb {
            Verb::Read => issued.read_bytes = issued.read_bytes.saturating_add(bytes),
            Verb::Write => issued.written_bytes = issued.written_bytes.saturating_add(bytes),
            Verb::Discard => issued.discarded_bytes = issued.discarded_bytes.saturating_add(bytes),
            Verb::Flush | Verb::Other => {}
        }
        open(&mut self.open, &mut self.unmatched, io.key(), (at_ns, io));
    }
    fn completed(&mut self, io: Io, at_ns: u64) {
        let Some((issued_ns, io)) = self.open.remove(&io.key()) else {
            self.unmatched.begun_before += 1;
            return;
        };
        let class = (io.device, io.verb, Length::of(io.sectors));
        let one_in = self.sampling.one_io_in(io.sectors);
        let (times, _) = self.services.entry(class).or_insert_with(|| (Histogram::default(), one_in));
        times.record(at_ns.saturating_sub(issued_ns));
    }
}

/// Notes a beginning. One that was there under the same key has had its end unseen.
fn open<K: Ord, V>(open: &mut BTreeMap<K, V>, unmatched: &mut Unmatched, key: K, value: V) {
    if open.len() >= OPEN_MAX {
        unmatched.lost += 1;
    } else if open.insert(key, value).is_some() {
        unmatched.not_ended += 1;
    }
    assert!(open.len() <= OPEN_MAX, "memory is bounded");
}

#[cfg(test)]
mod tests;
