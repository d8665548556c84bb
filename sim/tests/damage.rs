//! Bytes that rot, in each structure of a brick: what comes of it is an error, a brick that does not open, or a finding of
//! the check, and never wrong data or a panic (rules L5, K8, X4). All structures, random bytes of them.

use base::limits::{BLOCK_BYTES, SEGMENT_BYTES_MIN};
use base::{
    At, FileKind, Ino, Kind, Name, Op, Reply, RequestId, Result, Room, SegmentId, SessionId, SetAttr, SetHow, Sync,
};
use group::Options;
use runtime::Slabs;
use runtime::random::SplitMix;
use runtime::sim::Survival;
use sim::campaign;
use sim::check::readback::{self, Found};
use sim::history::{Key, payload};
use sim::small::OPTIONS;
use sim::workload::{Focus, Profile};
use sim::world::{Image, Machine, Served, context, format, serve, slabs, volume_name};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::format::batch::BatchHeader;
use store::format::keys::{self, Row};
use store::format::leaf::Leaf;
use store::format::segment::SegmentHeader;
use store::format::summary::{ENTRY_BYTES, decode_footer};
use store::format::values;
use store::format::values::SegmentState;
use store::{FreeLimits, Opening};

/// Limits with which a checkpoint frees so little of what was cut that several others have to follow.
const SLOWLY: Options = Options { free: FreeLimits { at_once: 1, slots_at_once: 8, slots_later: 8 }, ..OPTIONS };

const DATA: &str = "segments-00000";
const BLOCK: u64 = BLOCK_BYTES as u64;

/// Bytes that rot per place of each structure, one at a time.
const FLIPS: u64 = 3;
/// Places per structure at most: a brick has hundreds of live blocks.
const PLACES_MAX: usize = 12;

/// Something on the disk whose every byte matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Structure {
    Superblock,
    SegmentHeader,
    /// The header of a segment that only records after the last checkpoint name.
    YoungHeader,
    /// The fixed part of a batch that replay needs.
    BatchHeader,
    /// Its records.
    Records,
    /// A block that a file has.
    Payload,
    SummaryEntries,
    SummaryFooter,
}

/// The region of a structure: file, offset, bytes.
type Region = (&'static str, u64, u64);

/// The client that makes the brick what it is, and those that look at what is left of it.
struct Client<'a> {
    served: &'a Served,
    requests: std::cell::Cell<u64>,
}

impl Client<'_> {
    async fn ask(&self, op: Op, length: usize) -> Result<Reply> {
        let key: Key = (SessionId(9), RequestId(self.requests.replace(self.requests.get() + 1)));
        let volume = match op {
            Op::VolumeCreate { .. } => base::VolumeId(0),
            _ => self.served.groups.volume(&volume_name()).await?.id,
        };
        let mut data = None;
        if matches!(op, Op::Write { .. }) {
            let mut buffer = self.served.groups.store().runtime.buffer(length)?;
            payload(key, &mut buffer);
            data = Some(buffer);
        }
        let answer = self.served.call(&context(volume, key), op, data).await?;
        match (answer.reply, answer.data) {
            (Reply::Data { .. }, Some(data)) => Ok(Reply::Target(data.to_vec().into())),
            (reply, _) => Ok(reply),
        }
    }
    async fn make(&self, op: Op) -> Ino {
        match self.ask(op, 0).await {
            Ok(Reply::Attr(attr)) => attr.ino,
            other => panic!("a healthy brick makes files: {other:?}"),
        }
    }
    async fn file(&self, parent: Ino, text: &str) -> Ino {
        self.make(Op::Create { parent, name: name(text), mode: 0o644, exclusive: true }).await
    }
    async fn write(&self, ino: Ino, offset: u64, length: usize, sync: Sync) {
        let op = Op::Write { ino, at: At::Offset(offset), sync, kill_privileges: false };
        self.ask(op, length).await.expect("a healthy brick writes");
    }
    async fn done(&self, op: Op) {
        self.ask(op, 0).await.expect("a healthy brick does what it is asked");
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a good name")
}

