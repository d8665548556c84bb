//! Commands that open a brick themselves: up, serve, format, grow.

use super::{ask, print, print_json};
use crate::admin::client::{Client, unexpected};
use crate::admin::protocol::{Answer, Request};
use crate::assembly::{self, Brick, Formatted, IfNew};
use crate::backend::Backend;
use crate::cli::{Format, Grow, Listen, Resources, Serve, Surfaces, Up};
use crate::cluster::{Member, Node, forming};
use crate::config;
use crate::daemon::{Mounted, Running, Until, Ways, say};
use crate::directory;
use crate::failure::{Exit, Failure};
use crate::host::{self, Signals};
use crate::memory;
use crate::network::Listener;
use crate::notify::Notifier;
use crate::progress::Progress;
use crate::table::bytes;
use console::Listening;
use front::fuse::{self, MountOptions};
use runtime::real::Directory;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// `sinter up`: a brick, its default volume, one mount, until a signal or an unmount.
pub fn up(options: &Up) -> Result<Exit, Failure> {
    let options = config::plan(options)?;
    let signals = become_daemon()?;
    // Looked at before anything is formatted.
    let mount = mount_point(&options.mount)?;
    host::check_may_mount().map_err(|error| Failure::of("can't mount", &error))?;
    fuse::check(&mount).map_err(|error| Failure::of(format!("can't mount at {}", mount.display()), &error))?;
    let listening = listen(&options.surfaces)?;
    let data = directory::make(&options.data)?;
    refuse_inside(data.path(), &mount)?;
    if host::is_not_empty(&mount) {
        say(&format!("what {} holds is hidden while the volume is mounted there", mount.display()));
    }
    let if_new = IfNew::Format(&options.geometry);
    let device = options.geometry.first().cloned();
    let wanted = (&options.resources, &options.listen);
    let opened = open(&data, (if_new, None), &device, wanted, signals, listening);
    let running = opened.map_err(|failure| {
        served_already(&options.data, failure, || {
            format!("sinter mount {} {} {}", options.data.display(), options.volume, mount.display())
        })
    })?;
    match mounted(&running, &options.volume, &mount) {
        Ok(mounted) => {
            let path = mounted.path();
            // Whoever started it may have stopped listening; the mount is what counts.
            drop(print(&running.ready(&format!("volume {} at {}", options.volume, path.display()))));
            let number = mounted.number;
            drop(mounted);
            running.wait(Until::Unmounted(number));
            running.end()?;
            Ok(Exit::Done)
        }
        Err(failure) => {
            // Leaves nothing behind; the first failure is the one to tell.
            drop(running.end());
            Err(failure)
        }
    }
}

/// A brick whose daemon runs needs no second one.
fn served_already(data: &Path, failure: Failure, next: impl FnOnce() -> String) -> Failure {
    let served = failure.exit == Exit::InUse && Client::connect(data).is_ok_and(|client| client.is_some());
    if served { failure.next(format!("a daemon serves it already: {}", next())) } else { failure }
}

fn mounted(running: &Running, volume: &str, path: &Path) -> Result<Mounted, Failure> {
    let created = running.daemon().ensure_volume(volume);
    created.map_err(|error| Failure::of(format!("can't create volume {volume}"), &error))?;
    let options =
        MountOptions { path: path.to_path_buf(), source: volume.to_string(), restrictions: Vec::new(), shares: false };
    running
        .daemon()
        .mount(volume, &options)
        .map_err(|error| Failure::of(format!("can't mount volume {volume}"), &error))
}

/// `sinter serve`: a brick and its admin socket, until a signal.
pub fn serve(options: &Serve) -> Result<Exit, Failure> {
    let signals = become_daemon()?;
    let listening = listen(&options.surfaces)?;
    let data = directory::existing(&options.data)?;
    let wanted = (&options.resources, &options.listen);
    let Some(member) = whole_member(&data, &options.listen, &signals)? else { return Ok(Exit::Done) };
    let opened = open(&data, (IfNew::Refuse, member), &options.device, wanted, signals, listening);
    let running = opened.map_err(|failure| {
        served_already(&options.data, failure, || format!("sinter status {}", options.data.display()))
    })?;
    drop(print(&running.ready(&format!("brick {}", data.path().display()))));
    running.wait(if options.until_unmounted { Until::AllUnmounted } else { Until::Asked });
    running.end()?;
    Ok(Exit::Done)
}

