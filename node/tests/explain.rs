//! `sinter explain` and `sinter slow` on a live mount: the verdict follows what is done to the brick, a saved pair says the same
//! again, and bad input is told.

use crate::daemon::{Daemon, Home, fail, on_terminal, run, succeed, text};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const BLOCKS: u64 = 256;

/// A served brick with a file of a MiB.
fn served(name: &str) -> (Home, Daemon) {
    let home = Home::new(name);
    let daemon = home.up();
    std::fs::write(home.mount.join("file"), vec![7; BLOCKS as usize * 4096]).expect("there is room");
    (home, daemon)
}

/// Reads single blocks past the page cache while `meanwhile` runs. Returns the number of the thread that read, too.
fn reading<T>(mount: &Path, meanwhile: impl FnOnce() -> T) -> (u32, T) {
    let file =
        OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(mount.join("file")).expect("it is there");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_until(&file, &over));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(meanwhile));
        over.store(true, Ordering::Relaxed);
        let thread = reader.join().expect("no panic");
        (thread, result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn read_until(file: &File, over: &AtomicBool) -> u32 {
    let mut room = vec![0; 2 * 4096];
    let skip = room.as_ptr().align_offset(4096);
    let mut number = 0;
    while !over.load(Ordering::Relaxed) {
        file.read_exact_at(&mut room[skip..skip + 4096], number % BLOCKS * 4096).expect("it is there");
        number += 1;
    }
    // SAFETY: it has no arguments and can't fail.
    unsafe { libc::gettid() as u32 }
}

fn explained(words: &[&str]) -> serde_json::Value {
    serde_json::from_str(&succeed(&[&["explain", "--json"], words].concat())).expect("JSON")
}

#[test]
fn a_layer_that_holds_requests_is_the_verdict_and_stays_it() {
    let (home, daemon) = served("explain-layer");
    let (data, saved) = (text(&home.data).to_string(), home.scratch.join("saved"));
    succeed(&["layer", "add", &data, "default", "delay", "5", "--operation", "read"]);
    let (_, verdict) = reading(&home.mount, || {
        let told = explained(&[&data, "--seconds", "2", "--save", text(&saved)]);
        assert_eq!(told["verdict"]["cause"], "layer", "{told:#}");
        assert!(told["verdict"]["resource"].as_str().is_some_and(|name| name.contains("delay")), "{told:#}");
        let read = told["operations"].as_array().and_then(|all| all.iter().find(|one| one["name"] == "read"));
        let read = read.unwrap_or_else(|| panic!("reads are told: {told:#}"));
        assert!(read["count"].as_u64().is_some_and(|count| count > 100), "{read:#}");
        told["verdict"].clone()
    });
    // The pair says the same for ever, without a daemon.
    assert_eq!(explained(&["--from", text(&saved)])["verdict"], verdict);
    let told = succeed(&["explain", "--from", text(&saved)]);
    assert!(told.starts_with("A layer holds requests: "), "{told}");
    assert!(told.lines().any(|line| line.starts_with("  layers ")), "the stage has a row: {told}");
    daemon.terminate();
    home.check();
}

/// The way of requests through the kernel is told to root, and stages with it take as long as the kernel says.
#[test]
fn the_way_through_the_kernel_is_measured() {
    let (home, daemon) = served("explain-way");
    let (_, told) = reading(&home.mount, || explained(&[text(&home.data), "--seconds", "2"]));
    assert_eq!(told["transport_is_measured"], true, "{told:#}");
    let of = |list: &serde_json::Value, key: &str| {
        let found = list.as_array().expect("a list").iter().find(|one| one[key] == "read");
        found.cloned().unwrap_or_else(|| panic!("no read: {told:#}"))
    };
    let (kernel, daemons) = (of(&told["kernel"], "kind"), of(&told["operations"], "name"));
    let bands = daemons["waterfall"].as_array().expect("a list");
    let number = |value: &serde_json::Value| value.as_f64().expect("a number");
    let median = bands.iter().find(|band| band["name"] == "p50").expect("it has one");
    let stages = median["stages"].as_array().expect("a list");
    assert_eq!((&stages[0][0], &stages[stages.len() - 1][0]), (&"sent".into(), &"returned".into()), "{told:#}");
    let sum: f64 = stages.iter().map(|stage| number(&stage[1])).sum();
    let (ours, theirs) = (number(&median["duration_ns"]), number(&kernel["p50_ns"]));
    assert!((sum - ours).abs() < 20.0, "stages add up: {median:#}");
    // A sample of some hundred beside all: other tests run meanwhile.
    assert!((0.8..1.25).contains(&(ours / theirs)), "{ours} and {theirs}: {told:#}");
    assert!(number(&kernel["requests"]) > 100.0, "{kernel}");
    daemon.terminate();
}

#[test]
fn slow_requests_are_told_with_inode_and_thread() {
    let (home, daemon) = served("explain-slow");
    let data = text(&home.data).to_string();
    succeed(&["layer", "add", &data, "default", "delay", "30", "--operation", "read"]);
    let ino = std::fs::metadata(home.mount.join("file")).expect("it is there").ino();
    let (thread, alive) = reading(&home.mount, || {
        std::thread::sleep(Duration::from_millis(500));
        succeed(&["slow", &data])
    });
    let known = |line: &&str| line.contains(&format!("({})", std::process::id())) && line.ends_with("mount/file");
    let reads = || alive.lines().filter(|line| line.contains("  read  "));
    assert!(
        reads().count() > 0 && reads().all(|line| known(&line)),
        "while it lives, command and file are known: {alive}"
    );
    let told: serde_json::Value = serde_json::from_str(&succeed(&["slow", &data, "--json"])).expect("JSON");
    let all = told.as_array().expect("a list");
    let slowest = all.iter().find(|one| one["name"] == "read").unwrap_or_else(|| panic!("reads are slow: {told:#}"));
    assert_eq!(slowest["ino"].as_u64(), Some(ino), "{told:#}");
    assert_eq!(slowest["thread"].as_u64(), Some(u64::from(thread)), "{told:#}");
    assert_eq!(slowest["uid"], 0, "{told:#}");
    assert!(slowest["duration_ns"].as_u64().is_some_and(|ns| ns > 25_000_000), "{told:#}");
    let stages = slowest["stages"].as_array().expect("stages");
    let layers = stages.iter().find(|stage| stage[0] == "layers").and_then(|stage| stage[1].as_u64());
    assert!(layers.is_some_and(|ns| ns > 25_000_000), "{told:#}");
    // The reader has ended: nobody knows its command, nor the file that it had open.
    assert!(slowest["pid"].is_null() && slowest["path"].is_null(), "{told:#}");
    assert!(succeed(&["slow", &data]).contains("layers "), "the table names the stage");
    daemon.terminate();
}

#[test]
fn a_profile_since_a_snapshot_has_only_what_came_after() {
    let (home, daemon) = served("explain-since");
    let (data, saved) = (text(&home.data).to_string(), home.scratch.join("saved"));
    assert!(succeed(&["profile", &data, "--save", text(&saved)]).contains("write"));
    reading(&home.mount, || std::thread::sleep(Duration::from_millis(500)));
    let told = |of: &str| -> serde_json::Value {
        let words = ["profile", &data, "--since", text(&saved), "--of", of, "--json"];
        serde_json::from_str::<serde_json::Value>(&succeed(&words)).expect("JSON")[of].clone()
    };
    let operations = told("operations");
    let count = |name: &str| {
        let one = operations.as_array().expect("a list").iter().find(|one| one["name"] == name);
        one.and_then(|one| one["total"]["count"].as_u64())
    };
    assert!(count("read").is_some_and(|count| count > 10), "{operations:#}");
    assert_eq!(count("write"), None, "that came before: {operations:#}");
    let read = told("io").as_array().expect("a list").iter().filter(|io| io["verb"] == "read").count();
    assert!(read > 0, "reads past the page cache reach the device");
    for core in told("cores").as_array().expect("a list") {
        let sum: f64 = ["running", "waiting", "asleep"].iter().filter_map(|part| core[part].as_f64()).sum();
        assert!((sum - 1.0).abs() < 1e-6 && core["running"].as_f64() > Some(0.0), "{core}");
    }
    assert!(told("locks").as_array().is_some_and(|locks| locks.iter().all(|lock| lock["acquired"].as_u64() > Some(0))));
    assert_eq!(told("pools").as_array().map(Vec::len), Some(2));
    assert!(succeed(&["profile", &data, "--of", "locks"]).contains("of requests"));
    fail(&["profile", &data, "--since", text(&home.mount.join("file"))], 2, &["not hold a snapshot", "--save"]);
    daemon.terminate();
    let daemon = home.up();
    fail(&["profile", &data, "--since", text(&saved)], 1, &["not of one daemon", "started anew"]);
    daemon.terminate();
}

#[test]
fn a_watched_profile_tells_each_interval_until_the_daemon_ends() {
    let (home, daemon) = served("explain-watch");
    let words = ["profile", text(&home.data), "--watch", "1", "--json"];
    let watching = crate::daemon::sinter().args(words).stdout(std::process::Stdio::piped()).spawn().expect("it runs");
    reading(&home.mount, || std::thread::sleep(Duration::from_millis(2500)));
    daemon.terminate();
    let output = watching.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "its daemon has ended");
    let told = String::from_utf8(output.stdout).expect("text");
    let mut lines: Vec<serde_json::Value> =
        told.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let last = lines.pop().expect("it says why it ends");
    assert!(last["error"].is_string() && last["next_step"].is_string(), "{last}");
    let reads = |line: &serde_json::Value| {
        let all = line["operations"].as_array().expect("a list");
        all.iter().find(|one| one["name"] == "read").and_then(|one| one["total"]["count"].as_u64()).unwrap_or(0)
    };
    assert!(lines.len() >= 2 && lines.iter().filter(|line| reads(line) > 10).count() >= 2, "{told}");
    assert!(lines.iter().all(|line| line["seconds"].as_f64().is_some_and(|seconds| seconds < 1.9)), "{told}");
}

