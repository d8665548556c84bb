//! A connection's socket, and what the core's ring does with sockets: calls of the kernel that end when they can, however
//! long that takes.
//!
//! Promises: a call holds what it uses, the descriptor too, until the kernel has ended it. Absent by design: polling;
//! copies of what is sent.

use super::device::collect;
use super::inbox::stopped;
use super::listener::{Listener, arrival};
use super::reactor::Core;
use crate::accepts::Attempt;
use crate::net::{Address, Caller, DEAD_AFTER_NS, WayQuality, closed};
use crate::stream::{Step, Stream};
use base::{Error, Kind, Result};
use io_uring::{opcode, squeue, types};
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_nodelay, set_tcp_user_timeout,
    socket_peercred,
};
use rustix::net::{AddressFamily, Shutdown, SocketAddrAny, SocketFlags, SocketType, shutdown, socket_with};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// The memory of a message's description and of its parts, owned by an operation of the ring.
#[derive(Default)]
pub(super) struct Message {
    header: Option<Box<libc::msghdr>>,
}

/// The socket of a connection.
pub(super) struct Socket {
    fd: OwnedFd,
    pub stream: Arc<Stream>,
}

/// Sets what every TCP socket of ours has; connections that come inherit it from their listener. Keepalive notices that a silent peer is
/// dead, the timeout that one does not acknowledge what it was sent.
pub(super) fn set_options(fd: &OwnedFd) -> rustix::io::Result<()> {
    set_tcp_nodelay(fd, true)?;
    set_socket_keepalive(fd, true)?;
    let seconds = DEAD_AFTER_NS / 1_000_000_000;
    set_tcp_keepidle(fd, Duration::from_secs(seconds / 3))?;
    set_tcp_keepintvl(fd, Duration::from_secs(seconds / 5))?;
    set_tcp_keepcnt(fd, 3)?;
    set_tcp_user_timeout(fd, (DEAD_AFTER_NS / 1_000_000) as u32)
}

/// A socket of a family, which no child process inherits. Errors: `Host`, with the next step.
pub(super) fn make(family: AddressFamily) -> Result<OwnedFd> {
    let made = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let made = made.and_then(|fd| {
        if family != AddressFamily::UNIX {
            set_options(&fd)?;
        }
        Ok(fd)
    });
    made.map_err(|error| no_socket(error.raw_os_error()))
}

/// The error of a socket that can't be made.
pub(super) fn no_socket(errno: i32) -> Error {
    let what = match errno {
        libc::EMFILE | libc::ENFILE => "no descriptor left for a connection: raise the limit of open files (ulimit -n)",
        libc::EAFNOSUPPORT => {
            "this kind of address is switched off here: use IPv4 or IPv6 as the host does, and allow it in the service's unit \
             (RestrictAddressFamilies)"
        }
        _ => "the kernel makes no socket",
    };
    os(Kind::Host, what, errno)
}

/// An error of the kernel, of a kind of ours: none of them says that the brick's devices fail.
pub(super) fn os(kind: Kind, what: &'static str, errno: i32) -> Error {
    Error::new(kind, what).with(std::io::Error::from_raw_os_error(errno))
}

/// The error of a connection that can't be made.
fn unconnected(address: &Address, errno: i32) -> Error {
    let (kind, what) = match errno {
        libc::ECANCELED => return stopped(),
        libc::ECONNREFUSED => {
            (Kind::Host, "nobody listens at this address: check it, and whether the server runs and listens there")
        }
        libc::ENETUNREACH | libc::EHOSTUNREACH => {
            (Kind::Host, "no way leads to this address: check it, the routes and the firewall")
        }
        libc::ETIMEDOUT => {
            (Kind::Host, "nobody answers at this address: check it, whether that machine is up, and the firewall")
        }
        libc::ENOENT | libc::ENOTSOCK => {
            (Kind::NotFound, "no socket has this path: check it, and whether the server runs")
        }
        libc::EACCES | libc::EPERM => (Kind::Permission, "this user may not connect to this address"),
        libc::EINVAL | libc::EAFNOSUPPORT => (Kind::Invalid, "nobody can listen at this address: check it"),
        _ => (Kind::Host, "a connection to this address can't be made"),
    };
    os(kind, what, errno).with(address)
}

/// The error of a connection that broke.
fn broken(errno: i32) -> Error {
    let what = match errno {
        libc::ECANCELED => return stopped(),
        libc::ECONNRESET => "the other end has broken the connection off",
        libc::EPIPE => "the other end takes nothing any more",
        libc::ETIMEDOUT => "the other end does not answer any more: check that machine and the way to it",
        libc::EHOSTUNREACH | libc::ENETUNREACH => "no way leads to the other end any more: check the network",
        _ => "the connection broke",
    };
    os(Kind::Interrupted, what, errno)
}

