//! Random operations against the plain model, with checkpoints, index misses, and restarts in between.

use crate::plain::{ACCESS, DEFAULT, LIST, Plain, attribute};
use crate::rig::{Rig, Shape, pattern, seeds};
use base::limits::{FILE_BYTES_MAX, IO_BYTES_MAX, NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use base::{At, FileKind, Ino, Name, Op, Room, Seek, SetAttr, SetHow, Sync};
use runtime::random::SplitMix;
use runtime::sim::World;

struct Run {
    rig: Rig,
    plain: Plain,
    rng: SplitMix,
    /// Inodes with an open of ours.
    open: Vec<Ino>,
    writes: u64,
}

impl Run {
    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { Some(from[self.rng.below(from.len() as u64) as usize].clone()) }
    }
    /// An inode of a kind; now and then any other, also one that is gone.
    fn any(&mut self, kind: FileKind) -> Ino {
        if self.rng.one_in(25) {
            let all: Vec<_> = self.plain.seen.iter().copied().collect();
            return self.pick(&all).expect("there is the root");
        }
        let of_kind = self.plain.nodes.iter().filter(|(_, node)| node.kind == kind);
        let all: Vec<_> = of_kind.map(|(ino, _)| *ino).collect();
        self.pick(&all).unwrap_or(self.plain.root)
    }
    /// A file without a name, if there is one.
    fn orphan(&mut self) -> Ino {
        let nameless = self.plain.nodes.iter().filter(|(_, node)| node.kind == FileKind::File && node.links == 0);
        let all: Vec<_> = nameless.map(|(ino, _)| *ino).collect();
        self.pick(&all).unwrap_or_else(|| self.any(FileKind::File))
    }
    fn dir(&mut self) -> Ino {
        self.any(FileKind::Directory)
    }
    /// One of few names, so that they clash; some of full length.
    fn name(&mut self) -> Name {
        let number = self.rng.below(14) as u8;
        let length = if number < 2 { NAME_BYTES_MAX } else { 1 + usize::from(number) };
        Name::new(&vec![b'a' + number; length]).expect("a name")
    }
    /// A name that is there, mostly.
    fn old_name(&mut self, dir: Ino) -> Name {
        let names: Vec<_> = self.plain.nodes.get(&dir).map_or(Vec::new(), |node| node.names.clone());
        match self.pick(&names) {
            Some((name, _)) if !self.rng.one_in(10) => name,
            _ => self.name(),
        }
    }
    /// Mostly within 2 MiB, so that writes overlap; at times far out, up to the limit and beyond it.
    fn offset(&mut self) -> u64 {
        let near = self.rng.below(2 << 20);
        match self.rng.below(40) {
            0 => FILE_BYTES_MAX - self.rng.below(3 << 20),
            1 => FILE_BYTES_MAX + self.rng.below(1 << 20),
            2 => self.rng.below(FILE_BYTES_MAX),
            3..20 => near / 4096 * 4096,
            _ => near,
        }
    }
    /// A length from one byte to 1 MiB, mostly small, on both sides of the smallest bulk payload.
    fn length(&mut self) -> usize {
        let length = match self.rng.below(40) {
            0 => self.rng.below(IO_BYTES_MAX as u64 + 1),
            1 => IO_BYTES_MAX as u64,
            2..6 => (100 << 10) + self.rng.below(60 << 10),
            6..20 => 4096 * (1 + self.rng.below(8)),
            _ => 1 + self.rng.below(10_000),
        };
        length as usize
    }
    fn sync(&mut self) -> Sync {
        match self.rng.below(20) {
            0 => Sync::All,
            1..3 => Sync::Data,
            3..6 => Sync::Written,
            _ => Sync::Ordered,
        }
    }

    fn op(&mut self) -> (Op, Vec<u8>) {
        match self.rng.below(100) {
            0..24 => self.write(),
            choice @ 24..48 => (self.data_op(choice), Vec::new()),
            choice => (self.name_op(choice), Vec::new()),
        }
    }
    fn write(&mut self) -> (Op, Vec<u8>) {
        let ino = self.any(FileKind::File);
        let at = if self.rng.one_in(4) { At::End } else { At::Offset(self.offset()) };
        let (sync, kill_privileges, length) = (self.sync(), self.rng.one_in(4), self.length());
        self.writes += 1;
        (Op::Write { ino, at, sync, kill_privileges }, pattern(self.writes, length))
    }
    fn data_op(&mut self, choice: u64) -> Op {
        let ino = self.any(FileKind::File);
        match choice {
            24..36 => {
                // What a symbolic link's bytes are is nobody's business: the kernel never asks.
                let is_link = self.plain.nodes.get(&ino).is_some_and(|node| node.kind == FileKind::Link);
                let ino = if is_link { self.plain.root } else { ino };
                Op::Read { ino, offset: self.offset(), length: self.length() as u32 }
            }
            36..42 => {
                let size = self.plain.nodes.get(&ino).map_or(0, |node| node.size);
                let size = if self.rng.one_in(2) { self.rng.below(size + 1) } else { self.offset() };
                Op::SetAttr { ino, set: SetAttr { size: Some(size), ..SetAttr::default() }.into() }
            }
            42 => Op::Fsync { ino, sync: Sync::All },
            43..45 => {
                let (offset, length) = (self.rng.below(2 << 20), self.rng.below(300 << 10));
                let block = if self.rng.one_in(2) { 4096 } else { 1 };
                let (offset, length) = (offset / block * block, length / block * block);
                let room = [Room::Promised, Room::Hole, Room::Zeroed][self.rng.below(3) as usize];
                let keep_size = room == Room::Hole || self.rng.one_in(2);
                Op::Allocate { ino, offset, length, keep_size, room }
            }
            45 => {
                let what = if self.rng.one_in(2) { Seek::Data } else { Seek::Hole };
                Op::Seek { ino, offset: self.rng.below(1 << 20), what }
            }
            _ => Op::Open { ino, truncate: self.rng.one_in(2) },
        }
    }
    fn name_op(&mut self, choice: u64) -> Op {
        let parent = self.dir();
        match choice {
            48..53 => self.xattr_op(),
            53..58 => Op::Create { parent, name: self.name(), mode: self.mode(), exclusive: self.rng.one_in(2) },
            58..63 => Op::MakeDir { parent, name: self.name(), mode: self.mode() },
            63 => match self.rng.below(5) {
                0 => {
                    let (name, mode, rdev) = (self.name(), self.mode(), self.rng.below(1 << 20) as u32);
                    Op::MakeNode { parent, name, kind: FileKind::Fifo, mode, rdev }
                }
                1 => Op::TempFile { parent, mode: self.mode() },
                2 => Op::Link { ino: self.orphan(), new_parent: parent, new_name: self.name() },
                _ => Op::Link { ino: self.any(FileKind::File), new_parent: parent, new_name: self.name() },
            },
            64 => {
                let length = if self.rng.one_in(20) { 4090 + self.rng.below(8) } else { self.rng.below(100) };
                let target = pattern(self.writes, length as usize).into();
                Op::SymLink { parent, name: self.name(), target }
            }
            65..72 => Op::Unlink { parent, name: self.old_name(parent) },
            72..76 => Op::RemoveDir { parent, name: self.old_name(parent) },
            76..86 => {
                let new_parent = self.dir();
                let (name, new_name) = (self.old_name(parent), self.name());
                if self.rng.one_in(5) {
                    let new_name = self.old_name(new_parent);
                    return Op::Exchange { parent, name, new_parent, new_name };
                }
                let (no_replace, whiteout) = (self.rng.one_in(5), self.rng.one_in(6));
                Op::Rename { parent, name, new_parent, new_name, no_replace, whiteout }
            }
            86..91 => match self.pick(&self.open.clone()) {
                Some(ino) => Op::Release { ino },
                None => Op::SyncAll,
            },
            91..94 => Op::Lookup { parent, name: self.old_name(parent) },
            94..96 => Op::ReadLink { ino: self.any(FileKind::Link) },
            _ => {
                let (ino, mode) = (self.any(FileKind::File), self.mode());
                let kill_privileges = self.rng.one_in(2);
                let gid = self.rng.one_in(2).then_some(100);
                Op::SetAttr {
                    ino,
                    set: SetAttr { mode: Some(mode), gid, kill_privileges, ..SetAttr::default() }.into(),
                }
            }
        }
    }
    fn xattr_op(&mut self) -> Op {
        let kind = if self.rng.one_in(2) { FileKind::File } else { FileKind::Directory };
        let ino = self.any(kind);
        let names = ["user.a", "user.b", "trusted.c", "security.capability", ACCESS, DEFAULT];
        let text = self.pick(&names).expect("one of them");
        let name = attribute(text);
        match self.rng.below(8) {
            0..4 => {
                let length = match self.rng.below(20) {
                    0 => XATTR_VALUE_BYTES_MAX as u64,
                    1..4 => self.rng.below(9000),
                    _ => self.rng.below(40),
                };
                self.writes += 1;
                let list = text == ACCESS || text == DEFAULT;
                let value = if list { LIST.to_vec() } else { pattern(self.writes, length as usize) };
                let how = self.pick(&[SetHow::Any, SetHow::Any, SetHow::Create, SetHow::Replace]).expect("one of them");
                Op::SetXattr { ino, name, value: value.into(), how, kill_setgid: false }
            }
            4..6 => Op::RemoveXattr { ino, name },
            6 => Op::GetXattr { ino, name },
            _ => Op::ListXattr { ino },
        }
    }
    fn mode(&mut self) -> u16 {
        self.rng.below(0o10000) as u16
    }

    async fn step(&mut self) {
        let (op, data) = self.op();
        let payload = matches!(op, Op::Write { .. }).then_some(data.as_slice());
        let told = self.rig.call(op.clone(), payload).await;
        self.plain.perform(&op, &data, &told);
        if let Op::Rename { parent, name, whiteout: true, .. } = &op {
            self.learn_whiteout(*parent, name.clone()).await;
        }
        match (&op, told.map(|answer| answer.reply)) {
            (Op::Open { .. } | Op::Create { .. } | Op::TempFile { .. }, Ok(base::Reply::Attr(attr))) => {
                self.open.push(attr.ino)
            }
            (Op::Release { ino }, _) => {
                let at = self.open.iter().position(|open| open == ino).expect("we chose it");
                self.open.swap_remove(at);
            }
            _ => {}
        }
    }

    /// Learns the number of the whiteout that a rename has left, if any.
    async fn learn_whiteout(&mut self, parent: Ino, name: Name) {
        if self.plain.lacks_whiteout(parent) {
            let attr = self.rig.attr(Op::Lookup { parent, name }).await.expect("a whiteout was left");
            self.plain.learn_whiteout(parent, &attr);
        }
    }

    /// Everything that the plain model has is on the brick, and nothing else below its root.
    async fn compare_all(&mut self) {
        let inos: Vec<_> = self.plain.nodes.keys().copied().collect();
        for ino in inos {
            let attr = self.rig.attr(Op::GetAttr { ino }).await.expect("it is there");
            self.plain.compare_attr(ino, &attr);
            let list = Op::ListXattr { ino };
            let told = self.rig.call(list.clone(), None).await;
            self.plain.perform(&list, &[], &told);
            let names: Vec<_> = self.plain.nodes[&ino].xattrs.keys().cloned().collect();
            for name in names {
                let get = Op::GetXattr { ino, name };
                let told = self.rig.call(get.clone(), None).await;
                self.plain.perform(&get, &[], &told);
            }
            match attr.inode.kind {
                FileKind::Directory => {
                    let count = 1 + self.rng.below(9) as u32;
                    let listed = self.rig.list(ino, count).await.expect("a directory");
                    for entry in &listed {
                        let ino = entry.ino;
                        let inode = entry.attr.expect("an entry leads somewhere").inode;
                        self.plain.compare_attr(ino, &base::Attr::new(ino, inode));
                    }
                    let listed: Vec<_> = listed.iter().map(|entry| (entry.name.clone(), entry.ino)).collect();
                    assert_eq!(listed, self.plain.nodes[&ino].names, "{ino:?}");
                }
                FileKind::File => self.compare_file(ino, attr.inode.size).await,
                _ => {}
            }
        }
    }
    async fn compare_file(&mut self, ino: Ino, size: u64) {
        let mut at = 0;
        // What lies far out is reached by random reads.
        while at < size.min(4 << 20) {
            let length = self.length() as u64;
            let bytes = self.rig.read(ino, at, length as usize).await.expect("a file");
            self.plain.compare_bytes(ino, at, length, &bytes);
            at += length;
        }
    }
}

