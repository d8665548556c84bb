//! A directory entry's name: 1..=255 bytes, any but '/' and NUL; not necessarily UTF-8. Or an extended attribute's.

use crate::error::{Error, Kind, Result};
use crate::limits::{NAME_BYTES_MAX, XATTR_NAME_BYTES_MAX};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// Inline, so that an operation that carries names allocates nothing.
#[derive(Clone, Copy)]
pub struct Name {
    length: u8,
    bytes: [u8; NAME_BYTES_MAX],
}

impl Name {
    /// Checks and copies a name. Errors: `NameTooLong` above 255 bytes; `Invalid` when empty, `.`, `..`, or
    /// when it contains '/' or NUL.
    pub fn new(name: &[u8]) -> Result<Name> {
        if name.len() > NAME_BYTES_MAX {
            return Err(Error::new(Kind::NameTooLong, "a name has at most 255 bytes"));
        }
        if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0) {
            return Err(Error::new(Kind::Invalid, "not a name of a directory entry"));
        }
        Ok(Name::copied(name))
    }
    /// Checks and copies an extended attribute's name, namespace included: any bytes but NUL. Errors: `NameTooLong`,
    /// `Invalid`.
    pub fn of_attribute(name: &[u8]) -> Result<Name> {
        if name.len() > XATTR_NAME_BYTES_MAX {
            return Err(Error::new(Kind::NameTooLong, "an attribute's name has at most 255 bytes"));
        }
        if name.is_empty() || name.contains(&0) {
            return Err(Error::new(Kind::Invalid, "not a name of an attribute"));
        }
        Ok(Name::copied(name))
    }
    fn copied(name: &[u8]) -> Name {
        let mut bytes = [0; NAME_BYTES_MAX];
        bytes[..name.len()].copy_from_slice(name);
        Name { length: name.len() as u8, bytes }
    }
    /// The name's bytes, without terminator.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}
impl Eq for Name {}
impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Name {
    fn cmp(&self, other: &Name) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}
impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}
impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.as_bytes()))
    }
}
