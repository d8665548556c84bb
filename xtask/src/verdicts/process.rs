//! Programs that run beside this one and end with it, also after Ctrl-C or kill -9.

use crate::flash::ground::ended;
use crate::flash::undo::Undo;
use std::process::{Child, Command};

/// Seconds that a program gets to end when it is told to; fio waits for requests that are held back.
const END_SECONDS: u32 = 5;

/// A program that runs.
pub struct Running {
    child: Child,
    undo: String,
}

impl Running {
    /// Starts a program, in a session of its own if the command says so: what ends it is the other process.
    pub fn start(command: &mut Command, undo: &Undo) -> Result<Running, String> {
        let child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        let process = child.id();
        let wait = ended(process, END_SECONDS);
        let how =
            format!("if kill -TERM {process} 2>/dev/null; then {wait}; kill -KILL {process} 2>/dev/null; fi; true");
        undo.add(&how)?;
        Ok(Running { child, undo: how })
    }
    /// Its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }
    /// Ends it.
    pub fn stop(mut self, undo: &Undo) -> Result<(), String> {
        let told = Command::new("sh").args(["-c", &self.undo]).status().map_err(|error| format!("sh: {error}"))?;
        self.child.wait().map_err(|error| format!("a program that was stopped: {error}"))?;
        undo.forget(&self.undo)?;
        if told.success() { Ok(()) } else { Err(format!("could not stop it: {}", self.undo)) }
    }
    /// Waits for its end; what it printed.
    pub fn output(self, undo: &Undo) -> Result<String, String> {
        let output = self.child.wait_with_output().map_err(|error| format!("a program's output: {error}"))?;
        undo.forget(&self.undo)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
    /// True if it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }
}
