//! A thousand idle groups (rule Q1): what each takes of memory, and that none of them ever wakes anybody.

#[path = "../../store/tests/memory/counting.rs"]
mod counting;

use base::{Ino, Name, Op, Reply, RequestId, SessionId, VolumeId};
use runtime::random::SplitMix;
use sim::small::OPTIONS;
use sim::workload::{Focus, Profile};
use sim::world::{Machine, Served, context, format, serve, slabs, volume_name};
use std::time::Instant;

/// Groups of the brick that others are compared with.
const FEW: u32 = 24;
/// The larger number of groups: a thousand more.
const MANY: u32 = FEW + 1000;
/// Most bytes that a group may take (rule Q1).
const GROUP_BYTES_MAX: i64 = 16 << 10;
/// Directories that are made, four in each of the many groups, and a file in each.
const DIRECTORIES: u64 = 4 * MANY as u64;
/// Time for which the brick is watched.
const WATCHED_NS: u64 = 60_000_000_000;

/// The costs of a brick while nobody asks for anything.
struct Idle {
    bytes: i64,
    /// Number of events in a minute.
    events: u64,
    /// Seconds that this machine took for that.
    took: f64,
}

/// Makes something in a volume; its inode, and for a volume its number.
async fn make(served: &Served, volume: VolumeId, request: u64, op: Op) -> (VolumeId, Ino) {
    let context = context(volume, (SessionId(1), RequestId(request)));
    match served.call(&context, op, None).await.map(|answer| answer.reply) {
        Ok(Reply::Attr(attr)) => (volume, attr.ino),
        Ok(Reply::Volume(volume)) => (volume.id, volume.root),
        other => panic!("a healthy brick makes files: {other:?}"),
    }
}

/// Directories and files in all groups, in the index.
async fn fill(served: &Served) {
    let create = Op::VolumeCreate { name: volume_name(), size_bytes: None };
    let (volume, root) = make(served, VolumeId(0), 1, create).await;
    let name = |number: u64| Name::new(format!("{number}").as_bytes()).expect("a good name");
    for number in 0..DIRECTORIES {
        let directory = Op::MakeDir { parent: root, name: name(number), mode: 0o755 };
        let (_, parent) = make(served, volume, 2 + 2 * number, directory).await;
        make(served, volume, 3 + 2 * number, Op::Create { parent, name: name(0), mode: 0o644, exclusive: true }).await;
    }
    served.checkpoint().await.expect("a healthy brick checkpoints");
}

/// A brick with so many groups; `used`: all of them have been used since the start.
fn idle(groups: u32, used: bool) -> Idle {
    let slabs = slabs();
    let mut machine = Machine::boot(1, 2, None, &slabs);
    let (runtime, index) = (machine.runtime(), machine.index.clone());
    let profile = Profile::draw(&mut SplitMix(1)).focused(Focus::Any).of_groups(groups);
    machine.world.block_on(async {
        format(&runtime, &profile).await.expect("an empty disk can be formatted");
    });
    let before = counting::taken().0;
    let served = machine.world.block_on(async {
        let served = serve(runtime.clone(), index, OPTIONS).await.expect("just formatted");
        if used {
            fill(&served).await;
        }
        // What was begun ends, and the log rests.
        runtime.clock.sleep(5_000_000_000).await;
        served
    });
    let bytes = counting::taken().0 - before;
    let (events, began) = (machine.world.events(), Instant::now());
    machine.world.run_for(WATCHED_NS);
    let (events, took) = (machine.world.events() - events, began.elapsed().as_secs_f64());
    drop(served);
    Idle { bytes, events, took }
}

#[test]
fn a_thousand_idle_groups_take_little_memory_and_no_time() {
    for used in [false, true] {
        let (few, many) = (idle(FEW, used), idle(MANY, used));
        let each = (many.bytes - few.bytes) / i64::from(MANY - FEW);
        println!("used {used}: {each} bytes per group; {} events in a minute, {} s", many.events, many.took);
        assert!((1..=GROUP_BYTES_MAX).contains(&each), "{each} bytes per group, used: {used}");
        assert!(many.events < few.events + few.events / 20, "{} events, {} without them", many.events, few.events);
        assert!(many.took < WATCHED_NS as f64 / 1e9 / 100.0, "{} s of a minute", many.took);
    }
}
