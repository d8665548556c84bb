//! Bytes of logical edits and of the plain values inside them.

use super::bytes::{Reader, Writer, corrupt};
use super::layers::{put_layers, take_layers};
use base::limits::{NAME_BYTES_MAX, NUMBER_MAX, TARGET_BYTES_MAX, XATTR_NAME_BYTES_MAX};
use base::{
    Attributes, Crcs, Edit, Error, FileKind, Follow, GroupId, Guard, Holder, Ino, Inode, Intent, IntentId, Kind, Limit,
    Limits, Name, Numbers, Result, SessionId, Term, TierHint, TierPolicy, Time, Tree, Volume, VolumeId,
};
use std::sync::Arc;

/// Appends an inode (see `docs/format`): fixed size.
pub fn put_inode(out: &mut Vec<u8>, inode: &Inode) {
    assert!(inode.mode & !0o7777 == 0, "`take_inode` reads the kind from the bits above");
    let mut writer = Writer(out);
    writer.u16((inode.st_mode() & 0xffff) as u16).u16(flags_of(inode));
    writer.u32(inode.uid).u32(inode.gid).u32(inode.links).u32(inode.rdev).u32(inode.project).u32(inode.generation);
    writer.u64(inode.size).u64(inode.trim).u64(inode.entries).u64(inode.parent.0);
    writer.i64(inode.atime.0).i64(inode.mtime.0).i64(inode.ctime.0).i64(inode.btime.0);
}

fn flags_of(inode: &Inode) -> u16 {
    let Guard { immutable, append_only, hands_down_project } = inode.guard;
    let bits = [inode.dead, inode.xattrs.are_stored(), immutable, append_only, hands_down_project];
    let bits: u16 = bits.into_iter().enumerate().map(|(bit, set)| u16::from(set) << bit).sum();
    bits | tier_code(inode.xattrs.tier()) << TIER_BIT
}

/// The first of the two bits of an inode's flags that hold its tier hint.
const TIER_BIT: u32 = 5;

/// Hints in the order of their codes.
const TIERS: [Option<TierHint>; 4] = [None, Some(TierHint::Auto), Some(TierHint::Flash), Some(TierHint::Disk)];

fn tier_code(tier: Option<TierHint>) -> u16 {
    match tier {
        None => 0,
        Some(TierHint::Auto) => 1,
        Some(TierHint::Flash) => 2,
        Some(TierHint::Disk) => 3,
    }
}

/// Reads an inode.
pub fn take_inode(reader: &mut Reader<'_>) -> Result<Inode> {
    let mode = reader.u16()?;
    let kind = FileKind::from_mode(u32::from(mode)).ok_or_else(|| corrupt("an inode has no known kind"))?;
    let flags = reader.u16()?;
    Ok(Inode {
        kind,
        mode: mode & 0o7777,
        dead: flags & 1 != 0,
        xattrs: Attributes::new(flags & 2 != 0, TIERS[usize::from(flags >> TIER_BIT & 3)]),
        guard: Guard { immutable: flags & 4 != 0, append_only: flags & 8 != 0, hands_down_project: flags & 16 != 0 },
        uid: reader.u32()?,
        gid: reader.u32()?,
        links: reader.u32()?,
        rdev: reader.u32()?,
        project: reader.u32()?,
        generation: reader.u32()?,
        size: reader.u64()?,
        trim: reader.u64()?,
        entries: reader.u64()?,
        parent: Ino(reader.u64()?),
        atime: Time(reader.i64()?),
        mtime: Time(reader.i64()?),
        ctime: Time(reader.i64()?),
        btime: Time(reader.i64()?),
    })
}

/// Appends a kind of object as one byte.
pub fn put_kind(out: &mut Vec<u8>, kind: FileKind) {
    out.push((kind.mode_bits() >> 12) as u8);
}

/// Reads a kind of object.
pub fn take_kind(reader: &mut Reader<'_>) -> Result<FileKind> {
    let code = reader.u8()?;
    FileKind::from_mode(u32::from(code) << 12).ok_or_else(|| corrupt("no such kind of object"))
}

/// Appends a volume without its layers, which come behind it if it has any.
pub fn put_volume(out: &mut Vec<u8>, volume: &Volume) {
    let mut writer = Writer(out);
    writer.u32(volume.id.0).u64(volume.root.0).i64(volume.created.0).counted(volume.name.as_bytes());
    writer.u64(volume.size_bytes.unwrap_or(0));
}

