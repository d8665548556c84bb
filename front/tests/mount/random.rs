//! Random operations on one file, through cache, past it and through a mapping, against a plain vector.

use crate::Fixture;
use runtime::random::SplitMix;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

const FILE_BYTES_MAX: u64 = 300_000;

/// Memory at a page boundary, as O_DIRECT needs it.
struct Aligned {
    bytes: Vec<u8>,
}

impl Aligned {
    fn new(length: usize) -> Aligned {
        Aligned { bytes: vec![0; length + 4096] }
    }
    fn slice(&mut self, length: usize) -> &mut [u8] {
        let skip = self.bytes.as_ptr().align_offset(4096);
        &mut self.bytes[skip..skip + length]
    }
}

/// Changes bytes through a shared mapping of the pages that hold them.
fn write_mapped(file: &File, offset: u64, bytes: &[u8]) {
    let start = offset / 4096 * 4096;
    let length = (offset - start) as usize + bytes.len();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of an open file; the bytes written lie within it and within the file.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            length,
            protection,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            start as libc::off_t,
        );
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        let to = at.cast::<u8>().add((offset - start) as usize);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        assert_eq!(libc::munmap(at, length), 0);
    }
}

struct Run {
    random: SplitMix,
    model: Vec<u8>,
    buffer: Aligned,
}

impl Run {
    fn write(&mut self, file: &File, mapped: bool, align: u64) {
        let offset = self.random.below(FILE_BYTES_MAX) / align * align;
        let mut length = (1 + self.random.below(40_000)).next_multiple_of(align) as usize;
        if mapped {
            // A mapping can't extend a file.
            length = length.min(self.model.len().saturating_sub(offset as usize));
            if length == 0 {
                return;
            }
        }
        let value = self.random.next() as u8;
        let bytes = self.buffer.slice(length);
        bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = value.wrapping_add(at as u8));
        let end = offset as usize + length;
        self.model.resize(self.model.len().max(end), 0);
        self.model[offset as usize..end].copy_from_slice(bytes);
        match mapped {
            true => write_mapped(file, offset, bytes),
            false => file.write_all_at(bytes, offset).expect("write"),
        }
    }
    fn read(&mut self, file: &File, align: u64) {
        let offset = self.random.below(FILE_BYTES_MAX) / align * align;
        let length = (1 + self.random.below(80_000)).next_multiple_of(align) as usize;
        let bytes = self.buffer.slice(length);
        let mut got = 0;
        while got < length {
            match file.read_at(&mut bytes[got..], offset + got as u64).expect("read") {
                0 => break,
                more => got += more,
            }
        }
        let start = self.model.len().min(offset as usize);
        let end = self.model.len().min(offset as usize + length);
        assert!(bytes[..got] == self.model[start..end], "{length} bytes at {offset} of {}", self.model.len());
    }
    fn truncate(&mut self, file: &File) {
        let length = self.random.below(FILE_BYTES_MAX);
        self.model.resize(length as usize, 0);
        file.set_len(length).expect("truncate");
    }
}

/// Names the file for `the_client`.
const CLIENT_FILE: &str = "SINTER_FRONT_TEST_FILE";

/// The process that uses the file; no test of its own. It can't be the daemon's process: the kernel writes mapped pages
/// back while it holds the lock on the client's memory, which the daemon needs to read the request.
#[test]
fn the_client() {
    let Some(path) = std::env::var_os(CLIENT_FILE) else { return };
    let open = |flags| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).custom_flags(flags).open(&path).expect("open")
    };
    let mut files = [open(0), open(libc::O_DIRECT), open(libc::O_DSYNC)];
    let mut run = Run { random: SplitMix(4711), model: Vec::new(), buffer: Aligned::new(200_000) };
    for step in 0..3000 {
        let which = run.random.below(3) as usize;
        let align = if which == 1 { 4096 } else { 1 };
        match run.random.below(12) {
            0..4 => run.write(&files[which], false, align),
            4..6 => run.write(&files[which], true, 1),
            6..10 => run.read(&files[which], align),
            10 => run.truncate(&files[which]),
            _ => {
                let flags = [0, libc::O_DIRECT, libc::O_DSYNC];
                files[which] = open(flags[which]);
                files[which].sync_all().expect("fsync");
            }
        }
        let length = std::fs::metadata(&path).expect("stat").len();
        assert_eq!(length, run.model.len() as u64, "step {step}");
    }
    drop(files);
    assert!(std::fs::read(&path).expect("read") == run.model);
}

#[test]
fn a_file_behaves_like_a_plain_vector() {
    let Some(fixture) = Fixture::new() else { return };
    let mut client = std::process::Command::new(std::env::current_exe().expect("we run"));
    client.args(["--exact", "random::the_client"]).env(CLIENT_FILE, fixture.path("f"));
    let output = client.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