fn client(served: &Served) -> Client<'_> {
    Client { served, requests: 1.into() }
}

/// Something of every kind: in the index, in the log behind it, in segments that are sealed and in open ones.
async fn fill(served: &Served) {
    let client = client(served);
    let root = match client.ask(Op::VolumeCreate { name: volume_name(), size_bytes: None }, 0).await {
        Ok(Reply::Volume(volume)) => volume.root,
        other => panic!("a healthy brick makes volumes: {other:?}"),
    };
    let dir = client.make(Op::MakeDir { parent: root, name: name("dir"), mode: 0o755 }).await;
    let (small, large, cut) =
        (client.file(root, "small").await, client.file(dir, "large").await, client.file(dir, "cut").await);
    client.make(Op::SymLink { parent: root, name: name("link"), target: (*b"dir/large").into() }).await;
    client.write(small, 0, 50_000, Sync::Ordered).await;
    for part in 0..4 {
        client.write(large, part << 20, 1 << 20, Sync::Ordered).await;
    }
    // More than one checkpoint frees.
    for part in 0..3 {
        client.write(cut, part << 20, 1 << 20, Sync::Ordered).await;
    }
    let attribute = Name::of_attribute(b"user.a").expect("a good name");
    let value = vec![7; 300].into();
    client.done(Op::SetXattr { ino: small, name: attribute, value, how: SetHow::Any, kill_setgid: false }).await;
    let room = Op::Allocate { ino: small, offset: 100_000, length: 400_000, keep_size: true, room: Room::Promised };
    client.done(room).await;
    client.done(Op::SyncAll).await;
    served.checkpoint().await.expect("a healthy brick checkpoints");
    // An orphan, and what is left to free of a file that was cut.
    client.file(root, "open").await;
    client.done(Op::Unlink { parent: root, name: name("open") }).await;
    client.done(Op::SetAttr { ino: cut, set: SetAttr { size: Some(10), ..SetAttr::default() }.into() }).await;
    served.checkpoint().await.expect("a healthy brick checkpoints");
    let after = client.file(dir, "after").await;
    for part in 0..6 {
        client.write(after, part * 6000, 6000, Sync::Data).await;
        // Behind what the index knows of it: those blocks stay in use.
        client.write(small, 60_000 + part * 5000, 5000, Sync::Data).await;
    }
    // More than the segments hold that the checkpoint knows.
    for part in 1..4 {
        client.write(after, part << 20, 1 << 20, Sync::Data).await;
    }
    client.done(Op::SyncAll).await;
    client.done(Op::SyncAll).await;
}

/// A brick that crashed when all was durable, and what it held.
fn brick(slabs: &Arc<Slabs>) -> (Image, Found) {
    let mut machine = Machine::boot(3, 2, None, slabs);
    let (runtime, index) = (machine.runtime(), machine.index.clone());
    let profile = Profile::draw(&mut SplitMix(1)).focused(Focus::Any).small();
    let found = machine.world.block_on(async {
        format(&runtime, &profile).await.expect("an empty disk can be formatted");
        let served = serve(runtime, index, SLOWLY).await.expect("just formatted");
        fill(&served).await;
        readback::read(&served).await.expect("a healthy brick reads")
    });
    (machine.crash(Survival::Nothing, &mut SplitMix(1)), found)
}

