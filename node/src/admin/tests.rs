//! The socket under good, bad and slow clients.

use super::client::Client;
use super::protocol::*;
use super::server::{Daemon, Server};
use super::{SOCKET, SocketPath};
use crate::failure::Exit;
use crate::scratch::Scratch;
use base::{Error, Kind, Result};
use explain::Snapshot;
use explain::snapshot::Whole;
use runtime::real::Directory;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

struct Fake;

fn volume(name: &str) -> Volume {
    Volume {
        id: 1,
        name: name.to_string(),
        root: 1 << 20,
        created_ns: -5,
        size_bytes: None,
        used_bytes: 7,
        inodes: 8,
        policy: "flash-only".into(),
        limits: [("iops-max".to_string(), 5)].into(),
        trees: vec![LimitedTree {
            path: Some("/a b".into()),
            inode: 7,
            project: 1 << 30,
            limits: [("burst".to_string(), 5)].into(),
        }],
        mounts: vec!["/mnt/a b".into()],
        detached: vec!["detached".into()],
        open: Some("1 open file".into()),
    }
}

fn hops() -> Vec<Hop> {
    let delay = Layer::Delay { operation: None, ns: 5 };
    let fault = Layer::Fault { operation: Some("read".into()), error: "io".into(), every: 7 };
    let layers = [Layer::ReadOnly, delay, fault];
    let hop = |(position, layer)| Hop { position, layer, calls: 1, answered: 2, changed: 3, held_mean_ns: 4 };
    (1..).zip(layers).map(hop).collect()
}

impl Daemon for Fake {
    fn answer(&self, request: Request) -> Result<Answer> {
        match request {
            Request::Status => Ok(Answer::Status(Status { version: "1".into(), ..Status::default() })),
            Request::VolumeInfo { name } => Ok(Answer::Volume(volume(&name))),
            Request::VolumeDelete { name, .. } => Err(Error::new(Kind::Busy, "the volume is mounted").with(name)),
            _ => Ok(Answer::Done),
        }
    }
}

fn opened(data: &Path) -> Directory {
    Directory::open(data).expect("ours")
}

/// A connection whose reader gives up after a minute: a server that never answers fails its test and does not hang it.
fn raw(data: &Path) -> BufReader<UnixStream> {
    let socket = SocketPath::of(&opened(data));
    let connection = UnixStream::connect(&socket.path).expect("a server listens");
    connection.set_read_timeout(Some(Duration::from_secs(60))).expect("a time above 0");
    BufReader::new(connection)
}

fn exchange(connection: &mut BufReader<UnixStream>, line: &[u8]) -> Response {
    // A server that refuses the connection does not read.
    drop(connection.get_mut().write_all(line));
    let mut reply = String::new();
    connection.read_line(&mut reply).expect("the server answers");
    serde_json::from_str(&reply).expect("a reply is JSON")
}

fn refused_with(response: Response) -> Kind {
    match response {
        Response::Refusal(refusal) => refusal.kind(),
        Response::Answer(answer) => panic!("not refused: {answer:?}"),
    }
}

#[test]
fn requests_and_replies_read_back_as_written() {
    let name = || "a\"\\\u{e9}".to_string();
    let requests = [
        Request::Status,
        Request::Profile,
        Request::History,
        Request::Slow,
        Request::Signals { milliseconds: 1000 },
        Request::VolumeCreate { name: name(), size_bytes: Some(1 << 30) },
        Request::VolumeList,
        Request::VolumeInfo { name: name() },
        Request::VolumeDelete { name: name(), force: true },
        Request::Mount {
            volume: name(),
            path: "/m\n".into(),
            source: Some("/b".into()),
            restrictions: vec!["ro".into()],
        },
        Request::LayerList { volume: name() },
        Request::LayerAdd { volume: name(), layer: Layer::ReadOnly, at: None },
        Request::LayerAdd { volume: name(), layer: hops()[1].layer.clone(), at: Some(2) },
        Request::LayerRemove { volume: name(), at: 1 },
        Request::LayerMove { volume: name(), from: 1, to: 2 },
        Request::Umount { path: "/m".into(), lazy: true },
        Request::Grow { size_bytes: Some(1 << 40) },
        Request::Network { ask: NetworkRequest::Tokens },
        Request::Network { ask: NetworkRequest::RevokeClient { name: name() } },
        Request::Network {
            ask: NetworkRequest::CreateToken {
                volumes: vec![name()],
                read_only: true,
                squash_root: false,
                life_s: 3600,
                uses: 2,
                addresses: vec!["h:1".into()],
            },
        },
        Request::Shutdown,
    ];
    for request in requests {
        let line = serde_json::to_string(&request).expect("requests are JSON");
        assert!(!line.contains('\n'), "{line}");
        assert_eq!(serde_json::from_str::<Request>(&line).expect("reads back"), request);
    }
    let times = Times { count: 1, min_ns: 2, mean_ns: 3, p50_ns: 4, p99_ns: 5, max_ns: u64::MAX };
    let stages = vec![StageTimes { stage: "queue".into(), times }];
    let answers = [
        Answer::Done,
        Answer::Status(Status { read_only: Some("EIO".into()), ..Status::default() }),
        Answer::Profile(Profile {
            operations: vec![Operation { name: "read".into(), total: times, hops: 1, stages }],
            volumes: vec![Layered { volume: "a".into(), layers: hops() }],
        }),
        Answer::Layers(hops()),
        Answer::History(vec![Whole { name: "read".into(), end_ns: 1, duration_ns: 2, ..Whole::default() }]),
        Answer::Signals(Box::new(Snapshot { at_ns: 7, ..Snapshot::default() })),
        Answer::Volume(volume("a")),
        Answer::Volumes(vec![volume("a"), volume("b")]),
        Answer::Grown { before_bytes: 1, bytes: 2 },
    ];
    for answer in answers {
        let response = Response::Answer(answer);
        let line = serde_json::to_string(&response).expect("replies are JSON");
        assert_eq!(serde_json::from_str::<Response>(&line).expect("reads back"), response);
    }
    for kind in Kind::ALL {
        assert_eq!(Refusal::of(&Error::new(kind, "x")).kind(), kind);
    }
}

