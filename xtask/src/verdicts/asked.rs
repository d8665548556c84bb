//! The command line of `cargo xtask verdicts`.

use super::cause::{Cause, STRENGTHS};
use crate::flash::asked::{absolute, number};
use std::path::PathBuf;

pub const HELP: &str = "\
cargo xtask verdicts [OPTION ...]

  Does `sinter explain` name the cause? Makes a fresh brick for each cause, for some on a disk that answers as late as is wanted,
  runs a load on its mount, brings the cause about, asks, takes the cause back, and counts. As root, on a machine that does nothing
  else. All is taken back at the end, also after Ctrl-C. What --out already has is not done again.

  --only CAUSE,...   [all]
  --strengths N      how many of the five of each, spread evenly [5]
  --strength N       only the Nth of the five
  --times N          how often each [2]
  --once             as --strengths 1 --times 1
  --out DIR          what was expected and named, and both snapshots, a file each [/var/tmp/sinter-verdicts.out]
  --learn SECONDS    the load runs so long before a brick's first cause; a tenth before each other [30]
  --seconds SECONDS  `explain` looks so long [5]
  --dry              asks nobody: latency and rate of the load without and with each cause, from fio
  --account          brings nothing about: the mean latency of loads as fio measures it, and as daemon and kernel account for it
  --json             prints the matrix, or what --dry or --account measured, as JSON [a table]
  --sinter BINARY    with the feature seeded-bugs [built for the run]
  --work DIR         made for the run, with 10 GiB free, 36 GiB with hybrid bricks [/var/tmp/sinter-verdicts]
";

/// The form of what is printed at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Table,
    Json,
}

/// The question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question {
    /// The cause that `explain` names.
    Verdict,
    /// The effect of the cause on the load.
    Effect,
    /// The parts of a load's latency.
    Account,
}

/// The options on the command line.
#[derive(Debug)]
pub struct Asked {
    pub causes: Vec<Cause>,
    /// Strengths, each counted from 0.
    pub strengths: Vec<usize>,
    pub times: u64,
    pub out: PathBuf,
    pub learn: u64,
    pub seconds: u64,
    pub question: Question,
    pub form: Form,
    /// Empty: to be built.
    pub sinter: PathBuf,
    pub work: PathBuf,
}

impl Asked {
    /// Reads the command line.
    pub fn read(arguments: &[String]) -> Result<Asked, String> {
        let mut asked = Asked {
            causes: Cause::ALL.to_vec(),
            strengths: spread(STRENGTHS),
            times: 2,
            out: PathBuf::from("/var/tmp/sinter-verdicts.out"),
            learn: 30,
            seconds: 5,
            question: Question::Verdict,
            form: Form::Table,
            sinter: PathBuf::new(),
            work: PathBuf::from("/var/tmp/sinter-verdicts"),
        };
        let mut words = arguments.iter();
        while let Some(name) = words.next() {
            match name.as_str() {
                "--once" => (asked.strengths, asked.times) = (spread(1), 1),
                "--dry" => asked.question = Question::Effect,
                "--account" => asked.question = Question::Account,
                "--json" => asked.form = Form::Json,
                _ => {
                    let value =
                        words.next().ok_or_else(|| format!("{name}: not known, or its value is missing\n\n{HELP}"))?;
                    asked.set(name, value)?;
                }
            }
        }
        Ok(asked)
    }
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let path = || absolute(value);
        let number = |most| number(name, value, 1, most);
        match name {
            "--only" => self.causes = causes(value)?,
            "--strengths" => self.strengths = spread(number(STRENGTHS as u64)? as usize),
            "--strength" => self.strengths = vec![number(STRENGTHS as u64)? as usize - 1],
            "--times" => self.times = number(100)?,
            "--out" => self.out = path()?,
            "--learn" => self.learn = number(3600)?,
            "--seconds" => self.seconds = number(600)?,
            "--sinter" => self.sinter = path()?,
            "--work" => self.work = path()?,
            _ => return Err(format!("{name}: not known\n\n{HELP}")),
        }
        Ok(())
    }
}

fn causes(names: &str) -> Result<Vec<Cause>, String> {
    let known = Cause::ALL.map(Cause::id).join(", ");
    let one = |name: &str| Cause::named(name).ok_or_else(|| format!("--only: no cause {name}; there are {known}"));
    names.split(',').map(one).collect()
}

/// Strengths, spread evenly: one is the middle.
fn spread(count: usize) -> Vec<usize> {
    (0..count).map(|at| (2 * at + 1) * STRENGTHS / (2 * count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> Result<Asked, String> {
        Asked::read(&words.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn strengths_are_spread_evenly() {
        assert_eq!(spread(1), [2]);
        assert_eq!(spread(2), [1, 3]);
        assert_eq!(spread(3), [0, 2, 4]);
        assert_eq!(spread(5), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn options_are_read() {
        let asked = read("--only flush,lock --times 3 --seconds 7 --dry --json").expect("it is known");
        assert_eq!(asked.causes, [Cause::Flush, Cause::Lock]);
        assert_eq!((asked.times, asked.seconds, asked.question, asked.form), (3, 7, Question::Effect, Form::Json));
        assert_eq!(read("--strength 5").expect("it is known").strengths, [4]);
        let once = read("--once").expect("it is known");
        assert_eq!((once.strengths, once.times), (vec![2], 1));
    }

    #[test]
    fn wrong_options_are_refused() {
        for words in [
            "--only ghosts",
            "--strengths 6",
            "--strengths 0",
            "--strength 0",
            "--strength 6",
            "--times",
            "--loud 3",
            "--seconds soon",
        ] {
            assert!(read(words).is_err(), "{words}");
        }
    }
}