#[test]
fn top_tells_who_does_what_to_which_file() {
    let (home, daemon) = served("explain-top");
    let data = text(&home.data).to_string();
    let (_, told) = reading(&home.mount, || succeed(&["top", &data, "--rounds", "2", "--json"]));
    let rounds: Vec<serde_json::Value> = told.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(rounds.len(), 2, "{told}");
    let last = &rounds[1];
    assert_eq!(last["operations"][0]["name"], "read", "{last:#}");
    assert_eq!(last["files"][0]["name"], text(&home.mount.join("file")), "{last:#}");
    let client = last["clients"][0]["name"].as_str().expect("a name");
    assert!(client.ends_with(&format!("({}), user 0", std::process::id())), "{client}");
    let rate = |value: &serde_json::Value| value["per_second"].as_f64().expect("a rate");
    assert!(rate(&last["files"][0]) > 0.9 * rate(&last["operations"][0]), "all reads are of that file: {last:#}");
    assert!(last["verdict"].as_str().is_some_and(|verdict| !verdict.is_empty()), "{last:#}");
    fail(&["top", &data], 2, &["no terminal", "--json"]);
    let trace = home.scratch.join("trace");
    let (_, told) = reading(&home.mount, || succeed(&["trace", &data, "--seconds", "1", "--perfetto", text(&trace)]));
    let events: serde_json::Value = serde_json::from_slice(&std::fs::read(&trace).expect("kept")).expect("JSON");
    let events = events["traceEvents"].as_array().expect("a list");
    let reads = events.iter().filter(|event| event["ph"] == "b" && event["args"]["inode"].is_u64()).count();
    assert!(reads > 0 && told.starts_with(&format!("{reads} requests in ")), "{reads}: {told}");
    fail(&["trace", &data, "--perfetto", "/nowhere/trace"], 1, &["can't write /nowhere/trace"]);
    daemon.terminate();
}

