//! A brick or a server's volume being served: its mounts, its admin socket, and what ends it (a signal, the socket, somebody who
//! unmounts). The end itself is told in `ending`.

use crate::admin::protocol::{self, Answer, Layered, Operation, Request, StageTimes, Status, Times};
use crate::admin::server::{self, Server};
use crate::assembly::Brick;
use crate::backend::Backend;
use crate::cli;
use crate::cluster::Node;
use crate::ending;
use crate::failure::Failure;
use crate::host::{self, Signals};
use crate::layers;
use crate::log::Log;
use crate::network::{Listener, not_listening, users};
use crate::notify::Notifier;
use crate::observe::{Gatherer, LOOKING_MS_MAX, Part, Recorder, whole};
use crate::tiers;
use crate::volumes::named;
use base::{Error, Kind, Name, Result};
use console::Listening;
use explain::Snapshot;
use explain::snapshot::Whole;
use front::fuse::{MountOptions, Restriction, Serving, Transport};
use layer::Change;
use runtime::real::Directory;
use runtime::seeded::{Bug, active};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use store::format::devices::Tier;

/// A mount that could not be made is served for this long after it was detached.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(20);
/// Longest time for the last requests of a mount that was taken away.
const LAST_REQUESTS: Duration = Duration::from_secs(2);
/// Longest time for which a change of layers waits for earlier requests; a command waits longer.
const EARLIER_REQUESTS: Duration = Duration::from_secs(60);
/// Interval at which an operator is told of bad data.
const NEWS: Duration = Duration::from_secs(2);
/// Interval at which the watcher of a mount checks whether it has ended.
const WATCH: Duration = Duration::from_secs(3600);
/// Events waiting for the main thread: it acts on the first one that ends the daemon.
const EVENTS_MAX: usize = 64;

/// The reason for the daemon's end.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Event {
    Signal(&'static str),
    Shutdown,
    /// Its mount has ended; this is the path where it was mounted last.
    Unmounted(PathBuf),
}

/// The conditions that end a daemon besides a signal and a shutdown by the socket.
#[derive(Clone, Copy, Default, Debug)]
pub enum Until {
    /// Nothing.
    #[default]
    Asked,
    /// The mount of this number is gone.
    Unmounted(u64),
    /// The last of its mounts is gone.
    AllUnmounted,
}

/// A mounted volume.
#[derive(Clone)]
pub struct Mounted {
    /// Its number among the daemon's mounts.
    pub number: u64,
    volume: String,
    /// Its requests.
    pub serving: Arc<Serving>,
}

impl Mounted {
    /// The path where it is, or was mounted last.
    pub fn path(&self) -> PathBuf {
        self.serving.mount().path()
    }
}

/// State that changes of mounts need.
#[derive(Default)]
struct Changing {
    /// The daemon has decided to end: what is mounted now would be taken away at once.
    ending: bool,
    /// The users for whom the end waits, as told to an operator.
    waits: Option<String>,
    /// The conditions that end it.
    until: Until,
    /// Mounts made so far.
    made: u64,
}

/// The owner of volumes, its mounts and who may end it.
pub struct Daemon {
    backend: Backend,
    transport: cli::Transport,
    started: Instant,
    mounts: Mutex<Vec<Mounted>>,
    /// Held while a volume is mounted or deleted: none is deleted while it is being mounted.
    changing: Mutex<Changing>,
    events: SyncSender<Event>,
    gatherer: Gatherer,
    recorder: Recorder,
    /// The way of clients of other machines, if they are served.
    listener: Option<Listener>,
    /// The brick's part in its cluster, if it is one of several.
    node: Option<Node>,
}

/// The ways by which a daemon is reached beside its mounts and its socket.
#[derive(Default)]
pub struct Ways {
    /// The way of clients of other machines.
    pub listener: Option<Listener>,
    /// The way of the other bricks of a cluster, and of clients while it leads.
    pub node: Option<Node>,
}

