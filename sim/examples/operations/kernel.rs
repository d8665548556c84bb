//! Requests as the kernel sends them (`include/uapi/linux/fuse.h`).

use base::Ino;

/// `fuse_in_header`.
pub const HEADER_BYTES: usize = 40;

/// A message: its code, the inode it is about, and what follows the header.
pub struct Message(Vec<u8>);

impl Message {
    fn new(opcode: u32, unique: u64, ino: Ino, body: &[&[u8]]) -> Message {
        let length: usize = HEADER_BYTES + body.iter().map(|part| part.len()).sum::<usize>();
        let header = [&(length as u32).to_ne_bytes()[..], &opcode.to_ne_bytes(), &unique.to_ne_bytes()];
        // Root's, process 7, without extensions.
        let caller = [0u32, 0, 7, 0].map(u32::to_ne_bytes);
        Message([&header.concat(), &ino.0.to_ne_bytes()[..], &caller.concat(), &body.concat()].concat())
    }
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
    pub fn lookup(unique: u64, parent: Ino, name: &str) -> Message {
        Message::new(1, unique, parent, &[name.as_bytes(), b"\0"])
    }
    pub fn getattr(unique: u64, ino: Ino) -> Message {
        Message::new(3, unique, ino, &[&[0; 16]])
    }
    pub fn forget(unique: u64, ino: Ino, times: u64) -> Message {
        Message::new(2, unique, ino, &[&times.to_ne_bytes()])
    }
    pub fn unlink(unique: u64, parent: Ino, name: &str) -> Message {
        Message::new(10, unique, parent, &[name.as_bytes(), b"\0"])
    }
    pub fn read(unique: u64, ino: Ino, offset: u64, length: u32, flags: i32) -> Message {
        Message::new(15, unique, ino, &[&io(offset, length, flags)])
    }
    /// A write without its payload, which lands apart.
    pub fn write(unique: u64, ino: Ino, offset: u64, length: u32, flags: i32) -> Message {
        let mut message = Message::new(16, unique, ino, &[&io(offset, length, flags)]);
        let whole = message.0.len() as u32 + length;
        message.0[..4].copy_from_slice(&whole.to_ne_bytes());
        message
    }
    pub fn release(unique: u64, ino: Ino) -> Message {
        Message::new(18, unique, ino, &[&[0; 24]])
    }
    pub fn fsync(unique: u64, ino: Ino) -> Message {
        Message::new(20, unique, ino, &[&[0; 16]])
    }
    pub fn create(unique: u64, parent: Ino, name: &str, flags: i32) -> Message {
        let fields = [flags as u32, 0o100_644, 0o022, 0].map(u32::to_ne_bytes);
        Message::new(35, unique, parent, &[&fields.concat(), name.as_bytes(), b"\0"])
    }
    pub fn read_dir_plus(unique: u64, ino: Ino, offset: u64, length: u32) -> Message {
        Message::new(44, unique, ino, &[&io(offset, length, 0)])
    }
}

/// `fuse_read_in` and `fuse_write_in`: handle, offset, length, flags of the request, owner of locks, flags of the handle.
fn io(offset: u64, length: u32, flags: i32) -> Vec<u8> {
    let offset = offset.to_ne_bytes();
    let length = length.to_ne_bytes();
    [&[0; 8][..], &offset, &length, &[0; 12], &flags.to_ne_bytes(), &[0; 4]].concat()
}
