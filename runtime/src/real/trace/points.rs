//! The four tracepoints: their filters, and what their records say.

use super::account::{Fact, Io, Sampling, Verb};
use super::layout::{Field, Layout};
use super::perf::Sample;
use super::tracefs::Tracefs;
use base::{Error, Kind, Result};
use std::ffi::CString;
use std::fmt::Write;

/// One request in so many is looked at when they are sampled.
pub(super) const ONE_IN: u64 = 64;
/// Bits of a FUSE request's number that choose those: the lowest one tells interrupts apart, so numbers are even.
const UNIQUE_BITS: u64 = (ONE_IN - 1) << 1;
/// Sectors of the largest I/O that is sampled, 64 KiB. Longer ones are all looked at: they are few.
pub(super) const SAMPLED_SECTORS_MAX: u64 = 1 << SECTORS_LOG;
const SECTORS_LOG: u32 = 7;
/// Bits of such an I/O's place that choose: all that begin in one of 64 stretches of 64 KiB. By smaller stretches, those that
/// follow each other at round distances would be chosen all, or none.
const SECTOR_BITS: u64 = (ONE_IN - 1) << SECTORS_LOG;
/// Longest filter: the kernel takes a page. Beyond, records of all are taken and those of others dropped.
const FILTER_BYTES_MAX: usize = 3000;

/// The tracepoints' numbers and fields, for what this kernel has.
pub(super) struct Points {
    /// Requests of FUSE: sent to the server, and ended.
    pub requests: Result<Requests>,
    /// Requests of block devices: handed to the driver, and completed.
    pub devices: Result<Devices>,
}

/// The tracepoints of FUSE's requests. Fields that both have stand for the first one, then the second.
pub(super) struct Requests {
    sent: u16,
    ended: u16,
    connection: [Field; 2],
    unique: [Field; 2],
    opcode: Field,
}

/// The tracepoints of devices' I/O, in the same way.
pub(super) struct Devices {
    issued: u16,
    completed: u16,
    device: [Field; 2],
    sector: [Field; 2],
    sectors: [Field; 2],
    verb: [Field; 2],
    name: Field,
}

impl Points {
    /// Looks them up.
    pub fn find(tracefs: &Tracefs) -> Points {
        let requests = both(tracefs, "fuse", ["fuse_request_send", "fuse_request_end"]);
        let devices = both(tracefs, "block", ["block_rq_issue", "block_rq_complete"]);
        Points { requests: requests.and_then(Requests::of), devices: devices.and_then(Devices::of) }
    }
    /// Reads a record. Errors: `Host` if it is not as described.
    pub fn read(&self, sample: Sample<'_>) -> Result<Fact> {
        let odd = || Error::new(Kind::Host, "a tracepoint's record is not as the kernel describes it");
        let raw = sample.raw;
        let id = u16::from_ne_bytes(*raw.first_chunk().ok_or_else(odd)?);
        let fact = match (&self.requests, &self.devices) {
            (Ok(points), _) if id == points.sent => points.read_sent(raw),
            (Ok(points), _) if id == points.ended => points.read_ended(raw),
            (_, Ok(points)) if id == points.issued => points.read_issued(raw, sample.pid),
            (_, Ok(points)) if id == points.completed => points.read_completed(raw),
            _ => None,
        };
        fact.ok_or_else(odd)
    }
}

fn both(tracefs: &Tracefs, subsystem: &str, names: [&str; 2]) -> Result<[String; 2]> {
    let absent = |name| {
        let what = "this kernel has no such tracepoint (those of FUSE came with Linux 6.11)";
        Error::new(Kind::Host, what).with(format_args!("{subsystem}:{name}"))
    };
    let find = |name| tracefs.description(subsystem, name)?.ok_or_else(|| absent(name));
    Ok([find(names[0])?, find(names[1])?])
}

impl Requests {
    fn of([sent, ended]: [String; 2]) -> Result<Requests> {
        let (sent, ended) = (Layout::parse(&sent)?, Layout::parse(&ended)?);
        Ok(Requests {
            sent: sent.id,
            ended: ended.id,
            connection: [sent.number("connection")?, ended.number("connection")?],
            unique: [sent.number("unique")?, ended.number("unique")?],
            opcode: sent.number("opcode")?,
        })
    }
    /// The numbers of both tracepoints.
    pub fn ids(&self) -> [u16; 2] {
        [self.sent, self.ended]
    }
    fn read_sent(&self, raw: &[u8]) -> Option<Fact> {
        let (connection, unique) = (self.connection[0].number(raw)? as u32, self.unique[0].number(raw)?);
        Some(Fact::Sent { connection, unique, opcode: self.opcode.number(raw)? as u32 })
    }
    fn read_ended(&self, raw: &[u8]) -> Option<Fact> {
        let (connection, unique) = (self.connection[1].number(raw)? as u32, self.unique[1].number(raw)?);
        Some(Fact::Ended { connection, unique })
    }
    /// The filter of both: requests of these connections.
    pub fn filter(connections: &[u32], sampling: Sampling) -> CString {
        let chosen = format!("!(unique & {UNIQUE_BITS})");
        filter("connection", connections, (sampling == Sampling::Sparse).then_some(&chosen))
    }
}

