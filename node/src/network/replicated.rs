//! The files of a cluster's network side, in a volume of their own that the cluster replicates and no client may mount: whoever leads
//! knows all tokens, clients and certificates that others have made while they led.
//!
//! Promises: what was written is committed when the call returns; only who leads reads or writes anything. All calls block.

use base::limits::IO_BYTES_MAX;
use base::op::At;
use base::{Attr, Error, Ino, Kind, Name, Op, Reply, Result, SetAttr, Sync, Volume};
use control::Files;
use control::files::Found;
use group::{Answer, Context, Groups};
use runtime::{Buf, Span};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

/// The volume's name, which no other volume of a cluster has.
pub const VOLUME: &str = ".network";

/// The volume's root as a directory.
pub struct Replicated {
    groups: Arc<Groups>,
    volume: Volume,
}

/// Runs a future on core 0 and waits for it. Errors: `Interrupted`, if the cores stop.
fn wait<T: Send + 'static, F>(groups: &Arc<Groups>, make: impl FnOnce(Arc<Groups>) -> F + Send + 'static) -> Result<T>
where
    F: Future<Output = Result<T>> + 'static,
{
    let (done, ended) = sync_channel(1);
    let there = groups.clone();
    groups.store().runtime.spawn(0, move || async move {
        // Who waits may have gone.
        drop(done.send(make(there).await));
    });
    ended.recv().unwrap_or_else(|_| Err(Error::new(Kind::Interrupted, "the brick is being closed")))
}

impl Replicated {
    /// Opens the volume, or makes it. Errors: `Elsewhere`, if another brick leads.
    pub fn open(groups: &Arc<Groups>) -> Result<Replicated> {
        let volume = wait(groups, |groups| async move {
            let name = Name::new(VOLUME.as_bytes())?;
            let context = Context::own(base::VolumeId(0), Span::start(groups.store().runtime.stamp()));
            let Reply::Volumes(volumes) = groups.call_replicated(&context, Op::VolumeList, None).await?.reply else {
                unreachable!("a list of volumes is answered with one")
            };
            if let Some(found) = volumes.into_iter().find(|volume| volume.name == name) {
                return Ok(found);
            }
            match groups.call_replicated(&context, Op::VolumeCreate { name, size_bytes: None }, None).await?.reply {
                Reply::Volume(volume) => Ok(volume),
                other => unreachable!("a volume that is made is answered with it, not {other:?}"),
            }
        })?;
        Ok(Replicated { groups: groups.clone(), volume })
    }
    fn call(&self, op: Op, bytes: Option<Vec<u8>>) -> Result<Answer> {
        let volume = self.volume.id;
        wait(&self.groups, move |groups| async move {
            let runtime = &groups.store().runtime;
            let context = Context::own(volume, Span::start(runtime.stamp()));
            let data = match bytes {
                Some(bytes) => Some(filled(runtime.own_buffer(bytes.len()).await?, &bytes)),
                None => None,
            };
            groups.call_replicated(&context, op, data).await
        })
    }
    fn attr(&self, op: Op) -> Result<Attr> {
        match self.call(op, None)?.reply {
            Reply::Attr(attr) => Ok(attr),
            other => unreachable!("attributes are what was asked for, not {other:?}"),
        }
    }
    /// The inode of a file. Errors: `NotFound`.
    fn find(&self, name: &str) -> Result<Attr> {
        let found = self.attr(Op::Lookup { parent: self.volume.root, name: Name::new(name.as_bytes())? })?;
        self.forget(found.ino);
        Ok(found)
    }
    /// Takes back that this process knows an inode: names alone keep the files.
    fn forget(&self, ino: Ino) {
        drop(self.call(Op::Forget { ino, times: 1 }, None));
    }
}

/// The same files as this brick's replica has them, perhaps a moment behind whoever leads. They can't be changed here.
pub struct Replica {
    groups: Arc<Groups>,
}

