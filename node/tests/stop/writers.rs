//! Programs that write until they are told an error, each in its own way, and what they were acknowledged.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Names the file of the writer that is a process of its own.
pub const MAPPED: &str = "SINTER_TEST_MAPPED_FILE";
/// Bytes of a line: eight digits and its end.
const LINE: usize = 9;
const BLOCK: usize = 4096;

#[repr(align(4096))]
struct Block([u8; BLOCK]);

fn line(number: u64) -> [u8; LINE] {
    let mut line = [0; LINE];
    writeln!(&mut line[..], "{number:08}").expect("nine bytes");
    line
}

/// The way in which it writes; each in files of its own.
#[derive(Clone, Copy, Debug)]
pub enum How {
    Append,
    Plain,
    Direct,
    Mapped,
    Create,
    Rename,
}

/// A writer at work.
pub struct Writer {
    how: How,
    directory: PathBuf,
    thread: JoinHandle<u64>,
}

/// Number of a writer's steps that were acknowledged: 1 to this.
pub struct Told {
    how: How,
    directory: PathBuf,
    count: u64,
}

/// Starts one writer of each kind; they write until `enough` or an error.
pub fn start(mount: &Path, hows: &[How], enough: &Arc<AtomicBool>) -> Vec<Writer> {
    hows.iter()
        .map(|&how| {
            let directory = mount.join(format!("{how:?}"));
            std::fs::create_dir_all(&directory).expect("the mount is writable");
            let (enough, there) = (enough.clone(), directory.clone());
            let mut step = how.begin(&there);
            let write = move || {
                let mut told = 0;
                while !enough.load(Ordering::Relaxed) && step(told + 1).is_ok() {
                    told += 1;
                }
                told
            };
            Writer { how, directory, thread: std::thread::spawn(write) }
        })
        .collect()
}

impl How {
    /// Opens what it writes to, and does one numbered step at a time.
    fn begin(self, directory: &Path) -> Box<dyn FnMut(u64) -> std::io::Result<()> + Send> {
        let path = directory.join("file");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let at = |number: u64, bytes: usize| (number - 1) * bytes as u64;
        let directory = directory.to_path_buf();
        match self {
            How::Append => {
                let mut file = OpenOptions::new().create(true).append(true).open(path).expect("it can be made");
                Box::new(move |number| file.write_all(&line(number)))
            }
            How::Plain => {
                let file = options.open(path).expect("it can be made");
                Box::new(move |number| file.write_all_at(&line(number), at(number, LINE)))
            }
            How::Direct => {
                let file = options.custom_flags(libc::O_DIRECT).open(path).expect("it can be made");
                let mut block = Box::new(Block([0; BLOCK]));
                Box::new(move |number| {
                    block.0[..LINE].copy_from_slice(&line(number));
                    file.write_all_at(&block.0, at(number, BLOCK))
                })
            }
            How::Mapped => mapped(&path),
            How::Create => Box::new(move |number| {
                let mut file = File::create_new(directory.join(number.to_string()))?;
                file.write_all(&line(number))
            }),
            How::Rename => {
                std::fs::write(directory.join("0"), "moved").expect("it can be made");
                Box::new(move |number| {
                    let name = |number: u64| directory.join(number.to_string());
                    std::fs::rename(name(number - 1), name(number))
                })
            }
        }
    }
}

/// A process that does not outlive who talks to it.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A process, since a page that can't be had any more ends it. It says each number that msync has acknowledged.
fn mapped(path: &Path) -> Box<dyn FnMut(u64) -> std::io::Result<()> + Send> {
    let mut child = Command::new(std::env::current_exe().expect("we run"));
    child.args(["--exact", "stop::a_writer_through_a_mapping", "--nocapture"]).env(MAPPED, path);
    let mut child = Ended(child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts"));
    let mut said = child.0.stdout.take().expect("piped");
    let mut byte = [0];
    // What the test's frame says comes first.
    while byte[0] != b'!' {
        said.read_exact(&mut byte).expect("it begins");
    }
    let mut asks = child.0.stdin.take().expect("piped");
    Box::new(move |_| {
        let _child = &child;
        asks.write_all(b".")?;
        said.read_exact(&mut [0])
    })
}

/// The process: stores numbers one after the other, each with an msync.
pub fn write_mapped(path: &Path) {
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).expect("it can be made");
    file.set_len(BLOCK as u64).expect("it can grow");
    // SAFETY: a new mapping of a file that is open; nothing else of this process lies there.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            BLOCK,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(page, libc::MAP_FAILED);
    print!("!");
    std::io::stdout().flush().expect("somebody listens");
    for number in 1u64.. {
        let mut ask = [0];
        if std::io::stdin().read_exact(&mut ask).is_err() {
            break;
        }
        // SAFETY: the first eight bytes of the mapping, which lives on; msync gets that page.
        let synced = unsafe {
            page.cast::<u64>().write_volatile(number);
            libc::msync(page, BLOCK, libc::MS_SYNC)
        };
        if synced != 0 {
            break;
        }
        std::io::stdout().write_all(b".").expect("somebody listens");
        std::io::stdout().flush().expect("somebody listens");
    }
    // Nothing more may be said: each byte is an acknowledgement.
    std::process::exit(0);
}

impl Writer {
    /// Waits until it has stopped.
    pub fn told(self) -> Told {
        let count = self.thread.join().expect("no panic");
        Told { how: self.how, directory: self.directory, count }
    }
}

impl Told {
    /// All that it was told is there. One step more may be: the one whose answer did not come.
    pub fn check(&self) {
        let Told { how, count, directory } = self;
        assert!(*count > 0, "{how:?} was told nothing");
        let file = || std::fs::read(directory.join("file")).expect("the file is there");
        let lines = |step: usize| {
            let content = file();
            for number in 1..=*count {
                let at = (number - 1) as usize * step;
                let found = content.get(at..at + LINE);
                assert_eq!(found, Some(&line(number)[..]), "{how:?}: line {number} of {count} that were acknowledged");
            }
        };
        match how {
            How::Append | How::Plain => lines(LINE),
            How::Direct => lines(BLOCK),
            How::Mapped => {
                let found = u64::from_ne_bytes(file()[..8].try_into().expect("eight bytes"));
                assert!(found == *count || found == count + 1, "{found} through a mapping, not {count}");
            }
            How::Create => (1..=*count).for_each(|number| {
                let content = std::fs::read(directory.join(number.to_string()));
                assert_eq!(content.ok().as_deref(), Some(&line(number)[..]), "file {number} of {count}");
            }),
            How::Rename => {
                let is = |number: u64| directory.join(number.to_string()).exists();
                assert!(is(*count) || is(count + 1), "the name that rename {count} gave");
            }
        }
    }
}
