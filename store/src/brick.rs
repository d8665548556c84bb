//! Formatting a brick. Its superblock says "formatting" from the first durable byte to the last, so that an
//! interrupted format is recognised and may be repeated, and nothing else ever is taken for one (rule Q5).

use crate::device::{Device, Foreign};
use crate::format::Uuid;
use crate::format::devices::{DeviceId, DeviceRow, DeviceTable, FIRST, State as Part, Tier};
use crate::format::superblock::{Features, ON_DEVICE, REVISION_2, SEVERAL_DEVICES, State, Superblock};
use crate::media::host::room_for_segments;
use crate::media::{device_table, superblock_file};
use base::limits::{
    BRICK_BYTES_MIN, DEVICES_MAX, GROUPS_DEFAULT, GROUPS_MAX, INDEX_BYTES_MIN, INDEX_PARTS, SEGMENT_BYTES_DEFAULT,
    SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, SEGMENTS_MAX,
};
use base::{Error, Kind, Result};
use runtime::Runtime;

/// The properties of a brick to format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormatOptions {
    /// Bytes of the brick; None = 80% of the file system's free space, or the whole device (rule X5).
    pub size_bytes: Option<u64>,
    /// Segments lie on the brick's block device, and what becomes of what is on it; None = in files.
    pub device: Option<Foreign>,
    /// Tiers of further block devices, which are the runtime's `device-2` and so on, and what becomes of what is on them.
    pub further: Vec<(Tier, Foreign)>,
    /// Bytes per segment: a power of two.
    pub segment_bytes: u64,
    /// Groups to create.
    pub groups: u32,
    /// The smallest size that is accepted; tests and simulation use small bricks.
    pub size_bytes_min: u64,
}

impl Default for FormatOptions {
    fn default() -> FormatOptions {
        FormatOptions {
            size_bytes: None,
            device: None,
            further: Vec::new(),
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            groups: GROUPS_DEFAULT,
            size_bytes_min: BRICK_BYTES_MIN,
        }
    }
}

/// The content of a brick's directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// Nothing of ours and nothing else: may be formatted.
    Empty,
    /// A format that did not end: may be formatted again.
    HalfFormatted,
    /// A brick.
    Brick(Box<Superblock>),
}

/// Fewest segments of a device that is added: of less, what must be kept free (rule K5) would be most.
const FURTHER_SEGMENTS_MIN: u32 = 16;

const SEGMENTS_COUNT_MAX: u64 = SEGMENTS_MAX as u64;

/// Files that may be in a directory that has not been formatted: the lock, and what a mounted file system brings.
const INNOCENT: [&str; 2] = ["lock", "lost+found"];

/// Looks at the directory. Errors: `Exists` if it holds other files and no superblock.
pub async fn look(runtime: &Runtime) -> Result<Found> {
    if !superblock_file::exists(runtime)? {
        let names = runtime.disk.list()?;
        return match names.iter().find(|name| !INNOCENT.contains(&name.as_str())) {
            None => Ok(Found::Empty),
            Some(name) => {
                let what = "the directory is not empty and not a brick; name an empty one";
                Err(Error::new(Kind::Exists, what).with(format!("found {name:?}")))
            }
        };
    }
    let found = match superblock_file::load(runtime, false).await {
        // Neither copy is whole and there is nothing else: the very first writes were cut off. With any other file
        // it may be a brick whose superblock was lost (rule Q5).
        Err(error) if matches!(error.kind, Kind::Io | Kind::Corrupt) && is_alone(runtime)? => {
            return Ok(Found::HalfFormatted);
        }
        found => found?,
    };
    match found.superblock.state {
        State::Formatting => Ok(Found::HalfFormatted),
        State::Ready => Ok(Found::Brick(Box::new(found.superblock))),
    }
}

fn is_alone(runtime: &Runtime) -> Result<bool> {
    Ok(runtime.disk.list()?.iter().all(|name| name == superblock_file::FILE || INNOCENT.contains(&name.as_str())))
}

