//! Random operations: the world decides and applies, the naive file system does the same; they must agree.

use super::SplitMix;
use super::naive::{ACCESS, CAPABILITY, DEFAULT, Home, Naive, Node};
use super::world::{Numbers, World};
use crate::{Caller, Decision, Stop};
use base::{Attr, Edit, FileKind, Ino, Inode, Kind, Name, Op, Outcome, Reply, SetAttr, SetHow, SetTime, Time};
use std::collections::BTreeMap;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const GROUPS: u32 = 5;

struct Pair {
    random: SplitMix,
    world: World,
    naive: Naive,
    caller: Caller,
    multi_group: u64,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a good name")
}

fn node_of(attr: Attr) -> Node {
    let Attr { ino, inode, .. } = attr;
    let Inode { kind, mode, uid, gid, size, .. } = inode;
    Node { ino, kind, mode, uid, gid, size, target: None, xattrs: BTreeMap::new() }
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let (world, root) = World::new(GROUPS);
        let caller = Caller { volume: world.volume, uid: 0, gid: 0, umask: 0 };
        let mut naive = Naive::default();
        let attr = Attr::new(root, *world.inode(root).expect("the root"));
        naive.tree.insert(String::new(), node_of(attr));
        Pair { random: SplitMix(seed), world, naive, caller, multi_group: 0 }
    }

    /// Decides twice (all in sight; by needs), checks that both agree and take only the numbers that they use, and
    /// applies, sometimes with a crash between the groups.
    fn run(&mut self, op: &Op) -> Result<Reply, Kind> {
        let before = self.world.numbers;
        let whole = self.world.decide(op, &self.caller);
        let after = std::mem::replace(&mut self.world.numbers, before);
        let (piecewise, _) = self.world.decide_by_needs(op, &self.caller);
        assert_eq!(whole, piecewise, "{op:?}");
        assert_eq!(self.world.numbers, after);
        let decision = match whole {
            Ok(decision) => decision,
            Err(Stop::Error(error)) => {
                assert_eq!(before, after, "an error wasted a number: {op:?}");
                return Err(error.kind);
            }
            Err(Stop::Need(need)) => panic!("{need:?} though all is in sight"),
        };
        self.check_numbers(before, &decision);
        if decision.parts.len() > 1 {
            self.multi_group += 1;
        }
        match self.random.below(2) {
            0 if !decision.parts.is_empty() => {
                let kept = 1 + self.random.below(decision.parts.len() as u64) as usize;
                self.world.apply_crashed(&decision.parts, kept);
            }
            _ => self.world.apply_all(&decision.parts),
        }
        self.check_reply(&decision);
        Ok(decision.reply)
    }

    fn check_numbers(&self, before: Numbers, decision: &Decision) {
        let used = |counts: fn(&Edit, &Numbers) -> bool| {
            decision.parts.iter().flat_map(|part| &part.edits).filter(|edit| counts(edit, &before)).count() as u64
        };
        let after = self.world.numbers;
        let inos = used(|edit, before| matches!(edit, Edit::InodePut { ino, .. } if ino.sequence() > before.inos));
        let cookies = used(|edit, before| matches!(edit, Edit::EntryPut { cookie, .. } if *cookie > before.cookies));
        let intents = used(|edit, _| matches!(edit, Edit::IntentPut(_)));
        assert_eq!(after.inos - before.inos, inos);
        assert_eq!(after.cookies - before.cookies, cookies);
        assert_eq!(after.intents - before.intents, intents);
        assert_eq!(intents, u64::from(decision.parts.len() > 1), "several groups are joined by one intent");
    }

    /// The reply shows the state after the edits.
    fn check_reply(&self, decision: &Decision) {
        if let Reply::Attr(Attr { ino, inode, .. }) = decision.reply {
            assert_eq!(self.world.inode(ino), Some(&inode));
            assert_eq!(decision.outcome, Outcome::Inode(ino));
        }
    }

    fn step(&mut self) {
        // The clock goes on, stands still, or goes back: times tick all the same.
        self.world.clock = match self.random.below(10) {
            0 => self.world.clock - 50,
            1..=3 => self.world.clock,
            _ => self.world.clock + 10,
        };
        self.caller.uid = self.random.below(3) as u32;
        self.caller.gid = self.random.below(3) as u32;
        self.caller.umask = *self.random.pick(&[0, 0o22, 0o77]);
        let home = self.naive.any_home(&mut self.random);
        let text = *self.random.pick(&NAMES);
        match self.random.below(100) {
            0..5 => self.lookup(&home, text),
            5..29 => self.create(&home, text),
            29..36 => self.xattr(),
            36..38 => self.nameless(&home, text),
            38..47 => self.set(),
            47..50 => self.read_by_number(),
            50..62 => self.remove(&home, text, false),
            62..69 => self.remove(&home, text, true),
            69..88 => self.rename(&home, text),
            88..94 => self.open(),
            _ => self.release(),
        }
    }

    fn lookup(&mut self, home: &Home, text: &str) {
        let got = self.run(&Op::Lookup { parent: self.naive.ino(home), name: name(text) });
        let wanted = self.naive.lookup(home, text);
        assert_eq!(self.seen(got), wanted);
    }

    /// A reply's attributes as the naive file system knows them.
    fn seen(&self, reply: Result<Reply, Kind>) -> Result<Node, Kind> {
        match reply? {
            Reply::Attr(attr) => Ok(self.with_target(attr)),
            other => panic!("not attributes: {other:?}"),
        }
    }

    fn with_target(&self, attr: Attr) -> Node {
        let target = self.world.targets.get(&(self.world.volume, attr.ino)).map(|target| target.to_vec());
        let xattrs = self.world.xattrs.get(&(self.world.volume, attr.ino)).into_iter().flatten();
        let text = |name: &Name| String::from_utf8_lossy(name.as_bytes()).into_owned();
        let xattrs = xattrs.map(|(name, value)| (text(name), value.to_vec())).collect();
        Node { target, xattrs, ..node_of(attr) }
    }

    fn create(&mut self, home: &Home, text: &str) {
        let (parent, name, mode) = (self.naive.ino(home), name(text), self.random.below(0o10000) as u16);
        let exclusive = self.random.chance(50);
        let (op, kind, target) = match self.random.below(6) {
            0..3 => (Op::Create { parent, name, mode, exclusive }, FileKind::File, None),
            3..5 => (Op::MakeDir { parent, name, mode }, FileKind::Directory, None),
            _ => {
                let target = vec![b'x'; 1 + self.random.below(20) as usize];
                (Op::SymLink { parent, name, target: target.clone().into() }, FileKind::Link, Some(target))
            }
        };
        let size = target.as_ref().map_or(0, |target| target.len() as u64);
        let mode = if kind == FileKind::Link { 0o777 } else { mode };
        let new = Node {
            ino: Ino(0),
            kind,
            mode,
            uid: self.caller.uid,
            gid: self.caller.gid,
            size,
            target,
            xattrs: BTreeMap::new(),
        };
        let got = self.run(&op);
        let got = self.seen(got);
        match self.naive.create(home, text, self.caller.umask, new) {
            Ok((path, mut node)) => {
                let got = got.expect("the name was free");
                node.ino = got.ino;
                assert_eq!(got, node);
                assert!(
                    self.naive.tree.values().all(|old| old.ino != node.ino) && !self.naive.gone.contains(&node.ino)
                );
                self.naive.tree.insert(path, node);
            }
            Err(Kind::Exists) if matches!(op, Op::Create { exclusive: false, .. }) => {
                let old = self.naive.lookup(home, text).expect("the name is taken");
                let wanted = if old.kind == FileKind::Directory { Err(Kind::IsDirectory) } else { Ok(old) };
                assert_eq!(got, wanted);
            }
            Err(kind) => assert_eq!(got, Err(kind)),
        }
    }

    fn set(&mut self) {
        let ino = self.naive.any_ino(&mut self.random);
        let random = &mut self.random;
        let clock = self.world.clock;
        let mut maybe = |bound: u64| random.chance(30).then(|| random.below(bound));
        let time =
            |wish: Option<u64>| wish.map(|n| if n < 50 { SetTime::Now } else { SetTime::To(Time(n as i64 - 100)) });
        let set = SetAttr {
            mode: maybe(0o10000).map(|mode| mode as u16),
            uid: maybe(3).map(|uid| uid as u32),
            gid: maybe(3).map(|gid| gid as u32),
            size: maybe(3).map(|n| [0, 4096, (16 << 40) + 1][n as usize]),
            atime: time(maybe(200)),
            mtime: time(maybe(200)),
            ctime: maybe(2000).map(|n| Time(n as i64)),
            guard: None,
            project: maybe(3).map(|project| project as u32),
            kill_privileges: maybe(2) == Some(1),
        };
        let old = self.world.inode(ino).copied();
        let got = self.run(&Op::SetAttr { ino, set: set.into() });
        let wanted = self.naive.set(ino, &set);
        assert_eq!(self.seen(got), wanted);
        if let (Some(old), true) = (old, wanted.is_ok()) {
            self.check_times(&old, self.world.inode(ino).expect("still there"), &set, clock);
        }
    }

    fn check_times(&self, old: &Inode, new: &Inode, set: &SetAttr, clock: i64) {
        let resized = new.size != old.size;
        assert_eq!(new.trim, old.trim + u64::from(resized), "a cut counts (rule M4)");
        match set.mtime {
            Some(SetTime::Now) => assert_eq!(new.mtime, Time(clock)),
            Some(SetTime::To(time)) => assert_eq!(new.mtime, time),
            None if resized => assert!(new.mtime >= old.mtime && new.mtime > old.ctime),
            None => assert_eq!(new.mtime, old.mtime),
        }
        assert!(new.ctime > old.ctime, "the change time never stands still");
    }

    /// A list of permissions: with a user of its own and a mask, or as plain as a mode; or an empty one.
    fn list(&mut self) -> Vec<u8> {
        let masked = self.random.chance(60);
        let tags: &[u8] = if self.random.chance(10) {
            &[]
        } else if masked {
            &[1, 2, 4, 16, 32]
        } else {
            &[1, 4, 32]
        };
        let mut list = vec![2, 0, 0, 0];
        for &tag in tags {
            let id: u32 = if tag == 2 { 1000 } else { u32::MAX };
            list.extend_from_slice(&[tag, 0, self.random.below(8) as u8, 0]);
            list.extend_from_slice(&id.to_le_bytes());
        }
        list
    }

    fn xattr(&mut self) {
        let ino = self.naive.any_ino(&mut self.random);
        let text = *self.random.pick(&["user.a", "user.b", CAPABILITY, ACCESS, DEFAULT, DEFAULT]);
        let name = Name::of_attribute(text.as_bytes()).expect("a good name");
        match self.random.below(8) {
            0..4 => {
                let list = text == ACCESS || text == DEFAULT;
                let value = if list { self.list() } else { vec![b'v'; self.random.below(9) as usize] };
                let how = *self.random.pick(&[SetHow::Any, SetHow::Any, SetHow::Create, SetHow::Replace]);
                let op = Op::SetXattr { ino, name, value: value.clone().into(), how, kill_setgid: false };
                let got = self.run(&op);
                let wanted = self.naive.set_xattr(ino, text, &value, how);
                assert_eq!(got, wanted.map(|()| Reply::Done), "{op:?}");
            }
            4..6 => {
                let got = self.run(&Op::RemoveXattr { ino, name });
                assert_eq!(got, self.naive.remove_xattr(ino, text).map(|()| Reply::Done));
            }
            6 => {
                let got = self.run(&Op::GetXattr { ino, name });
                let node = self.naive.node(ino).cloned();
                let wanted = node.and_then(|node| node.xattrs.get(text).cloned().ok_or(Kind::NoAttribute));
                assert_eq!(got, wanted.map(|value| Reply::Value(value.into())));
            }
            _ => {
                let got = self.run(&Op::ListXattr { ino });
                let names = |node: Node| node.xattrs.keys().flat_map(|name| [name.as_bytes(), &[0]].concat()).collect();
                assert_eq!(got, self.naive.node(ino).cloned().map(|node| Reply::Names(names(node))));
            }
        }
        if let (Ok(_), Some(inode)) = (self.naive.node(ino), self.world.inode(ino)) {
            let attr = Attr::new(ino, *inode);
            assert_eq!(self.with_target(attr), *self.naive.node(ino).expect("just seen"));
        }
    }

    fn read_by_number(&mut self) {
        let ino = self.naive.any_ino(&mut self.random);
        let got = self.run(&Op::GetAttr { ino });
        let wanted = self.naive.node(ino).cloned();
        assert_eq!(self.seen(got), wanted);
        let got = self.run(&Op::ReadLink { ino });
        let wanted = match self.naive.node(ino) {
            Ok(node) => node.target.clone().ok_or(Kind::Invalid),
            Err(kind) => Err(kind),
        };
        assert_eq!(got, wanted.map(|target| Reply::Target(target.into())));
    }

    fn remove(&mut self, home: &Home, text: &str, directory: bool) {
        let (parent, name) = (self.naive.ino(home), name(text));
        let op = if directory { Op::RemoveDir { parent, name } } else { Op::Unlink { parent, name } };
        let got = self.run(&op);
        assert_eq!(got, self.naive.remove(home, text, directory).map(|()| Reply::Done));
    }

    fn rename(&mut self, home: &Home, text: &str) {
        let other = if self.random.chance(25) { home.clone() } else { self.naive.any_home(&mut self.random) };
        let new = *self.random.pick(&NAMES);
        if self.naive.is_deep_loop((home, text), &other) {
            return;
        }
        let (no_replace, whiteout) = (self.random.chance(10), self.random.chance(20));
        let op = Op::Rename {
            parent: self.naive.ino(home),
            name: name(text),
            new_parent: self.naive.ino(&other),
            new_name: name(new),
            no_replace,
            whiteout,
        };
        let got = self.run(&op);
        let wanted = self.naive.rename((home, text), (&other, new), no_replace);
        assert_eq!(got, wanted.map(|()| Reply::Done), "{op:?}");
        if let (true, Ok(()), Home::Path(dir)) = (whiteout, wanted, home)
            && !self.naive.tree.contains_key(&format!("{dir}/{text}"))
        {
            self.learn_whiteout(dir, text);
        }
    }

    /// A rename has left a whiteout in place of what it moved.
    fn learn_whiteout(&mut self, dir: &str, text: &str) {
        let home = &self.naive.tree[dir];
        let left = self.world.entries_of(home.ino).find(|(found, _)| **found == name(text)).map(|(_, entry)| entry.ino);
        let ino = left.expect("the old name is still there");
        assert_eq!((ino.group(), self.world.inode(ino).map(|inode| inode.rdev)), (home.ino.group(), Some(0)));
        let Caller { uid, gid, .. } = self.caller;
        let gid = if home.mode & 0o2000 != 0 { home.gid } else { gid };
        let xattrs = BTreeMap::new();
        let node = Node { ino, kind: FileKind::Character, mode: 0, uid, gid, size: 0, target: None, xattrs };
        self.naive.tree.insert(format!("{dir}/{text}"), node);
    }

    /// A file without a name, or a name for one.
    fn nameless(&mut self, home: &Home, text: &str) {
        let orphans = self.naive.orphans.values().filter(|node| node.kind == FileKind::File);
        let orphans: Vec<Ino> = orphans.map(|node| node.ino).collect();
        if self.random.chance(50) && !orphans.is_empty() {
            let ino = *self.random.pick(&orphans);
            let got = self.run(&Op::Link { ino, new_parent: self.naive.ino(home), new_name: name(text) });
            assert_eq!(self.seen(got), self.naive.link_orphan(ino, home, text));
            return;
        }
        let (parent, mode) = (self.naive.ino(home), self.random.below(0o10000) as u16);
        let got = self.run(&Op::TempFile { parent, mode });
        let Caller { uid, gid, umask, .. } = self.caller;
        let xattrs = BTreeMap::new();
        let new = Node { ino: Ino(0), kind: FileKind::File, mode, uid, gid, size: 0, target: None, xattrs };
        // The naive file system knows only names: one that nobody has.
        let wanted = self.naive.create(home, "nameless", umask, new).map(|(_, node)| node);
        let got = self.seen(got);
        assert_eq!(got.as_ref().err(), wanted.as_ref().err());
        if let (Ok(node), Ok(wanted)) = (got, wanted) {
            assert_eq!(node, Node { ino: node.ino, ..wanted });
            for open in [&mut self.world.opens, &mut self.naive.open] {
                open.insert(node.ino, 1);
            }
            self.naive.orphans.insert(node.ino, node);
        }
    }

    fn open(&mut self) {
        let ino = self.naive.any_ino(&mut self.random);
        let truncate = self.random.chance(30);
        let got = self.run(&Op::Open { ino, truncate });
        let wanted = self.naive.open(ino, truncate);
        assert_eq!(got.as_ref().err(), wanted.as_ref().err());
        if wanted.is_ok() {
            *self.world.opens.entry(ino).or_default() += 1;
        }
    }

    fn release(&mut self) {
        let open: Vec<Ino> = self.naive.open.keys().copied().collect();
        if !open.is_empty() {
            let ino = *self.random.pick(&open);
            self.world.release(ino);
            self.naive.release(ino);
        }
    }

    /// The whole tree: same nodes, right counters and parents; nothing beside it but open orphans.
    fn compare(&self) {
        let mut todo = vec![(String::new(), self.naive.tree[""].ino)];
        let mut seen = 0;
        while let Some((path, ino)) = todo.pop() {
            seen += 1;
            let inode = self.world.inode(ino).expect("no dangling entries");
            assert_eq!(self.with_target(Attr::new(ino, *inode)), self.naive.tree[&path]);
            assert_eq!(inode.links, self.naive.links(&path), "links of {path}");
            assert_eq!(inode.xattrs.are_stored(), !self.naive.tree[&path].xattrs.is_empty(), "attributes of {path}");
            let children: Vec<_> = self.world.entries_of(ino).collect();
            assert_eq!(inode.entries, children.len() as u64, "entries of {path}");
            for (name, entry) in children {
                let child = self.world.inode(entry.ino).expect("no dangling entries");
                assert_eq!(child.kind, entry.kind);
                assert!(!child.is_directory() || child.parent == ino, "the parent of {path}/{name:?}");
                todo.push((format!("{path}/{}", String::from_utf8_lossy(name.as_bytes())), entry.ino));
            }
        }
        assert_eq!(seen, self.naive.tree.len());
        let orphans: Vec<Ino> = self.world.orphans.iter().map(|(_, ino)| *ino).collect();
        assert_eq!(orphans, self.naive.orphans.keys().copied().collect::<Vec<_>>());
        assert!(orphans.iter().all(|ino| self.world.inode(*ino).is_some_and(|inode| inode.links == 0)));
        assert_eq!(self.world.inodes.len(), seen + orphans.len(), "no leaked inodes");
        assert_eq!(self.world.entries.len(), self.world.cookies.len());
        let links = self.world.inodes.values().filter(|inode| inode.kind == FileKind::Link).count();
        assert_eq!(self.world.targets.len(), links, "no leaked targets");
        let attributed = self.world.inodes.values().filter(|inode| inode.xattrs.are_stored()).count();
        assert_eq!(self.world.xattrs.len(), attributed, "no leaked attributes");
    }
}

/// 8 x 20,000 operations on small trees: every pair of cases meets often.
#[test]
pub fn agrees_with_a_naive_file_system() {
    for seed in 0..8 {
        let mut pair = Pair::new(seed);
        for count in 0..20_000 {
            pair.step();
            if count % 200 == 0 {
                pair.compare();
            }
        }
        pair.compare();
        assert!(pair.multi_group > 1000, "several groups took part in {}", pair.multi_group);
        while let Some(ino) = pair.naive.open.keys().next().copied() {
            pair.world.release(ino);
            pair.naive.release(ino);
        }
        pair.compare();
        assert!(pair.world.orphans.is_empty() && pair.world.opens.is_empty());
    }
}
