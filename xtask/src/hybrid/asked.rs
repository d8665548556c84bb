//! The command line of `cargo xtask hybrid`.

use super::brick;
use crate::flash::asked::{absolute, number};
use std::path::PathBuf;

pub const HELP: &str = "\
cargo xtask hybrid [OPTION ...]

  A brick with flash in front of a hard disk: is there a cliff? Makes a disk of the model (`cargo xtask disk`) and a loop device as
  flash, a brick on both, filled to 75%, and measures. As root. All is taken back at the end, also after Ctrl-C.

  bare        the disk alone: 4 KiB written at random at depth 32, 1 MiB read in sequence
  overwrite   4 KiB written at random by 32 writers until the disk took several times the flash: each second's rate
  in-order    that file read in order, cold; again after an idle pass
  stopped     the disk stands still for a while under that load: writes, reads and deletes, and the rate afterwards
  objects     what an object server does (sinter bench object), in turns with a brick that is all flash; memory is half of the objects
  policies    small files and a warm set, on a volume write-back and on one that is flash-only, in turns
  beside      a small synchronous writer alone and beside a massive commit, in turns with a brick that is all flash
  streams     300 streams of 1 Mb/s from files on the disk, cold; 250 for each of several disks
  hot         a hot set's hit rate before and after reading four times the flash once; needs --disk-times 5
  checkpoints how far a second with a checkpoint falls below those around it

  --only ROW,...         [bare,overwrite,in-order,stopped]
  --sinter BINARY        [the checkout's release build]
  --flash-bytes SIZE     at least 4G [4.25G]
  --disk-times N         the disk's size in that of the flash, 1 to 100 [4]
  --disks N              how many disks the brick has, 1 to 4; more than one for the row streams only [1]
  --segment-size SIZE    of flash segments [8M]
  --times N              how often the disk takes the flash's size, 0.1 to 100 [3]
  --seconds-max N        of the overwrites at most, 10 to 3500 [3000]
  --read-seconds N       of each reading in order at most, 5 to 3500 [60]
  --idle-seconds N       of the idle pass, 1 to 3500 [180]
  --stop-seconds N       for which the disk stands still, 5 to 600 [120]
  --object-bytes SIZE    of all objects, 0.5G to 1024G; more than the flash, or nothing lies on the disk [5G]
  --object-seconds N     of each pass of gets at most, 1 to 3500 [60]
  --quick                a short look, in 3 minutes: --disk-times 1 --times 0.25 --read-seconds 10 --idle-seconds 10 --stop-seconds
                         15; fails only by what no load of the machine excuses: errors, and seconds without any write
  --seconds FILE         each second of the overwrites, as CSV [not kept]
  --json                 prints JSON [a table]
  --work DIR             made for the run, with room for flash and what the disk gets [/var/tmp/sinter-hybrid]
";

/// A row of the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Row {
    Bare,
    Overwrite,
    InOrder,
    Stopped,
    Objects,
    Policies,
    Beside,
    Streams,
    Hot,
    Checkpoints,
}

impl Row {
    const ALL: [Row; 10] = [
        Row::Bare,
        Row::Overwrite,
        Row::InOrder,
        Row::Stopped,
        Row::Objects,
        Row::Policies,
        Row::Beside,
        Row::Streams,
        Row::Hot,
        Row::Checkpoints,
    ];
    /// The rows if nobody names any.
    const DEFAULT: [Row; 4] = [Row::Bare, Row::Overwrite, Row::InOrder, Row::Stopped];
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Row::Bare => "bare",
            Row::Overwrite => "overwrite",
            Row::InOrder => "in-order",
            Row::Stopped => "stopped",
            Row::Objects => "objects",
            Row::Policies => "policies",
            Row::Beside => "beside",
            Row::Streams => "streams",
            Row::Hot => "hot",
            Row::Checkpoints => "checkpoints",
        }
    }
    fn named(name: &str) -> Result<Row, String> {
        let found = Row::ALL.into_iter().find(|row| row.name() == name);
        found.ok_or_else(|| format!("--only: no row {name}; there are {}", Row::ALL.map(Row::name).join(", ")))
    }
}

