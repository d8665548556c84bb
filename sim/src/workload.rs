//! Clients: tasks on all cores that ask for whatever a seed comes up with, tell the history what they asked and were
//! told, and deliver some requests twice.

use crate::check::memory;
use crate::history::{History, Key, payload};
use crate::model::{DEFAULT, LIST, TIER};
use crate::world::{CORES_MAX, SEGMENTS_AMPLE, Served, context, volume_name};
use base::limits::XATTR_VALUE_BYTES_MAX;
use base::{At, FileKind, Ino, Kind, Name, Op, RequestId, Room, Seek, SessionId, SetAttr, SetHow, Sync, VolumeId};
use group::Answer;
use runtime::random::SplitMix;
use runtime::tasks::both;
use runtime::{Event, Runtime};
use std::sync::{Arc, Mutex, MutexGuard};
use store::format::devices::Tier;

/// Files stay this small, so that a model in memory is cheap and several leaves are still met.
const FILE_BYTES_MAX: u64 = 600 << 10;
/// Names per directory: few, so that clients meet.
const NAMES: u64 = 9;
/// Opens that a client holds at most.
const HANDLES_MAX: usize = 5;

/// The clients' operations, by weight. Drawn per seed: a seed with only some of them does these far more often.
const DEEDS: [(Deed, u64); 29] = [
    (Deed::Create, 8),
    (Deed::TempFile, 2),
    (Deed::MakeDir, 5),
    (Deed::SymLink, 2),
    (Deed::Link, 4),
    (Deed::Unlink, 5),
    (Deed::RemoveDir, 2),
    (Deed::Rename, 7),
    (Deed::Mode, 2),
    (Deed::Truncate, 4),
    (Deed::Open, 2),
    (Deed::OpenTruncate, 2),
    (Deed::Release, 2),
    (Deed::Write, 14),
    (Deed::Append, 5),
    (Deed::Allocate, 2),
    (Deed::Punch, 3),
    (Deed::Zero, 2),
    (Deed::Seek, 1),
    (Deed::SetXattr, 4),
    (Deed::RemoveXattr, 2),
    (Deed::Fsync, 5),
    (Deed::SyncAll, 1),
    (Deed::List, 2),
    (Deed::Read, 6),
    (Deed::Checkpoint, 2),
    (Deed::Sleep, 2),
    (Deed::Echo, 2),
    (Deed::DropVolume, 0),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Deed {
    Create,
    TempFile,
    MakeDir,
    SymLink,
    Link,
    Unlink,
    RemoveDir,
    Rename,
    Mode,
    Truncate,
    Open,
    OpenTruncate,
    Release,
    Write,
    Append,
    Allocate,
    /// Make a hole.
    Punch,
    /// Make zeros that are promised.
    Zero,
    Seek,
    SetXattr,
    RemoveXattr,
    Fsync,
    SyncAll,
    List,
    Read,
    Checkpoint,
    Sleep,
    /// Deliver a request of an earlier life again.
    Echo,
    DropVolume,
}

/// The focus of seeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Focus {
    /// Everything.
    #[default]
    Any,
    /// Small durable writes of many clients, beside checkpoints: several batches are under way at any moment.
    DurableWrites,
    /// Directories made, removed and renamed between groups: each is several records.
    CrossGroup,
    /// The device fails now and then, or the host has no space.
    Faults,
    /// Small bricks, written over and over: the cleaner must work.
    Cleaner,
    /// Files cut, dropped and written again: what is left of them is freed in steps.
    Cuts,
    /// Little flash, written over and over, in front of disks: cold blocks must go down to them.
    Destage,
}

impl Focus {
    /// All of them, to name one on a command line.
    pub const ALL: [Focus; 7] = [
        Focus::Any,
        Focus::DurableWrites,
        Focus::CrossGroup,
        Focus::Faults,
        Focus::Cleaner,
        Focus::Cuts,
        Focus::Destage,
    ];
}

