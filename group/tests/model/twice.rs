//! A request delivered twice has one effect and one reply, at once, later, and after a restart (rule R1).

use crate::rig::{Rig, Shape, name, seeds, together};
use base::limits::SESSION_OPEN_MAX;
use base::{At, FileKind, Ino, Kind, Name, Op, Reply, Room, SetAttr, SetHow, Sync};
use group::Answer;
use runtime::sim::World;
use runtime::tasks::Local;
use std::sync::{Arc, Mutex};

/// The kinds of operations that change something, in memory or for good, by number; None for those that only look. A new
/// kind does not compile here until somebody has said which it is.
fn change(op: &Op) -> Option<usize> {
    match op {
        Op::SetAttr { .. } => Some(0),
        Op::Create { .. } => Some(1),
        Op::MakeDir { .. } => Some(2),
        Op::SymLink { .. } => Some(3),
        Op::MakeNode { .. } => Some(4),
        Op::Link { .. } => Some(5),
        Op::Unlink { .. } => Some(6),
        Op::RemoveDir { .. } => Some(7),
        Op::Rename { .. } => Some(8),
        Op::Exchange { .. } => Some(9),
        // Counts, if it cuts nothing.
        Op::Open { .. } => Some(10),
        Op::Release { .. } => Some(11),
        Op::Write { .. } => Some(12),
        Op::Allocate { .. } => Some(13),
        Op::SetXattr { .. } => Some(14),
        Op::RemoveXattr { .. } => Some(15),
        Op::VolumeCreate { .. } => Some(16),
        Op::VolumeDelete { .. } => Some(17),
        Op::TempFile { .. } => Some(18),
        Op::VolumeRename { .. } => Some(19),
        Op::VolumeResize { .. } => Some(20),
        Op::VolumeLayers { .. } => Some(21),
        Op::VolumePolicy { .. } => Some(22),
        Op::VolumeLimits { .. } => Some(23),
        // What was not taken is decided anew, what was taken is its owner's: `wire/src/locks_tests.rs`, `layer/tests/sharing.rs`.
        Op::Lock { .. } => None,
        Op::Lookup { .. }
        | Op::GetAttr { .. }
        | Op::Recall { .. }
        | Op::ReadLink { .. }
        | Op::Read { .. }
        | Op::Seek { .. } => None,
        Op::GetXattr { .. } | Op::ListXattr { .. } | Op::ReadDir { .. } => None,
        Op::Forget { .. } | Op::Fsync { .. } | Op::StatFs | Op::SyncAll | Op::VolumeList => None,
    }
}

/// Number of operations that `changes` gives.
const CHANGES: usize = 24;

type Asked = (Op, Option<Vec<u8>>);

/// Operations, once each, in this order: every kind of change.
async fn changes(rig: &Rig) -> Vec<Asked> {
    let root = rig.volume.root;
    let file = rig.create(root, "file").await.expect("a new file");
    rig.write(file, At::End, &[9; 30_000], Sync::Ordered).await.expect("a write");
    rig.create(root, "doomed").await.expect("a new file");
    let cut = rig.create(root, "cut").await.expect("a new file");
    rig.write(cut, At::End, &[8; 30_000], Sync::Ordered).await.expect("a write");
    rig.mkdir(root, "old").await.expect("a new directory");
    for text in ["doomed", "named", "sized", "layered", "pinned", "limited"] {
        rig.new_volume(text).await;
    }
    let mut all = of_names(root, file);
    all.extend(of_files(file, cut));
    all.push((Op::VolumeCreate { name: name("another"), size_bytes: None }, None));
    all.push((Op::VolumeDelete { name: name("doomed") }, None));
    all.push((Op::VolumeRename { name: name("named"), new_name: name("renamed") }, None));
    all.push((Op::VolumeResize { name: name("sized"), size_bytes: Some(1 << 20) }, None));
    all.push((Op::VolumeLayers { name: name("layered"), layers: [base::Layer::ReadOnly].into() }, None));
    all.push((Op::VolumePolicy { name: name("pinned"), policy: base::TierPolicy::FlashOnly }, None));
    all.push((
        Op::VolumeLimits { name: name("limited"), tree: None, changed: [(base::Limit::Iops, 100)].into() },
        None,
    ));
    for number in 0..CHANGES {
        let count = all.iter().filter(|(op, _)| change(op) == Some(number)).count();
        assert!(count > 0, "no change of kind {number} is asked for");
    }
    assert!(all.iter().all(|(op, _)| change(op).is_some() && (op.mutates() || matches!(op, Op::Open { .. }))));
    all
}

