//! Tier hints: a field of the inode that looks like an attribute.

use super::world::World;
use crate::{Caller, Stop};
use base::limits::XATTR_LIST_BYTES_MAX;
use base::{FileKind, Guard, Ino, Kind, Name, Op, Outcome, Reply, SetAttr, SetHow, TierHint};

struct Tree {
    world: World,
    root: Ino,
    caller: Caller,
}

fn tree() -> Tree {
    let (world, root) = World::new(4);
    let caller = Caller { volume: world.volume, uid: 7, gid: 8, umask: 0 };
    Tree { world, root, caller }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a good name")
}

fn set(ino: Ino, value: &[u8], how: SetHow) -> Op {
    Op::SetXattr { ino, name: name("user.sinter.tier"), value: value.into(), how, kill_setgid: false }
}

impl Tree {
    fn call(&mut self, op: &Op) -> Result<Ino, Kind> {
        match self.world.decide(op, &self.caller) {
            Ok(decision) => {
                self.world.apply_all(&decision.parts);
                Ok(if let Outcome::Inode(ino) = decision.outcome { ino } else { Ino(0) })
            }
            Err(Stop::Error(error)) => Err(error.kind),
            Err(Stop::Need(need)) => panic!("{need:?} is there"),
        }
    }
    fn make(&mut self, op: Op) -> Ino {
        self.call(&op).expect("a good operation")
    }
    fn file(&mut self, parent: Ino, text: &str) -> Ino {
        self.make(Op::Create { parent, name: name(text), mode: 0o644, exclusive: true })
    }
    fn tier(&self, ino: Ino) -> Option<TierHint> {
        self.world.inode(ino).expect("it exists").xattrs.tier()
    }
    fn read(&mut self, ino: Ino) -> Result<Vec<u8>, Kind> {
        match self.world.decide(&Op::GetXattr { ino, name: name("user.sinter.tier") }, &self.caller) {
            Ok(decision) => match decision.reply {
                Reply::Value(value) => Ok(value.to_vec()),
                other => panic!("no value: {other:?}"),
            },
            Err(Stop::Error(error)) => Err(error.kind),
            Err(Stop::Need(need)) => panic!("{need:?} is there"),
        }
    }
    fn listed(&mut self, ino: Ino) -> Vec<u8> {
        let decision = self.world.decide(&Op::ListXattr { ino }, &self.caller).expect("it can be listed");
        match decision.reply {
            Reply::Names(names) => names.to_vec(),
            other => panic!("no names: {other:?}"),
        }
    }
}

#[test]
fn a_hint_is_set_read_listed_and_removed_as_an_attribute() {
    let mut tree = tree();
    let ino = tree.file(tree.root, "f");
    let remove = Op::RemoveXattr { ino, name: name("user.sinter.tier") };
    assert_eq!((tree.read(ino), tree.call(&remove)), (Err(Kind::NoAttribute), Err(Kind::NoAttribute)));
    assert_eq!(tree.call(&set(ino, b"flash", SetHow::Replace)), Err(Kind::NoAttribute));
    let before = tree.world.inode(ino).expect("it exists").ctime;
    for hint in TierHint::ALL {
        tree.make(set(ino, hint.name().as_bytes(), SetHow::Any));
        assert_eq!((tree.read(ino), tree.tier(ino)), (Ok(hint.name().into()), Some(hint)));
    }
    let inode = *tree.world.inode(ino).expect("it exists");
    assert!(inode.ctime > before && !inode.xattrs.are_stored(), "it changes the inode, and is no row of its own");
    assert_eq!(tree.call(&set(ino, b"flash", SetHow::Create)), Err(Kind::Exists));
    tree.make(Op::SetXattr { ino, name: name("user.a"), value: (*b"1").into(), how: SetHow::Any, kill_setgid: false });
    assert_eq!(tree.listed(ino), b"user.a\0user.sinter.tier\0");
    tree.make(remove);
    assert_eq!((tree.read(ino), tree.tier(ino)), (Err(Kind::NoAttribute), None));
    assert_eq!(tree.listed(ino), b"user.a\0");
}

#[test]
fn what_is_no_tier_is_refused() {
    let mut tree = tree();
    let ino = tree.file(tree.root, "f");
    for value in [&b""[..], b"Flash", b"flash\0", b"tape", &[0; 1000]] {
        assert_eq!(tree.call(&set(ino, value, SetHow::Any)), Err(Kind::Invalid), "{value:?}");
    }
    let parent = tree.root;
    let link = tree.make(Op::SymLink { parent, name: name("l"), target: (*b"f").into() });
    let fifo = tree.make(Op::MakeNode { parent, name: name("p"), kind: FileKind::Fifo, mode: 0o644, rdev: 0 });
    for ino in [link, fifo] {
        assert_eq!(tree.call(&set(ino, b"disk", SetHow::Any)), Err(Kind::Permission));
    }
    let guard = Some(Guard { immutable: true, ..Guard::default() });
    tree.make(Op::SetAttr { ino, set: SetAttr { guard, ..SetAttr::default() }.into() });
    assert_eq!(tree.call(&set(ino, b"disk", SetHow::Any)), Err(Kind::Permission));
    assert_eq!(tree.tier(ino), None);
}

#[test]
fn new_files_and_directories_take_the_hint_of_theirs() {
    let mut tree = tree();
    let parent = tree.make(Op::MakeDir { parent: tree.root, name: name("d"), mode: 0o755 });
    let old = tree.file(parent, "old");
    tree.make(set(parent, b"flash", SetHow::Any));
    let dir = tree.make(Op::MakeDir { parent, name: name("d"), mode: 0o755 });
    let made = [
        tree.file(parent, "f"),
        dir,
        tree.file(dir, "f"),
        tree.make(Op::TempFile { parent: dir, mode: 0o600 }),
        tree.make(Op::SymLink { parent, name: name("l"), target: (*b"f").into() }),
        tree.file(tree.root, "other"),
        old,
    ];
    let flash = Some(TierHint::Flash);
    assert_eq!(made.map(|ino| tree.tier(ino)), [flash, flash, flash, flash, None, None, None]);
    // It stays with what has it, and ends below a directory that says otherwise.
    tree.make(set(dir, b"auto", SetHow::Any));
    let below = tree.file(dir, "g");
    assert_eq!((tree.tier(made[2]), tree.tier(below)), (flash, Some(TierHint::Auto)));
}

#[test]
fn the_list_of_attributes_has_room_for_the_hint() {
    let mut tree = tree();
    let ino = tree.file(tree.root, "f");
    let long = |number: usize| {
        let name = Name::of_attribute(format!("user.{number:0>250}").as_bytes()).expect("a good name");
        Op::SetXattr { ino, name, value: [].into(), how: SetHow::Any, kill_setgid: false }
    };
    let fits = XATTR_LIST_BYTES_MAX / 256;
    for number in 0..fits {
        tree.make(long(number));
    }
    assert_eq!(tree.call(&set(ino, b"disk", SetHow::Any)), Err(Kind::NoSpace));
    let Op::SetXattr { name, .. } = long(0) else { unreachable!("that is what it is") };
    tree.make(Op::RemoveXattr { ino, name });
    tree.make(set(ino, b"disk", SetHow::Any));
    assert_eq!(tree.call(&long(0)), Err(Kind::NoSpace));
}
