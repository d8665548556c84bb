//! The form in which requests are recorded: kind, inodes, ranges and flags, names as keyed hashes; never a name, never data.

use super::parse::{Ask, Way};
use base::{At, Op, Room, Seek, SetAttr, Sync};
use recording::{Deed, Flags, NameHasher, NameKey, Operation};

/// The attribute at which the kernel looks before it lets a program write to a file that it has not written to yet.
const CAPABILITY: &[u8] = b"security.capability";

/// The operation that stands for a request; its outcome comes later. None for what is not recorded: the kernel's
/// housekeeping (FORGET), and locks, which a single mount's kernel keeps for itself. `payload_bytes`: those of a write.
pub fn operation(ask: &Ask, payload_bytes: usize, key: NameKey) -> Option<Operation> {
    match ask {
        Ask::Entry(op)
        | Ask::Attr(op)
        | Ask::Birth(op)
        | Ask::Guard(op, _)
        | Ask::SetGuard(op)
        | Ask::Done(op)
        | Ask::Sync { op, .. } => of_op(op, key),
        Ask::Target(op) | Ask::Seek(op) => of_op(op, key),
        Ask::Above(ino) => Some(Operation::new(Deed::Recall, ino.0)),
        Ask::Node(op) => of_op(op, key).map(|made| Operation { deed: Deed::CreateNode, ..made }),
        Ask::Xattrs(op, size) => of_op(op, key).map(|asked| Operation { length: *size as u64, ..asked }),
        Ask::Release { ino, .. } => Some(Operation::new(Deed::Release, ino.0)),
        Ask::Open { ino, flags, .. } => Some(Operation { flags: opened(*flags), ..Operation::new(Deed::Open, ino.0) }),
        Ask::Create { op, flags, .. } => of_op(op, key).map(|made| Operation { flags: opened(*flags), ..made }),
        Ask::Read { op, flags, way, .. } => {
            let flags = passed(opened(*flags), *way);
            of_op(op, key).map(|read| Operation { flags, ..read })
        }
        Ask::Write { op, way } => of_op(op, key).map(|write| {
            let length = payload_bytes as u64;
            Operation { flags: passed(write.flags, *way), length, bytes: payload_bytes as u32, ..write }
        }),
        Ask::StatFs => Some(Operation::new(Deed::StatFs, 0)),
        Ask::ReadDir { ino, offset, size, .. } => {
            Some(Operation { offset: *offset, length: *size as u64, ..Operation::new(Deed::ReadDir, ino.0) })
        }
        Ask::Forget { .. } | Ask::ForgetAll(_) | Ask::Lock(_) | Ask::Flush { .. } => None,
        Ask::Silent | Ask::Answer(_) | Ask::Interrupt(_) | Ask::OpenDir { .. } | Ask::CloseDir { .. } => None,
    }
}

fn of_op(op: &Op, key: NameKey) -> Option<Operation> {
    let names = NameHasher::new(key);
    let about = |deed, ino: &base::Ino| Operation::new(deed, ino.0);
    let named = |deed, parent: &base::Ino, name: &base::Name| Operation {
        name: names.hash(name.as_bytes()),
        ..about(deed, parent)
    };
    let to = |from: Operation, parent: &base::Ino, name: &base::Name| Operation {
        new_parent: parent.0,
        new_name: names.hash(name.as_bytes()),
        ..from
    };
    Some(match op {
        Op::Lookup { parent, name } => named(Deed::Lookup, parent, name),
        Op::Create { parent, name, .. } => named(Deed::Create, parent, name),
        Op::MakeDir { parent, name, .. } => named(Deed::MakeDir, parent, name),
        Op::MakeNode { parent, name, .. } => named(Deed::MakeNode, parent, name),
        Op::Unlink { parent, name } => named(Deed::Unlink, parent, name),
        Op::RemoveDir { parent, name } => named(Deed::RemoveDir, parent, name),
        Op::SymLink { parent, name, target } => {
            Operation { length: target.len() as u64, ..named(Deed::SymLink, parent, name) }
        }
        Op::TempFile { parent, .. } => about(Deed::TempFile, parent),
        Op::Link { ino, new_parent, new_name } => to(about(Deed::Link, ino), new_parent, new_name),
        Op::Exchange { parent, name, new_parent, new_name } => {
            to(named(Deed::Exchange, parent, name), new_parent, new_name)
        }
        Op::Rename { parent, name, new_parent, new_name, no_replace, .. } => {
            let renamed = to(named(Deed::Rename, parent, name), new_parent, new_name);
            Operation { flags: Flags::default().with(*no_replace, Flags::NO_REPLACE), ..renamed }
        }
        Op::GetXattr { ino, name } => {
            let flags = Flags::default().with(name.as_bytes() == CAPABILITY, Flags::KERNEL);
            Operation { flags, ..named(Deed::GetXattr, ino, name) }
        }
        Op::RemoveXattr { ino, name } => named(Deed::RemoveXattr, ino, name),
        Op::SetXattr { ino, name, value, .. } => {
            Operation { length: value.len() as u64, ..named(Deed::SetXattr, ino, name) }
        }
        other => return of_inode(other),
    })
}

