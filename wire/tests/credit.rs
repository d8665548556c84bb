//! A client has a bounded number of bytes under way: it asks for no more, and one that does is read no further. Nothing is lost, and
//! others are served beside it.

use base::limits::{CONNECTION_BYTES_MAX, IO_BYTES_MAX, SESSION_BYTES_MAX};
use base::{At, Ino, Name, Op, Reply, RequestId, SessionId, Sync, VolumeId};
use runtime::net::Address;
use runtime::sim::{Fleet, Setup};
use runtime::{Buf, Event, Runtime, Span};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use wire::client::{Client, Options};
use wire::codec::hello::{Hello, HelloOk, Join, Joined, Refused, VERSIONS};
use wire::codec::session::{Changed, Held};
use wire::codec::{Body, Sums, op};
use wire::lane::{Lane, Reader};
use wire::server::{Admission, Admitted, Server, Service};
use wire::{Answer, Context, FrameKind, Header};

/// Bytes of a write, and the number of writes: twice what a connection may have under way.
const WRITE_BYTES: usize = 256 << 10;
const WRITES: usize = 128;
/// The inode whose writes wait until the test lets them go.
const SLOW: Ino = Ino(2);
const QUICK: Ino = Ino(3);
const MS: u64 = 1_000_000;

/// Holds writes of one inode back.
#[derive(Default)]
struct Slow {
    held_bytes: AtomicUsize,
    pulses: AtomicUsize,
    goes_on: AtomicBool,
    went_on: Event,
}

impl Service for Slow {
    type Volume = ();
    type Client = ();

    async fn recognise(&self, _: Option<&[u8]>, _: &Hello) -> Result<(), Refused> {
        Ok(())
    }
    async fn join(&self, _: &Join, _: Option<&[u8]>) -> Result<Joined, Refused> {
        unreachable!("nobody joins here")
    }
    async fn admit(&self, _: SessionId, _: &Hello, (): ()) -> Result<Admission<()>, Refused> {
        Ok(Admission::In(Admitted { welcome: HelloOk::bare("test"), flow: None, volume: () }))
    }
    async fn call(&self, (): &(), _: &Context, op: Op, data: Option<Buf>) -> base::Result<Answer> {
        let length = data.as_ref().map_or(0, |data| data.len());
        if matches!(op, Op::Write { ino: SLOW, .. }) {
            self.held_bytes.fetch_add(length, Ordering::Relaxed);
            loop {
                let ticket = self.went_on.ticket();
                if self.goes_on.load(Ordering::Relaxed) {
                    break;
                }
                self.went_on.after(ticket).await;
            }
            self.held_bytes.fetch_sub(length, Ordering::Relaxed);
        }
        Ok(Answer { reply: Reply::Wrote { offset: 0, length: length as u32 }, data: None, position: None })
    }
    async fn reclaim(&self, _: SessionId, _: (&[Held], &[Changed]), _: bool, _: bool) -> base::Result<Vec<Ino>> {
        Ok(Vec::new())
    }
    fn answered(&self, _: SessionId, _: u64) {
        self.pulses.fetch_add(1, Ordering::Relaxed);
    }
    async fn end(&self, _: SessionId) -> base::Result<()> {
        Ok(())
    }
}

fn client(runtime: &Runtime, address: &Address) -> Arc<Client> {
    let options = Options {
        addresses: vec![address.clone()],
        volume: Name::new(b"any").expect("a name"),
        who: "client".into(),
        read_only: false,
        credentials: None,
        soft_ns: None,
    };
    Client::start(runtime, options)
}

/// Writes to an inode so many times at once, on one core. Counts those that are answered.
fn write(client: &Arc<Client>, ino: Ino, times: usize) -> Arc<AtomicUsize> {
    let (answered, runtime) = (Arc::new(AtomicUsize::new(0)), client.runtime().clone());
    for _ in 0..times {
        let (client, world, answered) = (client.clone(), runtime.clone(), answered.clone());
        runtime.spawn(0, move || async move {
            let buffer = world.own_buffer(WRITE_BYTES).await.expect("memory");
            let context = Context::own(VolumeId(1), Span::start(world.stamp()));
            let write = Op::Write { ino, at: At::Offset(0), sync: Sync::Ordered, kill_privileges: false };
            client.call(&context, write, Some(buffer)).await.expect("it is answered");
            answered.fetch_add(1, Ordering::Relaxed);
        });
    }
    answered
}

/// A server, and two other hosts.
struct World {
    fleet: Fleet,
    runtimes: [Runtime; 3],
    address: Address,
    service: Arc<Slow>,
    _server: Arc<Server<Slow>>,
}

