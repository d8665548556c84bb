//! The scrub as the admin socket tells it.

use crate::admin::protocol::{Rotten, Scrub};
use base::limits::BLOCK_BYTES;
use base::{Result, Volume};
use store::Store;
use store::scrub::{Bad, State, Status, Why, status};

/// An operator's next step.
const NEXT: &str = "reads of it fail with EIO: restore the file from a backup";

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The scrub's status and the number of its findings.
pub fn brief(store: &Store) -> Scrub {
    let status = status(store);
    let unlisted = status.position.unlisted + status.position.bad.len() as u64;
    Scrub { unlisted, ..told(&status) }
}

/// The scrub's status and all its findings. Reads the index: blocks, so not on a core.
pub fn full(store: &Store) -> Result<Scrub> {
    let status = status(store);
    let each = |bad: &Bad| -> Result<Rotten> {
        let volume = store::paths::volume(&*store.index, bad.volume)?;
        Ok(rotten(bad, volume.as_ref(), path(store, bad, volume.as_ref())?))
    };
    let findings = status.position.bad.iter().map(each).collect::<Result<_>>()?;
    Ok(Scrub { findings, ..told(&status) })
}

/// The warning of `status` about bad data: how much, and where the first of it is. Blocks.
pub fn warning(store: &Store) -> Option<String> {
    let position = status(store).position;
    let first = position.bad.first()?;
    let findings = position.bad.len() as u64 + position.unlisted;
    let first = in_words(store, first);
    Some(format!("bad data (findings: {findings}), the first is {first}; `sinter scrub status` lists them; {NEXT}"))
}

/// The findings since the last call, a line each. Blocks.
pub fn news(store: &Store) -> Vec<String> {
    let line = |bad: &Bad| format!("bad data: {}; {NEXT}", in_words(store, bad));
    store.scrub.take_news().iter().map(line).collect()
}

/// The bytes and files of a finding in words, and the reason. Names that can't be read now are left out.
fn in_words(store: &Store, bad: &Bad) -> String {
    let volume = store::paths::volume(&*store.index, bad.volume).ok().flatten();
    let path = path(store, bad, volume.as_ref()).ok().flatten();
    let Rotten { volume, inode, path, offset, bytes, segment, block, why } = rotten(bad, volume.as_ref(), path);
    let path = path.map_or(String::new(), |path| format!("{path}, "));
    format!(
        "{path}inode {inode} of volume {volume}, {bytes} bytes from {offset} on (segment {segment} block {block}): {why}"
    )
}

fn told(status: &Status) -> Scrub {
    let position = &status.position;
    let state = match position.state {
        State::Never => "never started",
        State::Running => "running",
        State::Stopped => "stopped",
        State::Done => "done",
    };
    Scrub {
        state: state.to_string(),
        began_ns: position.began.0,
        ended_ns: position.ended.0,
        done_bytes: status.done_blocks * BLOCK,
        of_bytes: status.of_blocks * BLOCK,
        left_seconds: status.left_ns.map(|ns| ns / 1_000_000_000),
        findings: Vec::new(),
        unlisted: position.unlisted,
    }
}

fn path(store: &Store, bad: &Bad, volume: Option<&Volume>) -> Result<Option<Vec<u8>>> {
    match volume {
        Some(volume) if bad.why != Why::Untold => store::paths::find(&*store.index, volume, bad.ino),
        _ => Ok(None),
    }
}

fn rotten(bad: &Bad, volume: Option<&Volume>, path: Option<Vec<u8>>) -> Rotten {
    Rotten {
        volume: volume.map_or(String::new(), |volume| String::from_utf8_lossy(volume.name.as_bytes()).into_owned()),
        inode: bad.ino.0,
        path: path.map(|path| String::from_utf8_lossy(&path).into_owned()),
        offset: bad.offset * BLOCK,
        bytes: u64::from(bad.blocks) * BLOCK,
        segment: bad.place.segment.0,
        block: bad.place.block,
        why: bad.why.text().to_string(),
    }
}
