//! Extended attributes. The kernel decides who may see or change which attributes (xattr(7)). This module keeps access
//! control lists in step with permission bits; a list that says no more than the bits is not stored.

use crate::acl::{self, Acl};
use crate::decision::{Decision, Draft};
use crate::guard;
use crate::tier;
use crate::view::{Caller, Need, Stop, View, inode, known, refuse};
use base::limits::{XATTR_LIST_BYTES_MAX, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XATTRS_BYTES_MAX};
use base::{Edit, Ino, Inode, Kind, Name, Outcome, Reply, SetHow, Xattrs};
use std::sync::Arc;

/// The name of the attribute that holds file capabilities: privileges of a program whose caller is not root.
pub fn capability() -> Name {
    Name::of_attribute(b"security.capability").expect("a good name")
}

/// Namespaces of attributes. Of `system.` only the access control lists exist.
const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

/// One attribute of the largest kind can be set, and listed.
const _: () = assert!(XATTR_NAME_BYTES_MAX < XATTR_LIST_BYTES_MAX);
const _: () = assert!(XATTR_NAME_BYTES_MAX + 1 + XATTR_VALUE_BYTES_MAX <= XATTRS_BYTES_MAX);

/// The extended attributes of an inode. Nothing is read if it has none.
pub(crate) fn of(view: &mut dyn View, ino: Ino, inode: &Inode) -> Result<Option<Arc<Xattrs>>, Stop> {
    if !inode.xattrs.are_stored() {
        return Ok(None);
    }
    known(view.xattrs(ino), || Need::Xattrs(ino))
}

fn check_name(name: &Name) -> Result<(), Stop> {
    let name = name.as_bytes();
    match NAMESPACES.into_iter().find(|space| name.starts_with(space)) {
        Some(space) if name.len() > space.len() => Ok(()),
        Some(_) => refuse(Kind::Invalid, "an attribute's name is more than its namespace"),
        None if name == acl::ACCESS || name == acl::DEFAULT => Ok(()),
        None => refuse(Kind::Unsupported, "no such namespace of attributes"),
    }
}

pub(crate) fn absent<T>() -> Result<T, Stop> {
    refuse(Kind::NoAttribute, "no attribute of this name")
}

/// GetXattr.
pub(crate) fn get(view: &mut dyn View, ino: Ino, name: &Name) -> Result<Decision, Stop> {
    let inode = inode(view, ino)?;
    check_name(name)?;
    if tier::is_tier_hint(name) {
        return tier::get(&inode);
    }
    match of(view, ino, &inode)?.and_then(|all| all.get(name).cloned()) {
        Some(value) => Ok(Decision::unchanged(Reply::Value(value), Outcome::Done)),
        None => absent(),
    }
}

/// ListXattr.
pub(crate) fn list(view: &mut dyn View, ino: Ino) -> Result<Decision, Stop> {
    let inode = inode(view, ino)?;
    let mut names = Vec::new();
    let stored = of(view, ino, &inode)?;
    let stored = stored.iter().flat_map(|all| all.keys()).map(Name::as_bytes);
    for name in stored.chain(inode.xattrs.tier().map(|_| tier::NAME)) {
        names.extend_from_slice(name);
        names.push(0);
    }
    Ok(Decision::unchanged(Reply::Names(names.into()), Outcome::Done))
}

/// SetXattr.
pub(crate) fn set(
    view: &mut dyn View,
    caller: &Caller,
    ino: Ino,
    (name, value): (&Name, &Arc<[u8]>),
    how: SetHow,
    kill_setgid: bool,
) -> Result<Decision, Stop> {
    let mut new = inode(view, ino)?;
    guard::untouched(&new)?;
    check_name(name)?;
    if value.len() > XATTR_VALUE_BYTES_MAX {
        return refuse(Kind::TooLarge, "an attribute has at most 64 KiB");
    }
    if tier::is_tier_hint(name) {
        return tier::set(view, caller, (ino, new), value, how);
    }
    let there = of(view, ino, &new)?;
    let before = there.as_ref().and_then(|all| all.get(name));
    match how {
        SetHow::Create if before.is_some() => return refuse(Kind::Exists, "the attribute is there"),
        SetHow::Replace if before.is_none() => return absent(),
        _ => {}
    }
    let value = match name.as_bytes() {
        acl::ACCESS => access(&mut new, value, kill_setgid)?,
        acl::DEFAULT => default(&new, value)?,
        _ => Some(value.clone()),
    };
    let mut left: Xattrs = there.map_or_else(Xattrs::new, |all| (*all).clone());
    let edit = match value {
        Some(value) => {
            left.insert(name.clone(), value.clone());
            Some(Edit::XattrPut { ino, name: name.clone(), value })
        }
        None => left.remove(name).map(|_| Edit::XattrDrop { ino, name: name.clone() }),
    };
    let names = name_bytes(&left, &new);
    let values: usize = left.values().map(|value| value.len()).sum();
    if names > XATTR_LIST_BYTES_MAX || names + values > XATTRS_BYTES_MAX {
        return refuse(Kind::NoSpace, "the inode has too many attributes");
    }
    new.xattrs = new.xattrs.with_stored(!left.is_empty());
    changed(view, caller, (ino, new), edit)
}