/// Reads a volume without layers.
pub fn take_volume(reader: &mut Reader<'_>) -> Result<Volume> {
    let (id, root, created) = (VolumeId(reader.u32()?), Ino(reader.u64()?), Time(reader.i64()?));
    let name = take_name(reader)?;
    let size_bytes = Some(reader.u64()?).filter(|bytes| *bytes > 0);
    let (layers, policy, limits) = (Box::default(), TierPolicy::default(), Limits::NONE);
    Ok(Volume { id, root, created, name, size_bytes, layers, policy, limits })
}

/// The properties of a volume that come behind those that each has. Each kind holds those before it too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Further {
    /// None.
    Nothing,
    /// Layers.
    Layers,
    /// A policy other than the default, and perhaps layers.
    Policy,
    /// Limits, any policy, and perhaps layers.
    Limits,
    /// Limits of directory trees, and all that `Limits` has.
    Trees,
}

const WRITE_BACK: u8 = 0;
const FLASH_ONLY: u8 = 1;

impl Further {
    /// The properties of a volume.
    pub fn of(volume: &Volume) -> Further {
        match (volume.policy, volume.layers.is_empty()) {
            _ if volume.limits.trees().next().is_some() => Further::Trees,
            _ if volume.limits != Limits::NONE => Further::Limits,
            (TierPolicy::WriteBack, true) => Further::Nothing,
            (TierPolicy::WriteBack, false) => Further::Layers,
            (TierPolicy::FlashOnly, _) => Further::Policy,
        }
    }
    /// Appends them.
    pub fn put(self, out: &mut Vec<u8>, volume: &Volume) {
        let layered = !volume.layers.is_empty();
        if self >= Further::Policy {
            let policy = if volume.policy == TierPolicy::FlashOnly { FLASH_ONLY } else { WRITE_BACK };
            Writer(out).u8(policy).u8(u8::from(layered));
        }
        if self >= Further::Limits {
            put_limits(out, &volume.limits);
        }
        if self == Further::Trees {
            Writer(out).u8(volume.limits.trees().count() as u8);
            for (project, Tree { top, limits }) in volume.limits.trees() {
                Writer(out).u32(project).u64(top.0);
                put_limits(out, limits);
            }
        }
        if layered {
            put_layers(out, &volume.layers);
        }
    }
    /// Reads them. Errors: `Newer` for a policy or a limit that this build does not know: it must not be left out in silence.
    pub fn take(self, reader: &mut Reader<'_>, volume: &mut Volume) -> Result<()> {
        let mut layered = self == Further::Layers;
        if self >= Further::Policy {
            volume.policy = match reader.u8()? {
                FLASH_ONLY => TierPolicy::FlashOnly,
                WRITE_BACK if self >= Further::Limits => TierPolicy::WriteBack,
                _ => {
                    let newer = "a volume has a policy of a newer version; upgrade this machine";
                    return Err(Error::new(Kind::Newer, newer));
                }
            };
            layered = reader.u8()? != 0;
        }
        if self >= Further::Limits {
            volume.limits = take_limits(reader)?;
        }
        if self == Further::Trees {
            volume.limits = take_trees(reader, std::mem::take(&mut volume.limits))?;
        }
        if layered {
            volume.layers = take_layers(reader)?;
        }
        Ok(())
    }
}

/// A limit's code, which never changes.
fn limit_code(limit: Limit) -> u8 {
    match limit {
        Limit::Iops => 1,
        Limit::Bandwidth => 2,
        Limit::ReadIops => 3,
        Limit::ReadBandwidth => 4,
        Limit::WriteIops => 5,
        Limit::WriteBandwidth => 6,
        Limit::Burst => 7,
        Limit::Weight => 8,
        Limit::Reserve => 9,
    }
}

fn take_limits(reader: &mut Reader<'_>) -> Result<Limits> {
    let mut limits = Limits::NONE;
    for _ in 0..reader.u8()? {
        let (code, value) = (reader.u8()?, reader.u64()?);
        let limit = Limit::ALL.into_iter().find(|limit| limit_code(*limit) == code).ok_or_else(|| {
            Error::new(Kind::Newer, "a volume has a limit of a newer version; upgrade this machine").with(code)
        })?;
        if value == 0 || limits.get(limit).is_some() {
            return Err(corrupt("a volume has a limit of nothing, or the same limit twice"));
        }
        limits = limits.with(&[(limit, value)]).map_err(|_| corrupt("a volume's limit is out of bounds"))?;
    }
    Ok(limits)
}

