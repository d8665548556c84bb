//! `cargo xtask guest`: kernel clients of NFS and SMB, in a QEMU guest, over servers that export a mount as the manual says.
//! Ganesha is killed and started while programs of the guest are at work, Samba between them. All of it is made and taken back by the
//! command itself, also when it is interrupted.
//!
//! Absent by design: figures of speed. The guest's processor is emulated.

mod image;

use crate::flash::ground::{self, Ground, ended, text};
use crate::flash::undo::Undo;
use crate::tree::root;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const HELP: &str = "\
cargo xtask guest [OPTION ...]

  Boots Debian's kernel in QEMU, without KVM, as root. It mounts what NFS-Ganesha and Samba export of a brick's mount, by each
  protocol: git clone and fsck, fsx, SQLite, locks. Ganesha is killed and started within each of these steps, Samba between
  two programs. Installs the Debian packages that it misses, and takes everything else back at its end, also after Ctrl-C.

  --protocols NAME,...  of nfs3,nfs4.0,nfs4.1,nfs4.2,smb [all]
  --operations N        of fsx, for each protocol [20000]
  --sinter BINARY       [the checkout's release build]
  --fsx BINARY          [where ./run test installs it]
  --work DIR            made for the run, with 6 GiB free [/var/tmp/sinter-guest]
";

const PROTOCOLS: [&str; 5] = ["nfs3", "nfs4.0", "nfs4.1", "nfs4.2", "smb"];
/// A brick, the guest's kernel and initramfs, and what they are made of.
const NEEDED_BYTES: u64 = 6 << 30;
/// Packages, and the program by which each is known.
const PACKAGES: [(&str, &str); 10] = [
    ("qemu-system-x86", "qemu-system-x86_64"),
    ("nfs-ganesha-vfs", "ganesha.nfsd"),
    ("rpcbind", "rpcbind"),
    ("samba", "smbd"),
    ("smbclient", "smbclient"),
    ("nfs-common", "mount.nfs"),
    ("libnfs-utils", "nfs-cp"),
    ("git", "git"),
    ("sqlite3", "sqlite3"),
    ("python3", "python3"),
];

/// The options on the command line.
#[derive(Debug)]
struct Asked {
    protocols: Vec<String>,
    operations: u64,
    sinter: PathBuf,
    fsx: PathBuf,
    work: PathBuf,
}

impl Asked {
    fn read(arguments: &[String]) -> Result<Asked, String> {
        let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
        let target = program.ancestors().nth(2).unwrap_or(Path::new("/"));
        let mut asked = Asked {
            protocols: PROTOCOLS.map(str::to_string).to_vec(),
            operations: 20_000,
            sinter: program.with_file_name("sinter"),
            fsx: target.join("../tools/bin/fsx"),
            work: PathBuf::from("/var/tmp/sinter-guest"),
        };
        let path = |value: &str| std::path::absolute(value).map_err(|error| format!("{value}: {error}"));
        let mut words = arguments.iter();
        while let Some(name) = words.next() {
            let value = words.next().ok_or_else(|| format!("{name}: not known, or its value is missing\n\n{HELP}"))?;
            match name.as_str() {
                "--protocols" => asked.protocols = value.split(',').map(str::to_string).collect(),
                "--operations" => asked.operations = value.parse().map_err(|_| format!("{name} {value}: a number"))?,
                "--sinter" => asked.sinter = path(value)?,
                "--fsx" => asked.fsx = path(value)?,
                "--work" => asked.work = path(value)?,
                _ => return Err(format!("{name}: not known\n\n{HELP}")),
            }
        }
        if let Some(other) = asked.protocols.iter().find(|name| !PROTOCOLS.contains(&name.as_str())) {
            return Err(format!("--protocols: no protocol {other}"));
        }
        if let Some(binary) = [&asked.sinter, &asked.fsx].iter().find(|binary| !binary.is_file()) {
            return Err(format!("no {}\n\n{HELP}", binary.display()));
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
    ground::need_root()?;
    ground::install(&PACKAGES)?;
    Undo::during(|undo| all(&asked, undo))
}

fn all(asked: &Asked, undo: &Undo) -> Result<(), String> {
    let ground = Ground::new(asked.work.clone(), NEEDED_BYTES, undo)?;
    let work = &ground.root;
    for (page, language, name) in [("nfs.md", "ganesha", "ganesha"), ("smb.md", "samba", "samba")] {
        let page = root().join("docs/operate").join(page);
        let text = std::fs::read_to_string(&page).map_err(|error| format!("{}: {error}", page.display()))?;
        let block = block(&text, language).ok_or_else(|| format!("{}: no {language}", page.display()))?;
        std::fs::write(work.join(name), block).map_err(|error| format!("{name}: {error}"))?;
    }
    let scripts = root().join("xtask/src/guest");
    let version = image::make(work, &root(), &scripts.join("init.sh"), &asked.fsx)?;
    println!("guest: Linux {version}");
    let mut command = Command::new("unshare");
    // What the script starts ends with it.
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]);
    command.args(["bash", text(&scripts.join("serve.sh")), text(&asked.sinter), text(work)]);
    command.args([text(&root().join("node/tests/doors")), &asked.protocols.join(","), &asked.operations.to_string()]);
    let mut served = command.stdout(Stdio::piped()).spawn().map_err(|error| format!("unshare: {error}"))?;
    let process = served.id();
    // The first process of the namespace takes all others with it, and is waited for.
    let killed = format!(
        "kill -KILL $(cat /proc/{process}/task/{process}/children 2>/dev/null) 2>/dev/null; {}",
        ended(process, 30)
    );
    undo.add(&killed)?;
    let lines = BufReader::new(served.stdout.take().expect("it was asked for")).lines().map_while(Result::ok);
    let failed = Steps::default().follow(lines);
    let status = served.wait().map_err(|error| format!("unshare: {error}"))?;
    undo.forget(&killed)?;
    match failed {
        0 if status.success() => Ok(()),
        0 => Err(format!("the host's side: {status}")),
        failed => Err(format!("{failed} steps failed")),
    }
}

/// The text of the first block of a page that is marked as `language`.
fn block(page: &str, language: &str) -> Option<String> {
    let (_, rest) = page.split_once(&format!("```{language}\n"))?;
    rest.split_once("```").map(|(block, _)| block.to_string())
}

/// The steps that the guest tells of.
#[derive(Default)]
struct Steps {
    began: Option<Instant>,
    failed: usize,
}

impl Steps {
    /// Prints them as they come; how many failed.
    fn follow(mut self, lines: impl Iterator<Item = String>) -> usize {
        for line in lines {
            let seconds = self.began.map_or(Duration::ZERO, |began| began.elapsed()).as_secs_f64();
            match line.split_once(' ') {
                Some(("begin", _)) => self.began = Some(Instant::now()),
                Some(("end", step)) => println!("{step:<16} {seconds:6.1} s"),
                Some(("failed", step)) => {
                    println!("{step:<16} {seconds:6.1} s  FAILED");
                    self.failed += 1;
                }
                Some(("ask", _)) => {}
                _ => println!("{line}"),
            }
        }
        self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_fail_are_counted() {
        let lines = ["begin nfs3 git", "ask restart nfs3", "end nfs3 git", "begin smb fsx", "| why", "failed smb fsx"];
        assert_eq!(Steps::default().follow(lines.into_iter().map(str::to_string)), 1);
    }

    #[test]
    fn the_manual_has_the_configurations() {
        assert_eq!(block("a\n```x\nb\nc\n```\nd\n```x\ne\n```\n", "x").as_deref(), Some("b\nc\n"));
        assert_eq!(block("```y\n```\n", "x"), None);
    }

    #[test]
    fn nonsense_is_refused() {
        for (line, why) in [("--protocols nfs2", "no protocol nfs2"), ("--fast yes", "--fast: not known")] {
            let words: Vec<String> = line.split(' ').map(str::to_string).collect();
            let error = Asked::read(&words).expect_err(line);
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
