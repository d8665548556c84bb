//! A volume of a server, or of a cluster on this machine, as a client's daemon mounts it: the session with the server, and the volume's
//! layers.
//!
//! Promises: a server that is away is waited for, and who asks is told for what and since when; the daemon's end makes durable what
//! the server has acknowledged, or says that it could not. Absent by design: a store; rights, which the server knows.

mod lookup;
mod state;

use crate::admin::protocol::Status;
use crate::assembly::{on_core, start};
use crate::cluster::Cluster;
use crate::cores::Cores;
use crate::failure::{self, Exit, Failure};
use crate::network::now_s;
use base::{Error, Kind, Name, Op, Result, SessionId};
use control::certificates::make_request;
use control::client::Membership;
use control::{ClientName, Held, server_name};
use front::fuse::{Entries, Identity};
use group::Context;
use layer::{Call, Stack};
use lookup::{Found, Lookup};
use runtime::net::Address;
use runtime::real::{Directory, Reactors};
use runtime::tasks::either;
use runtime::{Runtime, Span};
use state::{Making, State};
use std::fmt;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::client::{Options, Reach};
use wire::codec::hello::{Caching, HelloOk, Reason, Refused};
use wire::tls::{Authority, Credentials, Encryption, Identity as Bearer};
use wire::{Client, Sharer};

/// The directory with the files of the clusters that this machine has joined.
pub const MEMBERSHIPS: &str = "/etc/sinter";
/// The directory below which each mounted volume has one, with its daemon's socket.
const STATES: &str = "/run/sinter";
/// The directory below which each volume that was mounted has one, with what is usual on the way to its server.
const LEARNED: &str = "/var/lib/sinter";
/// Time for a first connection: a server that is up answers within a second, and who mounts waits.
const FIRST: Duration = Duration::from_secs(20);
/// Interval at which it is looked whether the certificate is to be renewed. It lasts for weeks more then.
const RENEWAL_LOOK: Duration = Duration::from_secs(3600);
/// Time for the last requests when the daemon ends while the server is away.
const LAST: Duration = Duration::from_secs(20);
/// Time for another process of this machine that is changing the files of memberships.
const CHANGING: Duration = Duration::from_secs(5);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// A volume of a server: `NAME/VOLUME`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The name under which this machine has joined the server's cluster.
    pub name: ClientName,
    /// The volume.
    pub volume: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.volume)
    }
}

impl FromStr for Place {
    type Err = Error;
    /// Errors: `Invalid`.
    fn from_str(text: &str) -> Result<Place> {
        let what = "a volume of a server is NAME/VOLUME, where NAME is the server's as `sinter client join` gave it";
        let wrong = || Error::new(Kind::Invalid, what).with(text.escape_debug());
        let (name, volume) = text.split_once('/').ok_or_else(wrong)?;
        let volume = crate::cli::volume_name(volume).map_err(|_| wrong())?;
        Ok(Place { name: name.parse().map_err(|_| wrong())?, volume })
    }
}

impl Place {
    /// The directory of its daemon while it is mounted.
    pub fn state(&self) -> PathBuf {
        Path::new(STATES).join(self.name.as_str()).join(&self.volume)
    }
}

/// The place that somebody has named where others name a brick's directory. One that has a directory of that name means it.
pub fn place_of(path: &Path) -> Option<Place> {
    path.to_str().filter(|_| !path.exists()).and_then(|text| text.parse().ok())
}

/// A session with a server for one volume.
pub struct Remote {
    /// Comes first: it is removed before the cores let go of its lock.
    state: State,
    /// The volume and where it is, for people.
    place: String,
    /// The same of who serves it.
    server: String,
    runtime: Runtime,
    cores: Cores,
    client: Arc<Client>,
    welcome: HelloOk,
    volume: base::Volume,
    stack: Arc<Stack>,
    /// The io_uring entries that its mounts may have.
    pub entries: Arc<Entries>,
    memory_max_bytes: u64,
    /// The directory where it keeps what it has learned of the way to the server.
    learned: PathBuf,
    /// Its part in another machine's cluster; None of a cluster on this machine.
    joined: Option<Joined>,
    /// The state of the way to the server that an operator was told last.
    told: Mutex<Told>,
}