fn put_limits(out: &mut Vec<u8>, limits: &Limits) {
    Writer(out).u8(limits.all().count() as u8);
    for (limit, value) in limits.all() {
        Writer(out).u8(limit_code(limit)).u64(value);
    }
}

/// Reads limits of trees, and adds them to those of their volume.
fn take_trees(reader: &mut Reader<'_>, mut limits: Limits) -> Result<Limits> {
    let mut last = 0;
    for _ in 0..reader.u8()? {
        let (project, top) = (reader.u32()?, Ino(reader.u64()?));
        let own: Vec<_> = take_limits(reader)?.all().collect();
        if project <= last || own.is_empty() {
            return Err(corrupt("trees are not in the order of their projects, or one has no limit"));
        }
        last = project;
        limits = limits.with_tree(project, top, &own).map_err(|_| corrupt("a tree's limits are out of bounds"))?;
    }
    Ok(limits)
}

/// Appends a change of a volume. One without layers has the code of before there were any.
fn put_volume_change(out: &mut Vec<u8>, name: &Name, volume: &Volume) {
    let further = Further::of(volume);
    let code = match further {
        Further::Nothing => code::VOLUME_CHANGE,
        Further::Layers => code::LAYERED_VOLUME_CHANGE,
        Further::Policy => code::POLICY_VOLUME_CHANGE,
        Further::Limits => code::LIMITED_VOLUME_CHANGE,
        Further::Trees => code::TREED_VOLUME_CHANGE,
    };
    Writer(out).u8(code).counted(name.as_bytes());
    put_volume(out, volume);
    further.put(out, volume);
}

fn take_volume_change(tag: u8, reader: &mut Reader<'_>) -> Result<Edit> {
    let (name, mut volume) = (take_name(reader)?, take_volume(reader)?);
    let further = match tag {
        code::LAYERED_VOLUME_CHANGE => Further::Layers,
        code::POLICY_VOLUME_CHANGE => Further::Policy,
        code::LIMITED_VOLUME_CHANGE => Further::Limits,
        code::TREED_VOLUME_CHANGE => Further::Trees,
        _ => Further::Nothing,
    };
    further.take(reader, &mut volume)?;
    Ok(Edit::VolumeChange { name, volume })
}

/// Appends who has a session.
pub fn put_holder(out: &mut Vec<u8>, holder: &Holder) {
    Writer(out).u32(holder.volume.0).u8(u8::from(holder.locks)).counted(holder.client.as_bytes());
}
/// Reads who has a session.
pub fn take_holder(reader: &mut Reader<'_>) -> Result<Holder> {
    let volume = VolumeId(reader.u32()?);
    let locks = match reader.u8()? {
        0 => false,
        1 => true,
        _ => return Err(corrupt("a session has unknown flags")),
    };
    Ok(Holder { client: take_name(reader)?, volume, locks })
}

fn take_name(reader: &mut Reader<'_>) -> Result<Name> {
    Name::new(reader.counted()?).map_err(|_| corrupt("not a name"))
}

/// Appends an extended attribute.
pub fn put_xattr(out: &mut Vec<u8>, name: &Name, value: &[u8]) {
    Writer(out).counted(name.as_bytes()).u32(value.len() as u32).bytes(value);
}

/// Reads an extended attribute.
pub fn take_xattr(reader: &mut Reader<'_>) -> Result<(Name, Arc<[u8]>)> {
    let (name, length) = (take_xattr_name(reader)?, reader.u32()?);
    Ok((name, reader.bytes(length as usize)?.into()))
}

fn take_xattr_name(reader: &mut Reader<'_>) -> Result<Name> {
    Name::of_attribute(reader.counted()?).map_err(|_| corrupt("not an attribute's name"))
}

fn put_intent_id(writer: &mut Writer<'_>, id: IntentId) {
    writer.u32(id.group.0).u64(id.number);
}

fn take_intent_id(reader: &mut Reader<'_>) -> Result<IntentId> {
    Ok(IntentId { group: GroupId(reader.u32()?), number: reader.u64()? })
}

