//! Builds the operations, runs them below Callgrind, and reads what it has counted.

use super::ratchet::{Cost, FIGURES, Stored};
use crate::tree::root;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The program: an example of this package.
const PACKAGE: &str = "sim";
/// The product's package, which has a feature of the name below too.
const PRODUCT: &str = "node";
const EXAMPLE: &str = "operations";
/// The feature with which nothing is observed.
const UNOBSERVED: &str = "unobserved";

/// Callgrind counts within the product, and writes a part for each operation (`sim/examples/operations/counted.rs`).
const COUNTED: [&str; 4] = [
    "--tool=callgrind",
    "--toggle-collect=sinter_product",
    "--toggle-collect=sinter_outside",
    "--dump-after=sinter_round_ends",
];
/// Callgrind takes the processor's own instruction for copies as one for each byte. The C library does without it.
const TUNABLES: &str = "glibc.cpu.x86_rep_movsb_threshold=1073741824:glibc.cpu.x86_rep_stosb_threshold=1073741824";

/// The measured figures.
pub struct Measured {
    /// Each operation's cost.
    pub figures: Stored,
    /// Directory of Callgrind's profiles, one file for each operation.
    pub profiles: PathBuf,
}

/// Measures all operations, of the product or of a build that does not observe them.
pub fn measure(observed: bool) -> Result<Measured, String> {
    let program = build(observed)?;
    let tools = tools()?;
    let profiles = program.with_extension(if observed { "profiles" } else { "unobserved" });
    if profiles.exists() {
        std::fs::remove_dir_all(&profiles).map_err(|error| format!("{}: {error}", profiles.display()))?;
    }
    std::fs::create_dir(&profiles).map_err(|error| format!("{}: {error}", profiles.display()))?;
    let parts = profiles.join("part");
    let mut command = Command::new("valgrind");
    command.arg("-q").args(COUNTED).arg(format!("--callgrind-out-file={}", parts.display())).arg(&program);
    // Nothing of the user's settings reaches it.
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("GLIBC_TUNABLES", TUNABLES);
    let output = output(&mut command)?;
    let mut costs = Vec::new();
    for (number, line) in String::from_utf8_lossy(&output.stdout).lines().enumerate() {
        let (name, times, allocations, bytes) =
            told(line).ok_or_else(|| format!("{}: not what an operation tells: {line}", program.display()))?;
        let path = parts.with_extension((number + 1).to_string());
        let instructions = keep(&path, &profiles.join(&name))?;
        costs.push((name, per_operation([instructions, allocations, bytes], times)));
    }
    Ok(Measured { figures: Stored { tools, costs }, profiles })
}

/// Builds the program without seeded bugs; where it lies.
fn build(observed: bool) -> Result<PathBuf, String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--release", "--locked", "--quiet", "--message-format=json-render-diagnostics"]);
    // A build script of a foreign package is run again if these differ, and all above that package is compiled again.
    let ours = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(ours)) {
        command.env_remove(name);
    }
    // Asked for alone, it would get other features of foreign packages, and all that the product's build has would be compiled again.
    command.args(["-p", PRODUCT, "-p", PACKAGE, "--example", EXAMPLE]).current_dir(root());
    if !observed {
        command.args(["--features", UNOBSERVED]);
    }
    let output = output(&mut command)?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let executable = messages.lines().filter_map(|line| serde_json::from_str(line).ok()).find_map(executable);
    executable.ok_or_else(|| format!("{command:?} built no program {EXAMPLE}"))
}

/// The program that a message of cargo tells of.
fn executable(message: Value) -> Option<PathBuf> {
    let ours = message["target"]["name"] == EXAMPLE;
    message["executable"].as_str().filter(|_| ours).map(PathBuf::from)
}

/// The tools on which the figures depend, besides the product.
fn tools() -> Result<String, String> {
    let mut versions = Vec::new();
    for words in [["rustc", "--version"], ["valgrind", "--version"], ["getconf", "GNU_LIBC_VERSION"]] {
        let output = output(Command::new(words[0]).arg(words[1]).current_dir(root()))?;
        versions.push(String::from_utf8_lossy(&output.stdout).trim().to_string());
    }
    Ok(versions.join(", "))
}

fn output(command: &mut Command) -> Result<Output, String> {
    let output = command.output().map_err(|error| {
        let missing = error.kind() == std::io::ErrorKind::NotFound && command.get_program() == "valgrind";
        let remedy =
            if missing { "; it counts the instructions: install it (Debian: apt-get install valgrind)" } else { "" };
        format!("{}: {error}{remedy}", command.get_program().display())
    })?;
    if output.status.success() {
        return Ok(output);
    }
    Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// A line of the program: an operation, how often it was done, allocations and their bytes.
fn told(line: &str) -> Option<(String, u64, u64, u64)> {
    let mut words = line.split('\t');
    let name = words.next()?.to_string();
    let mut number = || words.next()?.parse().ok();
    Some((name, number().filter(|&times| times > 0)?, number()?, number()?))
}

/// Figures of a round as parts for each operation.
pub fn per_operation(round: [u64; FIGURES.len()], times: u64) -> Cost {
    std::array::from_fn(|number| (round[number] * FIGURES[number].parts + times / 2) / times)
}

/// Keeps Callgrind's part as a profile; the instructions in it.
fn keep(part: &Path, profile: &Path) -> Result<u64, String> {
    let problem = |error: std::io::Error| format!("{}: {error}", part.display());
    let text = std::fs::read_to_string(part).map_err(problem)?;
    std::fs::write(profile, without_outer_calls(&text)).map_err(problem)?;
    std::fs::remove_file(part).map_err(problem)?;
    instructions(&text).ok_or_else(|| format!("{}: Callgrind has written no sum", part.display()))
}

/// The sum of a part.
pub fn instructions(part: &str) -> Option<u64> {
    part.lines().find_map(|line| line.strip_prefix("summary: "))?.trim().parse().ok()
}

/// Leaves out calls that began before the part, which callgrind_annotate would count once more: "calls=0", and the line that
/// tells what they cost.
pub fn without_outer_calls(part: &str) -> String {
    let mut lines = part.lines();
    let mut text = String::new();
    while let Some(line) = lines.next() {
        if line.starts_with("calls=0 ") {
            lines.next();
        } else {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}
