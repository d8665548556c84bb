//! Memory is bounded by what clients are let in with, however seldom a checkpoint comes.

use base::{At, Name, Op, Reply, RequestId, SessionId, Sync, VolumeId};
use group::Options;
use runtime::random::SplitMix;
use runtime::tasks::Local;
use runtime::{Event, Runtime};
use sim::check::memory;
use sim::small::OPTIONS;
use sim::workload::{Focus, Profile};
use sim::world::{Machine, Served, context, format, serve, slabs, volume_name};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Clients at the same time.
const CLIENTS: u64 = 8;

/// State that the clients share: the largest overlay that any of them has seen, and how many are left.
#[derive(Default)]
struct Seen {
    overlay: AtomicU64,
    broken: Mutex<Option<String>>,
    left: AtomicU64,
    ended: Event,
}

/// Asks, and looks at the bounds after it.
async fn ask(served: &Served, seen: &Seen, key: (u64, u64), op: Op, length: usize) -> Reply {
    let volume = match op {
        Op::VolumeCreate { .. } => VolumeId(0),
        _ => VolumeId(1),
    };
    let data = (length > 0).then(|| served.groups.store().runtime.buffer(length).expect("slabs are not bounded here"));
    let cost = memory::cost(&op, length as u32);
    let context = context(volume, (SessionId(key.0), RequestId(key.1)));
    let answer = served.call(&context, op, data).await.expect("a healthy brick");
    seen.overlay.fetch_max(served.groups.overlay_bytes(), Ordering::Relaxed);
    if let Err(what) = memory::check(served, CLIENTS, cost) {
        seen.broken.lock().expect("no panic while held").get_or_insert(what);
    }
    answer.reply
}

/// One client: many files, each with one write.
async fn client(served: Served, seen: Arc<Seen>, session: u64, (files, length): (u64, usize)) {
    let root = served.groups.volume(&volume_name()).await.expect("it was made").root;
    for number in 0..files {
        let name = Name::new(format!("{session}-{number}").as_bytes()).expect("a good name");
        let create = Op::Create { parent: root, name, mode: 0o644, exclusive: true };
        let Reply::Attr(attr) = ask(&served, &seen, (session, 2 * number + 1), create, 0).await else {
            panic!("a file was made")
        };
        let write = Op::Write { ino: attr.ino, at: At::Offset(0), sync: Sync::Ordered, kill_privileges: false };
        ask(&served, &seen, (session, 2 * number + 2), write, length).await;
    }
    seen.left.fetch_sub(1, Ordering::Relaxed);
    seen.ended.notify();
}

/// Runs the clients; returns the largest overlay that any of them saw.
fn run(options: Options, work: (u64, usize)) -> u64 {
    let mut machine = Machine::boot(1, 2, None, &slabs());
    let (runtime, index) = (machine.runtime(), machine.index.clone());
    let profile = Profile::draw(&mut SplitMix(1)).focused(Focus::Any).ample();
    machine.world.block_on(async {
        format(&runtime, &profile).await.expect("an empty disk can be formatted");
        let served = serve(runtime.clone(), index, options).await.expect("just formatted");
        let seen = Arc::new(Seen { left: CLIENTS.into(), ..Seen::default() });
        ask(&served, &seen, (99, 1), Op::VolumeCreate { name: volume_name(), size_bytes: None }, 0).await;
        start(&runtime, &served, &seen, work);
        loop {
            let ticket = seen.ended.ticket();
            if seen.left.load(Ordering::Relaxed) == 0 {
                break;
            }
            seen.ended.after(ticket).await;
        }
        assert_eq!(*seen.broken.lock().expect("no panic while held"), None);
        served.close().await.expect("a healthy brick closes");
        seen.overlay.load(Ordering::Relaxed)
    })
}

fn start(runtime: &Runtime, served: &Served, seen: &Arc<Seen>, work: (u64, usize)) {
    for session in 1..=CLIENTS {
        let (served, seen) = (served.clone(), seen.clone());
        let make = move || -> Local { Box::pin(client(served, seen, session, work)) };
        runtime.tasks.spawn(session as usize % runtime.tasks.cores(), Box::new(make));
    }
}

#[test]
fn clients_wait_for_a_checkpoint_that_is_due() {
    // All of it would take 10 MB; a look for a checkpoint comes ten times a second, clients take milliseconds.
    let options = Options { overlay_bytes: 256 << 10, ..OPTIONS };
    let overlay = run(options, (1000, 100));
    assert!(overlay > 512 << 10, "the bound is met: {overlay}");
}
