//! `sinter check --repair` on a real brick, whose index was damaged behind the engine's back.

use crate::daemon::{Home, fail, run, sinter, succeed, text};
use base::{Ino, LeafKey, VolumeId};
use index_rocksdb::{Options, RocksIndex};
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::time::Duration;
use store::format::leaf::merge;
use store::format::{keys, values};
use store::index::{Index, IndexEdit};

/// Size of the file: not a whole number of blocks.
const BYTES: usize = (3 << 20) + 77;

fn content(tag: u8) -> Vec<u8> {
    (0..BYTES).map(|at| (at / 4096) as u8 ^ tag ^ (at as u8).wrapping_mul(31)).collect()
}

/// A brick with a directory of three files, not served; its volume and the files' inodes.
fn used(home: &Home) -> (VolumeId, [Ino; 3], Ino) {
    let daemon = home.up();
    let dir = home.mount.join("dir");
    std::fs::create_dir(&dir).expect("the mount is writable");
    for (tag, name) in (0..).zip(["a", "b", "c"]) {
        std::fs::write(dir.join(name), content(tag)).expect("the mount is writable");
    }
    let ino = |path: &str| Ino(std::fs::metadata(home.mount.join(path)).expect("it is there").ino());
    let inodes = (["dir/a", "dir/b", "dir/c"].map(ino), ino("dir"));
    let listed: Value = serde_json::from_str(&succeed(&["volume", "list", text(&home.data), "--json"])).expect("JSON");
    let volume = VolumeId(listed[0]["id"].as_u64().expect("a number") as u32);
    daemon.terminate();
    (volume, inodes.0, inodes.1)
}

/// Leaves of one, the inode of another and the entry of a third are gone, and counts are wrong.
fn damage(home: &Home, volume: VolumeId, [a, b, _]: [Ino; 3], dir: Ino) {
    let index = RocksIndex::open(&home.data.join("index"), &Options::new(8 << 20), merge).expect("nobody has it open");
    let key = keys::inode(volume, dir);
    let row = index.get(&key).expect("readable").expect("the directory is there");
    let mut inode = values::decode_inode(&row).expect("an inode");
    (inode.links, inode.entries) = (9, 17);
    let edits = vec![
        IndexEdit::Delete(keys::leaf(volume, LeafKey { ino: a, leaf: 1 })),
        IndexEdit::Put(keys::leaf(volume, LeafKey { ino: a, leaf: 3 }), vec![77; 40]),
        IndexEdit::Put(keys::inode(volume, b), vec![77; 9]),
        IndexEdit::Delete(keys::entry(volume, dir, b"c")),
        IndexEdit::Put(key, values::encode_inode(&inode)),
    ];
    index.write(edits).expect("writable");
    index.persist().expect("writable");
}

/// All files are as they were, but for the size of the second.
fn is_whole(home: &Home) {
    let daemon = home.up();
    for (tag, name) in (0..).zip(["a", "b", "c"]) {
        let read = std::fs::read(home.mount.join("dir").join(name)).expect("it can be read");
        let expected = content(tag);
        assert!(read[..BYTES] == expected[..], "{name} has its data");
        assert!(read[BYTES..].iter().all(|&byte| byte == 0) && read.len() - BYTES < 4096, "{name} ends as it did");
    }
    assert_eq!(std::fs::metadata(home.mount.join("dir")).expect("it is there").nlink(), 2);
    std::fs::write(home.mount.join("dir/new"), "new").expect("it can be written");
    daemon.terminate();
    home.check();
}