/// The form of what is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Table,
    Json,
}

/// The figures that make the command fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strictness {
    All,
    /// Only those that no other load of the machine excuses.
    Faults,
}

/// The options on the command line.
#[derive(Debug)]
pub struct Asked {
    pub rows: Vec<Row>,
    /// Empty: the one beside this program.
    pub sinter: PathBuf,
    pub flash_bytes: u64,
    pub disk_times: u64,
    pub disks: u64,
    pub segment_size: String,
    pub times: f64,
    pub seconds_max: u64,
    pub read_seconds: u64,
    pub idle_seconds: u64,
    pub stop_seconds: u64,
    pub object_bytes: u64,
    pub object_seconds: u64,
    pub strictness: Strictness,
    pub seconds: Option<PathBuf>,
    pub form: Form,
    pub work: PathBuf,
}

/// The smallest first device that the product takes.
const FLASH_BYTES_MIN: u64 = 4 << 30;
/// Half of it is the least memory that a daemon takes.
const OBJECT_BYTES_MIN: u64 = 512 << 20;
/// A brick with a smaller disk is not filled with four times its flash.
const HOT_DISK_TIMES_MIN: u64 = 5;

impl Asked {
    /// Reads the command line.
    pub fn read(arguments: &[String]) -> Result<Asked, String> {
        let mut asked = Asked {
            rows: Row::DEFAULT.to_vec(),
            sinter: PathBuf::new(),
            flash_bytes: brick::SMALL_FLASH_BYTES,
            disk_times: 4,
            disks: 1,
            segment_size: brick::SEGMENT_SIZE.to_string(),
            times: 3.0,
            seconds_max: 3000,
            read_seconds: 60,
            idle_seconds: 180,
            stop_seconds: 120,
            object_bytes: 5 << 30,
            object_seconds: 60,
            strictness: Strictness::All,
            seconds: None,
            form: Form::Table,
            work: PathBuf::from("/var/tmp/sinter-hybrid"),
        };
        // Other options go before what it says, wherever they stand.
        if arguments.iter().any(|word| word == "--quick") {
            (asked.disk_times, asked.times, asked.strictness) = (1, 0.25, Strictness::Faults);
            (asked.read_seconds, asked.idle_seconds, asked.stop_seconds) = (10, 10, 15);
        }
        let mut words = arguments.iter();
        while let Some(name) = words.next() {
            match name.as_str() {
                "--quick" => {}
                "--json" => asked.form = Form::Json,
                _ => {
                    let value =
                        words.next().ok_or_else(|| format!("{name}: not known, or its value is missing\n\n{HELP}"))?;
                    asked.set(name, value)?;
                }
            }
        }
        if asked.wants(Row::Hot) && asked.disk_times < HOT_DISK_TIMES_MIN {
            return Err(format!("hot reads four times the flash: --disk-times {HOT_DISK_TIMES_MIN} or more"));
        }
        if asked.disks > 1 && asked.rows != [Row::Streams] {
            return Err("the other rows look at the one disk: --disks goes with --only streams".to_string());
        }
        Ok(asked)
    }
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let path = || absolute(value);
        let number = |least, most| number(name, value, least, most);
        match name {
            "--only" => self.rows = value.split(',').map(Row::named).collect::<Result<_, _>>()?,
            "--sinter" => self.sinter = path()?,
            "--flash-bytes" => self.flash_bytes = quarters(name, value, FLASH_BYTES_MIN)?,
            "--object-bytes" => self.object_bytes = quarters(name, value, OBJECT_BYTES_MIN)?,
            "--object-seconds" => self.object_seconds = number(1, 3500)?,
            "--disk-times" => self.disk_times = number(1, 100)?,
            "--disks" => self.disks = number(1, 4)?,
            "--segment-size" => self.segment_size = value.to_string(),
            "--times" => self.times = times(value)?,
            "--seconds-max" => self.seconds_max = number(10, 3500)?,
            "--read-seconds" => self.read_seconds = number(5, 3500)?,
            "--idle-seconds" => self.idle_seconds = number(1, 3500)?,
            "--stop-seconds" => self.stop_seconds = number(5, 600)?,
            "--seconds" => self.seconds = Some(path()?),
            "--work" => self.work = path()?,
            _ => return Err(format!("{name}: not known\n\n{HELP}")),
        }
        Ok(())
    }
    /// True if a row is asked for.
    pub fn wants(&self, row: Row) -> bool {
        self.rows.contains(&row)
    }
    /// True if a row needs a brick that is filled.
    pub fn fills(&self) -> bool {
        self.rows.iter().any(|row| !matches!(row, Row::Bare | Row::Objects | Row::Streams))
    }
    /// The size of a disk.
    pub fn disk_bytes(&self) -> u64 {
        self.flash_bytes * self.disk_times
    }
}

