//! The superblock: identity, geometry and feature masks of a brick, and where its log epochs ended (rules L3, L4, X4).
//! Two copies of one block each in the file `superblock`; updates alternate, the higher sequence number wins.

use super::Uuid;
use super::bytes::{Reader, Writer, corrupt};
use base::checksum::crc32c;
use base::limits::{BLOCK_BYTES, GROUPS_MAX, NUMBER_MAX, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, SEGMENTS_MAX};
use base::{Error, Kind, Result};

const MAGIC: &[u8; 8] = b"SINTERSB";
/// Version of this layout; a higher one is refused before anything else is read.
pub const VERSION: u32 = 1;
/// Epoch ends kept: start-up checkpoints before the list is full, which trims it.
pub const EPOCH_ENDS_MAX: usize = 200;
/// Fields before them, they, and the checksum fit into a block.
const _: () = assert!(104 + 16 * EPOCH_ENDS_MAX + 4 <= BLOCK_BYTES);

/// Incompatible feature: the segments lie on a block device (rule X5), not in files.
pub const ON_DEVICE: u64 = 1;
/// Incompatible feature: the second revision of rows and records. Values and edits of the first are still read; the first
/// writer of a brick that lacks the bit sets it, durably and before anything else changes, so that a build that knows the
/// first revision alone refuses the brick by name.
pub const REVISION_2: u64 = 2;
/// Incompatible feature: volumes may have layers. A brick whose volumes never had any lacks it.
pub const LAYERS: u64 = 4;
/// Incompatible feature: the segments lie on several devices, which the device table lists. A brick that has had one device
/// only lacks it.
pub const SEVERAL_DEVICES: u64 = 8;
/// Incompatible feature: volumes may have a tier policy other than the default. A brick whose volumes never had any lacks it.
pub const TIER_POLICIES: u64 = 16;
/// Incompatible feature: volumes may have limits. A brick whose volumes never had any lacks it.
pub const VOLUME_LIMITS: u64 = 32;
/// Incompatible feature: directory trees of volumes may have limits. A brick whose volumes never had any lacks it.
pub const TREE_LIMITS: u64 = 64;
/// Incompatible feature: clients on other machines may have sessions. A brick that never had one lacks it.
pub const NETWORK_SESSIONS: u64 = 128;
/// Incompatible feature: groups may have replicas on other bricks, and the log and the index what these have promised each other. A
/// brick that never was one of several lacks it.
pub const REPLICAS: u64 = 256;
/// Incompatible feature: replicas may heal: leaves name blocks that the brick lacks, and groups have marks that say so. A brick on
/// which none ever did lacks it.
pub const HEALING: u64 = 512;
/// Incompatible feature: rows of replicas may say which record came before those of the log. A brick without replicas lacks it.
pub const REPLICA_ROWS: u64 = 1024;
/// Compatible feature: inodes may have tier hints. A brick without any lacks it, and the cleaner looks for none; a build that
/// does not know of hints drops those of inodes that it changes.
pub const TIER_HINTS: u64 = 1;
/// Incompatible features that this build knows.
const INCOMPATIBLE_KNOWN: u64 = ON_DEVICE
    | REVISION_2
    | LAYERS
    | SEVERAL_DEVICES
    | TIER_POLICIES
    | VOLUME_LIMITS
    | TREE_LIMITS
    | NETWORK_SESSIONS
    | REPLICAS
    | HEALING
    | REPLICA_ROWS;

/// Features of a format (rule X4): unknown bits in `incompatible` refuse the brick, in `read_only` allow reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features {
    /// May be ignored.
    pub compatible: u64,
    /// Writing needs to know them.
    pub read_only: u64,
    /// Reading needs to know them.
    pub incompatible: u64,
}

/// The stage of a brick's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// `format` has begun and not ended: holds no data, may be formatted again.
    Formatting,
    /// The brick is in use.
    Ready,
}

/// "Epoch e ends at batch n": whatever follows in its segments is dead (rule L4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochEnd {
    /// The epoch.
    pub epoch: u64,
    /// Its last valid batch.
    pub batch: u64,
}

/// The superblock's content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// Identity of the brick.
    pub uuid: Uuid,
    /// Life of the brick.
    pub state: State,
    /// Feature masks.
    pub features: Features,
    /// Grows with each update.
    pub sequence: u64,
    /// Bytes per segment.
    pub segment_bytes: u64,
    /// Segments of the brick, whether made yet or not.
    pub segments: u32,
    /// Groups 0..groups exist.
    pub groups: u32,
    /// The log's epoch: bumped before the first append after each open.
    pub epoch: u64,
    /// Ends of earlier epochs that replay may still meet, ascending.
    pub ends: Vec<EpochEnd>,
    /// The version of the device table that counts; 0 without `SEVERAL_DEVICES`.
    pub devices: u64,
}

