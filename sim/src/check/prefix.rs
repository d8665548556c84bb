//! Prefixes: after a crash, each group's state is a prefix of what it ordered. The brick's groups share one log, so
//! more holds: the state is a prefix of the log itself. The disk's writes tell what the log was given (segments that
//! are freed take their records along); how far it reaches in an image is read as it lies there, and joined with the
//! clients' calls.

use crate::history::{Call, History, Key};
use crate::index::CrashIndex;
use base::{GroupId, Index, Outcome, Result};
use runtime::Runtime;
use runtime::sim::SimDisk;
use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex};
use store::Opening;
use store::format::batch::BatchHeader;
use store::format::bytes::Reader;
use store::format::keys;
use store::format::record::{self, take_framed};
use store::format::values::{self, ReplayRow};
use store::index::Index as _;

/// One client's change, as the log holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Logged {
    /// The deciding group.
    pub group: GroupId,
    /// Its place in the group's order.
    pub index: Index,
    /// The request.
    pub key: Key,
    /// Its outcome.
    pub outcome: Outcome,
    /// Its batch.
    pub batch: u64,
}

/// The content of an image before anybody starts a daemon on it.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// Clients' changes since the last life began, in log order.
    pub logged: Vec<Logged>,
    /// The last record of each group.
    pub last: BTreeMap<GroupId, Index>,
    /// The last batch that counts.
    pub tail: u64,
    /// The place where replay begins, by the index.
    pub replay: ReplayRow,
    /// The log's epoch.
    pub epoch: u64,
}

/// Clients' changes by batch, as they were written in one life.
#[derive(Clone, Default, Debug)]
pub struct Witness(Arc<Mutex<BTreeMap<u64, Vec<Logged>>>>);

impl Witness {
    /// Hears from now on what is written to a disk.
    pub fn listen_to(&self, disk: &SimDisk) {
        let hears = self.clone();
        disk.set_tap(Box::new(move |bytes| hears.hear(bytes)));
    }
    /// Hears of a write's first slice: a batch begins with its header.
    fn hear(&self, bytes: &[u8]) {
        let Ok((header, _)) = BatchHeader::check(bytes) else { return };
        let mut reader = Reader::new(header.records(bytes));
        let mut records = Vec::new();
        for _ in 0..header.records {
            let taken = take_framed(&mut reader, header.uuid, header.life, header.sequence);
            let (logged, _) = taken.expect("the log writes what can be read");
            records.extend(of_client(logged, header.number));
        }
        self.0.lock().expect("no panic while held").insert(header.number, records);
    }
    /// The same, for a life that may find late batches of this one: its own replace them.
    pub fn inherited(&self) -> Witness {
        Witness(Arc::new(Mutex::new(self.0.lock().expect("no panic while held").clone())))
    }
    fn batches(&self, range: impl RangeBounds<u64>) -> Vec<Logged> {
        self.0.lock().expect("no panic while held").range(range).flat_map(|(_, logged)| logged).copied().collect()
    }
}

fn of_client(logged: record::Logged, batch: u64) -> Option<Logged> {
    let record::Logged::Record(record) = logged else { return None };
    let (group, index, outcome) = (record.group, record.index, record.outcome);
    let key = (record.session, record.request);
    (record.session.0 != 0).then_some(Logged { group, index, key, outcome, batch })
}

/// Reads an image that a life has left. `before`: the last batch that counted when it began. Errors: it can't be read,
/// which no crash excuses.
pub async fn read(runtime: &Runtime, index: &Arc<CrashIndex>, before: u64, witness: &Witness) -> Result<Evidence> {
    let opening = Opening::read_wholly(runtime.clone(), index.clone(), false).await?;
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
    let mut walked = Vec::new();
    let sink = async |records: Vec<store::Replayed>| {
        for store::Replayed { logged, batch, .. } in records {
            if let record::Logged::Record(record) = &logged {
                let last = last.entry(record.group).or_default();
                *last = record.index.max(*last);
            }
            walked.extend(of_client(logged, batch).filter(|_| batch > before));
        }
        Ok(())
    };
    let tail = opening.walk(sink).await?.number;
    let logged = witness.batches(before + 1..tail.max(before) + 1);
    let from = replay.number.max(before + 1);
    let told: Vec<_> = logged.iter().filter(|logged| logged.batch >= from).collect();
    if !told.iter().copied().eq(&walked) {
        let what = "the log on the device differs from what was written";
        return Err(base::Error::new(base::Kind::Corrupt, what).with(format!("{walked:?} {told:?}")));
    }
    Ok(Evidence { logged, last, tail, replay, epoch: opening.superblock().epoch })
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