/// Appends inode numbers, of which a change holds few.
pub fn put_inos(out: &mut Vec<u8>, inos: &[Ino]) {
    Writer(out).u8(u8::try_from(inos.len()).expect("a change holds few inodes of a group"));
    for ino in inos {
        Writer(out).u64(ino.0);
    }
}

/// Reads inode numbers.
pub fn take_inos(reader: &mut Reader<'_>) -> Result<Box<[Ino]>> {
    let count = reader.u8()?;
    (0..count).map(|_| reader.u64().map(Ino)).collect()
}

/// Reads where numbers end. More than an inode number has room for would end a later start.
pub fn take_numbers(reader: &mut Reader<'_>) -> Result<Numbers> {
    let numbers = Numbers { ino: reader.u64()?, cookie: reader.u64()?, intent: reader.u64()? };
    match numbers.ino < Ino::SEQUENCE_END && numbers.cookie < NUMBER_MAX && numbers.intent < NUMBER_MAX {
        true => Ok(numbers),
        false => Err(corrupt("numbers beyond what there can be")),
    }
}

/// Appends an intent.
pub fn put_intent(out: &mut Vec<u8>, intent: &Intent) {
    put_intent_id(&mut Writer(out), intent.id);
    Writer(out).u16(u16::try_from(intent.follow.len()).expect("a change has at most one follower per group"));
    for follow in &intent.follow {
        let edits = u8::try_from(follow.edits.len()).expect("a follower has few edits");
        let nests = |edit: &Edit| matches!(edit, Edit::IntentPut(_) | Edit::Map { .. });
        assert!(!follow.edits.iter().any(nests), "`take_intent` refuses intents within intents, and payloads");
        Writer(out).u32(follow.volume.0).u32(follow.group.0).u8(edits);
        follow.edits.iter().for_each(|edit| put_edit(out, edit));
    }
}

/// Reads an intent. Intents do not nest: an intent's edits may hold none (a bound on recursion for hostile bytes). Nor
/// do they map blocks: the followers of an intent have no payload.
pub fn take_intent(reader: &mut Reader<'_>) -> Result<Intent> {
    let id = take_intent_id(reader)?;
    let count = reader.u16()?;
    let mut follow = Vec::new();
    for _ in 0..count {
        let (volume, group, edits) = (VolumeId(reader.u32()?), GroupId(reader.u32()?), reader.u8()?);
        let edits = (0..edits).map(|_| take_edit_within(reader, false)).collect::<Result<_>>()?;
        follow.push(Follow { volume, group, edits });
    }
    Ok(Intent { id, follow })
}

mod code {
    pub const INODE_PUT: u8 = 1;
    pub const INODE_TOUCH: u8 = 2;
    pub const INODE_PARENT: u8 = 3;
    pub const INODE_EXTEND: u8 = 4;
    pub const INODE_CUT: u8 = 5;
    pub const INODE_DROP: u8 = 6;
    pub const ORPHAN_PUT: u8 = 7;
    pub const ORPHAN_DROP: u8 = 8;
    pub const ENTRY_PUT: u8 = 9;
    pub const ENTRY_DROP: u8 = 10;
    pub const TARGET_PUT: u8 = 11;
    pub const MAP: u8 = 12;
    pub const INTENT_PUT: u8 = 13;
    pub const INTENT_DROP: u8 = 14;
    pub const FOLLOWED_PUT: u8 = 15;
    pub const FOLLOWED_DROP: u8 = 16;
    pub const VOLUME_PUT: u8 = 17;
    pub const VOLUME_DROP: u8 = 18;
    pub const SESSION_DROP: u8 = 19;
    pub const RESERVE: u8 = 20;
    pub const PUNCH: u8 = 21;
    pub const XATTR_PUT: u8 = 23;
    pub const XATTR_DROP: u8 = 24;
    pub const NUMBERS: u8 = 28;
    pub const VOLUME_CHANGE: u8 = 29;
    pub const INODE_PROJECT: u8 = 30;
    pub const LAYERED_VOLUME_CHANGE: u8 = 31;
    pub const POLICY_VOLUME_CHANGE: u8 = 32;
    pub const LIMITED_VOLUME_CHANGE: u8 = 33;
    pub const TREED_VOLUME_CHANGE: u8 = 34;
    pub const SESSION_PUT: u8 = 35;
    pub const TERM: u8 = 36;
    pub const LOCK_PUT: u8 = 37;
    pub const LOCK_DROP: u8 = 38;
}
/// Lengths of names and targets have 16 bits.
const _: () = assert!(NAME_BYTES_MAX < 1 << 16 && XATTR_NAME_BYTES_MAX < 1 << 16 && TARGET_BYTES_MAX < 1 << 16);
/// `take_edit` reads those from the first to the last of these by one arm.
const _: () = assert!(code::INODE_PUT == 1 && code::ORPHAN_DROP == 8);

