//! The same writes by gRPC: tonic with prost, one connection, each end a runtime with one thread of its own, on the CPU and with the priority
//! of one of our cores.
//!
//! Promises: the peer is as good as its settings make it: no delay of small segments, windows and frames of HTTP/2 that hold all that is
//! under way, payloads that are taken out of what was received without a copy, buffers of a message's size, and under TLS the cipher that
//! own frames have. Absent by design: what own requests do beyond it (checksums, numbers, retries).

use crate::certificates::{Both, NAME};
use crate::{DEPTH_MAX, IDLE, PAYLOAD_BYTES, Way};
use prost::bytes::Bytes;
use runtime::Runtime;
use rustls::crypto::{CryptoProvider, ring};
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddr};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tonic::body::Body;
use tonic::codec::{BufferSettings, Codec};
use tonic::codegen::tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::codegen::{BoxFuture, BoxStream, Service, http};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::{ProstDecoder, ProstEncoder};

const UNARY: &str = "/bench.Blocks/Write";
const STREAM: &str = "/bench.Blocks/Writes";
/// Windows of a stream and of a connection: more than is ever under way.
const WINDOW_BYTES: u32 = 8 << 20;
/// Largest frame of HTTP/2: all that is under way fits into one.
const FRAME_BYTES: u32 = 1 << 20;
/// Buffers in which messages are laid out: one for a write with its payload, and one for an answer.
const WRITE_BYTES: usize = PAYLOAD_BYTES + 64;
const WROTE_BYTES: usize = 64;

/// A write of a block, as much of it as `base::Op::Write` has.
#[derive(Clone, PartialEq, prost::Message)]
struct Write {
    #[prost(fixed64, tag = "1")]
    ino: u64,
    #[prost(uint64, tag = "2")]
    offset: u64,
    #[prost(uint32, tag = "3")]
    sync: u32,
    #[prost(bytes = "bytes", tag = "4")]
    payload: Bytes,
}

/// The answer.
#[derive(Clone, PartialEq, prost::Message)]
struct Wrote {
    #[prost(uint64, tag = "1")]
    offset: u64,
    #[prost(uint32, tag = "2")]
    length: u32,
}

impl Write {
    fn of(payload: &Bytes) -> Write {
        Write { ino: 2, offset: 0, sync: 1, payload: payload.clone() }
    }
    fn answer(&self) -> Wrote {
        Wrote { offset: self.offset, length: self.payload.len() as u32 }
    }
}

/// Prost's messages, in buffers of the size of what is sent.
struct Prost<Out, In> {
    buffer_bytes: usize,
    both: PhantomData<(Out, In)>,
}

impl<Out, In> Prost<Out, In> {
    fn new(buffer_bytes: usize) -> Prost<Out, In> {
        Prost { buffer_bytes, both: PhantomData }
    }
}

impl<Out: prost::Message + 'static, In: prost::Message + Default + 'static> Codec for Prost<Out, In> {
    type Encode = Out;
    type Decode = In;
    type Encoder = ProstEncoder<Out>;
    type Decoder = ProstDecoder<In>;

    fn encoder(&mut self) -> ProstEncoder<Out> {
        // Messages of a stream that are ready together go into one frame.
        ProstEncoder::new(BufferSettings::new(self.buffer_bytes, FRAME_BYTES as usize))
    }
    fn decoder(&mut self) -> ProstDecoder<In> {
        ProstDecoder::default()
    }
}

/// Answers a call of one write.
struct One;

impl tonic::server::UnaryService<Write> for One {
    type Response = Wrote;
    type Future = Ready<Result<Response<Wrote>, Status>>;

    fn call(&mut self, request: Request<Write>) -> Self::Future {
        ready(Ok(Response::new(request.get_ref().answer())))
    }
}

/// Answers the writes of a call in their order.
struct Many;

impl tonic::server::StreamingService<Write> for Many {
    type Response = Wrote;
    type ResponseStream = BoxStream<Wrote>;
    type Future = Ready<Result<Response<BoxStream<Wrote>>, Status>>;

    fn call(&mut self, request: Request<Streaming<Write>>) -> Self::Future {
        let answers = request.into_inner().map(|write| write.map(|write| write.answer()));
        ready(Ok(Response::new(Box::pin(answers))))
    }
}

/// The service, as a generator of code would write it.
#[derive(Clone)]
struct Blocks;

impl Service<http::Request<Body>> for Blocks {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }
    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(Prost::<Wrote, Write>::new(WROTE_BYTES));
            Ok(match request.uri().path() {
                UNARY => grpc.unary(One, request).await,
                STREAM => grpc.streaming(Many, request).await,
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}

/// Runs a future on a runtime and a thread of its own, for as long as the process lives.
fn on_a_thread<F: Future<Output = ()>>(world: &Runtime, core: usize, make: impl FnOnce() -> F + Send + 'static) {
    // A thread has the CPU and the priority of the one that starts it.
    world.spawn(core, move || async move {
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(make());
        });
    });
}

fn pem(tag: &str, der: &[u8]) -> String {
    pem::encode(&pem::Pem::new(tag, der))
}

