//! Connections through the rings of the cores.

use super::listener::{place_of, resolve};
use super::reactor::{self, Core, World};
use super::socket::{Call, Connect, Socket, make};
use crate::accepts::{Accepting, Attempt, Connecting};
use crate::buffer::{Buf, Slice};
use crate::net::{Address, Caller, ConnectionId, ListenerId, Net, WayQuality};
use crate::stream::{Receiving, Sending, Step};
use base::Result;
use std::rc::Rc;
use std::sync::Arc;

pub(super) struct RealNet {
    world: Arc<World>,
}

impl RealNet {
    pub fn new(world: Arc<World>) -> RealNet {
        RealNet { world }
    }
    fn core(&self) -> Rc<Core> {
        let core = reactor::current().filter(|core| Arc::ptr_eq(&core.world, &self.world));
        core.expect("connections are only used on the world's cores")
    }
    fn start_connect(&self, address: &Address) -> Result<Connecting> {
        let place = place_of(address)?;
        let socket = Arc::new(Socket::new(make(place.address_family())?));
        let world = self.world.clone();
        let (attempt, connecting) = Attempt::start(Box::new(move |connection| world.net.close(connection)));
        let connect = Connect { socket, place, address: address.clone(), attempt };
        self.core().call(Call::Connect(Box::new(connect)));
        Ok(connecting)
    }
}

impl Net for RealNet {
    fn resolve(&self, name: &str) -> Result<Vec<Address>> {
        resolve(name)
    }
    fn listen(&self, address: &Address) -> Result<ListenerId> {
        self.world.net.listen(address)
    }
    fn address(&self, listener: ListenerId) -> Result<Address> {
        self.world.net.listener(listener)?.address()
    }
    fn accept(&self, listener: ListenerId) -> Accepting {
        let listener = match self.world.net.listener(listener) {
            Ok(listener) => listener,
            Err(error) => return Accepting::failed(error),
        };
        let core = self.core();
        let (accepting, arms) = listener.accepts.accept(core.index);
        if arms {
            core.call(Call::Accept(listener));
        }
        accepting
    }
    fn close_listener(&self, listener: ListenerId) {
        self.world.net.close_listener(listener);
    }
    fn connect(&self, address: &Address) -> Connecting {
        self.start_connect(address).unwrap_or_else(Connecting::failed)
    }
    fn receive(&self, connection: ConnectionId, buffer: Buf, least: usize) -> Receiving {
        let socket = match self.world.net.socket(connection) {
            Ok(socket) => socket,
            Err(error) => return Receiving::failed(buffer, error),
        };
        let (receiving, step) = socket.stream.receive(buffer, least);
        if step == Step::Issue {
            self.core().call(Call::Receive(socket));
        }
        receiving
    }
    fn send(&self, connection: ConnectionId, slices: Vec<Slice>) -> Sending {
        let socket = match self.world.net.socket(connection) {
            Ok(socket) => socket,
            Err(error) => return Sending::failed(slices, error),
        };
        let (sending, step) = socket.stream.send(slices);
        if step == Step::Issue {
            self.core().call(Call::Send(socket));
        }
        sending
    }
    fn close(&self, connection: ConnectionId) {
        self.world.net.close(connection);
    }
    fn way(&self, connection: ConnectionId) -> Result<WayQuality> {
        self.world.net.socket(connection)?.way()
    }
    fn caller(&self, connection: ConnectionId) -> Result<Option<Caller>> {
        Ok(self.world.net.socket(connection)?.caller())
    }
}