/// A running daemon, seen from its main thread.
pub struct Running {
    /// The daemon, which answers requests.
    pub daemon: Arc<Daemon>,
    /// The admin socket.
    pub server: Server,
    /// The figures' addresses, if there are any.
    pub console: Option<console::Server>,
    events: Receiver<Event>,
    /// The way to the service manager.
    pub notifier: Notifier,
    log: Log,
}

impl Running {
    /// Starts the admin socket and the watch for signals. `signals` was made before any thread.
    pub fn start(
        (backend, Ways { listener, node }): (Backend, Ways),
        data: &Directory,
        transport: cli::Transport,
        mut signals: Signals,
        listening: Listening,
    ) -> Result<Running, Failure> {
        let (sender, events) = sync_channel(EVENTS_MAX);
        let ring = sender.clone();
        let watch = move || {
            while let Ok(name) = signals.wait() {
                if ring.send(Event::Signal(name)).is_err() {
                    return;
                }
            }
        };
        let spawned = std::thread::Builder::new().name("signals".into()).spawn(watch);
        spawned.map_err(|error| Failure::io("can't watch for signals", &error))?;
        let gatherer = backend.gatherer(data).map_err(|error| Failure::of("can't look at the brick", &error))?;
        let daemon = Arc::new(Daemon {
            backend,
            gatherer,
            recorder: Recorder::default(),
            listener,
            node,
            transport,
            started: Instant::now(),
            mounts: Mutex::default(),
            changing: Mutex::default(),
            events: sender,
        });
        let server = Server::start(data, daemon.clone()).map_err(|error| {
            Failure::io(format!("can't make the admin socket in {}", data.path().display()), &error)
        })?;
        listening.told().iter().for_each(|address| say(address));
        let console = console::Server::start(listening, daemon.clone());
        let console = console.map_err(|error| Failure::io("can't serve figures", &error))?;
        let log = Log::of_standard_error();
        Ok(Running { daemon, server, console, events, notifier: Notifier::from_environment(), log })
    }

    /// The daemon.
    pub fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// Tells whoever started this daemon, and the service manager, that it serves.
    pub fn ready(&self, what: &str) -> String {
        self.notifier.ready(what);
        format!("ready: {what}, sinter {}\n", env!("CARGO_PKG_VERSION"))
    }

    /// Waits for a reason to end: a signal, a shutdown by the socket, or what `until` says.
    pub fn wait(&self, until: Until) {
        self.daemon.changing.lock().expect("no panic while held").until = until;
        loop {
            match self.events.recv_timeout(self.notifier.pause().min(NEWS)) {
                Ok(Event::Unmounted(path)) => {
                    if self.daemon.ends_with_its_mounts() {
                        return say(&format!("{} was unmounted: ending", path.display()));
                    }
                }
                Ok(Event::Signal("SIGHUP")) if !self.log.hung_up() => {}
                Ok(Event::Signal(name)) => return say(&format!("{name}: ending")),
                Ok(Event::Shutdown) => return say("asked to end: ending"),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("the daemon holds a sender"),
            }
            self.daemon.recorder.forget_abandoned();
            self.daemon.backend.news().iter().for_each(|line| say(line));
            self.daemon.listener.as_ref().and_then(Listener::look).iter().for_each(|line| say(line));
            let node = self.daemon.node.as_ref().zip(self.daemon.brick().ok());
            node.and_then(|(node, brick)| node.look(brick)).iter().for_each(|line| say(line));
            // If a core hangs, so does this thread, and the watchdog barks.
            if self.notifier.is_watched() && self.daemon.backend.turn_round().is_ok() {
                self.notifier.alive();
            }
        }
    }
}

/// Tells an operator what happens, on standard error.
pub fn say(text: &str) {
    eprintln!("sinter: {text}");
}