#[test]
fn a_client_is_answered_and_refused() {
    let scratch = Scratch::new();
    let server = Server::start(&opened(scratch.path()), Arc::new(Fake)).expect("the directory is writable");
    let mut client = Client::need(scratch.path()).expect("it listens");
    let answer = client.ask(&Request::VolumeInfo { name: "a".into() }).expect("answered");
    assert_eq!(answer, Answer::Volume(volume("a")));
    let refused = client.ask(&Request::VolumeDelete { name: "v".into(), force: false }).expect_err("refused");
    assert_eq!((refused.exit, refused.to_string().as_str()), (Exit::InUse, "the volume is mounted: v"));
    let mode = std::fs::metadata(scratch.path().join(SOCKET)).expect("it exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    server.stop();
    assert!(!scratch.path().join(SOCKET).exists());
    assert!(Client::connect(scratch.path()).expect("the directory is there").is_none());
}

#[test]
fn bad_lines_are_refused_and_harm_nobody() {
    let scratch = Scratch::new();
    let server = Server::start(&opened(scratch.path()), Arc::new(Fake)).expect("the directory is writable");
    let mut connection = raw(scratch.path());
    let bad: [&[u8]; 6] = [
        b"\n",
        b"{\n",
        b"{\"request\":\"fly\"}\n",
        b"{\"request\":\"mount\",\"volume\":1,\"path\":\"/\"}\n",
        b"{\"request\":\"volume_info\",\"name\":\"a\",\"more\":1}\n",
        b"\xff\xfe\n",
    ];
    for line in bad {
        assert_eq!(refused_with(exchange(&mut connection, line)), Kind::Invalid);
    }
    let good = exchange(&mut connection, b"{\"request\":\"volume_info\",\"name\":\"a\"}\n");
    assert_eq!(good, Response::Answer(Answer::Volume(volume("a"))));
    let mut endless = raw(scratch.path());
    assert_eq!(refused_with(exchange(&mut endless, &vec![b'x'; REQUEST_BYTES_MAX + 1])), Kind::Invalid);
    server.stop();
}

#[test]
fn idle_connections_neither_block_others_nor_the_end() {
    let scratch = Scratch::new();
    let server = Server::start(&opened(scratch.path()), Arc::new(Fake)).expect("the directory is writable");
    let mut half = raw(scratch.path());
    half.get_mut().write_all(b"{\"request\":").expect("the server reads");
    let idle: Vec<_> = (0..8).map(|_| raw(scratch.path())).collect();
    let mut client = Client::need(scratch.path()).expect("it listens");
    assert_eq!(client.ask(&Request::Shutdown).expect("answered"), Answer::Done);
    server.stop();
    drop((half, idle));
}

/// Asks something; false if the server has ended the connection.
fn is_answered(connection: &mut BufReader<UnixStream>) -> bool {
    drop(connection.get_mut().write_all(b"{\"request\":\"status\"}\n"));
    connection.read_line(&mut String::new()).is_ok_and(|bytes| bytes > 0)
}

#[test]
fn who_has_waited_for_longest_gives_way_to_who_comes() {
    // After an answer, the server waits for the next request at once; on a busy machine a little later.
    let rest = || std::thread::sleep(Duration::from_millis(200));
    let scratch = Scratch::new();
    let server = Server::start(&opened(scratch.path()), Arc::new(Fake)).expect("the directory is writable");
    let mut first: Vec<_> = (0..16).map(|_| raw(scratch.path())).collect();
    assert!(first.iter_mut().all(is_answered));
    rest();
    assert!(is_answered(&mut first[0]), "it has asked again since");
    rest();
    let mut late: Vec<_> = (0..4).map(|_| raw(scratch.path())).collect();
    assert!(late.iter_mut().all(is_answered));
    let answered = first[1..].iter_mut().map(is_answered).filter(|answered| *answered).count();
    assert_eq!(answered, 15 - 4);
    assert!(is_answered(&mut first[0]) && late.iter_mut().all(is_answered));
    server.stop();
}

#[test]
fn who_comes_waits_until_those_that_gave_way_are_gone() {
    let scratch = Scratch::new();
    let server = Server::start(&opened(scratch.path()), Arc::new(Fake)).expect("the directory is writable");
    let (busy, began) = (AtomicBool::new(true), Instant::now());
    std::thread::scope(|scope| {
        // On a machine that has other things to do, threads take a while to end.
        for _ in 0..16 {
            scope.spawn(|| {
                while busy.load(Ordering::Relaxed) && began.elapsed().as_secs() < 60 {
                    std::hint::spin_loop();
                }
            });
        }
        let answered = (0..10).all(|_| {
            let crowd: Vec<_> = (0..200).map(|_| raw(scratch.path())).collect();
            let response = exchange(&mut raw(scratch.path()), b"{\"request\":\"status\"}\n");
            drop(crowd);
            matches!(response, Response::Answer(_))
        });
        busy.store(false, Ordering::Relaxed);
        assert!(answered);
    });
    server.stop();
}

/// A daemon whose answers wait until they may come.
#[derive(Default)]
struct Slow {
    begun: AtomicUsize,
    gate: RwLock<()>,
}

impl Daemon for Slow {
    fn answer(&self, _: Request) -> Result<Answer> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        drop(self.gate.read());
        Ok(Answer::Done)
    }
}

