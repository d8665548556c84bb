//! The I/O of one core in flight: operations that the kernel works on, and what follows when they end. Operations are
//! recycled; a warm one allocates nothing.

use super::concurrency_limit::{Bounds, ConcurrencyLimit};
use super::figures::{Figures, IoClass, Verb};
use super::files::{Files, Handle, failed};
use super::held::Held;
use super::ring::{Plain, Ring, Wait};
use super::ring_entry::RingEntry;
use super::socket::{Call, Message};
use crate::OBSERVED;
use crate::disk::FileId;
use crate::stamp::Stamp;
use crate::transfer::{Request, Slot, Start};
use base::limits::{BLOCK_BYTES, BULK_BYTES_MIN};
use base::{Error, Kind, Result};
use io_uring::{cqueue, opcode, squeue, types};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::task::Waker;

/// Tag of the poll on the inbox's eventfd.
const TAG_BELL: u64 = u64::MAX;
/// Tag of entries whose completion has no meaning.
const TAG_IGNORED: u64 = u64::MAX - 1;
/// Largest number of slices per system call (IOV_MAX); longer writes continue with another call.
const SLICES_MAX: usize = 1024;
/// Largest number of times that the kernel may ask us to try again without any progress.
const RETRIES_MAX: u32 = 100;
/// Length from which on writes are submitted at once: the checksums of 256 KiB take 11 us, a submission of its own 3.
pub(super) const AT_ONCE_BYTES: usize = 256 << 10;
/// Small reads of a core, alone and while flows share the device. Sixteen keep a flash drive busy that answers within 100 us, as far as
/// one core can do that; eight do so with the other cores' and leave the order of the rest to us. Latencies of one device differ by two or
/// three times without any waiting, hence four times.
const SMALL: [Bounds; 2] = [Bounds { least: 16, times: 4 }, Bounds { least: 8, times: 4 }];
/// Large transfers of a core: two keep a flash drive busy, while two more are on their way from and to its clients. While flows share the
/// device one does, as each core has its own; what waits in it keeps others waiting, in its order and not in ours, and twice the shortest
/// latency is what the limit needs to grow with a device that works on many at a time.
const LARGE: [Bounds; 2] = [Bounds { least: 4, times: 4 }, Bounds { least: 1, times: 2 }];
/// Poll flag: an event wakes one of the cores that poll a descriptor instead of all of them.
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;

/// A completion's meaning for those above.
pub(super) enum Event {
    /// No consequence.
    Nothing,
    /// A transfer ended.
    Finished(Arc<Slot>, Result<()>, Stamp),
    /// A poll ended, or a ring entry came back: wake its task.
    Wake(Waker),
    /// A call ended, with this result.
    Called(Call, i32),
}

enum Work {
    Free,
    Transfer(Progress),
    Poll(PollState),
    Fetch(RingEntry, Waiting),
    Alarm(Alarm),
    Call(Call),
}

/// Wakes the core at a time of CLOCK_BOOTTIME.
#[derive(Default)]
struct Alarm {
    due_ns: u64,
    /// The time of the alarm, owned until the kernel has seen it.
    time: Box<types::Timespec>,
}

struct Progress {
    slot: Arc<Slot>,
    class: IoClass,
    bytes: usize,
    /// The time at which it was started; once the device has seen it, the time of that.
    start_ns: u64,
    pace: Pace,
    file: FileId,
    fd: RawFd,
    done_bytes: usize,
    retries: u32,
}

struct PollState {
    fd: RawFd,
    exclusive: bool,
    waiting: Waiting,
}

/// The half of an operation that belongs to a future.
#[derive(Default)]
struct Waiting {
    outcome: Option<i32>,
    waker: Option<Waker>,
    /// True once the future is gone.
    abandoned: bool,
}

impl Waiting {
    fn new(waker: &Waker) -> Waiting {
        Waiting { waker: Some(waker.clone()), ..Waiting::default() }
    }
    fn end(&mut self, result: i32) -> Event {
        self.outcome = Some(result);
        self.waker.take().map_or(Event::Nothing, Event::Wake)
    }
    /// The outcome, if there is one. Otherwise `waker` will be woken.
    fn outcome(&mut self, waker: &Waker) -> Option<i32> {
        if self.outcome.is_none() && !self.waker.as_ref().is_some_and(|old| old.will_wake(waker)) {
            self.waker = Some(waker.clone());
        }
        self.outcome
    }
    fn abandon(&mut self) {
        self.abandoned = true;
        self.waker = None;
    }
}