/// A client's part in another machine's cluster, which it has joined.
struct Joined {
    membership: Mutex<Membership>,
    /// The directory with its files.
    memberships: PathBuf,
    encryption: Encryption,
    addresses: Mutex<Vec<Address>>,
    lookup: Lookup,
    /// The time at which somebody last looked whether the certificate is to be renewed.
    looked: Mutex<Option<Instant>>,
}

/// The states of the way to a server.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum Told {
    #[default]
    Up,
    Away,
    Over,
}

/// The wishes of a mount for its session.
#[derive(Clone, Copy, Default, Debug)]
pub struct Wishes {
    /// True if it wants to change nothing.
    pub read_only: bool,
    /// Seconds for which it waits for a server that is away; None: for ever.
    pub soft_s: Option<u64>,
    /// The form of what goes over the network.
    pub encryption: Encryption,
}

/// Opens a session with a server.
pub fn open(place: &Place, memberships: &Path, wishes: Wishes, memory_max: u64) -> Result<Remote, Failure> {
    let Wishes { read_only, soft_s, encryption } = wishes;
    let failed = |error: Error| Failure::of(format!("can't mount {place}"), &error);
    let membership = membership(memberships, &place.name).map_err(failed)?;
    let addresses = resolved(&membership).map_err(failed)?;
    // Who keeps memberships elsewhere wants nothing of this in the usual places.
    let is_usual = memberships == Path::new(MEMBERSHIPS);
    let learned = if is_usual { PathBuf::from(LEARNED) } else { memberships.join("learned") };
    let options = |runtime: &Runtime| {
        Ok(Options {
            addresses: addresses.clone(),
            volume: Name::new(place.volume.as_bytes())?,
            who: who(&membership),
            read_only,
            credentials: Some(credentials(&membership, runtime, encryption)?),
            soft_ns: soft_s.map(|seconds| seconds * 1_000_000_000),
        })
    };
    let beginning = Beginning {
        place: place.to_string(),
        server: None,
        making: state::make(Path::new(STATES), place.state())?,
        learned: learned.join(place.name.as_str()).join(&place.volume),
        silent: "the server does not answer: look whether it runs and listens (sinter status BRICK there), and whether a firewall lets \
                 this machine through",
    };
    let remote = begin(beginning, options, memory_max)?;
    let joined = Joined {
        membership: Mutex::new(membership),
        memberships: memberships.to_path_buf(),
        encryption,
        addresses: Mutex::new(addresses),
        lookup: Lookup::default(),
        looked: Mutex::default(),
    };
    Ok(Remote { joined: Some(joined), ..remote })
}

/// Opens a session with a cluster on this machine, for a volume. `directory`: the cluster's.
pub fn open_here(
    cluster: &Cluster,
    directory: &Directory,
    volume: &str,
    wishes: Wishes,
    memory_max: u64,
) -> Result<Remote, Failure> {
    let options = |_: &Runtime| {
        Ok(Options {
            addresses: cluster.addresses()?,
            volume: Name::new(volume.as_bytes())?,
            who: crate::network::own_name()?.as_str().into(),
            read_only: wishes.read_only,
            credentials: None,
            soft_ns: wishes.soft_s.map(|seconds| seconds * 1_000_000_000),
        })
    };
    let path = directory.path();
    let beginning = Beginning {
        place: format!("{} of {}", volume, path.display()),
        server: Some(format!("the cluster {}", path.display())),
        making: state::make(path, cluster_state(path, volume))?,
        learned: path.join("learned").join(volume),
        silent: "no node of the cluster answers: look whether a majority of them runs (sinter cluster status DIR)",
    };
    begin(beginning, options, memory_max)
}

/// The directory of the daemon that has a volume of a cluster on this machine mounted.
pub fn cluster_state(directory: &Path, volume: &str) -> PathBuf {
    directory.join("mounts").join(volume)
}