impl Daemon {
    /// Mounts a volume; it answers when this returns. The mount.
    pub fn mount(&self, volume: &str, options: &MountOptions) -> Result<Mounted> {
        let mut changing = self.changing.lock().expect("no panic while held");
        if changing.ending {
            return Err(Error::new(Kind::Interrupted, "the daemon is ending"));
        }
        self.backend.brick().map_or(Ok(()), Brick::check_may_mount)?;
        let found = self.backend.volume(volume)?;
        // The kernel caches all of it for as long as it likes, and is never told of changes: these rights are the lease
        // of the one session that the volume has (rule R2).
        if let Some(mounted) = self.mounted_of(volume)
            && !active(Bug::MountedTwice)
            && let Some(mounted) = attached(mounted, options)?
        {
            return Ok(mounted);
        }
        let listener = self.listener.as_ref();
        let is_alone = listener.is_none() && self.backend.brick().is_ok();
        let options = &MountOptions { shares: !is_alone, ..options.clone() };
        let serving = Arc::new(self.backend.serve(&found, options, self.transport, listener)?);
        let path = serving.mount().path();
        if let Err(error) = answers(&path).and_then(|()| self.watch(serving.clone())) {
            // The first error is the one to tell.
            drop(serving.stop(UNMOUNT_PATIENCE));
            self.unmounted(&serving);
            return Err(error);
        }
        say(&format!("{}: requests come over {}", path.display(), carrier(serving.transport(), self.transport)));
        changing.made += 1;
        let mounted = Mounted { number: changing.made, volume: volume.to_string(), serving };
        self.mounts.lock().expect("no panic while held").push(mounted.clone());
        Ok(mounted)
    }

    fn watch(&self, serving: Arc<Serving>) -> Result<()> {
        let events = self.events.clone();
        let watch = move || {
            while !serving.wait(WATCH) {}
            let path = serving.mount().path();
            drop(serving);
            // When the daemon is ending, nobody listens any more.
            drop(events.send(Event::Unmounted(path)));
        };
        let spawned = std::thread::Builder::new().name("mount".into()).spawn(watch);
        spawned.map(drop).map_err(|error| Error::new(Kind::Host, "no thread for a mount").with(error))
    }

    /// The volume's mount, if it is still served.
    fn mounted_of(&self, volume: &str) -> Option<Mounted> {
        self.mounted().into_iter().find(|mounted| mounted.volume == volume && !mounted.serving.has_ended())
    }

    /// Creates the volume if there is none of this name; true if it did.
    pub fn ensure_volume(&self, name: &str) -> Result<bool> {
        match self.backend.volume(name) {
            Err(error) if error.kind == Kind::NotFound => {
                self.brick()?.create_volume(&Name::new(name.as_bytes())?, None).map(|_| true)
            }
            found => found.map(|_| false),
        }
    }

    /// Decides to end if what it was to serve until then is gone; from then on nothing will be mounted.
    fn ends_with_its_mounts(&self) -> bool {
        let mut changing = self.changing.lock().expect("no panic while held");
        changing.ending |= self.is_through(&changing);
        changing.ending
    }

    fn is_through(&self, changing: &Changing) -> bool {
        self.forget_ended();
        let mounts = self.mounts.lock().expect("no panic while held");
        match changing.until {
            Until::Asked => false,
            Until::Unmounted(number) => mounts.iter().all(|mounted| mounted.number != number),
            Until::AllUnmounted => changing.made > 0 && mounts.is_empty(),
        }
    }

    fn forget_ended(&self) {
        let is_gone = |mounted: &mut Mounted| mounted.serving.has_ended();
        let gone: Vec<_> = self.mounts.lock().expect("no panic while held").extract_if(.., is_gone).collect();
        gone.iter().for_each(|mounted| self.unmounted(&mounted.serving));
    }
    /// Ends the session of a mount that is gone. At a client it ends with the daemon.
    fn unmounted(&self, serving: &Serving) {
        if let Ok(brick) = self.backend.brick() {
            brick.unmounted(serving.session());
        }
    }

