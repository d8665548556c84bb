//! The facts that checks look at. `None` is what the machine does not tell; `Default` is a machine that tells nothing.

use std::fmt;

/// All facts.
#[derive(Clone, Default, Debug)]
pub struct Facts {
    /// The brick's parts and what each lies on; empty if no directory was given.
    pub places: Vec<Place>,
    /// CPUs that the kernel has.
    pub cpus: Option<u64>,
    /// Idle states.
    pub idle: Idle,
    /// Frequencies.
    pub frequency: Frequency,
    /// IOMMUs, and the domain types of the machine's groups.
    pub iommu: Iommu,
    /// The kernel itself.
    pub kernel: Kernel,
    /// FUSE.
    pub fuse: Fuse,
    /// `enabled` of transparent huge pages.
    pub huge_pages: Option<String>,
    /// Source of the kernel's clock, and those that it could take.
    pub clock: Clock,
    /// The machine's maker, if it is a virtual one.
    pub hypervisor: Option<Hypervisor>,
    /// The process that serves the brick, or else this one.
    pub process: Process,
    /// Areas of swap.
    pub swap: Option<Vec<Swap>>,
    /// True if a timer trims mounted file systems.
    pub trim_timer: Option<bool>,
    /// Changes within the time of looking.
    pub window: Window,
}

/// A part of the brick, and what it lies on.
#[derive(Clone, Default, Debug)]
pub struct Place {
    /// The part: `brick`, or `index` and `segments` if these lie apart.
    pub holds: &'static str,
    /// File systems and block devices from the top down.
    pub layers: Vec<Layer>,
}

/// A file system or a block device.
#[derive(Clone, Debug)]
pub enum Layer {
    /// A mounted file system.
    Host(Host),
    /// A block device.
    Block(Box<Block>),
}

/// A mounted file system.
#[derive(Clone, Default, Debug)]
pub struct Host {
    /// Its type, as `ext4`.
    pub kind: String,
    /// The point at which it is mounted.
    pub point: String,
    /// All its options.
    pub options: Vec<String>,
    /// Its bytes, known of the one that holds the brick.
    pub room: Option<Room>,
}

/// Bytes of a file system.
#[derive(Clone, Copy, Default, Debug)]
pub struct Room {
    /// All.
    pub all_bytes: u64,
    /// The free ones, without what is kept for others.
    pub free_bytes: u64,
}

/// A block device.
#[derive(Clone, Default, Debug)]
pub struct Block {
    /// The kernel's name.
    pub name: String,
    /// Major and minor number, as `8:0`.
    pub number: String,
    /// The kind of device.
    pub role: Role,
    /// The kernel's claim that it rotates.
    pub rotational: Option<bool>,
    /// `queue/scheduler`.
    pub scheduler: Option<String>,
    /// `queue/write_cache`: whether the kernel sends flushes.
    pub write_cache: Option<String>,
    /// The cache's mode as the driver was told by the device.
    pub device_cache: Option<String>,
    /// True if single writes can be made durable.
    pub fua: Option<bool>,
    /// Largest discard; zero if it takes none.
    pub discard_bytes_max: Option<u64>,
    /// Requests of each queue.
    pub requests: Option<u64>,
    /// Queues to the hardware.
    pub queues: Option<u64>,
    /// Requests that the device itself takes, which SCSI tells.
    pub device_depth: Option<u64>,
    /// Smallest unit of a transfer.
    pub logical_bytes: Option<u64>,
    /// Smallest unit that the device writes without reading first.
    pub physical_bytes: Option<u64>,
    /// Bytes by which its first block is out of step.
    pub misaligned_bytes: Option<u64>,
    /// Type of the domain of its IOMMU's group, and the group's number.
    pub iommu: Option<(String, String)>,
}

/// The kind of a block device.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Role {
    /// The lowest: a disk, real or virtual.
    #[default]
    Disk,
    /// A part of the device below it.
    Partition {
        /// Its first byte there.
        start_bytes: Option<u64>,
    },
    /// A file of the file system below it.
    Loop {
        /// The file.
        file: Option<String>,
        /// True if it bypasses the page cache.
        direct: Option<bool>,
    },
    /// Made of the devices below it: device mapper, RAID.
    Made {
        /// Its name or level.
        of: String,
    },
}

/// Idle states of the CPUs.
#[derive(Clone, Default, Debug)]
pub struct Idle {
    /// The driver.
    pub driver: Option<String>,
    /// States, of all CPUs the worst of each name.
    pub states: Vec<IdleState>,
    /// True if the daemon may bound the time of waking up.
    pub bounded: Option<bool>,
}

/// An idle state.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct IdleState {
    /// Its name.
    pub name: String,
    /// Microseconds until a CPU has left it.
    pub exit_us: u64,
    /// True if it is switched off on all CPUs.
    pub disabled: bool,
}

/// Frequencies of the CPUs.
#[derive(Clone, Default, Debug)]
pub struct Frequency {
    /// Drivers, each once.
    pub drivers: Vec<String>,
    /// Governors, each once.
    pub governors: Vec<String>,
    /// Preferences of drivers that have governors of their own, each once.
    pub preferences: Vec<String>,
}

/// IOMMUs.
#[derive(Clone, Default, Debug)]
pub struct Iommu {
    /// Their names, if the kernel tells.
    pub names: Option<Vec<String>>,
    /// Types of the groups' domains, each once.
    pub types: Vec<String>,
}

