//! `sinter trace`: the kernel's account of a daemon's requests and of its disks.

use super::{print, print_json};
use crate::admin::client::{Client, unexpected};
use crate::admin::protocol::{
    self, Answer, Request, TracedIssuer, TracedOperation, TracedRequests, TracedService, Uncounted,
};
use crate::cli::Trace;
use crate::failure::{Exit, Failure};
use crate::table::{Align, Table, bytes, count, duration};
use std::fmt::Write;

/// Asks the daemon, waits for the window's end, and shows its answer.
pub fn run(options: &Trace) -> Result<Exit, Failure> {
    let milliseconds = options.time.as_millis() as u64;
    match Client::need(&options.data)?.ask(&Request::Trace { milliseconds })? {
        Answer::Trace(trace) if options.json => print_json(&trace)?,
        Answer::Trace(trace) => print(&told(&trace))?,
        _ => return Err(unexpected()),
    }
    Ok(Exit::Done)
}

fn told(trace: &protocol::Trace) -> String {
    let (requests, devices) = (&trace.requests, &trace.devices);
    let mut text = format!("Requests, {}, as kernel and ledger tell them", duration(trace.lasted_ns));
    match &requests.absent {
        Some(why) => writeln!(text, ": {why}"),
        None => write!(text, "{}\n{}", chosen("", requests.one_in), requests_table(requests)),
    }
    .expect("writing to a string works");
    text += &rest("requests", &requests.uncounted);
    text += "\nDevices below the brick";
    match &devices.absent {
        Some(why) => writeln!(text, ": {why}"),
        None => {
            let (services, issuers) = (services_table(&devices.services), issuers_table(&devices.issuers));
            let names = devices.names.join(", ");
            write!(text, ", {names}{}\n{services}\n{issuers}", chosen(" of those up to 64 KiB", devices.one_in))
        }
    }
    .expect("writing to a string works");
    text + &rest("I/Os", &devices.uncounted)
}

fn chosen(of: &str, one_in: u64) -> String {
    if one_in > 1 { format!(" (one in {one_in}{of} was looked at)") } else { String::new() }
}

/// One line on what is in no count, if there is anything.
fn rest(what: &str, uncounted: &Uncounted) -> String {
    let Uncounted { begun_before, not_ended, lost } = *uncounted;
    if begun_before + not_ended + lost == 0 {
        return String::new();
    }
    let [begun_before, not_ended, lost] = [begun_before, not_ended, lost].map(count);
    format!("not counted of {what}: {begun_before} begun before, {not_ended} not ended, {lost} facts lost\n")
}

fn requests_table(requests: &TracedRequests) -> String {
    let right = Align::Right;
    let mut table = Table::new(&[
        ("operation", Align::Left),
        ("count", right),
        ("mean", right),
        ("p50", right),
        ("p99", right),
        ("ledger count", right),
        ("ledger mean", right),
        ("transport", right),
    ]);
    for TracedOperation { name, kernel, ledger, transport_ns } in &requests.operations {
        let mut row = vec![name.clone(), count(kernel.count)];
        row.extend([kernel.mean_ns, kernel.p50_ns, kernel.p99_ns].map(duration));
        row.extend([ledger.map_or(String::new(), |own| count(own.count))]);
        row.extend([ledger.map_or(String::new(), |own| duration(own.mean_ns))]);
        row.push(transport_ns.map_or(String::new(), signed));
        table.row(row);
    }
    table.render()
}

fn signed(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    format!("{sign}{}", duration(ns.unsigned_abs()))
}

fn services_table(services: &[TracedService]) -> String {
    let right = Align::Right;
    let mut table = Table::new(&[
        ("device", Align::Left),
        ("verb", Align::Left),
        ("up to", right),
        ("count", right),
        ("mean", right),
        ("p50", right),
        ("p99", right),
        ("max", right),
    ]);
    for TracedService { device, verb, bytes_max, times, .. } in services {
        let longest = match bytes_max {
            Some(0) => String::new(),
            Some(longest) => bytes(*longest),
            None => "more".to_string(),
        };
        let mut row = vec![device.clone(), verb.clone(), longest, count(times.count)];
        row.extend([times.mean_ns, times.p50_ns, times.p99_ns, times.max_ns].map(duration));
        table.row(row);
    }
    table.render()
}

