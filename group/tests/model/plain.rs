//! A file system as plainly as can be, to compare with: maps, no groups, no log, no caches. It is told each
//! operation together with what the brick answered, checks the answer, and takes over new inode numbers.

use base::limits::{FILE_BYTES_MAX, IO_BYTES_MAX, TARGET_BYTES_MAX};
use base::{At, Attr, FileKind, Ino, Kind, Name, Op, Reply, Result, Room, Seek, SetAttr, SetHow, Time, Xattrs};
use group::Answer;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

const BLOCK: u64 = 4096;

/// A file, directory or link.
#[derive(Clone, Debug)]
pub struct Node {
    pub kind: FileKind,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub links: u32,
    pub size: u64,
    pub parent: Ino,
    pub opens: u64,
    pub dead: bool,
    /// Names of a directory, in the order of listing.
    pub names: Vec<(Name, Ino)>,
    pub target: Vec<u8>,
    /// Extended attributes. Their meaning is tested with `names`; a default list is inherited as it is here (see
    /// `LIST`).
    pub xattrs: Xattrs,
    blocks: BTreeMap<u64, Vec<u8>>,
    ctime: Time,
}

/// Stands for a whiteout whose number nobody has told yet.
const WHITEOUT: Ino = Ino(0);

/// See the module.
pub struct Plain {
    pub root: Ino,
    pub nodes: BTreeMap<Ino, Node>,
    /// Every number there ever was.
    pub seen: BTreeSet<Ino>,
    caller: (u32, u32),
}

impl Node {
    fn new(kind: FileKind, mode: u16, parent: Ino, (uid, gid): (u32, u32)) -> Node {
        let links = if kind == FileKind::Directory { 2 } else { 1 };
        Node {
            kind,
            mode,
            uid,
            gid,
            links,
            size: 0,
            parent,
            opens: 0,
            dead: false,
            names: Vec::new(),
            target: Vec::new(),
            xattrs: Xattrs::new(),
            blocks: BTreeMap::new(),
            ctime: Time(i64::MIN),
        }
    }
    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }
    fn find(&self, name: &Name) -> Option<Ino> {
        self.names.iter().find(|(known, _)| known == name).map(|(_, ino)| *ino)
    }
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (at, &byte) in (offset..).zip(bytes) {
            let block = self.blocks.entry(at / BLOCK).or_insert_with(|| vec![0; BLOCK as usize]);
            block[(at % BLOCK) as usize] = byte;
        }
        self.size = self.size.max(offset + bytes.len() as u64);
    }
    fn cut(&mut self, size: u64) {
        self.size = size;
        self.blocks.split_off(&size.div_ceil(BLOCK));
        if let Some(tail) = self.blocks.get_mut(&(size / BLOCK)) {
            tail[(size % BLOCK) as usize..].fill(0);
        }
    }
    fn clear(&mut self, bytes: Range<u64>) {
        for (number, block) in self.blocks.range_mut(bytes.start / BLOCK..bytes.end.div_ceil(BLOCK)) {
            let within = |byte: u64| byte.saturating_sub(number * BLOCK).min(BLOCK) as usize;
            block[within(bytes.start)..within(bytes.end)].fill(0);
        }
        let whole = bytes.start.div_ceil(BLOCK)..bytes.end / BLOCK;
        self.blocks.retain(|number, _| !whole.contains(number));
    }
    /// The offset at which data or a hole begins.
    pub fn seek(&self, offset: u64, what: Seek) -> Option<u64> {
        let here = |byte: &u64| self.blocks.contains_key(&(byte / BLOCK)) == (what == Seek::Data);
        let blocks = (offset / BLOCK..self.size.div_ceil(BLOCK)).map(|block| offset.max(block * BLOCK));
        let end = (what == Seek::Hole).then_some(self.size);
        blocks.filter(|_| offset < self.size).find(here).or(end.filter(|_| offset < self.size))
    }
    /// The bytes that a read brings.
    pub fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        let end = self.size.min(offset.saturating_add(length));
        let mut bytes = Vec::new();
        let mut at = offset;
        while at < end {
            let until = end.min((at / BLOCK + 1) * BLOCK);
            let (from, to) = ((at % BLOCK) as usize, (at % BLOCK + (until - at)) as usize);
            match self.blocks.get(&(at / BLOCK)) {
                Some(block) => bytes.extend_from_slice(&block[from..to]),
                None => bytes.resize(bytes.len() + to - from, 0),
            }
            at = until;
        }
        bytes
    }
    fn kill_privileges(&mut self) {
        if !self.is_directory() {
            self.mode &= !0o4000;
            if self.mode & 0o010 != 0 {
                self.mode &= !0o2000;
            }
        }
    }
}

