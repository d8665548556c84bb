//! `sinter mount`: a volume of a brick, which its daemon mounts, or of a server or a cluster on this machine, for which a daemon is
//! started.

use super::brick::{become_daemon, memory_max, mount_point};
use super::fstab::ends;
use super::{print, print_json, start};
use crate::admin::client::Client;
use crate::admin::protocol::Request;
use crate::backend::Backend;
use crate::cli::{Mount, WireEncryption};
use crate::cluster;
use crate::daemon::{Running, Until, Ways, say};
use crate::failure::{Exit, Failure};
use crate::host;
use crate::remote::{self, Place, Wishes};
use console::{Addresses, Listening};
use front::fuse::{self, MountOptions, Restriction};
use runtime::real::Directory;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time for a daemon that is on its way down when the volume is mounted again.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);

/// Runs `sinter mount`.
pub fn run(options: &Mount) -> Result<Exit, Failure> {
    let Some(volume) = &options.volume else { return of_server(options) };
    let data = &options.source;
    if cluster::is_cluster(data) {
        let directory = absolute(data)?;
        return of_source(Source::Cluster { directory, volume: volume.clone() }, options);
    }
    if options.read_only || options.foreground || options.soft.is_some() {
        let text = "--read-only, --soft and --foreground are for volumes of servers and clusters, not of a brick of this machine";
        return Err(Failure::new(Exit::Usage, text).next("leave them out"));
    }
    let path = absolute(&options.mount)?;
    let mut client = Client::need(data)?;
    warn_if_hidden(&path);
    let (volume, path) = (volume.clone(), text_of(&path)?);
    let told = serde_json::json!({ "volume": volume, "mount": path });
    client.ask(&Request::Mount { volume, path, source: None, restrictions: Vec::new() })?;
    if options.json {
        print_json(&told)?;
    }
    Ok(Exit::Done)
}

fn warn_if_hidden(path: &Path) {
    if host::is_not_empty(path) {
        say(&format!("what {} holds is hidden while the volume is mounted there", path.display()));
    }
}

fn of_server(options: &Mount) -> Result<Exit, Failure> {
    let place: Place = text_of(&options.source)?.parse().map_err(|error: base::Error| {
        let failure = Failure::new(Exit::Usage, error.to_string());
        failure.next(
            "sinter mount NAME/VOLUME DIRECTORY, or for a brick of this machine: sinter mount BRICK VOLUME DIRECTORY",
        )
    })?;
    of_source(Source::Server(place), options)
}

fn of_source(source: Source, options: &Mount) -> Result<Exit, Failure> {
    let restrictions = if options.read_only { vec!["ro".to_string()] } else { Vec::new() };
    let wanted = Wanted {
        source,
        path: absolute(&options.mount)?,
        restrictions,
        memory_max: options.resources.memory_max,
        soft: options.soft,
        encryption: options.wire_encryption.unwrap_or_default(),
        // The daemon has another working directory.
        directory: absolute(&options.directory)?,
        log: None,
    };
    if options.foreground {
        return serve(&wanted, options);
    }
    warn_if_hidden(&wanted.path);
    wanted.mount()?;
    if options.json {
        print_json(&serde_json::json!({ "source": wanted.source.to_string(), "mount": wanted.path }))?;
    }
    Ok(Exit::Done)
}

/// The place of a volume that has a daemon of its own on this machine for each mount.
pub enum Source {
    /// A server.
    Server(Place),
    /// A cluster on this machine, by its directory.
    Cluster {
        /// The directory.
        directory: PathBuf,
        /// The volume.
        volume: String,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Server(place) => write!(f, "{place}"),
            Source::Cluster { directory, volume } => write!(f, "{}/{volume}", directory.display()),
        }
    }
}

impl Source {
    fn volume(&self) -> &str {
        match self {
            Source::Server(place) => &place.volume,
            Source::Cluster { volume, .. } => volume,
        }
    }
    /// The directory of its daemon while it is mounted.
    fn state(&self) -> PathBuf {
        match self {
            Source::Server(place) => place.state(),
            Source::Cluster { directory, volume } => remote::cluster_state(directory, volume),
        }
    }
    /// The source that mount tables show.
    fn shown(&self) -> String {
        match self {
            Source::Server(place) => place.to_string(),
            Source::Cluster { directory, .. } => directory.display().to_string(),
        }
    }
    /// The last arguments of the command that mounts it.
    fn arguments(&self) -> Vec<OsString> {
        match self {
            Source::Server(place) => vec![place.to_string().into()],
            Source::Cluster { directory, volume } => vec![directory.into(), volume.into()],
        }
    }
    fn client(&self) -> Result<Option<Client>, Failure> {
        Client::of_mount(&self.state(), self.to_string())
    }
}

/// A mount of a server's volume, as somebody wants it.
pub struct Wanted {
    /// The volume.
    pub source: Source,
    /// The directory at which it is to appear.
    pub path: PathBuf,
    /// Restrictions of the mount, by name.
    pub restrictions: Vec<String>,
    /// Bytes of memory for its daemon.
    pub memory_max: Option<u64>,
    /// Seconds for which it waits for a server that is away; None: for ever.
    pub soft: Option<u64>,
    /// The form of what goes over the network.
    pub encryption: WireEncryption,
    /// The directory with the files of memberships.
    pub directory: PathBuf,
    /// The file for its daemon's messages.
    pub log: Option<PathBuf>,
}

