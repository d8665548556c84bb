//! The bodies that bricks send each other: the first frames of a connection, and messages that are opaque here.

use super::bytes::{Put, Take, corrupt};
use super::hello::Versions;
use super::{Body, Sums};
use crate::FrameKind;
use crate::frame::{BODY_BYTES_MAX, PAYLOAD_BYTES_MAX};
use base::Result;
use base::limits::BLOCK_BYTES;
use std::fmt;

/// Most blocks of a parcel's payload.
pub const PARCEL_BLOCKS_MAX: usize = PAYLOAD_BYTES_MAX / BLOCK_BYTES;
/// Most bytes of a parcel's message: a body has room for it beside the checksums of the largest payload.
pub const PARCEL_BYTES_MAX: usize = BODY_BYTES_MAX - 8 - 4 * PARCEL_BLOCKS_MAX;
/// Most bytes of a pulse.
pub const PULSE_BYTES_MAX: usize = 4 << 10;

/// A brick, by its uuid, whose first byte is the number's highest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PeerId(pub u128);

impl fmt::Display for PeerId {
    /// The uuid's text.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.0);
        let (first, rest) = digits.split_at(8);
        write!(out, "{first}-{}-{}-{}-{}", &rest[..4], &rest[4..8], &rest[8..12], &rest[12..])
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self}")
    }
}

/// The purpose of a connection between bricks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Pulses, and nothing else ever.
    Pulse,
    /// Parcels.
    Append,
}

impl Purpose {
    /// All purposes; each one's place here is its number as an index.
    pub const ALL: [Purpose; 2] = [Purpose::Pulse, Purpose::Append];
}

/// The first frame of a brick that connects to another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerHello {
    /// The versions that it speaks.
    pub versions: Versions,
    /// Abilities beyond these, a bit each.
    pub features: u64,
    /// The cluster that it belongs to.
    pub cluster: [u8; 16],
    /// The brick.
    pub who: PeerId,
    /// The brick that it wants.
    pub whom: PeerId,
    /// The epoch of its log: its process.
    pub epoch: u64,
    /// The purpose of the connection.
    pub purpose: Purpose,
    /// The lane's number among those of its purpose. There is one of each yet, 0.
    pub lane: u16,
}

/// The other brick takes the connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerOk {
    /// The version that both speak from now on.
    pub version: u16,
    /// The features that both have.
    pub features: u64,
    /// The epoch of its log: its process.
    pub epoch: u64,
}

/// A parcel's body: what the receiver does with it is not known here.
#[derive(Clone, PartialEq, Debug)]
pub struct ParcelBody {
    /// The checksums of its payload, which has whole blocks.
    pub sums: Sums,
    /// The message, at most `PARCEL_BYTES_MAX`.
    pub message: Vec<u8>,
}

impl ParcelBody {
    /// Appends the body of a parcel with these parts.
    pub fn put(out: &mut Vec<u8>, sums: &Sums, message: &[u8]) {
        assert!(sums.begins_with_a_block(), "a parcel's payload has whole blocks");
        assert!(message.len() <= PARCEL_BYTES_MAX, "a message keeps to its bound");
        let mut put = Put(out);
        sums.put(&mut put);
        put.long(message);
    }
}

fn purpose_code(purpose: Purpose) -> u8 {
    match purpose {
        Purpose::Pulse => 1,
        Purpose::Append => 2,
    }
}

impl Put<'_> {
    fn peer(&mut self, peer: PeerId) -> &mut Self {
        self.bytes(&peer.0.to_be_bytes())
    }
}

impl Take<'_> {
    fn peer(&mut self) -> Result<PeerId> {
        Ok(PeerId(u128::from_be_bytes(self.array()?)))
    }
}

impl Body for PeerHello {
    const KIND: FrameKind = FrameKind::PeerHello;

    fn encode(&self, out: &mut Vec<u8>) {
        let PeerHello { versions, features, cluster, who, whom, epoch, purpose, lane } = self;
        let mut put = Put(out);
        put.u16(versions.lowest).u16(versions.highest).u64(*features).bytes(cluster).peer(*who).peer(*whom);
        put.u64(*epoch).u8(purpose_code(*purpose)).u16(*lane);
    }
    fn decode(body: &[u8]) -> Result<PeerHello> {
        Take::all(body, |take| {
            Ok(PeerHello {
                versions: take.versions()?,
                features: take.u64()?,
                cluster: take.array()?,
                who: take.peer()?,
                whom: take.peer()?,
                epoch: take.u64()?,
                purpose: take.coded(&Purpose::ALL, purpose_code)?,
                lane: take.u16()?,
            })
        })
    }
}

impl Body for PeerOk {
    const KIND: FrameKind = FrameKind::PeerOk;

    fn encode(&self, out: &mut Vec<u8>) {
        Put(out).u16(self.version).u64(self.features).u64(self.epoch);
    }
    fn decode(body: &[u8]) -> Result<PeerOk> {
        Take::all(body, |take| Ok(PeerOk { version: take.u16()?, features: take.u64()?, epoch: take.u64()? }))
    }
}

impl Body for ParcelBody {
    const KIND: FrameKind = FrameKind::Parcel;

    fn encode(&self, out: &mut Vec<u8>) {
        ParcelBody::put(out, &self.sums, &self.message);
    }
    fn decode(body: &[u8]) -> Result<ParcelBody> {
        Take::all(body, |take| {
            let (sums, message) = (Sums::take(take)?, take.long()?);
            if !sums.begins_with_a_block() || sums.crcs().len() > PARCEL_BLOCKS_MAX {
                return Err(corrupt("a parcel has checksums of other than whole blocks"));
            }
            if message.len() > PARCEL_BYTES_MAX {
                return Err(corrupt("a parcel's message is longer than any may be"));
            }
            Ok(ParcelBody { sums, message: message.to_vec() })
        })
    }
}
