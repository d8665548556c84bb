//! Nothing acknowledged as durable is lost: every answer that promised durability, of a change itself, of an inode's
//! changes (fsync) or of everything (sync, a clean stop), is held against the log that the crash left.

use super::prefix::Evidence;
use crate::history::{Call, History, Key};
use base::limits::DURABLE_WITHIN_NS;
use base::{Ino, Op, Outcome};
use std::collections::{BTreeMap, BTreeSet};

/// A moment of the history from which on changes answered before it are durable: of one inode, or all.
struct Promise {
    moment: u64,
    ino: Option<Ino>,
    why: String,
}

/// Checks every promise. `earlier`: requests that had their effect in an earlier life. `crashed_ns`: when the machine
/// crashed, if its devices were healthy: by then unsynced changes of more than a second ago must be durable.
pub fn check(
    history: &History,
    evidence: &Evidence,
    earlier: &BTreeMap<Key, Outcome>,
    crashed_ns: Option<u64>,
) -> Result<(), String> {
    let there: BTreeSet<Key> = evidence.logged.iter().map(|logged| logged.key).chain(earlier.keys().copied()).collect();
    let promises: Vec<Promise> = history.calls().iter().filter_map(promise).collect();
    for call in history.calls() {
        let Some((ack, told)) = call.done() else { continue };
        if there.contains(&call.key) {
            continue;
        }
        if call.asks_durable() {
            return Err(format!("lost, though its own answer said durable: {call:?}"));
        }
        if told.position.is_none() {
            continue;
        }
        let touched: Vec<Ino> = call.touched().collect();
        let covers =
            |promise: &&Promise| ack.moment < promise.moment && promise.ino.is_none_or(|ino| touched.contains(&ino));
        if let Some(promise) = promises.iter().find(covers) {
            return Err(format!("lost, though {} said durable: {call:?}", promise.why));
        }
        if crashed_ns.is_some_and(|crashed_ns| ack.at_ns + DURABLE_WITHIN_NS < crashed_ns) {
            return Err(format!("lost more than a second after its answer (rule U3): {call:?}"));
        }
    }
    Ok(())
}

/// The promise of an answered call about changes that were answered before it was made.
fn promise(call: &Call) -> Option<Promise> {
    call.done()?;
    let ino = match &call.op {
        Op::Fsync { ino, .. } => Some(*ino),
        Op::SyncAll => None,
        _ => return None,
    };
    Some(Promise { moment: call.moment, ino, why: format!("{:?} at moment {}", call.op, call.moment) })
}