/// A size in GiB, which may have a fraction.
fn quarters(name: &str, text: &str, least: u64) -> Result<u64, String> {
    let number = text.strip_suffix('G').and_then(|number| number.parse::<f64>().ok());
    // Whole segments of every size.
    let bytes = number.map(|number| (number * 4.0) as u64 * (1 << 28));
    let fits = bytes.filter(|bytes| (least..=1 << 40).contains(bytes));
    fits.ok_or_else(|| format!("{name} {text}: {}G to 1024G, in quarters", least as f64 / f64::from(1 << 30)))
}

fn times(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.1..=100.0).contains(number));
    number.ok_or_else(|| format!("--times {text}: a number from 0.1 to 100"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Asked, String> {
        Asked::read(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn sizes_and_rows_are_read() {
        let asked = read("--only in-order,bare --flash-bytes 4.5G --times 0.5 --json").expect("it is a good line");
        assert_eq!(asked.rows, [Row::InOrder, Row::Bare]);
        assert_eq!((asked.flash_bytes, asked.disk_bytes(), asked.times), (9 << 29, 36 << 29, 0.5));
        assert_eq!((asked.form, asked.strictness), (Form::Json, Strictness::All));
        assert!(asked.object_bytes == 5 << 30 && !asked.wants(Row::Objects));
        let asked = read("--only objects --object-bytes 1.5G").expect("it is a good line");
        assert!(asked.object_bytes == 3 << 29 && asked.wants(Row::Objects) && !asked.fills());
        assert!(read("--only streams,hot --disk-times 5").expect("it is a good line").fills());
    }

    #[test]
    fn what_is_asked_for_goes_before_what_is_quick() {
        let asked = read("--times 2 --quick --stop-seconds 30").expect("it is a good line");
        assert_eq!((asked.times, asked.stop_seconds, asked.disk_times), (2.0, 30, 1));
        assert_eq!(asked.strictness, Strictness::Faults);
    }

    #[test]
    fn nonsense_is_refused() {
        for (line, why) in [
            ("--only flash", "no row flash"),
            ("--flash-bytes 3.75G", "4G to 1024G"),
            ("--flash-bytes 5000M", "4G to 1024G"),
            ("--object-bytes 0.25G", "0.5G to 1024G"),
            ("--object-seconds 0", "1 to 3500"),
            ("--times nan", "0.1 to 100"),
            ("--stop-seconds 0", "5 to 600"),
            ("--times", "value is missing"),
            ("--only bare,hot", "--disk-times 5"),
            ("--only streams,bare --disks 4", "--only streams"),
            ("--only streams --disks 5", "1 to 4"),
            ("--loud 3", "--loud: not known"),
        ] {
            let error = read(line).expect_err(line);
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
