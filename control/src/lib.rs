//! Floor 3: who may come over the network. The identity of a server that listens, of its clients and of the servers that
//! join its cluster: CA, certificates, tokens, rights, and the files that hold them on both sides.
//!
//! Promises: what was answered is durable; no secret of a token is stored; rights follow the certificate and nothing that
//! a client says. Absent by design: sockets, TLS, the clock, the command line, random numbers other than those of which
//! keys are made. The caller gives time in seconds since 1970.
#![forbid(unsafe_code)]

pub mod certificates;
pub mod client;
pub mod directory;
pub mod files;
pub mod identity;
pub mod servers;
pub mod state;
pub mod tokens;

pub use certificates::{Certificate, Hash, Identity, Key, Pair, Serial, server_name};
pub use directory::{Chain, FILE, Network, TOKEN_LIFE_S, Wish};
pub use files::{Files, Held};
pub use identity::{Bearer, ClientName, Subject, Uuid};
pub use servers::ServerWish;
pub use state::{Client, Grant, Invitation, Issued, Rights, Server, Use};
pub use tokens::{Address, Role, Secret, Token};
