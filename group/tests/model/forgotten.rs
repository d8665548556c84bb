//! Inodes that a client knows stay until it forgets them, whatever happens to their names; in whatever order look-ups,
//! removals and what is forgotten come, for they come on different queues.

use crate::rig::{Rig, Shape, name, pattern, seeds};
use base::{At, Attr, Ino, Kind, Op, Reply, SetAttr, Sync};
use group::Context;
use runtime::random::SplitMix;
use runtime::sim::{Survival, World};

/// Long enough for what was forgotten to end.
const SOON_NS: u64 = 50_000_000;

/// A request of a client that keeps what it is told of.
async fn keeping(rig: &Rig, op: Op) -> Result<Reply, Kind> {
    let context = Context { keeps: true, ..rig.context() };
    rig.call_as(&context, op, None).await.map(|answer| answer.reply).map_err(|error| error.kind)
}

async fn told(rig: &Rig, op: Op) -> Result<Attr, Kind> {
    match keeping(rig, op).await? {
        Reply::Attr(attr) => Ok(attr),
        other => panic!("attributes: {other:?}"),
    }
}

async fn forget(rig: &Rig, ino: Ino, times: u64) {
    keeping(rig, Op::Forget { ino, times }).await.expect("a client may always forget");
}

async fn soon(rig: &Rig) {
    rig.runtime.clock.sleep(SOON_NS).await;
}

/// The events of one file, in their order: at the brick, or at the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    /// One of two look-ups is answered at the brick, or its answer reaches the client.
    Answered(usize),
    Told(usize),
    /// The name is removed.
    Unlinked,
    /// The client sends what it was told so often, or the brick takes it.
    Sent,
    Taken,
}

/// The content of the client and of the queues between it and the brick.
#[derive(Clone, Default)]
struct Client {
    answered: [bool; 2],
    /// Look-ups that found the name, whose answers are on their way.
    under_way: [bool; 2],
    unlinked: bool,
    /// Times that it was told, and has not sent back.
    known: u64,
    sent: Vec<u64>,
}

impl Client {
    fn possible(&self) -> Vec<Event> {
        let look_ups = (0..2).filter(|number| !self.answered[*number]).map(Event::Answered);
        let answers = (0..2).filter(|number| self.under_way[*number]).map(Event::Told);
        let mut events: Vec<Event> = look_ups.chain(answers).collect();
        events.extend((!self.unlinked).then_some(Event::Unlinked));
        events.extend((self.known > 0).then_some(Event::Sent));
        events.extend((!self.sent.is_empty()).then_some(Event::Taken));
        events
    }
    /// Performs an event. Returns how many answers the brick is told that the client takes back.
    fn happen(&mut self, event: Event) -> u64 {
        match event {
            Event::Answered(number) => {
                self.answered[number] = true;
                self.under_way[number] = !self.unlinked;
            }
            Event::Told(number) => {
                self.under_way[number] = false;
                self.known += 1;
            }
            Event::Unlinked => self.unlinked = true,
            Event::Sent => self.sent.push(std::mem::take(&mut self.known)),
            Event::Taken => return self.sent.remove(0),
        }
        0
    }
    /// The client has the inode, or will when an answer comes.
    fn may_come(&self) -> bool {
        self.known > 0 || self.under_way.contains(&true)
    }
}

/// Every order in which all of it can happen.
fn orders(client: &Client, so_far: &mut Vec<Event>, all: &mut Vec<Vec<Event>>) {
    let possible = client.possible();
    if possible.is_empty() {
        all.push(so_far.clone());
    }
    for event in possible {
        let mut next = client.clone();
        next.happen(event);
        so_far.push(event);
        orders(&next, so_far, all);
        so_far.pop();
    }
}

#[test]
pub fn a_known_inode_stays_in_every_order_of_the_queues() {
    let mut all = Vec::new();
    orders(&Client::default(), &mut Vec::new(), &mut all);
    assert!(all.len() > 200, "{} orders", all.len());
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let parent = rig.volume.root;
        for order in &all {
            let ino = rig.create(parent, "file").await.expect("a new file");
            let mut client = Client::default();
            for &event in order {
                let forgets = client.happen(event);
                match event {
                    Event::Answered(number) => {
                        let found = told(&rig, Op::Lookup { parent, name: name("file") }).await;
                        assert_eq!(found.is_ok(), client.under_way[number], "{order:?}");
                    }
                    Event::Unlinked => rig.done(Op::Unlink { parent, name: name("file") }).await.expect("it is there"),
                    Event::Taken => forget(&rig, ino, forgets).await,
                    Event::Told(_) | Event::Sent => {}
                }
                if matches!(event, Event::Unlinked | Event::Taken) {
                    soon(&rig).await;
                }
                let there = rig.attr(Op::GetAttr { ino }).await;
                if client.may_come() {
                    assert!(there.is_ok(), "{event:?} in {order:?}");
                }
            }
            assert_eq!(rig.attr(Op::GetAttr { ino }).await, Err(Kind::Stale), "{order:?}");
            assert_eq!(rig.groups.known_inodes(), 0, "{order:?}");
        }
        rig.close().await;
    });
}