fn identity(of: &wire::tls::Identity) -> Identity {
    let chain: String = of.chain.iter().map(|der| pem("CERTIFICATE", der)).collect();
    Identity::from_pem(chain, pem("PRIVATE KEY", &of.key))
}

/// The TLS of both ends: of their own certificates, and of each other's authority.
fn tls(both: &Both) -> (ServerTlsConfig, ClientTlsConfig) {
    let cipher_suites = vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256];
    let provider =
        CryptoProvider { cipher_suites, kx_groups: vec![ring::kx_group::X25519], ..ring::default_provider() };
    // The first way under TLS has done it already for the second one.
    drop(provider.install_default());
    let authority = Certificate::from_pem(pem("CERTIFICATE", &both.authority));
    let server = ServerTlsConfig::new().identity(identity(&both.server)).client_ca_root(authority.clone());
    let client = ClientTlsConfig::new().identity(identity(&both.client)).ca_certificate(authority).domain_name(NAME);
    (server, client)
}

/// Starts a server; its address.
fn serve(world: &Runtime, tls: Option<ServerTlsConfig>) -> SocketAddr {
    let (tell, told) = sync_channel(1);
    on_a_thread(world, 0, move || async move {
        let incoming = TcpIncoming::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        tell.send(incoming.local_addr().expect("it listens")).expect("somebody waits for it");
        let mut server = Server::builder()
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES);
        if let Some(tls) = tls {
            server = server.tls_config(tls).expect("good certificates");
        }
        server.serve_with_incoming(Blocks, incoming.with_nodelay(Some(true))).await.expect("it serves");
    });
    told.recv().expect("it starts")
}

type Client = tonic::client::Grpc<Channel>;

/// A client's end.
async fn connect(address: SocketAddr, tls: Option<ClientTlsConfig>) -> Client {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let mut endpoint = Channel::from_shared(format!("{scheme}://{address}"))
        .expect("an address")
        .tcp_nodelay(true)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES);
    if let Some(tls) = tls {
        endpoint = endpoint.tls_config(tls).expect("good certificates");
    }
    Client::new(endpoint.connect().await.expect("it is let in"))
}

/// Writes one block after the other by calls, while so many are to be under way.
async fn call(mut client: Client, payload: Bytes, task: usize, depth: Arc<AtomicUsize>, answered: Arc<AtomicU64>) {
    loop {
        if task >= depth.load(Ordering::Relaxed) {
            sleep(IDLE).await;
            continue;
        }
        client.ready().await.expect("it is connected");
        let path = http::uri::PathAndQuery::from_static(UNARY);
        let codec = Prost::<Write, Wrote>::new(WRITE_BYTES);
        let answer = client.unary(Request::new(Write::of(&payload)), path, codec).await.expect("it is answered");
        assert_eq!(answer.into_inner().length as usize, PAYLOAD_BYTES, "all was written");
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes blocks in one call, so many at a time.
async fn stream(mut client: Client, payload: Bytes, depth: Arc<AtomicUsize>, answered: Arc<AtomicU64>) {
    let (writes, queued) = mpsc::channel(DEPTH_MAX);
    client.ready().await.expect("it is connected");
    let path = http::uri::PathAndQuery::from_static(STREAM);
    let codec = Prost::<Write, Wrote>::new(DEPTH_MAX * WRITE_BYTES);
    let call = client.streaming(Request::new(ReceiverStream::new(queued)), path, codec).await;
    let mut answers = call.expect("it is let in").into_inner();
    let mut under_way = 0;
    loop {
        while under_way < depth.load(Ordering::Relaxed) {
            writes.send(Write::of(&payload)).await.expect("the call goes on");
            under_way += 1;
        }
        if under_way == 0 {
            sleep(IDLE).await;
            continue;
        }
        let answer = answers.message().await.expect("it is answered").expect("the call goes on");
        assert_eq!(answer.length as usize, PAYLOAD_BYTES, "all was written");
        under_way -= 1;
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// Calls of one write each, and one call of all writes.
pub fn ways(world: &Runtime, both: Option<&Both>) -> [Way; 2] {
    let [unary, streamed] = ["tonic unary", "tonic stream"].map(|name| Way::new(name, both));
    let start = || {
        let (of_server, of_client) = both.map(tls).unzip();
        (serve(world, of_server), of_client)
    };
    let payload = Bytes::from(vec![0; PAYLOAD_BYTES]);
    let (address, of_client) = start();
    let (depth, answered, block) = (unary.depth.clone(), unary.answered.clone(), payload.clone());
    on_a_thread(world, 1, move || async move {
        let client = connect(address, of_client).await;
        for task in 0..DEPTH_MAX {
            tokio::spawn(call(client.clone(), block.clone(), task, depth.clone(), answered.clone()));
        }
        std::future::pending().await
    });
    let (address, of_client) = start();
    let (depth, answered) = (streamed.depth.clone(), streamed.answered.clone());
    on_a_thread(
        world,
        1,
        move || async move { stream(connect(address, of_client).await, payload, depth, answered).await },
    );
    [unary, streamed]
}