/// All that a session needs to begin but the way to its server.
struct Beginning {
    place: String,
    /// None: as the server calls itself.
    server: Option<String>,
    making: Making,
    learned: PathBuf,
    /// The failure if nobody answers.
    silent: &'static str,
}

/// Begins a session.
fn begin(
    Beginning { place, server, making, learned, silent }: Beginning,
    options: impl FnOnce(&Runtime) -> Result<Options>,
    memory_max: u64,
) -> Result<Remote, Failure> {
    let failed = |error: Error| Failure::of(format!("can't mount {place}"), &error);
    let (runtime, reactors) = match start(making.directory(), (None, Vec::new()), memory_max, false) {
        Ok(started) => started,
        Err(error) => {
            making.give_up();
            return Err(failed(error));
        }
    };
    // Comes after the cores, so that it goes before them if the server refuses.
    let state = making.locked();
    let client = Client::start(&runtime, options(&runtime).map_err(failed)?);
    let (welcome, volume) = match welcome(&reactors, &runtime, &client, silent).map_err(failed)? {
        Ok(welcomed) => welcomed,
        Err(refused) => return Err(refusal(&place, &refused)),
    };
    let stack = Arc::new(Stack::new(client.clone(), &volume.layers, &base::Limits::NONE));
    let (entries, cores) = (Entries::of(&runtime), Cores::new(reactors, "the mount has ended"));
    let server = server.unwrap_or_else(|| format!("the server {}", welcome.who));
    let (joined, told) = (None, Mutex::default());
    let memory_max_bytes = memory_max;
    Ok(Remote {
        state,
        place,
        server,
        runtime,
        cores,
        client,
        welcome,
        volume,
        stack,
        entries,
        memory_max_bytes,
        learned,
        joined,
        told,
    })
}

/// The membership of this name. Errors: none; those of reading its files.
pub fn membership(directory: &Path, name: &ClientName) -> Result<Membership> {
    Membership::read(&files(directory)?, name)
}

/// The files of memberships, locked. Another process may just be changing them: it is waited for.
fn files(directory: &Path) -> Result<Held> {
    let began = Instant::now();
    let directory = Directory::open(directory).map_err(|error| match error.kind {
        Kind::NotFound => {
            let what = "this machine has joined no cluster: make a token on the server (sinter token create BRICK --volume \
                        VOLUME), and here: sinter client join TOKEN";
            Error::new(Kind::NotFound, what)
        }
        _ => error,
    })?;
    loop {
        match Held::lock(directory.clone(), |from, to| std::fs::rename(from, to)) {
            Err(error) if error.kind == Kind::Busy && began.elapsed() < CHANGING => std::thread::sleep(PAUSE),
            locked => return locked,
        }
    }
}

/// The servers' addresses, each name looked up.
fn resolved(membership: &Membership) -> Result<Vec<Address>> {
    let (mut found, mut failed) = (Vec::new(), None);
    for address in &membership.addresses {
        match address.to_string().to_socket_addrs() {
            Ok(addresses) => found.extend(addresses.map(Address::Tcp)),
            Err(error) => failed = Some((address, error)),
        }
    }
    match failed {
        Some((address, error)) if found.is_empty() => {
            let what = "the server's name is not known: look at DNS, or at the addresses in the file of /etc/sinter";
            Err(Error::new(Kind::Host, what).with(address).with(error))
        }
        _ => Ok(found),
    }
}

/// The name by which a server's operator knows this machine.
fn who(membership: &Membership) -> Box<str> {
    let named = membership.identity().ok().and_then(|identity| match identity.subject.bearer {
        control::Bearer::Client(name) => Some(name.as_str().into()),
        control::Bearer::Brick(_) => None,
    });
    named.unwrap_or_else(|| membership.name.as_str().into())
}

