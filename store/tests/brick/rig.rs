//! A brick of one group whose records map blocks and nothing else: enough to watch the log, the index and recovery
//! without what stands above them.

use base::checksum::crc32c;
use base::limits::{BLOCK_BYTES, SEGMENT_BYTES_MIN};
use base::*;
use runtime::random::SplitMix;
use runtime::sim::{DiskImage, World};
use runtime::{Runtime, tasks};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use store::device::Foreign;
use store::format::keys;
use store::format::leaf::{Leaf, Slot};
use store::format::record::{Head, Logged, Record, Run, Vote, encode_moves, encode_replicated, encode_vote};
use store::format::superblock::Superblock;
use store::format::values::{self, GroupRow, Promise, ReplayRow, ReplicaRow};
use store::index::Index as Engine;
use store::index::model::ModelIndex;
use store::log::{Described, Entry, Ordered, Payload};
use store::{Change, FormatOptions, FreeLimits, GroupPart, Opening, Replayed, Store, Stored};

/// The smallest: 256 blocks.
pub const SEGMENT_BYTES: u64 = SEGMENT_BYTES_MIN;
/// Blocks of a segment.
pub const SEGMENT_BLOCKS: u64 = SEGMENT_BYTES / BLOCK_BYTES as u64;
pub const GROUP: GroupId = GroupId(0);
pub const VOLUME: VolumeId = VolumeId(1);

/// A record that maps blocks, as its writer or a replay knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    pub index: u64,
    pub ino: Ino,
    pub first: u64,
    pub crcs: Vec<u32>,
    pub runs: Vec<Run>,
    pub batch: u64,
}

/// An open brick; see the module.
pub struct Brick {
    pub runtime: Runtime,
    pub store: Arc<Store>,
    /// The last record.
    pub applied: AtomicU64,
    /// The volume of new records.
    pub volume: AtomicU32,
    /// Records that no checkpoint has taken, in their order.
    pub fresh: Mutex<Vec<Written>>,
    /// The promise that the votes come to, if there are any.
    pub promise: Mutex<Option<Promise>>,
    /// All that lies in the log from where the last replay began, in its order.
    pub history: Mutex<Vec<Stored>>,
}

/// The content of a checkpoint: the place where replay will begin, the changes, the last record that it has, and the number of fresh
/// records among these.
pub type Ready = (ReplayRow, Vec<Change>, (Index, usize));

/// The blocks of files: place and checksum.
pub type Map = BTreeMap<(Ino, u64), (Place, u32)>;

pub fn file(number: u64) -> Ino {
    Ino::new(number + 2, GROUP)
}

/// Formats the world's empty disk.
pub async fn format(runtime: &Runtime, segments: u64) -> ModelIndex {
    try_format(runtime, segments).await.expect("an empty disk can be formatted")
}

/// Formats, if the world lasts that long.
pub async fn try_format(runtime: &Runtime, segments: u64) -> Result<ModelIndex> {
    format_as(runtime, Some(segments * SEGMENT_BYTES), None).await
}

/// Formats, perhaps on the world's device.
pub async fn format_as(runtime: &Runtime, size_bytes: Option<u64>, device: Option<Foreign>) -> Result<ModelIndex> {
    let (segment_bytes, further) = (SEGMENT_BYTES, Vec::new());
    let options = FormatOptions { size_bytes, segment_bytes, groups: 1, size_bytes_min: 0, device, further };
    store::format_brick(runtime, options, async || Ok(())).await?;
    Ok(ModelIndex::new(store::format::leaf::merge))
}

/// The blocks of a payload: each differs from every other of the test.
pub fn payload(tag: u64, blocks: usize) -> Vec<u8> {
    let block = |number: usize| {
        let mut rng = SplitMix(tag << 20 | number as u64);
        (0..BLOCK_BYTES / 8).flat_map(move |_| rng.next().to_le_bytes())
    };
    (0..blocks).flat_map(block).collect()
}

/// The record with the bytes that its writer has encoded.
fn stored(replayed: &Replayed) -> Stored {
    let mut replicated = Vec::new();
    match &replayed.logged {
        Logged::Vote(vote) => encode_vote(&mut replicated, vote),
        Logged::Moves(moves) => encode_moves(&mut replicated, moves),
        Logged::Record(record) => {
            let Record { group, term, index, volume, session, request, outcome, ref edits } = *record;
            let head = Head { group, term, index, volume, session, request, outcome };
            encode_replicated(&mut replicated, &head, edits);
        }
    }
    Stored { replayed: replayed.clone(), replicated: replicated.into() }
}

