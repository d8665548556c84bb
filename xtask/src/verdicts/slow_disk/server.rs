//! The file system's server: threads that take requests from the kernel, carry them out, and have them answered late.

use super::delays::Verb;
use super::late::Late;
use super::protocol::{self, Asked, DATA_BYTES_MAX, WRITE_HEADER};
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

/// The state that all threads share.
struct Shared {
    kernel: Arc<File>,
    backing: File,
    bytes: u64,
    late: Arc<Late>,
}

/// Mounts the file system and starts its threads, which end when it is unmounted.
pub fn start(backing: &Path, target: &Path, late: Arc<Late>) -> Result<Vec<JoinHandle<()>>, String> {
    let failed = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
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
    mount("slow-disk", target, "fuse", flags, Some(options.as_c_str()))
        .map_err(|error| failed(target, error.into()))?;
    let shared = Arc::new(Shared { kernel: Arc::new(kernel), backing: opened, bytes, late });
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

impl Shared {
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
        let Some((unique, asked)) = protocol::read(request) else { return };
        match asked {
            Asked::Told => {}
            Asked::Known(answer) => {
                let (body, error) = protocol::body(answer, self.bytes);
                send(&self.kernel, unique, &body, error);
            }
            Asked::Read { offset, bytes } => {
                let bytes = bytes.min(self.bytes.saturating_sub(offset) as usize);
                let (mut memory, begin) = aligned(bytes, 0);
                let read = self.backing.read_exact_at(&mut memory[begin..begin + bytes], offset);
                self.answer(Verb::Read, unique, read.map(|()| (memory, begin, bytes)));
            }
            Asked::Write { offset } => {
                let data = &request[WRITE_HEADER..];
                let written = self.backing.write_all_at(data, offset);
                let told = protocol::written(data.len() as u32).to_vec();
                self.answer(Verb::Write, unique, written.map(|()| (told, 0, 8)));
            }
            Asked::Flush => {
                let flushed = self.backing.sync_data();
                self.answer(Verb::Flush, unique, flushed.map(|()| (Vec::new(), 0, 0)));
            }
        }
    }
    /// Answers late, with so many bytes from where they begin.
    fn answer(&self, verb: Verb, unique: u64, done: io::Result<(Vec<u8>, usize, usize)>) {
        let kernel = self.kernel.clone();
        self.late.answer(verb, move || match done {
            Ok((memory, begin, bytes)) => send(&kernel, unique, &memory[begin..begin + bytes], 0),
            Err(error) => send(&kernel, unique, &[], number(&error)),
        });
    }
}
