//! `cargo xtask recording`: does a replay do what was recorded? PostgreSQL runs pgbench on a mount while that is recorded; the
//! recording is replayed on a fresh brick and recorded again; the two recordings are compared.
//!
//! Promises: everything is taken back whatever happens. Absent by design: any knowledge of what a recording holds, but for what
//! `sinter record --json` tells.

mod compared;
mod database;

use crate::flash::ground::{self, Ground, text, told};
use crate::flash::sides::{Places, in_own_session, serve};
use crate::flash::undo::Undo;
use crate::observation;
use compared::{Mix, compared};
use database::Database;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const HELP: &str = "\
cargo xtask recording [OPTION ...]

  Makes a brick, runs pgbench on its mount, records that, replays the recording on a fresh brick while that is recorded, and
  compares: the mix of operations must be the same, p50 and p99 of what came often within 20%. As root, on a machine that does
  nothing else. All is taken back at the end, also after Ctrl-C.

  --seconds N        recorded [30]
  --clients N        of pgbench [4]
  --scale N          of pgbench: 15 MB each [10]
  --rate N           transactions of pgbench a second [as many as there can be]
  --fast             replays as fast as possible [at the recorded times]
  --sinter BINARY    [built for the run]
  --work DIR         made for the run, with 10 GiB free [/var/tmp/sinter-recording]
";

/// Two bricks of the smallest size that does, and the database.
const NEEDED_BYTES: u64 = 10 << 30;
/// Time for the load to get going.
const WARM: Duration = Duration::from_secs(3);
/// Time in which a recording that was started has begun.
const BEGUN: Duration = Duration::from_millis(500);
/// Seconds for which loads and recordings go on beyond what is needed.
const LONGER_SECONDS: u64 = 3;

/// The options on the command line.
struct Asked {
    seconds: u64,
    clients: u64,
    scale: u64,
    rate: Option<u64>,
    pace: &'static [&'static str],
    sinter: Option<PathBuf>,
    work: PathBuf,
}

