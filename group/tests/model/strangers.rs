//! Numbers that are nobody's: clients make them up (handles of a file system that was formatted anew, hostile fronts),
//! and get errors, whatever the operation.

use crate::rig::{Rig, Shape, name};
use base::{At, GroupId, Ino, Kind, Op, SetAttr, Sync, VolumeId};
use runtime::sim::World;

fn operations(ino: Ino, other: Ino) -> Vec<(Op, Option<Vec<u8>>)> {
    let (new, old) = (name("new"), name("old"));
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    let write = |at| Op::Write { ino, at, sync: Sync::Ordered, kill_privileges: true };
    let rename = |parent, new_parent| Op::Rename {
        parent,
        name: old.clone(),
        new_parent,
        new_name: new.clone(),
        no_replace: false,
        whiteout: false,
    };
    let exchange = |parent, new_parent| Op::Exchange { parent, name: old.clone(), new_parent, new_name: new.clone() };
    vec![
        (Op::Lookup { parent: ino, name: old.clone() }, None),
        (Op::GetAttr { ino }, None),
        (Op::SetAttr { ino, set: size(100).into() }, None),
        (Op::SetAttr { ino, set: size(8192).into() }, None),
        (Op::SetAttr { ino, set: SetAttr { mode: Some(0o600), ..SetAttr::default() }.into() }, None),
        (Op::ReadLink { ino }, None),
        (Op::Create { parent: ino, name: new.clone(), mode: 0o644, exclusive: false }, None),
        (Op::MakeDir { parent: ino, name: new.clone(), mode: 0o755 }, None),
        (Op::SymLink { parent: ino, name: new.clone(), target: (*b"x").into() }, None),
        (Op::Unlink { parent: ino, name: old.clone() }, None),
        (Op::RemoveDir { parent: ino, name: old.clone() }, None),
        (rename(ino, other), None),
        (rename(other, ino), None),
        (rename(ino, ino), None),
        (exchange(ino, other), None),
        (exchange(other, ino), None),
        (Op::Link { ino, new_parent: other, new_name: new.clone() }, None),
        (Op::Link { ino, new_parent: ino, new_name: new.clone() }, None),
        (Op::Open { ino, truncate: false }, None),
        (Op::Open { ino, truncate: true }, None),
        (Op::Read { ino, offset: 0, length: 4096 }, None),
        (write(At::End), Some(vec![1; 100])),
        (write(At::Offset(0)), Some(vec![1; 4096])),
        (write(At::Offset(10)), Some(vec![1; 200_000])),
        (Op::ReadDir { ino, cookie: 0, count: 10, plus: true }, None),
    ]
}

#[test]
fn numbers_of_nobody_are_stale_everywhere() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let root = rig.volume.root;
        rig.create(root, "old").await.expect("a new file");
        let beyond = [Ino::new(5, GroupId(9)), Ino::new(5, GroupId((1 << 20) - 1)), Ino(u64::MAX)];
        let never_given = [Ino(0), Ino(1), Ino::new(1 << 40, GroupId(3)), Ino::new(999, GroupId(0))];
        for ino in beyond.into_iter().chain(never_given) {
            for (op, data) in operations(ino, root) {
                let told = rig.call(op.clone(), data.as_deref()).await;
                let kind = told.err().map(|error| error.kind);
                assert_eq!(kind, Some(Kind::Stale), "{op:?}");
            }
            // Nothing is held or owed for it.
            for op in [Op::Release { ino }, Op::Fsync { ino, sync: Sync::All }] {
                assert!([Ok(()), Err(Kind::Stale)].contains(&rig.done(op).await));
            }
        }
        let listed = rig.list(root, 10).await.expect("a directory");
        assert_eq!(listed.len(), 1);
        // A volume of nobody's.
        let nowhere = base::Volume { id: VolumeId(77), ..rig.volume.clone() };
        let stranger = rig.client(5, nowhere);
        for (op, data) in operations(root, root) {
            let kind = stranger.call(op.clone(), data.as_deref()).await.err().map(|error| error.kind);
            assert_eq!(kind, Some(Kind::Stale), "{op:?}");
        }
        drop(stranger);
        rig.reopen().await;
    });
}

#[test]
fn reads_are_bounded() {
    let mut world = World::new(2);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let file = rig.create(rig.volume.root, "file").await.expect("a new file");
        rig.truncate(file, base::limits::FILE_BYTES_MAX).await.expect("a file can be long");
        let length = u32::MAX;
        let told = rig.call(Op::Read { ino: file, offset: 0, length }, None).await;
        assert_eq!(told.err().map(|error| error.kind), Some(Kind::Invalid));
        // As many as one reply carries, from anywhere.
        let told = rig.read(file, 77, base::limits::IO_BYTES_MAX).await.expect("a file");
        assert!(told.len() == base::limits::IO_BYTES_MAX && told.iter().all(|byte| *byte == 0));
        assert_eq!(rig.page(rig.volume.root, 0, u32::MAX).await.expect("a directory").len(), 1);
        assert_eq!(rig.page(rig.volume.root, 0, 0).await.expect("a directory").len(), 1, "at least one, or it ends");
    });
}
