//! The answers to an operator about tokens and clients of other machines.

use super::identity;
use super::keeper::{Keeper, sessions_of};
use crate::admin::protocol::{Answer, Attached, Granted, Invited, Joined, NetworkRequest, TokenMade};
use crate::assembly::{Brick, on_core};
use base::{Error, Kind, Result, SessionId, VolumeId};
use control::{Address as Place, ClientName, Grant, Invitation, Rights, Role, Token, Wish};
use group::{Groups, Scope};
use layer::Served;
use runtime::real::Reactors;
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::server::Server;

/// The place where an operator asks.
pub struct Desk {
    /// The name by which clients call the server, or the cluster.
    pub name: ClientName,
    /// The keeper of certificates and rights.
    pub keeper: Arc<Keeper>,
}

impl Desk {
    /// Answers a request about tokens and clients.
    pub fn answer(
        &self,
        brick: &Brick,
        server: &Arc<Server<Served>>,
        own_addresses: &dyn Fn() -> Result<Vec<Place>>,
        ask: &NetworkRequest,
    ) -> Result<Answer> {
        let volumes = brick.volumes()?;
        match ask {
            NetworkRequest::CreateToken { volumes: names, read_only, squash_root, life_s, uses, addresses } => {
                let grant = |name: &String| -> Result<Grant> {
                    let volume = brick.volume(name)?.id;
                    Ok(Grant { volume, read_only: *read_only, root_squash: *squash_root })
                };
                let rights = Rights::new(names.iter().map(grant).collect::<Result<Vec<_>>>()?)?;
                let wish = Wish { role: Role::Client, rights, uses: *uses, life_s: *life_s };
                self.create_token(wish, addresses, own_addresses).map(Answer::Token)
            }
            NetworkRequest::Tokens => {
                let told = |token: &Invitation| invited(token, &volumes);
                Ok(Answer::Tokens(self.keeper.read(|network| network.tokens().iter().map(told).collect())?))
            }
            NetworkRequest::RevokeToken { id } => {
                self.keeper.change(|network, now_s| network.revoke_token(id, now_s))?;
                Ok(Answer::Done)
            }
            NetworkRequest::Clients => {
                let attached = attached(brick.groups(), server, &volumes);
                let told = |(name, client): (&ClientName, &control::Client)| joined(name, client, &volumes, &attached);
                Ok(Answer::Clients(self.keeper.read(|network| network.clients().iter().map(told).collect())?))
            }
            NetworkRequest::RevokeClient { name } => {
                self.keeper.change(|network, now_s| network.revoke_client(name, now_s))?;
                let is_meant = |holder: &base::Holder| holder.client.as_bytes() == name.as_bytes();
                expel(&*brick.reactors()?, sessions_of(brick.groups(), is_meant), server)?;
                Ok(Answer::Done)
            }
        }
    }

    fn create_token(
        &self,
        wish: Wish,
        addresses: &[String],
        own_addresses: &dyn Fn() -> Result<Vec<Place>>,
    ) -> Result<TokenMade> {
        let addresses = match addresses.is_empty() {
            true => own_addresses()?,
            false => addresses.iter().map(|text| identity::with_port(text).parse()).collect::<Result<_>>()?,
        };
        let secret = control::Secret(
            identity::secret().map_err(|failure| Error::new(Kind::Host, "no random numbers").with(failure))?,
        );
        let place = (self.name.clone(), addresses);
        let token: Token = self.keeper.change(|network, now_s| network.create_token(wish, secret, place, now_s))?;
        let id = self.keeper.read(|network| network.tokens().last().map(Invitation::id))?.expect("one was made");
        let addresses = token.addresses.iter().map(Place::to_string).collect();
        Ok(TokenMade { id, name: self.name.to_string(), token: token.to_text(), addresses })
    }
}

/// The sessions of clients.
pub fn attached(groups: &Groups, server: &Server<Served>, volumes: &[base::Volume]) -> Vec<Attached> {
    let told = groups.network_sessions(Scope::All).into_iter().map(|known| Attached {
        client: String::from_utf8_lossy(known.holder.client.as_bytes()).into_owned(),
        volume: name_of(volumes, known.holder.volume),
        connected: server.is_connected(known.session),
    });
    told.collect()
}

/// Ends sessions, with their connections.
pub fn expel(reactors: &Reactors, sessions: Vec<SessionId>, server: &Arc<Server<Served>>) -> Result<()> {
    let server = server.clone();
    on_core(reactors, move || async move {
        for session in sessions {
            server.expel(session).await;
        }
        Ok(())
    })
}

fn name_of(volumes: &[base::Volume], id: VolumeId) -> String {
    let found = volumes.iter().find(|volume| volume.id == id);
    let named = |volume: &base::Volume| String::from_utf8_lossy(volume.name.as_bytes()).into_owned();
    found.map_or_else(|| format!("volume {} (deleted)", id.0), named)
}

fn granted(rights: &Rights, volumes: &[base::Volume]) -> Vec<Granted> {
    let of = |grant: &Grant| Granted {
        volume: name_of(volumes, grant.volume),
        read_only: grant.read_only,
        squash_root: grant.root_squash,
    };
    rights.grants().iter().map(of).collect()
}

fn invited(token: &Invitation, volumes: &[base::Volume]) -> Invited {
    Invited {
        id: token.id(),
        volumes: granted(&token.rights, volumes),
        expires_s: token.expires_s,
        uses: token.uses,
        used_by: token.used.iter().map(|used| used.name.to_string()).collect(),
        revoked_s: token.revoked_s,
    }
}

fn joined(name: &ClientName, client: &control::Client, volumes: &[base::Volume], attached: &[Attached]) -> Joined {
    let mut mounted = BTreeMap::new();
    for attached in attached.iter().filter(|attached| attached.client == name.as_str()) {
        *mounted.entry(attached.volume.clone()).or_insert(false) |= attached.connected;
    }
    Joined {
        name: name.to_string(),
        volumes: granted(&client.rights, volumes),
        joined_s: client.joined_s,
        valid_until_s: client.certificates.iter().map(|issued| issued.not_after_s).max().unwrap_or_default(),
        revoked_s: client.revoked_s,
        mounted,
    }
}