/// Segments of a device of flash beside the first: as small as a device may be, nearly, so that it fills and empties soon.
const FLASH_SEGMENTS: u64 = 20;

/// The behaviour of clients; drawn once per seed.
#[derive(Clone, Debug)]
pub struct Profile {
    weights: Vec<u64>,
    /// Weights of the four classes of durability.
    syncs: [u64; 4],
    /// One mutating request in so many is delivered twice.
    twice_one_in: u64,
    /// One write in so many is large enough for the bulk stream.
    large_one_in: u64,
    /// Clients.
    pub clients: u64,
    /// Calls per client and life.
    pub calls: u64,
    /// The longest pause.
    pause_ns: u64,
    /// Groups of the brick.
    pub groups: u32,
    /// Its segments.
    pub segments: u64,
    /// They lie on a block device, and freed ones are discarded.
    pub device: bool,
    /// Segments of each of its disks.
    pub disks: Vec<u64>,
    /// Segments of each device of flash beside the first.
    pub flashes: Vec<u64>,
    /// Attributes that are set say on which tier blocks belong.
    hints: bool,
    /// Cores of the machine.
    pub cores: usize,
}

impl Profile {
    /// A profile by seed.
    pub fn draw(rng: &mut SplitMix) -> Profile {
        let swarm = rng.one_in(2);
        let weight = |&(_, weight): &(Deed, u64), rng: &mut SplitMix| match swarm {
            true => weight * [0, 1, 1, 4][rng.below(4) as usize],
            false => weight,
        };
        let mut weights: Vec<u64> = DEEDS.iter().map(|deed| weight(deed, rng)).collect();
        // Without files there is nothing to do.
        weights[0] = weights[0].max(4);
        weights[DEEDS.len() - 1] = u64::from(rng.one_in(12));
        Profile {
            weights,
            syncs: [1 + rng.below(8), rng.below(4), 1 + rng.below(4), rng.below(3)],
            twice_one_in: 4 + rng.below(12),
            large_one_in: 4 + rng.below(20),
            clients: 1 + rng.below(6),
            calls: 8 + rng.below(40),
            pause_ns: 1 << rng.below(31),
            groups: if rng.one_in(16) { 64 } else { 1 + rng.below(6) as u32 },
            segments: if rng.one_in(6) { 32 + rng.below(30) } else { SEGMENTS_AMPLE },
            cores: 1 + rng.below(CORES_MAX as u64) as usize,
            device: rng.one_in(3),
            disks: Vec::new(),
            flashes: Vec::new(),
            hints: false,
        }
    }
    /// The brick of the script (see `small`).
    pub fn small(self) -> Profile {
        let (segments, flashes) = (crate::small::SEGMENTS, Vec::new());
        Profile { clients: 0, groups: 3, segments, device: false, cores: 2, flashes, ..self }
    }
    /// The devices beside the first, in the order of their numbers.
    pub fn further(&self) -> impl Iterator<Item = (Tier, u64)> {
        let of = |tier: Tier, all: &[u64]| all.iter().map(|&segments| (tier, segments)).collect::<Vec<_>>();
        of(Tier::Disk, &self.disks).into_iter().chain(of(Tier::Flash, &self.flashes))
    }
    /// The same with so many groups.
    pub fn of_groups(self, groups: u32) -> Profile {
        Profile { groups, ..self.ample() }
    }
    /// A brick that is never full.
    pub fn ample(self) -> Profile {
        Profile { segments: SEGMENTS_AMPLE, device: false, flashes: Vec::new(), ..self }
    }
    fn weigh(&mut self, deed: Deed, weight: u64) {
        self.weights[DEEDS.iter().position(|(one, _)| *one == deed).expect("it is one")] = weight;
    }
    /// The same profile, with the weight on what the focus is about.
    pub fn focused(mut self, focus: Focus) -> Profile {
        let only = |deeds: &[Deed]| {
            let weight = |&(deed, weight): &(Deed, u64)| if deeds.contains(&deed) { weight.max(5) } else { 0 };
            DEEDS.iter().map(weight).collect()
        };
        // Half of the seeds that may have several devices have more flash, which may leave.
        let flashes = if self.groups.is_multiple_of(2) { vec![FLASH_SEGMENTS] } else { Vec::new() };
        match focus {
            Focus::Any | Focus::Faults => self.flashes = flashes,
            Focus::DurableWrites => {
                self.weights = only(&[Deed::Create, Deed::Write, Deed::Append, Deed::Fsync, Deed::Checkpoint]);
                self.syncs = [1, 0, 8, 0];
                (self.clients, self.large_one_in, self.pause_ns) = (6, 1000, 1);
            }
            Focus::CrossGroup => {
                self.weights = {
                    let deeds = [Deed::Create, Deed::MakeDir, Deed::Link, Deed::Unlink, Deed::RemoveDir, Deed::Rename];
                    only(&[&deeds[..], &[Deed::SetXattr, Deed::TempFile]].concat())
                };
                self.groups = self.groups.max(3);
            }
            Focus::Cuts => {
                let deeds = [Deed::Create, Deed::Write, Deed::Truncate, Deed::OpenTruncate, Deed::Unlink];
                let clears = [Deed::Punch, Deed::Zero, Deed::Seek, Deed::SetXattr];
                self.weights =
                    only(&[&deeds[..], &clears, &[Deed::Allocate, Deed::Read, Deed::Checkpoint, Deed::Sleep]].concat());
                // Quick, so that much happens before all is freed.
                (self.calls, self.large_one_in, self.pause_ns) = (100, 2, self.pause_ns.min(1 << 22));
            }
            Focus::Cleaner | Focus::Destage => {
                let deeds = [Deed::Create, Deed::Write, Deed::Append, Deed::Truncate, Deed::Unlink, Deed::Fsync];
                self.weights = only(&[&deeds[..], &[Deed::Read, Deed::Checkpoint, Deed::Sleep]].concat());
                self.weigh(Deed::Write, 60);
                (self.clients, self.calls, self.large_one_in) = (4, 150, 2);
                // Half of the seeds leave the cleaner time, the others race with it.
                if self.pause_ns > 1 << 15 {
                    self.pause_ns = 100_000_000;
                }
                self.segments = 32 + self.segments % 8;
                self.flashes = flashes;
                if focus == Focus::Destage {
                    self.weigh(Deed::Read, 15);
                    (self.segments, self.disks) = (16 + self.segments % 4, vec![24; 1 + self.cores % 2]);
                    self.hints = true;
                    self.weights[DEEDS.iter().position(|(deed, _)| *deed == Deed::SetXattr).expect("it is one")] = 8;
                }
            }
        }
        self
    }
}

