//! The requests of clients and the answers to them, in their order: the checkers' only source besides the brick itself.

use base::{GroupId, Index, Ino, Kind, Op, Reply, RequestId, SessionId, Sync};
use group::Answer;
use std::collections::BTreeMap;

/// Names a request for good: delivered twice, it is the same.
pub type Key = (SessionId, RequestId);

/// An answer.
#[derive(Clone, Debug)]
pub struct Ack {
    /// Its moment in the history.
    pub moment: u64,
    /// Its simulated time.
    pub at_ns: u64,
    /// The answer.
    pub told: Result<Told, Kind>,
}

/// The part of a reply that must be the same when the request is delivered again, and where the change stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    /// The inode of an `Attr` reply.
    pub ino: Option<Ino>,
    /// A write's offset and length.
    pub wrote: Option<(u64, u32)>,
    /// The group and index of the deciding record; None if nothing was ordered, or an earlier result was repeated.
    pub position: Option<(GroupId, Index)>,
}

/// One delivery of a request.
#[derive(Clone, Debug)]
pub struct Call {
    /// The request.
    pub key: Key,
    /// The request.
    pub op: Op,
    /// Bytes of a write's payload (see `payload`).
    pub length: u32,
    /// The moment of the call.
    pub moment: u64,
    /// The answer, if it came.
    pub ack: Option<Ack>,
}

impl Call {
    /// The answer was: done.
    pub fn done(&self) -> Option<(&Ack, Told)> {
        let ack = self.ack.as_ref()?;
        ack.told.as_ref().ok().map(|told| (ack, *told))
    }
    /// An answer to this call promises that its own change is durable.
    pub fn asks_durable(&self) -> bool {
        match &self.op {
            Op::Write { sync, .. } => *sync >= Sync::Data,
            Op::VolumeCreate { .. }
            | Op::VolumeDelete { .. }
            | Op::VolumeRename { .. }
            | Op::VolumeResize { .. }
            | Op::VolumeLayers { .. }
            | Op::VolumePolicy { .. }
            | Op::VolumeLimits { .. } => true,
            _ => false,
        }
    }
    /// The inodes that the call is known to have changed.
    pub fn touched(&self) -> impl Iterator<Item = Ino> {
        let told = self.done().and_then(|(_, told)| told.ino);
        let (first, second) = match &self.op {
            Op::SetAttr { ino, .. } | Op::Open { ino, .. } | Op::Write { ino, .. } | Op::Allocate { ino, .. } => {
                (Some(*ino), None)
            }
            Op::SetXattr { ino, .. } | Op::RemoveXattr { ino, .. } => (Some(*ino), None),
            Op::Link { ino, new_parent, .. } => (Some(*new_parent), Some(*ino)),
            Op::Create { parent, .. } | Op::MakeDir { parent, .. } | Op::SymLink { parent, .. } => {
                (Some(*parent), told)
            }
            Op::TempFile { .. } => (told, None),
            Op::Unlink { parent, .. } | Op::RemoveDir { parent, .. } => (Some(*parent), None),
            Op::Rename { parent, new_parent, .. } | Op::Exchange { parent, new_parent, .. } => {
                (Some(*parent), Some(*new_parent))
            }
            _ => (None, None),
        };
        first.into_iter().chain(second)
    }
}

/// All deliveries of one life of the daemon.
#[derive(Clone, Default, Debug)]
pub struct History {
    calls: Vec<Call>,
    moments: u64,
}

impl History {
    fn tick(&mut self) -> u64 {
        self.moments += 1;
        self.moments
    }
    /// A call is made; gives its number.
    pub fn call(&mut self, key: Key, op: Op, length: u32) -> usize {
        let moment = self.tick();
        self.calls.push(Call { key, op, length, moment, ack: None });
        self.calls.len() - 1
    }
    /// The call is answered.
    pub fn answer(&mut self, call: usize, at_ns: u64, answer: &base::Result<Answer>) {
        let moment = self.tick();
        let told = match answer {
            Err(error) => Err(error.kind),
            Ok(answer) => Ok(told(answer)),
        };
        let slot = &mut self.calls[call].ack;
        assert!(slot.is_none(), "a call is answered once");
        *slot = Some(Ack { moment, at_ns, told });
    }
    /// The calls, in their order.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }
    /// The first call of each request.
    pub fn requests(&self) -> BTreeMap<Key, &Call> {
        let mut requests = BTreeMap::new();
        for call in &self.calls {
            requests.entry(call.key).or_insert(call);
        }
        requests
    }
}

fn told(answer: &Answer) -> Told {
    let (ino, wrote) = match &answer.reply {
        Reply::Attr(attr) => (Some(attr.ino), None),
        Reply::Volume(volume) => (Some(volume.root), None),
        Reply::Wrote { offset, length } => (None, Some((*offset, *length))),
        _ => (None, None),
    };
    Told { ino, wrote, position: answer.position.map(|position| (position.group, position.index)) }
}

/// The bytes that a request writes: each word tells request and offset, so that no two writes look alike.
pub fn payload((session, request): Key, into: &mut [u8]) {
    let seed = (session.0 << 40 ^ request.0 << 8).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for (number, word) in into.chunks_mut(8).enumerate() {
        let value = seed.wrapping_mul(number as u64 * 2 + 1).rotate_left(17) ^ seed;
        word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
    }
}
