//! Shows how far long work has come and how long it will take: on a terminal one line that is written again and again,
//! else a line every few seconds; and to the service manager. Work that is done at once shows nothing elsewhere.

use crate::daemon::say;
use crate::notify::Notifier;
use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use store::progress::{Step, Tell};

/// Interval at which a line on a terminal changes: eyes don't follow more.
const REWRITE: Duration = Duration::from_millis(200);
/// Interval at which a log gets a line and the service manager a word, if there is news.
const TELL: Duration = Duration::from_secs(2);
/// Time before which the speed is anyone's guess.
const GUESS: Duration = Duration::from_secs(1);

/// The display of progress. It clears the terminal's line when it is dropped.
pub struct Progress {
    /// The name of the whole work.
    title: &'static str,
    notifier: Option<Notifier>,
    terminal: bool,
    shown: Mutex<Shown>,
}

struct Shown {
    what: &'static str,
    /// Time at which this step began.
    since: Instant,
    /// Times at which something was shown last, and at which the service manager was told; at first, when the work
    /// began.
    last: Instant,
    told: Instant,
    /// The cursor is behind an unfinished line.
    open: bool,
}

impl Progress {
    /// Progress of a command, or of a daemon that starts, which tells its service manager too.
    pub fn new(title: &'static str, notifier: Option<Notifier>) -> Arc<Progress> {
        let now = Instant::now();
        let shown = Mutex::new(Shown { what: "", since: now, last: now, told: now, open: false });
        Arc::new(Progress { title, notifier, terminal: std::io::stderr().is_terminal(), shown })
    }

    /// The receiver to be told of progress.
    pub fn tell(self: &Arc<Self>) -> Tell {
        let there = self.clone();
        Arc::new(move |step| there.step(step))
    }

    /// The work is at this step now.
    pub fn step(&self, step: Step) {
        self.step_at(step, Instant::now());
    }

    fn step_at(&self, step: Step, now: Instant) {
        let mut shown = self.shown.lock().expect("no panic while held");
        let begins = shown.what != step.what;
        if begins {
            (shown.what, shown.since) = (step.what, now);
        }
        let elapsed = now - shown.since;
        if let Some(notifier) = &self.notifier
            && now - shown.told >= TELL
        {
            notifier.starting(&line(self.title, step, elapsed));
            shown.told = now;
        }
        let pause = if self.terminal { REWRITE } else { TELL };
        if now - shown.last < pause && !(begins && self.terminal) {
            return;
        }
        match self.terminal {
            true => rewrite(&format!("sinter: {}", line(self.title, step, elapsed))),
            false => say(&line(self.title, step, elapsed)),
        }
        (shown.last, shown.open) = (now, self.terminal);
    }

    /// Takes an unfinished line off the terminal: something else is to be said.
    pub fn clear(&self) {
        let mut shown = self.shown.lock().expect("no panic while held");
        if std::mem::take(&mut shown.open) {
            rewrite("");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Replaces the terminal's last line. One that is gone is no reason to stop working.
fn rewrite(text: &str) {
    let mut error = std::io::stderr().lock();
    drop(write!(error, "\r\x1b[K{text}").and_then(|()| error.flush()));
}

/// `checking: index, 37%, 2 min left`.
fn line(title: &str, step: Step, elapsed: Duration) -> String {
    let Step { what, done, of } = step;
    if of == 0 {
        return format!("{title}: {what}");
    }
    let text = format!("{title}: {what}, {}%", done.min(of) * 100 / of);
    match left(step, elapsed) {
        Some(left) => format!("{text}, {} left", spoken(left)),
        None => text,
    }
}

/// The remaining time if it goes on as it has so far.
pub fn left(step: Step, elapsed: Duration) -> Option<Duration> {
    let Step { done, of, .. } = step;
    let known = elapsed >= GUESS && done > 0 && done <= of;
    known.then(|| elapsed.mul_f64((of - done) as f64 / done as f64))
}

/// A duration for people: the next whole unit.
pub fn spoken(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..120 => format!("{} s", seconds + 1),
        seconds @ 120..7200 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h", seconds.div_ceil(3600)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_and_how_long() {
        let step = |done, of| Step { what: "index", done, of };
        let at = |done, of, seconds| line("checking", step(done, of), Duration::from_secs(seconds));
        assert_eq!(at(0, 0, 9), "checking: index");
        assert_eq!(at(0, 64, 9), "checking: index, 0%");
        assert_eq!(at(16, 64, 0), "checking: index, 25%");
        assert_eq!(at(16, 64, 10), "checking: index, 25%, 31 s left");
        assert_eq!(at(1, 64, 10), "checking: index, 1%, 11 min left");
        assert_eq!(at(1, 6400, 10), "checking: index, 0%, 18 h left");
        assert_eq!(at(64, 64, 10), "checking: index, 100%, 1 s left");
        assert_eq!(at(65, 64, 10), "checking: index, 100%");
    }

    #[test]
    fn the_service_manager_hears_of_a_long_start_every_two_seconds() {
        let (manager, socket) = std::os::unix::net::UnixDatagram::pair().expect("a pair");
        manager.set_nonblocking(true).expect("a socket");
        let progress = Progress::new("starting", Some(Notifier::to(socket)));
        let start = Instant::now();
        let mut heard = Vec::new();
        for tenths in 0..50 {
            let step = Step { what: "log", done: tenths, of: 100 };
            progress.step_at(step, start + Duration::from_millis(100 * tenths));
            let mut bytes = [0; 256];
            if let Ok(count) = manager.recv(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
                heard.push((tenths, text.lines().next().expect("a line").to_string()));
            }
        }
        let told = |tenths: u64, text: &str| (tenths, format!("STATUS=starting: log, {text} left"));
        assert_eq!(heard, [told(20, "20%, 9 s"), told(40, "40%, 7 s")]);
    }
}