/// The clients' knowledge of the volume; it may be out of date.
#[derive(Default)]
struct Known {
    dirs: Vec<Ino>,
    files: Vec<Ino>,
    entries: Vec<(Ino, Name, FileKind)>,
}

/// State that the clients of one life share.
pub struct Shared {
    state: Mutex<State>,
    /// Happens when a client has ended.
    ended: Event,
}

struct State {
    history: History,
    known: Known,
    volume: VolumeId,
    running: u64,
    checkpointed: Option<u64>,
    echoes: Vec<(Key, Op, u32)>,
    /// The most that a request so far takes of the brick's memory.
    largest: u64,
    /// The first bound that was broken.
    broken: Option<String>,
}

impl Shared {
    /// Nothing asked yet; `echoes`: requests of the life before that may be delivered again.
    pub fn new(echoes: Vec<(Key, Op, u32)>) -> Arc<Shared> {
        let state = State {
            history: History::default(),
            known: Known::default(),
            volume: VolumeId(0),
            running: 0,
            checkpointed: None,
            echoes,
            largest: 0,
            broken: None,
        };
        Arc::new(Shared { state: Mutex::new(state), ended: Event::new() })
    }
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }
    /// The calls so far.
    pub fn history(&self) -> History {
        self.state().history.clone()
    }
    /// Every batch up to this one is in the index, by a checkpoint that has ended.
    pub fn checkpointed(&self) -> Option<u64> {
        self.state().checkpointed
    }
    /// The fault that the brick showed at some moment, if any.
    pub fn broken(&self) -> Option<String> {
        self.state().broken.clone()
    }
    /// The volume and its root are known.
    pub fn found_volume(&self, volume: VolumeId, root: Ino) {
        let mut state = self.state();
        state.volume = volume;
        state.known.dirs.push(root);
    }
    /// Notes the directories, files and entries that earlier lives left.
    pub fn found(&self, dirs: Vec<Ino>, files: Vec<Ino>, entries: Vec<(Ino, Name, FileKind)>) {
        let known = &mut self.state().known;
        known.dirs.extend(dirs);
        known.files.extend(files);
        known.entries.extend(entries);
    }
    /// Waits until all clients have ended.
    pub async fn all_ended(&self) {
        loop {
            let ticket = self.ended.ticket();
            if self.state().running == 0 {
                return;
            }
            self.ended.after(ticket).await;
        }
    }
}

