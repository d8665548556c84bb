//! The rows of operations: one per operation name.

use super::{Ledger, OpRow};
use base::{OP_NAMES, Op, Sync};

/// Rows of a ledger by operation, looked up once.
pub struct Rows([OpRow; OP_NAMES.len()]);

impl Rows {
    /// The ledger's rows; it must know all of `OP_NAMES`.
    pub fn of(ledger: &Ledger) -> Rows {
        Rows::known(ledger).expect("every operation has a row")
    }
    /// The ledger's rows. None of a ledger that does not distinguish operations.
    pub fn known(ledger: &Ledger) -> Option<Rows> {
        let mut rows = [0; OP_NAMES.len()];
        for (row, name) in rows.iter_mut().zip(OP_NAMES) {
            *row = ledger.known_row(name)?;
        }
        Some(Rows(rows))
    }
    /// The row of locks.
    pub fn lock(&self) -> OpRow {
        self.0[LOCK]
    }
    /// The row of an operation.
    pub fn row(&self, op: &Op) -> OpRow {
        self.0[index(op)]
    }
}

const LOCK: usize = 40;

/// Position of the operation's name in `OP_NAMES`, without comparing strings.
fn index(op: &Op) -> usize {
    match op {
        Op::Lookup { .. } => 0,
        Op::GetAttr { .. } => 1,
        Op::SetAttr { .. } => 2,
        Op::ReadLink { .. } => 3,
        Op::Create { .. } => 4,
        Op::MakeDir { .. } => 5,
        Op::SymLink { .. } => 6,
        Op::Unlink { .. } => 7,
        Op::RemoveDir { .. } => 8,
        Op::Rename { .. } => 9,
        Op::Open { .. } => 10,
        Op::Release { .. } => 11,
        Op::Read { .. } => 12,
        Op::Write { sync: Sync::Ordered, .. } => 13,
        Op::Write { sync: Sync::Written, .. } => 14,
        Op::Write { .. } => 15,
        Op::Fsync { .. } => 16,
        Op::ReadDir { .. } => 17,
        Op::StatFs => 18,
        Op::SyncAll => 19,
        Op::VolumeCreate { .. } => 20,
        Op::VolumeDelete { .. } => 21,
        Op::VolumeList => 22,
        Op::Allocate { .. } => 23,
        Op::MakeNode { .. } => 24,
        Op::Link { .. } => 25,
        Op::Exchange { .. } => 26,
        Op::GetXattr { .. } => 27,
        Op::ListXattr { .. } => 28,
        Op::SetXattr { .. } => 29,
        Op::RemoveXattr { .. } => 30,
        Op::Seek { .. } => 31,
        Op::TempFile { .. } => 32,
        Op::Forget { .. } => 33,
        Op::Recall { .. } => 34,
        Op::VolumeRename { .. } => 35,
        Op::VolumeResize { .. } => 36,
        Op::VolumeLayers { .. } => 37,
        Op::VolumePolicy { .. } => 38,
        Op::VolumeLimits { .. } => 39,
        Op::Lock { .. } => LOCK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::lock::{Family, Mode};
    use base::{At, FileLock, Ino, LockWish, Name, SetAttr};

    #[test]
    fn every_operation_has_the_row_of_its_name() {
        let (ino, name) = (Ino(1), || Name::new(b"n").expect("valid"));
        let (family, mode) = (Family::Range, Mode::Shared);
        let lock = FileLock { ino, family, mode, owner: 1, pid: 1, first: 0, last: 1 };
        let write = |sync| Op::Write { ino, at: At::End, sync, kill_privileges: false };
        let ops = [
            Op::Lookup { parent: ino, name: name() },
            Op::GetAttr { ino },
            Op::SetAttr { ino, set: SetAttr::default().into() },
            Op::ReadLink { ino },
            Op::Create { parent: ino, name: name(), mode: 0, exclusive: true },
            Op::MakeDir { parent: ino, name: name(), mode: 0 },
            Op::SymLink { parent: ino, name: name(), target: Box::default() },
            Op::Unlink { parent: ino, name: name() },
            Op::RemoveDir { parent: ino, name: name() },
            Op::Rename {
                parent: ino,
                name: name(),
                new_parent: ino,
                new_name: name(),
                no_replace: false,
                whiteout: false,
            },
            Op::Open { ino, truncate: false },
            Op::Release { ino },
            Op::Read { ino, offset: 0, length: 0 },
            write(Sync::Ordered),
            write(Sync::Written),
            write(Sync::Data),
            Op::Fsync { ino, sync: Sync::All },
            Op::ReadDir { ino, cookie: 0, count: 0, plus: false },
            Op::StatFs,
            Op::SyncAll,
            Op::VolumeCreate { name: name(), size_bytes: None },
            Op::VolumeDelete { name: name() },
            Op::VolumeList,
            Op::Allocate { ino, offset: 0, length: 0, keep_size: false, room: base::Room::Hole },
            Op::MakeNode { parent: ino, name: name(), kind: base::FileKind::Fifo, mode: 0, rdev: 0 },
            Op::Link { ino, new_parent: ino, new_name: name() },
            Op::Exchange { parent: ino, name: name(), new_parent: ino, new_name: name() },
            Op::GetXattr { ino, name: name() },
            Op::ListXattr { ino },
            Op::SetXattr { ino, name: name(), value: [].into(), how: base::SetHow::Any, kill_setgid: false },
            Op::RemoveXattr { ino, name: name() },
            Op::Seek { ino, offset: 0, what: base::Seek::Data },
            Op::TempFile { parent: ino, mode: 0 },
            Op::Forget { ino, times: 1 },
            Op::Recall { ino },
            Op::VolumeRename { name: name(), new_name: name() },
            Op::VolumeResize { name: name(), size_bytes: None },
            Op::VolumeLayers { name: name(), layers: Box::default() },
            Op::VolumePolicy { name: name(), policy: base::TierPolicy::FlashOnly },
            Op::VolumeLimits { name: name(), tree: None, changed: Box::default() },
            Op::Lock { lock: Box::new(lock), wish: LockWish::Test },
        ];
        let names: Vec<_> = ops.iter().map(Op::name).collect();
        assert_eq!(names, OP_NAMES);
        assert!(ops.iter().enumerate().all(|(at, op)| index(op) == at));
    }
}
