//! Entries of a FUSE connection's queues. An entry is memory into which the kernel puts a request, and from which it
//! takes the answer when the entry is handed back to it (rule F3), all by the core's own ring.
//!
//! Promises: while the kernel has an entry, its memory can't be reached: handing it over moves it into the core's
//! operations, and only its completion brings it back. Memory that the kernel has not given back is never used again.
//! Absent by design: the meaning of requests and answers.

use super::inbox::stopped;
use super::reactor::{self, Core};
use crate::buffer::{Buf, Loan};
use crate::stamp::Stamp;
use base::limits::IO_BYTES_MAX;
use base::{Error, Result};
use io_uring::squeue;
use std::fs::File;
use std::future::Future;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Length of an entry's head (`fuse_uring_req_header`): 128 bytes for the header of a request or an answer, 128 for the first
/// structure of a request's arguments, then flags, the request's number, the length of the payload and padding.
pub const HEAD_BYTES: usize = 288;
/// Offset of the first structure of the arguments.
const ARGUMENT_AT: usize = 128;
/// Offset of its end, where the flags begin.
const ARGUMENT_END: usize = 256;
const COMMIT_ID_AT: usize = 264;
const PAYLOAD_BYTES_AT: usize = 272;

/// `IORING_OP_URING_CMD`.
const URING_CMD: u8 = 46;
/// `FUSE_IO_URING_CMD_REGISTER`: registers an entry and fetches a request.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`: takes the answer and fetches the next request.
const COMMIT_AND_FETCH: u32 = 2;

/// An entry that the daemon has.
pub struct RingEntry {
    head: Buf,
    payload: Payload,
    /// Any descriptor of the connection; open for as long as the entry is in use.
    device: Arc<File>,
    queue: u16,
    known: bool,
    came: Stamp,
}

/// The larger memory of an entry, for payloads.
enum Payload {
    Here(Buf),
    /// The memory is lent out; the bytes of an answer are stored for it meanwhile.
    Lent(Loan, Stored),
}

/// Largest number of bytes stored inline: a write's answer has 8 bytes, an error's none.
const STORED_BYTES_MAX: usize = 16;

/// The bytes that follow an answer's header, to be put at the beginning of the payload's memory when that is back.
enum Stored {
    /// A few bytes.
    Bytes { bytes: [u8; STORED_BYTES_MAX], length: usize },
    /// More bytes, from elsewhere.
    Copy(Vec<u8>),
    /// Bytes that were written into the lent memory itself.
    There(Range<usize>),
}

