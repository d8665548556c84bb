//! Kinds of inodes: their names and their contents tell it beside their rows, and a witness that contradicts the others
//! is found and mended.

use crate::check::{Closed, on_closed};
use crate::repair::{mended, repairs};
use crate::rig::{Rig, Shape, checked, name};
use base::{FileKind, Ino, Inode, Op, Reply};
use runtime::sim::World;
use store::format::{keys, values};
use store::index::{Index, IndexEdit};

/// The edit that has an inode's row say another kind.
fn of_kind(brick: &Closed, ino: Ino, kind: FileKind) -> Vec<IndexEdit> {
    let inode = Inode { kind, ..inode_of(brick, ino) };
    vec![IndexEdit::Put(keys::inode(brick.volume, ino), values::encode_inode(&inode))]
}

fn inode_of(brick: &Closed, ino: Ino) -> Inode {
    let row = brick.index.get(&keys::inode(brick.volume, ino)).expect("the model index reads");
    values::decode_inode(&row.expect("it is there")).expect("an inode")
}

/// The edits that have the two rows of a name say another kind, and lead elsewhere.
fn named(brick: &Closed, file: &[u8], ino: Ino, kind: FileKind) -> Vec<IndexEdit> {
    let key = keys::entry(brick.volume, brick.dir, file);
    let row = brick.index.get(&key).expect("the model index reads").expect("it is there");
    let (_, _, cookie) = values::decode_entry(&row).expect("an entry");
    let value = values::encode_cookie(file, ino, kind);
    let entry = IndexEdit::Put(key, values::encode_entry(ino, kind, cookie));
    vec![entry, IndexEdit::Put(keys::cookie(brick.volume, brick.dir, cookie), value)]
}

#[test]
fn an_inode_of_a_wrong_kind_is_found() {
    on_closed(async |brick| {
        let says = |ino: Ino, said: &str, is: &str| {
            let volume = brick.volume;
            format!("inode {ino} of volume {volume} says it is a {said}; by its names or contents it is a {is}; what")
        };
        let pipe = says(brick.one, "named pipe", "file");
        brick.finds(of_kind(&brick, brick.one, FileKind::Fifo), &[&pipe]).await;
        for ino in [brick.dir, brick.root] {
            let device = says(ino, "block device", "directory");
            brick.finds(of_kind(&brick, ino, FileKind::BlockDevice), &[&device]).await;
        }
        let link = says(brick.link, "socket", "symbolic link");
        brick.finds(of_kind(&brick, brick.link, FileKind::Socket), &[&link, "which is none"]).await;
        let name = format!("a name of inode {} of volume {}, a file, says another kind; data", brick.one, brick.volume);
        brick.finds(named(&brick, b"one", brick.one, FileKind::Character), &[&name]).await;
    });
}

/// One bit of an inode's row: a file becomes a symbolic link, a directory a device. Its names and all that it has say
/// what it was.
#[test]
fn a_file_of_a_wrong_kind_is_mended() {
    repairs(async |brick| with_a_bit_changed(brick, brick.one), &[]);
    for kind in [FileKind::Fifo, FileKind::Directory, FileKind::Character] {
        repairs(async |brick| of_kind(brick, brick.one, kind), &[]);
    }
}

#[test]
fn a_file_of_a_wrong_kind_with_half_a_name_is_mended() {
    let lost = [|brick: &Closed| keys::entry(brick.volume, brick.dir, b"one"), cookie_of_one];
    for lost in lost {
        let both = async |brick: &Closed| {
            let mut edits = with_a_bit_changed(brick, brick.one);
            edits.push(IndexEdit::Delete(lost(brick)));
            edits
        };
        repairs(both, &[]);
    }
}

fn cookie_of_one(brick: &Closed) -> Vec<u8> {
    let row = brick.index.get(&keys::entry(brick.volume, brick.dir, b"one")).expect("the model index reads");
    let (_, _, cookie) = values::decode_entry(&row.expect("it is there")).expect("an entry");
    keys::cookie(brick.volume, brick.dir, cookie)
}

#[test]
fn a_directory_of_a_wrong_kind_is_mended() {
    repairs(async |brick| with_a_bit_changed(brick, brick.dir), &[]);
}

#[test]
fn a_root_of_a_wrong_kind_is_mended() {
    repairs(async |brick| with_a_bit_changed(brick, brick.root), &[]);
    // It is known as a root also where the catalogue has lost its volume.
    let of_no_volume = async |brick: &Closed| {
        let mut edits = with_a_bit_changed(brick, brick.root);
        edits.push(IndexEdit::Delete(keys::volume(b"main")));
        edits
    };
    repairs(of_no_volume, &["the volume's date"]);
}

fn with_a_bit_changed(brick: &Closed, ino: Ino) -> Vec<IndexEdit> {
    let key = keys::inode(brick.volume, ino);
    let mut row = brick.index.get(&key).expect("the model index reads").expect("it is there");
    row[2] ^= 0x20;
    vec![IndexEdit::Put(key, row)]
}

/// The content of a file outvotes its names.
#[test]
fn names_of_a_wrong_kind_are_mended() {
    for kind in [FileKind::Link, FileKind::Directory] {
        repairs(async |brick| named(brick, b"one", brick.one, kind), &[]);
        let all =
            async |brick: &Closed| [named(brick, b"one", brick.one, kind), of_kind(brick, brick.one, kind)].concat();
        repairs(all, &[]);
    }
}