/// The kernel itself.
#[derive(Clone, Default, Debug)]
pub struct Kernel {
    /// Major and minor version.
    pub version: Option<(u32, u32)>,
    /// `kernel.io_uring_disabled`.
    pub uring_disabled: Option<u64>,
}

/// FUSE.
#[derive(Clone, Default, Debug)]
pub struct Fuse {
    /// True if the kernel lists the file system.
    pub known: Option<bool>,
    /// True if /dev/fuse is there.
    pub device: Option<bool>,
    /// `enable_uring`.
    pub uring: Option<String>,
}

/// The kernel's clock.
#[derive(Clone, Default, Debug)]
pub struct Clock {
    /// The source in use.
    pub source: Option<String>,
    /// Those that there are.
    pub available: Vec<String>,
}

/// A virtual machine.
#[derive(Clone, Default, Debug)]
pub struct Hypervisor {
    /// Its maker's name, if it tells.
    pub maker: Option<String>,
}

/// A process.
#[derive(Clone, Default, Debug)]
pub struct Process {
    /// Its number, if it is a daemon's.
    pub daemon: Option<u32>,
    /// Soft and hard limit of open files.
    pub open_files: Option<(Limit, Limit)>,
    /// Soft and hard limit of locked bytes.
    pub locked_bytes: Option<(Limit, Limit)>,
    /// Soft and hard limit of a file's bytes.
    pub file_bytes: Option<(Limit, Limit)>,
    /// Bytes of it that are swapped out.
    pub swapped_bytes: Option<u64>,
    /// Its control groups and those above them, if they are known.
    pub groups: Option<Vec<Group>>,
}

/// A limit of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Limit {
    /// A number.
    Of(u64),
    /// No limit.
    None,
}

impl Limit {
    /// The number, if there is one.
    pub fn number(self) -> Option<u64> {
        match self {
            Limit::Of(number) => Some(number),
            Limit::None => None,
        }
    }
}

/// The limits of a control group.
#[derive(Clone, Default, Debug)]
pub struct Group {
    /// Its directory.
    pub path: String,
    /// Limits of I/O: the device's number, and the limits as the kernel says them (`wbps=1048576`).
    pub io: Vec<(String, String)>,
    /// Microseconds of CPU time in a period of so many.
    pub cpu: Option<CpuQuota>,
    /// Periods in which it was throttled.
    pub throttled: Option<u64>,
    /// Bytes of memory that it may have.
    pub memory_bytes_max: Option<u64>,
    /// Bytes from which on its processes are slowed.
    pub memory_bytes_high: Option<u64>,
}

/// CPU time of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuQuota {
    /// Microseconds in each period.
    pub us: u64,
    /// A period's microseconds.
    pub period_us: u64,
}

impl fmt::Display for CpuQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} CPUs", self.us as f64 / self.period_us as f64)
    }
}

/// An area of swap.
#[derive(Clone, Default, Debug)]
pub struct Swap {
    /// Device or file.
    pub name: String,
    /// Bytes in use.
    pub used_bytes: u64,
}

/// Changes within the time of looking.
#[derive(Clone, Default, Debug)]
pub struct Window {
    /// Its length.
    pub ms: u64,
    /// CPU time that the host took, in percent.
    pub stolen_percent: Option<f64>,
    /// The same since the machine was started.
    pub stolen_percent_ever: Option<f64>,
    /// Pages that went to swap or came from there.
    pub swapped_pages: Option<u64>,
    /// The disks' transfers.
    pub disks: Vec<Transfers>,
    /// Bytes that the daemon and this process moved, if the kernel tells.
    pub own_bytes: Option<u64>,
    /// The other process that moved most: name, number, bytes.
    pub other: Option<(String, u32, u64)>,
}

/// A disk's transfers.
#[derive(Clone, Default, Debug)]
pub struct Transfers {
    /// The disk.
    pub name: String,
    /// Bytes read and written.
    pub bytes: u64,
    /// Time with any under way.
    pub busy_ms: u64,
}

impl Facts {
    /// The block devices, each once.
    pub fn blocks(&self) -> Vec<&Block> {
        let mut blocks: Vec<&Block> = Vec::new();
        for layer in self.places.iter().flat_map(|place| &place.layers) {
            if let Layer::Block(block) = layer
                && !blocks.iter().any(|known| known.name == block.name)
            {
                blocks.push(block);
            }
        }
        blocks
    }
    /// The lowest ones.
    pub fn disks(&self) -> impl Iterator<Item = &Block> {
        self.blocks().into_iter().filter(|block| block.role == Role::Disk)
    }
    /// The file systems, each once.
    pub fn hosts(&self) -> Vec<&Host> {
        let mut hosts: Vec<&Host> = Vec::new();
        for layer in self.places.iter().flat_map(|place| &place.layers) {
            if let Layer::Host(host) = layer
                && !hosts.iter().any(|known| known.point == host.point)
            {
                hosts.push(host);
            }
        }
        hosts
    }
}

impl Block {
    /// True if nothing turns in it, by its name: NVMe and virtual disks. Of others nobody knows.
    pub fn is_flash_or_virtual(&self) -> bool {
        ["nvme", "vd", "xvd", "pmem"].iter().any(|prefix| self.name.starts_with(prefix))
    }
}