/// A list that takes nothing away, so that what inherits it has the same: owner, a user, owning group, mask, others.
pub const LIST: &[u8] = &[
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 7, 0, 232, 3, 0, 0, 4, 0, 7, 0, 255, 255, 255, 255, 16, 0, 7, 0,
    255, 255, 255, 255, 32, 0, 7, 0, 255, 255, 255, 255,
];
/// Positions in that list of the bits of a mode.
const CLASSES: [(usize, u32); 3] = [(6, 6), (30, 3), (38, 0)];

/// An attribute's name.
pub fn attribute(text: &str) -> Name {
    Name::of_attribute(text.as_bytes()).expect("a good name")
}

/// Lists of permissions.
pub const ACCESS: &str = "system.posix_acl_access";
pub const DEFAULT: &str = "system.posix_acl_default";

fn list_of(mode: u16) -> Arc<[u8]> {
    let mut list = LIST.to_vec();
    CLASSES.into_iter().for_each(|(at, shift)| list[at] = (mode >> shift & 7) as u8);
    list.into()
}

type Refused<T> = std::result::Result<T, Kind>;

impl Plain {
    /// A volume as it is after its creation.
    pub fn new(root: Ino, caller: (u32, u32)) -> Plain {
        let node = Node::new(FileKind::Directory, 0o755, root, caller);
        Plain { root, nodes: BTreeMap::from([(root, node)]), seen: BTreeSet::from([root]), caller }
    }
    /// The process that served the volume has ended: nothing is open.
    pub fn restarted(&mut self) {
        self.nodes.values_mut().for_each(|node| node.opens = 0);
        self.nodes.retain(|_, node| node.links > 0);
    }
    fn node(&self, ino: Ino) -> Refused<&Node> {
        self.nodes.get(&ino).ok_or(Kind::Stale)
    }
    fn change(&mut self, ino: Ino) -> &mut Node {
        self.nodes.get_mut(&ino).expect("just seen")
    }
    fn directory(&self, ino: Ino) -> Refused<&Node> {
        let node = self.node(ino)?;
        if node.is_directory() { Ok(node) } else { Err(Kind::NotDirectory) }
    }
    fn home(&self, ino: Ino) -> Refused<&Node> {
        let node = self.directory(ino)?;
        if node.dead { Err(Kind::NotFound) } else { Ok(node) }
    }
    fn found(&self, dir: Ino, name: &Name) -> Refused<Ino> {
        self.directory(dir)?.find(name).ok_or(Kind::NotFound)
    }

    /// Performs the operation here too and compares. Panics where the brick was wrong.
    pub fn perform(&mut self, op: &Op, data: &[u8], told: &Result<Answer>) {
        let expected = self.expect(op, data, told);
        match (expected, told) {
            (Ok(()), Ok(_)) => {}
            (Err(kind), Err(error)) => assert_eq!(error.kind, kind, "{op:?}: {error}"),
            (Ok(()), Err(error)) => panic!("{op:?} was refused: {error:?}"),
            (Err(kind), Ok(answer)) => panic!("{op:?} should be {kind:?}, was {:?}", answer.reply),
        }
    }

