//! A recording's operations on the simulated brick (mission N10): what `sinter record` has kept is done again under a seed, with
//! other devices and other timings, and each operation ends as recorded. `SINTER_RECORDING=FILE` takes a file of a daemon.

use base::{
    At, Ino, Name, Op, Reply, RequestId, Result, Room, Seek, SessionId, SetAttr, SetHow, SetTime, Sync, VolumeId,
};
use recording::plan::{Label, NodeId, Place, Plan, Step, Way};
use recording::{Begin, Deed, End, Entry, FileShape, Flags, Inode, Operation, Writer, read};
use runtime::Runtime;
use runtime::random::SplitMix;
use sim::small::OPTIONS;
use sim::workload::{Focus, Profile};
use sim::world::{Machine, Served, context, format, serve, slabs, volume_name};
use std::cell::Cell;

/// Largest number of bytes of a request.
const IO_BYTES_MAX: u64 = base::limits::IO_BYTES_MAX as u64;

/// A volume and the inodes of a plan's nodes.
struct Replaying {
    served: Served,
    runtime: Runtime,
    volume: VolumeId,
    inos: Vec<Option<Ino>>,
    request: Cell<u64>,
}

fn name(label: Label) -> Name {
    Name::new(label.to_string().as_bytes()).expect("a good name")
}

