//! Lanes between two hosts, plain, encrypted and with tags: frames arrive in order, whole and unchanged, and secrets are encrypted.

mod certificates;

use base::{Ino, Op, RequestId, SessionId};
use certificates::Signer;
use runtime::net::Address;
use runtime::random::SplitMix;
use runtime::real::{self, Directory};
use runtime::sim::{Fleet, LinkPlan, Setup};
use runtime::{Buf, Runtime, Slice};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use wire::codec::Body;
use wire::codec::hello::{Hello, HelloOk, Join, Joined, Refused};
use wire::codec::session::{Changed, Held};
use wire::lane::{Lane, Reader};
use wire::server::{Admission, Server, Service};
use wire::tls::{Credentials, Encryption, Tls};
use wire::{Answer, Context, FrameKind, Header, frame};

/// Frames in each direction.
const FRAMES: u64 = 60;
/// The same, and the most bytes of a payload: as usual, and where each byte is an event.
const USUAL: (u64, u64) = (FRAMES, 1 << 20);
const SLOW: (u64, u64) = (5, 5_000);
const NAME: &str = "server.sinter";

/// Bytes that follow from a number, up to as many as a frame may have.
fn bytes(number: u64, most: u64) -> Vec<u8> {
    let mut rng = SplitMix(number);
    let length = if rng.one_in(8) { rng.below(most) } else { rng.below(5_000) };
    (0..length).map(|at| (at * 7 + number) as u8).collect()
}

/// Sends frames, and takes as many of the other end.
async fn talk(runtime: Runtime, lane: Arc<Lane>, (frames, most): (u64, u64), ended: Arc<AtomicUsize>) {
    let (sender, world) = (lane.clone(), runtime.clone());
    runtime.spawn(runtime.tasks.core(), move || async move {
        for number in 0..frames {
            let (body, payload) = (bytes(number, most.min(100_000)), bytes(number + 1000, most));
            let payload = slice(&world, &payload).await;
            let header = Header { request: RequestId(number), ..Header::new(FrameKind::Op) };
            let length = payload.as_ref().map_or(0, |payload| payload.len());
            sender.outbox.room().await;
            sender.outbox.push(payload, |out| frame::put(out, header, length, |out| out.extend_from_slice(&body)));
        }
    });
    let mut reader = Reader::new(&runtime, &lane);
    for number in 0..frames {
        let came = reader.next().await.expect("a frame").expect("the stream goes on");
        assert_eq!(came.header.request, RequestId(number));
        assert!(reader.body() == bytes(number, most.min(100_000)), "the body of frame {number}");
        let payload = came.payload.map_or(Vec::new(), |payload| payload.to_vec());
        assert!(payload == bytes(number + 1000, most), "the payload of frame {number}");
    }
    ended.fetch_add(1, Ordering::Relaxed);
}

async fn slice(runtime: &Runtime, bytes: &[u8]) -> Option<Slice> {
    if bytes.is_empty() {
        return None;
    }
    let mut buffer = runtime.own_buffer(bytes.len()).await.expect("memory");
    buffer.copy_from_slice(bytes);
    Some(buffer.share().slice(0..bytes.len()))
}

/// Frames as they are, encrypted, and in the clear with tags.
const PROTECTIONS: [Option<Encryption>; 3] = [None, Some(Encryption::On), Some(Encryption::Off)];

/// The credentials of both ends.
type Both = Option<(Credentials, Credentials)>;

fn credentials(server: &Runtime, client: &Runtime, encryption: Encryption) -> Both {
    let signer = Signer::new();
    Some((signer.server(NAME, server).0.with(encryption), signer.client("client", client).with(encryption)))
}

/// Connects both ends and has them talk; the number of those that are through.
fn converse(server: &Runtime, client: &Runtime, address: Address, both: Both, load: (u64, u64)) -> Arc<AtomicUsize> {
    let ended = Arc::new(AtomicUsize::new(0));
    let (of_server, of_client) = both.unzip();
    let listener = server.net.listen(&address).expect("nobody listens there");
    let address = server.net.address(listener).expect("it listens");
    let (runtime, progress) = (server.clone(), ended.clone());
    server.spawn(0, move || async move {
        let (connection, _) = runtime.net.accept(listener).await.expect("it connects");
        let tls = of_server.map(|credentials| Tls::server(&credentials).expect("it begins"));
        talk(runtime.clone(), Lane::start(&runtime, connection, tls), load, progress).await;
    });
    let (runtime, progress) = (client.clone(), ended.clone());
    client.spawn(1, move || async move {
        let connection = runtime.net.connect(&address).await.expect("it is let in");
        let tls = of_client.map(|credentials| Tls::client(&credentials, NAME).expect("it begins"));
        talk(runtime.clone(), Lane::start(&runtime, connection, tls), load, progress).await;
    });
    ended
}

