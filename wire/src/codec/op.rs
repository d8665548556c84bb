//! The body of a request: its context and its operation.

use super::bytes::{Put, Take, corrupt};
use super::sums::Sums;
use crate::{Context, FrameKind, Header, frame};
use base::{At, Ino, Name, Op, Result, Room, Seek, SetAttr, SetHow, SetTime, Sync, VolumeId};
use runtime::Span;

/// An operation that has come over the wire.
#[derive(Debug)]
pub struct Asked {
    /// Its context.
    pub context: Context,
    /// The operation.
    pub op: Op,
    /// The checksums of its payload, which are right.
    pub sums: Sums,
}

/// Appends the frame of a request, but for its payload, which has so many bytes; the header has what else there is.
pub fn frame(out: &mut Vec<u8>, header: Header, (context, op): (&Context, &Op), sums: &Sums, payload_bytes: usize) {
    let header = Header { kind: FrameKind::Op, session: context.session, request: context.request, ..header };
    frame::put(out, header, payload_bytes, |out| encode(out, context, op, sums));
}

/// Appends the body of a request. The header has the context's session and request (`Header::of`).
pub fn encode(out: &mut Vec<u8>, context: &Context, op: &Op, sums: &Sums) {
    let mut put = Put(out);
    let Context {
        volume,
        session: _,
        request: _,
        done,
        uid,
        gid,
        umask,
        noatime,
        unkept,
        keeps,
        written_back,
        span: _,
    } = *context;
    let flags = [noatime, unkept, keeps, written_back];
    let flags = flags.iter().enumerate().fold(0, |flags, (bit, is_set)| flags | u8::from(*is_set) << bit);
    put.u32(volume.0).u64(done).u32(uid).u32(gid).u16(umask).u8(flags);
    sums.put(&mut put);
    put_op(&mut put, op);
}

/// Decodes the body of a request, and checks its payload. Errors: `Corrupt`.
pub fn decode(header: &Header, body: &[u8], payload: &[u8], span: Span) -> Result<Asked> {
    let asked = Take::all(body, |take| {
        let (volume, done) = (VolumeId(take.u32()?), take.u64()?);
        let (uid, gid, umask, flags) = (take.u32()?, take.u32()?, take.u16()?, take.bits(0xf)?);
        let [noatime, unkept, keeps, written_back] = [0, 1, 2, 3].map(|bit| flags >> bit & 1 == 1);
        let (session, request) = (header.session, header.request);
        let context =
            Context { volume, session, request, done, uid, gid, umask, noatime, unkept, keeps, written_back, span };
        Ok(Asked { context, sums: Sums::take(take)?, op: take_op(take)? })
    })?;
    if !payload.is_empty() && !matches!(asked.op, Op::Write { .. }) {
        return Err(corrupt("a request that is no write has a payload"));
    }
    asked.sums.check(payload)?;
    Ok(asked)
}

