//! The nodes: each is a process that serves a brick, which is killed, stopped or taken down, and comes back when its time is there.
//!
//! Promises: a node that ends unasked is told as a failure. Absent by design: the choice of what is done to which.

use super::machine::NAMES;
use super::process::{PATIENCE, Process};
use super::site::{MEMORY, Site};
use crate::flash::ground::text;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// The exit code of a node whose brick another process has: the kernel may close the files of a killed one a moment late.
const IN_USE: i32 = 3;
/// Pause before such a node is started again.
const BUSY: Duration = Duration::from_millis(50);
/// Pause before a node that was taken down is started again.
const DOWN: Duration = Duration::from_secs(1);

/// A node.
pub struct Node<'a> {
    site: &'a Site<'a>,
    number: usize,
    state: State<'a>,
}

enum State<'a> {
    Runs(Process<'a>),
    /// Stopped by SIGSTOP until then.
    Stopped(Process<'a>, Instant),
    /// Taken down since then; with the process of `sinter down`.
    Ending(Process<'a>, Child, Instant),
    /// Started again then.
    Away(Instant),
}

/// The state of a node as it is told to others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    Runs,
    /// Something was done to it that is not over yet.
    Otherwise,
}

impl<'a> Node<'a> {
    /// Starts a node of a site.
    pub fn start(site: &'a Site<'a>, number: usize) -> Result<Node<'a>, String> {
        Ok(Node { site, number, state: State::Runs(served(site, number)?) })
    }
    /// Waits until it serves its brick. Errors: it does not, or has no volatile cache where one was asked for.
    pub fn becomes_ready(&mut self) -> Result<(), String> {
        let State::Runs(process) = &mut self.state else { return Ok(()) };
        process.becomes_ready(PATIENCE)?;
        match self.site.is_volatile && !process.said().contains("unflushed writes stay in memory") {
            true => {
                Err("--volatile: this build of sinter has no volatile cache; cargo build --release -p node --features \
                         seeded-bugs makes one that has, for --sinter BINARY"
                    .to_string())
            }
            false => Ok(()),
        }
    }
    /// Its state.
    pub fn told(&self) -> Told {
        if matches!(self.state, State::Runs(_)) { Told::Runs } else { Told::Otherwise }
    }
    /// Kills it, and leaves the wait for its end to `kill`.
    pub fn strike(&mut self) {
        if let State::Runs(process) = &mut self.state {
            process.strike();
        }
    }
    /// Kills it. It is started again when it is tended after this time.
    pub fn kill(&mut self, back: Duration) {
        if let State::Runs(process) = &mut self.state {
            process.kill();
            self.state = State::Away(Instant::now() + back);
        }
    }
    /// Takes it down in order, by the command that an operator gives, and starts it again a second after its end.
    pub fn take_down(&mut self) -> Result<(), String> {
        let mut command = self.site.command(self.number);
        command.args(["down", text(&self.site.brick(self.number))]).stdin(Stdio::null()).stdout(Stdio::null());
        let asking = command.spawn().map_err(|error| format!("sinter down: {error}"))?;
        self.state = match std::mem::replace(&mut self.state, State::Away(Instant::now())) {
            State::Runs(process) => State::Ending(process, asking, Instant::now()),
            other => other,
        };
        Ok(())
    }
    /// Stops it by SIGSTOP for a time.
    pub fn stop(&mut self, time: Duration) {
        self.state = match std::mem::replace(&mut self.state, State::Away(Instant::now())) {
            State::Runs(process) => {
                process.signal("STOP");
                State::Stopped(process, Instant::now() + time)
            }
            other => other,
        };
    }
    /// Goes on with what was done to it. Errors: it ended unasked, or failed.
    pub fn tend(&mut self) -> Result<(), String> {
        let now = Instant::now();
        match &mut self.state {
            State::Runs(process) => match process.has_ended() {
                None => Ok(()),
                Some(status) if status.code() == Some(IN_USE) => {
                    self.state = State::Away(now + BUSY);
                    Ok(())
                }
                Some(status) => Err(self.failed(&format!("has ended unasked: {status}"))),
            },
            State::Stopped(_, until) => {
                if now >= *until {
                    self.goes_on();
                }
                Ok(())
            }
            State::Ending(process, asking, since) => {
                match (process.has_ended(), asking.try_wait().ok().flatten()) {
                    (Some(status), _) if !status.success() => {
                        return Err(self.failed(&format!("was taken down and ended with {status}")));
                    }
                    (_, Some(status)) if !status.success() => {
                        return Err(self.failed(&format!("is to be taken down: sinter down: {status}")));
                    }
                    (Some(_), Some(_)) => self.state = State::Away(now + DOWN),
                    _ if since.elapsed() > PATIENCE => {
                        return Err(self.failed(&format!("goes on {PATIENCE:?} after sinter down")));
                    }
                    _ => {}
                }
                Ok(())
            }
            State::Away(until) => {
                if now >= *until {
                    self.state = State::Runs(served(self.site, self.number)?);
                }
                Ok(())
            }
        }
    }
    fn goes_on(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Away(Instant::now())) {
            State::Stopped(process, _) => {
                process.signal("CONT");
                State::Runs(process)
            }
            other => other,
        };
    }
    fn failed(&self, how: &str) -> String {
        let (brick, log) = (self.site.brick(self.number), self.site.log(NAMES[self.number]));
        format!("the node of {} {how}; see {}", brick.display(), log.display())
    }
    /// Asks it to end.
    pub fn ask_to_end(&self) {
        if let State::Runs(process) = &self.state {
            process.signal("TERM");
        }
    }
    /// Ends it in order.
    pub fn end(&mut self) -> Result<(), String> {
        self.goes_on();
        match &mut self.state {
            State::Runs(process) | State::Stopped(process, _) => process.end(),
            State::Ending(process, asking, _) => {
                // It waits for the process, whose end is what counts.
                drop(asking.wait());
                process.end()
            }
            State::Away(_) => Ok(()),
        }
    }
}

fn served<'a>(site: &'a Site<'a>, number: usize) -> Result<Process<'a>, String> {
    let mut command = site.command(number);
    command.args(["serve", text(&site.brick(number)), "--memory-max", MEMORY]);
    if site.is_volatile {
        command.env("SINTER_TEST_VOLATILE_CACHE", "1");
    }
    let process = Process::start(command, &site.log(NAMES[number]), site.undo)?;
    site.disks.iter().try_for_each(|disks| disks.serve(number, process.number()))?;
    Ok(process)
}
