//! Reads a whole volume back through a running daemon, as a client would, and compares it with the model.

use crate::model::{Model, Node, TIER};
use crate::world::{Served, context};
use base::{
    Attr, DirEntry, Error, FileKind, Ino, Inode, Kind, Name, Op, Reply, RequestId, Result, SessionId, VolumeId, Xattrs,
};
use group::{Answer, Context};
use std::collections::BTreeMap;

/// Bytes per read: several per file, so that runs, holes and edges meet in all ways.
const READ_BYTES: u32 = 100_000;

/// A volume as it reads.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Found {
    /// The model.
    pub model: Model,
    /// All attributes, times included.
    pub inodes: BTreeMap<Ino, Inode>,
    /// Positions of entries in their directories' listings.
    pub cookies: BTreeMap<(Ino, u64), Name>,
}

struct Reader<'a> {
    served: &'a Served,
    volume: VolumeId,
    found: Found,
}

impl Reader<'_> {
    async fn ask(&self, op: Op) -> Result<Answer> {
        let what = format!("{op:?}");
        // The checker leaves no traces.
        let context =
            Context { noatime: true, unkept: false, ..context(self.volume, (SessionId(u64::MAX), RequestId(1))) };
        self.served.call(&context, op, None).await.map_err(|error| error.with(what))
    }
    async fn attributes(&self, ino: Ino) -> Result<Attr> {
        match self.ask(Op::GetAttr { ino }).await?.reply {
            Reply::Attr(attr) if attr.ino == ino => Ok(attr),
            other => Err(wrong(format!("{other:?}"))),
        }
    }
    async fn entries(&self, ino: Ino) -> Result<Vec<DirEntry>> {
        let (mut all, mut cookie): (Vec<DirEntry>, u64) = (Vec::new(), 0);
        loop {
            let Reply::Entries { entries, .. } =
                self.ask(Op::ReadDir { ino, cookie, count: 5, plus: true }).await?.reply
            else {
                return Err(wrong("a directory read has no entries".into()));
            };
            let Some(last) = entries.last() else { return Ok(all) };
            if last.cookie <= cookie {
                return Err(wrong(format!("cookies go back in {ino:?}")));
            }
            cookie = last.cookie;
            all.extend(entries);
        }
    }
    async fn bytes(&self, ino: Ino, size: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(size as usize);
        loop {
            let offset = bytes.len() as u64;
            let answer = self.ask(Op::Read { ino, offset, length: READ_BYTES }).await?;
            match answer.data {
                Some(data) => bytes.extend_from_slice(&data),
                None => return Ok(bytes),
            }
        }
    }
    async fn xattrs(&self, ino: Ino) -> Result<Xattrs> {
        let Reply::Names(names) = self.ask(Op::ListXattr { ino }).await?.reply else {
            return Err(wrong("a list of attributes has no names".into()));
        };
        let mut all = Xattrs::new();
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let name = Name::of_attribute(name)?;
            match self.ask(Op::GetXattr { ino, name: name.clone() }).await?.reply {
                Reply::Value(value) => drop(all.insert(name, value)),
                other => return Err(wrong(format!("{other:?}"))),
            }
        }
        Ok(all)
    }
    async fn node(&mut self, ino: Ino) -> Result<Vec<DirEntry>> {
        let attr = self.attributes(ino).await?.inode;
        let mut node = Node {
            kind: attr.kind,
            mode: attr.mode,
            links: attr.links,
            parent: attr.is_directory().then_some(attr.parent),
            bytes: Vec::new(),
            target: Vec::new(),
            entries: BTreeMap::new(),
            xattrs: self.xattrs(ino).await?,
        };
        // The hint is a part of the inode.
        if attr.xattrs.are_stored() != node.xattrs.keys().any(|name| name.as_bytes() != TIER) {
            return Err(wrong(format!("{ino:?} says {:?} of its attributes", attr.xattrs)));
        }
        let mut entries = Vec::new();
        match attr.kind {
            FileKind::Directory => entries = self.entries(ino).await?,
            FileKind::Link => match self.ask(Op::ReadLink { ino }).await?.reply {
                Reply::Target(target) => node.target = target.to_vec(),
                other => return Err(wrong(format!("{other:?}"))),
            },
            _ => node.bytes = self.bytes(ino, attr.size).await?,
        }
        if attr.kind == FileKind::File && node.bytes.len() as u64 != attr.size {
            return Err(wrong(format!("{ino:?} has {} bytes, its size is {}", node.bytes.len(), attr.size)));
        }
        if attr.entries != entries.len() as u64 {
            return Err(wrong(format!("{ino:?} lists {} entries and counts {}", entries.len(), attr.entries)));
        }
        for entry in &entries {
            if node.entries.insert(entry.name.clone(), entry.ino).is_some() {
                return Err(wrong(format!("{ino:?} lists {:?} twice", entry.name)));
            }
        }
        self.found.model.nodes.insert(ino, node);
        self.found.inodes.insert(ino, attr);
        self.found.cookies.extend(entries.iter().map(|entry| ((ino, entry.cookie), entry.name.clone())));
        Ok(entries)
    }
}

