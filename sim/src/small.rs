//! A small life, always the same: files and directories, synced and not, checkpoints, a turn of the cleaner; a crash; and
//! a second life that goes on with what the first one left and stops. One call of its disk or of its index fails, by its
//! number, so that each can be made to fail in turn.

use crate::history::Key;
use crate::model::Model;
use crate::workload::Client;
use crate::world::Served;
use base::{
    At, Error, FileKind, Ino, Kind, Name, Op, Outcome, Reply, RequestId, Result, Room, SessionId, SetAttr, SetHow,
};
use base::{Sync, limits::IO_BYTES_MAX};
use group::{Answer, Options};
use runtime::Runtime;
use runtime::sim::{Fail, FaultPlan, SimDisk};
use store::FreeLimits;

/// Lives of the script.
pub const LIVES: u64 = 2;
/// Segments of its brick: the fewest in which the reserve (rule K5) is more than what two lives hold open.
pub const SEGMENTS: u64 = 32;
/// MiB of the large file: with what overwrites it, enough that the cleaner works ahead.
const LARGE_PARTS: u64 = 12;

/// The kind of calls that are counted, and the error of the one that fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Calls {
    /// Reads of the disk: EIO.
    Reads,
    /// Its writes: EIO.
    Writes,
    /// Its writes: ENOSPC, from a host that has promised more than it has.
    FullWrites,
    /// Its flushes: EIO.
    Flushes,
    /// Making files and reserving their space: ENOSPC.
    Space,
    /// The same: EIO.
    Files,
    /// Making names durable: EIO.
    Names,
    /// Reads of the index.
    IndexReads,
    /// Writes of the index, and making them durable.
    IndexWrites,
}

impl Calls {
    /// All of them.
    pub const ALL: [Calls; 9] = [
        Calls::Reads,
        Calls::Writes,
        Calls::FullWrites,
        Calls::Flushes,
        Calls::Space,
        Calls::Files,
        Calls::Names,
        Calls::IndexReads,
        Calls::IndexWrites,
    ];
    /// A failure after which nobody knows what is on the device: the brick takes no more changes (rule U4).
    pub fn ends_changes(self) -> bool {
        matches!(self, Calls::Writes | Calls::Flushes | Calls::IndexWrites)
    }
    /// True if clients may hear that there is no space. Of a host that fails they hear that.
    pub fn fills(self) -> bool {
        matches!(self, Calls::Space | Calls::FullWrites)
    }
}

/// The call that fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trouble {
    /// Number of the life, from 0.
    pub life: u64,
    /// The kind of calls.
    pub calls: Calls,
    /// Number of the call that fails, from 1.
    pub nth: u64,
}

impl Trouble {
    /// The part of it for the disk; the index gets the rest.
    pub fn plan(&self) -> FaultPlan {
        let (nth, plan) = (Fail::Nth(self.nth), FaultPlan::default());
        match self.calls {
            Calls::Reads => FaultPlan { reads: nth, ..plan },
            Calls::Writes => FaultPlan { writes: nth, ..plan },
            Calls::FullWrites => FaultPlan { writes: nth, error: Some(Kind::NoSpace), ..plan },
            Calls::Flushes => FaultPlan { flushes: nth, ..plan },
            Calls::Space => FaultPlan { space: nth, ..plan },
            Calls::Files => FaultPlan { space: nth, error: Some(Kind::Io), ..plan },
            Calls::Names => FaultPlan { names: nth, ..plan },
            Calls::IndexReads | Calls::IndexWrites => plan,
        }
    }
}

/// Checkpoints only where the script makes them, and the least of caches, so that the index is read.
pub const OPTIONS: Options = Options {
    overlay_bytes: 64 << 20,
    replay_bytes: u64::MAX,
    replay_records: u64::MAX,
    quiet_ns: u64::MAX,
    cache_bytes: 1,
    read_cache_bytes: 0,
    promotion_bytes: 0,
    numbers_at_once: 16,
    free: FreeLimits { at_once: 1, slots_at_once: 64, slots_later: 256 },
    kept_records: 100,
};

/// The script's one client, which knows what it should read.
pub struct Script<'a> {
    client: Client,
    runtime: &'a Runtime,
    served: &'a Served,
    session: SessionId,
    request: u64,
    root: Ino,
    /// All that was answered.
    sure: Model,
    /// The same and a change that failed: it may have been ordered before.
    perhaps: Option<Model>,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a good name")
}

fn wrong(what: String) -> Error {
    // Corrupt: no fault of the script excuses it.
    Error::new(Kind::Corrupt, "a promise was broken").with(what)
}