    fn expect(&mut self, op: &Op, data: &[u8], told: &Result<Answer>) -> Refused<()> {
        match op {
            Op::Lookup { parent, name } => {
                let ino = self.found(*parent, name)?;
                self.compare(ino, told);
            }
            Op::GetAttr { ino } => {
                self.node(*ino)?;
                self.compare(*ino, told);
            }
            Op::SetAttr { ino, set } => {
                self.set(*ino, set)?;
                self.compare(*ino, told);
            }
            Op::ReadLink { ino } => self.read_link(*ino, told)?,
            Op::Create { .. } | Op::MakeDir { .. } | Op::SymLink { .. } | Op::MakeNode { .. } => {
                self.create(op, told)?
            }
            Op::TempFile { parent, mode } => self.create_nameless(*parent, *mode, told)?,
            Op::Link { ino, new_parent, new_name } => self.link(*ino, *new_parent, new_name, told)?,
            Op::Unlink { parent, name } => {
                let ino = self.found(*parent, name)?;
                if self.node(ino)?.is_directory() {
                    return Err(Kind::IsDirectory);
                }
                self.remove(*parent, name);
                self.unnamed(ino);
            }
            Op::RemoveDir { parent, name } => self.remove_dir(*parent, name)?,
            Op::Rename { parent, name, new_parent, new_name, no_replace, whiteout } => {
                self.rename((*parent, name), (*new_parent, new_name), *no_replace, *whiteout)?;
            }
            Op::Exchange { parent, name, new_parent, new_name } => {
                self.exchange((*parent, name), (*new_parent, new_name))?;
            }
            Op::Open { ino, truncate } => self.open(*ino, *truncate, told)?,
            Op::Release { ino } => self.release(*ino),
            Op::Read { ino, offset, length } => self.read(*ino, *offset, *length, told)?,
            Op::Write { ino, at, kill_privileges, .. } => self.write(*ino, *at, data, *kill_privileges, told)?,
            Op::Allocate { ino, offset, length, keep_size, room } => {
                let node = self.node(*ino)?;
                match node.kind {
                    FileKind::File if *length > 0 => {}
                    FileKind::Directory => return Err(Kind::IsDirectory),
                    _ => return Err(Kind::Invalid),
                }
                if *room != Room::Promised {
                    self.change(*ino).clear(*offset..offset + length);
                }
                if !keep_size && *room != Room::Hole {
                    self.change(*ino).write(offset + length, &[]);
                }
                if self.caller.0 != 0 {
                    self.change(*ino).kill_privileges();
                }
            }
            Op::GetXattr { .. } | Op::ListXattr { .. } | Op::SetXattr { .. } | Op::RemoveXattr { .. } => {
                self.xattr(op, told)?;
            }
            Op::Seek { ino, offset, what } => self.seek(*ino, *offset, *what, told)?,
            Op::Fsync { .. } | Op::SyncAll => {}
            other => panic!("{other:?} is not one of a volume's operations"),
        }
        Ok(())
    }

    /// The attributes told are those of `ino`.
    fn compare(&mut self, ino: Ino, told: &Result<Answer>) {
        match told {
            Ok(Answer { reply: Reply::Attr(attr), .. }) => self.compare_attr(ino, attr),
            Ok(other) => panic!("attributes of {ino:?}: {:?}", other.reply),
            Err(_) => {}
        }
    }
    /// The attributes are those of `ino`, and its change time did not go back.
    pub fn compare_attr(&mut self, ino: Ino, attr: &Attr) {
        let node = self.nodes.get_mut(&ino).expect("the brick tells of an inode that is here");
        let Attr { ino: told, inode, .. } = attr;
        assert_eq!((*told, inode.kind, inode.mode), (ino, node.kind, node.mode));
        assert_eq!((inode.uid, inode.gid, inode.dead), (node.uid, node.gid, node.dead), "{ino:?}");
        assert_eq!((inode.links, inode.size), (node.links, node.size), "{ino:?} {:?}", node.kind);
        assert_eq!(inode.xattrs.are_stored(), !node.xattrs.is_empty(), "{ino:?}");
        assert_eq!(inode.entries, node.names.len() as u64, "{ino:?}");
        if node.is_directory() {
            assert_eq!(inode.parent, node.parent, "{ino:?}");
        }
        assert!(inode.ctime >= node.ctime && inode.ctime >= inode.btime, "{ino:?}: time went back");
        node.ctime = inode.ctime;
    }

