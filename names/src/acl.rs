//! POSIX access control lists: attributes that grant more than permission bits can express. Their bytes are the
//! kernel's own (`posix_acl_xattr.h`, version 2, little-endian), and the kernel checks access by them
//! (default_permissions). This module keeps permission bits and list in step, and derives a new object's lists from its
//! directory's default list.

use base::limits::{ACL_ENTRIES_MAX, XATTR_VALUE_BYTES_MAX};
use base::{Error, Kind, Name, Result};

/// The access list: says who may use the inode.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The default list of a directory: the lists of new objects in it derive from it.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
const _: () = assert!(HEADER_BYTES + ENTRY_BYTES * ACL_ENTRIES_MAX <= XATTR_VALUE_BYTES_MAX);

/// Kinds of entries, in the order in which they stand in a list.
mod tag {
    pub const OWNER: u16 = 0x01;
    pub const USER: u16 = 0x02;
    pub const OWNING_GROUP: u16 = 0x04;
    pub const GROUP: u16 = 0x08;
    pub const MASK: u16 = 0x10;
    pub const OTHER: u16 = 0x20;
}

/// Read, write, execute.
const PERMISSIONS: u16 = 0o7;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    tag: u16,
    permissions: u16,
    /// The user's or group's number; all ones in other entries.
    id: u32,
}

/// A valid list, in this order: owner, users, owning group, groups, mask, others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Acl(Vec<Entry>);

/// The name of the access or the default list.
pub(crate) fn name(of: &[u8]) -> Name {
    Name::of_attribute(of).expect("a good name")
}

