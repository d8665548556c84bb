//! Limits of what a volume's clients get in a second, and their share where several volumes want the same core, as the catalogue
//! holds them. `layer` keeps requests to them.

use crate::error::{Error, Kind, Result};
use crate::ids::Ino;
use crate::limits::{
    LIMIT_BANDWIDTH_MAX, LIMIT_BANDWIDTH_MIN, LIMIT_BURST_MS_MAX, LIMIT_IOPS_MAX, LIMITED_TREES_MAX, RESERVE_MAX,
    WEIGHT_MAX,
};
use std::collections::BTreeMap;

/// A limit that a volume may have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Limit {
    /// Operations per second.
    Iops,
    /// Bytes read and written per second.
    Bandwidth,
    /// Operations that change nothing, per second.
    ReadIops,
    /// Bytes read per second.
    ReadBandwidth,
    /// Operations that change something, per second.
    WriteIops,
    /// Bytes written per second.
    WriteBandwidth,
    /// Milliseconds of unused time that clients may catch up on at once: belongs to all other limits of the volume.
    Burst,
    /// The weight of the volume's share of a core that other volumes want too.
    Weight,
    /// The share of the brick that the volume has at least while it wants it, in percent.
    Reserve,
}

impl Limit {
    /// All, in the order of tables.
    pub const ALL: [Limit; 9] = [
        Limit::Iops,
        Limit::Bandwidth,
        Limit::ReadIops,
        Limit::ReadBandwidth,
        Limit::WriteIops,
        Limit::WriteBandwidth,
        Limit::Burst,
        Limit::Weight,
        Limit::Reserve,
    ];

    /// The name in commands, tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Iops => "iops-max",
            Limit::Bandwidth => "bandwidth-max",
            Limit::ReadIops => "read-iops-max",
            Limit::ReadBandwidth => "read-bandwidth-max",
            Limit::WriteIops => "write-iops-max",
            Limit::WriteBandwidth => "write-bandwidth-max",
            Limit::Burst => "burst",
            Limit::Weight => "weight",
            Limit::Reserve => "reserve",
        }
    }
    /// The limit of this name. Errors: `Invalid`.
    pub fn of(name: &str) -> Result<Limit> {
        let known = Limit::ALL.into_iter().find(|limit| limit.name() == name);
        known.ok_or_else(|| Error::new(Kind::Invalid, "no limit of a volume has this name").with(name))
    }
    /// True if it bounds what passes in a second.
    pub fn is_rate(self) -> bool {
        !matches!(self, Limit::Burst) && !self.is_share()
    }
    /// True if it says what the volume gets of the brick beside other volumes, which no directory tree has.
    pub fn is_share(self) -> bool {
        matches!(self, Limit::Weight | Limit::Reserve)
    }
    /// True if its values are bytes.
    pub fn is_bandwidth(self) -> bool {
        matches!(self, Limit::Bandwidth | Limit::ReadBandwidth | Limit::WriteBandwidth)
    }
    /// Checks a value; 0 stands for no limit. Errors: `Invalid`.
    pub fn check(self, value: u64) -> Result<()> {
        let (least, most, what) = match self {
            Limit::Iops | Limit::ReadIops | Limit::WriteIops => {
                (1, LIMIT_IOPS_MAX, "a volume has 1 to 1,000,000,000 operations per second, or no limit")
            }
            Limit::Bandwidth | Limit::ReadBandwidth | Limit::WriteBandwidth => {
                (LIMIT_BANDWIDTH_MIN, LIMIT_BANDWIDTH_MAX, "a volume has 64 KiB to 1 TiB per second, or no limit")
            }
            Limit::Burst => (1, LIMIT_BURST_MS_MAX, "a burst has 1 to 60,000 milliseconds, or is as usual"),
            Limit::Weight => (1, WEIGHT_MAX, "a weight is 1 to 1,000, or as usual"),
            Limit::Reserve => (1, RESERVE_MAX, "1 to 90 percent of a brick can be reserved, or nothing"),
        };
        let is_fine = value == 0 || (least..=most).contains(&value);
        if is_fine { Ok(()) } else { Err(Error::new(Kind::Invalid, what).with(value)) }
    }
}

/// A volume's limits. Most volumes have none, and replies carry volumes by value: so they are behind a pointer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Limits(Option<Box<Present>>);

// With the trees beside the pointer each request took 60 instructions more.
const _: () = assert!(size_of::<Limits>() == size_of::<usize>());

/// The limits of a volume that has some.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Present {
    /// Values by `Limit`; 0: none.
    values: [u64; Limit::ALL.len()],
    /// Limits of directory trees, by project.
    trees: BTreeMap<u32, Tree>,
}

/// The limits of a directory tree, all of whose inodes belong to one project.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    /// The directory at its top.
    pub top: Ino,
    /// Its limits: rates and a burst.
    pub limits: Limits,
}

impl Limits {
    /// Nothing is limited, and nothing is said of bursts.
    pub const NONE: Limits = Limits(None);