impl Replaying {
    async fn call(&self, op: Op, bytes: Option<u64>) -> Result<Reply> {
        self.request.set(self.request.get() + 1);
        let context = context(self.volume, (SessionId(1), RequestId(self.request.get())));
        let data = bytes.map(|bytes| {
            let mut data = self.runtime.buffer(bytes as usize).expect("there is memory");
            data.fill(self.request.get() as u8);
            data
        });
        self.served.call(&context, op, data).await.map(|answer| answer.reply)
    }
    async fn made(&self, op: Op) -> Ino {
        match self.call(op, None).await {
            Ok(Reply::Attr(attr)) => attr.ino,
            other => panic!("a healthy brick makes files: {other:?}"),
        }
    }
    fn ino(&self, node: NodeId) -> Ino {
        self.inos[node].expect("it was made or found before")
    }
    fn at(&self, place: Option<Place>) -> (Ino, Name) {
        let place = place.expect("it has a name");
        (self.ino(place.directory), name(place.label))
    }
    /// Makes what was there before.
    async fn prepare(&mut self, plan: &Plan) {
        let mut left: Vec<NodeId> = (1..plan.nodes.len()).filter(|&node| plan.nodes[node].place.is_some()).collect();
        while !left.is_empty() {
            let (now, later): (Vec<NodeId>, Vec<NodeId>) = left
                .iter()
                .partition(|&&node| plan.nodes[node].place.is_some_and(|place| self.inos[place.directory].is_some()));
            assert!(!now.is_empty(), "every node lies below the top");
            for node in now {
                self.prepare_one(plan, node).await;
            }
            left = later;
        }
    }
    async fn prepare_one(&mut self, plan: &Plan, node: NodeId) {
        let wanted = &plan.nodes[node];
        let (parent, name) = self.at(wanted.place);
        if wanted.shape == FileShape::Directory {
            self.inos[node] = Some(self.made(Op::MakeDir { parent, name, mode: 0o755 }).await);
            return;
        }
        let ino = self.made(Op::Create { parent, name, mode: 0o644, exclusive: true }).await;
        self.inos[node] = Some(ino);
        for offset in (0..wanted.size).step_by(IO_BYTES_MAX as usize) {
            let write = Op::Write { ino, at: At::Offset(offset), sync: Sync::Ordered, kill_privileges: false };
            self.call(write, Some((wanted.size - offset).min(IO_BYTES_MAX))).await.expect("there is room");
        }
    }
    /// Does an operation; whether it ended as recorded.
    async fn step(&mut self, step: &Step) -> bool {
        let Step { operation, made, .. } = step;
        let bytes = (operation.deed == Deed::Write).then_some(operation.length.min(IO_BYTES_MAX));
        let Some(op) = self.names(step).or_else(|| self.inode(step)) else { return true };
        let absent = operation.deed == Deed::Lookup && operation.errno == 0 && operation.made == 0;
        match self.call(op, bytes).await {
            Ok(Reply::Attr(attr)) => {
                if let Some(made) = *made {
                    assert!(self.inos[made].is_none_or(|known| known == attr.ino), "{operation:?}: another inode");
                    self.inos[made] = Some(attr.ino);
                }
                operation.errno == 0 && !absent
            }
            Ok(_) => operation.errno == 0,
            Err(_) => operation.errno != 0 || absent,
        }
    }
    /// The operation of a step that is about a name.
    fn names(&self, step: &Step) -> Option<Op> {
        let Step { operation, node, place, new_place, .. } = step;
        let at = || self.at(*place);
        let to = || self.at(*new_place);
        Some(match operation.deed {
            Deed::Lookup => {
                let (parent, name) = at();
                Op::Lookup { parent, name }
            }
            Deed::Create | Deed::CreateNode => {
                let (parent, name) = at();
                Op::Create { parent, name, mode: 0o644, exclusive: false }
            }
            Deed::MakeDir => {
                let (parent, name) = at();
                Op::MakeDir { parent, name, mode: 0o755 }
            }
            Deed::SymLink => {
                let (parent, name) = at();
                Op::SymLink { parent, name, target: vec![b'x'; operation.length.clamp(1, 4095) as usize].into() }
            }
            Deed::Unlink => {
                let (parent, name) = at();
                Op::Unlink { parent, name }
            }
            Deed::RemoveDir => {
                let (parent, name) = at();
                Op::RemoveDir { parent, name }
            }
            Deed::Rename => {
                let ((parent, name), (new_parent, new_name)) = (at(), to());
                let no_replace = operation.flags.has(Flags::NO_REPLACE);
                Op::Rename { parent, name, new_parent, new_name, no_replace, whiteout: false }
            }
            Deed::Link => {
                let (new_parent, new_name) = to();
                Op::Link { ino: self.ino(*node), new_parent, new_name }
            }
            Deed::TempFile => Op::TempFile { parent: self.ino(*node), mode: 0o644 },
            Deed::StatFs => Op::StatFs,
            Deed::SyncAll => Op::SyncAll,
            _ => return None,
        })
    }
    /// The operation of a step that is about an inode. None: the simulation has none for it.
    fn inode(&self, step: &Step) -> Option<Op> {
        let Step { operation, node, .. } = step;
        let Operation { offset, length, flags, .. } = *operation;
        let ino = self.ino(*node);
        let attribute = || Name::of_attribute(format!("user.{:x}", operation.name).as_bytes()).expect("a good name");
        Some(match operation.deed {
            Deed::GetAttr => Op::GetAttr { ino },
            Deed::SetAttr => {
                let size = flags.has(Flags::SIZE).then_some(offset);
                Op::SetAttr { ino, set: SetAttr { size, mtime: Some(SetTime::Now), ..SetAttr::default() }.into() }
            }
            Deed::Open => Op::Open { ino, truncate: false },
            Deed::Read => Op::Read { ino, offset, length: length.min(IO_BYTES_MAX) as u32 },
            Deed::Write => {
                let at = if flags.has(Flags::APPEND) { At::End } else { At::Offset(offset) };
                let sync = match () {
                    () if flags.has(Flags::SYNC) => Sync::All,
                    () if flags.has(Flags::DATA_SYNC) => Sync::Data,
                    () if flags.has(Flags::DIRECT) => Sync::Written,
                    () => Sync::Ordered,
                };
                Op::Write { ino, at, sync, kill_privileges: false }
            }
            Deed::Fsync => Op::Fsync { ino, sync: if flags.has(Flags::DATA_SYNC) { Sync::Data } else { Sync::All } },
            Deed::ReadDir => Op::ReadDir { ino, cookie: 0, count: 100, plus: false },
            Deed::Allocate => {
                let room = match (flags.has(Flags::HOLE), flags.has(Flags::ZEROED)) {
                    (true, _) => Room::Hole,
                    (false, true) => Room::Zeroed,
                    (false, false) => Room::Promised,
                };
                Op::Allocate { ino, offset, length, keep_size: flags.has(Flags::KEEP_SIZE), room }
            }
            Deed::Seek => Op::Seek { ino, offset, what: if flags.has(Flags::HOLE) { Seek::Hole } else { Seek::Data } },
            Deed::ListXattr => Op::ListXattr { ino },
            Deed::SetXattr => {
                let value: Vec<u8> = vec![1; length.min(4095) as usize];
                Op::SetXattr { ino, name: attribute(), value: value.into(), how: SetHow::Any, kill_setgid: false }
            }
            _ => return None,
        })
    }
}

