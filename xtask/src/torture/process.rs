//! A process of the product: its start, its signals, its end.
//!
//! Promises: it is killed at the end of the run, whatever happens. Absent by design: what it does.

use crate::flash::ground::{ended, text};
use crate::flash::undo::Undo;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Time for a start, which replays logs, and for an end in order, which writes back what a mount holds.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two looks at it.
const LOOK: Duration = Duration::from_millis(5);

/// A process.
pub struct Process<'a> {
    child: Child,
    log: PathBuf,
    /// The length of its log before.
    heard: u64,
    undo: &'a Undo,
    undone_by: String,
}

impl<'a> Process<'a> {
    /// Starts the product by a command; its log gets all that it says.
    pub fn start(mut command: Command, log: &Path, undo: &'a Undo) -> Result<Process<'a>, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", log.display());
        let errors = File::options().create(true).append(true).open(log).map_err(failed)?;
        let heard = errors.metadata().map_err(failed)?.len();
        let output = errors.try_clone().map_err(failed)?;
        // Ctrl-C is for this program, which then ends the others.
        command.process_group(0).stdin(Stdio::null()).stdout(output).stderr(errors);
        let spawned = command.spawn();
        let child = spawned.map_err(|error| format!("{}: {error}", command.get_program().display()))?;
        let undone_by = format!("kill -9 {0} 2>/dev/null; {1}", child.id(), ended(child.id(), 20));
        undo.add(&undone_by)?;
        Ok(Process { child, log: log.to_path_buf(), heard, undo, undone_by })
    }
    /// Waits until it says that it is ready. Errors: it ends, or is not in time.
    pub fn becomes_ready(&mut self, patience: Duration) -> Result<(), String> {
        let began = Instant::now();
        while !self.said().lines().any(|line| line.starts_with("ready: ")) {
            if let Some(status) = self.has_ended() {
                return Err(format!("a process has ended: {status}; it said: {}", self.said().trim()));
            }
            if began.elapsed() > patience {
                return Err(format!("a process is not ready after {patience:?}; see {}", self.log.display()));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
    /// The text in its log since its start.
    pub fn said(&self) -> String {
        let mut said = Vec::new();
        let read = File::open(&self.log).and_then(|mut log| {
            log.seek(SeekFrom::Start(self.heard))?;
            log.read_to_end(&mut said)
        });
        // A log that can't be read has nothing to tell.
        drop(read);
        String::from_utf8_lossy(&said).into_owned()
    }
    /// Its number.
    pub fn number(&self) -> u32 {
        self.child.id()
    }
    /// Sends it a signal.
    pub fn signal(&self, name: &str) {
        let mut command = Command::new("kill");
        command.args([format!("-{name}"), self.child.id().to_string()]).stderr(Stdio::null());
        // It may have ended just now.
        drop(command.status());
    }
    /// The way in which it has ended, if it has.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().ok().flatten()?;
        // The list is for processes that are left; one that is gone does no harm there.
        drop(self.undo.forget(&self.undone_by));
        Some(status)
    }
    /// Kills it, and leaves the wait to `kill`.
    pub fn strike(&mut self) {
        // It fails only if it has ended already.
        drop(self.child.kill());
    }
    /// Kills it, and waits until the kernel has closed its files.
    pub fn kill(&mut self) {
        // Both fail only if it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
        drop(self.undo.forget(&self.undone_by));
    }
    /// Ends it in order. Errors: it failed, or goes on.
    pub fn end(&mut self) -> Result<(), String> {
        self.signal("TERM");
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            match self.has_ended() {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("a process, asked to end: {status}; see {}", text(&self.log))),
                None => std::thread::sleep(LOOK),
            }
        }
        Err(format!("a process goes on {PATIENCE:?} after SIGTERM; see {}", text(&self.log)))
    }
}
