//! `sinter doctor` on this machine: without a brick, beside a daemon, and with what is no brick.

use crate::daemon::{Home, fail, run, succeed, text};
use serde_json::Value;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Runs it; its answer, whose parts fit each other and its exit code.
fn examined(data: Option<&Path>) -> Value {
    let mut arguments = vec!["doctor", "--json"];
    arguments.extend(data.map(text));
    let output = run(&arguments);
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one document");
    let findings = report["findings"].as_array().expect("a list");
    let count = |state: &str| findings.iter().filter(|finding| finding["state"] == state).count() as u64;
    for finding in findings {
        let told = finding["fix"].is_string() && finding["gain"].is_string();
        let state = finding["state"].as_str().expect("a word");
        assert!(["ok", "advice", "warning", "unknown"].contains(&state), "{finding}");
        assert_eq!(told, ["advice", "warning"].contains(&state), "each has its fix: {finding}");
    }
    assert_eq!(
        (report["warnings"].as_u64(), report["advice"].as_u64()),
        (Some(count("warning")), Some(count("advice")))
    );
    assert_eq!(output.status.code(), Some(i32::from(count("warning") > 0)), "{report}");
    report
}

/// The finding of a check, by its name: the first, if there are several.
fn found(report: &Value, check: &str) -> String {
    let findings = report["findings"].as_array().expect("a list");
    let finding = findings.iter().find(|finding| finding["check"] == check);
    finding.unwrap_or_else(|| panic!("{check} in {report}"))["found"].as_str().expect("text").to_string()
}

/// Names, lengths and times of all that lies in a directory.
fn listed(directory: &Path) -> Vec<(String, u64, i64, i64)> {
    let entries = std::fs::read_dir(directory).expect("it is there").map(|entry| {
        let entry = entry.expect("readable");
        let found = entry.metadata().expect("it is there");
        (entry.file_name().to_string_lossy().into_owned(), found.len(), found.mtime(), found.ctime_nsec())
    });
    let mut entries: Vec<_> = entries.collect();
    entries.sort();
    entries
}

#[test]
fn the_machine_alone_is_looked_at() {
    let report = examined(None);
    assert!(report["brick"].is_null() && report["daemon"].is_null(), "{report}");
    assert!(found(&report, "brick").contains("sinter doctor DATA"), "{report}");
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux");
    assert!(release.starts_with(found(&report, "kernel").split([' ', ':']).nth(1).expect("Linux 6.1")), "{report}");
    assert!(found(&report, "limits").contains("this shell: "), "{report}");
}

#[test]
fn a_brick_is_looked_at_beside_its_daemon_and_without() {
    let home = Home::new("doctor");
    succeed(&["format", text(&home.data), "--size", "4G"]);
    let before = listed(&home.data);
    let report = examined(Some(&home.data));
    assert_eq!(report["brick"].as_str(), Some(text(&home.data)));
    assert!(report["daemon"].is_null(), "{report}");
    assert!(found(&report, "disk").starts_with("brick on "), "{report}");
    assert_eq!(listed(&home.data), before, "it only reads");

    let daemon = home.up();
    let report = examined(Some(&home.data));
    assert_eq!(report["daemon"].as_u64(), Some(daemon.pid().into()), "{report}");
    let whose = format!("the daemon (process {}): ", daemon.pid());
    assert!(found(&report, "limits").contains(&whose), "{report}");
    std::fs::write(home.mount.join("file"), "text").expect("it serves");
    let output = run(&["doctor", text(&home.data)]);
    let shown = String::from_utf8(output.stdout).expect("text");
    let header: Vec<&str> = shown.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(header, ["check", "state", "found"]);
    let advice = shown.lines().filter(|line| line.starts_with("advice: ") || line.starts_with("warning: ")).count();
    let fixes = shown.lines().filter(|line| line.starts_with("  fix: ")).count();
    assert_eq!(advice, fixes, "{shown}");
    daemon.terminate();
}

#[test]
fn directories_that_become_bricks_are_looked_at_and_others_refused() {
    let home = Home::new("doctored");
    let empty = home.scratch.directory("empty");
    assert!(found(&examined(Some(&empty)), "disk").starts_with("brick on "));
    let absent = home.scratch.join("absent");
    fail(&["doctor", text(&absent)], 2, &["does not exist", "sinter format"]);
    let file = home.scratch.join("file");
    std::fs::write(&file, "").expect("writable");
    fail(&["doctor", text(&file)], 2, &["is not a directory"]);
    std::fs::set_permissions(&empty, PermissionsExt::from_mode(0o777)).expect("ours");
    fail(&["doctor", text(&empty)], 1, &["chmod go-w"]);
    let output = run(&["doctor", text(&absent), "--json"]);
    let error: Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!(error["exit_code"].as_u64(), Some(2), "{error}");
    // What lies in the place of the brick's device, or of its lock, is no reason to fail.
    let odd = home.scratch.directory("odd");
    std::os::unix::fs::symlink("/nowhere", odd.join("device")).expect("writable");
    std::fs::write(odd.join("lock"), "1 \u{0}").expect("writable");
    let report = examined(Some(&odd));
    assert!(report["daemon"].is_null() && found(&report, "disk").starts_with("index on "), "{report}");
}
