//! The calls by which operations are done again, such that the file system gets exactly what was recorded.
//!
//! The kernel answers much of what programs ask from its caches. A recording has what it did not answer itself, so each call
//! here gets past them: a look-up is link(2) from another mount, which looks the new name up afresh and then fails; attributes
//! are asked for with AT_STATX_FORCE_SYNC; pages are dropped before they are read through the page cache, without read-ahead;
//! so are the pages in which a directory's listing is kept. What is reached by a name is reached by its directory's descriptor
//! and a name that the kernel knows, so that nothing is looked up on the way.

use super::live::{DIRECTORY_MODE, FILE_MODE, Live};
use super::room::Room;
use recording::plan::{Needed, Step};
use recording::{Deed, FileShape, Flags};
use rustix::fs::{
    Advice, AtFlags, CWD, FallocateFlags, FileType, OFlags, RawDir, RenameFlags, SeekFrom, StatxFlags, Timespec,
    Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags,
};
use rustix::fs::{
    chmodat, chownat, fadvise, fallocate, fdatasync, fgetxattr, fstatfs, fsync, ftruncate, lgetxattr, linkat,
    llistxattr, lremovexattr, lsetxattr, mkdirat, mknodat, openat, readlinkat, renameat_with, seek, statx, symlinkat,
    syncfs, unlinkat, utimensat,
};
use rustix::io::{Errno, Result, pread, pwrite};
use rustix::process::{getegid, geteuid};
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A file on a mount that a replay never runs on.
const ELSEWHERE: &str = "/proc/self/status";
/// Largest target of a link, and value of an attribute, that is made.
const TEXT_BYTES_MAX: u64 = 4095;
/// The handle of an operation on a file's content that needs none in particular.
const ANY: Needed = Needed::Access(Flags(0));
/// Least buffer for a listing: an entry with the longest name fits.
const LISTING_BYTES_MIN: u64 = 512;
/// The size of a page.
const PAGE_BYTES: u64 = 4096;

/// Does the operation of a step. Returns the time that its call took, and whether it ended as recorded.
pub fn act(live: &Live<'_>, step: &Step, room: &mut Room) -> (Duration, bool) {
    ready(live, step);
    let began = Instant::now();
    let result = call(live, step, room);
    let took = began.elapsed();
    if result.is_ok() {
        after(live, step);
    }
    (took, result.is_ok() == (step.operation.errno == 0))
}

/// Takes what the call needs out of the kernel's caches. Where that can't be had, the call is answered from them.
fn ready(live: &Live<'_>, step: &Step) {
    let operation = &step.operation;
    match operation.deed {
        Deed::Read if operation.flags.has(Flags::CACHED) => {
            if let (Some(needed), Some(length)) = (Needed::by(operation), NonZeroU64::new(operation.length)) {
                let first = operation.offset / PAGE_BYTES * PAGE_BYTES;
                let end = operation.offset.saturating_add(length.get()).div_ceil(PAGE_BYTES).saturating_mul(PAGE_BYTES);
                let range = NonZeroU64::new(end - first);
                let file = live.handle(step.node, step.place, needed);
                let _ = file.and_then(|file| fadvise(file, first, range, Advice::DontNeed));
            }
        }
        Deed::ReadDir => {
            let _ = live.listing(step.node).and_then(|directory| fadvise(directory, 0, None, Advice::DontNeed));
        }
        // A directory can be reached by its old name only now.
        Deed::Rename => {
            let _ = step.made.map(|node| live.directory(node));
        }
        _ => {}
    }
}

/// Notes the directory that the call has made or found, so that what lies in it can be reached.
fn after(live: &Live<'_>, step: &Step) {
    if let Some(made) = step.made
        && matches!(step.operation.deed, Deed::MakeDir | Deed::Lookup)
    {
        live.note(made, step.place);
    }
}

fn call(live: &Live<'_>, step: &Step, room: &mut Room) -> Result<()> {
    match step.operation.deed {
        Deed::Read | Deed::Write | Deed::Fsync | Deed::Allocate | Deed::Seek | Deed::Release => data(live, step, room),
        Deed::GetAttr | Deed::SetAttr | Deed::GetXattr | Deed::ListXattr | Deed::SetXattr | Deed::RemoveXattr => {
            attributes(live, step, room)
        }
        Deed::Unlink | Deed::RemoveDir | Deed::Rename | Deed::Exchange | Deed::Link => change_name(live, step),
        _ => name(live, step),
    }
}