/// The regions of the structures.
fn regions(image: &Image, expected: &Found) -> BTreeMap<Structure, Vec<Region>> {
    let index = Machine::boot(1, 2, Some(image.clone()), &slabs()).index;
    let rows = index.rows();
    let of = |wanted: Row| rows.iter().filter(move |(key, _)| keys::row(key).is_some_and(|(.., row)| row == wanted));
    let mut all: BTreeMap<Structure, Vec<Region>> = BTreeMap::new();
    let mut add = |structure, region: Region| all.entry(structure).or_default().push(region);
    // Magic to features: what follows differs in length.
    (0..2).for_each(|copy| add(Structure::Superblock, ("superblock", copy * BLOCK, 64)));
    let table: Vec<_> = of(Row::Segment)
        .map(|(key, value)| (keys::segment_id(key), values::decode_segment(value).expect("a healthy row")))
        .filter(|(_, row)| row.state != SegmentState::Free)
        .collect();
    let read = |at: u64, blocks: u64| image.disk.read(DATA, at, (blocks * BLOCK) as usize).expect("the file was made");
    for (segment, row) in &table {
        let start = u64::from(segment.0) * SEGMENT_BYTES_MIN;
        let lives = row.live.iter().any(|word| *word > 0);
        if lives && SegmentHeader::decode(&read(start, 1)).is_ok_and(|header| header.life == row.life) {
            add(Structure::SegmentHeader, (DATA, start, 40));
        }
        let footer = start + SEGMENT_BYTES_MIN - BLOCK;
        if let Ok(found) = decode_footer(&read(footer, 1))
            && (row.state, row.life) == (SegmentState::Sealed, found.life)
        {
            let bytes = (found.entries as usize * ENTRY_BYTES) as u64;
            add(Structure::SummaryEntries, (DATA, footer - bytes.next_multiple_of(BLOCK), bytes));
            add(Structure::SummaryFooter, (DATA, footer, 44));
        }
    }
    let lives: BTreeMap<_, _> = of(Row::Segment)
        .map(|(key, value)| (keys::segment_id(key), values::decode_segment(value).expect("a healthy row").life))
        .collect();
    for segment in 0..(image.disk.length(DATA).expect("the file was made") / SEGMENT_BYTES_MIN) as u32 {
        let start = u64::from(segment) * SEGMENT_BYTES_MIN;
        let known = lives.get(&SegmentId(segment)).copied().unwrap_or_default();
        let young = SegmentHeader::decode(&read(start, 1)).is_ok_and(|header| header.life > known);
        if young && read(start + BLOCK, 1).iter().any(|byte| *byte != 0) {
            add(Structure::YoungHeader, (DATA, start, 40));
        }
    }
    // What was cut has leaves that nobody reads.
    let has_bytes = |key: &[u8]| expected.model.nodes.get(&keys::leaf_of(key).ino).is_some_and(|n| n.bytes.len() > 10);
    for (_, value) in of(Row::Leaf).filter(|(key, _)| has_bytes(key)) {
        let leaf = Leaf::decode(value).expect("a healthy row");
        for place in leaf.places() {
            let at = u64::from(place.segment.0) * SEGMENT_BYTES_MIN + u64::from(place.block) * BLOCK;
            add(Structure::Payload, (DATA, at, BLOCK));
        }
    }
    let replay = of(Row::Replay).map(|(_, value)| values::decode_replay(value).expect("a healthy row")).next();
    for (at, header) in needed_batches(image, replay.expect("a checkpoint has been made").number) {
        add(Structure::BatchHeader, (DATA, at, 96));
        if header.records_bytes > 0 {
            add(Structure::Records, (DATA, at + 96, u64::from(header.records_bytes)));
        }
    }
    all
}

/// Batches that replay reads and of which a later one says that they were durable.
fn needed_batches(image: &Image, from: u64) -> Vec<(u64, BatchHeader)> {
    let blocks = image.disk.length(DATA).expect("the file was made") / BLOCK;
    let at = |block: u64| {
        let bytes = image.disk.read(DATA, block * BLOCK, 17 * BLOCK_BYTES).expect("the file was made");
        let header = BatchHeader::peek(&bytes).ok()?;
        let whole = &bytes[..usize::from(header.header_blocks) * BLOCK_BYTES];
        BatchHeader::check(whole).ok().map(|(header, _)| (block * BLOCK, header))
    };
    let all: Vec<_> = (0..blocks).filter_map(at).collect();
    let durable = all.iter().map(|(_, header)| header.durable_through).max().unwrap_or(0);
    all.into_iter().filter(|(_, header)| (from..=durable).contains(&header.number)).collect()
}