struct Op {
    work: Work,
    /// Number of uses of this place, so that a completion can be checked to be of the present one.
    generation: u32,
    iovecs: Vec<libc::iovec>,
    message: Message,
}

/// The kind of concurrency limit that a transfer is under.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    AtOnce,
    Small,
    Large,
}

/// Transfers of one kind, under one concurrency limit.
struct Paced {
    limit: ConcurrencyLimit,
    /// Operations that the limit holds back.
    held: Held,
}

impl Paced {
    fn new(bounds: [Bounds; 2]) -> Paced {
        Paced { limit: ConcurrencyLimit::new(bounds), held: Held::default() }
    }
}

/// The operations of one core and its ring.
pub(super) struct Device {
    ring: Ring,
    ops: Vec<Op>,
    free: Vec<usize>,
    /// Descriptors and modes by file id, so that the shared table is asked once per file and core.
    handles: Vec<Option<Handle>>,
    bell: RawFd,
    figures: Arc<Figures>,
    /// True if an urgent operation was started and not submitted yet: a durable write or a flush, which many may wait
    /// for, or a large write, whose checksums are computed meanwhile.
    urgent: bool,
    small: Paced,
    large: Paced,
    /// Number of transfers that the device works on for this core.
    under_way: usize,
    /// Times at which the alarms that are set will wake the core, the next one last.
    alarms_ns: Vec<u64>,
    /// Memory of alarms that have gone off, for the next ones.
    spare_alarms: Vec<Alarm>,
}

