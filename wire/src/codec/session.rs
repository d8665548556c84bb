//! The bodies that keep a session: its pulse, what the server asks of it, and how it comes back after a restart of the server.

use super::Body;
use super::bytes::{Put, Take, corrupt};
use super::hello::Caches;
use crate::FrameKind;
use base::{FileLock, GroupId, Index, Ino, Result, SessionId, Term, Time, VolumeId};

/// Most inodes and most locks of one frame; who has more sends several.
pub const RECLAIM_ITEMS_MAX: usize = 1024;

/// A client lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pulse {
    /// The number of this pulse.
    pub sequence: u64,
    /// The number of the last one that the client knows to be answered.
    pub seen: u64,
    /// All requests of the session below this number are answered at the client.
    pub done: u64,
    /// The client's wall clock.
    pub clock: Time,
}

/// The server has heard it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PulseOk {
    /// The number of the pulse.
    pub sequence: u64,
    /// The random number of this start of the server.
    pub boot: u64,
    /// The time for which the session lives from that pulse on, in milliseconds.
    pub lease_ms: u32,
    /// The caches that the client may have.
    pub caches: Caches,
    /// Alarms that the server's cores have set themselves since its start, each as late as a request that comes at that moment.
    pub alarms: u64,
    /// The sum of the nanoseconds by which they were late.
    pub late_ns: u64,
}

/// The server can't take a request now, or not here. It has not been looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Another brick leads the group, or this one does not know which.
    NotLeader {
        /// The brick that led it last, as far as this one knows.
        brick: Option<[u8; 16]>,
        /// The term.
        term: Term,
    },
    /// The client's map is older than this version.
    OldMap {
        /// The version.
        version: u64,
    },
    /// Too much is under way.
    Busy,
    /// The session has ended: nothing of it is done any more.
    Fenced {
        /// The session.
        session: SessionId,
    },
    /// The server does not know what the session has open: it wants a `Reclaim` first.
    Reclaim {
        /// The group.
        group: GroupId,
        /// The term since which it does not.
        term: Term,
    },
}

/// An inode that a session has open, or whose number its kernel has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// The inode.
    pub ino: Ino,
    /// Number of opens.
    pub opens: u64,
    /// Number of answers by which the kernel knows the inode (`Op::Forget`).
    pub known: u64,
}

/// The last change of an inode that a client was told of and that may not be durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Changed {
    /// The inode.
    pub ino: Ino,
    /// The group of the change.
    pub group: GroupId,
    /// Its term.
    pub term: Term,
    /// Its index in the group's order.
    pub index: Index,
    /// The random number of the server's start that told it.
    pub start: u64,
}

/// Opens, knowledge and locks of a session, for a server that does not know of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reclaim {
    /// The volume.
    pub volume: VolumeId,
    /// The inodes.
    pub held: Vec<Held>,
    /// The locks.
    pub locks: Vec<FileLock>,
    /// The changes that may be lost.
    pub changed: Vec<Changed>,
    /// True if more follows: the session has reclaimed all only with the last frame.
    pub more: bool,
}

/// The server has them again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReclaimDone {
    /// Inodes that are gone.
    pub gone: Vec<Ino>,
    /// Locks that somebody else has by now.
    pub lost: Vec<FileLock>,
    /// Inodes whose change is lost.
    pub undone: Vec<Ino>,
}

/// The server changes what a client may cache of a volume. It waits for the answer before others are answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recall {
    /// The caches from now on. `Shared`: what the kernel has of entries, attributes and pages goes.
    pub caches: Caches,
}

/// The client has done so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecallDone {
    /// The number of the caches that the client has from now on.
    pub number: u64,
}

impl Body for Pulse {
    const KIND: FrameKind = FrameKind::Pulse;

    fn encode(&self, out: &mut Vec<u8>) {
        Put(out).u64(self.sequence).u64(self.seen).u64(self.done).time(self.clock);
    }
    fn decode(body: &[u8]) -> Result<Pulse> {
        Take::all(body, |take| {
            Ok(Pulse { sequence: take.u64()?, seen: take.u64()?, done: take.u64()?, clock: take.time()? })
        })
    }
}

impl Body for PulseOk {
    const KIND: FrameKind = FrameKind::PulseOk;

    fn encode(&self, out: &mut Vec<u8>) {
        Put(out)
            .u64(self.sequence)
            .u64(self.boot)
            .u32(self.lease_ms)
            .caches(self.caches)
            .u64(self.alarms)
            .u64(self.late_ns);
    }
    fn decode(body: &[u8]) -> Result<PulseOk> {
        Take::all(body, |take| {
            let (sequence, boot, lease_ms) = (take.u64()?, take.u64()?, take.u32()?);
            let (caches, alarms, late_ns) = (take.caches()?, take.u64()?, take.u64()?);
            Ok(PulseOk { sequence, boot, lease_ms, caches, alarms, late_ns })
        })
    }
}

