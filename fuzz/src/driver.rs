//! One target against many inputs.

use crate::mutate::changed;
use crate::targets::{Answer, Target};
use runtime::random::SplitMix;
use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Inputs that are changed further, at most.
const POOL_MAX: usize = 1024;
/// Tries at making a failing input shorter.
const CUTS_MAX: usize = 2000;

/// The extent of a run: this many inputs, from this seed.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The seed of the random numbers.
    pub seed: u64,
    /// Number of inputs.
    pub inputs: u64,
}

impl Plan {
    /// `usual` inputs times `SINTER_FUZZ` (1 unless it is set), from `SINTER_SEED` or else the same seed each time: what
    /// CI runs does not change from day to day.
    pub fn from_environment(usual: u64) -> Plan {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        Plan { seed: number("SINTER_SEED").unwrap_or(1), inputs: usual * number("SINTER_FUZZ").unwrap_or(1) }
    }
}

/// An input that broke a promise.
#[derive(Debug)]
pub struct Failure {
    /// The target's name.
    pub target: &'static str,
    /// The seed.
    pub seed: u64,
    /// Number of inputs that it took.
    pub inputs: u64,
    /// The input, cut down.
    pub input: Vec<u8>,
    /// The message.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { target, seed, inputs, input, what } = self;
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        write!(out, "{target}: {what}\n  seed {seed}, input {inputs}, {} bytes: {hex}", input.len())
    }
}

/// Runs a target; `run` calls its parser, and watches what else it does. Panics within it are failures. Returns how many
/// different answers there were.
pub fn fuzz(target: &Target, run: &dyn Fn(&[u8]) -> Answer, plan: Plan) -> Result<usize, Failure> {
    let mut rng = SplitMix(plan.seed);
    let mut pool = (target.seeds)();
    let mut answers = BTreeSet::new();
    for (number, input) in pool.clone().into_iter().enumerate() {
        let answer = attempt(run, &input).map_err(|what| failure(target, run, plan, (number as u64, input, what)))?;
        answers.insert(answer);
    }
    for number in 0..plan.inputs {
        let input = changed(&pool[rng.below(pool.len() as u64) as usize], &pool, target.words, &mut rng);
        match attempt(run, &input) {
            Ok(answer) => {
                if answers.insert(answer) && pool.len() < POOL_MAX {
                    pool.push(input);
                }
            }
            Err(what) => return Err(failure(target, run, plan, (number, input, what))),
        }
    }
    Ok(answers.len())
}

fn attempt(run: &dyn Fn(&[u8]) -> Answer, input: &[u8]) -> Result<Answer, String> {
    catch_unwind(AssertUnwindSafe(|| run(input))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic that says nothing").to_string()
    })
}

/// Makes the input shorter while it fails.
fn failure(
    target: &Target,
    run: &dyn Fn(&[u8]) -> Answer,
    plan: Plan,
    (inputs, mut input, what): (u64, Vec<u8>, String),
) -> Failure {
    let (mut length, mut at) = (input.len() / 2, 0);
    for _ in 0..CUTS_MAX {
        if length == 0 {
            break;
        }
        if at >= input.len() {
            (length, at) = (length / 2, 0);
            continue;
        }
        let mut shorter = input.clone();
        shorter.drain(at..(at + length).min(input.len()));
        match attempt(run, &shorter) {
            Err(_) => input = shorter,
            Ok(_) => at += length,
        }
    }
    Failure { target: target.name, seed: plan.seed, inputs, input, what }
}