fn put_op(put: &mut Put<'_>, op: &Op) {
    match op {
        Op::Lookup { parent, name } => put.u8(1).ino(*parent).name(name),
        Op::GetAttr { ino } => put.u8(2).ino(*ino),
        Op::Recall { ino } => put.u8(3).ino(*ino),
        Op::SetAttr { ino, set } => put.u8(4).ino(*ino).set(set),
        Op::ReadLink { ino } => put.u8(5).ino(*ino),
        Op::Create { parent, name, mode, exclusive } => put.u8(6).ino(*parent).name(name).u16(*mode).bool(*exclusive),
        Op::MakeDir { parent, name, mode } => put.u8(7).ino(*parent).name(name).u16(*mode),
        Op::SymLink { parent, name, target } => put.u8(8).ino(*parent).name(name).long(target),
        Op::MakeNode { parent, name, kind, mode, rdev } => {
            put.u8(9).ino(*parent).name(name).file_kind(*kind).u16(*mode).u32(*rdev)
        }
        Op::TempFile { parent, mode } => put.u8(10).ino(*parent).u16(*mode),
        Op::Link { ino, new_parent, new_name } => put.u8(11).ino(*ino).ino(*new_parent).name(new_name),
        Op::Unlink { parent, name } => put.u8(12).ino(*parent).name(name),
        Op::RemoveDir { parent, name } => put.u8(13).ino(*parent).name(name),
        Op::Rename { parent, name, new_parent, new_name, no_replace, whiteout } => {
            put.u8(14).ino(*parent).name(name).ino(*new_parent).name(new_name).bool(*no_replace).bool(*whiteout)
        }
        Op::Exchange { parent, name, new_parent, new_name } => {
            put.u8(15).ino(*parent).name(name).ino(*new_parent).name(new_name)
        }
        Op::Open { ino, truncate } => put.u8(16).ino(*ino).bool(*truncate),
        Op::Release { ino } => put.u8(17).ino(*ino),
        Op::Forget { ino, times } => put.u8(18).ino(*ino).u64(*times),
        Op::Read { ino, offset, length } => put.u8(19).ino(*ino).u64(*offset).u32(*length),
        Op::Write { ino, at, sync, kill_privileges } => {
            put.u8(20).ino(*ino).at(*at).u8(sync_code(*sync)).bool(*kill_privileges)
        }
        Op::Allocate { ino, offset, length, keep_size, room } => {
            put.u8(21).ino(*ino).u64(*offset).u64(*length).bool(*keep_size).u8(room_code(*room))
        }
        Op::Seek { ino, offset, what } => put.u8(22).ino(*ino).u64(*offset).u8(seek_code(*what)),
        Op::GetXattr { ino, name } => put.u8(23).ino(*ino).name(name),
        Op::ListXattr { ino } => put.u8(24).ino(*ino),
        Op::SetXattr { ino, name, value, how, kill_setgid } => {
            put.u8(25).ino(*ino).name(name).long(value).u8(how_code(*how)).bool(*kill_setgid)
        }
        Op::RemoveXattr { ino, name } => put.u8(26).ino(*ino).name(name),
        Op::Fsync { ino, sync } => put.u8(27).ino(*ino).u8(sync_code(*sync)),
        Op::ReadDir { ino, cookie, count, plus } => put.u8(28).ino(*ino).u64(*cookie).u32(*count).bool(*plus),
        Op::StatFs => put.u8(29),
        Op::SyncAll => put.u8(30),
        Op::VolumeCreate { name, size_bytes } => put.u8(31).name(name).option(*size_bytes, Put::u64),
        Op::VolumeDelete { name } => put.u8(32).name(name),
        Op::VolumeRename { name, new_name } => put.u8(33).name(name).name(new_name),
        Op::VolumeResize { name, size_bytes } => put.u8(34).name(name).option(*size_bytes, Put::u64),
        Op::VolumeLayers { name, layers } => put.u8(35).name(name).items(layers, Put::layer),
        Op::VolumePolicy { name, policy } => put.u8(36).name(name).policy(*policy),
        Op::VolumeLimits { name, tree, changed } => {
            put.u8(37).name(name).option(*tree, |put, (project, top)| put.u32(project).ino(top)).changed(changed)
        }
        Op::VolumeList => put.u8(38),
        Op::Lock { lock, wish } => put.u8(39).lock(lock).lock_wish(*wish),
    };
}

fn take_op(take: &mut Take<'_>) -> Result<Op> {
    Ok(match take.u8()? {
        1 => Op::Lookup { parent: take.ino()?, name: take.name()? },
        2 => Op::GetAttr { ino: take.ino()? },
        3 => Op::Recall { ino: take.ino()? },
        4 => Op::SetAttr { ino: take.ino()?, set: Box::new(take.set()?) },
        5 => Op::ReadLink { ino: take.ino()? },
        6 => Op::Create { parent: take.ino()?, name: take.name()?, mode: take.u16()?, exclusive: take.bool()? },
        7 => Op::MakeDir { parent: take.ino()?, name: take.name()?, mode: take.u16()? },
        8 => Op::SymLink { parent: take.ino()?, name: take.name()?, target: take.long()?.into() },
        9 => {
            let (parent, name, kind) = (take.ino()?, take.name()?, take.file_kind()?);
            Op::MakeNode { parent, name, kind, mode: take.u16()?, rdev: take.u32()? }
        }
        10 => Op::TempFile { parent: take.ino()?, mode: take.u16()? },
        11 => Op::Link { ino: take.ino()?, new_parent: take.ino()?, new_name: take.name()? },
        12 => Op::Unlink { parent: take.ino()?, name: take.name()? },
        13 => Op::RemoveDir { parent: take.ino()?, name: take.name()? },
        14 => {
            let (parent, name, new_parent, new_name) = take.names()?;
            Op::Rename { parent, name, new_parent, new_name, no_replace: take.bool()?, whiteout: take.bool()? }
        }
        15 => {
            let (parent, name, new_parent, new_name) = take.names()?;
            Op::Exchange { parent, name, new_parent, new_name }
        }
        16 => Op::Open { ino: take.ino()?, truncate: take.bool()? },
        17 => Op::Release { ino: take.ino()? },
        18 => Op::Forget { ino: take.ino()?, times: take.u64()? },
        19 => Op::Read { ino: take.ino()?, offset: take.u64()?, length: take.u32()? },
        20 => {
            let (ino, at) = (take.ino()?, take.at()?);
            Op::Write { ino, at, sync: take.sync()?, kill_privileges: take.bool()? }
        }
        21 => {
            let (ino, offset, length) = (take.ino()?, take.u64()?, take.u64()?);
            Op::Allocate { ino, offset, length, keep_size: take.bool()?, room: take.room()? }
        }
        22 => Op::Seek { ino: take.ino()?, offset: take.u64()?, what: take.seek()? },
        23 => Op::GetXattr { ino: take.ino()?, name: take.attribute()? },
        24 => Op::ListXattr { ino: take.ino()? },
        25 => {
            let (ino, name, value) = (take.ino()?, take.attribute()?, take.long()?.into());
            Op::SetXattr { ino, name, value, how: take.how()?, kill_setgid: take.bool()? }
        }
        26 => Op::RemoveXattr { ino: take.ino()?, name: take.attribute()? },
        27 => Op::Fsync { ino: take.ino()?, sync: take.sync()? },
        28 => Op::ReadDir { ino: take.ino()?, cookie: take.u64()?, count: take.u32()?, plus: take.bool()? },
        29 => Op::StatFs,
        30 => Op::SyncAll,
        39 => Op::Lock { lock: Box::new(take.lock()?), wish: take.lock_wish()? },
        tag => return take_volume_op(take, tag),
    })
}