impl Device {
    /// The I/O of a core with this ring. `bell`: the inbox's eventfd.
    pub fn new(mut ring: Ring, bell: RawFd, figures: Arc<Figures>) -> Device {
        push_bell(&mut ring, bell);
        Device {
            ring,
            ops: Vec::new(),
            free: Vec::new(),
            handles: Vec::new(),
            bell,
            figures,
            urgent: false,
            small: Paced::new(SMALL),
            large: Paced::new(LARGE),
            under_way: 0,
            alarms_ns: Vec::new(),
            spare_alarms: Vec::new(),
        }
    }
    /// Entries that the kernel has not seen yet.
    pub fn unsubmitted(&self) -> usize {
        self.ring.unsubmitted()
    }
    /// True if completions wait to be processed.
    pub fn has_completions(&mut self) -> bool {
        self.ring.has_completions()
    }
    /// True if started operations should be submitted before anything else is done.
    pub fn is_urgent(&self) -> bool {
        self.urgent
    }
    /// Submits the started operations to the kernel.
    pub fn submit(&mut self) {
        self.urgent = false;
        self.ring.submit();
    }
    /// Submits, and sleeps until a completion comes, or until `due_ns` of CLOCK_BOOTTIME.
    ///
    /// A time limit of the system call itself would set a timer of the CPU and cancel it each time that the core
    /// sleeps, which takes some microseconds where the CPU is virtual (decision 0046). An alarm stays set while the
    /// core wakes and sleeps.
    pub fn sleep_until(&mut self, due_ns: Option<u64>) {
        self.urgent = false;
        if let Some(due_ns) = due_ns
            && self.alarms_ns.last().is_none_or(|&next_ns| due_ns < next_ns)
        {
            self.set_alarm(due_ns);
        }
        self.ring.enter(Wait::Forever);
    }
    fn set_alarm(&mut self, due_ns: u64) {
        let mut alarm = self.spare_alarms.pop().unwrap_or_default();
        alarm.due_ns = due_ns;
        *alarm.time = types::Timespec::new().sec(due_ns / 1_000_000_000).nsec((due_ns % 1_000_000_000) as u32);
        let flags = types::TimeoutFlags::ABS | types::TimeoutFlags::BOOTTIME;
        let entry = opcode::Timeout::new(&raw const *alarm.time).flags(flags).build();
        let index = self.take_op(Work::Alarm(alarm));
        self.alarms_ns.push(due_ns);
        self.push(index, entry);
    }
    fn complete_alarm(&mut self, index: usize) -> Event {
        let Work::Alarm(alarm) = self.free_op(index) else { unreachable!("the caller looked") };
        self.alarms_ns.retain(|&due_ns| due_ns != alarm.due_ns);
        self.spare_alarms.push(alarm);
        Event::Nothing
    }
    /// Number of operations that the kernel will end soon. Entries of FUSE queues do not count: they come back with the
    /// next request, or when the mount or the ring ends.
    pub fn in_flight(&self) -> usize {
        self.ops.iter().filter(|op| matches!(op.work, Work::Transfer(_) | Work::Poll(_) | Work::Call(_))).count()
    }
    /// Releases the brick's lock.
    pub fn release(&self) {
        self.ring.release();
    }
    fn take_op(&mut self, work: Work) -> usize {
        if let Some(index) = self.free.pop() {
            self.ops[index].work = work;
            return index;
        }
        self.ops.push(Op { work, generation: 0, iovecs: Vec::new(), message: Message::default() });
        // So that giving an operation back never allocates.
        self.free.reserve(self.ops.len());
        self.ops.len() - 1
    }
    fn free_op(&mut self, index: usize) -> Work {
        let op = &mut self.ops[index];
        op.generation = op.generation.wrapping_add(1) & (u32::MAX >> 1);
        self.free.push(index);
        std::mem::replace(&mut op.work, Work::Free)
    }
    fn tag(&self, index: usize) -> u64 {
        u64::from(self.ops[index].generation) << 32 | index as u64
    }
    /// Starts a transfer of a flow. Returns the slot if it ended at once.
    pub fn start(&mut self, slot: Arc<Slot>, flow: usize, files: &Files) -> Option<(Arc<Slot>, Result<()>)> {
        let (file, verb, urgent, pace, bytes, purpose) = slot.with_purpose(|request, purpose| {
            let (pace, bytes) = (pace_of(request), length(request));
            let (file, verb, urgent) = match request {
                Request::Read { file, .. } => (*file, Verb::Read, false),
                Request::Write { file, durable, .. } => (*file, Verb::Write, *durable || bytes >= AT_ONCE_BYTES),
                Request::Flush { file } => (*file, Verb::Flush, true),
            };
            (file, verb, urgent, pace, bytes, purpose)
        });
        let writes = verb == Verb::Write;
        let handle = self.handle_for(file, writes, files);
        let (fd, is_disk) = match handle.and_then(|handle| slot.with_request(|r| check(r)).map(|()| handle)) {
            Ok(handle) => (handle.fd, handle.is_disk),
            Err(error) => return Some((slot, Err(error.with(files.name(file))))),
        };
        let (pace, purpose) = if is_disk { (Pace::AtOnce, purpose.on_disk()) } else { (pace, purpose) };
        let class = IoClass::of(purpose, verb, bytes);
        let index = self.take_op(Work::Transfer(Progress {
            slot,
            class,
            bytes,
            start_ns: self.figures.control_ns(),
            pace,
            file,
            fd,
            done_bytes: 0,
            retries: 0,
        }));
        if let Some(paced) = self.paced(pace)
            && !paced.limit.admit()
        {
            paced.held.push(flow, index);
            return None;
        }
        self.urgent |= urgent;
        self.issue_first(index);
        None
    }
    /// Hands a transfer to the device for the first time.
    fn issue_first(&mut self, index: usize) {
        self.under_way += 1;
        let Work::Transfer(progress) = &mut self.ops[index].work else { panic!("only transfers are issued") };
        progress.class = progress.class.at_depth(self.under_way);
        self.issue(index);
    }
    /// Says whether flows share the device.
    pub fn set_shared(&mut self, shared: bool) {
        self.small.limit.set_shared(shared);
        self.large.limit.set_shared(shared);
    }
    /// Gives a flow's transfers another weight among those that limits hold back.
    pub fn weigh(&mut self, flow: usize, weight: u64) {
        self.small.held.weigh(flow, weight);
        self.large.held.weigh(flow, weight);
    }
    fn paced(&mut self, pace: Pace) -> Option<&mut Paced> {
        match pace {
            Pace::AtOnce => None,
            Pace::Small => Some(&mut self.small),
            Pace::Large => Some(&mut self.large),
        }
    }
    /// Notes the end of a transfer, and starts transfers that its concurrency limit held back, as far as the limit now
    /// allows.
    fn go_on(&mut self, pace: Pace, latency_ns: u64, now_ns: u64) {
        if let Some(paced) = self.paced(pace) {
            paced.limit.ended(latency_ns, now_ns);
        }
        while let Some(paced) = self.paced(pace)
            && !paced.held.is_empty()
            && paced.limit.admit()
            && let Some(index) = paced.held.pop()
        {
            let Work::Transfer(progress) = &mut self.ops[index].work else { panic!("only transfers are held back") };
            progress.slot.held_for(now_ns.saturating_sub(progress.start_ns));
            progress.start_ns = now_ns;
            self.urgent |= pace == Pace::Large;
            self.issue_first(index);
        }
    }
    fn handle_for(&mut self, file: FileId, writes: bool, files: &Files) -> Result<Handle> {
        let place = file.0 as usize;
        if self.handles.len() <= place {
            self.handles.resize(place + 1, None);
        }
        let known = self.handles[place].filter(|handle| handle.writable || !writes);
        // A file that was opened for reading may have been opened for writing since.
        let handle = known.unwrap_or_else(|| files.handle(file));
        self.handles[place] = Some(handle);
        if writes && !handle.writable {
            return Err(Error::new(Kind::ReadOnly, "the file is open for reading only"));
        }
        Ok(handle)
    }
    fn issue(&mut self, index: usize) {
        let Op { work, iovecs, .. } = &mut self.ops[index];
        let Work::Transfer(progress) = work else { panic!("only transfers are issued") };
        let entry = progress.slot.with_request(|request| entry(request, progress, iovecs));
        self.push(index, entry);
    }
    /// Queues an operation's entry for the kernel.
    fn push(&mut self, index: usize, entry: impl Into<squeue::Entry128>) {
        let entry = entry.into().user_data(self.tag(index));
        // SAFETY: an entry points to what its operation owns until its completion, on the heap, where it stays when `ops`
        // grows: the time of an alarm; a transfer's slot, which owns the buffers until `finish`, and the iovecs; a ring
        // entry's memory, which a device that ends before leaves alone for ever; what a call holds, whose streams own
        // their buffers until they are told of its end, the iovecs and the message.
        unsafe { self.ring.push(entry) }
    }
    /// Starts a call.
    pub fn call(&mut self, call: Call) {
        let index = self.take_op(Work::Call(call));
        let Op { work: Work::Call(call), iovecs, message, .. } = &mut self.ops[index] else {
            unreachable!("just made")
        };
        let entry = call.entry(message, iovecs);
        self.push(index, entry);
    }
    /// Has the kernel end all calls soon.
    pub fn cancel_calls(&mut self) {
        let calls = self.ops.iter().enumerate().filter(|(_, op)| matches!(op.work, Work::Call(_)));
        let tags: Vec<u64> = calls.map(|(index, _)| self.tag(index)).collect();
        for tag in tags {
            self.ring.push_plain(Plain::Cancel(opcode::AsyncCancel::new(tag)), TAG_IGNORED);
        }
    }
    /// Processes the next completion, if there is one.
    pub fn complete(&mut self, files: &Files) -> Option<Event> {
        let completion = self.ring.next()?;
        let tag = completion.user_data();
        if tag == TAG_BELL {
            if !cqueue::more(completion.flags()) {
                push_bell(&mut self.ring, self.bell);
            }
            return Some(Event::Nothing);
        }
        if tag == TAG_IGNORED {
            return Some(Event::Nothing);
        }
        let index = (tag & u64::from(u32::MAX)) as usize;
        assert!(tag == self.tag(index), "a completion belongs to an operation in flight");
        Some(match &self.ops[index].work {
            Work::Transfer(_) => self.complete_transfer(index, completion.result(), files),
            Work::Poll(_) => self.complete_poll(index, completion.result()),
            Work::Fetch(..) => self.complete_fetch(index, completion.result()),
            Work::Alarm(..) => self.complete_alarm(index),
            Work::Call(_) => {
                let Work::Call(call) = self.free_op(index) else { unreachable!("just looked") };
                Event::Called(call, completion.result())
            }
            Work::Free => panic!("a completion belongs to an operation in flight"),
        })
    }
    fn complete_transfer(&mut self, index: usize, result: i32, files: &Files) -> Event {
        let Work::Transfer(progress) = &mut self.ops[index].work else { unreachable!("the caller looked") };
        let Some(outcome) = progress.slot.clone().with_request(|request| judge(request, progress, result)) else {
            self.issue(index);
            return Event::Nothing;
        };
        let Work::Transfer(progress) = self.free_op(index) else { unreachable!("the caller looked") };
        let mut ended = Stamp(0);
        self.under_way -= 1;
        if progress.pace != Pace::AtOnce || OBSERVED {
            let (now, now_ns) = self.figures.now();
            let took_ns = now_ns.saturating_sub(progress.start_ns);
            if outcome.is_ok() {
                self.figures.io(progress.class, progress.bytes, took_ns);
            }
            self.go_on(progress.pace, took_ns, now_ns);
            ended = now;
        }
        let outcome = outcome.map_err(|error| error.with(files.name(progress.file)));
        Event::Finished(progress.slot, outcome, ended)
    }