impl Acl {
    /// Decodes a list. None: it has no entries, which stands for no list. Errors: `Invalid`, `NoSpace`.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<Acl>> {
        let invalid = || Error::new(Kind::Invalid, "not an access control list");
        let (version, entries) = bytes.split_at_checked(HEADER_BYTES).ok_or_else(invalid)?;
        if version != VERSION.to_le_bytes() || entries.len() % ENTRY_BYTES != 0 {
            return Err(invalid());
        }
        if entries.len() / ENTRY_BYTES > ACL_ENTRIES_MAX {
            return Err(Error::new(Kind::NoSpace, "an access control list has too many entries"));
        }
        let entry = |bytes: &[u8]| Entry {
            tag: u16::from_le_bytes([bytes[0], bytes[1]]),
            permissions: u16::from_le_bytes([bytes[2], bytes[3]]),
            id: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        };
        let acl = Acl(entries.chunks(ENTRY_BYTES).map(entry).collect());
        if acl.0.is_empty() {
            return Ok(None);
        }
        if acl.is_in_order() { Ok(Some(acl)) } else { Err(invalid()) }
    }
    /// Encodes the list.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        assert!(self.is_in_order() && self.0.len() <= ACL_ENTRIES_MAX, "`read` refuses others");
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for Entry { tag, permissions, id } in &self.0 {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&permissions.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        assert!(bytes.len() == HEADER_BYTES + ENTRY_BYTES * self.0.len(), "each entry takes as much as the others");
        bytes
    }
    /// True if tags ascend, only users and groups occur more than once, and there is a mask if any user or group is
    /// named.
    fn is_in_order(&self) -> bool {
        let count = |tag: u16| self.0.iter().filter(|entry| entry.tag == tag).count();
        let known = |entry: &Entry| entry.tag.is_power_of_two() && entry.tag <= tag::OTHER;
        let named = count(tag::USER) + count(tag::GROUP) > 0;
        self.0.iter().all(|entry| known(entry) && entry.permissions & !PERMISSIONS == 0)
            && self.0.is_sorted_by_key(|entry| entry.tag)
            && [tag::OWNER, tag::OWNING_GROUP, tag::OTHER].into_iter().all(|tag| count(tag) == 1)
            && count(tag::MASK) <= 1
            && (!named || count(tag::MASK) == 1)
    }
    /// True if the list says no more than permission bits do.
    pub(crate) fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }
    fn of(&mut self, tag: u16) -> Option<&mut u16> {
        self.0.iter_mut().find(|entry| entry.tag == tag).map(|entry| &mut entry.permissions)
    }
    /// The three classes (owner, group, others): the tag of each class's entry, and the shift of its bits in a mode.
    /// The group class is the mask, if there is one, or else the owning group.
    fn classes(&self) -> [(u16, u32); 3] {
        let masked = self.0.iter().any(|entry| entry.tag == tag::MASK);
        [(tag::OWNER, 6), (if masked { tag::MASK } else { tag::OWNING_GROUP }, 3), (tag::OTHER, 0)]
    }
    /// `mode` with this list's permission bits.
    pub(crate) fn mode(&mut self, mode: u16) -> u16 {
        let classes = self.classes();
        classes.into_iter().fold(mode, |mode, (tag, shift)| {
            let permissions = *self.of(tag).expect("a list in order has all classes");
            mode & !(PERMISSIONS << shift) | permissions << shift
        })
    }
    /// Updates the list for a chmod.
    pub(crate) fn set_mode(&mut self, mode: u16) {
        for (tag, shift) in self.classes() {
            *self.of(tag).expect("a list in order has all classes") = mode >> shift & PERMISSIONS;
        }
    }
    /// Turns a default list into the access list of an object that is created with `mode`: each class (owner, group or
    /// mask, others) keeps only permissions that both the default list and `mode` grant. Returns the resulting mode.
    pub(crate) fn inherit(&mut self, mode: u16) -> u16 {
        for (tag, shift) in self.classes() {
            *self.of(tag).expect("a list in order has all classes") &= mode >> shift & PERMISSIONS;
        }
        self.mode(mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16)]) -> Vec<u8> {
        let entry = |(tag, permissions): &(u16, u16)| [*tag, *permissions, u16::MAX, u16::MAX].map(u16::to_le_bytes);
        let entries = entries.iter().flat_map(entry).flatten();
        VERSION.to_le_bytes().into_iter().chain(entries).collect()
    }

    #[test]
    fn only_lists_in_order_are_taken() {
        let plain = [(1, 7), (4, 5), (32, 0)];
        assert!(Acl::read(&acl(&plain)).expect("in order").expect("has entries").is_minimal());
        assert_eq!(Acl::read(&acl(&[])), Ok(None));
        let masked = [(1, 7), (2, 6), (2, 4), (4, 5), (8, 1), (16, 4), (32, 0)];
        let read = Acl::read(&acl(&masked)).expect("in order").expect("has entries");
        assert!(!read.is_minimal());
        assert_eq!(read.bytes(), acl(&masked));
        let wrong: [&[(u16, u16)]; 7] = [
            &[(1, 7), (4, 5)],
            &[(4, 5), (1, 7), (32, 0)],
            &[(1, 7), (1, 7), (4, 5), (32, 0)],
            &[(1, 7), (2, 6), (4, 5), (32, 0)],
            &[(1, 8), (4, 5), (32, 0)],
            &[(1, 7), (4, 5), (32, 0), (64, 0)],
            &[(1, 7), (3, 7), (4, 5), (16, 7), (32, 0)],
        ];
        assert!(wrong.into_iter().all(|wrong| Acl::read(&acl(wrong)).is_err_and(|error| error.kind == Kind::Invalid)));
        let many = acl(&vec![(2, 6); ACL_ENTRIES_MAX + 1]);
        assert!(Acl::read(&many).is_err_and(|error| error.kind == Kind::NoSpace));
        assert!((1..8).all(|cut| Acl::read(&many[..many.len() - cut]).is_err()));
        assert!(Acl::read(&[1, 0, 0, 0]).is_err());
    }

    /// Bits and list follow each other as in acl(5): if there is a mask, the group's bits are the mask's.
    #[test]
    fn bits_and_list_follow_each_other() {
        let masked = [(1, 7), (2, 6), (4, 5), (16, 4), (32, 1)];
        let read = |entries: &[(u16, u16)]| Acl::read(&acl(entries)).expect("in order").expect("has entries");
        assert_eq!(read(&masked).mode(0o4000), 0o4741);
        let mut changed = read(&masked);
        changed.set_mode(0o620);
        assert_eq!(changed, read(&[(1, 6), (2, 6), (4, 5), (16, 2), (32, 0)]));
        let mut plain = read(&[(1, 7), (4, 5), (32, 0)]);
        assert_eq!(plain.mode(0), 0o750);
        plain.set_mode(0o111);
        assert_eq!(plain, read(&[(1, 1), (4, 1), (32, 1)]));
        let mut inherited = read(&masked);
        assert_eq!(inherited.inherit(0o2666), 0o2640);
        assert_eq!(inherited, read(&[(1, 6), (2, 6), (4, 5), (16, 4), (32, 0)]));
    }
}