#[test]
fn frames_arrive_whole_and_in_order_between_simulated_hosts() {
    for seed in 0..6 {
        for protection in PROTECTIONS {
            let mut fleet = Fleet::with_patience(seed, 3_600_000_000_000);
            let hosts = fleet.hosts().clone();
            (0..2).for_each(|number| drop(hosts.boot(number, Setup::new(seed))));
            let mut rng = SplitMix(seed);
            hosts.links().set_plan(0, 1, LinkPlan::draw(&mut rng));
            hosts.links().set_plan(1, 0, LinkPlan::draw(&mut rng));
            let (server, client) = (hosts.runtime(0), hosts.runtime(1));
            let both = protection.and_then(|encryption| credentials(&server, &client, encryption));
            let ended = converse(&server, &client, hosts.links().address(0, 7400), both, USUAL);
            fleet.block_on(async {
                while ended.load(Ordering::Relaxed) < 2 {
                    hosts.clock().sleep(1_000_000).await;
                }
            });
        }
    }
}

/// Frames that are to be sent count once for the bound, though a send takes only a part of them.
#[test]
fn what_waits_behind_a_send_counts_once() {
    let mut fleet = Fleet::with_patience(1, 3_600_000_000_000);
    let hosts = fleet.hosts().clone();
    (0..2).for_each(|number| drop(hosts.boot(number, Setup::new(1))));
    let (server, client) = (hosts.runtime(0), hosts.runtime(1));
    let listener = server.net.listen(&hosts.links().address(0, 7400)).expect("nobody listens there");
    let address = hosts.links().address(0, 7400);
    let ended = Arc::new(AtomicUsize::new(0));
    let progress = ended.clone();
    client.clone().spawn(1, move || async move {
        let connection = client.net.connect(&address).await.expect("it is let in");
        let lane = Lane::start(&client, connection, None);
        let payload = slice(&client, &[1; 4096]).await.expect("a block");
        let header = Header::new(FrameKind::Op);
        let frame = |out: &mut Vec<u8>| frame::put(out, header, 4096, |_| ());
        // The first one is being sent, to an end that takes nothing.
        for _ in 0..1_200 {
            assert!(lane.outbox.push_within(8 << 20, Some(payload.clone()), frame), "not 5 of 8 MiB are there");
        }
        client.clock.sleep(1_000_000_000).await;
        let more = (0..2_000).take_while(|_| lane.outbox.push_within(8 << 20, Some(payload.clone()), frame)).count();
        assert!((700..1_100).contains(&more), "{more} further blocks of the 3 MiB that are left, and what was sent");
        progress.fetch_add(1, Ordering::Relaxed);
    });
    fleet.block_on(async {
        server.net.accept(listener).await.expect("it connects");
        while ended.load(Ordering::Relaxed) < 1 {
            hosts.clock().sleep(1_000_000).await;
        }
    });
}

/// Each byte comes alone: every header, record and tag in as many parts as it has bytes.
#[test]
fn frames_arrive_whole_and_in_order_byte_by_byte() {
    for protection in PROTECTIONS {
        let mut fleet = Fleet::with_patience(1, 3_600_000_000_000);
        let hosts = fleet.hosts().clone();
        (0..2).for_each(|number| drop(hosts.boot(number, Setup::new(1))));
        let plan = LinkPlan { trickles: true, ..LinkPlan::draw(&mut SplitMix(1)) };
        hosts.links().set_plan(0, 1, plan);
        hosts.links().set_plan(1, 0, plan);
        let (server, client) = (hosts.runtime(0), hosts.runtime(1));
        let both = protection.and_then(|encryption| credentials(&server, &client, encryption));
        let ended = converse(&server, &client, hosts.links().address(0, 7400), both, SLOW);
        fleet.block_on(async {
            while ended.load(Ordering::Relaxed) < 2 {
                hosts.clock().sleep(1_000_000).await;
            }
        });
    }
}

