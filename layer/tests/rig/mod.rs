//! A server and its clients on simulated hosts.

use base::limits::SEGMENT_BYTES_MIN;
use base::{Ino, Limits, Name, Op, RequestId, SessionId, VolumeId};
use group::{Answer, Context, Groups, Options, Scope};
use layer::{Call, Served, Stack};
use runtime::net::Address;
use runtime::sim::Hosts;
use runtime::{Runtime, Span};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::index::model::ModelIndex;
use store::{FormatOptions, Opening};
use wire::client::{Client, Options as ClientOptions};
use wire::server::Server;

pub const SERVER: usize = 0;
pub const PORT: u16 = 7400;
pub const MS: u64 = 1_000_000;
/// Number of seeds of a usual run.
pub const SEEDS: u64 = 8;

/// Number of seeds; `SINTER_SEEDS` asks for more.
pub fn seeds() -> u64 {
    std::env::var("SINTER_SEEDS").map_or(SEEDS, |seeds| seeds.parse().expect("a number of seeds"))
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

/// The server's process: a brick with the volume "main" that listens.
pub fn start_server(hosts: &Hosts, index: &ModelIndex, is_new: bool) {
    start_server_and(hosts, index, is_new, |_, _| {});
}

/// The same, with something else in its process.
pub fn start_server_and(
    hosts: &Hosts,
    index: &ModelIndex,
    is_new: bool,
    then: impl FnOnce(Arc<Groups>, Arc<Server<Served>>) + Send + 'static,
) {
    let (runtime, index) = (hosts.runtime(SERVER), index.clone());
    let address = hosts.links().address(SERVER, PORT);
    let world = runtime.clone();
    world.spawn(0, move || async move {
        if is_new {
            let options = FormatOptions {
                size_bytes: Some(256 * SEGMENT_BYTES_MIN),
                segment_bytes: SEGMENT_BYTES_MIN,
                groups: 8,
                size_bytes_min: 0,
                ..FormatOptions::default()
            };
            store::format_brick(&runtime, options, async || Ok(())).await.expect("a blank disk can be formatted");
        }
        let opening = Opening::read(runtime.clone(), Arc::new(index), true).await.expect("a healthy brick opens");
        let (groups, _) = Groups::open(opening, Options::for_memory(256 << 20)).await.expect("a healthy brick replays");
        groups.forget_sessions().await.expect("a healthy brick forgets");
        if is_new {
            let context = Context::own(VolumeId(0), Span::start(runtime.stamp()));
            let create = Op::VolumeCreate { name: name("main"), size_bytes: None };
            groups.call(&context, create, None).await.expect("a new volume");
        }
        let known: Vec<_> = groups.network_sessions(Scope::All).iter().map(|known| known.session).collect();
        let listener = runtime.net.listen(&address).expect("nobody listens there");
        let stacks = groups.clone();
        let stack_of = move |volume: &base::Volume| Arc::new(Stack::new(stacks.clone(), &[], &volume.limits));
        let served = Arc::new(Served::new(groups.clone(), "server", [7; 16], stack_of));
        then(groups, Server::start(&runtime, listener, None, served, &known));
    });
}

/// A mount of the client, as its tasks use it.
#[derive(Clone)]
pub struct Mount {
    pub runtime: Runtime,
    pub stack: Arc<Stack>,
    /// The client; None for a mount of the server itself.
    pub client: Option<Arc<Client>>,
    pub root: Ino,
    pub volume: VolumeId,
    /// The session of a mount of the server itself, and its requests so far.
    pub session: SessionId,
    pub requests: Arc<AtomicU64>,
}

impl Mount {
    pub async fn new(runtime: Runtime, address: Address) -> Mount {
        Mount::at(runtime, vec![address]).await
    }
    /// A mount of whoever serves at one of several addresses.
    pub async fn at(runtime: Runtime, addresses: Vec<Address>) -> Mount {
        let (volume, who) = (name("main"), "client".into());
        let options = ClientOptions { addresses, volume, who, read_only: false, credentials: None, soft_ns: None };
        let client = Client::start(&runtime, options);
        let volume = client.welcome().await.expect("it is let in").volume.expect("it asked for one");
        let stack = Arc::new(Stack::new(client.clone(), &[], &Limits::NONE));
        let (session, requests) = (client.session(), Arc::default());
        Mount { runtime, stack, client: Some(client), root: volume.root, volume: volume.id, session, requests }
    }
    pub fn client(&self) -> &Arc<Client> {
        self.client.as_ref().expect("a client's mount")
    }
    pub async fn call(&self, op: Op, data: Option<&[u8]>) -> base::Result<Answer> {
        let own = Context::own(self.volume, Span::start(self.runtime.stamp()));
        // A client numbers its requests itself.
        let request = match &self.client {
            Some(_) => RequestId(0),
            None => RequestId(self.requests.fetch_add(1, Ordering::Relaxed) + 1),
        };
        let context = Context { keeps: true, session: self.session, request, ..own };
        let data = data.map(|bytes| {
            let mut buffer = self.runtime.buffer(bytes.len()).expect("within the bound");
            buffer.copy_from_slice(bytes);
            buffer
        });
        self.stack.call(&context, Call { op, data }).await
    }
}

/// Waits for something, in simulated time.
pub async fn until(hosts: &Hosts, mut what: impl FnMut() -> bool) {
    while !what() {
        hosts.clock().sleep(MS).await;
    }
}
