//! A brick on a simulated machine: boot, serve, crash to an image, boot again.

use crate::index::CrashIndex;
use crate::workload::Profile;
use base::limits::SEGMENT_BYTES_MIN;
use base::{Name, Op, Result, VolumeId};
use group::{Answer, Context, Groups, Options};
use layer::{Call, Stack};
use runtime::random::SplitMix;
use runtime::sim::{DiskImage, Setup, Survival, World};
use runtime::{Buf, Runtime, Slabs, Span, Stamp};
use std::pin::Pin;
use std::sync::Arc;
use store::device::Foreign;
use store::format::label::SEGMENTS_AT;
use store::index::model::ModelIndex;
use store::{FormatOptions, Opening, Replay};

/// The disk and the index after a crash.
#[derive(Clone)]
pub struct Image {
    /// The brick's files.
    pub disk: DiskImage,
    /// The index engine's files.
    pub index: ModelIndex,
}

/// A machine with one brick.
pub struct Machine {
    /// The simulated world; the brick's daemon is its only process.
    pub world: World,
    /// The brick's index.
    pub index: Arc<CrashIndex>,
}

/// A daemon that serves.
#[derive(Clone)]
pub struct Served {
    /// The groups.
    pub groups: Arc<Groups>,
    /// The stack above them.
    pub stack: Arc<Stack>,
    /// The figures of the start's replay.
    pub replay: Replay,
    /// Its bounds.
    pub options: Options,
}

impl Machine {
    /// Boots a machine, from an image or with an empty disk.
    pub fn boot(seed: u64, cores: usize, image: Option<Image>, slabs: &Arc<Slabs>) -> Machine {
        Machine::boot_with(seed, cores, image, (None, &[]), slabs)
    }
    /// Boots a machine with a block device for so many segments, and with further devices for so many.
    pub fn boot_with(
        seed: u64,
        cores: usize,
        image: Option<Image>,
        (device, further): (Option<u64>, &[u64]),
        slabs: &Arc<Slabs>,
    ) -> Machine {
        let (disk, index) = image.map(|image| (image.disk, image.index)).unzip();
        // A minute is far more than any operation may take; a simulated hour of an idle daemon's timers takes real
        // seconds.
        let patience_ns = 120_000_000_000;
        let slabs = Some(slabs.clone());
        let bytes_of = |segments: u64| SEGMENTS_AT + segments * SEGMENT_BYTES_MIN;
        let (device_bytes, further_bytes) = (device.map(bytes_of), further.iter().copied().map(bytes_of).collect());
        let setup = Setup { image: disk, slabs, cores, patience_ns, device_bytes, further_bytes, ..Setup::new(seed) };
        let world = World::with(setup);
        let index = Arc::new(CrashIndex::new(seed, index, world.disk().clone()));
        Machine { world, index }
    }
    /// The machine's runtime.
    pub fn runtime(&self) -> Runtime {
        self.world.runtime()
    }
    /// Segments that were discarded.
    pub fn discarded(&self) -> u64 {
        self.world.disk().figures().values().map(|figures| figures.discarded_bytes / SEGMENT_BYTES_MIN).sum()
    }
    /// Calls of the disk and of the index that failed by plan.
    pub fn faults_met(&self) -> u64 {
        self.world.disk().faults_met() + self.index.faults_met()
    }
    /// The disk and the index after a crash now.
    pub fn crash(&self, survival: Survival, rng: &mut SplitMix) -> Image {
        let index = self.index.crashed(rng);
        Image { disk: self.world.crash_as(survival, rng), index }
    }
}

/// Slabs for machines of one thread.
pub fn slabs() -> Arc<Slabs> {
    World::with(Setup { cores: CORES_MAX, ..Setup::new(0) }).runtime().slabs
}

/// Cores of a simulated machine at most.
pub const CORES_MAX: usize = 3;
/// Segments of a brick that is never full: enough for all lives of a seed without a cleaner.
pub const SEGMENTS_AMPLE: u64 = 512;

/// A future of known type: the compiler makes an unknown one's code anew in each program that awaits it, and the whole brick's takes it a
/// minute.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

impl Served {
    /// Performs an operation.
    pub fn call<'a>(&'a self, context: &'a Context, op: Op, data: Option<Buf>) -> Boxed<'a, Result<Answer>> {
        Box::pin(self.stack.call(context, Call { op, data }))
    }
    /// Makes a checkpoint.
    pub fn checkpoint(&self) -> Boxed<'_, Result<()>> {
        Box::pin(self.groups.checkpoint())
    }
    /// Closes the groups.
    pub fn close(&self) -> Boxed<'_, Result<()>> {
        Box::pin(self.groups.close())
    }
}

/// Formats the empty disk or device: segments as small as they may be.
pub fn format<'a>(runtime: &'a Runtime, profile: &'a Profile) -> Boxed<'a, Result<()>> {
    let options = FormatOptions {
        size_bytes: Some(profile.segments * SEGMENT_BYTES_MIN),
        segment_bytes: SEGMENT_BYTES_MIN,
        groups: profile.groups,
        size_bytes_min: 0,
        device: profile.device.then_some(Foreign::Keep),
        further: profile.further().map(|(tier, _)| (tier, Foreign::Keep)).collect(),
    };
    Box::pin(async { store::format_brick(runtime, options, async || Ok(())).await.map(drop) })
}

/// Starts the brick's daemon.
pub fn serve(runtime: Runtime, index: Arc<CrashIndex>, options: Options) -> Boxed<'static, Result<Served>> {
    Box::pin(async move {
        let opening = Opening::read(runtime, index, true).await?;
        let (groups, replay) = Groups::open(opening, options).await?;
        let stack = Arc::new(Stack::new(groups.clone(), &[], &base::Limits::NONE));
        Ok(Served { groups, stack, replay, options })
    })
}

/// The context of a request.
pub fn context(volume: VolumeId, key: crate::history::Key) -> Context {
    let (session, request) = key;
    let own = Context::own(volume, Span::start(Stamp(0)));
    Context { session, request, unkept: request.0.is_multiple_of(2), ..own }
}

/// The one volume's name.
pub fn volume_name() -> Name {
    Name::new(b"main").expect("a good name")
}
