//! Tables of what happened within a window: operations, locks, cores, pools, the device's transfers.

use crate::admin::protocol::{Operation, StageTimes, Times};
use crate::cli::ProfileOf;
use crate::table::{Align, Table, bytes, count, duration};
use explain::Window;
use runtime::Stage;
use serde::Serialize;

/// Figures of a window.
#[derive(Serialize, Debug)]
pub struct Figures {
    /// Length of the window.
    pub seconds: f64,
    /// The figures.
    #[serde(flatten)]
    pub rows: Rows,
}

/// The rows of one kind.
#[derive(Serialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Rows {
    /// Operations and their stages.
    Operations(Vec<Operation>),
    /// Locks, those that were waited for most first.
    Locks(Vec<Lock>),
    /// Cores.
    Cores(Vec<Core>),
    /// Pools.
    Pools(Vec<Pool>),
    /// Transfers.
    Io(Vec<Io>),
}

/// The locks of one name.
#[derive(Serialize, PartialEq, Debug)]
pub struct Lock {
    /// The name.
    name: String,
    /// Acquisitions, and those that had to wait.
    acquired: u64,
    contended: u64,
    /// All waits together, and as a part of all requests' time.
    waited_ns: u64,
    waited_share: f64,
    /// Durations of waits.
    wait: Times,
    /// Durations of holds (a sample).
    hold: Times,
}

/// A core, in parts of its time.
#[derive(Serialize, PartialEq, Debug)]
pub struct Core {
    /// Its number.
    core: usize,
    /// It ran.
    running: f64,
    /// It could have run, while others did.
    waiting: f64,
    /// It slept.
    asleep: f64,
    /// Turns of its reactor.
    turns: u64,
}

/// A pool of threads.
#[derive(Serialize, PartialEq, Debug)]
pub struct Pool {
    /// The name.
    name: String,
    /// Threads, and jobs that wait, now.
    threads: u64,
    queued: u64,
    /// Durations for which jobs waited for a thread.
    wait: Times,
}

/// Transfers of one class.
#[derive(Serialize, PartialEq, Debug)]
pub struct Io {
    /// The work that they were a part of.
    purpose: String,
    /// `read`, `write` or `flush`.
    verb: String,
    /// Largest size of the class; least number under way.
    bytes_max: u64,
    depth: u64,
    /// Bytes transferred.
    bytes: u64,
    /// Durations, from the hand-over to the kernel until the core learnt of the end.
    took: Times,
}

impl Figures {
    /// The figures of one kind.
    pub fn of(window: &Window, of: ProfileOf) -> Figures {
        let rows = match of {
            ProfileOf::Operations => Rows::Operations(window.operations.iter().map(operation).collect()),
            ProfileOf::Locks => Rows::Locks(locks(window)),
            ProfileOf::Cores => Rows::Cores(cores(window)),
            ProfileOf::Pools => Rows::Pools(pools(window)),
            ProfileOf::Io => Rows::Io(window.io.iter().map(io).collect()),
        };
        Figures { seconds: window.seconds(), rows }
    }
}

/// An operation's figures; its stages in the order in which requests meet them.
fn operation(operation: &explain::snapshot::Operation) -> Operation {
    let stage = |stage: Stage| {
        let times = operation.stages.get(stage.name())?;
        Some(StageTimes { stage: stage.name().to_string(), times: Times::within(times) })
    };
    Operation {
        name: operation.name.clone(),
        total: Times::within(&operation.total),
        hops: operation.hops,
        stages: Stage::ALL.into_iter().filter_map(stage).collect(),
    }
}

fn locks(window: &Window) -> Vec<Lock> {
    let lock = |(lock, waited_share): (&explain::snapshot::Lock, f64)| Lock {
        name: lock.name.clone(),
        acquired: lock.acquired,
        contended: lock.contended,
        waited_ns: lock.wait.sum_ns,
        waited_share,
        wait: Times::within(&lock.wait),
        hold: Times::within(&lock.hold),
    };
    window.locks_by_wait().into_iter().map(lock).collect()
}

