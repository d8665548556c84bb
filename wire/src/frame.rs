//! Frames: 64 bytes that say how long everything is, a body, a payload.
//!
//! Promises: all lengths are known after the first 64 bytes, and are within their bounds before memory is taken for them; header
//! and body have a checksum, and a payload has checksums in its body (`codec::Sums`).

use crate::Context;
use base::checksum::crc32c;
use base::limits::IO_BYTES_MAX;
use base::seeded::{Bug, active};
use base::{Error, GroupId, Kind, RequestId, Result, SessionId};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 64;
/// Largest body: the largest attribute and what goes with it, twice.
pub const BODY_BYTES_MAX: usize = 128 << 10;
/// Largest payload: that of the largest operation.
pub const PAYLOAD_BYTES_MAX: usize = IO_BYTES_MAX;

/// The first bytes of each frame: a name, and the version of the header's layout.
const MAGIC: [u8; 4] = *b"SIW\x01";
/// A deadline that there is not.
const ENDLESS: u32 = u32::MAX;
/// The place behind the checksum: from here on it covers the header and the body in one piece. What is before it can be checked by
/// itself.
const COVERED: usize = 8;

/// The kind of a frame, which says what its body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum FrameKind {
    /// The first frame of a client.
    Hello = 1,
    /// The server takes the client.
    HelloOk = 2,
    /// The server does not, or ends the connection: reason in words.
    Refused = 3,
    /// A machine asks for a certificate.
    Join = 4,
    /// The certificate.
    Joined = 5,
    /// The client lives.
    Pulse = 6,
    /// The server has heard it.
    PulseOk = 7,
    /// A request.
    Op = 8,
    /// Its reply.
    Reply = 9,
    /// The server can't take the request now, or not here: the router's affair, never the application's.
    Refusal = 10,
    /// Opens, knowledge and locks of a client, for a server that does not know of them.
    Reclaim = 11,
    /// The server has it.
    ReclaimDone = 12,
    /// The server asks the client to let go of what its kernel caches.
    Recall = 13,
    /// The client has.
    RecallDone = 14,
    /// A lock that the client waits for can be had.
    Freed = 15,
    /// The client no longer waits for the request of this number. No body, and no answer but the request's own.
    Cancel = 16,
    /// The session ends: nothing of it is needed any more. No body.
    Bye = 17,
    /// It has ended. No body.
    ByeOk = 18,
    /// The first frame of a brick that connects to another one.
    PeerHello = 19,
    /// The other brick takes the connection.
    PeerOk = 20,
    /// A small message of a brick, on the lane that has nothing else. Its body is whatever the sender made it.
    PeerPulse = 21,
    /// A message of one group, from brick to brick.
    Parcel = 22,
}

impl FrameKind {
    /// All kinds.
    pub const ALL: [FrameKind; 22] = [
        FrameKind::Hello,
        FrameKind::HelloOk,
        FrameKind::Refused,
        FrameKind::Join,
        FrameKind::Joined,
        FrameKind::Pulse,
        FrameKind::PulseOk,
        FrameKind::Op,
        FrameKind::Reply,
        FrameKind::Refusal,
        FrameKind::Reclaim,
        FrameKind::ReclaimDone,
        FrameKind::Recall,
        FrameKind::RecallDone,
        FrameKind::Freed,
        FrameKind::Cancel,
        FrameKind::Bye,
        FrameKind::ByeOk,
        FrameKind::PeerHello,
        FrameKind::PeerOk,
        FrameKind::PeerPulse,
        FrameKind::Parcel,
    ];
}

/// The fixed part of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The kind.
    pub kind: FrameKind,
    /// Bytes of the body.
    pub body_bytes: u32,
    /// Bytes of the payload.
    pub payload_bytes: u32,
    /// Milliseconds left until the answer is of no use any more; None: it is waited for without end.
    pub deadline_ms: Option<u32>,
    /// The request; an answer has that of what it answers. Each side counts its own.
    pub request: RequestId,
    /// The session.
    pub session: SessionId,
    /// The trace that the request belongs to; 0: none.
    pub trace: u64,
    /// The version of the group's membership that the sender knows.
    pub membership: u64,
    /// The group that decides; 0 where there is none.
    pub group: GroupId,
}

