//! Another file system, as naive as can be: paths in a sorted map. It knows nothing of groups, edits or counters;
//! links and entries are counted by looking.

use super::SplitMix;
use base::{FileKind, Ino, Kind, SetAttr, SetHow};
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Node {
    pub(super) ino: Ino,
    pub(super) kind: FileKind,
    pub(super) mode: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    pub(super) target: Option<Vec<u8>>,
    pub(super) xattrs: BTreeMap<String, Vec<u8>>,
}

pub(super) const ACCESS: &str = "system.posix_acl_access";
pub(super) const DEFAULT: &str = "system.posix_acl_default";
pub(super) const CAPABILITY: &str = "security.capability";

/// A place that a client may name as a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Home {
    Path(String),
    Orphan(Ino),
    Gone(Ino),
}

#[derive(Default)]
pub(super) struct Naive {
    /// Objects by path; the root is "".
    pub(super) tree: BTreeMap<String, Node>,
    pub(super) open: BTreeMap<Ino, u64>,
    pub(super) orphans: BTreeMap<Ino, Node>,
    pub(super) gone: Vec<Ino>,
}

/// Positions of the three classes' permissions in a list, with their shifts in a mode. Entries have eight bytes: tag,
/// permissions, id; the mask (16), where there is one, shows as the group's bits.
fn classes(list: &[u8]) -> [(usize, u32); 3] {
    let spot = |tag: u8| (4..list.len()).step_by(8).find(|at| list[*at] == tag).map(|at| at + 2);
    let all = [(spot(1), 6), (spot(16).or(spot(4)), 3), (spot(32), 0)];
    all.map(|(spot, shift)| (spot.expect("lists of this test have all classes"), shift))
}

fn mode_of(list: &[u8], mode: u16) -> u16 {
    classes(list).iter().fold(mode & 0o7000, |mode, (spot, shift)| mode | u16::from(list[*spot]) << shift)
}

fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

impl Naive {
    pub(super) fn children(&self, path: &str) -> Vec<&str> {
        let below = self.tree.keys().filter(|key| is_below(key, path));
        below.filter(|key| !key[path.len() + 1..].contains('/')).map(String::as_str).collect()
    }

    pub(super) fn links(&self, path: &str) -> u32 {
        match self.tree[path].kind {
            FileKind::Directory => {
                2 + self.children(path).iter().filter(|child| self.tree[**child].kind == FileKind::Directory).count()
                    as u32
            }
            _ => 1,
        }
    }

    pub(super) fn ino(&self, home: &Home) -> Ino {
        match home {
            Home::Path(path) => self.tree[path].ino,
            Home::Orphan(ino) | Home::Gone(ino) => *ino,
        }
    }

    pub(super) fn any_home(&self, random: &mut SplitMix) -> Home {
        let paths: Vec<&String> = self.tree.keys().filter(|path| path.matches('/').count() < 3).collect();
        let directories: Vec<&&String> =
            paths.iter().filter(|path| self.tree[**path].kind == FileKind::Directory).collect();
        match random.below(20) {
            0 => Home::Path(random.pick(&paths).to_string()),
            1 if !self.orphans.is_empty() => {
                Home::Orphan(*random.pick(&self.orphans.keys().copied().collect::<Vec<_>>()))
            }
            2 if !self.gone.is_empty() => Home::Gone(*random.pick(&self.gone)),
            _ => Home::Path(random.pick(&directories).to_string()),
        }
    }

    /// Any inode: one with a path, an orphan, or one that is gone.
    pub(super) fn any_ino(&self, random: &mut SplitMix) -> Ino {
        match self.any_home(random) {
            Home::Path(_) => self.tree[*random.pick(&self.tree.keys().collect::<Vec<_>>())].ino,
            home => self.ino(&home),
        }
    }

    /// The directory's path; None for a dead one.
    fn home(&self, home: &Home) -> Result<Option<String>, Kind> {
        let (node, path) = match home {
            Home::Path(path) => (self.tree.get(path), Some(path.clone())),
            Home::Orphan(ino) => (self.orphans.get(ino), None),
            Home::Gone(_) => return Err(Kind::Stale),
        };
        match node.expect("the driver picks what is there").kind {
            FileKind::Directory => Ok(path),
            _ => Err(Kind::NotDirectory),
        }
    }