#[test]
fn a_damaged_index_is_mended_and_losses_are_listed() {
    let home = Home::new("repair");
    let (volume, files, dir) = used(&home);
    let data = text(&home.data);
    // A clean brick is left as it is.
    assert!(succeed(&["check", data, "--repair"]).contains("0 findings"));
    assert!(!home.data.join("index.before-repair-1").exists());
    damage(&home, volume, files, dir);
    let found = run(&["check", data]);
    assert_eq!(found.status.code(), Some(1));
    let said = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(said.contains("finding: ") && said.contains("--repair"), "{said}");
    let output = run(&["check", data, "--repair", "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(output.status.code(), Some(1), "an inode is lost: {told}");
    assert_eq!(told["after"]["findings"], Value::Array(Vec::new()), "{told}");
    let lost = told["lost"].as_array().expect("a list");
    assert!(lost.len() == 1 && lost[0]["path"] == "/dir/b" && lost[0]["inode"] == files[1].0, "{told}");
    assert!(home.data.join("index.before-repair-1").is_dir());
    home.check();
    is_whole(&home);
}

/// One bit of a file's data: the names and maps of the brick are right.
#[test]
fn bad_data_is_found_by_who_reads_it_told_once_and_no_repair_calls_it_well() {
    let home = Home::new("repair-data");
    used(&home);
    let (data, segments) = (text(&home.data), home.data.join("segments-00000"));
    let wanted = content(0)[7 * 4096..8 * 4096].to_vec();
    let mut bytes = std::fs::read(&segments).expect("readable");
    let at = bytes.chunks(4096).position(|block| block == wanted).expect("the file's eighth block is there") * 4096;
    bytes[at + 100] ^= 4;
    std::fs::write(&segments, bytes).expect("writable");
    let structures = succeed(&["check", data]);
    assert!(structures.contains("data was not read: `sinter check --data`"), "{structures}");
    for how in ["--data", "--repair"] {
        let output = run(&["check", data, how]);
        let told = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{how}: {told}");
        assert!(told.contains("data: /dir/a (") && told.contains("4096 bytes from 28672 on: differs"), "{how}: {told}");
    }
    let daemon = home.up();
    let read = std::fs::read(home.mount.join("dir/a")).map_err(|error| error.raw_os_error());
    assert_eq!(read.map(drop), Err(Some(5)), "EIO");
    let told = || succeed(&["status", data]);
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while !told().contains("bad data (findings: 1), the first is /dir/a, ") {
        assert!(std::time::Instant::now() < until, "{}", told());
        std::thread::sleep(Duration::from_millis(100));
    }
    let status = told();
    let counted = status.lines().find(|line| line.starts_with("reads of bad data")).expect("it is counted");
    assert!(!counted.ends_with(" 0"), "{status}");
    // Read again and again, it is told once.
    for _ in 0..3 {
        assert!(std::fs::read(home.mount.join("dir/a")).is_err());
    }
    std::thread::sleep(Duration::from_secs(3));
    let said = daemon.terminate();
    let lines: Vec<_> = said.lines().filter(|line| line.contains("bad data")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert!(lines[0].starts_with("sinter: bad data: /dir/a, inode ") && lines[0].contains("28672 on"), "{said}");
}

#[test]
fn a_brick_in_use_is_not_repaired() {
    let home = Home::new("repair-in-use");
    let daemon = home.up();
    fail(&["check", text(&home.data), "--repair"], 2, &["in use"]);
    daemon.terminate();
}

#[test]
fn a_repair_that_is_killed_can_be_repeated() {
    let home = Home::new("repair-kill");
    let (volume, files, dir) = used(&home);
    damage(&home, volume, files, dir);
    for number in 0..6 {
        let mut child = sinter()
            .args(["check", text(&home.data), "--repair"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        std::thread::sleep(Duration::from_millis(60 + 40 * number));
        drop(child.kill());
        child.wait().expect("it can be waited for");
    }
    run(&["check", text(&home.data), "--repair"]);
    home.check();
    is_whole(&home);
}

/// Flips a byte in the largest table of the index, so far into it.
fn flip_in_table(home: &Home, part: impl Fn(usize) -> usize) {
    let entries = std::fs::read_dir(home.data.join("index")).expect("it is there");
    let tables = entries.map(|entry| entry.expect("readable").path());
    let tables = tables.filter(|path| path.extension().is_some_and(|kind| kind == "sst"));
    let table =
        tables.max_by_key(|path| std::fs::metadata(path).expect("it is there").len()).expect("there are tables");
    let mut bytes = std::fs::read(&table).expect("readable");
    let at = part(bytes.len());
    bytes[at] ^= 0x20;
    std::fs::write(&table, bytes).expect("writable");
}

/// Blocks of the index that its checksums refuse are made anew if other data tells their content: here the middle of a
/// large file's map.
#[test]
fn an_index_with_bad_blocks_is_copied_and_mended() {
    const LARGE: u64 = 192 << 20;
    let home = Home::new("repair-blocks");
    let daemon = home.up();
    let block = |number: u64| (0..1 << 20).map(|at: u64| (at >> 12) as u8 ^ number as u8).collect::<Vec<_>>();
    let mut file = std::fs::File::create(home.mount.join("large")).expect("the mount is writable");
    for number in 0..LARGE >> 20 {
        std::io::Write::write_all(&mut file, &block(number)).expect("there is room");
    }
    drop(file);
    daemon.terminate();
    home.check();
    let data = text(&home.data);
    flip_in_table(&home, |length| length / 2);
    fail(&["check", data], 2, &["contradicts its checksums", "--repair", "docs/operate/read-only.md"]);
    let output = run(&["check", data, "--repair", "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told["mended"][1].as_str().is_some_and(|text| text.contains("from Leaf rows of group")), "{told}");
    assert_eq!((&told["lost"], &told["after"]["findings"]), (&Value::Array(vec![]), &Value::Array(vec![])));
    assert!(home.data.join("index.before-repair-1").is_dir() && !home.data.join("index.salvaged").exists());
    home.check();
    let daemon = home.up();
    let mut file = std::fs::File::open(home.mount.join("large")).expect("it is there");
    let mut read = vec![0; 1 << 20];
    for number in 0..LARGE >> 20 {
        std::io::Read::read_exact(&mut file, &mut read).expect("it can be read");
        assert!(read == block(number), "MiB {number}");
    }
    daemon.terminate();
}

/// Blocks of the index whose content nothing else tells: nothing is changed, and the message says what to do.
#[test]
fn an_index_that_has_lost_what_nothing_else_tells_is_left_alone() {
    let home = Home::new("repair-hopeless");
    used(&home);
    // The first rows are counters of groups.
    flip_in_table(&home, |_| 100);
    let before = tree_of(&home);
    let data = text(&home.data);
    fail(&["check", data], 2, &["contradicts its checksums", "--repair"]);
    fail(&["check", data, "--repair"], 2, &["nothing else tells", "backup", "An index with bad blocks"]);
    assert_eq!(tree_of(&home), before);
}

/// Names and checksums of all files of the brick but segments, the engine's logs, and who had it open last.
fn tree_of(home: &Home) -> Vec<(String, u32)> {
    let mut all = Vec::new();
    for directory in [home.data.clone(), home.data.join("index")] {
        for entry in std::fs::read_dir(directory).expect("it is there") {
            let path = entry.expect("readable").path();
            let name = path.display().to_string();
            if path.is_file() && !["LOG", "segments-", "data/lock"].iter().any(|other| name.contains(other)) {
                all.push((name, base::checksum::crc32c(&std::fs::read(&path).expect("readable"))));
            } else if path.is_dir() {
                all.push((name, 0));
            }
        }
    }
    all.sort();
    all
}