/// A link's target is kept, and the row says what it said before.
#[test]
fn a_symbolic_link_of_a_wrong_kind_is_mended() {
    for kind in [FileKind::File, FileKind::BlockDevice] {
        on_closed(async |brick| {
            let index = brick.index.crashed(0);
            index.write(of_kind(&brick, brick.link, kind)).expect("the model index writes");
            assert_eq!(mended(&brick.runtime, &index).await, []);
            let row = index.get(&keys::inode(brick.volume, brick.link)).expect("the model index reads");
            assert_eq!(values::decode_inode(&row.expect("it is there")), Ok(inode_of(&brick, brick.link)));
            let volume = store::paths::volume(&index, brick.volume).expect("it reads").expect("the volume is there");
            let rig = Rig::existing((brick.runtime.clone(), index), Shape::SMALL, volume).await;
            let answer = rig.call(Op::ReadLink { ino: brick.link }, None).await.expect("it is a link");
            assert_eq!(answer.reply, Reply::Target(Box::from(b"one".as_slice())));
            rig.close().await;
        });
    }
}

/// The two rows of a name outvote the inode's if there is no content; names that contradict each other don't.
#[test]
fn what_is_empty_is_what_its_names_say() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let (volume, root) = (rig.volume.id, rig.volume.root);
        let file = rig.create(root, "file").await.expect("there is room");
        let dir = rig.mkdir(root, "dir").await.expect("there is room");
        rig.attr(Op::Link { ino: file, new_parent: dir, new_name: name("again") }).await.expect("there is room");
        let (runtime, index) = rig.close().await;
        let before = |ino| index.get(&keys::inode(volume, ino)).expect("the model index reads").expect("it is there");
        let other = index.crashed(0);
        for (ino, kind) in [(file, FileKind::Link), (dir, FileKind::Fifo)] {
            let inode = values::decode_inode(&before(ino)).expect("an inode");
            // A number of a device is of no use to what is none.
            let row = values::encode_inode(&Inode { kind, rdev: 7, ..inode });
            other.write(vec![IndexEdit::Put(keys::inode(volume, ino), row)]).expect("the model index writes");
        }
        assert_eq!(mended(&runtime, &other).await, []);
        let now = |ino| other.get(&keys::inode(volume, ino)).expect("the model index reads");
        assert_eq!((now(file), now(dir)), (Some(before(file)), Some(before(dir))));

        let key = keys::entry(volume, dir, b"again");
        let row = other.get(&key).expect("the model index reads").expect("it is there");
        let (_, _, cookie) = values::decode_entry(&row).expect("an entry");
        let listed = keys::cookie(volume, dir, cookie);
        let torn = vec![
            IndexEdit::Put(key.clone(), values::encode_entry(file, FileKind::Directory, cookie)),
            IndexEdit::Put(listed.clone(), values::encode_cookie(b"again", file, FileKind::Directory)),
        ];
        other.write(torn).expect("the model index writes");
        let findings = checked(&runtime, &other).await.findings;
        assert!(findings.iter().any(|finding| finding.contains("a file, says another kind")), "{findings:#?}");
        assert_eq!(mended(&runtime, &other).await, []);
        assert_eq!((now(file), now(dir)), (Some(before(file)), Some(before(dir))));
        assert_eq!(other.get(&key), Ok(Some(row.clone())));

        // One row of a name that is left alone is no more than the inode's own.
        let cookie_row = other.get(&listed).expect("the model index reads").expect("it is there");
        let entry = IndexEdit::Put(key.clone(), values::encode_entry(file, FileKind::Link, cookie));
        let value = values::encode_cookie(b"again", file, FileKind::Link);
        for edits in [
            vec![entry, IndexEdit::Delete(listed.clone())],
            vec![IndexEdit::Put(listed.clone(), value), IndexEdit::Delete(key.clone())],
        ] {
            other.write(edits).expect("the model index writes");
            other.write(vec![IndexEdit::Delete(keys::entry(volume, root, b"file"))]).expect("the model index writes");
            assert_eq!(mended(&runtime, &other).await, []);
            assert_eq!((now(file), now(dir)), (Some(before(file)), Some(before(dir))));
            let now = |key| other.get(key).expect("the model index reads");
            assert_eq!((now(&key), now(&listed)), (Some(row.clone()), Some(cookie_row.clone())));
        }
    });
}

/// A root is a directory, whatever a name that leads to it says.
#[test]
fn a_root_that_is_lost_is_made_anew_as_a_directory() {
    on_closed(async |brick| {
        let index = brick.index.crashed(0);
        index.write(vec![IndexEdit::Delete(keys::inode(brick.volume, brick.root))]).expect("the model index writes");
        index.write(named(&brick, b"one", brick.root, FileKind::File)).expect("the model index writes");
        index.persist().expect("the model index is durable");
        mended(&brick.runtime, &index).await;
        let row = index.get(&keys::inode(brick.volume, brick.root)).expect("the model index reads");
        let root = values::decode_inode(&row.expect("it was made anew")).expect("an inode");
        assert_eq!(root.kind, FileKind::Directory);
    });
}
