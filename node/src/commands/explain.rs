//! `sinter explain`: why requests take as long as they do.

use super::snapshots::{self, look, look_through_kernel};
use super::{print, print_json, sweep};
use crate::admin::client::Client;
use crate::cli::Explain;
use crate::failure::{Exit, Failure};
use crate::progress::Progress;
use crate::table::{Align, Table, count, duration};
use explain::verdict::Operation;
use explain::waterfall::{RETURNED, SENT};
use explain::{Explanation, Finding, Snapshot, explain};
use std::collections::BTreeSet;
use std::path::Path;
use store::progress::Step;

/// Takes two snapshots, or reads them, and explains what happened between them.
pub fn run(options: &Explain) -> Result<Exit, Failure> {
    if let (Some(file), Some(data)) = (&options.sweep, &options.data) {
        return sweep::run(options, data, file);
    }
    let pair = match (&options.from, &options.data) {
        (Some(file), _) => snapshots::read(file, ("two snapshots", "sinter explain DATA --save FILE"))?,
        (None, Some(data)) => take(data, options.seconds)?,
        (None, None) => unreachable!("the command line asks for one of them"),
    };
    if let Some(file) = &options.save {
        snapshots::save(file, &pair)?;
    }
    let explanation = explain(&pair[0], &pair[1]).ok_or_else(snapshots::not_in_order)?;
    if options.json {
        print_json(&explanation)?
    } else {
        print(&told(&explanation))?
    }
    Ok(Exit::Done)
}

fn take(data: &Path, seconds: u64) -> Result<[Snapshot; 2], Failure> {
    let mut client = Client::need(data)?;
    let progress = Progress::new("looking", None);
    let before = look(&mut client, 0)?;
    let tell = |done| progress.step(Step { what: "seconds", done, of: seconds });
    let after = look_through_kernel(&mut client, seconds, tell)?;
    Ok([before, after])
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
    if let Some(transport_ns) = explanation.transport_ns {
        let how = if explanation.transport_is_measured { "measured" } else { "an estimate" };
        text.push_str(&format!(
            "In the kernel, on the way to the daemon and back: {} per request ({how})\n",
            duration(transport_ns)
        ));
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
    let known = [SENT].into_iter().chain(runtime::Stage::ALL.map(runtime::Stage::name)).chain([RETURNED]);
    for stage in known.filter(|name| met.contains(name)) {
        let mut row = vec![format!("  {stage}")];
        row.extend(operation.waterfall.iter().map(|band| {
            let found = band.stages.iter().find(|(name, _)| name == stage);
            found.map_or(String::new(), |(_, ns)| duration(*ns))
        }));
        table.row(row);
    }
    format!("{}: {rate}\n{}", operation.name, table.render())
}
