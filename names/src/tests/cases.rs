//! Cases that the random test can't reach or does not look at closely.

use super::world::World;
use crate::write::evaluate_write;
use crate::{Caller, Need, Stop, TIME_KEPT, apply_inode};
use base::limits::{FILE_BYTES_MAX, LINKS_MAX, TARGET_BYTES_MAX, TREE_PROJECT_MIN, XATTR_VALUE_BYTES_MAX};
use base::{
    At, Edit, FileKind, GroupId, Guard, Ino, Inode, Kind, Name, Op, Outcome, Reply, Room, SetAttr, SetHow, SetTime,
    Time, VolumeId,
};

pub(super) fn inode(kind: FileKind) -> Inode {
    Inode { links: 1, ..Inode::blank(kind, Ino(1 << 20), Ino(0), Time(10)) }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a good name")
}

fn world() -> (World, Ino, Caller) {
    let (world, root) = World::new(4);
    let caller = Caller { volume: world.volume, uid: 7, gid: 8, umask: 0 };
    (world, root, caller)
}

fn done(world: &mut World, caller: &Caller, op: &Op) -> Ino {
    let decision = world.decide(op, caller).expect("a good operation");
    world.apply_all(&decision.parts);
    match decision.outcome {
        Outcome::Inode(ino) => ino,
        _ => Ino(0),
    }
}

