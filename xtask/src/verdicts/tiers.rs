//! The devices of hybrid bricks: a loop device as flash, and for each size of disk that is wanted one of the model.

use super::cause::{Cause, Tiers, plan};
use crate::disk::{Disks, Place};
use crate::flash::ground::Ground;
use crate::flash::undo::Undo;
use crate::hybrid::brick::{SEGMENT_SIZE, SMALL_FLASH_BYTES, flash_device};
use std::collections::BTreeMap;

/// The devices.
pub struct Devices {
    flash: String,
    /// The disks, by their size in that of the flash.
    disks: BTreeMap<u64, (String, Place)>,
}

impl Devices {
    /// The bytes that devices of these causes need.
    pub fn needed_bytes(causes: &[Cause]) -> u64 {
        let sizes = sizes(causes);
        if sizes.is_empty() { 0 } else { SMALL_FLASH_BYTES * (1 + sizes.iter().sum::<u64>()) }
    }
    /// Makes what these causes need, below the ground's root; None if they need nothing.
    pub fn make(causes: &[Cause], ground: &Ground, undo: &Undo) -> Result<Option<Devices>, String> {
        let sizes = sizes(causes);
        if sizes.is_empty() {
            return Ok(None);
        }
        let flash = flash_device(&ground.root.join("flash"), SMALL_FLASH_BYTES, undo)?;
        let disks = Disks::below(&ground.root.join("disks"))?;
        let made = |times: u64| {
            let name = format!("disk-{times}");
            let device = disks.make_during(undo, &name, SMALL_FLASH_BYTES * times)?;
            Ok((times, (device, disks.place(&name))))
        };
        Ok(Some(Devices { flash, disks: sizes.into_iter().map(made).collect::<Result<_, String>>()? }))
    }
    /// The words of `sinter format` for a brick on them.
    pub fn words(&self, tiers: &Tiers) -> [&str; 7] {
        let (disk, _) = &self.disks[&tiers.disk_times];
        ["--force", "--segment-size", SEGMENT_SIZE, "--flash", &self.flash, "--disk", disk]
    }
    /// Makes all that a brick's disk does take so many times as long.
    pub fn set_slowness(&self, tiers: &Tiers, slowness: u64) -> Result<(), String> {
        self.disks[&tiers.disk_times].1.set_slowness(slowness)
    }
}

fn sizes(causes: &[Cause]) -> Vec<u64> {
    let mut sizes: Vec<u64> =
        causes.iter().filter_map(|cause| plan(*cause, 0).setup.tiers).map(|tiers| tiers.disk_times).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}
