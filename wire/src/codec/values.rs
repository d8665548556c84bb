//! Values that operations and replies are made of.

use super::bytes::{Put, Take, corrupt};
use base::{
    Attr, Attributes, Blocks, DirEntry, FileKind, Guard, Ino, Inode, Kind, Layer, Limit, Limits, Name, Operations,
    Result, StatFs, TierHint, TierPolicy, Time, Volume, VolumeId,
};

impl Put<'_> {
    pub fn ino(&mut self, ino: Ino) -> &mut Self {
        self.u64(ino.0)
    }
    pub fn time(&mut self, time: Time) -> &mut Self {
        self.i64(time.0)
    }
    /// A name of an entry or of an attribute.
    pub fn name(&mut self, name: &Name) -> &mut Self {
        self.short(name.as_bytes())
    }
    /// The kind of an error.
    pub fn kind(&mut self, kind: Kind) -> &mut Self {
        self.u8(kind_code(kind))
    }
    pub fn file_kind(&mut self, kind: FileKind) -> &mut Self {
        self.u8(file_kind_code(kind))
    }
    pub fn policy(&mut self, policy: TierPolicy) -> &mut Self {
        self.u8(policy_code(policy))
    }
    pub fn guard(&mut self, guard: Guard) -> &mut Self {
        let Guard { immutable, append_only, hands_down_project } = guard;
        self.u8(u8::from(immutable) | u8::from(append_only) << 1 | u8::from(hands_down_project) << 2)
    }
    fn attributes(&mut self, attributes: Attributes) -> &mut Self {
        let tier = match attributes.tier() {
            None => 0,
            Some(TierHint::Auto) => 1,
            Some(TierHint::Flash) => 2,
            Some(TierHint::Disk) => 3,
        };
        self.u8(u8::from(attributes.are_stored()) | tier << 1)
    }
    pub fn attr(&mut self, Attr { ino, inode, blocks }: &Attr) -> &mut Self {
        self.ino(*ino).file_kind(inode.kind).u16(inode.mode).u32(inode.uid).u32(inode.gid).u32(inode.links);
        self.u32(inode.rdev).u32(inode.project).u32(inode.generation);
        self.u64(inode.size).u64(inode.trim).u64(inode.entries).ino(inode.parent);
        self.time(inode.atime).time(inode.mtime).time(inode.ctime).time(inode.btime);
        self.bool(inode.dead).attributes(inode.xattrs).guard(inode.guard).u64(blocks.count).bool(blocks.exact)
    }
    pub fn entry(&mut self, entry: &DirEntry) -> &mut Self {
        self.u64(entry.cookie).ino(entry.ino).file_kind(entry.kind).name(&entry.name);
        self.option(entry.attr.as_ref(), Put::attr)
    }
    pub fn space(&mut self, space: StatFs) -> &mut Self {
        self.u64(space.size_bytes).u64(space.free_bytes).u64(space.inodes)
    }
    /// The name of the operations; none for all.
    fn operations(&mut self, operations: Operations) -> &mut Self {
        self.short(operations.name().unwrap_or_default().as_bytes())
    }
    pub fn layer(&mut self, layer: &Layer) -> &mut Self {
        match *layer {
            Layer::ReadOnly => self.u8(1),
            Layer::Delay { operations, ns } => self.u8(2).operations(operations).u64(ns),
            Layer::Fault { operations, kind, every } => self.u8(3).operations(operations).kind(kind).u64(every),
        }
    }
    /// Limits with their values, in any order and number: those that an operation changes.
    pub fn changed(&mut self, changed: &[(Limit, u64)]) -> &mut Self {
        self.items(changed, |put, (limit, value)| put.u8(limit_code(*limit)).u64(*value))
    }
    /// The limits that a volume or tree has: in order, each once, none of 0.
    fn values(&mut self, limits: &Limits) -> &mut Self {
        self.changed(&limits.all().collect::<Vec<_>>())
    }
    pub fn volume(&mut self, volume: &Volume) -> &mut Self {
        self.u32(volume.id.0).name(&volume.name).ino(volume.root).time(volume.created);
        self.option(volume.size_bytes, Put::u64).items(&volume.layers, Put::layer).policy(volume.policy);
        let trees: Vec<_> = volume.limits.trees().collect();
        self.values(&volume.limits);
        self.items(&trees, |put, (project, tree)| put.u32(*project).ino(tree.top).values(&tree.limits))
    }
}

