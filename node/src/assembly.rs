//! The meeting place of concrete types: the real world, the index engine, the store, the groups, the stack and the FUSE
//! front become one brick. The only file that names them all.

mod formatting;
mod mounting;

pub use formatting::{format, format_or_find};

use crate::admin::protocol::{Agent, Answer, Device, Figure, FileOf, Request, Space, Status};
use crate::affected;
use crate::cli::{Geometry, Transport};
use crate::cluster::{Member, refuse_alone};
use crate::cores::Cores;
use crate::daemon::{described, say};
use crate::directory;
use crate::failure::{Exit, Failure};
use crate::memory::buffer_shares;
use crate::progress::Progress;
use crate::scrub;
use base::limits::{BLOCK_BYTES, GROUPS_DEFAULT, SEGMENT_BYTES_DEFAULT};
use base::{Error, Kind, Name, Op, Reply, Result, StatFs, VolumeId};
use front::fuse::{Entries, MountOptions, OP_NAMES, Rings};
use group::{Context, Groups, Replicas, Scope};
use index_rocksdb::{RocksIndex, Salvaged};
use layer::{Change, Stack};
use runtime::budget::Figures;
use runtime::real::{self, Directory, Reactors};
use runtime::{Ledger, Runtime, Span, tasks};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use store::brick::{FormatOptions, Found, format_brick, look};
use store::check::Report;
use store::cleaner::State;
use store::device::Foreign;
use store::format::Uuid;
use store::format::devices::{DeviceId, Tier};
use store::format::leaf::merge;
use store::format::superblock::Superblock;
use store::index::Index;
use store::progress::{Step, Tell};
use store::repair::{Depth, Repaired};

/// The index's directory in the brick's.
pub const INDEX: &str = "index";

/// Share of `memory_max` for knowing the copies on flash of what is on disks, which comes from the read cache's part, or the
/// groups' caches if that has none. A GiB of
/// `memory_max` knows at least 2.8 GiB of copies in pieces of 4 KiB, and 44 GiB in pieces of 64 KiB.
const PROMOTION_SHARE: u64 = 64;
const INDEX_SHARE: u64 = 8;
/// A new index is written once and closed.
const FORMAT_CACHE_BYTES: usize = 8 << 20;

/// The result of a format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Formatted {
    /// Bytes of the brick's segments.
    pub size_bytes: u64,
    /// Groups.
    pub groups: u32,
    /// An earlier format had been interrupted.
    pub again: bool,
    /// The brick's identity.
    pub uuid: Uuid,
}

/// The treatment of a directory that is no brick yet.
#[derive(Clone, Copy, Debug)]
pub enum IfNew<'a> {
    /// Refuse it.
    Refuse,
    /// Format it.
    Format(&'a Geometry),
}

/// An open brick, ready to be served.
pub struct Brick {
    runtime: Runtime,
    cores: Cores,
    groups: Arc<Groups>,
    shape: Status,
    warnings: Vec<String>,
    formatted: Option<Formatted>,
    /// The io_uring entries that its mounts may have.
    entries: Arc<Entries>,
    /// The stacks of volumes that were mounted, or whose layers or limits somebody asked for. They stay while the daemon runs, with their
    /// figures.
    stacks: Arc<Stacks>,
}

/// The stacks of a brick's volumes.
type Stacks = Mutex<BTreeMap<VolumeId, Arc<Stack>>>;

/// Starts the cores, over the files of a directory.
pub fn start(
    data: &Directory,
    (device, further): (Option<&Path>, Vec<PathBuf>),
    memory_max: u64,
    read_only: bool,
) -> Result<(Runtime, Reactors)> {
    let mut options = real::Options::new(data.clone(), buffer_shares(memory_max).0, OP_NAMES);
    options.read_only = read_only;
    options.device = device.map(Path::to_path_buf);
    options.further = further;
    #[cfg(feature = "seeded-bugs")]
    {
        options.volatile_cache = crate::test_switches::volatile_cache();
        options.pool_threads = crate::test_switches::pool_threads();
    }
    real::start(options)
}

/// Runs a future on core 0 and waits for it, from a plain thread.
pub fn on_core<T: Send + 'static, F>(reactors: &Reactors, make: impl FnOnce() -> F + Send + 'static) -> Result<T>
where
    F: Future<Output = Result<T>> + 'static,
{
    reactors.run(0, make)?
}

