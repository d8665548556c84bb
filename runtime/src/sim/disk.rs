//! The simulated disk: transfers that take time and end in any order, faults by plan, and a count of durable steps, at
//! each of which the machine can be made to crash.

use super::content::{Content, Fates, Patch};
use super::fault::{Counter, FaultPlan};
use super::host::Host;
use super::image::{DiskImage, Survival, rot_mask};
use super::pages::Page;
use super::spindle::{self, Ask, COMMAND_NS, Spindle, Verb};
use super::trace::TraceKind;
use crate::disk::{Disk, FileId, OpenMode, is_device};
use crate::random::SplitMix;
use crate::transfer::{Purpose, Request, Slot, SlotPool, Transfer};
use base::limits::BLOCK_BYTES;
use base::{Error, Kind, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The side of a durable step on which the crash comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Everything before the step has happened, the step has not.
    Before,
    /// The step has happened, nothing after it has.
    After,
}

/// Counts of the operations on one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileFigures {
    /// Reads submitted.
    pub reads: u64,
    /// Writes submitted, durable or not.
    pub writes: u64,
    /// Durable writes among them.
    pub durable_writes: u64,
    /// Flushes submitted.
    pub flushes: u64,
    /// Bytes of the reads.
    pub read_bytes: u64,
    /// Bytes of the writes.
    pub written_bytes: u64,
    /// Discards, refused ones too.
    pub discards: u64,
    /// Bytes that were discarded.
    pub discarded_bytes: u64,
}

/// The files of a simulated brick.
pub struct SimDisk {
    host: Arc<Host>,
    slots: Arc<SlotPool>,
    state: Mutex<State>,
}

struct State {
    rng: SplitMix,
    latency: Latency,
    capacity_bytes: u64,
    // Of somebody else's files.
    others_bytes: u64,
    files: Vec<File>,
    names: BTreeMap<String, usize>,
    // The files that are hard disks.
    spindles: BTreeMap<usize, Platter>,
    pending: BTreeMap<u64, Pending>,
    // Writes of a process before, by the event at which they land: file and pages.
    late: BTreeMap<u64, (usize, Patch)>,
    // Moments: completions, changes of length and submissions of flushes, in one order.
    sequence: u64,
    steps: u64,
    crash_at: Option<(u64, Side)>,
    crashed: bool,
    faults: FaultPlan,
    counters: Counters,
    tap: Option<Tap>,
}

/// A listener that gets the first slice of every submitted write.
pub type Tap = Box<dyn FnMut(&[u8]) + Send>;

#[derive(Default)]
struct Counters {
    reads: Counter,
    writes: Counter,
    flushes: Counter,
    space: Counter,
    names: Counter,
    discards: Counter,
    stalls: Counter,
    // Of all kinds but stalls.
    met: u64,
}

impl Counters {
    /// Notes what the plan has decided, for `SimDisk::faults_met`.
    fn meet(&mut self, fails: bool) -> bool {
        self.met += u64::from(fails);
        fails
    }
}

struct File {
    name: String,
    name_durable: bool,
    opened: bool,
    writable: bool,
    content: Content,
    figures: FileFigures,
}

struct Pending {
    slot: Arc<Slot>,
    file: usize,
    work: Work,
    fails: bool,
}

enum Work {
    Read { offset: u64, early: bool },
    Write { patch: Patch, durable: bool },
    Flush { covers: u64 },
    Refused(Error),
}

/// A hard disk, and the moment at which it is looked at next.
struct Platter {
    spindle: Spindle,
    look_ns: Option<u64>,
}

impl Platter {
    /// Has it looked at when something may have ended. An earlier moment that was asked for is not heeded any more.
    fn look_later(&mut self, host: &Host, file: usize) {
        let next_ns = self.spindle.next_ns();
        if let Some(at_ns) = next_ns.filter(|_| next_ns != self.look_ns) {
            host.add_look(at_ns, file as u64);
        }
        self.look_ns = next_ns;
    }
}

/// Typical times of this world's device, drawn once per world: bugs hide behind one fixed ratio of read, write and
/// flush times.
struct Latency {
    read_ns: u64,
    write_ns: u64,
    flush_ns: u64,
}

