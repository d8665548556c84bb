//! Limits of directory trees: all inodes of a tree get a project of their own, by which `layer` knows them. What is made in the tree
//! later belongs to the project too, and nothing of another one comes in without being copied (EXDEV).

use crate::assembly::Brick;
use base::limits::TREE_PROJECT_MIN;
use base::{Attr, Error, FileKind, Guard, Ino, Kind, Limit, Name, Op, Reply, Result, SetAttr, Tree, Volume};
use std::collections::BTreeSet;

/// Entries of a directory that are read at a time.
const ENTRIES: u32 = 256;

impl Brick {
    /// Changes limits of the tree below a directory; 0 takes one away. Goes through the tree, so that one which an attempt
    /// before left in part is whole. Durable when this returns. One change at a time. Errors: `NotFound`; `Invalid`; those
    /// of changes of attributes.
    pub fn set_tree_limits(&self, name: &str, path: &str, changed: Box<[(Limit, u64)]>) -> Result<Volume> {
        let volume = self.without_removed(self.volume(name)?)?;
        let (parent, top) = self.directory(&volume, path)?;
        let known = volume.limits.trees().find(|(_, tree)| tree.top == top.ino).map(|(project, _)| project);
        let project = known.unwrap_or_else(|| project_for(&volume, top.ino));
        // Before anything of the tree is touched.
        let wanted = volume.limits.clone().with_tree(project, top.ino, &changed)?;
        let others: BTreeSet<Ino> =
            volume.limits.trees().map(|(_, tree)| tree.top).filter(|one| *one != top.ino).collect();
        let stays = wanted.trees().any(|(one, _)| one == project);
        if stays {
            self.adopt(&volume, top.ino, (project, true), &others)?;
        }
        let change = Op::VolumeLimits { name: volume.name.clone(), tree: Some((project, top.ino)), changed };
        let volume = self.change_volume(change)?;
        self.stack(&volume).limit(&volume.limits);
        if !stays {
            // Also without a limit before: an attempt may have been cut off here.
            let Attr { inode, .. } = parent;
            self.adopt(&volume, top.ino, (inode.project, inode.guard.hands_down_project), &others)?;
            self.call(Op::SyncAll)?;
        }
        Ok(volume)
    }
    /// The limits of a volume's trees, each with its path as of the last checkpoint: blocks.
    pub fn trees(&self, volume: &Volume) -> Vec<(Option<String>, u32, Tree)> {
        let store = self.store();
        let path = |top| store::paths::find(&*store.index, volume, top).ok().flatten();
        let told = |(project, tree): (u32, &Tree)| {
            (path(tree.top).map(|path| String::from_utf8_lossy(&path).into_owned()), project, tree.clone())
        };
        volume.limits.trees().map(told).collect()
    }
    /// Takes away the limits of trees whose directory was removed: no path leads to them any more.
    fn without_removed(&self, mut volume: Volume) -> Result<Volume> {
        for (project, Tree { top, limits }) in volume.limits.clone().trees() {
            let removed = match self.attr(&volume, Op::GetAttr { ino: *top }) {
                // A client still has it open, or its kernel has yet to say that it forgot it.
                Ok(attr) => attr.inode.links == 0,
                Err(error) => is_gone(&error),
            };
            if removed {
                let changed = limits.all().map(|(limit, _)| (limit, 0)).collect();
                let (name, tree) = (volume.name.clone(), Some((project, *top)));
                volume = self.change_volume(Op::VolumeLimits { name, tree, changed })?;
            }
        }
        Ok(volume)
    }
    /// The directory at a path of a volume, after its parent.
    fn directory(&self, volume: &Volume, path: &str) -> Result<(Attr, Attr)> {
        let mut at = self.attr(volume, Op::GetAttr { ino: volume.root })?;
        let mut parent = at;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let lookup = Op::Lookup { parent: at.ino, name: Name::new(name.as_bytes())? };
            let next = self.attr(volume, lookup).map_err(|error| error.with(path))?;
            parent = std::mem::replace(&mut at, next);
        }
        if at.inode.kind != FileKind::Directory {
            return Err(Error::new(Kind::NotDirectory, "limits are of directories and what is below them").with(path));
        }
        if at.ino == volume.root {
            let why = "the root is the whole volume: `sinter volume set` limits it";
            return Err(Error::new(Kind::Invalid, why).with(path));
        }
        Ok((parent, at))
    }
    fn attr(&self, volume: &Volume, op: Op) -> Result<Attr> {
        match self.call_in(volume.id, op)? {
            Reply::Attr(attr) => Ok(attr),
            other => panic!("attributes are answered with them, not {other:?}"),
        }
    }
    /// Gives all inodes of a tree a project, which directories hand down or do not. Directories come before what is in them, so what is made
    /// meanwhile has it already. Trees within that have limits of their own, by their tops, are left out.
    fn adopt(
        &self,
        volume: &Volume,
        top: Ino,
        (project, hands_down): (u32, bool),
        others: &BTreeSet<Ino>,
    ) -> Result<()> {
        let mut directories = vec![top];
        while let Some(directory) = directories.pop() {
            self.join(volume, directory, (project, hands_down))?;
            let mut after = 0;
            loop {
                let page = Op::ReadDir { ino: directory, cookie: after, count: ENTRIES, plus: false };
                let Reply::Entries { entries, .. } = self.call_in(volume.id, page)? else {
                    panic!("a directory is answered with its entries")
                };
                let Some(last) = entries.last() else { break };
                after = last.cookie;
                for entry in entries.iter().filter(|entry| !others.contains(&entry.ino)) {
                    match entry.kind {
                        FileKind::Directory => directories.push(entry.ino),
                        _ => self.join(volume, entry.ino, (project, false))?,
                    }
                }
            }
        }
        Ok(())
    }
    fn join(&self, volume: &Volume, ino: Ino, (project, hands_down): (u32, bool)) -> Result<()> {
        let change = || {
            let Attr { inode, .. } = self.attr(volume, Op::GetAttr { ino })?;
            let guard = Guard { hands_down_project: hands_down, ..inode.guard };
            if inode.project == project && inode.guard == guard {
                return Ok(());
            }
            // What is neither a file nor a directory has no guard.
            let guard = Some(guard).filter(|guard| *guard != inode.guard);
            let set = SetAttr { guard, project: Some(project), ..SetAttr::default() };
            self.attr(volume, Op::SetAttr { ino, set: Box::new(set) }).map(drop)
        };
        match change() {
            Err(error) if is_gone(&error) => Ok(()),
            done => done,
        }
    }
}

/// True if an inode was removed.
fn is_gone(error: &Error) -> bool {
    matches!(error.kind, Kind::Stale | Kind::NotFound)
}

/// The project of a tree: each directory has its own, so what was moved out of one tree does not count for the next.
fn project_for(volume: &Volume, top: Ino) -> u32 {
    let taken: BTreeSet<u32> = volume.limits.trees().map(|(project, _)| project).collect();
    let own = ((top.0 ^ top.0 >> 30) % u64::from(TREE_PROJECT_MIN)) as u32;
    let all = (own..TREE_PROJECT_MIN).chain(0..own).map(|number| TREE_PROJECT_MIN + number);
    { all }.find(|project| !taken.contains(project)).expect("few are taken")
}
