//! The difference that replicas make to what a group orders.

use super::State;
use crate::replica::Replica;
use base::{Index, Result, Sync};

impl State {
    /// The replica, of a group that has others.
    pub fn replica(&mut self) -> &mut Replica {
        self.replica.as_deref_mut().expect("only groups with replicas are asked for them")
    }
    /// Refuses to order a change of a group with replicas here and now. Errors: `Elsewhere`; `Busy` if the log has no room.
    #[cold]
    pub fn may_order(&self) -> Result<()> {
        self.replica.as_ref().map_or(Ok(()), |replica| replica.may_order())
    }
    /// The mark that a record leaves on inodes that it changes, by which a later fsync finds what to wait for.
    #[inline]
    pub fn mark(&self, batch: u64, index: Index) -> u64 {
        if self.replica.is_some() { index.0 } else { batch }
    }
    /// The durability that the log is asked for: what replicas are to have must be durable soon, whatever the client asked for.
    #[inline]
    pub fn log_sync(&self, sync: Sync) -> Sync {
        if self.replica.is_some() { sync.max(Sync::Data) } else { sync }
    }
}