/// The table of issuers; who moved most comes first.
fn issuers_table(issuers: &[TracedIssuer]) -> String {
    let right = Align::Right;
    let mut table = Table::new(&[
        ("issued by", Align::Left),
        ("of", Align::Left),
        ("I/Os", right),
        ("read", right),
        ("written", right),
        ("discarded", right),
    ]);
    let mut sorted: Vec<_> = issuers.iter().collect();
    sorted.sort_by_key(|issuer| (std::cmp::Reverse(issuer.read_bytes + issuer.written_bytes), &issuer.name));
    for issuer in sorted {
        let whose = if issuer.own { "the daemon" } else { "others" };
        let mut row = vec![issuer.name.clone(), whose.to_string(), count(issuer.count)];
        row.extend([issuer.read_bytes, issuer.written_bytes, issuer.discarded_bytes].map(bytes));
        table.row(row);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::protocol::{Mean, Times, TracedDevices};

    fn trace() -> protocol::Trace {
        let times = |mean_ns| Times { count: 1200, min_ns: 1000, mean_ns, p50_ns: 1500, p99_ns: 9000, max_ns: 10_000 };
        let operation = |name: &str, ledger: Option<Mean>, transport_ns| TracedOperation {
            name: name.into(),
            kernel: times(5000),
            ledger,
            transport_ns,
        };
        let service = |verb: &str, bytes_max| TracedService {
            device: "vda".into(),
            verb: verb.into(),
            bytes_max,
            one_in: 1,
            times: times(83_000),
        };
        let issuer = |name: &str, own, written_bytes| TracedIssuer {
            name: name.into(),
            own,
            count: 3,
            read_bytes: 4096,
            written_bytes,
            discarded_bytes: 0,
        };
        protocol::Trace {
            began_ns: 1,
            lasted_ns: 1_000_000_000,
            requests: TracedRequests {
                absent: None,
                one_in: 64,
                operations: vec![
                    operation("read", Some(Mean { count: 76_800, mean_ns: 3800 }), Some(1200)),
                    operation("write", Some(Mean { count: 1200, mean_ns: 5300 }), Some(-300)),
                    operation("opendir", None, None),
                ],
                uncounted: Uncounted { begun_before: 1, not_ended: 2, lost: 3000 },
            },
            devices: TracedDevices {
                absent: None,
                one_in: 1,
                names: vec!["loop0".into(), "vda".into()],
                services: vec![service("read", Some(4096)), service("write", None), service("flush", Some(0))],
                issuers: vec![issuer("fio", false, 0), issuer("sinter-core-0", true, 1 << 20)],
                uncounted: Uncounted::default(),
            },
        }
    }

    #[test]
    fn a_trace_reads_well() {
        let expected = "\
Requests, 1.00 s, as kernel and ledger tell them (one in 64 was looked at)
operation  count     mean      p50      p99  ledger count  ledger mean  transport
read       1,200  5.00 us  1.50 us  9.00 us        76,800      3.80 us    1.20 us
write      1,200  5.00 us  1.50 us  9.00 us         1,200      5.30 us    -300 ns
opendir    1,200  5.00 us  1.50 us  9.00 us
not counted of requests: 1 begun before, 2 not ended, 3,000 facts lost

Devices below the brick, loop0, vda
device  verb   up to  count     mean      p50      p99      max
vda     read   4 KiB  1,200  83.0 us  1.50 us  9.00 us  10.0 us
vda     write   more  1,200  83.0 us  1.50 us  9.00 us  10.0 us
vda     flush         1,200  83.0 us  1.50 us  9.00 us  10.0 us

issued by      of          I/Os   read  written  discarded
sinter-core-0  the daemon     3  4 KiB    1 MiB    0 bytes
fio            others         3  4 KiB  0 bytes    0 bytes
";
        assert_eq!(told(&trace()), expected);
    }

    #[test]
    fn what_the_kernel_does_not_tell_is_said_with_the_reason() {
        let absent = |why: &str| Some(why.to_string());
        let trace = protocol::Trace {
            lasted_ns: 500_000_000,
            requests: TracedRequests { absent: absent("no volume is mounted"), ..TracedRequests::default() },
            devices: TracedDevices { absent: absent("no disk"), ..TracedDevices::default() },
            ..protocol::Trace::default()
        };
        let expected = "\
Requests, 500 ms, as kernel and ledger tell them: no volume is mounted

Devices below the brick: no disk
";
        assert_eq!(told(&trace), expected);
    }
}