fn from_replay(replayed: Replayed) -> Written {
    let Replayed { logged, runs, batch } = replayed;
    let Logged::Record(record) = logged else { panic!("nothing was moved") };
    let [Edit::Map { ino, first, crcs }] = &record.edits[..] else { panic!("these records map blocks") };
    Written { index: record.index.0, ino: *ino, first: *first, crcs: crcs.as_slice().to_vec(), runs, batch }
}

impl Brick {
    /// Opens the brick and replays its log.
    pub async fn open(runtime: &Runtime, index: impl Engine + 'static) -> Result<Brick> {
        let opening = Opening::read(runtime.clone(), Arc::new(index), true).await?;
        let row = opening.index().get(&keys::group(GROUP))?.map(|row| values::decode_group(&row)).transpose()?;
        let applied = row.unwrap_or_default().applied;
        let promise = opening.index().get(&keys::promise(GROUP))?;
        let mut promise = promise.map(|row| values::decode_replica(&row)).transpose()?.map(|row| row.promise);
        let (mut fresh, mut history): (Vec<Written>, Vec<Stored>) = Default::default();
        let sink = async |records: Vec<Replayed>| {
            for replayed in records {
                history.push(stored(&replayed));
                if let Logged::Vote(vote) = &replayed.logged {
                    promise = Some(promise.unwrap_or_default().and(Promise::of(vote)));
                } else {
                    fresh.extend(Some(from_replay(replayed)).filter(|one| one.index > applied.0));
                }
            }
            Ok(())
        };
        let (store, _) = opening.replay(sink, |_| applied).await?;
        for (expected, written) in (applied.0 + 1..).zip(&fresh) {
            assert_eq!(written.index, expected, "records come back in their order, none missing");
        }
        let last = AtomicU64::new(fresh.last().map_or(applied.0, |written| written.index));
        let (fresh, promise, history) = (Mutex::new(fresh), Mutex::new(promise), Mutex::new(history));
        let volume = AtomicU32::new(VOLUME.0);
        Ok(Brick { runtime: runtime.clone(), store, applied: last, volume, fresh, promise, history })
    }

