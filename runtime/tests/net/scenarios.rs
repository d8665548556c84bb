//! Scenarios that must hold of connections, whoever performs them. A server's part runs on tasks of the server, the client's part in
//! the test's own future.

use base::Kind;
use runtime::net::Net;
use runtime::tasks::{both, either};
use runtime::{Address, Buf, ConnectionId, ListenerId, Runtime, Slice};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The place of a scenario.
#[derive(Clone)]
pub struct Stage {
    pub server: Runtime,
    pub client: Runtime,
    /// An address at which the server may listen and which the client reaches, with port 0 if it is one of TCP.
    pub address: Address,
    /// An address of the same kind at which nobody listens.
    pub nobody: Address,
}

/// A scenario.
pub type Scenario = fn(Stage) -> Pin<Box<dyn Future<Output = ()>>>;

/// All scenarios, by name.
pub const ALL: [(&str, Scenario); 14] = [
    ("echoes of all sizes", |stage| Box::pin(echoes_of_all_sizes(stage))),
    ("many connections", |stage| Box::pin(many_connections(stage))),
    ("both directions at once", |stage| Box::pin(both_directions_at_once(stage))),
    ("end of stream", |stage| Box::pin(end_of_stream(stage))),
    ("close during receive", |stage| Box::pin(close_during_receive(stage))),
    ("close of the listener", |stage| Box::pin(close_of_the_listener(stage))),
    ("a client that never reads", |stage| Box::pin(a_client_that_never_reads(stage))),
    ("nobody there", |stage| Box::pin(nobody_there(stage))),
    ("address in use", |stage| Box::pin(address_in_use(stage))),
    ("dropped receives", |stage| Box::pin(dropped_receives(stage))),
    ("dropped sends", |stage| Box::pin(dropped_sends(stage))),
    ("dropped accepts", |stage| Box::pin(dropped_accepts(stage))),
    ("dropped connects", |stage| Box::pin(dropped_connects(stage))),
    ("names", |stage| Box::pin(names(stage))),
];

const MIB: usize = 1 << 20;

/// The byte at a place of every test's stream: a pattern whose parts all differ.
fn byte_at(place: usize) -> u8 {
    (place ^ place >> 8 ^ place >> 16) as u8
}

/// A buffer with the bytes of a stream from a place on.
fn buffer(runtime: &Runtime, from: usize, length: usize) -> Buf {
    let mut buffer = runtime.buffer(length).expect("within the bound");
    buffer.iter_mut().zip(from..).for_each(|(byte, place)| *byte = byte_at(place));
    buffer
}

/// Slices with the bytes of a stream, in pieces of a size.
pub fn slices(runtime: &Runtime, from: usize, length: usize, piece: usize) -> Vec<Slice> {
    let places = (from..from + length).step_by(piece);
    let piece_at = |at: usize| {
        let length = piece.min(from + length - at);
        buffer(runtime, at, length).share().slice(0..length)
    };
    places.map(piece_at).collect()
}

/// Sends bytes of a stream.
pub async fn send(runtime: &Runtime, connection: ConnectionId, from: usize, length: usize) -> base::Result<()> {
    runtime.net.send(connection, slices(runtime, from, length, MIB)).await.1
}

/// Receives exactly so many bytes of a stream, and checks them. Returns how many came before its end.
pub async fn receive(runtime: &Runtime, connection: ConnectionId, from: usize, length: usize) -> base::Result<usize> {
    let (buffer, result) = runtime.net.receive(connection, runtime.buffer(length)?, length).await;
    let came = result?;
    assert_eq!(buffer.len(), length);
    let wrong = buffer[..came].iter().zip(from..).position(|(byte, place)| *byte != byte_at(place));
    assert_eq!(wrong, None, "of {came} bytes from {from}");
    Ok(came)
}

/// Sends back all that comes on a connection, until its end.
async fn echo(runtime: Runtime, connection: ConnectionId) {
    let mut buffer = runtime.buffer(64 << 10).expect("within the bound");
    loop {
        let (filled, result) = runtime.net.receive(connection, buffer, 1).await;
        let came = result.unwrap_or(0);
        if came == 0 {
            break;
        }
        let slices = vec![filled.share().slice(0..came)];
        if runtime.net.send(connection, slices).await.1.is_err() {
            break;
        }
        buffer = runtime.buffer(64 << 10).expect("within the bound");
    }
    runtime.net.close(connection);
}