/// A name that a rename replaces: who had found the old file goes on with it.
#[test]
fn a_replaced_file_serves_who_found_it_before() {
    let mut world = World::new(2);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let parent = rig.volume.root;
        rig.settle().await;
        let free = rig.free_bytes().await;
        let old = rig.create(parent, "name").await.expect("a new file");
        rig.write(old, At::End, &pattern(1, 300_000), Sync::Ordered).await.expect("a write");
        assert_eq!(told(&rig, Op::Lookup { parent, name: name("name") }).await.expect("it is there").ino, old);
        rig.create(parent, "new").await.expect("a new file");
        let (from, to) = (name("new"), name("name"));
        let op =
            Op::Rename { parent, name: from, new_parent: parent, new_name: to, no_replace: false, whiteout: false };
        rig.done(op).await.expect("it replaces");
        rig.checkpoint().await;
        // All that came with the old number.
        assert_eq!(rig.attr(Op::Open { ino: old, truncate: false }).await.expect("the old file").inode.links, 0);
        assert_eq!(rig.read(old, 0, 300_000).await, Ok(pattern(1, 300_000)));
        rig.truncate(old, 100_000).await.expect("the old file");
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        rig.attr(Op::SetAttr { ino: old, set: set.into() }).await.expect("the old file");
        let (ino, how) = (old, base::SetHow::Any);
        let op = Op::SetXattr { ino, name: name("user.a"), value: [1].into(), how, kill_setgid: false };
        rig.done(op).await.expect("the old file");
        rig.done(Op::Release { ino: old }).await.expect("it is open");
        assert_eq!(rig.read(old, 0, 300_000).await, Ok(pattern(1, 100_000)));
        forget(&rig, old, 1).await;
        soon(&rig).await;
        assert_eq!(rig.attr(Op::GetAttr { ino: old }).await, Err(Kind::Stale));
        rig.done(Op::Unlink { parent, name: name("name") }).await.expect("the new file");
        rig.settle().await;
        assert_eq!(rig.free_bytes().await, free);
        rig.close().await;
    });
}

/// A removed directory that somebody is in, or has open: no links, no entries, and what is changed of it is changed.
#[test]
fn a_removed_directory_serves_who_is_in_it() {
    let mut world = World::new(3);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let root = rig.volume.root;
        let dir = told(&rig, Op::MakeDir { parent: root, name: name("dir"), mode: 0o755 }).await.expect("new").ino;
        rig.create(dir, "lost").await.expect("a new file");
        rig.done(Op::Unlink { parent: dir, name: name("lost") }).await.expect("it is there");
        rig.done(Op::RemoveDir { parent: root, name: name("dir") }).await.expect("it is empty");
        rig.checkpoint().await;
        let attr = rig.attr(Op::GetAttr { ino: dir }).await.expect("it is known");
        assert_eq!((attr.inode.links, attr.inode.parent), (0, root));
        assert_eq!(rig.list(dir, 10).await, Ok(Vec::new()));
        let set = SetAttr { mode: Some(0o700), atime: Some(base::SetTime::Now), ..SetAttr::default() };
        assert_eq!(rig.attr(Op::SetAttr { ino: dir, set: set.into() }).await.expect("it is known").inode.mode, 0o700);
        assert_eq!(rig.create(dir, "file").await, Err(Kind::NotFound));
        assert_eq!(rig.lookup(dir, "lost").await, Err(Kind::NotFound));
        forget(&rig, dir, 1).await;
        soon(&rig).await;
        assert_eq!(rig.attr(Op::GetAttr { ino: dir }).await, Err(Kind::Stale));
        rig.close().await;
    });
}