/// A client.
pub struct Client {
    runtime: Runtime,
    served: Served,
    shared: Arc<Shared>,
    profile: Profile,
    rng: SplitMix,
    session: SessionId,
    request: u64,
    handles: Vec<Ino>,
    /// The last read.
    last_read: Option<Op>,
}

impl Client {
    /// A client with a session of its own.
    pub fn new(
        runtime: Runtime,
        served: Served,
        shared: Arc<Shared>,
        profile: Profile,
        session: SessionId,
        rng: SplitMix,
    ) -> Client {
        shared.state().running += 1;
        Client { runtime, served, shared, profile, rng, session, request: 0, handles: Vec::new(), last_read: None }
    }

    /// Starts it on a core.
    pub fn start(mut self, core: usize) {
        let tasks = self.runtime.tasks.clone();
        tasks.spawn(
            core,
            Box::new(move || {
                Box::pin(async move {
                    for _ in 0..self.profile.calls {
                        self.step().await;
                    }
                    self.shared.state().running -= 1;
                    self.shared.ended.notify();
                })
            }),
        );
    }

    /// Ends without having started.
    pub fn end(self) {
        self.shared.state().running -= 1;
        self.shared.ended.notify();
    }

    /// Delivers a request of an earlier life, or of this client, again.
    pub async fn deliver(&mut self, key: Key, op: Op, length: u32) -> base::Result<Answer> {
        let data = match op {
            Op::Write { .. } => {
                let mut buffer = self.runtime.buffer(length as usize)?;
                payload(key, &mut buffer);
                Some(buffer)
            }
            _ => None,
        };
        let (call, volume) = {
            let mut state = self.shared.state();
            state.largest = state.largest.max(memory::cost(&op, length));
            (state.history.call(key, op.clone(), length), state.volume)
        };
        let volume = if matches!(op, Op::VolumeCreate { .. }) { VolumeId(0) } else { volume };
        let context = context(volume, key);
        let answer = self.served.call(&context, op, data).await;
        let now_ns = self.runtime.clock.now_ns();
        self.shared.state().history.answer(call, now_ns, &answer);
        answer
    }

    /// Looks whether the brick keeps its bounds.
    fn look(&self) {
        let mut state = self.shared.state();
        // Each client may have one delivered twice at the same time.
        let deliveries = 2 * (1 + self.profile.clients);
        if state.broken.is_none() {
            state.broken = memory::check(&self.served, deliveries, state.largest).err();
        }
    }