/// Formats the directory unless it is a brick already.
fn format_if_new(
    data: &Directory,
    geometry: &Geometry,
    foreign: Foreign,
    (runtime, reactors): (&Runtime, &Reactors),
    tell: &Tell,
    why: &str,
) -> Result<Option<Formatted>, Failure> {
    let failed = |error: Error| Failure::of(format!("{why} {}", data.path().display()), &error);
    let world = runtime.clone();
    let again = match on_core(reactors, move || async move { look(&world).await }).map_err(failed)? {
        Found::Brick(_) => return Ok(None),
        Found::HalfFormatted => true,
        Found::Empty => false,
    };
    directory::check_empty(data, again).map_err(|failure| match again {
        true => unreadable(data),
        false => failure,
    })?;
    let options = FormatOptions {
        size_bytes: geometry.size,
        segment_bytes: geometry.segment_size.unwrap_or(SEGMENT_BYTES_DEFAULT),
        groups: geometry.groups.unwrap_or(GROUPS_DEFAULT),
        device: geometry.first().map(|_| foreign),
        further: geometry.further().into_iter().map(|(tier, _)| (tier, foreign)).collect(),
        ..FormatOptions::default()
    };
    let (world, path, device) = (runtime.clone(), data.clone(), geometry.first().cloned());
    let further = geometry.further();
    tell(Step::begin("superblock"));
    let tell = tell.clone();
    let superblock = on_core(reactors, move || async move {
        let tasks = world.tasks.clone();
        let beside = move || {
            tell(Step::begin("empty index"));
            directory::link_device(&path, 1, device.as_deref())?;
            for ((_, device), number) in further.iter().zip(2..) {
                directory::link_device(&path, number, Some(device))?;
            }
            new_index(&path)
        };
        format_brick(&world, options, async move || tasks::run_blocking(&*tasks, beside).await).await
    });
    let superblock = superblock.map_err(failed)?;
    let size_bytes = u64::from(superblock.segments) * superblock.segment_bytes;
    Ok(Some(Formatted { size_bytes, groups: superblock.groups, again, uuid: superblock.uuid }))
}

/// A format ends before the first segment is made: who has one has no superblock any more.
fn unreadable(data: &Directory) -> Failure {
    let text = format!("{} holds segments, but both copies of its superblock are unreadable", data.path().display());
    Failure::new(Exit::Corrupt, text).next("keep a copy of the brick, and restore from a backup")
}

/// Makes an empty index. What is there is of a format that was interrupted: the superblock says so.
fn new_index(data: &Directory) -> Result<()> {
    directory::remove_tree(&data.at(INDEX)).map_err(|error| {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        let what = "the index of an interrupted format can't be removed";
        Error::os(what, errno).with(data.path().join(INDEX).display())
    })?;
    let options = index_rocksdb::Options::new(FORMAT_CACHE_BYTES).create();
    RocksIndex::open_in(data, INDEX, &options, merge)?.persist()
}

/// Paths of a new brick's further devices. Errors: one is named twice.
fn further_paths(geometry: &Geometry) -> Result<Vec<PathBuf>, Failure> {
    let further: Vec<PathBuf> = geometry.further().into_iter().map(|(_, path)| path).collect();
    let whole = |path: &PathBuf| std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
    let mut seen = BTreeSet::new();
    match geometry.first().into_iter().chain(&further).find(|path| !seen.insert(whole(path))) {
        Some(twice) => {
            let failure = Failure::new(Exit::Usage, format!("{} is named twice", twice.display()));
            Err(failure.next("name each device once: as flash, or as a disk"))
        }
        None => Ok(further),
    }
}