    fn set(&mut self, ino: Ino, set: &SetAttr) -> Refused<()> {
        let node = self.node(ino)?;
        if let Some(size) = set.size {
            match node.kind {
                FileKind::File => {}
                FileKind::Directory => return Err(Kind::IsDirectory),
                _ => return Err(Kind::Invalid),
            }
            if size > FILE_BYTES_MAX {
                return Err(Kind::TooLarge);
            }
            self.change(ino).cut(size);
        }
        let node = self.change(ino);
        let moves = set.size.is_some() || set.uid.is_some() || set.gid.is_some() || set.kill_privileges;
        if moves && !node.is_directory() {
            node.xattrs.remove(&attribute("security.capability"));
        }
        if let (Some(mode), Some(list)) = (set.mode, node.xattrs.get_mut(&attribute(ACCESS))) {
            *list = list_of(mode);
        }
        node.mode = set.mode.map_or(node.mode, |mode| mode & 0o7777);
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
        if set.kill_privileges {
            node.kill_privileges();
        }
        Ok(())
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek, told: &Result<Answer>) -> Refused<()> {
        let node = self.node(ino)?;
        if node.kind != FileKind::File {
            return Err(Kind::Invalid);
        }
        if let Ok(answer) = told {
            assert_eq!(answer.reply, Reply::Found(node.seek(offset, what)), "{ino:?} from {offset} for {what:?}");
        }
        Ok(())
    }
    fn read_link(&self, ino: Ino, told: &Result<Answer>) -> Refused<()> {
        let node = self.node(ino)?;
        if node.kind != FileKind::Link {
            return Err(Kind::Invalid);
        }
        if let Ok(answer) = told {
            assert_eq!(answer.reply, Reply::Target(node.target.as_slice().into()));
        }
        Ok(())
    }

    fn create(&mut self, op: &Op, told: &Result<Answer>) -> Refused<()> {
        let (parent, name, kind, mode) = match op {
            Op::Create { parent, name, mode, .. } => (*parent, name, FileKind::File, *mode),
            Op::MakeDir { parent, name, mode } => (*parent, name, FileKind::Directory, *mode),
            Op::SymLink { parent, name, target } => {
                if target.is_empty() {
                    return Err(Kind::NotFound);
                }
                if target.len() > TARGET_BYTES_MAX {
                    return Err(Kind::NameTooLong);
                }
                (*parent, name, FileKind::Link, 0o777)
            }
            Op::MakeNode { parent, name, kind, mode, .. } => (*parent, name, *kind, *mode),
            other => unreachable!("{other:?} creates nothing"),
        };
        if let Some(ino) = self.home(parent)?.find(name) {
            if !matches!(op, Op::Create { exclusive: false, .. }) {
                return Err(Kind::Exists);
            }
            if self.node(ino)?.is_directory() {
                return Err(Kind::IsDirectory);
            }
            self.change(ino).opens += 1;
            self.compare(ino, told);
            return Ok(());
        }
        let Ok(Answer { reply: Reply::Attr(attr), .. }) = told else { return Ok(()) };
        assert!(self.seen.insert(attr.ino), "number {:?} was given out twice", attr.ino);
        self.born(parent, Some(name), kind, mode, attr.ino);
        let node = self.change(attr.ino);
        if let Op::SymLink { target, .. } = op {
            node.size = target.len() as u64;
            node.target = target.to_vec();
        }
        node.opens = u64::from(kind == FileKind::File);
        assert!(
            kind == FileKind::Directory || attr.ino.group() == parent.group(),
            "files stay in their directory's group"
        );
        self.compare(attr.ino, told);
        Ok(())
    }