/// An answer to somebody who knows better: right, or an error that blames the brick.
/// What files take is nothing that the model knows.
fn plain(reply: Reply) -> Reply {
    match reply {
        Reply::Attr(attr) => Reply::Attr(base::Attr::new(attr.ino, attr.inode)),
        reply => reply,
    }
}

fn judge<T: PartialEq + std::fmt::Debug>(what: &str, told: Result<T>, right: &T) -> std::result::Result<bool, String> {
    match told {
        Ok(told) if told == *right => Ok(false),
        Err(error) if matches!(error.kind, Kind::Corrupt | Kind::Io) => Ok(true),
        Ok(_) => Err(format!("{what} is served, and is wrong")),
        Err(error) => Err(format!("{what}: {error:?}")),
    }
}

/// Reads all that was there. True if anything is reported; errors: what is told wrong.
async fn compare(served: &Served, expected: &Found) -> std::result::Result<bool, String> {
    let (client, mut reported) = (client(served), false);
    for (&ino, node) in &expected.model.nodes {
        let attr = client.ask(Op::GetAttr { ino }, 0).await.map(plain);
        let right = Reply::Attr(base::Attr::new(ino, expected.inodes[&ino]));
        reported |= judge(&format!("what {ino:?} is"), attr, &right)?;
        match node.kind {
            FileKind::Directory => {
                let listed = client.ask(Op::ReadDir { ino, cookie: 0, count: 1000, plus: true }, 0).await;
                let entries = listed.map(|reply| match reply {
                    Reply::Entries { entries, .. } => {
                        entries.into_iter().map(|entry| (entry.name, entry.ino)).collect()
                    }
                    _ => BTreeMap::new(),
                });
                reported |= judge(&format!("the listing of {ino:?}"), entries, &node.entries)?;
                for (name, child) in &node.entries {
                    let found = client.ask(Op::Lookup { parent: ino, name: name.clone() }, 0).await.map(plain);
                    let right = Reply::Attr(base::Attr::new(*child, expected.inodes[child]));
                    reported |= judge(&format!("{name:?} in {ino:?}"), found, &right)?;
                }
            }
            FileKind::Link => {
                let target = client.ask(Op::ReadLink { ino }, 0).await;
                reported |= judge(&format!("the target of {ino:?}"), target, &Reply::Target((*node.target).into()))?;
            }
            _ => {
                for (number, bytes) in node.bytes.chunks(30_000).enumerate() {
                    let (offset, length) = (number as u64 * 30_000, bytes.len() as u32);
                    let read = client.ask(Op::Read { ino, offset, length }, 0).await;
                    reported |= judge(&format!("{ino:?} from {offset}"), read, &Reply::Target(bytes.into()))?;
                }
            }
        }
        for (name, value) in &node.xattrs {
            let told = client.ask(Op::GetXattr { ino, name: name.clone() }, 0).await;
            reported |= judge(&format!("{name:?} of {ino:?}"), told, &Reply::Value(value.clone()))?;
        }
    }
    Ok(reported)
}

/// Clients go on as if nothing had happened: whatever they are told, nothing breaks.
async fn stir(served: &Served, expected: &Found) {
    let client = client(served);
    for (&ino, node) in &expected.model.nodes {
        if node.kind == FileKind::File {
            let op = Op::Write { ino, at: At::Offset(1), sync: Sync::Ordered, kill_privileges: false };
            let _ = client.ask(op, 3).await;
            let set = SetAttr { size: Some(node.bytes.len() as u64 / 2), ..SetAttr::default() };
            let _ = client.ask(Op::SetAttr { ino, set: set.into() }, 0).await;
        }
        for (name, child) in &node.entries {
            let op = match expected.model.nodes[child].kind {
                FileKind::Directory => Op::MakeDir { parent: *child, name: self::name("new"), mode: 0o755 },
                _ => Op::Unlink { parent: ino, name: name.clone() },
            };
            let _ = client.ask(op, 0).await;
        }
    }
    let _ = client.ask(Op::SyncAll, 0).await;
    let _ = served.checkpoint().await;
    let _ = served.checkpoint().await;
}