/// A server that echoes, on all of its cores. Returns its listener, and where that listens.
fn serve_echo(stage: &Stage) -> (ListenerId, Address) {
    let net = &stage.server.net;
    let listener = net.listen(&stage.address).expect("a free address");
    let address = net.address(listener).expect("it listens");
    for core in 0..stage.server.tasks.cores() {
        let server = stage.server.clone();
        stage.server.spawn(core, move || async move {
            while let Ok((connection, _)) = server.net.accept(listener).await {
                let runtime = server.clone();
                server.spawn(core, move || echo(runtime, connection));
            }
        });
    }
    (listener, address)
}

/// A connection: the client's end and the server's.
async fn pair(stage: &Stage) -> (ConnectionId, ConnectionId) {
    let listener = stage.server.net.listen(&stage.address).expect("a free address");
    let address = stage.server.net.address(listener).expect("it listens");
    let connecting = stage.client.net.connect(&address);
    let (server, client) = (stage.server.net.accept(listener).await, connecting.await);
    stage.server.net.close_listener(listener);
    (client.expect("somebody listens"), server.expect("somebody came").0)
}

async fn echoes_of_all_sizes(stage: Stage) {
    let client = &stage.client;
    let (listener, address) = serve_echo(&stage);
    let connection = client.net.connect(&address).await.expect("somebody listens");
    let mut from = 0;
    for length in [1, 2, 63, 64, 4095, 4096, 4097, 65_536, 65_537, MIB - 1, MIB] {
        // Many small parts too, more than one call of the kernel takes.
        let piece = if length <= 4097 { 3 } else { 100_000 };
        let send = async {
            let whole = slices(client, from, length, piece);
            let parts = whole.len();
            let (back, result) = client.net.send(connection, whole).await;
            assert_eq!((back.len(), result), (parts, Ok(())));
            Ok(length)
        };
        let (sent, came) = both(send, receive(client, connection, from, length)).await;
        assert_eq!((sent, came), (Ok(length), Ok(length)));
        from += length;
    }
    client.net.close(connection);
    stage.server.net.close_listener(listener);
}

async fn many_connections(stage: Stage) {
    let client = &stage.client;
    let (listener, address) = serve_echo(&stage);
    let left = Arc::new(AtomicU64::new(50));
    for number in 0..left.load(Ordering::Relaxed) {
        let (runtime, address, left) = (client.clone(), address.clone(), left.clone());
        client.spawn(number as usize % client.tasks.cores(), move || async move {
            let connection = runtime.net.connect(&address).await.expect("somebody listens");
            for round in 0..10 {
                let length = 1 + 977 * round;
                let sends = async { send(&runtime, connection, 0, length).await.map(|()| length) };
                let (sent, came) = both(sends, receive(&runtime, connection, 0, length)).await;
                assert_eq!((sent, came), (Ok(length), Ok(length)));
            }
            runtime.net.close(connection);
            left.fetch_sub(1, Ordering::Relaxed);
        });
    }
    while left.load(Ordering::Relaxed) > 0 {
        client.clock.sleep(1_000_000).await;
    }
    stage.server.net.close_listener(listener);
}

async fn both_directions_at_once(stage: Stage) {
    let (client, server) = pair(&stage).await;
    let send_all = |runtime: Runtime, connection| async move {
        for number in 0..8 {
            send(&runtime, connection, number * MIB, MIB).await.expect("it is open");
        }
    };
    let receive_all = |runtime: Runtime, connection| async move {
        for number in 0..8 {
            assert_eq!(receive(&runtime, connection, number * MIB, MIB).await, Ok(MIB));
        }
    };
    let sends = both(send_all(stage.client.clone(), client), send_all(stage.server.clone(), server));
    let receives = both(receive_all(stage.client.clone(), client), receive_all(stage.server.clone(), server));
    both(sends, receives).await;
    stage.client.net.close(client);
    stage.server.net.close(server);
}

async fn end_of_stream(stage: Stage) {
    let (client, server) = pair(&stage).await;
    send(&stage.client, client, 0, 10).await.expect("it is open");
    stage.client.net.close(client);
    assert_eq!(receive(&stage.server, server, 0, 64).await, Ok(10));
    for _ in 0..3 {
        assert_eq!(receive(&stage.server, server, 10, 64).await, Ok(0));
    }
    stage.server.net.close(server);
    // Of a connection that this end has closed nothing can be asked.
    let error = receive(&stage.client, client, 0, 1).await.expect_err("it is closed");
    assert_eq!(error.kind, Kind::Interrupted);
    let error = send(&stage.client, client, 0, 1).await.expect_err("it is closed");
    assert_eq!(error.kind, Kind::Interrupted);
    assert!(stage.client.net.way(client).is_err() && stage.client.net.caller(client).is_err());
    stage.client.net.close(client);
}

