//! The options on the command line.

use crate::flash::benches;
use crate::flash::fio::{FILE_BYTES, FILES};
use crate::flash::rows::{self, Place, Task, Work};
use std::path::PathBuf;

pub const HELP: &str = "\
cargo xtask flash --out DIR [OPTION ...]
cargo xtask flash rows                      the rows' names and targets

  Measures Sinter against the file system below it and against GlusterFS on one flash device, in turns, as root. Writes
  flash.md, flash.json and plots into DIR, after each row. Installs the Debian packages that it misses (fio, xfsprogs,
  glusterfs-server), and takes everything else back at its end, also after Ctrl-C.

  --only NAME,...         only these rows, or rows that begin so (random, small-create-4x16k); steady is measured alone
  --except NAME,...       not these rows, or rows that begin so
  --sides NAME,...        of raw,sinter,gluster [all]
  --sinter [NAME=]BINARY  a build of Sinter; twice: two builds, which are compared too [sinter=the checkout's release build]
  --rounds N              1 to 100 [5]
  --peer-rounds N         GlusterFS takes part in the first N rounds only [as many as there are]
  --seconds N             of each measurement, 1 to 3600 [5]
  --size N                of XFS's loop file, in GiB, 16 (steady: 6) to 1024 [40]
  --xfs DIR               use an XFS that is mounted there, on which --size must be free [a loop file is made]
  --work DIR              made for the run, on the disk that is measured [/var/tmp/sinter-flash]
  --copies 3              Sinter as a cluster of three nodes and a client over TLS, GlusterFS with replica 3, all on this machine; targets
                          are others, and rows on ext4, commit-mix, streams and steady are left out. --size is at least 33 then, and 12
                          more for a second build [1]
  --curves                beside the table, rates over depth and over jobs, as plots
";

/// A brick needs so much, and the XFS below it a little ...
const SIZE_GIB_LEAST: u64 = 6;
/// ... but where it shares that with others' files, so much.
const SIZE_GIB_SHARED: u64 = 16;

/// Number of copies of all data, if there are several.
pub const COPIES: u64 = 3;
/// GiB of a brick, at least.
const BRICK_GIB_LEAST: u64 = 4;
/// GiB for what rows with copies make and remove, for all sides.
const BESIDE_GIB: u64 = 3;
/// Volumes of the peer.
const PEER_VOLUMES: u64 = 2;

/// The extent and the settings of a run.
#[derive(Debug)]
pub struct Asked {
    pub out: PathBuf,
    pub work: PathBuf,
    only: Vec<String>,
    except: Vec<String>,
    pub raw: bool,
    pub gluster: bool,
    /// Builds of Sinter: name and binary.
    pub builds: Vec<(String, PathBuf)>,
    pub rounds: u64,
    /// Number of rounds in which the peer takes part.
    pub peer_rounds: u64,
    pub seconds: u64,
    pub size_gib: u64,
    /// An XFS that is there already.
    pub xfs: Option<PathBuf>,
    /// Copies of all data, 1 or `COPIES`; a raw file system has one.
    pub copies: u64,
    curves: bool,
}

impl Asked {
    /// Reads a command line.
    pub fn read(arguments: &[String]) -> Result<Asked, String> {
        let mut asked = Asked {
            out: PathBuf::new(),
            work: PathBuf::from("/var/tmp/sinter-flash"),
            only: Vec::new(),
            except: Vec::new(),
            raw: true,
            gluster: true,
            builds: Vec::new(),
            rounds: 5,
            peer_rounds: u64::MAX,
            seconds: 5,
            size_gib: 40,
            xfs: None,
            copies: 1,
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
                "--xfs" => asked.xfs = Some(absolute(value)?),
                "--except" => asked.except = list(value),
                "--sides" => sides = list(value),
                "--sinter" => builds.push(build(value)?),
                "--rounds" => asked.rounds = number(name, value, 1, 100)?,
                "--peer-rounds" => asked.peer_rounds = number(name, value, 1, 100)?,
                "--seconds" => asked.seconds = number(name, value, 1, 3600)?,
                "--size" => asked.size_gib = number(name, value, SIZE_GIB_LEAST, 1024)?,
                "--copies" => asked.copies = copies(value)?,
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
        if self.size_gib < SIZE_GIB_SHARED && !self.is_alone() {
            return Err(format!("--size {}: at least {SIZE_GIB_SHARED}, but for steady", self.size_gib));
        }
        if self.is_alone() {
            return Ok(rows::steady());
        }
        let all = if self.has_copies() { rows::copied() } else { rows::all() };
        let mut tasks = rows::picked(all.clone(), &self.only)?;
        if !self.except.is_empty() {
            let except = rows::picked(all, &self.except)?;
            tasks.retain(|task| except.iter().all(|other| other.rows[0].name != task.rows[0].name));
        }
        // They come together: a curve of one point is none.
        if self.curves {
            tasks.extend(rows::curves());
        }
        self.has_room(&tasks)?;
        Ok(tasks)
    }
    /// True if Sinter is a cluster, and the peer replicates.
    pub fn has_copies(&self) -> bool {
        self.copies > 1
    }
    /// A brick has the XFS for itself.
    fn is_alone(&self) -> bool {
        self.only == ["steady"] && !self.has_copies()
    }
    /// GiB that bricks of Sinter may take: the sides' other files need half of the XFS at most.
    pub fn brick_gib(&self, place: Place) -> u64 {
        match place {
            Place::Xfs if self.has_copies() => self.size_gib.saturating_sub(self.others_gib()) / self.bricks().max(1),
            Place::Xfs if self.is_alone() => self.size_gib * 4 / 5 / self.builds.len().max(1) as u64,
            Place::Xfs => self.size_gib / 4,
            Place::Ext4 => (self.size_gib / 8).max(4),
        }
    }
    /// Bricks of all clusters.
    fn bricks(&self) -> u64 {
        COPIES * self.builds.len() as u64
    }
    /// GiB that other sides need beside clusters: their files that are laid out, and what comes and goes.
    fn others_gib(&self) -> u64 {
        let peers = if self.gluster { PEER_VOLUMES * COPIES } else { 0 };
        let bytes = (u64::from(self.raw) + peers) * u64::from(FILES + 1) * FILE_BYTES;
        bytes.div_ceil(1 << 30) + BESIDE_GIB
    }
    /// The build whose own benches are loads.
    pub fn bench_build(&self) -> PathBuf {
        self.builds.first().map_or_else(own_build, |(_, binary)| binary.clone())
    }
    /// Refuses copies that find no room beside each other, and streams on bricks that can't hold their files beside those of other rows.
    fn has_room(&self, tasks: &[Task]) -> Result<(), String> {
        let of_copies = self.others_gib() + self.bricks() * BRICK_GIB_LEAST;
        if self.has_copies() && self.size_gib < of_copies {
            return Err(format!("--copies {} needs --size {of_copies} for these sides, or less --sides", self.copies));
        }
        // A brick keeps a fifth of itself for the cleaner.
        let needed = (benches::streams_bytes(self.seconds) + u64::from(FILES + 1) * FILE_BYTES) / 4 * 5;
        let brick_gib = needed.div_ceil(1 << 30);
        if self.builds.is_empty()
            || self.brick_gib(Place::Xfs) >= brick_gib
            || tasks.iter().all(|task| task.work != Work::Streams)
        {
            return Ok(());
        }
        Err(format!("streams need --size {} for {} s, or --except streams", 4 * brick_gib, self.seconds))
    }
    /// Bytes that a run takes of the host's file system.
    pub fn bytes_needed(&self, on_ext4: bool) -> u64 {
        let bricks = if on_ext4 { self.brick_gib(Place::Ext4) * self.builds.len() as u64 } else { 0 };
        // And a little for logs and for raw files.
        let image = if self.xfs.is_some() { 0 } else { self.size_gib };
        (image + bricks + 2) << 30
    }
}

/// A path, made absolute.
pub fn absolute(path: &str) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{path}: {error}"))
}

/// The number of an option, which is at least `min` and at most `max`.
pub fn number(name: &str, value: &str, min: u64, max: u64) -> Result<u64, String> {
    let number = value.parse().ok().filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| format!("{name} {value}: a number from {min} to {max}"))
}

