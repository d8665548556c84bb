//! An operation, a reply and a body of every shape, for this package's tests and as seeds of fuzzing.

use base::lock::{Family, Mode};
use base::*;
use runtime::{Span, Stage, Stamp};
use wire::codec::hello::{Caches, Caching, Hello, HelloOk, Join, Joined, Reason, Refused, VERSIONS};
use wire::codec::lock::Freed;
use wire::codec::peer::{ParcelBody, PeerHello, PeerOk, Purpose};
use wire::codec::reply::{Failure, Stages, Told};
use wire::codec::session::{Changed, Held, Pulse, PulseOk, Recall, RecallDone, Reclaim, ReclaimDone, Refusal};
use wire::codec::{Body, Sums};
use wire::peer::PeerId;
use wire::{Context, FrameKind, Position};

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

pub fn context(uid: u32) -> Context {
    Context {
        session: SessionId(0x5e55_1043),
        request: RequestId(77),
        done: 70,
        uid,
        gid: 100,
        umask: 0o22,
        noatime: uid % 2 == 1,
        unkept: uid % 3 == 1,
        keeps: uid % 5 == 1,
        written_back: uid % 7 == 1,
        ..Context::own(VolumeId(3), Span::start(Stamp(0)))
    }
}

pub fn ops() -> Vec<Op> {
    let (parent, ino, new_parent) = (Ino(1 << 20), Ino(5 << 20 | 3), Ino(9 << 20 | 63));
    let (short, new_name) = (name("a"), name(&"long".repeat(60)));
    let attribute = Name::of_attribute(b"user.a/b").expect("a name");
    let set = SetAttr { mode: Some(0o640), size: Some(0), mtime: Some(SetTime::Now), ..SetAttr::default() };
    let guard = Guard { immutable: true, append_only: false, hands_down_project: true };
    let all = SetAttr {
        uid: Some(1),
        gid: Some(2),
        atime: Some(SetTime::To(Time(-1))),
        ctime: Some(Time(9)),
        guard: Some(guard),
        project: Some(7),
        kill_privileges: true,
        ..set
    };
    let fault = Layer::Fault { operations: Operations::Named("read"), kind: Kind::Io, every: 3 };
    let delay = Layer::Delay { operations: Operations::All, ns: 5 };
    let layers = [Layer::ReadOnly, delay, fault].into();
    let (mode, size_bytes) = (0o755, Some(1 << 40));
    let write = |at, sync| Op::Write { ino, at, sync, kill_privileges: sync == Sync::All };
    let room = |room| Op::Allocate { ino, offset: 1, length: 2, keep_size: room == Room::Hole, room };
    let xattr = |how, length: usize| {
        let value = vec![b'v'; length].into();
        Op::SetXattr { ino, name: attribute.clone(), value, how, kill_setgid: length == 0 }
    };
    vec![
        Op::Lookup { parent, name: short.clone() },
        Op::GetAttr { ino },
        Op::Recall { ino },
        Op::SetAttr { ino, set: Box::new(set) },
        Op::SetAttr { ino, set: Box::new(all) },
        Op::ReadLink { ino },
        Op::Create { parent, name: short.clone(), mode, exclusive: true },
        Op::MakeDir { parent, name: new_name.clone(), mode },
        Op::SymLink { parent, name: short.clone(), target: b"../there".to_vec().into() },
        Op::MakeNode { parent, name: short.clone(), kind: FileKind::Character, mode, rdev: 0x105 },
        Op::TempFile { parent, mode },
        Op::Link { ino, new_parent, new_name: new_name.clone() },
        Op::Unlink { parent, name: short.clone() },
        Op::RemoveDir { parent, name: short.clone() },
        Op::Rename {
            parent,
            name: short.clone(),
            new_parent,
            new_name: new_name.clone(),
            no_replace: false,
            whiteout: true,
        },
        Op::Exchange { parent, name: short.clone(), new_parent, new_name: new_name.clone() },
        Op::Open { ino, truncate: true },
        Op::Release { ino },
        Op::Forget { ino, times: 3 },
        Op::Read { ino, offset: 4096, length: 1 << 20 },
        write(At::Offset(100), Sync::Ordered),
        write(At::End, Sync::Written),
        write(At::End, Sync::Data),
        write(At::Offset(0), Sync::All),
        room(Room::Promised),
        room(Room::Hole),
        room(Room::Zeroed),
        Op::Seek { ino, offset: 7, what: Seek::Data },
        Op::Seek { ino, offset: 7, what: Seek::Hole },
        Op::GetXattr { ino, name: attribute.clone() },
        Op::ListXattr { ino },
        xattr(SetHow::Any, 0),
        xattr(SetHow::Create, 5),
        xattr(SetHow::Replace, limits::XATTR_VALUE_BYTES_MAX),
        Op::RemoveXattr { ino, name: attribute.clone() },
        Op::Fsync { ino, sync: Sync::Data },
        Op::ReadDir { ino, cookie: 8, count: 100, plus: true },
        Op::StatFs,
        Op::SyncAll,
        Op::VolumeCreate { name: short.clone(), size_bytes },
        Op::VolumeDelete { name: short.clone() },
        Op::VolumeRename { name: short.clone(), new_name },
        Op::VolumeResize { name: short.clone(), size_bytes: None },
        Op::VolumeLayers { name: short.clone(), layers },
        Op::VolumePolicy { name: short.clone(), policy: TierPolicy::FlashOnly },
        Op::VolumeLimits {
            name: short,
            tree: Some((1 << 30, ino)),
            changed: [(Limit::Iops, 0), (Limit::Burst, 9)].into(),
        },
        Op::VolumeList,
        Op::Lock { lock: Box::new(lock_of_range()), wish: LockWish::Queue },
        Op::Lock { lock: Box::new(lock_of_file()), wish: LockWish::Release },
    ]
}