impl Socket {
    pub fn new(fd: OwnedFd) -> Socket {
        Socket { fd, stream: Arc::default() }
    }
    /// Ends what is under way.
    pub fn end(&self) {
        self.stream.end(&closed());
        // A receive then ends at once, and a send too. It fails only if the connection is over already.
        let _ = shutdown(&self.fd, Shutdown::Both);
    }
    /// See `Net::way`.
    pub fn way(&self) -> Result<WayQuality> {
        let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        let (fd, level, option) = (self.fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO);
        // SAFETY: the kernel writes at most `length` bytes, and any bytes are a valid value of this plain structure.
        let info = unsafe {
            if libc::getsockopt(fd, level, option, info.as_mut_ptr().cast(), &mut length) < 0 {
                return Ok(WayQuality::default());
            }
            info.assume_init()
        };
        let round_trip_ns = u64::from(info.tcpi_rtt) * 1_000;
        Ok(WayQuality { round_trip_ns, retransmits: u64::from(info.tcpi_total_retrans) })
    }
    /// See `Net::caller`.
    pub fn caller(&self) -> Option<Caller> {
        // For a TCP socket the kernel says that nobody is there.
        let user = socket_peercred(&self.fd).ok().filter(|user| user.uid.as_raw() != u32::MAX)?;
        let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
        Some(Caller { uid, gid, pid: user.pid.as_raw_pid() as u32 })
    }
}

/// A call that the kernel performs by a core's ring.
pub(super) enum Call {
    Accept(Arc<Listener>),
    Connect(Box<Connect>),
    Receive(Arc<Socket>),
    Send(Arc<Socket>),
}

/// The making of a connection.
pub(super) struct Connect {
    pub socket: Arc<Socket>,
    pub place: SocketAddrAny,
    pub address: Address,
    pub attempt: Arc<Attempt>,
}

impl Call {
    /// The result of a call that was not made.
    pub const CANCELLED: i32 = -libc::ECANCELED;

    /// The submission. What it points to belongs to the call, to `message` and to `parts`.
    pub fn entry(&self, message: &mut Message, parts: &mut Vec<libc::iovec>) -> squeue::Entry {
        match self {
            Call::Accept(listener) => {
                let accept =
                    opcode::Accept::new(types::Fd(listener.raw_fd()), std::ptr::null_mut(), std::ptr::null_mut());
                accept.flags(libc::SOCK_CLOEXEC).build()
            }
            Call::Connect(connect) => {
                let Connect { socket, place, .. } = &**connect;
                opcode::Connect::new(types::Fd(socket.fd.as_raw_fd()), place.as_ptr().cast(), place.addr_len()).build()
            }
            Call::Receive(socket) => {
                let fd = types::Fd(socket.fd.as_raw_fd());
                socket.stream.with_room(|room| opcode::Recv::new(fd, room.as_mut_ptr(), room.len() as u32).build())
            }
            Call::Send(socket) => {
                let fd = types::Fd(socket.fd.as_raw_fd());
                socket.stream.with_rest(|slices, sent| collect(slices, sent, parts));
                // The kernel goes on by itself after a part, and raises no signal.
                let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
                if let [only] = parts[..] {
                    let send = opcode::Send::new(fd, only.iov_base.cast_const().cast(), only.iov_len as u32);
                    return send.flags(flags).build();
                }
                opcode::SendMsg::new(fd, message.of(parts)).flags(flags as u32).build()
            }
        }
    }
    /// Takes in the result, and has the core go on with what is not done yet.
    pub fn end(self, core: &Core, result: i32) {
        if result == -libc::EINTR && !core.is_stopping() {
            return core.call(self);
        }
        let done = |result: i32| if result < 0 { Err(broken(-result)) } else { Ok(result as usize) };
        match self {
            Call::Accept(listener) => {
                let outcome = arrival(&core.world.net, core.index, result);
                if listener.came(&core.world.net, core.index, outcome) {
                    core.call(Call::Accept(listener));
                }
            }
            Call::Connect(connect) => {
                let Connect { socket, address, attempt, .. } = *connect;
                attempt.finish(match result {
                    0.. => Ok(core.world.net.add(core.index, socket)),
                    _ => Err(unconnected(&address, -result)),
                });
            }
            Call::Receive(socket) => {
                if socket.stream.received(done(result)) == Step::Issue {
                    core.call(Call::Receive(socket));
                }
            }
            Call::Send(socket) => {
                if socket.stream.sent(done(result)) == Step::Issue {
                    core.call(Call::Send(socket));
                }
            }
        }
    }
}

impl Message {
    /// A message of these parts.
    fn of(&mut self, parts: &mut Vec<libc::iovec>) -> *const libc::msghdr {
        let header = self.header.get_or_insert_with(|| {
            let none = std::ptr::null_mut();
            Box::new(libc::msghdr {
                msg_name: none,
                msg_namelen: 0,
                msg_iov: none.cast(),
                msg_iovlen: 0,
                msg_control: none,
                msg_controllen: 0,
                msg_flags: 0,
            })
        });
        (header.msg_iov, header.msg_iovlen) = (parts.as_mut_ptr(), parts.len());
        &raw const **header
    }
}
