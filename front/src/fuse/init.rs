//! The handshake at the start of a connection.

use super::abi::{Fields, IN_HEADER_BYTES, MAJOR, MINOR, OUT_HEADER_BYTES, Writer, init_flag, opcode};
use super::syscall::{errno_of, wait_readable};
use super::{parse, reply};
use base::limits::{BLOCK_BYTES, IO_BYTES_MAX};
use base::{Error, Kind, Result};
use runtime::seeded::{Bug, active};
use std::fs::File;
use std::io::{Read, Write};
use std::time::Duration;

/// Features requested if the kernel has them (rule F4). Not among them: the writeback cache (rule F2), locks (they stay
/// in the kernel), ATOMIC_O_TRUNC (it truncates before the kernel checks permission: opening a running program for
/// writing failed with ETXTBSY, but had emptied the program). The umask comes with each request (DONT_MASK), because a
/// directory's default list replaces it. HANDLE_KILLPRIV_V2 also saves a request for capabilities before each write.
/// With EXPORT_SUPPORT the kernel looks up "." of an inode of which it has only a file handle, and "..".
const WANTED: u64 = init_flag::ASYNC_READ
    | init_flag::EXPORT_SUPPORT
    | init_flag::BIG_WRITES
    | init_flag::DONT_MASK
    | init_flag::DO_READDIRPLUS
    | init_flag::READDIRPLUS_AUTO
    | init_flag::ASYNC_DIO
    | init_flag::PARALLEL_DIROPS
    | init_flag::POSIX_ACL
    | init_flag::MAX_PAGES
    | init_flag::CACHE_SYMLINKS
    | init_flag::HANDLE_KILLPRIV_V2
    | init_flag::SETXATTR_EXT
    | init_flag::INIT_EXT
    | init_flag::DIRECT_IO_ALLOW_MMAP;

/// Further features, requested on demand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Requests shall come over io_uring. The agreement tells whether the kernel offers that.
    pub rings: bool,
    /// Number of requests that can be in progress.
    pub at_once: usize,
    /// Other mounts may have the volume too: the kernel asks for attributes before it reads cached pages, and passes locks on.
    pub shares: bool,
    /// Bound copies of the mount may map ids. The kernel then reveals the caller only of requests that create an inode.
    pub maps_ids: bool,
}

/// Features of a mount whose volume other mounts may have too.
const SHARED: u64 = init_flag::AUTO_INVAL_DATA | init_flag::POSIX_LOCKS | init_flag::FLOCK_LOCKS;

/// Features without which the parsing or the buffers would be wrong: Linux 4.20 and later have them.
const NEEDED: u64 = init_flag::BIG_WRITES | init_flag::MAX_PAGES;

/// Largest number of background requests (read-ahead, asynchronous direct I/O) that the kernel hands over before earlier ones are
/// answered, on any machine.
const BACKGROUND_MAX: usize = 1024;
/// Number of background requests, those that wait in the kernel included, above which it reads ahead no more: it has more readers than any
/// device answers.
const CONGESTION: u16 = 768;

/// Number of background requests that the kernel may hand over, of all that can be in progress: three quarters. Requests that a process
/// waits for pass those that wait in the kernel, so a client with hundreds of asynchronous ones leaves room for them (rule F4).
fn background(at_once: usize) -> u16 {
    (at_once * 3 / 4).clamp(1, BACKGROUND_MAX) as u16
}

/// Longest wait for INIT. The kernel sends it within microseconds of mount(2), unless the machine is under heavy load.
const INIT_TIMEOUT: Duration = Duration::from_secs(30);

/// The features that both sides agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreement {
    /// The kernel's minor version.
    pub minor: u32,
    /// Features in use.
    pub flags: u64,
}

impl Agreement {
    /// True if requests come over io_uring as soon as there are entries for them.
    pub fn has_rings(&self) -> bool {
        self.flags & init_flag::OVER_IO_URING != 0
    }
    /// True if the kernel checks who may set flags of an inode, as it does since Linux 5.13: before that it asked file
    /// systems first.
    pub fn looks_after_flags(&self) -> bool {
        self.minor >= 34
    }
    /// True if the kernel forgets its pages of a range before a write that bypasses its page cache, which came with
    /// this feature.
    pub fn forgets_before_writes(&self) -> bool {
        self.flags & init_flag::DIRECT_IO_ALLOW_MMAP != 0
    }
}