/// The place of a brick in a cluster, once that has all its nodes; the inner None if it is of none. None: somebody asked for the end before.
fn whole_member(data: &Directory, listen: &Listen, signals: &Signals) -> Result<Option<Option<Member>>, Failure> {
    let found = member(data, listen)?;
    let is_under_way = |member: &&Member| forming::is_under_way(data, member.cluster());
    let Some(forming) = found.as_ref().filter(is_under_way) else { return Ok(Some(found)) };
    let ready = |line: &str| drop(print(&format!("{line}\n")));
    match forming::wait(data, (forming.cluster().clone(), forming.brick()), signals, ready)? {
        // It is another file by now.
        true => member(data, listen).map(Some),
        false => Ok(None),
    }
}

/// The place of a brick in a cluster; None if it is of none. Errors: it would listen besides.
fn member(data: &Directory, listen: &Listen) -> Result<Option<Member>, Failure> {
    let read =
        Member::read(data).map_err(|error| Failure::of(format!("can't serve {}", data.path().display()), &error));
    let member = read?;
    if member.is_some() && (listen.listen.is_some() || listen.name.is_some() || listen.wire_encryption.is_some()) {
        let text = format!("{} is a brick of a cluster, which says itself how it is reached", data.path().display());
        return Err(Failure::new(Exit::Usage, text).next("leave --listen, --name and --wire-encryption out"));
    }
    Ok(member)
}

/// `sinter format`.
pub fn format(options: &Format) -> Result<Exit, Failure> {
    host::make_files_private();
    host::check_file_size().map_err(|error| Failure::of("can't format", &error))?;
    let data = directory::make(&options.data)?;
    let progress = Progress::new("formatting", None);
    let memory_max = memory::default_max_bytes();
    let formatted = assembly::format(&data, &options.geometry, options.force, memory_max, &progress.tell())?;
    progress.clear();
    let Formatted { size_bytes, groups, again, .. } = formatted;
    match options.json {
        true => print_json(&serde_json::json!({ "size_bytes": size_bytes, "groups": groups, "again": again }))?,
        false => print(&(described(data.path(), &formatted) + "\n"))?,
    }
    Ok(Exit::Done)
}

/// `sinter grow`: by its daemon, or here if no daemon serves the brick.
pub fn grow(options: &Grow) -> Result<Exit, Failure> {
    let request = Request::Grow { size_bytes: options.size };
    let answer = ask(&options.data, request)?;
    let Answer::Grown { before_bytes, bytes: now_bytes } = answer else { return Err(unexpected()) };
    if options.json {
        print_json(&serde_json::json!({ "before_bytes": before_bytes, "bytes": now_bytes }))?;
        return Ok(Exit::Done);
    }
    print(&match now_bytes == before_bytes {
        true => format!("nothing to add: the brick has {} already\n", bytes(before_bytes)),
        false => format!("grown from {} to {}\n", bytes(before_bytes), bytes(now_bytes)),
    })?;
    Ok(Exit::Done)
}

fn described(data: &Path, formatted: &Formatted) -> String {
    let again = if formatted.again { " again, because an earlier format was interrupted," } else { "" };
    let Formatted { size_bytes, groups, .. } = formatted;
    format!("formatted{again} {}: {}, {groups} groups", data.display(), bytes(*size_bytes))
}

/// The bound of a daemon's memory.
pub(super) fn memory_max(resources: &Resources) -> u64 {
    resources.memory_max.unwrap_or_else(memory::default_max_bytes)
}

/// Preparations of every daemon before it starts a thread or creates a file.
pub(super) fn become_daemon() -> Result<Signals, Failure> {
    host::make_files_private();
    host::become_io_flusher();
    host::check_file_size().map_err(|error| Failure::of("can't start", &error))?;
    host::drop_privileges().map_err(|error| Failure::io("can't drop privileges", &error))?;
    #[cfg(feature = "seeded-bugs")]
    crate::test_switches::apply()?;
    #[cfg(feature = "ablations")]
    crate::ablations::apply()?;
    Signals::block().map_err(|error| Failure::io("can't watch for signals", &error))
}

