//! One core's end of the connection: its clone of the device, the memory that requests are read into, and the way back
//! of answers.
//!
//! Promise: a write's payload is read to a 4 KiB boundary, and reaches the stack in a buffer of its own. A request is
//! read into two parts (rule F4): the first holds exactly what precedes a write's payload, the second is a buffer of 1
//! MiB. Other requests that are longer than the first part are joined behind it.

use super::abi::{self, IN_HEADER_BYTES, WRITE_HEAD_BYTES, opcode};
use super::parse::{self, Ask, Header};
use super::syscall::errno_of;
use base::limits::{IO_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use base::{Error, Ino, Kind, Op, Result};
use runtime::real::RingEntry;
use runtime::{Buf, Need, Runtime};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read, Write};

/// Longest request that is decoded, a write's payload apart: SETXATTR with the longest name and value.
const JOINED_BYTES: usize = IN_HEADER_BYTES + 16 + 256 + XATTR_VALUE_BYTES_MAX;

/// Largest payload that is copied into a buffer of its own size. A larger one keeps the buffer that it was read into,
/// since its own would take 1 MiB as well. The copy costs nothing measurable up to 128 KiB (at 256 KiB about 9 of 48
/// us), and saves pinning up to 256 times as much memory until the device write is done.
const COPY_BYTES_MAX: usize = 256 << 10;

/// The memory that requests are read into.
pub struct Landing {
    head: Box<[u8; JOINED_BYTES]>,
    body: Buf,
}

/// The result of reading the device.
pub enum Received {
    /// A request of this many bytes has been read into the landing.
    Request(usize),
    /// No request is there now.
    Nothing,
    /// The file system is unmounted or its connection was aborted.
    Ended,
}

/// A request, parsed.
pub struct Message {
    /// Its header.
    pub header: Header,
    /// The parsed request, or the reason why it can't be understood.
    pub ask: Result<Ask>,
    /// Length of a write's payload, which is still in the landing.
    pub payload_bytes: usize,
}

// It is moved several times before it is answered, for the reason that stands beside `Op`.
const _: () = assert!(size_of::<Message>() <= 192);

impl Message {
    /// Bytes of data that it carries or asks for.
    pub fn bytes(&self) -> usize {
        match self.ask {
            Ok(Ask::Read { op: Op::Read { length, .. }, .. }) => length as usize,
            _ => self.payload_bytes,
        }
    }
}