fn refused(world: &mut World, caller: &Caller, op: &Op) -> Kind {
    let before = world.numbers;
    let result = world.decide(op, caller);
    assert_eq!(world.numbers, before, "a refusal takes no number");
    match result {
        Err(Stop::Error(error)) => error.kind,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn touches_saturate_and_raise() {
    let touch = |links, entries, mtime| Edit::InodeTouch { ino: Ino(1), links, entries, mtime, ctime: Time(5) };
    let old = inode(FileKind::Directory);
    let less = apply_inode(Some(old), &touch(-9, -9, TIME_KEPT)).expect("kept");
    assert_eq!((less.links, less.entries, less.mtime, less.ctime), (0, 0, Time(10), Time(10)));
    let more = apply_inode(Some(less), &touch(3, i64::MAX, Time(99))).expect("kept");
    assert_eq!((more.links, more.entries, more.mtime, more.ctime), (3, i64::MAX as u64, Time(99), Time(10)));
    let ancient = Inode { mtime: Time(-5), ..old };
    assert_eq!(apply_inode(Some(ancient), &touch(0, 0, TIME_KEPT)).map(|inode| inode.mtime), Some(Time(-5)));
}

#[test]
fn changes_of_a_missing_inode_leave_it_missing() {
    let ino = Ino(1);
    for edit in [
        Edit::InodeTouch { ino, links: 1, entries: 1, mtime: Time(1), ctime: Time(1) },
        Edit::InodeParent { ino, parent: Ino(2) },
        Edit::InodeExtend { ino, size: 1, time: Time(1), kill_privileges: true },
        Edit::InodeCut { ino, size: 1, trim: 1, time: Time(1) },
        Edit::Punch { ino, first: 0, count: 1, trim: 1 },
        Edit::InodeDrop { ino },
    ] {
        assert_eq!(apply_inode(None, &edit), None);
    }
    let new = inode(FileKind::File);
    assert_eq!(apply_inode(None, &Edit::InodePut { ino, inode: new }), Some(new));
    assert_eq!(apply_inode(Some(new), &Edit::InodeDrop { ino }), None);
    assert_eq!(apply_inode(Some(new), &Edit::OrphanPut { ino }), Some(new), "says nothing about the inode");
}

#[test]
fn touches_commute() {
    let edits = [
        Edit::InodeTouch { ino: Ino(1), links: 1, entries: 1, mtime: Time(30), ctime: Time(30) },
        Edit::InodeTouch { ino: Ino(1), links: 0, entries: 1, mtime: Time(40), ctime: Time(40) },
        Edit::InodeTouch { ino: Ino(1), links: 0, entries: -1, mtime: TIME_KEPT, ctime: Time(35) },
        Edit::InodeExtend { ino: Ino(1), size: 7, time: Time(33), kill_privileges: false },
    ];
    let start = Inode { entries: 5, ..inode(FileKind::Directory) };
    let after = |order: [usize; 4]| order.iter().try_fold(start, |inode, at| apply_inode(Some(inode), &edits[*at]));
    assert_eq!(after([0, 1, 2, 3]), after([3, 1, 0, 2]));
    assert_eq!(after([0, 1, 2, 3]), after([2, 3, 1, 0]));
}

#[test]
fn privileges_go_only_where_they_grant_something() {
    let killed = |kind, mode| crate::apply::mode_without_privileges(&Inode { mode, ..inode(kind) });
    assert_eq!(killed(FileKind::File, 0o6755), 0o0755);
    assert_eq!(killed(FileKind::File, 0o6745), 0o2745, "setgid without group execute grants nothing");
    assert_eq!(killed(FileKind::File, 0o1777), 0o1777);
    assert_eq!(killed(FileKind::Directory, 0o2775), 0o2775, "on a directory it means inheritance");
}

#[test]
pub fn a_new_size_is_a_cut_and_the_rest_a_put() {
    let (mut world, root, caller) = world();
    let ino = done(&mut world, &caller, &Op::Create { parent: root, name: name("f"), mode: 0o4755, exclusive: true });
    let created = *world.inode(ino).expect("just created");
    assert_eq!((created.uid, created.gid, created.links, created.parent), (7, 8, 1, root));
    assert_eq!(created.generation, ino.sequence() as u32);
    world.clock = 2000;
    let only_size = SetAttr { size: Some(5000), ..SetAttr::default() };
    let cut = Edit::InodeCut { ino, size: 5000, trim: 1, time: Time(2000) };
    let decision = world.decide(&Op::SetAttr { ino, set: only_size.into() }, &caller).expect("a good size");
    assert_eq!(decision.parts[0].edits, std::slice::from_ref(&cut));
    let rest = SetAttr { mtime: Some(SetTime::To(Time(5))), kill_privileges: true, ..only_size };
    let decision = world.decide(&Op::SetAttr { ino, set: rest.into() }, &caller).expect("a good size");
    let put = Inode { size: 5000, trim: 1, mtime: Time(5), ctime: Time(2000), mode: 0o755, ..created };
    assert_eq!(decision.parts[0].edits, [cut, Edit::InodePut { ino, inode: put }]);
    // A change is seen also if who makes it gives the time of the last one.
    for (given, stamp) in [(created.ctime, Time(2000)), (Time(3000), Time(3000))] {
        let set = SetAttr { mode: Some(0o600), ctime: Some(given), ..SetAttr::default() };
        let decision = world.decide(&Op::SetAttr { ino, set: set.into() }, &caller).expect("a good time");
        let put = Inode { mode: 0o600, ctime: stamp, ..created };
        assert_eq!(decision.parts[0].edits, [Edit::InodePut { ino, inode: put }]);
    }
    let same = SetAttr { size: Some(0), ..SetAttr::default() };
    let decision = world.decide(&Op::SetAttr { ino, set: same.into() }, &caller).expect("a good size");
    let put = Inode { ctime: Time(2000), ..created };
    assert_eq!(decision.parts[0].edits, [Edit::InodePut { ino, inode: put }], "the size stays: no cut");
    assert_eq!(refused(&mut world, &caller, &Op::Open { ino: root, truncate: true }), Kind::IsDirectory);
}

#[test]
fn a_cleared_range_loses_its_whole_blocks_and_setuid() {
    let (mut world, root, caller) = world();
    let ino = done(&mut world, &caller, &Op::Create { parent: root, name: name("f"), mode: 0o4755, exclusive: true });
    world.clock = 2000;
    let mut edits = |uid, offset, length, keep_size, room| {
        let caller = Caller { uid, ..caller };
        let op = Op::Allocate { ino, offset, length, keep_size, room };
        world.decide(&op, &caller).expect("a range").parts.remove(0).edits
    };
    let extend = |size, kill_privileges| Edit::InodeExtend { ino, size, time: Time(2000), kill_privileges };
    let punch = |first, count| Edit::Punch { ino, first, count, trim: 1 };
    assert_eq!(edits(7, 1, 3 * 4096, true, Room::Hole), [punch(1, 2), extend(0, true)]);
    assert_eq!(edits(0, 4096, 4096, true, Room::Hole), [punch(1, 1), extend(0, false)]);
    assert_eq!(edits(7, 1, 4095, true, Room::Hole), [extend(0, true)], "no block is whole");
    assert_eq!(edits(7, 4000, 200, true, Room::Hole), [extend(0, true)], "nor of two");
    let reserve = Edit::Reserve { ino, first: 0, count: 4 };
    assert_eq!(edits(7, 1, 3 * 4096, false, Room::Zeroed), [punch(1, 2), reserve.clone(), extend(3 * 4096 + 1, true)]);
    assert_eq!(edits(7, 1, 3 * 4096, true, Room::Promised), [reserve, extend(0, true)]);
}

#[test]
fn no_range_goes_beyond_the_largest_file() {
    let (mut world, root, caller) = world();
    let ino = done(&mut world, &caller, &Op::Create { parent: root, name: name("f"), mode: 0o644, exclusive: true });
    for (room, keep_size) in
        [(Room::Hole, true), (Room::Zeroed, false), (Room::Promised, true), (Room::Promised, false)]
    {
        let range = |length| Op::Allocate { ino, offset: FILE_BYTES_MAX - 4096, length, keep_size, room };
        assert_eq!(refused(&mut world, &caller, &range(4097)), Kind::TooLarge);
        world.decide(&range(4096), &caller).expect("the last block");
    }
}

#[test]
fn every_need_is_asked_for_by_what_lacks_it() {
    let (mut world, root, caller) = world();
    world.spread = Some(GroupId(3));
    let (_, needs) = world.decide_by_needs(&Op::MakeDir { parent: root, name: name("d"), mode: 0o755 }, &caller);
    let from_root = |more: &[Need]| {
        let mut needs = vec![Need::Group(root.group()), Need::Inode(root)];
        needs.extend_from_slice(more);
        needs
    };
    assert_eq!(needs, from_root(&[Need::Entry(root, name("d")), Need::Group(GroupId(3))]));
    let link = Op::SymLink { parent: root, name: name("l"), target: b"x"[..].into() };
    let ino = done(&mut world, &caller, &link);
    let (result, needs) = world.decide_by_needs(&Op::ReadLink { ino }, &caller);
    assert_eq!(needs, [Need::Group(ino.group()), Need::Inode(ino), Need::Target(ino)]);
    assert_eq!(result.expect("a link").reply, Reply::Target(b"x"[..].into()));
    let (result, needs) = world.decide_by_needs(&Op::VolumeDelete { name: name("main") }, &caller);
    assert_eq!(needs, [Need::Group(GroupId(0)), Need::Volume(name("main"))]);
    assert_eq!(result.expect("there").parts[0].edits, [Edit::VolumeDrop { id: VolumeId(1) }]);
    let (_, needs) = world.decide_by_needs(&Op::Lookup { parent: root, name: name("l") }, &caller);
    assert_eq!(needs, [Need::Group(root.group()), Need::Entry(root, name("l")), Need::Inode(ino)]);
}

/// Both directories, the moved and the replaced inode: each in a group of its own.
#[test]
fn a_rename_over_four_groups_loads_them_all() {
    let (mut world, root, caller) = world();
    let mut dirs = Vec::new();
    for (group, text) in [(1, "from"), (2, "to")] {
        world.spread = Some(GroupId(group));
        dirs.push(done(&mut world, &caller, &Op::MakeDir { parent: root, name: name(text), mode: 0o755 }));
    }
    for (group, dir) in [(3, dirs[0]), (0, dirs[1])] {
        world.spread = Some(GroupId(group));
        done(&mut world, &caller, &Op::MakeDir { parent: dir, name: name("x"), mode: 0o755 });
    }
    let [parent, new_parent] = dirs[..] else { panic!("two directories") };
    let op =
        Op::Rename { parent, name: name("x"), new_parent, new_name: name("x"), no_replace: false, whiteout: false };
    let before = world.numbers;
    let whole = world.decide(&op, &caller).expect("a good rename");
    world.numbers = before;
    let (piecewise, needs) = world.decide_by_needs(&op, &caller);
    assert_eq!(piecewise.expect("a good rename"), whole);
    assert_eq!(needs.iter().filter(|need| matches!(need, Need::Group(_))).count(), 4);
    let groups: Vec<u32> = whole.parts.iter().map(|part| part.group.0).collect();
    assert_eq!(groups, [2, 1, 3, 0], "the new directory's group decides");
}

#[test]
fn volumes_are_made_and_deleted_by_name() {
    let (mut world, _, caller) = world();
    let create = |text: &str| Op::VolumeCreate { name: name(text), size_bytes: None };
    assert_eq!(refused(&mut world, &caller, &create("main")), Kind::Exists);
    assert_eq!(refused(&mut world, &caller, &create(&"v".repeat(64))), Kind::NameTooLong);
    assert_eq!(refused(&mut world, &caller, &Op::VolumeDelete { name: name("other") }), Kind::NotFound);
    let decision = world.decide(&create("other"), &caller).expect("a free name");
    let Reply::Volume(volume) = decision.reply else { panic!("not a volume") };
    let whose: Vec<_> = decision.parts.iter().map(|part| (part.volume, part.group)).collect();
    assert_eq!(whose, [(VolumeId(0), GroupId(0)), (volume.id, GroupId(0))]);
    world.apply_crashed(&decision.parts, 1);
    let root = world.inodes[&(volume.id, volume.root)];
    assert_eq!((root.links, root.uid, root.parent, root.kind), (2, 7, volume.root, FileKind::Directory));
    assert_ne!(volume.id, world.volume);
    let rename = |from: &str, to: &str| Op::VolumeRename { name: name(from), new_name: name(to) };
    assert_eq!(refused(&mut world, &caller, &rename("absent", "new")), Kind::NotFound);
    assert_eq!(refused(&mut world, &caller, &rename("other", "main")), Kind::Exists);
    assert_eq!(refused(&mut world, &caller, &rename("other", &"v".repeat(64))), Kind::NameTooLong);
    done(&mut world, &caller, &rename("other", "new"));
    assert!(!world.volumes.contains_key(&name("other")));
    let resize = |text: &str| Op::VolumeResize { name: name(text), size_bytes: Some(1 << 20) };
    assert_eq!(refused(&mut world, &caller, &resize("other")), Kind::NotFound);
    done(&mut world, &caller, &resize("new"));
    let layers = |text: &str| Op::VolumeLayers { name: name(text), layers: [base::Layer::ReadOnly].into() };
    assert_eq!(refused(&mut world, &caller, &layers("other")), Kind::NotFound);
    done(&mut world, &caller, &layers("new"));
    let changed = world.volumes[&name("new")].clone();
    assert_eq!(
        changed,
        base::Volume { name: name("new"), size_bytes: Some(1 << 20), layers: [base::Layer::ReadOnly].into(), ..volume }
    );
    done(&mut world, &caller, &Op::VolumeDelete { name: name("new") });
    assert!(!world.volumes.contains_key(&name("new")));
}

#[test]
fn links_and_targets_have_bounds() {
    let (mut world, root, caller) = world();
    let key = (world.volume, root);
    let dir = done(&mut world, &caller, &Op::MakeDir { parent: root, name: name("d"), mode: 0o755 });
    done(&mut world, &caller, &Op::MakeDir { parent: dir, name: name("sub"), mode: 0o755 });
    done(&mut world, &caller, &Op::MakeDir { parent: root, name: name("old"), mode: 0o755 });
    world.inodes.get_mut(&key).expect("the root").links = LINKS_MAX;
    let make = Op::MakeDir { parent: root, name: name("e"), mode: 0o755 };
    assert_eq!(refused(&mut world, &caller, &make), Kind::TooManyLinks);
    done(&mut world, &caller, &Op::Create { parent: root, name: name("file"), mode: 0o644, exclusive: true });
    for (parent, one, new_parent, other) in [(dir, "sub", root, "file"), (root, "file", dir, "sub")] {
        let exchange = Op::Exchange { parent, name: name(one), new_parent, new_name: name(other) };
        assert_eq!(refused(&mut world, &caller, &exchange), Kind::TooManyLinks);
    }
    let rename = |text: &str| Op::Rename {
        parent: dir,
        name: name("sub"),
        new_parent: root,
        new_name: name(text),
        no_replace: false,
        whiteout: false,
    };
    assert_eq!(refused(&mut world, &caller, &rename("e")), Kind::TooManyLinks);
    done(&mut world, &caller, &rename("old"));
    let file = done(&mut world, &caller, &Op::Create { parent: dir, name: name("f"), mode: 0o644, exclusive: true });
    let key = (world.volume, file);
    world.inodes.get_mut(&key).expect("just created").links = LINKS_MAX;
    let more = Op::Link { ino: file, new_parent: dir, new_name: name("g") };
    assert_eq!(refused(&mut world, &caller, &more), Kind::TooManyLinks);
    let link = |target: &[u8]| Op::SymLink { parent: root, name: name("l"), target: target.into() };
    assert_eq!(refused(&mut world, &caller, &link(&[b'x'; TARGET_BYTES_MAX + 1])), Kind::NameTooLong);
    assert_eq!(refused(&mut world, &caller, &link(b"")), Kind::NotFound);
    let ino = done(&mut world, &caller, &link(&[b'x'; TARGET_BYTES_MAX]));
    assert_eq!(world.inode(ino).map(|inode| (inode.size, inode.mode)), Some((TARGET_BYTES_MAX as u64, 0o777)));
}

/// One that nobody has open is about to be purged: the name would be one of nothing.
#[test]
fn a_file_without_a_name_gets_one_only_while_it_is_open() {
    let (mut world, root, caller) = world();
    let ino = done(&mut world, &caller, &Op::TempFile { parent: root, mode: 0o600 });
    let link = Op::Link { ino, new_parent: root, new_name: name("f") };
    assert_eq!(refused(&mut world, &caller, &link), Kind::NotFound);
    world.opens.insert(ino, 1);
    assert_eq!(done(&mut world, &caller, &link), ino);
    assert_eq!(world.inode(ino).map(|inode| inode.links), Some(1));
}

#[test]
fn attributes_have_namespaces_and_bounds() {
    let (mut world, root, caller) = world();
    let ino = done(&mut world, &caller, &Op::Create { parent: root, name: name("f"), mode: 0o644, exclusive: true });
    let set = |text: &str, length: usize| {
        let name = Name::of_attribute(text.as_bytes()).expect("a good name");
        Op::SetXattr { ino, name, value: vec![0; length].into(), how: SetHow::Any, kill_setgid: false }
    };
    for text in ["user.", "trusted.", "security."] {
        assert_eq!(refused(&mut world, &caller, &set(text, 1)), Kind::Invalid);
    }
    for text in ["a", "users.a", "system.other", "system.posix_acl_accessory"] {
        assert_eq!(refused(&mut world, &caller, &set(text, 1)), Kind::Unsupported);
    }
    assert_eq!(refused(&mut world, &caller, &set("system.posix_acl_access", 5)), Kind::Invalid);
    assert_eq!(refused(&mut world, &caller, &set("user.a", XATTR_VALUE_BYTES_MAX + 1)), Kind::TooLarge);
    let apply = |world: &mut World, op: &Op| {
        let decision = world.decide(op, &caller).expect("it fits");
        world.apply_all(&decision.parts);
    };
    for number in 0..3 {
        apply(&mut world, &set(&format!("user.{number}"), XATTR_VALUE_BYTES_MAX));
    }
    assert_eq!(refused(&mut world, &caller, &set("user.3", XATTR_VALUE_BYTES_MAX)), Kind::NoSpace);
    (0..3).for_each(|number| apply(&mut world, &set(&format!("user.{number}"), 0)));
    let long = |number: usize| format!("user.{number:0>250}");
    (0..255).for_each(|number| apply(&mut world, &set(&long(number), 0)));
    assert_eq!(refused(&mut world, &caller, &set(&long(255), 0)), Kind::NoSpace);
    // Short of room for a name there still is room for another value.
    apply(&mut world, &set(&long(0), 1000));
}

/// A caller who is not of the inode's group clears setgid by setting a list (chmod(2) has the same rule).
#[test]
fn a_strangers_list_takes_setgid_away() {
    let (mut world, root, caller) = world();
    let ino = done(&mut world, &caller, &Op::Create { parent: root, name: name("f"), mode: 0o2755, exclusive: true });
    let list: Vec<u8> =
        [&[2, 0, 0, 0][..], &[1, 0, 6, 0], &[255; 4], &[4, 0, 4, 0], &[255; 4], &[32, 0, 0, 0], &[255; 4]].concat();
    for (kill_setgid, mode) in [(false, 0o2640), (true, 0o640)] {
        let name = Name::of_attribute(b"system.posix_acl_access").expect("a good name");
        let op = Op::SetXattr { ino, name, value: list.clone().into(), how: SetHow::Any, kill_setgid };
        let decision = world.decide(&op, &caller).expect("a good list");
        world.apply_all(&decision.parts);
        assert_eq!(world.inode(ino).map(|inode| (inode.mode, inode.xattrs.are_stored())), Some((mode, false)));
    }
}

#[test]
fn damage_is_reported_and_not_spread() {
    let (mut world, root, caller) = world();
    let ino = done(&mut world, &caller, &Op::Create { parent: root, name: name("f"), mode: 0o644, exclusive: true });
    let old = world.inodes.remove(&(world.volume, ino)).expect("just created");
    assert_eq!(refused(&mut world, &caller, &Op::Unlink { parent: root, name: name("f") }), Kind::Corrupt);
    world.inodes.insert((world.volume, ino), Inode { kind: FileKind::Fifo, ..old });
    assert_eq!(refused(&mut world, &caller, &Op::Lookup { parent: root, name: name("f") }), Kind::Corrupt);
    world.inodes.insert((world.volume, ino), Inode { kind: FileKind::Link, ..old });
    assert_eq!(refused(&mut world, &caller, &Op::ReadLink { ino }), Kind::Corrupt);
}

#[test]
fn what_other_rooms_do_is_unsupported_here() {
    let (mut world, root, caller) = world();
    let (ino, sync) = (root, base::Sync::All);
    let write = Op::Write { ino, at: base::At::End, sync, kill_privileges: false };
    let read_dir = Op::ReadDir { ino, cookie: 0, count: 1, plus: false };
    let read = Op::Read { ino, offset: 0, length: 1 };
    let others = [Op::Release { ino }, Op::Fsync { ino, sync }, Op::StatFs, Op::SyncAll, Op::VolumeList];
    for op in others.into_iter().chain([write, read_dir, read]) {
        assert_eq!(refused(&mut world, &caller, &op), Kind::Unsupported);
    }
}

#[test]
fn an_exchange_is_seen_in_both_directories_whatever_the_clock_says() {
    let (mut world, root, caller) = world();
    let dir = done(&mut world, &caller, &Op::MakeDir { parent: root, name: name("dir"), mode: 0o755 });
    world.clock = 9000;
    for (parent, name) in [(root, name("one")), (dir, name("other"))] {
        done(&mut world, &caller, &Op::Create { parent, name, mode: 0o644, exclusive: true });
        world.clock = 5000;
    }
    let before = [root, dir].map(|ino| world.inode(ino).expect("it is there").ctime);
    assert_eq!(before, [Time(9000), Time(5000)]);
    world.clock = 6000;
    let op = Op::Exchange { parent: root, name: name("one"), new_parent: dir, new_name: name("other") };
    done(&mut world, &caller, &op);
    assert_eq!([root, dir].map(|ino| world.inode(ino).expect("it is there").ctime), [Time(9001), Time(6000)]);
}

#[test]
fn a_directory_does_not_change_places_with_what_lies_in_it() {
    let (mut world, root, caller) = world();
    let dir = done(&mut world, &caller, &Op::MakeDir { parent: root, name: name("dir"), mode: 0o755 });
    done(&mut world, &caller, &Op::Create { parent: dir, name: name("in"), mode: 0o644, exclusive: true });
    let (above, within) = ((root, name("dir")), (dir, name("in")));
    for ((parent, name), (new_parent, new_name)) in [(above.clone(), within.clone()), (within, above)] {
        let op = Op::Exchange { parent, name, new_parent, new_name };
        assert_eq!(refused(&mut world, &caller, &op), Kind::Invalid);
    }
}

/// Limits hold for whom they are set: who owns what is in the tree does not take it out, nor anything in.
#[test]
fn root_alone_moves_inodes_between_trees_with_limits() {
    let (mut world, root, owner) = world();
    let admin = Caller { uid: 0, ..owner };
    let create = Op::Create { parent: root, name: name("f"), mode: 0o666, exclusive: true };
    let ino = done(&mut world, &owner, &create);
    let dir = done(&mut world, &owner, &Op::MakeDir { parent: root, name: name("d"), mode: 0o777 });
    let set = |ino, project, guard| Op::SetAttr { ino, set: SetAttr { project, guard, ..SetAttr::default() }.into() };
    let immutable = Guard { immutable: true, ..Guard::default() };
    let (plain, tree) = (Some(7), Some(TREE_PROJECT_MIN));
    let hands_down = Guard { hands_down_project: true, ..Guard::default() };
    done(&mut world, &owner, &set(ino, plain, Some(Guard::default())));
    assert_eq!(refused(&mut world, &owner, &set(ino, tree, Some(Guard::default()))), Kind::Permission);
    done(&mut world, &owner, &set(ino, plain, Some(immutable)));
    done(&mut world, &admin, &set(ino, tree, None));
    assert_eq!(refused(&mut world, &owner, &set(ino, plain, Some(Guard::default()))), Kind::Permission);
    done(&mut world, &owner, &set(ino, tree, Some(Guard::default())));
    done(&mut world, &admin, &set(dir, tree, Some(hands_down)));
    assert_eq!(refused(&mut world, &owner, &set(dir, tree, Some(Guard::default()))), Kind::Permission);
    assert_eq!(refused(&mut world, &owner, &set(dir, None, Some(Guard::default()))), Kind::Permission);
    done(&mut world, &admin, &set(dir, Some(0), Some(Guard::default())));
}

/// Immutable and append-only inodes refuse the same operations to every caller.
#[test]
fn guards_hold_for_each_operation() {
    for guard in [Guard { immutable: true, ..Guard::default() }, Guard { append_only: true, ..Guard::default() }] {
        let (mut world, root, caller) = world();
        let dir = done(&mut world, &caller, &Op::MakeDir { parent: root, name: name("d"), mode: 0o777 });
        let create = |parent, text: &str| Op::Create { parent, name: name(text), mode: 0o666, exclusive: true };
        let ino = done(&mut world, &caller, &create(dir, "f"));
        done(&mut world, &caller, &create(dir, "g"));
        done(&mut world, &caller, &create(root, "h"));
        let set = |set: SetAttr| Op::SetAttr { ino, set: set.into() };
        let guarded = |ino| Op::SetAttr { ino, set: SetAttr { guard: Some(guard), ..SetAttr::default() }.into() };
        done(&mut world, &caller, &guarded(ino));
        let nothing = SetAttr::default();
        let (past, now) = (Some(SetTime::To(Time(5))), Some(SetTime::Now));
        let rename = |parent, old: &str, new_parent, new: &str| Op::Rename {
            parent,
            name: name(old),
            new_parent,
            new_name: name(new),
            no_replace: false,
            whiteout: false,
        };
        let exchange = Op::Exchange { parent: dir, name: name("f"), new_parent: root, new_name: name("h") };
        let allocate = |room| Op::Allocate { ino, offset: 0, length: 9, keep_size: true, room };
        let touched = [
            set(SetAttr { mode: Some(0o600), ..nothing }),
            set(SetAttr { uid: Some(1), ..nothing }),
            set(SetAttr { size: Some(1), ..nothing }),
            set(SetAttr { mtime: past, ..nothing }),
            set(SetAttr { mtime: now, ..nothing }),
            Op::Open { ino, truncate: true },
            Op::Link { ino, new_parent: root, new_name: name("l") },
            Op::Unlink { parent: dir, name: name("f") },
            rename(dir, "f", root, "l"),
            rename(root, "h", dir, "f"),
            exchange.clone(),
            Op::SetXattr { ino, name: name("user.a"), value: (*b"1").into(), how: SetHow::Any, kill_setgid: false },
            Op::RemoveXattr { ino, name: name("user.a") },
            allocate(Room::Hole),
            allocate(Room::Zeroed),
        ];
        for op in touched {
            assert_eq!(refused(&mut world, &caller, &op), Kind::Permission, "{guard:?}: {op:?}");
        }
        for op in [set(SetAttr { atime: now, mtime: now, ..nothing }), allocate(Room::Promised)] {
            let result = world.decide(&op, &caller);
            assert_eq!(result.is_err(), guard.immutable, "{guard:?}: {op:?}: {result:?}");
        }
        world.decide(&Op::Open { ino, truncate: false }, &caller).expect("it can be read");
        world.decide(&Op::Lookup { parent: dir, name: name("f") }, &caller).expect("it can be found");
        let write =
            |at| evaluate_write(ino, &Inode { size: 100, guard, ..inode(FileKind::File) }, at, 5, false, Time(9));
        assert_eq!(write(At::Offset(99)).expect_err("it is guarded").kind, Kind::Permission);
        assert_eq!(write(At::End).is_err(), guard.immutable);
        assert_eq!(write(At::Offset(100)).is_err(), guard.immutable);
        done(&mut world, &caller, &guarded(dir));
        let lost = [
            Op::Unlink { parent: dir, name: name("g") },
            rename(dir, "g", root, "l"),
            rename(dir, "g", dir, "l"),
            rename(root, "h", dir, "g"),
            Op::RemoveDir { parent: root, name: name("d") },
        ];
        for op in lost {
            assert_eq!(refused(&mut world, &caller, &op), Kind::Permission, "{guard:?}: {op:?}");
        }
        let got = [
            create(dir, "new"),
            Op::MakeDir { parent: dir, name: name("new"), mode: 0o777 },
            Op::SymLink { parent: dir, name: name("new"), target: (*b"t").into() },
            Op::TempFile { parent: dir, mode: 0o600 },
            rename(root, "h", dir, "new"),
        ];
        for op in got {
            let result = world.decide(&op, &caller);
            assert_eq!(result.is_err(), guard.immutable, "{guard:?}: {op:?}: {result:?}");
        }
        done(
            &mut world,
            &caller,
            &Op::SetAttr { ino, set: SetAttr { guard: Some(Guard::default()), ..nothing }.into() },
        );
        done(&mut world, &caller, &set(SetAttr { mode: Some(0o600), ..nothing }));
    }
}
