//! The connection between commands and a brick's daemon: a Unix socket in the brick's directory, one line of JSON per
//! request and one per reply. Local and for the brick's owner only; not the data path.

pub mod client;
pub mod protocol;
mod replica;
pub mod server;

use runtime::real::Directory;
use std::path::PathBuf;

/// The socket's name in the brick's directory.
pub const SOCKET: &str = "admin.sock";

/// A brick's socket under a path that fits into a socket address however long the brick's path is (socket addresses hold
/// 108 bytes), and that no link above it leads elsewhere: it goes through the directory's descriptor.
struct SocketPath {
    path: PathBuf,
    _directory: Directory,
}

impl SocketPath {
    fn of(data: &Directory) -> SocketPath {
        SocketPath { path: data.at(SOCKET), _directory: data.clone() }
    }
}

#[cfg(test)]
mod tests;