fn credentials(membership: &Membership, runtime: &Runtime, encryption: Encryption) -> Result<(Credentials, Box<str>)> {
    let (certificate, ca) = (&membership.certificate.0, &membership.ca.0);
    let bearer = Bearer { chain: vec![certificate.clone().into()], key: membership.key.0.clone().into() };
    let credentials = Credentials::of_client(Some(&bearer), Authority::Known(ca), runtime.clock.clone())?;
    Ok((credentials.with(encryption), server_name(membership.cluster).into()))
}

/// Waits for the server's welcome. Errors: it can't be reached; the reason why it does not let the client in.
fn welcome(
    reactors: &Reactors,
    runtime: &Runtime,
    client: &Arc<Client>,
    silent: &'static str,
) -> Result<std::result::Result<(HelloOk, base::Volume), Refused>> {
    let (there, clock) = (client.clone(), runtime.clock.clone());
    let welcomed = reactors.run(0, move || async move {
        let mut welcomed = None;
        either(async { welcomed = Some(there.welcome().await) }, clock.sleep(FIRST.as_nanos() as u64)).await;
        welcomed
    })?;
    match welcomed {
        Some(Ok(mut welcome)) => {
            let nothing = || Error::new(Kind::Corrupt, "the server has welcomed this machine to no volume");
            let volume = welcome.volume.take().ok_or_else(nothing)?;
            Ok(Ok((welcome, volume)))
        }
        Some(Err(refused)) => Ok(Err(refused)),
        None => {
            let why = client.reach().error;
            if let Some(error) = why.clone().filter(|error| error.kind == Kind::Busy) {
                return Err(error);
            }
            let why = why.map_or(format!("tried for {} s", FIRST.as_secs()), |error| error.to_string());
            Err(Error::new(Kind::Host, silent).with(why))
        }
    }
}

/// The failure of a mount that the server refuses.
fn refusal(place: &str, refused: &Refused) -> Failure {
    let exit = match refused.reason {
        Reason::Busy => Exit::InUse,
        Reason::Version => Exit::Newer,
        _ => Exit::Failed,
    };
    let (wrong, step) = failure::parts(&refused.text);
    let failure = Failure::new(exit, format!("can't mount {place}: {wrong}"));
    match step {
        Some(step) => failure.next(step),
        None => failure,
    }
}

