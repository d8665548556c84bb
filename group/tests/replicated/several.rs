//! Changes that concern several groups, each with a leader of its own: names stay a tree, and nobody sees half of one, whatever goes wrong.

use super::{agree, options};
use crate::faults::some_fault;
use crate::rig::{BRICKS, CLIENTS, Client, Cluster, MS, begin, brick, cluster_of, name, seeds, until};
use base::{Attr, Edit, Error, FileKind, GroupId, Ino, IntentId, Kind, Op, Reply, Result, Time};
use group::Changes;
use group::across_codec::Across;
use group::replica_codec::{Told, put_told};
use runtime::random::SplitMix;
use runtime::sim::LinkPlan;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use wire::peer::{Parcel, PeerId, PeerService};

const GROUPS: u32 = 4;
const DIRS: usize = 6;
const MOVERS: usize = 3;
const RACERS: usize = 3;
const ROUNDS: usize = 25;

async fn attr(client: &Client, op: Op) -> Result<Attr> {
    match client.call(op, None).await?.reply {
        Reply::Attr(attr) => Ok(attr),
        other => panic!("attributes: {other:?}"),
    }
}

pub async fn make_dir(client: &Client, parent: Ino, text: &str) -> Result<Ino> {
    Ok(attr(client, Op::MakeDir { parent, name: name(text), mode: 0o755 }).await?.ino)
}

pub async fn look_up(client: &Client, parent: Ino, text: &str) -> Result<Ino> {
    Ok(attr(client, Op::Lookup { parent, name: name(text) }).await?.ino)
}

pub async fn rename(client: &Client, from: (Ino, &str), to: (Ino, &str), no_replace: bool) -> Result<()> {
    let (parent, new_parent) = (from.0, to.0);
    let op = Op::Rename { parent, name: name(from.1), new_parent, new_name: name(to.1), no_replace, whiteout: false };
    client.call(op, None).await.map(drop)
}

pub async fn create(client: &Client, parent: Ino, text: &str) -> Result<Ino> {
    Ok(attr(client, Op::Create { parent, name: name(text), mode: 0o644, exclusive: true }).await?.ino)
}

pub async fn unlink(client: &Client, parent: Ino, text: &str) -> Result<()> {
    client.call(Op::Unlink { parent, name: name(text) }, None).await.map(drop)
}

/// Bricks with some directories, which are of several groups.
pub async fn with_dirs(cluster: &Arc<Cluster>) -> (Client, Vec<Ino>) {
    let client = begin(cluster).await;
    let mut dirs = Vec::new();
    for number in 0..DIRS {
        dirs.push(make_dir(&client, client.root, &format!("dir-{number}")).await.expect("a new directory"));
    }
    let groups: BTreeSet<GroupId> = dirs.iter().map(|dir| dir.group()).collect();
    assert!(groups.len() > 2, "directories are spread: {groups:?}");
    (client, dirs)
}

#[test]
fn names_move_between_groups_that_different_bricks_lead() {
    let (mut fleet, cluster) = cluster_of(1, options(), GROUPS);
    fleet.block_on(async {
        let (client, dirs) = with_dirs(&cluster).await;
        let leaders: BTreeSet<_> = cluster.group_numbers().map(|group| cluster.leader_of(group)).collect();
        assert!(leaders.len() > 1, "several bricks lead: {leaders:?}");
        let file = create(&client, dirs[0], "file").await.expect("a new file");
        for (at, dir) in dirs.iter().enumerate().skip(1) {
            rename(&client, (dirs[at - 1], "file"), (*dir, "file"), false).await.expect("it moves");
            let gone = look_up(&client, dirs[at - 1], "file").await;
            assert_eq!(gone.map_err(|error| error.kind), Err(Kind::NotFound));
            assert_eq!(look_up(&client, *dir, "file").await, Ok(file));
        }
        let last = *dirs.last().expect("some");
        client
            .call(Op::Link { ino: file, new_parent: dirs[0], new_name: name("other") }, None)
            .await
            .expect("another name");
        assert_eq!(attr(&client, Op::GetAttr { ino: file }).await.map(|attr| attr.inode.links), Ok(2));
        unlink(&client, last, "file").await.expect("it was there");
        assert_eq!(attr(&client, Op::GetAttr { ino: file }).await.map(|attr| attr.inode.links), Ok(1));
        let below = make_dir(&client, dirs[1], "below").await.expect("a new directory");
        rename(&client, (dirs[1], "below"), (dirs[2], "below"), false).await.expect("a directory moves");
        assert_eq!(attr(&client, Op::GetAttr { ino: below }).await.map(|attr| attr.inode.parent), Ok(dirs[2]));
        let loops = rename(&client, (client.root, "dir-2"), (below, "dir-2"), false).await;
        assert_eq!(loops.map_err(|error| error.kind), Err(Kind::Invalid), "a directory is not moved below itself");
        let full = client.call(Op::RemoveDir { parent: client.root, name: name("dir-2") }, None).await;
        assert_eq!(full.map(drop).map_err(|error| error.kind), Err(Kind::NotEmpty));
        client.call(Op::RemoveDir { parent: dirs[2], name: name("below") }, None).await.expect("it is empty");
        all_is_whole(&cluster, &client).await;
    });
}