    /// The mounts.
    pub fn mounted(&self) -> Vec<Mounted> {
        self.mounts.lock().expect("no panic while held").clone()
    }
    /// The owner of its volumes.
    pub fn backend(&self) -> &Backend {
        &self.backend
    }
    /// Serves no client of another machine any more.
    pub fn stop_listening(&self) {
        let stopped = self.listener.as_ref().map(|listener| listener.stop(&*self.brick()?.reactors()?));
        if let Some(Err(error)) = stopped {
            say(&format!("clients of other machines: {error}"));
        }
        if let Some(Err(error)) = self.node.as_ref().map(|node| node.stop(self.brick()?)) {
            say(&format!("clients of the cluster: {error}"));
        }
    }
    fn brick(&self) -> Result<&Brick> {
        self.backend.brick()
    }
    /// Time for which files that stay open are served when the daemon ends.
    pub fn patience(&self) -> Duration {
        #[cfg(feature = "seeded-bugs")]
        if let Some(patience) = crate::test_switches::patience() {
            return patience;
        }
        ending::PATIENCE
    }
    /// Refuses to mount anything from now on.
    pub fn begin_ending(&self) {
        self.gatherer.is_ending.store(true, Ordering::Relaxed);
        self.gatherer.learner.stop();
        self.changing.lock().expect("no panic while held").ending = true;
    }
    /// Notes what the end waits for, for those who ask for the daemon's status.
    pub fn note_waiting(&self, what: &str) {
        self.changing.lock().expect("no panic while held").waits = Some(what.to_string());
    }

