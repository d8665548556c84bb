//! Changes of several groups beside the end of a brick, or of all, at each durable step of theirs in turn: before it and after it, with
//! all unsynced writes kept, as after a kill, and with none, as after a power cut behind a volatile cache.
//!
//! Each change runs once undisturbed, which counts the steps of each brick's disk from its begin until no group knows of it any more. Then it
//! runs anew for each step, in a world that is the same up to there.

use super::options;
use super::several::{all_is_whole, create, look_up, make_dir, rename, unlink, with_dirs};
use crate::rig::{BRICKS, CLIENTS, Client, Cluster, MS, cluster_of, name, until};
use base::{Error, GroupId, Ino, Kind, Op, Result};
use runtime::sim::{LinkPlan, Side, Survival};
use std::sync::{Arc, Mutex};

const GROUPS: u32 = 4;
/// All cases are tried if this is set. It takes minutes.
const ALL: &str = "SINTER_EXACT";
/// One in so many cases is tried otherwise; a prime, so that each kind of case has its turn.
const ONE_IN: usize = 41;

/// A change, or two that race.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Move,
    Replace,
    Link,
    Unlink,
    MakeDir,
    RemoveDir,
    MoveDir,
    /// A directory is made in one that another client removes.
    Race,
}

const CHANGES: [Change; 8] = [
    Change::Move,
    Change::Replace,
    Change::Link,
    Change::Unlink,
    Change::MakeDir,
    Change::RemoveDir,
    Change::MoveDir,
    Change::Race,
];

/// The end of a brick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct End {
    brick: usize,
    /// The step of its disk, from 1, since the change began.
    step: u64,
    side: Side,
    survival: Survival,
    /// The other bricks end at the same time.
    all: bool,
    /// The time until it is started again.
    away_ns: u64,
}

/// Two directories whose groups have different leaders.
#[derive(Clone, Copy)]
struct Dirs {
    from: Ino,
    to: Ino,
}

type Outcomes = Arc<Mutex<Vec<(usize, Result<()>)>>>;

impl Change {
    /// Makes what the change is about; a file or a directory.
    async fn prepare(self, client: &Client, Dirs { from, to }: Dirs) -> Ino {
        match self {
            Change::Move | Change::Link => create(client, from, "one").await,
            Change::Replace => {
                create(client, to, "one").await.expect("a new file");
                create(client, from, "one").await
            }
            Change::Unlink => {
                let file = create(client, from, "one").await.expect("a new file");
                rename(client, (from, "one"), (to, "one"), false).await.expect("it moves");
                Ok(file)
            }
            Change::MakeDir => Ok(from),
            Change::RemoveDir | Change::MoveDir | Change::Race => make_dir(client, from, "one").await,
        }
        .expect("a new name")
    }
    /// The change, or one of those that race.
    async fn make(self, client: &Client, Dirs { from, to }: Dirs, subject: Ino, racer: usize) -> Result<()> {
        match (self, racer) {
            (Change::Move | Change::Replace | Change::MoveDir, _) => {
                rename(client, (from, "one"), (to, "one"), false).await
            }
            (Change::Link, _) => {
                client.call(Op::Link { ino: subject, new_parent: to, new_name: name("one") }, None).await.map(drop)
            }
            (Change::Unlink, _) => unlink(client, to, "one").await,
            (Change::MakeDir, _) => make_dir(client, from, "one").await.map(drop),
            (Change::Race, 1) => make_dir(client, subject, "below").await.map(drop),
            (Change::RemoveDir | Change::Race, _) => {
                client.call(Op::RemoveDir { parent: from, name: name("one") }, None).await.map(drop)
            }
        }
    }
    fn racers(self) -> usize {
        if self == Change::Race { 2 } else { 1 }
    }
    /// Asserts that all was done that was answered, and nothing else.
    async fn check(self, client: &Client, Dirs { from, to }: Dirs, subject: Ino, outcomes: &[(usize, Result<()>)]) {
        let found = async |dir, text| look_up(client, dir, text).await.map_err(|error| error.kind);
        let of = |racer: usize| {
            let found = outcomes.iter().find(|(of, _)| *of == racer);
            found.expect("all have ended").1.clone().map_err(|Error { kind, .. }| kind)
        };
        match self {
            Change::Move | Change::Replace | Change::MoveDir => {
                assert_eq!((found(from, "one").await, found(to, "one").await), (Err(Kind::NotFound), Ok(subject)));
            }
            Change::Link => assert_eq!((found(from, "one").await, found(to, "one").await), (Ok(subject), Ok(subject))),
            Change::Unlink => assert_eq!(found(to, "one").await, Err(Kind::NotFound)),
            Change::MakeDir => assert!(found(from, "one").await.is_ok()),
            Change::RemoveDir => assert_eq!(found(from, "one").await, Err(Kind::NotFound)),
            Change::Race => match (of(0), of(1)) {
                (Err(Kind::NotEmpty), Ok(())) => assert!(found(subject, "below").await.is_ok()),
                (Ok(()), Err(Kind::NotFound | Kind::Stale)) => {
                    assert_eq!(found(from, "one").await, Err(Kind::NotFound));
                }
                other => panic!("one of the two comes first: {other:?}"),
            },
        }
        assert!(self == Change::Race || of(0).is_ok(), "{:?}", of(0));
    }
}