    async fn step(&mut self) {
        let deed = self.choose();
        match deed {
            Deed::Sleep => {
                let ns = self.rng.below(self.profile.pause_ns);
                self.runtime.clock.sleep(ns).await;
            }
            Deed::Checkpoint => self.checkpoint().await,
            Deed::Echo => {
                let echo = self.shared.state().echoes.pop();
                if let Some((key, op, length)) = echo {
                    // The checker compares the answer.
                    let _ = self.deliver(key, op, length).await;
                }
            }
            _ => {
                let Some((op, length)) = self.wish(deed) else { return };
                self.request += 1;
                let key = (self.session, RequestId(self.request));
                self.perform(key, op, length).await;
            }
        }
        self.look();
    }

    async fn perform(&mut self, key: Key, op: Op, length: u32) {
        let twice = op.mutates() && !matches!(op, Op::Release { .. }) && self.rng.one_in(self.profile.twice_one_in);
        let at_once = twice && self.rng.one_in(2);
        let answer = if at_once {
            let mut other = self.twin();
            let (first, second) = (self.deliver(key, op.clone(), length), other.deliver(key, op.clone(), length));
            both(first, second).await.0
        } else {
            self.deliver(key, op.clone(), length).await
        };
        if twice && !at_once && answer.as_ref().is_ok_and(|answer| answer.position.is_some()) {
            // Its answer is the first one's: the checker compares.
            let _ = self.deliver(key, op.clone(), length).await;
        }
        self.learn(&op, &answer);
    }

    /// The same client, to deliver a request beside itself.
    fn twin(&self) -> Client {
        Client {
            runtime: self.runtime.clone(),
            served: self.served.clone(),
            shared: self.shared.clone(),
            profile: self.profile.clone(),
            rng: self.rng.clone(),
            session: self.session,
            request: self.request,
            handles: Vec::new(),
            last_read: None,
        }
    }

    /// Makes a checkpoint, and remembers how far it brought the index.
    pub async fn checkpoint(&mut self) {
        let last = self.served.groups.store().log.last_batch();
        if self.served.groups.checkpoint().await.is_ok() {
            let mut state = self.shared.state();
            state.checkpointed = state.checkpointed.max(Some(last));
        }
    }

    fn choose(&mut self) -> Deed {
        let all: u64 = self.profile.weights.iter().sum();
        let mut draw = self.rng.below(all);
        for ((deed, _), weight) in DEEDS.iter().zip(&self.profile.weights) {
            if draw < *weight {
                return *deed;
            }
            draw -= weight;
        }
        unreachable!("the draw is below the sum of the weights")
    }

    fn sync(&mut self) -> Sync {
        let all: u64 = self.profile.syncs.iter().sum();
        let mut draw = self.rng.below(all);
        for (sync, weight) in [Sync::Ordered, Sync::Written, Sync::Data, Sync::All].into_iter().zip(self.profile.syncs)
        {
            if draw < weight {
                return sync;
            }
            draw -= weight;
        }
        unreachable!("the draw is below the sum of the weights")
    }

    fn name(&mut self) -> Name {
        let number = self.rng.below(NAMES);
        // Long names make records that fill a batch's header, so that one change is spread over several batches.
        let text = if number < 4 { format!("n{number}") } else { format!("{number}").repeat(250) };
        Name::new(text.as_bytes()).expect("a good name")
    }

