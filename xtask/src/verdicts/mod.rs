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
mod load;
mod matrix;
mod process;
mod shares;
mod slow_disk;
mod trial;

use crate::flash::ground::{self, Ground};
use crate::flash::undo::Undo;
use crate::observation;
use account::Account;
use asked::{Asked, Form, Question};
use brick::Brick;
use cause::{Cause, plan};
use disk::Disk;
use effect::Effect;
use inject::World;
use matrix::Matrix;
use serde_json::Value;
use std::path::Path;
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
    let undo = Undo::start()?;
    let ran = all(&asked, &undo);
    eprintln!("cleaning up");
    let cleaned = undo.finish();
    ran.and(cleaned)
}

fn all(asked: &Asked, undo: &Undo) -> Result<(), String> {
    let wanted = |cause: &Cause| asked.question != Question::Verdict || !trial::left(asked, *cause).is_empty();
    let mut causes: Vec<Cause> = asked.causes.iter().copied().filter(wanted).collect();
    if asked.question == Question::Account {
        // Nothing is brought about; its brick is a plain one.
        causes = vec![Cause::Clients];
    }
    let (mut effects, mut accounts) = (Vec::new(), Vec::new());
    if !causes.is_empty() {
        ground::allow_uring(undo)?;
        shares::take(undo)?;
        let ground = Ground::new(asked.work.clone(), NEEDED_BYTES, undo)?;
        let disk = Disk::make(&ground, undo)?;
        for cause in causes {
            let brick = Brick::make(asked, &ground, &disk, plan(cause, 0).setup, undo)?;
            let world = World { disk: &disk, brick: &brick, undo };
            match asked.question {
                Question::Verdict => trial::run(asked, cause, &world)?,
                Question::Effect => effects.extend(effect::run(asked, cause, &world)?),
                Question::Account => accounts.extend(account::run(asked, &brick, undo)?),
            }
            brick.remove(undo)?;
        }
    }
    match asked.question {
        Question::Verdict => print_matrix(asked),
        Question::Effect => print_all(asked, &effects, Effect::line, Effect::json),
        Question::Account => print_all(asked, &accounts, Account::line, Account::json),
    }
    Ok(())
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
        if got != trial.cause.id() && got != explained::NONE {
            eprintln!("wrong: {} was called {got}: {}", trial.title(), trial.snapshots(asked).display());
        }
    }
    match asked.form {
        Form::Table => print!("{}", matrix.table()),
        Form::Json => println!("{}", matrix.json()),
    }
}