fn of_names(root: Ino, file: Ino) -> Vec<Asked> {
    let pair = |from, to| (root, name(from), root, name(to));
    let rename = |(parent, name, new_parent, new_name)| Op::Rename {
        parent,
        name,
        new_parent,
        new_name,
        no_replace: true,
        whiteout: true,
    };
    let exchange = |(parent, name, new_parent, new_name)| Op::Exchange { parent, name, new_parent, new_name };
    let all = [
        Op::Create { parent: root, name: name("new"), mode: 0o644, exclusive: true },
        // It is there: opened, not made.
        Op::Create { parent: root, name: name("new"), mode: 0o644, exclusive: false },
        Op::MakeDir { parent: root, name: name("dir"), mode: 0o755 },
        Op::SymLink { parent: root, name: name("link"), target: (*b"somewhere").into() },
        Op::MakeNode { parent: root, name: name("pipe"), kind: FileKind::Fifo, mode: 0o600, rdev: 0 },
        Op::Link { ino: file, new_parent: root, new_name: name("hard") },
        Op::Unlink { parent: root, name: name("doomed") },
        Op::RemoveDir { parent: root, name: name("old") },
        rename(pair("link", "moved")),
        exchange(pair("dir", "pipe")),
        Op::TempFile { parent: root, mode: 0o600 },
    ];
    all.into_iter().map(|op| (op, None)).collect()
}

fn of_files(file: Ino, cut: Ino) -> Vec<Asked> {
    let set = SetAttr { size: Some(40_000), mode: Some(0o600), ..SetAttr::default() };
    let write = |at, sync| Op::Write { ino: file, at, sync, kill_privileges: false };
    let clear = |offset, room| Op::Allocate { ino: file, offset, length: 9_000, keep_size: room == Room::Hole, room };
    let attribute = Name::of_attribute(b"user.a").expect("a good name");
    let (other, value) = (Name::of_attribute(b"user.b").expect("a good name"), [1, 2, 3].as_slice());
    let xattr = |name| Op::SetXattr { ino: file, name, value: value.into(), how: SetHow::Create, kill_setgid: false };
    vec![
        (write(At::End, Sync::Ordered), Some(vec![1; 5000])),
        (write(At::End, Sync::Data), Some(vec![2; 4096])),
        (write(At::End, Sync::Ordered), Some(vec![3; 200_000])),
        (write(At::Offset(0), Sync::Written), Some(vec![4; 4096])),
        (write(At::Offset(5), Sync::All), Some(vec![5; 9])),
        (Op::SetAttr { ino: file, set: set.into() }, None),
        (clear(10_000, Room::Hole), None),
        (clear(200_000, Room::Zeroed), None),
        (clear(400_000, Room::Promised), None),
        (xattr(attribute.clone()), None),
        (xattr(other), None),
        (Op::RemoveXattr { ino: file, name: attribute }, None),
        (Op::Open { ino: cut, truncate: true }, None),
        (Op::Open { ino: cut, truncate: false }, None),
        (Op::Release { ino: cut }, None),
    ]
}

/// Replies without times: those of attributes are the inode's present ones.
fn essence(answer: &base::Result<Answer>) -> String {
    match answer {
        Ok(Answer { reply: Reply::Attr(attr), .. }) => format!("{:?} {:?}", attr.ino, attr.inode.kind),
        Ok(Answer { reply, .. }) => format!("{reply:?}"),
        Err(error) => format!("{:?}", error.kind),
    }
}

async fn state(rig: &Rig) -> String {
    let listed = rig.list(rig.volume.root, 100).await.expect("a directory");
    let file = rig.lookup(rig.volume.root, "file").await.expect("it is there");
    let quiet = group::Context { noatime: true, ..rig.context() };
    let read = rig.call_as(&quiet, Op::Read { ino: file, offset: 0, length: 1 << 20 }, None).await.expect("a file");
    let bytes = read.data.as_deref().unwrap_or_default();
    let Ok(Reply::Names(names)) = rig.call(Op::ListXattr { ino: file }, None).await.map(|answer| answer.reply) else {
        panic!("a list of attributes has names");
    };
    format!("{listed:?} {names:?} {:?} {:x}", rig.groups.volumes().await, base::checksum::crc32c(bytes))
}

