//! A brick that is served to a client of the same machine, over TLS on loopback, in the place of a mount of its own.

use crate::flash::ground::{make_directory, text, told};
use crate::flash::sides::{Started, await_sign, ending, in_own_session, is_mounted, start};
use crate::flash::undo::Undo;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The client's name for the server, and the volume that `sinter up` makes.
const NAME: &str = "workshop";
const VOLUME: &str = "default";
pub const PLACE: &str = "workshop/default";

/// The two daemons of a brick that a client mounts.
pub struct Network {
    binary: PathBuf,
    brick: PathBuf,
    server: Started,
    client: Started,
}

/// The places of a brick that is to be served.
#[derive(Clone, Copy)]
pub struct Places<'a> {
    pub binary: &'a Path,
    pub brick: &'a Path,
    pub mount: &'a Path,
    /// A directory for the client's membership and for logs; made if it is not there.
    pub directory: &'a Path,
    /// The server's place, unless that is loopback.
    pub behind: Option<Behind<'a>>,
}

/// Another network for a server than the one of the client.
#[derive(Clone, Copy)]
pub struct Behind<'a> {
    /// The command that runs another one there.
    pub through: &'a [&'a str],
    /// The server's address.
    pub address: &'a str,
}

impl Network {
    /// Serves a brick that nobody serves, with these options of both daemons, and mounts it as a client. The client joins the first time.
    pub fn up(
        places: Places<'_>,
        environment: &[(String, String)],
        more: &[&str],
        undo: &Undo,
    ) -> Result<Network, String> {
        let Places { binary, brick, mount, directory, behind } = places;
        make_directory(directory)?;
        let command = |through: &[&str]| {
            let mut command = in_own_session();
            command.envs(environment.iter().map(|(name, value)| (name, value)));
            command.args(through).arg(binary);
            command
        };
        let (log, through) = (directory.join("server.log"), behind.map_or(&[][..], |behind| behind.through));
        let address = behind.map_or_else(|| address(directory), |behind| Ok(behind.address.to_string()))?;
        let mut server = command(through);
        server.args(["serve", text(brick), "--listen", &address]).args(more);
        let mut server = start(server, &log, |process| ending(process, binary, brick, mount), undo)?;
        await_sign(&mut server.0, &log, || Ok(said(&log)?.lines().any(|line| line.starts_with("ready"))))?;
        let membership = directory.join("membership");
        if !membership.exists() {
            join(binary, (brick, VOLUME), &membership, NAME)?;
        }
        let log = directory.join("client.log");
        let seat = Seat { binary, membership: &membership, place: PLACE, mount, log: &log };
        let client = mounted(command(&[]), seat, more, undo)?;
        Ok(Network { binary: binary.to_path_buf(), brick: brick.to_path_buf(), server, client })
    }
    /// Ends both daemons; the brick can be served otherwise then.
    pub fn down(self, undo: &Undo) -> Result<(), String> {
        let Network { binary, brick, server, client, .. } = self;
        down(&binary, PLACE, client, undo)?;
        down(&binary, text(&brick), server, undo)
    }
    /// The server's daemon and the client's.
    pub fn daemons(&self) -> [u32; 2] {
        [self.server.0.id(), self.client.0.id()]
    }
}

/// The places of a client's mount.
#[derive(Clone, Copy)]
pub struct Seat<'a> {
    pub binary: &'a Path,
    /// The directory of what joining has written.
    pub membership: &'a Path,
    /// The server's or cluster's name, and the volume.
    pub place: &'a str,
    pub mount: &'a Path,
    pub log: &'a Path,
}

/// Mounts a volume as a client that has joined, by `command`, which runs the binary.
pub fn mounted(mut command: Command, seat: Seat<'_>, more: &[&str], undo: &Undo) -> Result<Started, String> {
    let Seat { binary, membership, place, mount, log } = seat;
    command.args(["mount", "--foreground", "--directory", text(membership)]).args(more).args([place, text(mount)]);
    let mut client = start(command, log, |process| ending(process, binary, Path::new(place), mount), undo)?;
    await_sign(&mut client.0, log, || is_mounted(mount, "fuse.sinter"))?;
    Ok(client)
}

/// Ends a daemon of a place or a brick, and waits for its end.
pub fn down(binary: &Path, place: &str, (mut daemon, how): Started, undo: &Undo) -> Result<(), String> {
    told(text(binary), &["down", place])?;
    daemon.wait().map_err(|error| format!("{}: {error}", binary.display()))?;
    undo.forget(&how)
}

/// The server's address: the same each time, since the client keeps it.
fn address(directory: &Path) -> Result<String, String> {
    let file = directory.join("address");
    if !file.exists() {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let free = free.map_err(|error| format!("a free port: {error}"))?;
        std::fs::write(&file, free.to_string()).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    said(&file)
}

fn said(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

/// Has a client join whoever serves a brick, for a volume; it takes the name for the server and for itself.
pub fn join(binary: &Path, (brick, volume): (&Path, &str), membership: &Path, name: &str) -> Result<(), String> {
    let token = token(&told(text(binary), &["token", "create", text(brick), "--volume", volume, "--json"])?)?;
    make_directory(membership)?;
    told(text(binary), &["client", "join", &token, "--name", name, "--as", name, "--directory", text(membership)])?;
    Ok(())
}

/// The token in what a command has told.
pub fn token(told: &str) -> Result<String, String> {
    let answer: serde_json::Value = serde_json::from_str(told).map_err(|error| format!("{told}: {error}"))?;
    let token = answer["token"].as_str().ok_or_else(|| format!("no token: {told}"))?;
    Ok(token.to_string())
}
