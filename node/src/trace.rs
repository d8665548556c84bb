//! A window in which the kernel tells of the daemon's requests and of its disks, held against the ledger. Promises that
//! it lasts for a bounded time and that windows of busy hosts look at few requests: what is looked at takes longer.

use crate::admin::protocol::{
    Mean, Times, Trace, TracedDevices, TracedIssuer, TracedOperation, TracedRequests, TracedService, Uncounted,
};
use base::{Error, Kind, Result};
use front::fuse::{ACCOUNTS, Account};
use runtime::Ledger;
use runtime::histogram::Summary;
use runtime::real::Directory;
use runtime::real::trace::{
    Class, DeviceAccount, Disk, Issued, Issuer, RequestAccount, Sampling, Service, Tracer, Unmatched, Wanted, below,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest window: everything that it looks at takes longer.
const MILLISECONDS_MAX: u64 = 5000;
/// Time before the window in which requests are counted.
const LOOK: Duration = Duration::from_millis(20);
/// Requests per second, and I/Os of disks, from which on only one in 64 is looked at: to look at one costs about a
/// microsecond (decision 0053), which is 1% of a CPU at this rate.
const DENSE_PER_SECOND: u64 = 10_000;

/// The length of a window that was asked for. Errors: `Invalid` if it is none.
pub fn window(milliseconds: u64) -> Result<Duration> {
    match milliseconds {
        1..=MILLISECONDS_MAX => Ok(Duration::from_millis(milliseconds)),
        _ => Err(Error::new(Kind::Invalid, "a window has 1 to 5000 milliseconds").with(milliseconds)),
    }
}

/// Traces a window of the daemon whose requests come by these connections, and whose brick lies there. Errors: `Host` if the
/// kernel tells nothing; `Interrupted` as soon as `goes_on` says no.
pub fn trace(
    ledger: &Ledger,
    connections: &[u32],
    brick: &Directory,
    window: Duration,
    goes_on: impl Fn() -> bool,
) -> Result<Trace> {
    let disks = below(brick);
    let devices: Vec<u32> = disks.iter().map(|disk| disk.number).collect();
    let [requests, io] = sampling(ledger, &disks);
    let tracer = Tracer::open(&Wanted { connections, requests, devices: &devices, io })?;
    let mut tracing = tracer.start()?;
    let before = Rows::of(ledger);
    tracing.follow(window, goes_on)?;
    let after = Rows::of(ledger);
    let window = tracing.end()?;
    let requests = match window.requests {
        Ok(account) => told_requests(&account, &before, &after),
        Err(error) => TracedRequests { absent: Some(error.to_string()), ..TracedRequests::default() },
    };
    let devices = match window.devices {
        Ok(account) => told_devices(account, &disks),
        Err(error) => TracedDevices { absent: Some(error.to_string()), ..TracedDevices::default() },
    };
    Ok(Trace { began_ns: window.began_ns, lasted_ns: window.lasted_ns, requests, devices })
}

/// The choice of requests and of I/O, by how many there are at present.
fn sampling(ledger: &Ledger, disks: &[Disk]) -> [Sampling; 2] {
    let counts = || [ledger.totals().0, disks.iter().map(Disk::requests).sum()];
    let before = counts();
    std::thread::sleep(LOOK);
    let dense = DENSE_PER_SECOND * LOOK.as_millis() as u64 / 1000;
    let after = counts();
    [0, 1].map(|of| if after[of].saturating_sub(before[of]) > dense { Sampling::Sparse } else { Sampling::All })
}

/// The ledger's figures at a moment.
struct Rows(BTreeMap<&'static str, Summary>);

impl Rows {
    fn of(ledger: &Ledger) -> Rows {
        Rows(ledger.profile().into_iter().map(|row| (row.name, row.total)).collect())
    }
    /// The requests of some operations that have ended since `earlier`.
    fn since(&self, earlier: &Rows, operations: &[&str]) -> Mean {
        let none = Summary::default();
        let rows = operations.iter().filter_map(|name| Some((self.0.get(name)?, earlier.0.get(name).unwrap_or(&none))));
        let (count, sum_ns) = rows.map(|(now, before)| now.since(before)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        Mean { count, mean_ns: sum_ns.checked_div(count).unwrap_or(0) }
    }
}

fn told_requests(account: &RequestAccount, before: &Rows, after: &Rows) -> TracedRequests {
    if account.unnumbered > 0 && account.opcodes.is_empty() {
        let absent = "this kernel tells of a request before it has numbered it, so nothing tells when it ends; \
                      Linux 6.18 does not";
        return TracedRequests { absent: Some(absent.to_string()), ..TracedRequests::default() };
    }
    let known = ACCOUNTS.iter().map(|known| operation(known, account, before, after));
    let others = account.opcodes.iter().filter(|(code, _)| !ACCOUNTS.iter().any(|known| known.opcodes.contains(code)));
    let others = others.map(|(code, times)| {
        let name = format!("opcode {code}");
        TracedOperation { name, kernel: Times::of(times), ledger: None, transport_ns: None }
    });
    let is_empty =
        |operation: &TracedOperation| operation.kernel.count + operation.ledger.map_or(0, |own| own.count) == 0;
    TracedRequests {
        absent: None,
        one_in: account.sampling.one_in(),
        operations: known.chain(others).filter(|operation| !is_empty(operation)).collect(),
        uncounted: uncounted(account.unmatched),
    }
}

fn operation(known: &Account, account: &RequestAccount, before: &Rows, after: &Rows) -> TracedOperation {
    let mut kernel = Summary::default();
    let opcodes = known.opcodes.iter().filter_map(|code| account.opcodes.get(code));
    opcodes.for_each(|times| kernel.add(times));
    let ledger = (!known.operations.is_empty()).then(|| after.since(before, known.operations));
    let both = ledger.filter(|own| own.count > 0 && kernel.count() > 0);
    let transport_ns = both.map(|own| kernel.mean_ns() as i64 - own.mean_ns as i64);
    TracedOperation { name: known.name.to_string(), kernel: Times::of(&kernel), ledger, transport_ns }
}

fn told_devices(account: DeviceAccount, disks: &[Disk]) -> TracedDevices {
    let names: BTreeMap<u32, &str> = disks.iter().map(|disk| (disk.number, disk.name.as_str())).collect();
    let service = |((device, verb, length), Service { times, one_in }): (Class, Service)| TracedService {
        device: names.get(&device).copied().unwrap_or_default().to_string(),
        verb: verb.name().to_string(),
        bytes_max: length.bytes_max,
        one_in,
        times: Times::of(&times),
    };
    let issuer = |(by, issued): (Issuer, Issued)| TracedIssuer {
        name: by.name,
        own: by.own,
        count: issued.count,
        read_bytes: issued.read_bytes,
        written_bytes: issued.written_bytes,
        discarded_bytes: issued.discarded_bytes,
    };
    TracedDevices {
        absent: None,
        one_in: account.sampling.one_in(),
        names: disks.iter().map(|disk| disk.name.clone()).collect(),
        services: account.services.into_iter().map(service).collect(),
        issuers: account.issuers.into_iter().map(issuer).collect(),
        uncounted: uncounted(account.unmatched),
    }
}

fn uncounted(unmatched: Unmatched) -> Uncounted {
    let Unmatched { begun_before, not_ended, lost } = unmatched;
    Uncounted { begun_before, not_ended, lost }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::{Histogram, Span, Stamp};

    fn account(durations_ns: &[(u32, u64)], unnumbered: u64) -> RequestAccount {
        let mut opcodes: BTreeMap<u32, Summary> = BTreeMap::new();
        for &(code, ns) in durations_ns {
            let one = Histogram::default();
            one.record(ns);
            opcodes.entry(code).or_default().add(&one.summary());
        }
        let unmatched = Unmatched { begun_before: 1, not_ended: 2, lost: 3 };
        RequestAccount { sampling: Sampling::All, opcodes, unmatched, unnumbered }
    }

    /// The rows of a ledger after requests that took so long.
    fn rows(durations_ns: &[(&str, u64)]) -> Rows {
        let ledger = Ledger::new(1, &["write", "write-sync", "read"]);
        for &(name, ns) in durations_ns {
            ledger.record(0, ledger.row(name), &Span::start(Stamp(0)), runtime::Subject::default(), Stamp(ns));
        }
        Rows::of(&ledger)
    }

    #[test]
    fn both_sides_of_an_operation_are_joined() {
        const WRITE: u32 = 16;
        let before = rows(&[("write", 1000), ("read", 7)]);
        let after = rows(&[("write", 1000), ("read", 7), ("write", 3000), ("write-sync", 5000)]);
        let told = told_requests(&account(&[(WRITE, 4000), (WRITE, 8000), (999, 50)], 0), &before, &after);
        let figures = |at: usize| {
            let one = &told.operations[at];
            (one.name.as_str(), one.kernel.count, one.kernel.mean_ns, one.ledger, one.transport_ns)
        };
        assert_eq!(figures(0), ("write", 2, 6000, Some(Mean { count: 2, mean_ns: 4000 }), Some(2000)));
        assert_eq!(figures(1), ("opcode 999", 1, 50, None, None));
        assert_eq!((told.operations.len(), told.absent, told.one_in), (2, None, 1), "nothing was read in the window");
        assert_eq!(told.uncounted, Uncounted { begun_before: 1, not_ended: 2, lost: 3 });
    }

    #[test]
    fn a_kernel_that_does_not_number_requests_in_time_is_said_to() {
        let told = told_requests(&account(&[], 5), &rows(&[]), &rows(&[("read", 7)]));
        assert!(told.absent.is_some_and(|why| why.contains("numbered")) && told.operations.is_empty());
    }

    #[test]
    fn windows_are_bounded() {
        let of = |milliseconds| window(milliseconds).map_err(|error| error.kind);
        assert_eq!([of(0), of(5001)], [Err(Kind::Invalid); 2]);
        assert_eq!([of(1), of(5000)], [Ok(Duration::from_millis(1)), Ok(Duration::from_secs(5))]);
    }
}