/// The turn to move directories is group 0's, also among directories that it has itself.
#[test]
fn a_directory_that_moves_within_a_group_leaves_nothing_behind() {
    let (mut fleet, cluster) = cluster_of(6, options(), GROUPS);
    fleet.block_on(async {
        let client = begin(&cluster).await;
        let (mut own, mut number) = (vec![client.root], 0);
        while own.len() < 3 {
            number += 1;
            let dir = make_dir(&client, client.root, &format!("dir-{number}")).await.expect("a new directory");
            own.extend((dir.group() == GroupId(0)).then_some(dir));
        }
        assert!(own.iter().all(|dir| dir.group() == GroupId(0)), "they are of one group: {own:?}");
        rename(&client, (client.root, &format!("dir-{number}")), (own[1], "below"), false).await.expect("it moves");
        let at = cluster.leader_of(GroupId(0)).expect("it answered");
        let changes = cluster.groups(at).expect("it runs").changes(GroupId(0));
        assert_eq!(changes, Changes::default(), "it has come to its end");
        all_is_whole(&cluster, &client).await;
    });
}

/// Two directories of groups that one brick leads, and that brick.
fn led_by_one(cluster: &Cluster, dirs: &[Ino]) -> (Ino, Ino, usize) {
    let pairs = dirs.iter().flat_map(|one| dirs.iter().map(move |other| (*one, *other)));
    let leader = |dir: Ino| cluster.leader_of(dir.group()).expect("it was asked");
    let mut alike = pairs.filter(|(one, other)| one.group() != other.group() && leader(*one) == leader(*other));
    let (one, other) = alike.next().expect("there are more groups than bricks");
    (one, other, leader(one))
}

/// A file that is being moved between groups which one brick leads, while news of a commit takes 0.2 s. The directories, and the brick.
async fn moving_slowly(cluster: &Arc<Cluster>, moved: &Arc<AtomicUsize>) -> (Client, (Ino, Ino), usize) {
    let (client, dirs) = with_dirs(cluster).await;
    let (from, to, at) = led_by_one(cluster, &dirs);
    create(&client, from, "file").await.expect("a new file");
    let slow = LinkPlan { delay_ns: 100 * MS, jitter_ns: 1, bandwidth: 1_000_000_000, trickles: false };
    for other in (0..BRICKS).filter(|other| *other != at) {
        cluster.links().set_plan(at, other, slow);
        cluster.links().set_plan(other, at, slow);
    }
    let (own, there) = (client.clone(), moved.clone());
    cluster.hosts.runtime(CLIENTS).spawn(0, move || async move {
        rename(&own, (from, "file"), (to, "file"), false).await.expect("it moves");
        there.fetch_add(1, Ordering::Relaxed);
    });
    (client, (from, to), at)
}

