//! The body of a reply: what the operation came to, its position, and the server's account of its time.

use super::TEXT_BYTES_MAX;
use super::bytes::{Put, Take, corrupt};
use super::sums::Sums;
use crate::{Answer, FrameKind, Header, Position, frame};
use base::limits::IO_BYTES_MAX;
use base::{Error, GroupId, Index, Kind, Op, Reply, Result, Term};
use runtime::{Ledger, Slice, Span, Stage};

/// Bytes of a reply that travels in the body, which has room for the largest attribute and for what else there is. Longer ones,
/// of large directories and many volumes, travel as payload.
const SHORT_BYTES_MAX: usize = 96 << 10;
/// The tag of an error.
const FAILED: u8 = 0;
/// The tag of a reply that travels as payload.
const LONG: u8 = 255;

/// An error as another process has told it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Its kind.
    pub kind: Kind,
    /// Its text.
    pub text: Box<str>,
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Failure {
        let mut text = error.to_string();
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        Failure { kind: error.kind, text: text.into() }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error { kind: failure.kind, what: "the server answers", context: Some(failure.text) }
    }
}

/// Number of stages that a server has.
const STAGES: usize = 22;

const _: () = assert!(STAGES <= 32, "the stages that took any time are a bit each");

/// Microseconds that a request has spent in stages at the server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stages([u32; STAGES]);

impl Stages {
    /// The stages of a request so far.
    pub fn of(ledger: &Ledger, span: &Span) -> Stages {
        let (mut stages, mut rest_ns) = (Stages::default(), 0);
        for (stage, ns) in ledger.stages_ns(span) {
            // Parts of microseconds count for the next stage, so that the sum is right.
            let ns = ns + rest_ns;
            stages.set(stage, u32::try_from(ns / 1000).unwrap_or(u32::MAX));
            rest_ns = ns % 1000;
        }
        stages
    }
    /// Gives a stage its time. Stages that only clients have are not told.
    pub fn set(&mut self, stage: Stage, us: u32) {
        if let Some(code) = code(stage) {
            self.0[code] = us;
        }
    }
    /// The stages that took any time.
    pub fn spent(&self) -> impl Iterator<Item = (Stage, u32)> {
        Stage::ALL.into_iter().filter_map(|stage| Some((stage, self.0[code(stage)?]))).filter(|(_, us)| *us > 0)
    }
    fn put(&self, put: &mut Put<'_>) {
        let met = self.0.iter().enumerate().fold(0, |met, (code, us)| met | u32::from(*us > 0) << code);
        put.u32(met);
        self.0.iter().filter(|us| **us > 0).for_each(|us| _ = put.u32(*us));
    }
    fn take(take: &mut Take<'_>) -> Result<Stages> {
        let met = take.u32()?;
        if u64::from(met) >> STAGES != 0 {
            return Err(corrupt("a reply has a stage that is not known"));
        }
        let mut stages = Stages::default();
        for (_, us) in stages.0.iter_mut().enumerate().filter(|(code, _)| met >> code & 1 == 1) {
            *us = take.u32()?;
            if *us == 0 {
                return Err(corrupt("a reply has a stage that took no time"));
            }
        }
        Ok(stages)
    }
}

/// The bit of a stage that a server has.
fn code(stage: Stage) -> Option<usize> {
    Some(match stage {
        Stage::Core => 0,
        Stage::Front => 1,
        Stage::Layers => 2,
        Stage::Limit => 3,
        Stage::Buffer => 4,
        Stage::Space => 5,
        Stage::Quota => 6,
        Stage::Backlog => 7,
        Stage::Range => 8,
        Stage::Lock => 9,
        Stage::Order => 10,
        Stage::Pool => 11,
        Stage::Index => 12,
        Stage::Held => 13,
        Stage::Queue => 14,
        Stage::Write => 15,
        Stage::Flush => 16,
        Stage::Read => 17,
        Stage::Verify => 18,
        Stage::Other => 19,
        Stage::Reply => 20,
        Stage::Peer => 21,
        Stage::Server | Stage::Wire => return None,
    })
}

/// A reply as it travels.
#[derive(Clone, PartialEq, Debug)]
pub struct Told {
    /// The reply, or the error.
    pub result: Result<Reply, Failure>,
    /// The position of the change, or of the last one that was seen.
    pub position: Option<Position>,
    /// The server's account.
    pub stages: Stages,
    /// The checksums of the payload, which are right.
    pub sums: Sums,
}

impl Told {
    /// The reply to an operation, for which `Answer` has the payload.
    pub fn of(op: &Op, result: &Result<Answer>, stages: Stages) -> Told {
        match result {
            Ok(Answer { reply, data, position }) => {
                let sums = data.as_ref().map_or_else(Sums::default, |data| Sums::of_op(op, data));
                Told { result: Ok(reply.clone()), position: *position, stages, sums }
            }
            Err(error) => Told { result: Err(error.into()), position: None, stages, sums: Sums::default() },
        }
    }
    /// The answer, with the payload that came beside it.
    pub fn answer(self, data: Option<Slice>) -> Result<Answer> {
        Ok(Answer { reply: self.result?, data, position: self.position })
    }
}

/// Appends the frame of a reply to the request of `header`, but for the payload, which has so many bytes. A reply that is too long for a
/// body is returned and is the payload; one that is too long even for that becomes the error `TooLarge`.
pub fn frame(out: &mut Vec<u8>, header: Header, told: &Told, payload_bytes: usize) -> Option<Vec<u8>> {
    let start = frame::begin(out);
    let long = encode(out, told).unwrap_or_else(|error| {
        let told =
            Told { result: Err((&error).into()), stages: told.stages.clone(), position: None, sums: Sums::default() };
        encode(out, &told).expect("an error is short")
    });
    let payload_bytes = long.as_ref().map_or(payload_bytes, Vec::len);
    frame::seal(out, start, Header { kind: FrameKind::Reply, ..header }, payload_bytes);
    long
}