    /// Starts to wait until `fd` is readable. The returned number is for the calls below.
    pub fn poll_start(&mut self, fd: RawFd, waker: &Waker) -> usize {
        let state = PollState { fd, exclusive: true, waiting: Waiting::new(waker) };
        let index = self.take_op(Work::Poll(state));
        self.push_poll(index);
        index
    }
    fn push_poll(&mut self, index: usize) {
        let Work::Poll(state) = &self.ops[index].work else { panic!("only polls are polled") };
        let events = libc::POLLIN as u32 | if state.exclusive { EXCLUSIVE } else { 0 };
        let poll = opcode::PollAdd::new(types::Fd(state.fd), events);
        self.ring.push_plain(Plain::Poll(poll), self.tag(index));
    }
    fn complete_poll(&mut self, index: usize, result: i32) -> Event {
        let Work::Poll(state) = &mut self.ops[index].work else { unreachable!("the caller looked") };
        if state.waiting.abandoned {
            self.free_op(index);
            return Event::Nothing;
        }
        if result == -libc::EINVAL && state.exclusive {
            // Not every kernel and file can: then all who poll are woken.
            state.exclusive = false;
            self.push_poll(index);
            return Event::Nothing;
        }
        state.waiting.end(result)
    }
    /// The outcome of a poll, if there is one; the poll has then ended. Otherwise `waker` will be woken.
    pub fn poll_outcome(&mut self, index: usize, waker: &Waker) -> Option<i32> {
        let Work::Poll(state) = &mut self.ops[index].work else { panic!("a poll keeps its place") };
        let outcome = state.waiting.outcome(waker)?;
        self.free_op(index);
        Some(outcome)
    }
    /// Abandons a poll: nobody waits for it any more.
    pub fn poll_abandon(&mut self, index: usize) {
        let tag = self.tag(index);
        let Work::Poll(state) = &mut self.ops[index].work else { panic!("a poll keeps its place") };
        if state.waiting.outcome.is_some() {
            self.free_op(index);
            return;
        }
        state.waiting.abandon();
        // Else the kernel would hold the file open for as long as it is not readable.
        self.ring.push_plain(Plain::EndPoll(opcode::PollRemove::new(tag)), TAG_IGNORED);
    }

