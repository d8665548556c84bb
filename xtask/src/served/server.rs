//! The file system's server: threads that take requests from the kernel, carry them out, and have them answered in time.

use super::protocol::{self, Asked, DATA_BYTES_MAX, WRITE_HEADER};
use super::{NAME, Pace, STATE, Verb};
use rustix::fs::OFlags;
use rustix::mount::{MountFlags, mount};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// Threads: each waits for the backing file, so there are as many as requests at a time that a load of depth 32 makes, with
/// others beside it.
const THREADS: usize = 48;
/// Direct I/O wants memory at multiples of this.
const ALIGNMENT: usize = 4096;
const IO_ERROR: i32 = 5;
const INVALID: i32 = 22;
/// The disk's place among the names; the state comes after it.
const DISK: usize = 0;

/// The state that all threads share.
struct Shared<P> {
    kernel: Arc<File>,
    backing: File,
    bytes: u64,
    pace: Arc<P>,
    names: Vec<&'static str>,
}

/// A complaint about a path.
pub fn failed(path: &Path, error: io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Mounts the file system and starts its threads, which end when it is unmounted.
pub fn start<P: Pace>(backing: &Path, target: &Path, pace: Arc<P>) -> Result<Vec<JoinHandle<()>>, String> {
    // Past the page cache.
    let direct = OFlags::DIRECT.bits().cast_signed();
    let opened = File::options().read(true).write(true).custom_flags(direct).open(backing);
    let opened = opened.map_err(|error| failed(backing, error))?;
    let bytes = opened.metadata().map_err(|error| failed(backing, error))?.size();
    let fuse = Path::new("/dev/fuse");
    let kernel = File::options().read(true).write(true).open(fuse).map_err(|error| failed(fuse, error))?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,max_read={DATA_BYTES_MAX}", kernel.as_raw_fd());
    let options = CString::new(options).expect("numbers have no zero byte");
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("sinter-disk", target, "fuse", flags, Some(options.as_c_str()))
        .map_err(|error| failed(target, error.into()))?;
    let names = if pace.figures().is_some() { vec![NAME, STATE] } else { vec![NAME] };
    let shared = Arc::new(Shared { kernel: Arc::new(kernel), backing: opened, bytes, pace, names });
    let thread = |_| {
        let shared = shared.clone();
        Builder::new().spawn(move || shared.serve()).map_err(|error| format!("no thread: {error}"))
    };
    (0..THREADS).map(thread).collect()
}

/// Memory of which the byte at `at` lies where direct I/O wants it: the vector, and where it begins in it.
fn aligned(bytes: usize, at: usize) -> (Vec<u8>, usize) {
    let memory = vec![0; bytes + 2 * ALIGNMENT];
    let begin = memory[at..].as_ptr().align_offset(ALIGNMENT);
    (memory, begin)
}

/// Sends an answer. One that fails has nobody who waits: its request was given up, or all is being unmounted.
fn send(kernel: &File, unique: u64, body: &[u8], error: i32) {
    let head = protocol::head(unique, body.len(), error);
    drop((&mut &*kernel).write_vectored(&[IoSlice::new(&head), IoSlice::new(body)]));
}

fn number(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(IO_ERROR)
}

impl<P: Pace> Shared<P> {
    fn serve(&self) {
        let all = WRITE_HEADER + DATA_BYTES_MAX;
        let (mut memory, begin) = aligned(all, WRITE_HEADER);
        loop {
            match (&mut &*self.kernel).read(&mut memory[begin..begin + all]) {
                Ok(bytes) => self.carry_out(&memory[begin..begin + bytes]),
                // A request that was given up before it was read.
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::Interrupted) => {}
                // It is unmounted.
                Err(_) => return,
            }
        }
    }
    fn carry_out(&self, request: &[u8]) {
        let Some((unique, asked)) = protocol::read(request, &self.names) else { return };
        match asked {
            Asked::Told => {}
            Asked::Known(answer) => {
                let (body, error) = protocol::body(answer, self.bytes);
                send(&self.kernel, unique, &body, error);
            }
            Asked::Read { file: DISK, offset, bytes } => {
                let bytes = bytes.min(self.bytes.saturating_sub(offset) as usize);
                let ticket = self.pace.came(Verb::Read, offset, bytes as u64);
                let (mut memory, begin) = aligned(bytes, 0);
                let read = self.backing.read_exact_at(&mut memory[begin..begin + bytes], offset);
                self.answer(ticket, unique, read.map(|()| (memory, begin, bytes)));
            }
            Asked::Read { offset, bytes, .. } => {
                // All at once: two reads would get parts of two texts.
                let text = self.pace.figures().filter(|_| offset == 0).unwrap_or_default();
                send(&self.kernel, unique, &text.as_bytes()[..text.len().min(bytes)], 0);
            }
            Asked::Write { file: DISK, offset } => {
                let data = &request[WRITE_HEADER..];
                let ticket = self.pace.came(Verb::Write, offset, data.len() as u64);
                let written = self.backing.write_all_at(data, offset);
                let told = protocol::written(data.len() as u32).to_vec();
                self.answer(ticket, unique, written.map(|()| (told, 0, 8)));
            }
            Asked::Write { .. } => {
                let data = &request[WRITE_HEADER..];
                match self.pace.change(&String::from_utf8_lossy(data)) {
                    true => send(&self.kernel, unique, &protocol::written(data.len() as u32), 0),
                    false => send(&self.kernel, unique, &[], INVALID),
                }
            }
            Asked::Flush => {
                let ticket = self.pace.came(Verb::Flush, 0, 0);
                let flushed = self.backing.sync_data();
                self.answer(ticket, unique, flushed.map(|()| (Vec::new(), 0, 0)));
            }
        }
    }
    /// Answers in time, with so many bytes from where they begin.
    fn answer(&self, ticket: P::Ticket, unique: u64, done: io::Result<(Vec<u8>, usize, usize)>) {
        let kernel = self.kernel.clone();
        self.pace.answer(ticket, move || match done {
            Ok((memory, begin, bytes)) => send(&kernel, unique, &memory[begin..begin + bytes], 0),
            Err(error) => send(&kernel, unique, &[], number(&error)),
        });
    }
}
