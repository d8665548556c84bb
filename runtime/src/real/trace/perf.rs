//! Tracepoints of one CPU as events of perf, and the memory in which the kernel leaves their records. Promises that the
//! kernel's traces end with the descriptors, however this process ends; that nobody is woken by a record, and no request
//! waits for a reader: when the memory is full, records are dropped and counted.

use base::{Error, Kind, Result};
use rustix::io::Errno;
use rustix::ioctl::{self, Opcode};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::{CStr, c_char, c_void};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Largest memory for the records of one CPU. With the page of its counters it fits in what the kernel lets each user lock
/// for perf without asking (`kernel.perf_event_mlock_kb`, 516 by default). At 200,000 requests per second, all of one
/// CPU, it lasts for 12 ms.
const RING_BYTES_MAX: usize = 512 << 10;
/// Least memory: less would lose records in any burst.
const RING_BYTES_MIN: usize = 64 << 10;
/// Memory for the records of all CPUs; a daemon's own bound is at least 256 MiB.
const RINGS_BYTES_MAX: usize = 16 << 20;

/// `perf_event_attr` of linux/perf_event.h, as far as clocks can be chosen (its third version, of Linux 4.1).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    unused: [u32; 10],
    clockid: i32,
}

const _: () = assert!(size_of::<Attributes>() == 96 && std::mem::offset_of!(Attributes, clockid) == 92);

const TYPE_TRACEPOINT: u32 = 2;
/// Process and thread, time, CPU, and the tracepoint's own record. `parse` knows their order.
const SAMPLE: u64 = 1 << 1 | 1 << 2 | 1 << 7 | 1 << 10;
/// The number of records that were lost is told beside the count.
const FORMAT_LOST: u64 = 1 << 4;
/// It begins switched off; no record wakes anybody before the ring is full; `clockid` holds.
const FLAGS: u64 = 1 | 1 << 14 | 1 << 25;
const OPEN_CLOEXEC: libc::c_ulong = 8;

const ENABLE: Opcode = ioctl::opcode::none(b'$', 0);
const DISABLE: Opcode = ioctl::opcode::none(b'$', 1);
const SET_OUTPUT: Opcode = ioctl::opcode::none(b'$', 5);
const SET_FILTER: Opcode = ioctl::opcode::write::<*const c_char>(b'$', 6);

/// A tracepoint on one CPU, whoever runs there.
pub(super) struct Event(File);

impl Event {
    /// Opens it, switched off; None if there is no such CPU at the moment. Errors: `Host` if the kernel refuses it.
    pub fn open(id: u16, cpu: usize, filter: &CStr) -> Result<Option<Event>> {
        let attributes = Attributes {
            kind: TYPE_TRACEPOINT,
            size: size_of::<Attributes>() as u32,
            config: u64::from(id),
            sample_period: 1,
            sample_type: SAMPLE,
            read_format: FORMAT_LOST,
            flags: FLAGS,
            wakeup_watermark: RING_BYTES_MAX as u32,
            clockid: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        };
        // SAFETY: the kernel only reads the attributes, whose size they tell; the descriptor that it makes is nobody else's.
        let opened = unsafe {
            let descriptor =
                libc::syscall(libc::SYS_perf_event_open, &raw const attributes, -1, cpu as i32, -1, OPEN_CLOEXEC);
            if descriptor < 0 { Err(std::io::Error::last_os_error()) } else { Ok(File::from_raw_fd(descriptor as i32)) }
        };
        let event = match opened {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
            opened => Event(opened.map_err(|error| refused(&error))?),
        };
        event.control::<SET_FILTER>(filter.as_ptr() as usize).map_err(|error| {
            let what = "the kernel refuses the filter of a tracepoint: look at the kernel's log";
            Error::new(Kind::Host, what).with(filter.to_string_lossy()).with(error)
        })?;
        Ok(Some(event))
    }
    /// Has its records go where those of another event of the same CPU go.
    pub fn write_into(&self, other: &Event) -> Result<()> {
        self.control::<SET_OUTPUT>(other.0.as_raw_fd() as usize).map_err(|errno| refused(&errno.into()))
    }
    /// Switches it on.
    pub fn enable(&self) -> Result<()> {
        self.control::<ENABLE>(0).map_err(|errno| refused(&errno.into()))
    }
    /// Switches it off.
    pub fn disable(&self) -> Result<()> {
        self.control::<DISABLE>(0).map_err(|errno| refused(&errno.into()))
    }
    /// Number of its records that were lost so far.
    pub fn lost(&self) -> Result<u64> {
        let mut counts = [0u8; 16];
        let read = (&self.0).read_exact(&mut counts);
        read.map_err(|error| {
            Error::new(Kind::Host, "the kernel does not tell how many records were lost").with(error)
        })?;
        let [.., lost] = counts.as_chunks::<8>().0 else { unreachable!("two numbers") };
        Ok(u64::from_ne_bytes(*lost))
    }
    fn control<const REQUEST: Opcode>(&self, argument: usize) -> rustix::io::Result<()> {
        // SAFETY: of the four requests, two take no argument, one a descriptor, and one a text that ends with a zero and that
        // the caller borrows; the kernel changes no memory of this process.
        unsafe { ioctl::ioctl(&self.0, ioctl::IntegerSetter::<REQUEST>::new_usize(argument)) }
    }
}