impl Latency {
    fn draw(rng: &mut SplitMix) -> Latency {
        // From a drive with a protected cache (flush nearly free) to one that flushes in a millisecond.
        let flush_ns = 5_000 << rng.below(9);
        Latency { read_ns: 20_000 + rng.below(80_000), write_ns: 10_000 + rng.below(80_000), flush_ns }
    }
    /// The latency of an operation: half to one and a half times the typical one, for one in 32 up to sixteen times,
    /// plus the time for the bytes at 4 GiB/s.
    fn of(&self, work: &Work, rng: &mut SplitMix) -> u64 {
        let (typical_ns, pages) = match work {
            Work::Read { .. } => (self.read_ns, 0),
            Work::Write { patch, .. } => (self.write_ns, patch.pages.len() as u64),
            Work::Flush { .. } => (self.flush_ns, 0),
            Work::Refused(_) => (1_000, 0),
        };
        let slow = if rng.one_in(32) { 1 + rng.below(16) } else { 1 };
        slow * (typical_ns / 2 + rng.below(typical_ns)) + pages * 1_000
    }
}

/// A hard disk of an image, with the index of its file.
fn spindle_of(image: &DiskImage, name: &str) -> (usize, Platter) {
    let file = image.files.iter().enumerate().find(|(_, (other, _))| *other == name);
    let (index, (_, file)) = file.expect("a spindle is a device that is there");
    (index, Platter { spindle: Spindle::new(file.length), look_ns: None })
}

fn crashed() -> Error {
    Error::new(Kind::Io, "the simulated machine has crashed")
}

