//! Values of extended attributes as clients set them, access control lists above all.

use crate::targets::{Answer, answer};
use base::{
    Edit, Error, FileKind, GroupId, Ino, Inode, IntentId, Kind, Name, Op, Reply, SetHow, Time, Volume, VolumeId, Xattrs,
};
use names::{Caller, Decision, Entry, Need, Seen, Stop, View, apply_inode, evaluate};
use std::sync::Arc;

const NAMES: [&[u8]; 4] = [b"system.posix_acl_access", b"system.posix_acl_default", b"user.x", b"security.capability"];
const INO: Ino = Ino(2 << 20);

/// One inode, and its attributes.
struct One {
    inode: Option<Inode>,
    xattrs: Xattrs,
}

impl View for One {
    fn inode(&mut self, ino: Ino) -> Seen<Inode> {
        Seen::Known(self.inode.filter(|_| ino == INO))
    }
    fn entry(&mut self, _: Ino, _: &Name) -> Seen<Entry> {
        Seen::Known(None)
    }
    fn target(&mut self, _: Ino) -> Seen<Box<[u8]>> {
        Seen::Known(None)
    }
    fn xattrs(&mut self, _: Ino) -> Seen<Arc<Xattrs>> {
        Seen::Known(Some(Arc::new(self.xattrs.clone())))
    }
    fn volume(&mut self, _: &Name) -> Seen<Volume> {
        Seen::Known(None)
    }
    fn fresh_ino(&mut self, group: GroupId) -> Result<Ino, Need> {
        Ok(Ino::new(9, group))
    }
    fn fresh_cookie(&mut self, _: Ino) -> Result<u64, Need> {
        Ok(9)
    }
    fn fresh_intent(&mut self, group: GroupId) -> Result<IntentId, Need> {
        Ok(IntentId { group, number: 9 })
    }
    fn fresh_volume(&mut self) -> Result<VolumeId, Need> {
        Ok(VolumeId(9))
    }
    fn opens(&mut self, _: Ino) -> Result<u64, Need> {
        Ok(0)
    }
    fn spread(&mut self, _: Ino) -> GroupId {
        GroupId(0)
    }
    fn now(&self) -> Time {
        Time(9)
    }
}

impl One {
    fn apply(&mut self, decision: &Decision) {
        for edit in decision.parts.iter().flat_map(|part| &part.edits) {
            match edit {
                Edit::XattrPut { name, value, .. } => drop(self.xattrs.insert(name.clone(), value.clone())),
                Edit::XattrDrop { name, .. } => drop(self.xattrs.remove(name)),
                edit => self.inode = apply_inode(self.inode, edit),
            }
        }
    }
}

fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let entry = |(tag, permissions, id): &(u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    [2u32.to_le_bytes().to_vec(), entries.iter().flat_map(entry).collect()].concat()
}

/// Lists behind a byte that says which attribute is set, how, and of what.
pub fn seeds() -> Vec<Vec<u8>> {
    let (owner, group, other) = ((1, 6, u32::MAX), (4, 4, u32::MAX), (32, 4, u32::MAX));
    let long = [owner, (2, 7, 1000), group, (8, 5, 100), (16, 7, u32::MAX), other];
    let lists = [list(&[owner, group, other]), list(&long), list(&[]), b"value".to_vec()];
    (0..)
        .zip(lists)
        .flat_map(|(number, list)| [[vec![number], list.clone()].concat(), [vec![number + 16], list].concat()])
        .collect()
}

/// Sets the attribute, as somebody who may, and reads it again.
pub fn run(bytes: &[u8]) -> Answer {
    let Some((choice, value)) = bytes.split_first() else { return 0 };
    let name = Name::of_attribute(NAMES[usize::from(choice % 4)]).expect("a good name");
    let how = [SetHow::Any, SetHow::Create, SetHow::Replace][usize::from(choice / 4 % 3)];
    let kind = if choice & 16 == 0 { FileKind::File } else { FileKind::Directory };
    let inode = Inode { kind, mode: 0o640, links: 1, ..blank() };
    let mut one = One { inode: Some(inode), xattrs: Xattrs::new() };
    let caller = Caller { volume: VolumeId(1), uid: 7, gid: 8, umask: 0o22 };
    let op = Op::SetXattr { ino: INO, name: name.clone(), value: value.into(), how, kill_setgid: choice & 32 != 0 };
    let decided = evaluate(&op, &caller, &mut one);
    let result = match &decided {
        Ok(decision) => {
            one.apply(decision);
            let now = one.inode.expect("setting an attribute removes no inode");
            assert!(
                now.kind == kind && now.mode <= 0o7777 && now.xattrs.are_stored() != one.xattrs.is_empty(),
                "{now:?}"
            );
            read_again(&mut one, &caller, name, value)
        }
        Err(Stop::Error(error)) => Err(error.clone()),
        Err(Stop::Need(need)) => panic!("all is there, and yet it lacks {need:?}"),
    };
    answer(&result, |permissions| u64::from(*permissions)).rotate_left(u32::from(choice % 4))
}

/// Reads the attribute that was set again. Returns the permission bits that it left.
fn read_again(one: &mut One, caller: &Caller, name: Name, value: &[u8]) -> base::Result<u16> {
    let is_list = name.as_bytes().starts_with(b"system.");
    match evaluate(&Op::GetXattr { ino: INO, name }, caller, one) {
        Ok(decision) => match decision.reply {
            Reply::Value(told) => assert!(is_list || *told == *value, "an attribute reads back as it was set"),
            other => panic!("a value: {other:?}"),
        },
        // A list that says no more than the bits is none.
        Err(Stop::Error(Error { kind: Kind::NoAttribute, .. })) if is_list => {}
        Err(stop) => panic!("{stop:?}"),
    }
    Ok(one.inode.map_or(0, |inode| inode.mode))
}

fn blank() -> Inode {
    let time = Time(0);
    Inode {
        kind: FileKind::File,
        mode: 0,
        uid: 7,
        gid: 8,
        links: 1,
        rdev: 0,
        project: 0,
        generation: 1,
        size: 0,
        trim: 0,
        entries: 0,
        parent: INO,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        dead: false,
        xattrs: base::Attributes::default(),
        guard: base::Guard::default(),
    }
}
