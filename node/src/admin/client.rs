//! A command's side of the admin socket.

use super::protocol::{Answer, REPLY_BYTES_MAX, Request, Response};
use super::{SOCKET, SocketPath};
use crate::failure::{Exit, Failure};
use crate::host;
use base::Kind;
use runtime::real::Directory;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A daemon that does not answer for this long is reported; deleting a large volume or mounting takes seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// A connection to a brick's daemon.
pub struct Client {
    stream: UnixStream,
    data: String,
}

impl Client {
    /// Connects; `None` if no daemon serves the brick.
    pub fn connect(data: &Path) -> Result<Option<Client>, Failure> {
        let shown = data.display().to_string();
        let what = || format!("can't reach the daemon of {shown}");
        let directory = Directory::open(data).map_err(|error| match error.kind {
            Kind::NotFound => Failure::new(Exit::Failed, format!("no brick at {shown}: it does not exist"))
                .next("check the path; `sinter format` makes a brick"),
            Kind::NotDirectory => Failure::new(Exit::Failed, format!("{shown} is not a directory ({error})"))
                .next("give the brick's directory"),
            _ => Failure::of(what(), &error),
        })?;
        let socket = SocketPath::of(&directory);
        // A link here would lead to somebody else's daemon.
        let refused = |text: &str| {
            let failure = Failure::new(Exit::Failed, format!("{}: {text}: {SOCKET}", what()));
            Err(failure.next(format!("look who made it, and remove it: {shown}/{SOCKET}")))
        };
        match socket.path.symlink_metadata() {
            Ok(found) if !found.file_type().is_socket() => return refused("what has its socket's name is no socket"),
            _ => {}
        }
        match UnixStream::connect(&socket.path) {
            Ok(stream) => {
                if !host::is_trusted(&stream).map_err(|error| Failure::io(what(), &error))? {
                    return refused("somebody else than root or you listens on its socket");
                }
                stream.set_read_timeout(Some(PATIENCE)).map_err(|error| Failure::io(what(), &error))?;
                Ok(Some(Client { stream, data: shown }))
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(None),
            Err(error) => Err(Failure::io(what(), &error)),
        }
    }

    /// Connects; a missing daemon is a failure.
    pub fn need(data: &Path) -> Result<Client, Failure> {
        let missing = || {
            let failure = Failure::new(Exit::Failed, format!("no daemon serves {}", data.display()));
            failure.next(format!("start one: sinter serve {}", data.display()))
        };
        Client::connect(data)?.ok_or_else(missing)
    }

    /// Asks and waits for the answer.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, Failure> {
        match self.exchange(request) {
            Ok(Response::Answer(answer)) => Ok(answer),
            Ok(Response::Refusal(refusal)) => Err(Failure::new(Exit::of(refusal.kind()), refusal.text)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let text = format!("the daemon of {} has not answered for {} s", self.data, PATIENCE.as_secs());
                Err(Failure::new(Exit::Failed, text).next("look at its messages and at the kernel's log"))
            }
            Err(error) => Err(Failure::io(format!("lost the daemon of {}", self.data), &error)),
        }
    }

    fn exchange(&mut self, request: &Request) -> std::io::Result<Response> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        // A daemon that refuses the connection answers without reading: its reply says more than a broken pipe.
        let sent = self.stream.write_all(&line);
        let mut reply = Vec::new();
        let mut reader = BufReader::new(&self.stream).take(REPLY_BYTES_MAX as u64);
        reader.read_until(b'\n', &mut reply)?;
        if !reply.ends_with(b"\n") {
            return Err(sent.err().unwrap_or(ErrorKind::UnexpectedEof.into()));
        }
        Ok(serde_json::from_slice(&reply)?)
    }
}

/// The failure when a daemon of another version answers something else than was asked.
pub fn unexpected() -> Failure {
    let failure = Failure::new(Exit::Newer, "the daemon's answer does not fit the question");
    failure.next("run the daemon and the command in the same version")
}
