//! The layers that a volume may have between its clients and its groups, as the catalogue holds them. `layer` runs them.

use crate::error::{Error, Kind, Result};
use crate::limits::{LAYER_DELAY_NS_MAX, LAYER_EVERY_MAX};
use crate::op::{OP_NAMES, Op};

/// A layer and its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layer {
    /// Refuses changes.
    ReadOnly,
    /// Holds operations for a time.
    Delay { operations: Operations, ns: u64 },
    /// Answers every `every`th of its operations with an error.
    Fault { operations: Operations, kind: Kind, every: u64 },
}

impl Layer {
    /// The layer's name in commands and tables.
    pub fn name(&self) -> &'static str {
        match self {
            Layer::ReadOnly => "read-only",
            Layer::Delay { .. } => "delay",
            Layer::Fault { .. } => "fault",
        }
    }
    /// Checks the parameters. Errors: `Invalid`.
    pub fn checked(self) -> Result<Layer> {
        match self {
            Layer::Delay { ns, .. } if !(1..=LAYER_DELAY_NS_MAX).contains(&ns) => {
                Err(Error::new(Kind::Invalid, "a delay layer holds operations for at most 60,000 milliseconds"))
            }
            Layer::Fault { every, .. } if !(1..=LAYER_EVERY_MAX).contains(&every) => {
                Err(Error::new(Kind::Invalid, "a fault layer fails one operation in 1 to 1,000,000,000"))
            }
            layer => Ok(layer),
        }
    }
}

/// The operations that a layer acts on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operations {
    /// All whose answers clients wait for.
    All,
    /// Those of one name.
    Named(&'static str),
}

/// Operations whose answers nobody waits for: a client would not notice what a layer does to them, and the brick would keep for
/// the client what that has given back.
const UNANSWERED: [&str; 2] = ["release", "forget"];

impl Operations {
    /// The names that a layer may act on: of operations within a volume, whose answers clients wait for.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let is_meant = |name: &&'static str| !name.starts_with("volume-") && !UNANSWERED.contains(name);
        OP_NAMES.iter().copied().filter(is_meant)
    }
    /// The operations of this name; all without one. Errors: `Invalid`.
    pub fn of(name: Option<&str>) -> Result<Operations> {
        let Some(wanted) = name else { return Ok(Operations::All) };
        let known = Operations::names().find(|name| *name == wanted).map(Operations::Named);
        known.ok_or_else(|| Error::new(Kind::Invalid, "no operation that a layer acts on has this name").with(wanted))
    }
    /// The name; None for all.
    pub fn name(&self) -> Option<&'static str> {
        match self {
            Operations::All => None,
            Operations::Named(name) => Some(name),
        }
    }
    /// True if the operation is one of them.
    pub fn include(&self, op: &Op) -> bool {
        match self {
            Operations::All => !UNANSWERED.contains(&op.name()),
            Operations::Named(name) => *name == op.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ino;

    #[test]
    fn operations_are_known_by_their_names() {
        assert_eq!(Operations::of(None), Ok(Operations::All));
        assert_eq!(Operations::of(Some("read")), Ok(Operations::Named("read")));
        for name in ["", "fly", "Read", "release", "forget", "volume-create"] {
            assert_eq!(Operations::of(Some(name)).map_err(|error| error.kind), Err(Kind::Invalid), "{name}");
        }
        let (look, release) = (Op::GetAttr { ino: Ino(2) }, Op::Release { ino: Ino(2) });
        assert!(Operations::All.include(&look) && !Operations::All.include(&release));
        assert!(Operations::Named("getattr").include(&look) && !Operations::Named("read").include(&look));
    }

    #[test]
    fn parameters_have_bounds() {
        let delay = |ns| Layer::Delay { operations: Operations::All, ns }.checked().is_ok();
        assert_eq!([0, 1, LAYER_DELAY_NS_MAX, LAYER_DELAY_NS_MAX + 1].map(delay), [false, true, true, false]);
        let fault = |every| Layer::Fault { operations: Operations::All, kind: Kind::Io, every }.checked().is_ok();
        assert_eq!([0, 1, LAYER_EVERY_MAX, LAYER_EVERY_MAX + 1].map(fault), [false, true, true, false]);
    }

    #[test]
    fn every_kind_of_error_has_a_name_of_its_own() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of_name(kind.name()), Some(kind));
        }
        assert_eq!(Kind::of_name("fine"), None);
    }
}