    fn create_nameless(&mut self, parent: Ino, mode: u16, told: &Result<Answer>) -> Refused<()> {
        self.home(parent)?;
        let Ok(Answer { reply: Reply::Attr(attr), .. }) = told else { return Ok(()) };
        assert!(self.seen.insert(attr.ino), "number {:?} was given out twice", attr.ino);
        self.born(parent, None, FileKind::File, mode, attr.ino);
        let node = self.change(attr.ino);
        (node.links, node.opens) = (0, 1);
        self.compare(attr.ino, told);
        Ok(())
    }

    fn born(&mut self, parent: Ino, name: Option<&Name>, kind: FileKind, mode: u16, ino: Ino) {
        let caller = self.caller;
        let home = self.change(parent);
        home.names.extend(name.map(|name| (name.clone(), ino)));
        home.links += u32::from(kind == FileKind::Directory);
        let inherits = home.mode & 0o2000 != 0;
        let home_list = home.xattrs.get(&attribute(DEFAULT)).cloned();
        let gid = if inherits { home.gid } else { caller.1 };
        let mut node = Node::new(kind, mode & 0o7777, parent, (caller.0, gid));
        if let Some(default) = home_list.filter(|_| kind != FileKind::Link) {
            node.xattrs.insert(attribute(ACCESS), list_of(node.mode));
            if kind == FileKind::Directory {
                node.xattrs.insert(attribute(DEFAULT), default);
            }
        }
        if inherits && kind == FileKind::Directory {
            node.mode |= 0o2000;
        }
        self.nodes.insert(ino, node);
    }

    fn remove(&mut self, dir: Ino, name: &Name) {
        self.change(dir).names.retain(|(known, _)| known != name);
    }
    fn link(&mut self, ino: Ino, parent: Ino, name: &Name, told: &Result<Answer>) -> Refused<()> {
        let node = self.node(ino)?;
        if node.is_directory() {
            return Err(Kind::Permission);
        }
        if self.home(parent)?.find(name).is_some() {
            return Err(Kind::Exists);
        }
        self.change(parent).names.push((name.clone(), ino));
        self.change(ino).links += 1;
        self.compare(ino, told);
        Ok(())
    }

    /// The inode has lost a name.
    fn unnamed(&mut self, ino: Ino) {
        let node = self.change(ino);
        if !node.is_directory() && node.links > 1 {
            node.links -= 1;
            return;
        }
        if node.opens == 0 {
            self.nodes.remove(&ino);
        } else {
            node.links = 0;
            node.dead = node.is_directory();
        }
    }
    fn remove_dir(&mut self, parent: Ino, name: &Name) -> Refused<()> {
        let ino = self.found(parent, name)?;
        let node = self.node(ino)?;
        if !node.is_directory() {
            return Err(Kind::NotDirectory);
        }
        if !node.names.is_empty() {
            return Err(Kind::NotEmpty);
        }
        self.remove(parent, name);
        self.change(parent).links -= 1;
        self.unnamed(ino);
        Ok(())
    }