#[test]
pub fn each_step_waits_for_the_commit_of_the_one_before() {
    let (mut fleet, cluster) = cluster_of(3, options(), GROUPS);
    fleet.block_on(async {
        let moved = Arc::new(AtomicUsize::new(0));
        let (client, (from, to), at) = moving_slowly(&cluster, &moved).await;
        let groups = cluster.groups(at).expect("it runs");
        let holds = || !groups.changes(from.group()).held.is_empty();
        let has_decided = || !groups.changes(to.group()).decided.is_empty();
        until(&cluster.hosts, "something is held", holds).await;
        cluster.hosts.clock().sleep(60 * MS).await;
        assert!(holds() && !has_decided(), "what is held is committed before anything rests on it");
        until(&cluster.hosts, "it is decided", has_decided).await;
        cluster.hosts.clock().sleep(60 * MS).await;
        assert!(holds(), "a part comes after its decision was committed");
        until(&cluster.hosts, "it has moved", || moved.load(Ordering::Relaxed) == 1).await;
        cluster.heal();
        all_is_whole(&cluster, &client).await;
    });
}

/// Has a brick hear something about a change of several groups.
async fn tell(cluster: &Cluster, (from, to): (usize, usize), group: GroupId, across: Across) {
    let mut body = Vec::new();
    put_told(&mut body, &Told::Across(across));
    let groups = cluster.groups(to).expect("it runs");
    groups.parcel(PeerId(brick(from).0), Parcel::new(group, body, Vec::new())).await;
}

#[test]
pub fn a_part_is_taken_once() {
    let (mut fleet, cluster) = cluster_of(4, options(), GROUPS);
    fleet.block_on(async {
        let (client, dirs) = with_dirs(&cluster).await;
        let (dir, deciding) = (dirs[0], dirs[1].group());
        let at = cluster.leader_of(dir.group()).expect("it was asked");
        // Nothing is held for this change, so it was taken before.
        let id = IntentId { group: deciding, number: 1_000_000 };
        let edits = vec![Edit::InodeTouch { ino: dir, links: 1, entries: 0, mtime: Time(0), ctime: Time(0) }];
        tell(&cluster, ((at + 1) % BRICKS, at), dir.group(), Across::Part { id, volume: client.volume, edits }).await;
        all_is_whole(&cluster, &client).await;
    });
}

#[test]
pub fn only_who_leads_tells_what_becomes_of_a_change() {
    let (mut fleet, cluster) = cluster_of(5, options(), GROUPS);
    fleet.block_on(async {
        let moved = Arc::new(AtomicUsize::new(0));
        let (client, (from, to), at) = moving_slowly(&cluster, &moved).await;
        let groups = cluster.groups(at).expect("it runs");
        let held = || groups.changes(from.group()).held;
        until(&cluster.hosts, "something is held", || !held().is_empty()).await;
        let (id, other) = (held()[0], (at + 1) % BRICKS);
        assert_eq!(id.group, to.group(), "a change is known by the group that decides it");
        tell(&cluster, (at, other), to.group(), Across::Fate { id, group: from.group() }).await;
        cluster.hosts.clock().sleep(150 * MS).await;
        assert_eq!(held(), [id], "who does not lead knows nothing of what is about to be decided");
        until(&cluster.hosts, "it has moved", || moved.load(Ordering::Relaxed) == 1).await;
        cluster.heal();
        all_is_whole(&cluster, &client).await;
    });
}

/// A volume is dropped in all groups.
#[test]
fn a_volume_is_deleted_in_all_groups() {
    let (mut fleet, cluster) = cluster_of(2, options(), GROUPS);
    fleet.block_on(async {
        let (client, dirs) = with_dirs(&cluster).await;
        create(&client, dirs[1], "file").await.expect("a new file");
        client.call(Op::VolumeDelete { name: name("main") }, None).await.expect("it is deleted");
        for ino in [client.root, dirs[1]] {
            let gone = attr(&client, Op::GetAttr { ino }).await;
            assert_eq!(gone.map(drop).map_err(|error| error.kind), Err(Kind::Stale));
        }
        agree(&cluster).await;
        let report = cluster.check(0).await;
        assert!(report.findings.is_empty() && report.intents == 0 && report.inodes == 0, "{report:?}");
    });
}