#[test]
fn frames_arrive_whole_and_in_order_over_real_sockets() {
    let directory = std::env::temp_dir().join(format!("sinter-lanes-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("the temporary directory can be written");
    let there = Directory::open(&directory).expect("ours");
    let options = real::Options { cores: Some(2), ..real::Options::new(there, 256 << 20, &[]) };
    let (runtime, reactors) = real::start(options).expect("io_uring works here");
    for protection in PROTECTIONS {
        let both = protection.and_then(|encryption| credentials(&runtime, &runtime, encryption));
        let address = Address::Tcp("127.0.0.1:0".parse().expect("an address"));
        let ended = converse(&runtime, &runtime, address, both, USUAL);
        let (progress, clock) = (ended.clone(), runtime.clock.clone());
        let waited = reactors.run(0, move || async move {
            for _ in 0..20_000 {
                if progress.load(Ordering::Relaxed) == 2 {
                    break;
                }
                clock.sleep(1_000_000).await;
            }
        });
        assert_eq!((waited.is_ok(), ended.load(Ordering::Relaxed)), (true, 2), "{protection:?}");
    }
    reactors.stop();
    std::fs::remove_dir_all(directory).expect("the test made it");
}

/// Lets whoever asks join, and does nothing else.
struct Joins;

impl Service for Joins {
    type Volume = ();
    type Client = ();

    async fn recognise(&self, _: Option<&[u8]>, _: &Hello) -> Result<(), Refused> {
        unreachable!("nobody says hello here")
    }
    async fn join(&self, _: &Join, _: Option<&[u8]>) -> Result<Joined, Refused> {
        Ok(Joined { chain: vec![[7; 30].into()], about: [].into() })
    }
    async fn admit(&self, _: SessionId, _: &Hello, (): ()) -> Result<Admission<()>, Refused> {
        unreachable!("nobody says hello here")
    }
    async fn is_current(&self, _: &HelloOk) -> bool {
        true
    }
    async fn call(&self, (): &(), _: &Context, _: Op, _: Option<Buf>) -> base::Result<Answer> {
        unreachable!("nobody says hello here")
    }
    async fn reclaim(&self, _: SessionId, _: (&[Held], &[Changed]), _: bool, _: bool) -> base::Result<Vec<Ino>> {
        unreachable!("nobody says hello here")
    }
    fn answered(&self, _: SessionId, _: u64) {}
    async fn end(&self, _: SessionId) -> base::Result<()> {
        Ok(())
    }
}

/// A secret that somebody joins with is never in the clear: a client encrypts it whatever it was told, and a server that gets it otherwise
/// refuses it.
#[test]
fn who_joins_is_encrypted_whatever_both_sides_were_told() {
    let mut fleet = Fleet::with_patience(3, 3_600_000_000_000);
    let hosts = fleet.hosts().clone();
    (0..2).for_each(|number| drop(hosts.boot(number, Setup::new(3))));
    let (server, client) = (hosts.runtime(0), hosts.runtime(1));
    let (of_server, of_client) = credentials(&server, &client, Encryption::Off).expect("certificates");
    let address = hosts.links().address(0, 7400);
    let listener = server.net.listen(&address).expect("nobody listens there");
    let started = Server::start(&server, listener, Some(of_server), Arc::new(Joins), &[]);
    fleet.block_on(async {
        let join = Join { secret: [1; 16].into(), name: "c1".into(), request: [2; 30].into(), server: [].into() };
        let joined = wire::client::join(&client, &address, &(of_client.clone(), NAME.into()), &join).await;
        assert_eq!(joined.map(|joined| joined.chain), Ok(vec![Box::from([7; 30])]));
        // A client that does not care.
        let connection = client.net.connect(&address).await.expect("it is let in");
        let lane = Lane::start(&client, connection, Some(Tls::client(&of_client, NAME).expect("it begins")));
        let mut reader = Reader::new(&client, &lane);
        lane.outbox.push(None, |out| join.frame(out, Header::new(FrameKind::Join)));
        let came = reader.next().await.expect("a frame").expect("the stream goes on");
        assert!(lane.cipher.as_ref().is_some_and(wire::lane::Cipher::is_clear));
        assert_eq!(came.header.kind, FrameKind::Refused);
        let refused = Refused::decode(reader.body()).expect("it is whole");
        assert!(refused.text.contains("not encrypted"), "{}", refused.text);
        lane.close(&client);
        started.stop().await;
    });
}