/// The offline check's findings: that something is wrong, and that a start refuses the brick.
async fn found(machine: &runtime::Runtime, index: &Arc<sim::index::CrashIndex>) -> (bool, bool) {
    let Ok(opening) = Opening::read(machine.clone(), index.clone(), false).await else { return (true, true) };
    let report = store::check::check(&opening, &mut |_| {}).await;
    report.map_or((true, false), |report| (!report.findings.is_empty(), report.log_lost))
}

/// The outcome for a damaged brick: true if the damage is reported. Errors: a wrong answer was given.
fn outcome(machine: &mut Machine, expected: &Found) -> std::result::Result<bool, String> {
    let (runtime, index) = (machine.runtime(), machine.index.clone());
    machine.world.block_on(async {
        let (mut reported, refused) = found(&runtime, &index).await;
        let served = match serve(runtime, index, OPTIONS).await {
            Ok(_) if refused => return Err("it opens, though the check says that it does not".to_string()),
            Ok(served) => served,
            Err(error) if !reported => return Err(format!("it does not open, and the check finds nothing: {error:?}")),
            Err(error) if matches!(error.kind, Kind::Corrupt | Kind::Io | Kind::Newer) => return Ok(true),
            Err(error) => return Err(format!("it does not open, for the wrong reason: {error:?}")),
        };
        reported |= compare(&served, expected).await?;
        stir(&served, expected).await;
        // Where something can't be read a last checkpoint may fail.
        let _ = served.close().await;
        Ok(reported)
    })
}

fn boot(image: &Image, slabs: &Arc<Slabs>) -> Machine {
    Machine::boot(5, 2, Some(image.clone()), slabs)
}

#[test]
fn no_rotten_byte_of_the_disk_is_served() {
    let slabs = slabs();
    let (image, expected) = brick(&slabs);
    assert_eq!(outcome(&mut boot(&image, &slabs), &expected), Ok(false), "without damage nothing is reported");
    let seed = campaign::seeds(1).start;
    println!("seed {seed}");
    let mut rng = SplitMix(seed);
    let all = regions(&image, &expected);
    assert_eq!(all.len(), 8, "some of each structure is there: {:?}", all.keys());
    for (structure, mut places) in all {
        while places.len() > PLACES_MAX {
            places.swap_remove(rng.below(places.len() as u64) as usize);
        }
        for (file, start, bytes) in places {
            for _ in 0..FLIPS {
                let mut damaged = image.clone();
                let within = rng.below(bytes);
                damaged.disk.flip_bits(file, start + within, &mut rng);
                let told = outcome(&mut boot(&damaged, &slabs), &expected);
                let what = format!("{structure:?}: byte {within} of {bytes} at {start} of {file}");
                assert_eq!(told, Ok(true), "{what} (seed {seed})");
            }
        }
    }
}

#[test]
fn no_rotten_row_of_the_index_is_served() {
    let slabs = slabs();
    let (image, expected) = brick(&slabs);
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for (key, _) in boot(&image, &slabs).index.rows() {
        let (.., row) = keys::row(&key).expect("only rows of known kinds");
        *seen.entry(format!("{row:?}")).or_default() += 1;
        let mut machine = boot(&image, &slabs);
        machine.index.rot(key);
        assert_eq!(outcome(&mut machine, &expected), Ok(true), "a row of kind {row:?}");
    }
    println!("{seen:?}");
    for row in [
        Row::Group,
        Row::Inode,
        Row::Entry,
        Row::Cookie,
        Row::Target,
        Row::Leaf,
        Row::Orphan,
        Row::Session,
        Row::Volume,
        Row::Purge,
        Row::Usage,
        Row::Reserve,
        Row::Xattrs,
        Row::Segment,
        Row::Replay,
        Row::Summary,
    ] {
        assert!(seen.contains_key(&format!("{row:?}")), "{row:?} has rotted: {seen:?}");
    }
}