#[test]
pub fn a_second_delivery_repeats_the_answer_and_nothing_else() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let mut rig = Rig::new(runtime, Shape::SMALL).await;
        let mut asked = Vec::new();
        for (number, (op, data)) in (1000..).zip(changes(&rig).await) {
            let told = rig.call_as(&rig.context_of(number), op.clone(), data.as_deref()).await;
            assert!(told.is_ok(), "{op:?}: {:?}", told.err());
            let after = state(&rig).await;
            let again = rig.call_as(&rig.context_of(number), op.clone(), data.as_deref()).await;
            assert_eq!(essence(&again), essence(&told), "{op:?}");
            assert_eq!(state(&rig).await, after, "{op:?} had a second effect");
            asked.push((number, op, data, essence(&told)));
        }
        for restart in [false, true] {
            rig.checkpoint().await;
            if restart {
                rig = rig.reopen().await;
            }
            let before = state(&rig).await;
            for (number, op, data, told) in &asked {
                let again = rig.call_as(&rig.context_of(*number), op.clone(), data.as_deref()).await;
                // A file without a name has ended with the process that had it open.
                let gone = restart && matches!(op, Op::TempFile { .. });
                let told = if gone { "Stale" } else { told };
                assert_eq!(essence(&again), told, "{op:?}, restart {restart}");
            }
            assert_eq!(state(&rig).await, before);
        }
        // The same numbers of another client are other requests.
        let other = rig.client(77, rig.volume.clone());
        let op = Op::Create { parent: rig.volume.root, name: name("new"), mode: 0o644, exclusive: true };
        let told = other.call_as(&other.context_of(1000), op, None).await;
        assert_eq!(told.err().map(|error| error.kind), Some(Kind::Exists));
    });
}

/// Answers of requests that took effect while there was room are told again when there is none: on the host, then on the brick.
#[test]
fn a_second_delivery_that_finds_no_room_repeats_the_answer() {
    let mut world = World::new(6);
    let (runtime, disk) = (world.runtime(), world.disk().clone());
    world.block_on(async {
        let rig = Rig::new(runtime.clone(), Shape::SMALL).await;
        let mut asked = Vec::new();
        for (number, (op, data)) in (1000..).zip(changes(&rig).await) {
            let told = rig.call_as(&rig.context_of(number), op.clone(), data.as_deref()).await;
            asked.push((number, op, data, essence(&told)));
        }
        rig.settle().await;
        let again = async |why: &str| {
            let before = state(&rig).await;
            for (number, op, data, told) in &asked {
                let again = rig.call_as(&rig.context_of(*number), op.clone(), data.as_deref()).await;
                assert_eq!(essence(&again), *told, "{op:?}, {why}");
            }
            assert_eq!(state(&rig).await, before);
        };
        // Another client: of each, a bounded number of results is kept.
        let other = rig.client(77, rig.volume.clone());
        let filler = other.create(rig.volume.root, "filler").await.expect("a new file");
        disk.set_others(runtime.disk.free_bytes().expect("no fault") - (1 << 20));
        runtime.clock.sleep(2_000_000_000).await;
        assert_eq!(other.write(filler, At::End, &[7; 4096], Sync::Data).await, Err(Kind::NoSpace));
        again("the host has no room").await;
        disk.set_others(0);
        runtime.clock.sleep(2_000_000_000).await;
        let mut written = 0_u64;
        while other.write(filler, At::End, &vec![7; 1 << 20], Sync::Ordered).await.is_ok() {
            written += 1;
        }
        assert!(written > 16, "the brick has room until it is full");
        again("the brick is full").await;
    });
}

/// Operations that only look may come under any number, also that of a change: their errors are told.
#[test]
fn an_operation_that_only_looks_has_no_kept_result() {
    let mut world = World::new(7);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let root = rig.volume.root;
        let make = Op::MakeDir { parent: root, name: name("dir"), mode: 0o755 };
        rig.call_as(&rig.context_of(1000), make, None).await.expect("a new directory");
        let look = Op::GetAttr { ino: Ino::new(1 << 30, root.group()) };
        let told = rig.call_as(&rig.context_of(1000), look, None).await;
        assert_eq!(told.map(|answer| answer.reply).map_err(|error| error.kind), Err(Kind::Stale));
    });
}

