//! How commands talk to a brick's daemon: a Unix socket in the brick's directory, one line of JSON per request and
//! one per reply. Local and for the brick's owner only; not the data path.

pub mod client;
pub mod protocol;
pub mod server;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The socket's name in the brick's directory.
pub const SOCKET: &str = "admin.sock";

/// A brick's socket under a path that fits into a socket address however long the brick's path is: socket
/// addresses hold 108 bytes, so the directory is named by its descriptor.
struct SocketPath {
    path: PathBuf,
    _directory: File,
}

impl SocketPath {
    fn of(data: &Path) -> std::io::Result<SocketPath> {
        let directory = File::open(data)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd()));
        Ok(SocketPath { path, _directory: directory })
    }
}

#[cfg(test)]
mod tests;