impl Devices {
    fn of([issued, completed]: [String; 2]) -> Result<Devices> {
        let (issued, completed) = (Layout::parse(&issued)?, Layout::parse(&completed)?);
        let numbers = |name| Ok([issued.number(name)?, completed.number(name)?]);
        Ok(Devices {
            issued: issued.id,
            completed: completed.id,
            device: numbers("dev")?,
            sector: numbers("sector")?,
            sectors: numbers("nr_sector")?,
            verb: [issued.text("rwbs")?, completed.text("rwbs")?],
            name: issued.text("comm")?,
        })
    }
    /// The numbers of both tracepoints.
    pub fn ids(&self) -> [u16; 2] {
        [self.issued, self.completed]
    }
    fn read_issued(&self, raw: &[u8], pid: u32) -> Option<Fact> {
        let (io, name) = (self.io(0, raw)?, self.name.bytes(raw)?.first_chunk().copied()?);
        Some(Fact::Issued { io, pid, name })
    }
    fn read_completed(&self, raw: &[u8]) -> Option<Fact> {
        self.io(1, raw).map(|io| Fact::Completed { io })
    }
    fn io(&self, which: usize, raw: &[u8]) -> Option<Io> {
        let letters = self.verb[which].bytes(raw)?.split(|&byte| byte == 0).next()?;
        Some(Io {
            device: self.device[which].number(raw)? as u32,
            sector: self.sector[which].number(raw)?,
            sectors: self.sectors[which].number(raw)?,
            verb: Verb::of(letters),
        })
    }
    /// The filter of both: I/O of these devices.
    pub fn filter(devices: &[u32], sampling: Sampling) -> CString {
        let chosen = format!("(nr_sector == 0 || nr_sector > {SAMPLED_SECTORS_MAX} || !(sector & {SECTOR_BITS}))");
        filter("dev", devices, (sampling == Sampling::Sparse).then_some(&chosen))
    }
}

/// `(field == 1 || field == 2) && chosen`.
fn filter(field: &str, numbers: &[u32], chosen: Option<&String>) -> CString {
    let mut text = String::new();
    for number in numbers {
        let either = if text.is_empty() { "" } else { " || " };
        write!(text, "{either}{field} == {number}").expect("writing to a string works");
    }
    if text.is_empty() || text.len() > FILTER_BYTES_MAX {
        text = format!("{field} >= 0");
    }
    if let Some(chosen) = chosen {
        text = format!("({text}) && {chosen}");
    }
    CString::new(text).expect("no zero in it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(filter: CString) -> String {
        filter.into_string().expect("plain")
    }

    #[test]
    fn filters_name_what_is_wanted() {
        assert_eq!(text(Requests::filter(&[35], Sampling::All)), "connection == 35");
        assert_eq!(
            text(Requests::filter(&[35, 36], Sampling::Sparse)),
            "(connection == 35 || connection == 36) && !(unique & 126)"
        );
        assert_eq!(
            text(Devices::filter(&[7 << 20], Sampling::Sparse)),
            "(dev == 7340032) && (nr_sector == 0 || nr_sector > 128 || !(sector & 8064))"
        );
        let many: Vec<u32> = (0..1000).collect();
        assert_eq!(text(Devices::filter(&many, Sampling::All)), "dev >= 0", "longer than the kernel takes");
    }

    #[test]
    fn one_in_64_is_chosen_whatever_the_distances() {
        let numbers = (0..64 * 1000u64).map(|count| 2 * count).filter(|unique| unique & UNIQUE_BITS == 0).count();
        assert_eq!(numbers, 1000);
        for (first, distance) in [(0, 8), (8, 16), (0, 16), (24, 40), (0, 128), (8, 128)] {
            let places = (0..64 * 1000u64).map(|count| first + count * distance);
            let chosen = places.filter(|sector| sector & SECTOR_BITS == 0).count();
            assert!((980..=1020).contains(&chosen), "{chosen} of those {distance} sectors apart");
        }
    }
}
