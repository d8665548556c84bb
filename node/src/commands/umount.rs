//! `sinter umount`: of what is mounted at a path, or of all that is mounted of a brick or of one of its volumes. Done here; the
//! daemon notices. For a brick it returns once nobody uses those mounts any more, and says for whom it waits.

use super::fstab::is_ending;
use super::mount::absolute;
use super::{print, print_json};
use crate::admin::client::{Client, unexpected};
use crate::admin::protocol::{Answer, Request, Volume};
use crate::assembly::INDEX;
use crate::cli::Umount;
use crate::daemon::say;
use crate::directory;
use crate::failure::{Exit, Failure};
use crate::host::{self, Process};
use crate::remote::{Place, place_of};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Pause between attempts while somebody uses a mount.
const PAUSE: Duration = Duration::from_millis(100);

/// A mount that nobody uses is gone sooner: who waits for no longer is not worth a word.
const AT_ONCE: Duration = Duration::from_millis(500);

/// The result for a brick, as JSON shows it.
#[derive(Default, serde::Serialize)]
struct Gone {
    /// Paths that were unmounted.
    unmounted: Vec<String>,
    /// Mounts that are gone from here and still used.
    detached: Vec<String>,
    /// No daemon serves the brick any more.
    ended: bool,
    seconds: f64,
}

/// Runs `sinter umount`.
pub fn run(options: &Umount) -> Result<Exit, Failure> {
    if let Some(place) = place_of(&options.target) {
        return of_place(&place, options);
    }
    let at_point = options.volume.is_none() && !is_brick(&options.target);
    if at_point { of_point(&options.target, options) } else { of_brick(options) }
}

/// Unmounts a volume of a server.
fn of_place(place: &Place, options: &Umount) -> Result<Exit, Failure> {
    let Answer::Status(status) = Client::need(&options.target)?.ask(&Request::Status)? else {
        return Err(unexpected());
    };
    let points: Vec<_> = status.mounts.iter().filter(|mount| !mount.detached).collect();
    if points.is_empty() {
        return Err(Failure::new(Exit::Failed, format!("{place} is mounted nowhere, and is still used")));
    }
    points.iter().try_for_each(|mount| of_point(Path::new(&mount.path), options).map(drop))?;
    Ok(Exit::Done)
}

/// A directory that no volume is mounted at, and that holds a brick.
fn is_brick(path: &Path) -> bool {
    let is_volume =
        |point: PathBuf| host::mounted_at(&point).is_ok_and(|entry| entry.is_some_and(|it| it.kind == KIND));
    !resolved(path).is_ok_and(is_volume) && path.join(INDEX).is_dir() && path.join("lock").is_file()
}

/// The type of volumes in the mount table.
const KIND: &str = "fuse.sinter";

fn of_point(path: &Path, options: &Umount) -> Result<Exit, Failure> {
    let path = resolved(path)?;
    let shown = path.display();
    let mounted = host::mounted_at(&path).map_err(|error| Failure::io("can't read the mount table", &error))?;
    match mounted {
        Some(entry) if entry.kind == KIND => {}
        Some(entry) => {
            let failure = Failure::new(Exit::Failed, format!("at {shown} is no volume, but {}", entry.kind));
            return Err(failure.next(format!("use umount {shown} if that is what you want")));
        }
        None => {
            let failure = Failure::new(Exit::Failed, format!("nothing is mounted at {shown}"));
            return Err(failure.next("`sinter status` lists the mounts of a brick"));
        }
    }
    host::unmount(&path, options.lazy).map_err(|error| {
        let failure = Failure::io(format!("can't unmount {shown}"), &error);
        match error.raw_os_error() {
            Some(libc::EBUSY) => failure.next(format!("close what uses it (fuser -vm {shown}), or give --lazy")),
            _ => failure,
        }
    })?;
    if options.json {
        print_json(&serde_json::json!({ "mount": path }))?;
    }
    Ok(Exit::Done)
}

/// The mount point as the mount table names it. The mount itself may be dead, so only its parent is asked.
fn resolved(path: &Path) -> Result<PathBuf, Failure> {
    let absolute = absolute(path)?;
    let resolved = match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => parent.canonicalize().map(|parent| parent.join(name)),
        _ => Ok(absolute),
    };
    resolved.map_err(|error| Failure::io(format!("can't find {}", path.display()), &error))
}