/// Two directories of groups whose leaders are different bricks.
fn apart(cluster: &Cluster, dirs: &[Ino]) -> Dirs {
    let leader = |dir: &Ino| cluster.leader_of(dir.group()).expect("it was asked");
    let from = dirs[0];
    let to = dirs.iter().find(|to| leader(to) != leader(&from)).expect("several bricks lead");
    Dirs { from, to: *to }
}

/// True once no group knows of a change any more, whoever has it.
fn is_still(cluster: &Cluster) -> bool {
    let of = |number: usize, group: GroupId| cluster.groups(number).map(|groups| groups.changes(group));
    (0..BRICKS).all(|number| cluster.group_numbers().all(|group| of(number, group) == Some(Default::default())))
}

/// Makes a change, perhaps beside the end of a brick. Returns the steps that each brick's disk took meanwhile.
async fn made_beside(cluster: &Arc<Cluster>, change: Change, end: Option<End>) -> [u64; BRICKS] {
    let (client, dirs) = with_dirs(cluster).await;
    let dirs = apart(cluster, &dirs);
    let subject = change.prepare(&client, dirs).await;
    let (hosts, clock) = (cluster.hosts.clone(), cluster.hosts.clock());
    until(&hosts, "nothing is left to do", || is_still(cluster)).await;
    clock.sleep(300 * MS).await;
    let steps = |number: usize| hosts.disk(number).steps();
    let before: [u64; BRICKS] = std::array::from_fn(steps);
    if let Some(end) = end {
        hosts.crash_at_step(end.brick, before[end.brick] + end.step, end.side);
    }
    if cluster.options.replay_records < options().replay_records {
        // Looks for a checkpoint come between the steps of a change only if each of them takes long.
        let slow = LinkPlan { delay_ns: 60 * MS, jitter_ns: 1, bandwidth: 1_000_000_000, trickles: false };
        let ways = (0..BRICKS).flat_map(|one| (0..BRICKS).map(move |other| (one, other)));
        ways.filter(|(one, other)| one != other).for_each(|(one, other)| hosts.links().set_plan(one, other, slow));
    }
    let outcomes = Outcomes::default();
    for racer in 0..change.racers() {
        let (own, outcomes) = (client.of_session(20 + racer as u64), outcomes.clone());
        hosts.runtime(CLIENTS).spawn(racer, move || async move {
            let outcome = change.make(&own, dirs, subject, racer).await;
            outcomes.lock().expect("no panic").push((racer, outcome));
        });
    }
    let have_ended = || outcomes.lock().expect("no panic").len() == change.racers();
    let crashes = |number: usize| end.is_some() && !hosts.is_up(number);
    // Short pauses, so that all bricks end at one time.
    while !((0..BRICKS).any(crashes) || have_ended() && is_still(cluster)) {
        clock.sleep(MS / 50).await;
    }
    let after: [u64; BRICKS] = std::array::from_fn(steps);
    if let Some(end) = end {
        // If the step has not come, since a heartbeat made it in the first run, the brick ends now.
        let ends = (0..BRICKS).filter(|number| end.all || *number == end.brick);
        let images: Vec<_> = ends.map(|number| (number, cluster.stop(number, Some(end.survival)))).collect();
        clock.sleep(end.away_ns).await;
        images.into_iter().for_each(|(number, image)| cluster.start_again(number, image));
    }
    cluster.heal();
    until(&hosts, "it is answered", have_ended).await;
    until(&hosts, "nothing is left to do", || is_still(cluster)).await;
    let outcomes = outcomes.lock().expect("no panic").clone();
    change.check(&client, dirs, subject, &outcomes).await;
    all_is_whole(cluster, &client).await;
    std::array::from_fn(|number| after[number] - before[number])
}

fn run(options: group::Options, change: Change, end: Option<End>) -> [u64; BRICKS] {
    let (mut fleet, cluster) = cluster_of(1, options, GROUPS);
    fleet.block_on(made_beside(&cluster, change, end))
}

/// All ends in the steps of a change.
fn ends(steps: [u64; BRICKS]) -> Vec<End> {
    let mut all = Vec::new();
    for (brick, step) in (0..BRICKS).flat_map(|brick| (1..=steps[brick]).map(move |step| (brick, step))) {
        for side in [Side::Before, Side::After] {
            for (survival, all_end) in
                [(Survival::Everything, false), (Survival::Nothing, false), (Survival::Nothing, true)]
            {
                // Back before the others have missed it, and after another one leads.
                let away_ns = if step % 2 == 0 { 0 } else { 4_000 * MS };
                all.push(End { brick, step, side, survival, all: all_end, away_ns });
            }
        }
    }
    all
}

#[test]
fn changes_of_several_groups_survive_an_end_at_each_durable_step() {
    let (mut number, mut tried) = (0, 0);
    let one_in = if std::env::var_os(ALL).is_some() { 1 } else { ONE_IN };
    // Checkpoints between the steps: what is held is then in the index, and no longer in the log.
    let often = group::Options { replay_records: 1, ..options() };
    for (options, change) in [options(), often].into_iter().flat_map(|options| CHANGES.map(|change| (options, change)))
    {
        let steps = run(options, change, None);
        assert!(steps.iter().all(|steps| *steps > 0), "{change:?}: each brick has a part in it: {steps:?}");
        for end in ends(steps) {
            number += 1;
            if number % one_in == 0 {
                // What a failure is about.
                println!("{change:?}, checkpoints after {} records: {end:?}", options.replay_records);
                run(options, change, Some(end));
                tried += 1;
            }
        }
    }
    println!("{tried} of {number} ends");
}