impl Brick {
    /// Opens a brick: replays its log and makes it ready for requests. `device`: where its block device is now, if
    /// somebody said so; it is remembered once it has proved to be the brick's. `member`: its place in a cluster; a brick that has one
    /// is not opened without.
    pub fn open(
        data: &Directory,
        (if_new, member): (IfNew<'_>, Option<&Member>),
        device: Option<&Path>,
        memory_max: u64,
        tell: Tell,
    ) -> Result<Brick, Failure> {
        let failed = |error: Error| Failure::of(format!("can't open the brick {}", data.path().display()), &error);
        let further = match if_new {
            IfNew::Format(geometry) => further_paths(geometry)?,
            IfNew::Refuse => Vec::new(),
        };
        let (runtime, reactors) = start(data, (device, further.clone()), memory_max, false).map_err(failed)?;
        let formatted = match if_new {
            IfNew::Format(geometry) => {
                let world = (&runtime, &reactors);
                format_if_new(data, geometry, Foreign::Keep, world, &tell, "can't start a new brick in")?
            }
            IfNew::Refuse => None,
        };
        let superblock = check_superblock(&runtime, &reactors).map_err(failed)?;
        match member {
            Some(member) => {
                member.check(superblock.uuid).map_err(failed)?;
                member.check_groups(superblock.groups).map_err(failed)?;
            }
            None => refuse_alone(data, Some(&superblock))?,
        }
        if device.is_some() && !superblock.on_device() {
            let what = "the brick's segments lie in its directory: leave --device out";
            return Err(failed(Error::new(Kind::Invalid, what)));
        }
        if let Some(member) = member {
            // Who can't be told, or not now, finds out later.
            drop(member.announce(&runtime, superblock.epoch + 1));
        }
        // The index needs room to open. The store looks again, goes on looking, and tells of what fails.
        let brick_bytes = u64::from(superblock.segments) * superblock.segment_bytes;
        drop(store::host::Host::default().look(&*runtime.disk, brick_bytes));
        tell(Step::begin("index"));
        let index = open_index(data, index_options(memory_max)).map_err(failed)?;
        let world = runtime.clone();
        let replicas = member.map(Member::replicas);
        let opened = on_core(&reactors, move || open_groups(world, index, replicas, memory_max, tell));
        let (groups, shape, warnings) = opened.map_err(failed)?;
        if device.is_some() {
            directory::link_device(data, 1, device).map_err(failed)?;
        }
        let listed = groups.store().devices().len();
        for (path, number) in further.iter().zip(2..).take(listed.saturating_sub(1)) {
            directory::link_device(data, number, Some(path)).map_err(failed)?;
        }
        let shape = Status { memory_max_bytes: memory_max, cores: reactors.cores() as u32, ..shape };
        let cores = Cores::new(reactors, "the brick is closed");
        let entries = Entries::of(&runtime);
        Ok(Brick { runtime, cores, groups, shape, warnings, formatted, entries, stacks: Arc::default() })
    }
}

/// A brick whose superblock is bad, half-written or of a newer version is told before its index is opened.
fn check_superblock(runtime: &Runtime, reactors: &Reactors) -> Result<Superblock> {
    let world = runtime.clone();
    let found = on_core(reactors, move || async move { look(&world).await })?;
    match found {
        Found::Brick(superblock) => Ok(*superblock),
        Found::HalfFormatted => Err(Error::new(Kind::Invalid, "its format was interrupted: format it again")),
        Found::Empty => Err(Error::new(Kind::NotFound, "not a brick: `sinter format` makes one")),
    }
}

fn options(memory_max: u64, has_disks: bool) -> group::Options {
    let options = group::Options::for_memory(memory_max);
    let read_cache_bytes = buffer_shares(memory_max).1;
    let promotion_bytes = if has_disks { memory_max / PROMOTION_SHARE } else { 0 };
    // A small daemon has no read cache.
    let of_read_cache = promotion_bytes.min(read_cache_bytes);
    let cache_bytes = options.cache_bytes - (promotion_bytes - of_read_cache);
    group::Options { read_cache_bytes: read_cache_bytes - of_read_cache, promotion_bytes, cache_bytes, ..options }
}

fn index_options(memory_max: u64) -> index_rocksdb::Options {
    index_rocksdb::Options::new((memory_max / INDEX_SHARE) as usize)
}

/// Opens the index of a brick; its superblock says that it has one.
fn open_index(data: &Directory, options: index_rocksdb::Options) -> Result<Arc<dyn Index>> {
    let index = RocksIndex::open_in(data, INDEX, &options, merge).map_err(|error| match error.kind {
        Kind::NotFound => {
            Error::new(Kind::Corrupt, "the brick has lost its index").with(data.path().join(INDEX).display())
        }
        _ => error,
    })?;
    let index: Arc<dyn Index> = Arc::new(index);
    #[cfg(feature = "seeded-bugs")]
    let index = crate::test_switches::delayed(index);
    Ok(index)
}

async fn open_groups(
    runtime: Runtime,
    index: Arc<dyn Index>,
    replicas: Option<Replicas>,
    memory_max: u64,
    tell: Tell,
) -> Result<(Arc<Groups>, Status, Vec<String>)> {
    let mut opening = store::Opening::read(runtime, index, true).await?;
    opening.tell(tell);
    let superblock = opening.superblock();
    let shape = Status {
        brick: superblock.uuid.to_string(),
        segment_bytes: superblock.segment_bytes,
        groups: u64::from(superblock.groups),
        ..Status::default()
    };
    let mut warnings = opening.warnings.clone();
    let options = options(memory_max, opening.has_disks());
    #[cfg(feature = "seeded-bugs")]
    let options = crate::test_switches::cold(options);
    let (groups, replay) = match replicas {
        Some(replicas) => Groups::open_replicated(opening, options, replicas).await?,
        None => Groups::open(opening, options).await?,
    };
    #[cfg(feature = "seeded-bugs")]
    crate::test_switches::obey(&groups)?;
    if !groups.is_replicated() {
        // Their mounts ended with the process. If that can't be noted now, it can at the next start. A replicated brick has no mounts, and
        // only who leads may note anything.
        drop(groups.forget_sessions().await);
    }
    if replay.records > 0 {
        let (records, batches, ms) = (replay.records, replay.batches, replay.ns / 1_000_000);
        warnings.push(format!("replayed {records} records in {batches} batches of the log in {ms} ms"));
    }
    Ok((groups, shape, warnings))
}

impl Brick {
    /// Warnings for an operator about the opening.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
    /// The result of the format on the way, if there was one.
    pub fn formatted(&self) -> Option<Formatted> {
        self.formatted
    }
    /// The bad blocks found since the last call, a line each. Reads the index: blocks, so not on a core.
    pub fn bad_news(&self) -> Vec<String> {
        crate::scrub::news(self.groups.store())
    }
    /// The world that the brick lives in.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }
    /// The groups.
    pub fn groups(&self) -> &Arc<Groups> {
        &self.groups
    }
    /// The bound of the daemon's memory.
    pub fn memory_max_bytes(&self) -> u64 {
        self.shape.memory_max_bytes
    }
    /// The times of all requests.
    pub fn ledger(&self) -> &Ledger {
        &self.runtime.ledger
    }

