//! A file tree in memory that answers operations as the stack would: what the front is tested with.

use base::limits::BULK_BYTES_MIN;
use base::{At, Attr, DirEntry, Error, FileKind, GroupId, Ino, Inode, Kind, Name, Op, Reply, Result};
use base::{SetAttr, SetTime, StatFs, Sync, Time, Xattrs};
use front::fuse::Target;
use layer::{Answer, Call, Context};
use runtime::{Buf, Runtime, Slice};
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub struct Node {
    pub inode: Inode,
    pub data: Vec<u8>,
    pub entries: BTreeMap<u64, (Name, Ino)>,
    pub names: HashMap<Vec<u8>, u64>,
    pub target: Box<[u8]>,
    pub xattrs: Xattrs,
    pub opens: i64,
}

pub struct Tree {
    pub nodes: HashMap<u64, Node>,
    next: u64,
}

/// The tree, with a log of what writes and fsyncs asked for.
pub struct Memory {
    pub runtime: Runtime,
    pub tree: Mutex<Tree>,
    pub syncs: Mutex<Vec<(&'static str, Sync)>>,
    /// Keeps fsyncs from ending while it is set.
    pub syncs_hang: AtomicBool,
    pub requests: Mutex<Vec<u64>>,
    /// A flag for each read of a file or a directory: true if it leaves the access time alone.
    pub quiet: Mutex<Vec<bool>>,
    pub misaligned: AtomicU64,
    /// The cores on which large requests were handled.
    pub bulk_cores: Mutex<Vec<usize>>,
    calls: AtomicU64,
}

pub fn root() -> Ino {
    Ino::new(1, GroupId(3))
}

fn error<T>(kind: Kind) -> Result<T> {
    Err(Error::new(kind, "the tree in memory says so"))
}

impl Memory {
    pub fn new(runtime: &Runtime) -> Memory {
        let mut tree = Tree { nodes: HashMap::new(), next: 1 };
        tree.add(FileKind::Directory, 0o755, root(), (0, 0), runtime.clock.wall());
        assert!(tree.nodes.contains_key(&root().0));
        Memory {
            runtime: runtime.clone(),
            tree: Mutex::new(tree),
            syncs: Mutex::default(),
            syncs_hang: AtomicBool::new(false),
            requests: Mutex::default(),
            quiet: Mutex::default(),
            misaligned: AtomicU64::new(0),
            bulk_cores: Mutex::default(),
            calls: AtomicU64::new(0),
        }
    }
    pub fn opens(&self) -> i64 {
        self.tree.lock().expect("no panic").nodes.values().map(|node| node.opens).sum()
    }
    pub fn take_syncs(&self) -> Vec<(&'static str, Sync)> {
        std::mem::take(&mut *self.syncs.lock().expect("no panic"))
    }
    fn read(&self, ino: Ino, offset: u64, length: u32, room: Option<Buf>) -> Result<Answer> {
        let tree = self.tree.lock().expect("no panic");
        let data = &tree.node(ino)?.data;
        let start = data.len().min(offset as usize);
        let end = data.len().min(start + length as usize);
        // Into the reader's memory, now at its begin, now elsewhere in it; or not at all.
        let skip = match (self.calls.load(Ordering::Relaxed) % 3, &room) {
            (0, Some(room)) if end - start + 512 <= room.capacity() => 512,
            _ => 0,
        };
        let mut buffer = match room {
            Some(mut room) if !self.calls.load(Ordering::Relaxed).is_multiple_of(5) => {
                room.set_len(skip + end - start);
                room
            }
            _ => self.runtime.buffer(skip + end - start)?,
        };
        buffer[skip..].copy_from_slice(&data[start..end]);
        let slice: Slice = buffer.share().slice(skip..skip + end - start);
        Ok(Answer { reply: Reply::Data { length: (end - start) as u32 }, data: Some(slice), position: None })
    }
    fn write(&self, ino: Ino, at: At, data: &Buf, now: Time) -> Result<Reply> {
        if data.len() >= 4096 && !(data.as_ptr() as usize).is_multiple_of(4096) {
            self.misaligned.fetch_add(1, Ordering::Relaxed);
        }
        let mut tree = self.tree.lock().expect("no panic");
        let node = tree.node_mut(ino)?;
        let offset = match at {
            At::Offset(offset) => offset as usize,
            At::End => node.data.len(),
        };
        let end = offset + data.len();
        node.data.resize(node.data.len().max(end), 0);
        node.data[offset..end].copy_from_slice(data);
        node.inode.size = node.data.len() as u64;
        node.inode.mtime = now;
        Ok(Reply::Wrote { offset: offset as u64, length: data.len() as u32 })
    }
}

impl Target for Memory {
    async fn call(&self, context: &Context, call: Call) -> Result<Answer> {
        let now = self.runtime.clock.wall();
        // Some calls answer at once, some after others have run, some after a time.
        match self.calls.fetch_add(1, Ordering::Relaxed) % 7 {
            0 => self.runtime.clock.sleep(50_000).await,
            1 | 2 => runtime::tasks::yield_now().await,
            _ => (),
        }
        if call.data.as_ref().is_some_and(|data| data.capacity() >= BULK_BYTES_MIN) {
            self.bulk_cores.lock().expect("no panic").push(self.runtime.tasks.core());
        }
        if call.op.mutates() {
            self.requests.lock().expect("no panic").push(context.request.0);
        }
        if matches!(call.op, Op::Read { .. } | Op::ReadDir { .. }) {
            self.quiet.lock().expect("no panic").push(context.noatime);
        }
        let reply = match call.op {
            Op::Read { ino, offset, length } => return self.read(ino, offset, length, call.data),
            Op::Write { ino, at, sync, kill_privileges } => {
                self.syncs.lock().expect("no panic").push(("write", sync));
                if kill_privileges {
                    self.tree.lock().expect("no panic").node_mut(ino)?.inode.mode &= !0o6000;
                }
                self.write(ino, at, &call.data.expect("a write has a payload"), now)
            }
            Op::Fsync { sync, .. } => {
                self.syncs.lock().expect("no panic").push(("fsync", sync));
                while self.syncs_hang.load(Ordering::Relaxed) {
                    self.runtime.clock.sleep(1_000_000).await;
                }
                Ok(Reply::Done)
            }
            op => self.tree.lock().expect("no panic").answer(context, op, now),
        };
        Ok(Answer { reply: reply?, data: None, position: None })
    }
}

impl Tree {
    /// A file in the root.
    pub fn file(&mut self, name: &[u8], data: &[u8]) {
        let ino = self.add(FileKind::File, 0o644, root(), (0, 0), Time(0));
        self.link(root(), Name::new(name).expect("a name"), ino).expect("the root is there");
        let node = self.node_mut(ino).expect("just made");
        (node.data, node.inode.size) = (data.to_vec(), data.len() as u64);
    }
    fn node(&self, ino: Ino) -> Result<&Node> {
        self.nodes.get(&ino.0).map_or_else(|| error(Kind::NotFound), Ok)
    }
    fn node_mut(&mut self, ino: Ino) -> Result<&mut Node> {
        self.nodes.get_mut(&ino.0).map_or_else(|| error(Kind::NotFound), Ok)
    }
    fn attr(&self, ino: Ino) -> Result<Reply> {
        Ok(Reply::Attr(Attr::new(ino, self.node(ino)?.inode)))
    }
    fn find(&self, parent: Ino, name: &Name) -> Result<(u64, Ino)> {
        let node = self.node(parent)?;
        let cookie = *node.names.get(name.as_bytes()).map_or_else(|| error(Kind::NotFound), Ok)?;
        Ok((cookie, node.entries[&cookie].1))
    }
    fn add(&mut self, kind: FileKind, mode: u16, parent: Ino, owner: (u32, u32), now: Time) -> Ino {
        let ino = Ino::new(self.next, GroupId(3));
        self.next += 1;
        let links = if kind == FileKind::Directory { 2 } else { 1 };
        let (uid, gid) = owner;
        let inode = Inode { mode, uid, gid, links, generation: 1, ..Inode::blank(kind, ino, parent, now) };
        let (entries, names) = (BTreeMap::new(), HashMap::new());
        let (data, target, xattrs) = (Vec::new(), Box::default(), Xattrs::new());
        self.nodes.insert(ino.0, Node { inode, data, entries, names, target, xattrs, opens: 0 });
        ino
    }
    fn link(&mut self, parent: Ino, name: Name, ino: Ino) -> Result<()> {
        let cookie = 3 + self.next;
        self.next += 1;
        let node = self.node_mut(parent)?;
        node.entries.insert(cookie, (name.clone(), ino));
        node.names.insert(name.as_bytes().to_vec(), cookie);
        Ok(())
    }
    fn unlink(&mut self, parent: Ino, name: &Name) -> Result<()> {
        let (cookie, ino) = self.find(parent, name)?;
        let node = self.node_mut(parent)?;
        node.entries.remove(&cookie);
        node.names.remove(name.as_bytes());
        let inode = &mut self.node_mut(ino)?.inode;
        inode.links = if inode.is_directory() { 0 } else { inode.links - 1 };
        self.drop_unused(ino);
        Ok(())
    }
    fn drop_unused(&mut self, ino: Ino) {
        if self.nodes.get(&ino.0).is_some_and(|node| node.inode.links == 0 && node.opens == 0) {
            self.nodes.remove(&ino.0);
        }
    }
    fn answer(&mut self, context: &Context, op: Op, now: Time) -> Result<Reply> {
        let owner = (context.uid, context.gid);
        match op {
            Op::Lookup { parent, name } => self.find(parent, &name).and_then(|(_, ino)| self.attr(ino)),
            Op::GetAttr { ino } | Op::Recall { ino } => self.attr(ino),
            Op::SetAttr { ino, set } => self.set_attr(ino, *set, now),
            Op::ReadLink { ino } => Ok(Reply::Target(self.node(ino)?.target.clone())),
            Op::Create { parent, name, mode, exclusive } => {
                let ino = match self.find(parent, &name) {
                    Ok(_) if exclusive => return error(Kind::Exists),
                    Ok((_, ino)) => ino,
                    Err(_) => {
                        let ino = self.add(FileKind::File, mode & !context.umask, parent, owner, now);
                        self.link(parent, name, ino)?;
                        ino
                    }
                };
                self.node_mut(ino)?.opens += 1;
                self.attr(ino)
            }
            Op::MakeDir { parent, name, mode } => {
                let ino = self.add(FileKind::Directory, mode & !context.umask, parent, owner, now);
                self.link(parent, name, ino)?;
                self.attr(ino)
            }
            Op::MakeNode { parent, name, kind, mode, rdev } => {
                let ino = self.add(kind, mode & !context.umask, parent, owner, now);
                self.node_mut(ino)?.inode.rdev = rdev;
                self.link(parent, name, ino)?;
                self.attr(ino)
            }
            Op::TempFile { parent, mode } => {
                let ino = self.add(FileKind::File, mode & !context.umask, parent, owner, now);
                let node = self.node_mut(ino)?;
                (node.inode.links, node.opens) = (0, 1);
                self.attr(ino)
            }
            Op::Link { ino, new_parent, new_name } => {
                self.node_mut(ino)?.inode.links += 1;
                self.link(new_parent, new_name, ino)?;
                self.attr(ino)
            }
            Op::SymLink { parent, name, target } => {
                let ino = self.add(FileKind::Link, 0o777, parent, owner, now);
                self.node_mut(ino)?.inode.size = target.len() as u64;
                self.node_mut(ino)?.target = target;
                self.link(parent, name, ino)?;
                self.attr(ino)
            }
            op => self.answer_more(op),
        }
    }
    fn answer_more(&mut self, op: Op) -> Result<Reply> {
        match op {
            Op::Unlink { parent, name } => self.unlink(parent, &name).map(|()| Reply::Done),
            Op::RemoveDir { parent, name } => {
                let (_, ino) = self.find(parent, &name)?;
                if !self.node(ino)?.entries.is_empty() {
                    return error(Kind::NotEmpty);
                }
                self.unlink(parent, &name).map(|()| Reply::Done)
            }
            Op::Rename { parent, name, new_parent, new_name, no_replace, whiteout } => {
                let (cookie, ino) = self.find(parent, &name)?;
                if self.find(new_parent, &new_name).is_ok() {
                    if no_replace {
                        return error(Kind::Exists);
                    }
                    self.unlink(new_parent, &new_name)?;
                }
                let node = self.node_mut(parent)?;
                node.entries.remove(&cookie);
                node.names.remove(name.as_bytes());
                self.link(new_parent, new_name, ino)?;
                self.node_mut(ino)?.inode.parent = new_parent;
                if whiteout {
                    let left = self.add(FileKind::Character, 0, parent, (0, 0), Time(0));
                    self.link(parent, name, left)?;
                }
                Ok(Reply::Done)
            }
            Op::Exchange { parent, name, new_parent, new_name } => {
                let ((one, first), (other, second)) = (self.find(parent, &name)?, self.find(new_parent, &new_name)?);
                self.node_mut(parent)?.entries.insert(one, (name, second));
                self.node_mut(new_parent)?.entries.insert(other, (new_name, first));
                Ok(Reply::Done)
            }
            Op::Open { ino, truncate } => {
                let node = self.node_mut(ino)?;
                node.opens += 1;
                if truncate {
                    node.data.clear();
                    node.inode.size = 0;
                }
                self.attr(ino)
            }
            Op::Release { ino } => {
                self.node_mut(ino)?.opens -= 1;
                self.drop_unused(ino);
                Ok(Reply::Done)
            }
            Op::SetXattr { ino, name, value, .. } => {
                self.node_mut(ino)?.xattrs.insert(name, value);
                Ok(Reply::Done)
            }
            Op::RemoveXattr { ino, name } => match self.node_mut(ino)?.xattrs.remove(&name) {
                Some(_) => Ok(Reply::Done),
                None => error(Kind::NoAttribute),
            },
            Op::GetXattr { ino, name } => match self.node(ino)?.xattrs.get(&name) {
                Some(value) => Ok(Reply::Value(value.clone())),
                None => error(Kind::NoAttribute),
            },
            Op::ListXattr { ino } => {
                let names = self.node(ino)?.xattrs.keys().flat_map(|name| [name.as_bytes(), &[0]].concat());
                Ok(Reply::Names(names.collect()))
            }
            Op::ReadDir { ino, cookie, count, plus } => self.read_dir(ino, cookie, count, plus),
            Op::StatFs => Ok(Reply::StatFs(StatFs { size_bytes: 1 << 40, free_bytes: 1 << 39, inodes: 1 })),
            _ => Ok(Reply::Done),
        }
    }
    fn read_dir(&self, ino: Ino, cookie: u64, count: u32, plus: bool) -> Result<Reply> {
        let entries = self.node(ino)?.entries.range(cookie + 1..).take(count as usize);
        let entries = entries.map(|(&cookie, (name, ino))| {
            let inode = self.nodes[&ino.0].inode;
            DirEntry {
                cookie,
                ino: *ino,
                kind: inode.kind,
                name: name.clone(),
                attr: plus.then_some(Attr::new(*ino, inode)),
            }
        });
        Ok(Reply::Entries { entries: entries.collect(), next_cookie: 3 + self.next })
    }
    fn set_attr(&mut self, ino: Ino, set: SetAttr, now: Time) -> Result<Reply> {
        let node = self.node_mut(ino)?;
        let inode = &mut node.inode;
        inode.mode = set.mode.unwrap_or(inode.mode);
        if set.kill_privileges {
            inode.mode &= !0o6000;
        }
        inode.uid = set.uid.unwrap_or(inode.uid);
        inode.gid = set.gid.unwrap_or(inode.gid);
        let time = |set: Option<SetTime>, old| match set {
            None => old,
            Some(SetTime::Now) => now,
            Some(SetTime::To(time)) => time,
        };
        inode.atime = time(set.atime, inode.atime);
        inode.mtime = time(set.mtime, inode.mtime);
        inode.ctime = now;
        if let Some(size) = set.size {
            inode.size = size;
            node.data.resize(size as usize, 0);
        }
        self.attr(ino)
    }
}
