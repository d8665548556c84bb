//! The first frames of a connection: who speaks, which version both speak, and how a machine gets its certificate.

use super::bytes::{Put, Take, corrupt};
use super::{Body, TEXT_BYTES_MAX};
use crate::FrameKind;
use crate::frame::BODY_BYTES_MAX;
use base::{Error, Name, Result, Volume};

/// The versions of the bodies that this build speaks.
pub const VERSIONS: Versions = Versions { lowest: 1, highest: 1 };

/// The ability to use a volume whose groups have a leader each: the client has a session with each of them, and names the group in the header
/// of its hello.
pub const SEVERAL_GROUPS: u64 = 1;

/// Most groups of which each has a leader of its own: a client has a session with each, and a connection per core of each session.
pub const SERVED_GROUPS_MAX: u32 = 64;

/// Longest statement of a server that joins about itself: a uuid, a name and two addresses, several times over.
pub const SERVER_BYTES_MAX: usize = 4 << 10;
/// Longest text that a server tells one that joins: it goes in a body, beside a chain of certificates.
pub const ABOUT_BYTES_MAX: usize = 96 << 10;
// Three certificates, each as long as any may be, leave room.
const _: () = assert!(ABOUT_BYTES_MAX + (32 << 10) <= BODY_BYTES_MAX);
const _: () = assert!(SERVER_BYTES_MAX + TEXT_BYTES_MAX + (32 << 10) <= BODY_BYTES_MAX);

/// A range of versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Versions {
    /// The lowest.
    pub lowest: u16,
    /// The highest.
    pub highest: u16,
}

impl Versions {
    /// The version that a server of these speaks with a client of those: the highest that both know.
    pub fn common(self, client: Versions) -> Result<u16, Refused> {
        let highest = self.highest.min(client.highest);
        if highest >= self.lowest.max(client.lowest) {
            return Ok(highest);
        }
        let older = if self.highest < client.lowest { "server" } else { "client" };
        let text = format!(
            "the server speaks versions {} to {} of Sinter's protocol, the client {} to {}: upgrade the {older}",
            self.lowest, self.highest, client.lowest, client.highest
        );
        Err(Refused { reason: Reason::Version, text: text.into() })
    }
}

/// The first frame of a client. Its header has the session: 64 random bits that the client has drawn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The versions that it speaks.
    pub versions: Versions,
    /// Abilities beyond these, a bit each; the bits of both sides count.
    pub features: u64,
    /// The cluster that it belongs to; None, if it does not know.
    pub cluster: Option<[u8; 16]>,
    /// The name of the client, for people. Rights come from its certificate, or on one machine from the kernel.
    pub who: Box<str>,
    /// The random number of the start of its process.
    pub boot: u64,
    /// The volume that it mounts; None: it asks for no volume.
    pub volume: Option<Name>,
    /// True if it wants to change nothing.
    pub read_only: bool,
    /// True until the session was let in for the first time. A server that does not know a session which was has ended it.
    pub begins: bool,
}

/// The server takes the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HelloOk {
    /// The version that both speak from now on.
    pub version: u16,
    /// The features that both have.
    pub features: u64,
    /// The cluster.
    pub cluster: [u8; 16],
    /// The server's name.
    pub who: Box<str>,
    /// The random number of this start of the server. Another one means that unsynced changes may be lost.
    pub boot: u64,
    /// The epoch of the server's log.
    pub epoch: u64,
    /// The time for which the session lives without a pulse, in milliseconds.
    pub lease_ms: u32,
    /// The volume that was asked for.
    pub volume: Option<Volume>,
    /// True if the client may change nothing.
    pub read_only: bool,
    /// True if the superuser of the client's machine has no more rights than anybody.
    pub squash_root: bool,
    /// The caches that the client may have.
    pub caches: Caches,
    /// The groups of which each has a leader of its own, with which the client needs a session. 1: this one is all there is.
    pub groups: u32,
}

impl HelloOk {
    /// The welcome of a server that has no volumes, with a lease of ten seconds: for measurements and tests of the wire alone.
    pub fn bare(who: &str) -> HelloOk {
        let caches = Caches { caching: Caching::Alone, number: 0 };
        HelloOk {
            version: 1,
            features: 0,
            cluster: [0; 16],
            who: who.into(),
            boot: 1,
            epoch: 1,
            lease_ms: 10_000,
            volume: None,
            read_only: false,
            squash_root: false,
            caches,
            groups: 1,
        }
    }
}

/// The caches that a session may have, and their number among those that the server has told it since its start: of two messages the
/// one with the higher number counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caches {
    /// The caches.
    pub caching: Caching,
    /// The number.
    pub number: u64,
}

