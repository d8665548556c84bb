//! After a crash, each group's state is a prefix of what it ordered. The brick's groups share one log, so more holds:
//! what is there is a prefix of the log itself. Reads the log as it lies on the device, and joins its records with
//! the clients' calls.

use crate::history::{Call, History, Key};
use crate::index::CrashIndex;
use base::{GroupId, Index, Outcome, Result};
use runtime::Runtime;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::Opening;
use store::format::values::{self, ReplayRow};
use store::format::{keys, segment::SegmentHeader};
use store::index::Index as _;
use store::recovery;

/// One client's change, as the log holds it.
#[derive(Clone, Copy, Debug)]
pub struct Logged {
    /// The deciding group.
    pub group: GroupId,
    /// Its place in the group's order.
    pub index: Index,
    /// Who asked.
    pub key: Key,
    /// What it did.
    pub outcome: Outcome,
    /// Its batch.
    pub batch: u64,
}

/// What an image holds, before anybody starts a daemon on it.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// Clients' changes since the last life began, in log order.
    pub logged: Vec<Logged>,
    /// The last record of each group.
    pub last: BTreeMap<GroupId, Index>,
    /// The last batch that counts.
    pub tail: u64,
    /// Where the index says that replay begins.
    pub replay: ReplayRow,
    /// The log's epoch.
    pub epoch: u64,
}

/// What was known when the life began that this image ended.
#[derive(Clone, Copy, Default, Debug)]
pub struct Before {
    /// Where replay began: everything after it is still in the log.
    pub replay: ReplayRow,
    /// The last batch that counted.
    pub tail: u64,
}

/// Reads an image. Errors: it can't be read, which no crash excuses.
pub async fn read(runtime: &Runtime, index: &Arc<CrashIndex>, before: &Before) -> Result<Evidence> {
    let opening = Opening::read(runtime.clone(), index.clone(), false).await?;
    let replay = match index.get(&keys::replay())? {
        Some(row) => values::decode_replay(&row)?,
        None => ReplayRow::default(),
    };
    let mut last = BTreeMap::new();
    for group in (0..opening.superblock().groups).map(GroupId) {
        if let Some(row) = index.get(&keys::group(group))? {
            last.insert(group, values::decode_group(&row)?.applied);
        }
    }
    let mut logged = Vec::new();
    let mut seen: BTreeMap<GroupId, Index> = BTreeMap::new();
    let segments: Vec<SegmentHeader> = opening.headers().copied().collect();
    let sink = async |records: Vec<store::Replayed>| {
        for store::Replayed { record, batch, .. } in records {
            seen.insert(record.group, record.index);
            if record.session.0 != 0 && batch > before.tail {
                let (group, index, outcome) = (record.group, record.index, record.outcome);
                logged.push(Logged { group, index, key: (record.session, record.request), outcome, batch });
            }
        }
        Ok(())
    };
    let (geometry, superblock) = (opening.geometry(), opening.superblock());
    let tail = recovery::walk(runtime, geometry, superblock, &before.replay, segments, sink).await?.number;
    for (group, index) in seen {
        let last = last.entry(group).or_default();
        *last = index.max(*last);
    }
    Ok(Evidence { logged, last, tail, replay, epoch: superblock.epoch })
}

/// Checks that what is there is a prefix of what was told. `requests`: everything that was ever asked and may show up.
pub fn check(
    history: &History,
    evidence: &Evidence,
    earlier: &BTreeMap<Key, Outcome>,
    requests: &BTreeMap<Key, &Call>,
) -> std::result::Result<(), String> {
    let mut effects: BTreeMap<Key, Logged> = BTreeMap::new();
    for logged in &evidence.logged {
        if !requests.contains_key(&logged.key) {
            return Err(format!("the log holds a change that nobody asked for: {logged:?}"));
        }
        if effects.insert(logged.key, *logged).is_some() || earlier.contains_key(&logged.key) {
            return Err(format!("a request had two effects (rule R1): {logged:?}"));
        }
    }
    for call in history.calls() {
        placed(call, evidence, &effects)?;
    }
    Ok(())
}

/// A change that was answered is in its place, or lies behind the end of its group.
fn placed(call: &Call, evidence: &Evidence, effects: &BTreeMap<Key, Logged>) -> std::result::Result<(), String> {
    let Some((_, told)) = call.done() else { return Ok(()) };
    // The index told is that of the change's last record in the group; the first one decides.
    let Some((group, told)) = told.position else { return Ok(()) };
    let last = evidence.last.get(&group).copied().unwrap_or_default();
    match effects.get(&call.key) {
        Some(logged) if logged.group == group && logged.index <= told => Ok(()),
        Some(logged) => Err(format!("{call:?} was told another place than it has: {logged:?}")),
        None if told > last => Ok(()),
        None => Err(format!("group {group} is at {last} but lacks a change before: {call:?}")),
    }
}
