//! What the command line asks for.

use crate::flash::rows::{self, Place, Task};
use std::path::PathBuf;

pub const HELP: &str = "\
cargo xtask flash --out DIR [OPTION ...]
cargo xtask flash rows                      the rows' names and targets

  Measures Sinter against the file system below it and against GlusterFS on one flash device, in turns, as root. Writes
  flash.md, flash.json and plots into DIR, after each row. Installs the Debian packages that it misses (fio, xfsprogs,
  glusterfs-server), and takes everything else back at its end, also after Ctrl-C.

  --only NAME,...         only these rows, or rows that begin so (random, small-create-4x16k)
  --sides NAME,...        of raw,sinter,gluster [all]
  --sinter [NAME=]BINARY  a build of Sinter; twice: two builds, which are compared too [sinter=the checkout's release build]
  --rounds N              1 to 100 [5]
  --seconds N             of each measurement, 1 to 600 [5]
  --size N                of XFS's loop file, in GiB, 16 to 1024 [40]
  --work DIR              made for the run, on the disk that is measured [/var/tmp/sinter-flash]
  --curves                beside the table, rates over depth and over jobs, as plots
";

/// What is measured, and how.
#[derive(Debug)]
pub struct Asked {
    pub out: PathBuf,
    pub work: PathBuf,
    only: Vec<String>,
    pub raw: bool,
    pub gluster: bool,
    /// Builds of Sinter: name and binary.
    pub builds: Vec<(String, PathBuf)>,
    pub rounds: u64,
    pub seconds: u64,
    pub size_gib: u64,
    curves: bool,
}

impl Asked {
    /// Reads a command line.
    pub fn read(arguments: &[String]) -> Result<Asked, String> {
        let mut asked = Asked {
            out: PathBuf::new(),
            work: PathBuf::from("/var/tmp/sinter-flash"),
            only: Vec::new(),
            raw: true,
            gluster: true,
            builds: Vec::new(),
            rounds: 5,
            seconds: 5,
            size_gib: 40,
            curves: false,
        };
        let (mut sides, mut builds) = (["raw", "sinter", "gluster"].map(str::to_string).to_vec(), Vec::new());
        let list = |value: &str| value.split(',').map(str::to_string).collect::<Vec<_>>();
        let mut words = arguments.iter();
        while let Some(name) = words.next() {
            if name == "--curves" {
                asked.curves = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{name}: not known, or its value is missing\n\n{HELP}"))?;
            match name.as_str() {
                "--out" => asked.out = absolute(value)?,
                "--work" => asked.work = absolute(value)?,
                "--only" => asked.only = list(value),
                "--sides" => sides = list(value),
                "--sinter" => builds.push(build(value)?),
                "--rounds" => asked.rounds = number(name, value, 1, 100)?,
                "--seconds" => asked.seconds = number(name, value, 1, 600)?,
                "--size" => asked.size_gib = number(name, value, 16, 1024)?,
                _ => return Err(format!("{name}: not known\n\n{HELP}")),
            }
        }
        asked.take_sides(&sides, builds)?;
        if asked.out == PathBuf::new() {
            return Err(format!("--out is missing\n\n{HELP}"));
        }
        Ok(asked)
    }
    fn take_sides(&mut self, sides: &[String], builds: Vec<(String, PathBuf)>) -> Result<(), String> {
        if let Some(other) = sides.iter().find(|side| !["raw", "sinter", "gluster"].contains(&side.as_str())) {
            return Err(format!("--sides: no side {other}"));
        }
        let has = |name: &str| sides.iter().any(|side| side == name);
        (self.raw, self.gluster) = (has("raw"), has("gluster"));
        if has("sinter") {
            self.builds = if builds.is_empty() { vec![("sinter".to_string(), own_build())] } else { builds };
        }
        if self.builds.len() > 2 {
            return Err("--sinter: at most two builds at a time".to_string());
        }
        if self.builds.len() == 2 && self.builds[0].0 == self.builds[1].0 {
            return Err("--sinter: two builds need two names: --sinter old=BINARY --sinter new=BINARY".to_string());
        }
        match self.builds.iter().find(|(_, binary)| !binary.is_file()) {
            Some((_, binary)) => {
                Err(format!("no {}: cargo build --release -p node, or --sinter BINARY", binary.display()))
            }
            None => Ok(()),
        }
    }
    /// The tasks that are asked for.
    pub fn tasks(&self) -> Result<Vec<Task>, String> {
        let mut tasks = rows::picked(rows::all(), &self.only)?;
        // They come together: a curve of one point is none.
        if self.curves {
            tasks.extend(rows::curves());
        }
        Ok(tasks)
    }
    /// What bricks of Sinter may take: the sides' other files need half of the XFS at most.
    pub fn brick_gib(&self, place: Place) -> u64 {
        if place == Place::Xfs { self.size_gib / 4 } else { (self.size_gib / 8).max(4) }
    }
    /// Bytes that a run takes of the host's file system.
    pub fn bytes_needed(&self, on_ext4: bool) -> u64 {
        let bricks = if on_ext4 { self.brick_gib(Place::Ext4) * self.builds.len() as u64 } else { 0 };
        // And a little for logs and for raw files.
        (self.size_gib + bricks + 2) << 30
    }
}

fn absolute(path: &str) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{path}: {error}"))
}

fn number(name: &str, value: &str, min: u64, max: u64) -> Result<u64, String> {
    let number = value.parse().ok().filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| format!("{name} {value}: a number from {min} to {max}"))
}