impl RingEntry {
    /// An entry for a queue. `head` has `HEAD_BYTES`; `payload` has the size of the largest request or answer, which
    /// the kernel demands of every entry.
    pub fn new(device: Arc<File>, queue: u16, mut head: Buf, payload: Buf) -> RingEntry {
        assert!(head.len() == HEAD_BYTES && payload.len() == IO_BYTES_MAX);
        head.fill(0);
        RingEntry { head, payload: Payload::Here(payload), device, queue, known: false, came: Stamp(0) }
    }
    /// The time at which the core learnt that the entry has come back with a request.
    pub fn came(&self) -> Stamp {
        self.came
    }
    /// Notes that time.
    pub(super) fn set_came(&mut self, now: Stamp) {
        self.came = now;
    }
    /// The memory of the header; a request and an answer use different parts of it.
    pub fn header(&self) -> &[u8] {
        &self.head[..ARGUMENT_AT]
    }
    /// The memory of the first structure of the arguments.
    pub fn argument(&self) -> &[u8] {
        &self.head[ARGUMENT_AT..ARGUMENT_END]
    }
    /// The other bytes of the request, from a 4 KiB boundary on.
    pub fn payload(&self) -> &[u8] {
        let length = u32::from_ne_bytes(self.field(PAYLOAD_BYTES_AT)) as usize;
        let Payload::Here(payload) = &self.payload else { panic!("what is lent is another's") };
        &payload[..length.min(payload.len())]
    }
    /// Lends the payload's memory, with the request's payload in it or for that of the answer, so that nothing has to
    /// be copied. The answer waits until the memory is back; see `settle`.
    pub fn lend(self) -> (RingEntry, Buf) {
        let length = self.payload().len();
        let Payload::Here(payload) = self.payload else { unreachable!("its length was just looked at") };
        let (loan, mut lent) = payload.lend();
        lent.set_len(length);
        (RingEntry { payload: Payload::Lent(loan, Stored::There(0..0)), ..self }, lent)
    }
    /// Takes lent memory back and completes the answer. False while somebody still has the memory.
    pub fn settle(self) -> (RingEntry, bool) {
        let Payload::Lent(loan, stored) = self.payload else { return (self, true) };
        match loan.back() {
            Err(loan) => (RingEntry { payload: Payload::Lent(loan, stored), ..self }, false),
            Ok(mut payload) => {
                match stored {
                    Stored::Bytes { bytes, length } => payload[..length].copy_from_slice(&bytes[..length]),
                    Stored::Copy(bytes) => payload[..bytes.len()].copy_from_slice(&bytes),
                    Stored::There(range) if range.start == 0 => {}
                    Stored::There(range) => payload.copy_within(range, 0),
                }
                (RingEntry { payload: Payload::Here(payload), ..self }, true)
            }
        }
    }
    fn field<const N: usize>(&self, at: usize) -> [u8; N] {
        self.head[at..at + N].try_into().expect("within the head")
    }
    /// Puts an answer in the place of the request: its header, and the bytes that follow. The kernel takes it with the
    /// next `fetch`.
    ///
    /// While the payload's memory is lent, only bytes that are a part of it are not copied.
    pub fn answer(&mut self, header: &[u8], parts: [&[u8]; 2]) {
        self.head[..header.len()].copy_from_slice(header);
        let length = parts[0].len() + parts[1].len();
        match &mut self.payload {
            Payload::Here(payload) => join(parts, payload),
            Payload::Lent(loan, stored) => match loan.offset(parts[1]) {
                Some(offset) if parts[0].is_empty() => *stored = Stored::There(offset..offset + length),
                _ if length <= STORED_BYTES_MAX => {
                    let mut bytes = [0; STORED_BYTES_MAX];
                    join(parts, &mut bytes);
                    *stored = Stored::Bytes { bytes, length };
                }
                _ => *stored = Stored::Copy(parts.concat()),
            },
        }
        self.head[PAYLOAD_BYTES_AT..PAYLOAD_BYTES_AT + 4].copy_from_slice(&(length as u32).to_ne_bytes());
    }
    /// Hands the entry to the kernel, with its answer unless it is new; it comes back with a request. Dropping the
    /// future leaves it to the kernel. Only to be awaited on a core's task. Errors: `Interrupted` when the core is
    /// stopping; the kernel's error when the connection has ended or it does not accept the entry.
    pub fn fetch(self) -> Fetch {
        Fetch { state: State::Held(self) }
    }
    /// The submission that hands it over. `iovecs` must stay until its completion.
    pub(super) fn submission(&mut self, iovecs: &mut Vec<libc::iovec>) -> squeue::Entry128 {
        let fd = self.device.as_raw_fd();
        assert!(matches!(self.payload, Payload::Here(_)), "the kernel gets no memory that another has");
        if self.known {
            let commit_id = u64::from_ne_bytes(self.field(COMMIT_ID_AT));
            return command(fd, COMMIT_AND_FETCH, self.queue, commit_id, &[]);
        }
        self.known = true;
        iovecs.clear();
        let Payload::Here(payload) = &mut self.payload else { panic!("a new entry has lent nothing") };
        for part in [&mut self.head, payload] {
            iovecs.push(libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() });
        }
        command(fd, REGISTER, self.queue, 0, iovecs)
    }
    /// Forgets the memory without using it again: the kernel still has it.
    pub(super) fn leave(self) {
        std::mem::forget((self.head, self.payload));
    }
}

fn join(parts: [&[u8]; 2], room: &mut [u8]) {
    let (first, second) = room.split_at_mut(parts[0].len());
    first.copy_from_slice(parts[0]);
    second[..parts[1].len()].copy_from_slice(parts[1]);
}

