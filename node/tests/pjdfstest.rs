//! pjdfstest on a real mount: what POSIX says of each system call on names and attributes, as root and as two users. It
//! switches users by itself.

use crate::daemon::{Home, Scratch};
use crate::tools;
use std::process::Command;

/// Test cases at least: fewer mean that it did not find what it needs.
const CASES_MIN: usize = 390;

/// Skipped tests, with the reason; none may fail. FUSE has no way to tell its limit of links (`pathconf` answers with a
/// default), so the tool does not know where to look for it: `names/src/tests/cases.rs` does.
const SKIPPED: [&str; 1] = ["link::link_count_max"];

/// File flags, NFSv4 lists, and times of birth that can be set are not compiled into it on Linux.
fn configuration(remounts: bool) -> String {
    format!(
        "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutime_now = {{}}\nutimensat = {{}}\n\
         [settings]\nnaptime = 0.002\nallow_remount = {remounts}\n\
         [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n"
    )
}

/// The cases of a pattern that passed, and those that were skipped; panics if one failed.
fn run(home: &Home, remounts: bool, pattern: &[&str]) -> (usize, Vec<String>) {
    let (other, file) = (Scratch::new("pjdfstest-other"), home.scratch.join("pjdfstest.toml"));
    std::fs::write(&file, configuration(remounts)).expect("writable");
    let mut command = Command::new(tools::tool("pjdfstest"));
    command.arg("-c").arg(&file).arg("-p").arg(&home.mount).arg("-s").arg(other.path()).args(pattern);
    let (passed, said) = tools::said(&mut command);
    let ended = |how: &str| -> Vec<&str> {
        let lines = said.lines().filter(|line| line.split_whitespace().last() == Some(how));
        lines.filter_map(|line| line.split_whitespace().next()).collect()
    };
    let failed: Vec<_> = said.lines().skip_while(|line| !line.ends_with("FAILED")).collect();
    assert!(passed, "{:?} failed\n{}", ended("FAILED"), failed.join("\n"));
    (ended("ok").len(), ended("skipped").into_iter().map(str::to_string).collect())
}

#[test]
fn every_case_passes() {
    let home = Home::new("pjdfstest");
    let daemon = home.up();
    // Cases on a read-only mount come by themselves: the tool leaves files open that were removed, and while those are there
    // the kernel makes no mount read-only.
    let (passed, mut skipped) = run(&home, false, &[]);
    let (read_only, none) = run(&home, true, &["erofs"]);
    assert!(read_only > 0 && none.is_empty());
    skipped.retain(|case| !case.contains("::erofs"));
    assert_eq!(skipped, SKIPPED);
    assert!(passed + read_only >= CASES_MIN, "only {passed} and {read_only} cases were run");
    println!("{passed} and {read_only} cases passed");
    daemon.terminate();
    home.check();
}