impl Replica {
    /// Those of these groups.
    pub fn new(groups: &Arc<Groups>) -> Replica {
        Replica { groups: groups.clone() }
    }
    /// The inode of a file, None if there is none.
    pub fn ino(&self, name: &str) -> Result<Option<Ino>> {
        Ok(self.look(name, 0)?.map(|(ino, _)| ino))
    }
    /// A file's inode, and its first bytes.
    fn look(&self, name: &str, bytes_max: usize) -> Result<Option<(Ino, Vec<u8>)>> {
        let name = Name::new(name.as_bytes())?;
        wait(&self.groups, move |groups| async move {
            let volumes = groups.volumes().await?;
            let Some(volume) = volumes.into_iter().find(|volume| volume.name.as_bytes() == VOLUME.as_bytes()) else {
                return Ok(None);
            };
            let context = Context::own(volume.id, Span::start(groups.store().runtime.stamp()));
            groups.peek(&context, volume.root, &name, bytes_max).await
        })
    }
}

impl Files for Replica {
    fn read(&self, name: &str, bytes_max: usize) -> Result<Option<Found>> {
        Ok(self.look(name, bytes_max)?.map(|(_, bytes)| Found { bytes, is_open_to_others: false }))
    }
    fn write(&self, _: &str, _: &[u8]) -> Result<()> {
        Err(elsewhere())
    }
    fn flush(&self, _: &str) -> Result<()> {
        Err(elsewhere())
    }
    fn rename(&self, _: &str, _: &str) -> Result<()> {
        Err(elsewhere())
    }
    fn sync_names(&self) -> Result<()> {
        Err(elsewhere())
    }
    fn shown(&self, name: &str) -> String {
        format!("{name} of the volume {VOLUME}")
    }
}

fn elsewhere() -> Error {
    Error::new(Kind::Elsewhere, "another node of the cluster leads: it changes the network side")
}

/// A buffer with these bytes.
fn filled(mut buffer: Buf, bytes: &[u8]) -> Buf {
    buffer.copy_from_slice(bytes);
    buffer
}

impl Files for Replicated {
    fn read(&self, name: &str, bytes_max: usize) -> Result<Option<Found>> {
        let found = match self.find(name) {
            Err(error) if error.kind == Kind::NotFound => return Ok(None),
            found => found?,
        };
        let (ino, size) = (found.ino, found.inode.size);
        if size > bytes_max as u64 {
            let what = "a file of the cluster's network side is larger than any that Sinter writes there";
            return Err(Error::new(Kind::Corrupt, what).with(self.shown(name)));
        }
        let mut bytes = Vec::with_capacity(size as usize);
        while (bytes.len() as u64) < size {
            let length = (size - bytes.len() as u64).min(IO_BYTES_MAX as u64) as u32;
            let answer = self.call(Op::Read { ino, offset: bytes.len() as u64, length }, None)?;
            match answer.data {
                Some(data) if !data.is_empty() => bytes.extend_from_slice(&data),
                _ => return Err(Error::new(Kind::Io, "a file became shorter while it was read").with(self.shown(name))),
            }
        }
        Ok(Some(Found { bytes, is_open_to_others: false }))
    }
    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let (parent, exclusive) = (self.volume.root, false);
        let made = self.attr(Op::Create { parent, name: Name::new(name.as_bytes())?, mode: 0o600, exclusive })?;
        let ino = made.ino;
        let written = || {
            let set = SetAttr { size: Some(0), ..SetAttr::default() };
            self.attr(Op::SetAttr { ino, set: set.into() })?;
            for (chunk, offset) in bytes.chunks(IO_BYTES_MAX).zip((0..).step_by(IO_BYTES_MAX)) {
                let (at, sync) = (At::Offset(offset), Sync::Data);
                self.call(Op::Write { ino, at, sync, kill_privileges: false }, Some(chunk.to_vec()))?;
            }
            Ok(())
        };
        let result = written();
        drop(self.call(Op::Release { ino }, None));
        self.forget(ino);
        result
    }
    fn flush(&self, _: &str) -> Result<()> {
        // Answers of a replicated volume are durable.
        Ok(())
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let [name, new_name] = [from, to].map(|name| Name::new(name.as_bytes()));
        let (parent, new_parent) = (self.volume.root, self.volume.root);
        let (no_replace, whiteout) = (false, false);
        let op = Op::Rename { parent, name: name?, new_parent, new_name: new_name?, no_replace, whiteout };
        self.call(op, None).map(drop)
    }
    fn sync_names(&self) -> Result<()> {
        Ok(())
    }
    fn shown(&self, name: &str) -> String {
        format!("{name} of the volume {VOLUME}")
    }
}
