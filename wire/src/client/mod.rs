//! The side of a client's process: a volume's session with its server, or, if the volume's groups have a leader each, one with each leader
//! under the same number.
//!
//! Promises: a request takes effect once, whatever becomes of connections and of the server's process (rule P9); a failover is no
//! error: a request waits until the server is back. Absent by design: caches, and who decides how long to wait.

mod account;
mod changes;
mod holdings;
mod join;
mod patience;
mod search;
mod session;
mod sharing;
mod window;

use crate::codec::hello::{HelloOk, Refused};
use crate::tls::Credentials;
use crate::{Answer, Context};
use account::Account;
pub use account::{Trips, Ways};
use base::{Error, GroupId, Ino, Kind, Name, Op, Reply, Result, SessionId, Volume};
pub use changes::{NUMBER_BITS, handle_since, number_of};
pub use join::join;
use runtime::net::Address;
use runtime::tasks::either;
use runtime::{Buf, Event, Runtime};
use session::{Part, Session};
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};

/// The wishes of a client.
#[derive(Clone)]
pub struct Options {
    /// The addresses where the server listens, at least one. They are tried in turn.
    pub addresses: Vec<Address>,
    /// The volume.
    pub volume: Name,
    /// The client's name, for people.
    pub who: Box<str>,
    /// True if it wants to change nothing.
    pub read_only: bool,
    /// The client's credentials, and the name that the server's certificate must have; None on one machine.
    pub credentials: Option<(Credentials, Box<str>)>,
    /// Nanoseconds for which it waits for a server that is away before it answers with an error; None: for ever.
    pub soft_ns: Option<u64>,
}

/// The way to the server, as an operator wants to know it.
#[derive(Clone, Default, Debug)]
pub struct Reach {
    /// Connections that are up; one per core, if all is well.
    pub connections: usize,
    /// The time since which there is none; None while there is one, or before the first one.
    pub away_since_ns: Option<u64>,
    /// The reason why the last connection broke or was not made.
    pub error: Option<Error>,
    /// True if content goes in the clear over the connection that was made last: both ends were told so.
    pub is_clear: bool,
}

/// The time for servers to note that a session ends because another one was ended.
const LEAVE_NS: u64 = 1_000_000_000;

/// A volume at its server, or at those who lead its groups; see the module.
pub struct Client {
    runtime: Runtime,
    part: Part,
    /// The session with the server, or with the leader of group 0.
    first: Arc<Session>,
    /// Those with the leaders of all other groups, in their order, once the first one was let in; none, if a server has all groups.
    others: OnceLock<Box<[Arc<Session>]>>,
    begun: Event,
}

