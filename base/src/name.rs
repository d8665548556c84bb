//! The name of a directory entry: 1..=255 bytes, any but '/' and NUL, not necessarily UTF-8. Also the name of an
//! extended attribute.

use crate::error::{Error, Kind, Result};
use crate::limits::{NAME_BYTES_MAX, XATTR_NAME_BYTES_MAX};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Longest name that lies inline, so that an operation which carries it allocates nothing; nearly all names are that
/// short. With its length and form, a name takes 40 bytes. A request is moved in memory several times, and every
/// request is as large as a rename with its two names: when a name took 256 bytes, these moves were a third of a
/// getattr's instructions.
const INLINE_BYTES_MAX: usize = 38;

const _: () = assert!(INLINE_BYTES_MAX < NAME_BYTES_MAX && size_of::<Name>() == 40);

/// A name. Cloning it allocates nothing, whatever its length.
#[derive(Clone)]
pub struct Name(Form);

/// The form of a name in memory. The length alone decides on the form, so equal names have equal forms.
#[derive(Clone)]
enum Form {
    Inline { length: u8, bytes: [u8; INLINE_BYTES_MAX] },
    Shared(Arc<[u8]>),
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
        if name.len() > INLINE_BYTES_MAX {
            return Name(Form::Shared(name.into()));
        }
        let mut bytes = [0; INLINE_BYTES_MAX];
        bytes[..name.len()].copy_from_slice(name);
        Name(Form::Inline { length: name.len() as u8, bytes })
    }
    /// The name's bytes, without terminator.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Form::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Form::Shared(bytes) => bytes,
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{BuildHasher, RandomState};

    /// Lengths at which the form or the validity changes.
    const LENGTHS: [usize; 5] = [1, INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1, NAME_BYTES_MAX - 1, NAME_BYTES_MAX];

    fn name(bytes: &[u8]) -> Name {
        Name::new(bytes).expect("a good name")
    }

    #[test]
    fn names_of_both_forms_keep_their_bytes_and_clones_are_equal() {
        for length in LENGTHS {
            let bytes: Vec<u8> = (0..length).map(|at| b'a' + (at % 26) as u8).collect();
            let name = name(&bytes);
            assert_eq!(matches!(name.0, Form::Inline { .. }), length <= INLINE_BYTES_MAX, "{length} bytes");
            assert_eq!(name.as_bytes(), bytes);
            assert_eq!(name.clone().as_bytes(), bytes);
            assert_eq!(name.clone(), name);
            assert_eq!(Name::of_attribute(&bytes), Ok(name));
        }
        assert_eq!(Name::new(&[b'a'; NAME_BYTES_MAX + 1]).map_err(|error| error.kind), Err(Kind::NameTooLong));
    }

    #[test]
    fn both_forms_are_ordered_and_hashed_by_their_bytes() {
        let state = RandomState::new();
        // A longer name comes before a shorter one whose first byte is greater.
        let all: Vec<Vec<u8>> =
            [b'a', b'b', b'c'].iter().flat_map(|&byte| LENGTHS.map(|length| vec![byte; length])).collect();
        for one in &all {
            for other in &all {
                assert_eq!(name(one).cmp(&name(other)), one.cmp(other));
                assert_eq!(name(one) == name(other), one == other);
            }
            assert_eq!(state.hash_one(name(one)), state.hash_one(one.as_slice()));
        }
    }
}