    /// Hands an entry over to the kernel, which brings it back with a request. The returned number is for the calls
    /// below.
    pub fn fetch_start(&mut self, entry: RingEntry, waker: &Waker) -> usize {
        let index = self.take_op(Work::Fetch(entry, Waiting::new(waker)));
        let Op { work: Work::Fetch(entry, _), iovecs, .. } = &mut self.ops[index] else { unreachable!("just made") };
        let submission = entry.submission(iovecs);
        self.push(index, submission);
        index
    }
    fn complete_fetch(&mut self, index: usize, result: i32) -> Event {
        let Work::Fetch(entry, waiting) = &mut self.ops[index].work else { unreachable!("the caller looked") };
        if waiting.abandoned {
            self.free_op(index);
            return Event::Nothing;
        }
        entry.set_came(self.figures.stamp());
        waiting.end(result)
    }
    /// The entry and its result, once the kernel has brought it back. Otherwise `waker` will be woken.
    pub fn fetch_outcome(&mut self, index: usize, waker: &Waker) -> Option<(RingEntry, i32)> {
        let Work::Fetch(_, waiting) = &mut self.ops[index].work else { panic!("an entry keeps its place") };
        let outcome = waiting.outcome(waker)?;
        let Work::Fetch(entry, _) = self.free_op(index) else { unreachable!("just looked") };
        Some((entry, outcome))
    }
    /// Abandons an entry: nobody waits for it any more.
    pub fn fetch_abandon(&mut self, index: usize) {
        let Work::Fetch(_, waiting) = &mut self.ops[index].work else { panic!("an entry keeps its place") };
        if waiting.outcome.is_some() {
            self.free_op(index);
        } else {
            waiting.abandon();
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        for op in self.ops.drain(..) {
            if let Work::Fetch(entry, _) = op.work {
                entry.leave();
            }
        }
    }
}

fn push_bell(ring: &mut Ring, bell: RawFd) {
    let poll = opcode::PollAdd::new(types::Fd(bell), libc::POLLIN as u32).multi(true);
    ring.push_plain(Plain::Poll(poll), TAG_BELL);
}

fn pace_of(request: &Request) -> Pace {
    match request {
        // A commit is one, and many may wait for it.
        Request::Write { durable: true, .. } | Request::Flush { .. } => Pace::AtOnce,
        _ if length(request) >= BULK_BYTES_MIN => Pace::Large,
        Request::Read { start: Start::Paced, .. } => Pace::Small,
        _ => Pace::AtOnce,
    }
}

fn length(request: &Request) -> usize {
    match request {
        Request::Read { buffer, .. } => buffer.len(),
        Request::Write { slices, .. } => slices.iter().map(|slice| slice.len()).sum(),
        Request::Flush { .. } => 0,
    }
}

/// Refuses requests of partial blocks: callers promise whole ones, and O_DIRECT needs them.
pub(super) fn check(request: &Request) -> Result<()> {
    let (offset, whole) = match request {
        Request::Read { offset, buffer, .. } => (*offset, !buffer.is_empty()),
        Request::Write { offset, slices, .. } => (*offset, !slices.is_empty()),
        Request::Flush { .. } => return Ok(()),
    };
    let block = BLOCK_BYTES as u64;
    if whole && offset.is_multiple_of(block) && length(request).is_multiple_of(BLOCK_BYTES) {
        return Ok(());
    }
    let context = format!("offset {offset}, {} bytes", length(request));
    Err(Error::new(Kind::Invalid, "an I/O is of whole blocks").with(context))
}

/// The submission for the remaining part of a transfer.
fn entry(request: &mut Request, progress: &Progress, iovecs: &mut Vec<libc::iovec>) -> squeue::Entry {
    let (fd, done) = (types::Fd(progress.fd), progress.done_bytes);
    match request {
        Request::Read { offset, buffer, .. } => {
            let rest = &mut buffer[done..];
            let read = opcode::Read::new(fd, rest.as_mut_ptr(), rest.len() as u32);
            read.offset(*offset + done as u64).build()
        }
        Request::Write { offset, slices, durable, .. } => {
            let flags = if *durable { libc::RWF_DSYNC } else { 0 };
            let offset = *offset + done as u64;
            collect(slices, done, iovecs);
            if let [only] = iovecs[..] {
                let write = opcode::Write::new(fd, only.iov_base.cast_const().cast(), only.iov_len as u32);
                return write.offset(offset).rw_flags(flags).build();
            }
            let write = opcode::Writev::new(fd, iovecs.as_ptr(), iovecs.len() as u32);
            write.offset(offset).rw_flags(flags).build()
        }
        Request::Flush { .. } => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
    }
}

/// The parts of the slices that remain after so many bytes, as far as one call takes them.
pub(super) fn collect(slices: &[crate::buffer::Slice], done_bytes: usize, iovecs: &mut Vec<libc::iovec>) {
    iovecs.clear();
    let mut skip = done_bytes;
    for slice in slices {
        let from = skip.min(slice.len());
        skip -= from;
        let rest = &slice[from..];
        if !rest.is_empty() {
            iovecs.push(libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() });
        }
        if iovecs.len() == SLICES_MAX {
            break;
        }
    }
}

