//! Own messages: frames alone, and a session's requests.
//!
//! Promises: both ends are cores of this process; a way sends nothing while its depth is 0. Absent by design: what carries them, which is
//! the product's.

use crate::certificates::{Both, NAME};
use crate::{DEPTH_MAX, IDLE, PAYLOAD, Way};
use base::{At, Ino, Name, Op, Reply, SessionId, Sync, VolumeId};
use runtime::net::Address;
use runtime::{Buf, Runtime, Slice, Span};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use wire::client::{Client, Options};
use wire::codec::hello::{Hello, HelloOk, Join, Joined, Refused};
use wire::codec::session::{Changed, Held};
use wire::lane::{Lane, Reader};
use wire::server::{Admission, Admitted, Server, Service};
use wire::tls::Tls;
use wire::{Answer, Context, FrameKind, Header, frame};

/// Time between two looks of a way that has nothing to do.
const IDLE_NS: u64 = IDLE.as_nanos() as u64;

/// The first inode: a core writes to the one of its number from there on.
const INO_FIRST: u64 = 2;
/// Time for a client's farewell.
const PATIENCE_NS: u64 = 1_000_000_000;
/// Connections that are tried until one is served by the core that it should be.
const TRIES: usize = 100;

/// Answers each write at once.
struct Echo {
    world: Runtime,
    /// The core that has served the last write of each core.
    served: [AtomicUsize; 2],
}

impl Service for Echo {
    type Volume = ();
    type Client = ();

    async fn recognise(&self, _: Option<&[u8]>, _: &Hello) -> Result<(), Refused> {
        Ok(())
    }
    async fn join(&self, _: &Join, _: Option<&[u8]>) -> Result<Joined, Refused> {
        unreachable!("nobody joins here")
    }
    async fn admit(&self, _: SessionId, _: &Hello, (): ()) -> Result<Admission<()>, Refused> {
        Ok(Admission::In(Admitted { welcome: HelloOk::bare("bench"), flow: None, volume: () }))
    }
    async fn call(&self, (): &(), _: &Context, op: Op, data: Option<Buf>) -> base::Result<Answer> {
        if let Op::Write { ino, .. } = op {
            self.served[(ino.0 - INO_FIRST) as usize].store(self.world.tasks.core(), Ordering::Relaxed);
        }
        let length = data.map_or(0, |data| data.len() as u32);
        Ok(Answer { reply: Reply::Wrote { offset: 0, length }, data: None, position: None })
    }
    async fn reclaim(&self, _: SessionId, _: (&[Held], &[Changed]), _: bool, _: bool) -> base::Result<Vec<Ino>> {
        Ok(Vec::new())
    }
    fn answered(&self, _: SessionId, _: u64) {}
    async fn end(&self, _: SessionId) -> base::Result<()> {
        Ok(())
    }
}

fn any_port() -> Address {
    Address::Tcp("127.0.0.1:0".parse().expect("an address"))
}

async fn payload(runtime: &Runtime) -> Slice {
    let bytes = PAYLOAD.load(Ordering::Relaxed);
    runtime.own_buffer(bytes).await.expect("memory").share().slice(0..bytes)
}

