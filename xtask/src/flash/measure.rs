//! Measures a task on a side: its load, with who used the CPUs meanwhile.

use crate::flash::benches;
use crate::flash::cpu::{self, Spent};
use crate::flash::figures::Figure;
use crate::flash::files::{Crowd, Done, Spray};
use crate::flash::fio::{self, Load};
use crate::flash::ground::{drop_caches, ended, sync};
use crate::flash::rows::{Task, Work};
use crate::flash::sides::Side;
use crate::flash::undo::Undo;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Small files per second of a measurement and thread, up to four threads: about what flash makes durable.
const SMALL_FILES: usize = 400;
/// Empty files per second of a measurement: 20,000 in the usual five.
const EMPTY_FILES: usize = 4000;
/// An idle daemon is watched for four times as long as a busy one: what it uses is near the clock's grain.
const IDLE_TIMES: u64 = 4;
/// Daemons may work off what they have put aside for so long before a measurement begins.
const SETTLED_MAX: Duration = Duration::from_secs(10);

/// The settings of a measurement.
pub struct Setting<'a> {
    pub seconds: u64,
    /// Counts from 1; it seeds what is random.
    pub round: u64,
    pub undo: &'a Undo,
    /// The build whose own benches are loads here.
    pub sinter: &'a Path,
    /// Bytes that the device has written so far.
    pub device_written: &'a dyn Fn() -> Result<u64, String>,
}

/// The work of a load.
struct Worked {
    value: f64,
    operations: u64,
    latency: Option<(f64, f64)>,
}

impl From<Done> for Worked {
    fn from(done: Done) -> Worked {
        let latency = Some((done.p50_us, done.p99_us));
        Worked { value: done.per_second, operations: done.operations as u64, latency }
    }
}

/// Waits until what was written is durable and no daemon works on.
pub fn settle(sides: &[Side]) -> Result<(), String> {
    sync()?;
    let daemons = sides.iter().map(Side::daemons).collect::<Result<Vec<_>, _>>()?.concat();
    let began = Instant::now();
    let mut before = cpu::of_processes(&daemons)?;
    while began.elapsed() < SETTLED_MAX {
        std::thread::sleep(Duration::from_millis(250));
        let now = cpu::of_processes(&daemons)?;
        if now <= before + 1 {
            break;
        }
        before = now;
    }
    Ok(())
}

/// Lays the files out on which fio works.
pub fn lay_out(side: &Side, undo: &Undo) -> Result<(), String> {
    run(fio::lay_out(&side.directory), undo).map(drop)
}

/// Runs a task on a side: a figure for each of its rows.
pub fn measured(task: &Task, side: &mut Side, setting: &Setting) -> Result<Vec<Figure>, String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", task.rows[0].name);
    let figures = match task.work {
        Work::Fio(load) => vec![with_fio(&load, side, setting)?],
        Work::Idle => vec![idle(side, setting)?],
        Work::CommitMix => benches::commit_mix(side, setting)?,
        Work::Streams => benches::streams(side, setting)?,
        Work::Steady => benches::steady(side, setting)?,
        Work::Small { threads, bytes } => {
            let count = SMALL_FILES * setting.seconds as usize * threads.min(4);
            let spray = Spray::new(&side.directory, count, bytes).map_err(wrong)?;
            sync()?;
            let created = accounted(side, || Ok(spray.create(threads).map_err(wrong)?.into()))?;
            go_cold(side, setting.undo)?;
            let read = accounted(side, || Ok(spray.read(threads).map_err(wrong)?.into()))?;
            spray.remove().map_err(wrong)?;
            vec![created, read]
        }
        Work::Empty { threads } => {
            let crowd = Crowd::new(&side.directory, EMPTY_FILES * setting.seconds as usize).map_err(wrong)?;
            sync()?;
            let created = accounted(side, || Ok(crowd.create(threads).map_err(wrong)?.into()))?;
            go_cold(side, setting.undo)?;
            let stat = accounted(side, || Ok(crowd.stat(threads).map_err(wrong)?.into()))?;
            let unlinked = accounted(side, || Ok(crowd.unlink(threads).map_err(wrong)?.into()))?;
            crowd.remove().map_err(wrong)?;
            vec![created, stat, unlinked]
        }
    };
    assert_eq!(figures.len(), task.rows.len(), "each row has its figure");
    Ok(figures)
}