/// Answers INIT on the connection's first descriptor.
pub fn handshake(device: &File, choice: Choice) -> Result<Agreement> {
    // The kernel refuses to read into less than this.
    let mut message = vec![0; IO_BYTES_MAX + 2 * BLOCK_BYTES];
    loop {
        match wait_readable(device, INIT_TIMEOUT) {
            Ok(true) => (),
            Ok(false) => return Err(Error::new(Kind::Host, "the kernel did not start the FUSE connection")),
            Err(libc::EINTR) => continue,
            Err(errno) => return Err(Error::os("waiting for the FUSE connection", errno)),
        }
        let mut reader = device;
        let length = match reader.read(&mut message) {
            Ok(length) => length,
            Err(error) if matches!(errno_of(&error), libc::EAGAIN | libc::EINTR | libc::ENOENT) => continue,
            Err(error) => return Err(Error::os("reading the FUSE connection's start", errno_of(&error))),
        };
        let (answer, agreement) = answer(&message[..length], choice)?;
        let mut writer = device;
        writer.write_all(&answer).map_err(|error| Error::os("answering the FUSE handshake", errno_of(&error)))?;
        if let Some(agreement) = agreement {
            return Ok(agreement);
        }
    }
}

/// The answer to INIT. No agreement yet if the kernel has to come back with an older major version.
fn answer(message: &[u8], choice: Choice) -> Result<(Vec<u8>, Option<Agreement>)> {
    let header = parse::header(message, message.len())?;
    if header.opcode != opcode::INIT {
        return Err(Error::new(Kind::Host, "the kernel's first FUSE request is not INIT"));
    }
    let mut fields = Fields(message.get(IN_HEADER_BYTES..).unwrap_or_default());
    let (major, minor) = (fields.u32()?, fields.u32()?);
    if major > MAJOR {
        return Ok((init_out(header.unique, 0, (0, choice.at_once)), None));
    }
    let old = |missing: u64| {
        let error = Error::new(Kind::Host, "the kernel's FUSE is too old: Linux 5.12 or later is needed");
        Err(error.with(format!("it speaks {major}.{minor}, missing features {missing:#x}")))
    };
    if major < MAJOR {
        return old(NEEDED);
    }
    let readahead = fields.u32()?;
    let low = u64::from(fields.u32()?);
    let high = if low & init_flag::INIT_EXT != 0 { u64::from(fields.u32()?) } else { 0 };
    let offered = low | high << 32;
    if offered & NEEDED != NEEDED {
        return old(NEEDED & !offered);
    }
    let bug = if active(Bug::WritebackAsked) { init_flag::WRITEBACK_CACHE } else { 0 };
    let missing = if active(Bug::FeatureForgotten) { init_flag::PARALLEL_DIROPS } else { 0 };
    let chosen = |is_wanted, flag| if is_wanted { flag } else { 0 };
    let maps_ids = chosen(choice.maps_ids, init_flag::ALLOW_IDMAP);
    if offered & maps_ids != maps_ids {
        return Err(Error::new(
            Kind::Host,
            "the kernel maps no ids on FUSE: mount without idmap, or use Linux 6.12 or later",
        ));
    }
    let rings = chosen(choice.rings, init_flag::OVER_IO_URING);
    let shares = chosen(choice.shares, SHARED);
    let flags = (WANTED & !missing | bug | rings | maps_ids | shares) & offered;
    let agreement = Agreement { minor, flags };
    let readahead = readahead.max(IO_BYTES_MAX as u32);
    Ok((init_out(header.unique, readahead, (flags, choice.at_once)), Some(agreement)))
}

