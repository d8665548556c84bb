//! The kernel's own account of a window of time: its tracepoints tell when requests are handed to the server of a FUSE
//! connection and when they end, and the same of a device's I/O.
//!
//! Promises: a window costs the requests in it some time, and nothing before or after it; what the reader misses is counted;
//! the kernel's traces end with this process, however it ends; nothing is mounted and no setting of the machine is changed.
//! Absent by design: BPF; threads (whoever calls reads the records meanwhile, and is never a core); state of its own.

mod account;
mod disks;
mod layout;
mod perf;
mod points;
mod tracefs;

pub use account::{
    Class, DeviceAccount, Issued, Issuer, Length, RequestAccount, Sampling, Service, Unmatched, Verb, kernel_number,
};
pub use disks::{Disk, below};

use super::clock;
use account::{Account, Fact};
use base::{Error, Kind, Result};
use perf::{Event, Ring};
use points::{Devices, Points, Requests};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::time::Duration;
use tracefs::Tracefs;

/// Time between two looks at the records. Rings hold those of 12 ms at the least.
const ROUND: Duration = Duration::from_millis(4);
/// CPUs that run at present.
const ONLINE: &str = "/sys/devices/system/cpu/online";
/// More CPUs than any machine has.
const CPUS_MAX: usize = 8192;

/// The objects of a window.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Numbers of FUSE connections, as `kernel_number` makes them.
    pub connections: &'a [u32],
    /// The choice among their requests.
    pub requests: Sampling,
    /// Numbers of whole block devices.
    pub devices: &'a [u32],
    /// The choice among their I/O.
    pub io: Sampling,
}

/// The outcome of a window.
pub struct Window {
    /// Its beginning, on CLOCK_MONOTONIC.
    pub began_ns: u64,
    /// Its length.
    pub lasted_ns: u64,
    /// The requests, or why the kernel tells nothing of them.
    pub requests: Result<RequestAccount>,
    /// The devices, or why the kernel tells nothing of them.
    pub devices: Result<DeviceAccount>,
}

/// A window that is ready to be opened.
pub struct Tracer {
    points: Points,
    /// Connections, and devices: a filter too long for the kernel lets those of others through.
    numbers: [BTreeSet<u32>; 2],
    sampling: [Sampling; 2],
    cpus: Vec<Cpu>,
}

/// The tracepoints of one CPU, those of requests first.
struct Cpu {
    requests: Vec<Event>,
    devices: Vec<Event>,
    ring: Ring,
}

impl Tracer {
    /// Looks tracepoints up and opens them, switched off. What the kernel can't tell is left out as long as it tells
    /// anything. Errors: `Host` if it does not, or gives tracepoints to others only.
    pub fn open(wanted: &Wanted<'_>) -> Result<Tracer> {
        let mut points = Points::find(&Tracefs::open()?);
        if wanted.connections.is_empty() {
            points.requests = Err(Error::new(Kind::NotFound, "there are no requests: no volume is mounted"));
        }
        if wanted.devices.is_empty() {
            let what = "no block device is known below the brick: the kernel's account of I/O is left out";
            points.devices = Err(Error::new(Kind::NotFound, what));
        }
        if let (Err(error), Err(_)) = (&points.requests, &points.devices) {
            return Err(error.clone());
        }
        let filters =
            [Requests::filter(wanted.connections, wanted.requests), Devices::filter(wanted.devices, wanted.io)];
        let online = online();
        let cpus = online.iter().filter_map(|&cpu| Cpu::open(cpu, online.len(), &points, &filters).transpose());
        let cpus = cpus.collect::<Result<_>>()?;
        let numbers = [wanted.connections, wanted.devices].map(|numbers| numbers.iter().copied().collect());
        Ok(Tracer { points, numbers, sampling: [wanted.requests, wanted.io], cpus })
    }
    fn is_wanted(&self, fact: &Fact) -> bool {
        match fact {
            Fact::Sent { connection, .. } | Fact::Ended { connection, .. } => self.numbers[0].contains(connection),
            Fact::Issued { io, .. } | Fact::Completed { io } => self.numbers[1].contains(&io.device),
        }
    }
    /// Opens the window.
    pub fn start(self) -> Result<Tracing> {
        self.cpus.iter().flat_map(Cpu::events).try_for_each(Event::enable)?;
        let began_ns = now_ns();
        let account = Account::new(std::process::id(), began_ns, self.sampling[0], self.sampling[1]);
        Ok(Tracing { tracer: self, began_ns, seen_ns: began_ns, account, records: Vec::new() })
    }
}

