//! The index after a clean stop says everything by itself: names, counts, leaves and live bits must agree, and nothing
//! half-done may be left. Runs the product's own offline check, and a few checks that it leaves to the next start.

use crate::index::CrashIndex;
use runtime::Runtime;
use std::sync::Arc;
use store::Opening;
use store::segments::Row;

/// Checks what a crash left, before anybody starts a daemon on it: the offline check must not raise false alarms.
pub async fn check_crashed(runtime: &Runtime, index: &Arc<CrashIndex>) -> Result<(), String> {
    let failed = |error: base::Error| format!("the offline check of the crashed brick failed: {error}");
    let opening = Opening::read_wholly(runtime.clone(), index.clone(), false).await.map_err(failed)?;
    let report = store::check::check(&opening, &mut |_| {}).await.map_err(failed)?;
    // A copy of the superblock that was being written may be torn: that is said, and is no damage.
    match report.findings.iter().find(|finding| !opening.warnings.contains(finding)) {
        None => Ok(()),
        Some(finding) => Err(format!("the offline check of the crashed brick found: {finding}")),
    }
}

/// Checks a brick that was stopped cleanly.
pub async fn check(runtime: &Runtime, index: &Arc<CrashIndex>) -> Result<(), String> {
    let failed = |error: base::Error| format!("the offline check failed: {error}");
    let opening = Opening::read_wholly(runtime.clone(), index.clone(), false).await.map_err(failed)?;
    let report = store::check::check(&opening, &mut |_| {}).await.map_err(failed)?;
    if !report.findings.is_empty() {
        let row = |(segment, row): (base::SegmentId, &Row)| {
            let Row { state, life, stream, sequence, used, .. } = row;
            let header = opening.headers().find(|header| header.segment == segment).map(|header| header.life);
            format!("{segment:?} {state:?} {life:?} {stream:?} {sequence} used {used}, header {header:?}")
        };
        let used = opening.table().iter().filter(|(_, row)| row.life.0 > 0).map(row);
        return Err(format!("the offline check found: {:?}; {:#?}", report.findings, used.collect::<Vec<_>>()));
    }
    if report.intents > 0 || report.orphans > 0 {
        return Err(format!("a clean stop left {} intents and {} orphans", report.intents, report.orphans));
    }
    if report.records > 0 {
        return Err(format!("a clean stop left {} records to replay", report.records));
    }
    Ok(())
}
