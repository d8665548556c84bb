//! The destination of a daemon's messages: standard error, whatever that is. Promises that SIGHUP, by which logrotate
//! and others ask for it, opens a log file anew, and ends nothing but a daemon whose terminal is gone.

use crate::daemon::say;
use crate::directory;
use crate::host;
use runtime::real::Access;
use std::io::IsTerminal;
use std::path::PathBuf;

/// The kind of file that standard error was when the daemon started.
pub enum Log {
    /// A file: its path may be given to another one later.
    File(PathBuf),
    /// A terminal.
    Terminal,
    /// The journal, a pipe.
    Other,
}

impl Log {
    /// Looks at standard error.
    pub fn of_standard_error() -> Log {
        if std::io::stderr().is_terminal() {
            return Log::Terminal;
        }
        match std::fs::read_link("/proc/self/fd/2") {
            Ok(path) if std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_file()) => Log::File(path),
            _ => Log::Other,
        }
    }
    /// Does what SIGHUP asks for. True if the daemon must end.
    pub fn hung_up(&self) -> bool {
        match self {
            Log::File(path) => {
                let opened = directory::named_file(path, Access::Append);
                let replaced = opened
                    .map_err(|error| error.to_string())
                    .and_then(|file| host::replace_standard_error(&file).map_err(|error| error.to_string()));
                match replaced {
                    Ok(()) => say("SIGHUP: the log was opened anew"),
                    Err(error) => say(&format!("SIGHUP: the log could not be opened anew: {error}")),
                }
                false
            }
            Log::Terminal => true,
            Log::Other => {
                say("SIGHUP: there is no log file to open anew");
                false
            }
        }
    }
}
