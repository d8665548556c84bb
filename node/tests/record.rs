//! `sinter record` and `sinter replay` on live mounts: what a replay does is what was recorded, operation by operation; what is
//! damaged, foreign or too much is told.

use crate::daemon::{Daemon, Home, fail, refused, run, sinter, succeed, text};
use recording::{Reading, Recording};
use rustix::fs::{Advice, AtFlags, CWD, FallocateFlags, StatxFlags, fadvise, fallocate, statx};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Seconds of a recording, in which a load has enough time.
const SECONDS: &str = "3";
const BLOCK: usize = 4096;

/// Memory that O_DIRECT takes.
struct Aligned(Vec<u8>, usize);

impl Aligned {
    fn new(length: usize) -> Aligned {
        let memory = vec![7; length + BLOCK];
        let skip = memory.as_ptr().align_offset(BLOCK);
        Aligned(memory, skip)
    }
    fn bytes(&mut self, length: usize) -> &mut [u8] {
        &mut self.0[self.1..][..length]
    }
}

fn opened(path: &Path, flags: i32) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).expect("it is there")
}

fn recorder(data: &Path, file: &Path) -> Child {
    let mut command = sinter();
    command.args(["record", text(data), text(file), "--seconds", SECONDS, "--json"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the binary runs");
    while fs::metadata(file).map_or(0, |file| file.len()) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

/// Waits for a recording; its mix, as it tells it.
fn mix(recorder: Child) -> BTreeMap<String, u64> {
    let output = recorder.wait_with_output().expect("it can be waited for");
    assert!(output.status.success(), "{:?}", output.status);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(told["dropped"], 0, "{told:#}");
    let rows = told["operations"].as_array().expect("a list");
    rows.iter()
        .map(|row| (row["name"].as_str().expect("a name").to_string(), row["count"].as_u64().expect("a count")))
        .collect()
}

fn read(file: &Path) -> Recording {
    match recording::read(&fs::read(file).expect("it is there")).expect("it is whole") {
        Reading::Whole(recording) => recording,
        Reading::Cut(..) => panic!("{} was cut", file.display()),
    }
}

/// Makes what is there before: a tree, and a file that stays open.
fn before(mount: &Path) -> File {
    fs::create_dir(mount.join("tree")).expect("mkdir");
    for number in 0..20 {
        fs::write(mount.join(format!("tree/{number}")), vec![number; 3000 * usize::from(number)]).expect("written");
    }
    let path = mount.join("open");
    fs::write(&path, vec![1; 1 << 20]).expect("written");
    let file = opened(&path, 0);
    file.sync_all().expect("synced");
    file
}

/// All kinds of operations, by the calls that programs use.
fn names(mount: &Path) {
    let at = |name: &str| mount.join(name);
    fs::create_dir(at("made")).expect("mkdir");
    for number in 0..30 {
        let path = at(&format!("made/{number}"));
        let mut file = File::create(&path).expect("created");
        file.write_all(&vec![2; 100 * (number + 1)]).expect("written");
        file.sync_all().expect("synced");
        drop(file);
        assert_eq!(fs::metadata(&path).expect("it is there").len(), 100 * (number as u64 + 1));
    }
    for number in 0..10 {
        fs::rename(at(&format!("made/{number}")), at(&format!("tree/moved{number}"))).expect("renamed");
        fs::rename(at(&format!("made/{}", number + 10)), at(&format!("tree/{number}"))).expect("replaced");
        fs::remove_file(at(&format!("tree/moved{number}"))).expect("removed");
        assert!(fs::metadata(at(&format!("absent{number}"))).is_err());
    }
    fs::hard_link(at("made/25"), at("link")).expect("linked");
    std::os::unix::fs::symlink("made", at("symlink")).expect("linked");
    assert_eq!(fs::read_dir(at("symlink")).expect("listed").count(), 10);
    assert!(OpenOptions::new().write(true).create_new(true).open(at("link")).is_err());
    fs::create_dir(at("gone")).expect("mkdir");
    fs::remove_dir(at("gone")).expect("removed");
    fs::set_permissions(at("link"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("chmod");
}

/// Reads and writes of each class, of a file that is open from before and of others.
fn data(mount: &Path, open: &File) {
    let mut room = Aligned::new(1 << 20);
    for number in 0..50 {
        open.write_all_at(&[3; 8192], number * 8192).expect("written");
        if number % 10 == 0 {
            open.sync_data().expect("synced");
        }
    }
    for number in 0..20u8 {
        // The kernel would answer from cached pages and not ask the daemon.
        let file = File::open(mount.join(format!("tree/{number}"))).expect("it is there");
        fadvise(&file, 0, None, Advice::DontNeed).expect("it is a file");
        let mut bytes = Vec::new();
        (&file).read_to_end(&mut bytes).expect("read");
    }
    let direct = opened(&mount.join("open"), libc::O_DIRECT);
    let synced = opened(&mount.join("open"), libc::O_DSYNC);
    for number in 0..40 {
        direct.read_exact_at(room.bytes(BLOCK), number * 8192).expect("read");
        direct.write_all_at(room.bytes(BLOCK), number * 4096).expect("written");
        synced.write_all_at(&[4; 1000], number * 1000).expect("written");
    }
    direct.read_exact_at(room.bytes(1 << 20), 0).expect("read");
    let mut appended = OpenOptions::new().append(true).create(true).open(mount.join("appended")).expect("created");
    for _ in 0..30 {
        appended.write_all(b"a line that is not so long\n").expect("written");
    }
    appended.set_len(100).expect("cut");
    fallocate(&appended, FallocateFlags::empty(), 0, 1 << 16).expect("promised");
}

fn load(mount: &Path, open: &File) {
    names(mount);
    data(mount, open);
}

struct Replaying(Child, BufReader<std::process::ChildStderr>);

impl Replaying {
    fn start(file: &Path, directory: &Path, more: &[&str]) -> Replaying {
        let mut command = sinter();
        command.args(["replay", text(file), text(directory), "--json", "--pause"]).args(more);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let errors = BufReader::new(child.stderr.take().expect("piped"));
        let mut replaying = Replaying(child, errors);
        replaying.await_pause();
        replaying
    }
    fn await_pause(&mut self) {
        let mut line = String::new();
        while !line.contains("paused before") {
            line.clear();
            assert!(self.1.read_line(&mut line).expect("text") > 0, "it ends without a pause");
        }
    }
    fn go_on(&mut self) {
        writeln!(self.0.stdin.as_mut().expect("piped")).expect("it reads");
    }
    fn end(mut self) -> serde_json::Value {
        self.go_on();
        let output = self.0.wait_with_output().expect("it can be waited for");
        assert!(output.status.success(), "{:?}", output.status);
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

/// Records a load; the mix and the file.
fn recorded(name: &str) -> (Home, Daemon, PathBuf, BTreeMap<String, u64>) {
    let home = Home::new(name);
    let daemon = home.up();
    let open = before(&home.mount);
    let file = home.scratch.join("recording");
    let recorder = recorder(&home.data, &file);
    load(&home.mount, &open);
    let mix = mix(recorder);
    (home, daemon, file, mix)
}

#[test]
fn a_replay_does_what_was_recorded() {
    let (home, daemon, file, recorded) = recorded("record");
    for name in ["lookup", "create", "mkdir", "rename", "unlink", "link", "symlink", "open", "release", "read", "write"]
    {
        assert!(recorded.contains_key(name), "{name}: {recorded:?}");
    }
    for name in ["write-direct", "write-sync", "fsync", "readdir", "setattr", "getattr", "fallocate", "rmdir"] {
        assert!(recorded.contains_key(name), "{name}: {recorded:?}");
    }
    let bytes = fs::read(&file).expect("it is there");
    let holds = |word: &[u8]| bytes.windows(word.len()).any(|part| part == word);
    assert!(!holds(b"appended") && !holds(b"symlink") && !holds(b"a line that"), "no names and no data");
    daemon.terminate();
    for more in [&[][..], &["--as-recorded"]] {
        let fresh = Home::new("replay");
        let daemon = fresh.up();
        let mut replay = Replaying::start(&file, &fresh.mount, more);
        let again = fresh.scratch.join("again");
        let recorder = recorder(&fresh.data, &again);
        let began = Instant::now();
        replay.go_on();
        replay.await_pause();
        assert!(began.elapsed() < Duration::from_secs(3), "it was recorded to its end");
        let replayed = mix(recorder);
        let told = replay.end();
        assert_eq!(replayed, recorded, "{more:?}: {told:#}");
        assert_eq!((&told["ended_otherwise"], &told["opened_beside"]), (&0.into(), &0.into()), "{told:#}");
        let sizes = |file: &Path, row: &str| {
            let of =
                read(file).operations.into_iter().filter(|one| one.row() == row).map(|one| (one.length, one.bytes));
            let mut of: Vec<_> = of.collect();
            of.sort_unstable();
            of
        };
        for row in ["read", "write", "write-direct", "write-sync"] {
            assert_eq!(sizes(&file, row), sizes(&again, row), "{row}");
        }
        daemon.terminate();
        fresh.check();
    }
    home.check();
}

#[test]
fn a_replay_runs_on_any_file_system_and_a_cut_file_is_read_up_to_its_last_frame() {
    let (home, daemon, file, _) = recorded("record-cut");
    daemon.terminate();
    let directory = home.scratch.directory("elsewhere");
    let told = succeed(&["replay", text(&file), text(&directory)]);
    assert!(told.contains("write-direct") && told.contains("then: in the daemon"), "{told}");
    let bytes = fs::read(&file).expect("it is there");
    let cut = home.scratch.join("cut");
    fs::write(&cut, &bytes[..bytes.len() - 5]).expect("writable");
    let second = home.scratch.directory("second");
    let output = run(&["replay", text(&cut), text(&second), "--json"]);
    let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && errors.contains("was cut short"), "{errors}");
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert!(told["cut_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{told:#}");
    // Damage is told by its place, a newer file by its version, and nothing is done.
    let third = home.scratch.directory("third");
    let write = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        fs::write(&cut, bytes).expect("writable");
    };
    write(&|bytes| bytes[100] ^= 1);
    fail(&["replay", text(&cut), text(&third)], 1, &["damaged", "at byte "]);
    write(&|bytes| {
        bytes[8] = 9;
        let checksum = base::checksum::crc32c(&bytes[..12]);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    });
    fail(&["replay", text(&cut), text(&third)], 6, &["newer version", "its format is 9"]);
    fs::write(&cut, b"something else").expect("writable");
    fail(&["replay", text(&cut), text(&third)], 1, &["no recording", "sinter record"]);
    fail(&["replay", text(&file), text(&second)], 1, &["not empty", "empty directory"]);
    assert_eq!(fs::read_dir(&third).expect("listed").count(), 0);
}

/// A connection to the daemon, as a command has one.
struct Admin(BufReader<UnixStream>);

impl Admin {
    fn new(data: &Path) -> Admin {
        Admin(BufReader::new(UnixStream::connect(data.join("admin.sock")).expect("it listens")))
    }
    fn ask(&mut self, request: serde_json::Value) -> serde_json::Value {
        writeln!(self.0.get_mut(), "{request}").expect("it reads");
        let mut line = String::new();
        self.0.read_line(&mut line).expect("it answers");
        serde_json::from_str(&line).expect("JSON")
    }
}

fn bytes_of(answer: &serde_json::Value) -> Vec<u8> {
    let hex = answer["answer"]["recorded"]["hex"].as_str().unwrap_or_else(|| panic!("a part: {answer}"));
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("digits")).collect()
}

#[test]
fn who_does_not_read_loses_operations_and_nobody_waits_for_it() {
    const OPERATIONS: u64 = 60_000;
    let home = Home::new("record-slow");
    let daemon = home.up();
    fs::write(home.mount.join("file"), b"x").expect("written");
    let begin = serde_json::json!({ "request": "record_begin" });
    let mut admin = Admin::new(&home.data);
    let began = admin.ask(begin.clone());
    let other = home.scratch.join("other");
    let refusal = run(&["record", text(&home.data), text(&other), "--seconds", "1"]);
    refused(&refusal, 3, &["somebody else records"], "a second recording");
    fs::remove_file(&other).expect("it was made");
    let path = home.mount.join("file");
    for _ in 0..OPERATIONS {
        statx(CWD, &path, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS).expect("it is answered");
    }
    let take = |last: bool| serde_json::json!({ "request": "record_take", "number": 1, "last": last });
    let parts = [began, admin.ask(take(false)), admin.ask(take(true))];
    let bytes: Vec<u8> = parts.iter().flat_map(bytes_of).collect();
    let recording = recording::read(&bytes).expect("it is good").recording();
    let kept = recording.operations.len() as u64;
    assert!(recording.end.dropped > 0, "{kept} of {OPERATIONS} were kept");
    // The file that was written before may be closed only now.
    assert!((OPERATIONS..OPERATIONS + 3).contains(&(kept + recording.end.dropped)), "{kept} were kept");
    // A recording whose command is gone ends by itself.
    admin.ask(begin);
    drop(admin);
    let deadline = Instant::now() + Duration::from_secs(30);
    while run(&["record", text(&home.data), text(&other), "--seconds", "1"]).status.code() == Some(3) {
        assert!(Instant::now() < deadline, "it goes on for ever");
        fs::remove_file(&other).expect("it was made");
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(other.exists());
    daemon.terminate();
}

#[test]
fn bad_input_is_told() {
    let home = Home::new("record-bad");
    let file = home.scratch.join("file");
    fail(&["record", text(&home.data), text(&file)], 1, &["no brick", "sinter format"]);
    let daemon = home.up();
    fail(&["replay", text(&file), text(&home.mount)], 1, &["can't read"]);
    succeed(&["record", text(&home.data), text(&file), "--seconds", "1"]);
    fail(&["record", text(&home.data), text(&file), "--seconds", "1"], 1, &["exists already", "another name"]);
    fail(&["replay", text(&file), text(&home.mount)], 1, &["no operation", "while clients work"]);
    assert_eq!(run(&["record", text(&home.data)]).status.code(), Some(2));
    assert_eq!(run(&["record", text(&home.data), text(&file), "--seconds", "0"]).status.code(), Some(2));
    let mut text_of = String::new();
    File::open(home.scratch.join("file")).expect("kept").take(8).read_to_string(&mut text_of).expect("its magic");
    assert_eq!(text_of, "SINTERRC");
    daemon.terminate();
}