    /// The operation for a deed; None if there is nothing to do it with.
    fn wish(&mut self, deed: Deed) -> Option<(Op, u32)> {
        let name = self.name();
        let dir = self.any(|known| &known.dirs)?;
        let file = self.handle_or_file();
        let op = match deed {
            Deed::Create => Op::Create { parent: dir, name, mode: 0o644, exclusive: self.rng.one_in(2) },
            Deed::TempFile => Op::TempFile { parent: dir, mode: 0o600 },
            Deed::MakeDir => Op::MakeDir { parent: dir, name, mode: 0o755 },
            Deed::SymLink => {
                let target = vec![b't'; 1 + self.rng.below(300) as usize].into();
                Op::SymLink { parent: dir, name, target }
            }
            Deed::Link => Op::Link { ino: file?, new_parent: dir, new_name: name },
            Deed::Unlink => self.unlink(dir, name),
            Deed::RemoveDir => {
                let (parent, name) = self.entry(|kind| kind == FileKind::Directory).unwrap_or((dir, name));
                Op::RemoveDir { parent, name }
            }
            Deed::Rename => self.rename(dir, name),
            Deed::Mode => {
                let ino = if self.rng.one_in(3) { dir } else { file? };
                let set = SetAttr { mode: Some(self.rng.below(0o1000) as u16), ..SetAttr::default() };
                Op::SetAttr { ino, set: set.into() }
            }
            Deed::Truncate => {
                let size = match self.rng.below(4) {
                    0 => 0,
                    1 => self.rng.below(FILE_BYTES_MAX / 4096) * 4096,
                    _ => self.rng.below(FILE_BYTES_MAX / 4),
                };
                Op::SetAttr { ino: file?, set: SetAttr { size: Some(size), ..SetAttr::default() }.into() }
            }
            Deed::Open => Op::Open { ino: file?, truncate: false },
            Deed::OpenTruncate => Op::Open { ino: file?, truncate: true },
            Deed::Release => Op::Release { ino: self.handles.pop()? },
            Deed::Write => return self.write(file?),
            Deed::Append => {
                let length = 1 + self.rng.below(9000) as u32;
                let (ino, sync) = (file?, self.sync());
                return Some((Op::Write { ino, at: At::End, sync, kill_privileges: false }, length));
            }
            Deed::Allocate => {
                let (offset, length) = (self.rng.below(FILE_BYTES_MAX / 4), 1 + self.rng.below(200_000));
                Op::Allocate { ino: file?, offset, length, keep_size: self.rng.one_in(2), room: Room::Promised }
            }
            Deed::Punch => self.clear(file?, Room::Hole),
            Deed::Zero => self.clear(file?, Room::Zeroed),
            Deed::Seek => {
                let what = if self.rng.one_in(2) { Seek::Data } else { Seek::Hole };
                Op::Seek { ino: file?, offset: self.rng.below(FILE_BYTES_MAX), what }
            }
            Deed::SetXattr | Deed::RemoveXattr => {
                let ino = if self.rng.one_in(3) { dir } else { file? };
                self.xattr(ino, deed == Deed::SetXattr)
            }
            Deed::Fsync => {
                let ino = if self.rng.one_in(3) { dir } else { file? };
                Op::Fsync { ino, sync: if self.rng.one_in(2) { Sync::All } else { Sync::Data } }
            }
            Deed::SyncAll => Op::SyncAll,
            Deed::List => Op::ReadDir { ino: dir, cookie: 0, count: 100, plus: self.rng.one_in(2) },
            Deed::Read => self.read(file?),
            Deed::DropVolume => Op::VolumeDelete { name: volume_name() },
            Deed::Checkpoint | Deed::Sleep | Deed::Echo => unreachable!("no request"),
        };
        Some((op, 0))
    }

    fn read(&mut self, ino: Ino) -> Op {
        // What lies on disks is copied if it is read again.
        if !self.profile.disks.is_empty()
            && let Some(again) = self.last_read.clone()
            && !self.rng.one_in(4)
        {
            return again;
        }
        let offset = self.rng.below(FILE_BYTES_MAX / 4);
        let read = Op::Read { ino, offset, length: 1 + self.rng.below(200_000) as u32 };
        self.last_read = Some(read.clone());
        read
    }

    /// An operation that clears a range: within a block, whole blocks, parts of leaves, leaves.
    fn clear(&mut self, ino: Ino, room: Room) -> Op {
        let (offset, length) = match self.rng.below(3) {
            0 => (self.rng.below(FILE_BYTES_MAX / 4), 1 + self.rng.below(9000)),
            1 => (self.rng.below(FILE_BYTES_MAX / 8192) * 4096, (1 + self.rng.below(70)) * 4096),
            _ => (self.rng.below(2 << 18), 1 + self.rng.below(FILE_BYTES_MAX)),
        };
        // What grows the file grows it no further than writes do.
        let keep_size = room == Room::Hole || self.rng.one_in(2) || offset + length > FILE_BYTES_MAX;
        Op::Allocate { ino, offset, length, keep_size, room }
    }

