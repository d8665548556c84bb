//! Asynchronous writes as programs do them: libaio's system calls, and io_uring.

use io_uring::{IoUring, opcode, types};
use std::fs::File;
use std::io::Error;
use std::os::fd::AsRawFd;

/// The way in which a program asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// `io_submit`.
    Aio,
    /// `io_uring_enter`.
    Ring,
}

/// A queue of writes that are under way.
pub enum Queue {
    /// libaio's context.
    Aio(u64),
    /// io_uring.
    Ring(Box<IoUring>),
}

/// `struct iocb` of `linux/aio_abi.h`, little-endian.
#[repr(C)]
#[derive(Default)]
struct Control {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_file: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Default)]
struct Event {
    data: u64,
    control: u64,
    result: i64,
    more: i64,
}

/// `IOCB_CMD_PWRITE`.
const PWRITE: u16 = 1;

impl Queue {
    /// Room for so many writes.
    pub fn new(way: Way, depth: u32) -> Queue {
        if way == Way::Ring {
            return Queue::Ring(Box::new(IoUring::new(depth).expect("io_uring is on")));
        }
        let mut context = 0u64;
        // SAFETY: the kernel writes the context's number where the pointer leads.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context) };
        assert_eq!(made, 0, "io_setup: {}", Error::last_os_error());
        Queue::Aio(context)
    }
    /// Begins a write, which `next` tells of by its number. The bytes must stay until then.
    pub fn write(&mut self, file: &File, number: u64, bytes: &[u8], offset: u64) {
        match self {
            Queue::Aio(context) => {
                let mut control = Control {
                    data: number,
                    opcode: PWRITE,
                    file: file.as_raw_fd() as u32,
                    buffer: bytes.as_ptr() as u64,
                    length: bytes.len() as u64,
                    offset: offset as i64,
                    ..Control::default()
                };
                let list = [&raw mut control];
                // SAFETY: one control block, which the kernel copies; the bytes outlive the write.
                let begun = unsafe { libc::syscall(libc::SYS_io_submit, *context, 1, list.as_ptr()) };
                assert_eq!(begun, 1, "io_submit: {}", Error::last_os_error());
            }
            Queue::Ring(ring) => {
                let write = opcode::Write::new(types::Fd(file.as_raw_fd()), bytes.as_ptr(), bytes.len() as u32);
                let write = write.offset(offset).build().user_data(number);
                // SAFETY: file and bytes outlive the write.
                unsafe { ring.submission().push(&write).expect("there is room") };
                ring.submit().expect("io_uring_enter");
            }
        }
    }
    /// Waits for a write's end: its number, and how many bytes it wrote, or the negative errno.
    pub fn next(&mut self) -> (u64, i64) {
        match self {
            Queue::Aio(context) => loop {
                let mut event = Event::default();
                // SAFETY: room for one event, and no time limit.
                let got = unsafe {
                    libc::syscall(libc::SYS_io_getevents, *context, 1, 1, &raw mut event, std::ptr::null::<u8>())
                };
                if got == 1 {
                    return (event.data, event.result);
                }
                let error = Error::last_os_error();
                // A ring of the same thread has something to do.
                assert_eq!(error.raw_os_error(), Some(libc::EINTR), "io_getevents");
            },
            Queue::Ring(ring) => loop {
                if let Err(error) = ring.submit_and_wait(1) {
                    assert_eq!(error.raw_os_error(), Some(libc::EINTR), "io_uring_enter");
                }
                if let Some(entry) = ring.completion().next() {
                    return (entry.user_data(), i64::from(entry.result()));
                }
            },
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if let Queue::Aio(context) = self {
            // SAFETY: it is ours, and destroyed once.
            unsafe { libc::syscall(libc::SYS_io_destroy, *context) };
        }
    }
}