fn run(seed: u64, steps: u64) {
    let mut world = World::new(seed);
    let runtime = world.runtime();
    world.block_on(async {
        // Half of the seeds checkpoint by themselves too, all the time.
        let overlay_bytes = if seed.is_multiple_of(2) { 100 << 10 } else { Shape::SMALL.overlay_bytes };
        let shape = Shape { segments: 1024, overlay_bytes, ..Shape::SMALL };
        let rig = Rig::new(runtime, shape).await;
        let plain = Plain::new(rig.volume.root, (7, 8));
        let mut run = Run { rig, plain, rng: SplitMix(seed), open: Vec::new(), writes: 0 };
        for _ in 0..steps {
            run.step().await;
            if run.rng.one_in(100) {
                run.rig.checkpoint().await;
            }
            if run.rng.one_in(100) {
                run.rig.checkpoint_beside();
            }
            if run.rng.one_in(250) {
                run.compare_all().await;
            }
            if run.rng.one_in(400) {
                run.rig = run.rig.reopen().await;
                run.plain.restarted();
                run.open.clear();
                run.compare_all().await;
            }
        }
        run.rig = run.rig.reopen().await;
        run.plain.restarted();
        run.compare_all().await;
        run.rig.groups.close().await.expect("a healthy brick closes");
    });
}

#[test]
pub fn random_operations_agree_with_a_plain_model() {
    for seed in seeds(1..4) {
        println!("seed {seed}");
        run(seed, 1200);
    }
}
