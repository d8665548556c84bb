//! `cargo xtask cluster-torture`: a cluster of three bricks and clients that check what they read, while its nodes are killed and stopped.
//!
//! Promises: nothing that was answered may be lost, and no client may get an error, or the command fails and keeps the directory; all
//! is taken back otherwise. Absent by design: damage to the bricks themselves, and the loss of the machine.

mod asked;
mod clients;
mod cluster;
mod expected;
mod faults;
mod report;
mod run;

use crate::flash::ground;
use crate::flash::undo::{Undo, quoted};
use asked::Asked;
use clients::Way;
use cluster::Cluster;
use expected::{Expected, NAMES, verify};
use faults::Fault;
use report::Report;
use run::{Client, Ended, Run, Seen};
use runtime::random::SplitMix;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time for all nodes to be there at the begin, and after the last fault.
const WHOLE: Duration = Duration::from_secs(60);
/// Time for the clients' last calls; one that takes longer counts as one that never ends.
const LAST_CALLS: Duration = Duration::from_secs(90);
/// Pause between two looks at the clock.
const LOOK: Duration = Duration::from_millis(50);

/// The work of a client.
type Work = Box<dyn FnOnce(&mut Client<'_>) -> Result<Expected, Ended> + Send>;

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<(), String> {
    if arguments.iter().any(|argument| argument == "--help" || argument == "help") {
        print!("{}", asked::HELP);
        return Ok(());
    }
    let asked = Asked::read(arguments)?;
    if !asked.sinter.is_file() {
        return Err(format!("no {}: cargo build --release -p node, or --sinter BINARY", asked.sinter.display()));
    }
    ground::need_root()?;
    let done = Undo::during(|undo| {
        ground::Ground::new(asked.work.clone(), 16 << 30, undo)?;
        let done = tortured(&asked, undo);
        if !done.as_ref().is_ok_and(|report| report.seen.wrong.is_empty() && report.seen.errors.is_empty()) {
            undo.forget(&removal(&asked.work))?;
            eprintln!("kept: {}", asked.work.display());
        }
        done
    });
    let report = done?;
    report.print(asked.form);
    match (report.seen.wrong.len(), report.seen.errors.len()) {
        (0, 0) => Ok(()),
        (wrong, errors) => Err(format!(
            "the cluster failed: {wrong} things lost or wrong, {errors} errors of clients; bricks and logs are in {}",
            asked.work.display()
        )),
    }
}

fn removal(work: &Path) -> String {
    format!("rm -rf --one-file-system {}", quoted(work))
}

/// Tortures a cluster from its making to its end.
fn tortured(asked: &Asked, undo: &Undo) -> Result<Report, String> {
    ground::make_directory(&asked.work.join("mount"))?;
    let mut cluster = Cluster::start(&asked.sinter, &asked.work, undo)?;
    if !cluster.becomes_whole(WHOLE) {
        return Err("the cluster has not all of its nodes".to_string());
    }
    let made = std::fs::write(cluster.mount.join("counter"), [0; 8]);
    made.and_then(|()| std::fs::create_dir(cluster.mount.join(NAMES)))
        .map_err(|error| format!("the mount: {error}"))?;
    eprintln!("seed {}: {} minutes, a fault every {} s", asked.seed, asked.time.as_secs() / 60, asked.every.as_secs());
    let run = Run::new(&cluster.mount);
    let (faults, expected) = with_clients(&run, asked, &mut cluster);
    // A finding ends it early.
    let time = run.now();
    if run.is_clean() {
        check_again(&run, asked, cluster, &expected, undo);
    } else if let Err(error) = cluster.end() {
        run.wrong(error);
    }
    let seen = run.see(std::mem::take::<Seen>);
    Ok(Report { seed: asked.seed, time, faults, seen })
}

/// Verifies the contents, ends the cluster, starts it again, and verifies them once more.
fn check_again(run: &Run, asked: &Asked, cluster: Cluster<'_>, expected: &[Expected], undo: &Undo) {
    if !cluster.becomes_whole(WHOLE) {
        run.wrong(format!("{WHOLE:?} after the last fault not all nodes are there"));
    }
    let found = |when: &str| {
        let wrong = verify(&run.mount, expected);
        wrong.into_iter().for_each(|what| run.wrong(format!("{when}: {what}")));
    };
    found("at the end");
    let again = cluster.end().and_then(|()| Cluster::start(&asked.sinter, &asked.work, undo)).and_then(|cluster| {
        found("after a new start");
        cluster.end()
    });
    if let Err(error) = again {
        run.wrong(error);
    }
}

/// The clients, by name.
fn all_clients() -> Vec<(String, Work)> {
    let mut all: Vec<(String, Work)> = Vec::new();
    for number in 0..4 {
        let way = if number < 2 { Way::Strict } else { Way::Plain };
        all.push((format!("log-{number}"), Box::new(move |client| clients::log(client, number, way))));
        all.push((format!("blocks-{number}"), Box::new(move |client| clients::blocks(client, number, way))));
    }
    for number in 0..2 {
        all.push((format!("names {number}"), Box::new(move |client| clients::names(client, number))));
        all.push((format!("counter {number}"), Box::new(clients::count)));
    }
    all.push(("unnamed".to_string(), Box::new(clients::unnamed)));
    all
}

/// Runs the clients beside the faults; the faults, and what the clients were told.
fn with_clients(run: &Run, asked: &Asked, cluster: &mut Cluster<'_>) -> (Vec<Fault>, Vec<Expected>) {
    std::thread::scope(|scope| {
        let mut draw = SplitMix(asked.seed);
        let started: Vec<_> = all_clients()
            .into_iter()
            .map(|(name, work)| {
                let mut client = Client::new(run, name, draw.next());
                scope.spawn(move || {
                    let done = work(&mut client);
                    client.end();
                    done
                })
            })
            .collect();
        let faults = faults(run, asked, cluster);
        run.end();
        let began = Instant::now();
        while began.elapsed() < LAST_CALLS && started.iter().any(|client| !client.is_finished()) {
            std::thread::sleep(LOOK);
        }
        let left = started.iter().filter(|client| !client.is_finished()).count();
        if left > 0 {
            run.wrong(format!("{left} clients still wait for a call, {LAST_CALLS:?} after the last fault"));
            cluster.kill();
        }
        let ended =
            started.into_iter().map(|client| client.join().expect("a client that panics is a bug of this command"));
        (faults, ended.filter_map(Result::ok).collect())
    })
}

/// Does faults until the time is over or something is found.
fn faults(run: &Run, asked: &Asked, cluster: &mut Cluster<'_>) -> Vec<Fault> {
    // Another sequence than that of the clients' seeds.
    let (mut draw, mut done, mut minute) = (SplitMix(!asked.seed), Vec::<Fault>::new(), 1);
    let mut next = asked.every;
    while run.goes_on() && run.now() < asked.time {
        if let Some(how) = cluster.has_ended() {
            run.wrong(how);
            break;
        }
        if run.now() >= next {
            next += asked.every;
            done.extend(faults::next(run, cluster, &mut draw, asked.ends));
        }
        if run.now().as_secs() / 60 >= minute {
            let (calls, longest) = run.calls();
            let longest = longest.as_secs_f64();
            eprintln!(
                "minute {minute}: {calls} calls, the longest took {longest:.1} s, {} faults, nothing wrong",
                done.len()
            );
            minute += 1;
        }
        std::thread::sleep(LOOK);
    }
    done
}