/// Operations on a file's content.
fn data(live: &Live<'_>, step: &Step, room: &mut Room) -> Result<()> {
    let Step { operation, node, place, .. } = step;
    if operation.deed == Deed::Release {
        return live.take(*node).map(drop);
    }
    if live.plan.nodes[*node].shape == FileShape::Directory {
        return fsync(live.listing(*node)?);
    }
    let file = live.handle(*node, *place, Needed::by(operation).unwrap_or(ANY))?;
    match operation.deed {
        Deed::Read => {
            // A read through the page cache that goes beyond the end would have the kernel ask where that is.
            let short = operation.flags.has(Flags::CACHED) && operation.bytes > 0;
            let length = if short { u64::from(operation.bytes) } else { operation.length };
            pread(&file, room.for_read(length), operation.offset).map(drop)
        }
        Deed::Write => pwrite(&file, room.for_write(operation.length), operation.offset).map(drop),
        Deed::Fsync if operation.flags.has(Flags::DATA_SYNC) => fdatasync(&file),
        Deed::Fsync => fsync(&file),
        Deed::Seek if operation.flags.has(Flags::HOLE) => seek(&file, SeekFrom::Hole(operation.offset)).map(drop),
        Deed::Seek => match seek(&file, SeekFrom::Data(operation.offset)) {
            // There is none: that is an answer.
            Ok(_) | Err(Errno::NXIO) => Ok(()),
            Err(error) => Err(error),
        },
        _ => fallocate(&file, room_flags(operation.flags), operation.offset, operation.length),
    }
}

fn room_flags(flags: Flags) -> FallocateFlags {
    let pairs = [
        (Flags::KEEP_SIZE, FallocateFlags::KEEP_SIZE),
        (Flags::HOLE, FallocateFlags::PUNCH_HOLE),
        (Flags::ZEROED, FallocateFlags::ZERO_RANGE),
    ];
    pairs.into_iter().filter(|(flag, _)| flags.has(*flag)).fold(FallocateFlags::empty(), |all, (_, flag)| all | flag)
}

/// Operations on attributes, by a name if there is one.
fn attributes(live: &Live<'_>, step: &Step, room: &mut Room) -> Result<()> {
    let Step { operation, node, place, .. } = step;
    match operation.deed {
        Deed::GetAttr => {
            let flags = AtFlags::STATX_FORCE_SYNC | AtFlags::SYMLINK_NOFOLLOW;
            if let Some(file) = live.any_handle(*node) {
                return statx(&file, "", flags | AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).map(drop);
            }
            if live.plan.nodes[*node].shape == FileShape::Directory {
                let directory = live.directory(*node)?;
                return statx(directory, "", flags | AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).map(drop);
            }
            let (directory, name) = live.at(*place)?;
            statx(directory, &*name, flags, StatxFlags::BASIC_STATS).map(drop)
        }
        Deed::SetAttr => set_attributes(live, step),
        Deed::GetXattr => {
            let (attribute, room) = (attribute(operation.name), room.for_read(operation.length));
            let got = match live.any_handle(*node) {
                Some(file) => fgetxattr(&file, &*attribute, room),
                None => lgetxattr(&*live.path(*node, *place)?, &*attribute, room),
            };
            match got {
                // The recording does not tell its name, and so not its value.
                Err(Errno::NODATA) if operation.errno == 0 => Ok(()),
                got => got.map(drop),
            }
        }
        Deed::ListXattr => llistxattr(&*live.path(*node, *place)?, room.for_read(operation.length)).map(drop),
        Deed::SetXattr => {
            let value = room.for_write(operation.length.min(TEXT_BYTES_MAX));
            lsetxattr(&*live.path(*node, *place)?, &*attribute(operation.name), value, XattrFlags::empty())
        }
        _ => lremovexattr(&*live.path(*node, *place)?, &*attribute(operation.name)),
    }
}

/// The name of an attribute: one that any inode may have, where that is permitted.
fn attribute(hash: u64) -> String {
    let space = if geteuid().is_root() { "trusted" } else { "user" };
    format!("{space}.{hash:016x}")
}

fn set_attributes(live: &Live<'_>, step: &Step) -> Result<()> {
    let Step { operation, node, place, .. } = step;
    if operation.flags.has(Flags::SIZE) {
        let file = live.handle(*node, *place, Needed::by(operation).unwrap_or(ANY))?;
        return ftruncate(&file, operation.offset);
    }
    let (directory, name) = match *place {
        Some(_) => live.at(*place)?,
        None => (live.directory(*node)?, ".".to_string()),
    };
    let is_directory = live.plan.nodes[*node].shape == FileShape::Directory;
    if operation.flags.has(Flags::MODE) {
        let mode = if is_directory { DIRECTORY_MODE } else { FILE_MODE };
        return chmodat(directory, &*name, mode, AtFlags::empty());
    }
    if operation.flags.has(Flags::OWNER) {
        return chownat(directory, &*name, Some(geteuid()), Some(getegid()), Live::NAME_ITSELF);
    }
    let time = |nanos| Timespec { tv_sec: 0, tv_nsec: nanos };
    let times = Timestamps { last_access: time(UTIME_OMIT), last_modification: time(UTIME_NOW) };
    utimensat(directory, &*name, &times, Live::NAME_ITSELF)
}