    /// Appends a record with its payload in the batch, without waiting. Errors: as `Log::append_one_record`.
    pub fn try_append(&self, ino: Ino, first: u64, bytes: &[u8], sync: Sync) -> Result<Written> {
        let mut buffer = self.runtime.buffer(bytes.len()).expect("within the bound");
        buffer.copy_from_slice(bytes);
        let slices = [buffer.share().slice(0..bytes.len())];
        self.append_payload(ino, first, bytes, Payload::Inline(&slices), sync)
    }
    /// Appends a record, with a segment made ready if need be.
    pub async fn append(&self, ino: Ino, first: u64, bytes: &[u8], sync: Sync) -> Result<Written> {
        loop {
            let ticket = self.store.log.segment_came.ticket();
            match self.try_append(ino, first, bytes, sync) {
                Err(error) if error.kind == Kind::Busy => {
                    if self.store.log.out_of_space() && self.store.log.prepared() == 0 {
                        return Err(Error::new(Kind::NoSpace, "no segment is left"));
                    }
                    self.store.log.segment_came.after(ticket).await;
                }
                appended => return appended,
            }
        }
    }
    /// Appends and waits.
    pub async fn write(&self, ino: Ino, first: u64, bytes: &[u8], sync: Sync) -> Result<Written> {
        let written = self.append(ino, first, bytes, sync).await?;
        self.store.log.wait(written.batch, sync, None).await?;
        Ok(written)
    }
    /// Places a payload in the bulk stream, then appends its record and waits.
    pub async fn write_bulk(&self, ino: Ino, first: u64, bytes: &[u8], sync: Sync) -> Result<Written> {
        let mut buffer = self.runtime.buffer(bytes.len()).expect("within the bound");
        buffer.copy_from_slice(bytes);
        let ticket = self.store.bulk.place(buffer.share().slice(0..bytes.len())).await?;
        let written = loop {
            let came = self.store.log.segment_came.ticket();
            match self.append_payload(ino, first, bytes, Payload::Placed(ticket.runs()), sync) {
                Err(error) if error.kind == Kind::Busy => self.store.log.segment_came.after(came).await,
                appended => break appended,
            }
        };
        self.store.bulk.close(ticket);
        let written = written?;
        self.store.log.wait(written.batch, sync, None).await?;
        Ok(written)
    }
    fn promised(&self, more: Promise) {
        let mut promise = self.promise.lock().expect("no panic while held");
        *promise = Some(promise.unwrap_or_default().and(more));
    }
    /// Appends a vote, and waits until it is durable.
    pub async fn vote(&self, term: u64, voted_for: Option<ReplicaId>) -> Result<()> {
        let batch = self.append_vote(term, voted_for).await?;
        self.store.log.wait(batch, Sync::Data, None).await
    }
    /// Appends a vote; its batch.
    pub async fn append_vote(&self, term: u64, voted_for: Option<ReplicaId>) -> Result<u64> {
        let vote = Vote { group: GROUP, term: Term(term), voted_for };
        let Ordered { batch, .. } = loop {
            let came = self.store.log.segment_came.ticket();
            match self.store.log.append_vote(&vote) {
                Err(error) if error.kind == Kind::Busy => self.store.log.segment_came.after(came).await,
                appended => break appended?,
            }
        };
        self.promised(Promise::of(&vote));
        self.note(Replayed { logged: Logged::Vote(vote), runs: Vec::new(), batch });
        Ok(batch)
    }
    fn note(&self, replayed: Replayed) {
        self.history.lock().expect("no panic while held").push(stored(&replayed));
    }
    /// Appends a record with its payload in the batch or placed before.
    pub fn append_payload(&self, ino: Ino, first: u64, bytes: &[u8], from: Payload<'_>, sync: Sync) -> Result<Written> {
        self.append_mapped(ino, first, bytes.chunks(BLOCK_BYTES).map(crc32c).collect(), from, sync)
    }
    /// Appends a record that maps so many blocks more than it has; its batch.
    pub fn append_greedy(&self, ino: Ino, bytes: &[u8], more: usize) -> Result<u64> {
        let mut buffer = self.runtime.buffer(bytes.len()).expect("within the bound");
        buffer.copy_from_slice(bytes);
        let slices = [buffer.share().slice(0..bytes.len())];
        let mut crcs: Vec<u32> = bytes.chunks(BLOCK_BYTES).map(crc32c).collect();
        crcs.resize(crcs.len() + more, 7);
        self.append_mapped(ino, 0, crcs, Payload::Inline(&slices), Sync::Data).map(|written| written.batch)
    }
    fn append_mapped(&self, ino: Ino, first: u64, crcs: Vec<u32>, from: Payload<'_>, sync: Sync) -> Result<Written> {
        // Index and record are one step: this lock stands for the group's.
        let mut fresh = self.fresh.lock().expect("no panic while held");
        let index = self.applied.load(Ordering::Relaxed) + 1;
        let head = Head {
            group: GROUP,
            term: Term(1),
            index: Index(index),
            volume: VolumeId(self.volume.load(Ordering::Relaxed)),
            session: SessionId(0),
            request: RequestId(0),
            outcome: Outcome::Done,
        };
        let mut replicated = Vec::new();
        let map = Edit::Map { ino, first, crcs: crcs.iter().copied().collect() };
        encode_replicated(&mut replicated, &head, std::slice::from_ref(&map));
        let described = &[Described { ino, first, crcs: &crcs }];
        let entry =
            Entry { owner: (GROUP, head.volume, head.index), replicated: &replicated, payload: from, described };
        let ordered = self.store.log.append_one_record(&entry, sync)?;
        let runs = match (from, ordered.place) {
            (Payload::Placed(runs), _) => runs.to_vec(),
            (_, place) => {
                let place = place.expect("an inline payload has a place");
                vec![Run { place, count: crcs.len() as u16 }]
            }
        };
        self.applied.store(index, Ordering::Relaxed);
        let Head { group, term, volume, session, request, outcome, .. } = head;
        let record = Record { group, term, index: head.index, volume, session, request, outcome, edits: vec![map] };
        self.note(Replayed { logged: Logged::Record(record), runs: runs.clone(), batch: ordered.batch });
        let written = Written { index, ino, first, crcs, runs, batch: ordered.batch };
        fresh.push(written.clone());
        Ok(written)
    }

