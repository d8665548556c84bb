//! Snapshots of a daemon, from its admin socket and from files.

use crate::admin::client::{Client, unexpected};
use crate::admin::protocol::{Answer, Request};
use crate::failure::{Exit, Failure};
use crate::observe::LOOKING_MS_MAX;
use explain::snapshot::InKernel;
use explain::{Snapshot, Window};
use runtime::real::Ways;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::Path;

/// Largest file of snapshots that is read: two take well below a MiB.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// A snapshot, after the daemon has looked at requests in flight for so many milliseconds.
pub fn look(client: &mut Client, milliseconds: u64) -> Result<Snapshot, Failure> {
    match client.ask(&Request::Signals { milliseconds })? {
        Answer::Signals(snapshot) => Ok(*snapshot),
        _ => Err(unexpected()),
    }
}

/// A snapshot after so many seconds of looking, at least one; `tell` is told how many have passed.
pub fn look_for(client: &mut Client, seconds: u64, tell: impl Fn(u64)) -> Result<Snapshot, Failure> {
    look_with(client, seconds, tell, &mut |_| {})
}

/// The same, with the ways of requests through the kernel as far as it tells. That costs each request some 0.3 us.
pub fn look_through_kernel(client: &mut Client, seconds: u64, tell: impl Fn(u64)) -> Result<Snapshot, Failure> {
    // Who may not ask the kernel gets its estimate.
    let Ok(ways) = Ways::open() else { return look_for(client, seconds, tell) };
    let mut after = look_with(client, seconds, tell, &mut |snapshot| {
        let Snapshot { sample, connections, .. } = snapshot;
        for whole in sample.iter_mut().filter(|whole| whole.request != 0) {
            let began_ns = whole.end_ns.saturating_sub(whole.duration_ns);
            let known = connections.iter().filter_map(|connection| ways.way(*connection, whole.request));
            // Another mount's may have the same number.
            if let Some(way) = { known }.find(|way| way.sent_ns <= began_ns && way.ended_ns >= began_ns) {
                whole.note_way(way.sent_ns, way.ended_ns);
            }
        }
    })?;
    let mut by_kind: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for way in ways.all(&after.connections) {
        by_kind.entry(way.opcode).or_default().push(way.ended_ns - way.sent_ns);
    }
    let mut kernel: Vec<_> = by_kind.into_iter().map(|(kind, times)| InKernel::of(&ways.kind(kind), times)).collect();
    kernel.sort_by_key(|kind| std::cmp::Reverse(kind.mean_ns * kind.requests));
    after.kernel = kernel;
    Ok(after)
}

fn look_with(
    client: &mut Client,
    seconds: u64,
    tell: impl Fn(u64),
    see: &mut dyn FnMut(&mut Snapshot),
) -> Result<Snapshot, Failure> {
    let mut next = || {
        let mut snapshot = look(client, LOOKING_MS_MAX)?;
        see(&mut snapshot);
        Ok::<_, Failure>(snapshot)
    };
    let mut after = next()?;
    for done in 1..seconds {
        tell(done);
        let earlier = std::mem::replace(&mut after, next()?);
        after.take_over(earlier);
    }
    Ok(after)
}

/// Keeps one snapshot or several in a file.
pub fn save(file: &Path, snapshots: &impl Serialize) -> Result<(), Failure> {
    let json = serde_json::to_vec(snapshots).expect("snapshots are plain data, which is JSON");
    std::fs::write(file, json).map_err(|error| Failure::io(format!("can't write {}", file.display()), &error))
}

/// Reads what `save` has kept. `holds`: what is expected, and the command that makes it, for the error.
pub fn read<T: DeserializeOwned>(file: &Path, holds: (&str, &str)) -> Result<T, Failure> {
    let text = super::read_at_most(file, FILE_BYTES_MAX, || {
        Failure::new(Exit::Usage, format!("{} is too large for {}", file.display(), holds.0))
    })?;
    serde_json::from_slice(&text).map_err(|error| {
        let failure = Failure::new(Exit::Usage, format!("{} does not hold {}: {error}", file.display(), holds.0));
        failure.next(format!("make one with `{}`", holds.1))
    })
}

/// The window between two snapshots.
pub fn window(before: &Snapshot, after: &Snapshot) -> Result<Window, Failure> {
    Window::between(before, after).ok_or_else(not_in_order)
}

/// The refusal of two snapshots that don't subtract.
pub fn not_in_order() -> Failure {
    let failure = Failure::new(Exit::Failed, "the two snapshots are not of one daemon, one after the other");
    failure.next("take them again: a daemon that was started anew counts anew")
}
