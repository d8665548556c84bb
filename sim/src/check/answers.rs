//! The answers to clients, compared with each other: a request delivered twice gets the same answer (rule R1), and a
//! healthy brick gives no answer that blames the machine.

use crate::history::{Call, History, Key, Told};
use base::{Kind, Outcome};
use std::collections::BTreeMap;

/// The errors that a life may have without being a failure of the brick.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Excuse {
    /// The brick or its host may be full.
    pub full: bool,
    /// The device fails.
    pub faulty: bool,
}

impl Excuse {
    /// True if an answer of this kind needs no explanation.
    pub fn covers(self, kind: Kind) -> bool {
        match kind {
            Kind::NoSpace => self.full,
            Kind::Io | Kind::ReadOnly => self.faulty,
            Kind::Busy | Kind::Corrupt | Kind::Newer | Kind::Interrupted | Kind::Host => false,
            _ => true,
        }
    }
}

/// Answers that blame the device.
pub fn blaming(history: &History) -> u64 {
    let blames = |call: &&Call| call.ack.as_ref().is_some_and(|ack| matches!(ack.told, Err(Kind::Io | Kind::ReadOnly)));
    history.calls().iter().filter(blames).count() as u64
}

/// Checks all answers. `earlier`: outcomes of requests that took effect in an earlier life.
pub fn check(history: &History, earlier: &BTreeMap<Key, Outcome>, excuse: Excuse) -> Result<(), String> {
    let mut first: BTreeMap<Key, (&Call, Told)> = BTreeMap::new();
    // The delivery that was ordered tells; it need not be the first to be answered.
    for call in history.calls() {
        if let Some((_, told)) = call.done()
            && told.position.is_some()
            && first.insert(call.key, (call, told)).is_some()
        {
            return Err(format!("both deliveries of a request were ordered (rule R1): {call:?}"));
        }
    }
    for call in history.calls() {
        match call.ack.as_ref().map(|ack| &ack.told) {
            None => {}
            Some(Err(kind)) if !excuse.covers(*kind) => {
                return Err(format!("a healthy brick answered {kind:?}: {call:?}"));
            }
            Some(told) => match (first.get(&call.key), earlier.get(&call.key)) {
                (Some((other, expected)), _) => same(call, told, *expected, other, excuse)?,
                (None, Some(outcome)) => repeated(call, told, *outcome, excuse)?,
                _ => {}
            },
        }
    }
    Ok(())
}

/// The same answer as the delivery that took effect; only what has gone since may be missed.
fn same(call: &Call, told: &Result<Told, Kind>, expected: Told, other: &Call, excuse: Excuse) -> Result<(), String> {
    match told {
        Ok(told) if (told.ino, told.wrote) == (expected.ino, expected.wrote) => Ok(()),
        Err(Kind::Stale) if expected.ino.is_some() => Ok(()),
        // What changed nothing is not kept: this one came before the other delivery found things different.
        _ if answered(call) < answered(other) => Ok(()),
        Err(Kind::Io | Kind::ReadOnly) if excuse.faulty => Ok(()),
        _ => Err(format!("two deliveries, two answers (rule R1): {call:?}, {other:?}")),
    }
}

fn answered(call: &Call) -> u64 {
    call.ack.as_ref().map_or(u64::MAX, |ack| ack.moment)
}

/// Delivered again in a later life: the outcome tells what to expect.
fn repeated(call: &Call, told: &Result<Told, Kind>, outcome: Outcome, excuse: Excuse) -> Result<(), String> {
    let fits = match (told, outcome) {
        (Ok(Told { position: Some(_), .. }), _) => false,
        (Ok(told), Outcome::Inode(ino)) => told.ino == Some(ino),
        (Ok(told), Outcome::Wrote { offset, length }) => told.wrote == Some((offset, length)),
        (Ok(_), Outcome::Done) => true,
        (Err(Kind::Stale), Outcome::Inode(_)) => true,
        (Err(Kind::Io | Kind::ReadOnly), _) => excuse.faulty,
        _ => false,
    };
    if fits {
        return Ok(());
    }
    Err(format!("delivered again in a later life, answered anew (rule R1): {call:?}, it was {outcome:?}"))
}