pub fn volume() -> Volume {
    let every = |limit: Limit| (limit, if limit.is_bandwidth() { 1 << 20 } else { 50 });
    let limits = Limits::NONE.with(&Limit::ALL.map(every)).expect("within bounds");
    let limits = limits.with_tree(1 << 30, Ino(5), &[(Limit::ReadIops, 4)]).expect("within bounds");
    let limits = limits.with_tree(2 << 30, Ino(6), &[(Limit::Burst, 4)]).expect("within bounds");
    Volume {
        id: VolumeId(4),
        name: name("v"),
        root: Ino(1 << 20),
        created: Time(1),
        size_bytes: Some(1 << 30),
        layers: [Layer::ReadOnly].into(),
        policy: TierPolicy::WriteBack,
        limits,
    }
}

pub fn attr(kind: FileKind) -> Attr {
    let inode = Inode::blank(kind, Ino(5 << 20), Ino(1 << 20), Time(1_700_000_000_123_456_789));
    let guard = Guard { append_only: true, ..Guard::default() };
    let xattrs = Attributes::new(true, Some(TierHint::Disk));
    Attr::new(Ino(5 << 20), Inode { mode: 0o4755, links: 2, size: 5000, xattrs, guard, ..inode })
}

pub fn entries(count: u64) -> Reply {
    let kinds = [FileKind::File, FileKind::Directory, FileKind::Link, FileKind::Fifo, FileKind::Socket];
    let entry = |cookie: u64| {
        let kind = kinds[cookie as usize % kinds.len()];
        let name = name(&format!("{cookie}{}", "n".repeat(cookie as usize % 250)));
        DirEntry { cookie, ino: Ino(cookie), kind, name, attr: (cookie % 2 == 1).then(|| attr(kind)) }
    };
    Reply::Entries { entries: (1..=count).map(entry).collect(), next_cookie: count + 1 }
}