    fn unmount(&self, path: &Path, lazy: bool) -> Result<()> {
        let known = self.mounts.lock().expect("no panic while held").iter().any(|mounted| mounted.path() == path);
        if !known {
            return Err(Error::new(Kind::NotFound, "this daemon has mounted nothing there").with(path.display()));
        }
        host::unmount(path, lazy).map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            Error::os("can't unmount; close what uses it, or detach it with --lazy", errno).with(path.display())
        })
    }

    fn delete_volume(&self, name: &str, force: bool) -> Result<()> {
        let _alone = self.changing.lock().expect("no panic while held");
        let found = self.backend.volume(name)?;
        if force {
            self.end_detached(name)?;
        }
        self.refuse_mounted(name, "the volume is mounted; unmount it first, or give --force if it is detached")?;
        if force && let Some(listener) = &self.listener {
            listener.expel_from(&*self.brick()?.reactors()?, found.id)?;
        }
        if force && let Some(node) = &self.node {
            node.expel_from(self.brick()?, found.id)?;
        }
        self.brick()?.delete_volume(&found, force)
    }

    /// Gives a volume another name, also while it is mounted: its session knows it by its number.
    fn rename_volume(&self, name: &str, new_name: &str) -> Result<base::Volume> {
        let _alone = self.changing.lock().expect("no panic while held");
        let renamed = self.brick()?.rename_volume(name, new_name)?;
        let mut mounts = self.mounts.lock().expect("no panic while held");
        let of = mounts.iter_mut().filter(|mounted| mounted.volume == name);
        of.for_each(|mounted| mounted.volume = new_name.to_string());
        Ok(renamed)
    }

    /// Changes a volume's layers, durably and for all its mounts, and waits until no request of this machine is under way that began
    /// before. Clients of other machines follow.
    fn change_layers(&self, name: &str, change: &Change) -> Result<Answer> {
        let servings: Vec<_> = {
            let _alone = self.changing.lock().expect("no panic while held");
            let volume = self.backend.volume(name)?;
            self.brick()?.change_layers(&volume, change)?;
            if let Some(listener) = &self.listener {
                listener.hang_up(volume.id);
            }
            if let Some(node) = &self.node {
                node.hang_up(self.brick()?, volume.id);
            }
            let mounts = self.mounts.lock().expect("no panic while held");
            mounts.iter().filter(|mounted| mounted.volume == name).map(|mounted| mounted.serving.clone()).collect()
        };
        let outlasted = servings.iter().try_for_each(|serving| serving.outlast(EARLIER_REQUESTS));
        outlasted.map_err(|error| error.with("the layers are changed, durably and for all that begins now"))?;
        self.layers(name)
    }

    fn layers(&self, name: &str) -> Result<Answer> {
        Ok(Answer::Layers(layers::told(&self.backend.stack(&self.backend.volume(name)?).hops())))
    }

    fn profile(&self) -> Result<protocol::Profile> {
        let mut volumes = Vec::new();
        for volume in self.known_volumes()? {
            let layers = layers::told(&self.backend.stack(&volume).hops());
            if !layers.is_empty() {
                volumes.push(Layered { volume: String::from_utf8_lossy(volume.name.as_bytes()).into_owned(), layers });
            }
        }
        Ok(protocol::Profile { operations: profile(self.backend.ledger()), volumes })
    }

    fn signals(&self, milliseconds: u64) -> Result<Answer> {
        if milliseconds > LOOKING_MS_MAX {
            return Err(Error::new(Kind::Invalid, "too long to look at a time, ask again instead").with(milliseconds));
        }
        Ok(Answer::Signals(Box::new(self.look(Duration::from_millis(milliseconds))?)))
    }

    /// The volumes whose figures are told: a node that does not lead has none.
    fn known_volumes(&self) -> Result<Vec<base::Volume>> {
        match self.backend.volumes() {
            Err(error) if error.kind == Kind::Elsewhere => Ok(Vec::new()),
            volumes => volumes,
        }
    }

    /// A snapshot, after looking at requests in flight for so long.
    fn look(&self, looking: Duration) -> Result<Snapshot> {
        let mounts: Vec<_> = self.mounted().into_iter().map(|mounted| mounted.serving).collect();
        let (mut layers, mut limits, mut tenants) = (Vec::new(), Vec::new(), Vec::new());
        for volume in self.known_volumes()? {
            let name = String::from_utf8_lossy(volume.name.as_bytes()).into_owned();
            layers.extend(layers::figures(&name, &self.backend.stack(&volume).hops()));
            limits.extend(self.backend.limits(&volume));
            tenants.push(self.backend.tenant(&volume));
        }
        let of_nodes = || self.node.as_ref().map_or(0, Node::under_way);
        let of_clients = || self.listener.as_ref().map_or(0, Listener::under_way) + of_nodes();
        let mut snapshot = self.gatherer.snapshot(looking, (&mounts, &of_clients), (layers, limits, tenants));
        self.node.iter().for_each(|node| name_nodes(node, &mut snapshot));
        Ok(snapshot)
    }

    fn begin_recording(&self) -> Result<Part> {
        let roots = self.backend.volumes()?.iter().map(|volume| (volume.id.0, volume.root.0)).collect();
        self.recorder.begin(&self.gatherer.runtime, roots)
    }

    fn take_recorded(&self, number: u64, last: bool) -> Result<Part> {
        self.recorder.take(&self.gatherer.runtime, number, last, |inodes| self.backend.attributes(inodes))
    }

    fn refuse_mounted(&self, volume: &str, why: &'static str) -> Result<()> {
        self.await_unmounted(volume);
        let (mounts, detached) = self.mounts_of(volume);
        match (mounts.first(), detached.first()) {
            (Some(path), _) => Err(Error::new(Kind::Busy, why).with(format!("{volume} at {path}"))),
            (None, Some(how)) => Err(Error::new(Kind::Busy, why).with(format!("{volume}: {how}"))),
            (None, None) => Ok(()),
        }
    }

    /// A mount that has just been taken away is served for a moment more.
    fn await_unmounted(&self, volume: &str) {
        let mounts = self.mounts.lock().expect("no panic while held");
        let of = mounts.iter().filter(|mounted| mounted.volume == volume);
        let gone = of.filter(|mounted| mounted.serving.mount().points().is_empty());
        let ending: Vec<_> = gone.map(|mounted| mounted.serving.clone()).collect();
        drop(mounts);
        for serving in ending {
            // If it goes on, its files are open: the volume is in use.
            serving.wait(LAST_REQUESTS);
        }
    }

    /// Ends the sessions of a volume's mounts that were taken away: who still uses them gets errors.
    fn end_detached(&self, volume: &str) -> Result<()> {
        let mut mounts = self.mounts.lock().expect("no panic while held");
        let is_detached = |mounted: &Mounted| mounted.volume == volume && mounted.serving.mount().points().is_empty();
        for mounted in mounts.iter().filter(|mounted| is_detached(mounted)) {
            mounted.serving.refuse_all()?;
        }
        mounts.retain(|mounted| !is_detached(mounted));
        Ok(())
    }

    /// The paths where a volume is mounted, and its other uses.
    fn mounts_of(&self, volume: &str) -> (Vec<String>, Vec<String>) {
        self.forget_ended();
        let mounts = self.mounts.lock().expect("no panic while held");
        let of = mounts.iter().filter(|mounted| mounted.volume == volume);
        let of: Vec<_> = of.map(|mounted| (mounted, mounted.serving.mount().points())).collect();
        let users = |mounted: &Mounted| match mounted.serving.openers() {
            none if none.is_empty() => "a working directory or another mount namespace".to_string(),
            openers => ending::described(&openers),
        };
        let detached = of.iter().filter(|(_, points)| points.is_empty());
        let detached = detached.map(|(mounted, _)| format!("detached, still used by {}", users(mounted)));
        let points = of.iter().flat_map(|(_, points)| points).map(|point| point.display().to_string());
        (points.collect(), detached.collect())
    }

    /// The processes that have files of a volume open.
    fn openers_of(&self, volume: &str) -> Option<String> {
        let openers = self.mounted_of(volume)?.serving.openers();
        (!openers.is_empty()).then(|| ending::described(&openers))
    }

    fn describe(&self, volume: &base::Volume) -> Result<protocol::Volume> {
        let mut described = described(self.brick()?, volume);
        (described.mounts, described.detached) = self.mounts_of(&described.name);
        described.open = self.openers_of(&described.name);
        Ok(described)
    }

    /// The stage of the daemon's end, if that has begun. A mount or a deletion under way is not waited for.
    fn ending(&self) -> Option<String> {
        let changing = self.changing.try_lock().ok()?;
        (changing.ending || self.is_through(&changing))
            .then(|| changing.waits.clone().unwrap_or_else(|| "making everything durable".to_string()))
    }

    /// Begins to end.
    fn shut_down(&self) -> Answer {
        // What is mounted from now on would be taken away at once. A mount that is under way is not waited for.
        if let Ok(mut changing) = self.changing.try_lock() {
            changing.ending = true;
        }
        // Full only when the daemon is ending already.
        drop(self.events.try_send(Event::Shutdown));
        Answer::Done
    }

    /// The sessions of clients of other machines.
    fn attached(&self) -> Vec<protocol::Attached> {
        match (&self.listener, self.backend.volumes()) {
            (Some(listener), Ok(volumes)) => listener.attached(&volumes),
            _ => Vec::new(),
        }
    }

    fn status(&self) -> Status {
        let ending = self.ending();
        self.forget_ended();
        let told = self.mounted().into_iter().map(|mounted| protocol::Mounted {
            detached: mounted.serving.mount().points().is_empty(),
            path: mounted.path().display().to_string(),
            volume: mounted.volume,
        });
        let (mounts, clients) = (told.collect::<Vec<_>>(), self.attached());
        let mut of_backend = self.backend.status();
        of_backend.warnings.extend(self.listener.as_ref().and_then(Listener::warning));
        Status {
            version: crate::VERSION.to_string(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs(),
            ending,
            users: users(&clients, &mounts),
            mounts,
            listening: self.listener.as_ref().map(|listener| listener.address().to_string()),
            clients,
            replica: self.node.as_ref().and_then(|node| node.status(self.brick().ok()?)).map(Box::new),
            ..of_backend
        }
    }
}

