//! `cargo xtask flash`: Sinter, the file system below it and GlusterFS as a peer on one flash device, in turns, and which
//! targets are met. All set-up is made and taken back by the command itself.
//!
//! Absent by design: any tuning of Sinter, and figures of one side that were not measured beside those of the others.

pub mod asked;
mod benches;
mod cluster;
pub mod cpu;
pub mod figures;
mod files;
pub mod fio;
mod gluster;
pub mod ground;
pub mod measure;
pub mod network;
mod plot;
mod report;
pub mod rows;
pub mod sides;
pub mod undo;

use crate::flash::figures::Figure;
use asked::Asked;
use gluster::{How, Peer};
use ground::Ground;
use measure::Setting;
use report::{Measured, RAW, Report};
use rows::{Place, Task, Unit, Work};
use sides::Side;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use undo::Undo;

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<(), String> {
    if arguments == [undo::ARGUMENT] {
        return undo::run();
    }
    if arguments.iter().any(|argument| argument == "--help" || argument == "help") {
        print!("{}", asked::HELP);
        return Ok(());
    }
    if arguments == ["rows"] {
        print!("{}", report::rows_told());
        return Ok(());
    }
    let asked = Asked::read(arguments)?;
    let tasks = asked.tasks()?;
    ground::need_root()?;
    let mut packages = vec![("fio", "fio"), ("xfsprogs", "mkfs.xfs"), ("util-linux", "losetup")];
    packages.extend(asked.gluster.then_some(("glusterfs-server", "glusterd")));
    ground::install(&packages)?;
    std::fs::create_dir_all(&asked.out).map_err(|error| format!("--out {}: {error}", asked.out.display()))?;
    Undo::during(|undo| all(&asked, &tasks, undo))
}

/// Sets everything up and measures all tasks.
fn all(asked: &Asked, tasks: &[Task], undo: &Undo) -> Result<(), String> {
    let on_ext4 = tasks.iter().any(|task| task.place == Place::Ext4);
    ground::allow_uring(undo)?;
    let ground = Ground::new(asked.work.clone(), asked.bytes_needed(on_ext4), undo)?;
    if on_ext4 {
        ground.need_ext4()?;
    }
    let mut facts = ground::described(&ground.root, asked.gluster);
    match &asked.xfs {
        Some(above) => ground.take_xfs(above, asked.size_gib, undo)?,
        None => ground.make_xfs(asked.size_gib, undo)?,
    }
    facts.push(("XFS", format!("{} GiB, {}", asked.size_gib, ground.device())));
    if asked.has_copies() {
        facts.push(("copies", report::COPIES_TOLD.to_string()));
    }
    let mut sides = all_sides(asked, tasks, &ground, undo)?;
    let version = |(name, binary): &(String, PathBuf)| {
        Ok(format!("{name}: {}", ground::told(ground::text(binary), &["--version"])?))
    };
    let versions: Vec<String> = asked.builds.iter().map(version).collect::<Result<_, String>>()?;
    facts.push(("Sinter", versions.join("; ")));
    let needs = |task: &Task| matches!(task.work, Work::Fio(load) if load.needs_files());
    for side in sides.iter().filter(|side| tasks.iter().any(|task| needs(task) && task.place == side.place)) {
        println!("laying out files: {}", side.name);
        measure::lay_out(side, undo)?;
    }
    let builds = asked.builds.iter().map(|(name, _)| name.clone()).collect();
    let (rounds, seconds) = (asked.rounds, asked.seconds);
    let mut report = Report { facts, builds, rounds, seconds, rows: Vec::new() };
    let began = Instant::now();
    for (done, task) in tasks.iter().enumerate() {
        println!("[{done}/{}{}] {}", tasks.len(), left(began.elapsed(), done, tasks.len()), task.rows[0].title);
        report.rows.extend(rounds_of(task, &mut sides, asked, &ground, undo)?);
        // After each task: what was measured stays, whatever happens to the rest.
        written(&report, asked)?;
    }
    print!("{}", report.between_builds());
    println!("written to {}", asked.out.display());
    Ok(())
}