/// Operations that remove a name, or give another one.
fn change_name(live: &Live<'_>, step: &Step) -> Result<()> {
    let Step { operation, node, place, new_place, .. } = step;
    match operation.deed {
        Deed::Unlink | Deed::RemoveDir => {
            let (directory, name) = live.at(*place)?;
            let is_directory = operation.deed == Deed::RemoveDir;
            unlinkat(directory, &*name, if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() })
        }
        Deed::Link => {
            let (new_directory, new_name) = live.at(*new_place)?;
            let Ok((directory, name)) = live.at(*place) else {
                use std::os::fd::AsRawFd;
                let file = live.any_handle(*node).ok_or(Errno::NOENT)?;
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                return linkat(CWD, &*path, new_directory, &*new_name, AtFlags::SYMLINK_FOLLOW);
            };
            linkat(directory, &*name, new_directory, &*new_name, AtFlags::empty())
        }
        _ => {
            let (directory, name) = live.at(*place)?;
            let (new_directory, new_name) = live.at(*new_place)?;
            let flags = match operation.deed {
                Deed::Exchange => RenameFlags::EXCHANGE,
                _ if operation.flags.has(Flags::NO_REPLACE) => RenameFlags::NOREPLACE,
                _ => RenameFlags::empty(),
            };
            renameat_with(directory, &*name, new_directory, &*new_name, flags)
        }
    }
}

/// Operations that look at a name or make one, open a file, or are about all of them.
fn name(live: &Live<'_>, step: &Step) -> Result<()> {
    let Step { operation, node, place, made, .. } = step;
    match operation.deed {
        Deed::Lookup => look_up(live, step),
        Deed::Open => live.open(*node, *place, operation.flags, OFlags::empty()).map(drop),
        // Without O_EXCL, with which the kernel would look the name up once more.
        Deed::Create => live.open(made.unwrap_or(*node), *place, operation.flags, OFlags::CREATE).map(drop),
        Deed::TempFile => {
            let flags = super::live::open_flags(operation.flags.with(true, Flags::WRITE)) | OFlags::TMPFILE;
            let file = openat(live.directory(*node)?, ".", flags, FILE_MODE)?;
            live.keep(made.unwrap_or(*node), file, operation.flags);
            Ok(())
        }
        Deed::ReadDir => list(live, step),
        Deed::StatFs => fstatfs(live.top()).map(drop),
        Deed::SyncAll => syncfs(live.top()),
        Deed::ReadLink => {
            let (directory, name) = live.at(*place)?;
            readlinkat(directory, &*name, Vec::new()).map(drop)
        }
        deed => {
            let (directory, name) = live.at(*place)?;
            match deed {
                Deed::MakeDir => mkdirat(directory, &*name, DIRECTORY_MODE),
                Deed::SymLink => {
                    let target = "x".repeat(operation.length.clamp(1, TEXT_BYTES_MAX) as usize);
                    symlinkat(&*target, directory, &*name)
                }
                Deed::CreateNode => mknodat(directory, &*name, FileType::RegularFile, FILE_MODE, 0),
                _ => mknodat(directory, &*name, FileType::Fifo, FILE_MODE, 0),
            }
        }
    }
}

/// Looks a name up. The call fails in any case; which way tells whether the name is there. `Ok`: as recorded.
fn look_up(live: &Live<'_>, step: &Step) -> Result<()> {
    let (directory, name) = live.at(step.place)?;
    let is_there = match linkat(CWD, ELSEWHERE, directory, &*name, AtFlags::empty()) {
        Err(Errno::EXIST) => true,
        Err(Errno::XDEV) => false,
        Err(error) => return Err(error),
        Ok(()) => unreachable!("no link leads from one mount to another"),
    };
    if is_there == (step.operation.made != 0) { Ok(()) } else { Err(Errno::NOENT) }
}

/// Reads on in a directory, or from its beginning.
fn list(live: &Live<'_>, step: &Step) -> Result<()> {
    let directory = live.listing(step.node)?;
    if step.operation.offset == 0 {
        seek(directory, SeekFrom::Start(0))?;
    }
    let length = step.operation.length.clamp(LISTING_BYTES_MIN, base::limits::IO_BYTES_MAX as u64);
    let mut entries = vec![MaybeUninit::uninit(); length as usize];
    match RawDir::new(directory.as_fd(), &mut entries).next() {
        Some(Err(error)) => Err(error),
        _ => Ok(()),
    }
}
