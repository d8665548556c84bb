//! Clients that write or read until they are ended, with a log of each request.

use super::seconds::{self, Ended};
use crate::flash::fio;
use crate::flash::ground::told;
use crate::flash::undo::Undo;
use crate::verdicts::load::Load;
use crate::verdicts::process::Running;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Longer than any load runs: it is ended.
const SECONDS_MAX: u64 = 7200;

/// Time after which requests that are under way must have ended.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reads all of a file as a program does that knows nothing of direct I/O: through the kernel's cache and its read-ahead, and once.
/// `more`: further words for fio; what comes last counts.
pub fn read_once(load: &Load, file: &Path, seconds: u64, more: &[String], undo: &Undo) -> Result<fio::Said, String> {
    let mut command = load.command(file, seconds);
    command.args(["--direct=0", "--time_based=0", "--invalidate=0"]).args(more).stdout(Stdio::piped());
    fio::read(&Running::start(&mut command, undo)?.output(undo)?, "read")
}

/// Clients at work.
pub struct Clients {
    running: Running,
    log: PathBuf,
}

/// The work of clients that have ended.
pub struct Done {
    pub ended: Ended,
    /// Requests that failed.
    pub errors: u64,
}

impl Clients {
    /// Starts them. `logs`: a directory; `name`: of their log there.
    pub fn start(load: &Load, file: &Path, logs: &Path, name: &str, undo: &Undo) -> Result<Clients, String> {
        let mut command = load.command(file, SECONDS_MAX);
        let log = logs.join(name);
        command.arg(format!("--write_lat_log={}", log.display()));
        // Of each request only its end and its whole time, by the clock of the wall.
        command.args(["--log_unix_epoch=1", "--disable_slat=1", "--disable_clat=1", "--per_job_logs=0"]);
        command.args(["--continue_on_error=io", "--group_reporting"]).stdout(Stdio::piped());
        Ok(Clients { running: Running::start(&mut command, undo)?, log })
    }
    /// True if they have ended by themselves, which they should not.
    pub fn have_ended(&mut self) -> bool {
        self.running.has_ended()
    }
    /// Ends them. Errors: requests are under way that nobody answers; there is no log of any then.
    pub fn end(self, undo: &Undo) -> Result<Done, String> {
        let (said, log) = self.stop(undo)?;
        Ok(Done { ended: Ended::read(log.lines())?, errors: errors(&said)? })
    }
    /// Ends them; the times at which their requests ended, in milliseconds since 1970, in order. Errors: as above; a request failed.
    pub fn ends_ms(self, undo: &Undo) -> Result<Vec<u64>, String> {
        let (said, log) = self.stop(undo)?;
        if errors(&said)? > 0 {
            return Err(format!("requests failed: {said}"));
        }
        let requests = log.lines().map(|line| seconds::request(&line.map_err(|error| error.to_string())?));
        let mut ends = requests.map(|request| request.map(|(ms, _)| ms)).collect::<Result<Vec<_>, _>>()?;
        ends.sort_unstable();
        Ok(ends)
    }
    /// Ends them; what fio said, and its log.
    fn stop(self, undo: &Undo) -> Result<(String, BufReader<File>), String> {
        let Clients { mut running, log } = self;
        if !running.has_ended() {
            told("kill", &["-TERM", &running.process().to_string()])?;
        }
        let began = Instant::now();
        while !running.has_ended() {
            if began.elapsed() > PATIENCE {
                return Err(format!(
                    "the brick stands still: requests are not answered within {} s",
                    PATIENCE.as_secs()
                ));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let said = running.output(undo)?;
        let path = format!("{}_lat.log", log.display());
        let failed = |error: std::io::Error| format!("{path}: {error}; fio: {said}");
        let log = File::open(&path).map_err(failed)?;
        std::fs::remove_file(&path).map_err(failed)?;
        Ok((said, BufReader::new(log)))
    }
}

/// The failed requests that fio tells.
fn errors(said: &str) -> Result<u64, String> {
    // Notes come before the JSON.
    let json = said.find('{').map_or("", |at| &said[at..]);
    let all: Value = serde_json::from_str(json).map_err(|error| format!("fio: {error}: {said}"))?;
    let job = &all["jobs"][0];
    let error = job["error"].as_u64().ok_or_else(|| format!("fio told no error: {said}"))?;
    Ok(job["total_err"].as_u64().unwrap_or(0).max(u64::from(error != 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_requests_are_counted() {
        assert_eq!(errors(r#"note: {"jobs": [{"error": 0, "total_err": 0}]}"#.trim_start_matches("note: ")), Ok(0));
        assert_eq!(errors("fio: a note\n{\"jobs\": [{\"error\": 0, \"total_err\": 7, \"first_err\": 28}]}"), Ok(7));
        assert_eq!(errors("{\"jobs\": [{\"error\": 5}]}"), Ok(1));
        assert!(errors("fio: it was killed").is_err());
        assert!(errors("{\"jobs\": []}").is_err());
    }
}