/// A submission, built byte by byte: `io_uring` has no way to set the number of parts of such a command.
fn command(fd: RawFd, code: u32, queue: u16, commit_id: u64, parts: &[libc::iovec]) -> squeue::Entry128 {
    let mut bytes = [0u8; 128];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, &[URING_CMD]);
    put(4, &fd.to_ne_bytes());
    put(8, &code.to_ne_bytes());
    if !parts.is_empty() {
        put(16, &(parts.as_ptr() as u64).to_ne_bytes());
        put(24, &(parts.len() as u32).to_ne_bytes());
    }
    // `fuse_uring_cmd_req`: flags, the request's number, the queue.
    put(56, &commit_id.to_ne_bytes());
    put(64, &queue.to_ne_bytes());
    // SAFETY: a submission is the kernel's plain structure of 128 bytes, of which any value is valid.
    unsafe { std::mem::transmute::<[u8; 128], squeue::Entry128>(bytes) }
}

/// See `RingEntry::fetch`.
pub struct Fetch {
    state: State,
}

enum State {
    Held(RingEntry),
    /// The core and the operation's number on it.
    Handed(Rc<Core>, usize),
    Ended,
}

impl Future for Fetch {
    type Output = Result<RingEntry>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<RingEntry>> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Held(entry) => {
                let core = reactor::current().expect("entries are only fetched on a core's task");
                if core.is_stopping() {
                    return Poll::Ready(Err(stopped()));
                }
                let index = core.device.borrow_mut().fetch_start(entry, context.waker());
                self.state = State::Handed(core, index);
                Poll::Pending
            }
            State::Handed(core, index) => {
                let outcome = core.device.borrow_mut().fetch_outcome(index, context.waker());
                match outcome {
                    None => {
                        self.state = State::Handed(core, index);
                        Poll::Pending
                    }
                    Some((entry, 0)) => Poll::Ready(Ok(entry)),
                    Some((_, result)) => Poll::Ready(Err(Error::os("the kernel gives an entry back", -result))),
                }
            }
            State::Ended => panic!("polled after its end"),
        }
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        if let State::Handed(core, index) = &self.state {
            core.device.borrow_mut().fetch_abandon(*index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Need;
    use crate::{Slabs, real};

    fn entry(slabs: &Slabs) -> RingEntry {
        entry_of(slabs, Arc::new(File::open("/dev/null").expect("always there")))
    }

    fn entry_of(slabs: &Slabs, device: Arc<File>) -> RingEntry {
        let take = |length| slabs.take(0, length, Need::Finishing).expect("within the bound");
        RingEntry::new(device, 7, take(HEAD_BYTES), take(IO_BYTES_MAX))
    }

    /// A submission's bytes.
    fn bytes(submission: squeue::Entry128) -> [u8; 128] {
        // SAFETY: as in `command`.
        unsafe { std::mem::transmute(submission) }
    }

    fn number(bytes: &[u8]) -> u64 {
        bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
    }

    #[test]
    fn submissions_are_as_the_kernel_reads_them() {
        let slabs = Slabs::new(1, 16 << 20);
        let mut entry = entry(&slabs);
        let mut iovecs = Vec::new();
        let first = bytes(entry.submission(&mut iovecs).user_data(9));
        assert_eq!((first[0], number(&first[4..8])), (46, entry.device.as_raw_fd() as u64));
        assert_eq!((number(&first[8..16]), number(&first[24..28]), number(&first[32..40])), (1, 2, 9));
        assert_eq!(number(&first[16..24]), iovecs.as_ptr() as u64);
        assert_eq!((number(&first[48..56]), number(&first[56..64]), number(&first[64..66])), (0, 0, 7));
        assert_eq!((iovecs[0].iov_len, iovecs[1].iov_len), (288, 1 << 20));
        assert_eq!(iovecs[1].iov_base as usize % 4096, 0);
        // A request has come, and was answered.
        entry.head[COMMIT_ID_AT..COMMIT_ID_AT + 8].copy_from_slice(&0x1234_5678_9abcu64.to_ne_bytes());
        entry.answer(&[1; 16], [b"abc", b"defg"]);
        let second = bytes(entry.submission(&mut iovecs));
        assert_eq!((number(&second[8..16]), number(&second[16..24]), number(&second[24..28])), (2, 0, 0));
        assert_eq!((number(&second[56..64]), number(&second[64..66])), (0x1234_5678_9abc, 7));
        assert_eq!((entry.payload(), number(&entry.head[272..276])), (&b"abcdefg"[..], 7));
        assert_eq!(&entry.header()[..17], [[1u8; 16].as_slice(), &[0]].concat());
    }

    /// The result of fetching with an entry of this file: /dev/null takes every command at once, other files know none.
    fn fetched(path: &str) -> Result<RingEntry> {
        let directory = std::env::temp_dir().join(format!("sinter-entry-{}-{}", std::process::id(), path.len()));
        std::fs::create_dir(&directory).expect("the temporary directory is writable");
        let (runtime, reactors) = real::start(real::Options {
            cores: Some(1),
            ..real::Options::new(real::Directory::open(&directory).expect("ours"), 64 << 20, &["op"])
        })
        .expect("io_uring works here");
        let device = Arc::new(File::open(path).expect("always there"));
        let outcome = reactors.run(0, move || async move {
            let mut entry = entry_of(&runtime.slabs, device);
            entry.answer(&[2; 16], [b"kept", b""]);
            entry.fetch().await
        });
        drop(reactors);
        std::fs::remove_dir_all(directory).expect("the test made it");
        outcome.expect("the core runs")
    }

    #[test]
    fn an_entry_comes_back_with_its_memory_or_an_error_tells_why_not() {
        let entry = fetched("/dev/null").expect("it takes commands");
        assert_eq!((entry.payload(), entry.header()[0], entry.known), (&b"kept"[..], 2, true));
        let error = fetched("/proc/self/exe").err().expect("a file takes none");
        assert!(error.to_string().contains("gives an entry back"), "{error}");
    }

    #[test]
    fn a_lent_payload_is_answered_once_it_is_back() {
        let slabs = Slabs::new(1, 16 << 20);
        let mut entry = entry(&slabs);
        entry.answer(&[0; 16], [b"a request's payload", b""]);
        let place = entry.payload().as_ptr();
        let (mut entry, lent) = entry.lend();
        assert_eq!((&lent[..], lent.as_ptr()), (&b"a request's payload"[..], place));
        entry.answer(&[1; 16], [b"told", b""]);
        let (entry, is_back) = entry.settle();
        assert!(!is_back, "it is still in use");
        drop(lent);
        let (entry, is_back) = entry.settle();
        assert!(is_back);
        assert_eq!((entry.payload(), entry.payload().as_ptr()), (&b"told"[..], place));
        assert_eq!(number(&entry.head[272..276]), 4);
        assert!(entry.settle().1, "there is nothing to wait for");
    }

    #[test]
    fn an_answer_in_lent_memory_is_not_copied_to_its_begin_unless_it_lies_elsewhere() {
        let slabs = Slabs::new(1, 16 << 20);
        for (skip, elsewhere) in [(0, false), (512, false), (0, true)] {
            let (mut entry, mut lent) = entry(&slabs).lend();
            lent.set_len(skip + 5000);
            lent.fill(7);
            lent[skip..].fill(9);
            let answer = lent.share().slice(skip..skip + 5000);
            let copy = answer.to_vec();
            entry.answer(&[1; 16], [&[], if elsewhere { &copy } else { &answer }]);
            let (entry, is_back) = entry.settle();
            assert!(!is_back);
            drop(answer);
            let (entry, is_back) = entry.settle();
            assert!(is_back && entry.payload() == copy);
        }
    }

    #[test]
    #[should_panic = "no memory that another has"]
    fn the_kernel_gets_no_memory_that_another_has() {
        let slabs = Slabs::new(1, 16 << 20);
        let (mut entry, _lent) = entry(&slabs).lend();
        entry.submission(&mut Vec::new());
    }

    #[test]
    fn a_payload_is_never_longer_than_its_memory() {
        let slabs = Slabs::new(1, 16 << 20);
        let mut entry = entry(&slabs);
        entry.head[PAYLOAD_BYTES_AT..PAYLOAD_BYTES_AT + 4].fill(0xff);
        assert_eq!(entry.payload().len(), IO_BYTES_MAX);
    }
}
