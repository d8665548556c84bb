//! The cost of a message of 4 KiB and its answer between two processes of one machine, by what carries it:
//!
//! - `frames`: frames over TCP, without anything that looks into them;
//! - `requests`: writes of a client's session that a server answers at once: numbers, checksums, retries and all.
//!
//!     cargo run --release -p bench --bin wire [-- ROUNDS]
//!
//! Each plain and under TLS 1.3, at depths 1, 8 and 32, over one connection. Both ends are cores of one process, so that its CPU time is
//! that of both. Samples of all ways are interleaved; what is printed is the median.

use base::{At, Ino, Name, Op, Reply, SessionId, Sync, VolumeId};
use bench::figures::median;
use bench::process;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose as Purpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use runtime::net::Address;
use runtime::real::{self, Directory, Reactors};
use runtime::tasks::Local;
use runtime::{Buf, Runtime, Slice, Span};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use wire::client::{Client, Options};
use wire::codec::hello::{Caches, Caching, Hello, HelloOk, Join, Joined, Refused};
use wire::codec::session::{Changed, Held};
use wire::lane::{Lane, Reader};
use wire::server::{Admission, Admitted, Server, Service};
use wire::tls::{Authority, Credentials, Identity, Strangers, Tls};
use wire::{Answer, Context, FrameKind, Header, frame};

/// Bytes of a message's payload.
const PAYLOAD_BYTES: usize = 4096;
/// Time for which a sample counts.
const SAMPLE: Duration = Duration::from_millis(500);
/// Requests under way at a time.
const DEPTHS: [usize; 3] = [1, 8, 32];
/// Rounds of samples, unless the command line says how many; odd, for the median.
const ROUNDS: usize = 5;
const NAME: &str = "server.sinter";

fn spawn<F: Future<Output = ()> + 'static>(runtime: &Runtime, core: usize, make: impl FnOnce() -> F + Send + 'static) {
    runtime.tasks.spawn(core, Box::new(move || -> Local { Box::pin(make()) }));
}

/// The credentials of a server and of a client.
fn credentials(runtime: &Runtime) -> (Credentials, Credentials) {
    let key = || KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = key();
    let certificate = params.self_signed(&authority).expect("signed").der().to_vec();
    let issuer = Issuer::new(params, authority);
    let identity = |name: &str, purpose: Purpose| {
        let key = key();
        let mut params = CertificateParams::new(vec![name.to_string()]).expect("a name");
        params.extended_key_usages = vec![purpose];
        let signed = params.signed_by(&key, &issuer).expect("signed").der().to_vec();
        Identity { chain: vec![signed.into(), certificate.clone().into()], key: key.serialize_der().into() }
    };
    let (server, client) = (identity(NAME, Purpose::ServerAuth), identity("client", Purpose::ClientAuth));
    let clock = &runtime.clock;
    let server = Credentials::of_server(&server, &certificate, Strangers::Refused, clock.clone());
    let client = Credentials::of_client(Some(&client), Authority::Known(&certificate), clock.clone());
    (server.expect("good certificates"), client.expect("good certificates"))
}

