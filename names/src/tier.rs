//! The attribute `user.sinter.tier`: on which tier a file's blocks should lie. It is a field of the inode, so that what moves
//! blocks reads no attributes, and a file takes the hint of its directory without reading them either.

use crate::decision::{Decision, Draft};
use crate::view::{Caller, Stop, View, refuse};
use crate::xattr::{absent, listed_bytes};
use base::limits::XATTR_LIST_BYTES_MAX;
use base::{Edit, FileKind, Ino, Inode, Kind, Name, Outcome, Reply, SetHow, TierHint};

/// The attribute's name.
pub(crate) const NAME: &[u8] = b"user.sinter.tier";

/// True of the name of the attribute that holds an inode's tier hint.
pub fn is_tier_hint(name: &Name) -> bool {
    name.as_bytes() == NAME
}

/// True if an inode of this kind has a tier hint: if it has blocks, or hands the hint down to what has.
fn may_have(kind: FileKind) -> bool {
    matches!(kind, FileKind::File | FileKind::Directory)
}

/// The hint of what is made in a directory.
pub(crate) fn inherit(home: &Inode, kind: FileKind) -> Option<TierHint> {
    home.xattrs.tier().filter(|_| may_have(kind))
}

/// The attribute's value.
pub(crate) fn get(inode: &Inode) -> Result<Decision, Stop> {
    match inode.xattrs.tier() {
        Some(hint) => Ok(Decision::unchanged(Reply::Value(hint.name().as_bytes().into()), Outcome::Done)),
        None => absent(),
    }
}

/// Gives an inode a hint. Errors: `Invalid` for a value that is no hint.
pub(crate) fn set(
    view: &mut dyn View,
    caller: &Caller,
    (ino, inode): (Ino, Inode),
    value: &[u8],
    how: SetHow,
) -> Result<Decision, Stop> {
    if !may_have(inode.kind) {
        return refuse(Kind::Permission, "only files and directories have a tier");
    }
    let Some(hint) = TierHint::of(value) else {
        return refuse(Kind::Invalid, "a tier is flash, disk or auto");
    };
    match how {
        SetHow::Create if inode.xattrs.tier().is_some() => return refuse(Kind::Exists, "the attribute is there"),
        SetHow::Replace if inode.xattrs.tier().is_none() => return absent(),
        _ => {}
    }
    let new = Inode { xattrs: inode.xattrs.with_tier(Some(hint)), ..inode };
    if listed_bytes(view, ino, &new)? > XATTR_LIST_BYTES_MAX {
        return refuse(Kind::NoSpace, "the inode has too many attributes");
    }
    changed(view, caller, ino, new)
}

/// Takes an inode's hint away.
pub(crate) fn remove(view: &mut dyn View, caller: &Caller, (ino, inode): (Ino, Inode)) -> Result<Decision, Stop> {
    match inode.xattrs.tier() {
        Some(_) => changed(view, caller, ino, Inode { xattrs: inode.xattrs.with_tier(None), ..inode }),
        None => absent(),
    }
}

fn changed(view: &mut dyn View, caller: &Caller, ino: Ino, new: Inode) -> Result<Decision, Stop> {
    let inode = Inode { ctime: new.ctime.tick(view.now()), ..new };
    let mut draft = Draft::new(caller.volume, ino.group());
    draft.edit(ino, Edit::InodePut { ino, inode });
    draft.decide(view, Reply::Done, Outcome::Done)
}