fn init_out(unique: u64, readahead: u32, (flags, at_once): (u64, usize)) -> Vec<u8> {
    let mut body = [0; 64];
    let mut writer = Writer::new(&mut body);
    writer.u32(MAJOR).u32(MINOR).u32(readahead).u32(flags as u32);
    writer.u16(background(at_once)).u16(CONGESTION).u32(IO_BYTES_MAX as u32);
    // Time stamps count single nanoseconds; then pages per request, no DAX alignment, the second word of flags.
    writer.u32(1).u16((IO_BYTES_MAX / BLOCK_BYTES) as u16).u16(0).u32((flags >> 32) as u32);
    let mut answer = Vec::with_capacity(OUT_HEADER_BYTES + body.len());
    answer.extend_from_slice(reply::Head::before(unique, body.len()).as_bytes());
    answer.extend_from_slice(&body);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::abi::WRITE_HEAD_BYTES;

    const NONE: Choice = Choice { rings: false, at_once: 64, shares: false, maps_ids: false };

    fn init(major: u32, flags: u64) -> Vec<u8> {
        let mut bytes = [0; 104];
        let mut writer = Writer::new(&mut bytes);
        writer.u32(104).u32(opcode::INIT).u64(2).zeros(24);
        writer.u32(major).u32(45).u32(131_072).u32(flags as u32).u32((flags >> 32) as u32);
        bytes.to_vec()
    }

    #[test]
    fn only_wanted_features_are_agreed_on() {
        let (answer, agreement) = answer(&init(7, u64::MAX), NONE).expect("a modern kernel");
        assert_eq!(agreement, Some(Agreement { minor: 45, flags: WANTED }));
        let mut fields = Fields(&answer);
        assert_eq!(fields.u32().expect("length") as usize, answer.len());
        assert_eq!((fields.u32(), fields.u64()), (Ok(0), Ok(2)));
        assert_eq!((fields.u32(), fields.u32(), fields.u32()), (Ok(7), Ok(39), Ok(1 << 20)));
        assert_eq!(fields.u32(), Ok(WANTED as u32));
        assert_eq!((fields.u16(), fields.u16(), fields.u32()), (Ok(48), Ok(768), Ok(1 << 20)));
        assert_eq!((fields.u32(), fields.u16(), fields.u16()), (Ok(1), Ok(256), Ok(0)));
        assert_eq!(fields.u32(), Ok((WANTED >> 32) as u32));
    }

    #[test]
    fn a_quarter_is_left_to_requests_that_a_process_waits_for() {
        assert_eq!([0, 1, 2, 64, 128, 4096].map(background), [1, 1, 1, 48, 96, 1024]);
    }

    #[test]
    fn rings_are_agreed_on_if_both_sides_want_them() {
        let agreed = |offered, rings| {
            let (_, agreement) = answer(&init(7, offered), Choice { rings, ..NONE }).expect("a modern kernel");
            agreement.expect("the same major version").has_rings()
        };
        assert!(agreed(u64::MAX, true));
        assert!(!agreed(u64::MAX, false));
        assert!(!agreed(!init_flag::OVER_IO_URING, true));
    }

    #[test]
    fn ids_are_mapped_only_if_that_is_asked_for() {
        let agreed = |offered| answer(&init(7, offered), Choice { maps_ids: true, ..NONE });
        let (_, agreement) = agreed(u64::MAX).expect("a modern kernel");
        assert_eq!(agreement.expect("the same major version").flags, WANTED | init_flag::ALLOW_IDMAP);
        assert_eq!(agreed(!init_flag::ALLOW_IDMAP).expect_err("it can't be had").kind, Kind::Host);
    }

    #[test]
    fn locks_are_passed_on_only_where_others_may_have_the_volume() {
        let (_, agreement) = answer(&init(7, u64::MAX), Choice { shares: true, ..NONE }).expect("a modern kernel");
        assert_eq!(agreement.expect("the same major version").flags, WANTED | SHARED);
    }

    #[test]
    fn other_kernels_are_told_what_to_do() {
        let (_, later) = answer(&init(8, u64::MAX), NONE).expect("a newer major version comes back");
        assert_eq!(later, None);
        assert_eq!(answer(&init(6, u64::MAX), NONE).expect_err("too old").kind, Kind::Host);
        assert_eq!(answer(&init(7, init_flag::BIG_WRITES), NONE).expect_err("too old").kind, Kind::Host);
        assert!((0..104).all(|cut| answer(&init(7, u64::MAX)[..cut], NONE).is_err()));
    }

    #[cfg(feature = "seeded-bugs")]
    #[test]
    fn wrong_features_are_noticed() {
        for bug in [Bug::WritebackAsked, Bug::FeatureForgotten] {
            assert!(runtime::seeded::fails(only_wanted_features_are_agreed_on, bug), "{bug:?} went unnoticed");
        }
    }

    const _: () = assert!(WRITE_HEAD_BYTES == 80);
}
