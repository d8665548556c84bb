//! `sinter top`: what a daemon is doing now, by operation, file and client, on a screen that changes as it does.

mod screen;
mod usage;

use super::callers::Callers;
use super::figures::Figures;
use super::print;
use super::snapshots::{look, look_for};
use crate::admin::client::Client;
use crate::cli::{ProfileOf, Top};
use crate::failure::{Exit, Failure};
use explain::{Snapshot, explain};
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
        let after = look_for(&mut self.client, self.seconds, |_| {})?;
        // Made anew each time: numbers of processes and files come again.
        let mut callers = Callers::of(&mut self.client)?;
        self.last.push_back(after);
        let round = round(&self.last, &mut callers)?;
        if self.last.len() > VERDICT_ROUNDS {
            self.last.pop_front();
        }
        Ok(round)
    }
}

/// The last of these snapshots' rounds, with the verdict on all of them. There are two at least.
fn round(last: &VecDeque<Snapshot>, callers: &mut Callers) -> Result<Round, Failure> {
    let end = Snapshot::end_of(last.iter()).and_then(|end| explain(&last[0], &end));
    let window = super::snapshots::window(&last[last.len() - 2], &last[last.len() - 1])?;
    let table = |of| Figures::of(&window, of).rows.table();
    Ok(Round {
        seconds: window.seconds(),
        per_second: window.per_second(window.requests() as f64),
        in_flight: window.occupancy(),
        running: window.cores.iter().map(|core| window.share(core.run_ns)).collect(),
        verdict: end.map_or(String::new(), |told| told.verdict.sentence),
        operations: usage::by_operation(&window),
        files: usage::by_file(&window, callers),
        clients: usage::by_client(&window, callers),
        tables: [table(ProfileOf::Locks), table(ProfileOf::Io)],
    })
}