/// The number of directories that the racers have made and not removed, and of tasks that have ended.
#[derive(Default)]
struct Tally {
    dirs: AtomicI64,
    ended: AtomicUsize,
}

/// One who moves a file of his own about, and knows at each moment where it is.
async fn move_about(client: Client, dirs: Vec<Ino>, mover: usize, seed: u64) {
    let (mut rng, own) = (SplitMix(seed), format!("token-{mover}"));
    let mut at = rng.below(DIRS as u64) as usize;
    let mut file = create(&client, dirs[at], &own).await.expect("a new file");
    for round in 0..ROUNDS {
        let to = rng.below(DIRS as u64) as usize;
        match rng.below(4) {
            0 => {
                // A name more, and the first one goes: as good as a rename.
                let (new_parent, new_name) = (dirs[to], name(&format!("{own}-{round}")));
                client.call(Op::Link { ino: file, new_parent, new_name }, None).await.expect("another name");
                assert_eq!(look_up(&client, dirs[at], &own).await, Ok(file));
                unlink(&client, dirs[at], &own).await.expect("its first name");
                rename(&client, (dirs[to], &format!("{own}-{round}")), (dirs[to], &own), false)
                    .await
                    .expect("as it was called");
            }
            1 if to != at => {
                // It takes the place of another one, which is gone then.
                let victim = create(&client, dirs[to], &own).await.expect("a new file");
                rename(&client, (dirs[at], &own), (dirs[to], &own), false).await.expect("it takes its place");
                let attr = attr(&client, Op::GetAttr { ino: victim }).await;
                let is_gone = attr.as_ref().map_or(true, |attr| attr.inode.links == 0);
                assert!(is_gone, "what was replaced has no name any more: {attr:?}");
                client.call(Op::Release { ino: victim }, None).await.expect("it was open");
            }
            _ => rename(&client, (dirs[at], &own), (dirs[to], &own), false).await.expect("it moves"),
        }
        if to != at {
            let gone = look_up(&client, dirs[at], &own).await;
            assert_eq!(gone.map_err(|error| error.kind), Err(Kind::NotFound), "{own} of round {round} in dir-{at}");
        }
        assert_eq!(look_up(&client, dirs[to], &own).await, Ok(file), "{own} of round {round} in dir-{to}");
        at = to;
        if rng.one_in(5) {
            unlink(&client, dirs[at], &own).await.expect("it is there");
            file = create(&client, dirs[at], &own).await.expect("a new file");
        }
        client.runtime.clock.sleep(rng.below(60) * MS).await;
    }
}

/// One who makes, moves and removes directories under names that others use as well.
async fn race(client: Client, dirs: Vec<Ino>, tally: Arc<Tally>, seed: u64) {
    let mut rng = SplitMix(seed);
    // Directories that it has seen, in which it makes others.
    let mut seen = dirs;
    for _ in 0..ROUNDS {
        let spot = |rng: &mut SplitMix| (seen[rng.below(seen.len() as u64) as usize], format!("race-{}", rng.below(2)));
        let (one, other) = (spot(&mut rng), spot(&mut rng));
        let outcome: Result<Option<Ino>> = match rng.below(5) {
            0 | 1 => make_dir(&client, one.0, &one.1).await.map(|made| {
                tally.dirs.fetch_add(1, Ordering::Relaxed);
                Some(made)
            }),
            2 => {
                let gone = client.call(Op::RemoveDir { parent: one.0, name: name(&one.1) }, None).await;
                gone.map(|_| {
                    tally.dirs.fetch_sub(1, Ordering::Relaxed);
                    None
                })
            }
            _ => rename(&client, (one.0, &one.1), (other.0, &other.1), true).await.map(|()| None),
        };
        match outcome {
            Ok(made) => seen.extend(made),
            // A second delivery finds that the first one took effect, and that somebody was quick.
            Err(error) if error.to_string().contains("gone again") => {
                tally.dirs.fetch_add(1, Ordering::Relaxed);
            }
            Err(Error {
                kind: Kind::Exists | Kind::NotFound | Kind::NotEmpty | Kind::Invalid | Kind::Stale, ..
            }) => {}
            Err(error) => panic!("nobody is told this: {error}"),
        }
        client.runtime.clock.sleep(rng.below(60) * MS).await;
    }
}

