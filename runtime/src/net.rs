//! Connections to other processes, on this machine and on others: streams of bytes in order. Names are looked up and
//! listeners made by blocking calls (at start-up or in the pool); all else are futures.
//!
//! Promises, for all implementations: bytes arrive in the order in which they were sent, each once, and a prefix of
//! them; the end of a stream is told apart from a connection that broke; memory belongs to an I/O until the kernel is
//! done with it, whatever happens to its future; a receive that is dropped loses no bytes, the next one gets them; a
//! connection whose other end is silent and does not acknowledge ends within `DEAD_AFTER_NS` of a send, or of its last sign of life; a
//! warm send or receive allocates nothing. Nothing listens unless `listen` was called.
//!
//! Absent by design: what the bytes mean, encryption, and trying again. A send that has ended means that the kernel has
//! the bytes, not that the other end has them: when a connection breaks, what was sent may or may not have arrived.
//!
//! Futures stay on the core's task that made them. A connection may be used on several cores, but by one receive and one
//! send at a time.

use crate::accepts::{Accepting, Connecting};
use crate::buffer::{Buf, Slice};
use crate::stream::{Receiving, Sending};
use base::{Error, Kind, Result};
use core::net::SocketAddr;
use std::fmt;
use std::path::PathBuf;

/// Time without an acknowledgement after which a connection counts as dead, and the longest time that making one takes.
pub const DEAD_AFTER_NS: u64 = 15_000_000_000;

/// Connections that have come and were not accepted yet, per listener. More are told to come back later.
pub const BACKLOG: u32 = 128;

/// The number of a listener; never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListenerId(pub u64);

/// The number of a connection; never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u64);

/// A place where a process listens.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Address {
    /// A port of this machine or of another one. Port 0, for `listen`: any free one.
    Tcp(SocketAddr),
    /// A Unix socket of this machine. `listen` replaces one on which nobody listens any more, and the listener's end
    /// removes it. A client's own end has the empty path.
    Local(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Local(path) => path.display().fmt(f),
        }
    }
}

/// The user and process at the other end of a Unix socket, as they were when it was connected; the kernel vouches for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Process.
    pub pid: u32,
}

/// The quality of a connection's way through the network, as the kernel sees it; all is 0 for Unix sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WayQuality {
    /// Smoothed round-trip time in nanoseconds.
    pub round_trip_ns: u64,
    /// Segments that were sent again so far.
    pub retransmits: u64,
}

/// The connections of one process. Errors are of these kinds, and their texts say what to do next:
/// - `Busy`: another process listens at the address;
/// - `Invalid`: it is no address of this machine, or none at all;
/// - `Permission`: the kernel refuses the port or the path;
/// - `NotFound`: no such name, or no such Unix socket;
/// - `Host`: nobody listens there, no way leads there, nobody answers, or descriptors ran out;
/// - `Interrupted`: the connection broke or was closed, also by this end, or the daemon is stopping.
pub trait Net: Send + Sync {
    /// The addresses of `HOST:PORT` (at least one, the preferred first), where HOST is a name or an address; a text with a slash is the path of a
    /// Unix socket. Blocks.
    fn resolve(&self, name: &str) -> Result<Vec<Address>>;
    /// Listens at an address. Up to `BACKLOG` connections wait for `accept`.
    fn listen(&self, address: &Address) -> Result<ListenerId>;
    /// The address at which a listener really listens: its port is not 0.
    fn address(&self, listener: ListenerId) -> Result<Address>;
    /// Waits for a connection: its number, and the other end's address. Any number of tasks on any cores may wait; a
    /// connection comes to one of them, on the core where it arrived if one waits there.
    fn accept(&self, listener: ListenerId) -> Accepting;
    /// Ends a listener, and with `Interrupted` all `accept`s; connections that were not accepted are closed.
    fn close_listener(&self, listener: ListenerId);
    /// Connects to an address, within `DEAD_AFTER_NS`. A connection that is made after the future was dropped is closed.
    fn connect(&self, address: &Address) -> Connecting;
    /// Receives at least `least` bytes (1 to the buffer's length) and at most the buffer's length into its beginning, and hands it back, its
    /// length unchanged, with their number. Fewer than `least`: the other end has ended the stream after these, and all
    /// further receives give 0. After an error the bytes that came are not counted, and each further receive gives the same error.
    fn receive(&self, connection: ConnectionId, buffer: Buf, least: usize) -> Receiving;
    /// Sends all bytes of the slices, one after the other, without copying them; waits while the other end takes none. Hands the
    /// vector back as it was, for further use. A send whose future is dropped goes on, and the next one waits for its end. Each send after
    /// a failed one fails with the same error.
    fn send(&self, connection: ConnectionId, slices: Vec<Slice>) -> Sending;
    /// Ends a connection, on any thread. What was sent before may still arrive; a send or receive that is under way ends with `Interrupted`.
    /// For a number that is closed already it does nothing.
    fn close(&self, connection: ConnectionId);
    /// The quality of a connection's way.
    fn way(&self, connection: ConnectionId) -> Result<WayQuality>;
    /// The process at the other end of a Unix socket; None over TCP.
    fn caller(&self, connection: ConnectionId) -> Result<Option<Caller>>;
}

/// The error of a call on a connection that this end has closed, and of its I/O that was under way.
pub(crate) fn closed() -> Error {
    Error::new(Kind::Interrupted, "this end has closed the connection")
}

/// The error of accepting from a listener that has ended.
pub(crate) fn not_listening() -> Error {
    Error::new(Kind::Interrupted, "this listener has ended")
}
