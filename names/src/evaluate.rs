//! The entry point of this crate: `evaluate` takes one operation and returns one decision, or what must be read first.
//! Reads of names and attributes are decided in this file; each kind of change has a module of its own.

use crate::decision::Decision;
use crate::view::{Caller, Need, Stop, View, child, directory, entry, inode, known, refuse};
use crate::{attributes, create, remove, rename, volumes, write, xattr};
use base::{Attr, Error, FileKind, Ino, Kind, Name, Op, Outcome, Reply};

/// Decides what `op` does, or says what must be read first.
///
/// Operations on data, directory listings and space are refused as `Unsupported`: the group answers them itself. The
/// caller must have checked a rename of a directory to another parent for loops: only a move directly into itself is
/// refused here.
pub fn evaluate(op: &Op, caller: &Caller, view: &mut dyn View) -> Result<Decision, Stop> {
    let decision = decide(op, caller, view)?;
    assert!(op.mutates() || decision.parts.is_empty(), "an operation that only reads changes nothing: {op:?}");
    Ok(decision)
}

fn decide(op: &Op, caller: &Caller, view: &mut dyn View) -> Result<Decision, Stop> {
    match op {
        Op::Lookup { parent, name } => lookup(view, *parent, name),
        Op::GetAttr { ino } => get_attributes(view, *ino),
        Op::Recall { ino } => recall(view, *ino),
        Op::ReadLink { ino } => read_link(view, *ino),
        Op::SetAttr { ino, set } => attributes::set(view, caller, *ino, set),
        Op::Open { ino, truncate } => attributes::open(view, caller, *ino, *truncate),
        Op::Create { parent, name, mode, exclusive } => create::file(view, caller, *parent, name, *mode, *exclusive),
        Op::MakeDir { parent, name, mode } => create::directory(view, caller, *parent, name, *mode),
        Op::SymLink { parent, name, target } => create::link(view, caller, *parent, name, target),
        Op::MakeNode { parent, name, kind, mode, rdev } => {
            create::node(view, caller, (*parent, name), *kind, *mode, *rdev)
        }
        Op::TempFile { parent, mode } => create::nameless(view, caller, *parent, *mode),
        Op::Link { ino, new_parent, new_name } => create::name(view, caller, *ino, (*new_parent, new_name)),
        Op::Unlink { parent, name } => remove::file(view, caller, *parent, name),
        Op::RemoveDir { parent, name } => remove::directory(view, caller, *parent, name),
        Op::Rename { parent, name, new_parent, new_name, no_replace, whiteout } => {
            let from = rename::Spot { dir: *parent, name };
            let to = rename::Spot { dir: *new_parent, name: new_name };
            rename::rename(view, caller, from, to, *no_replace, *whiteout)
        }
        Op::Exchange { parent, name, new_parent, new_name } => {
            let (one, other) = (rename::Spot { dir: *parent, name }, rename::Spot { dir: *new_parent, name: new_name });
            rename::exchange(view, caller, one, other)
        }
        Op::GetXattr { ino, name } => xattr::get(view, *ino, name),
        Op::ListXattr { ino } => xattr::list(view, *ino),
        Op::SetXattr { ino, name, value, how, kill_setgid } => {
            xattr::set(view, caller, *ino, (name, value), *how, *kill_setgid)
        }
        Op::RemoveXattr { ino, name } => xattr::remove(view, caller, *ino, name),
        Op::VolumeCreate { name, size_bytes } => volumes::create(view, caller, name, *size_bytes),
        Op::VolumeDelete { name } => volumes::delete(view, name),
        Op::VolumeRename { name, new_name } => volumes::rename(view, name, new_name),
        Op::VolumeResize { name, size_bytes } => volumes::resize(view, name, *size_bytes),
        Op::VolumeLayers { name, layers } => volumes::set_layers(view, name, layers),
        Op::VolumePolicy { name, policy } => volumes::set_policy(view, name, *policy),
        Op::VolumeLimits { name, tree, changed } => volumes::set_limits(view, name, *tree, changed),
        Op::Allocate { ino, offset, length, keep_size, room } => {
            let bytes = *offset..offset.saturating_add(*length);
            write::allocate(view, caller, *ino, bytes, *keep_size, *room)
        }
        Op::Release { .. }
        | Op::Forget { .. }
        | Op::Read { .. }
        | Op::Write { .. }
        | Op::Seek { .. }
        | Op::Fsync { .. }
        | Op::ReadDir { .. }
        | Op::Lock { .. }
        | Op::StatFs
        | Op::SyncAll
        | Op::VolumeList => refuse(Kind::Unsupported, "not an operation on names or attributes"),
    }
}

/// Lookup. The parent is read only if the name is not found: an entry proves that the parent is a directory.
fn lookup(view: &mut dyn View, parent: Ino, name: &Name) -> Result<Decision, Stop> {
    match entry(view, parent, name)? {
        Some(found) => {
            let inode = child(view, found)?;
            Ok(Decision::unchanged(Reply::Attr(Attr::new(found.ino, inode)), Outcome::Inode(found.ino)))
        }
        None => {
            directory(view, parent)?;
            refuse(Kind::NotFound, "no such name in the directory")
        }
    }
}

fn get_attributes(view: &mut dyn View, ino: Ino) -> Result<Decision, Stop> {
    let inode = inode(view, ino)?;
    Ok(Decision::unchanged(Reply::Attr(Attr::new(ino, inode)), Outcome::Inode(ino)))
}

/// Recall. An inode without a name is answered as gone: a client that has it open still knows it and does not ask.
fn recall(view: &mut dyn View, ino: Ino) -> Result<Decision, Stop> {
    let inode = inode(view, ino)?;
    if inode.links == 0 {
        return refuse(Kind::Stale, "the inode has no name any more");
    }
    Ok(Decision::unchanged(Reply::Attr(Attr::new(ino, inode)), Outcome::Inode(ino)))
}

fn read_link(view: &mut dyn View, ino: Ino) -> Result<Decision, Stop> {
    if inode(view, ino)?.kind != FileKind::Link {
        return refuse(Kind::Invalid, "only symbolic links have targets");
    }
    match known(view.target(ino), || Need::Target(ino))? {
        Some(target) => Ok(Decision::unchanged(Reply::Target(target), Outcome::Done)),
        None => Err(Error::new(Kind::Corrupt, "a symbolic link has no target").with(ino).into()),
    }
}