async fn close_during_receive(stage: Stage) {
    let (client, server) = pair(&stage).await;
    send(&stage.server, server, 0, 10).await.expect("it is open");
    let runtime = stage.client.clone();
    let close = async {
        runtime.clock.sleep(5_000_000).await;
        runtime.net.close(client);
        Ok(0)
    };
    let (result, _) = both(receive(&stage.client, client, 0, 64), close).await;
    let error = result.expect_err("10 are fewer than 64");
    assert_eq!((error.kind, error.to_string().contains("closed")), (Kind::Interrupted, true), "{error}");
    // The other end is told, as an end of the stream or as a broken connection.
    let told = receive(&stage.server, server, 0, 1).await;
    assert!(matches!(&told, Ok(0)) || told.is_err_and(|error| error.kind == Kind::Interrupted));
    stage.server.net.close(server);
}

async fn close_of_the_listener(stage: Stage) {
    let net = &stage.server.net;
    let listener = net.listen(&stage.address).expect("a free address");
    let address = net.address(listener).expect("it listens");
    let close = async {
        stage.server.clock.sleep(5_000_000).await;
        net.close_listener(listener);
    };
    let mut error = None;
    both(async { error = net.accept(listener).await.err() }, close).await;
    assert_eq!(error.expect("it has ended").kind, Kind::Interrupted);
    assert!(net.accept(listener).await.is_err() && net.address(listener).is_err());
    assert!(stage.client.net.connect(&address).await.is_err());
    // The address is free again.
    let again = net.listen(&address).expect("nobody listens there any more");
    net.close_listener(again);
}

async fn a_client_that_never_reads(stage: Stage) {
    let (client, server) = pair(&stage).await;
    let (net, clock) = (stage.server.net.clone(), stage.server.clock.clone());
    let before = stage.server.slabs.bytes();
    let mut sent = 0;
    let waits = loop {
        assert!(sent < 64 * MIB, "somewhere the bytes must stop");
        let mut result = Ok(());
        let sends = async { result = send(&stage.server, server, sent, MIB).await };
        if !either(sends, clock.sleep(200_000_000)).await {
            break true;
        }
        result.expect("it is open");
        sent += MIB;
    };
    assert!(waits && stage.server.slabs.bytes() <= before + 8 * MIB as u64);
    // The send that was dropped goes on as soon as the client reads, and takes no turn from the next one.
    assert_eq!(receive(&stage.client, client, 0, 100).await, Ok(100));
    for at in (0..sent + MIB).step_by(MIB) {
        let length = (sent + MIB - at).min(MIB);
        let skip = if at == 0 { 100 } else { 0 };
        assert_eq!(receive(&stage.client, client, at + skip, length - skip).await, Ok(length - skip));
    }
    // And a send that waits ends when the connection is closed.
    let mut result = Ok(());
    let sends = async {
        while result.is_ok() {
            result = send(&stage.server, server, 0, MIB).await;
        }
    };
    let close = async {
        clock.sleep(200_000_000).await;
        net.close(server);
    };
    both(sends, close).await;
    assert_eq!(result.expect_err("it is closed").kind, Kind::Interrupted);
    stage.client.net.close(client);
}

async fn nobody_there(stage: Stage) {
    let error = stage.client.net.connect(&stage.nobody).await.expect_err("nobody is there");
    let expected = match stage.nobody {
        Address::Tcp(_) => Kind::Host,
        Address::Local(_) => Kind::NotFound,
    };
    assert_eq!(error.kind, expected);
    assert!(
        error.to_string().contains("server runs") && error.to_string().contains(&stage.nobody.to_string()),
        "{error}"
    );
}

async fn address_in_use(stage: Stage) {
    let net = &stage.server.net;
    let listener = net.listen(&stage.address).expect("a free address");
    let address = net.address(listener).expect("it listens");
    let error = net.listen(&address).expect_err("it is in use");
    assert_eq!(error.kind, Kind::Busy);
    assert!(error.to_string().contains("another") && error.to_string().contains(&address.to_string()), "{error}");
    net.close_listener(listener);
    let again = net.listen(&address).expect("it is free again");
    net.close_listener(again);
}

/// Polls a future once or for a while, and drops it.
async fn give_up(runtime: &Runtime, future: impl Future, after_ns: u64) {
    either(async { drop(future.await) }, runtime.clock.sleep(after_ns)).await;
}

