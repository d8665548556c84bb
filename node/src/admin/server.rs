//! The daemon's side of the admin socket: plain threads that never run on a core. Promises that a bad or slow client
//! harms no one, and another user gets nothing: lines are bounded, connections are bounded, who only waits gives way to
//! who comes, reads time out, malformed requests are answered.

use super::SocketPath;
use super::protocol::{Answer, REQUEST_BYTES_MAX, Refusal, Request, Response};
use base::{Error, Kind, Result};
use runtime::real::Directory;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Connections served at once: operators and their scripts, not clients.
const CONNECTIONS_MAX: usize = 16;
/// Threads of connections: those that gave way take a moment to end, which whoever comes next waits for.
const THREADS_MAX: usize = 4 * CONNECTIONS_MAX;
/// Longest time for that on a busy host: less than an operator's patience.
const ENDING: Duration = Duration::from_secs(10);
/// A connection is given up when its client sends no request for this long.
const IDLE: Duration = Duration::from_secs(30);
/// Interval at which a waiting connection checks whether the daemon is stopping.
const LOOK: Duration = Duration::from_millis(100);

/// Answers requests; called on the socket's own threads, may block.
pub trait Daemon: Send + Sync {
    /// Does what is asked.
    fn answer(&self, request: Request) -> Result<Answer>;
}

struct Shared {
    daemon: Arc<dyn Daemon>,
    stopping: AtomicBool,
    connections: Mutex<Connections>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Those that are served.
#[derive(Default)]
struct Connections {
    open: BTreeMap<u64, Connection>,
    /// Number of the next connection or wait; grows.
    next_turn: u64,
}

struct Connection {
    /// The stream, by which the connection can be ended.
    stream: UnixStream,
    /// The turn at which it began to wait for its client; None while it answers.
    waits: Option<u64>,
}

impl Connections {
    /// Takes one in; its number. If there are as many as may be, the one that has waited for its client for longest gives
    /// way. None if none of them waits.
    fn enter(&mut self, stream: UnixStream) -> Option<u64> {
        if self.open.len() >= CONNECTIONS_MAX {
            let waiting = self.open.iter().filter_map(|(number, connection)| Some((connection.waits?, *number)));
            let (_, number) = waiting.min()?;
            let idle = self.open.remove(&number).expect("just seen");
            // Its thread reads the end, and ends.
            drop(idle.stream.shutdown(Shutdown::Both));
        }
        let turn = self.turn();
        self.open.insert(turn, Connection { stream, waits: Some(turn) });
        Some(turn)
    }
    /// It waits for its client from now on, or does not.
    fn note(&mut self, number: u64, waits: bool) {
        let turn = self.turn();
        if let Some(connection) = self.open.get_mut(&number) {
            connection.waits = waits.then_some(turn);
        }
    }
    fn turn(&mut self) -> u64 {
        self.next_turn += 1;
        self.next_turn
    }
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().expect("no panic while held")
    }
}

/// A listening socket; `stop` ends it and removes its file.
pub struct Server {
    shared: Arc<Shared>,
    socket: SocketPath,
    /// The listening socket itself, to end it: its path may be gone, or be another's by then.
    listening: UnixStream,
    accepting: JoinHandle<()>,
}

impl Server {
    /// Listens in the brick's directory. The caller holds the brick's lock: a socket file that is already there is
    /// left over from a daemon that died, and is replaced.
    pub fn start(data: &Directory, daemon: Arc<dyn Daemon>) -> std::io::Result<Server> {
        let socket = SocketPath::of(data);
        match std::fs::remove_file(&socket.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&socket.path)?;
        std::fs::set_permissions(&socket.path, std::fs::Permissions::from_mode(0o600))?;
        let listening = UnixStream::from(OwnedFd::from(listener.try_clone()?));
        let shared = Arc::new(Shared {
            daemon,
            stopping: AtomicBool::new(false),
            connections: Mutex::default(),
            threads: Mutex::default(),
        });
        let there = shared.clone();
        let accepting = std::thread::Builder::new().name("admin".into()).spawn(move || accept(&listener, &there))?;
        Ok(Server { shared, socket, listening, accepting })
    }