/// An open window.
pub struct Tracing {
    tracer: Tracer,
    began_ns: u64,
    /// Time of the last round but one's beginning: all older records were in the rings when it was over.
    seen_ns: u64,
    account: Account,
    records: Vec<u8>,
}

impl Tracing {
    /// Keeps the window open until it has lasted for `window`, and reads records meanwhile. Errors: `Interrupted` as soon as
    /// `goes_on` says no.
    pub fn follow(&mut self, window: Duration, goes_on: impl Fn() -> bool) -> Result<()> {
        let end_ns = self.began_ns + window.as_nanos() as u64;
        loop {
            let now_ns = now_ns();
            self.read()?;
            // A record is given its time a moment before it is put into the ring: those of this round may still come.
            self.account.settle(self.seen_ns);
            self.seen_ns = now_ns;
            if now_ns >= end_ns {
                return Ok(());
            }
            if !goes_on() {
                return Err(Error::new(Kind::Interrupted, "the window was cut short"));
            }
            std::thread::sleep(ROUND.min(Duration::from_nanos(end_ns - now_ns)));
        }
    }
    /// Closes the window.
    pub fn end(mut self) -> Result<Window> {
        let ended_ns = now_ns();
        let cpus = &self.tracer.cpus;
        cpus.iter().flat_map(Cpu::events).try_for_each(Event::disable)?;
        self.read()?;
        let lost = |events: fn(&Cpu) -> &[Event]| {
            self.tracer.cpus.iter().flat_map(events).map(Event::lost).sum::<Result<u64>>()
        };
        let lost = [lost(|cpu| &cpu.requests)?, lost(|cpu| &cpu.devices)?];
        let (requests, devices) = self.account.end(ended_ns, lost);
        Ok(Window {
            began_ns: self.began_ns,
            lasted_ns: ended_ns - self.began_ns,
            requests: self.tracer.points.requests.map(|_| requests),
            devices: self.tracer.points.devices.map(|_| devices),
        })
    }
    fn read(&mut self) -> Result<()> {
        let Tracing { tracer, account, records, .. } = self;
        for cpu in &tracer.cpus {
            cpu.ring.drain(records);
            perf::samples(records, |sample| {
                let fact = tracer.points.read(sample)?;
                if tracer.is_wanted(&fact) {
                    account.add(sample.at_ns, fact);
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

impl Cpu {
    /// Opens the tracepoints of a CPU; None if it has gone.
    fn open(cpu: usize, cpus: usize, points: &Points, filters: &[CString; 2]) -> Result<Option<Cpu>> {
        let open = |ids: &[u16], filter: &CString| -> Result<Option<Vec<Event>>> {
            ids.iter().map(|&id| Event::open(id, cpu, filter)).collect()
        };
        let requests = points.requests.as_ref().map_or_else(|_| Vec::new(), |points| points.ids().to_vec());
        let devices = points.devices.as_ref().map_or_else(|_| Vec::new(), |points| points.ids().to_vec());
        let opened = open(&requests, &filters[0])?.zip(open(&devices, &filters[1])?);
        let Some((requests, devices)) = opened else { return Ok(None) };
        let (first, others) = {
            let mut all = requests.iter().chain(&devices);
            (all.next().expect("one of the two is wanted"), all)
        };
        let ring = Ring::of(first, cpus)?;
        others.into_iter().try_for_each(|event| event.write_into(first))?;
        Ok(Some(Cpu { requests, devices, ring }))
    }
    fn events(&self) -> impl Iterator<Item = &Event> {
        self.requests.iter().chain(&self.devices)
    }
}

fn now_ns() -> u64 {
    clock::read_ns(libc::CLOCK_MONOTONIC)
}

/// The CPUs that run, or the first one if the kernel does not tell.
fn online() -> Vec<usize> {
    let told = std::fs::read_to_string(ONLINE).unwrap_or_default();
    numbers(told.trim()).unwrap_or_else(|| vec![0])
}

/// `0-3,5,7-9`; None if it is no such list.
fn numbers(list: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= CPUS_MAX {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
mod tests;