/// Appends one edit: a code byte, then its fields.
pub fn put_edit(out: &mut Vec<u8>, edit: &Edit) {
    match edit {
        Edit::InodePut { .. }
        | Edit::InodeTouch { .. }
        | Edit::InodeParent { .. }
        | Edit::InodeProject { .. }
        | Edit::InodeExtend { .. }
        | Edit::InodeCut { .. }
        | Edit::InodeDrop { .. }
        | Edit::OrphanPut { .. }
        | Edit::OrphanDrop { .. } => put_inode_edit(out, edit),
        Edit::EntryPut { dir, name, ino, kind, cookie } => {
            Writer(out).u8(code::ENTRY_PUT).u64(dir.0).u64(ino.0).u64(*cookie);
            put_kind(out, *kind);
            Writer(out).counted(name.as_bytes());
        }
        Edit::EntryDrop { dir, name, cookie } => {
            Writer(out).u8(code::ENTRY_DROP).u64(dir.0).u64(*cookie).counted(name.as_bytes());
        }
        Edit::TargetPut { ino, target } => {
            Writer(out).u8(code::TARGET_PUT).u64(ino.0).counted(target);
        }
        Edit::Map { ino, first, crcs } => {
            assert!(crcs.len() <= usize::from(u16::MAX), "a payload has few blocks");
            let mut writer = Writer(out);
            writer.u8(code::MAP).u64(ino.0).u64(*first).u16(crcs.len() as u16);
            for &crc in crcs.as_slice() {
                writer.u32(crc);
            }
        }
        Edit::Reserve { ino, first, count } => {
            Writer(out).u8(code::RESERVE).u64(ino.0).u64(*first).u64(*count);
        }
        Edit::Punch { ino, first, count, trim } => {
            Writer(out).u8(code::PUNCH).u64(ino.0).u64(*first).u64(*count).u64(*trim);
        }
        Edit::XattrPut { ino, name, value } => {
            Writer(out).u8(code::XATTR_PUT).u64(ino.0);
            put_xattr(out, name, value);
        }
        Edit::XattrDrop { ino, name } => {
            Writer(out).u8(code::XATTR_DROP).u64(ino.0).counted(name.as_bytes());
        }
        Edit::IntentPut(intent) => {
            Writer(out).u8(code::INTENT_PUT);
            put_intent(out, intent);
        }
        Edit::IntentDrop { id } => put_of_intent(out, code::INTENT_DROP, *id, None),
        Edit::FollowedPut { id } => put_of_intent(out, code::FOLLOWED_PUT, *id, None),
        Edit::FollowedDrop { id } => put_of_intent(out, code::FOLLOWED_DROP, *id, None),
        Edit::LockPut { id, inos } => put_of_intent(out, code::LOCK_PUT, *id, Some(inos)),
        Edit::LockDrop { id } => put_of_intent(out, code::LOCK_DROP, *id, None),
        Edit::VolumePut(volume) => {
            assert!(volume.layers.is_empty(), "a volume gets its layers by a change");
            assert!(volume.policy == TierPolicy::default(), "and its policy");
            assert!(volume.limits == Limits::NONE, "and its limits");
            Writer(out).u8(code::VOLUME_PUT);
            put_volume(out, volume);
        }
        Edit::VolumeChange { name, volume } => put_volume_change(out, name, volume),
        Edit::VolumeDrop { id } => {
            Writer(out).u8(code::VOLUME_DROP).u32(id.0);
        }
        Edit::SessionPut { .. } | Edit::Term { .. } | Edit::SessionDrop { .. } => put_session_edit(out, edit),
        Edit::Numbers { numbers } => {
            Writer(out).u8(code::NUMBERS).u64(numbers.ino).u64(numbers.cookie).u64(numbers.intent);
        }
    }
}