impl Take<'_> {
    pub fn ino(&mut self) -> Result<Ino> {
        self.u64().map(Ino)
    }
    pub fn time(&mut self) -> Result<Time> {
        self.i64().map(Time)
    }
    pub fn name(&mut self) -> Result<Name> {
        Name::new(self.short()?).map_err(|_| corrupt("a message has a name that no entry has"))
    }
    pub fn attribute(&mut self) -> Result<Name> {
        Name::of_attribute(self.short()?).map_err(|_| corrupt("a message has a name that no attribute has"))
    }
    /// The value of a code: that of `all` which `code` gives it to.
    pub fn coded<T: Copy>(&mut self, all: &[T], code: impl Fn(T) -> u8) -> Result<T> {
        let taken = self.u8()?;
        let known = all.iter().copied().find(|value| code(*value) == taken);
        known.ok_or_else(|| corrupt("a message has a code that is not known"))
    }
    pub fn kind(&mut self) -> Result<Kind> {
        self.coded(&Kind::ALL, kind_code)
    }
    pub fn file_kind(&mut self) -> Result<FileKind> {
        self.coded(&FILE_KINDS, file_kind_code)
    }
    pub fn policy(&mut self) -> Result<TierPolicy> {
        self.coded(&TierPolicy::ALL, policy_code)
    }
    pub fn guard(&mut self) -> Result<Guard> {
        let bits = self.bits(7)?;
        Ok(Guard { immutable: bits & 1 != 0, append_only: bits & 2 != 0, hands_down_project: bits & 4 != 0 })
    }
    fn attributes(&mut self) -> Result<Attributes> {
        let bits = self.bits(7)?;
        let tier = match bits >> 1 {
            0 => None,
            1 => Some(TierHint::Auto),
            2 => Some(TierHint::Flash),
            _ => Some(TierHint::Disk),
        };
        Ok(Attributes::new(bits & 1 != 0, tier))
    }
    fn inode(&mut self) -> Result<Inode> {
        Ok(Inode {
            kind: self.file_kind()?,
            mode: self.u16()?,
            uid: self.u32()?,
            gid: self.u32()?,
            links: self.u32()?,
            rdev: self.u32()?,
            project: self.u32()?,
            generation: self.u32()?,
            size: self.u64()?,
            trim: self.u64()?,
            entries: self.u64()?,
            parent: self.ino()?,
            atime: self.time()?,
            mtime: self.time()?,
            ctime: self.time()?,
            btime: self.time()?,
            dead: self.bool()?,
            xattrs: self.attributes()?,
            guard: self.guard()?,
        })
    }
    pub fn attr(&mut self) -> Result<Attr> {
        let (ino, inode) = (self.ino()?, self.inode()?);
        Ok(Attr { ino, inode, blocks: Blocks { count: self.u64()?, exact: self.bool()? } })
    }
    pub fn entry(&mut self) -> Result<DirEntry> {
        let (cookie, ino, kind) = (self.u64()?, self.ino()?, self.file_kind()?);
        Ok(DirEntry { cookie, ino, kind, name: self.name()?, attr: self.option(Take::attr)? })
    }
    pub fn space(&mut self) -> Result<StatFs> {
        Ok(StatFs { size_bytes: self.u64()?, free_bytes: self.u64()?, inodes: self.u64()? })
    }
    fn operations(&mut self) -> Result<Operations> {
        let name = self.short()?;
        if name.is_empty() {
            return Ok(Operations::All);
        }
        let name = str::from_utf8(name).map_err(|_| corrupt("a message has an operation's name that is no text"))?;
        Operations::of(Some(name)).map_err(|_| corrupt("a message has an operation that is not known"))
    }
    pub fn layer(&mut self) -> Result<Layer> {
        match self.u8()? {
            1 => Ok(Layer::ReadOnly),
            2 => Ok(Layer::Delay { operations: self.operations()?, ns: self.u64()? }),
            3 => Ok(Layer::Fault { operations: self.operations()?, kind: self.kind()?, every: self.u64()? }),
            _ => Err(corrupt("a message has a layer that is not known")),
        }
    }
    pub fn changed(&mut self) -> Result<Vec<(Limit, u64)>> {
        self.items(|take| Ok((take.coded(&Limit::ALL, limit_code)?, take.u64()?)))
    }
    fn values(&mut self) -> Result<Vec<(Limit, u64)>> {
        let values = self.changed()?;
        let is_in_order = values.is_sorted_by(|(one, _), (other, _)| one < other);
        if !is_in_order || values.iter().any(|(_, value)| *value == 0) {
            return Err(corrupt("a message has a volume's limits out of order"));
        }
        Ok(values)
    }
    fn limits(&mut self) -> Result<Limits> {
        let bad = |_| corrupt("a message has a limit that none can be");
        let mut limits = Limits::NONE.with(&self.values()?).map_err(bad)?;
        let mut before = 0;
        for (project, top, values) in self.items(|take| Ok((take.u32()?, take.ino()?, take.values()?)))? {
            if project <= before || values.is_empty() {
                return Err(corrupt("a message has limited trees out of order"));
            }
            limits = limits.with_tree(project, top, &values).map_err(bad)?;
            before = project;
        }
        Ok(limits)
    }
    pub fn volume(&mut self) -> Result<Volume> {
        Ok(Volume {
            id: VolumeId(self.u32()?),
            name: self.name()?,
            root: self.ino()?,
            created: self.time()?,
            size_bytes: self.option(Take::u64)?,
            layers: self.items(Take::layer)?.into(),
            policy: self.policy()?,
            limits: self.limits()?,
        })
    }
}