    fn rename(&mut self, from: (Ino, &Name), to: (Ino, &Name), no_replace: bool, whiteout: bool) -> Refused<()> {
        self.directory(from.0)?;
        let new_home = self.directory(to.0)?;
        let moved = self.found(from.0, from.1)?;
        let replaced = new_home.find(to.1);
        if no_replace && replaced.is_some() {
            return Err(Kind::Exists);
        }
        if replaced == Some(moved) {
            return Ok(());
        }
        if new_home.dead {
            return Err(Kind::NotFound);
        }
        self.may_replace(moved, to.0, replaced)?;
        let directory = self.node(moved)?.is_directory();
        if whiteout {
            let spot = self.change(from.0).names.iter_mut().find(|(known, _)| known == from.1);
            spot.expect("just seen").1 = WHITEOUT;
        } else {
            self.remove(from.0, from.1);
        }
        match replaced {
            Some(old) => {
                let spot = self.change(to.0).names.iter_mut().find(|(known, _)| known == to.1);
                spot.expect("just seen").1 = moved;
                self.unnamed(old);
            }
            None => self.change(to.0).names.push((to.1.clone(), moved)),
        }
        if directory {
            self.change(from.0).links -= 1;
            self.change(to.0).links += u32::from(replaced.is_none());
            self.change(moved).parent = to.0;
        }
        Ok(())
    }
    /// True if a rename has left a whiteout here whose number nobody has told yet.
    pub fn lacks_whiteout(&self, dir: Ino) -> bool {
        self.nodes.get(&dir).is_some_and(|node| node.names.iter().any(|(_, ino)| *ino == WHITEOUT))
    }
    /// Learns the number of a whiteout.
    pub fn learn_whiteout(&mut self, dir: Ino, attr: &Attr) {
        assert_eq!((attr.inode.kind, attr.inode.mode, attr.inode.rdev), (FileKind::Character, 0, 0));
        assert!(self.seen.insert(attr.ino), "number {:?} was given out twice", attr.ino);
        let spot = self.change(dir).names.iter_mut().find(|(_, ino)| *ino == WHITEOUT);
        spot.expect("a rename has left it").1 = attr.ino;
        let home = &self.nodes[&dir];
        let gid = if home.mode & 0o2000 != 0 { home.gid } else { self.caller.1 };
        self.nodes.insert(attr.ino, Node::new(FileKind::Character, 0, dir, (self.caller.0, gid)));
        assert_eq!(attr.ino.group(), dir.group(), "it is born in its directory's group");
        self.compare_attr(attr.ino, attr);
    }
    fn exchange(&mut self, one: (Ino, &Name), other: (Ino, &Name)) -> Refused<()> {
        self.directory(one.0)?;
        self.directory(other.0)?;
        let (first, second) = (self.found(one.0, one.1)?, self.found(other.0, other.1)?);
        if first == second {
            return Ok(());
        }
        self.may_replace(first, other.0, None)?;
        self.may_replace(second, one.0, None)?;
        for ((dir, name), (from, comes)) in [(one, (other.0, second)), (other, (one.0, first))] {
            let spot = self.change(dir).names.iter_mut().find(|(known, _)| known == name);
            spot.expect("just seen").1 = comes;
            if self.node(comes)?.is_directory() {
                self.change(from).links -= 1;
                self.change(dir).links += 1;
                self.change(comes).parent = dir;
            }
        }
        Ok(())
    }
    fn may_replace(&self, moved: Ino, home: Ino, replaced: Option<Ino>) -> Refused<()> {
        let directory = self.node(moved)?.is_directory();
        if directory && home == moved {
            return Err(Kind::Invalid);
        }
        if let Some(replaced) = replaced {
            let old = self.node(replaced)?;
            match (directory, old.is_directory()) {
                (true, false) => return Err(Kind::NotDirectory),
                (false, true) => return Err(Kind::IsDirectory),
                (true, true) if !old.names.is_empty() => return Err(Kind::NotEmpty),
                _ => {}
            }
        }
        let mut at = home;
        while directory && at != self.root {
            if at == moved {
                return Err(Kind::Invalid);
            }
            at = self.node(at)?.parent;
        }
        Ok(())
    }