fn cores(window: &Window) -> Vec<Core> {
    let core = |(core, times): (usize, &explain::window::CoreWindow)| Core {
        core,
        running: window.share(times.run_ns),
        waiting: window.share(times.wait_ns),
        asleep: 1.0 - window.share(times.run_ns + times.wait_ns),
        turns: times.turns,
    };
    window.cores.iter().enumerate().map(core).collect()
}

fn pools(window: &Window) -> Vec<Pool> {
    let pool = |pool: &explain::snapshot::Pool| Pool {
        name: pool.name.clone(),
        threads: pool.threads,
        queued: pool.queued,
        wait: Times::within(&pool.wait),
    };
    window.pools.iter().map(pool).collect()
}

fn io(io: &explain::snapshot::Io) -> Io {
    Io {
        purpose: io.purpose.clone(),
        verb: io.verb.clone(),
        bytes_max: io.bytes_max,
        depth: io.depth,
        bytes: io.bytes,
        took: Times::within(&io.took),
    }
}

impl Rows {
    /// The rows as a table.
    pub fn table(&self) -> String {
        match self {
            Rows::Operations(operations) => super::profile::profile_table(operations),
            Rows::Locks(locks) => locks_table(locks),
            Rows::Cores(cores) => cores_table(cores),
            Rows::Pools(pools) => pools_table(pools),
            Rows::Io(io) => io_table(io),
        }
    }
}

/// A table whose first columns are texts and whose others are figures.
fn table(texts: &[&str], figures: &[&str]) -> Table {
    let heads = texts.iter().map(|head| (*head, Align::Left));
    Table::new(&heads.chain(figures.iter().map(|head| (*head, Align::Right))).collect::<Vec<_>>())
}

fn percent(share: f64) -> String {
    format!("{:.2}%", 100.0 * share)
}

fn locks_table(locks: &[Lock]) -> String {
    let figures = ["acquired", "waited", "in all", "of requests", "wait mean", "p99", "held mean", "p99"];
    let mut table = table(&["lock"], &figures);
    for lock in locks {
        let mut row = vec![lock.name.clone(), count(lock.acquired), count(lock.contended), duration(lock.waited_ns)];
        row.push(percent(lock.waited_share));
        row.extend([lock.wait.mean_ns, lock.wait.p99_ns, lock.hold.mean_ns, lock.hold.p99_ns].map(duration));
        table.row(row);
    }
    table.render()
}

fn cores_table(cores: &[Core]) -> String {
    let mut table = table(&["core"], &["running", "waiting for a CPU", "asleep", "turns"]);
    for core in cores {
        let shares = [core.running, core.waiting, core.asleep].map(percent);
        let mut row = vec![core.core.to_string()];
        row.extend(shares);
        row.push(count(core.turns));
        table.row(row);
    }
    table.render()
}

fn pools_table(pools: &[Pool]) -> String {
    let mut table = table(&["pool"], &["threads", "queued", "jobs", "wait mean", "p50", "p99", "max"]);
    for Pool { name, threads, queued, wait } in pools {
        let mut row = vec![name.clone(), count(*threads), count(*queued), count(wait.count)];
        row.extend([wait.mean_ns, wait.p50_ns, wait.p99_ns, wait.max_ns].map(duration));
        table.row(row);
    }
    table.render()
}

fn io_table(io: &[Io]) -> String {
    let mut table = table(&["purpose", "verb"], &["up to", "depth", "count", "bytes", "mean", "p50", "p99", "max"]);
    for Io { purpose, verb, bytes_max, depth, bytes: moved, took } in io {
        let mut row = vec![purpose.clone(), verb.clone(), bytes(*bytes_max), format!("{depth}+")];
        row.extend([count(took.count), bytes(*moved)]);
        row.extend([took.mean_ns, took.p50_ns, took.p99_ns, took.max_ns].map(duration));
        table.row(row);
    }
    table.render()
}