fn kind_code(kind: Kind) -> u8 {
    match kind {
        Kind::NotFound => 1,
        Kind::Exists => 2,
        Kind::NotEmpty => 3,
        Kind::NotDirectory => 4,
        Kind::IsDirectory => 5,
        Kind::NameTooLong => 6,
        Kind::Invalid => 7,
        Kind::TooLarge => 8,
        Kind::TooManyLinks => 9,
        Kind::OtherProject => 10,
        Kind::Permission => 11,
        Kind::NoAttribute => 12,
        Kind::Stale => 13,
        Kind::Unsupported => 14,
        Kind::NoSpace => 15,
        Kind::Quota => 16,
        Kind::ReadOnly => 17,
        Kind::Busy => 18,
        Kind::Io => 19,
        Kind::Corrupt => 20,
        Kind::Newer => 21,
        Kind::Interrupted => 22,
        Kind::Host => 23,
        Kind::Fenced => 24,
        Kind::Deadlock => 25,
        Kind::NoLocks => 26,
        Kind::Elsewhere => 27,
    }
}

const FILE_KINDS: [FileKind; 7] = [
    FileKind::File,
    FileKind::Directory,
    FileKind::Link,
    FileKind::Fifo,
    FileKind::Socket,
    FileKind::Character,
    FileKind::BlockDevice,
];

fn file_kind_code(kind: FileKind) -> u8 {
    match kind {
        FileKind::File => 1,
        FileKind::Directory => 2,
        FileKind::Link => 3,
        FileKind::Fifo => 4,
        FileKind::Socket => 5,
        FileKind::Character => 6,
        FileKind::BlockDevice => 7,
    }
}

fn policy_code(policy: TierPolicy) -> u8 {
    match policy {
        TierPolicy::WriteBack => 1,
        TierPolicy::FlashOnly => 2,
    }
}

fn limit_code(limit: Limit) -> u8 {
    match limit {
        Limit::Iops => 1,
        Limit::Bandwidth => 2,
        Limit::ReadIops => 3,
        Limit::ReadBandwidth => 4,
        Limit::WriteIops => 5,
        Limit::WriteBandwidth => 6,
        Limit::Burst => 7,
        Limit::Weight => 8,
        Limit::Reserve => 9,
    }
}