    /// The cores. Errors: the brick is closed.
    pub fn reactors(&self) -> Result<Arc<Reactors>> {
        self.cores.get()
    }

    /// Passes an operation on the brick's catalogue to the groups.
    pub(crate) fn call(&self, op: Op) -> Result<Reply> {
        self.call_in(VolumeId(0), op)
    }
    /// Passes an operation on a volume to the groups, in the daemon's own name: past layers and limits.
    pub fn call_in(&self, volume: VolumeId, op: Op) -> Result<Reply> {
        let (groups, runtime) = (self.groups.clone(), self.runtime.clone());
        let reactors = self.reactors()?;
        on_core(&reactors, move || async move {
            let context = Context::own(volume, Span::start(runtime.stamp()));
            let answer = match groups.is_replicated() {
                true => groups.call_replicated(&context, op, None).await,
                false => groups.call(&context, op, None).await,
            };
            answer.map(|answer| answer.reply).map_err(|error| match error.kind {
                Kind::Elsewhere => {
                    let what =
                        "another node of the cluster leads, or will: ask that one (sinter cluster status DIR names it)";
                    Error::new(Kind::Elsewhere, what)
                }
                _ => error,
            })
        })
    }
    /// True if other bricks have its groups too.
    pub fn is_replicated(&self) -> bool {
        self.groups.is_replicated()
    }

    /// The store below the groups.
    pub(crate) fn store(&self) -> &Arc<store::Store> {
        self.groups.store()
    }
    /// Refuses a volume that a client of another machine has mounted, with `next` as the next step.
    pub fn refuse_attached(&self, volume: &base::Volume, next: &'static str) -> Result<()> {
        let sessions = self.groups.network_sessions(Scope::All);
        match sessions.iter().find(|known| known.holder.volume == volume.id) {
            Some(known) => {
                let client = String::from_utf8_lossy(known.holder.client.as_bytes());
                Err(Error::new(Kind::Busy, next).with(format!("client {client}")))
            }
            None => Ok(()),
        }
    }
    /// Deletes a volume that is not mounted here; with `force` also if a client of another machine has it. Durable when this returns.
    pub fn delete_volume(&self, volume: &base::Volume, force: bool) -> Result<()> {
        if !force {
            let next = "a client of another machine has the volume mounted: unmount it there, or give --force";
            self.refuse_attached(volume, next)?;
        }
        let (groups, reactors, id) = (self.groups.clone(), self.reactors()?, volume.id);
        on_core(&reactors, move || async move { groups.end_sessions(Scope::All, id).await })?;
        self.call(Op::VolumeDelete { name: volume.name.clone() })?;
        self.stacks.lock().expect("no panic while held").remove(&volume.id);
        self.call(Op::SyncAll).map(drop)
    }