    fn find(&self, home: &Home, name: &str) -> Result<String, Kind> {
        let path = format!("{}/{name}", self.home(home)?.ok_or(Kind::NotFound)?);
        if self.tree.contains_key(&path) { Ok(path) } else { Err(Kind::NotFound) }
    }

    pub(super) fn node(&mut self, ino: Ino) -> Result<&mut Node, Kind> {
        match self.orphans.get_mut(&ino) {
            Some(node) => Ok(node),
            None => self.tree.values_mut().find(|node| node.ino == ino).ok_or(Kind::Stale),
        }
    }

    pub(super) fn lookup(&self, home: &Home, name: &str) -> Result<Node, Kind> {
        Ok(self.tree[&self.find(home, name)?].clone())
    }

    /// Checks that the name is free; the path and what a new node there is like. Its ino is told later.
    pub(super) fn create(&self, home: &Home, name: &str, umask: u16, mut new: Node) -> Result<(String, Node), Kind> {
        let path = format!("{}/{name}", self.home(home)?.ok_or(Kind::NotFound)?);
        if self.tree.contains_key(&path) {
            return Err(Kind::Exists);
        }
        let parent = &self.tree[&path[..path.len() - name.len() - 1]];
        let directory = new.kind == FileKind::Directory;
        match parent.xattrs.get(DEFAULT) {
            _ if new.kind == FileKind::Link => {}
            None => new.mode &= !umask,
            Some(default) => {
                let mut list = default.clone();
                for (spot, shift) in classes(&list) {
                    list[spot] &= (new.mode >> shift & 7) as u8;
                }
                new.mode = mode_of(&list, new.mode);
                if list.len() > 4 + 3 * 8 {
                    new.xattrs.insert(ACCESS.into(), list);
                }
                if directory {
                    new.xattrs.insert(DEFAULT.into(), default.clone());
                }
            }
        }
        if parent.mode & 0o2000 != 0 {
            new.gid = parent.gid;
            new.mode |= if directory { 0o2000 } else { 0 };
        }
        Ok((path, new))
    }

    /// A file without a name gets one.
    pub(super) fn link_orphan(&mut self, ino: Ino, home: &Home, name: &str) -> Result<Node, Kind> {
        let path = format!("{}/{name}", self.home(home)?.ok_or(Kind::NotFound)?);
        if self.tree.contains_key(&path) {
            return Err(Kind::Exists);
        }
        let node = self.orphans.remove(&ino).expect("the driver picks what is there");
        self.tree.insert(path, node.clone());
        Ok(node)
    }

    fn bury(&mut self, path: &str) {
        let node = self.tree.remove(path).expect("is there");
        if self.open.contains_key(&node.ino) {
            self.orphans.insert(node.ino, node);
        } else {
            self.gone.push(node.ino);
        }
    }

    pub(super) fn remove(&mut self, home: &Home, name: &str, directory: bool) -> Result<(), Kind> {
        let path = self.find(home, name)?;
        match (self.tree[&path].kind == FileKind::Directory, directory) {
            (true, false) => return Err(Kind::IsDirectory),
            (false, true) => return Err(Kind::NotDirectory),
            _ => {}
        }
        if !self.children(&path).is_empty() {
            return Err(Kind::NotEmpty);
        }
        self.bury(&path);
        Ok(())
    }

    /// True if the move would put a directory below itself deeper than directly: others check that.
    pub(super) fn is_deep_loop(&self, from: (&Home, &str), to: &Home) -> bool {
        match (self.find(from.0, from.1), to) {
            (Ok(source), Home::Path(dir)) => is_below(dir, &source),
            _ => false,
        }
    }

