//! Changes of a volume's properties, as the admin socket asks for them: durable when they return.

use crate::assembly::Brick;
use crate::network::VOLUME as HIDDEN;
use base::{Error, Kind, Limit, Name, Op, Reply, Result};
use explain::snapshot::LimitFigures;
use layer::LimitSummary;
use std::collections::BTreeMap;

impl Brick {
    /// All volumes, by name.
    pub fn volumes(&self) -> Result<Vec<base::Volume>> {
        match self.call(Op::VolumeList)? {
            Reply::Volumes(mut volumes) => {
                // No volume of an operator's has such a name.
                volumes.retain(|volume| volume.name.as_bytes() != HIDDEN.as_bytes());
                volumes.sort_by(|one, other| one.name.cmp(&other.name));
                Ok(volumes)
            }
            other => panic!("a list of volumes is answered with one, not {other:?}"),
        }
    }
    /// The volume of this name. Errors: `NotFound`.
    pub fn volume(&self, name: &str) -> Result<base::Volume> {
        let wanted = Name::new(name.as_bytes())?;
        let found = self.volumes()?.into_iter().find(|volume| volume.name == wanted);
        found.ok_or_else(|| Error::new(Kind::NotFound, "no volume of this name (sinter volume list)").with(name))
    }
    /// Creates a volume; durable when this returns.
    pub fn create_volume(&self, name: &Name, size_bytes: Option<u64>) -> Result<base::Volume> {
        self.change_volume(Op::VolumeCreate { name: name.clone(), size_bytes })
    }
    /// Makes or changes a volume by an operation that says how it is then; durable when this returns.
    pub(crate) fn change_volume(&self, op: Op) -> Result<base::Volume> {
        match self.call(op)? {
            Reply::Volume(volume) => {
                self.call(Op::SyncAll)?;
                Ok(volume)
            }
            other => panic!("a volume that is made or changed is answered with it, not {other:?}"),
        }
    }
    /// Gives a volume another name.
    pub fn rename_volume(&self, name: &str, new_name: &str) -> Result<base::Volume> {
        let [name, new_name] = [name, new_name].map(|text| Name::new(text.as_bytes()));
        self.change_volume(Op::VolumeRename { name: name?, new_name: new_name? })
    }
    /// Gives a volume another size. Errors: `Invalid` if it uses more than that.
    pub fn resize_volume(&self, name: &str, size_bytes: Option<u64>) -> Result<base::Volume> {
        self.change_volume(Op::VolumeResize { name: Name::new(name.as_bytes())?, size_bytes })
    }
    /// Gives a volume another tier policy.
    pub fn set_policy(&self, name: &str, policy: &str) -> Result<base::Volume> {
        let policy = base::TierPolicy::of(policy)?;
        self.change_volume(Op::VolumePolicy { name: Name::new(name.as_bytes())?, policy })
    }
    /// Changes some of a volume's limits, or of a directory tree's, by their names, first durably, then for all that waits and all that comes; 0 takes one away. One
    /// change at a time. Errors: `Invalid`.
    pub fn set_limits(&self, name: &str, tree: Option<&str>, changed: &BTreeMap<String, u64>) -> Result<base::Volume> {
        let changed = changed.iter().map(|(limit, value)| Ok((Limit::of(limit)?, *value))).collect::<Result<_>>()?;
        if let Some(path) = tree {
            return self.set_tree_limits(name, path, changed);
        }
        let volume = self.change_volume(Op::VolumeLimits { name: Name::new(name.as_bytes())?, tree: None, changed })?;
        self.stack(&volume).limit(&volume.limits);
        Ok(volume)
    }
    /// The figures of the limits of a volume and of its trees, without those that there are none of and that never held anything.
    pub fn limits(&self, volume: &base::Volume) -> Vec<LimitFigures> {
        let name = String::from_utf8_lossy(volume.name.as_bytes());
        let figures = |tree: String, limits: &base::Limits, LimitSummary { held, held_ns, waiting }| LimitFigures {
            volume: name.clone().into_owned(),
            tree,
            set: named(limits.all()),
            held,
            held_ns,
            waiting,
        };
        let stack = self.stack(volume);
        let mut all = vec![figures(String::new(), &volume.limits, stack.held())];
        let held = stack.held_in_trees();
        all.extend(self.trees(volume).into_iter().filter_map(|(path, project, tree)| {
            let (_, summary) = held.iter().find(|(other, _)| *other == project)?;
            Some(figures(path.unwrap_or_else(|| format!("inode {}", tree.top)), &tree.limits, *summary))
        }));
        all.retain(|limits| limits.held > 0 || !limits.set.is_empty());
        all
    }
    /// Lets all that waits for limits pass, and holds nothing any more until the daemon has ended.
    pub fn lift_limits(&self) {
        self.each_stack(|stack| stack.limit(&base::Limits::NONE));
    }
}

/// Limits by their names, as the admin socket and snapshots have them.
pub fn named(limits: impl Iterator<Item = (Limit, u64)>) -> BTreeMap<String, u64> {
    limits.map(|(limit, value)| (limit.name().to_string(), value)).collect()
}
