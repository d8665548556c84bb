//! The way down from a directory or a device: mounts, partitions, loop devices, device mapper, arrays, disks.

use super::Tree;
use crate::doctor::facts::{Block, Host, Layer, Role};
use crate::host::{MountEntry, parse_mounts};
use std::path::{Path, PathBuf};

/// Number of layers after which nobody follows any more: a tree that says of itself that it lies on itself.
const LAYERS_MAX: usize = 64;

/// The layers below a path.
pub fn of_path(tree: &Tree, path: &Path) -> Vec<Layer> {
    let mut way = Way::new(tree);
    way.path(path);
    way.layers
}

/// The layers from a block device on.
pub fn of_number(tree: &Tree, number: &str) -> Vec<Layer> {
    let mut way = Way::new(tree);
    way.number(number);
    way.layers
}

/// The way that was found so far.
struct Way<'a> {
    tree: &'a Tree,
    mounts: Vec<MountEntry>,
    layers: Vec<Layer>,
}

impl Way<'_> {
    fn new(tree: &Tree) -> Way<'_> {
        let table = tree.bytes("proc/self/mountinfo").unwrap_or_default();
        Way { tree, mounts: parse_mounts(&table), layers: Vec::new() }
    }

    fn path(&mut self, path: &Path) {
        // Of mounts at one point the last is seen.
        let above = self.mounts.iter().filter(|mount| path.starts_with(&mount.point));
        let Some(mount) = above.max_by_key(|mount| mount.point.components().count()).cloned() else { return };
        let point = mount.point.display().to_string();
        let known = |layer: &Layer| matches!(layer, Layer::Host(host) if host.point == point);
        if self.layers.len() >= LAYERS_MAX || self.layers.iter().any(known) {
            return;
        }
        let options = mount.options.split(',').map(str::to_string).collect();
        self.layers.push(Layer::Host(Host { kind: mount.kind, point, options, room: None }));
        // File systems of several devices have a number of their own, which is no device's; their source is one of them.
        if !mount.device.starts_with("0:") {
            self.number(&mount.device);
        } else if let Some(name) = mount.source.strip_prefix("/dev/") {
            let real = self.tree.resolved(&mount.source);
            let name = real.as_deref().and_then(Path::file_name).map_or(name.into(), |name| name.to_string_lossy());
            if let Some(number) = self.tree.text(Path::new("sys/class/block").join(name.as_ref()).join("dev")) {
                self.number(&number);
            }
        }
    }

    fn number(&mut self, number: &str) {
        let is_number = number.split_once(':').is_some_and(|(major, minor)| {
            [major, minor].iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
        });
        if is_number && let Some(directory) = self.tree.resolved(Path::new("sys/dev/block").join(number)) {
            self.directory(&directory);
        }
    }

    /// Adds the device of a directory of sysfs, and all below it.
    fn directory(&mut self, directory: &Path) {
        let tree = self.tree;
        let Some(name) = directory.file_name().map(|name| name.to_string_lossy().into_owned()) else { return };
        let known = |layer: &Layer| matches!(layer, Layer::Block(block) if block.name == name);
        if self.layers.len() >= LAYERS_MAX || self.layers.iter().any(known) {
            return;
        }
        let mut block = block(tree, directory, name);
        if tree.has(directory.join("partition")) {
            let sectors = tree.number::<u64>(directory.join("start"));
            block.role = Role::Partition { start_bytes: sectors.and_then(|sectors| sectors.checked_mul(512)) };
            self.layers.push(Layer::Block(Box::new(block)));
            if let Some(whole) = directory.parent() {
                self.directory(whole);
            }
        } else if tree.has(directory.join("loop")) {
            let file = tree.text(directory.join("loop/backing_file"));
            let direct = tree.switch(directory.join("loop/dio"));
            block.role = Role::Loop { file: file.clone(), direct };
            self.layers.push(Layer::Block(Box::new(block)));
            if let Some(file) = file {
                self.path(Path::new(&file));
            }
        } else {
            let below = tree.names(directory.join("slaves")).unwrap_or_default();
            if !below.is_empty() {
                let of = ["dm/name", "md/level"].iter().find_map(|file| tree.text(directory.join(file)));
                block.role = Role::Made { of: of.unwrap_or_else(|| "several".to_string()) };
            }
            self.layers.push(Layer::Block(Box::new(block)));
            for name in below {
                if let Some(directory) = tree.resolved(directory.join("slaves").join(name)) {
                    self.directory(&directory);
                }
            }
        }
    }
}

/// All that sysfs tells of a block device but its role.
fn block(tree: &Tree, directory: &Path, name: String) -> Block {
    let queue = |file: &str| directory.join("queue").join(file);
    // The driver's own account of the cache: virtio has it at the disk, SCSI below the device.
    let scsi = tree.names(directory.join("device/scsi_disk")).unwrap_or_default();
    let of_scsi = scsi.first().map(|address| directory.join("device/scsi_disk").join(address).join("cache_type"));
    Block {
        number: tree.text(directory.join("dev")).unwrap_or_default(),
        role: Role::Disk,
        rotational: tree.switch(queue("rotational")),
        scheduler: tree.text(queue("scheduler")),
        write_cache: tree.text(queue("write_cache")),
        device_cache: tree.text(of_scsi.unwrap_or_else(|| directory.join("cache_type"))),
        fua: tree.switch(queue("fua")),
        discard_bytes_max: tree.number(queue("discard_max_bytes")),
        requests: tree.number(queue("nr_requests")),
        queues: tree.names(directory.join("mq")).map(|queues| queues.len() as u64),
        device_depth: tree.number(directory.join("device/queue_depth")),
        logical_bytes: tree.number(queue("logical_block_size")),
        physical_bytes: tree.number(queue("physical_block_size")),
        misaligned_bytes: tree.number::<i64>(directory.join("alignment_offset")).map(i64::unsigned_abs),
        iommu: iommu(tree, directory),
        name,
    }
}

/// The IOMMU's group of the device above a disk in sysfs, and the type of its domain.
fn iommu(tree: &Tree, directory: &Path) -> Option<(String, String)> {
    let link = directory.ancestors().map(|above| above.join("iommu_group")).find(|link| tree.has(link))?;
    let group: PathBuf = tree.resolved(link)?;
    let number = group.file_name()?.to_string_lossy().into_owned();
    Some((tree.text(group.join("type"))?, number))
}
