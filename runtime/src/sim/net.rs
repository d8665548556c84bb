//! Connections of a simulated host.

use super::host::Host;
use super::links::{Links, address_of};
use crate::accepts::{Accepting, Attempt, Connecting};
use crate::buffer::{Buf, Slice};
use crate::net::{Address, Caller, ConnectionId, ListenerId, Net, WayQuality};
use crate::stream::{Receiving, Sending, Step};
use base::{Error, Kind, Result};
use core::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// The user and process that every simulated host has at the other end of a Unix socket.
const CALLER: Caller = Caller { uid: 0, gid: 0, pid: 1 };

pub(super) struct SimNet {
    host: Arc<Host>,
    links: Arc<Links>,
}

impl SimNet {
    pub fn new(host: Arc<Host>, links: Arc<Links>) -> SimNet {
        SimNet { host, links }
    }
}

impl Net for SimNet {
    /// Knows addresses, and the names `host-0`, `host-1` and so on.
    fn resolve(&self, name: &str) -> Result<Vec<Address>> {
        if name.contains('/') {
            return Ok(vec![Address::Local(PathBuf::from(name))]);
        }
        if let Ok(address) = name.parse::<SocketAddr>() {
            return Ok(vec![Address::Tcp(address)]);
        }
        let parts = name.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        let Some((host, port)) = parts.and_then(|(host, port)| Some((host, port.parse().ok()?))) else {
            return Err(Error::new(Kind::Invalid, "an address is HOST:PORT, or the path of a Unix socket").with(name));
        };
        let number = host.strip_prefix("host-").and_then(|number| number.parse().ok());
        let unknown =
            || Error::new(Kind::NotFound, "no machine of this name is known: check it, or use its address").with(name);
        number.map(|number| vec![Address::Tcp(address_of(number, port))]).ok_or_else(unknown)
    }
    fn listen(&self, address: &Address) -> Result<ListenerId> {
        self.links.listen(&self.host, address)
    }
    fn address(&self, listener: ListenerId) -> Result<Address> {
        self.links.listener_address(listener)
    }
    fn accept(&self, listener: ListenerId) -> Accepting {
        self.links.accept(&self.host, listener, self.host.core())
    }
    fn close_listener(&self, listener: ListenerId) {
        self.links.close_listener(listener);
    }
    fn connect(&self, address: &Address) -> Connecting {
        let links = Arc::downgrade(&self.links);
        let close = move |connection| links.upgrade().into_iter().for_each(|links| links.close(connection));
        let (attempt, connecting) = Attempt::start(Box::new(close));
        self.links.connect(&self.host, address, attempt);
        connecting
    }
    fn receive(&self, connection: ConnectionId, buffer: Buf, least: usize) -> Receiving {
        let stream = match self.links.stream(&self.host, connection) {
            Ok(stream) => stream,
            Err(error) => return Receiving::failed(buffer, error),
        };
        let (receiving, step) = stream.receive(buffer, least);
        if step == Step::Issue {
            self.links.issue(connection);
        }
        receiving
    }
    fn send(&self, connection: ConnectionId, slices: Vec<Slice>) -> Sending {
        let stream = match self.links.stream(&self.host, connection) {
            Ok(stream) => stream,
            Err(error) => return Sending::failed(slices, error),
        };
        let (sending, step) = stream.send(slices);
        if step == Step::Issue {
            self.links.issue(connection);
        }
        sending
    }
    fn close(&self, connection: ConnectionId) {
        self.links.close(connection);
    }
    fn way(&self, connection: ConnectionId) -> Result<WayQuality> {
        self.links.way(&self.host, connection)
    }
    fn caller(&self, connection: ConnectionId) -> Result<Option<Caller>> {
        self.links.stream(&self.host, connection)?;
        Ok(self.links.is_local(connection).then_some(CALLER))
    }
}
