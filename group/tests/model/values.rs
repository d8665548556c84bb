//! Records and rows under right checksums that say what no build of ours writes: start and check refuse the same, a repair gives
//! the record up, and nothing panics.

use crate::rig::{Rig, Shape, checked, name};
use base::*;
use group::{Groups, Options};
use runtime::random::SplitMix;
use runtime::sim::{Survival, World};
use std::sync::Arc;
use store::Opening;
use store::format::record::{Head, encode_replicated};
use store::format::{keys, values};
use store::index::{Index as _, IndexEdit};
use store::log::{Entry, Payload};
use store::repair::{Depth, repair};

/// Groups of the brick: one of these numbers is no group.
const NONE: GroupId = GroupId(99);

fn evil(root: Ino) -> Vec<(&'static str, GroupId, Edit)> {
    let (here, there) = (Ino::new(500, GroupId(0)), Ino::new(500, NONE));
    let time = Time(1);
    let follow = |group, edits| Follow { volume: VolumeId(1), group, edits };
    let intent = |id, follow| Edit::IntentPut(Intent { id, follow });
    let id = IntentId { group: GroupId(0), number: 9 };
    let kind = FileKind::File;
    vec![
        ("a group", NONE, Edit::InodeDrop { ino: here }),
        ("the highest group", GroupId(u32::MAX), Edit::InodeDrop { ino: here }),
        ("an inode", GroupId(0), Edit::InodeDrop { ino: there }),
        ("a parent", GroupId(0), Edit::InodeParent { ino: here, parent: there }),
        ("a size", GroupId(0), Edit::InodeExtend { ino: here, size: u64::MAX, time, kill_privileges: false }),
        ("a cut", GroupId(0), Edit::InodeCut { ino: here, size: u64::MAX, trim: 1, time }),
        ("a promise", GroupId(0), Edit::Reserve { ino: here, first: u64::MAX - 1, count: 7 }),
        ("a hole", GroupId(0), Edit::Punch { ino: here, first: 1 << 50, count: 7, trim: 1 }),
        ("an entry", GroupId(0), Edit::EntryPut { dir: root, name: name("x"), ino: there, kind, cookie: 9 }),
        ("a cookie", GroupId(0), Edit::EntryPut { dir: root, name: name("x"), ino: here, kind, cookie: u64::MAX }),
        ("an intent's group", GroupId(0), intent(IntentId { group: NONE, number: 9 }, Vec::new())),
        ("an intent's number", GroupId(0), intent(IntentId { group: GroupId(0), number: u64::MAX }, Vec::new())),
        ("who follows", GroupId(0), intent(id, vec![follow(NONE, Vec::new())])),
        ("what follows", GroupId(0), intent(id, vec![follow(GroupId(1), vec![Edit::InodeDrop { ino: there }])])),
    ]
}

/// Has the log hold a record that no group has ordered.
async fn append(rig: &Rig, group: GroupId, edit: &Edit) {
    let head = Head {
        group,
        term: Term(1),
        index: Index(1_000_000),
        volume: rig.volume.id,
        session: SessionId(0),
        request: RequestId(0),
        outcome: Outcome::Done,
    };
    let mut replicated = Vec::new();
    encode_replicated(&mut replicated, &head, std::slice::from_ref(edit));
    let owner = (group, head.volume, head.index);
    let entry = Entry { owner, replicated: &replicated, payload: Payload::Inline(&[]), described: &[] };
    let log = &rig.groups.store().log;
    let ordered = log.append_one_record(&entry, Sync::All).expect("the log takes what it is given");
    log.wait(ordered.batch, Sync::All, None).await.expect("a healthy brick writes");
}

fn options() -> Options {
    Options::for_memory(256 << 20)
}

#[test]
fn records_that_no_build_writes_are_refused_found_and_given_up() {
    for number in 0..evil(Ino(1)).len() {
        let mut world = World::new(3);
        let runtime = world.runtime();
        let (rig, what) = world.block_on(async {
            let rig = Rig::new(runtime, Shape::SMALL).await;
            rig.create(rig.volume.root, "kept").await.expect("a new file");
            rig.done(Op::SyncAll).await.expect("a healthy brick syncs");
            let (what, group, edit) = evil(rig.volume.root).swap_remove(number);
            append(&rig, group, &edit).await;
            (rig, what)
        });
        let mut after = World::from_image(1, world.crash_as(Survival::Nothing, &mut SplitMix(1)));
        let (runtime, index) = (after.runtime(), rig.index.crashed(0));
        after.block_on(async {
            let report = checked(&runtime, &index).await;
            assert!(report.log_lost && !report.findings.is_empty(), "{what}: {report:?}");
            let read = || Opening::read_wholly(runtime.clone(), Arc::new(index.clone()), true);
            let opening = read().await.expect("it can be read");
            let refused = Groups::open(opening, options()).await.map(drop).map_err(|error| error.kind);
            assert_eq!(refused, Err(Kind::Corrupt), "{what}");
            let opening = read().await.expect("it can be read");
            let done = repair(&opening, Depth::Maps, &mut |_| ()).await.expect("a healthy device");
            assert!(!done.mended.is_empty() && !done.lost.is_empty(), "{what}: {done:?}");
        });
        let mut again = World::from_image(2, after.crash_as(Survival::Nothing, &mut SplitMix(2)));
        let runtime = again.runtime();
        let index = index.crashed(0);
        again.block_on(async {
            let rig = Rig::existing((runtime, index), Shape::SMALL, rig.volume.clone()).await;
            assert!(rig.lookup(rig.volume.root, "kept").await.is_ok(), "{what}: all before it is there");
            rig.close().await;
        });
    }
}

#[test]
fn rows_that_name_what_is_not_there_are_errors_of_who_asks() {
    let mut world = World::new(3);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let root = rig.volume.root;
        let file = rig.create(root, "file").await.expect("a new file");
        let directory = rig.mkdir(root, "directory").await.expect("a new directory");
        rig.checkpoint().await;
        let volume = rig.volume.clone();
        let (runtime, index) = rig.close().await;
        let there = Ino::new(500, NONE);
        let entry = keys::entry(volume.id, root, b"file");
        let row = index.get(&keys::inode(volume.id, directory)).expect("it reads").expect("it is there");
        let inode = Inode { parent: there, ..values::decode_inode(&row).expect("a good row") };
        let edits = vec![
            IndexEdit::Put(entry, values::encode_entry(there, FileKind::File, 3)),
            IndexEdit::Put(keys::inode(volume.id, directory), values::encode_inode(&inode)),
        ];
        index.write(edits).expect("the model index writes");
        assert!(!checked(&runtime, &index).await.findings.is_empty());
        let rig = Rig::existing((runtime, index), Shape::SMALL, volume).await;
        for name in ["file", "directory"] {
            let found = rig.lookup(root, name).await.map(drop);
            assert_eq!(found, Err(Kind::Corrupt), "{name}");
        }
        assert!(rig.read(file, 0, 1).await.is_ok(), "others can be read");
    });
}
