//! The command line of `cargo xtask disk`.

use std::path::PathBuf;

pub const HELP: &str = "\
cargo xtask disk make NAME [--size SIZE] [--dir DIR] [--json]   a disk; prints its device
cargo xtask disk drop NAME ... | --all [--dir DIR]              takes disks back, or what is left of them
cargo xtask disk list [--dir DIR] [--json]                      the disks
cargo xtask disk counters NAME [--dir DIR] [--json]             what a disk has done
cargo xtask disk slow NAME N | stop [--dir DIR]                 all takes N times as long from now on; 1: as ever
cargo xtask disk measure [--seconds N] [--dir DIR] [--json]     a disk by fio, beside the simulated one

  A loop device that is as slow as a hard disk of 7200 turns per minute: seeks, rotation, a queue of 32, a buffer for reads in
  sequence, no write cache. Needs root, /dev/fuse, and room for what is written: its file is sparse. A disk stays until it is
  dropped; what a killed command or server has left is taken back by `drop`, and by the next `make`.

  --size SIZE   64M to 15T, as 20G [20G]
  --seconds N   of each pattern, 1 to 600 [10]
  --dir DIR     where the disks' files are [/var/tmp/sinter-disks]
  --json        prints JSON [a table]
";

/// Fewer bytes have too few tracks to be a disk.
const BYTES_MIN: u64 = 64 << 20;
/// The largest file of ext4 is a little longer.
const BYTES_MAX: u64 = 15 << 40;
/// A disk that is so slow stands still.
const STOPPED: u64 = u64::MAX;
/// Longest name.
const NAME_MAX: usize = 40;

/// The form of what is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Table,
    Json,
}

/// The work to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Work {
    Make { name: String, bytes: u64 },
    Drop { names: Vec<String> },
    DropAll,
    List,
    Counters { name: String },
    Slow { name: String, slowness: u64 },
    Measure { seconds: u64 },
}

/// The command line.
#[derive(Debug)]
pub struct Asked {
    pub work: Work,
    pub dir: PathBuf,
    pub form: Form,
}

/// The words of a command line, taken apart.
#[derive(Default)]
struct Words {
    names: Vec<String>,
    bytes: Option<u64>,
    seconds: Option<u64>,
    all: bool,
    json: bool,
    dir: Option<PathBuf>,
}

impl Asked {
    /// Reads the command line.
    pub fn read(arguments: &[String]) -> Result<Asked, String> {
        let (command, rest) = arguments.split_first().ok_or(HELP)?;
        let words = Words::read(rest)?;
        let dir = words.dir.clone().unwrap_or_else(|| PathBuf::from("/var/tmp/sinter-disks"));
        let form = if words.json { Form::Json } else { Form::Table };
        Ok(Asked { work: words.work(command)?, dir, form })
    }
}

impl Words {
    fn read(arguments: &[String]) -> Result<Words, String> {
        let mut read = Words::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word}: its value is missing\n\n{HELP}"));
            match word.as_str() {
                "--all" => read.all = true,
                "--json" => read.json = true,
                "--size" => read.bytes = Some(size(value()?)?),
                "--seconds" => read.seconds = Some(seconds(value()?)?),
                "--dir" => read.dir = Some(PathBuf::from(value()?)),
                option if option.starts_with('-') => return Err(format!("{option}: not known\n\n{HELP}")),
                name => read.names.push(named(name)?),
            }
        }
        Ok(read)
    }
    fn work(self, command: &str) -> Result<Work, String> {
        let misused = || format!("cargo xtask disk {command}: not so\n\n{HELP}");
        let options = (self.bytes, self.seconds, self.all);
        match (command, &self.names[..], options) {
            ("make", [name], (bytes, None, false)) => {
                Ok(Work::Make { name: name.clone(), bytes: bytes.unwrap_or(20 << 30) })
            }
            ("drop", [], (None, None, true)) => Ok(Work::DropAll),
            ("drop", [_, ..], (None, None, false)) => Ok(Work::Drop { names: self.names }),
            ("list", [], (None, None, false)) => Ok(Work::List),
            ("counters", [name], (None, None, false)) => Ok(Work::Counters { name: name.clone() }),
            ("slow", [name, slowness], (None, None, false)) => {
                let slowness = if slowness == "stop" { Some(STOPPED) } else { slowness.parse().ok() };
                let slowness = slowness.filter(|slowness| *slowness > 0).ok_or_else(misused)?;
                Ok(Work::Slow { name: name.clone(), slowness })
            }
            ("measure", [], (None, seconds, false)) => Ok(Work::Measure { seconds: seconds.unwrap_or(10) }),
            _ => Err(misused()),
        }
    }
}

/// A name of a disk: that of a directory too, and no option.
fn named(name: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    match !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(fits) {
        true => Ok(name.to_string()),
        false => Err(format!("{name}: a disk's name has at most {NAME_MAX} letters, digits, - and _")),
    }
}

/// A size in bytes: a number and a unit.
fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("--size {text}: 64M to 15T, as 20G");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let shift = match unit {
        'M' => 20,
        'G' => 30,
        'T' => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    let bytes = number.checked_mul(1 << shift).ok_or_else(wrong)?;
    (BYTES_MIN..=BYTES_MAX).contains(&bytes).then_some(bytes).ok_or_else(wrong)
}

fn seconds(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|seconds| (1..=600).contains(seconds));
    number.ok_or_else(|| format!("--seconds {text}: 1 to 600"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Work, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        Asked::read(&words).map(|asked| asked.work)
    }

    #[test]
    fn command_lines_are_read() {
        let name = || "hdd-1".to_string();
        assert_eq!(read("make --size 512M hdd-1"), Ok(Work::Make { name: name(), bytes: 512 << 20 }));
        assert_eq!(read("make hdd-1 --json"), Ok(Work::Make { name: name(), bytes: 20 << 30 }));
        assert_eq!(read("drop hdd-1 b"), Ok(Work::Drop { names: vec![name(), "b".to_string()] }));
        assert_eq!(read("drop --all"), Ok(Work::DropAll));
        assert_eq!(read("counters hdd-1 --dir /tmp/x"), Ok(Work::Counters { name: name() }));
        assert_eq!(read("slow hdd-1 5"), Ok(Work::Slow { name: name(), slowness: 5 }));
        assert_eq!(read("slow hdd-1 stop"), Ok(Work::Slow { name: name(), slowness: u64::MAX }));
        assert_eq!(read("measure --seconds 3"), Ok(Work::Measure { seconds: 3 }));
    }

    #[test]
    fn others_are_refused() {
        let wrong = ["", "make", "make a b", "make ../a", "make a --size 20", "make a --size 1M", "make a --size 99T"];
        let more = [
            "drop",
            "drop a --all",
            "list a",
            "measure --seconds 0",
            "make a --seconds 3",
            "make a --dir",
            "make -x",
            "slow a 0",
        ];
        for line in wrong.into_iter().chain(more) {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