fn refused(error: &std::io::Error) -> Error {
    let what = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "the kernel's tracepoints are refused to this process: it needs CAP_SYS_ADMIN of the host, with no lockdown and no \
             seccomp filter against perf_event_open"
        }
        Some(libc::ENOSYS) => "the kernel has no perf_event_open: one with CONFIG_PERF_EVENTS is needed",
        _ => "the kernel refuses a tracepoint: look at the kernel's log",
    };
    Error::new(Kind::Host, what).with(error)
}

/// The memory that a CPU's events share: a page of counters, then the records, whose numbers of bytes only grow.
pub(super) struct Ring {
    base: *mut c_void,
    bytes: usize,
    records_at: usize,
}

/// Places of the counters in `perf_event_mmap_page`: the end of what was written, and of what was read.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

impl Ring {
    /// The memory of an event, when `cpus` events have some. Errors: `Host` if this user may lock no more memory.
    pub fn of(event: &Event, cpus: usize) -> Result<Ring> {
        let page = rustix::param::page_size();
        let share = (RINGS_BYTES_MAX / cpus.max(1)).clamp(RING_BYTES_MIN, RING_BYTES_MAX).max(page);
        let mut bytes = 1usize << share.ilog2();
        loop {
            match Ring::map(event, page, bytes) {
                // What is locked already by this user counts too.
                Err(Errno::PERM | Errno::NOMEM) if bytes / 2 >= RING_BYTES_MIN.max(page) => bytes /= 2,
                Err(errno) => {
                    let what = "no memory for the kernel's records: raise the limit of locked memory (ulimit -l, \
                                LimitMEMLOCK=) or kernel.perf_event_mlock_kb";
                    return Err(Error::new(Kind::Host, what).with(std::io::Error::from(errno)));
                }
                Ok(ring) => return Ok(ring),
            }
        }
    }
    fn map(event: &Event, page: usize, records: usize) -> rustix::io::Result<Ring> {
        let bytes = page + records;
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let base = unsafe {
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &event.0, 0)?
        };
        Ok(Ring { base, bytes, records_at: page })
    }
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.bytes, "a word of the mapping");
        // SAFETY: within the mapping, which begins at a page's start and lasts as long as this; the kernel writes to it at the
        // same time, hence atomics.
        unsafe { &*self.base.byte_add(at).cast::<AtomicU64>() }
    }
    /// Moves all that was written into `records`, whose former content goes, and makes room for more.
    pub fn drain(&self, records: &mut Vec<u8>) {
        let size = self.bytes - self.records_at;
        let (head, tail) = (self.word(HEAD).load(Ordering::Acquire), self.word(TAIL).load(Ordering::Relaxed));
        // Records are of whole words.
        let words = (tail..head).step_by(8).map(|at| self.word(self.records_at + at as usize % size));
        records.clear();
        records.extend(words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()));
        self.word(TAIL).store(head, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's own, and no reference to it outlives this.
        let _ = unsafe { munmap(self.base, self.bytes) };
    }
}

/// A record of a tracepoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sample<'a> {
    /// Time on CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// The process that ran there; 0 if none of this container did.
    pub pid: u32,
    /// The tracepoint's own record.
    pub raw: &'a [u8],
}