/// Appends an edit about an intent, with the inodes that are held for it.
fn put_of_intent(out: &mut Vec<u8>, code: u8, id: IntentId, inos: Option<&[Ino]>) {
    put_intent_id(Writer(out).u8(code), id);
    inos.iter().for_each(|inos| put_inos(out, inos));
}

fn put_session_edit(out: &mut Vec<u8>, edit: &Edit) {
    match edit {
        Edit::SessionPut { session, holder } => {
            Writer(out).u8(code::SESSION_PUT).u64(session.0);
            put_holder(out, holder);
        }
        Edit::Term { term, start } => {
            Writer(out).u8(code::TERM).u64(term.0).u64(*start);
        }
        Edit::SessionDrop { session } => {
            Writer(out).u8(code::SESSION_DROP).u64(session.0);
        }
        _ => unreachable!("the caller picks edits of sessions"),
    }
}

fn put_inode_edit(out: &mut Vec<u8>, edit: &Edit) {
    match edit {
        Edit::InodePut { ino, inode } => {
            Writer(out).u8(code::INODE_PUT).u64(ino.0);
            put_inode(out, inode);
        }
        Edit::InodeTouch { ino, links, entries, mtime, ctime } => {
            let mut writer = Writer(out);
            writer.u8(code::INODE_TOUCH).u64(ino.0).u32(*links as u32).i64(*entries).i64(mtime.0).i64(ctime.0);
        }
        Edit::InodeParent { ino, parent } => {
            Writer(out).u8(code::INODE_PARENT).u64(ino.0).u64(parent.0);
        }
        Edit::InodeProject { ino, project } => {
            Writer(out).u8(code::INODE_PROJECT).u64(ino.0).u32(*project);
        }
        Edit::InodeExtend { ino, size, time, kill_privileges } => {
            let mut writer = Writer(out);
            writer.u8(code::INODE_EXTEND).u64(ino.0).u64(*size).i64(time.0).u8(u8::from(*kill_privileges));
        }
        Edit::InodeCut { ino, size, trim, time } => {
            Writer(out).u8(code::INODE_CUT).u64(ino.0).u64(*size).u64(*trim).i64(time.0);
        }
        Edit::InodeDrop { ino } => {
            Writer(out).u8(code::INODE_DROP).u64(ino.0);
        }
        Edit::OrphanPut { ino } => {
            Writer(out).u8(code::ORPHAN_PUT).u64(ino.0);
        }
        Edit::OrphanDrop { ino } => {
            Writer(out).u8(code::ORPHAN_DROP).u64(ino.0);
        }
        _ => unreachable!("put_edit passes only inode edits"),
    }
}

/// The position in an encoded edit of the checksum of the block number `block` that it maps; None if it maps fewer, or
/// is another edit.
pub fn map_crc_at(edit: &[u8], block: usize) -> Option<usize> {
    let mut reader = Reader::new(edit);
    let is_map = reader.u8().ok()? == code::MAP;
    let (_ino, _first, count) = (reader.u64().ok()?, reader.u64().ok()?, reader.u16().ok()?);
    let crcs_at = edit.len() - reader.rest().len();
    (is_map && block < usize::from(count)).then_some(crcs_at + 4 * block)
}

/// Reads one edit. Errors: `Corrupt`; `Newer` for a code that this build does not know.
pub fn take_edit(reader: &mut Reader<'_>) -> Result<Edit> {
    take_edit_within(reader, true)
}

