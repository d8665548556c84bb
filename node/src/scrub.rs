//! The scrub as the admin socket tells it.

use crate::admin::protocol::{Rotten, Scrub};
use base::limits::BLOCK_BYTES;
use base::{Result, Volume};
use store::Store;
use store::scrub::{Bad, State, Status, Why, status};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// How it is, and how much it found.
pub fn brief(store: &Store) -> Scrub {
    let status = status(store);
    let unlisted = status.position.unlisted + status.position.bad.len() as u64;
    Scrub { unlisted, ..told(&status) }
}

/// How it is, and all that it found. Reads the index: blocks, so not on a core.
pub fn full(store: &Store) -> Result<Scrub> {
    let status = status(store);
    let each = |bad: &Bad| -> Result<Rotten> {
        let volume = store::paths::volume(&*store.index, bad.volume)?;
        Ok(rotten(bad, volume.as_ref(), path(store, bad, volume.as_ref())?))
    };
    let findings = status.position.bad.iter().map(each).collect::<Result<_>>()?;
    Ok(Scrub { findings, ..told(&status) })
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