/// The caches that a client and its kernel may have of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caching {
    /// All: nobody else has the volume mounted.
    Alone,
    /// None that outlives a look at the attributes.
    Shared,
}

/// The reason why a server does not take a client, or lets it go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// No version that both speak.
    Version,
    /// A certificate that the server does not know, or none.
    Stranger,
    /// A certificate that was revoked, or whose time is over.
    Revoked,
    /// Another cluster.
    Cluster,
    /// No volume of this name.
    Volume,
    /// The client has no right to what it asks for.
    Rights,
    /// A token that is used up, over, or none of this server's.
    Token,
    /// The session was ended, since the server had not heard from the client.
    Fenced,
    /// Too many clients; later perhaps.
    Busy,
    /// The server stops.
    Ending,
    /// The client has sent what can't be.
    Protocol,
    /// A brick that this one does not know as a member, or that wants another one than this.
    Member,
    /// The brick has connected to itself.
    Itself,
    /// A process of the brick that is over: one with a higher epoch was seen.
    Epoch,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 14] = [
        Reason::Version,
        Reason::Stranger,
        Reason::Revoked,
        Reason::Cluster,
        Reason::Volume,
        Reason::Rights,
        Reason::Token,
        Reason::Fenced,
        Reason::Busy,
        Reason::Ending,
        Reason::Protocol,
        Reason::Member,
        Reason::Itself,
        Reason::Epoch,
    ];
    /// True if the same client may be taken later, without anybody's doing.
    pub fn passes(self) -> bool {
        matches!(self, Reason::Busy | Reason::Ending)
    }
}

/// The server does not take the client, or lets it go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The reason.
    pub reason: Reason,
    /// The reason in words, with the next step.
    pub text: Box<str>,
}

impl Refused {
    /// The refusal of whoever has sent what can't be.
    pub fn protocol(text: &str) -> Refused {
        Refused { reason: Reason::Protocol, text: text.into() }
    }
    /// The same, as an error tells it.
    pub fn nonsense(error: Error) -> Refused {
        let mut text = error.to_string();
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        Refused { reason: Reason::Protocol, text: text.into() }
    }
}

/// A machine asks for a certificate. The connection is encrypted, and the machine has checked by the token that it is the server's.
#[derive(Clone, PartialEq, Eq)]
pub struct Join {
    /// The secret of the token.
    pub secret: Box<[u8]>,
    /// The name that the machine wants to have.
    pub name: Box<str>,
    /// The certificate request, in DER.
    pub request: Box<[u8]>,
    /// The statement of a server about itself, of which the wire knows nothing, at most `SERVER_BYTES_MAX`; empty for clients.
    pub server: Box<[u8]>,
}

impl Join {
    /// The request of who has a certificate, and shows it in TLS, for another one of the same key.
    pub fn renewal(request: Vec<u8>) -> Join {
        Join { secret: [].into(), name: "".into(), request: request.into(), server: [].into() }
    }
}

impl std::fmt::Debug for Join {
    /// The name alone: the secret must not get into a log, and the rest is no text.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Join").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct Joined {
    /// The machine's certificate and those above it, in DER.
    pub chain: Vec<Box<[u8]>>,
    /// The cluster's state for a server that joins, of which the wire knows nothing, at most `ABOUT_BYTES_MAX`; empty for
    /// clients. It holds keys.
    pub about: Box<[u8]>,
}

impl std::fmt::Debug for Joined {
    /// The chain alone: the keys must not get into a log.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Joined").field("chain", &self.chain).finish_non_exhaustive()
    }
}

impl Put<'_> {
    pub fn text(&mut self, text: &str) -> &mut Self {
        assert!(text.len() <= TEXT_BYTES_MAX, "a text keeps to its bound");
        self.long(text.as_bytes())
    }
    pub fn caches(&mut self, caches: Caches) -> &mut Self {
        self.u8(caching_code(caches.caching)).u64(caches.number)
    }
}

impl Take<'_> {
    pub fn text(&mut self) -> Result<Box<str>> {
        let text = str::from_utf8(self.long()?).ok().filter(|text| text.len() <= TEXT_BYTES_MAX);
        text.map(Box::from).ok_or_else(|| corrupt("a message has a text that is none"))
    }
    pub fn caches(&mut self) -> Result<Caches> {
        Ok(Caches { caching: self.coded(&[Caching::Alone, Caching::Shared], caching_code)?, number: self.u64()? })
    }
    pub fn versions(&mut self) -> Result<Versions> {
        let versions = Versions { lowest: self.u16()?, highest: self.u16()? };
        let is_range = versions.lowest <= versions.highest;
        if is_range { Ok(versions) } else { Err(corrupt("a message has a range of versions that is none")) }
    }
}