/// Neither the kernel nor a daemon has anything cached.
fn go_cold(side: &mut Side, undo: &Undo) -> Result<(), String> {
    sync()?;
    side.remount(undo)?;
    drop_caches()
}

fn with_daemon(load: &Load, side: &Side, setting: &Setting) -> Result<Figure, String> {
    let undo = setting.undo;
    let command = |seconds| load.command(&side.directory, seconds, setting.round);
    if load.again {
        // A cache may keep only what it sees for the second time.
        run(command(setting.seconds), undo)?;
        run(command(setting.seconds), undo)?;
    }
    if load.direct {
        drop_caches()?;
    }
    accounted(side, || {
        let said = load.read(&run(command(setting.seconds), undo)?)?;
        let large = load.block_bytes > 4096;
        let value = if large { said.bytes_per_second / 1e6 } else { said.operations_per_second };
        Ok(Worked { value, operations: said.operations, latency: Some((said.p50_us, said.p99_us)) })
    })
}

/// Runs a load of fio. Its reads come from the device, unless they are to be read again.
fn with_fio(load: &Load, side: &mut Side, setting: &Setting) -> Result<Figure, String> {
    let from_device = load.may_be_kept() && !load.again && side.leave_read_cache(setting.undo)?;
    if from_device {
        // Where blocks lie is known to a daemon that has run for a while; what lies there is left to the others' first time.
        let elsewhere = setting.round + 1_000_003;
        run(load.command(&side.directory, setting.seconds, elsewhere), setting.undo)?;
    }
    let figure = with_daemon(load, side, setting)?;
    if from_device {
        side.remount(setting.undo)?;
    }
    // What fio calls an append's latency is without its fdatasync.
    let whole = load.needs_files();
    Ok(Figure { p50_us: figure.p50_us.filter(|_| whole), p99_us: figure.p99_us.filter(|_| whole), ..figure })
}

/// Runs a load to its end; what it printed.
pub fn run(mut command: Command, undo: &Undo) -> Result<String, String> {
    let load = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let load = load.map_err(|error| format!("{command:?}: {error}"))?;
    let kill = format!("kill {0}; {1}", load.id(), ended(load.id(), 20));
    undo.add(&kill)?;
    let output = load.wait_with_output().map_err(|error| format!("{command:?}: {error}"))?;
    undo.forget(&kill)?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(said.into_owned()) } else { Err(format!("{command:?}: {errors}{said}")) }
}

fn idle(side: &Side, setting: &Setting) -> Result<Figure, String> {
    let watched = Duration::from_secs(setting.seconds * IDLE_TIMES);
    let daemons = side.daemons()?;
    let began = cpu::begin(&daemons)?;
    std::thread::sleep(watched);
    let spent = began.end(&daemons)?;
    let value = 100.0 * spent.daemons.as_secs_f64() / watched.as_secs_f64();
    Ok(Figure { value, stolen: spent.stolen, ..Figure::default() })
}

/// Does the work, and says what it took of the CPUs.
fn accounted(side: &Side, work: impl FnOnce() -> Result<Worked, String>) -> Result<Figure, String> {
    let daemons = side.daemons()?;
    let began = cpu::begin(&daemons)?;
    let worked = work()?;
    Ok(figure(&worked, &began.end(&daemons)?))
}

fn figure(worked: &Worked, spent: &Spent) -> Figure {
    let each = |time: Duration| time.as_secs_f64() * 1e6 / worked.operations as f64;
    Figure {
        value: worked.value,
        p50_us: worked.latency.map(|(p50, _)| p50),
        p99_us: worked.latency.map(|(_, p99)| p99),
        daemon_us: each(spent.daemons),
        machine_us: each(spent.machine),
        stolen: spent.stolen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_told_per_operation() {
        let worked = Worked { value: 30.0, operations: 1000, latency: Some((5.0, 9.0)) };
        let spent = Spent { daemons: Duration::from_millis(8), machine: Duration::from_millis(20), stolen: 0.25 };
        let figure = figure(&worked, &spent);
        assert_eq!((figure.daemon_us, figure.machine_us, figure.stolen), (8.0, 20.0, 0.25));
        assert_eq!((figure.value, figure.p50_us, figure.p99_us), (30.0, Some(5.0), Some(9.0)));
    }
}