    fn unlink(&mut self, dir: Ino, name: Name) -> Op {
        let (parent, name) = self.entry(|kind| kind != FileKind::Directory).unwrap_or((dir, name));
        Op::Unlink { parent, name }
    }

    fn rename(&mut self, new_parent: Ino, new_name: Name) -> Op {
        let (parent, name) = self.entry(|_| true).unwrap_or((new_parent, new_name.clone()));
        // Half of the time onto a name that is known to be taken.
        let target = if self.rng.one_in(2) { self.entry(|_| true) } else { None };
        let exchanges = target.is_some() && self.rng.one_in(4);
        let (new_parent, new_name) = target.unwrap_or((new_parent, new_name));
        if exchanges {
            return Op::Exchange { parent, name, new_parent, new_name };
        }
        Op::Rename { parent, name, new_parent, new_name, no_replace: self.rng.one_in(8), whiteout: false }
    }

    /// One of few names; values of all sizes, up to the largest.
    fn xattr(&mut self, ino: Ino, set: bool) -> Op {
        if self.profile.hints {
            let name = Name::of_attribute(TIER).expect("a good name");
            let value = [&b"flash"[..], b"disk", b"auto"][self.rng.below(3) as usize].into();
            return Op::SetXattr { ino, name, value, how: SetHow::Any, kill_setgid: false };
        }
        let number = self.rng.below(4);
        let text = [&b"user.a"[..], b"user.b", b"trusted.c", DEFAULT][number as usize];
        let name = Name::of_attribute(text).expect("a good name");
        if !set {
            return Op::RemoveXattr { ino, name };
        }
        let length = match self.rng.below(12) {
            0 => XATTR_VALUE_BYTES_MAX as u64,
            1..3 => self.rng.below(9000),
            _ => self.rng.below(60),
        };
        let mut value = vec![0; length as usize];
        payload((self.session, RequestId(self.request)), &mut value);
        let value = if text == DEFAULT { LIST.into() } else { value.into() };
        let how = [SetHow::Any, SetHow::Any, SetHow::Create, SetHow::Replace][self.rng.below(4) as usize];
        Op::SetXattr { ino, name, value, how, kill_setgid: false }
    }

    fn write(&mut self, ino: Ino) -> Option<(Op, u32)> {
        let (offset, length) = if self.rng.one_in(self.profile.large_one_in) {
            (self.rng.below(FILE_BYTES_MAX / 8192) * 4096, (128 << 10) + self.rng.below(19) * 4096)
        } else {
            match self.rng.below(3) {
                0 => (self.rng.below(40) * 4096, (1 + self.rng.below(6)) * 4096),
                1 => (self.rng.below(60) * 512, 512 * (1 + self.rng.below(12))),
                _ => (self.rng.below(200_000), 1 + self.rng.below(10_000)),
            }
        };
        let sync = self.sync();
        Some((Op::Write { ino, at: At::Offset(offset), sync, kill_privileges: false }, length as u32))
    }

    fn any<T: Copy>(&mut self, of: impl Fn(&Known) -> &Vec<T>) -> Option<T> {
        let state = self.shared.state.lock().expect("no panic while held");
        let all = of(&state.known);
        if all.is_empty() { None } else { Some(all[self.rng.below(all.len() as u64) as usize]) }
    }

    fn handle_or_file(&mut self) -> Option<Ino> {
        if !self.handles.is_empty() && self.rng.one_in(2) {
            return Some(self.handles[self.rng.below(self.handles.len() as u64) as usize]);
        }
        self.any(|known| &known.files)
    }

