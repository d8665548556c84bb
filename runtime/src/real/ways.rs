//! The way of requests through the kernel: when it sent each to a FUSE server, and when it had the answer. Two programs of a few
//! instructions at the kernel's tracepoints `fuse_request_send` and `fuse_request_end` note both in a map, by connection and number.
//!
//! Promises: nothing is measured, and nothing of it costs anything, while no `Ways` is there; a kernel that refuses is no error for who asks
//! (see `open`). Absent by design: events for each request, which would have to be read as fast as they come; requests that wait for the
//! kernel's own bound (`max_background`) before they are sent.

use base::{Error, Kind, Result};
use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Requests that the map has room for, the last ones: those of a second at 250,000 a second. The map takes some 30 MB of the kernel's memory.
const ENTRIES: u32 = 1 << 18;
/// Rows that one call takes out of the map.
const BATCH: usize = 4096;

/// A request's way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The time at which the kernel sent it, on the monotonic clock.
    pub sent_ns: u64,
    /// The time at which the kernel had the answer.
    pub ended_ns: u64,
    /// The kind of request, as FUSE numbers it.
    pub opcode: u32,
}

/// Notes the ways of all requests on this machine, until it is dropped.
pub struct Ways {
    map: OwnedFd,
    /// The kernel's description of a request that is sent, which names the kinds.
    format: String,
    /// The tracepoints with their programs, which end with these.
    _events: [OwnedFd; 2],
}

impl Ways {
    /// Begins. Errors: `Unsupported`, if this process may not, or the kernel can't.
    pub fn open() -> Result<Ways> {
        let no = |what: &'static str| move |error: std::io::Error| Error::new(Kind::Unsupported, what).with(error);
        let events = Events::open().map_err(no("the kernel's tracepoints can't be opened"))?;
        let (send, end) = (events.read("fuse_request_send"), events.read("fuse_request_end"));
        let (send, end) = (send.map_err(no("no tracepoint of FUSE"))?, end.map_err(no("no tracepoint of FUSE"))?);
        let map = create_map().map_err(no("the kernel makes no map"))?;
        let attach = |event: &Event, program: &dyn Fn(&Event, i32) -> Option<Vec<u64>>| {
            let program = program(event, map.as_raw_fd()).ok_or_else(std::io::Error::last_os_error)?;
            attach(event.id, &load(&program)?)
        };
        let failed = no("the kernel takes no program at its tracepoints");
        let events = [attach(&send, &at_send).map_err(&failed)?, attach(&end, &at_end).map_err(&failed)?];
        Ok(Ways { map, format: send.format, _events: events })
    }
    /// The name of a kind of request: `read`, `getattr`.
    pub fn kind(&self, opcode: u32) -> String {
        kind(&self.format, opcode)
    }
    /// The way of a request of a connection, by the minor number of its mount's device; None if it is not known, or not over.
    pub fn way(&self, connection: u32, request: u64) -> Option<Way> {
        let (key, mut value) = ([request, connection.into()], [0u64; VALUE]);
        let attributes = [self.map.as_raw_fd() as u64, address(&key), address_mut(&mut value), 0];
        bpf(LOOKUP, &attributes).ok()?;
        way_of(&value)
    }
    /// The ways of all requests of these connections that are still known and over.
    pub fn all(&self, connections: &[u32]) -> Vec<Way> {
        let (mut keys, mut values) = (vec![[0u64; KEY]; BATCH], vec![[0u64; VALUE]; BATCH]);
        let (mut place, mut has_place, mut all) = ([0u64; KEY], false, Vec::new());
        loop {
            let mut attributes = [
                if has_place { address(&place) } else { 0 },
                address_mut(&mut place),
                keys.as_mut_ptr() as u64,
                values.as_mut_ptr() as u64,
                BATCH as u64 | (self.map.as_raw_fd() as u64) << 32,
                0,
                0,
            ];
            let outcome = bpf_told(LOOKUP_BATCH, &mut attributes);
            let count = (attributes[4] as u32 as usize).min(BATCH);
            let is_end = outcome.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ENOENT));
            if outcome.is_err() && !is_end {
                return all;
            }
            let rows = keys[..count].iter().zip(&values);
            let ours = rows.filter(|([_, connection], _)| connections.iter().any(|one| u64::from(*one) == *connection));
            all.extend(ours.filter_map(|(_, value)| way_of(value)));
            if is_end {
                return all;
            }
            has_place = true;
        }
    }
}