fn world() -> World {
    let fleet = Fleet::with_patience(1, 3_600_000_000_000);
    let hosts = fleet.hosts();
    (0..3).for_each(|number| drop(hosts.boot(number, Setup::new(1))));
    let (server, address) = (hosts.runtime(0), hosts.links().address(0, 7400));
    let service = Arc::new(Slow::default());
    let listener = server.net.listen(&address).expect("nobody listens there");
    let _server = Server::start(&server, listener, None, service.clone(), &[]);
    let runtimes = [0, 1, 2].map(|number| hosts.runtime(number));
    World { fleet, runtimes, address, service, _server }
}

/// Lets the writes go on that are held back.
fn go_on(service: &Slow) {
    service.goes_on.store(true, Ordering::Relaxed);
    service.went_on.notify();
}

#[test]
fn a_client_has_a_bounded_number_of_bytes_under_way_and_its_pulses_are_heard() {
    let World { mut fleet, runtimes, address, service, _server } = world();
    let (greedy, modest) = (client(&runtimes[1], &address), client(&runtimes[2], &address));
    let clock = fleet.hosts().clock().clone();
    fleet.block_on(async {
        let writes = write(&greedy, SLOW, WRITES);
        clock.sleep(20_000 * MS).await;
        assert_eq!(service.held_bytes.load(Ordering::Relaxed), SESSION_BYTES_MAX);
        assert_eq!(writes.load(Ordering::Relaxed), 0);
        // Two clients, 20 pulses each.
        let pulses = service.pulses.load(Ordering::Relaxed);
        assert!((36..=42).contains(&pulses), "{pulses} pulses were heard");
        let others = write(&modest, QUICK, 3);
        clock.sleep(2_000 * MS).await;
        assert_eq!(others.load(Ordering::Relaxed), 3, "another client is served");
        go_on(&service);
        clock.sleep(20_000 * MS).await;
        assert_eq!(writes.load(Ordering::Relaxed), WRITES, "nothing is lost");
        assert_eq!(service.held_bytes.load(Ordering::Relaxed), 0);
    });
}

/// A client that keeps to no bound: sends all writes at once. Returns its connection, on which the answers come.
async fn send_all(runtime: &Runtime, address: &Address) -> (Arc<Lane>, Reader) {
    let session = SessionId(77);
    let lane = Lane::start(runtime, runtime.net.connect(address).await.expect("it listens"), None);
    let mut reader = Reader::new(runtime, &lane);
    let (versions, who, volume) = (VERSIONS, "greedy".into(), Name::new(b"any").ok());
    let hello = Hello { versions, features: 0, cluster: None, who, boot: 1, volume, read_only: false, begins: true };
    let header = Header { session, ..Header::new(FrameKind::Hello) };
    lane.outbox.push(None, |out| hello.frame(out, header));
    let came = reader.next().await.expect("an answer").expect("an answer");
    assert_eq!(came.header.kind, FrameKind::HelloOk);
    for number in 1..=WRITES as u64 {
        let own = Context::own(VolumeId(1), Span::start(runtime.stamp()));
        let context = Context { session, request: RequestId(number), done: 1, ..own };
        let write = Op::Write { ino: SLOW, at: At::Offset(0), sync: Sync::Ordered, kill_privileges: false };
        let payload = runtime.own_buffer(WRITE_BYTES).await.expect("memory").share().slice(0..WRITE_BYTES);
        let (sums, asked) = (Sums::of_op(&write, &payload), (&context, &write));
        lane.outbox.push(Some(payload), |out| op::frame(out, Header::of(&context), asked, &sums, WRITE_BYTES));
    }
    (lane, reader)
}

#[test]
fn a_client_that_asks_for_more_is_read_no_further_until_it_has_answers() {
    let World { mut fleet, runtimes, address, service, _server } = world();
    let modest = client(&runtimes[2], &address);
    let clock = fleet.hosts().clock().clone();
    fleet.block_on(async {
        let (_lane, mut reader) = send_all(&runtimes[1], &address).await;
        clock.sleep(5_000 * MS).await;
        let held = service.held_bytes.load(Ordering::Relaxed);
        assert!(
            (CONNECTION_BYTES_MAX..CONNECTION_BYTES_MAX + IO_BYTES_MAX).contains(&held),
            "{held} bytes are under way"
        );
        let others = write(&modest, QUICK, 3);
        clock.sleep(2_000 * MS).await;
        assert_eq!(others.load(Ordering::Relaxed), 3, "another client is served");
        go_on(&service);
        for _ in 0..WRITES {
            let came = reader.next().await.expect("an answer").expect("an answer");
            assert_eq!(came.header.kind, FrameKind::Reply);
        }
    });
}
