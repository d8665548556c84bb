//! Frames of the wire protocol and their bodies. What is decoded must be encoded to the same bytes again: a body has one form only.

#[path = "../../wire/tests/samples/mod.rs"]
mod samples;

use crate::targets::{Answer, answer, scale};
use base::{Op, Reply};
use runtime::{Span, Stamp};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::discriminant;
use wire::codec::{Sums, op, reply};
use wire::{FrameKind, Header, frame};

/// Bytes of the payload that requests are given: of one write that is decoded.
const PAYLOAD_BYTES: usize = 5000;

pub fn frames() -> Vec<Vec<u8>> {
    let with = |kind, body: &[u8]| {
        let mut out = Vec::new();
        frame::put(&mut out, Header::new(kind), PAYLOAD_BYTES, |out| out.extend_from_slice(body));
        out
    };
    FrameKind::ALL.map(|kind| with(kind, b"a body")).to_vec()
}

/// Header and body as they come, and again with the right checksum.
pub fn frame(bytes: &[u8]) -> Answer {
    let read = frame::check(bytes);
    if let Ok((header, body)) = &read {
        let mut again = Vec::new();
        frame::put(&mut again, *header, header.payload_bytes as usize, |out| out.extend_from_slice(body));
        assert!(again == bytes, "a frame has two forms");
    }
    let peeked = bytes.first_chunk().map(|head| {
        let peeked = Header::peek(head);
        if let Ok(header) = &peeked {
            let (body, payload) = (header.body_bytes as usize, header.payload_bytes as usize);
            assert!(body <= frame::BODY_BYTES_MAX && payload <= frame::PAYLOAD_BYTES_MAX, "lengths out of bounds");
            // Only what has come takes memory.
            if body <= bytes.len() {
                let mut again = Vec::new();
                frame::put(&mut again, *header, payload, |out| out.resize(out.len() + body, 0));
                assert!(again[8..64] == head[8..], "a header has two forms");
            }
        }
        answer(&peeked, |header| header.kind as u64)
    });
    answer(&read, |(_, body)| scale(body.len())) ^ peeked.unwrap_or_default().rotate_left(1)
}

/// The variant of a value as a number.
pub fn variant<T>(value: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    discriminant(value).hash(&mut hasher);
    hasher.finish()
}

/// The payload that a request or reply is given, and its checksums.
fn payload(is_there: bool) -> (Vec<u8>, Sums) {
    let payload = vec![7; if is_there { PAYLOAD_BYTES } else { 0 }];
    let sums = if is_there { Sums::of(4000, &payload) } else { Sums::default() };
    (payload, sums)
}

pub fn requests() -> Vec<Vec<u8>> {
    let encode = |(uid, op): (u32, &Op)| {
        let (_, sums) = payload(matches!(op, Op::Write { .. }));
        let mut body = Vec::new();
        op::encode(&mut body, &samples::context(uid), op, &sums);
        body
    };
    // A value of 64 KiB tells nothing that a short one does not, and takes its time.
    (0..).zip(&samples::ops()).map(encode).filter(|body| body.len() < 2000).collect()
}

pub fn request(bytes: &[u8]) -> Answer {
    let header = Header::of(&samples::context(0));
    let [with, without] = [true, false].map(|is_there| {
        let (payload, _) = payload(is_there);
        let read = op::decode(&header, bytes, &payload, Span::start(Stamp(0)));
        if let Ok(asked) = &read {
            let mut again = Vec::new();
            op::encode(&mut again, &asked.context, &asked.op, &asked.sums);
            assert!(again == bytes, "a request has two forms");
        }
        answer(&read, |asked| variant(&asked.op) << 4 | scale(asked.sums.crcs().len()))
    });
    with ^ without.rotate_left(1)
}

pub fn replies() -> Vec<Vec<u8>> {
    let encode = |told: &reply::Told| {
        let (_, sums) = payload(matches!(told.result, Ok(Reply::Data { .. })));
        let mut body = Vec::new();
        let long = reply::encode(&mut body, &reply::Told { sums, ..told.clone() });
        assert!(long == Ok(None), "samples are short");
        body
    };
    samples::told().iter().map(encode).filter(|body| body.len() < 2000).collect()
}

pub fn reply(bytes: &[u8]) -> Answer {
    let [with, without] = [true, false].map(|is_there| {
        let (payload, _) = payload(is_there);
        let read = reply::decode(bytes, &payload);
        if let Ok(told) = &read {
            let mut again = Vec::new();
            assert!(reply::encode(&mut again, told) == Ok(None) && again == bytes, "a reply has two forms");
        }
        answer(&read, |told| match &told.result {
            Ok(Reply::Entries { entries, .. }) => scale(entries.len()),
            Ok(Reply::Volumes(volumes)) => scale(volumes.len()) << 8,
            Ok(other) => variant(other) << 16,
            Err(failure) => (failure.kind as u64) << 32,
        })
    });
    with ^ without.rotate_left(1)
}

/// One body of each kind; the byte before it says which.
pub fn messages() -> Vec<Vec<u8>> {
    samples::bodies().into_iter().map(|(kind, body)| [vec![kind as u8], body].concat()).collect()
}

pub fn message(bytes: &[u8]) -> Answer {
    let Some((code, body)) = bytes.split_first() else { return 0 };
    let kind = FrameKind::ALL[usize::from(*code) % FrameKind::ALL.len()];
    let kind = FrameKind::ALL.into_iter().find(|known| *known as u8 == *code).unwrap_or(kind);
    let Some(again) = samples::codec(kind) else { return 0 };
    let read = again(body);
    if let Ok(again) = &read {
        assert!(again == body, "a body has two forms");
    }
    answer(&read, |again| scale(again.len())).rotate_left(u32::from(kind as u16))
}