/// An open file that is forgotten first, and one that is closed first; many at once, over a checkpoint.
#[test]
fn the_last_of_opens_and_look_ups_ends_a_nameless_inode() {
    let mut world = World::new(4);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let parent = rig.volume.root;
        rig.settle().await;
        let free = rig.free_bytes().await;
        let mut files = Vec::new();
        for number in 0..400 {
            let name = name(&format!("file{number}"));
            let op = Op::Create { parent, name: name.clone(), mode: 0o600, exclusive: true };
            let ino = told(&rig, op).await.expect("a new file").ino;
            rig.write(ino, At::End, &pattern(1, 10_000), Sync::Ordered).await.expect("a write");
            match number % 4 {
                0 => forget(&rig, ino, 1).await,
                1 => rig.done(Op::Release { ino }).await.expect("it is open"),
                _ => {}
            }
            rig.done(Op::Unlink { parent, name }).await.expect("it is there");
            files.push(ino);
        }
        let temporary = told(&rig, Op::TempFile { parent, mode: 0o600 }).await.expect("a new file").ino;
        rig.settle().await;
        for ino in files.iter().chain([&temporary]) {
            assert!(rig.attr(Op::GetAttr { ino: *ino }).await.is_ok());
        }
        let records = rig.groups.store().log.figures().records;
        for (number, &ino) in files.iter().enumerate() {
            match number % 4 {
                0 => rig.done(Op::Release { ino }).await.expect("it is open"),
                1 => forget(&rig, ino, 1).await,
                2 => {
                    rig.done(Op::Release { ino }).await.expect("it is open");
                    forget(&rig, ino, 1).await;
                }
                _ => {
                    forget(&rig, ino, 1).await;
                    rig.done(Op::Release { ino }).await.expect("it is open");
                }
            }
        }
        soon(&rig).await;
        // A release ends its own; what is forgotten ends together.
        let records = rig.groups.store().log.figures().records - records;
        assert!((200..300).contains(&records), "{records} records for 400 files");
        rig.done(Op::Release { ino: temporary }).await.expect("it is open");
        assert!(rig.attr(Op::GetAttr { ino: temporary }).await.is_ok(), "it is known");
        forget(&rig, temporary, 1).await;
        soon(&rig).await;
        for ino in files.iter().chain([&temporary]) {
            assert_eq!(rig.attr(Op::GetAttr { ino: *ino }).await, Err(Kind::Stale));
        }
        rig.settle().await;
        assert_eq!((rig.free_bytes().await, rig.groups.known_inodes()), (free, 0));
        rig.close().await;
    });
}

/// Inodes that a listing with attributes tells are counted, also one whose name comes back.
#[test]
fn a_listing_tells_of_inodes_too() {
    let mut world = World::new(5);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let parent = rig.volume.root;
        let ino = rig.create(parent, "file").await.expect("a new file");
        for (plus, known) in [(false, 0), (true, 1)] {
            let page = keeping(&rig, Op::ReadDir { ino: parent, cookie: 0, count: 10, plus }).await;
            assert!(matches!(page, Ok(Reply::Entries { entries, .. }) if entries.len() == 1));
            assert_eq!(rig.groups.known_inodes(), known);
        }
        rig.done(Op::Unlink { parent, name: name("file") }).await.expect("it is there");
        assert_eq!(rig.attr(Op::GetAttr { ino }).await.expect("it is known").inode.links, 0);
        // A name that it gets keeps it, whoever forgets it.
        rig.attr(Op::Link { ino, new_parent: parent, new_name: name("again") }).await.expect("it is known");
        forget(&rig, ino, 1).await;
        soon(&rig).await;
        assert_eq!(rig.lookup(parent, "again").await, Ok(ino));
        rig.close().await;
    });
}

/// A crash ends what only its client kept; so does the end of the session.
#[test]
fn a_crash_and_the_end_of_a_session_forget_everything() {
    let mut world = World::new(6);
    let runtime = world.runtime();
    let (rig, ino) = world.block_on(async {
        let rig = Rig::new(runtime.clone(), Shape::SMALL).await;
        rig.groups.begin_session(rig.volume.id, rig.session).await.expect("nothing to end");
        let parent = rig.volume.root;
        let mut kept = Ino(0);
        for round in 0..2 {
            let op = Op::Create { parent, name: name("file"), mode: 0o600, exclusive: true };
            kept = told(&rig, op).await.expect("a new file").ino;
            rig.done(Op::Release { ino: kept }).await.expect("it is open");
            rig.done(Op::Unlink { parent, name: name("file") }).await.expect("it is there");
            rig.checkpoint().await;
            assert!(rig.attr(Op::GetAttr { ino: kept }).await.is_ok());
            if round == 0 {
                rig.groups.begin_session(rig.volume.id, rig.session).await.expect("the one before ends");
                assert_eq!(rig.attr(Op::GetAttr { ino: kept }).await, Err(Kind::Stale));
                assert_eq!(rig.groups.known_inodes(), 0);
            }
        }
        rig.done(Op::SyncAll).await.expect("a healthy brick");
        (rig, kept)
    });
    let mut after = World::from_image(6, world.crash_as(Survival::Nothing, &mut SplitMix(6)));
    let runtime = after.runtime();
    after.block_on(async {
        let rig = rig.after_crash(runtime, 0).await;
        assert_eq!(rig.attr(Op::GetAttr { ino }).await, Err(Kind::Stale));
        rig.close().await;
    });
}

