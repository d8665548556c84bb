//! The command line of `cargo xtask cluster-torture`.

use crate::flash::asked::{absolute, number};
use crate::hybrid::asked::Form;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// The help text.
pub const HELP: &str = "\
cargo xtask cluster-torture [OPTION ...]

  A cluster of three bricks on this machine, made by `sinter cluster dev`, and 13 clients of its mount that check what they read, while the
  nodes' processes are killed, taken down and stopped. As root. Fails if anything is lost or wrong, if a client gets an error, or if a call
  has not returned after 30 s; the run ends at the first such finding, and its directory is kept. All is taken back otherwise, also after
  Ctrl-C.

  4 clients append numbered lines to a log each, half of them with a sync at each third line
  4 clients write blocks of 4 KiB at random places of a file each, half of them with O_DIRECT, and read others
  2 clients create, rename, link and unlink names in one directory
  2 clients count a number up under flock
  1 client reads and writes a file that is open and has no name any more

  Faults, drawn by the seed: a node killed and started again at once (20 of 100), after 1 s (22) or after 5 s (18), one taken down by
  `sinter down` and started again 1 s after its end (20), one stopped for 1 to 6 s (10), two killed at once (5), all three (5). A single
  one is the node that leads in 60 of 100 cases. At the end all contents are verified, and again after an end and a new start.

  A fault's stall is the longest call of any client in which the fault happened, or which began between it and the next one.
  The table names the goals, and which of them were missed; a machine that does other things beside misses them too, so that is no failure.

  --minutes N        of faults, 1 to 10000 [30]
  --every N          seconds from one fault to the next one, 2 to 600 [10]
  --seed N           of what is drawn; the same seed draws the same, and the machine's timing differs [the time]
  --sinter BINARY    [the checkout's release build]
  --json             prints JSON, and the table as an error [the table alone]
  --work DIR         made for the run, with 16 GiB free [/var/tmp/sinter-cluster-torture]
";

/// The options on the command line.
#[derive(Debug)]
pub struct Asked {
    pub time: Duration,
    pub every: Duration,
    pub seed: u64,
    pub sinter: PathBuf,
    pub form: Form,
    pub work: PathBuf,
}

impl Asked {
    /// Reads the command line.
    pub fn read(arguments: &[String]) -> Result<Asked, String> {
        let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut asked = Asked {
            time: Duration::from_secs(30 * 60),
            every: Duration::from_secs(10),
            seed: now.as_secs(),
            sinter: program.with_file_name("sinter"),
            form: Form::Table,
            work: PathBuf::from("/var/tmp/sinter-cluster-torture"),
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value =
                || words.next().ok_or_else(|| format!("{word}: not known, or its value is missing\n\n{HELP}"));
            match word.as_str() {
                "--json" => asked.form = Form::Json,
                "--minutes" => asked.time = Duration::from_secs(60 * number(word, value()?, 1, 10_000)?),
                "--every" => asked.every = Duration::from_secs(number(word, value()?, 2, 600)?),
                "--seed" => asked.seed = number(word, value()?, 0, u64::MAX)?,
                "--sinter" => asked.sinter = absolute(value()?)?,
                "--work" => asked.work = absolute(value()?)?,
                _ => return Err(format!("{word}: not known\n\n{HELP}")),
            }
        }
        Ok(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Asked, String> {
        Asked::read(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read() {
        let asked = read("--minutes 2 --every 5 --seed 7 --json").expect("it is a good line");
        assert_eq!((asked.time.as_secs(), asked.every.as_secs(), asked.seed), (120, 5, 7));
        assert_eq!(asked.form, Form::Json);
        assert_eq!(read("").expect("it is a good line").form, Form::Table);
    }

    #[test]
    fn nonsense_is_refused() {
        for (line, why) in [
            ("--minutes 0", "1 to 10000"),
            ("--every 1", "2 to 600"),
            ("--seed", "value is missing"),
            ("--loud", "--loud: not known"),
        ] {
            let error = read(line).expect_err(line);
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
