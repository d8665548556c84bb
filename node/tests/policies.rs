//! Hints of files and policies of volumes on a hybrid brick on loop devices. Needs root and /dev/fuse.

use crate::daemon::{Daemon, Home, run, succeed, text};
use crate::device::{figure, hybrid, rewrite, up};
use crate::missing::affected;
use crate::patterns::{verify, write_synced};
use runtime::random::SplitMix;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const HINT: &str = "user.sinter.tier";
/// Files that have no hint: more than the flash keeps. Name, seed, MiB.
const OTHERS: [(&str, u64, u64); 2] = [("one", 1, 1700), ("other", 2, 1500)];

fn hint(path: &Path, value: &str) -> bool {
    let set = Command::new("setfattr").args(["-n", HINT, "-v", value]).arg(path).output();
    set.expect("setfattr is there").status.success()
}

fn hint_of(path: &Path) -> String {
    let got = Command::new("getfattr").args(["--only-values", "-n", HINT]).arg(path).output();
    String::from_utf8(got.expect("getfattr is there").stdout).expect("a word")
}

/// Writes until so many blocks have gone down since.
fn push_down(home: &Home, blocks: u64) {
    let from = figure(home, "blocks destaged");
    let (mut random, patience) = (SplitMix(3), Instant::now() + Duration::from_secs(150));
    while figure(home, "blocks destaged") < from + blocks {
        assert!(Instant::now() < patience, "nothing goes down: {}", succeed(&["status", text(&home.data)]));
        for (name, seed, mib) in OTHERS {
            rewrite(&home.mount.join(name), seed, mib, 2000, &mut random);
        }
    }
}

/// A figure of the only volume.
fn of_volume(home: &Home, figure: &str) -> String {
    let told = succeed(&["volume", "list", "--json", text(&home.data)]);
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let volumes = told.as_array().or(told["volumes"].as_array()).expect("volumes");
    volumes[0][figure].as_str().expect("a word").to_string()
}

fn again(home: &Home, daemon: Daemon) -> Daemon {
    daemon.kill();
    up(home, &[])
}

#[test]
fn files_lie_where_their_hints_say_and_a_volume_where_its_policy_does() {
    let home = Home::new("policies");
    let Some(_devices) = hybrid(&home) else { return };
    let daemon = up(&home, &[]);
    let [hot, cold] = ["hot", "cold"].map(|name| home.mount.join(name));
    for (path, value) in [(&hot, "flash"), (&cold, "disk")] {
        std::fs::create_dir(path).expect("a directory");
        assert!(!hint(path, "tape"), "there is no such tier");
        assert!(hint(path, value));
        write_synced(&path.join("file"), 5, 100).expect("there is room");
        assert_eq!(hint_of(&path.join("file")), value, "as its directory");
    }
    for (name, seed, mib) in OTHERS {
        write_synced(&home.mount.join(name), seed, mib).expect("there is room");
    }
    push_down(&home, 20_000);
    let daemon = again(&home, daemon);
    let listed = affected(&home);
    let lies = ["one", "cold/file", "hot/file"].map(|file| listed.contains_key(file));
    assert_eq!(lies, [true, true, false], "{listed:?}");
    assert_eq!(figure(&home, "pinned blocks destaged"), 0);
    let name = of_volume(&home, "name");
    succeed(&["volume", "set", text(&home.data), &name, "--policy", "flash-only"]);
    let refused = run(&["volume", "set", text(&home.data), &name, "--policy", "tape-only"]);
    assert!(refused.status.code() == Some(2), "{refused:?}");
    let daemon = again(&home, daemon);
    assert_eq!(of_volume(&home, "policy"), "flash-only");
    for path in [&hot, &cold] {
        verify(&path.join("file"), 5, 100);
    }
    for (name, seed, mib) in OTHERS {
        verify(&home.mount.join(name), seed, mib);
    }
    daemon.terminate();
    home.check();
}