/// Bytes of the list of an inode's attributes.
fn name_bytes(stored: &Xattrs, inode: &Inode) -> usize {
    let names = stored.keys().map(Name::as_bytes).chain(inode.xattrs.tier().map(|_| tier::NAME));
    names.map(|name| name.len() + 1).sum()
}

/// Bytes of the list of an inode's attributes, those that are stored read first.
pub(crate) fn listed_bytes(view: &mut dyn View, ino: Ino, inode: &Inode) -> Result<usize, Stop> {
    let stored = of(view, ino, inode)?;
    Ok(stored.map_or_else(|| name_bytes(&Xattrs::new(), inode), |stored| name_bytes(&stored, inode)))
}

/// RemoveXattr. Removing an access control list that does not exist succeeds.
pub(crate) fn remove(view: &mut dyn View, caller: &Caller, ino: Ino, name: &Name) -> Result<Decision, Stop> {
    let mut new = inode(view, ino)?;
    guard::untouched(&new)?;
    check_name(name)?;
    if tier::is_tier_hint(name) {
        return tier::remove(view, caller, (ino, new));
    }
    let there = of(view, ino, &new)?;
    match there.filter(|all| all.contains_key(name)) {
        Some(all) => {
            new.xattrs = new.xattrs.with_stored(all.len() > 1);
            changed(view, caller, (ino, new), Some(Edit::XattrDrop { ino, name: name.clone() }))
        }
        None if name.as_bytes() == acl::ACCESS || name.as_bytes() == acl::DEFAULT => {
            Ok(Decision::unchanged(Reply::Done, Outcome::Done))
        }
        None => absent(),
    }
}

fn changed(
    view: &mut dyn View,
    caller: &Caller,
    (ino, mut new): (Ino, Inode),
    edit: Option<Edit>,
) -> Result<Decision, Stop> {
    new.ctime = new.ctime.tick(view.now());
    let mut draft = Draft::new(caller.volume, ino.group());
    edit.into_iter().for_each(|edit| draft.edit(ino, edit));
    draft.edit(ino, Edit::InodePut { ino, inode: new });
    draft.decide(view, Reply::Done, Outcome::Done)
}

/// Sets the permission bits from an access list. Returns the list's bytes to store, or None if the permission bits say
/// as much as the list.
fn access(inode: &mut Inode, value: &[u8], kill_setgid: bool) -> Result<Option<Arc<[u8]>>, Stop> {
    const SETGID: u16 = 0o2000;
    let Some(mut acl) = Acl::read(value)? else { return Ok(None) };
    inode.mode = acl.mode(inode.mode);
    if kill_setgid {
        inode.mode &= !SETGID;
    }
    Ok((!acl.is_minimal()).then(|| acl.bytes().into()))
}

fn default(inode: &Inode, value: &[u8]) -> Result<Option<Arc<[u8]>>, Stop> {
    let acl = Acl::read(value)?;
    if acl.is_some() && !inode.is_directory() {
        return refuse(Kind::Permission, "only a directory hands access control lists down");
    }
    Ok(acl.map(|acl| acl.bytes().into()))
}

/// The edits of extended attributes that follow from a change of other attributes: an access list follows the
/// permission bits, and capabilities end when data or owner change. `new` is updated if no extended attribute is left.
pub(crate) fn follow(
    all: &Xattrs,
    ino: Ino,
    new: &mut Inode,
    mode: bool,
    ends_capability: bool,
) -> Result<Vec<Edit>, Stop> {
    let mut edits = Vec::new();
    let access = acl::name(acl::ACCESS);
    if let Some(value) = all.get(&access).filter(|_| mode) {
        let Some(mut acl) = Acl::read(value)? else { return refuse(Kind::Corrupt, "an access control list is empty") };
        acl.set_mode(new.mode);
        edits.push(Edit::XattrPut { ino, name: access, value: acl.bytes().into() });
    }
    let capability = capability();
    if ends_capability && !new.is_directory() && all.contains_key(&capability) {
        edits.push(Edit::XattrDrop { ino, name: capability });
        new.xattrs = new.xattrs.with_stored(all.len() > 1);
    }
    Ok(edits)
}

/// The permission bits and access control lists that a new inode begins with.
pub(crate) struct Legacy {
    pub mode: u16,
    pub lists: Vec<(Name, Arc<[u8]>)>,
}

/// The permission bits and lists of a new inode in the directory `parent`. If the directory has a default list, the
/// bits are the requested ones that the list grants too; if not, the requested ones that the umask does not withhold.
pub(crate) fn inherit(
    view: &mut dyn View,
    (parent, home): (Ino, &Inode),
    mode: u16,
    umask: u16,
    directory: bool,
) -> Result<Legacy, Stop> {
    const MASKED: u16 = 0o777;
    let default = acl::name(acl::DEFAULT);
    let Some(value) = of(view, parent, home)?.and_then(|all| all.get(&default).cloned()) else {
        return Ok(Legacy { mode: mode & !(umask & MASKED), lists: Vec::new() });
    };
    let Some(mut acl) = Acl::read(&value)? else { return refuse(Kind::Corrupt, "an access control list is empty") };
    let mode = acl.inherit(mode);
    let mut lists = Vec::new();
    if !acl.is_minimal() {
        lists.push((acl::name(acl::ACCESS), acl.bytes().into()));
    }
    if directory {
        lists.push((default, value));
    }
    Ok(Legacy { mode, lists })
}
