//! A file system as naive as can be: what the requests mean, applied one after the other in the log's order. It knows
//! nothing of groups, edits, blocks or checkpoints.

use crate::history::{Key, payload};
use base::{FileKind, Ino, Name, Op, Outcome, Room, Xattrs};
use std::collections::BTreeMap;
use std::ops::Range;

/// A file, directory or link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its kind.
    pub kind: FileKind,
    /// Permissions.
    pub mode: u16,
    /// Names that lead to it; for a directory 2 and its subdirectories.
    pub links: u32,
    /// A directory's parent.
    pub parent: Option<Ino>,
    /// A file's bytes.
    pub bytes: Vec<u8>,
    /// A link's target.
    pub target: Vec<u8>,
    /// A directory's entries.
    pub entries: BTreeMap<Name, Ino>,
    /// Extended attributes; a directory hands `DEFAULT` down to directories, and `TIER` to files too.
    pub xattrs: Xattrs,
}

impl Node {
    fn new(kind: FileKind, mode: u16, parent: Ino) -> Node {
        let directory = kind == FileKind::Directory;
        Node {
            kind,
            mode,
            links: if directory { 2 } else { 1 },
            parent: directory.then_some(parent),
            bytes: Vec::new(),
            target: Vec::new(),
            entries: BTreeMap::new(),
            xattrs: Xattrs::new(),
        }
    }
}

/// A directory's list for what is created in it.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The tier on which a file belongs.
pub const TIER: &[u8] = b"user.sinter.tier";

/// Such a list, which says no more than a mode does and takes nothing away: all that it leaves behind in a directory is
/// itself, and nothing in a file.
pub const LIST: &[u8] =
    &[2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 7, 0, 255, 255, 255, 255, 32, 0, 7, 0, 255, 255, 255, 255];

/// All nodes of the one volume.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Model {
    /// The volume's root, once there is a volume.
    pub root: Option<Ino>,
    /// Nodes by number; those without links are unlinked but open.
    pub nodes: BTreeMap<Ino, Node>,
}

impl Model {
    /// Applies a request that had an effect. Errors: the request can't have had an effect here, so the order of
    /// records that says so is wrong.
    pub fn apply(&mut self, key: Key, op: &Op, length: u32, outcome: Outcome) -> Result<(), String> {
        match (op, outcome) {
            (Op::VolumeCreate { .. }, Outcome::Inode(ino)) => {
                self.found(ino);
                Ok(())
            }
            (Op::VolumeDelete { .. }, _) => {
                self.root = None;
                self.nodes.clear();
                Ok(())
            }
            (Op::Create { parent, name, mode, .. }, Outcome::Inode(ino)) => {
                self.born(*parent, name, ino, Node::new(FileKind::File, *mode, *parent))
            }
            (Op::MakeDir { parent, name, mode }, Outcome::Inode(ino)) => {
                self.born(*parent, name, ino, Node::new(FileKind::Directory, *mode, *parent))
            }
            (Op::SymLink { parent, name, target }, Outcome::Inode(ino)) => {
                let node = Node { target: target.to_vec(), ..Node::new(FileKind::Link, 0o777, *parent) };
                self.born(*parent, name, ino, node)
            }
            (Op::TempFile { parent, mode }, Outcome::Inode(ino)) => self.nameless(*parent, *mode, ino),
            (Op::Link { ino, new_parent, new_name }, _) => self.link(*ino, *new_parent, new_name),
            (Op::Unlink { parent, name }, _) => self.remove(*parent, name, false),
            (Op::RemoveDir { parent, name }, _) => self.remove(*parent, name, true),
            (Op::Rename { parent, name, new_parent, new_name, .. }, _) => {
                self.rename((*parent, name), (*new_parent, new_name))
            }
            (Op::Exchange { parent, name, new_parent, new_name }, _) => {
                self.exchange((*parent, name), (*new_parent, new_name))
            }
            (Op::SetAttr { ino, set }, _) => {
                let node = self.node(*ino)?;
                node.mode = set.mode.unwrap_or(node.mode);
                if let Some(size) = set.size {
                    node.bytes.resize(size as usize, 0);
                }
                Ok(())
            }
            (Op::Allocate { ino, offset, length, keep_size, room }, _) => {
                let bytes = &mut self.node(*ino)?.bytes;
                allocate(bytes, *offset..offset + length, *keep_size, *room);
                Ok(())
            }
            (Op::SetXattr { .. } | Op::RemoveXattr { .. }, _) => self.xattr(op),
            (Op::Open { ino, truncate: true }, _) => {
                self.node(*ino)?.bytes.clear();
                Ok(())
            }
            (Op::Write { ino, .. }, Outcome::Wrote { offset, length: wrote }) if wrote == length => {
                let bytes = &mut self.node(*ino)?.bytes;
                let (from, to) = (offset as usize, offset as usize + length as usize);
                if bytes.len() < to {
                    bytes.resize(to, 0);
                }
                payload(key, &mut bytes[from..to]);
                Ok(())
            }
            _ => Err(format!("{op:?} can't have had the outcome {outcome:?}")),
        }
    }

    /// An empty volume with this root.
    pub fn found(&mut self, root: Ino) {
        self.root = Some(root);
        self.nodes.insert(root, Node::new(FileKind::Directory, 0o755, root));
    }