/// Removed files are not in the way of new ones, although the FORGETs for them come on another queue, and later.
#[test]
fn a_full_brick_waits_for_what_was_removed() {
    let mut world = World::new(8);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime.clone(), Shape { segments: 64, ..Shape::SMALL }).await;
        let parent = rig.volume.root;
        for round in 0..3 {
            let op = Op::Create { parent, name: name("file"), mode: 0o600, exclusive: true };
            let ino = told(&rig, op).await.expect("a new file").ino;
            let mut written = 0;
            while rig.write(ino, At::End, &pattern(1, 1 << 20), Sync::Ordered).await.is_ok() {
                written += 1;
            }
            assert!(written > 20, "round {round}: {written} MiB");
            rig.done(Op::Release { ino }).await.expect("it is open");
            rig.done(Op::Unlink { parent, name: name("file") }).await.expect("it is there");
            let client = rig.client(rig.session.0, rig.volume.clone());
            let late = move || -> runtime::tasks::Local {
                Box::pin(async move {
                    client.runtime.clock.sleep(20_000_000).await;
                    let context = Context { keeps: true, done: Context::ONCE, ..client.context_of(1 << 40 | round) };
                    client.call_as(&context, Op::Forget { ino, times: 1 }, None).await.expect("a client may forget");
                })
            };
            runtime.tasks.spawn(0, Box::new(late));
        }
        soon(&rig).await;
        rig.close().await;
    });
}

/// A crash at any moment between the removal and the end of what was forgotten: the names that are there lead to whole
/// files, and nothing else is left.
#[test]
fn a_crash_leaves_nothing_of_what_was_removed() {
    for seed in seeds(1..13) {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        let mut rng = SplitMix(seed);
        let (rig, free, files) = world.block_on(async {
            let rig = Rig::new(runtime.clone(), Shape::SMALL).await;
            let parent = rig.volume.root;
            rig.settle().await;
            let (free, mut files) = (rig.free_bytes().await, Vec::new());
            for number in 0..60 {
                let name = name(&format!("file{number}"));
                let op = Op::Create { parent, name: name.clone(), mode: 0o600, exclusive: true };
                let ino = told(&rig, op).await.expect("a new file").ino;
                rig.write(ino, At::End, &pattern(1, 10_000), Sync::Ordered).await.expect("a write");
                rig.done(Op::Release { ino }).await.expect("it is open");
                rig.done(Op::Unlink { parent, name }).await.expect("it is there");
                if rng.one_in(2) {
                    forget(&rig, ino, 1).await;
                }
                if rng.one_in(20) {
                    rig.checkpoint().await;
                }
                files.push(ino);
            }
            if rng.one_in(2) {
                rig.done(Op::SyncAll).await.expect("a healthy brick");
            }
            runtime.clock.sleep(rng.below(6_000_000)).await;
            (rig, free, files)
        });
        for survival in [Survival::Nothing, Survival::Random, Survival::Everything] {
            let mut after = World::from_image(seed, world.crash_as(survival, &mut rng));
            let runtime = after.runtime();
            after.block_on(async {
                let rig = rig.after_crash(runtime, 0).await;
                for (number, ino) in files.iter().enumerate() {
                    let text = format!("file{number}");
                    match rig.lookup(rig.volume.root, &text).await {
                        Ok(found) => {
                            assert_eq!(found, *ino);
                            let op = Op::Unlink { parent: rig.volume.root, name: name(&text) };
                            rig.done(op).await.expect("it is there");
                        }
                        Err(kind) => assert_eq!(kind, Kind::NotFound),
                    }
                    let gone = rig.attr(Op::GetAttr { ino: *ino }).await;
                    assert_eq!(gone, Err(Kind::Stale), "seed {seed}, {survival:?}");
                }
                rig.settle().await;
                assert_eq!(rig.free_bytes().await, free, "seed {seed}, {survival:?}");
                rig.close().await;
            });
        }
    }
}
