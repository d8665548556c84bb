//! The bound of what a connection may have under way: above it, a server reads nothing more from it, so that its client's sends wait.
//!
//! Promise: a client that asks for much, however fast, takes a bounded part of the server's memory and of its queues, and others are
//! served beside it. Clients keep to a lower bound (`Window`), so that what they say beside requests is not kept waiting. Absent by
//! design: which request goes first (the flow of a session), and a message that grants credit: an answer does that.

use base::Op;
use base::limits::CONNECTION_BYTES_MAX;
use runtime::Event;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes of a connection's requests under way.
#[derive(Default)]
pub struct Credit {
    bytes: AtomicUsize,
    less: Event,
}

/// Bytes that count for a request: those that come with it, or that it has sent back. The number of requests is bounded by itself.
pub fn bytes_of(op: &Op, payload_bytes: usize) -> usize {
    if let Op::Read { length, .. } = op { *length as usize } else { payload_bytes }
}

impl Credit {
    /// Counts a request that was read.
    pub fn take(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
    }
    /// Counts a request that has ended.
    pub fn give(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        assert!(before >= bytes, "what is given back was taken");
        if before >= CONNECTION_BYTES_MAX {
            self.less.notify();
        }
    }
    /// Waits until another request may be read.
    pub async fn room(&self) {
        loop {
            let ticket = self.less.ticket();
            if self.bytes.load(Ordering::Acquire) < CONNECTION_BYTES_MAX {
                return;
            }
            self.less.after(ticket).await;
        }
    }
}