/// Formats an empty or half-formatted directory; `index` is called in between to make the empty index durable.
/// Errors: `Exists` for a brick, `NoSpace`, `Invalid` sizes.
pub async fn format_brick(
    runtime: &Runtime,
    options: FormatOptions,
    index: impl AsyncFnOnce() -> Result<()>,
) -> Result<Superblock> {
    if let Found::Brick(superblock) = look(runtime).await? {
        let error = Error::new(Kind::Exists, "the directory is a brick already; start it with `sinter up`");
        return Err(error.with(format!("uuid {}", superblock.uuid)));
    }
    // One of a format that was interrupted: its device bears it already.
    let half = match superblock_file::exists(runtime)? {
        true => superblock_file::load(runtime, false).await.ok().map(|found| found.superblock.uuid),
        false => None,
    };
    let device = match options.device {
        Some(_) => Some(Device::open(runtime, (FIRST, Tier::Flash), true)?),
        None => None,
    };
    if let (Some(device), Some(Foreign::Keep)) = (&device, options.device) {
        device.refuse_foreign(half).await?;
    }
    let first_segments = segments_of(runtime, &options, device.as_ref())?;
    let mut devices = DeviceTable::of_one(half.unwrap_or_else(|| new_uuid(runtime)), first_segments);
    let mut further = Vec::new();
    for &(tier, foreign) in &options.further {
        further.push(open_new(runtime, &mut devices, (tier, foreign), (options.segment_bytes, half)).await?);
    }
    if !further.is_empty() {
        let bytes = u64::from(devices.segments()) * options.segment_bytes;
        refuse_little_for_index(runtime.disk.free_bytes()?, bytes - u64::from(first_segments) * options.segment_bytes)?;
    }
    let incompatible = REVISION_2 | if device.is_some() { ON_DEVICE } else { 0 };
    let mut superblock = Superblock {
        uuid: devices.uuid,
        state: State::Formatting,
        features: Features { incompatible, ..Features::default() },
        sequence: 1,
        segment_bytes: options.segment_bytes,
        segments: first_segments,
        groups: options.groups,
        epoch: 0,
        ends: Vec::new(),
        devices: 0,
    };
    superblock_file::create(runtime, &superblock).await?;
    if let Some(device) = &device {
        device.claim(&superblock, first_segments).await?;
    }
    for (device, segments) in &further {
        device.claim(&superblock, *segments).await?;
    }
    index().await?;
    if !further.is_empty() {
        devices.sequence = 1;
        device_table::prepare(runtime, &devices).await?;
        superblock = listing(&superblock, &devices);
    }
    superblock.state = State::Ready;
    superblock.sequence = 2;
    superblock_file::create(runtime, &superblock).await?;
    if !further.is_empty() {
        device_table::settle(runtime, &devices).await?;
    }
    Ok(superblock)
}

/// The superblock once a version of the device table counts.
pub(crate) fn listing(superblock: &Superblock, devices: &DeviceTable) -> Superblock {
    let mut new = superblock.clone();
    new.features.incompatible |= SEVERAL_DEVICES;
    (new.segments, new.devices) = (devices.segments(), devices.sequence);
    new
}

/// Opens the brick's next device, looks whether it may be taken, and adds it to the table. `half`: the brick whose format
/// or addition was interrupted: its label may be there already. Returns the device and the number of its segments. Errors:
/// `NoSpace` for one that is too small, `Invalid` for one more than a brick can have, `Exists` for one that holds data.
pub(crate) async fn open_new<'a>(
    runtime: &'a Runtime,
    devices: &mut DeviceTable,
    (tier, foreign): (Tier, Foreign),
    (segment_bytes, half): (u64, Option<Uuid>),
) -> Result<(Device<'a>, u32)> {
    if devices.rows.len() == DEVICES_MAX {
        let error = Error::new(Kind::Invalid, "a brick can't have more devices: make another brick");
        return Err(error.with(format!("it has {DEVICES_MAX}")));
    }
    let device = Device::open(runtime, (devices.next, tier), true)?;
    match may_be_added(&device, devices, foreign, (segment_bytes, half)).await {
        Ok(segments) => {
            let (id, first, state) = (devices.next, devices.segments(), Part::InUse);
            devices.rows.push(DeviceRow { id, tier, state, first, segments });
            devices.next = DeviceId(id.0 + 1);
            Ok((device, segments))
        }
        Err(error) => {
            // The next attempt may name another one.
            runtime.disk.close(device.file);
            Err(error)
        }
    }
}

/// The number of segments of a device that may be added. Errors: as `open_new`.
async fn may_be_added(
    device: &Device<'_>,
    devices: &DeviceTable,
    foreign: Foreign,
    (segment_bytes, half): (u64, Option<Uuid>),
) -> Result<u32> {
    if foreign == Foreign::Keep {
        device.refuse_foreign(half).await?;
    }
    let segments = segments_in(device.room_bytes(), segment_bytes)?;
    if segments < FURTHER_SEGMENTS_MIN {
        let error = Error::new(Kind::NoSpace, "the device is too small to be added: give a larger one");
        let least = u64::from(FURTHER_SEGMENTS_MIN) * segment_bytes;
        return Err(error.with(format!("{} bytes of at least {least}", device.room_bytes())));
    }
    segments_in((u64::from(devices.segments()) + u64::from(segments)) * segment_bytes, segment_bytes)?;
    Ok(segments)
}