fn through_faults(seed: u64, options: group::Options) {
    let (mut fleet, cluster) = cluster_of(seed, options, GROUPS);
    let (hosts, mut rng) = (cluster.hosts.clone(), SplitMix(seed));
    fleet.block_on(async {
        let (client, dirs) = with_dirs(&cluster).await;
        let tally = Arc::new(Tally::default());
        for number in 0..MOVERS + RACERS {
            let (own, dirs, tally) = (client.of_session(10 + number as u64), dirs.clone(), tally.clone());
            let seed = rng.next();
            hosts.runtime(CLIENTS).spawn(number % 2, move || async move {
                match number < MOVERS {
                    true => move_about(own, dirs, number, seed).await,
                    false => race(own, dirs, tally.clone(), seed).await,
                }
                tally.ended.fetch_add(1, Ordering::Relaxed);
            });
        }
        while tally.ended.load(Ordering::Relaxed) < MOVERS + RACERS {
            some_fault(&cluster, &mut rng).await;
        }
        cluster.heal();
        until(&hosts, "each group is served", || {
            cluster.group_numbers().all(|group| cluster.leader_of(group).is_some())
        })
        .await;
        let made = all_is_whole(&cluster, &client).await;
        let made = made - DIRS as i64;
        assert_eq!(made, tally.dirs.load(Ordering::Relaxed), "seed {seed}: each directory that was made is there once");
    });
}

/// Waits until all is still, walks all names, and checks what each brick has on its disk. Returns the number of directories below the root.
pub async fn all_is_whole(cluster: &Arc<Cluster>, client: &Client) -> i64 {
    // What is held, and what others have not taken, comes to its end.
    cluster.hosts.clock().sleep(3_000 * MS).await;
    let dirs = walk(client).await;
    agree(cluster).await;
    for number in 0..BRICKS {
        let report = cluster.check(number).await;
        assert!(report.findings.is_empty(), "brick {number}: {:?}", report.findings);
        assert_eq!((report.intents, report.mixed), (0, 0), "brick {number}: all has come to its end");
    }
    dirs
}

/// Walks all names from the root: they form a tree, and counts are right. Returns the number of directories below the root.
async fn walk(client: &Client) -> i64 {
    let (mut left, mut dirs, mut links) = (vec![client.root], 0, BTreeMap::new());
    let mut seen = BTreeSet::new();
    while let Some(dir) = left.pop() {
        assert!(seen.insert(dir), "a directory has one name: {dir}");
        let op = Op::ReadDir { ino: dir, cookie: 0, count: 1000, plus: false };
        let Ok(Reply::Entries { entries, .. }) = client.call(op, None).await.map(|answer| answer.reply) else {
            panic!("a directory can be listed")
        };
        let home = attr(client, Op::GetAttr { ino: dir }).await.expect("it is there").inode;
        assert_eq!(home.entries, entries.len() as u64, "entries of {dir}");
        let is_dir = |entry: &&base::DirEntry| entry.kind == FileKind::Directory;
        let below = entries.iter().filter(is_dir).count();
        assert_eq!(home.links as usize, 2 + below, "links of {dir}");
        for entry in entries {
            let inode = attr(client, Op::GetAttr { ino: entry.ino }).await.expect("what has a name is there").inode;
            assert_eq!(inode.kind, entry.kind);
            if inode.is_directory() {
                assert_eq!(inode.parent, dir, "the directory above {}", entry.ino);
                left.push(entry.ino);
                dirs += 1;
            } else {
                let names = links.entry(entry.ino).or_insert((inode.links, 0));
                names.1 += 1;
            }
        }
    }
    assert!(links.values().all(|(links, names)| links == names), "names of files: {links:?}");
    dirs
}

#[test]
pub fn changes_of_several_groups_survive_everything() {
    let often = group::Options { overlay_bytes: 20_000, replay_records: 20, ..options() };
    for seed in 0..seeds(4) {
        through_faults(seed, if seed % 2 == 0 { options() } else { often });
    }
}