/// Opens and releases leave no record; a file without a name lives by their count alone.
#[test]
fn an_open_or_a_release_that_is_delivered_twice_counts_once() {
    let mut world = World::new(2);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let root = rig.volume.root;
        let twice = async |number, op: Op| {
            for _ in 0..2 {
                rig.call_as(&rig.context_of(number), op.clone(), None).await.expect("it is there");
            }
        };
        // Open twice, then released, each told twice.
        let file = rig.create(root, "file").await.expect("a new file");
        rig.write(file, At::End, &[1; 5000], Sync::Ordered).await.expect("a write");
        twice(1000, Op::Open { ino: file, truncate: false }).await;
        twice(1001, Op::Create { parent: root, name: name("file"), mode: 0o644, exclusive: false }).await;
        rig.done(Op::Unlink { parent: root, name: name("file") }).await.expect("it is there");
        twice(1002, Op::Release { ino: file }).await;
        assert!(rig.read(file, 0, 5000).await == Ok(vec![1; 5000]), "somebody still has it open");
        twice(1003, Op::Release { ino: file }).await;
        assert_eq!(rig.read(file, 0, 5000).await, Err(Kind::Stale), "nobody has it open");
    });
}

/// A result is kept until its client has it, however many others took effect since; what a client has is never done again.
#[test]
pub fn results_are_kept_until_the_client_has_them() {
    let mut world = World::new(3);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let create = async |number: u64, done: u64| {
            let name = name(&number.to_string());
            let op = Op::Create { parent: rig.volume.root, name, mode: 0o644, exclusive: true };
            let context = group::Context { done: 1000 + done, ..rig.context_of(1000 + number) };
            rig.call_as(&context, op, None).await.map(drop).map_err(|error| error.kind)
        };
        for number in 0..=SESSION_OPEN_MAX {
            assert_eq!(create(number, 0).await, Ok(()));
        }
        for (number, told) in [(1, Ok(())), (SESSION_OPEN_MAX, Ok(())), (0, Err(Kind::Fenced))] {
            assert_eq!(create(number, 0).await, told, "{number}");
        }
        // Once the client has said what it has, that is neither kept nor done again.
        assert_eq!(create(SESSION_OPEN_MAX + 1, 900).await, Ok(()));
        assert_eq!((create(899, 0).await, create(900, 0).await), (Err(Kind::Fenced), Ok(())));
        rig.groups.answered(group::Scope::All, rig.session, 1950);
        assert_eq!((create(949, 0).await, create(950, 0).await), (Err(Kind::Fenced), Ok(())));
    });
}

#[test]
fn deliveries_at_the_same_time_have_one_effect() {
    for seed in seeds(1..10) {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        world.block_on(async {
            let rig = Arc::new(Rig::new(runtime.clone(), Shape::SMALL).await);
            let file = rig.create(rig.volume.root, "file").await.expect("a new file");
            let offsets = Arc::new(Mutex::new(Vec::new()));
            for (request, length) in [(1000, 300), (1001, 4096), (1002, 150_000), (1003, 200_001), (1004, 7)] {
                let tasks = (0..4).map(|_| {
                    let (rig, offsets) = (rig.clone(), offsets.clone());
                    let rig = rig.client(5, rig.volume.clone());
                    move || -> Local { Box::pin(append(rig, file, request, length, offsets)) }
                });
                together(&runtime, tasks).await;
            }
            let mut told = offsets.lock().expect("no panic while held").clone();
            told.sort();
            told.dedup();
            assert_eq!(told.len(), 5, "seed {seed}: {told:?}");
            let size = rig.attr(Op::GetAttr { ino: file }).await.expect("a file").inode.size;
            assert_eq!(size, 300 + 4096 + 150_000 + 200_001 + 7, "seed {seed}");
        });
    }
}

async fn append(rig: Rig, ino: Ino, request: u64, length: usize, offsets: Arc<Mutex<Vec<(u64, u64)>>>) {
    let op = Op::Write { ino, at: At::End, sync: Sync::Ordered, kill_privileges: false };
    match rig.call_as(&rig.context_of(request), op, Some(&vec![request as u8; length])).await {
        Ok(Answer { reply: Reply::Wrote { offset, .. }, .. }) => {
            offsets.lock().expect("no panic while held").push((request, offset));
        }
        other => panic!("an append: {:?}", other.map(|answer| answer.reply)),
    }
}