    /// The volume's stack.
    pub(crate) fn stack(&self, volume: &base::Volume) -> Arc<Stack> {
        stack_in(&self.stacks, &self.groups, volume)
    }
    /// The same for whoever serves clients of other machines.
    pub fn stack_of(&self) -> impl Fn(&base::Volume) -> Arc<Stack> + Send + Sync + 'static {
        let (stacks, groups) = (self.stacks.clone(), self.groups.clone());
        move |volume| stack_in(&stacks, &groups, volume)
    }
    pub(crate) fn each_stack(&self, act: impl Fn(&Stack)) {
        self.stacks.lock().expect("no panic while held").values().for_each(|stack| act(stack));
    }
    /// Changes the volume's layers, first durably, then for all operations that begin after this has returned. One change at a
    /// time. Errors: `Invalid`; those of the catalogue, and then the stack is as it was.
    pub fn change_layers(&self, volume: &base::Volume, change: &Change) -> Result<()> {
        let stack = self.stack(volume);
        let plan = stack.plan(change)?;
        self.change_volume(Op::VolumeLayers { name: volume.name.clone(), layers: plan.layers() })?;
        stack.put(plan);
        Ok(())
    }

    /// Gives the brick more room; durable when this returns.
    pub fn grow(&self, size_bytes: Option<u64>) -> Result<Answer> {
        let (groups, reactors) = (self.groups.clone(), self.reactors()?);
        let grown = on_core(&reactors, move || async move { store::grow::grow(groups.store(), size_bytes).await })?;
        Ok(Answer::Grown { before_bytes: grown.before_bytes, bytes: grown.bytes })
    }

    /// The brick's devices. `data`: its directory.
    pub fn devices(&self, data: &Path) -> Answer {
        let store = self.groups.store();
        let segment_bytes = store.segment_bytes();
        let device = |figures: store::DeviceFigures| Device {
            number: figures.row.id.0,
            tier: figures.row.tier.name().to_string(),
            state: match (&figures.failed, figures.missing) {
                (_, true) => "missing".to_string(),
                (Some(_), _) => "failed".to_string(),
                _ => figures.row.state.name().to_string(),
            },
            path: directory::linked(data, figures.row.id.0).map(|path| path.display().to_string()),
            size_bytes: u64::from(figures.row.segments) * segment_bytes,
            free_bytes: figures.free * segment_bytes,
            live_bytes: figures.live_blocks * BLOCK_BYTES as u64,
            error: figures.failed.map(|error| error.to_string()),
        };
        Answer::Devices(store.devices().into_iter().map(device).collect())
    }
    /// The next files with blocks on a device. The first ones come after a checkpoint, so that the list is as of the request; a
    /// brick that is read-only makes none, and can be asked all the same.
    pub fn affected(&self, number: u32, after: Option<FileOf>) -> Result<Answer> {
        if after.is_none() {
            let (groups, reactors) = (self.groups.clone(), self.reactors()?);
            drop(on_core(&reactors, move || async move { groups.checkpoint().await }));
        }
        affected::next(self.groups.store(), number, after)
    }
    /// Begins to remove a device, durably; it has left when it is listed no more.
    pub fn remove_device(&self, data: &Path, number: u32) -> Result<Answer> {
        let (groups, reactors) = (self.groups.clone(), self.reactors()?);
        on_core(&reactors, move || async move { groups.remove_device(DeviceId(number)).await })?;
        Ok(self.devices(data))
    }
    /// Gives the brick another device; durable when this returns.
    pub fn add_device(&self, data: &Path, (path, tier): (&Path, Tier), force: bool) -> Result<Answer> {
        let directory = Directory::open(data)?;
        let (groups, reactors) = (self.groups.clone(), self.reactors()?);
        let id = store::grow::device::next_device(groups.store());
        directory::link_device(&directory, id.0, Some(path))?;
        let foreign = if force { Foreign::Destroy } else { Foreign::Keep };
        let added = on_core(&reactors, move || async move {
            store::grow::device::add_device(groups.store(), id, tier, foreign).await
        });
        if added.is_err() && id == store::grow::device::next_device(self.groups.store()) {
            // A link that stays leads nowhere that counts: the device table does not list it.
            drop(directory::link_device(&directory, id.0, None));
        }
        added.map(|_| self.devices(data))
    }