/// Frames between core 0 and core 1.
pub fn frames(runtime: &Runtime, both: Option<&Both>) -> Way {
    let way = Way::new("frames", both);
    let (of_server, of_client) = both.map(|both| both.credentials(runtime)).unzip();
    let listener = runtime.net.listen(&any_port()).expect("a free port");
    let address = runtime.net.address(listener).expect("it listens");
    let world = runtime.clone();
    runtime.spawn(0, move || async move {
        let (connection, _) = world.net.accept(listener).await.expect("it connects");
        let lane = Lane::start(&world, connection, of_server.map(|end| Tls::server(&end).expect("it begins")));
        let mut reader = Reader::new(&world, &lane);
        while let Ok(Some(came)) = reader.next().await {
            lane.bare(FrameKind::Reply, came.header);
        }
    });
    let (world, depth, answered) = (runtime.clone(), way.depth.clone(), way.answered.clone());
    runtime.spawn(1, move || async move {
        let connection = world.net.connect(&address).await.expect("it is let in");
        let lane = Lane::start(&world, connection, of_client.map(|end| Tls::client(&end, NAME).expect("it begins")));
        let mut reader = Reader::new(&world, &lane);
        let mut under_way = 0;
        loop {
            while under_way < depth.load(Ordering::Relaxed) {
                let header = Header::new(FrameKind::Op);
                let payload = payload(&world).await;
                let bytes = payload.len();
                lane.outbox.push(Some(payload), |out| frame::put(out, header, bytes, |_| ()));
                under_way += 1;
            }
            if under_way == 0 {
                world.clock.sleep(IDLE_NS).await;
                continue;
            }
            let Ok(Some(_)) = reader.next().await else { return };
            under_way -= 1;
            answered.fetch_add(1, Ordering::Relaxed);
        }
    });
    way
}

/// Requests of a session from these cores in turn, over a connection of each, which the other core serves.
pub fn requests(runtime: &Runtime, name: &'static str, cores: &[usize], both: Option<&Both>) -> Way {
    let way = Way::new(name, both);
    let (of_server, of_client) = both.map(|both| both.credentials(runtime)).unzip();
    let listener = runtime.net.listen(&any_port()).expect("a free port");
    let address = runtime.net.address(listener).expect("it listens");
    let echo = Arc::new(Echo { world: runtime.clone(), served: Default::default() });
    Server::start(runtime, listener, of_server, echo.clone(), &[]);
    let options = Options {
        addresses: vec![address],
        volume: Name::new(b"any").expect("a name"),
        who: "client".into(),
        read_only: false,
        credentials: of_client.map(|credentials| (credentials, NAME.into())),
        soft_ns: None,
    };
    let client = apart(runtime, &options, &echo, cores);
    for task in 0..DEPTH_MAX {
        let (world, client) = (runtime.clone(), client.clone());
        let (depth, answered) = (way.depth.clone(), way.answered.clone());
        runtime.spawn(cores[task % cores.len()], move || ask(world, client, task, (depth, answered)));
    }
    way
}

/// A client whose connections end at other cores than they begin: the kernel chooses, so it is asked until it has chosen so.
fn apart(runtime: &Runtime, options: &Options, echo: &Echo, cores: &[usize]) -> Arc<Client> {
    for _ in 0..TRIES {
        let client = Client::start(runtime, options.clone());
        let (tell, told) = sync_channel(cores.len());
        for &core in cores {
            let (world, client, tell) = (runtime.clone(), client.clone(), tell.clone());
            runtime.spawn(core, move || async move {
                write(&world, &client).await;
                tell.send(()).expect("somebody waits for it");
            });
        }
        cores.iter().for_each(|_| told.recv().expect("it is answered"));
        if cores.iter().all(|&core| echo.served[core].load(Ordering::Relaxed) != core) {
            return client;
        }
        runtime.spawn(0, move || async move { client.close(PATIENCE_NS).await });
    }
    panic!("{TRIES} connections, and each was served by the core that it came from");
}

/// Writes one block after the other, while so many are to be under way.
async fn ask(world: Runtime, client: Arc<Client>, task: usize, way: (Arc<AtomicUsize>, Arc<AtomicU64>)) {
    let (depth, answered) = way;
    loop {
        if task >= depth.load(Ordering::Relaxed) {
            world.clock.sleep(IDLE_NS).await;
            continue;
        }
        write(&world, &client).await;
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

async fn write(world: &Runtime, client: &Arc<Client>) {
    let buffer = world.own_buffer(PAYLOAD.load(Ordering::Relaxed)).await.expect("memory");
    let context = Context::own(VolumeId(1), Span::start(world.stamp()));
    let ino = Ino(INO_FIRST + world.tasks.core() as u64);
    let write = Op::Write { ino, at: At::Offset(0), sync: Sync::Ordered, kill_privileges: false };
    client.call(&context, write, Some(buffer)).await.expect("it is answered");
}
