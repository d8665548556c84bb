//! What travels with an operation (rule R3).

use base::{RequestId, SessionId, VolumeId};
use runtime::Span;

/// Whose work it is, for scheduling.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Class {
    /// Names and attributes.
    Metadata,
    /// Clients' data.
    #[default]
    Foreground,
    /// Heal, scrub, cleaner and the like.
    Background,
}

/// Who asks, on which volume, until when, and where its time goes.
#[derive(Debug)]
pub struct Context {
    /// The volume that inode numbers and names belong to.
    pub volume: VolumeId,
    /// The client's session.
    pub session: SessionId,
    /// The request within the session: delivered twice, it has one effect and one reply (rule R1).
    pub request: RequestId,
    /// The caller's user.
    pub uid: u32,
    /// The caller's primary group of users (others are checked by the kernel: default_permissions).
    pub gid: u32,
    /// Permission bits that the caller does not grant to what it creates.
    pub umask: u16,
    /// Reading leaves access times as they are.
    pub noatime: bool,
    /// Nobody above keeps what is read: the same may be asked for again.
    pub unkept: bool,
    /// The client keeps the inodes that it is told of, and may come with their numbers, until it forgets them (`Op::Forget`).
    pub keeps: bool,
    /// What is written was stored through a mapping, at some time before: it says nothing about who wrote when.
    pub written_back: bool,
    /// The request is pointless after this time on the monotonic clock; `u64::MAX` = never.
    pub deadline_ns: u64,
    /// Whose work it is.
    pub class: Class,
    /// Follows the request through logs and machines.
    pub trace: u64,
    /// The snapshot to read; 0 = the present.
    pub cut: u64,
    /// The group map's version that the sender used (rule Q2); 1 on a single machine.
    pub membership: u64,
    /// Where its time goes.
    pub span: Span,
}