fn of_brick(options: &Umount) -> Result<Exit, Failure> {
    let data = &options.target;
    let started = Instant::now();
    let mut gone = Gone::default();
    let Some(mut client) = Client::connect(data)? else {
        directory::existing(data)?;
        gone.ended = true;
        return told(options, &gone);
    };
    let Answer::Status(status) = client.ask(&Request::Status)? else { return Err(unexpected()) };
    // Held: its number may be another's once it has ended.
    let failed = |error| Failure::io(format!("can't watch the daemon of {}", data.display()), &error);
    let process = Process::of(status.pid).map_err(failed)?;
    drop(client);
    let until = started + Duration::from_secs(options.timeout);
    let mut said = None;
    while let Some(volumes) = volumes(options)? {
        let users = take_away(&volumes, options.lazy, &mut gone)?;
        let Some(users) = users.filter(|_| !(options.lazy && volumes.iter().all(|volume| volume.mounts.is_empty())))
        else {
            break;
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let text = format!("mounts of {} are still used: {users}", data.display());
            return Err(Failure::new(Exit::InUse, text).next("close what uses them, or give --lazy"));
        }
        if said.as_ref() != Some(&users) && started.elapsed() > AT_ONCE {
            say(&format!("waiting at most {} s for {users}", left.as_secs_f64().ceil()));
            said = Some(users);
        }
        std::thread::sleep(PAUSE);
    }
    // One that was to end with these mounts is waited for.
    if is_ending(data)? {
        let left = until.saturating_duration_since(Instant::now());
        gone.ended = process.is_none_or(|process| process.ends_within(left).unwrap_or(false));
    }
    gone.seconds = started.elapsed().as_secs_f64();
    told(options, &gone)
}

/// The volumes concerned. None: nobody serves them any more, or soon.
fn volumes(options: &Umount) -> Result<Option<Vec<Volume>>, Failure> {
    let Some(mut client) = Client::connect(&options.target)? else { return Ok(None) };
    let mut volumes = match client.ask(&Request::VolumeList) {
        Ok(Answer::Volumes(volumes)) => volumes,
        Ok(_) => return Err(unexpected()),
        Err(_) if is_ending(&options.target)? => return Ok(None),
        Err(failure) => return Err(failure),
    };
    if let Some(name) = &options.volume {
        volumes.retain(|volume| volume.name == *name);
        if volumes.is_empty() {
            let failure = Failure::new(Exit::Failed, format!("no volume of this name: {name}"));
            return Err(failure.next(format!("sinter volume list {}", options.target.display())));
        }
    }
    Ok(Some(volumes))
}

/// Takes away all mounts that nobody uses; who uses the others.
fn take_away(volumes: &[Volume], lazy: bool, gone: &mut Gone) -> Result<Option<String>, Failure> {
    let mut users = Vec::new();
    gone.detached.clear();
    for volume in volumes {
        let open = || volume.open.clone().unwrap_or_else(|| "a working directory or a mapped file".to_string());
        // The last one made may lie in one of the others.
        for point in volume.mounts.iter().rev() {
            match host::unmount(Path::new(point), lazy) {
                Ok(()) => {
                    gone.unmounted.push(point.clone());
                    users.push(format!("the last requests of {point}"));
                }
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    users.push(format!("{} of {point}", open()));
                }
                // Somebody else was quicker.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOENT)) => {}
                Err(error) => return Err(Failure::io(format!("can't unmount {point}"), &error)),
            }
        }
        let detached = volume.detached.iter().map(|how| format!("{}, {how}", volume.name));
        gone.detached.extend(detached);
    }
    users.extend(gone.detached.iter().cloned());
    Ok((!users.is_empty()).then(|| users.join(", and ")))
}

fn told(options: &Umount, gone: &Gone) -> Result<Exit, Failure> {
    let shown = options.target.display();
    if options.json {
        print_json(gone)?;
        return Ok(Exit::Done);
    }
    let mut lines: Vec<String> = gone.unmounted.iter().map(|point| format!("unmounted {point}\n")).collect();
    lines.extend(gone.detached.iter().map(|how| format!("{how}\n")));
    lines.extend(lines.is_empty().then(|| format!("nothing of {shown} is mounted\n")));
    if gone.ended && !gone.unmounted.is_empty() {
        lines.push(format!("the daemon of {shown} has ended\n"));
    }
    print(&lines.concat())?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_volumes_are_unmounted() {
        let of = |path: &str| Umount { target: path.into(), volume: None, lazy: false, timeout: 1, json: false };
        let error = run(&of("/proc")).expect_err("not ours");
        assert!(error.to_string().contains("no volume, but proc"), "{error}");
        let error = run(&of("/usr")).expect_err("no mount point");
        assert!(error.to_string().contains("nothing is mounted at /usr"), "{error}");
        assert!(run(&of("/absent/absent")).is_err());
    }
}
