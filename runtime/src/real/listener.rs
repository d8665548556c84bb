//! Listeners, addresses as the kernel has them, and the table of a process's connections.

use super::inbox::stopped;
use super::socket::{Socket, make, no_socket, os};
use crate::accepts::{Accepts, Arrival};
use crate::net::{Address, BACKLOG, ConnectionId, ListenerId, closed, not_listening};
use crate::sync::{AtomicU64, Mutex, MutexGuard};
use base::{Error, Kind, Result};
use rustix::io::Errno;
use rustix::net::sockopt::{set_ipv6_v6only, set_socket_reuseaddr};
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrAny, SocketAddrUnix, bind, connect, getpeername, getsockname, listen, shutdown,
};
use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The listeners and connections of a world.
pub(super) struct Network {
    next: AtomicU64,
    listeners: Mutex<BTreeMap<ListenerId, Arc<Listener>>>,
    /// Connections by the core on which they were made, which is the one that mostly uses them.
    shards: Vec<Mutex<BTreeMap<ConnectionId, Arc<Socket>>>>,
}

impl Network {
    pub fn new(cores: usize) -> Network {
        let shards = (0..cores).map(|_| Mutex::default()).collect();
        Network { next: AtomicU64::new(1), listeners: Mutex::default(), shards }
    }
    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
    fn shard(&self, connection: ConnectionId) -> MutexGuard<'_, BTreeMap<ConnectionId, Arc<Socket>>> {
        let shard = connection.0 as usize % self.shards.len();
        self.shards[shard].lock().expect("no panic while held")
    }
    fn listeners(&self) -> MutexGuard<'_, BTreeMap<ListenerId, Arc<Listener>>> {
        self.listeners.lock().expect("no panic while held")
    }
    /// Takes in a connection that was made on a core.
    pub fn add(&self, core: usize, socket: Arc<Socket>) -> ConnectionId {
        let connection = ConnectionId(self.number() * self.shards.len() as u64 + core as u64);
        self.shard(connection).insert(connection, socket);
        connection
    }
    pub fn socket(&self, connection: ConnectionId) -> Result<Arc<Socket>> {
        self.shard(connection).get(&connection).cloned().ok_or_else(closed)
    }
    pub fn close(&self, connection: ConnectionId) {
        let socket = self.shard(connection).remove(&connection);
        socket.into_iter().for_each(|socket| socket.end());
    }
    pub fn listen(&self, address: &Address) -> Result<ListenerId> {
        let listener = Listener::new(address)?;
        let number = ListenerId(self.number());
        self.listeners().insert(number, Arc::new(listener));
        Ok(number)
    }
    pub fn listener(&self, listener: ListenerId) -> Result<Arc<Listener>> {
        self.listeners().get(&listener).cloned().ok_or_else(not_listening)
    }
    pub fn close_listener(&self, listener: ListenerId) {
        let listener = self.listeners().remove(&listener);
        listener.into_iter().for_each(|listener| listener.end(self));
    }
    /// Ends everything: the world is over.
    pub fn clear(&self) {
        let listeners = std::mem::take(&mut *self.listeners());
        listeners.into_values().for_each(|listener| listener.end(self));
        for shard in &self.shards {
            let sockets = std::mem::take(&mut *shard.lock().expect("no panic while held"));
            sockets.into_values().for_each(|socket| socket.end());
        }
    }
}

/// A listener.
pub(super) struct Listener {
    fd: OwnedFd,
    pub accepts: Arc<Accepts>,
    /// The path to remove at its end.
    path: Option<PathBuf>,
}

impl Listener {
    fn new(address: &Address) -> Result<Listener> {
        let place = place_of(address)?;
        let fd = make(place.address_family())?;
        let path = match address {
            Address::Tcp(_) => None,
            Address::Local(path) => Some(path.clone()),
        };
        let bound = prepare(&fd, &place).and_then(|()| match (bind(&fd, &place), &path) {
            (Err(Errno::ADDRINUSE), Some(path)) if is_stale(path, &place) => {
                // Whoever listened there has died.
                let _ = std::fs::remove_file(path);
                bind(&fd, &place)
            }
            (bound, _) => bound,
        });
        let listening = bound.and_then(|()| listen(&fd, BACKLOG as i32));
        listening.map_err(|error| refused(address, error.raw_os_error()))?;
        Ok(Listener { fd, accepts: Arc::default(), path })
    }
    pub fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
    pub fn address(&self) -> Result<Address> {
        let place = getsockname(&self.fd).map_err(|error| no_socket(error.raw_os_error()))?;
        Ok(address_of(Some(place)))
    }
    /// Takes in what a core has waited for. True: it shall wait for more.
    pub fn came(&self, net: &Network, core: usize, outcome: Result<Arrival>) -> bool {
        let arms = self.accepts.came(core, outcome);
        if self.accepts.has_ended() {
            // It came too late.
            self.accepts.end().into_iter().for_each(|connection| net.close(connection));
        }
        arms
    }
    fn end(&self, net: &Network) {
        self.accepts.end().into_iter().for_each(|connection| net.close(connection));
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
        // Cores that wait for a connection wait no longer.
        let _ = shutdown(&self.fd, Shutdown::Both);
    }
}