fn build(value: &str) -> Result<(String, PathBuf), String> {
    let (name, binary) = value.split_once('=').unwrap_or(("sinter", value));
    let plain = !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    // These are other sides' directories and figures.
    if !plain || ["raw", "gluster"].contains(&name) {
        return Err(format!("--sinter {value}: a build's name is of letters, digits and _, and not that of a side"));
    }
    Ok((name.to_string(), absolute(binary)?))
}

/// What `cargo build --release -p node` makes, beside this very program.
fn own_build() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    program.with_file_name("sinter")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Asked, String> {
        Asked::read(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn two_builds_are_named() {
        let program = std::env::current_exe().expect("it runs");
        let program = program.display();
        let line = format!("--out o --sides raw,sinter --rounds 3 --sinter old={program} --sinter new={program}");
        let asked = read(&line).expect("it is a good line");
        let names: Vec<&str> = asked.builds.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names, asked.rounds, asked.raw, asked.gluster), (vec!["old", "new"], 3, true, false));
        assert!(read(&line.replace("new=", "old=")).is_err_and(|error| error.contains("two names")));
        assert!(read(&line.replace("new=", "raw=")).is_err());
        assert!(read(&line.replace("new=", "")).is_ok(), "one without a name is called sinter");
    }

    #[test]
    fn nonsense_is_refused() {
        for (line, why) in [
            ("--sides raw", "--out is missing"),
            ("--out", "value is missing"),
            ("--out o --sides raw,nfs", "no side nfs"),
            ("--out o --sides raw --rounds 0", "from 1 to 100"),
            ("--out o --sides raw --size 8", "from 16 to 1024"),
            ("--out o --sides sinter --sinter a=/there/is/none", "/there/is/none"),
            ("--out o --fast yes", "--fast: not known"),
        ] {
            let error = read(line).expect_err(line);
            assert!(error.contains(why), "{line}: {error}");
        }
    }

    #[test]
    fn only_what_is_asked_for_is_measured() {
        let asked = read("--out o --sides raw --only random --curves").expect("it is a good line");
        let tasks = asked.tasks().expect("there are such rows");
        assert_eq!(tasks.iter().filter(|task| task.point.is_none()).count(), 2);
        assert_eq!(tasks.len(), 2 + 2 * (7 + 5));
        assert_eq!(asked.bytes_needed(true), 42 << 30);
    }
}
