//! The orderly end of a daemon. Promises that it loses nothing that a client was told, that the next start has nothing to
//! replay, and that nobody reaches the directory below a mount before all of that is on the device:
//!
//! 1. nothing more is opened or mounted; files that are open are served until they are closed, but not for longer than the
//!    daemon's patience, and whoever waits is told at once for whom;
//! 2. then every request is answered with an error, once those under way have been carried out;
//! 3. what was acknowledged is committed;
//! 4. a checkpoint takes it to the index;
//! 5. the mounts are detached;
//! 6. the process ends.
//!
//! Somebody's `umount` of the last mount begins at step 3: the kernel has done what is before it.

use crate::daemon::{Daemon, Mounted, Running, say};
use crate::failure::Failure;
use crate::notify::Notifier;
use front::fuse::Opener;
use std::time::{Duration, Instant};

/// Time for which files that stay open are served.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// The kernel tells a moment later that a file was closed.
const CLOSING: Duration = Duration::from_millis(100);
/// Interval at which waiting people are told anew for whom.
const LOOK: Duration = Duration::from_secs(1);
/// Processes that are named: the others are counted.
const NAMED_MAX: usize = 5;

impl Running {
    /// Ends everything in order.
    pub fn end(self) -> Result<(), Failure> {
        let Running { daemon, server, console, notifier, .. } = self;
        notifier.stopping();
        daemon.begin_ending();
        let mounts = daemon.mounted();
        serve_what_is_open(&daemon, &mounts, &notifier);
        // What they hold would otherwise be waited for.
        daemon.backend().end_waits();
        for mounted in &mounts {
            if let Err(error) = mounted.serving.refuse_all() {
                say(&format!("requests of {}: {error}", mounted.path().display()));
            }
        }
        daemon.stop_listening();
        if let Some(console) = console {
            console.stop();
        }
        server.stop();
        let committed = daemon.backend().commit();
        for mounted in &mounts {
            if let Err(error) = mounted.serving.detach() {
                say(&format!("{} could not be unmounted: {error}", mounted.path().display()));
            }
        }
        daemon.backend().stop();
        committed.map_err(|error| Failure::of("it was not closed cleanly", &error))
    }
}

fn serve_what_is_open(daemon: &Daemon, mounts: &[Mounted], notifier: &Notifier) {
    let deadline = Instant::now() + daemon.patience();
    mounts.iter().for_each(|mounted| mounted.serving.refuse_opens());
    let (mut told, mut patience) = (None, CLOSING);
    while !mounts.iter().all(|mounted| mounted.serving.wait_closed(patience)) {
        let left = deadline.saturating_duration_since(Instant::now());
        let users = users(mounts);
        if left.is_zero() {
            say(&format!("still open are {users}: their programs get errors from now on"));
            return;
        }
        if told.as_ref() != Some(&users) {
            let what = format!("waiting at most {} s for {users}", left.as_secs_f64().ceil());
            say(&what);
            notifier.waits(&what);
            daemon.note_waiting(&what);
            told = Some(users);
        }
        patience = left.min(LOOK);
    }
}

/// The processes that have files of mounts open.
fn users(mounts: &[Mounted]) -> String {
    let of = |mounted: &Mounted| {
        let openers = mounted.serving.openers();
        (!openers.is_empty()).then(|| format!("{} of {}", described(&openers), mounted.path().display()))
    };
    mounts.iter().filter_map(of).collect::<Vec<_>>().join(", and ")
}

/// `3 open files (2 of process 17 (tail), 1 of process 4, which has ended)`.
pub fn described(openers: &[Opener]) -> String {
    let count: usize = openers.iter().map(|opener| opener.handles).sum();
    let mut named: Vec<String> =
        openers.iter().take(NAMED_MAX).map(|opener| format!("{} of {}", opener.handles, process(opener.pid))).collect();
    if let Some(others) = openers.len().checked_sub(NAMED_MAX).filter(|&others| others > 0) {
        named.push(format!("others of {others} more processes"));
    }
    let files = if count == 1 { "open file" } else { "open files" };
    format!("{count} {files} ({})", named.join(", "))
}

/// A process by its number and name. The kernel gives the number of the thread that asked.
fn process(pid: u32) -> String {
    if pid == 0 {
        return "a process of another container".to_string();
    }
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else {
        return format!("process {pid}, which has ended");
    };
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let pid = field("Tgid:").unwrap_or_default();
    format!("process {pid} ({})", field("Name:").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_named() {
        let own = std::process::id();
        let opener = |pid, handles| Opener { pid, handles };
        let text = described(&[opener(own, 2), opener(u32::MAX, 1), opener(0, 1)]);
        assert!(text.starts_with(&format!("4 open files (2 of process {own} (")), "{text}");
        assert!(
            text.ends_with("1 of process 4294967295, which has ended, 1 of a process of another container)"),
            "{text}"
        );
        let many: Vec<Opener> = (0..7).map(|_| opener(0, 1)).collect();
        assert!(described(&many).ends_with("others of 2 more processes)"));
        assert!(described(&[opener(own, 1)]).starts_with("1 open file (1 of"));
    }
}
