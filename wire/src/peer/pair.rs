//! The connections of one pair of bricks, as one of both sees them: which are up, of which process of the peer they are, and whether the
//! service was told. Pure but for the connections, which it keeps and never uses.

use super::Reach;
use crate::codec::peer::Purpose;
use crate::lane::Lane;
use base::Error;
use std::sync::Arc;

/// The number of purposes.
const PURPOSES: usize = Purpose::ALL.len();

/// The news for a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// The pair is connected, with the peer's process of this epoch.
    Connected(u64),
    /// It is not any more.
    Disconnected,
    /// There is none.
    Nothing,
}

/// The turn of an incoming connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// It has it.
    Now,
    /// It has to wait.
    Later,
    /// It never comes: the connection is not the last one.
    Over,
}

/// An incoming connection.
#[derive(Default)]
struct Incoming {
    lane: Option<Arc<Lane>>,
    /// True once the service has nothing any more of a connection before.
    is_up: bool,
}

/// See the module's head.
#[derive(Default)]
pub struct Pair {
    /// The highest epoch of the peer that was seen. All connections are of it.
    epoch: Option<u64>,
    outgoing: [Option<Arc<Lane>>; PURPOSES],
    incoming: [Incoming; PURPOSES],
    /// True while the service has a parcel and has not come back.
    is_busy: bool,
    /// True if the service was told last that the pair is connected.
    is_told: bool,
    error: Option<Error>,
}

fn is(lane: &Option<Arc<Lane>>, other: &Arc<Lane>) -> bool {
    lane.as_ref().is_some_and(|lane| Arc::ptr_eq(lane, other))
}

impl Pair {
    /// Takes in the epoch of a peer's process: the connections of an older one, which are to be closed. None if a newer one was seen.
    pub fn see(&mut self, epoch: u64) -> Option<Vec<Arc<Lane>>> {
        match self.epoch {
            Some(seen) if seen == epoch => Some(Vec::new()),
            Some(seen) if seen > epoch => None,
            _ => {
                self.epoch = Some(epoch);
                Some(self.end())
            }
        }
    }
    /// Takes all connections out, for them to be closed.
    pub fn end(&mut self) -> Vec<Arc<Lane>> {
        let incoming = std::mem::take(&mut self.incoming).into_iter().filter_map(|incoming| incoming.lane);
        std::mem::take(&mut self.outgoing).into_iter().flatten().chain(incoming).collect()
    }
    /// Takes in a connection to the peer that the peer has taken.
    pub fn reached(&mut self, purpose: Purpose, lane: &Arc<Lane>) {
        let before = self.outgoing[purpose as usize].replace(lane.clone());
        assert!(before.is_none(), "one connection is made at a time");
    }
    /// Takes a connection to the peer out, unless it is out. Returns those that are over with it.
    #[must_use]
    pub fn lost(&mut self, purpose: Purpose, lane: &Arc<Lane>) -> Vec<Arc<Lane>> {
        let kept = &mut self.outgoing[purpose as usize];
        if !is(kept, lane) {
            return Vec::new();
        }
        *kept = None;
        self.part(purpose)
    }
    /// Takes in a connection from the peer. Returns those that are over: the one that it replaces, and what was connected with that.
    #[must_use]
    pub fn came(&mut self, purpose: Purpose, lane: &Arc<Lane>) -> Vec<Arc<Lane>> {
        let before = std::mem::take(&mut self.incoming[purpose as usize]).lane;
        let over = self.part(purpose).into_iter().chain(before).collect();
        self.incoming[purpose as usize].lane = Some(lane.clone());
        over
    }
    /// Takes a connection from the peer out, unless it is out. Returns those that are over with it.
    #[must_use]
    pub fn went(&mut self, purpose: Purpose, lane: &Arc<Lane>) -> Vec<Arc<Lane>> {
        if !self.is_current(purpose, lane) {
            return Vec::new();
        }
        self.incoming[purpose as usize] = Incoming::default();
        self.part(purpose)
    }
    /// Takes out what was connected together with a connection that is gone. So a connection has the parcels of one time of being
    /// connected, all of them, and who is told `connected` gets nothing of an earlier time.
    fn part(&mut self, purpose: Purpose) -> Vec<Arc<Lane>> {
        if purpose == Purpose::Pulse || !self.is_told {
            return Vec::new();
        }
        let to_peer = self.outgoing[purpose as usize].take();
        to_peer.into_iter().chain(std::mem::take(&mut self.incoming[purpose as usize]).lane).collect()
    }
    /// True for the last connection from the peer that has come: messages of others are dropped.
    pub fn is_current(&self, purpose: Purpose, lane: &Arc<Lane>) -> bool {
        is(&self.incoming[purpose as usize].lane, lane)
    }
    /// Counts a connection of parcels from the peer as up, once the service has no parcel of another one any more.
    pub fn rise(&mut self, lane: &Arc<Lane>) -> Turn {
        if !self.is_current(Purpose::Append, lane) {
            return Turn::Over;
        }
        if self.is_busy {
            return Turn::Later;
        }
        self.incoming[Purpose::Append as usize].is_up = true;
        Turn::Now
    }
    /// Has the service take a parcel of a connection, until `rests`, if it knows that the pair is connected.
    pub fn begin(&mut self, lane: &Arc<Lane>) -> Turn {
        if !self.is_current(Purpose::Append, lane) {
            return Turn::Over;
        }
        if !self.is_told {
            return Turn::Later;
        }
        assert!(!std::mem::replace(&mut self.is_busy, true), "one parcel of a peer at a time");
        Turn::Now
    }
    /// Notes that the service has come back from a parcel.
    pub fn rests(&mut self) {
        self.is_busy = false;
    }
    /// The connection to the peer for a purpose.
    pub fn outgoing(&self, purpose: Purpose) -> Option<Arc<Lane>> {
        self.outgoing[purpose as usize].clone()
    }
    /// The connection to the peer for parcels, if the pair is connected.
    pub fn parcels(&self) -> Option<Arc<Lane>> {
        self.outgoing(Purpose::Append).filter(|_| self.is_told)
    }
    /// The news for the service, which is told at once.
    pub fn settle(&mut self) -> Told {
        let append = Purpose::Append as usize;
        let is_whole = self.outgoing[append].is_some() && self.incoming[append].is_up;
        match (std::mem::replace(&mut self.is_told, is_whole), is_whole) {
            (false, true) => Told::Connected(self.epoch.expect("connections are of a process")),
            (true, false) => Told::Disconnected,
            _ => Told::Nothing,
        }
    }
    /// Notes why the last connection to the peer broke or was not made.
    pub fn note(&mut self, error: Error) {
        self.error = Some(error);
    }
    /// True while the peer is connected, as the service was told.
    pub fn is_connected(&self) -> bool {
        self.is_told
    }
    /// The state for an operator.
    pub fn reach(&self) -> Reach {
        Reach { is_connected: self.is_told, epoch: self.epoch, error: self.error.clone(), way: None }
    }
}
