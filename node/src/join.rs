//! Joining: this machine becomes a client of a server, with a token.
//!
//! Promises: nothing is sent to a server that the token does not vouch for; a join that was interrupted may be done again; the key
//! never leaves the machine. Absent by design: what the server decides.

use crate::assembly::on_core;
use crate::directory;
use crate::failure::Failure;
use crate::host;
use base::{Error, Kind, Result};
use control::client::{self, Membership};
use control::{Certificate, Chain, ClientName, Held, Token, server_name};
use front::fuse::OP_NAMES;
use runtime::Runtime;
use runtime::net::Address;
use runtime::real::{self, Directory, Reactors};
use std::path::{Path, PathBuf};
use wire::codec::hello;
use wire::tls::{Authority, Credentials, Pin};

/// Memory for one connection.
const MEMORY_BYTES: u64 = 64 << 20;

/// Joins as `client`, and writes the files of `name` in `directory`, which is made if only its last part is missing.
pub fn join(
    directory: &Path,
    name: &ClientName,
    client: &ClientName,
    token: Token,
) -> std::result::Result<Membership, Failure> {
    let failed = |error: Error| Failure::of(format!("can't join {name}"), &error);
    host::make_files_private();
    let held = Held::lock(directory::make(directory)?, |from, to| std::fs::rename(from, to)).map_err(failed)?;
    let joining = client::begin(&held, name, token).map_err(failed)?;
    let join = hello::Join {
        secret: joining.token().secret.0.into(),
        name: client.as_str().into(),
        request: joining.request.clone().into(),
        server: [].into(),
    };
    let joined = ask(joining.token(), &join).and_then(chain).map_err(failed)?;
    joining.finish(joined).map_err(failed)
}

/// Asks the servers of a token one after the other for a certificate. Errors: those of the last one.
pub fn ask(token: &Token, join: &hello::Join) -> Result<hello::Joined> {
    let world = World::start()?;
    let authority = Authority::Pinned(Pin(token.ca.0));
    let credentials = Credentials::of_client(None, authority, world.runtime.clock.clone())?;
    let credentials = (credentials, Box::<str>::from(server_name(token.cluster)));
    let mut last = Error::new(Kind::Host, "the token names no server that is known");
    for place in &token.addresses {
        let found = match world.runtime.net.resolve(&place.to_string()) {
            Ok(found) => found,
            Err(error) => {
                last = error.with(place);
                continue;
            }
        };
        for address in found {
            match world.ask(address, credentials.clone(), join.clone()) {
                Ok(joined) => return Ok(joined),
                // Another address of the same server would say the same.
                Err(error) if error.kind == Kind::Permission => return Err(error),
                Err(error) => last = error.with(place),
            }
        }
    }
    Err(last)
}

/// Asks servers one after the other for another certificate of the key of this request. `present`: the credentials of the certificate that
/// there is. Errors: those of the last one.
pub fn renewed(
    (reactors, runtime): (&Reactors, &Runtime),
    addresses: Vec<Address>,
    present: &(Credentials, Box<str>),
    request: Vec<u8>,
) -> Result<Chain> {
    let join = hello::Join::renewal(request);
    let mut last = Error::new(Kind::Host, "no server is known");
    for address in addresses {
        let (runtime, present, join) = (runtime.clone(), present.clone(), join.clone());
        let asked =
            on_core(reactors, move || async move { wire::client::join(&runtime, &address, &present, &join).await });
        match asked {
            Ok(answer) => return chain(answer),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The certificates of an answer.
pub fn chain(joined: hello::Joined) -> Result<Chain> {
    match <[Box<[u8]>; 2]>::try_from(joined.chain) {
        Ok([certificate, ca]) => Ok(Chain { certificate: Certificate(certificate.into()), ca: Certificate(ca.into()) }),
        Err(_) => Err(Error::new(Kind::Corrupt, "the server has sent other certificates than the two that are needed")),
    }
}

/// Cores for a few connections, over a directory of the moment.
pub struct World {
    /// Their world.
    pub runtime: Runtime,
    reactors: Option<Reactors>,
    path: PathBuf,
}

impl World {
    /// Starts the cores.
    pub fn start() -> Result<World> {
        let path = std::env::temp_dir().join(format!("sinter-join-{}", std::process::id()));
        let made = std::fs::create_dir(&path);
        made.map_err(|error| Error::new(Kind::Host, "no directory for the moment").with(path.display()).with(error))?;
        let options = Directory::open(&path).map(|directory| real::Options::new(directory, MEMORY_BYTES, OP_NAMES));
        match options.and_then(real::start) {
            Ok((runtime, reactors)) => Ok(World { runtime, reactors: Some(reactors), path }),
            Err(error) => {
                drop(directory::remove_tree(&path));
                Err(error)
            }
        }
    }
    /// Asks the server at an address for a certificate.
    pub fn ask(
        &self,
        address: Address,
        credentials: (Credentials, Box<str>),
        join: hello::Join,
    ) -> Result<hello::Joined> {
        let runtime = self.runtime.clone();
        let reactors = self.reactors();
        reactors.run(0, move || async move { wire::client::join(&runtime, &address, &credentials, &join).await })?
    }
    /// The cores.
    pub fn reactors(&self) -> &Reactors {
        self.reactors.as_ref().expect("they run")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.reactors.take().into_iter().for_each(Reactors::stop);
        // What stays there is swept with the directory of temporary files.
        drop(directory::remove_tree(&self.path));
    }
}
