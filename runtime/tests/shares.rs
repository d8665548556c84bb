//! Flows on a real core: what each gets of its time, and that tasks of none keep their places. Bounds are wide: whatever else runs on
//! the core's CPU is charged to the flow that it interrupts.

use runtime::real::{self, Directory, Options};
use runtime::tasks::{Claim, Flow, Local, enter, yield_now};
use runtime::{Runtime, real::Reactors};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time that a task computes before it lets others run.
const WORK: Duration = Duration::from_micros(100);
/// Time over which is counted.
const COUNTED: Duration = Duration::from_millis(400);

struct World {
    runtime: Runtime,
    reactors: Reactors,
    directory: PathBuf,
}

impl World {
    fn new(name: &str, cores: usize) -> World {
        let directory = std::env::temp_dir().join(format!("sinter-{name}-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("the temporary directory can be written");
        let there = Directory::open(&directory).expect("ours");
        let options = Options { cores: Some(cores), ..Options::new(there, 64 << 20, &[]) };
        let (runtime, reactors) = real::start(options).expect("io_uring works here");
        World { runtime, reactors, directory }
    }
    /// Starts so many tasks of a flow, or of none, that always have something to do, in pieces of this length; the number of their
    /// pieces.
    fn busy(&self, flow: Option<&Arc<Flow>>, tasks: usize, work: Duration) -> Arc<AtomicU64> {
        self.busy_on(0, (flow, None), tasks, work)
    }
    /// The same for tasks that were started in the first flow and have changed to the second.
    fn busy_on(
        &self,
        core: usize,
        (flow, then): (Option<&Arc<Flow>>, Option<&Arc<Flow>>),
        tasks: usize,
        work: Duration,
    ) -> Arc<AtomicU64> {
        let pieces = Arc::new(AtomicU64::new(0));
        for _ in 0..tasks {
            let (pieces, then, all) = (pieces.clone(), then.cloned(), self.runtime.tasks.clone());
            let make = Box::new(move || -> Local {
                Box::pin(async move {
                    if let Some(then) = then {
                        enter(&*all, &then).await;
                    }
                    loop {
                        let began = Instant::now();
                        while began.elapsed() < work {
                            std::hint::spin_loop();
                        }
                        pieces.fetch_add(1, Ordering::Relaxed);
                        yield_now().await;
                    }
                })
            });
            match flow {
                Some(flow) => self.runtime.tasks.spawn_in(core, flow, make),
                None => self.runtime.tasks.spawn(core, make),
            }
        }
        pieces
    }
    fn end(self) {
        self.reactors.stop();
        std::fs::remove_dir_all(self.directory).expect("the test made it");
    }
}

/// The pieces of each in some time.
fn counted<const N: usize>(pieces: [&Arc<AtomicU64>; N]) -> [f64; N] {
    let before = pieces.map(|pieces| pieces.load(Ordering::Relaxed));
    std::thread::sleep(COUNTED);
    let after = pieces.map(|pieces| pieces.load(Ordering::Relaxed));
    std::array::from_fn(|at| (after[at] - before[at]) as f64)
}

/// Counts until the counts are as wanted, at most five times: something else that runs on the core's CPU spoils a count, and a
/// wrong share spoils all.
fn comes_true<const N: usize>(pieces: [&Arc<AtomicU64>; N], wanted: impl Fn([f64; N]) -> bool) {
    let mut seen = Vec::new();
    while seen.len() < 5 {
        seen.push(counted(pieces));
        if wanted(seen[seen.len() - 1]) {
            return;
        }
    }
    panic!("{seen:?}");
}

/// The tests' cores are pinned to the same CPU.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn flows_share_a_core_by_weight_and_not_by_their_tasks() {
    let _alone = ONE_AT_A_TIME.lock();
    let world = World::new("shares", 1);
    let (many, one) = (Arc::new(Flow::new(100)), Arc::new(Flow::new(100)));
    let (of_many, of_one) = (world.busy(Some(&many), 16, WORK), world.busy(Some(&one), 1, WORK));
    std::thread::sleep(Duration::from_millis(50));
    comes_true([&of_many, &of_one], |[many, one]| (0.6..1.7).contains(&(many / one)));
    one.set_claim(Claim { weight: 300, reserve: 0 });
    comes_true([&of_many, &of_one], |[many, one]| (2.0..4.5).contains(&(one / many)));
    // Large pieces: the time is shared, not the number.
    let large = Arc::new(Flow::new(300));
    let of_large = world.busy(Some(&large), 4, 4 * WORK);
    std::thread::sleep(Duration::from_millis(50));
    comes_true([&of_large, &of_one], |[large, small]| (0.6..1.7).contains(&(4.0 * large / small)));
    world.end();
}

/// A flow for which half of the time is reserved has that within 5% beside four that want all, and they share the rest.
#[test]
fn a_reservation_holds_beside_four_that_want_all() {
    let _alone = ONE_AT_A_TIME.lock();
    let world = World::new("shares-reserve", 1);
    let flows: [Arc<Flow>; 5] = std::array::from_fn(|_| Arc::new(Flow::new(100)));
    let pieces = flows.each_ref().map(|flow| world.busy(Some(flow), 2, WORK));
    let is_share = |share: std::ops::Range<f64>| {
        std::thread::sleep(Duration::from_millis(50));
        comes_true(pieces.each_ref(), |counts| share.contains(&(counts[0] / counts.iter().sum::<f64>())));
    };
    is_share(0.17..0.23);
    flows[0].set_claim(Claim { weight: 100, reserve: 50 });
    is_share(0.475..0.525);
    world.end();
}

/// Tasks that change to another user of their volume, as a mount's do with each request of another one: each user has half of the volume's
/// time, whatever it has under way, and another volume as much as both.
#[test]
fn users_divide_the_time_of_their_volume() {
    let _alone = ONE_AT_A_TIME.lock();
    let world = World::new("shares-users", 1);
    let volume = Arc::new(Flow::new(100));
    let user = Arc::new(volume.sibling());
    let (many, one) = (world.busy(Some(&volume), 8, WORK), world.busy_on(0, (Some(&volume), Some(&user)), 1, WORK));
    std::thread::sleep(Duration::from_millis(50));
    comes_true([&many, &one], |[many, one]| (0.8..1.25).contains(&(one / many)));
    let other = world.busy(Some(&Arc::new(Flow::new(100))), 1, WORK);
    std::thread::sleep(Duration::from_millis(50));
    comes_true([&many, &one, &other], |[many, one, other]| (0.8..1.25).contains(&(other / (many + one))));
    world.end();
}

/// One flow and the program's own tasks: as many as there are, in the order in which they get ready.
#[test]
fn tasks_of_no_flow_keep_their_places() {
    let _alone = ONE_AT_A_TIME.lock();
    let world = World::new("shares-own", 1);
    let flow = Arc::new(Flow::new(1));
    let (own, of_flow) = (world.busy(None, 3, WORK), world.busy(Some(&flow), 1, WORK));
    std::thread::sleep(Duration::from_millis(50));
    comes_true([&own, &of_flow], |[own, of_flow]| (2.0..4.5).contains(&(own / of_flow)));
    // Beside another flow they keep them among the tasks of the flow that runs, so nothing of the program's starves.
    let other = Arc::new(Flow::new(1000));
    let of_other = world.busy(Some(&other), 1, WORK);
    std::thread::sleep(Duration::from_millis(50));
    comes_true([&own, &of_other], |[own, of_other]| own > of_other);
    world.end();
}

/// A flow with work on one core, beside one that has work on both: it goes first where it is, since the other one has the second core.
#[test]
fn what_a_flow_has_on_other_cores_counts() {
    let _alone = ONE_AT_A_TIME.lock();
    let world = World::new("shares-cores", 2);
    let (narrow, wide) = (Arc::new(Flow::new(100)), Arc::new(Flow::new(100)));
    let of_narrow = world.busy(Some(&narrow), 1, WORK);
    // As a mount has, which serves the clients of every CPU.
    world.runtime.tasks.spawn_in(1, &narrow, Box::new(|| Box::pin(std::future::pending())));
    let of_wide = [0, 1].map(|core| world.busy_on(core, (Some(&wide), None), 1, WORK));
    std::thread::sleep(Duration::from_millis(50));
    comes_true([&of_narrow, &of_wide[0], &of_wide[1]], |[narrow, here, _]| narrow > 3.0 * here);
    world.end();
}
