//! `sinter top`: what a daemon is doing now, by operation, file and client, on a screen that changes as it does.

mod screen;
mod usage;

use super::callers::Callers;
use super::figures::Figures;
use super::print;
use super::snapshots::look;
use crate::admin::client::{Client, unexpected};
use crate::admin::protocol::{Answer, Request};
use crate::cli::{ProfileOf, Top};
use crate::failure::{Exit, Failure};
use crate::observe::LOOKING_MS_MAX;
use explain::{Snapshot, Window, explain};
use serde::Serialize;
use std::collections::VecDeque;
use std::io::IsTerminal;
use usage::Usage;

/// Rounds that the verdict is about: one of a second alone would change with every breath of the clients.
const VERDICT_ROUNDS: usize = 5;

/// Figures of a round.
#[derive(Serialize, Clone, Debug)]
pub struct Round {
    /// Its length.
    seconds: f64,
    /// Requests per second, and the mean number in flight in the daemon.
    per_second: f64,
    in_flight: f64,
    /// Part of their time for which the cores ran.
    running: Vec<f64>,
    /// The verdict on the last rounds.
    verdict: String,
    /// The users.
    operations: Vec<Usage>,
    files: Vec<Usage>,
    clients: Vec<Usage>,
    /// Tables of locks and transfers, for the screen.
    #[serde(skip)]
    tables: [String; 2],
}

/// Shows rounds until the user, the daemon or `--rounds` ends them.
pub fn run(options: &Top) -> Result<Exit, Failure> {
    if !options.json && !std::io::stdout().is_terminal() {
        let failure = Failure::new(Exit::Usage, "standard output is no terminal");
        return Err(failure.next("`sinter top --json` writes a line per round, `sinter profile --watch 1` a table"));
    }
    let mut source = Source::open(options)?;
    if !options.json {
        return screen::run(options, source);
    }
    let mut left = options.rounds;
    while left != Some(0) {
        let round = source.round()?;
        print(&(serde_json::to_string(&round).expect("a round is plain data, which is JSON") + "\n"))?;
        left = left.map(|left| left - 1);
    }
    Ok(Exit::Done)
}

/// The place from which rounds come.
struct Source {
    client: Client,
    seconds: u64,
    /// The last snapshots, oldest first.
    last: VecDeque<Snapshot>,
}

impl Source {
    fn open(options: &Top) -> Result<Source, Failure> {
        let mut client = Client::need(&options.data)?;
        let first = look(&mut client, 0)?;
        Ok(Source { client, seconds: options.seconds, last: [first].into() })
    }
    /// Looks for the length of a round.
    fn round(&mut self) -> Result<Round, Failure> {
        let mut after = look(&mut self.client, LOOKING_MS_MAX)?;
        for _ in 1..self.seconds {
            let earlier = std::mem::replace(&mut after, look(&mut self.client, LOOKING_MS_MAX)?);
            after.take_over(earlier);
        }
        let mounts = match self.client.ask(&Request::Status)? {
            Answer::Status(status) => status.mounts,
            _ => return Err(unexpected()),
        };
        // Made anew each time: numbers of processes and files come again.
        let mut callers = Callers::new(mounts.into_iter().map(|mount| mount.path.into()).collect());
        let before = self.last.back().expect("there is one from the start");
        let round = round(before, &after, &self.verdict(&after), &mut callers)?;
        self.last.push_back(after);
        if self.last.len() > VERDICT_ROUNDS {
            self.last.pop_front();
        }
        Ok(round)
    }
    /// The verdict on all that is kept, and `after`.
    fn verdict(&self, after: &Snapshot) -> String {
        let mut whole = after.clone();
        self.last.iter().skip(1).rev().for_each(|earlier| whole.take_over(earlier.clone()));
        explain(&self.last[0], &whole).map_or(String::new(), |told| told.verdict.sentence)
    }
}

fn round(before: &Snapshot, after: &Snapshot, verdict: &str, callers: &mut Callers) -> Result<Round, Failure> {
    let window = super::snapshots::window(before, after)?;
    let table = |of| Figures::of(&window, of).rows.table();
    Ok(Round {
        seconds: window.ns as f64 / 1e9,
        per_second: window.requests() as f64 * 1e9 / window.ns as f64,
        in_flight: window.occupancy(),
        running: window.cores.iter().map(|core| running(&window, core.run_ns)).collect(),
        verdict: verdict.to_string(),
        operations: usage::by_operation(&window),
        files: usage::by_file(&window, callers),
        clients: usage::by_client(&window, callers),
        tables: [table(ProfileOf::Locks), table(ProfileOf::Io)],
    })
}

fn running(window: &Window, run_ns: u64) -> f64 {
    (run_ns as f64 / window.ns as f64).min(1.0)
}