fn caching_code(caching: Caching) -> u8 {
    match caching {
        Caching::Alone => 1,
        Caching::Shared => 2,
    }
}

fn reason_code(reason: Reason) -> u8 {
    match reason {
        Reason::Version => 1,
        Reason::Stranger => 2,
        Reason::Revoked => 3,
        Reason::Cluster => 4,
        Reason::Volume => 5,
        Reason::Rights => 6,
        Reason::Token => 7,
        Reason::Fenced => 8,
        Reason::Busy => 9,
        Reason::Ending => 10,
        Reason::Protocol => 11,
        Reason::Member => 12,
        Reason::Itself => 13,
        Reason::Epoch => 14,
    }
}

impl Body for Hello {
    const KIND: FrameKind = FrameKind::Hello;

    fn encode(&self, out: &mut Vec<u8>) {
        let Hello { versions, features, cluster, who, boot, volume, read_only, begins } = self;
        let mut put = Put(out);
        put.u16(versions.lowest).u16(versions.highest).u64(*features);
        put.option(cluster.as_ref(), |put, cluster| put.bytes(cluster)).text(who).u64(*boot);
        put.option(volume.as_ref(), Put::name).bool(*read_only).bool(*begins);
    }
    fn decode(body: &[u8]) -> Result<Hello> {
        Take::all(body, |take| {
            Ok(Hello {
                versions: take.versions()?,
                features: take.u64()?,
                cluster: take.option(Take::array)?,
                who: take.text()?,
                boot: take.u64()?,
                volume: take.option(Take::name)?,
                read_only: take.bool()?,
                begins: take.bool()?,
            })
        })
    }
}

impl Body for HelloOk {
    const KIND: FrameKind = FrameKind::HelloOk;

    fn encode(&self, out: &mut Vec<u8>) {
        let mut put = Put(out);
        put.u16(self.version).u64(self.features).bytes(&self.cluster).text(&self.who).u64(self.boot).u64(self.epoch);
        put.u32(self.lease_ms).option(self.volume.as_ref(), Put::volume);
        put.bool(self.read_only).bool(self.squash_root).caches(self.caches).last_count(self.groups);
    }
    fn decode(body: &[u8]) -> Result<HelloOk> {
        Take::all(body, |take| {
            Ok(HelloOk {
                version: take.u16()?,
                features: take.u64()?,
                cluster: take.array()?,
                who: take.text()?,
                boot: take.u64()?,
                epoch: take.u64()?,
                lease_ms: take.u32()?,
                volume: take.option(Take::volume)?,
                read_only: take.bool()?,
                squash_root: take.bool()?,
                caches: take.caches()?,
                groups: take.last_count(SERVED_GROUPS_MAX)?,
            })
        })
    }
}

impl Body for Refused {
    const KIND: FrameKind = FrameKind::Refused;

    fn encode(&self, out: &mut Vec<u8>) {
        Put(out).u8(reason_code(self.reason)).text(&self.text);
    }
    fn decode(body: &[u8]) -> Result<Refused> {
        Take::all(body, |take| Ok(Refused { reason: take.coded(&Reason::ALL, reason_code)?, text: take.text()? }))
    }
}

impl Body for Join {
    const KIND: FrameKind = FrameKind::Join;

    fn encode(&self, out: &mut Vec<u8>) {
        Put(out).long(&self.secret).text(&self.name).long(&self.request).last(&self.server, SERVER_BYTES_MAX);
    }
    fn decode(body: &[u8]) -> Result<Join> {
        Take::all(body, |take| {
            Ok(Join {
                secret: take.long()?.into(),
                name: take.text()?,
                request: take.long()?.into(),
                server: take.last(SERVER_BYTES_MAX)?.into(),
            })
        })
    }
}

impl Body for Joined {
    const KIND: FrameKind = FrameKind::Joined;

    fn encode(&self, out: &mut Vec<u8>) {
        let mut put = Put(out);
        put.items(&self.chain, |put, certificate| put.long(certificate)).last(&self.about, ABOUT_BYTES_MAX);
    }
    fn decode(body: &[u8]) -> Result<Joined> {
        Take::all(body, |take| {
            let chain = take.items(|take| take.long().map(Box::from))?;
            Ok(Joined { chain, about: take.last(ABOUT_BYTES_MAX)?.into() })
        })
    }
}
