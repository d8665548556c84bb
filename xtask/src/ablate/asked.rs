//! The command line of `cargo xtask ablate`.

use super::design::Design;
use crate::flash::asked::{absolute, number};
use std::path::PathBuf;

pub const HELP: &str = "\
cargo xtask ablate --out DIR [OPTION ...]

  What is each of our decisions worth? Builds Sinter with switches for older designs (feature ablations), mounts a brick on XFS on
  a loop file, and has 4 jobs at depth 8 read and write 4 KiB at random, O_DIRECT, with and without an older design by turns, as
  root. First it measures what requests take of each resource at 1 and 8 in flight, and predicts: the rate of each design, by a
  closed network of queues; and our rate over requests in flight, by the universal scalability law. Then it measures what it
  has predicted. What messages are about is compared with a mount of the same brick by a client of this machine, over TLS. Writes ablate.md, ablate.json and, before the second part begins, predicted.json into DIR. All is taken back at
  the end, also after Ctrl-C.

  --only NAME,...   of history, queue, dev-fuse, buffers, hand-offs, hand-down, hand-back, blocking-io, sleepy-cpus, together,
                    network, one-connection, write-per-message [all]
  --rounds N        1 to 100, of each part [5]
  --seconds N       of each measurement, 1 to 60 [2]
  --json            prints what ablate.json has [a table]
  --sinter BINARY   with the feature ablations [built for the run]
  --size N          of XFS's loop file, in GiB, 12 to 1024 [16]
  --work DIR        made for the run, with --size and 2 GiB free [/var/tmp/sinter-ablate]
";

/// A brick with the files, and the files beside it, need so much.
const SIZE_GIB_LEAST: u64 = 12;

/// The options on the command line.
#[derive(Debug)]
pub struct Asked {
    pub out: PathBuf,
    pub work: PathBuf,
    pub designs: Vec<Design>,
    pub rounds: u64,
    pub seconds: u64,
    pub is_json: bool,
    pub size_gib: u64,
    /// None: to be built.
    pub sinter: Option<PathBuf>,
}

impl Asked {
    /// Reads the command line.
    pub fn read(arguments: &[String]) -> Result<Asked, String> {
        let mut asked = Asked {
            out: PathBuf::new(),
            work: PathBuf::from("/var/tmp/sinter-ablate"),
            designs: Design::all(),
            rounds: 5,
            seconds: 2,
            is_json: false,
            size_gib: 16,
            sinter: None,
        };
        let mut words = arguments.iter();
        while let Some(name) = words.next() {
            if name == "--json" {
                asked.is_json = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{name}: not known, or its value is missing\n\n{HELP}"))?;
            asked.set(name, value)?;
        }
        if asked.out == PathBuf::new() {
            return Err(format!("--out is missing\n\n{HELP}"));
        }
        Ok(asked)
    }
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let path = || absolute(value);
        let number = |least, most| number(name, value, least, most);
        match name {
            "--out" => self.out = path()?,
            "--work" => self.work = path()?,
            "--only" => self.designs = value.split(',').map(Design::named).collect::<Result<_, _>>()?,
            "--rounds" => self.rounds = number(1, 100)?,
            "--seconds" => self.seconds = number(1, 60)?,
            "--size" => self.size_gib = number(SIZE_GIB_LEAST, 1024)?,
            "--sinter" => self.sinter = Some(path()?),
            _ => return Err(format!("{name}: not known\n\n{HELP}")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> Result<Asked, String> {
        Asked::read(&words.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read() {
        let asked = read("--out o --only queue,together --rounds 3 --seconds 1 --json").expect("it is known");
        let names: Vec<&str> = asked.designs.iter().map(|design| design.name).collect();
        assert_eq!((names, asked.rounds, asked.seconds, asked.is_json), (vec!["queue", "together"], 3, 1, true));
        assert_eq!(read("--out o").expect("it is known").designs.len(), 13);
    }

    #[test]
    fn nonsense_is_refused() {
        for (words, why) in [
            ("--rounds 3", "--out is missing"),
            ("--out", "value is missing"),
            ("--out o --only warp", "no design warp"),
            ("--out o --rounds 0", "from 1 to 100"),
            ("--out o --size 2", "from 12 to 1024"),
            ("--out o --loud 3", "--loud: not known"),
        ] {
            let error = read(words).expect_err(words);
            assert!(error.contains(why), "{words}: {error}");
        }
    }
}