impl server::Daemon for Daemon {
    fn answer(&self, request: Request) -> Result<Answer> {
        match request {
            Request::Status => Ok(Answer::Status(self.status())),
            Request::Profile => Ok(Answer::Profile(self.profile()?)),
            Request::History => Ok(Answer::History(self.backend.ledger().history().iter().map(whole).collect())),
            Request::Slow => Ok(Answer::History(self.gatherer.slowest())),
            Request::Signals { milliseconds } => self.signals(milliseconds),
            Request::RecordBegin => self.begin_recording().map(recorded),
            Request::RecordTake { number, last } => self.take_recorded(number, last).map(recorded),
            Request::VolumeCreate { name, size_bytes } => {
                let volume = self.brick()?.create_volume(&Name::new(name.as_bytes())?, size_bytes)?;
                self.describe(&volume).map(Answer::Volume)
            }
            Request::VolumeList => {
                let volumes = self.backend.volumes()?;
                volumes.iter().map(|volume| self.describe(volume)).collect::<Result<_>>().map(Answer::Volumes)
            }
            Request::VolumeInfo { name } => self.describe(&self.backend.volume(&name)?).map(Answer::Volume),
            Request::VolumeResize { name, size_bytes } => {
                // One after the other: the last one told is the one that holds.
                let _alone = self.changing.lock().expect("no panic while held");
                self.describe(&self.brick()?.resize_volume(&name, size_bytes)?).map(Answer::Volume)
            }
            Request::VolumePolicy { name, policy } => {
                let _alone = self.changing.lock().expect("no panic while held");
                self.describe(&self.brick()?.set_policy(&name, &policy)?).map(Answer::Volume)
            }
            Request::VolumeLimits { name, tree, changed } => {
                let _alone = self.changing.lock().expect("no panic while held");
                self.describe(&self.brick()?.set_limits(&name, tree.as_deref(), &changed)?).map(Answer::Volume)
            }
            Request::VolumeRename { name, new_name } => {
                self.describe(&self.rename_volume(&name, &new_name)?).map(Answer::Volume)
            }
            Request::LayerList { volume } => self.layers(&volume),
            Request::LayerAdd { volume, layer, at } => {
                let at = at.map(|at| at as usize);
                self.change_layers(&volume, &Change::Add { layer: layers::asked(&layer)?, at })
            }
            Request::LayerRemove { volume, at } => self.change_layers(&volume, &Change::Remove { at: at as usize }),
            Request::LayerMove { volume, from, to } => {
                self.change_layers(&volume, &Change::Move { from: from as usize, to: to as usize })
            }
            Request::VolumeDelete { name, force } => self.delete_volume(&name, force).map(|()| Answer::Done),
            Request::Mount { volume, path, source, restrictions } => {
                let source = source.unwrap_or_else(|| volume.clone());
                let restrictions = restrictions.iter().map(|name| restriction(name)).collect::<Result<_>>()?;
                self.mount(&volume, &MountOptions { path: path.into(), source, restrictions, shares: false })
                    .map(|_| Answer::Done)
            }
            Request::Umount { path, lazy } => self.unmount(Path::new(&path), lazy).map(|()| Answer::Done),
            Request::Grow { size_bytes } => self.brick()?.grow(size_bytes),
            Request::Tiers => Ok(Answer::Tiers(tiers::tiers(self.brick()?.groups()))),
            Request::Devices => Ok(self.brick()?.devices(&self.gatherer.data)),
            Request::Affected { number, after } => self.brick()?.affected(number, after),
            Request::AddDevice { path, tier, force } => {
                self.brick()?.add_device(&self.gatherer.data, (Path::new(&path), Tier::named(&tier)?), force)
            }
            Request::RemoveDevice { number } => self.brick()?.remove_device(&self.gatherer.data, number),
            Request::ScrubStart | Request::ScrubStop | Request::ScrubStatus => self.brick()?.scrub(&request),
            Request::Network { ask } => match (&self.node, &self.listener) {
                (Some(node), _) => node.answer(self.brick()?, &ask),
                (None, Some(listener)) => listener.answer(self.brick()?, &ask),
                (None, None) => Err(not_listening()),
            },
            Request::Shutdown => Ok(self.shut_down()),
        }
    }
}