fn copies(value: &str) -> Result<u64, String> {
    let copies = value.parse().ok().filter(|&copies| copies == 1 || copies == COPIES);
    copies.ok_or_else(|| format!("--copies {value}: 1 or {COPIES}"))
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

/// The binary that `cargo build --release -p node` makes, beside this very program.
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
            ("--out o --sides raw --size 5", "from 6 to 1024"),
            ("--out o --sides sinter --sinter a=/there/is/none", "/there/is/none"),
            ("--out o --sides raw --copies 2", "1 or 3"),
            ("--out o --fast yes", "--fast: not known"),
        ] {
            let error = read(line).expect_err(line);
            assert!(error.contains(why), "{line}: {error}");
        }
    }

    #[test]
    fn copies_have_their_rows_and_need_room() {
        let program = std::env::current_exe().expect("it runs");
        let line = format!("--out o --copies 3 --sinter {}", program.display());
        let asked = |more: &str| read(&format!("{line} {more}")).expect("it is a good line");
        let told = |more: &str| asked(more).tasks().map(|tasks| tasks.len());
        assert_eq!((told("--size 33"), asked("--size 33").brick_gib(Place::Xfs)), (Ok(rows::copied().len()), 4));
        assert_eq!(asked("--size 40").brick_gib(Place::Xfs), 6);
        assert!(told("--size 32").is_err_and(|error| error.contains("--copies 3 needs --size 33")));
        let second = format!("--sinter b={}", program.display());
        assert!(told(&second).is_err_and(|error| error.contains("needs --size 45")));
        assert_eq!(told("--size 18 --sides raw,sinter --only idle"), Ok(1));
        assert_eq!(told("--size 18 --sides gluster --only idle"), Ok(1));
        for row in ["steady", "streams", "append-ext4-1", "commit-mix"] {
            let error = asked(&format!("--only {row}")).tasks().map(|_| ()).expect_err(row);
            assert!(error.contains(&format!("no row {row}")), "{error}");
        }
    }

    #[test]
    fn streams_need_room_in_a_brick() {
        let program = std::env::current_exe().expect("it runs");
        let line = format!("--out o --sides sinter --seconds 2 --sinter {}", program.display());
        let told =
            |more: &str| read(&format!("{line} {more}")).expect("it is a good line").tasks().map(|tasks| tasks.len());
        assert!(told("--size 16").is_err_and(|error| error.contains("--size 28 for 2 s")), "{:?}", told("--size 16"));
        assert_eq!(told("--size 28"), Ok(rows::all().len()));
        assert_eq!(told("--size 16 --except streams"), Ok(rows::all().len() - 1));
    }

    #[test]
    fn a_filled_brick_is_alone_and_has_the_device() {
        let asked = read("--out o --sides raw --only steady --size 20").expect("it is a good line");
        let tasks = asked.tasks().expect("there is such a row");
        assert_eq!((tasks.len(), tasks[0].rows[0].name.as_str(), asked.brick_gib(Place::Xfs)), (1, "steady", 16));
        let small = read("--out o --sides raw --size 15").expect("it is a good line").tasks();
        assert!(small.is_err_and(|error| error.contains("at least 16")));
        assert!(read("--out o --sides raw --only steady,idle").expect("it is a good line").tasks().is_err());
        let asked = read("--out o --sides raw --except small,streams,idle").expect("it is a good line");
        let tasks = asked.tasks().expect("there are others");
        let is_left_out = |name: &str| ["small", "streams", "idle"].iter().any(|out| name.starts_with(out));
        assert!(tasks.iter().all(|task| !is_left_out(&task.rows[0].name)));
        assert_eq!(tasks.len(), rows::all().len() - 9 - 2);
    }

    #[test]
    fn only_what_is_asked_for_is_measured() {
        let asked = read("--out o --sides raw --only random --curves").expect("it is a good line");
        let tasks = asked.tasks().expect("there are such rows");
        assert_eq!(tasks.iter().filter(|task| task.point.is_none()).count(), 3);
        assert_eq!(tasks.len(), 3 + 2 * (7 + 5));
        assert_eq!(asked.bytes_needed(true), 42 << 30);
        let asked = read("--out o --sides raw --xfs /there").expect("it is a good line");
        assert_eq!((asked.bytes_needed(true), asked.xfs), (2 << 30, Some(PathBuf::from("/there"))));
    }
}