pub fn replies() -> Vec<Reply> {
    vec![
        Reply::Done,
        Reply::Attr(attr(FileKind::BlockDevice)),
        Reply::Target(b"goal".to_vec().into()),
        Reply::Value((*b"value").into()),
        Reply::Value(vec![7; limits::XATTR_VALUE_BYTES_MAX].into()),
        Reply::Names(b"user.a\0user.b\0".to_vec().into()),
        Reply::Data { length: 5000 },
        Reply::Wrote { offset: 3, length: 4 },
        Reply::Found(Some(9)),
        Reply::Found(None),
        entries(3),
        Reply::StatFs(StatFs { size_bytes: 1, free_bytes: 2, inodes: 3 }),
        Reply::Volume(volume()),
        Reply::Volumes(vec![volume(), Volume { limits: Limits::NONE, size_bytes: None, ..volume() }]),
        Reply::InTheWay(None),
        Reply::InTheWay(Some(Box::new(lock_of_range()))),
    ]
}

/// A reply of every shape, and an error of every kind.
pub fn told() -> Vec<Told> {
    let mut stages = Stages::default();
    stages.set(Stage::Core, 3);
    stages.set(Stage::Reply, u32::MAX);
    let position = Position { group: GroupId(3), term: Term(1), index: Index(99), durable: true };
    let results = replies().into_iter().map(Ok);
    let failed = Kind::ALL.map(|kind| Failure::from(&Error::new(kind, "it failed").with(kind.name()))).map(Err);
    let told = |(number, result): (usize, _)| Told {
        result,
        position: (number % 2 == 1).then_some(position),
        stages: if number % 3 == 0 { Stages::default() } else { stages.clone() },
        sums: wire::codec::Sums::default(),
    };
    results.chain(failed).enumerate().map(told).collect()
}

/// The bytes of a body, encoded again from what they are decoded to.
type Again = fn(&[u8]) -> Result<Vec<u8>>;

fn again<B: Body>(body: &[u8]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    B::decode(body)?.encode(&mut out);
    Ok(out)
}

fn lock_of_range() -> FileLock {
    let (ino, family, mode) = (Ino(9 << 20), Family::Range, Mode::Exclusive);
    FileLock { ino, family, mode, owner: 77, pid: 4000, first: 0, last: u64::MAX }
}

fn lock_of_file() -> FileLock {
    FileLock { family: Family::Whole, mode: Mode::Shared, ..lock_of_range() }
}

/// The codec of each kind's body; None for kinds without one of their own.
pub fn codec(kind: FrameKind) -> Option<Again> {
    match kind {
        FrameKind::Hello => Some(again::<Hello>),
        FrameKind::HelloOk => Some(again::<HelloOk>),
        FrameKind::Refused => Some(again::<Refused>),
        FrameKind::Join => Some(again::<Join>),
        FrameKind::Joined => Some(again::<Joined>),
        FrameKind::Pulse => Some(again::<Pulse>),
        FrameKind::PulseOk => Some(again::<PulseOk>),
        FrameKind::Refusal => Some(again::<Refusal>),
        FrameKind::Reclaim => Some(again::<Reclaim>),
        FrameKind::ReclaimDone => Some(again::<ReclaimDone>),
        FrameKind::Recall => Some(again::<Recall>),
        FrameKind::RecallDone => Some(again::<RecallDone>),
        FrameKind::Freed => Some(again::<Freed>),
        FrameKind::PeerHello => Some(again::<PeerHello>),
        FrameKind::PeerOk => Some(again::<PeerOk>),
        FrameKind::Parcel => Some(again::<ParcelBody>),
        FrameKind::Op | FrameKind::Reply | FrameKind::Cancel | FrameKind::Bye | FrameKind::ByeOk => None,
        FrameKind::PeerPulse => None,
    }
}

fn greeting(purpose: Purpose) -> PeerHello {
    let (who, whom) = (PeerId(u128::from_be_bytes([3; 16])), PeerId(1));
    PeerHello { versions: VERSIONS, features: 1, cluster: [7; 16], who, whom, epoch: 4, purpose, lane: 0 }
}

fn parcels() -> Vec<(FrameKind, Vec<u8>)> {
    let body = |blocks: usize, message: &[u8]| {
        let payload = vec![7; blocks * 4096];
        ParcelBody { sums: Sums::of_blocks([&payload[..]].into_iter()), message: message.to_vec() }
    };
    encoded(&[body(0, b"a message"), body(0, b""), body(3, b"with three blocks"), body(1, b"")])
}