#[test]
fn top_has_a_screen_that_ends_by_a_key() {
    let (home, daemon) = served("explain-screen");
    let line = format!("stty rows 20 cols 100; TERM=xterm {} top {}", env!("CARGO_BIN_EXE_sinter"), text(&home.data));
    let (code, seen) = on_terminal(&format!("{line} --rounds 2"), "requests/s", "2");
    assert!(code == Some(0) && seen.contains("operation") && seen.contains("requests/s"), "{code:?}: {seen}");
    let (code, seen) = on_terminal(&line, "requests/s", "q");
    assert_eq!(code, Some(0), "{seen}");
    // A daemon that is gone ends it with a message on a screen that is as before.
    daemon.terminate();
    let (code, seen) = on_terminal(&line, "", "");
    assert!(code == Some(1) && seen.contains("no daemon serves"), "{seen}");
}

#[test]
fn a_brick_that_nobody_uses_is_idle_and_what_it_knew_stays_known() {
    let (home, daemon) = served("explain-idle");
    let data = text(&home.data).to_string();
    let told = explained(&[&data, "--seconds", "1"]);
    assert_eq!(told["verdict"]["cause"], "idle", "{told:#}");
    reading(&home.mount, || std::thread::sleep(Duration::from_secs(5)));
    daemon.terminate();
    assert!(home.data.join("device-baseline").exists(), "seconds of reading teach something");
    home.check();
    let daemon = home.up();
    let saved = home.scratch.join("saved");
    succeed(&["explain", &data, "--seconds", "1", "--save", text(&saved)]);
    let pair: serde_json::Value = serde_json::from_slice(&std::fs::read(&saved).expect("kept")).expect("JSON");
    let classes = pair[1]["baseline"]["classes"].as_array().expect("classes").len();
    assert!(classes > 0, "a daemon that starts again knows what it knew");
    daemon.terminate();
    // A damaged file counts as none, and harms nothing.
    std::fs::write(home.data.join("device-baseline"), b"00000000\n{}").expect("writable");
    home.check();
    home.up().terminate();
}