/// The meaning of a completion for its transfer. `None`: go on with the remaining part.
fn judge(request: &Request, progress: &mut Progress, result: i32) -> Option<Result<()>> {
    let (verb, past_end) = match request {
        Request::Read { .. } => ("the device cannot read", "a read goes past the end of the file"),
        Request::Write { .. } => ("the device cannot write", "the device takes no more bytes"),
        // Never retried, whatever the reason (rule U4): after a failed flush nobody knows what is on the device.
        Request::Flush { .. } if result < 0 => return Some(Err(Error::os("the device cannot flush", -result))),
        Request::Flush { .. } => return Some(Ok(())),
    };
    let at = |error: Error, progress: &Progress| {
        let (Request::Read { offset, .. } | Request::Write { offset, .. }) = request else { return error };
        error.with(format_args!("offset {}", *offset + progress.done_bytes as u64))
    };
    if result < 0 {
        progress.retries += 1;
        let again = matches!(-result, libc::EINTR | libc::EAGAIN) && progress.retries <= RETRIES_MAX;
        return if again { None } else { Some(Err(at(Error::os(verb, -result), progress))) };
    }
    let done_bytes = progress.done_bytes + result as usize;
    assert!(done_bytes <= length(request), "the kernel transfers no more than it was asked");
    if done_bytes == length(request) {
        return Some(Ok(()));
    }
    // Go on from a whole block: O_DIRECT takes nothing else, and a part of a block can simply be done again.
    let whole_bytes = done_bytes / BLOCK_BYTES * BLOCK_BYTES;
    if whole_bytes == progress.done_bytes {
        return Some(Err(at(Error::new(Kind::Io, past_end), progress)));
    }
    progress.done_bytes = whole_bytes;
    None
}