fn prepare(fd: &OwnedFd, place: &SocketAddrAny) -> rustix::io::Result<()> {
    if place.address_family() == AddressFamily::UNIX {
        return Ok(());
    }
    // Else a restart would wait for a minute until connections of the time before are forgotten.
    set_socket_reuseaddr(fd, true)?;
    if place.address_family() == AddressFamily::INET6 {
        // Both kinds of addresses can then be listened at, on all systems in the same way.
        set_ipv6_v6only(fd, true)?;
    }
    Ok(())
}

/// True if a Unix socket has nobody who listens any more.
fn is_stale(path: &Path, place: &SocketAddrAny) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    is_socket && make(AddressFamily::UNIX).is_ok_and(|probe| connect(&probe, place) == Err(Errno::CONNREFUSED))
}

/// The error of an address at which this process can't listen.
fn refused(address: &Address, errno: i32) -> Error {
    let (kind, what) = match errno {
        libc::EADDRINUSE => (Kind::Busy, "another process listens at this address: stop it, or choose another port"),
        libc::EADDRNOTAVAIL => {
            (Kind::Invalid, "this machine does not have this address: `ip address` shows those that it has")
        }
        libc::EACCES | libc::EPERM => {
            (Kind::Permission, "this user may not listen at this address: choose a port from 1024 on, or another path")
        }
        libc::ENOENT | libc::ENOTDIR => (Kind::NotFound, "the socket's directory does not exist: make it"),
        _ => (Kind::Host, "nobody can listen at this address"),
    };
    os(kind, what, errno).with(address)
}

/// The kernel's form of an address.
pub(super) fn place_of(address: &Address) -> Result<SocketAddrAny> {
    match address {
        Address::Tcp(address) => Ok(SocketAddrAny::from(*address)),
        Address::Local(path) => SocketAddrUnix::new(path.as_path()).map(SocketAddrAny::from).map_err(|_| {
            Error::new(Kind::Invalid, "the path of a socket has at most 107 bytes: choose a shorter one")
                .with(path.display())
        }),
    }
}

/// An address from the kernel's form; one that has no name is a client of a Unix socket.
fn address_of(place: Option<SocketAddrAny>) -> Address {
    let Some(place) = place else { return Address::Local(PathBuf::new()) };
    if let Ok(address) = SocketAddr::try_from(place.clone()) {
        return Address::Tcp(address);
    }
    let path = SocketAddrUnix::try_from(place).ok().and_then(|unix| unix.path_bytes().map(<[u8]>::to_vec));
    Address::Local(PathBuf::from(std::ffi::OsStr::from_bytes(&path.unwrap_or_default())))
}

/// The connection that a core's accept has brought.
pub(super) fn arrival(net: &Network, core: usize, result: i32) -> Result<Arrival> {
    match -result {
        libc::ECANCELED => return Err(stopped()),
        libc::EINVAL => return Err(not_listening()),
        errno @ 1.. => return Err(no_socket(errno)),
        _ => {}
    }
    // SAFETY: the kernel has just made this descriptor for us, so nobody else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(result) };
    // One that has been broken off already has no name; the first receive will tell.
    let address = address_of(getpeername(&fd).ok().flatten());
    Ok((net.add(core, Arc::new(Socket::new(fd))), address))
}

/// See `Net::resolve`.
pub(super) fn resolve(name: &str) -> Result<Vec<Address>> {
    if name.contains('/') {
        return Ok(vec![Address::Local(PathBuf::from(name))]);
    }
    let has_port = name.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if !has_port {
        return Err(Error::new(Kind::Invalid, "an address is HOST:PORT, or the path of a Unix socket").with(name));
    }
    let found: Vec<Address> = name.to_socket_addrs().into_iter().flatten().map(Address::Tcp).collect();
    match found.is_empty() {
        false => Ok(found),
        true => {
            Err(Error::new(Kind::NotFound, "no machine of this name is known: check it, or use its address").with(name))
        }
    }
}