impl Landing {
    /// An empty landing for a core.
    pub fn new(runtime: &Runtime, core: usize) -> Result<Landing> {
        Ok(Landing {
            head: Box::new([0; JOINED_BYTES]),
            body: runtime.slabs.take(core, IO_BYTES_MAX, Need::Finishing)?,
        })
    }
    /// Reads one request.
    pub fn receive(&mut self, device: &File) -> Received {
        let mut parts = [IoSliceMut::new(&mut self.head[..WRITE_HEAD_BYTES]), IoSliceMut::new(&mut self.body)];
        loop {
            let mut reader = device;
            match reader.read_vectored(&mut parts) {
                Ok(0) => return Received::Ended,
                Ok(length) => return Received::Request(length),
                Err(error) => match errno_of(&error) {
                    libc::EAGAIN => return Received::Nothing,
                    // A signal, or a request that was given up while it was being read: there may be another.
                    libc::EINTR | libc::ENOENT => continue,
                    // The kernel could not copy this one and has told its client so.
                    libc::ENOMEM | libc::EIO => return Received::Nothing,
                    _ => return Received::Ended,
                },
            }
        }
    }
    /// Parses the request of `total` bytes in the landing. None: it has not even a header, so there is nobody to
    /// answer.
    pub fn parse(&mut self, total: usize, root: Ino) -> Option<Message> {
        if total < IN_HEADER_BYTES {
            return None;
        }
        let first = total.min(WRITE_HEAD_BYTES);
        let header = parse::header(&self.head[..first], total).ok()?;
        if header.opcode == opcode::BATCH_FORGET {
            return Some(self.batch(header, total, root));
        }
        let payload_bytes = if header.opcode == opcode::WRITE { total - first } else { 0 };
        let end = if header.opcode == opcode::WRITE { first } else { self.join(total) };
        Some(self.message(header, end, payload_bytes, root))
    }
    /// Parses the request in an entry of the core's ring: its header, the first structure of its arguments, then the
    /// other arguments. A write's payload is left in the entry.
    pub fn parse_entry(&mut self, entry: &RingEntry, root: Ino) -> Message {
        let (fixed, payload) = (&entry.header()[..IN_HEADER_BYTES], entry.payload());
        let total = u32::from_ne_bytes(fixed[..4].try_into().expect("four bytes")) as usize;
        let header = parse::header(fixed, total).expect("a whole header, and the length is its own");
        let argument_bytes = total.checked_sub(IN_HEADER_BYTES + payload.len());
        let Some(argument) = argument_bytes.and_then(|length| entry.argument().get(..length)) else {
            let error = Error::new(Kind::Invalid, "the request's length is not that of its parts");
            return Message { header, ask: Err(error), payload_bytes: 0 };
        };
        let payload_bytes = if header.opcode == opcode::WRITE { payload.len() } else { 0 };
        let joined = if header.opcode == opcode::WRITE { &[] } else { payload };
        let middle = IN_HEADER_BYTES + argument.len();
        let end = (middle + joined.len()).min(JOINED_BYTES);
        self.head[IN_HEADER_BYTES..middle].copy_from_slice(argument);
        self.head[middle..end].copy_from_slice(&joined[..end - middle]);
        self.message(header, end, payload_bytes, root)
    }
    /// Parses the request whose arguments lie in the landing up to `end`.
    fn message(&self, mut header: Header, end: usize, payload_bytes: usize, root: Ino) -> Message {
        let body = &self.head[IN_HEADER_BYTES..end];
        header.umask = parse::umask(header.opcode, body);
        header.pid = parse::opener(header.opcode, body).unwrap_or(header.pid);
        let ask = parse::ask(&header, body, payload_bytes, root);
        Message { header, ask, payload_bytes }
    }
    /// Parses a BATCH_FORGET: beside WRITE the only request that may fill the second part. It is rare, so it may
    /// allocate.
    fn batch(&self, header: Header, total: usize, root: Ino) -> Message {
        let first = total.min(WRITE_HEAD_BYTES);
        let body = [&self.head[IN_HEADER_BYTES..first], &self.body[..total - first]].concat();
        let ask = parse::ask(&header, &body, 0, root);
        Message { header, ask, payload_bytes: 0 }
    }
    /// Joins the two parts of a request other than a write. Returns the end of what is decoded.
    fn join(&mut self, total: usize) -> usize {
        let end = total.min(JOINED_BYTES);
        if end > WRITE_HEAD_BYTES {
            self.head[WRITE_HEAD_BYTES..end].copy_from_slice(&self.body[..end - WRITE_HEAD_BYTES]);
        }
        end
    }
    /// The size of the buffer that a payload of `length` bytes needs.
    pub fn fresh_bytes(length: usize) -> usize {
        if length > COPY_BYTES_MAX { IO_BYTES_MAX } else { length }
    }
    /// The payload of `length` bytes of the write in the landing, in a buffer of its own.
    pub fn payload(&mut self, mut fresh: Buf, length: usize) -> Buf {
        assert_eq!(fresh.len(), Landing::fresh_bytes(length));
        if length > COPY_BYTES_MAX {
            std::mem::swap(&mut self.body, &mut fresh);
            fresh.set_len(length);
        } else {
            fresh.copy_from_slice(&self.body[..length]);
        }
        fresh
    }
}

/// The way back for the answer to one request.
pub enum Back<'a> {
    /// Answers are written to the descriptor from which the request was read.
    Device(&'a File),
    /// Answers are put into the ring entry that carried the request; the kernel takes them when the entry is handed
    /// back.
    Entry(&'a mut RingEntry),
    /// Another thread writes answers to the descriptor.
    #[cfg(feature = "ablations")]
    Away(super::ablated::away::Away),
}

impl Back<'_> {
    /// Sends an answer: its head and the bytes behind it. Errors are the kernel's errno: ENOENT means that nobody waits
    /// for it any more, ENODEV that the connection has ended. An answer in an entry that comes too late gives no error:
    /// its connection has ended then.
    pub fn send(&mut self, head: &[u8], tail: &[u8]) -> Result<(), i32> {
        let (header, body) = head.split_at(abi::OUT_HEADER_BYTES);
        match self {
            Back::Device(device) => write(device, head, tail),
            Back::Entry(entry) => {
                entry.answer(header, [body, tail]);
                Ok(())
            }
            #[cfg(feature = "ablations")]
            Back::Away(away) => {
                away.send(head, tail);
                Ok(())
            }
        }
    }
    /// Notes the buffer of the bytes that the next answer will have behind its head.
    #[cfg(feature = "ablations")]
    pub fn keep(&mut self, bytes: &runtime::Slice) {
        if let Back::Away(away) = self {
            away.keep(bytes);
        }
    }
}

pub(super) fn write(mut device: &File, head: &[u8], tail: &[u8]) -> Result<(), i32> {
    let sent = if tail.is_empty() {
        device.write(head)
    } else {
        device.write_vectored(&[IoSlice::new(head), IoSlice::new(tail)])
    };
    sent.map(drop).map_err(|error| errno_of(&error))
}