async fn dropped_receives(stage: Stage) {
    let (client, server) = pair(&stage).await;
    let runtime = &stage.client;
    let take = |length| runtime.net.receive(client, runtime.buffer(length).expect("within the bound"), length);
    // Before anything comes, while it comes, and when it is there but was not looked at.
    give_up(runtime, take(1000), 1_000_000).await;
    give_up(runtime, take(10), 1_000).await;
    send(&stage.server, server, 0, 300).await.expect("it is open");
    give_up(runtime, take(1000), 3_000_000).await;
    let unseen = take(7);
    runtime.clock.sleep(3_000_000).await;
    drop(unseen);
    send(&stage.server, server, 300, 300).await.expect("it is open");
    give_up(runtime, take(4000), 3_000_000).await;
    drop(take(4));
    let mut from = 0;
    for length in [1, 7, 150, 42, 300, 100] {
        assert_eq!(receive(runtime, client, from, length).await, Ok(length));
        from += length;
    }
    give_up(runtime, take(4000), 1_000_000).await;
    send(&stage.server, server, from, 5).await.expect("it is open");
    stage.server.net.close(server);
    assert_eq!(receive(runtime, client, from, 4000).await, Ok(5));
    assert_eq!(receive(runtime, client, 0, 1).await, Ok(0));
    runtime.net.close(client);
}

async fn dropped_sends(stage: Stage) {
    let (client, server) = pair(&stage).await;
    let runtime = &stage.client;
    // More than fits into the kernel's buffers: the other end reads later.
    let count = 24;
    let sends = async {
        for number in 0..count {
            let whole = slices(runtime, number * MIB, MIB, 100_000);
            let sending = runtime.net.send(client, whole);
            // A send that has not begun yet when it is dropped is not done at all, so each gets the time that it needs.
            if number % 2 == 0 { give_up(runtime, sending, 300_000_000).await } else { drop(sending.await) }
        }
    };
    let receives = async {
        for number in 0..count {
            assert_eq!(receive(&stage.server, server, number * MIB, MIB).await, Ok(MIB));
        }
    };
    both(sends, receives).await;
    runtime.net.close(client);
    stage.server.net.close(server);
}

async fn dropped_accepts(stage: Stage) {
    let net = &stage.server.net;
    let listener = net.listen(&stage.address).expect("a free address");
    let address = net.address(listener).expect("it listens");
    give_up(&stage.server, net.accept(listener), 1_000_000).await;
    let unseen = net.accept(listener);
    let first = stage.client.net.connect(&address).await.expect("somebody listens");
    stage.server.clock.sleep(3_000_000).await;
    drop(unseen);
    let (server, _) = net.accept(listener).await.expect("it has come");
    send(&stage.client, first, 0, 5).await.expect("it is open");
    assert_eq!(receive(&stage.server, server, 0, 5).await, Ok(5));
    net.close(server);
    assert_eq!(receive(&stage.client, first, 0, 5).await, Ok(0));
    stage.client.net.close(first);
    // One that nobody has taken is closed with the listener.
    let second = stage.client.net.connect(&address).await.expect("somebody listens");
    give_up(&stage.server, stage.server.clock.sleep(3_000_000), 4_000_000).await;
    net.close_listener(listener);
    let told = receive(&stage.client, second, 0, 1).await;
    assert!(matches!(&told, Ok(0)) || told.is_err_and(|error| error.kind == Kind::Interrupted));
    stage.client.net.close(second);
}

async fn dropped_connects(stage: Stage) {
    let net = &stage.server.net;
    let listener = net.listen(&stage.address).expect("a free address");
    let address = net.address(listener).expect("it listens");
    drop(stage.client.net.connect(&address));
    let unseen = stage.client.net.connect(&address);
    stage.client.clock.sleep(20_000_000).await;
    drop(unseen);
    for _ in 0..2 {
        let (server, _) = net.accept(listener).await.expect("it has come");
        let told = receive(&stage.server, server, 0, 1).await;
        assert!(matches!(&told, Ok(0)) || told.is_err_and(|error| error.kind == Kind::Interrupted));
        net.close(server);
    }
    net.close_listener(listener);
}

async fn names(stage: Stage) {
    let net: &Arc<dyn Net> = &stage.client.net;
    let resolved = net.resolve(&stage.nobody.to_string()).expect("an address is its own name");
    assert_eq!(resolved, vec![stage.nobody.clone()]);
    for wrong in ["", "host", ":1", "host:port", "host:70000", "10.0.0.1"] {
        assert_eq!(net.resolve(wrong).expect_err("it has no port").kind, Kind::Invalid, "{wrong}");
    }
    assert_eq!(net.resolve("no-such-machine.invalid:1").expect_err("nobody has it").kind, Kind::NotFound);
}