#[test]
fn a_sweep_says_what_more_requests_and_less_cpu_time_would_bring() {
    let (home, daemon) = served("explain-sweep");
    let (data, file) = (text(&home.data).to_string(), home.mount.join("file"));
    // Each request waits for 50 ms whatever others do: only more of them help.
    succeed(&["layer", "add", &data, "default", "delay", "50", "--operation", "read"]);
    let told = explained(&[&data, "--sweep", text(&file), "--seconds", "1"]);
    let steps = told["steps"].as_array().expect("steps");
    let rate = |step: &serde_json::Value| step["per_second"].as_f64().expect("a rate");
    assert_eq!(steps.len(), 7, "{told:#}");
    assert!((5.0..21.0).contains(&rate(&steps[0])) && rate(&steps[6]) > 20.0 * rate(&steps[0]), "{told:#}");
    let changes = told["changes"].as_array().expect("changes");
    let gain = |name: &str| {
        let change = changes.iter().find(|one| one["change"].as_str().is_some_and(|change| change.contains(name)));
        change.and_then(|change| change["gain"].as_f64()).unwrap_or_else(|| panic!("{name}: {told:#}"))
    };
    assert!(gain("128 requests in flight") > 0.5 && gain("CPU time") < 0.2, "{told:#}");
    let text = succeed(&["explain", &data, "--sweep", text(&file), "--seconds", "1"]);
    assert!(text.contains("What a change would bring:"), "{text}");
    daemon.terminate();
    home.check();
}

#[test]
fn a_sweep_of_what_is_not_a_file_of_the_brick_is_refused() {
    let (home, daemon) = served("explain-sweep-bad");
    let data = text(&home.data).to_string();
    let elsewhere = home.scratch.join("elsewhere");
    fail(&["explain", &data, "--sweep", text(&elsewhere)], 1, &["can't read"]);
    std::fs::write(home.mount.join("small"), "few bytes").expect("there is room");
    fail(&["explain", &data, "--sweep", text(&home.mount.join("small"))], 2, &["no file of a MiB"]);
    std::fs::write(&elsewhere, vec![1; 2 << 20]).expect("there is room");
    fail(&["explain", &data, "--sweep", text(&elsewhere), "--seconds", "1"], 2, &["not read through"]);
    assert_eq!(run(&["explain", "--sweep", text(&elsewhere)]).status.code(), Some(2));
    daemon.terminate();
}

#[test]
fn bad_input_is_told() {
    let home = Home::new("explain-bad");
    let file = home.scratch.join("file");
    fail(&["explain", text(&home.data)], 1, &["no brick", "sinter format"]);
    home.up().terminate();
    fail(&["explain", text(&home.data)], 1, &["no daemon serves", "sinter serve"]);
    fail(&["explain", "--from", text(&file)], 1, &["can't read"]);
    for junk in [&b""[..], b"[]", b"[{}]", b"{", b"[{},{},{}]", &[0xff; 100], b"[{\"at_ns\":-1},{}]"] {
        std::fs::write(&file, junk).expect("writable");
        fail(&["explain", "--from", text(&file)], 2, &["not hold two snapshots", "--save"]);
    }
    // Two that are the same, or of two daemons.
    for pair in ["[{},{}]", "[{\"at_ns\":1,\"started_ns\":1},{\"at_ns\":2,\"started_ns\":2}]"] {
        std::fs::write(&file, pair).expect("writable");
        fail(&["explain", "--from", text(&file)], 1, &["not of one daemon"]);
    }
    // A newer program's snapshots have fields that this one does not know, and lack others.
    std::fs::write(&file, "[{\"at_ns\":1,\"new\":7},{\"at_ns\":2000000001,\"new\":8}]").expect("writable");
    assert_eq!(explained(&["--from", text(&file)])["verdict"]["cause"], "idle");
    assert_eq!(run(&["explain"]).status.code(), Some(2));
    assert_eq!(run(&["explain", text(&home.data), "--seconds", "0"]).status.code(), Some(2));
}
