//! `cargo xtask verdicts`: causes of slowness are brought about on a live mount, `sinter explain` is asked, and what it names is
//! counted against what is true.
//!
//! Promises: nothing tells the daemon or the verdict what is injected; each cause has a fresh brick; everything is taken back
//! whatever happens; a run that was interrupted goes on where it was. Absent by design: any opinion on why a verdict is wrong.

mod account;
mod asked;
mod brick;
mod cause;
mod disk;
mod effect;
mod explained;
mod inject;
pub mod load;
mod matrix;
mod network;
pub mod process;
mod shares;
mod slow_disk;
mod tiers;
mod trial;

use crate::flash::ground::{self, Ground};
use crate::flash::undo::Undo;
use crate::observation;
use account::Account;
use asked::{Asked, Form, Question};
use brick::{Below, Brick};
use cause::{Cause, PLAIN, plan};
use disk::Disk;
use effect::Effect;
use inject::World;
use matrix::Matrix;
use serde_json::Value;
use std::path::Path;
use tiers::Devices;
use trial::Trial;

/// The disk's image, a brick in a directory, its index, and logs.
const NEEDED_BYTES: u64 = 10 << 30;
/// The feature of the build that has test switches.
const FEATURE: &str = "seeded-bugs";

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<(), String> {
    match arguments.split_first() {
        Some((first, rest)) if first == slow_disk::ARGUMENT => return slow_disk::run(rest),
        Some((first, [])) if first == inject::HOG => inject::hog(),
        _ if arguments.iter().any(|argument| argument == "--help" || argument == "help") => {
            print!("{}", asked::HELP);
            return Ok(());
        }
        _ => {}
    }
    let mut asked = Asked::read(arguments)?;
    ground::need_root()?;
    ground::install(&[("fio", "fio"), ("util-linux", "losetup")])?;
    if asked.sinter == Path::new("") {
        asked.sinter = observation::built(&["--features", FEATURE], FEATURE)?;
        // The product comes last, so that what lies where builds lie is one to use.
        observation::built(&[], "product")?;
    }
    std::fs::create_dir_all(&asked.out).map_err(|error| format!("--out {}: {error}", asked.out.display()))?;
    Undo::during(|undo| all(&asked, undo))
}

fn all(asked: &Asked, undo: &Undo) -> Result<(), String> {
    if asked.question == Question::Account {
        let ground = ground(asked, NEEDED_BYTES, undo)?;
        let brick = Brick::make(asked, &ground, Below::default(), PLAIN, undo)?;
        let accounts = account::run(asked, &brick, undo)?;
        brick.remove(undo)?;
        print_all(asked, &accounts, Account::line, Account::json);
        return Ok(());
    }
    let is_dry = asked.question == Question::Effect;
    let wanted = |cause: &Cause| is_dry || !trial::left(asked, *cause).is_empty();
    let causes: Vec<Cause> = asked.causes.iter().copied().filter(wanted).collect();
    let mut effects = Vec::new();
    if !causes.is_empty() {
        let ground = ground(asked, NEEDED_BYTES + Devices::needed_bytes(&causes), undo)?;
        let is_slow = causes.iter().any(|cause| plan(*cause, 0).setup.disk.is_some());
        let disk = if is_slow { Some(Disk::make(&ground, undo)?) } else { None };
        let tiers = Devices::make(&causes, &ground, undo)?;
        let below = Below { disk: disk.as_ref(), tiers: tiers.as_ref() };
        for cause in causes {
            let brick = Brick::make(asked, &ground, below, plan(cause, 0).setup, undo)?;
            let world = World { below, brick: &brick, undo };
            if is_dry {
                effects.extend(effect::run(asked, cause, &world)?);
            } else {
                trial::run(asked, cause, &world)?;
            }
            brick.remove(undo)?;
        }
    }
    if is_dry {
        print_all(asked, &effects, Effect::line, Effect::json);
    } else {
        print_matrix(asked);
    }
    Ok(())
}

/// A place for bricks on a machine that is ready for them.
fn ground(asked: &Asked, bytes: u64, undo: &Undo) -> Result<Ground, String> {
    ground::allow_uring(undo)?;
    shares::take(undo)?;
    Ground::new(asked.work.clone(), bytes, undo)
}

fn print_all<T>(asked: &Asked, all: &[T], line: impl Fn(&T) -> String, json: impl Fn(&T) -> Value) {
    match asked.form {
        Form::Table => all.iter().for_each(|one| println!("{}", line(one))),
        Form::Json => println!("{}", Value::from_iter(all.iter().map(json))),
    }
}

/// Prints the matrix of all that was asked for, in this run or earlier.
fn print_matrix(asked: &Asked) {
    let mut matrix = Matrix::default();
    let told = asked.causes.iter().flat_map(|cause| Trial::all(asked, *cause)).filter_map(|trial| trial.told(asked));
    for (trial, got) in told {
        matrix.add(trial.cause, &got);
        if got != trial.cause.verdict() && got != explained::NONE {
            eprintln!("wrong: {} was called {got}: {}", trial.title(), trial.snapshots(asked).display());
        }
    }
    match asked.form {
        Form::Table => print!("{}", matrix.table()),
        Form::Json => println!("{}", matrix.json()),
    }
}