fn wrong(what: String) -> Error {
    Error::new(Kind::Corrupt, "the volume contradicts itself").with(what)
}

/// Everything that can be reached from the volume's root; empty if there is no volume.
pub async fn read(served: &Served) -> Result<Found> {
    let Some(volume) = served.groups.volumes().await?.into_iter().find(|v| v.name == crate::world::volume_name())
    else {
        return Ok(Found::default());
    };
    let mut reader = Reader { served, volume: volume.id, found: Found::default() };
    reader.found.model.root = Some(volume.root);
    let mut open = vec![volume.root];
    while let Some(ino) = open.pop() {
        for entry in reader.node(ino).await? {
            let same = entry.attr.as_ref().is_some_and(|attr| attr.inode.kind == entry.kind);
            let lookup = reader.ask(Op::Lookup { parent: ino, name: entry.name.clone() }).await?;
            let leads = matches!(&lookup.reply, Reply::Attr(attr) if attr.ino == entry.ino);
            if !same || !leads {
                return Err(wrong(format!("{ino:?}: listing, lookup and inode of {:?} differ", entry.name)));
            }
            if !reader.found.model.nodes.contains_key(&entry.ino) {
                open.push(entry.ino);
            }
        }
    }
    Ok(reader.found)
}

/// Compares what was read before a stop with what is read after it: nothing may differ, times included; but access times
/// may be those of an earlier checkpoint (rule M6).
pub fn compare_found(before: &Found, after: &Found) -> std::result::Result<(), String> {
    compare(&before.model, &after.model)?;
    for (ino, inode) in &before.inodes {
        let there = &after.inodes[ino];
        if *inode != (Inode { atime: inode.atime, ..*there }) || there.atime > inode.atime {
            return Err(format!("{ino:?} was {inode:?} before the stop and is {there:?} after it"));
        }
    }
    if before.cookies != after.cookies {
        return Err("entries have changed their places in their directories' listings (rule M2)".into());
    }
    Ok(())
}

/// Compares with the model; says the first difference.
pub fn compare(expected: &Model, found: &Model) -> std::result::Result<(), String> {
    if expected.root != found.root {
        return Err(format!("the volume's root is {:?}, expected {:?}", found.root, expected.root));
    }
    for (ino, node) in &expected.nodes {
        let Some(there) = found.nodes.get(ino) else {
            return Err(format!("{ino:?} can't be reached, expected {:?} of {} bytes", node.kind, node.bytes.len()));
        };
        compare_nodes(*ino, node, there)?;
    }
    match found.nodes.keys().find(|ino| !expected.nodes.contains_key(ino)) {
        Some(ino) => Err(format!("{ino:?} is there, but should be gone")),
        None => Ok(()),
    }
}

fn compare_nodes(ino: Ino, expected: &Node, found: &Node) -> std::result::Result<(), String> {
    if expected == found {
        return Ok(());
    }
    let what = |node: &Node| {
        let Node { kind, mode, links, parent, bytes, target, entries, xattrs } = node;
        let (size, target) = (bytes.len(), target.len());
        let xattrs: Vec<_> = xattrs.iter().map(|(name, value)| (name, value.len())).collect();
        format!(
            "{kind:?} {mode:o} {links} links, parent {parent:?}, {size} bytes, target {target}, {entries:?}, {xattrs:?}"
        )
    };
    let at = expected.bytes.iter().zip(&found.bytes).position(|(one, other)| one != other);
    let at = at.map_or(String::new(), |at| format!("; bytes differ from {at} on (block {})", at / 4096));
    Err(format!("{ino:?} is {}, expected {}{at}", what(found), what(expected)))
}