impl Client {
    /// Starts a client. It connects by itself; `welcome` waits for it.
    pub fn start(runtime: &Runtime, options: Options) -> Arc<Client> {
        let part = Part {
            session: SessionId(runtime.random.next_u64() | 1),
            boot: runtime.random.next_u64(),
            group: GroupId(0),
            share: Arc::default(),
            accounts: (0..runtime.tasks.cores()).map(|_| Account::default()).collect(),
        };
        let first = Session::start(runtime, options.clone(), part.clone());
        let (others, begun) = (OnceLock::new(), Event::new());
        let client = Arc::new(Client { runtime: runtime.clone(), part, first, others, begun });
        let there = client.clone();
        runtime.spawn(0, move || begin(there, options));
        client
    }
    /// The number of its sessions.
    pub fn session(&self) -> SessionId {
        self.part.session
    }
    /// The world that the client lives in.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }
    /// All sessions that have begun.
    fn sessions(&self) -> impl Iterator<Item = &Arc<Session>> {
        [&self.first].into_iter().chain(self.others.get().into_iter().flatten())
    }
    /// The session with the server that has a group.
    fn with(&self, group: GroupId) -> &Arc<Session> {
        // A number of no group is one of no inode, as any server knows.
        let other = (group.0 as usize).checked_sub(1).and_then(|at| self.others.get()?.get(at));
        other.unwrap_or(&self.first)
    }
    /// The welcome of the server, or of the leader of group 0, once all have let the client in. Errors: the reason why one does not.
    pub async fn welcome(&self) -> Result<HelloOk, Refused> {
        self.first.welcome().await?;
        loop {
            let ticket = self.begun.ticket();
            if self.others.get().is_some() {
                break;
            }
            self.begun.after(ticket).await;
        }
        for session in self.sessions() {
            session.welcome().await?;
        }
        self.first.welcome().await
    }
    /// The volume as its server has told it last; None before its welcome.
    pub fn volume(&self) -> Option<Volume> {
        self.first.server.lock().welcome.as_ref().and_then(|welcome| welcome.volume.clone())
    }
    /// Shows other credentials from the next connection on: a renewed certificate.
    pub fn renew(&self, credentials: Credentials) {
        self.sessions().for_each(|session| session.renew(credentials.clone()));
    }
    /// Looks for servers at other addresses, at least one, from the next connection on.
    pub fn move_to(&self, addresses: Vec<Address>) {
        assert!(!addresses.is_empty(), "a server has an address");
        self.sessions().for_each(|session| session.move_to(addresses.clone()));
    }
    /// The way to the servers: the longest time for which one of them has been away.
    pub fn reach(&self) -> Reach {
        let mut all = Reach::default();
        for Reach { connections, away_since_ns, error, is_clear } in self.sessions().map(|session| session.reach()) {
            let is_away = away_since_ns.is_some() || connections == 0;
            all.connections += connections;
            all.away_since_ns = all.away_since_ns.into_iter().chain(away_since_ns).min();
            all.error = if is_away { error.or(all.error) } else { all.error.or(error) };
            all.is_clear |= is_clear;
        }
        all
    }
    /// Number of connections, if all are up.
    pub fn connections_max(&self) -> usize {
        self.sessions().map(|session| session.wires.len()).sum()
    }
    /// The reason why the sessions are over, if a server has ended one.
    pub fn end_reason(&self) -> Option<Refused> {
        self.sessions().find_map(|session| session.end_reason())
    }
    /// Performs an operation at the server. Waits while the server is away; with `soft_ns` for no longer than that.
    pub async fn call(self: &Arc<Client>, context: &Context, op: Op, data: Option<Buf>) -> Result<Answer> {
        let group = op.home().map_or(GroupId(0), Ino::group);
        let is_split = self.others.get().is_some_and(|others| !others.is_empty());
        if is_split && matches!(op, Op::Create { .. }) {
            return Box::pin(self.create(context, op)).await;
        }
        self.with(group).call(context, op, data).await
    }
    /// Creates a file, or opens the one that is there: it may be of another group than its directory, whose leader counts who has it open.
    async fn create(&self, context: &Context, op: Op) -> Result<Answer> {
        let group = op.home().map_or(GroupId(0), Ino::group);
        loop {
            let answer = self.with(group).call(context, op.clone(), None).await?;
            let Reply::Attr(attr) = &answer.reply else { return Ok(answer) };
            let (ino, home) = (attr.ino, attr.ino.group());
            if home == group {
                return Ok(answer);
            }
            match self.with(home).call(context, Op::Open { ino, truncate: false }, None).await {
                // Its name was taken away meanwhile: there may be another one, or none.
                Err(error) if error.kind == Kind::Stale => {}
                opened => return opened,
            }
        }
    }
    /// Ends the wait for requests that have these numbers for who asked, with an error. They are done all the same, if the server can.
    pub fn give_up_requests(&self, asked: RangeInclusive<u64>) {
        self.sessions().for_each(|session| session.give_up_requests(asked.clone()));
    }
    /// Number of losses so far, modulo 256, for a handle to keep that is opened now. Groups that have leaders lose nothing.
    pub fn losses(&self) -> u8 {
        self.first.losses()
    }
    /// True, once for each handle that was open then, if a restart of the server has lost a change of the inode: what an fsync through
    /// the handle has to say (rule P3). The handle's highest byte is `losses` at its open, of a file that was made with it those before.
    pub fn tell_loss_of(&self, ino: Ino, handle: u32) -> bool {
        self.with(ino.group()).tell_loss_of(ino, handle)
    }
    /// Number of inodes that have lost changes since the last call, for an operator, and one of them.
    pub fn news_of_loss(&self) -> Option<(u64, Ino)> {
        self.sessions().find_map(|session| session.news_of_loss())
    }
    /// Ends the sessions, and all requests that are under way with an error. Returns once the servers have noted that, or cannot be asked
    /// within so many nanoseconds: then they end the sessions when they have not heard of them for long.
    pub async fn close(&self, patience_ns: u64) {
        self.take_leave(patience_ns).await;
        self.end();
    }
    /// Tells the servers that the sessions end, and waits so long at most until they have noted that.
    async fn take_leave(&self, patience_ns: u64) {
        let told: Vec<_> = self.sessions().filter(|session| session.say_bye()).collect();
        let noted = async {
            for session in told {
                session.bye_is_noted().await;
            }
        };
        either(noted, self.runtime.clock.sleep(patience_ns)).await;
    }
    /// Answers all requests that are under way with an error, and asks nothing of any server any more.
    pub fn end(&self) {
        self.sessions().for_each(|session| session.end());
    }
}

/// Begins the sessions with the leaders of other groups, if there are such, and ends all when one is ended.
async fn begin(client: Arc<Client>, options: Options) {
    let groups = match client.first.welcome().await {
        Ok(welcome) => welcome.groups,
        Err(_) => 1,
    };
    client.part.share.expect(groups as usize);
    let session = |group| {
        let part = Part { group: GroupId(group), ..client.part.clone() };
        Session::start(&client.runtime, options.clone(), part)
    };
    let others: Box<[_]> = (1..groups).map(session).collect();
    assert!(client.others.set(others).is_ok(), "they begin once");
    client.begun.notify();
    if groups == 1 {
        return;
    }
    for (number, _) in client.sessions().enumerate() {
        let there = client.clone();
        client.runtime.spawn(0, move || async move {
            let session = there.sessions().nth(number).expect("it has begun").clone();
            let Some(refused) = session.ended().await else { return };
            // What is open and locked in one group goes with what is in the others.
            there.take_leave(LEAVE_NS).await;
            there.sessions().for_each(|session| session.end_for(&refused));
        });
    }
}

fn gone() -> Error {
    Error::new(Kind::Interrupted, "the server has ended the connection")
}

fn unexpected() -> Error {
    Error::new(Kind::Corrupt, "the server has sent a message that it does not send here")
}
