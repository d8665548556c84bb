//! The values that a server stores of its network side, and the one file that holds them. Promises that a file which is
//! damaged, cut, foreign or newer is told apart and never taken for another; that every list has a bound.

use crate::certificates::{Certificate, Hash, Pair, Serial};
use crate::identity::{Bearer, ClientName, Subject, Uuid};
use crate::tokens::{Address, Role};
use base::checksum::crc32c;
use base::ids::VolumeId;
use base::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The first word of the file.
const MAGIC: &str = "sinter-network ";
/// The version of its format if other servers are in it, or invited. Without them it is `FORMAT_ALONE`, so that who goes back to an
/// older Sinter before a second server came can read it.
const FORMAT: u32 = 2;
/// The version of the format of a server that is alone.
const FORMAT_ALONE: u32 = 1;
/// Largest file: 4,096 clients take a fifth. No larger one is written.
pub const FILE_BYTES_MAX: usize = 32 << 20;
/// Most clients; each has a certificate in a file that is written whole at each change.
pub const CLIENTS_MAX: usize = 4096;
/// Most servers that joined: each talks with each other one, and a group has three of them. More have not been tried.
pub const SERVERS_MAX: usize = 64;
/// Most tokens that are not forgotten yet.
pub const TOKENS_MAX: usize = 1024;
/// Most uses of a token: more machines than that are set up in several steps.
pub const USES_MAX: u32 = 1024;
/// Most volumes that a client may mount.
pub const GRANTS_MAX: usize = 256;

/// The right to mount a volume, by its number, which is never reused: a volume that takes a deleted one's name is another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The volume.
    #[serde(with = "volume")]
    pub volume: VolumeId,
    /// True if changes are refused.
    pub read_only: bool,
    /// True if the client's root counts as nobody.
    pub root_squash: bool,
}

mod volume {
    use super::{Deserialize, VolumeId};
    pub fn serialize<S: serde::Serializer>(volume: &VolumeId, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u32(volume.0)
    }
    pub fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<VolumeId, D::Error> {
        u32::deserialize(from).map(VolumeId)
    }
}

/// A client's rights: a grant for each volume that it may mount, in the order of volumes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rights(Vec<Grant>);

impl Rights {
    /// The rights of these grants; of several for one volume the last one counts. Errors: `Invalid` if there are none or
    /// more than 256.
    pub fn new(grants: impl IntoIterator<Item = Grant>) -> Result<Rights> {
        let by_volume: BTreeMap<VolumeId, Grant> = grants.into_iter().map(|grant| (grant.volume, grant)).collect();
        if !(1..=GRANTS_MAX).contains(&by_volume.len()) {
            let what = "a client may mount 1 to 256 volumes: name them";
            return Err(Error::new(Kind::Invalid, what).with(by_volume.len()));
        }
        Ok(Rights(by_volume.into_values().collect()))
    }
    /// No rights: those that a server's token gives.
    pub fn none() -> Rights {
        Rights::default()
    }
    /// The grant for a volume. Errors: `Permission` if there is none.
    pub fn of(&self, volume: VolumeId) -> Result<Grant> {
        let found = self.0.binary_search_by_key(&volume, |grant| grant.volume);
        let what =
            "this client may not mount this volume: a token for it, used on the same machine, gives it that right";
        found.map(|at| self.0[at]).map_err(|_| Error::new(Kind::Permission, what))
    }
    /// All grants.
    pub fn grants(&self) -> &[Grant] {
        &self.0
    }
    /// These rights and others; where both have one for a volume, the other one counts. Errors: as `new`.
    pub fn and(&self, other: &Rights) -> Result<Rights> {
        Rights::new(self.0.iter().chain(&other.0).copied())
    }
}

/// A token as the server knows it: not its secret. All times are in seconds since 1970.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invitation {
    /// The SHA-256 of its secret.
    pub secret: Hash,
    /// The part that its bearer may join as.
    pub role: Role,
    /// The time when it was made.
    pub made_s: u64,
    /// The time from which on it is refused.
    pub expires_s: u64,
    /// Number of keys that may join with it.
    pub uses: u32,
    /// The time when it was revoked.
    pub revoked_s: Option<u64>,
    /// The rights that it gives.
    pub rights: Rights,
    /// Its uses, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used: Vec<Use>,
}

impl Invitation {
    /// The name by which commands call it: the start of its hash.
    pub fn id(&self) -> String {
        self.secret.to_string()[..12].to_string()
    }
}