    fn xattr(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::SetXattr { ino, name, value, .. } => {
                self.node(*ino)?.xattrs.insert(name.clone(), value.clone());
                Ok(())
            }
            Op::RemoveXattr { ino, name } => match self.node(*ino)?.xattrs.remove(name) {
                Some(_) => Ok(()),
                None => Err(format!("there was no attribute {name:?} of {ino:?}")),
            },
            other => unreachable!("{other:?} is not about attributes"),
        }
    }

    /// Frees the nodes that a restart frees: nobody has a file open any more.
    pub fn purge(&mut self) {
        self.nodes.retain(|_, node| node.links > 0);
    }

    fn node(&mut self, ino: Ino) -> Result<&mut Node, String> {
        self.nodes.get_mut(&ino).ok_or_else(|| format!("inode {ino:?} is not there"))
    }

    fn directory(&mut self, ino: Ino) -> Result<&mut Node, String> {
        let node = self.node(ino)?;
        if node.kind != FileKind::Directory || node.links == 0 {
            return Err(format!("inode {ino:?} is no directory that takes names"));
        }
        Ok(node)
    }

    fn born(&mut self, parent: Ino, name: &Name, ino: Ino, mut node: Node) -> Result<(), String> {
        if self.nodes.contains_key(&ino) {
            return Err(format!("inode number {ino:?} was given out twice"));
        }
        let directory = node.kind == FileKind::Directory;
        let home = self.directory(parent)?;
        if home.entries.insert(name.clone(), ino).is_some() {
            return Err(format!("the name {name:?} in {parent:?} was taken"));
        }
        home.links += u32::from(directory);
        node.xattrs = inherited(home, node.kind);
        self.nodes.insert(ino, node);
        Ok(())
    }

    fn nameless(&mut self, parent: Ino, mode: u16, ino: Ino) -> Result<(), String> {
        let xattrs = inherited(self.directory(parent)?, FileKind::File);
        let node = Node { links: 0, xattrs, ..Node::new(FileKind::File, mode, parent) };
        match self.nodes.insert(ino, node) {
            None => Ok(()),
            Some(_) => Err(format!("inode number {ino:?} was given out twice")),
        }
    }

    fn link(&mut self, ino: Ino, parent: Ino, name: &Name) -> Result<(), String> {
        self.node(ino)?.links += 1;
        match self.directory(parent)?.entries.insert(name.clone(), ino) {
            None => Ok(()),
            Some(_) => Err(format!("the name {name:?} in {parent:?} was taken")),
        }
    }

    fn take(&mut self, parent: Ino, name: &Name) -> Result<Ino, String> {
        let home = self.directory(parent)?;
        home.entries.remove(name).ok_or_else(|| format!("there was no name {name:?} in {parent:?}"))
    }

    fn unname(&mut self, parent: Ino, ino: Ino) -> Result<(), String> {
        let node = self.node(ino)?;
        let directory = node.kind == FileKind::Directory;
        if !node.entries.is_empty() {
            return Err(format!("directory {ino:?} had entries"));
        }
        node.links = if directory { 0 } else { node.links - 1 };
        self.node(parent)?.links -= u32::from(directory);
        Ok(())
    }

    fn remove(&mut self, parent: Ino, name: &Name, directory: bool) -> Result<(), String> {
        let ino = self.take(parent, name)?;
        if (self.node(ino)?.kind == FileKind::Directory) != directory {
            return Err(format!("{ino:?} was removed as what it is not"));
        }
        self.unname(parent, ino)
    }

    fn exchange(&mut self, one: (Ino, &Name), other: (Ino, &Name)) -> Result<(), String> {
        let (first, second) = (self.take(one.0, one.1)?, self.take(other.0, other.1)?);
        for ((dir, name), (from, comes)) in [(one, (other.0, second)), (other, (one.0, first))] {
            self.directory(dir)?.entries.insert(name.clone(), comes);
            if self.node(comes)?.kind == FileKind::Directory {
                self.node(from)?.links -= 1;
                self.node(dir)?.links += 1;
                self.node(comes)?.parent = Some(dir);
            }
        }
        Ok(())
    }

    fn rename(&mut self, (from, name): (Ino, &Name), (to, new_name): (Ino, &Name)) -> Result<(), String> {
        let ino = self.take(from, name)?;
        let directory = self.node(ino)?.kind == FileKind::Directory;
        let replaced = self.directory(to)?.entries.insert(new_name.clone(), ino);
        if let Some(replaced) = replaced {
            self.unname(to, replaced)?;
        }
        if directory {
            self.node(from)?.links -= 1;
            self.node(to)?.links += 1;
            self.node(ino)?.parent = Some(to);
        }
        Ok(())
    }
}

/// The attributes that a new node of this kind has from its directory.
fn inherited(home: &Node, kind: FileKind) -> Xattrs {
    let inherits = |name: &Name| match name.as_bytes() {
        DEFAULT => kind == FileKind::Directory,
        TIER => matches!(kind, FileKind::Directory | FileKind::File),
        _ => false,
    };
    home.xattrs.iter().filter(|(name, _)| inherits(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Applies fallocate to a range of a file's bytes.
fn allocate(bytes: &mut Vec<u8>, range: Range<u64>, keep_size: bool, room: Room) {
    if room != Room::Promised {
        let within = |byte: u64| (byte as usize).min(bytes.len());
        let cleared = within(range.start)..within(range.end);
        bytes[cleared].fill(0);
    }
    if !keep_size && room != Room::Hole {
        bytes.resize(bytes.len().max(range.end as usize), 0);
    }
}