const RECORD_SAMPLE: u32 = 9;
/// The place of a record's length, behind its kind and flags.
const LENGTH_AT: usize = 6;
/// Places in a sample: process, time, and, behind the CPU, the tracepoint's record with its length.
const PID_AT: usize = 8;
const TIME_AT: usize = 16;
const RAW_AT: usize = 32;

/// Splits what was drained into its samples; records of other kinds are passed over. Errors: `Host` if it is not as the
/// kernel's documentation says.
pub(super) fn samples(mut records: &[u8], mut take: impl FnMut(Sample<'_>) -> Result<()>) -> Result<()> {
    let odd = || Error::new(Kind::Host, "the kernel's records are not as this version of Sinter knows them");
    while !records.is_empty() {
        let kind = number_at(records, 0).ok_or_else(odd)?;
        let bytes = usize::from(u16::from_ne_bytes(bytes_at(records, LENGTH_AT).ok_or_else(odd)?));
        if bytes < 8 || bytes > records.len() {
            return Err(odd());
        }
        let (record, rest) = records.split_at(bytes);
        records = rest;
        if kind == RECORD_SAMPLE {
            take(parse(record).ok_or_else(odd)?)?;
        }
    }
    Ok(())
}

fn parse(record: &[u8]) -> Option<Sample<'_>> {
    let at_ns = u64::from_ne_bytes(bytes_at(record, TIME_AT)?);
    let raw_bytes = number_at(record, RAW_AT)? as usize;
    let raw = record.get(RAW_AT + 4..)?.get(..raw_bytes)?;
    Some(Sample { at_ns, pid: number_at(record, PID_AT)?, raw })
}

fn number_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes_at(bytes, at).map(u32::from_ne_bytes)
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::real::trace::tests::powerless;

    /// A record of a kind, with a body.
    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let mut record = kind.to_ne_bytes().to_vec();
        record.extend(0u16.to_ne_bytes());
        record.extend((8 + body.len() as u16).to_ne_bytes());
        record.extend(body);
        record
    }

    fn sample(pid: u32, at_ns: u64, raw: &[u8]) -> Vec<u8> {
        let mut body = [pid, pid + 1].map(u32::to_ne_bytes).concat();
        body.extend(at_ns.to_ne_bytes());
        body.extend([3u32, 0].map(u32::to_ne_bytes).concat());
        body.extend((raw.len() as u32).to_ne_bytes());
        body.extend(raw);
        record(RECORD_SAMPLE, &body)
    }

    fn told(records: &[u8]) -> Result<Vec<(u64, u32, Vec<u8>)>> {
        let mut told = Vec::new();
        samples(records, |sample| {
            told.push((sample.at_ns, sample.pid, sample.raw.to_vec()));
            Ok(())
        })?;
        Ok(told)
    }

    #[test]
    fn samples_are_told_and_other_records_passed_over() {
        let (first, last) = (sample(7, 1 << 40 | 5, &[1, 2, 3, 4]), sample(8, 6, &[9; 12]));
        let records = [first, record(2, &[0; 16]), last].concat();
        assert_eq!(told(&records).expect("sound"), [(1 << 40 | 5, 7, vec![1, 2, 3, 4]), (6, 8, vec![9; 12])]);
    }

    #[test]
    fn records_that_contradict_themselves_are_refused() {
        let whole = sample(7, 5, &[1, 2, 3, 4]);
        for end in 1..whole.len() {
            assert_eq!(told(&whole[..end]).expect_err("cut short").kind, Kind::Host, "{end}");
        }
        let mut longer = whole.clone();
        longer[RAW_AT] += 1;
        told(&longer).expect_err("its raw part goes beyond its end");
        told(&record(RECORD_SAMPLE, &[0; 20])).expect_err("no room for a raw part");
        told(&[0; 8]).expect_err("a length of zero");
    }

    #[test]
    fn without_the_right_it_says_what_is_needed() {
        let refused = powerless(|| Event::open(1, 0, c"common_pid == 1").map(drop)).expect_err("no capabilities");
        assert!(refused.kind == Kind::Host && refused.to_string().contains("CAP_SYS_ADMIN"), "{refused}");
    }
}
