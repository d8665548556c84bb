//! Blocks that a client could not read: each is looked at once more, named as the scrub names what it finds, and so is
//! the rest of its segment, for what failed in one place often fails beside it.
//!
//! Promises: each failed read is counted; what is bad is a finding until no file has it any more, also after a restart;
//! each new finding is told once. *Absent:* waiting: the client has had its EIO by then.

use super::drive::{look, read, slices};
use super::{Bad, Why};
use crate::{Store, verify};
use base::{Ino, Life, Place, SegmentId, VolumeId};
use runtime::Lock;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Blocks that wait to be looked at; of more, the rest of their segments tells.
const WAITING_MAX: usize = 1024;
/// Pause between slices of a segment: clients come first.
const PAUSE_NS: u64 = 1_000_000;

/// A block of a read that failed, as its file's map had it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Suspect {
    /// The owner's volume.
    pub volume: VolumeId,
    /// The inode.
    pub ino: Ino,
    /// The block's number within it.
    pub offset: u64,
    /// Its place.
    pub place: Place,
    /// Its right checksum.
    pub crc: u32,
}

/// The store's part of it.
pub(super) struct Suspects {
    failed_reads: AtomicU64,
    waiting: Lock<VecDeque<Suspect>>,
    working: AtomicBool,
    /// Segments that were looked at since start.
    seen: Lock<BTreeSet<(SegmentId, Life)>>,
}

impl Default for Suspects {
    fn default() -> Suspects {
        Suspects {
            failed_reads: AtomicU64::new(0),
            waiting: Lock::new("suspects", VecDeque::new()),
            working: AtomicBool::new(false),
            seen: Lock::new("suspect segments", BTreeSet::new()),
        }
    }
}

/// Reads of clients that failed since start because of what the device gave.
pub fn failed_reads(store: &Store) -> u64 {
    store.scrub.suspects.failed_reads.load(Ordering::Relaxed)
}

/// A client's read has failed: these blocks are among what it asked for.
pub fn suspect(store: &Arc<Store>, blocks: impl IntoIterator<Item = Suspect>) {
    let suspects = &store.scrub.suspects;
    suspects.failed_reads.fetch_add(1, Ordering::Relaxed);
    {
        let mut waiting = suspects.waiting.lock();
        assert!(waiting.len() <= WAITING_MAX, "{} blocks wait to be looked at", waiting.len());
        let room = WAITING_MAX - waiting.len();
        waiting.extend(blocks.into_iter().take(room));
    }
    if store.log.stopping() || suspects.working.swap(true, Ordering::AcqRel) {
        return;
    }
    let there = store.clone();
    let core = store.runtime.tasks.cores() - 1;
    store.runtime.tasks.spawn(core, Box::new(move || Box::pin(run(there))));
}

async fn run(store: Arc<Store>) {
    let suspects = &store.scrub.suspects;
    loop {
        let mut segments = BTreeSet::new();
        loop {
            let next = suspects.waiting.lock().pop_front();
            let Some(suspect) = next.filter(|_| !store.log.stopping()) else { break };
            if let Some(of) = is_bad(&store, suspect).await {
                segments.insert(of);
            }
        }
        for of in segments {
            let fresh = suspects.seen.lock().insert(of);
            if fresh {
                segment(&store, of).await;
            }
        }
        suspects.working.store(false, Ordering::Release);
        let more = !suspects.waiting.lock().is_empty() && !store.log.stopping();
        if !more || suspects.working.swap(true, Ordering::AcqRel) {
            return;
        }
    }
}

/// Looks at one block again; the segment that it lies in, if it is bad.
async fn is_bad(store: &Store, suspect: Suspect) -> Option<(SegmentId, Life)> {
    let Suspect { volume, ino, offset, place, crc } = suspect;
    // Nobody can tell, and the disk itself is what an operator is told of; or the brick heals.
    if store.is_missing(place.segment) || place == Place::MISSING {
        return None;
    }
    let _pin = store.pin();
    let life = store.life(place.segment);
    let why = match read(store, place, 1).await {
        None => Why::Unreadable,
        Some(bytes) if verify(&bytes, std::iter::once(crc)).is_err() => Why::Differs,
        Some(_) => return None,
    };
    // A segment that was freed and taken again since is another one.
    if store.life(place.segment) != life {
        return None;
    }
    super::drive::note(store, Some(Bad { place, life, blocks: 1, volume, ino, offset, why }));
    // What no checkpoint has counted yet is no finding before.
    store.scrub.note(true);
    Some((place.segment, life))
}

/// Compares the live blocks of a sealed segment with their checksums; what is still open is not told by a summary.
async fn segment(store: &Store, (segment, life): (SegmentId, Life)) {
    let entries = {
        let _pin = store.pin();
        store.live_of((segment, life)).await
    };
    let Ok(entries) = entries else { return };
    for slice in slices(&entries) {
        let there = {
            let _pin = store.pin();
            store.life(segment) == life && look(store, (segment, life), slice).await
        };
        if !there || store.log.stopping() {
            return;
        }
        store.runtime.clock.sleep(PAUSE_NS).await;
    }
}
