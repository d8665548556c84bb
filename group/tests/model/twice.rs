//! A request delivered twice has one effect and one reply, at once, later, and after a restart (rule R1).

use crate::rig::{Rig, Shape, name, seeds, together};
use base::{At, Ino, Kind, Op, Reply, SetAttr, Sync};
use group::Answer;
use runtime::sim::World;
use runtime::tasks::Local;
use std::sync::{Arc, Mutex};

/// What is asked, once each, in this order: every kind of change.
async fn changes(rig: &Rig) -> Vec<(Op, Option<Vec<u8>>)> {
    let root = rig.volume.root;
    let file = rig.create(root, "file").await.expect("a new file");
    rig.create(root, "doomed").await.expect("a new file");
    rig.mkdir(root, "old").await.expect("a new directory");
    let set = SetAttr { size: Some(10_000), mode: Some(0o600), ..SetAttr::default() };
    let write = |at, sync| Op::Write { ino: file, at, sync, kill_privileges: false };
    vec![
        (Op::Create { parent: root, name: name("new"), mode: 0o644, exclusive: true }, None),
        (Op::MakeDir { parent: root, name: name("dir"), mode: 0o755 }, None),
        (Op::SymLink { parent: root, name: name("link"), target: (*b"somewhere").into() }, None),
        (Op::Unlink { parent: root, name: name("doomed") }, None),
        (Op::RemoveDir { parent: root, name: name("old") }, None),
        (write(At::End, Sync::Ordered), Some(vec![1; 5000])),
        (write(At::End, Sync::Data), Some(vec![2; 4096])),
        (write(At::End, Sync::Ordered), Some(vec![3; 200_000])),
        (write(At::Offset(0), Sync::Written), Some(vec![4; 4096])),
        (Op::SetAttr { ino: file, set }, None),
        (
            Op::Rename {
                parent: root,
                name: name("link"),
                new_parent: root,
                new_name: name("moved"),
                no_replace: true,
                whiteout: true,
            },
            None,
        ),
        (Op::TempFile { parent: root, mode: 0o600 }, None),
        (Op::VolumeCreate { name: name("another"), size_bytes: None }, None),
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
    format!("{listed:?} {:?} {:x}", rig.groups.volumes().await, base::checksum::crc32c(bytes))
}

#[test]
fn a_second_delivery_repeats_the_answer_and_nothing_else() {
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
        let other = rig.client(77, rig.volume);
        let op = Op::Create { parent: rig.volume.root, name: name("new"), mode: 0o644, exclusive: true };
        let told = other.call_as(&other.context_of(1000), op, None).await;
        assert_eq!(told.err().map(|error| error.kind), Some(Kind::Exists));
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
                    let rig = rig.client(5, rig.volume);
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