fn open(
    data: &Directory,
    (if_new, member): (IfNew<'_>, Option<Member>),
    device: &Option<PathBuf>,
    (resources, listen): (&Resources, &Listen),
    signals: Signals,
    listening: Listening,
) -> Result<Running, Failure> {
    let memory_max = memory_max(resources);
    host::check_address_space(memory_max).map_err(|error| Failure::of("can't start", &error))?;
    let available = memory::available();
    if memory_max > available {
        let (wanted, there) = (bytes(memory_max), bytes(available));
        say(&format!("--memory-max is {wanted}, more than the {there} that this machine or its control group has"));
    }
    let progress = Progress::new("starting", Some(Notifier::from_environment()));
    let brick = Brick::open(data, (if_new, member.as_ref()), device.as_deref(), memory_max, progress.tell())?;
    progress.clear();
    if let Some(formatted) = brick.formatted() {
        say(&described(data.path(), &formatted));
    }
    brick.warnings().iter().for_each(|warning| say(warning));
    let transport = resources.transport;
    #[cfg(feature = "ablations")]
    let transport = crate::ablations::transport(transport);
    let ways = match ways(&brick, data, member, listen) {
        Ok(ways) => ways,
        Err(failure) => {
            // The first failure is the one to tell.
            drop(brick.close());
            return Err(failure);
        }
    };
    if let Some(listener) = &ways.listener {
        say(&format!("clients of other machines: {}", listener.address()));
        listener.warning().iter().for_each(|warning| say(warning));
    }
    Running::start((Backend::Brick(brick), ways), data, transport, signals, listening)
}

fn ways(brick: &Brick, data: &Directory, member: Option<Member>, listen: &Listen) -> Result<Ways, Failure> {
    let node = member.map(|member| Node::start(brick, member)).transpose();
    let node = node.map_err(|error| Failure::of("can't reach the other bricks of the cluster", &error))?;
    Ok(Ways { listener: Listener::start(brick, data, listen)?, node })
}

/// Takes the addresses of the daemon's figures; they answer once it runs. Errors: an address can't be had.
fn listen(surfaces: &Surfaces) -> Result<Listening, Failure> {
    let failed = |(address, error): (SocketAddr, std::io::Error)| {
        let next = match error.kind() {
            ErrorKind::AddrInUse => {
                format!("give another port, or end who listens there: ss -ltnp sport = :{}", address.port())
            }
            ErrorKind::PermissionDenied => "give a port of 1024 or above".to_string(),
            _ => "give 127.0.0.1:PORT".to_string(),
        };
        Failure::io(format!("can't listen at {address}"), &error).next(next).or_without_network()
    };
    Listening::at(&surfaces.addresses()).map_err(failed)
}

/// The mount point's path. A dead mount there can't be resolved; mounting will take it over or say what it is.
pub(super) fn mount_point(path: &Path) -> Result<PathBuf, Failure> {
    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => path.canonicalize().map_err(|error| Failure::io(shown, &error)),
        Ok(_) => {
            let failure = Failure::new(Exit::Usage, format!("the mount point {shown} is not a directory"));
            Err(failure.next("give an empty directory"))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let failure = Failure::new(Exit::Usage, format!("the mount point {shown} does not exist"));
            Err(failure.next(format!("mkdir -p {shown}")))
        }
        Err(error) if error.raw_os_error().is_some_and(fuse::is_dead) => {
            std::path::absolute(path).map_err(|error| Failure::io(shown, &error))
        }
        Err(error) => Err(Failure::io(format!("can't use the mount point {shown}"), &error)),
    }
}

/// A brick below its own mount would wait for itself; a mount over the brick would hide it.
pub(super) fn refuse_inside(data: &Path, mount: &Path) -> Result<(), Failure> {
    if data.starts_with(mount) || mount.starts_with(data) {
        let text = format!("the brick {} and the mount point {} contain each other", data.display(), mount.display());
        return Err(Failure::new(Exit::Usage, text).next("give a mount point beside the brick"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn mount_points_are_looked_at() {
        let scratch = Scratch::new();
        assert!(mount_point(scratch.path()).is_ok());
        let absent = mount_point(&scratch.path().join("absent")).expect_err("not there");
        assert!(absent.exit == Exit::Usage && absent.to_string().contains("mkdir -p"), "{absent}");
        let file = scratch.path().join("file");
        std::fs::write(&file, "").expect("writable");
        assert_eq!(mount_point(&file).expect_err("a file").exit, Exit::Usage);
    }

    #[test]
    fn brick_and_mount_are_beside_each_other() {
        let refused = |data: &str, mount: &str| refuse_inside(Path::new(data), Path::new(mount)).is_err();
        assert!(refused("/a/b", "/a"));
        assert!(refused("/a", "/a/b"));
        assert!(refused("/a", "/a"));
        assert!(!refused("/ab", "/a"));
    }
}