/// The error of a poll.
pub(super) fn poll_error(result: i32) -> Error {
    failed("a descriptor cannot be polled", &std::io::Error::from_raw_os_error(-result))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{Slabs, Slice};
    use crate::transfer::Purpose;
    use crate::transfer::SlotPool;

    fn slices(slabs: &Slabs, lengths: &[usize]) -> Vec<Slice> {
        let take = |&length: &usize| slabs.take_own(0, length).expect("within the bound").share().slice(0..length);
        lengths.iter().map(take).collect()
    }

    fn progress() -> Progress {
        let (slot, _) = SlotPool::new().start(Purpose::Other, Request::Flush { file: FileId(0) });
        Progress {
            slot,
            class: IoClass::of(Purpose::Other, Verb::Write, 4096),
            bytes: 4096,
            start_ns: 0,
            pace: Pace::AtOnce,
            file: FileId(0),
            fd: -1,
            done_bytes: 0,
            retries: 0,
        }
    }

    #[test]
    fn short_transfers_go_on_from_a_whole_block() {
        let slabs = Slabs::new(1, 16 << 20);
        let slices = slices(&slabs, &[8192, 4096, 16384]);
        let mut iovecs = Vec::new();
        collect(&slices, 10 << 10, &mut iovecs);
        assert_eq!(iovecs.iter().map(|iovec| iovec.iov_len).collect::<Vec<_>>(), [2048, 16384]);
        let request = Request::Write { file: FileId(0), offset: 0, slices, durable: true };
        let mut progress = progress();
        assert!(judge(&request, &mut progress, 9000).is_none());
        assert_eq!(progress.done_bytes, 8192);
        assert_eq!(judge(&request, &mut progress, 20480), Some(Ok(())));
        let error = judge(&request, &mut progress, 100).expect("no progress").expect_err("no progress");
        assert!(error.kind == Kind::Io && error.to_string().contains("offset 8192"), "{error}");
    }

    #[test]
    fn interrupted_io_is_tried_again_but_a_flush_never() {
        let mut progress = progress();
        let slices = slices(&Slabs::new(1, 2 << 20), &[4096]);
        let write = Request::Write { file: FileId(0), offset: 0, slices, durable: false };
        for _ in 0..RETRIES_MAX {
            assert!(judge(&write, &mut progress, -libc::EINTR).is_none());
        }
        assert!(judge(&write, &mut progress, -libc::EAGAIN).expect("it gives up").is_err());
        for (errno, kind) in [(libc::EIO, Kind::Io), (libc::ENOSPC, Kind::NoSpace)] {
            let error = judge(&write, &mut progress, -errno).expect("it ends").expect_err("it failed");
            assert_eq!(error.kind, kind);
        }
        let flush = Request::Flush { file: FileId(0) };
        assert!(judge(&flush, &mut progress, -libc::EINTR).expect("it ends").is_err());
        assert_eq!(judge(&flush, &mut progress, 0), Some(Ok(())));
    }
}