fn kind(format: &str, opcode: u32) -> String {
    let rest = format.split_once(&format!("{{{opcode}, \"FUSE_")).map(|(_, rest)| rest);
    let name = rest.and_then(|rest| rest.split('"').next()).map(str::to_lowercase);
    name.unwrap_or_else(|| format!("kind {opcode}"))
}

/// Words of a key: a request's number, and its connection. Words of a value: the times, and the kind.
const KEY: usize = 2;
const VALUE: usize = 3;

fn way_of(&[sent_ns, ended_ns, opcode]: &[u64; VALUE]) -> Option<Way> {
    (ended_ns >= sent_ns && sent_ns > 0).then_some(Way { sent_ns, ended_ns, opcode: opcode as u32 })
}

fn address<T>(of: &T) -> u64 {
    std::ptr::from_ref(of) as u64
}

fn address_mut<T>(of: &mut T) -> u64 {
    std::ptr::from_mut(of) as u64
}

/// The directory of the kernel's events, on a file system that is mounted nowhere.
struct Events(OwnedFd);

/// A tracepoint: its number, and the places of its fields.
struct Event {
    id: u64,
    format: String,
}

impl Events {
    fn open() -> std::io::Result<Events> {
        let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        Ok(Events(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?))
    }
    fn read(&self, name: &str) -> std::io::Result<Event> {
        let text = |file: &str| {
            let path = format!("events/fuse/{name}/{file}");
            let mut text = String::new();
            File::from(openat(&self.0, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
                .read_to_string(&mut text)?;
            Ok::<_, std::io::Error>(text)
        };
        let id = text("id")?.trim().parse().map_err(std::io::Error::other)?;
        Ok(Event { id, format: text("format")? })
    }
}

impl Event {
    /// The place of a field, in bytes, if it has this size.
    fn place(&self, name: &str, size: u32) -> Option<i16> {
        let line = self.format.lines().find(|line| {
            let declared = line.trim_start().strip_prefix("field:").and_then(|rest| rest.split(';').next());
            declared.is_some_and(|declared| declared.split_whitespace().last() == Some(name))
        })?;
        let value = |key: &str| line.split(';').find_map(|part| part.trim().strip_prefix(key)?.parse::<u32>().ok());
        (value("size:")? == size).then_some(i16::try_from(value("offset:")?).ok()?)
    }
}

/// An instruction of the kernel's virtual machine: code, registers, offset and immediate (RFC 9669).
const fn instruction(code: u8, target: u8, source: u8, offset: i16, immediate: i32) -> u64 {
    code as u64
        | (target as u64) << 8
        | (source as u64) << 12
        | (offset as u16 as u64) << 16
        | (immediate as u32 as u64) << 32
}
const fn load_word(target: u8, source: u8, offset: i16) -> u64 {
    instruction(0x61, target, source, offset, 0)
}
const fn load_long(target: u8, source: u8, offset: i16) -> u64 {
    instruction(0x79, target, source, offset, 0)
}
const fn store(offset: i16, source: u8) -> u64 {
    instruction(0x7b, FRAME, source, offset, 0)
}
const fn copy(target: u8, source: u8) -> u64 {
    instruction(0xbf, target, source, 0, 0)
}
const fn set(target: u8, value: i32) -> u64 {
    instruction(0xb7, target, 0, 0, value)
}
const fn add(target: u8, value: i32) -> u64 {
    instruction(0x07, target, 0, 0, value)
}
const fn call(helper: i32) -> u64 {
    instruction(0x85, 0, 0, 0, helper)
}
const EXIT: u64 = instruction(0x95, 0, 0, 0, 0);
/// The register of the stack's frame.
const FRAME: u8 = 10;
/// Numbers of the kernel's helpers.
const HELP_LOOKUP: i32 = 1;
const HELP_UPDATE: i32 = 2;
const HELP_NOW: i32 = 5;

/// Puts the map into the first register: an instruction of two words.
const fn load_map(map: i32) -> [u64; 2] {
    [instruction(0x18, 1, 1, 0, map), 0]
}

/// Notes the key of the event that the first register has, in the frame.
fn put_key(event: &Event, program: &mut Vec<u64>) -> Option<()> {
    let (request, connection) = (event.place("unique", 8)?, event.place("connection", 4)?);
    program.extend([copy(6, 1), load_long(2, 6, request), store(-16, 2), load_word(3, 6, connection), store(-8, 3)]);
    Some(())
}

/// The program for a request that is sent: map[key] = (now, 0, kind).
fn at_send(event: &Event, map: i32) -> Option<Vec<u64>> {
    let mut program = Vec::new();
    put_key(event, &mut program)?;
    program.extend([load_word(4, 6, event.place("opcode", 4)?), store(-24, 4), set(5, 0), store(-32, 5)]);
    program.extend([call(HELP_NOW), store(-40, 0)]);
    program.extend(load_map(map));
    program.extend([copy(2, FRAME), add(2, -16), copy(3, FRAME), add(3, -40), set(4, 0), call(HELP_UPDATE)]);
    program.extend([set(0, 0), EXIT]);
    Some(program)
}

/// The program for a request that has ended: if it is known, its second word becomes now.
fn at_end(event: &Event, map: i32) -> Option<Vec<u64>> {
    let mut program = Vec::new();
    put_key(event, &mut program)?;
    program.extend(load_map(map));
    program.extend([copy(2, FRAME), add(2, -16), call(HELP_LOOKUP)]);
    // Over the next three, if there is none.
    program.extend([instruction(0x15, 0, 0, 3, 0), copy(7, 0), call(HELP_NOW), instruction(0x7b, 7, 0, 8, 0)]);
    program.extend([set(0, 0), EXIT]);
    Some(program)
}

/// Commands of bpf(2).
const CREATE_MAP: u32 = 0;
const LOOKUP: u32 = 1;
const LOAD: u32 = 5;
const LOOKUP_BATCH: u32 = 24;
/// A hash that forgets what was not used for longest.
const LRU_HASH: u64 = 9;
/// A program at a tracepoint.
const AT_TRACEPOINT: u64 = 5;

/// Words of the argument of bpf(2): as many as any command here reads.
const WORDS: usize = 8;

fn bpf(command: u32, words: &[u64]) -> std::io::Result<i32> {
    let mut all = [0; WORDS];
    all[..words.len()].copy_from_slice(words);
    call_bpf(command, &mut all)
}

/// The same with what the kernel has written into the argument.
fn bpf_told(command: u32, words: &mut [u64; WORDS - 1]) -> std::io::Result<i32> {
    let mut all = [0; WORDS];
    all[..WORDS - 1].copy_from_slice(words);
    let outcome = call_bpf(command, &mut all);
    words.copy_from_slice(&all[..WORDS - 1]);
    outcome
}

fn call_bpf(command: u32, words: &mut [u64; WORDS]) -> std::io::Result<i32> {
    call_kernel(libc::SYS_bpf, [command.into(), address_mut(words), size_of_val(words) as u64, 0, 0])
}

/// A system call for which neither rustix nor the standard library has a function: bpf(2), perf_event_open(2), and the ioctls of the latter.
fn call_kernel(number: libc::c_long, arguments: [u64; 5]) -> std::io::Result<i32> {
    let [first, second, third, fourth, fifth] = arguments;
    // SAFETY: the calls of this file alone come here. Addresses among the arguments are of live locals of the callers, as long as the kernel
    // takes arguments, keys, values and programs to be.
    let result = unsafe { libc::syscall(number, first, second, third, fourth, fifth) };
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(result as i32) }
}

fn owned(descriptor: i32) -> OwnedFd {
    // SAFETY: the kernel has just returned it, and nobody else has it.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

fn create_map() -> std::io::Result<OwnedFd> {
    let (key, value) = ((KEY * 8) as u64, (VALUE * 8) as u64);
    // Pairs of 32 bits: kind and key's size, value's size and entries.
    bpf(CREATE_MAP, &[LRU_HASH | key << 32, value | u64::from(ENTRIES) << 32]).map(owned)
}

fn load(program: &[u64]) -> std::io::Result<OwnedFd> {
    let licence = c"Apache-2.0";
    let words = [AT_TRACEPOINT | (program.len() as u64) << 32, program.as_ptr() as u64, licence.as_ptr() as u64];
    bpf(LOAD, &words).map(owned)
}

/// Attaches a program to a tracepoint, on all CPUs, as long as the descriptor is open.
fn attach(tracepoint: u64, program: &OwnedFd) -> std::io::Result<OwnedFd> {
    /// `struct perf_event_attr` as far as it is needed here: its first version.
    const BYTES: u64 = 64;
    /// PERF_TYPE_TRACEPOINT, PERF_FLAG_FD_CLOEXEC, PERF_EVENT_IOC_SET_BPF and PERF_EVENT_IOC_ENABLE.
    const TRACEPOINT: u64 = 2;
    const CLOEXEC: u64 = 8;
    const SET_PROGRAM: u64 = 0x4004_2408;
    const ENABLE: u64 = 0x2400;
    let mut attributes = [0u64; BYTES as usize / 8];
    attributes[0] = TRACEPOINT | BYTES << 32;
    attributes[1] = tracepoint;
    let (everyone, cpu, no_group) = (-1i64 as u64, 0, -1i64 as u64);
    let arguments = [address(&attributes), everyone, cpu, no_group, CLOEXEC];
    let event = call_kernel(libc::SYS_perf_event_open, arguments).map(owned)?;
    let control = |what: u64, of: u64| call_kernel(libc::SYS_ioctl, [event.as_raw_fd() as u64, what, of, 0, 0]);
    control(SET_PROGRAM, program.as_raw_fd() as u64)?;
    control(ENABLE, 0)?;
    Ok(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: fuse_request_send
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;

	field:dev_t connection;	offset:8;	size:4;	signed:0;
	field:uint64_t unique;	offset:16;	size:8;	signed:0;
	field:enum fuse_opcode opcode;	offset:24;	size:4;	signed:0;

print fmt: \"%s\", __print_symbolic(REC->opcode, {5, \"FUSE_READLINK\"}, {15, \"FUSE_READ\"}, {4096, \"CUSE_INIT\"})
";

    #[test]
    fn fields_are_found_where_the_kernel_says() {
        let event = Event { id: 7, format: FORMAT.into() };
        let place = |name, size| event.place(name, size);
        assert_eq!((place("unique", 8), place("connection", 4), place("opcode", 4)), (Some(16), Some(8), Some(24)));
        assert_eq!((place("unique", 4), place("que", 8), place("len", 4)), (None, None, None));
        let program = at_send(&event, 3).expect("it has all fields");
        assert_eq!(program[1], 0x0010_6279, "r2 = *(u64 *)(r6 + 16)");
        assert!(at_end(&Event { id: 7, format: String::new() }, 3).is_none());
        assert_eq!([15, 5, 1, 4096].map(|opcode| kind(FORMAT, opcode)), ["read", "readlink", "kind 1", "kind 4096"]);
    }
}