fn encoded<B: Body>(bodies: &[B]) -> Vec<(FrameKind, Vec<u8>)> {
    let one = |body: &B| {
        let mut out = Vec::new();
        body.encode(&mut out);
        (B::KIND, out)
    };
    bodies.iter().map(one).collect()
}

/// Bodies of every kind that has one of its own, but for operations and replies, in every shape.
pub fn bodies() -> Vec<(FrameKind, Vec<u8>)> {
    let (cluster, who, boot, volume) = ([7; 16], Box::from("büro-3"), 0x1234_5678, VolumeId(3));
    let hello = Hello {
        versions: VERSIONS,
        features: 5,
        cluster: Some(cluster),
        who,
        boot,
        volume: Some(name("home")),
        read_only: true,
        begins: true,
    };
    let bare = Hello { cluster: None, volume: None, ..hello.clone() };
    let ok = |caching| HelloOk {
        version: 1,
        features: 1,
        cluster,
        who: "server".into(),
        boot,
        epoch: 3,
        lease_ms: 10_000,
        volume: (caching == Caching::Alone).then(self::volume),
        read_only: false,
        squash_root: true,
        caches: Caches { caching, number: 3 },
        groups: 1,
    };
    let refused = Reason::ALL.map(|reason| Refused { reason, text: "ask for a token: sinter token create".into() });
    let join =
        Join { secret: [3; 32].into(), name: "c1".into(), request: [0x30, 0x82, 1, 2].into(), server: [].into() };
    let of_server = Join { server: b"brick and addresses"[..].into(), ..join.clone() };
    let joined = Joined { chain: vec![[0x30, 0x82].into(), [0x30, 0x83, 0].into()], about: [].into() };
    let server_joined = Joined { about: [7; 300].into(), ..joined.clone() };
    let freed = Freed { ino: Ino(5), owner: 77 };
    let (session, group, term) = (SessionId(7), GroupId(2), Term(4));
    let refusals = [
        Refusal::NotLeader { brick: Some(cluster), term },
        Refusal::NotLeader { brick: None, term },
        Refusal::OldMap { version: 8 },
        Refusal::Busy,
        Refusal::Fenced { session },
        Refusal::Reclaim { group, term },
    ];
    let held = Held { ino: Ino(5), opens: 2, known: 3 };
    let changed = Changed { ino: Ino(5), group: GroupId(3), term: Term(4), index: Index(1 << 40), start: 6 };
    let reclaim = Reclaim {
        volume,
        held: vec![held; 3],
        locks: vec![lock_of_range(), lock_of_file()],
        changed: vec![changed; 2],
        more: true,
    };
    let reclaimed = ReclaimDone { gone: vec![Ino(5)], lost: vec![lock_of_file()], undone: vec![Ino(7)] };
    let recalls = [Caching::Alone, Caching::Shared].map(|caching| Recall { caches: Caches { caching, number: 4 } });
    [
        encoded(&[hello, bare]),
        encoded(&[Caching::Alone, Caching::Shared].map(ok)),
        encoded(&refused),
        encoded(&[join, of_server]),
        encoded(&[joined, server_joined]),
        encoded(&[Pulse { sequence: 4, seen: 3, done: 70, clock: Time(1) }]),
        encoded(&[PulseOk {
            sequence: 4,
            boot,
            lease_ms: 10_000,
            caches: Caches { caching: Caching::Alone, number: 2 },
            alarms: 50,
            late_ns: 7_000,
        }]),
        encoded(&refusals),
        encoded(&[reclaim]),
        encoded(&[reclaimed]),
        encoded(&recalls),
        encoded(&[RecallDone { number: 4 }]),
        encoded(&[freed]),
        encoded(&Purpose::ALL.map(greeting)),
        encoded(&[PeerOk { version: 1, features: 2, epoch: 5 }]),
        parcels(),
    ]
    .concat()
}