/// Appends the body of a reply. A reply that is too long for a body is returned: it is the frame's payload. Errors: `TooLarge`,
/// if it is too long even for that; nothing is appended then.
pub fn encode(out: &mut Vec<u8>, told: &Told) -> Result<Option<Vec<u8>>> {
    let start = out.len();
    let mut put = Put(out);
    put.option(told.position.as_ref(), |put, Position { group, term, index, durable }| {
        put.u32(group.0).u64(term.0).u64(index.0).bool(*durable)
    });
    told.stages.put(&mut put);
    let sums = put.0.len();
    told.sums.put(&mut put);
    let reply = put.0.len();
    match &told.result {
        Ok(ok) => put_reply(&mut put, ok),
        Err(failure) => _ = put.u8(FAILED).failure(failure),
    }
    if out.len() - reply <= SHORT_BYTES_MAX {
        return Ok(None);
    }
    let long = out.split_off(reply);
    if long.len() > IO_BYTES_MAX {
        out.truncate(start);
        return Err(Error::new(Kind::TooLarge, "the answer is longer than the longest message; ask for less at once"));
    }
    assert!(told.sums == Sums::default(), "a long reply is the only payload");
    out.truncate(sums);
    let mut put = Put(out);
    Sums::of(0, &long).put(&mut put);
    put.u8(LONG);
    Ok(Some(long))
}

/// Decodes the body of a reply, and checks its payload. Errors: `Corrupt`.
pub fn decode(body: &[u8], payload: &[u8]) -> Result<Told> {
    let mut is_long = false;
    let mut told = Take::all(body, |take| {
        let position = take.option(|take| {
            let (group, term, index) = (GroupId(take.u32()?), Term(take.u64()?), Index(take.u64()?));
            Ok(Position { group, term, index, durable: take.bool()? })
        })?;
        let (stages, sums) = (Stages::take(take)?, Sums::take(take)?);
        sums.check(payload)?;
        let result = match take.u8()? {
            LONG => {
                is_long = true;
                Take::all(payload, |take| take.u8().and_then(|tag| take_reply(take, tag))).map(Ok)?
            }
            FAILED => Err(take.failure()?),
            tag => Ok(take_reply(take, tag)?),
        };
        Ok(Told { result, position, stages, sums })
    })?;
    if is_long {
        let is_so = payload.len() > SHORT_BYTES_MAX && told.sums == Sums::of(0, payload);
        told.sums = Sums::default();
        return if is_so { Ok(told) } else { Err(corrupt("a short reply travels as payload")) };
    }
    let beside = if let Ok(Reply::Data { length }) = &told.result { *length as usize } else { 0 };
    if beside == payload.len() {
        Ok(told)
    } else {
        Err(corrupt("a reply has a payload of another length than it says"))
    }
}

impl Put<'_> {
    fn failure(&mut self, failure: &Failure) -> &mut Self {
        self.kind(failure.kind).text(&failure.text)
    }
}

impl Take<'_> {
    fn failure(&mut self) -> Result<Failure> {
        Ok(Failure { kind: self.kind()?, text: self.text()? })
    }
}

fn put_reply(put: &mut Put<'_>, reply: &Reply) {
    match reply {
        Reply::Done => put.u8(1),
        Reply::Attr(attr) => put.u8(2).attr(attr),
        Reply::Target(target) => put.u8(3).long(target),
        Reply::Value(value) => put.u8(4).long(value),
        Reply::Names(names) => put.u8(5).long(names),
        Reply::Data { length } => put.u8(6).u32(*length),
        Reply::Wrote { offset, length } => put.u8(7).u64(*offset).u32(*length),
        Reply::Found(position) => put.u8(8).option(*position, Put::u64),
        Reply::Entries { entries, next_cookie } => put.u8(9).u64(*next_cookie).items(entries, Put::entry),
        Reply::StatFs(space) => put.u8(10).space(*space),
        Reply::Volume(volume) => put.u8(11).volume(volume),
        Reply::Volumes(volumes) => put.u8(12).items(volumes, Put::volume),
        Reply::InTheWay(lock) => put.u8(13).option(lock.as_ref(), |put, lock| put.lock(lock)),
    };
}

fn take_reply(take: &mut Take<'_>, tag: u8) -> Result<Reply> {
    Ok(match tag {
        1 => Reply::Done,
        2 => Reply::Attr(take.attr()?),
        3 => Reply::Target(take.long()?.into()),
        4 => Reply::Value(take.long()?.into()),
        5 => Reply::Names(take.long()?.into()),
        6 => Reply::Data { length: take.u32()? },
        7 => Reply::Wrote { offset: take.u64()?, length: take.u32()? },
        8 => Reply::Found(take.option(Take::u64)?),
        9 => {
            let next_cookie = take.u64()?;
            Reply::Entries { entries: take.items(Take::entry)?, next_cookie }
        }
        10 => Reply::StatFs(take.space()?),
        11 => Reply::Volume(take.volume()?),
        12 => Reply::Volumes(take.items(Take::volume)?),
        13 => Reply::InTheWay(take.option(Take::lock)?.map(Box::new)),
        _ => return Err(corrupt("a reply has a tag that is not known")),
    })
}