impl Remote {
    /// The directory with its daemon's socket.
    pub fn directory(&self) -> &Directory {
        self.state.directory()
    }
    /// The volume that is mounted.
    pub fn volume(&self) -> &base::Volume {
        &self.volume
    }
    /// Its stack.
    pub fn stack(&self) -> &Arc<Stack> {
        &self.stack
    }
    /// Its session.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }
    /// The server's name.
    pub fn server_name(&self) -> String {
        self.welcome.who.to_string()
    }
    /// The directory where it keeps what it has learned of the way to the server. None if there can't be one.
    pub fn learned(&self) -> Option<Directory> {
        std::fs::create_dir_all(self.learned.parent()?).ok()?;
        crate::directory::make(&self.learned).ok()
    }
    /// The world that it lives in.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }
    /// The identity of its mounts' requests.
    pub fn identity(&self) -> Identity {
        let [a, b, c, d, ..] = self.welcome.cluster;
        let session: SessionId = self.client.session();
        Identity { volume: self.volume.id, root: self.volume.root, session, brick: u32::from_le_bytes([a, b, c, d]) }
    }
    /// The cores.
    pub fn reactors(&self) -> Result<Arc<Reactors>> {
        self.cores.get()
    }
    /// The bound of its memory.
    pub fn memory_max_bytes(&self) -> u64 {
        self.memory_max_bytes
    }
    /// The figures for `sinter status`.
    pub fn status(&self) -> Status {
        let cores = self.reactors().map_or(0, |reactors| reactors.cores());
        Status {
            brick: self.place.to_string(),
            server: Some(self.server()),
            shared: self.is_shared(),
            cores: cores as u32,
            buffer_bytes: self.runtime.slabs.bytes(),
            memory_max_bytes: self.memory_max_bytes,
            warnings: self.trouble().into_iter().chain(self.readable()).collect(),
            ..Status::default()
        }
    }
    fn server(&self) -> String {
        let (reach, all) = (self.client.reach(), self.client.connections_max());
        let server = if self.joined.is_some() { self.server_name() } else { self.server.clone() };
        format!("{server}, over {} of {all} connections", reach.connections)
    }
    /// True if others have the volume too, as the server told last; None while it is away.
    fn is_shared(&self) -> Option<bool> {
        let is_there = self.client.end_reason().is_none() && self.client.reach().away_since_ns.is_none();
        is_there.then(|| self.client.share().caches().caching == Caching::Shared)
    }
    /// The warning for as long as contents may go unencrypted.
    pub fn readable(&self) -> Option<String> {
        let who = &self.welcome.who;
        match (self.joined.as_ref()?.encryption, self.client.reach().is_clear) {
            (Encryption::On, _) => None,
            (Encryption::Off, true) => Some(format!(
                "contents go unencrypted over the network to the server {who}, as both sides were told (wire-encryption is off): who reads \
                 along there reads files; unmount, and mount without wire-encryption off, to encrypt"
            )),
            (Encryption::Off, false) => Some(format!(
                "wire-encryption is off for this mount, but not for the server {who}: it is encrypted until that is told so too"
            )),
        }
    }
    /// The obstacle between it and the server, and its time.
    fn trouble(&self) -> Option<String> {
        if let Some(refused) = self.client.end_reason() {
            let what = "has ended this mount's session, and all that is asked of it fails";
            return Some(format!("{} {what}: {}", self.server, refused.text));
        }
        let Reach { away_since_ns, error, .. } = self.client.reach();
        let seconds = (self.runtime.clock.now_ns() - away_since_ns?) / 1_000_000_000;
        let why = error.map_or(String::new(), |error| format!(" ({error})"));
        Some(format!("{} has been away for {seconds} s{why}: programs wait until it is back", self.server))
    }
    /// Asks for another certificate if this one is to be renewed. The outcome, for an operator.
    fn renew(&self) -> Option<String> {
        let joined = self.joined.as_ref()?;
        let mut looked = joined.looked.lock().expect("no panic while held");
        if looked.is_some_and(|looked| looked.elapsed() < RENEWAL_LOOK) {
            return None;
        }
        *looked = Some(Instant::now());
        let mut membership = joined.membership.lock().expect("no panic while held");
        let now_s = now_s(&self.runtime);
        if membership.identity().is_ok_and(|identity| now_s < identity.renewal_at_s()) {
            return None;
        }
        Some(match self.renewed(joined, &mut membership) {
            Ok(()) => "this machine's certificate was renewed".to_string(),
            Err(error) => format!("this machine's certificate can't be renewed, which is tried again: {error}"),
        })
    }
    fn renewed(&self, joined: &Joined, membership: &mut Membership) -> Result<()> {
        let present = credentials(membership, &self.runtime, Encryption::On)?;
        let addresses = joined.addresses.lock().expect("no panic while held").clone();
        let world = (&*self.reactors()?, &self.runtime);
        let chain = crate::join::renewed(world, addresses, &present, make_request(&membership.key)?)?;
        membership.renew(&files(&joined.memberships)?, chain)?;
        self.client.renew(credentials(membership, &self.runtime, joined.encryption)?.0);
        Ok(())
    }
    /// News since the last call, for an operator: of the way to the server, and of the certificate.
    pub fn news(&self) -> Vec<String> {
        let lost = self.client.news_of_loss().map(|(count, ino)| {
            let what = "was started anew and has lost changes that nobody had made durable";
            let who = &self.server;
            format!("{who} {what}, of {count} files (inode {} is one): who syncs them gets an error", ino.0)
        });
        let ways = self.news_of_way().into_iter().chain(self.look_for());
        ways.chain(lost).chain(self.renew()).chain(self.follow_layers()).collect()
    }
    /// Looks for a server that is away where its names lead by now, and where the membership's file says: one that has moved is found.
    fn look_for(&self) -> Option<String> {
        self.client.reach().away_since_ns?;
        // The sockets of a cluster on this machine stay where they are.
        let joined = self.joined.as_ref()?;
        let (name, cluster) = {
            let membership = joined.membership.lock().expect("no panic while held");
            (membership.name.clone(), membership.cluster)
        };
        let directory = joined.memberships.clone();
        let look = move || -> Result<Found> {
            let membership = membership(&directory, &name)?;
            if membership.cluster != cluster {
                return Err(Error::new(Kind::Invalid, "the file is of another cluster by now"));
            }
            let addresses = resolved(&membership)?;
            Ok((membership.addresses, addresses))
        };
        let (places, found) = joined.lookup.turn(look)?;
        // Another certificate is written together with them.
        joined.membership.lock().expect("no panic while held").addresses = places;
        let mut addresses = joined.addresses.lock().expect("no panic while held");
        if found.is_empty() || found.iter().all(|address| addresses.contains(address)) {
            return None;
        }
        let told: Vec<String> = found.iter().map(Address::to_string).collect();
        self.client.move_to(found.clone());
        *addresses = found;
        Some(format!("the server {} is looked for at {} now", self.welcome.who, told.join(", ")))
    }
    /// Puts the volume's layers in place as the server has them: who changes them there hangs up, and the next welcome tells them.
    fn follow_layers(&self) -> Option<String> {
        let volume = self.client.volume()?;
        self.stack.put(self.stack.plan_of(&volume.layers)?);
        Some(format!("the server has changed the volume's layers: there are {} now", volume.layers.len()))
    }
    fn news_of_way(&self) -> Option<String> {
        let now = match (self.client.end_reason(), self.client.reach().away_since_ns) {
            (Some(_), _) => Told::Over,
            (None, Some(_)) => Told::Away,
            (None, None) => Told::Up,
        };
        let before = std::mem::replace(&mut *self.told.lock().expect("no panic while held"), now);
        match now {
            _ if before == now => None,
            Told::Up => Some(format!("{} is back", self.server)),
            Told::Away | Told::Over => self.trouble(),
        }
    }
    /// Answers what waits for a server that is away with errors, at the daemon's end.
    pub fn give_up_waiting(&self) {
        if self.client.reach().away_since_ns.is_some() {
            self.client.end();
        }
    }
    /// Has the server make durable what it has acknowledged, and ends the session. Errors: those of the server; it is away.
    pub fn commit(&self) -> Result<()> {
        let (stack, client, runtime) = (self.stack.clone(), self.client.clone(), self.runtime.clone());
        let volume = self.volume.id;
        let committed = on_core(&*self.reactors()?, move || async move {
            let context = Context::own(volume, Span::start(runtime.stamp()));
            let (mut committed, patience_ns) = (None, LAST.as_nanos() as u64);
            let sync = async { committed = Some(stack.call(&context, Call { op: Op::SyncAll, data: None }).await) };
            either(sync, runtime.clock.sleep(patience_ns)).await;
            client.close(patience_ns / 10).await;
            committed.unwrap_or_else(|| {
                let what = "the server is away: what was written and not synced may be lost if it does not come back";
                Err(Error::new(Kind::Interrupted, what))
            })
        });
        committed.map(drop)
    }
    /// Removes the daemon's directory and stops the cores, after `commit`.
    pub fn stop(&self) {
        self.state.remove();
        self.cores.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_from_paths() {
        let place: Place = "prod/home".parse().expect("a place");
        assert_eq!((place.name.as_str(), place.volume.as_str()), ("prod", "home"));
        assert_eq!(place.state(), Path::new("/run/sinter/prod/home"));
        for text in ["/srv/brick", "prod", "prod/", "/home", "./home", "../home", "prod/a/b", "pr od/home", ""] {
            let error = text.parse::<Place>().expect_err(text);
            assert!(error.kind == Kind::Invalid && error.what.contains("NAME/VOLUME"), "{text}");
        }
    }
}
