//! `cargo xtask schedule`: what clients of two volumes take from each other, and whether limits are kept.
//!
//! Promises: all is taken back whatever happens. Absent by design: any opinion on where a request waited.

mod brick;
mod caps;
mod fair;
mod one_mount;

use crate::flash::asked::number;
use crate::flash::ground::{self, Ground};
use crate::flash::undo::Undo;
use crate::hybrid::asked::{Form, Strictness};
use crate::hybrid::report::Report;
use brick::Brick;
use std::path::PathBuf;

const HELP: &str = "\
cargo xtask schedule [OPTION ...]

  A brick with two volumes, each mounted. As root, on a machine that does nothing else: the clients need the CPUs too. All is taken back
  at the end, also after Ctrl-C.

  caps        limits of operations and bytes per second: over 10 s, in each second, the longest gap; one that is set under load
  fair        a client that reads 4 KiB with one request in flight, beside another volume's with 64 and beside a polite one with 2, 4 or 8
  weights     four clients of each volume, each with 8 reads of 4 KiB in flight: equal weights, three times the weight for the first one's,
              80% reserved for it
  flood       a client that waits for each read of 4 KiB, beside 512 asynchronous ones of the same mount
  users       one user's client that waits for each read of 4 KiB, beside another user's 4 to 64 clients, in one mount
  names       files looked up and directories listed that the kernel does not know, alone, beside 64 writes in flight, and beside 4

  --only ROW,...     [caps,fair,weights,flood,users,names]
  --sinter BINARY    [the checkout's release build]
  --rounds N         of all but caps, 1 to 100 [6]
  --seconds N        of each measurement of these, 1 to 600 [3]
  --json             prints JSON [a table]
  --work DIR         made for the run, with 10 GiB free [/var/tmp/sinter-schedule]
";

/// The rows.
const ROWS: [&str; 6] = ["caps", "fair", "weights", "flood", "users", "names"];
/// A brick of the smallest size that has three files of a GiB, its index, and logs.
const NEEDED_BYTES: u64 = 10 << 30;

/// The options on the command line.
struct Asked {
    rows: Vec<String>,
    sinter: PathBuf,
    rounds: u64,
    seconds: u64,
    form: Form,
    work: PathBuf,
}

impl Asked {
    fn read(arguments: &[String]) -> Result<Asked, String> {
        let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
        let mut asked = Asked {
            rows: ROWS.map(str::to_string).to_vec(),
            sinter: program.with_file_name("sinter"),
            rounds: 6,
            seconds: 3,
            form: Form::Table,
            work: PathBuf::from("/var/tmp/sinter-schedule"),
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--only" => asked.rows = value()?.split(',').map(str::to_string).collect(),
                "--sinter" => asked.sinter = value()?.into(),
                "--rounds" => asked.rounds = number(word, value()?, 1, 100)?,
                "--seconds" => asked.seconds = number(word, value()?, 1, 600)?,
                "--json" => asked.form = Form::Json,
                "--work" => asked.work = value()?.into(),
                _ => return Err(format!("no option {word}\n{HELP}")),
            }
        }
        if let Some(unknown) = asked.rows.iter().find(|row| !ROWS.contains(&row.as_str())) {
            return Err(format!("no row {unknown}\n{HELP}"));
        }
        Ok(asked)
    }
}

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<(), String> {
    if arguments.iter().any(|argument| argument == "--help" || argument == "help") {
        print!("{HELP}");
        return Ok(());
    }
    let asked = Asked::read(arguments)?;
    if !asked.sinter.is_file() {
        return Err(format!("no {}: cargo build --release -p node, or --sinter BINARY", asked.sinter.display()));
    }
    ground::need_root()?;
    ground::install(&[("fio", "fio")])?;
    let mut report = Report::default();
    let done = Undo::during(|undo| all(&asked, &mut report, undo));
    // What was measured before something went wrong is worth its time.
    let printed = report.print(asked.form, Strictness::All);
    done.and(printed)
}

fn all(asked: &Asked, report: &mut Report, undo: &Undo) -> Result<(), String> {
    ground::allow_uring(undo)?;
    let ground = Ground::new(asked.work.clone(), NEEDED_BYTES, undo)?;
    let brick = Brick::make(&asked.sinter, &ground, undo)?;
    if asked.rows.iter().any(|row| row == "caps") {
        caps::run(&brick, &ground, report, undo)?;
    }
    if asked.rows.iter().any(|row| row == "fair") {
        fair::run(&brick, asked.rounds, asked.seconds, report, undo)?;
    }
    if asked.rows.iter().any(|row| row == "weights") {
        fair::weights(&brick, asked.rounds, asked.seconds, report, undo)?;
    }
    if asked.rows.iter().any(|row| row == "flood") {
        one_mount::flood(&brick, (asked.rounds, asked.seconds), report, undo)?;
    }
    if asked.rows.iter().any(|row| row == "users") {
        one_mount::users(&brick, (asked.rounds, asked.seconds), report, undo)?;
    }
    if asked.rows.iter().any(|row| row == "names") {
        one_mount::names(&brick, (asked.rounds, asked.seconds), report, undo)?;
    }
    brick.remove(undo)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Asked, String> {
        Asked::read(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read_or_refused() {
        let asked = read("--only fair --rounds 2 --seconds 600 --sinter /s --work /w --json").expect("options");
        assert_eq!((asked.rows.as_slice(), asked.rounds, asked.seconds), (&["fair".to_string()][..], 2, 600));
        assert_eq!((asked.sinter, asked.work), (PathBuf::from("/s"), PathBuf::from("/w")));
        assert!(asked.form == Form::Json && read("").is_ok_and(|asked| asked.rows.len() == ROWS.len()));
        for line in ["--only speed", "--rounds 0", "--rounds 101", "--seconds many", "--json --only", "--fast"] {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