impl Body for Refusal {
    const KIND: FrameKind = FrameKind::Refusal;

    fn encode(&self, out: &mut Vec<u8>) {
        let mut put = Put(out);
        match self {
            Refusal::NotLeader { brick, term } => {
                put.u8(1).option(brick.as_ref(), |put, brick| put.bytes(brick)).u64(term.0)
            }
            Refusal::OldMap { version } => put.u8(2).u64(*version),
            Refusal::Busy => put.u8(3),
            Refusal::Fenced { session } => put.u8(4).u64(session.0),
            Refusal::Reclaim { group, term } => put.u8(5).u32(group.0).u64(term.0),
        };
    }
    fn decode(body: &[u8]) -> Result<Refusal> {
        Take::all(body, |take| {
            Ok(match take.u8()? {
                1 => Refusal::NotLeader { brick: take.option(Take::array)?, term: Term(take.u64()?) },
                2 => Refusal::OldMap { version: take.u64()? },
                3 => Refusal::Busy,
                4 => Refusal::Fenced { session: SessionId(take.u64()?) },
                5 => Refusal::Reclaim { group: GroupId(take.u32()?), term: Term(take.u64()?) },
                _ => return Err(corrupt("a refusal has a tag that is not known")),
            })
        })
    }
}

/// Items, if they are not more than a frame has.
fn few<T>(items: Vec<T>) -> Result<Vec<T>> {
    let are_few = items.len() <= RECLAIM_ITEMS_MAX;
    if are_few { Ok(items) } else { Err(corrupt("a message has more items than one may have")) }
}

impl Body for Reclaim {
    const KIND: FrameKind = FrameKind::Reclaim;

    fn encode(&self, out: &mut Vec<u8>) {
        let Reclaim { held, locks, changed, .. } = self;
        let are_few = [held.len(), locks.len(), changed.len()].into_iter().all(|items| items <= RECLAIM_ITEMS_MAX);
        assert!(are_few, "a frame has few items");
        let mut put = Put(out);
        put.u32(self.volume.0).items(held, |put, held| put.ino(held.ino).u64(held.opens).u64(held.known));
        put.items(locks, Put::lock);
        put.items(changed, |put, Changed { ino, group, term, index, start }| {
            put.ino(*ino).u32(group.0).u64(term.0).u64(index.0).u64(*start)
        });
        put.bool(self.more);
    }
    fn decode(body: &[u8]) -> Result<Reclaim> {
        Take::all(body, |take| {
            let volume = VolumeId(take.u32()?);
            let held = take.items(|take| Ok(Held { ino: take.ino()?, opens: take.u64()?, known: take.u64()? }))?;
            let locks = take.items(Take::lock)?;
            let changed = take.items(|take| {
                let (ino, group, term) = (take.ino()?, GroupId(take.u32()?), Term(take.u64()?));
                Ok(Changed { ino, group, term, index: Index(take.u64()?), start: take.u64()? })
            })?;
            Ok(Reclaim { volume, held: few(held)?, locks: few(locks)?, changed: few(changed)?, more: take.bool()? })
        })
    }
}

impl Body for ReclaimDone {
    const KIND: FrameKind = FrameKind::ReclaimDone;

    fn encode(&self, out: &mut Vec<u8>) {
        let ReclaimDone { gone, lost, undone } = self;
        let are_few = [gone.len(), lost.len(), undone.len()].into_iter().all(|items| items <= RECLAIM_ITEMS_MAX);
        assert!(are_few, "a frame has few items");
        let mut put = Put(out);
        put.items(gone, |put, ino| put.ino(*ino)).items(lost, Put::lock).items(undone, |put, ino| put.ino(*ino));
    }
    fn decode(body: &[u8]) -> Result<ReclaimDone> {
        Take::all(body, |take| {
            let (gone, lost) = (few(take.items(Take::ino)?)?, few(take.items(Take::lock)?)?);
            Ok(ReclaimDone { gone, lost, undone: few(take.items(Take::ino)?)? })
        })
    }
}

impl Body for Recall {
    const KIND: FrameKind = FrameKind::Recall;

    fn encode(&self, out: &mut Vec<u8>) {
        Put(out).caches(self.caches);
    }
    fn decode(body: &[u8]) -> Result<Recall> {
        Take::all(body, |take| Ok(Recall { caches: take.caches()? }))
    }
}

impl Body for RecallDone {
    const KIND: FrameKind = FrameKind::RecallDone;

    fn encode(&self, out: &mut Vec<u8>) {
        Put(out).u64(self.number);
    }
    fn decode(body: &[u8]) -> Result<RecallDone> {
        Take::all(body, |take| Ok(RecallDone { number: take.u64()? }))
    }
}