/// Answers each write at once.
struct Echo;

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
        let (who, caches) = ("bench".into(), Caches { caching: Caching::Alone, number: 0 });
        let (features, cluster, boot, epoch, lease_ms) = (0, [0; 16], 1, 1, 10_000);
        let (version, volume, read_only, squash_root) = (1, None, false, false);
        let welcome =
            HelloOk { version, features, cluster, who, boot, epoch, lease_ms, volume, read_only, squash_root, caches };
        Ok(Admission::In(Admitted { welcome, flow: None, volume: () }))
    }
    async fn call(&self, (): &(), _: &Context, _: Op, data: Option<Buf>) -> base::Result<Answer> {
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

/// A way to carry messages, which are counted.
struct Way {
    name: &'static str,
    encrypts: bool,
    /// Messages that may be under way: the samples set it.
    depth: Arc<AtomicUsize>,
    answered: Arc<AtomicU64>,
}

fn any_port() -> Address {
    Address::Tcp("127.0.0.1:0".parse().expect("an address"))
}

async fn payload(runtime: &Runtime) -> Slice {
    let buffer = runtime.own_buffer(PAYLOAD_BYTES).await.expect("memory");
    buffer.share().slice(0..PAYLOAD_BYTES)
}

/// Frames between core 0 and core 1.
fn frames(runtime: &Runtime, both: Option<(Credentials, Credentials)>) -> Way {
    let encrypts = both.is_some();
    let way = Way { name: "frames", encrypts, depth: Arc::default(), answered: Arc::default() };
    let (of_server, of_client) = both.unzip();
    let listener = runtime.net.listen(&any_port()).expect("a free port");
    let address = runtime.net.address(listener).expect("it listens");
    let world = runtime.clone();
    spawn(runtime, 0, move || async move {
        let (connection, _) = world.net.accept(listener).await.expect("it connects");
        let lane = Lane::start(&world, connection, of_server.map(|end| Tls::server(&end).expect("it begins")));
        let mut reader = Reader::new(&world, &lane);
        while let Ok(Some(came)) = reader.next().await {
            lane.bare(FrameKind::Reply, came.header);
        }
    });
    let (world, depth, answered) = (runtime.clone(), way.depth.clone(), way.answered.clone());
    spawn(runtime, 1, move || async move {
        let connection = world.net.connect(&address).await.expect("it is let in");
        let lane = Lane::start(&world, connection, of_client.map(|end| Tls::client(&end, NAME).expect("it begins")));
        let mut reader = Reader::new(&world, &lane);
        let mut under_way = 0;
        loop {
            while under_way < depth.load(Ordering::Relaxed) {
                let header = Header::new(FrameKind::Op);
                let payload = payload(&world).await;
                lane.outbox.push(Some(payload), |out| frame::put(out, header, PAYLOAD_BYTES, |_| ()));
                under_way += 1;
            }
            if under_way == 0 {
                world.clock.sleep(1_000_000).await;
                continue;
            }
            let Ok(Some(_)) = reader.next().await else { return };
            under_way -= 1;
            answered.fetch_add(1, Ordering::Relaxed);
        }
    });
    way
}

/// Requests of a session, from core 1; the server takes its connection where it comes.
fn requests(runtime: &Runtime, both: Option<(Credentials, Credentials)>) -> Way {
    let encrypts = both.is_some();
    let way = Way { name: "requests", encrypts, depth: Arc::default(), answered: Arc::default() };
    let (of_server, of_client) = both.unzip();
    let listener = runtime.net.listen(&any_port()).expect("a free port");
    let address = runtime.net.address(listener).expect("it listens");
    Server::start(runtime, listener, of_server, Arc::new(Echo), &[]);
    let options = Options {
        addresses: vec![address],
        volume: Name::new(b"any").expect("a name"),
        who: "client".into(),
        read_only: false,
        credentials: of_client.map(|credentials| (credentials, NAME.into())),
        soft_ns: None,
    };
    let client = Client::start(runtime, options);
    for task in 0..DEPTHS[DEPTHS.len() - 1] {
        let (world, client, depth, answered) =
            (runtime.clone(), client.clone(), way.depth.clone(), way.answered.clone());
        spawn(runtime, 1, move || async move {
            loop {
                if task >= depth.load(Ordering::Relaxed) {
                    world.clock.sleep(1_000_000).await;
                    continue;
                }
                let buffer = world.own_buffer(PAYLOAD_BYTES).await.expect("memory");
                let context = Context::own(VolumeId(1), Span::start(world.stamp()));
                let write = Op::Write { ino: Ino(2), at: At::Offset(0), sync: Sync::Ordered, kill_privileges: false };
                client.call(&context, write, Some(buffer)).await.expect("it is answered");
                answered.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    way
}

/// Messages per second, and microseconds of CPU time per message.
fn sample(way: &Way, depth: usize) -> (f64, f64) {
    way.depth.store(depth, Ordering::Relaxed);
    // Others fall silent, and this one gets going.
    std::thread::sleep(SAMPLE / 10);
    let (before, cpu_before, start) = (way.answered.load(Ordering::Relaxed), process::cpu_ns(), Instant::now());
    std::thread::sleep(SAMPLE);
    let count = (way.answered.load(Ordering::Relaxed) - before) as f64;
    let (cpu_ns, took) = ((process::cpu_ns() - cpu_before) as f64, start.elapsed().as_secs_f64());
    way.depth.store(0, Ordering::Relaxed);
    (count / took, cpu_ns / 1000.0 / count)
}

fn started() -> (Runtime, Reactors, std::path::PathBuf) {
    let directory = std::env::temp_dir().join(format!("sinter-wire-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("the temporary directory can be written");
    let there = Directory::open(&directory).expect("ours");
    let options = real::Options { cores: Some(2), ..real::Options::new(there, 256 << 20, &[]) };
    let (runtime, reactors) = real::start(options).expect("io_uring works here");
    (runtime, reactors, directory)
}

fn main() {
    let rounds = std::env::args().nth(1).map_or(ROUNDS, |rounds| rounds.parse().expect("a number of rounds"));
    let (runtime, reactors, directory) = started();
    let both = || Some(credentials(&runtime));
    let ways = [frames(&runtime, None), frames(&runtime, both()), requests(&runtime, None), requests(&runtime, both())];
    let mut samples = vec![Vec::new(); ways.len() * DEPTHS.len()];
    for _ in 0..rounds {
        for (at, way) in ways.iter().enumerate() {
            for (depth_at, &depth) in DEPTHS.iter().enumerate() {
                samples[at * DEPTHS.len() + depth_at].push(sample(way, depth));
            }
        }
    }
    println!("{:<10} {:<6} {:>5} {:>12} {:>16}", "way", "TLS", "depth", "messages/s", "us CPU/message");
    for (at, samples) in samples.iter().enumerate() {
        let (way, depth) = (&ways[at / DEPTHS.len()], DEPTHS[at % DEPTHS.len()]);
        let rates: Vec<_> = samples.iter().map(|sample| sample.0).collect();
        let costs: Vec<_> = samples.iter().map(|sample| sample.1).collect();
        let tls = if way.encrypts { "yes" } else { "no" };
        println!("{:<10} {tls:<6} {depth:>5} {:>12.0} {:>16.2}", way.name, median(&rates), median(&costs));
    }
    reactors.stop();
    std::fs::remove_dir_all(directory).expect("it was made here");
}
