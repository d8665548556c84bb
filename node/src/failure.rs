//! The failure of a command: one line on standard error (what, context, next step), and an exit code that scripts can
//! act on.

use base::{Error, Kind};
use std::fmt;

/// The exit codes; `sinter --help` lists them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Exit {
    /// Done, or nothing found.
    Done = 0,
    /// Failed, or findings.
    Failed = 1,
    /// Wrong command line, or `check` could not look.
    Usage = 2,
    /// Brick or mount point in use.
    InUse = 3,
    /// The host lacks something.
    Host = 4,
    /// The brick needs repair.
    Corrupt = 5,
    /// The brick is from a newer version.
    Newer = 6,
}

impl Exit {
    /// The code for an error of this kind.
    pub fn of(kind: Kind) -> Exit {
        match kind {
            Kind::Busy => Exit::InUse,
            Kind::Host => Exit::Host,
            Kind::Corrupt => Exit::Corrupt,
            Kind::Newer => Exit::Newer,
            _ => Exit::Failed,
        }
    }
}

/// What is wrong, and the next step if the text says one behind a colon.
pub fn parts(text: &str) -> (&str, Option<&str>) {
    text.split_once(": ").map_or((text, None), |(wrong, step)| (wrong, Some(step)))
}

/// The reason why a command ended without doing what was asked.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    text: String,
    next: Option<String>,
}

impl Failure {
    /// A failure in own words.
    pub fn new(exit: Exit, text: impl fmt::Display) -> Failure {
        Failure { exit, text: one_line(&text.to_string()), next: None }
    }
    /// An error met while doing `what`; the kind decides the exit code and, unless told otherwise, the next step.
    pub fn of(what: impl fmt::Display, error: &Error) -> Failure {
        // What says what to do, behind its colon, knows better than its kind.
        let (wrong, step) = parts(error.what);
        let step = step.or(next_step(error.kind));
        let context = error.context.as_ref().map_or(String::new(), |context| format!(": {context}"));
        let failure = Failure::new(Exit::of(error.kind), format!("{what}: {wrong}{context}"));
        Failure { next: step.map(str::to_string), ..failure }.or_limited()
    }
    /// An error of the operating system met while doing `what`.
    pub fn io(what: impl fmt::Display, error: &std::io::Error) -> Failure {
        match error.raw_os_error() {
            Some(errno) => {
                let known = Error::os("", errno);
                let failure = Failure::new(Exit::of(known.kind), format!("{what}: {error}"));
                Failure { next: next_step(known.kind).map(str::to_string), ..failure }.or_limited()
            }
            None => Failure::new(Exit::Failed, format!("{what}: {error}")),
        }
    }
    /// The next step of a process that has met a limit of its shell or service, whoever found that out.
    fn or_limited(self) -> Failure {
        let step = if self.text.contains("Too many open files") {
            "raise the limit of open files (ulimit -n, LimitNOFILE=): 1024 and one per segment"
        } else if self.text.contains("File too large") {
            "raise the limit of a file's size (ulimit -f, LimitFSIZE=)"
        } else {
            return self;
        };
        self.exit(Exit::Host).next(step)
    }
    /// The next step of a process that can't listen because it may not: as a service without network, or on a host without IPv6.
    pub fn or_without_network(self) -> Failure {
        if !self.text.contains(NO_FAMILY) {
            return self;
        }
        // A mistake in the file, which another start does not mend.
        self.exit(Exit::Usage).next(
            "the service sinter@NAME has no network: for `listen` use sinter-listen@NAME, for `metrics` and `console` alone \
             add console.conf to it (docs/operate/console.md); elsewhere give an address of IPv4 or IPv6, as the host has it",
        )
    }
    /// JSON, for programs.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({ "error": self.text, "next_step": self.next, "exit_code": self.exit as u8 })
    }
    /// Sets the exit code.
    pub fn exit(self, exit: Exit) -> Failure {
        Failure { exit, ..self }
    }
    /// Sets the next step.
    pub fn next(mut self, step: impl fmt::Display) -> Failure {
        self.next = Some(one_line(&step.to_string()));
        self
    }
}

/// The error of a process that may not use the network, as the system says it.
const NO_FAMILY: &str = "Address family not supported";

/// Names and causes may hold line breaks; a message is one line all the same.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match &self.next {
            Some(next) => write!(f, "; next step: {next}"),
            None => Ok(()),
        }
    }
}

/// The step that an operator can take about an error of this kind when nothing better is known.
fn next_step(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Busy => Some("stop the other process that uses it, then try again"),
        Kind::Corrupt => Some("keep a copy of the brick, then run `sinter check`"),
        Kind::Newer => Some("install a newer sinter"),
        Kind::NoSpace => Some("free space on the file system that holds the brick"),
        Kind::Permission => Some("run it as root, or as the owner of the brick"),
        Kind::ReadOnly => Some("make the file system writable, or choose another directory"),
        Kind::Host => Some("see the host's requirements: Linux 6.1 or newer with io_uring and FUSE"),
        Kind::Io => Some("look at the kernel's log for errors of the device"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_one_line_with_a_next_step() {
        let error = Error::new(Kind::Newer, "format 9").with("line\nbreak");
        let failure = Failure::of("can't open the brick /b", &error);
        let expected = "can't open the brick /b: format 9: line break; next step: install a newer sinter";
        assert_eq!((failure.to_string().as_str(), failure.exit as u8), (expected, 6));
        let own = Failure::new(Exit::InUse, "busy").next("wait\r\n");
        assert_eq!((own.to_string().as_str(), own.exit as u8), ("busy; next step: wait  ", 3));
    }

    #[test]
    fn the_next_step_is_what_the_error_itself_says() {
        let error =
            Error::new(Kind::NoSpace, "the device is far too small for a brick: give another one").with("/dev/x");
        let told = Failure::of("can't format /b", &error).to_string();
        assert_eq!(
            told,
            "can't format /b: the device is far too small for a brick: /dev/x; next step: give another one"
        );
        let none_left = Failure::io("can't start", &std::io::Error::from_raw_os_error(24));
        assert!(none_left.exit == Exit::Host && none_left.to_string().contains("ulimit -n"), "{none_left}");
        let too_large = Failure::io("can't write", &std::io::Error::from_raw_os_error(27));
        assert!(too_large.exit == Exit::Host && too_large.to_string().contains("ulimit -f"), "{too_large}");
        let no_network = Failure::io("can't listen", &std::io::Error::from_raw_os_error(97)).or_without_network();
        assert!(
            no_network.exit == Exit::Usage && no_network.to_string().contains("sinter-listen@NAME"),
            "{no_network}"
        );
        let json = Failure::new(Exit::InUse, "busy").next("wait").json();
        assert_eq!(json.to_string(), r#"{"error":"busy","exit_code":3,"next_step":"wait"}"#);
    }

    #[test]
    fn system_errors_find_their_code() {
        let of = |errno| Failure::io("x", &std::io::Error::from_raw_os_error(errno)).exit;
        assert_eq!([16, 38, 28].map(of), [Exit::InUse, Exit::Host, Exit::Failed]);
    }
}