impl SimDisk {
    pub(super) fn new(host: Arc<Host>, mut rng: SplitMix, image: &DiskImage) -> SimDisk {
        let file = |(name, file): (&String, _)| File {
            name: name.clone(),
            name_durable: true,
            opened: false,
            writable: false,
            content: Content::from_image(file),
            figures: FileFigures::default(),
        };
        let latency = Latency::draw(&mut rng);
        let state = State {
            rng,
            latency,
            capacity_bytes: image.capacity_bytes,
            others_bytes: 0,
            files: image.files.iter().map(file).collect(),
            names: image.files.keys().cloned().zip(0..).collect(),
            spindles: image.spindles.iter().map(|name| spindle_of(image, name)).collect(),
            pending: BTreeMap::new(),
            late: BTreeMap::new(),
            sequence: 0,
            steps: 0,
            crash_at: None,
            crashed: false,
            faults: FaultPlan::default(),
            counters: Counters::default(),
            tap: None,
        };
        let disk = SimDisk { host, slots: SlotPool::new(), state: Mutex::new(state) };
        disk.expect_late(image);
        disk
    }
    fn expect_late(&self, image: &DiskImage) {
        let mut state = self.state();
        for (name, patch) in &image.late {
            // From at once to a third of a second: before, during and after a recovery.
            let bits = 10 + state.rng.below(19);
            let delay_ns = state.rng.below(1 << bits);
            let id = self.host.add_transfer(delay_ns);
            let file = state.names[name];
            state.late.insert(id, (file, patch.clone()));
        }
    }
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic over a caller's mistake may have poisoned it; the world's end still needs what is in there.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Sets the listener to writes from now on.
    pub fn set_tap(&self, tap: Tap) {
        self.state().tap = Some(tap);
    }
    /// Sets the faults from now on; the operations of each kind are counted anew.
    pub fn set_faults(&self, faults: FaultPlan) {
        let mut state = self.state();
        state.faults = faults;
        state.counters = Counters::default();
        for (&file, platter) in &mut state.spindles {
            platter.spindle.set_slowness(self.host.now(), faults.slowness);
            platter.look_later(&self.host, file);
        }
    }
    /// Operations that have failed by plan since it was set.
    pub fn faults_met(&self) -> u64 {
        self.state().counters.met
    }
    /// Sets the number of bytes that others have on the same file system from now on.
    pub fn set_others(&self, bytes: u64) {
        self.state().others_bytes = bytes;
    }
    /// Durable steps so far: submitted writes, ended durable writes, ended flushes, calls of `sync_names`.
    pub fn steps(&self) -> u64 {
        self.state().steps
    }
    /// Crashes the machine at a step; steps count from 1.
    pub fn crash_at_step(&self, step: u64, side: Side) {
        let mut state = self.state();
        assert!(step > state.steps, "step {step} is past: {} steps have happened", state.steps);
        state.crash_at = Some((step, side));
    }
    /// Crashes the machine at this moment, between two steps: for components with steps of their own, like an index
    /// engine.
    pub fn crash_now(&self) {
        let mut state = self.state();
        state.crashed = true;
        self.host.note(TraceKind::Crash, state.steps, 0);
        self.host.stop();
    }
    /// True once the machine has crashed.
    pub fn has_crashed(&self) -> bool {
        self.state().crashed
    }
    /// Counts of operations by name of file, for each file that was opened.
    pub fn figures(&self) -> BTreeMap<String, FileFigures> {
        let state = self.state();
        let opened = state.files.iter().filter(|file| file.opened);
        opened.map(|file| (file.name.clone(), file.figures)).collect()
    }
    /// The work of a device that is a hard disk; None for all else.
    pub fn spindle(&self, name: &str) -> Option<spindle::Counters> {
        let state = self.state();
        Some(state.spindles.get(state.names.get(name)?)?.spindle.counters())
    }
    /// Rots the byte at `offset` on the medium and in every cache: at least one of its bits changes.
    pub fn flip_bits(&self, file: FileId, offset: u64, rng: &mut SplitMix) {
        let mut state = self.state();
        let content = &mut state.files[file.0 as usize].content;
        assert!(offset < content.length(), "only bytes of the file can rot");
        content.flip(offset, rot_mask(rng));
    }
    /// The disk after a crash now. The disk itself stays as it is, so that several images can be drawn.
    pub fn crash_image(&self, survival: Survival, rng: &mut SplitMix) -> DiskImage {
        let state = self.state();
        let mut fates = Fates::new(survival, rng);
        let mut image = DiskImage {
            capacity_bytes: state.capacity_bytes,
            wall_ns: self.host.wall_ns(),
            files: BTreeMap::new(),
            late: Vec::new(),
            spindles: state.spindles.keys().map(|&index| state.files[index].name.clone()).collect(),
        };
        for (name, &index) in &state.names {
            let file = &state.files[index];
            if !file.name_durable && !fates.survives() {
                continue;
            }
            let in_flight = state.pending.values().filter(|pending| pending.file == index);
            let late = state.late.values().filter(|(file, _)| *file == index).map(|(_, patch)| patch);
            let in_flight: Vec<&Patch> = in_flight.filter_map(Pending::patch).chain(late).collect();
            image.files.insert(name.clone(), file.content.crash(&in_flight, &mut fates));
        }
        image
    }
    /// The disk after a kill of the process alone, not the machine: all completed writes stay, and those in flight are
    /// done too, now or later.
    pub(super) fn kill_image(&self, rng: &mut SplitMix) -> DiskImage {
        self.crash_now();
        let mut state = self.state();
        let mut late = Vec::new();
        let in_flight: Vec<u64> = state.pending.keys().copied().collect();
        for id in in_flight {
            let file = state.pending[&id].file;
            let Some(patch) = state.pending[&id].patch().cloned() else { continue };
            if rng.one_in(2) {
                late.push((state.files[file].name.clone(), patch));
                state.pending.remove(&id);
            }
        }
        drop(state);
        DiskImage { late, ..self.crash_image(Survival::Everything, rng) }
    }
    /// Ends a transfer whose time has come.
    pub(super) fn end(&self, id: u64) {
        let mut state = self.state();
        if let Some((file, patch)) = state.late.remove(&id) {
            let sequence = state.tick();
            self.host.note(TraceKind::End, id, 0);
            return state.files[file].content.write(patch, sequence, false);
        }
        let pending = state.pending.get(&id).expect("a transfer ends once");
        let step = matches!(pending.work, Work::Write { durable: true, .. } | Work::Flush { .. });
        if state.crashed || step && !state.step(&self.host) {
            return;
        }
        let pending = state.pending.remove(&id).expect("just seen");
        let result = state.perform(pending.file, pending.work, pending.fails, &pending.slot);
        drop(state);
        self.host.note(TraceKind::End, id, u64::from(result.is_err()));
        pending.slot.finish(result);
    }
    /// Ends the transfers that a hard disk has done by now.
    pub(super) fn look(&self, file: usize) {
        let mut state = self.state();
        let platter = state.spindles.get_mut(&file).expect("only spindles are looked at");
        if platter.look_ns.is_none_or(|at_ns| at_ns > self.host.now()) {
            return;
        }
        let ended = platter.spindle.complete(self.host.now());
        platter.look_ns = None;
        platter.look_later(&self.host, file);
        drop(state);
        for id in ended {
            self.host.end_transfer();
            self.end(id);
        }
    }
    /// Forgets all transfers; their buffers return to their slabs.
    pub(super) fn clear(&self) {
        let mut state = self.state();
        let (pending, late) = (std::mem::take(&mut state.pending), std::mem::take(&mut state.late));
        drop(state);
        drop((pending, late));
    }
    fn space(&self, state: &mut State, bytes: u64) -> Result<()> {
        let State { faults, counters, rng, .. } = &mut *state;
        let fails = counters.space.fails(faults.space, rng);
        if counters.meet(fails) {
            return Err(Error::new(faults.error.unwrap_or(Kind::NoSpace), "the simulated host makes no more files"));
        }
        if bytes > state.free_bytes() {
            return Err(Error::new(Kind::NoSpace, "the simulated disk is full"));
        }
        Ok(())
    }
}