    /// Ends: requests being served are finished, no further one is taken, the socket file is removed.
    pub fn stop(self) {
        self.shared.stopping.store(true, Ordering::Release);
        // Wakes the accepting thread; if that fails, it has already ended.
        drop(self.listening.shutdown(Shutdown::Both));
        self.accepting.join().expect("a thread that panics ends the process");
        let threads = std::mem::take(&mut *self.shared.threads.lock().expect("no panic while held"));
        threads.into_iter().for_each(|thread| thread.join().expect("a thread that panics ends the process"));
        drop(std::fs::remove_file(&self.socket.path));
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    // An operator asks why the machine is slow while other programs take its CPUs: beside four hogs on each CPU, and the cores, a
    // thread of the usual weight did not answer within 10 s.
    runtime::real::set_core_priority();
    loop {
        let connection = listener.accept();
        if shared.stopping.load(Ordering::Acquire) {
            return;
        }
        match connection {
            Ok((stream, _)) => start_connection(stream, shared),
            // Out of descriptors or memory: both pass.
            Err(_) => std::thread::sleep(LOOK),
        }
    }
}

fn start_connection(mut stream: UnixStream, shared: &Arc<Shared>) {
    // The file's mode says so already; a mode can be changed by mistake.
    if !crate::host::is_trusted(&stream).unwrap_or(false) {
        let error = Error::new(Kind::Permission, "only root and the daemon's own user may tell it what to do");
        drop(send(&mut stream, &Response::Refusal(Refusal::of(&error))));
        return;
    }
    let mut threads = shared.threads.lock().expect("no panic while held");
    let came = Instant::now();
    loop {
        threads.retain(|thread| !thread.is_finished());
        let stopping = shared.stopping.load(Ordering::Acquire);
        if threads.len() < THREADS_MAX || came.elapsed() > ENDING || stopping {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let same = if threads.len() < THREADS_MAX { stream.try_clone().ok() } else { None };
    let Some(number) = same.and_then(|same| shared.connections().enter(same)) else {
        let error = Error::new(Kind::Busy, "too many admin connections; close one");
        drop(send(&mut stream, &Response::Refusal(Refusal::of(&error))));
        return;
    };
    let there = shared.clone();
    let serve = move || {
        // An error here is the client's: it went away or stopped reading.
        drop(serve_connection(stream, number, &there));
        there.connections().open.remove(&number);
    };
    match std::thread::Builder::new().name("admin-connection".into()).spawn(serve) {
        Ok(thread) => threads.push(thread),
        Err(_) => drop(shared.connections().open.remove(&number)),
    }
}

fn serve_connection(stream: UnixStream, number: u64, shared: &Shared) -> std::io::Result<()> {
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(IDLE))?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    while let Some(line) = read_line(&mut reader, &shared.stopping)? {
        shared.connections().note(number, false);
        let too_long = line.len() > REQUEST_BYTES_MAX;
        send(&mut writer, &respond(&line, shared.daemon.as_ref()))?;
        if too_long {
            return Ok(());
        }
        shared.connections().note(number, true);
    }
    Ok(())
}

/// The next line without its end; one byte more than allowed if it is too long; nothing at the end, when the client
/// is idle for too long, or when the daemon stops.
fn read_line(reader: &mut BufReader<UnixStream>, stopping: &AtomicBool) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let mut idle = Duration::ZERO;
    loop {
        let room = (REQUEST_BYTES_MAX + 1 - line.len()) as u64;
        match reader.by_ref().take(room).read_until(b'\n', &mut line) {
            Ok(_) if line.ends_with(b"\n") => {
                line.pop();
                return Ok(Some(line));
            }
            Ok(_) if line.len() > REQUEST_BYTES_MAX => return Ok(Some(line)),
            Ok(_) => return Ok(None),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                idle += LOOK;
                if idle >= IDLE || stopping.load(Ordering::Acquire) {
                    return Ok(None);
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn respond(line: &[u8], daemon: &dyn Daemon) -> Response {
    let answer = parse(line).and_then(|request| daemon.answer(request));
    answer.map_or_else(|error| Response::Refusal(Refusal::of(&error)), Response::Answer)
}

fn parse(line: &[u8]) -> Result<Request> {
    if line.len() > REQUEST_BYTES_MAX {
        return Err(Error::new(Kind::Invalid, "the request line is too long").with(REQUEST_BYTES_MAX));
    }
    serde_json::from_slice(line).map_err(|error| Error::new(Kind::Invalid, "not a request").with(error))
}

fn send(stream: &mut UnixStream, response: &Response) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(response)?;
    line.push(b'\n');
    stream.write_all(&line)
}