/// The time that is left, as people say it.
fn left(elapsed: Duration, done: usize, all: usize) -> String {
    let minutes = |done: usize| elapsed.as_secs() as usize * (all - done) / done / 60 + 1;
    if done == 0 { String::new() } else { format!(", {} min left", minutes(done)) }
}

/// Sets up the sides that the tasks need.
fn all_sides(asked: &Asked, tasks: &[Task], ground: &Ground, undo: &Undo) -> Result<Vec<Side>, String> {
    let mut sides = Vec::new();
    for place in [Place::Xfs, Place::Ext4] {
        if tasks.iter().all(|task| task.place != place) {
            continue;
        }
        if asked.raw {
            sides.push(Side::raw(ground, place)?);
        }
        for (number, (name, binary)) in asked.builds.iter().enumerate() {
            println!("starting {name} on {place:?}");
            let gib = asked.brick_gib(place);
            sides.push(match asked.has_copies() {
                true => Side::cluster(ground, (name, binary), number, gib, undo)?,
                false => Side::sinter(ground, place, name, binary, gib, undo)?,
            });
        }
        if asked.gluster && place == Place::Xfs {
            println!("starting GlusterFS");
            let peer = Peer::start(ground, undo)?;
            for how in [How::Tuned, How::Default] {
                sides.push(Side::gluster(ground, &peer, (how, asked.copies), undo)?);
            }
        }
    }
    Ok(sides)
}

/// All rounds of a task: the rows that it gives.
fn rounds_of(
    task: &Task,
    sides: &mut [Side],
    asked: &Asked,
    ground: &Ground,
    undo: &Undo,
) -> Result<Vec<Measured>, String> {
    let sinter = asked.bench_build();
    let new = |row: &rows::Row| Measured {
        place: task.place,
        point: task.point,
        row: row.clone(),
        sides: Default::default(),
    };
    let mut measured: Vec<Measured> = task.rows.iter().map(new).collect();
    for round in 1..=asked.rounds {
        let is_in = |side: &Side| takes_part(task, side) && (round <= asked.peer_rounds || !side.is_peer());
        let mut turns: Vec<usize> = (0..sides.len()).filter(|&at| is_in(&sides[at])).collect();
        // Nobody always comes after the same one.
        if round % 2 == 0 {
            turns.reverse();
        }
        for at in turns {
            measure::settle(sides)?;
            let device_written = || ground.written_bytes();
            let setting =
                Setting { seconds: asked.seconds, round, undo, sinter: &sinter, device_written: &device_written };
            let figures = measure::measured(task, &mut sides[at], &setting)?;
            println!("  round {round}, {}: {}", sides[at].name, shown(&figures, task));
            for (measured, figure) in measured.iter_mut().zip(figures) {
                measured.sides.entry(sides[at].name.clone()).or_default().push(figure);
            }
        }
    }
    Ok(measured)
}

fn takes_part(task: &Task, side: &Side) -> bool {
    let can = match task.work {
        Work::Idle => side.name != RAW,
        // Against the peer there are no targets in these, and laying out takes it long.
        Work::CommitMix | Work::Streams => !side.is_peer(),
        Work::Steady => side.brick().is_some(),
        _ => true,
    };
    side.place == task.place && can
}

fn shown(figures: &[Figure], task: &Task) -> String {
    let one = |(figure, row): (&Figure, &rows::Row)| {
        let value = if figure.value < 100.0 { format!("{:.2}", figure.value) } else { format!("{:.0}", figure.value) };
        match row.unit {
            Unit::PerSecond | Unit::MegabytesPerSecond if figure.machine_us > 0.0 => {
                format!("{value}, CPU {:.1} of {:.1} us", figure.daemon_us, figure.machine_us)
            }
            _ => value,
        }
    };
    figures.iter().zip(&task.rows).map(one).collect::<Vec<_>>().join("; ")
}

/// Writes everything that was measured until now.
fn written(report: &Report, asked: &Asked) -> Result<(), String> {
    let json = serde_json::to_string_pretty(&report.json()).expect("these are plain values");
    let mut files = vec![("flash.md".to_string(), report.markdown()), ("flash.json".to_string(), json + "\n")];
    files.extend(plot::all(&report.rows));
    for (name, text) in files {
        let path = asked.out.join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}