    /// Brings the index up to everything appended.
    pub async fn checkpoint(&self) -> Result<()> {
        self.checkpoint_as(self.ready_for_checkpoint().await?).await
    }
    /// Brings the index up to a moment.
    pub async fn checkpoint_as(&self, (replay, changes, taken): Ready) -> Result<()> {
        let row = GroupRow { applied: taken.0, ..GroupRow::default() };
        let promise = *self.promise.lock().expect("no panic while held");
        let replica = promise.map(|promise| ReplicaRow { promise, before: None });
        let part = GroupPart {
            group: GROUP,
            row,
            young: u64::MAX,
            changes,
            purges: Arc::default(),
            reserves: Arc::default(),
            replica,
        };
        let store = self.store.clone();
        tasks::run_blocking(&*self.runtime.tasks, move || {
            store::checkpoint::write(&store, replay, vec![part], FreeLimits::default())
        })
        .await?;
        self.fresh.lock().expect("no panic while held").drain(..taken.1);
        Ok(())
    }
    /// The first half of a checkpoint: what it will write, all of it durable in the log, and the records that this takes: the last
    /// one, and the number of fresh ones.
    pub async fn ready_for_checkpoint(&self) -> Result<Ready> {
        let (replay, last) = self.store.cut();
        let taken = self.fresh.lock().expect("no panic while held").len();
        let taken = (Index(self.applied.load(Ordering::Relaxed)), taken);
        let mut leaves: BTreeMap<LeafKey, Leaf> = BTreeMap::new();
        for ((ino, block), (place, crc)) in self.fresh_map() {
            let (key, slot) = LeafKey::of(ino, block);
            leaves.entry(key).or_default().set(slot, Slot::Local { place, crc, birth: 1 });
        }
        self.store.log.wait(last, Sync::All, None).await?;
        let changes = leaves.into_iter().map(|(key, leaf)| Change::Leaf(VOLUME, key, leaf, 0)).collect();
        Ok((replay, changes, taken))
    }
    /// The blocks by the records above the last checkpoint.
    fn fresh_map(&self) -> Map {
        let mut map = Map::new();
        self.fresh.lock().expect("no panic while held").iter().for_each(|written| written.lay_over(&mut map));
        map
    }
    /// The whole state: the index, and the records above it.
    pub fn map(&self) -> Map {
        let mut map = index_map(&*self.store.index);
        map.extend(self.fresh_map());
        map
    }
    /// Free segments.
    pub fn space_free(&self) -> u64 {
        self.store.segments().free_segments
    }
    /// Ends the brick's tasks, as a process's end would.
    pub async fn stop(self) {
        let Brick { runtime, store, .. } = self;
        store.stop();
        while Arc::strong_count(&store) > 1 {
            runtime.clock.sleep(1_000_000).await;
        }
    }
    /// Every block of the state can be read, and is what its checksum says.
    pub async fn read_all(&self) {
        for ((ino, block), (place, crc)) in self.map() {
            let buffer = self.runtime.buffer(BLOCK_BYTES).expect("within the bound");
            let (buffer, result) = self.store.read(runtime::Purpose::Other, place, buffer).await;
            result.expect("a healthy device reads");
            assert_eq!(crc32c(&buffer), crc, "block {block} of {ino:?} at {place:?}");
        }
    }
}

impl Written {
    /// Sets the record's blocks.
    pub fn lay_over(&self, map: &mut Map) {
        let places = self.runs.iter().flat_map(|run| (0..u32::from(run.count)).map(|number| run.place.advance(number)));
        for ((place, &crc), block) in places.zip(&self.crcs).zip(self.first..) {
            map.insert((self.ino, block), (place, crc));
        }
    }
}

/// The blocks by the leaves in an index.
pub fn index_map(index: &dyn Engine) -> Map {
    let (from, to) = keys::leaves_in_group(GROUP, VOLUME);
    let mut map = Map::new();
    for (key, value) in index.scan(&from, &to, usize::MAX).expect("the model index reads") {
        let at = keys::leaf_of(&key);
        for (slot, what) in Leaf::decode(&value).expect("a leaf").iter() {
            let Slot::Local { place, crc, .. } = what else { panic!("a whole leaf has no holes") };
            map.insert((at.ino, at.leaf * 64 + slot as u64), (place, crc));
        }
    }
    map
}

/// The newer copy of an image's superblock.
pub fn superblock_of(image: &DiskImage) -> Superblock {
    let copy = |number: u64| image.read("superblock", number * 4096, 4096);
    let copies = (0..2).filter_map(copy).filter_map(|bytes| Superblock::decode(&bytes).ok());
    copies.max_by_key(|superblock| superblock.sequence).expect("a copy is whole")
}

/// A world that boots from an image.
pub fn boot(seed: u64, image: &DiskImage) -> World {
    World::from_image(seed, image.clone())
}

/// The seeds of a test: few by default, others by hand (`SEEDS=1000..2000`).
pub fn seeds(few: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Ok(asked) = std::env::var("SEEDS") else { return few };
    let bound = |text: &str| text.parse().expect("SEEDS=from..to, numbers");
    let (from, to) = asked.split_once("..").expect("SEEDS=from..to");
    bound(from)..bound(to)
}
