//! The part of the kernel's FUSE protocol that a file system with few files needs: bytes only.

/// Bytes of a request before what belongs to its kind.
pub const HEADER: usize = 40;
/// Bytes of a write's request before its data.
pub const WRITE_HEADER: usize = HEADER + 40;
/// Largest data of a request: a large transfer of a loop device stays one.
pub const DATA_BYTES_MAX: usize = 1 << 20;
/// Requests at a time for which the kernel does not hold others back. Its own 12 would be the bottleneck.
const BACKGROUND: u16 = 1024;
/// Version of the protocol that is spoken.
const VERSION: (u32, u32) = (7, 31);
/// FUSE_ASYNC_READ, FUSE_BIG_WRITES, FUSE_ASYNC_DIO, FUSE_MAX_PAGES.
const FLAGS: u32 = 1 | 1 << 5 | 1 << 15 | 1 << 22;
/// FOPEN_DIRECT_IO, FOPEN_PARALLEL_DIRECT_WRITES: the page cache is left out, and writes don't wait for each other.
const OPEN_FLAGS: u32 = 1 | 1 << 6;
/// Seconds for which the kernel may believe names and attributes, none of which ever changes: direct reads don't ask for a length.
const KEPT_SECONDS: u64 = 3600;
const ROOT: u64 = 1;
/// The first file's number; others follow.
const FIRST: u64 = 2;
const NO_ENTRY: i32 = 2;
const NO_SUCH_OPERATION: i32 = 38;

/// The request of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// Read this many bytes of a file at an offset.
    Read { file: usize, offset: u64, bytes: usize },
    /// Write the request's data to a file at an offset.
    Write { file: usize, offset: u64 },
    /// Make all durable.
    Flush,
    /// A request that needs no disk: its answer is known.
    Known(Answer),
    /// A request that has no answer.
    Told,
}

/// An answer that needs no disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The connection's parameters.
    Parameters,
    /// The number and attributes of a file.
    Entry { file: usize },
    /// The attributes of an inode.
    Attributes { node: u64 },
    /// An open file.
    Opened,
    /// Nothing.
    Done,
    /// An error.
    Error(i32),
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Reads a request to a file system with files of these names: its number, and what is asked. None if it is cut short.
pub fn read(request: &[u8], names: &[&str]) -> Option<(u64, Asked)> {
    let (operation, unique, node) = (u32_at(request, 4)?, u64_at(request, 8)?, u64_at(request, 16)?);
    let body = request.get(HEADER..)?;
    let file = node.saturating_sub(FIRST) as usize;
    // The names of the kernel's header: LOOKUP, GETATTR, OPEN, READ, WRITE, RELEASE, FSYNC, INIT, FORGET, INTERRUPT,
    // BATCH_FORGET. All that is not known here need not be there.
    let asked = match operation {
        1 => {
            let name = body.strip_suffix(b"\0")?;
            let file = names.iter().position(|known| known.as_bytes() == name);
            Asked::Known(file.map_or(Answer::Error(NO_ENTRY), |file| Answer::Entry { file }))
        }
        3 => Asked::Known(Answer::Attributes { node }),
        14 => Asked::Known(Answer::Opened),
        15 => Asked::Read { file, offset: u64_at(body, 8)?, bytes: u32_at(body, 16)? as usize },
        16 => Asked::Write { file, offset: u64_at(body, 8)? },
        18 => Asked::Known(Answer::Done),
        20 => Asked::Flush,
        26 => Asked::Known(Answer::Parameters),
        2 | 36 | 42 => Asked::Told,
        _ => Asked::Known(Answer::Error(NO_SUCH_OPERATION)),
    };
    Some((unique, asked))
}

/// The head of an answer with so many bytes behind it, or with an error.
pub fn head(unique: u64, bytes: usize, error: i32) -> [u8; 16] {
    let mut head = [0; 16];
    head[..4].copy_from_slice(&(16 + bytes as u32).to_ne_bytes());
    head[4..8].copy_from_slice(&(-error).to_ne_bytes());
    head[8..].copy_from_slice(&unique.to_ne_bytes());
    head
}

/// The body of a write's answer.
pub fn written(bytes: u32) -> [u8; 8] {
    let mut body = [0; 8];
    body[..4].copy_from_slice(&bytes.to_ne_bytes());
    body
}

/// The body of an answer, and its error; the first file has so many bytes, and others tell no length.
pub fn body(answer: Answer, disk_bytes: u64) -> (Vec<u8>, i32) {
    let mut body = Vec::new();
    let mut words = |words: &[u64]| words.iter().for_each(|word| body.extend(word.to_ne_bytes()));
    match answer {
        Answer::Done => {}
        Answer::Error(error) => return (body, error),
        // The file's handle, flags.
        Answer::Opened => words(&[0, u64::from(OPEN_FLAGS)]),
        // The inode's number, generation, validity of the name and of the attributes.
        Answer::Entry { file } => {
            let node = FIRST + file as u64;
            words(&[node, 0, KEPT_SECONDS, KEPT_SECONDS, 0]);
            body.extend(attributes(node, disk_bytes));
        }
        Answer::Attributes { node } => {
            words(&[KEPT_SECONDS, 0]);
            body.extend(attributes(node, disk_bytes));
        }
        Answer::Parameters => body = parameters(),
    }
    (body, 0)
}

fn parameters() -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    let readahead = 0;
    [VERSION.0, VERSION.1, readahead, FLAGS].iter().for_each(|word| out.extend(word.to_ne_bytes()));
    [BACKGROUND, BACKGROUND].iter().for_each(|word| out.extend(word.to_ne_bytes()));
    let granularity_ns = 1;
    [DATA_BYTES_MAX as u32, granularity_ns].iter().for_each(|word| out.extend(word.to_ne_bytes()));
    let pages = (DATA_BYTES_MAX / 4096) as u16;
    out.extend(pages.to_ne_bytes());
    out.resize(64, 0);
    out
}

fn attributes(node: u64, disk_bytes: u64) -> Vec<u8> {
    let is_root = node == ROOT;
    let bytes = if node == FIRST { disk_bytes } else { 0 };
    let (mode, links) = if is_root { (0o040_700, 2) } else { (0o100_600, 1) };
    let mut out = Vec::with_capacity(88);
    // Number, size, blocks, three times.
    [node, bytes, bytes / 512, 0, 0, 0].iter().for_each(|word| out.extend(word.to_ne_bytes()));
    // Their nanoseconds, mode, links, owner, group, device, block size, flags.
    [0, 0, 0, mode, links, 0, 0, 0, 4096, 0u32].iter().for_each(|word| out.extend(word.to_ne_bytes()));
    out
}
