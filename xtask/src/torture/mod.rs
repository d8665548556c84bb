//! `cargo xtask cluster-torture`: a cluster of three bricks and clients that check what they read, while its nodes are killed and stopped.
//!
//! Promises: nothing that was answered may be lost, no client may get an error, and each call returns, or the command fails and keeps the
//! directory; all is taken back otherwise. Absent by design: damage to the bricks themselves, and the loss of the machine.

mod asked;
mod clients;
mod cluster;
mod expected;
mod faults;
mod nodes;
mod process;
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
use run::{Client, Ended, NEVER, Run, Seen};
use runtime::random::SplitMix;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time for all nodes to be there at the begin, and after the last fault.
const WHOLE: Duration = Duration::from_secs(60);
/// Time for the clients' last calls; one that takes longer counts as one that never ends.
const LAST_CALLS: Duration = Duration::from_secs(90);
/// Time for the verification of all contents.
const VERIFICATION: Duration = Duration::from_secs(180);
/// Pause between two looks at the clock.
const LOOK: Duration = Duration::from_millis(10);

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
        if !done.as_ref().is_ok_and(|report| report.seen.is_clean()) {
            undo.forget(&removal(&asked.work))?;
            eprintln!("kept: {}", asked.work.display());
        }
        done
    });
    let report = done?;
    report.print(asked.form);
    let Seen { wrong, errors, hung, .. } = &report.seen;
    match report.seen.is_clean() {
        true => Ok(()),
        false => Err(format!(
            "the cluster failed: {} things lost or wrong, {} errors of clients, {} calls that did not return; bricks and logs are in {}",
            wrong.len(),
            errors.len(),
            hung.len(),
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
    cluster.becomes_whole(WHOLE)?;
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
fn check_again(run: &Run, asked: &Asked, mut cluster: Cluster<'_>, expected: &[Expected], undo: &Undo) {
    if let Err(error) = cluster.becomes_whole(WHOLE) {
        run.wrong(format!("after the last fault: {error}"));
    }
    found(run, "at the end", &cluster, expected);
    let again = cluster.end().and_then(|()| Cluster::start(&asked.sinter, &asked.work, undo)).and_then(|cluster| {
        found(run, "after a new start", &cluster, expected);
        cluster.end()
    });
    if let Err(error) = again {
        run.wrong(error);
    }
}

/// Verifies the contents, under the eyes of who ends it if it never returns.
fn found(run: &Run, when: &str, cluster: &Cluster<'_>, expected: &[Expected]) {
    std::thread::scope(|scope| {
        let verifying = scope.spawn(|| {
            let mut client = Client::new(run, format!("verification {when}"), 0);
            // Its duration is none of the clients': the last fault has no part in it.
            client.call("verify", &run.mount, || Ok(verify(&run.mount, expected))).unwrap_or_default()
        });
        while !verifying.is_finished() {
            if run.notices_hung(VERIFICATION) {
                eprintln!("{}", cluster.in_words());
                cluster.kill();
            }
            std::thread::sleep(LOOK);
        }
        let wrong = verifying.join().expect("a verification that panics is a bug of this command");
        wrong.into_iter().for_each(|what| run.wrong(format!("{when}: {what}")));
    });
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
        last_calls(run, cluster, || started.iter().filter(|client| !client.is_finished()).count());
        let ended =
            started.into_iter().map(|client| client.join().expect("a client that panics is a bug of this command"));
        (faults, ended.filter_map(Result::ok).collect())
    })
}

/// Waits for the clients' last calls, while the nodes come back to which something was done.
fn last_calls(run: &Run, cluster: &mut Cluster<'_>, left: impl Fn() -> usize) {
    let began = Instant::now();
    while began.elapsed() < LAST_CALLS && left() > 0 {
        if let Err(how) = cluster.tend() {
            run.wrong(how);
            break;
        }
        if run.notices_hung(NEVER) {
            eprintln!("{}", cluster.in_words());
        }
        std::thread::sleep(LOOK);
    }
    if left() > 0 {
        run.wrong(format!("{} clients still wait for a call, {:?} after the last fault", left(), began.elapsed()));
        cluster.kill();
    }
}

/// Does faults until the time is over or something is found.
fn faults(run: &Run, asked: &Asked, cluster: &mut Cluster<'_>) -> Vec<Fault> {
    // Another sequence than that of the clients' seeds.
    let (mut draw, mut done, mut minute) = (SplitMix(!asked.seed), Vec::<Fault>::new(), 1);
    let mut next = asked.every;
    while run.goes_on() && run.now() < asked.time && !run.notices_hung(NEVER) {
        let mut tended = cluster.tend();
        if tended.is_ok() && run.now() >= next {
            next += asked.every;
            tended = faults::next(run, cluster, &mut draw).map(|fault| {
                fault.iter().for_each(|fault| eprintln!("{:.1} s: {}", fault.at.as_secs_f64(), fault.told));
                done.extend(fault);
            });
        }
        if let Err(how) = tended {
            run.wrong(how);
            break;
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
    if !run.is_clean() {
        eprintln!("{}", cluster.in_words());
    }
    done
}
