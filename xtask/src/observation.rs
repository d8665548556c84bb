//! `cargo xtask observation`: what observing requests costs in throughput. Builds Sinter with everything that observes and
//! with all of it compiled out, and has `flash` measure both in turns.

use crate::flash;
use crate::tree::root;
use std::path::{Path, PathBuf};
use std::process::Command;

const HELP: &str = "\
cargo xtask observation --out DIR [--pairs N] [OPTION ...]

  Builds Sinter as it is and without whatever observes requests (feature unobserved), mounts a brick of each on XFS on a loop
  file, and has 4 jobs at depth 8 read and write 4 KiB at random, in turns, as root. Tells the ratio of the rates with its
  interval. At most 2% may be missing (mission N1).

  --pairs N      1 to 100 [20]
  OPTION         one of cargo xtask flash, but for --sinter and --sides: --seconds N [2], --size N [16], --only NAME,... [random]
";

/// The feature with which nothing is observed.
const FEATURE: &str = "unobserved";

/// Builds both, and has them measured.
pub fn run(arguments: &[String]) -> Result<(), String> {
    if arguments.is_empty() || arguments.iter().any(|argument| argument == "--help" || argument == "help") {
        print!("{HELP}");
        return Ok(());
    }
    // The product comes last, so that what lies where builds lie is one to use.
    let without = built(&["--features", FEATURE], FEATURE)?;
    let with = built(&[], "observed")?;
    flash::run(&words(arguments, &without, &with))
}

/// Builds Sinter, and keeps it under a name of its own.
pub fn built(features: &[&str], name: &str) -> Result<PathBuf, String> {
    println!("building sinter, {name}");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--release", "--locked", "--quiet", "-p", "node"]).args(features).current_dir(root());
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if !status.success() {
        return Err(format!("{command:?}: {status}"));
    }
    // Cargo builds beside this very program.
    let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
    let (made, kept) = (program.with_file_name("sinter"), program.with_file_name(format!("sinter-{name}")));
    std::fs::copy(&made, &kept).map_err(|error| format!("{} to {}: {error}", made.display(), kept.display()))?;
    Ok(kept)
}

/// The command line of `flash`: what is asked for comes last, since it goes before what is usual here.
fn words(arguments: &[String], without: &Path, with: &Path) -> Vec<String> {
    let usual = "--sides sinter --only random --rounds 20 --seconds 2 --size 16";
    let builds = [format!("{FEATURE}={}", without.display()), format!("observed={}", with.display())];
    let builds = builds.into_iter().flat_map(|build| ["--sinter".to_string(), build]);
    let asked = arguments.iter().map(|word| if word == "--pairs" { "--rounds".to_string() } else { word.clone() });
    usual.split(' ').map(str::to_string).chain(builds).chain(asked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_goes_before_what_is_usual() {
        let asked = ["--pairs", "6", "--out", "there"].map(str::to_string);
        let words = words(&asked, Path::new("/a"), Path::new("/b")).join(" ");
        assert!(words.contains("--sinter unobserved=/a --sinter observed=/b"), "{words}");
        assert!(words.find("--rounds 20") < words.find("--rounds 6 --out there"), "{words}");
    }
}
