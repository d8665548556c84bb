//! The rights of a client's session, as the server holds them whatever the client says.
//!
//! Promises: a session does what a mount of its volume does, and nothing to the catalogue; one that is read-only changes nothing,
//! not even access times; where the client's superuser counts as nobody, what it makes is nobody's, and it gives nothing away, changes no
//! permissions of others, and sets no attributes that the kernel trusts. Absent by design: permission bits. They are checked by the
//! client's kernel, whose superuser passes them.

use crate::read_only::{Effect, effect};
use crate::{Answer, Call, Context, Stack};
use base::{Error, FileKind, Kind, Op, Reply, Result, SetAttr, VolumeId};
use std::sync::Arc;
use wire::codec::hello::{Join, Joined, Refused};

/// The user and group that a client's superuser counts as, as with NFS.
const NOBODY: u32 = 65534;

/// A client's right to a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Right {
    /// The volume.
    pub volume: VolumeId,
    /// True if changes are refused.
    pub read_only: bool,
    /// True if the client's superuser counts as nobody.
    pub squash_root: bool,
}

/// A client that was recognised.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recognised {
    /// Its name.
    pub name: base::Name,
    /// Its rights. None: it is of this machine, and has all.
    pub rights: Option<Vec<Right>>,
}

/// The keeper of certificates and rights.
pub trait Gate: Send + Sync + 'static {
    /// The client of a certificate in DER, or why it may not come. Blocks.
    fn recognise(&self, certificate: &[u8]) -> Result<Recognised, Refused>;
    /// Gives a certificate to a machine with a token, or another one to the client with the certificate `peer` (DER). Blocks.
    fn join(&self, join: &Join, peer: Option<&[u8]>) -> Result<Joined, Refused>;
}

/// A session's volume and what it may do there.
#[derive(Clone)]
pub struct Entry {
    pub(crate) stack: Arc<Stack>,
    pub(crate) read_only: bool,
    pub(crate) squash_root: bool,
}

impl Entry {
    /// Performs an operation if the session may do that.
    pub(crate) async fn call(&self, context: &Context, call: Call) -> Result<Answer> {
        if call.op.is_of_catalogue() {
            let what = "a client works in a volume; volumes are made and changed on the server (sinter volume)";
            return Err(Error::new(Kind::Permission, what));
        }
        if !self.read_only && !self.squash_root {
            return self.stack.call_below_layers(context, call).await;
        }
        let mut own = context.copied();
        if self.read_only {
            match effect(&call.op) {
                Effect::None => {}
                Effect::AccessTime => own.noatime = true,
                Effect::Change => {
                    let what = "this client may only read the volume: a token without --read-only gives it more";
                    return Err(Error::new(Kind::ReadOnly, what));
                }
            }
        }
        if self.squash_root {
            self.squash(&mut own, &call.op).await?;
        }
        let answer = self.stack.call_below_layers(&own, call).await;
        context.span.take_over(&own.span);
        answer
    }
    /// Has the superuser count as nobody.
    async fn squash(&self, context: &mut Context, op: &Op) -> Result<()> {
        let is_root = context.uid == 0;
        for id in [&mut context.uid, &mut context.gid] {
            *id = if *id == 0 { NOBODY } else { *id };
        }
        if !is_root {
            return Ok(());
        }
        let refused = |what| Err(Error::new(Kind::Permission, what));
        match op {
            Op::MakeNode { kind: FileKind::Character | FileKind::BlockDevice, .. } => {
                refused("this client's superuser counts as nobody, who makes no devices")
            }
            Op::SetXattr { name, .. } | Op::RemoveXattr { name, .. } if is_trusted(name.as_bytes()) => {
                refused("this client's superuser counts as nobody, who changes no attribute that the kernel trusts")
            }
            Op::SetXattr { ino, name, .. } | Op::RemoveXattr { ino, name }
                if name.as_bytes().starts_with(b"system.") =>
            {
                self.check_owner(context, *ino).await
            }
            Op::SetAttr { set, .. } if gives_away(set) => {
                refused("this client's superuser counts as nobody, who gives nothing away")
            }
            Op::SetAttr { ino, set } if is_owners(set) => self.check_owner(context, *ino).await,
            _ => Ok(()),
        }
    }
    async fn check_owner(&self, context: &Context, ino: base::Ino) -> Result<()> {
        let own = Context::own(context.volume, context.span.clone());
        let call = Call { op: Op::GetAttr { ino }, data: None };
        match self.stack.call_below_layers(&own, call).await?.reply {
            Reply::Attr(attr) if attr.inode.uid == NOBODY => Ok(()),
            _ => {
                Err(Error::new(Kind::Permission, "this client's superuser counts as nobody, who does not own the file"))
            }
        }
    }
}

/// Attributes that only a superuser changes.
fn is_trusted(name: &[u8]) -> bool {
    name.starts_with(b"trusted.") || name.starts_with(b"security.")
}

/// A change of owner or group to somebody else.
fn gives_away(set: &SetAttr) -> bool {
    set.uid.is_some_and(|uid| uid != NOBODY) || set.gid.is_some_and(|gid| gid != NOBODY)
}

/// A change that only an owner makes. Times are not among them: kernels send those of others' writes in their own name.
fn is_owners(set: &SetAttr) -> bool {
    set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || set.guard.is_some() || set.project.is_some()
}

#[cfg(test)]
mod tests;