    fn xattr(&mut self, op: &Op, told: &Result<Answer>) -> Refused<()> {
        match op {
            Op::SetXattr { ino, name, value, how, .. } => {
                let node = self.node(*ino)?;
                match (node.xattrs.contains_key(name), how) {
                    (true, SetHow::Create) => return Err(Kind::Exists),
                    (false, SetHow::Replace) => return Err(Kind::NoAttribute),
                    _ => {}
                }
                if *name == attribute(DEFAULT) && !node.is_directory() {
                    return Err(Kind::Permission);
                }
                let node = self.change(*ino);
                node.xattrs.insert(name.clone(), value.clone());
                if *name == attribute(ACCESS) {
                    node.mode |= 0o777;
                }
            }
            Op::RemoveXattr { ino, name } => {
                self.node(*ino)?;
                let gone = self.change(*ino).xattrs.remove(name);
                if gone.is_none() && !name.as_bytes().starts_with(b"system.") {
                    return Err(Kind::NoAttribute);
                }
            }
            Op::GetXattr { ino, name } => {
                let value = self.node(*ino)?.xattrs.get(name).cloned().ok_or(Kind::NoAttribute)?;
                assert_eq!(told.as_ref().expect("it has one").reply, Reply::Value(value));
            }
            Op::ListXattr { ino } => {
                let names = self.node(*ino)?.xattrs.keys().flat_map(|name| [name.as_bytes(), &[0]].concat());
                assert_eq!(told.as_ref().expect("it is there").reply, Reply::Names(names.collect()));
            }
            other => unreachable!("{other:?} is not about attributes"),
        }
        Ok(())
    }

    fn open(&mut self, ino: Ino, truncate: bool, told: &Result<Answer>) -> Refused<()> {
        let node = self.node(ino)?;
        if truncate && node.is_directory() {
            return Err(Kind::IsDirectory);
        }
        let cuts = truncate && node.kind == FileKind::File && node.size > 0;
        let node = self.change(ino);
        node.opens += 1;
        if cuts {
            node.xattrs.remove(&attribute("security.capability"));
            node.cut(0);
        }
        self.compare(ino, told);
        Ok(())
    }
    fn release(&mut self, ino: Ino) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        node.opens = node.opens.saturating_sub(1);
        if node.opens == 0 && node.links == 0 {
            self.nodes.remove(&ino);
        }
    }

    fn read(&self, ino: Ino, offset: u64, length: u32, told: &Result<Answer>) -> Refused<()> {
        let node = self.node(ino)?;
        if node.is_directory() {
            return Err(Kind::IsDirectory);
        }
        if let Ok(answer) = told {
            let bytes = answer.data.as_deref().unwrap_or_default();
            assert_eq!(answer.reply, Reply::Data { length: bytes.len() as u32 });
            self.compare_bytes(ino, offset, length.into(), bytes);
        }
        Ok(())
    }
    /// The bytes are those of the file.
    pub fn compare_bytes(&self, ino: Ino, offset: u64, length: u64, bytes: &[u8]) {
        let own = self.nodes[&ino].read(offset, length);
        assert_eq!(bytes.len(), own.len(), "{ino:?} at {offset}, {length} bytes wanted");
        if let Some(at) = bytes.iter().zip(&own).position(|(told, own)| told != own) {
            panic!("{ino:?}: byte {} is {}, not {}", offset + at as u64, bytes[at], own[at]);
        }
    }
    fn write(&mut self, ino: Ino, at: At, data: &[u8], kill: bool, told: &Result<Answer>) -> Refused<()> {
        let node = self.node(ino)?;
        match node.kind {
            FileKind::File => {}
            FileKind::Directory => return Err(Kind::IsDirectory),
            _ => return Err(Kind::Invalid),
        }
        if data.is_empty() || data.len() > IO_BYTES_MAX {
            return Err(Kind::Invalid);
        }
        let offset = match at {
            At::Offset(offset) => offset,
            At::End => node.size,
        };
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(Kind::TooLarge);
        }
        if let Ok(answer) = told {
            assert_eq!(answer.reply, Reply::Wrote { offset, length: data.len() as u32 });
        }
        let node = self.change(ino);
        node.write(offset, data);
        node.xattrs.remove(&attribute("security.capability"));
        if kill {
            node.kill_privileges();
        }
        Ok(())
    }
}