impl Pending {
    fn patch(&self) -> Option<&Patch> {
        match &self.work {
            Work::Write { patch, .. } => Some(patch),
            _ => None,
        }
    }
}

impl State {
    /// Counts a durable step that is about to happen. False: the crash comes first.
    fn step(&mut self, host: &Host) -> bool {
        let step = self.steps + 1;
        let crash = self.crash_at.filter(|&(at, _)| at == step).map(|(_, side)| side);
        if crash.is_some() {
            self.crashed = true;
            host.note(TraceKind::Crash, step, 0);
            host.stop();
        }
        let happens = crash != Some(Side::Before);
        if happens {
            self.steps = step;
        }
        happens
    }
    fn tick(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
    fn free_bytes(&self) -> u64 {
        let files = self.files.iter().filter(|file| !is_device(&file.name));
        let used: u64 = files.map(|file| file.content.length()).sum();
        self.capacity_bytes.saturating_sub(used + self.others_bytes)
    }
    fn file(&mut self, file: FileId) -> &mut File {
        let file = &mut self.files[file.0 as usize];
        assert!(file.opened, "file {} was not opened", file.name);
        file
    }
    /// Checks a request. Returns its file, its work and its event for the trace.
    fn plan(&mut self, request: &Request) -> (usize, Work, (TraceKind, u64)) {
        let (file, work, kind) = match request {
            Request::Read { file, offset, buffer, .. } => {
                let early = self.rng.one_in(2);
                let work = match self.check(*file, *offset, buffer.len() as u64) {
                    Err(error) => Work::Refused(error),
                    Ok(()) => Work::Read { offset: *offset, early },
                };
                (file, work, (TraceKind::Read, *offset))
            }
            Request::Write { file, offset, slices, durable } => {
                for slice in slices {
                    assert_eq!(slice.len() % BLOCK_BYTES, 0, "slices are whole blocks");
                    // 512: what direct I/O asks of memory.
                    assert_eq!(slice.as_ptr() as usize % 512, 0, "slices are aligned in memory");
                }
                if let (Some(tap), Some(first)) = (self.tap.as_mut(), slices.first()) {
                    tap(first);
                }
                let patch = Patch::new(*offset, slices.iter().map(|slice| &slice[..]));
                let checked = self.check(*file, *offset, patch.bytes());
                let writable = self.file(*file).writable;
                let work = match checked {
                    Err(error) => Work::Refused(error),
                    Ok(()) if !writable => Work::Refused(Error::new(Kind::ReadOnly, "the file was opened read-only")),
                    Ok(()) => Work::Write { patch, durable: *durable },
                };
                (file, work, (TraceKind::Write, *offset))
            }
            Request::Flush { file } => {
                self.file(*file);
                (file, Work::Flush { covers: self.tick() }, (TraceKind::Flush, 0))
            }
        };
        (file.0 as usize, work, kind)
    }
    fn check(&mut self, file: FileId, offset: u64, length: u64) -> Result<()> {
        let block = BLOCK_BYTES as u64;
        assert!(offset.is_multiple_of(block) && length.is_multiple_of(block), "offset and length are whole blocks");
        let file = self.file(file);
        if offset + length > file.content.length() {
            let error = Error::new(Kind::Io, "an I/O reaches past the end of the file (allocate comes first)");
            return Err(error.with(format_args!("{} at {offset}, {length} bytes", file.name)));
        }
        Ok(())
    }
    /// Counts a transfer and decides whether it fails, and how long it stalls.
    fn fate(&mut self, file: usize, work: &Work, bytes: u64) -> (bool, u64) {
        let State { rng, faults, counters, files, .. } = self;
        let figures = &mut files[file].figures;
        let counts = faults.only.is_none_or(|only| only.0 as usize == file);
        let fails = match work {
            Work::Read { offset, .. } => {
                figures.reads += 1;
                figures.read_bytes += bytes;
                let takes = |(of, at): (FileId, u64)| of.0 as usize == file && (*offset..offset + bytes).contains(&at);
                (counts && counters.reads.fails(faults.reads, rng)) || faults.unreadable.is_some_and(takes)
            }
            Work::Write { durable, .. } => {
                figures.writes += 1;
                figures.durable_writes += u64::from(*durable);
                figures.written_bytes += bytes;
                counts && counters.writes.fails(faults.writes, rng)
            }
            Work::Flush { .. } => {
                figures.flushes += 1;
                counts && counters.flushes.fails(faults.flushes, rng)
            }
            Work::Refused(_) => true,
        };
        if !matches!(work, Work::Refused(_)) {
            counters.meet(fails);
        }
        let stall_ns = if counts && counters.stalls.fails(faults.stalls, rng) { faults.stall_ns } else { 0 };
        (fails, stall_ns)
    }
    /// Hands a transfer to its device. Returns the number under which it ends.
    fn start(&mut self, host: &Host, file: usize, work: &Work, bytes: u64, stall_ns: u64) -> u64 {
        let slowness = self.faults.slowness;
        let late_ns = |ns: u64| ns.saturating_mul(slowness).saturating_add(stall_ns);
        let Some(platter) = self.spindles.get_mut(&file) else {
            return host.add_transfer(late_ns(self.latency.of(work, &mut self.rng)));
        };
        let (verb, offset) = match work {
            Work::Read { offset, .. } => (Verb::Read, *offset),
            Work::Write { patch, .. } => (Verb::Write, patch.first * BLOCK_BYTES as u64),
            // Without a write cache a flush has nothing to do.
            Work::Flush { .. } | Work::Refused(_) => return host.add_transfer(late_ns(COMMAND_NS)),
        };
        let id = host.start_transfer();
        platter.spindle.queue(host.now(), Ask { stall_ns, ..Ask::new(id, verb, offset, bytes) });
        platter.look_later(host, file);
        id
    }
    /// Performs a transfer at its end.
    fn perform(&mut self, file: usize, work: Work, fails: bool, slot: &Slot) -> Result<()> {
        let sequence = self.tick();
        let kind = self.faults.error.unwrap_or(Kind::Io);
        let error = || Err(Error::new(kind, "the simulated device failed"));
        match work {
            Work::Refused(error) => return Err(error),
            Work::Read { .. } if fails => return error(),
            Work::Read { early: true, .. } => {}
            Work::Read { offset, early: false } => self.fill(file, offset, slot),
            Work::Flush { covers } if fails => {
                self.files[file].content.fail_flush(covers);
                return error();
            }
            Work::Flush { covers } => self.files[file].content.flush(covers),
            Work::Write { patch, .. } if fails => {
                // All, nothing or a part of it is there; even if it should have been durable, nobody knows.
                let content = &mut self.files[file].content;
                match self.rng.below(3) {
                    0 => {}
                    1 => content.write(patch, sequence, false),
                    _ => content.write(patch.tear(content.live(), &mut self.rng), sequence, false),
                }
                return error();
            }
            Work::Write { patch, durable } => self.files[file].content.write(patch, sequence, durable),
        }
        Ok(())
    }
    /// Fills a read's buffer. Where writes are in flight, each sector is the new or the old one.
    fn fill(&mut self, file: usize, offset: u64, slot: &Slot) {
        let State { files, pending, rng, .. } = self;
        let live = files[file].content.live();
        slot.with_request(|request| {
            let Request::Read { buffer, .. } = request else { unreachable!("the slot of a read") };
            live.read(offset, buffer);
            let first = offset / BLOCK_BYTES as u64;
            let end = first + (buffer.len() / BLOCK_BYTES) as u64;
            let writes = pending.values().filter(|other| other.file == file).filter_map(Pending::patch);
            for patch in writes.filter(|patch| patch.first < end && first < patch.first + patch.pages.len() as u64) {
                let torn = patch.tear(live, rng);
                for (page, bytes) in (torn.first..).zip(&torn.pages).filter(|(page, _)| (first..end).contains(page)) {
                    let at = (page - first) as usize * BLOCK_BYTES;
                    buffer[at..at + BLOCK_BYTES].copy_from_slice(&bytes[..]);
                }
            }
        });
    }
}

fn payload(request: &Request) -> (u64, u32) {
    match request {
        Request::Read { buffer, .. } => (buffer.len() as u64, 0),
        Request::Write { slices, .. } => slices.iter().fold((0, 0), |(bytes, crc), slice| {
            (bytes + slice.len() as u64, base::checksum::crc32c_append(crc, slice))
        }),
        Request::Flush { .. } => (0, 0),
    }
}

impl Disk for SimDisk {
    fn open(&self, name: &str, mode: OpenMode) -> Result<FileId> {
        if name.is_empty() || name.contains('/') {
            return Err(Error::new(Kind::Invalid, "the disk is flat: a file's name has no slash").with(name));
        }
        let mut state = self.state();
        if state.crashed {
            return Err(crashed());
        }
        let index = match (state.names.get(name).copied(), mode) {
            (_, OpenMode::Create) if is_device(name) => panic!("a device is there or not"),
            (Some(_), OpenMode::Create) => return Err(Error::new(Kind::Exists, "the file exists").with(name)),
            (Some(index), _) => index,
            (None, OpenMode::Create) => {
                self.space(&mut state, 0)?;
                let index = state.files.len();
                state.names.insert(name.to_string(), index);
                state.files.push(File {
                    name: name.to_string(),
                    name_durable: false,
                    opened: false,
                    writable: false,
                    content: Content::default(),
                    figures: FileFigures::default(),
                });
                index
            }
            (None, _) => return Err(Error::new(Kind::NotFound, "no such file").with(name)),
        };
        let file = &mut state.files[index];
        file.opened = true;
        file.writable |= mode != OpenMode::ReadOnly;
        self.host.note(TraceKind::Open, index as u64, file.content.length());
        Ok(FileId(index as u32))
    }
    fn mark_disk(&self, _: FileId) {}
    fn close(&self, file: FileId) {
        let mut state = self.state();
        assert!(is_device(&state.file(file).name), "the brick's own files stay open");
        state.file(file).opened = false;
    }
    fn list(&self) -> Result<Vec<String>> {
        Ok(self.state().names.keys().filter(|name| !is_device(name)).cloned().collect())
    }
    fn length(&self, file: FileId) -> Result<u64> {
        Ok(self.state().file(file).content.length())
    }
    fn allocate(&self, file: FileId, bytes: u64) -> Result<()> {
        let mut state = self.state();
        if state.crashed {
            return Err(crashed());
        }
        let length = state.file(file).content.length();
        if is_device(&state.file(file).name) {
            return Err(Error::new(Kind::Unsupported, "a device has the length that it has"));
        }
        if !state.file(file).writable {
            return Err(Error::new(Kind::ReadOnly, "the file was opened read-only"));
        }
        if bytes > length {
            self.space(&mut state, bytes - length)?;
            let sequence = state.tick();
            state.file(file).content.grow(bytes, sequence);
            self.host.note(TraceKind::Grow, u64::from(file.0), bytes);
        }
        Ok(())
    }
    fn release(&self, file: FileId) -> Result<()> {
        let mut state = self.state();
        if state.crashed {
            return Err(crashed());
        }
        assert!(state.pending.values().all(|pending| pending.file != file.0 as usize), "nobody reads or writes it");
        state.file(file).content.release();
        self.host.note(TraceKind::Grow, u64::from(file.0), 0);
        Ok(())
    }
    fn sync_names(&self) -> Result<()> {
        let mut state = self.state();
        let State { faults, counters, rng, .. } = &mut *state;
        let fails = counters.names.fails(faults.names, rng);
        if counters.meet(fails) {
            return Err(Error::new(faults.error.unwrap_or(Kind::Io), "the simulated host failed"));
        }
        if state.crashed || !state.step(&self.host) {
            return Err(crashed());
        }
        state.files.iter_mut().for_each(|file| file.name_durable = true);
        // A journal commit on a typical file system.
        let spent_ns = 100_000 + state.rng.below(1_000_000);
        self.host.spend(spent_ns);
        self.host.note(TraceKind::Names, state.steps, 0);
        Ok(())
    }
    fn free_bytes(&self) -> Result<u64> {
        Ok(self.state().free_bytes())
    }
    fn discard(&self, file: FileId, offset: u64, bytes: u64) -> Result<()> {
        let mut state = self.state();
        state.file(file).figures.discards += 1;
        if !is_device(&state.file(file).name) {
            return Err(Error::new(Kind::Unsupported, "only devices are told what nobody needs"));
        }
        state.check(file, offset, bytes)?;
        let State { faults, counters, rng, .. } = &mut *state;
        let fails = counters.discards.fails(faults.discards, rng);
        if counters.meet(fails) {
            return Err(Error::new(Kind::Unsupported, "the simulated device has no use for discards"));
        }
        if state.crashed || !state.step(&self.host) {
            return Err(crashed());
        }
        // Some devices give zeros from then on, some what they like; some forget at once, some with their next flush.
        let mut page: Page = Arc::new([0; BLOCK_BYTES]);
        if state.rng.one_in(2) {
            Arc::make_mut(&mut page).fill(state.rng.next() as u8);
        }
        let count = bytes / BLOCK_BYTES as u64;
        let patch = Patch { first: offset / BLOCK_BYTES as u64, pages: (0..count).map(|_| page.clone()).collect() };
        let (sequence, at_once) = (state.tick(), state.rng.one_in(2));
        let file_state = state.file(file);
        file_state.content.write(patch, sequence, at_once);
        file_state.figures.discarded_bytes += bytes;
        let spent_ns = 50_000 + state.rng.below(500_000);
        self.host.spend(spent_ns);
        self.host.note(TraceKind::Discard, offset, bytes);
        Ok(())
    }
    fn submit_for(&self, purpose: Purpose, request: Request) -> Transfer {
        let (bytes, checksum) = payload(&request);
        let mut state = self.state();
        let (file, work, (kind, detail)) = state.plan(&request);
        let (slot, transfer) = self.slots.start(purpose, request);
        let write = matches!(work, Work::Write { .. });
        // After a crash or the world's end nothing reaches the device, and no answer comes back.
        if state.crashed || self.host.stopped() || write && !state.step(&self.host) {
            return transfer;
        }
        let (fails, stall_ns) = state.fate(file, &work, bytes);
        let id = state.start(&self.host, file, &work, bytes, stall_ns);
        if let Work::Read { offset, early: true } = work {
            state.fill(file, offset, &slot);
        }
        self.host.note(kind, file as u64, detail);
        self.host.note(TraceKind::Transfer, id, u64::from(checksum));
        state.pending.insert(id, Pending { slot, file, work, fails });
        transfer
    }
}