/// A use of a token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Use {
    /// The name under which it was used.
    pub name: ClientName,
    /// The hash of the public key that joined.
    pub key: Hash,
    /// The time of the use.
    pub at_s: u64,
}

/// A client that joined. All times are in seconds since 1970.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// The time when it joined, last if more than once.
    pub joined_s: u64,
    /// The time when it was revoked; none of its certificates counts then.
    pub revoked_s: Option<u64>,
    /// Its rights.
    pub rights: Rights,
    /// Its certificates that have not expired, and the last one, in the order in which they were made.
    pub certificates: Vec<Issued>,
}

/// A server that joined, with its brick. All times are in seconds since 1970.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Its name, which no other server that joined has.
    pub name: ClientName,
    /// The address where it serves clients.
    pub clients: Address,
    /// The address where it listens for other bricks.
    pub peers: Address,
    /// The time when it joined, last if more than once.
    pub joined_s: u64,
    /// Its certificates that have not expired, and the last one, in the order in which they were made.
    pub certificates: Vec<Issued>,
}

/// A certificate that was given out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issued {
    /// Its number.
    pub serial: Serial,
    /// The hash of its public key.
    pub key: Hash,
    /// Its last second.
    pub not_after_s: u64,
    /// The time when it was revoked.
    pub revoked_s: Option<u64>,
    /// All of it, for a bearer whose answer got lost.
    pub certificate: Certificate,
}

/// All that is stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    pub cluster: Uuid,
    pub brick: Uuid,
    /// Rises with each change that takes rights away.
    pub epoch: u64,
    /// Number of certificates that were made.
    pub made: u64,
    pub ca: Pair,
    pub server: Pair,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<Invitation>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub clients: BTreeMap<ClientName, Client>,
    /// The servers that joined, by their bricks: all but the one that made the cluster, which is `brick`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub servers: BTreeMap<Uuid, Server>,
}

impl State {
    /// The file's bytes: a line with magic, format and checksum, then TOML.
    pub fn encode(&self) -> Vec<u8> {
        let body = toml::to_string(self).expect("only values that TOML has");
        format!("{MAGIC}{} {:08x}\n{body}", self.format(), crc32c(body.as_bytes())).into_bytes()
    }
    /// The lowest version of the format that has all this.
    fn format(&self) -> u32 {
        let is_alone = self.servers.is_empty() && self.tokens.iter().all(|token| token.role == Role::Client);
        if is_alone { FORMAT_ALONE } else { FORMAT }
    }
    /// The values of a file. Errors: `Corrupt`, also for a file of something else; `Newer`.
    pub fn decode(bytes: &[u8]) -> Result<State> {
        let text = std::str::from_utf8(bytes).ok().and_then(|text| text.strip_prefix(MAGIC));
        let Some((head, body)) = text.and_then(|text| text.split_once('\n')) else {
            return Err(Error::new(Kind::Corrupt, "the file is not one that Sinter wrote here"));
        };
        let (format, crc) = head.split_once(' ').unwrap_or((head, ""));
        let version = match format.parse::<u32>() {
            Ok(known @ FORMAT_ALONE..=FORMAT) if format == known.to_string() => known,
            Ok(newer) if newer > FORMAT => {
                let what = "a newer Sinter wrote the file: install that version again";
                return Err(Error::new(Kind::Newer, what).with(format_args!("format {newer}")));
            }
            _ => return Err(damaged()),
        };
        if crc != format!("{:08x}", crc32c(body.as_bytes())) {
            return Err(damaged());
        }
        let state: State = toml::from_str(body).map_err(|error| damaged().with(error.message()))?;
        if state.format() != version {
            return Err(damaged().with(format_args!("it is not of format {version}")));
        }
        state.check().map(|()| state)
    }
    /// Refuses keys and certificates that don't belong together: a file put together by hand.
    fn check(&self) -> Result<()> {
        let fits = |pair: &Pair| Ok::<bool, Error>(pair.key.public()? == pair.certificate.public_key()?);
        self.server.certificate.check_signed_by(&self.ca.certificate)?;
        if !fits(&self.ca)? || !fits(&self.server)? || self.server.certificate.identity()?.subject != self.subject() {
            return Err(Error::new(Kind::Corrupt, "the file holds keys and certificates that don't belong together"));
        }
        Ok(())
    }
    /// The server's own identity.
    pub fn subject(&self) -> Subject {
        Subject { cluster: self.cluster, bearer: Bearer::Brick(self.brick) }
    }
}

fn damaged() -> Error {
    Error::new(Kind::Corrupt, "the file is damaged")
}