    pub(super) fn rename(&mut self, from: (&Home, &str), to: (&Home, &str), no_replace: bool) -> Result<(), Kind> {
        self.home(from.0)?;
        let dir = self.home(to.0)?;
        let source = self.find(from.0, from.1)?;
        let target = format!("{}/{}", dir.as_deref().unwrap_or("?"), to.1);
        let old = self.tree.get(&target);
        if old.is_some() && no_replace {
            return Err(Kind::Exists);
        }
        if source == target {
            return Ok(());
        }
        if dir.ok_or(Kind::NotFound)? == source {
            return Err(Kind::Invalid);
        }
        let is_directory = self.tree[&source].kind == FileKind::Directory;
        if let Some(old) = old {
            match (is_directory, old.kind == FileKind::Directory) {
                (true, false) => return Err(Kind::NotDirectory),
                (false, true) => return Err(Kind::IsDirectory),
                _ => {}
            }
            if !self.children(&target).is_empty() {
                return Err(Kind::NotEmpty);
            }
            self.bury(&target);
        }
        let moved: Vec<String> =
            self.tree.keys().filter(|path| **path == source || is_below(path, &source)).cloned().collect();
        for path in moved {
            let node = self.tree.remove(&path).expect("just listed");
            self.tree.insert(format!("{target}{}", &path[source.len()..]), node);
        }
        Ok(())
    }

    pub(super) fn set(&mut self, ino: Ino, set: &SetAttr) -> Result<Node, Kind> {
        let node = self.node(ino)?;
        if let Some(size) = set.size {
            match node.kind {
                FileKind::File if size > 16 << 40 => return Err(Kind::TooLarge),
                FileKind::File => node.size = size,
                FileKind::Directory => return Err(Kind::IsDirectory),
                _ => return Err(Kind::Invalid),
            }
        }
        node.mode = set.mode.unwrap_or(node.mode) & 0o7777;
        if let Some(list) = node.xattrs.get_mut(ACCESS).filter(|_| set.mode.is_some()) {
            for (spot, shift) in classes(list) {
                list[spot] = (node.mode >> shift & 7) as u8;
            }
        }
        let moves = set.size.is_some() || set.uid.is_some() || set.gid.is_some() || set.kill_privileges;
        if moves && node.kind != FileKind::Directory {
            node.xattrs.remove(CAPABILITY);
        }
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
        if set.kill_privileges && node.kind != FileKind::Directory {
            node.mode &= if node.mode & 0o010 == 0 { 0o3777 } else { 0o1777 };
        }
        Ok(node.clone())
    }

    pub(super) fn set_xattr(&mut self, ino: Ino, name: &str, value: &[u8], how: SetHow) -> Result<(), Kind> {
        let node = self.node(ino)?;
        match (node.xattrs.contains_key(name), how) {
            (true, SetHow::Create) => return Err(Kind::Exists),
            (false, SetHow::Replace) => return Err(Kind::NoAttribute),
            _ => {}
        }
        let list = name == ACCESS || name == DEFAULT;
        let empty = list && value.len() == 4;
        if name == DEFAULT && !empty && node.kind != FileKind::Directory {
            return Err(Kind::Permission);
        }
        if name == ACCESS && !empty {
            node.mode = mode_of(value, node.mode);
        }
        match empty || name == ACCESS && value.len() == 4 + 3 * 8 {
            true => node.xattrs.remove(name),
            false => node.xattrs.insert(name.into(), value.into()),
        };
        Ok(())
    }

    pub(super) fn remove_xattr(&mut self, ino: Ino, name: &str) -> Result<(), Kind> {
        let gone = self.node(ino)?.xattrs.remove(name);
        if gone.is_some() || name == ACCESS || name == DEFAULT { Ok(()) } else { Err(Kind::NoAttribute) }
    }

    pub(super) fn open(&mut self, ino: Ino, truncate: bool) -> Result<(), Kind> {
        let node = self.node(ino)?;
        match node.kind {
            FileKind::Directory if truncate => return Err(Kind::IsDirectory),
            FileKind::File if truncate && node.size > 0 => {
                node.size = 0;
                node.xattrs.remove(CAPABILITY);
            }
            _ => {}
        }
        *self.open.entry(ino).or_default() += 1;
        Ok(())
    }

    pub(super) fn release(&mut self, ino: Ino) {
        let count = self.open.get_mut(&ino).expect("is open");
        *count -= 1;
        if *count == 0 {
            self.open.remove(&ino);
            if self.orphans.remove(&ino).is_some() {
                self.gone.push(ino);
            }
        }
    }
}