impl Header {
    /// The header of a frame of this kind, all else being 0, and without a deadline.
    pub fn new(kind: FrameKind) -> Header {
        Header {
            kind,
            body_bytes: 0,
            payload_bytes: 0,
            deadline_ms: None,
            request: RequestId(0),
            session: SessionId(0),
            trace: 0,
            membership: 0,
            group: GroupId(0),
        }
    }
    /// The header of a request with this context.
    pub fn of(context: &Context) -> Header {
        Header { session: context.session, request: context.request, ..Header::new(FrameKind::Op) }
    }
    /// The header of the frame that begins with these bytes. Errors: `Corrupt`, if it can't be one or its lengths are out of
    /// bounds; `Newer`. Whether it has come as it was sent is not known before `check`.
    pub fn peek(bytes: &[u8; HEADER_BYTES]) -> Result<Header> {
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
        let u64_at = |at: usize| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| bytes[at + byte]));
        if bytes[..3] != MAGIC[..3] {
            return Err(corrupt("the peer does not speak Sinter's protocol, or lost its place in it"));
        }
        if bytes[3] != MAGIC[3] {
            let newer = Error::new(Kind::Newer, "the peer sends frames of another version; upgrade the older side");
            return Err(newer.with(bytes[3]));
        }
        let kind = FrameKind::ALL.into_iter().find(|kind| *kind as u16 == u16_at(8));
        let kind = kind.ok_or_else(|| corrupt("a frame is of a kind that is not known"))?;
        let (flags, header_bytes, spare) = (u16_at(10), u16_at(12), u16_at(14));
        if flags != 0 || usize::from(header_bytes) != HEADER_BYTES || spare != 0 {
            return Err(corrupt("a frame's header has fields that are not known"));
        }
        let (body_bytes, payload_bytes) = (u32_at(16), u32_at(20));
        if body_bytes as usize > BODY_BYTES_MAX || payload_bytes as usize > PAYLOAD_BYTES_MAX {
            return Err(corrupt("a frame is longer than any may be"));
        }
        Ok(Header {
            kind,
            body_bytes,
            payload_bytes,
            deadline_ms: Some(u32_at(24)).filter(|ms| *ms != ENDLESS),
            group: GroupId(u32_at(28)),
            request: RequestId(u64_at(32)),
            session: SessionId(u64_at(40)),
            trace: u64_at(48),
            membership: u64_at(56),
        })
    }
    /// Bytes of the frame.
    pub fn frame_bytes(&self) -> usize {
        HEADER_BYTES + self.body_bytes as usize + self.payload_bytes as usize
    }
    fn seal(&self, frame: &mut [u8]) {
        let mut at = 0;
        let mut put = |field: &[u8]| {
            frame[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&MAGIC);
        put(&[0; 4]);
        put(&(self.kind as u16).to_le_bytes());
        put(&[0; 2]);
        put(&(HEADER_BYTES as u16).to_le_bytes());
        put(&[0; 2]);
        put(&self.body_bytes.to_le_bytes());
        put(&self.payload_bytes.to_le_bytes());
        put(&self.deadline_ms.unwrap_or(ENDLESS).to_le_bytes());
        put(&self.group.0.to_le_bytes());
        put(&self.request.0.to_le_bytes());
        put(&self.session.0.to_le_bytes());
        put(&self.trace.to_le_bytes());
        put(&self.membership.to_le_bytes());
        assert!(at == HEADER_BYTES, "the header's fields end where the body begins");
        let crc = crc32c(&frame[COVERED..]);
        frame[COVERED - 4..COVERED].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Appends a frame but for its payload, which the sender sends behind it: the header, with the lengths as they are, and the body
/// that `body` appends.
pub fn put(out: &mut Vec<u8>, header: Header, payload_bytes: usize, body: impl FnOnce(&mut Vec<u8>)) {
    let start = begin(out);
    body(out);
    seal(out, start, header, payload_bytes);
}

/// Appends room for a header, behind which the body comes. Returns where the frame begins.
pub(crate) fn begin(out: &mut Vec<u8>) -> usize {
    out.resize(out.len() + HEADER_BYTES, 0);
    out.len() - HEADER_BYTES
}

/// Puts the header before the body, which is whole.
pub(crate) fn seal(out: &mut [u8], start: usize, header: Header, payload_bytes: usize) {
    let body_bytes = out.len() - start - HEADER_BYTES;
    assert!(body_bytes <= BODY_BYTES_MAX && payload_bytes <= PAYLOAD_BYTES_MAX, "a frame keeps to its bounds");
    let header = Header { body_bytes: body_bytes as u32, payload_bytes: payload_bytes as u32, ..header };
    header.seal(&mut out[start..]);
}

/// The header and the body of a frame, `frame` being both as they came, without the payload. Errors: as `Header::peek`, and
/// `Corrupt` if the checksum is wrong.
pub fn check(frame: &[u8]) -> Result<(Header, &[u8])> {
    let Some((head, body)) = frame.split_first_chunk() else {
        return Err(corrupt("a frame is shorter than its header"));
    };
    let header = Header::peek(head)?;
    if header.body_bytes as usize != body.len() {
        return Err(corrupt("a frame's body is not as long as its header says"));
    }
    if head[COVERED - 4..COVERED] != crc32c(&frame[COVERED..]).to_le_bytes() && !active(Bug::FrameCrcUnchecked) {
        return Err(corrupt("a frame fails its checksum: it was changed on its way"));
    }
    Ok((header, body))
}

fn corrupt(what: &'static str) -> Error {
    Error::new(Kind::Corrupt, what)
}