fn take_edit_within(reader: &mut Reader<'_>, intents: bool) -> Result<Edit> {
    let tag = reader.u8()?;
    match tag {
        code::INODE_PUT..=code::ORPHAN_DROP | code::INODE_PROJECT => take_inode_edit(tag, reader),
        code::ENTRY_PUT => {
            let (dir, ino, cookie) = (Ino(reader.u64()?), Ino(reader.u64()?), reader.u64()?);
            let kind = take_kind(reader)?;
            Ok(Edit::EntryPut { dir, name: take_name(reader)?, ino, kind, cookie })
        }
        code::ENTRY_DROP => {
            let (dir, cookie) = (Ino(reader.u64()?), reader.u64()?);
            Ok(Edit::EntryDrop { dir, name: take_name(reader)?, cookie })
        }
        code::TARGET_PUT => Ok(Edit::TargetPut { ino: Ino(reader.u64()?), target: reader.counted()?.into() }),
        code::MAP if intents => {
            let (ino, first, count) = (Ino(reader.u64()?), reader.u64()?, reader.u16()?);
            let crcs = (0..count).map(|_| reader.u32()).collect::<Result<Crcs>>()?;
            Ok(Edit::Map { ino, first, crcs })
        }
        code::RESERVE => Ok(Edit::Reserve { ino: Ino(reader.u64()?), first: reader.u64()?, count: reader.u64()? }),
        code::PUNCH => {
            let (ino, first) = (Ino(reader.u64()?), reader.u64()?);
            Ok(Edit::Punch { ino, first, count: reader.u64()?, trim: reader.u64()? })
        }
        code::XATTR_PUT => {
            let ino = Ino(reader.u64()?);
            let (name, value) = take_xattr(reader)?;
            Ok(Edit::XattrPut { ino, name, value })
        }
        code::XATTR_DROP => Ok(Edit::XattrDrop { ino: Ino(reader.u64()?), name: take_xattr_name(reader)? }),
        code::INTENT_PUT if intents => Ok(Edit::IntentPut(take_intent(reader)?)),
        code::INTENT_DROP => Ok(Edit::IntentDrop { id: take_intent_id(reader)? }),
        code::FOLLOWED_PUT => Ok(Edit::FollowedPut { id: take_intent_id(reader)? }),
        code::FOLLOWED_DROP => Ok(Edit::FollowedDrop { id: take_intent_id(reader)? }),
        code::LOCK_PUT => Ok(Edit::LockPut { id: take_intent_id(reader)?, inos: take_inos(reader)? }),
        code::LOCK_DROP => Ok(Edit::LockDrop { id: take_intent_id(reader)? }),
        code::VOLUME_PUT => Ok(Edit::VolumePut(take_volume(reader)?)),
        code::VOLUME_CHANGE
        | code::LAYERED_VOLUME_CHANGE
        | code::POLICY_VOLUME_CHANGE
        | code::LIMITED_VOLUME_CHANGE
        | code::TREED_VOLUME_CHANGE => take_volume_change(tag, reader),
        code::VOLUME_DROP => Ok(Edit::VolumeDrop { id: VolumeId(reader.u32()?) }),
        code::SESSION_PUT => {
            let (session, holder) = (SessionId(reader.u64()?), Box::new(take_holder(reader)?));
            Ok(Edit::SessionPut { session, holder })
        }
        code::TERM => Ok(Edit::Term { term: Term(reader.u64()?), start: reader.u64()? }),
        code::SESSION_DROP => Ok(Edit::SessionDrop { session: SessionId(reader.u64()?) }),
        code::NUMBERS => take_numbers(reader).map(|numbers| Edit::Numbers { numbers }),
        code::INTENT_PUT => Err(corrupt("an intent within an intent")),
        code::MAP => Err(corrupt("an intent maps blocks")),
        // No version has ever written it: what was zeroed is damaged.
        0 => Err(Error::new(Kind::Corrupt, "a record holds an edit without a code")),
        _ => Err(Error::new(Kind::Newer, "a record holds an edit of a newer version").with(format!("code {tag}"))),
    }
}

fn take_inode_edit(tag: u8, reader: &mut Reader<'_>) -> Result<Edit> {
    let ino = Ino(reader.u64()?);
    Ok(match tag {
        code::INODE_PUT => Edit::InodePut { ino, inode: take_inode(reader)? },
        code::INODE_TOUCH => {
            let (links, entries) = (reader.u32()? as i32, reader.i64()?);
            Edit::InodeTouch { ino, links, entries, mtime: Time(reader.i64()?), ctime: Time(reader.i64()?) }
        }
        code::INODE_PROJECT => Edit::InodeProject { ino, project: reader.u32()? },
        code::INODE_PARENT => Edit::InodeParent { ino, parent: Ino(reader.u64()?) },
        code::INODE_EXTEND => {
            let (size, time) = (reader.u64()?, Time(reader.i64()?));
            Edit::InodeExtend { ino, size, time, kill_privileges: reader.u8()? != 0 }
        }
        code::INODE_CUT => {
            let (size, trim) = (reader.u64()?, reader.u64()?);
            Edit::InodeCut { ino, size, trim, time: Time(reader.i64()?) }
        }
        code::INODE_DROP => Edit::InodeDrop { ino },
        code::ORPHAN_PUT => Edit::OrphanPut { ino },
        _ => Edit::OrphanDrop { ino },
    })
}
