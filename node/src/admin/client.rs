//! A command's side of the admin socket.

use super::protocol::{Answer, REPLY_BYTES_MAX, Request, Response};
use super::{SOCKET, SocketPath};
use crate::failure::{Exit, Failure};
use crate::host;
use crate::remote::{Place, place_of};
use base::Kind;
use runtime::real::Directory;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// A daemon that does not answer for this long is reported; deleting a large volume or mounting takes seconds.
const PATIENCE: Duration = Duration::from_secs(120);
/// The same for what it has at hand: how it is, and what it has counted.
const PATIENCE_TO_LOOK: Duration = Duration::from_secs(10);

/// The same for all that it counts, which it looks at for up to a second: what is asked about may be a machine whose CPUs are taken.
const PATIENCE_FOR_SIGNALS: Duration = Duration::from_secs(30);

/// A wait of no time at all is none that the kernel knows.
const LEAST: Duration = Duration::from_millis(1);

/// A connection to a brick's daemon.
pub struct Client {
    stream: UnixStream,
    data: String,
    /// Time at which the caller's patience ends, if it is limited.
    until: Option<Instant>,
}

impl Client {
    /// Connects; `None` if no daemon serves the brick.
    pub fn connect(data: &Path) -> Result<Option<Client>, Failure> {
        Client::connect_until(data, None)
    }

    /// The same; whatever is asked is over at that moment.
    pub fn connect_until(data: &Path, until: Option<Instant>) -> Result<Option<Client>, Failure> {
        let shown = data.display().to_string();
        let place = place_of(data);
        let state = place.as_ref().map(Place::state);
        let opened = Directory::open(state.as_deref().unwrap_or(data));
        let directory = opened.map_err(|error| match (error.kind, &place) {
            (Kind::NotFound, Some(place)) => Failure::new(Exit::Failed, format!("{place} is not mounted here"))
                .next(format!("sinter mount {place} DIRECTORY")),
            (Kind::NotFound, None) => Failure::new(Exit::Failed, format!("no brick at {shown}: it does not exist"))
                .next("check the path; `sinter format` makes a brick"),
            (Kind::NotDirectory, _) => Failure::new(Exit::Failed, format!("{shown} is not a directory ({error})"))
                .next("give the brick's directory"),
            _ => Failure::of(format!("can't reach the daemon of {shown}"), &error),
        })?;
        Client::connect_in(&directory, shown, until)
    }

    /// Connects to the daemon of a mount, whose directory is `state`; `None` if there is none. `shown`: what it mounts.
    pub fn of_mount(state: &Path, shown: String) -> Result<Option<Client>, Failure> {
        match Directory::open(state) {
            Ok(directory) => Client::connect_in(&directory, shown, None),
            Err(error) if error.kind == Kind::NotFound => Ok(None),
            Err(error) => Err(Failure::of(format!("can't reach the daemon of {shown}"), &error)),
        }
    }

    fn connect_in(directory: &Directory, shown: String, until: Option<Instant>) -> Result<Option<Client>, Failure> {
        let what = || format!("can't reach the daemon of {shown}");
        let socket = SocketPath::of(directory);
        // A link here would lead to somebody else's daemon.
        let refused = |text: &str| {
            let failure = Failure::new(Exit::Failed, format!("{}: {text}: {SOCKET}", what()));
            Err(failure.next(format!("look who made it, and remove it: {shown}/{SOCKET}")))
        };
        match socket.path.symlink_metadata() {
            Ok(found) if !found.file_type().is_socket() => return refused("what has its socket's name is no socket"),
            _ => {}
        }
        let patience = within(PATIENCE_TO_LOOK, until);
        match host::connect_within(&socket.path, patience) {
            Ok(stream) => {
                if !host::is_trusted(&stream).map_err(|error| Failure::io(what(), &error))? {
                    return refused("somebody else than root or you listens on its socket");
                }
                Ok(Some(Client { stream, data: shown, until }))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(silent(&shown, patience)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(None),
            Err(error) => Err(Failure::io(what(), &error)),
        }
    }

    /// Connects; a missing daemon is a failure.
    pub fn need(data: &Path) -> Result<Client, Failure> {
        let missing = || {
            let failure = Failure::new(Exit::Failed, format!("no daemon serves {}", data.display()));
            failure.next(match place_of(data) {
                Some(place) => format!("mount it: sinter mount {place} DIRECTORY"),
                None => format!("start one: sinter serve {}", data.display()),
            })
        };
        Client::connect(data)?.ok_or_else(missing)
    }

    /// Asks and waits for the answer.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, Failure> {
        let patience = match request {
            Request::Status
            | Request::Profile
            | Request::History
            | Request::Slow
            | Request::RecordBegin
            | Request::RecordTake { .. }
            | Request::Shutdown => PATIENCE_TO_LOOK,
            Request::Signals { .. } => PATIENCE_FOR_SIGNALS,
            _ => PATIENCE,
        };
        let patience = within(patience, self.until);
        match self.exchange(request, Instant::now() + patience) {
            Ok(Response::Answer(answer)) => Ok(answer),
            Ok(Response::Refusal(refusal)) => Err(Failure::new(Exit::of(refusal.kind()), refusal.text)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(silent(&self.data, patience))
            }
            Err(error) => {
                // The kernel tells of a device nothing that it told of this.
                let text = format!("the daemon of {} ended before it answered ({error})", self.data);
                Err(Failure::new(Exit::Failed, text).next(
                    "look at its last messages, start it again, and look whether it had done what was asked; what was \
                     acknowledged as durable is there",
                ))
            }
        }
    }

    fn exchange(&mut self, request: &Request, deadline: Instant) -> std::io::Result<Response> {
        let left = || Some(deadline.saturating_duration_since(Instant::now()).max(LEAST));
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.stream.set_write_timeout(left())?;
        // A daemon that refuses the connection answers without reading: its reply says more than a broken pipe.
        let sent = self.stream.write_all(&line);
        let mut reply = Vec::new();
        let mut reader = BufReader::new(&self.stream).take(REPLY_BYTES_MAX as u64);
        while !reply.ends_with(b"\n") {
            self.stream.set_read_timeout(left())?;
            let part = reader.fill_buf()?;
            if part.is_empty() {
                return Err(sent.err().unwrap_or(ErrorKind::UnexpectedEof.into()));
            }
            let bytes = part.iter().position(|&byte| byte == b'\n').map_or(part.len(), |at| at + 1);
            reply.extend_from_slice(&part[..bytes]);
            reader.consume(bytes);
            if Instant::now() >= deadline && !reply.ends_with(b"\n") {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(serde_json::from_slice(&reply)?)
    }
}

/// The patience, cut off at `until`.
fn within(patience: Duration, until: Option<Instant>) -> Duration {
    let left = until.map_or(patience, |until| until.saturating_duration_since(Instant::now()));
    patience.min(left).max(LEAST)
}

/// The failure when a daemon does not answer: one that was stopped, or whose device hangs.
fn silent(data: &str, patience: Duration) -> Failure {
    let text = format!("the daemon of {data} has not answered for {:.0} s", patience.as_secs_f64());
    Failure::new(Exit::Failed, text)
        .next("look whether it was stopped (T in `ps`), at its messages and at the kernel's log")
}

/// The failure when a daemon of another version answers something else than was asked.
pub fn unexpected() -> Failure {
    let failure = Failure::new(Exit::Newer, "the daemon's answer does not fit the question");
    failure.next("run the daemon and the command in the same version")
}
