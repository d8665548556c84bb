//! The read-only layer: refuses what would change the volume, and has reads leave access times as they are. What keeps a volume
//! as it is passes: reading, making durable what was changed before, and giving back what clients hold, which frees files
//! that have no name any more.

use super::{Call, Context, Down};
use base::{Error, Kind, Op};

/// The layer; it has no parameters.
pub struct ReadOnly;

/// The effect of an operation on its volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// None.
    None,
    /// An access time, unless the caller leaves it.
    AccessTime,
    /// Another state, as a client sees it.
    Change,
}

impl ReadOnly {
    pub(super) fn down(&self, context: &mut Context, call: &Call) -> Down {
        match effect(&call.op) {
            Effect::None => Down::Pass,
            Effect::AccessTime if context.noatime => Down::Pass,
            Effect::AccessTime => {
                context.noatime = true;
                Down::Changed
            }
            Effect::Change => Down::Answer(Err(Error::new(Kind::ReadOnly, "the volume has a read-only layer"))),
        }
    }
}

/// A new operation does not compile here until somebody has said what its effect is.
pub(crate) fn effect(op: &Op) -> Effect {
    match op {
        Op::SetAttr { .. }
        | Op::Create { .. }
        | Op::MakeDir { .. }
        | Op::SymLink { .. }
        | Op::MakeNode { .. }
        | Op::TempFile { .. }
        | Op::Link { .. }
        | Op::Unlink { .. }
        | Op::RemoveDir { .. }
        | Op::Rename { .. }
        | Op::Exchange { .. }
        | Op::Open { truncate: true, .. }
        | Op::Write { .. }
        | Op::Allocate { .. }
        | Op::SetXattr { .. }
        | Op::RemoveXattr { .. } => Effect::Change,
        // They change the catalogue, not what is in a volume; an operator's way to them leads through no volume's stack.
        Op::VolumeCreate { .. }
        | Op::VolumeDelete { .. }
        | Op::VolumeRename { .. }
        | Op::VolumeResize { .. }
        | Op::VolumeLayers { .. }
        | Op::VolumePolicy { .. }
        | Op::VolumeLimits { .. } => Effect::Change,
        Op::Read { .. } | Op::ReadLink { .. } | Op::ReadDir { .. } => Effect::AccessTime,
        Op::Lookup { .. }
        | Op::GetAttr { .. }
        | Op::Recall { .. }
        | Op::Open { truncate: false, .. }
        | Op::Release { .. }
        | Op::Forget { .. }
        | Op::Seek { .. }
        | Op::GetXattr { .. }
        | Op::ListXattr { .. }
        | Op::Fsync { .. }
        | Op::Lock { .. }
        | Op::StatFs
        | Op::SyncAll
        | Op::VolumeList => Effect::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Ino, Name};

    /// Operations that may order a record are changes here; giving back what a client holds is none.
    #[test]
    fn what_orders_records_is_refused() {
        let (ino, name) = (Ino(2), || Name::new(b"n").expect("a name"));
        let ops = [
            Op::Lookup { parent: ino, name: name() },
            Op::SetAttr { ino, set: Box::default() },
            Op::Create { parent: ino, name: name(), mode: 0, exclusive: false },
            Op::Open { ino, truncate: true },
            Op::Open { ino, truncate: false },
            Op::Unlink { parent: ino, name: name() },
            Op::Fsync { ino, sync: base::Sync::All },
            Op::RemoveXattr { ino, name: name() },
            Op::Read { ino, offset: 0, length: 1 },
            Op::VolumeDelete { name: name() },
            Op::SyncAll,
        ];
        for op in ops {
            assert_eq!(effect(&op) == Effect::Change, op.mutates(), "{op:?}");
        }
        let release = Op::Release { ino };
        assert!(release.mutates() && effect(&release) == Effect::None);
    }
}
