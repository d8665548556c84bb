//! pjdfstest on a real mount: what POSIX says of each system call on names and attributes, as root and as two users. It
//! switches users by itself.

mod daemon;
#[path = "daemon/tools.rs"]
mod tools;

use daemon::{Home, Scratch};
use std::process::Command;

/// Test cases that may fail, each with its reason: there is none.
const EXCEPTIONS: [&str; 0] = [];

/// Test cases at least: fewer mean that it did not find what it needs.
const CASES_MIN: usize = 250;

/// Skipped: what Linux does not have (file flags, NFSv4 lists, times of birth that can be set).
fn configuration(exceptions: &[&str]) -> String {
    let failures = exceptions.iter().map(|case| format!("{case:?}")).collect::<Vec<_>>().join(", ");
    format!(
        "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutime_now = {{}}\nutimensat = {{}}\n\
         [settings]\nnaptime = 0.002\nallow_remount = true\nexpected_failures = [{failures}]\n\
         [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n"
    )
}

#[test]
fn every_case_passes() {
    let home = Home::new("pjdfstest");
    let daemon = home.up();
    let (other, file) = (Scratch::new("pjdfstest-other"), home.scratch.join("pjdfstest.toml"));
    std::fs::write(&file, configuration(&EXCEPTIONS)).expect("writable");
    let mut command = Command::new(tools::tool("pjdfstest"));
    command.arg("-c").arg(&file).arg("-p").arg(&home.mount).arg("-s").arg(other.path());
    let (passed, said) = tools::said(&mut command);
    let wrong: String =
        said.lines().filter(|line| !line.trim_end().ends_with(" ok")).map(|line| format!("{line}\n")).collect();
    assert!(passed, "{wrong}");
    let count = said.lines().filter(|line| line.trim_end().ends_with(" ok")).count();
    println!("{wrong}{count} passed");
    assert!(count >= CASES_MIN, "only {count} cases were run:\n{wrong}");
    daemon.terminate();
    home.check();
}
