//! Cleans up whatever happens. What a run has made is told to a second process, as a shell command that undoes it. When the
//! run ends, be it by Ctrl-C or kill -9, their pipe closes, and that process undoes what is left, the last thing first.

use std::io::{BufRead, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

/// The argument that makes this program the second process.
pub const ARGUMENT: &str = "--undo";

/// The list of what is to be undone, in the other process.
pub struct Undo {
    process: Child,
    pipe: ChildStdin,
}

impl Undo {
    /// Starts the other process, in a session of its own: Ctrl-C is not for it.
    fn start() -> Result<Undo, String> {
        let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
        let mut command = Command::new("setsid");
        command.arg(program).args(["flash", ARGUMENT]).stdin(Stdio::piped());
        let mut process = command.spawn().map_err(|error| format!("setsid (package util-linux): {error}"))?;
        let pipe = process.stdin.take().expect("it was asked for");
        Ok(Undo { process, pipe })
    }
    /// Does some work, and undoes what it has made, also if it fails.
    pub fn during<T>(work: impl FnOnce(&Undo) -> Result<T, String>) -> Result<T, String> {
        let undo = Undo::start()?;
        let done = work(&undo);
        eprintln!("cleaning up");
        let cleaned = undo.finish();
        done.and_then(|done| cleaned.map(|()| done))
    }
    /// This shell command is to be run at the end.
    pub fn add(&self, command: &str) -> Result<(), String> {
        self.tell('+', command)
    }
    /// It is not needed any more.
    pub fn forget(&self, command: &str) -> Result<(), String> {
        self.tell('-', command)
    }
    fn tell(&self, sign: char, command: &str) -> Result<(), String> {
        assert!(!command.contains('\n'), "a line is a command");
        writeln!(&self.pipe, "{sign}{command}").map_err(|error| format!("what cleans up has ended: {error}"))
    }
    /// Undoes everything and waits for that.
    fn finish(self) -> Result<(), String> {
        let Undo { mut process, pipe } = self;
        drop(pipe);
        let status = process.wait().map_err(|error| format!("what cleans up: {error}"))?;
        if status.success() { Ok(()) } else { Err("could not clean up everything, see above".to_string()) }
    }
}

/// The work left to undo of these lines, in the order in which to do it.
fn left(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut left: Vec<String> = Vec::new();
    for line in lines {
        if let Some(command) = line.strip_prefix('+') {
            left.push(command.to_string());
        } else if let Some(command) = line.strip_prefix('-')
            && let Some(at) = left.iter().rposition(|known| known == command)
        {
            left.remove(at);
        }
    }
    left.reverse();
    left
}

/// The second process: waits for the first one's end, then undoes.
pub fn run() -> Result<(), String> {
    let lines = std::io::stdin().lock().lines().map_while(Result::ok);
    let mut failed = Vec::new();
    for command in left(lines) {
        let status = Command::new("sh").args(["-c", &command]).stdin(Stdio::null()).stdout(Stdio::null()).status();
        if !status.is_ok_and(|status| status.success()) {
            failed.push(format!("could not undo, do it by hand: {command}"));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// A word as the shell takes it literally.
pub fn quoted(word: &std::path::Path) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_thing_is_undone_first_and_forgotten_things_are_not() {
        let lines = ["+rm a", "+umount b", "+kill 7", "-kill 7", "+umount b", "-umount b", "-never told"];
        assert_eq!(left(lines.map(str::to_string).into_iter()), ["umount b", "rm a"]);
    }

    #[test]
    fn quotes_in_paths_reach_the_shell() {
        let output = Command::new("sh").args(["-c", &format!("echo {}", quoted("it's a $HOME".as_ref()))]).output();
        assert_eq!(output.expect("there is a shell").stdout, b"it's a $HOME\n");
    }
}