    /// Starts, stops or describes the scrub.
    pub fn scrub(&self, request: &Request) -> Result<Answer> {
        let store = self.groups.store().clone();
        match request {
            Request::ScrubStart => {
                // It reads what checkpoints know. A brick that is read-only makes none, and can be read all the same.
                let (groups, reactors) = (self.groups.clone(), self.reactors()?);
                drop(on_core(&reactors, move || async move { groups.checkpoint().await }));
                store::scrub::start(&store)?;
            }
            Request::ScrubStop => {
                store::scrub::stop(&store);
            }
            _ => {}
        }
        scrub::full(&store).map(Answer::Scrub)
    }

    /// The space that a volume used at the last checkpoint; another one follows soon if there is anything new to count.
    pub fn used(&self, volume: VolumeId) -> store::usage::Usage {
        self.groups.used(volume)
    }

    /// The status of the brick.
    pub fn status(&self) -> Status {
        let store = self.groups.store();
        let StatFs { size_bytes, free_bytes, .. } = store.space.statfs();
        let log = store.log.figures();
        let cleaner = self.groups.cleaner();
        let read_cache = store.read_cache.figures();
        let space = space(store, self.groups.moved_blocks());
        let figure = |name: &str, value: u64| Figure { name: name.to_string(), value };
        Status {
            read_only: store.log.failed().map(|error| error.to_string()),
            size_bytes,
            free_bytes,
            segments: store.segments().segments,
            space,
            cleaner: cleaners(&self.groups),
            scrub: scrub::brief(store),
            agents: agents(store),
            warnings: warnings(store, size_bytes, free_bytes),
            buffer_bytes: self.runtime.slabs.bytes(),
            figures: vec![
                figure("log batches", log.batches),
                figure("log records", log.records),
                figure("log bytes", log.bytes),
                figure("log flushes", log.flushes),
                figure("durable writes without flush", log.fua_batches),
                figure("reads of bad data", store::scrub::failed_reads(store)),
                figure("replay bytes now", store.replay_bytes()),
                figure("replay estimate ms", self.groups.replay_ns() / 1_000_000),
                figure("checkpoints", self.groups.checkpoints()),
                figure("overlay bytes", self.groups.overlay_bytes()),
                figure("inodes known to the kernel", self.groups.known_inodes()),
                figure("segments emptied by the cleaner", cleaner.emptied_segments),
                figure("segments not cleaned as damaged", cleaner.damaged_segments),
                figure("blocks destaged", self.groups.destaged_blocks()),
                figure("pinned blocks destaged", self.groups.unpinned_blocks()),
                figure("blocks moved on disks", self.groups.cleaner_of(Tier::Disk).moved_blocks),
                figure("blocks defragmented after reads", self.groups.defragmented_blocks()),
                figure("write delay ns per block", cleaner.client_delay_ns),
                figure("bytes discarded", store.discarded_bytes()),
                figure("read cache bytes", read_cache.bytes),
                figure("blocks read from the read cache", read_cache.found),
                figure("blocks not in the read cache", read_cache.missed),
                figure("index bytes written", store.index.written_bytes()),
                figure("index memory bytes", store.index.memory_bytes()),
            ],
            ..self.shape.clone()
        }
    }

    /// Makes everything durable and checkpoints. From then on nothing can be done: mounts must refuse what they are asked.
    pub fn commit(&self) -> Result<()> {
        let (groups, reactors) = (self.groups.clone(), self.reactors()?);
        on_core(&reactors, move || async move { groups.close().await })
    }

    /// Stops the cores, after `commit`.
    pub fn stop(&self) {
        self.cores.stop();
    }

    /// Both: of a brick that is not mounted.
    pub fn close(&self) -> Result<()> {
        let committed = self.commit();
        self.stop();
        committed
    }
}

fn stack_in(stacks: &Stacks, groups: &Arc<Groups>, volume: &base::Volume) -> Arc<Stack> {
    let new = || Arc::new(Stack::new(groups.clone(), &volume.layers, &volume.limits));
    stacks.lock().expect("no panic while held").entry(volume.id).or_insert_with(new).clone()
}

/// Makes a mount, whose requests come as `transport` says.
pub fn mount(
    runtime: &Runtime,
    entries: &Arc<Entries>,
    options: &MountOptions,
    transport: Transport,
) -> Result<front::fuse::Mount> {
    let wanted = match transport {
        Transport::Uring => true,
        // Their memory is not taken in vain.
        Transport::Auto => front::fuse::rings_are_on(),
        Transport::Dev => false,
    };
    // What memory does not allow, reading the device does.
    let rings = wanted.then(|| Rings::new(runtime, entries));
    let rings = rings.and_then(|made| made.inspect_err(|error| say(&format!("FUSE over io_uring: {error}"))).ok());
    front::fuse::mount(options, rings)
}

