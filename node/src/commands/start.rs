//! Starting a daemon in the background: it gets a session of its own and a place for its messages, and is waited for until it serves.

use crate::directory;
use crate::failure::{Exit, Failure};
use crate::host;
use runtime::real::Access;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// Directory for the logs of daemons that have no journal.
const LOGS: &str = "/var/log/sinter";

/// Starts this program with these arguments and waits until it says that it is ready. `what` it serves names its log, unless `log`
/// does. Errors: what it said last.
pub fn daemon(arguments: &[OsString], what: &str, log: Option<&Path>) -> Result<(), Failure> {
    let own = std::env::current_exe().map_err(|error| Failure::io("can't find this program", &error))?;
    let mut command = Command::new(own);
    std::os::unix::process::CommandExt::arg0(&mut command, "sinter");
    command.args(arguments);
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped());
    // They are mount(8)'s or the mount unit's, not the daemon's.
    command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC").env_remove("WATCHDOG_PID");
    let path = log_path(what, log);
    let opened = path.as_deref().map(|path| open_log(path, log.is_none())).transpose()?;
    let heard_before = opened.as_ref().and_then(|log| log.metadata().ok()).map_or(0, |found| found.len());
    if let Some(log) = opened {
        command.stderr(log);
    }
    host::in_own_session(&mut command);
    let mut child = command.spawn().map_err(|error| Failure::io("can't start the daemon", &error))?;
    let mut line = String::new();
    let stdout = child.stdout.take().expect("piped");
    let heard = BufReader::new(stdout).read_line(&mut line);
    if heard.is_ok() && line.starts_with("ready") {
        return Ok(());
    }
    let status = child.wait().map_err(|error| Failure::io("can't wait for the daemon", &error))?;
    Err(failed(status, path.map(|path| (said_since(&path, heard_before), path))))
}

/// The file for the daemon's messages, if they don't go to the journal, which they do if this process writes there.
fn log_path(what: &str, log: Option<&Path>) -> Option<PathBuf> {
    match log {
        None if writes_to_journal() => None,
        None => Some(default_log(what)),
        Some(path) => Some(path.to_path_buf()),
    }
}

fn open_log(path: &Path, is_default: bool) -> Result<File, Failure> {
    let failed = |error: std::io::Error| Failure::io(format!("can't write the log {}", path.display()), &error);
    host::make_files_private();
    if is_default {
        std::fs::create_dir_all(LOGS).map_err(failed)?;
    }
    let opened = directory::named_file(path, Access::Append);
    opened.map_err(|error| Failure::of(format!("can't write the log {}", path.display()), &error))
}

/// The text written to a log after its first `bytes` bytes. Text that can't be read is in the file all the same.
fn said_since(path: &Path, bytes: u64) -> String {
    let mut said = String::new();
    if let Ok(mut file) = directory::named_file(path, Access::Read)
        && file.seek(SeekFrom::Start(bytes)).is_ok()
    {
        drop(file.read_to_string(&mut said));
    }
    said
}

/// The default log: `/srv/brick` writes to `srv-brick.log`, `prod/home` to `prod-home.log`.
fn default_log(what: &str) -> PathBuf {
    let name = what.trim_matches('/').replace('/', "-");
    Path::new(LOGS).join(format!("{name}.log"))
}

/// systemd says which file it made standard error; a shell may have replaced it since.
fn writes_to_journal() -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
    std::fs::metadata("/proc/self/fd/2").is_ok_and(|file| format!("{}:{}", file.dev(), file.ino()) == named)
}

/// A daemon's failure as it told it, in its last line.
fn failed(status: ExitStatus, log: Option<(String, PathBuf)>) -> Failure {
    let known = [Exit::InUse, Exit::Host, Exit::Corrupt, Exit::Newer];
    let exit = known.into_iter().find(|exit| status.code() == Some(*exit as i32)).unwrap_or(Exit::Failed);
    let text = match &log {
        Some((said, path)) => {
            let last = said.lines().last().unwrap_or("it said nothing").trim_start_matches("sinter: ");
            format!("{last} (log: {})", path.display())
        }
        None => "see the journal".to_string(),
    };
    Failure::new(exit, format!("the daemon did not start: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_told_apart() {
        assert_eq!(default_log("/srv/a/b"), Path::new("/var/log/sinter/srv-a-b.log"));
        assert_eq!(default_log("prod/home"), Path::new("/var/log/sinter/prod-home.log"));
    }
}