fn take_volume_op(take: &mut Take<'_>, tag: u8) -> Result<Op> {
    Ok(match tag {
        31 => Op::VolumeCreate { name: take.name()?, size_bytes: take.option(Take::u64)? },
        32 => Op::VolumeDelete { name: take.name()? },
        33 => Op::VolumeRename { name: take.name()?, new_name: take.name()? },
        34 => Op::VolumeResize { name: take.name()?, size_bytes: take.option(Take::u64)? },
        35 => Op::VolumeLayers { name: take.name()?, layers: take.items(Take::layer)?.into() },
        36 => Op::VolumePolicy { name: take.name()?, policy: take.policy()? },
        37 => {
            let (name, tree) = (take.name()?, take.option(|take| Ok((take.u32()?, take.ino()?)))?);
            Op::VolumeLimits { name, tree, changed: take.changed()?.into() }
        }
        38 => Op::VolumeList,
        _ => return Err(corrupt("a request has an operation that is not known")),
    })
}

impl Put<'_> {
    fn at(&mut self, at: At) -> &mut Self {
        match at {
            At::Offset(offset) => self.u8(1).u64(offset),
            At::End => self.u8(2),
        }
    }
    fn set(&mut self, set: &SetAttr) -> &mut Self {
        let SetAttr { mode, uid, gid, size, atime, mtime, ctime, guard, project, kill_privileges } = *set;
        self.option(mode, Put::u16).option(uid, Put::u32).option(gid, Put::u32).option(size, Put::u64);
        self.option(atime, Put::set_time).option(mtime, Put::set_time).option(ctime, Put::time);
        self.option(guard, Put::guard).option(project, Put::u32).bool(kill_privileges)
    }
    fn set_time(&mut self, time: SetTime) -> &mut Self {
        match time {
            SetTime::Now => self.u8(1),
            SetTime::To(time) => self.u8(2).time(time),
        }
    }
}

impl Take<'_> {
    fn names(&mut self) -> Result<(Ino, Name, Ino, Name)> {
        Ok((self.ino()?, self.name()?, self.ino()?, self.name()?))
    }
    fn at(&mut self) -> Result<At> {
        match self.u8()? {
            1 => self.u64().map(At::Offset),
            2 => Ok(At::End),
            _ => Err(corrupt("a write goes to a place that is not known")),
        }
    }
    fn set(&mut self) -> Result<SetAttr> {
        Ok(SetAttr {
            mode: self.option(Take::u16)?,
            uid: self.option(Take::u32)?,
            gid: self.option(Take::u32)?,
            size: self.option(Take::u64)?,
            atime: self.option(Take::set_time)?,
            mtime: self.option(Take::set_time)?,
            ctime: self.option(Take::time)?,
            guard: self.option(Take::guard)?,
            project: self.option(Take::u32)?,
            kill_privileges: self.bool()?,
        })
    }
    fn set_time(&mut self) -> Result<SetTime> {
        match self.u8()? {
            1 => Ok(SetTime::Now),
            2 => self.time().map(SetTime::To),
            _ => Err(corrupt("a request sets a time that is not known")),
        }
    }
    fn sync(&mut self) -> Result<Sync> {
        self.coded(&[Sync::Ordered, Sync::Written, Sync::Data, Sync::All], sync_code)
    }
    fn room(&mut self) -> Result<Room> {
        self.coded(&[Room::Promised, Room::Hole, Room::Zeroed], room_code)
    }
    fn seek(&mut self) -> Result<Seek> {
        self.coded(&[Seek::Data, Seek::Hole], seek_code)
    }
    fn how(&mut self) -> Result<SetHow> {
        self.coded(&[SetHow::Any, SetHow::Create, SetHow::Replace], how_code)
    }
}

fn sync_code(sync: Sync) -> u8 {
    match sync {
        Sync::Ordered => 1,
        Sync::Written => 2,
        Sync::Data => 3,
        Sync::All => 4,
    }
}

fn room_code(room: Room) -> u8 {
    match room {
        Room::Promised => 1,
        Room::Hole => 2,
        Room::Zeroed => 3,
    }
}

fn seek_code(seek: Seek) -> u8 {
    match seek {
        Seek::Data => 1,
        Seek::Hole => 2,
    }
}

fn how_code(how: SetHow) -> u8 {
    match how {
        SetHow::Any => 1,
        SetHow::Create => 2,
        SetHow::Replace => 3,
    }
}
