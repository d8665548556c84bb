//! `sinter explain`: why requests take as long as they do.

use super::{print, print_json, sweep};
use crate::admin::client::{Client, unexpected};
use crate::admin::protocol::{Answer, Request};
use crate::cli::Explain;
use crate::failure::{Exit, Failure};
use crate::observe::LOOKING_MS_MAX;
use crate::progress::Progress;
use crate::table::{Align, Table, count, duration};
use explain::verdict::Operation;
use explain::{Explanation, Finding, Snapshot, explain};
use std::collections::BTreeSet;
use std::path::Path;
use store::progress::Step;

/// Largest file of snapshots that is read: two take well below a MiB.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// Takes two snapshots, or reads them, and explains what happened between them.
pub fn run(options: &Explain) -> Result<Exit, Failure> {
    if let (Some(file), Some(data)) = (&options.sweep, &options.data) {
        return sweep::run(options, data, file);
    }
    let pair = match (&options.from, &options.data) {
        (Some(file), _) => read(file)?,
        (None, Some(data)) => take(data, options.seconds)?,
        (None, None) => unreachable!("the command line asks for one of them"),
    };
    if let Some(file) = &options.save {
        let json = serde_json::to_vec(&pair).expect("snapshots are plain data, which is JSON");
        std::fs::write(file, json).map_err(|error| Failure::io(format!("can't write {}", file.display()), &error))?;
    }
    let Some(explanation) = explain(&pair[0], &pair[1]) else {
        let failure = Failure::new(Exit::Failed, "the two snapshots are not of one daemon, one after the other");
        return Err(failure.next("take them again"));
    };
    if options.json {
        print_json(&explanation)?
    } else {
        print(&told(&explanation))?
    }
    Ok(Exit::Done)
}

fn take(data: &Path, seconds: u64) -> Result<[Snapshot; 2], Failure> {
    let mut client = Client::need(data)?;
    let mut look = |milliseconds| match client.ask(&Request::Signals { milliseconds })? {
        Answer::Signals(snapshot) => Ok(*snapshot),
        _ => Err(unexpected()),
    };
    let progress = Progress::new("looking", None);
    let before = look(0)?;
    let mut after = look(LOOKING_MS_MAX)?;
    for done in 1..seconds {
        progress.step(Step { what: "seconds", done, of: seconds });
        let earlier = std::mem::replace(&mut after, look(LOOKING_MS_MAX)?);
        after.sample.splice(0..0, earlier.sample);
        after.in_flight.looks += earlier.in_flight.looks;
        after.in_flight.in_daemon += earlier.in_flight.in_daemon;
        after.in_flight.kernel_looks += earlier.in_flight.kernel_looks;
        after.in_flight.in_kernel += earlier.in_flight.in_kernel;
    }
    Ok([before, after])
}

fn read(file: &Path) -> Result<[Snapshot; 2], Failure> {
    let failed = |error: &std::io::Error| Failure::io(format!("can't read {}", file.display()), error);
    let bytes = std::fs::metadata(file).map_err(|error| failed(&error))?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(Failure::new(Exit::Usage, format!("{} is too large for two snapshots", file.display())));
    }
    let text = std::fs::read(file).map_err(|error| failed(&error))?;
    serde_json::from_slice(&text).map_err(|error| {
        let failure = Failure::new(Exit::Usage, format!("{} holds no two snapshots: {error}", file.display()));
        failure.next("make one with `sinter explain DATA --save FILE`")
    })
}

fn told(explanation: &Explanation) -> String {
    let mut text = format!("{}\n", explanation.verdict.sentence);
    put_finding(&mut text, &explanation.verdict.finding);
    let others: Vec<_> = explanation.others.iter().take(3).collect();
    if !others.is_empty() {
        text.push_str("\nOther causes:\n");
    }
    for finding in others {
        let title = explain::verdict::title(&finding.cause);
        text.push_str(&format!(
            "{title}: {} (about {:.0}% more requests without it)\n",
            finding.resource,
            finding.gain * 100.0
        ));
        put_finding(&mut text, finding);
    }
    for missing in &explanation.missing {
        text.push_str(&format!("Not known: {missing}.\n"));
    }
    if let Some(accounted) = explanation.accounted {
        text.push_str(&format!(
            "Requests accounted for: {:.0}% (rate times time over those in flight)\n",
            accounted * 100.0
        ));
    }
    // Operations of which no request was in the sample are told by `sinter profile`.
    for operation in explanation.operations.iter().filter(|operation| !operation.waterfall.is_empty()) {
        text.push('\n');
        text.push_str(&waterfall(operation));
    }
    text
}

fn put_finding(text: &mut String, finding: &Finding) {
    for line in &finding.evidence {
        text.push_str(&format!("  {line}\n"));
    }
    if !finding.next.is_empty() {
        text.push_str(&format!("  next: {}\n", finding.next));
    }
}

/// A row per stage, a column per band.
fn waterfall(operation: &Operation) -> String {
    let mut heads = vec![(&*operation.name, Align::Left)];
    heads.extend(operation.waterfall.iter().map(|band| (&*band.name, Align::Right)));
    let mut table = Table::new(&heads);
    let rate = format!("{} requests, {:.0} a second", count(operation.count), operation.per_second);
    let mut row = vec!["all".to_string()];
    row.extend(operation.waterfall.iter().map(|band| duration(band.duration_ns)));
    table.row(row);
    let met: BTreeSet<&str> =
        operation.waterfall.iter().flat_map(|band| &band.stages).map(|(stage, _)| &**stage).collect();
    for stage in runtime::Stage::ALL.map(runtime::Stage::name).into_iter().filter(|name| met.contains(name)) {
        let mut row = vec![format!("  {stage}")];
        row.extend(operation.waterfall.iter().map(|band| {
            let found = band.stages.iter().find(|(name, _)| name == stage);
            found.map_or(String::new(), |(_, ns)| duration(*ns))
        }));
        table.row(row);
    }
    format!("{}: {rate}\n{}", operation.name, table.render())
}