impl console::Source for Daemon {
    fn snapshot(&self, looking: Duration) -> Option<Snapshot> {
        self.look(looking).ok()
    }
    fn slowest(&self) -> Vec<Whole> {
        self.gatherer.slowest()
    }
    fn liveness(&self) -> Vec<u64> {
        self.brick().map(|brick| brick.store().liveness().to_vec()).unwrap_or_default()
    }
    fn version(&self) -> String {
        crate::VERSION.to_string()
    }
    fn brick(&self) -> String {
        self.gatherer.data.display().to_string()
    }
}

/// Names the nodes of a cluster, which come named by their bricks.
fn name_nodes(node: &Node, snapshot: &mut Snapshot) {
    let named =
        |brick: &str| u128::from_str_radix(brick, 16).ok().and_then(|brick| node.name_of(brick)).map(String::from);
    for peer in &mut snapshot.peers {
        peer.node = named(&peer.brick).unwrap_or_else(|| peer.node.clone());
    }
    for led in &mut snapshot.led {
        led.leader = named(&led.leader).unwrap_or_else(|| led.leader.clone());
        led.node = node.name().to_string();
    }
}

fn recorded(part: Part) -> Answer {
    Answer::Recorded { number: part.number, hex: protocol::to_hex(&part.bytes) }
}

