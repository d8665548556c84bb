//! The scrub of a real brick: a block that has rotted is found, named by its path, remembered over restarts, and forgotten
//! with its file.

use crate::daemon::{Daemon, Home, fail, run, succeed, text};
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const EIO: i32 = 5;
/// Enough to fill many segments of 1 MiB.
const BLOCKS: u64 = 5000;

fn up(home: &Home) -> Daemon {
    let mut command = home.command();
    command.args(["--segment-size", "1M"]);
    Daemon::start(command)
}

/// A block that is found on the device by its content.
fn marked(number: u64) -> Vec<u8> {
    [0x5c20_b000_0000_0000u64 + number, !number].map(u64::to_le_bytes).concat().repeat(256)
}

/// Changes a byte of the block with this content; it lies in the first data file.
fn rot(home: &Home, content: &[u8]) {
    let file = File::options().read(true).write(true).open(home.data.join("segments-00000")).expect("a used brick");
    let mut chunk = vec![0; 1 << 20];
    for offset in (0..1 << 30).step_by(chunk.len()) {
        file.read_exact_at(&mut chunk, offset).expect("the file has 1 GiB");
        if let Some(at) = chunk.chunks(4096).position(|block| block == content) {
            let byte = [content[77] ^ 4];
            return file.write_all_at(&byte, offset + at as u64 * 4096 + 77).expect("within the file");
        }
    }
    panic!("the block is not on the device");
}

/// Runs `sinter scrub`: its exit code, and what it tells.
pub fn scrub(home: &Home, what: &[&str]) -> (Option<i32>, Value) {
    let mut arguments = vec!["scrub"];
    arguments.extend(what);
    arguments.extend([text(&home.data), "--json"]);
    let output = run(&arguments);
    let told = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output.status.code(), told)
}

#[test]
fn rot_is_found_named_remembered_and_forgotten_with_its_file() {
    let home = Home::new("scrub");
    let daemon = up(&home);
    std::fs::create_dir(home.mount.join("dir")).expect("the mount is writable");
    let victim = home.mount.join("dir/victim");
    let content: Vec<u8> = (0..BLOCKS).flat_map(marked).collect();
    std::fs::write(&victim, &content).expect("the mount is writable");
    daemon.terminate();
    let daemon = up(&home);
    let (code, told) = scrub(&home, &["status"]);
    assert_eq!((code, &told["state"]), (Some(0), &Value::from("never started")));
    let (code, told) = scrub(&home, &["start", "--wait"]);
    assert_eq!((code, &told["state"], &told["findings"]), (Some(0), &"done".into(), &Value::Array(Vec::new())));
    assert!(told["of_bytes"].as_u64().expect("a number") > 16 << 20, "most of it is in sealed segments: {told}");
    daemon.terminate();

    rot(&home, &marked(100));
    let daemon = up(&home);
    let (code, told) = scrub(&home, &["start", "--wait"]);
    let finding = &told["findings"][0];
    assert_eq!((code, &finding["path"]), (Some(1), &"/dir/victim".into()), "{told}");
    assert_eq!((&finding["offset"], &finding["bytes"]), (&(100 * 4096).into(), &4096.into()), "{told}");
    let shown = run(&["scrub", "status", text(&home.data)]);
    let said = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(said.contains("1 finding") && said.contains("/dir/victim") && said.contains("checksum"), "{said}");
    assert!(succeed(&["status", text(&home.data)]).contains("1 finding"));
    let file = File::open(&victim).expect("it is there");
    let mut block = [0; 4096];
    let error = file.read_exact_at(&mut block, 100 * 4096).expect_err("never wrong bytes");
    assert_eq!(error.raw_os_error(), Some(EIO));
    drop(file);
    daemon.terminate();

    let daemon = up(&home);
    let (code, told) = scrub(&home, &["status"]);
    assert_eq!((code, told["findings"].as_array().map(Vec::len)), (Some(1), Some(1)), "{told}");
    std::fs::remove_file(&victim).expect("a damaged file can be deleted");
    daemon.terminate();
    let daemon = up(&home);
    // The kernel's FORGET may not have come before the end: then the start gives the blocks back, beside its clients.
    let start = Instant::now();
    while scrub(&home, &["status"]).0 != Some(0) {
        assert!(start.elapsed() < Duration::from_secs(5), "nobody has the block any more");
        std::thread::sleep(Duration::from_millis(50));
    }
    daemon.terminate();
    home.check();
    fail(&["scrub", "start", text(&home.data)], 1, &["no daemon serves", "next step"]);
}

#[test]
fn a_pass_is_stopped_and_goes_on_by_itself_after_a_kill() {
    let home = Home::new("scrub-kill");
    let daemon = up(&home);
    let content: Vec<u8> = (0..BLOCKS).flat_map(marked).collect();
    std::fs::write(home.mount.join("file"), &content).expect("the mount is writable");
    daemon.terminate();
    rot(&home, &marked(4000));
    let daemon = up(&home);
    assert_eq!(scrub(&home, &["start"]).1["state"], "running");
    let (_, told) = scrub(&home, &["stop"]);
    assert!(["stopped", "done"].contains(&told["state"].as_str().expect("text")), "{told}");
    scrub(&home, &["start"]);
    // A checkpoint, asked for because the state has changed, makes it durable.
    std::thread::sleep(Duration::from_secs(1));
    daemon.kill();
    let daemon = up(&home);
    let mut told = scrub(&home, &["status"]).1;
    while told["state"] == "running" {
        std::thread::sleep(Duration::from_millis(50));
        told = scrub(&home, &["status"]).1;
    }
    assert_eq!(told["state"], "done", "it was remembered: {told}");
    assert_eq!(told["findings"].as_array().map(Vec::len), Some(1), "{told}");
    daemon.terminate();
}
