//! Programs that others have written to test file systems; `./run test` installs them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The path of a tool: beside the build's output, so that every checkout finds it.
pub fn tool(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_BIN_EXE_sinter")).ancestors().nth(2).expect("the output of a build");
    let path = target.join("../tools/bin").join(name);
    assert!(path.exists(), "no {}: ./run test installs it (cargo install {name} --locked --root ...)", path.display());
    path
}

/// Runs one; all that it said, with its success.
pub fn said(command: &mut Command) -> (bool, String) {
    let output = command.env("NO_COLOR", "1").output().expect("the tool runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}
