//! A look at what this brick's replica of a group has, whoever leads the group. It may be out of date by what this brick has not applied, for as
//! long as it is cut off: nothing that clients are answered may rest on it.

use crate::Groups;
use crate::state::load::Wanted;
use base::limits::IO_BYTES_MAX;
use base::{Error, Ino, Kind, Name, Result};
use names::Seen;
use wire::Context;

impl Groups {
    /// The inode of a name in a directory, and the file's first bytes, at most `bytes_max`; None if there is no such name. Errors: those of the
    /// device; `Stale` if the file goes meanwhile.
    pub async fn peek(
        &self,
        context: &Context,
        dir: Ino,
        name: &Name,
        bytes_max: usize,
    ) -> Result<Option<(Ino, Vec<u8>)>> {
        let ino = loop {
            let seen = self.state(dir.group()).state.lock().entry(context.volume, dir, name);
            match seen {
                Seen::Known(Some(entry)) => break entry.ino,
                Seen::Known(None) => return Ok(None),
                _ => self.load(context.volume, vec![Wanted::Entry(dir, name.clone())], None).await?,
            }
        };
        if ino.group() != dir.group() {
            return Err(Error::new(Kind::Stale, "the file is of another group than its directory"));
        }
        let size = self.attributes(context, ino).await?.inode.size.min(bytes_max as u64) as usize;
        let mut bytes = Vec::with_capacity(size);
        while bytes.len() < size {
            let length = (size - bytes.len()).min(IO_BYTES_MAX) as u32;
            let answer = self.read(context, ino, bytes.len() as u64, length, None).await?;
            match answer.data {
                Some(data) if !data.is_empty() => bytes.extend_from_slice(&data),
                _ => return Err(Error::new(Kind::Stale, "the file became shorter while it was read")),
            }
        }
        Ok(Some((ino, bytes)))
    }
}
