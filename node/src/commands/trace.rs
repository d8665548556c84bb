//! `sinter trace`: whole requests with their stages, for a viewer of traces.

use super::callers::Callers;
use super::print_json;
use super::snapshots::look_through_kernel;
use crate::admin::client::Client;
use crate::cli::Trace;
use crate::failure::{Exit, Failure};
use crate::progress::Progress;
use explain::snapshot::Whole;
use explain::waterfall::{RETURNED, SENT};
use serde_json::{Value, json};
use std::io::{BufWriter, Write};
use std::path::Path;
use store::progress::Step;

/// Collects requests, and writes them.
pub fn run(options: &Trace) -> Result<Exit, Failure> {
    let mut client = Client::need(&options.data)?;
    // The file comes first: an operator wants to know of a wrong path before the look, not after it.
    let failed = |error: &std::io::Error| Failure::io(format!("can't write {}", options.perfetto.display()), error);
    let file = std::fs::File::create(&options.perfetto).map_err(|error| failed(&error))?;
    let progress = Progress::new("looking", None);
    let tell = |done| progress.step(Step { what: "seconds", done, of: options.seconds });
    let requests = look_through_kernel(&mut client, options.seconds, tell)?.sample;
    let mut callers = Callers::of(&mut client)?;
    let mut out = BufWriter::new(file);
    let written = write(&mut out, &requests, &mut callers).and_then(|()| out.flush());
    written.map_err(|error| failed(&error))?;
    drop(progress);
    told(options, requests.len(), &options.perfetto)
}

fn told(options: &Trace, requests: usize, file: &Path) -> Result<Exit, Failure> {
    if options.json {
        print_json(&json!({ "requests": requests, "file": file }))?;
    } else {
        super::print(&format!("{requests} requests in {}: open it in Perfetto\n", file.display()))?;
    }
    Ok(Exit::Done)
}

/// Writes the requests in the JSON trace event format that Perfetto reads: a nestable asynchronous slice per request, its stages
/// below it one after the other, in the order in which requests meet them (a stage that was met twice is one slice).
fn write(out: &mut impl Write, requests: &[Whole], callers: &mut Callers) -> std::io::Result<()> {
    out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
    let mut first = true;
    for (number, request) in requests.iter().enumerate() {
        for event in events(number, request, callers) {
            out.write_all(if first { b"" } else { b",\n" })?;
            first = false;
            serde_json::to_writer(&mut *out, &event)?;
        }
    }
    out.write_all(b"\n]}\n")
}

fn events(number: usize, request: &Whole, callers: &mut Callers) -> Vec<Value> {
    let caller = callers.process(request.thread);
    let pid = caller.as_ref().map_or(0, |caller| caller.pid);
    let event = |phase: &str, name: &str, at_ns: u64, arguments: Value| {
        json!({
            "ph": phase, "cat": "request", "id": number, "name": name, "ts": at_ns as f64 / 1000.0,
            "pid": pid, "tid": request.thread, "args": arguments,
        })
    };
    let arguments = json!({
        "inode": request.ino,
        "user": request.uid,
        "command": caller.as_ref().map(|caller| caller.command.clone()),
        "path": callers.path(request.thread, request.ino),
    });
    let way = request.way.unwrap_or_default();
    let mut at_ns = (request.end_ns - request.duration_ns.min(request.end_ns)).saturating_sub(way.there_ns);
    let mut events = vec![event("b", &request.name, at_ns, arguments)];
    let stages = request.stages.iter().map(|(stage, ns)| (&**stage, *ns));
    for (stage, ns) in [(SENT, way.there_ns)].into_iter().chain(stages).chain([(RETURNED, way.back_ns)]) {
        if ns > 0 {
            events.push(event("b", stage, at_ns, json!({})));
            at_ns += ns;
            events.push(event("e", stage, at_ns, json!({})));
        }
    }
    events.push(event("e", &request.name, request.end_ns + way.back_ns, json!({})));
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_nest_and_end() {
        let request = |name: &str, end_ns| Whole {
            name: name.into(),
            end_ns,
            duration_ns: 500,
            stages: vec![("front".into(), 100), ("read".into(), 400)],
            ino: 9,
            ..Whole::default()
        };
        let mut text = Vec::new();
        let requests = [request("read", 1500), request("write", 1700)];
        write(&mut text, &requests, &mut Callers::new(Vec::new())).expect("memory takes all");
        let json: Value = serde_json::from_slice(&text).expect("JSON");
        let events = json["traceEvents"].as_array().expect("a list");
        let of_the_first = events.iter().filter(|event| event["id"] == 0);
        let told: Vec<_> = of_the_first
            .map(|event| (event["ph"].as_str(), event["name"].as_str(), event["ts"].as_f64()))
            .map(|(phase, name, at_us)| (phase.unwrap_or(""), name.unwrap_or(""), at_us.unwrap_or(0.0)))
            .collect();
        let expected = [
            ("b", "read", 1.0),
            ("b", "front", 1.0),
            ("e", "front", 1.1),
            ("b", "read", 1.1),
            ("e", "read", 1.5),
            ("e", "read", 1.5),
        ];
        assert_eq!(told, expected);
        assert_eq!((events.len(), &events[0]["args"]["inode"]), (12, &json!(9)));
        let mut text = Vec::new();
        write(&mut text, &[], &mut Callers::new(Vec::new())).expect("memory takes all");
        assert!(serde_json::from_slice::<Value>(&text).is_ok(), "no requests are a trace too");
    }
}
