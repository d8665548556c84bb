//! Tells the service manager how the daemon is, as sd_notify(3) describes: a datagram of `KEY=VALUE` lines to the socket
//! that the environment names. Promises that a daemon which nobody manages, or whose manager is gone, runs the same.

use std::ffi::{OsStr, OsString};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Interval at which the main thread wakes up when nobody watches it.
const UNWATCHED: Duration = Duration::from_secs(3600);

/// Time within which a daemon that starts says something again, on any machine that is not ill.
const STARTING: Duration = Duration::from_secs(60);

/// The way to the service manager, if there is one.
pub struct Notifier {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// The notifier that the service manager asked for.
    pub fn from_environment() -> Notifier {
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        Notifier {
            socket: std::env::var_os("NOTIFY_SOCKET").and_then(connect),
            watchdog: number("WATCHDOG_USEC").filter(|&us| ours && us > 0).map(Duration::from_micros),
        }
    }
    /// A notifier to a socket which asked for no signs of life.
    #[cfg(test)]
    pub fn to(socket: UnixDatagram) -> Notifier {
        Notifier { socket: Some(socket), watchdog: None }
    }
    /// The daemon starts, and is at work: it must not be taken for one that hangs.
    pub fn starting(&self, status: &str) {
        let extend_us = STARTING.as_micros();
        self.send(&format!("STATUS={status}\nEXTEND_TIMEOUT_USEC={extend_us}"));
    }
    /// The daemon serves from now on.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }
    /// It ends from now on, however long that takes.
    pub fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=making everything durable");
    }
    /// The end waits for somebody.
    pub fn waits(&self, what: &str) {
        self.send(&format!("STATUS={what}"));
    }
    /// It is alive, if somebody wants to know.
    pub fn alive(&self) {
        if self.is_watched() {
            self.send("WATCHDOG=1");
        }
    }
    /// True if somebody wants signs of life.
    pub fn is_watched(&self) -> bool {
        self.watchdog.is_some()
    }
    /// Interval of signs of life: half of the time after which the daemon counts as dead, as its manual advises.
    pub fn pause(&self) -> Duration {
        self.watchdog.map_or(UNWATCHED, |period| period / 2)
    }
    fn send(&self, lines: &str) {
        if let Some(socket) = &self.socket {
            // A manager that went away is no reason to stop serving.
            drop(socket.send(lines.as_bytes()));
        }
    }
}

/// A path, or after `@` a name of Linux's own space of socket names.
fn connect(name: OsString) -> Option<UnixDatagram> {
    let address = match name.as_bytes().split_first()? {
        (b'@', rest) => SocketAddr::from_abstract_name(rest).ok()?,
        (b'/', _) => SocketAddr::from_pathname(OsStr::from_bytes(name.as_bytes())).ok()?,
        _ => return None,
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect_addr(&address).ok()?;
    // A manager that does not read must not stop a daemon.
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let count = socket.recv(&mut bytes).expect("something was sent");
        String::from_utf8(bytes[..count].to_vec()).expect("text")
    }

    #[test]
    fn paths_and_names_are_reached() {
        let scratch = Scratch::new();
        let path = scratch.path().join("notify");
        let name = format!("sinter-notify-{}", std::process::id());
        let by_path = UnixDatagram::bind(&path).expect("a free name");
        let address = SocketAddr::from_abstract_name(&name).expect("a short name");
        let by_name = UnixDatagram::bind_addr(&address).expect("a free name");
        for (socket, name) in [(by_path, path.into_os_string()), (by_name, format!("@{name}").into())] {
            let notifier = Notifier { socket: connect(name), watchdog: Some(Duration::from_secs(4)) };
            notifier.starting("starting: log, 5%");
            assert_eq!(heard(&socket), "STATUS=starting: log, 5%\nEXTEND_TIMEOUT_USEC=60000000");
            notifier.ready("volume a at /a");
            assert_eq!(heard(&socket), "READY=1\nSTATUS=volume a at /a");
            notifier.alive();
            assert_eq!((heard(&socket).as_str(), notifier.pause()), ("WATCHDOG=1", Duration::from_secs(2)));
            drop(socket);
            notifier.stopping();
        }
    }

    #[test]
    fn without_a_manager_nothing_happens() {
        for name in ["", "relative", "/absent/socket"] {
            assert!(connect(name.into()).is_none(), "{name:?}");
        }
        let notifier = Notifier { socket: None, watchdog: None };
        notifier.ready("x");
        notifier.alive();
        assert!(!notifier.is_watched() && notifier.pause() == UNWATCHED);
    }
}
