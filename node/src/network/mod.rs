//! A brick's side of the network: the address where its daemon listens, who may come, and who is there.
//!
//! Promises: nothing listens unless somebody said `--listen`; who is revoked is gone at once; sessions of clients outlive the daemon.
//! Absent by design: what clients do (`layer::Served`), certificates and their file (`control`).

mod desk;
mod identity;
mod keeper;
mod replicated;
mod users;

pub use desk::{Desk, expel};
pub use identity::{DIRECTORY, open, own_hosts, own_name, secret, with_port};
pub use keeper::{Keeper, now_s, sessions_in, sessions_of};
pub use replicated::VOLUME;
pub use users::users;

use crate::admin::protocol::{Answer, Attached, NetworkRequest};
use crate::assembly::{Brick, on_core};
use crate::cli::Listen;
use crate::failure::{Exit, Failure};
use base::{Error, Kind, Result, SessionId, VolumeId};
use control::{Address as Place, ClientName};
use group::{CATALOGUE, Groups};
use layer::{Served, Tenures};
use runtime::net::Address;
use runtime::real::{Directory, Reactors};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::server::Server;
use wire::tls::Encryption;

/// Interval at which the server's certificate is looked at.
const RENEWAL_LOOK: Duration = Duration::from_secs(3600);

/// A brick that listens.
pub struct Listener {
    address: SocketAddr,
    groups: Arc<Groups>,
    desk: Desk,
    server: Arc<Server<Served>>,
    looked: Mutex<Instant>,
}

impl Listener {
    /// Takes the address and serves clients. `data`: the brick's directory, where its identity lies, or is made now.
    pub fn start(brick: &Brick, data: &Directory, listen: &Listen) -> std::result::Result<Option<Listener>, Failure> {
        let Some(wanted) = &listen.listen else { return Ok(None) };
        let failed = |error: Error| Failure::of(format!("can't listen at {wanted}"), &error).or_without_network();
        let name = match &listen.name {
            Some(name) => name.parse(),
            None => own_name(),
        };
        let name: ClientName = name.map_err(|error: Error| failed(error).exit(Exit::Usage))?;
        let (runtime, groups) = (brick.runtime(), brick.groups());
        let (identity, cluster) = (control::Uuid(groups.store().uuid.0), control::Uuid(secret()?));
        let network = identity::open(data, identity, cluster, now_s(runtime)).map_err(failed)?;
        let cluster = network.cluster();
        let encryption = Encryption::from(listen.wire_encryption.unwrap_or_default());
        let keeper = Arc::new(Keeper::alone(network, runtime, groups, encryption).map_err(failed)?);
        let credentials = keeper.credentials().map_err(failed)?;
        let found = runtime.net.resolve(wanted).map_err(failed)?;
        let listener = runtime.net.listen(found.first().expect("a name has an address")).map_err(failed)?;
        let Address::Tcp(address) = runtime.net.address(listener).map_err(failed)? else {
            return Err(Failure::new(Exit::Usage, format!("can't listen at {wanted}: it is no HOST:PORT")));
        };
        let served = Served::new(groups.clone(), name.as_str(), cluster.0, brick.stack_of()).behind(keeper.clone());
        let known = sessions_of(groups, |_| true);
        let server = served.start(runtime, listener, Some(credentials), &known);
        keeper.serves(CATALOGUE, &server);
        let (looked, desk) = (Mutex::new(Instant::now()), Desk { name, keeper });
        Ok(Some(Listener { address, groups: groups.clone(), desk, server, looked }))
    }

    /// The address where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The warning for as long as contents may go unencrypted.
    pub fn warning(&self) -> Option<String> {
        let what = "contents go unencrypted over the network to clients that were told so too (wire-encryption is off): who reads along \
                    there reads files; start this daemon without --wire-encryption off, and without it in its config file, to encrypt";
        (self.desk.keeper.encryption() == Encryption::Off).then(|| what.to_string())
    }

    /// Renews the server's certificate if it is time. What went wrong, for an operator; it is tried again an hour later.
    pub fn look(&self) -> Option<String> {
        let mut looked = self.looked.lock().expect("no panic while held");
        if looked.elapsed() < RENEWAL_LOOK {
            return None;
        }
        *looked = Instant::now();
        let renewed = self.desk.keeper.renew().transpose()?;
        match renewed.map(|credentials| self.server.renew(credentials)) {
            Ok(()) => Some("the server's certificate was renewed".to_string()),
            Err(error) => Some(format!("the server's certificate can't be renewed: {error}")),
        }
    }

    /// Serves no client any more; their sessions go on at the next start.
    pub fn stop(&self, reactors: &Reactors) -> Result<()> {
        let server = self.server.clone();
        on_core(reactors, move || async move {
            server.stop().await;
            Ok(())
        })
    }

    /// Number of clients' requests that are under way.
    pub fn under_way(&self) -> usize {
        self.server.under_way()
    }

    /// Reserves a volume for a session of the server itself, once the kernels of clients have let go of what they may not cache beside it
    /// (rule R2). Errors: `Busy`, if they have not in time.
    pub fn claim(&self, reactors: &Reactors, volume: VolumeId, session: SessionId) -> Result<()> {
        let (server, groups) = (self.server.clone(), self.groups.clone());
        on_core(reactors, move || async move {
            let late = || Error::new(Kind::Busy, "the volume's clients have not let go of what they cache: try again");
            let claim = async || Ok::<_, Error>(groups.claim_locally(volume, session));
            server.make_room(claim).await?.ok_or_else(late)
        })
    }

    /// Hangs up on a volume's clients, which come again and learn what was changed of it.
    pub fn hang_up(&self, volume: VolumeId) {
        let sessions = sessions_of(&self.groups, |holder| holder.volume == volume);
        sessions.into_iter().for_each(|session| self.server.hang_up(session));
    }

    /// Ends the sessions of a volume.
    pub fn expel_from(&self, reactors: &Reactors, volume: VolumeId) -> Result<()> {
        expel(reactors, sessions_of(&self.groups, |holder| holder.volume == volume), &self.server)
    }

    /// The sessions of clients.
    pub fn attached(&self, volumes: &[base::Volume]) -> Vec<Attached> {
        desk::attached(&self.groups, &self.server, volumes)
    }

    /// Answers a request about tokens and clients.
    pub fn answer(&self, brick: &Brick, ask: &NetworkRequest) -> Result<Answer> {
        self.desk.answer(brick, &self.server, &|| self.own_addresses(), ask)
    }

    /// The addresses under which clients reach this server.
    fn own_addresses(&self) -> Result<Vec<Place>> {
        let port = self.address.port();
        let hosts = match self.address.ip() {
            ip if ip.is_unspecified() => identity::own_hosts(ip.is_ipv6())?,
            ip => vec![ip],
        };
        let at = |ip: &IpAddr| SocketAddr::new(*ip, port).to_string().parse();
        let addresses = hosts.iter().map(at).take(control::tokens::ADDRESSES_MAX).collect::<Result<Vec<Place>>>()?;
        match addresses.is_empty() {
            true => Err(Error::new(
                Kind::Host,
                "this machine has no address but loopback: say which one clients use, with --address",
            )),
            false => Ok(addresses),
        }
    }
}

/// The refusal of requests that need a listener.
pub fn not_listening() -> Error {
    let what =
        "the brick's daemon does not listen: start it with --listen ADDRESS (sinter serve BRICK --listen 0.0.0.0)";
    Error::new(Kind::Unsupported, what)
}
