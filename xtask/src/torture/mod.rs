//! `cargo xtask cluster-torture`: a cluster of three bricks and clients that check what they read, while its nodes are killed
//! and stopped, their networks cut, and their disks held up.
//!
//! Promises: nothing that was answered may be lost, no client may get an error, and each call returns, or the command fails and keeps the
//! directory; all is taken back otherwise. Absent by design: damage to the bricks themselves, and the loss of the machine.

mod asked;
mod clients;
mod cluster;
mod cuts;
mod disks;
mod expected;
mod faults;
mod kinds;
mod machine;
mod nodes;
mod process;
mod report;
mod run;
mod site;
mod turns;

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
use site::Site;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use turns::Turns;

/// Time for all nodes to be there at the begin, and after a fault.
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
    let site = Site::new(&asked.sinter, &asked.work, asked.wanted, undo)?;
    let mut cluster = Cluster::start(&site)?;
    cluster.becomes_whole(WHOLE)?;
    let mount = &cluster.paths()[0];
    let made = std::fs::write(mount.join("counter"), [0; 8]);
    made.and_then(|()| std::fs::create_dir(mount.join(NAMES))).map_err(|error| format!("the mount: {error}"))?;
    eprintln!("seed {}: {} minutes, a fault every {} s", asked.seed, asked.time.as_secs() / 60, asked.every.as_secs());
    let run = Run::new();
    let (faults, expected) = with_clients(&run, asked, &mut cluster);
    // A finding ends it early.
    let time = run.now();
    if run.is_clean() {
        check_again(&run, &site, cluster, &expected);
    } else if let Err(error) = cluster.end() {
        run.wrong(error);
    }
    let seen = run.see(std::mem::take::<Seen>);
    Ok(Report { seed: asked.seed, time, faults, seen })
}

/// Verifies the contents, ends the cluster, starts it again, verifies them once more, and then the bricks.
fn check_again(run: &Run, site: &Site<'_>, mut cluster: Cluster<'_>, expected: &[Expected]) {
    if let Err(error) = cluster.becomes_whole(WHOLE) {
        run.wrong(format!("after the last fault: {error}"));
    }
    found(run, "at the end", &cluster, expected);
    if let Err(error) = cluster.comes_to_rest(WHOLE) {
        run.wrong(error);
    }
    let again = cluster.end().and_then(|()| Cluster::start(site)).and_then(|cluster| {
        found(run, "after a new start", &cluster, expected);
        cluster.end_and_check()
    });
    if let Err(error) = again {
        run.wrong(error);
    }
}

/// Verifies the contents, under the eyes of who ends it if it never returns.
fn found(run: &Run, when: &str, cluster: &Cluster<'_>, expected: &[Expected]) {
    std::thread::scope(|scope| {
        let verifying = scope.spawn(|| {
            let verified = |mount: PathBuf| {
                // Its duration is none of the clients': the last fault has no part in it.
                let mut client = Client::new(run, format!("verification {when}"), mount.clone(), 0);
                client.call("verify", &mount, || Ok(verify(&mount, expected))).unwrap_or_default()
            };
            cluster.paths().into_iter().flat_map(verified).collect::<Vec<String>>()
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

/// The clients, by name. Those that watch are for what several mounts see of each other.
fn all_clients(mounts: usize) -> Vec<(String, Work)> {
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
    let watches = if mounts > 1 { mounts } else { 0 };
    all.extend((0..watches).map(|number| (format!("watch {number}"), Box::new(clients::watch) as Work)));
    all
}

/// Runs the clients beside the faults; the faults, and what the clients were told.
fn with_clients(run: &Run, asked: &Asked, cluster: &mut Cluster<'_>) -> (Vec<Fault>, Vec<Expected>) {
    std::thread::scope(|scope| {
        let mut draw = SplitMix(asked.seed);
        let mounts = cluster.paths();
        let started: Vec<_> = all_clients(mounts.len())
            .into_iter()
            .map(|(name, work)| {
                // The last digit is the number of its like; those that have none are at the first.
                let number = name.chars().last().and_then(|last| last.to_digit(10)).unwrap_or_default() as usize;
                let mut client = Client::new(run, name, mounts[number % mounts.len()].clone(), draw.next());
                scope.spawn(move || {
                    let done = work(&mut client);
                    client.end();
                    done
                })
            })
            .collect();
        let faults = Turns::new(run, asked).done(cluster);
        run.end();
        if let Err(how) = cluster.lift(run) {
            run.wrong(how);
        }
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