#[test]
fn who_is_answered_does_not_give_way() {
    let scratch = Scratch::new();
    let slow = Arc::new(Slow::default());
    let server = Server::start(&opened(scratch.path()), slow.clone()).expect("the directory is writable");
    let held = slow.gate.write().expect("no panic while held");
    let mut asking: Vec<_> = (0..16).map(|_| raw(scratch.path())).collect();
    for connection in &mut asking {
        connection.get_mut().write_all(b"{\"request\":\"status\"}\n").expect("the server reads");
    }
    // A request that was not read yet gives way: once each is being answered, nobody does.
    let began = Instant::now();
    while slow.begun.load(Ordering::Relaxed) < asking.len() {
        assert!(began.elapsed() < Duration::from_secs(60), "the server does not read");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(refused_with(exchange(&mut raw(scratch.path()), b"{\"request\":\"status\"}\n")), Kind::Busy);
    drop(held);
    for connection in &mut asking {
        let mut reply = String::new();
        connection.read_line(&mut reply).expect("the server answers");
        assert!(reply.contains("done"), "{reply}");
    }
    server.stop();
}

#[test]
fn a_stale_socket_is_replaced_and_long_paths_work() {
    let scratch = Scratch::new();
    let data = scratch.path().join("d".repeat(200));
    std::fs::create_dir(&data).expect("the scratch directory is writable");
    // A listener that is dropped leaves its file, as a killed daemon does.
    drop(UnixListener::bind(&SocketPath::of(&opened(&data)).path).expect("a free name"));
    assert!(Client::connect(&data).expect("it can be asked").is_none());
    let server = Server::start(&opened(&data), Arc::new(Fake)).expect("replaces the stale socket");
    assert_eq!(Client::need(&data).expect("it listens").ask(&Request::Shutdown).expect("answered"), Answer::Done);
    server.stop();
    let missing = Client::need(&data).err().expect("nobody listens");
    assert!(missing.to_string().contains("sinter serve"), "{missing}");
    assert!(Client::connect(&scratch.path().join("absent")).is_err());
}

#[test]
fn a_link_in_the_sockets_place_is_not_followed() {
    let scratch = Scratch::new();
    let [data, other] = ["data", "other"].map(|name| scratch.path().join(name));
    [&data, &other].iter().for_each(|path| std::fs::create_dir(path).expect("writable"));
    let server = Server::start(&opened(&other), Arc::new(Fake)).expect("the directory is writable");
    std::os::unix::fs::symlink(other.join(SOCKET), data.join(SOCKET)).expect("writable");
    let refused = Client::connect(&data).err().expect("a link");
    assert!(refused.to_string().contains("no socket"), "{refused}");
    server.stop();
}
