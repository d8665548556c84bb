//! Ending a brick's daemon: asked over its socket, then waited for.

use super::{print, print_json};
use crate::admin::client::{Client, unexpected};
use crate::admin::protocol::{Answer, Request};
use crate::cli::Down;
use crate::daemon::say;
use crate::directory;
use crate::failure::{Exit, Failure};
use crate::host::{self, Process};
use crate::remote::place_of;
use runtime::real::Directory;
use std::time::{Duration, Instant};

/// Interval at which a waiting person is told.
const TELL: Duration = Duration::from_secs(5);

/// An end that takes longer has something to wait for.
const AT_ONCE: Duration = Duration::from_millis(500);

/// The result, as JSON shows it.
#[derive(serde::Serialize)]
struct Ended {
    /// A daemon served the brick.
    served: bool,
    /// No daemon does any more.
    ended: bool,
    pid: Option<u32>,
    seconds: f64,
}

/// Runs `sinter down`. No daemon is no failure: what was asked for is so.
pub fn run(options: &Down) -> Result<Exit, Failure> {
    let started = Instant::now();
    let until = started + Duration::from_secs(options.timeout);
    let how = |pid, ended| Ended { served: true, ended, pid, seconds: started.elapsed().as_secs_f64() };
    let nobody = || told(options, &Ended { served: false, ended: true, pid: None, seconds: 0.0 });
    // A mount's daemon takes its directory along.
    let state = place_of(&options.data).map(|place| place.state());
    let is_gone = || state.as_ref().is_some_and(|state| !state.exists());
    let connected = match Client::connect_until(&options.data, Some(until)) {
        Err(_) if is_gone() => return nobody(),
        connected => connected?,
    };
    let Some(client) = connected else {
        let directory = match directory::existing(state.as_deref().unwrap_or(&options.data)) {
            Err(_) if is_gone() => return nobody(),
            directory => directory?,
        };
        let Some(pid) = holder(&directory)? else { return nobody() };
        // It has been asked already, and listens no more; or somebody removed its socket.
        let process = held(options, pid)?;
        let failed = |error| Failure::io(format!("can't ask the daemon of {}", options.data.display()), &error);
        if let Some(process) = &process
            && host::holds_lock(&directory, pid).map_err(failed)?
        {
            process.terminate().map_err(failed)?;
        }
        let ended = waited(options, process, started)?;
        return told(options, &how(Some(pid), ended));
    };
    let (pid, process) = ask(options, client)?;
    if let Some(process) = &process
        && !ended_within(options, process, AT_ONCE.min(Duration::from_secs(options.timeout)))?
    {
        tell_for_whom(options);
    }
    let ended = waited(options, process, started)?;
    told(options, &how(Some(pid), ended))
}

/// Asks a daemon to end; its process, taken hold of before that: afterwards its number may be another's.
fn ask(options: &Down, mut client: Client) -> Result<(u32, Option<Process>), Failure> {
    let Answer::Status(status) = client.ask(&Request::Status)? else { return Err(unexpected()) };
    let process = held(options, status.pid)?;
    client.ask(&Request::Shutdown)?;
    Ok((status.pid, process))
}

fn held(options: &Down, pid: u32) -> Result<Option<Process>, Failure> {
    let failed = |error| Failure::io(format!("can't watch the daemon of {}", options.data.display()), &error);
    Process::of(pid).map_err(failed)
}

/// Says what a daemon that ends waits for. One that can't tell any more is past that.
fn tell_for_whom(options: &Down) {
    let asked = Client::connect(&options.data).ok().flatten().map(|mut client| client.ask(&Request::Status));
    if let Some(Ok(Answer::Status(status))) = asked
        && let Some(what) = status.ending
    {
        say(&format!("the daemon of {}: {what}", options.data.display()));
    }
}

fn ended_within(options: &Down, process: &Process, patience: Duration) -> Result<bool, Failure> {
    let failed = |error| Failure::io(format!("can't watch the daemon of {}", options.data.display()), &error);
    process.ends_within(patience).map_err(failed)
}

/// The process that is still busy with the brick, if any.
fn holder(data: &Directory) -> Result<Option<u32>, Failure> {
    let failed = |error| Failure::io(format!("can't read the lock of {}", data.path().display()), &error);
    host::lock_holder(data).map_err(failed)
}

/// Waits for the end of a process; whether it has ended.
fn waited(options: &Down, process: Option<Process>, started: Instant) -> Result<bool, Failure> {
    let shown = options.data.display();
    let Some(process) = process else { return Ok(true) };
    loop {
        let left = Duration::from_secs(options.timeout).saturating_sub(started.elapsed());
        if ended_within(options, &process, left.min(TELL))? {
            return Ok(true);
        }
        if left.is_zero() {
            return Ok(false);
        }
        say(&format!("the daemon of {shown} is ending, {} s so far", started.elapsed().as_secs()));
    }
}

fn told(options: &Down, how: &Ended) -> Result<Exit, Failure> {
    let shown = options.data.display();
    if options.json {
        print_json(how)?;
    } else if how.ended {
        print(&match how.served {
            true => format!("the daemon of {shown} has ended after {:.1} s\n", how.seconds),
            false => format!("no daemon serves {shown}\n"),
        })?;
    }
    if how.ended {
        return Ok(Exit::Done);
    }
    let failure = Failure::new(Exit::InUse, format!("the daemon of {shown} has not ended for {} s", options.timeout));
    let failure = failure.next("it goes on ending: look at its messages, or wait again with --timeout");
    if options.json {
        // One document is enough.
        say(&failure.to_string());
        return Ok(failure.exit);
    }
    Err(failure)
}