    /// Those that say something.
    fn of(present: Present) -> Limits {
        Limits(Some(present).filter(|present| *present != Present::default()).map(Box::new))
    }
    /// The value of a limit, if the volume has it.
    pub fn get(&self, limit: Limit) -> Option<u64> {
        self.0.as_ref().map(|present| present.values[limit as usize]).filter(|value| *value > 0)
    }
    /// The limits that the volume has.
    pub fn all(&self) -> impl Iterator<Item = (Limit, u64)> {
        Limit::ALL.into_iter().filter_map(|limit| self.get(limit).map(|value| (limit, value)))
    }
    /// These, with some changed; a value of 0 takes a limit away. Errors: `Invalid`.
    pub fn with(self, changed: &[(Limit, u64)]) -> Result<Limits> {
        let mut present = *self.0.unwrap_or_default();
        for (limit, value) in changed {
            limit.check(*value)?;
            present.values[*limit as usize] = *value;
        }
        Ok(Limits::of(present))
    }
    /// The trees that have limits of their own, by project.
    pub fn trees(&self) -> impl Iterator<Item = (u32, &Tree)> {
        self.0.iter().flat_map(|present| &present.trees).map(|(project, tree)| (*project, tree))
    }
    /// These, with some limits of a tree changed; a value of 0 takes a limit away, and a tree without any is none. Errors: `Invalid`.
    pub fn with_tree(self, project: u32, top: Ino, changed: &[(Limit, u64)]) -> Result<Limits> {
        if project == 0 || changed.iter().any(|(limit, _)| limit.is_share()) {
            return Err(Error::new(Kind::Invalid, "a tree has a project of its own and no share").with(project));
        }
        let mut present = *self.0.unwrap_or_default();
        let trees = &mut present.trees;
        let before = trees.remove(&project).map_or(Limits::NONE, |tree| tree.limits);
        let limits = before.with(changed)?;
        if limits != Limits::NONE {
            trees.insert(project, Tree { top, limits });
        }
        if trees.len() > LIMITED_TREES_MAX {
            return Err(Error::new(Kind::Invalid, "a volume has at most 64 directory trees with limits"));
        }
        Ok(Limits::of(present))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_set_and_taken_away_one_by_one() {
        let some = Limits::NONE.with(&[(Limit::Iops, 1000), (Limit::WriteBandwidth, 1 << 20)]).expect("within bounds");
        assert_eq!(some.all().collect::<Vec<_>>(), [(Limit::Iops, 1000), (Limit::WriteBandwidth, 1 << 20)]);
        let fewer = some.clone().with(&[(Limit::Iops, 0), (Limit::Burst, 50)]).expect("within bounds");
        assert_eq!((fewer.get(Limit::Iops), fewer.get(Limit::Burst)), (None, Some(50)));
        assert_eq!(fewer.clone().with(&[(Limit::Burst, 0), (Limit::WriteBandwidth, 0)]), Ok(Limits::NONE));
    }

    #[test]
    fn trees_have_limits_of_their_own() {
        let tree = |limits: Limits, changed: &[_]| limits.with_tree(7, Ino(9), changed);
        let some = Limits::NONE.with(&[(Limit::Iops, 100)]).expect("within bounds");
        let both = tree(some.clone(), &[(Limit::Iops, 5)]).expect("within bounds");
        let (project, Tree { top, limits }) = both.trees().next().expect("it has one");
        assert_eq!((project, *top, limits.get(Limit::Iops), both.get(Limit::Iops)), (7, Ino(9), Some(5), Some(100)));
        assert_eq!(both.clone().with(&[(Limit::Iops, 0)]).expect("within bounds").trees().count(), 1);
        assert_eq!(tree(both, &[(Limit::Iops, 0)]), Ok(some.clone()));
        assert!([Limit::Weight, Limit::Reserve].iter().all(|share| tree(some.clone(), &[(*share, 5)]).is_err()));
        assert!(some.clone().with_tree(0, Ino(9), &[(Limit::Iops, 5)]).is_err());
        let many = |count: u32| {
            (1..=count).try_fold(some.clone(), |limits, project| limits.with_tree(project, Ino(9), &[(Limit::Iops, 5)]))
        };
        assert!(many(LIMITED_TREES_MAX as u32).is_ok() && many(LIMITED_TREES_MAX as u32 + 1).is_err());
    }

    #[test]
    fn values_out_of_bounds_change_nothing() {
        let bounds = [
            (Limit::Iops, 1, LIMIT_IOPS_MAX),
            (Limit::ReadBandwidth, LIMIT_BANDWIDTH_MIN, LIMIT_BANDWIDTH_MAX),
            (Limit::Burst, 1, LIMIT_BURST_MS_MAX),
            (Limit::Weight, 1, WEIGHT_MAX),
            (Limit::Reserve, 1, RESERVE_MAX),
        ];
        for (limit, least, most) in bounds {
            let is_fine = |value| Limits::NONE.with(&[(limit, value)]).is_ok();
            assert_eq!([0, least, most].map(is_fine), [true; 3], "{limit:?}");
            assert_eq!([most + 1, u64::MAX].map(is_fine), [false; 2], "{limit:?}");
            assert!(least == 1 || !is_fine(least - 1));
        }
    }

    #[test]
    fn every_limit_is_known_by_its_name() {
        assert!(Limit::ALL.iter().enumerate().all(|(at, limit)| *limit as usize == at));
        assert!(Limit::ALL.into_iter().all(|limit| Limit::of(limit.name()) == Ok(limit)));
        assert_eq!(Limit::of("speed").map_err(|error| error.kind), Err(Kind::Invalid));
    }
}
