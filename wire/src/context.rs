//! The context that travels with an operation (rule R3).

use base::{RequestId, SessionId, VolumeId};
use runtime::Span;

/// The caller of an operation, its volume, and its times.
#[derive(Debug)]
pub struct Context {
    /// The volume that the operation's inode numbers and names belong to.
    pub volume: VolumeId,
    /// The client's session.
    pub session: SessionId,
    /// The request within the session. If it is delivered twice, it has one effect and one reply (rule R1).
    pub request: RequestId,
    /// The requests of the session with a lower number are all answered, and the client has the answers: their results need not
    /// be kept any longer (rule R1).
    pub done: u64,
    /// The caller's user.
    pub uid: u32,
    /// The caller's primary group of users (others are checked by the kernel: default_permissions).
    pub gid: u32,
    /// The umask: permission bits that the caller withholds from what it creates.
    pub umask: u16,
    /// True if reading leaves access times as they are.
    pub noatime: bool,
    /// True if neither the kernel nor a front caches what is read, so that the same bytes may be asked for again.
    pub unkept: bool,
    /// True if the client may use the number of an inode from the answer that names it until it forgets the inode
    /// (`Op::Forget`).
    pub keeps: bool,
    /// True for a write-back of data that was stored through a mapping some time before: neither the writer nor the
    /// time of the write is known.
    pub written_back: bool,
    /// The times of the request.
    pub span: Span,
}

impl Context {
    /// The context of an operation of the program's own: no session's, by the superuser, and nobody caches what it reads.
    pub fn own(volume: VolumeId, span: Span) -> Context {
        Context {
            volume,
            session: SessionId(0),
            request: RequestId(0),
            done: 0,
            uid: 0,
            gid: 0,
            umask: 0,
            noatime: false,
            unkept: false,
            keeps: false,
            written_back: false,
            span,
        }
    }
    /// A copy that may be changed on the request's way down. Its span goes on from this one's times; the caller lets this
    /// context's span take them over in the end (`Span::take_over`).
    pub fn copied(&self) -> Context {
        Context { span: self.span.clone(), ..*self }
    }
}
