//! Changes of a volume's properties, as the admin socket asks for them: durable when they return.

use crate::assembly::Brick;
use base::{Limit, Name, Op, Result};
use explain::snapshot::{LimitFigures, Tenant};
use layer::LimitSummary;
use std::collections::BTreeMap;

impl Brick {
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
    /// Changes some of a volume's limits, by their names, first durably, then for all that waits and all that comes; 0 takes one away. One
    /// change at a time. Errors: `Invalid`.
    pub fn set_limits(&self, name: &str, changed: &BTreeMap<String, u64>) -> Result<base::Volume> {
        let changed = changed.iter().map(|(limit, value)| Ok((Limit::of(limit)?, *value))).collect::<Result<_>>()?;
        let volume = self.change_volume(Op::VolumeLimits { name: Name::new(name.as_bytes())?, changed })?;
        self.stack(&volume).limit(&volume.limits);
        Ok(volume)
    }
    /// The figures of a volume's limits; None if it has none and nothing was ever held.
    pub fn limits(&self, volume: &base::Volume) -> Option<LimitFigures> {
        let LimitSummary { held, held_ns, waiting } = self.stack(volume).held();
        let set = named(volume.limits.all());
        let volume = String::from_utf8_lossy(volume.name.as_bytes()).into_owned();
        (held > 0 || !set.is_empty()).then_some(LimitFigures { volume, set, held, held_ns, waiting })
    }
    /// A volume's share of the cores.
    pub fn tenant(&self, volume: &base::Volume) -> Tenant {
        let name = String::from_utf8_lossy(volume.name.as_bytes()).into_owned();
        Tenant { volume: name, served_ns: self.stack(volume).flow().served_ns() }
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
