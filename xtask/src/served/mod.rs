//! A disk that this program serves: a file system with one file, whose bytes lie in a backing file and whose answers come when a
//! *pace* says so. A loop device on that file is a disk for everyone.
//!
//! Promises: data reach the backing file; answers come in the order of the pace, whatever the order of the requests. Absent by
//! design: discards, and the page cache on either side of it.

mod protocol;
mod server;

pub use server::{failed, start};

/// The disk's file.
pub const NAME: &str = "disk";
/// The file by which a pace tells its figures and is told to change, if it can.
pub const STATE: &str = "state";

/// The kinds of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    Read,
    Write,
    Flush,
}

/// The times at which a disk answers.
pub trait Pace: Send + Sync + 'static {
    /// The pace's name of a request.
    type Ticket;
    /// Takes note of a request that has come.
    fn came(&self, verb: Verb, offset: u64, bytes: u64) -> Self::Ticket;
    /// Gives the answer when it is due, on any thread. The backing file has done its part.
    fn answer(&self, ticket: Self::Ticket, answer: impl FnOnce() + Send + 'static);
    /// Its figures, as a text for who reads its state; None: there is no such file.
    fn figures(&self) -> Option<String> {
        None
    }
    /// Changes as a text says that somebody wrote there. False: it is not understood.
    fn change(&self, _text: &str) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