/// The state of the cleaner; of a hybrid brick that of the flash, then that of the disks.
fn cleaners(groups: &Groups) -> String {
    let reason = |tier| groups.cleaner_of(tier).state.map_or("has not looked yet", State::reason);
    match groups.store().destage().is_empty() {
        true => reason(Tier::Flash).to_string(),
        false => format!("flash: {}; disks: {}", reason(Tier::Flash), reason(Tier::Disk)),
    }
}

fn agents(store: &store::Store) -> Vec<Agent> {
    let of = |Figures { agent, share, worked_ns }| {
        // Turns of rest are as long as those of work.
        Agent { name: agent.name().to_string(), share: share.map(|share| share / 2), worked_ns }
    };
    store.runtime.agents().into_iter().map(of).collect()
}

fn space(store: &store::Store, moved_blocks: u64) -> Space {
    let segments = store.segments();
    let segment_bytes = store.segment_bytes();
    let block = BLOCK_BYTES as u64;
    let physical_bytes = segments.segments * segment_bytes;
    let (logical_bytes, free_bytes) = (segments.live_blocks * block, segments.free_segments * segment_bytes);
    let destaged: u64 = store.destage().iter().map(|stream| stream.placed_blocks()).sum();
    let placed = store.bulk.placed_blocks() + store.cold.placed_blocks() + destaged;
    Space {
        physical_bytes,
        logical_bytes,
        free_bytes,
        reclaimable_bytes: physical_bytes.saturating_sub(free_bytes + logical_bytes),
        client_bytes: store.space.client_bytes(),
        device_bytes: store.log.figures().bytes + placed * block + store.index.written_bytes(),
        moved_bytes: moved_blocks * block,
    }
}

/// Warnings about a brick's space. It wants attention when less than a tenth is free: the fuller, the more the cleaner
/// has to move.
fn warnings(store: &store::Store, size_bytes: u64, free_bytes: u64) -> Vec<String> {
    let mut warnings = Vec::new();
    if free_bytes < size_bytes / 10 {
        warnings.push(format!("{}% is free: delete data, or add space", free_bytes * 100 / size_bytes.max(1)));
    }
    if store.host.is_short() {
        let what = "the file system that holds the brick's directory is nearly full: new data and names are refused";
        warnings.push(format!("{what}; free room on it"));
    }
    for stream in store.destage() {
        let failed = |error| format!("a disk failed and gets nothing more: `sinter brick devices` names it ({error})");
        warnings.extend(stream.failed().map(failed));
    }
    warnings.extend(affected::warnings(store));
    warnings.extend(crate::scrub::warning(store));
    let hidden_bytes = store.hidden_segments() as u64 * store.segment_bytes();
    if hidden_bytes > 0 {
        let what = "of the brick can't be used: its file system has no room for them; free some";
        warnings.push(format!("{hidden_bytes} bytes {what}"));
    }
    warnings
}

/// The extent of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// All that tells of data.
    Structures,
    /// The data too.
    Data,
}

/// Reads a brick that nobody serves, and changes nothing.
pub fn check(data: &Directory, reading: Reading, memory_max: u64, tell: Tell) -> Result<Report, Failure> {
    let failed = |error: Error| Failure::of(format!("can't check {}", data.path().display()), &error);
    let (runtime, reactors) = start(data, (None, Vec::new()), memory_max, true).map_err(failed)?;
    check_superblock(&runtime, &reactors).map_err(failed)?;
    let index = open_index(data, index_options(memory_max).read_only()).map_err(failed)?;
    let report = on_core(&reactors, move || async move {
        let mut opening = store::Opening::read_wholly(runtime, index, false).await?;
        opening.tell(tell.clone());
        let mut report = store::check::check(&opening, &mut |step| tell(step)).await?;
        if reading == Reading::Data {
            store::check::data::read(&opening, &mut report, &mut |step| tell(step)).await?;
        }
        Ok(report)
    });
    report.map_err(failed)
}