impl<'a> Script<'a> {
    /// A client of a volume that holds `sure` and has this root.
    pub fn new(
        client: Client,
        runtime: &'a Runtime,
        served: &'a Served,
        session: SessionId,
        (root, sure): (Ino, Model),
    ) -> Script<'a> {
        // The first request has made the volume.
        Script { client, runtime, served, session, request: 1, root, sure, perhaps: None }
    }

    /// Plays a life. `trouble`: what fails in it. Errors: only a broken promise.
    pub async fn play(mut self, life: u64, disk: &SimDisk, trouble: Option<Trouble>) -> Result<()> {
        match life {
            0 => self.first().await?,
            _ => self.second().await?,
        }
        // Whoever met the failure has said so by then.
        let met = disk.faults_met();
        self.runtime.clock.sleep(5_000_000).await;
        let ends = trouble.is_some_and(|trouble| trouble.calls.ends_changes());
        if met > 0 && ends && self.served.groups.store().log.failed().is_none() {
            return Err(wrong(format!("{trouble:?} went unnoticed (rule U4)")));
        }
        Ok(())
    }

    async fn first(&mut self) -> Result<()> {
        let root = self.root;
        let Some(dir) = self.make(Op::MakeDir { parent: root, name: name("dir"), mode: 0o755 }).await? else {
            return Ok(());
        };
        let Some(small) = self.file(root, "small").await? else { return Ok(()) };
        let Some(large) = self.file(dir, "large").await? else { return Ok(()) };
        self.make(Op::SymLink { parent: root, name: name("link"), target: (*b"dir/large").into() }).await?;
        self.write(small, At::Offset(0), 10_000, Sync::Ordered).await?;
        self.write(small, At::End, 5_000, Sync::Data).await?;
        self.write(small, At::Offset(4096), 4096, Sync::Written).await?;
        let attribute = Name::of_attribute(b"user.a").expect("a good name");
        let value = vec![7; 300].into();
        let set = Op::SetXattr { ino: small, name: attribute, value, how: SetHow::Any, kill_setgid: false };
        self.ask(set, 0).await?;
        self.ask(Op::Fsync { ino: small, sync: Sync::All }, 0).await?;
        self.fill(large).await?;
        self.ask(Op::Link { ino: small, new_parent: dir, new_name: name("hard") }, 0).await?;
        self.rename((root, "link"), (dir, "moved")).await?;
        let set = SetAttr { size: Some((3 << 20) + 77_777), ..SetAttr::default() };
        self.ask(Op::SetAttr { ino: large, set: set.into() }, 0).await?;
        self.clear(large, 600_000, 300_000, Room::Hole).await?;
        self.clear(large, 1_500_001, 9_000, Room::Zeroed).await?;
        self.clear(large, 13 << 20, 50_000, Room::Promised).await?;
        self.checkpoint().await;
        self.write(small, At::Offset(100), 50, Sync::All).await?;
        if let Some(late) = self.file(root, "late").await? {
            self.write(late, At::End, 3_000, Sync::Ordered).await?;
            self.read(late).await?;
        }
        self.read(small).await
    }

    /// Most of what is written first is dead soon, here and there: the cleaner has to make room.
    async fn fill(&mut self, large: Ino) -> Result<()> {
        for part in 0..LARGE_PARTS {
            self.write(large, At::Offset(part << 20), IO_BYTES_MAX as u32, Sync::Ordered).await?;
        }
        self.ask(Op::SyncAll, 0).await?;
        self.checkpoint().await;
        for round in 0..4 {
            for part in 0..LARGE_PARTS {
                let at = At::Offset((part << 20) + (round << 18));
                self.write(large, at, (192 << 10) as u32, Sync::Ordered).await?;
            }
            self.ask(Op::Fsync { ino: large, sync: Sync::Data }, 0).await?;
            self.checkpoint().await;
        }
        self.runtime.clock.sleep(600_000_000).await;
        self.checkpoint().await;
        self.read(large).await
    }

    async fn second(&mut self) -> Result<()> {
        let root = self.root;
        let Some(dir) = self.find(root, "dir") else { return Ok(()) };
        let (small, large) = (self.find(root, "small"), self.find(dir, "large"));
        for file in [small, large].into_iter().flatten() {
            self.read(file).await?;
        }
        if let Some(small) = small {
            // Within a block of which only the device knows the rest.
            self.write(small, At::Offset(6_000), 100, Sync::Data).await?;
            self.write(small, At::End, 20_000, Sync::Ordered).await?;
            self.ask(Op::Fsync { ino: small, sync: Sync::Data }, 0).await?;
        }
        if let Some(large) = large {
            let set = SetAttr { size: Some(1_234_567), ..SetAttr::default() };
            self.ask(Op::SetAttr { ino: large, set: set.into() }, 0).await?;
            self.write(large, At::End, 200_000, Sync::All).await?;
        }
        let sub = self.make(Op::MakeDir { parent: root, name: name("sub"), mode: 0o700 }).await?;
        if let Some(sub) = sub {
            self.rename((dir, "hard"), (sub, "moved")).await?;
            self.rename((dir, "large"), (sub, "large")).await?;
        }
        self.checkpoint().await;
        if self.find(root, "late").is_some() {
            self.ask(Op::Unlink { parent: root, name: name("late") }, 0).await?;
        }
        self.runtime.clock.sleep(300_000_000).await;
        for file in [small, large].into_iter().flatten() {
            self.read(file).await?;
        }
        Ok(())
    }

    fn find(&self, dir: Ino, text: &str) -> Option<Ino> {
        self.sure.nodes.get(&dir)?.entries.get(&name(text)).copied()
    }

    /// Asks for something new, once more if that fails: what comes after it needs it.
    async fn make(&mut self, op: Op) -> Result<Option<Ino>> {
        for _ in 0..2 {
            if let Some(Answer { reply: Reply::Attr(attr), .. }) = self.ask(op.clone(), 0).await? {
                return Ok(Some(attr.ino));
            }
        }
        Ok(None)
    }

    async fn file(&mut self, parent: Ino, text: &str) -> Result<Option<Ino>> {
        self.make(Op::Create { parent, name: name(text), mode: 0o644, exclusive: true }).await
    }

    async fn write(&mut self, ino: Ino, at: At, length: u32, sync: Sync) -> Result<()> {
        self.ask(Op::Write { ino, at, sync, kill_privileges: false }, length).await.map(drop)
    }

    async fn clear(&mut self, ino: Ino, offset: u64, length: u64, room: Room) -> Result<()> {
        self.ask(Op::Allocate { ino, offset, length, keep_size: true, room }, 0).await.map(drop)
    }

    async fn rename(&mut self, (parent, from): (Ino, &str), (new_parent, to): (Ino, &str)) -> Result<()> {
        if self.find(parent, from).is_none() {
            return Ok(());
        }
        let (name, new_name) = (name(from), name(to));
        self.ask(Op::Rename { parent, name, new_parent, new_name, no_replace: true, whiteout: false }, 0)
            .await
            .map(drop)
    }

    async fn checkpoint(&mut self) {
        // If it fails the log fails with it: every later answer tells.
        self.client.checkpoint().await;
    }

    /// Delivers a request; None if it was refused. Errors: a broken promise.
    async fn ask(&mut self, op: Op, length: u32) -> Result<Option<Answer>> {
        self.request += 1;
        let key = (self.session, RequestId(self.request));
        let failed = || self.served.groups.store().log.failed().is_some();
        let ended = failed();
        let told = self.client.deliver(key, op.clone(), length).await;
        if failed() && told.as_ref().is_err_and(|error| error.kind == Kind::NoSpace) {
            return Err(wrong(format!("a brick that has failed says that it is full (rule U4): {op:?}")));
        }
        if op.mutates() {
            self.note(key, &op, length, &told, ended)?;
        }
        Ok(told.ok())
    }

    fn note(&mut self, key: Key, op: &Op, length: u32, told: &Result<Answer>, ended: bool) -> Result<()> {
        match told {
            Ok(answer) if ended && answer.position.is_some() => {
                Err(wrong(format!("a change was taken after the first failed write (rule U4): {op:?}")))
            }
            Ok(answer) => {
                let outcome = match &answer.reply {
                    Reply::Attr(attr) => Outcome::Inode(attr.ino),
                    Reply::Wrote { offset, length } => Outcome::Wrote { offset: *offset, length: *length },
                    _ => Outcome::Done,
                };
                self.perhaps = None;
                self.sure.apply(key, op, length, outcome).map_err(wrong)
            }
            Err(_) if ended => Ok(()),
            Err(_) => {
                let outcome = match op {
                    Op::Write { at: At::Offset(offset), .. } => Outcome::Wrote { offset: *offset, length },
                    Op::Write { ino, at: At::End, .. } => {
                        Outcome::Wrote { offset: self.sure.nodes[ino].bytes.len() as u64, length }
                    }
                    _ => Outcome::Done,
                };
                let mut perhaps = self.sure.clone();
                // Of what would have made something nobody knows the number.
                self.perhaps = perhaps.apply(key, op, length, outcome).is_ok().then_some(perhaps);
                Ok(())
            }
        }
    }

    /// Reads a file piece by piece: each is what it should be, or an error.
    async fn read(&mut self, ino: Ino) -> Result<()> {
        let of = |model: &Model| match model.nodes.get(&ino) {
            Some(node) if node.kind == FileKind::File => node.bytes.clone(),
            _ => Vec::new(),
        };
        let all = [Some(of(&self.sure)), self.perhaps.as_ref().map(of)];
        let end = all.iter().flatten().map(Vec::len).max().unwrap_or(0);
        for offset in (0..end).step_by(IO_BYTES_MAX) {
            let asked = Op::Read { ino, offset: offset as u64, length: IO_BYTES_MAX as u32 };
            let Some(answer) = self.ask(asked, 0).await? else { continue };
            let found = answer.data.as_deref().unwrap_or(&[]);
            let fits = |bytes: &Vec<u8>| {
                let (from, to) = (offset.min(bytes.len()), (offset + IO_BYTES_MAX).min(bytes.len()));
                bytes[from..to] == *found
            };
            if !all.iter().flatten().any(fits) {
                return Err(wrong(format!("{ino:?} reads wrong between {offset} and {}", offset + found.len())));
            }
        }
        Ok(())
    }
}