fn restriction(name: &str) -> Result<Restriction> {
    Restriction::of(name).ok_or_else(|| Error::new(Kind::Invalid, "no restriction of mounts").with(name))
}

/// The transport of requests, and the reason if it is not the faster one.
fn carrier(transport: Transport, wanted: cli::Transport) -> &'static str {
    match (transport, wanted) {
        (Transport::Rings, _) => "io_uring",
        (Transport::Device, cli::Transport::Dev) => "/dev/fuse",
        (Transport::Device, _) => {
            "/dev/fuse, as io_uring, which is faster, can't be had for them: it takes Linux 6.14 or newer, \
             Y in /sys/module/fuse/parameters/enable_uring, and memory"
        }
    }
}

/// Mounts a volume anew whose last mount is still used, by open files or in another mount namespace. None if it has just
/// ended. Errors: it is mounted; it can't be mounted there.
fn attached(mounted: Mounted, options: &MountOptions) -> Result<Option<Mounted>> {
    let mount = mounted.serving.mount();
    if mount.is_in_place() {
        let why = "a volume has one mount; show that elsewhere too with mount --bind, or end it first";
        return Err(Error::new(Kind::Busy, why).with(format!("{} at {}", mounted.volume, mount.path().display())));
    }
    match mount.attach(options) {
        Ok(path) => {
            say(&format!("{}: mounted anew, as it was still used", path.display()));
            Ok(Some(mounted))
        }
        // Its last requests are answered.
        Err(_) if mounted.serving.wait(LAST_REQUESTS) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The first answer of a mount itself.
fn answers(path: &Path) -> Result<()> {
    let silent = |error: std::io::Error| {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        Error::os("the mount does not answer", errno).with(path.display())
    };
    std::fs::metadata(path).map(drop).map_err(silent)
}

/// A volume as the protocol tells it, without its mounts.
pub fn described(brick: &Brick, volume: &base::Volume) -> protocol::Volume {
    let used = brick.used(volume.id);
    protocol::Volume {
        id: volume.id.0,
        name: String::from_utf8_lossy(volume.name.as_bytes()).into_owned(),
        root: volume.root.0,
        created_ns: volume.created.0,
        size_bytes: volume.size_bytes,
        used_bytes: used.bytes(),
        inodes: used.inodes,
        policy: volume.policy.name().to_string(),
        limits: named(volume.limits.all()),
        trees: brick.trees(volume).into_iter().map(limited).collect(),
        mounts: Vec::new(),
        detached: Vec::new(),
        open: None,
    }
}

fn limited((path, project, tree): (Option<String>, u32, base::Tree)) -> protocol::LimitedTree {
    protocol::LimitedTree { path, inode: tree.top.0, project, limits: named(tree.limits.all()) }
}

fn profile(ledger: &runtime::Ledger) -> Vec<Operation> {
    let operation = |profile: runtime::ledger::OpProfile| Operation {
        name: profile.name.to_string(),
        total: Times::of(&profile.total),
        hops: profile.hops,
        stages: profile
            .stages
            .iter()
            .map(|(stage, summary)| StageTimes { stage: stage.name().to_string(), times: Times::of(summary) })
            .collect(),
    };
    ledger.profile().into_iter().map(operation).collect()
}