/// Repairs a brick that nobody serves, as far as that is safe with what the log still holds. Errors: the brick is in use,
/// or can't be read.
pub fn repair(data: &Directory, depth: Depth, memory_max: u64, tell: Tell) -> Result<Repaired, Failure> {
    let failed = |error: Error| Failure::of(format!("can't repair {}", data.path().display()), &error);
    let (runtime, reactors) = start(data, (None, Vec::new()), memory_max, false).map_err(failed)?;
    refuse_alone(data, Some(&check_superblock(&runtime, &reactors).map_err(failed)?))?;
    let index = open_index(data, index_options(memory_max)).map_err(failed)?;
    let repaired = on_core(&reactors, move || async move {
        let opening = store::Opening::read_wholly(runtime, index, true).await?;
        store::repair::repair(&opening, depth, &mut |step| tell(step)).await
    });
    repaired.map_err(failed)
}

/// Copies what can still be read of a damaged index into `to`; what that leaves out. Errors: the brick is in use; its index
/// can't even be opened.
pub fn salvage(data: &Directory, to: &str, memory_max: u64) -> Result<Salvaged, Failure> {
    let failed = |error: Error| Failure::of(format!("can't read what is left of {}", data.path().display()), &error);
    // Held meanwhile: nobody else has the brick open.
    let (runtime, reactors) = start(data, (None, Vec::new()), memory_max, false).map_err(failed)?;
    refuse_alone(data, Some(&check_superblock(&runtime, &reactors).map_err(failed)?))?;
    index_rocksdb::salvage(data, INDEX, to, &index_options(memory_max), merge).map_err(failed)
}

/// Has the log replayed, and what was left half-done completed: afterwards the index holds all.
pub fn settle(data: &Directory, memory_max: u64, tell: Tell) -> Result<(), Failure> {
    let brick = Brick::open(data, (IfNew::Refuse, None), None, memory_max, tell)?;
    brick.close().map_err(|error| Failure::of(format!("brick {}", data.path().display()), &error))
}

/// Answers one request on a brick that no daemon serves.
pub fn answer_offline(data: &Directory, request: Request, memory_max: u64) -> Result<Answer, Failure> {
    on_opened(data, memory_max, |brick| answer((brick, data.path()), request))
}

/// Opens a brick that no daemon serves, for the moment.
pub fn on_opened<T>(data: &Directory, memory_max: u64, with: impl FnOnce(&Brick) -> Result<T>) -> Result<T, Failure> {
    let progress = Progress::new("opening the brick", None);
    let brick = Brick::open(data, (IfNew::Refuse, None), None, memory_max, progress.tell())?;
    progress.clear();
    brick.warnings().iter().for_each(|warning| say(warning));
    let answer = with(&brick);
    let closed = brick.close();
    let failed = |error: Error| Failure::of(format!("brick {}", data.path().display()), &error);
    closed.map_err(failed)?;
    answer.map_err(failed)
}

fn answer((brick, data): (&Brick, &Path), request: Request) -> Result<Answer> {
    match request {
        Request::VolumeList => {
            Ok(Answer::Volumes(brick.volumes()?.iter().map(|volume| described(brick, volume)).collect()))
        }
        Request::VolumeInfo { name } => Ok(Answer::Volume(described(brick, &brick.volume(&name)?))),
        Request::VolumeCreate { name, size_bytes } => {
            Ok(Answer::Volume(described(brick, &brick.create_volume(&Name::new(name.as_bytes())?, size_bytes)?)))
        }
        Request::VolumeResize { name, size_bytes } => {
            Ok(Answer::Volume(described(brick, &brick.resize_volume(&name, size_bytes)?)))
        }
        Request::VolumePolicy { name, policy } => {
            Ok(Answer::Volume(described(brick, &brick.set_policy(&name, &policy)?)))
        }
        Request::VolumeLimits { name, tree, changed } => {
            Ok(Answer::Volume(described(brick, &brick.set_limits(&name, tree.as_deref(), &changed)?)))
        }
        Request::VolumeRename { name, new_name } => {
            Ok(Answer::Volume(described(brick, &brick.rename_volume(&name, &new_name)?)))
        }
        Request::Grow { size_bytes } => brick.grow(size_bytes),
        Request::Devices => Ok(brick.devices(data)),
        Request::AddDevice { path, tier, force } => {
            brick.add_device(data, (Path::new(&path), Tier::named(&tier)?), force)
        }
        Request::VolumeDelete { name, force } => {
            brick.delete_volume(&brick.volume(&name)?, force).map(|()| Answer::Done)
        }
        _ => Err(Error::new(Kind::Unsupported, "this needs a running daemon")),
    }
}