impl Asked {
    fn read(arguments: &[String]) -> Result<Asked, String> {
        let mut asked = Asked {
            seconds: 30,
            clients: 4,
            scale: 10,
            rate: None,
            pace: &["--as-recorded"],
            sinter: None,
            work: PathBuf::from("/var/tmp/sinter-recording"),
        };
        let mut words = arguments.iter();
        while let Some(name) = words.next() {
            if name == "--fast" {
                asked.pace = &[];
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{name}: not known, or its value is missing\n\n{HELP}"))?;
            let path = || std::path::absolute(value).map_err(|error| format!("{name} {value}: {error}"));
            let number = || {
                let number = value.parse::<u64>().ok().filter(|number| (1..=10_000).contains(number));
                number.ok_or_else(|| format!("{name} {value}: a number from 1 to 10000"))
            };
            match name.as_str() {
                "--seconds" => asked.seconds = number()?,
                "--clients" => asked.clients = number()?,
                "--scale" => asked.scale = number()?,
                "--rate" => asked.rate = Some(number()?),
                "--sinter" => asked.sinter = Some(path()?),
                "--work" => asked.work = path()?,
                _ => return Err(format!("{name}: not known\n\n{HELP}")),
            }
        }
        Ok(asked)
    }
}

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<(), String> {
    if arguments.iter().any(|argument| argument == "--help" || argument == "help") {
        print!("{HELP}");
        return Ok(());
    }
    let asked = Asked::read(arguments)?;
    ground::need_root()?;
    ground::install(&[("postgresql", "pg_createcluster"), ("util-linux", "runuser")])?;
    let sinter = match &asked.sinter {
        Some(sinter) => sinter.clone(),
        None => observation::built(&[], "product")?,
    };
    let (recorded, replayed) = Undo::during(|undo| both(&asked, &sinter, undo))?;
    let (table, problems) = compared(&recorded, &replayed);
    print!("{table}");
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

fn both(asked: &Asked, sinter: &Path, undo: &Undo) -> Result<(Mix, Mix), String> {
    ground::allow_uring(undo)?;
    let ground = Ground::new(asked.work.clone(), NEEDED_BYTES, undo)?;
    let [first, second] = ["first", "second"].map(|name| ground.root.join(name));
    let recorded = record_load(asked, &Brick::up(sinter, &ground.root, "database", undo)?, &first)?;
    let replayed = record_replay(asked, &Brick::up(sinter, &ground.root, "replay", undo)?, [&first, &second])?;
    Ok((recorded, replayed))
}

/// Records pgbench.
fn record_load(asked: &Asked, brick: &Brick, file: &Path) -> Result<Mix, String> {
    let database = Database::create(&brick.mount, &brick.beside, asked.scale)?;
    println!("recording pgbench for {} s", asked.seconds);
    let load = database.bench(asked.clients, asked.rate, asked.seconds + WARM.as_secs() + LONGER_SECONDS)?;
    std::thread::sleep(WARM);
    let seconds = asked.seconds.to_string();
    let said = told(text(&brick.sinter), &["record", text(&brick.data), text(file), "--seconds", &seconds, "--json"])?;
    database.end(load)?;
    brick.down()?;
    Mix::read(&said)
}

/// Records the replay of a recording.
fn record_replay(asked: &Asked, brick: &Brick, [recorded, again]: [&Path; 2]) -> Result<Mix, String> {
    println!("preparing the replay");
    let directory = brick.mount.join("replay");
    std::fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut command = Command::new(&brick.sinter);
    command.args(["replay", text(recorded), text(&directory), "--pause"]).args(asked.pace);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut replay = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
    let mut pauses = BufReader::new(replay.stderr.take().expect("it was asked for")).lines();
    await_pause(&mut pauses)?;
    // It may be slower than what was recorded.
    let seconds = (2 * asked.seconds + LONGER_SECONDS).to_string();
    let mut command = Command::new(&brick.sinter);
    command.args(["record", text(&brick.data), text(again), "--seconds", &seconds, "--json"]);
    let record = command.stdout(Stdio::piped()).spawn().map_err(|error| format!("{command:?}: {error}"))?;
    std::thread::sleep(BEGUN);
    println!("replaying");
    go_on(&mut replay)?;
    await_pause(&mut pauses)?;
    // The replay closes its files only after the recording has ended: these closes were not recorded the first time.
    let record = record.wait_with_output().map_err(|error| format!("sinter record: {error}"))?;
    go_on(&mut replay)?;
    let replay = replay.wait_with_output().map_err(|error| format!("sinter replay: {error}"))?;
    if !record.status.success() || !replay.status.success() {
        return Err(format!("sinter record: {}, sinter replay: {}", record.status, replay.status));
    }
    print!("{}", String::from_utf8_lossy(&replay.stdout));
    brick.down()?;
    Mix::read(&String::from_utf8_lossy(&record.stdout))
}

/// Waits until the replay says that it waits.
fn await_pause(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> Result<(), String> {
    for line in lines.map_while(Result::ok) {
        if line.contains("paused before") {
            return Ok(());
        }
        println!("{line}");
    }
    Err("the replay has ended early".to_string())
}

fn go_on(replay: &mut Child) -> Result<(), String> {
    let pipe = replay.stdin.as_mut().expect("it was asked for");
    writeln!(pipe).map_err(|error| format!("sinter replay: {error}"))
}

/// A fresh brick, served and mounted.
struct Brick {
    sinter: PathBuf,
    data: PathBuf,
    mount: PathBuf,
    /// A directory on the host's file system.
    beside: PathBuf,
}

impl Brick {
    fn up(sinter: &Path, root: &Path, name: &str, undo: &Undo) -> Result<Brick, String> {
        let [data, mount, beside] = ["data", "mount", "beside"].map(|part| root.join(format!("{name}-{part}")));
        for directory in [&mount, &beside] {
            std::fs::create_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        }
        let places = Places { binary: sinter, brick: &data, mount: &mount, log: &beside.join("log") };
        serve(in_own_session(), places, &["--size", "4G"], undo)?;
        Ok(Brick { sinter: sinter.to_path_buf(), data, mount, beside })
    }
    fn down(&self) -> Result<(), String> {
        told(text(&self.sinter), &["down", text(&self.data)]).map(drop)
    }
}