/// Replays a file under a seed. Returns the number of operations, of those that ended otherwise, and the inodes' sizes.
fn replay(file: &[u8], seed: u64) -> (usize, usize, Vec<Option<u64>>) {
    let plan = Plan::of(&read(file).expect("a good recording").recording());
    let mut machine = Machine::boot(seed, 2, None, &slabs());
    let (runtime, index) = (machine.runtime(), machine.index.clone());
    let profile = Profile::draw(&mut SplitMix(seed)).focused(Focus::Any).ample();
    machine.world.block_on(async {
        format(&runtime, &profile).await.expect("an empty disk can be formatted");
        let served = serve(runtime.clone(), index, OPTIONS).await.expect("just formatted");
        let inos = vec![None; plan.nodes.len()];
        let mut replaying = Replaying { served, runtime, volume: VolumeId(0), inos, request: Cell::new(0) };
        let create = Op::VolumeCreate { name: volume_name(), size_bytes: None };
        let Ok(Reply::Volume(volume)) = replaying.call(create, None).await else { panic!("a volume is made") };
        (replaying.volume, replaying.inos[0]) = (volume.id, Some(volume.root));
        replaying.prepare(&plan).await;
        let mut otherwise = 0;
        for step in plan.steps.iter().filter(|step| step.way != Way::LeftOut) {
            otherwise += usize::from(!replaying.step(step).await);
        }
        replaying.served.checkpoint().await.expect("a healthy brick checkpoints");
        let mut sizes = Vec::new();
        for ino in replaying.inos.iter().flatten() {
            let told = replaying.call(Op::GetAttr { ino: *ino }, None).await;
            sizes.push(if let Ok(Reply::Attr(attr)) = told { Some(attr.inode.size) } else { None });
        }
        (plan.steps.len(), otherwise, sizes)
    })
}

/// A file as a daemon would give it: a file that was there is read, another one is made, written, renamed and cut.
fn small() -> Vec<u8> {
    const ROOT: u64 = 1;
    let mut writer = Writer::begin(Begin { version: "0".to_string(), volumes: vec![(1, ROOT)] });
    writer.add(&Entry::Inode(Inode { volume: 1, ino: 9, shape: FileShape::File, size: 3 << 20 }));
    let of = |deed, ino| Operation { volume: 1, ..Operation::new(deed, ino) };
    let named = |deed, name, made| Operation { name, made, ..of(deed, ROOT) };
    let data = |deed, ino, offset, length: u32, flags| Operation {
        offset,
        length: length.into(),
        bytes: length,
        flags,
        ..of(deed, ino)
    };
    let operations = [
        named(Deed::Lookup, 70, 9),
        data(Deed::Read, 9, 1 << 20, 4096, Flags::READ),
        named(Deed::Lookup, 71, 0),
        named(Deed::Create, 71, 10),
        data(Deed::Write, 10, 0, 100_000, Flags::CACHED),
        data(Deed::Write, 10, 0, 50, Flags::APPEND),
        of(Deed::Fsync, 10),
        Operation { new_parent: ROOT, new_name: 72, ..named(Deed::Rename, 71, 0) },
        named(Deed::Lookup, 71, 0),
        Operation { flags: Flags::SIZE, offset: 60_000, ..of(Deed::SetAttr, 10) },
        Operation { errno: 2, ..named(Deed::Unlink, 75, 0) },
        of(Deed::StatFs, 0),
    ];
    for (number, operation) in (0..).zip(operations) {
        writer.add(&Entry::Operation(Operation { start_ns: 1000 * number, duration_ns: 500, ..operation }));
    }
    writer.add(&Entry::End(End::default()));
    writer.finish()
}

#[test]
fn a_recording_runs_on_the_simulated_brick() {
    let given = std::env::var_os("SINTER_RECORDING").map(|file| std::fs::read(file).expect("a readable file"));
    if let Some(file) = given {
        let (all, otherwise, _) = replay(&file, 1);
        println!("{all} operations, {otherwise} ended otherwise than recorded");
        assert!(otherwise * 100 <= all, "{otherwise} of {all} ended otherwise");
        return;
    }
    for seed in 1..4 {
        let (all, otherwise, mut sizes) = replay(&small(), seed);
        sizes.sort_unstable();
        assert_eq!((all, otherwise), (12, 0), "seed {seed}");
        // The directory itself, the file that was cut, and the one that was there.
        assert_eq!(sizes[1..], [Some(60_000), Some(3 << 20)], "seed {seed}: {sizes:?}");
    }
}