fn new_uuid(runtime: &Runtime) -> Uuid {
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&runtime.random.next_u64().to_le_bytes());
    uuid[8..].copy_from_slice(&runtime.random.next_u64().to_le_bytes());
    Uuid(uuid)
}

fn segments_of(runtime: &Runtime, options: &FormatOptions, device: Option<&Device<'_>>) -> Result<u32> {
    let &FormatOptions { size_bytes, segment_bytes, groups, size_bytes_min, .. } = options;
    if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment_bytes) || !segment_bytes.is_power_of_two() {
        return Err(Error::new(Kind::Invalid, "a segment is a power of two between 1 MiB and 256 MiB"));
    }
    if groups == 0 || groups > GROUPS_MAX {
        return Err(Error::new(Kind::Invalid, "a brick has 1 to 4096 groups"));
    }
    let free_bytes = runtime.disk.free_bytes()?;
    let (default_bytes, room_bytes) = match device {
        Some(device) => (device.room_bytes(), device.room_bytes()),
        None => room_for_segments(free_bytes),
    };
    let size_bytes = size_bytes.unwrap_or(default_bytes);
    if size_bytes < size_bytes_min {
        let what = match device {
            Some(_) => "the device is too small for a brick: give a larger one",
            None => "a brick needs more room: free some, or name a larger file system",
        };
        return Err(Error::new(Kind::NoSpace, what).with(format!("{size_bytes} bytes of at least {size_bytes_min}")));
    }
    if size_bytes > room_bytes {
        let what = match device {
            Some(_) => "the device is smaller than that: give a larger one, or a smaller --size",
            None => {
                "the file system has too little free space for a brick of this size: free some, or give a smaller --size"
            }
        };
        return Err(Error::new(Kind::NoSpace, what).with(format!("{size_bytes} bytes wanted, {room_bytes} possible")));
    }
    if device.is_some() {
        refuse_little_for_index(free_bytes, size_bytes)?;
    }
    segments_in(size_bytes, segment_bytes)
}

/// The number of segments in `size_bytes` bytes. Errors: `Invalid` for more than a brick can have.
pub(crate) fn segments_in(size_bytes: u64, segment_bytes: u64) -> Result<u32> {
    match size_bytes / segment_bytes {
        segments @ 0..=SEGMENTS_COUNT_MAX => Ok(segments as u32),
        segments => {
            let error = Error::new(Kind::Invalid, "a brick can't be that large: give a smaller size, and make several");
            Err(error.with(format!("{segments} segments of at most {SEGMENTS_MAX}")))
        }
    }
}

/// The index of a brick on a device has a file system of its own kind: what segments leave it elsewhere must be there.
pub fn refuse_little_for_index(free_bytes: u64, size_bytes: u64) -> Result<()> {
    let needed = INDEX_BYTES_MIN.max(size_bytes / INDEX_PARTS);
    if free_bytes >= needed {
        return Ok(());
    }
    let error = Error::new(Kind::NoSpace, "the directory has too little free space for the index of such a device");
    Err(error.with(format!("{free_bytes} bytes free, {needed} needed; free some, or name a larger file system")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::sim::World;
    use std::collections::BTreeSet;

    #[test]
    fn an_index_needs_some_room() {
        let large = 100 * INDEX_BYTES_MIN * INDEX_PARTS;
        for (size_bytes, needed) in [(0, INDEX_BYTES_MIN), (large, 100 * INDEX_BYTES_MIN)] {
            assert_eq!(refuse_little_for_index(needed, size_bytes), Ok(()));
            let refused = refuse_little_for_index(needed - 1, size_bytes).expect_err("too little");
            assert!(refused.kind == Kind::NoSpace && refused.to_string().contains("bytes free"), "{refused}");
        }
    }

    #[test]
    fn no_part_of_a_uuid_is_the_same_in_two_bricks() {
        let mut world = World::new(1);
        let runtime = world.runtime();
        world.block_on(async {
            let (one, other) = (new_uuid(&runtime), new_uuid(&runtime));
            let parts = [one, other].map(|uuid| [0, 8].map(|at| uuid.0[at..at + 8].to_vec()));
            let different: BTreeSet<_> = parts.into_iter().flatten().collect();
            assert_eq!(different.len(), 4, "{one} {other}");
        });
    }
}
