//! Formatting a brick. Its superblock says "formatting" from the first durable byte to the last, so that an
//! interrupted format is recognised and may be repeated, and nothing else ever is taken for one (rule Q5).

use crate::format::Uuid;
use crate::format::superblock::{Features, State, Superblock};
use crate::superblock_file;
use base::limits::{BRICK_BYTES_MIN, GROUPS_DEFAULT, SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
use base::{Error, Kind, Result};
use runtime::Runtime;

/// What to format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FormatOptions {
    /// Bytes of the brick; None = 80% of the file system's free space (rule X5).
    pub size_bytes: Option<u64>,
    /// Bytes per segment: a power of two.
    pub segment_bytes: u64,
    /// Groups to create.
    pub groups: u32,
    /// The smallest size that is accepted; tests and simulation use small bricks.
    pub size_bytes_min: u64,
}

impl Default for FormatOptions {
    fn default() -> FormatOptions {
        FormatOptions {
            size_bytes: None,
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            groups: GROUPS_DEFAULT,
            size_bytes_min: BRICK_BYTES_MIN,
        }
    }
}

/// What a directory holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// Nothing of ours and nothing else: may be formatted.
    Empty,
    /// A format that did not end: may be formatted again.
    HalfFormatted,
    /// A brick.
    Brick(Box<Superblock>),
}

/// Files that may be in a directory that has not been formatted: the lock, and what a mounted file system brings.
const INNOCENT: [&str; 2] = ["lock", "lost+found"];

/// Looks at the directory. Errors: `Exists` if it holds other files and no superblock.
pub async fn look(runtime: &Runtime) -> Result<Found> {
    if !superblock_file::exists(runtime)? {
        let names = runtime.disk.list()?;
        return match names.iter().find(|name| !INNOCENT.contains(&name.as_str())) {
            None => Ok(Found::Empty),
            Some(name) => {
                let what = "the directory is not empty and not a brick; name an empty one";
                Err(Error::new(Kind::Exists, what).with(format!("found {name:?}")))
            }
        };
    }
    let found = match superblock_file::load(runtime, false).await {
        // Neither copy is whole and there is nothing else: the very first writes were cut off. With any other file
        // it may be a brick whose superblock was lost (rule Q5).
        Err(error) if matches!(error.kind, Kind::Io | Kind::Corrupt) && is_alone(runtime)? => {
            return Ok(Found::HalfFormatted);
        }
        found => found?,
    };
    match found.superblock.state {
        State::Formatting => Ok(Found::HalfFormatted),
        State::Ready => Ok(Found::Brick(Box::new(found.superblock))),
    }
}

fn is_alone(runtime: &Runtime) -> Result<bool> {
    Ok(runtime.disk.list()?.iter().all(|name| name == superblock_file::FILE || INNOCENT.contains(&name.as_str())))
}

/// Formats an empty or half-formatted directory; `index` is called in between to make the empty index durable.
/// Errors: `Exists` for a brick, `NoSpace`, `Invalid` sizes.
pub async fn format_brick(
    runtime: &Runtime,
    options: FormatOptions,
    index: impl AsyncFnOnce() -> Result<()>,
) -> Result<Superblock> {
    if let Found::Brick(superblock) = look(runtime).await? {
        let error = Error::new(Kind::Exists, "the directory is a brick already; start it with `sinter up`");
        return Err(error.with(format!("uuid {}", superblock.uuid)));
    }
    let segments = segments_of(runtime, &options)?;
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&runtime.random.next_u64().to_le_bytes());
    uuid[8..].copy_from_slice(&runtime.random.next_u64().to_le_bytes());
    let mut superblock = Superblock {
        uuid: Uuid(uuid),
        state: State::Formatting,
        features: Features::default(),
        sequence: 1,
        segment_bytes: options.segment_bytes,
        segments,
        groups: options.groups,
        epoch: 0,
        ends: Vec::new(),
    };
    superblock_file::create(runtime, &superblock).await?;
    index().await?;
    superblock.state = State::Ready;
    superblock.sequence = 2;
    superblock_file::create(runtime, &superblock).await?;
    Ok(superblock)
}

fn segments_of(runtime: &Runtime, options: &FormatOptions) -> Result<u32> {
    let FormatOptions { size_bytes, segment_bytes, groups, size_bytes_min } = *options;
    if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment_bytes) || !segment_bytes.is_power_of_two() {
        return Err(Error::new(Kind::Invalid, "a segment is a power of two between 1 MiB and 256 MiB"));
    }
    if groups == 0 || groups > 4096 {
        return Err(Error::new(Kind::Invalid, "a brick has 1 to 4096 groups"));
    }
    let free_bytes = runtime.disk.free_bytes()?;
    let size_bytes = size_bytes.unwrap_or(free_bytes / 5 * 4);
    if size_bytes < size_bytes_min {
        let error = Error::new(Kind::NoSpace, "a brick needs more room: free some, or name a larger file system");
        return Err(error.with(format!("{size_bytes} bytes of at least {size_bytes_min}")));
    }
    if size_bytes > free_bytes {
        let error = Error::new(Kind::NoSpace, "the file system has less free space than the brick's size");
        return Err(error.with(format!("{size_bytes} bytes wanted, {free_bytes} free")));
    }
    u32::try_from(size_bytes / segment_bytes).map_err(|_| Error::new(Kind::Invalid, "too many segments"))
}
