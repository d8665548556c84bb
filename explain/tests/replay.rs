//! Snapshots of live bricks on which a cause was brought about (`cargo xtask verdicts`): each pair gives the same verdict for ever.
//! Files are named after the cause, those of causes that a hybrid brick or a client has too with `hybrid-` or `network-` before it, `server-cores` after `server`; `EXPLAIN_PAIRS=DIRECTORY` replays those of another directory and prints them all.

use explain::{Snapshot, explain};
use std::path::PathBuf;

fn pairs() -> (Vec<PathBuf>, bool) {
    let other = std::env::var_os("EXPLAIN_PAIRS").map(PathBuf::from);
    let directory = other.clone().unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata"));
    let entries = std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("readable").path());
    let mut all: Vec<_> = entries.filter(|path| path.extension().is_some_and(|name| name == "snapshots")).collect();
    all.sort();
    (all, other.is_some())
}

#[test]
fn each_pair_gives_the_verdict_of_its_cause() {
    let (all, is_other) = pairs();
    assert!(is_other || all.len() >= 12, "{} pairs: a cause has at least one", all.len());
    let mut wrong = Vec::new();
    for path in &all {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_string();
        let text = std::fs::read(path).expect("readable");
        let [before, after]: [Snapshot; 2] =
            serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let told = explain(&before, &after).unwrap_or_else(|| panic!("{name}: not of one daemon"));
        let verdict = &told.verdict.finding;
        let others: Vec<_> = told.others.iter().map(|other| format!("{} {:.2}", other.cause, other.gain)).collect();
        let line = format!("{name}: {} {:.2}; {others:?}; {:?}", verdict.cause, verdict.gain, verdict.evidence);
        if is_other {
            println!("{line}");
        }
        let cause = name.trim_end_matches(|letter: char| letter == '-' || letter.is_ascii_digit());
        let cause = cause.trim_start_matches("hybrid-").trim_start_matches("network-").trim_end_matches("-cores");
        if cause != verdict.cause {
            wrong.push(line);
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), all.len(), wrong.join("\n"));
}