    /// A name that is known, of a wanted kind, seven times in eight.
    fn entry(&mut self, wanted: impl Fn(FileKind) -> bool) -> Option<(Ino, Name)> {
        if self.rng.one_in(8) {
            return None;
        }
        let state = self.shared.state.lock().expect("no panic while held");
        let all: Vec<_> = state.known.entries.iter().filter(|(.., kind)| wanted(*kind)).collect();
        if all.is_empty() {
            return None;
        }
        let (dir, name, _) = all[self.rng.below(all.len() as u64) as usize];
        Some((*dir, name.clone()))
    }

    fn learn(&mut self, op: &Op, answer: &base::Result<Answer>) {
        let mut state = self.shared.state.lock().expect("no panic while held");
        let known = &mut state.known;
        let born = match answer {
            Ok(Answer { reply: base::Reply::Attr(attr), .. }) => Some(*attr),
            Ok(_) => None,
            Err(error) => {
                if error.kind == Kind::Stale {
                    known.forget(op);
                }
                return;
            }
        };
        match op {
            Op::Create { parent, name, .. } | Op::MakeDir { parent, name, .. } | Op::SymLink { parent, name, .. } => {
                let Some(attr) = born else { return };
                known.entries.push((*parent, name.clone(), attr.inode.kind));
                match attr.inode.kind {
                    FileKind::Directory => known.dirs.push(attr.ino),
                    FileKind::File => known.files.push(attr.ino),
                    _ => {}
                }
                if matches!(op, Op::Create { .. }) {
                    self.handles.push(attr.ino);
                }
            }
            Op::TempFile { .. } => {
                let Some(attr) = born else { return };
                known.files.push(attr.ino);
                self.handles.push(attr.ino);
            }
            Op::Link { new_parent, new_name, .. } => {
                known.entries.extend(born.map(|attr| (*new_parent, new_name.clone(), attr.inode.kind)));
            }
            Op::Open { ino, .. } => self.handles.push(*ino),
            Op::Unlink { parent, name } | Op::RemoveDir { parent, name } => {
                known.entries.retain(|(dir, known, _)| (dir, known) != (parent, name));
            }
            Op::Exchange { parent, name, new_parent, new_name } => {
                let kind_of = |dir: &Ino, name: &Name| {
                    known.entries.iter().position(|(known, other, _)| (known, other) == (dir, name))
                };
                if let (Some(one), Some(other)) = (kind_of(parent, name), kind_of(new_parent, new_name)) {
                    let kind = known.entries[one].2;
                    known.entries[one].2 = known.entries[other].2;
                    known.entries[other].2 = kind;
                }
            }
            Op::Rename { parent, name, new_parent, new_name, .. } => {
                let moved = known.entries.iter().find(|(dir, known, _)| (dir, known) == (parent, name));
                let moved = moved.map(|(.., kind)| (*new_parent, new_name.clone(), *kind));
                known.entries.retain(|(dir, known, _)| (dir, known) != (parent, name));
                known.entries.extend(moved);
            }
            _ => {}
        }
        drop(state);
        if self.handles.len() > HANDLES_MAX {
            // Kept open until the life ends: a file that is unlinked meanwhile becomes an orphan.
            self.handles.remove(0);
        }
    }
}

impl Known {
    /// Something that an operation named is gone.
    fn forget(&mut self, op: &Op) {
        let gone = match op {
            Op::SetAttr { ino, .. } | Op::Open { ino, .. } | Op::Write { ino, .. } => *ino,
            Op::Allocate { ino, .. } | Op::Read { ino, .. } | Op::Link { ino, .. } => *ino,
            Op::SetXattr { ino, .. } | Op::RemoveXattr { ino, .. } => *ino,
            Op::Create { parent, .. } | Op::MakeDir { parent, .. } | Op::SymLink { parent, .. } => *parent,
            Op::TempFile { parent, .. } => *parent,
            _ => return,
        };
        self.files.retain(|file| *file != gone);
        // The root stays, whatever happens: it comes first.
        let root = self.dirs.first().copied();
        self.dirs.retain(|dir| *dir != gone || Some(*dir) == root);
    }
}
