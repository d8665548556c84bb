//! A brick's own certificate in a cluster of several machines, and what it tells other bricks of the cluster.
//!
//! Promises: only bricks with a certificate of the cluster's CA are believed; the key never leaves the brick's directory. Files: the
//! certificate and key in `membership`; in `network` the state of tokens and clients with which the cluster has begun.

use super::config::Cluster;
use crate::admin::protocol::{of_hex, to_hex};
use crate::network;
use base::{Error, Kind, Result};
use control::client::Membership;
use control::{Bearer, Certificate, Chain, ClientName, Files, Held, server_name};
use runtime::Runtime;
use runtime::real::Directory;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex};
use wire::peer::{PeerId, Trust};
use wire::tls::{Authority, Credentials, Identity as Bearing, Strangers};

/// The directory of the certificate in the brick's.
const DIRECTORY: &str = "membership";
/// Largest file of a cluster's first state: it has no client.
const FIRST_BYTES_MAX: usize = 128 << 10;

/// A brick's certificate; see the module.
pub struct Badge {
    data: Directory,
    cluster: Cluster,
    membership: Mutex<Membership>,
}

/// The message to a brick that has joined.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    /// The text of the cluster's file.
    cluster: String,
    /// The cluster's tokens, clients and keys, once it has all its nodes; hexadecimal.
    state: Option<String>,
}

/// The news of a cluster.
pub struct News {
    /// The cluster, as far as it goes.
    pub cluster: Cluster,
    /// The file of its tokens, clients and keys, once it has all its nodes.
    pub state: Option<Vec<u8>>,
}

impl News {
    /// Bytes for the answer to a brick. `state`: None as long as the cluster lacks nodes.
    pub fn put(cluster: &Cluster, state: Option<&[u8]>) -> Box<[u8]> {
        let about = About { cluster: cluster.text(None), state: state.map(to_hex) };
        serde_json::to_vec(&about).expect("plain data is JSON").into()
    }
    /// Reads what `put` made. Errors: `Corrupt`.
    pub fn take(bytes: &[u8]) -> Result<News> {
        let wrong = || Error::new(Kind::Corrupt, "the other brick has told nothing of the cluster: upgrade it");
        let About { cluster, state } = serde_json::from_slice(bytes).map_err(|error| wrong().with(error))?;
        let cluster = Cluster::of_text(cluster.as_bytes())?;
        let state = state.map(|state| of_hex(&state).ok_or_else(wrong)).transpose()?;
        match state.is_some() == cluster.is_whole() {
            true => Ok(News { cluster, state }),
            false => Err(wrong()),
        }
    }
}

/// The files of a brick's certificate, locked; their directory is made if there is none.
pub fn files(data: &Directory) -> Result<Held> {
    held(data, DIRECTORY)
}

/// The files of the cluster's tokens and clients in a brick's directory, locked; their directory is made if there is none.
pub fn first_files(data: &Directory) -> Result<Held> {
    held(data, network::DIRECTORY)
}

fn held(data: &Directory, name: &str) -> Result<Held> {
    match std::fs::create_dir(data.at(name)) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        made => made.and_then(|()| data.sync()).map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            Error::os("a directory of the brick's can't be made", errno).with(data.path().join(name).display())
        })?,
    }
    Held::lock(data.child(name)?, |from, to| std::fs::rename(from, to))
}

impl Badge {
    /// Reads the certificate of the brick in a directory. Errors: it has none; those of reading.
    pub fn read(data: &Directory, cluster: &Cluster) -> Result<Badge> {
        let name = cluster.name.as_ref().expect("a cluster of several machines has a name");
        let membership = Membership::read(&files(data)?, name)?;
        if membership.brick()?.is_none() || membership.cluster.0 != cluster.id {
            let what = "the brick's certificate is not one of a brick of its cluster: restore the brick's directory from a backup";
            return Err(Error::new(Kind::Invalid, what).with(data.path().join(DIRECTORY).display()));
        }
        Ok(Badge { data: data.clone(), cluster: cluster.clone(), membership: Mutex::new(membership) })
    }
    /// The cluster's identity.
    pub fn cluster(&self) -> control::Uuid {
        control::Uuid(self.cluster.id)
    }
    /// The cluster's name.
    pub fn name(&self) -> ClientName {
        self.cluster.name.clone().expect("a cluster of several machines has a name")
    }
    fn bearing(&self) -> (Bearing, Certificate) {
        let membership = self.membership.lock().expect("no panic while held");
        let (certificate, ca) = (membership.certificate.0.clone(), membership.ca.clone());
        // Who joins finds there what the token pins.
        let chain = vec![certificate.into(), ca.0.clone().into()];
        (Bearing { chain, key: membership.key.0.clone().into() }, ca)
    }
    /// The credentials for who connects to this brick.
    pub fn credentials(&self, strangers: Strangers, runtime: &Runtime) -> Result<Credentials> {
        let (bearing, ca) = self.bearing();
        Credentials::of_server(&bearing, &ca.0, strangers, runtime.clock.clone())
    }
    /// The credentials for connecting to another brick, and the name that its certificate has.
    pub fn as_client(&self, runtime: &Runtime) -> Result<(Credentials, Box<str>)> {
        let (bearing, ca) = self.bearing();
        let credentials = Credentials::of_client(Some(&bearing), Authority::Known(&ca.0), runtime.clock.clone())?;
        Ok((credentials, server_name(self.cluster()).into()))
    }
    /// True once the certificate is to be renewed. `now_s`: in seconds since 1970.
    pub fn is_due(&self, now_s: u64) -> bool {
        let membership = self.membership.lock().expect("no panic while held");
        membership.identity().is_ok_and(|identity| now_s >= identity.renewal_at_s())
    }
    /// Takes a renewed certificate, durably. Errors: it is not one of this brick's key; those of writing.
    pub fn renew(&self, chain: Chain) -> Result<()> {
        self.membership.lock().expect("no panic while held").renew(&files(&self.data)?, chain)
    }
    /// The request for a certificate of the brick's key.
    pub fn request(&self) -> Result<Vec<u8>> {
        control::certificates::make_request(&self.membership.lock().expect("no panic while held").key)
    }
    /// All that this brick needs to know the others by.
    pub fn trust(&self, runtime: &Runtime) -> Result<Trust> {
        let cluster = self.cluster();
        let brick_of = move |certificate: &[u8]| {
            let subject = Certificate(certificate.to_vec()).identity()?.subject;
            match subject.bearer {
                Bearer::Brick(brick) if subject.cluster == cluster => Ok(PeerId(u128::from_be_bytes(brick.0))),
                _ => Err(Error::new(Kind::Permission, "the certificate is of no brick of this cluster").with(subject)),
            }
        };
        let credentials = self.credentials(Strangers::Refused, runtime)?;
        Ok(Trust { credentials, server_name: server_name(cluster).into(), brick_of: Arc::new(brick_of) })
    }
    /// The file of tokens, clients and keys with which the cluster has begun.
    pub fn first_state(&self) -> Result<Vec<u8>> {
        let found = first_files(&self.data)?.read(control::directory::FILE, FIRST_BYTES_MAX)?;
        found.map(|found| found.bytes).ok_or_else(|| {
            let what = "the cluster's tokens and clients are nowhere: restore the brick's directory from a backup";
            Error::new(Kind::NotFound, what).with(self.data.path().join(network::DIRECTORY).display())
        })
    }
    /// The news for another brick of the cluster, which has all its nodes.
    pub fn about(&self) -> Result<Box<[u8]>> {
        Ok(News::put(&self.cluster, Some(&self.first_state()?)))
    }
}