impl Superblock {
    /// True if the segments lie on a block device.
    pub fn on_device(&self) -> bool {
        self.features.incompatible & ON_DEVICE != 0
    }
    /// True if the device table lists several devices, or has listed them.
    pub fn has_several_devices(&self) -> bool {
        self.features.incompatible & SEVERAL_DEVICES != 0
    }
    /// One block of bytes.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.ends.len() <= EPOCH_ENDS_MAX, "`decode` refuses more");
        let mut out = Vec::with_capacity(BLOCK_BYTES);
        let mut writer = Writer(&mut out);
        let state = match self.state {
            State::Formatting => 1,
            State::Ready => 2,
        };
        writer.bytes(MAGIC).u32(VERSION).u32(state).bytes(&self.uuid.0);
        writer.u64(self.features.compatible).u64(self.features.read_only).u64(self.features.incompatible);
        writer.u64(self.sequence).u64(self.segment_bytes).u32(self.segments).u32(self.groups).u64(self.epoch);
        writer.u32(self.ends.len() as u32);
        for end in &self.ends {
            writer.u64(end.epoch).u64(end.batch);
        }
        assert!((self.devices > 0) == self.has_several_devices(), "a device table is told by its feature");
        if self.has_several_devices() {
            Writer(&mut out).u64(self.devices);
        }
        assert!(out.len() <= BLOCK_BYTES - 4, "the checksum lies behind the last field");
        out.resize(BLOCK_BYTES - 4, 0);
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Checks and reads one copy. Errors: `Corrupt`; `Newer` for a version or incompatible feature that this build
    /// does not know (a valid copy of a newer version says so even though its layout is unknown).
    pub fn decode(block: &[u8]) -> Result<Superblock> {
        let mut reader = Reader::new(block);
        if reader.bytes(8)? != MAGIC {
            return Err(corrupt("not a superblock"));
        }
        let body = block.get(..BLOCK_BYTES - 4).ok_or_else(|| corrupt("the superblock is cut short"))?;
        let mut trailer = Reader::new(&block[BLOCK_BYTES - 4..]);
        if trailer.u32()? != crc32c(body) {
            return Err(corrupt("the superblock fails its checksum"));
        }
        let version = reader.u32()?;
        if version > VERSION {
            let error = Error::new(Kind::Newer, "the brick was written by a newer version; upgrade this machine");
            return Err(error.with(format!("format {version}, this build knows up to {VERSION}")));
        }
        let state = match reader.u32()? {
            1 => State::Formatting,
            2 => State::Ready,
            _ => return Err(corrupt("the superblock names no known state")),
        };
        let uuid = reader.uuid()?;
        let features = Features { compatible: reader.u64()?, read_only: reader.u64()?, incompatible: reader.u64()? };
        if features.incompatible & !INCOMPATIBLE_KNOWN != 0 {
            let error = Error::new(Kind::Newer, "the brick uses features of a newer version; upgrade this machine");
            return Err(error.with(format!("incompatible feature bits {:#x}", features.incompatible)));
        }
        let sequence = reader.u64()?;
        let segment_bytes = reader.u64()?;
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment_bytes) || !segment_bytes.is_power_of_two() {
            return Err(corrupt("the superblock's segment size is out of bounds"));
        }
        let (segments, groups, epoch) = (reader.u32()?, reader.u32()?, reader.u64()?);
        if !(1..=SEGMENTS_MAX).contains(&segments) || !(1..=GROUPS_MAX).contains(&groups) {
            let error = corrupt("the superblock counts more or fewer than a brick can have; restore it from a backup");
            return Err(error.with(format!("{segments} segments, {groups} groups")));
        }
        let count = reader.u32()? as usize;
        if count > EPOCH_ENDS_MAX {
            return Err(corrupt("the superblock lists too many epochs"));
        }
        let end = |reader: &mut Reader<'_>| Ok(EpochEnd { epoch: reader.u64()?, batch: reader.u64()? });
        let ends = (0..count).map(|_| end(&mut reader)).collect::<Result<Vec<_>>>()?;
        let ended = ends.iter().all(|end: &EpochEnd| end.epoch < epoch && end.batch < NUMBER_MAX);
        if sequence >= NUMBER_MAX || epoch >= NUMBER_MAX || !ended {
            return Err(corrupt("the superblock has numbers that no brick reaches; restore it from a backup"));
        }
        let several = features.incompatible & SEVERAL_DEVICES != 0;
        let devices = if several { reader.u64()? } else { 0 };
        if several && !(1..NUMBER_MAX).contains(&devices) {
            return Err(corrupt("the superblock names no version of the device table; restore it from a backup"));
        }
        Ok(Superblock { uuid, state, features, sequence, segment_bytes, segments, groups, epoch, ends, devices })
    }
}