/// The operations that are about an inode, without a name.
fn of_inode(op: &Op) -> Option<Operation> {
    let about = |deed, ino: &base::Ino| Operation::new(deed, ino.0);
    let none = Flags::default();
    Some(match op {
        Op::GetAttr { ino } => about(Deed::GetAttr, ino),
        Op::SetAttr { ino, set } => {
            Operation { flags: changed(set), offset: set.size.unwrap_or(0), ..about(Deed::SetAttr, ino) }
        }
        Op::ReadLink { ino } => about(Deed::ReadLink, ino),
        Op::Recall { ino } => about(Deed::Recall, ino),
        Op::ListXattr { ino } => about(Deed::ListXattr, ino),
        Op::SyncAll => Operation::new(Deed::SyncAll, 0),
        Op::Read { ino, offset, length } => {
            Operation { offset: *offset, length: u64::from(*length), ..about(Deed::Read, ino) }
        }
        Op::Write { ino, at, sync, .. } => {
            let offset = if let At::Offset(offset) = at { *offset } else { 0 };
            let flags = none.with(*at == At::End, Flags::APPEND).with(*sync == Sync::Written, Flags::DIRECT);
            let flags = flags.with(*sync == Sync::Data, Flags::DATA_SYNC).with(*sync == Sync::All, Flags::SYNC);
            Operation { offset, flags, ..about(Deed::Write, ino) }
        }
        Op::Fsync { ino, sync } => {
            Operation { flags: none.with(*sync == Sync::Data, Flags::DATA_SYNC), ..about(Deed::Fsync, ino) }
        }
        Op::Allocate { ino, offset, length, keep_size, room } => {
            let flags = none.with(*keep_size, Flags::KEEP_SIZE).with(*room == Room::Hole, Flags::HOLE);
            let flags = flags.with(*room == Room::Zeroed, Flags::ZEROED);
            Operation { offset: *offset, length: *length, flags, ..about(Deed::Allocate, ino) }
        }
        Op::Seek { ino, offset, what } => {
            Operation { offset: *offset, flags: none.with(*what == Seek::Hole, Flags::HOLE), ..about(Deed::Seek, ino) }
        }
        _ => return None,
    })
}

fn changed(set: &SetAttr) -> Flags {
    let flags = Flags::default().with(set.mode.is_some(), Flags::MODE).with(set.size.is_some(), Flags::SIZE);
    let flags = flags.with(set.uid.is_some() || set.gid.is_some(), Flags::OWNER);
    flags.with(set.atime.is_some() || set.mtime.is_some(), Flags::TIMES)
}

/// Those of a handle's open flags that matter.
fn opened(flags: u32) -> Flags {
    let has = |all: i32| flags & all as u32 == all as u32;
    let access = flags & libc::O_ACCMODE as u32;
    let flags = Flags::default().with(access != libc::O_WRONLY as u32, Flags::READ);
    let flags = flags.with(access != libc::O_RDONLY as u32, Flags::WRITE).with(has(libc::O_APPEND), Flags::APPEND);
    let flags = flags.with(has(libc::O_DIRECT), Flags::DIRECT).with(has(libc::O_DSYNC), Flags::DATA_SYNC);
    flags.with(has(libc::O_SYNC), Flags::SYNC).with(has(libc::O_NOATIME), Flags::NO_ACCESS_TIME)
}

fn passed(flags: Flags, way: Way) -> Flags {
    flags.with(way != Way::Direct, Flags::CACHED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Ino, Name};

    const KEY: NameKey = [1, 2];

    #[test]
    fn names_are_told_as_hashes() {
        let name = Name::new(b"salaries").expect("valid");
        let lookup = operation(&Ask::Entry(Op::Lookup { parent: Ino(5), name: name.clone() }), 0, KEY);
        let hash = NameHasher::new(KEY).hash(b"salaries");
        assert_eq!(lookup, Some(Operation { name: hash, ..Operation::new(Deed::Lookup, 5) }));
        let linked = Op::Link { ino: Ino(7), new_parent: Ino(5), new_name: name };
        let expected = Operation { new_parent: 5, new_name: hash, ..Operation::new(Deed::Link, 7) };
        assert_eq!(operation(&Ask::Entry(linked), 0, KEY), Some(expected));
    }

    #[test]
    fn flags_are_those_of_the_request() {
        let write = |sync, at| Op::Write { ino: Ino(7), at, sync, kill_privileges: false };
        let told = |ask| operation(&ask, 4096, KEY).expect("it is recorded");
        let direct = told(Ask::Write { op: write(Sync::Data, At::Offset(8192)), way: Way::Direct });
        assert_eq!((direct.flags, direct.offset, direct.length, direct.bytes), (Flags::DATA_SYNC, 8192, 4096, 4096));
        let appended = told(Ask::Write { op: write(Sync::Ordered, At::End), way: Way::Cached });
        assert_eq!(appended.flags, Flags::APPEND.with(true, Flags::CACHED));
        let flags = (libc::O_RDWR | libc::O_DIRECT) as u32;
        let op = Op::Read { ino: Ino(7), offset: 1, length: 2 };
        let read = told(Ask::Read { op, noatime: false, flags, way: Way::Direct });
        assert_eq!(read.flags, Flags::READ.with(true, Flags::WRITE).with(true, Flags::DIRECT));
        assert_eq!(operation(&Ask::Forget { ino: Ino(7), times: 1 }, 0, KEY), None);
    }
}
