//! The files with blocks on a device, as the admin socket tells them.

use crate::admin::protocol::{Affected, Answer, FileOf};
use crate::table;
use base::limits::BLOCK_BYTES;
use base::{Ino, Result, VolumeId};
use store::Store;
use store::check::affected::{self, list};
use store::format::devices::DeviceId;

/// Files in an answer: their paths fit into it, long as they may be.
const FILES_MAX: usize = 4096;

/// The next files after one. Blocks. Errors: as `store::check::affected::list`.
pub fn next(store: &Store, number: u32, after: Option<FileOf>) -> Result<Answer> {
    let after = after.map(|file| (VolumeId(file.volume), Ino(file.inode)));
    let part = list(store, DeviceId(number), after, FILES_MAX)?;
    let told = |file: affected::Affected| Affected {
        volume: String::from_utf8_lossy(file.volume.name.as_bytes()).into_owned(),
        inode: file.ino.0,
        path: file.path.map(|path| String::from_utf8_lossy(&path).into_owned()),
        bytes: file.blocks * BLOCK_BYTES as u64,
    };
    let next = part.next.map(|(volume, ino)| FileOf { volume: volume.0, inode: ino.0 });
    Ok(Answer::Affected { files: part.files.into_iter().map(told).collect(), next })
}

/// The warnings of `status` about disks that are missing.
pub fn warnings(store: &Store) -> impl Iterator<Item = String> {
    store.missing().into_iter().map(|(disk, blocks)| {
        let bytes = table::bytes(blocks * BLOCK_BYTES as u64);
        format!(
            "disk {disk} is missing: {bytes} of files can't be read, and can be once the brick is started with it; \
             `sinter brick affected` lists the files"
        )
    })
}