impl Wanted {
    /// Has a daemon mount it: a new one, or the one that still serves what is open of a former mount.
    pub fn mount(&self) -> Result<(), Failure> {
        let source = &self.source;
        let failed = |error: base::Error| Failure::of(format!("can't mount {source}"), &error);
        if let Source::Server(place) = source {
            remote::membership(&self.directory, &place.name).map_err(failed)?;
        }
        let request = Request::Mount {
            volume: source.volume().to_string(),
            path: text_of(&self.path)?,
            source: Some(source.shown()),
            restrictions: self.restrictions.clone(),
        };
        let deadline = Instant::now() + PATIENCE;
        // Another daemon for it is on its way up or down, or was when this one was started.
        let is_held = || {
            let state = Directory::open(&source.state());
            state.is_ok_and(|state| host::lock_holder(&state).is_ok_and(|holder| holder.is_some()))
        };
        loop {
            let was_held = is_held();
            let (failure, may_pass) = match source.client()? {
                Some(mut client) => match client.ask(&request) {
                    Ok(_) => return Ok(()),
                    Err(failure) => (failure, ends(source.client()?)),
                },
                None => match self.start() {
                    Ok(()) => return Ok(()),
                    Err(failure) => (failure, was_held || is_held()),
                },
            };
            if !may_pass || Instant::now() >= deadline {
                return Err(failure);
            }
            std::thread::sleep(PAUSE);
        }
    }
    fn start(&self) -> Result<(), Failure> {
        let mut arguments: Vec<OsString> = vec!["mount".into(), "--foreground".into()];
        if self.restrictions.iter().any(|name| name == "ro") {
            arguments.push("--read-only".into());
        }
        if let Some(bytes) = self.memory_max {
            arguments.extend(["--memory-max".into(), bytes.to_string().into()]);
        }
        if let Some(seconds) = self.soft {
            arguments.extend(["--soft".into(), seconds.to_string().into()]);
        }
        if self.encryption != WireEncryption::default() {
            arguments.extend(["--wire-encryption".into(), self.encryption.word().into()]);
        }
        if let Source::Server(_) = self.source {
            arguments.extend(["--directory".into(), self.directory.clone().into()]);
        }
        arguments.extend(self.source.arguments());
        arguments.push(self.path.clone().into());
        start::daemon(&arguments, &self.source.to_string(), self.log.as_deref())
    }
}

/// Mounts a server's or a cluster's volume and serves it until it is unmounted.
fn serve(wanted: &Wanted, options: &Mount) -> Result<Exit, Failure> {
    let source = &wanted.source;
    let signals = become_daemon()?;
    let path = mount_point(&wanted.path)?;
    host::check_may_mount().map_err(|error| Failure::of("can't mount", &error))?;
    fuse::check(&path).map_err(|error| Failure::of(format!("can't mount at {}", path.display()), &error))?;
    let memory_max = memory_max(&options.resources);
    host::check_address_space(memory_max).map_err(|error| Failure::of("can't start", &error))?;
    let encryption = wanted.encryption.into();
    let wishes = Wishes { read_only: options.read_only, soft_s: options.soft, encryption };
    let remote = match source {
        Source::Server(place) => remote::open(place, &wanted.directory, wishes, memory_max)?,
        Source::Cluster { directory, volume } => {
            let (directory, cluster) = cluster::dev::existing(directory)?;
            remote::open_here(&cluster, &directory, volume, wishes, memory_max)?
        }
    };
    remote.readable().iter().for_each(|warning| say(warning));
    let state = remote.directory().clone();
    let listening = Listening::at(&Addresses::default()).expect("no address is asked for");
    let running = Running::start(
        (Backend::Remote(remote), Ways::default()),
        &state,
        options.resources.transport,
        signals,
        listening,
    )?;
    let restrictions = wanted.restrictions.iter().filter_map(|name| Restriction::of(name)).collect();
    let mount = MountOptions { path, source: source.shown(), restrictions, shares: true };
    match running.daemon().mount(source.volume(), &mount) {
        Ok(mounted) => {
            let shown = mounted.path();
            drop(mounted);
            // Whoever started it may have stopped listening; the mount is what counts.
            drop(print(&running.ready(&format!("{source} at {}", shown.display()))));
            running.wait(Until::AllUnmounted);
            running.end()?;
            Ok(Exit::Done)
        }
        Err(error) => {
            // The first failure is the one to tell.
            drop(running.end());
            Err(Failure::of(format!("can't mount {source}"), &error))
        }
    }
}

/// The daemon has another working directory, so it gets an absolute path. Not followed: a link could change.
pub fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::io(format!("can't use {}", path.display()), &error))
}

/// A path as JSON can hold it.
pub fn text_of(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().map(str::to_string);
    text.ok_or_else(|| Failure::new(Exit::Usage, format!("{} is not text (UTF-8)", path.display())))
}
