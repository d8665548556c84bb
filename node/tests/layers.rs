//! Layers of volumes that are mounted: what they do to programs, how they are changed beneath them, and that they stay.

use crate::daemon::{Daemon, Home, fail, run, succeed, text};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// `sinter layer ...`; what it prints.
fn layer(words: &[&str]) -> String {
    succeed(&[&["layer"], words].concat())
}

/// The same as JSON.
fn told(words: &[&str]) -> serde_json::Value {
    serde_json::from_str(&layer(&[words, &["--json"]].concat())).expect("JSON")
}

/// The errno with which something is refused.
fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.expect_err("it is refused").raw_os_error().expect("the kernel refuses it")
}

/// Everything that would change a volume, by the ways that programs have.
fn changes(mount: &Path, open: &File) -> Vec<(&'static str, i32)> {
    let file = mount.join("file");
    let path = std::ffi::CString::new(text(&file)).expect("no zero");
    // SAFETY: both are strings that end with a zero, and the value is as long as is said.
    let xattr = || match unsafe { libc::setxattr(path.as_ptr(), c"user.x".as_ptr(), b"v".as_ptr().cast(), 1, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    };
    vec![
        ("write", errno(open.write_at(b"more", 0))),
        ("truncate", errno(open.set_len(1))),
        ("open with O_TRUNC", errno(OpenOptions::new().write(true).truncate(true).open(&file))),
        ("create", errno(File::create(mount.join("new")))),
        ("mkdir", errno(std::fs::create_dir(mount.join("dir")))),
        ("symlink", errno(symlink("there", mount.join("link")))),
        ("link", errno(std::fs::hard_link(&file, mount.join("other")))),
        ("rename", errno(std::fs::rename(&file, mount.join("other")))),
        ("unlink", errno(std::fs::remove_file(&file))),
        ("chmod", errno(std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)))),
        ("utimes", errno(open.set_modified(std::time::SystemTime::UNIX_EPOCH))),
        ("setxattr", errno(xattr())),
    ]
}

/// Ends the writers of a test, also of one that fails.
struct Ends(AtomicBool);

impl Ends {
    fn have_come(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A test's own hold on its writers: when it goes, they end.
struct Holder<'a>(&'a Ends);

impl Drop for Holder<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_read_only_layer_says_so_to_programs_and_stays() {
    let home = Home::new("layers-ro");
    let data = text(&home.data);
    let daemon = home.up();
    let file = home.mount.join("file");
    std::fs::write(&file, "kept").expect("the mount is writable");
    let open = OpenOptions::new().read(true).write(true).open(&file).expect("it is there");
    assert_eq!(layer(&["list", data, "default"]), "no layers\n");
    assert_eq!(told(&["add", data, "default", "read-only"])[0]["layer"]["name"], "read-only");
    let refused = |open: &File| {
        for (what, errno) in changes(&home.mount, open) {
            assert_eq!(errno, libc::EROFS, "{what}");
        }
    };
    refused(&open);
    assert_eq!(std::fs::read_to_string(&file).expect("it is readable"), "kept");
    assert_eq!(std::fs::read_dir(&home.mount).expect("it is readable").count(), 1);
    open.sync_all().expect("there is nothing to make durable");
    drop(open);
    // Durable without an orderly end; and the next mount has it from the beginning.
    daemon.kill();
    let daemon = home.up();
    let open = OpenOptions::new().read(true).write(true).open(&file).expect("it is there");
    refused(&open);
    assert_eq!(std::fs::read_to_string(&file).expect("it is readable"), "kept");
    assert_eq!(layer(&["remove", data, "default", "1"]), "no layers\n");
    open.write_all_at(b"more", 4).expect("the volume is writable again");
    drop(open);
    assert_eq!(std::fs::read_to_string(&file).expect("it is readable"), "keptmore");
    daemon.terminate();
    home.check();
}

#[test]
fn reading_through_a_read_only_layer_moves_no_access_time() {
    let home = Home::new("layers-atime");
    let data = text(&home.data);
    let daemon = home.up();
    let file = home.mount.join("file");
    std::fs::write(&file, "text").expect("the mount is writable");
    layer(&["add", data, "default", "read-only"]);
    let read = || {
        // Past the kernel's cache, so that the daemon sees it.
        let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&file).expect("it is there");
        let mut buffer = vec![0; 8192];
        let start = buffer.as_ptr().align_offset(4096);
        assert_eq!(direct.read_at(&mut buffer[start..start + 4096], 0).expect("it is readable"), 4);
        std::fs::metadata(&file).expect("it is there").atime_nsec()
    };
    let before = std::fs::metadata(&file).expect("it is there").atime_nsec();
    assert_eq!(read(), before);
    assert_eq!(told(&["list", data, "default"])[0]["changed"], 1);
    layer(&["remove", data, "default", "1"]);
    read();
    std::thread::sleep(Duration::from_millis(1100));
    assert_ne!(std::fs::metadata(&file).expect("it is there").atime_nsec(), before);
    daemon.terminate();
}

#[test]
fn delays_and_faults_meet_the_operations_that_they_name() {
    let home = Home::new("layers-fault");
    let data = text(&home.data);
    let daemon = home.up();
    let mut file = File::create(home.mount.join("file")).expect("the mount is writable");
    layer(&["add", data, "default", "fault", "no-space", "3", "--operation", "write"]);
    let written: Vec<_> = (0..6).map(|_| file.write_all(b"x").err().and_then(|error| error.raw_os_error())).collect();
    assert_eq!(written, [None, None, Some(libc::ENOSPC), None, None, Some(libc::ENOSPC)]);
    layer(&["add", data, "default", "delay", "300", "--operation", "fsync", "--at", "1"]);
    let began = Instant::now();
    file.sync_all().expect("it is only slower");
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
    let hops = told(&["list", data, "default"]);
    let figures = |at: usize, name: &str| hops[at][name].as_u64().expect("a number");
    assert_eq!((&hops[0]["layer"]["ns"], &hops[1]["layer"]["error"]), (&300_000_000.into(), &"no-space".into()));
    assert_eq!((figures(1, "answered"), figures(0, "answered"), figures(0, "changed")), (2, 0, 0));
    // The fault was there before: it has seen the writes too.
    assert!(figures(1, "calls") >= figures(0, "calls") + 6, "{hops}");
    let profile = succeed(&["profile", data]);
    let line = profile.lines().find(|line| line.starts_with("default")).expect("its layers are told");
    assert!(line.contains("delay") && line.contains("fsync: 300 ms"), "{profile}");
    assert!(profile.contains("  layers"), "the stage: {profile}");
    let profile: serde_json::Value = serde_json::from_str(&succeed(&["profile", data, "--json"])).expect("JSON");
    assert_eq!(profile["volumes"][0]["layers"].as_array().map(Vec::len), Some(2));
    let moved = told(&["move", data, "default", "2", "1"]);
    assert_eq!((&moved[0]["layer"]["name"], &moved[1]["layer"]["name"]), (&"fault".into(), &"delay".into()));
    assert_eq!(moved[0]["answered"], 2, "a layer keeps its figures");
    drop(file);
    daemon.terminate();
    home.check();
}

/// A change is whole when the command returns: no write that began before is still under way, each later one is refused.
#[test]
fn a_change_beneath_writers_is_complete_when_it_is_told() {
    let home = Home::new("layers-live");
    let data = text(&home.data);
    let daemon = home.up();
    let (written, ends) = (AtomicU64::new(0), Ends(AtomicBool::new(false)));
    std::thread::scope(|scope| {
        let _holder = Holder(&ends);
        for number in 0..2 {
            let (home, written, ends) = (&home, &written, &ends);
            let file = File::create(home.mount.join(format!("file{number}"))).expect("the mount is writable");
            scope.spawn(move || {
                while !ends.have_come() {
                    match file.write_at(&[number; 4096], 0) {
                        Ok(_) => drop(written.fetch_add(1, Ordering::SeqCst)),
                        Err(error) => {
                            assert_eq!(error.raw_os_error(), Some(libc::EROFS));
                            // Others want the CPU: refusals take no time.
                            std::thread::sleep(Duration::from_micros(100));
                        }
                    }
                }
            });
        }
        for _ in 0..10 {
            layer(&["add", data, "default", "read-only"]);
            // Answers of writes that ended before may still be on their way through the kernel.
            std::thread::sleep(Duration::from_millis(100));
            let then = written.load(Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(written.load(Ordering::SeqCst), then, "none is written");
            layer(&["remove", data, "default", "1"]);
            let deadline = Instant::now() + Duration::from_secs(20);
            while written.load(Ordering::SeqCst) == then {
                assert!(Instant::now() < deadline, "they go on");
                std::thread::yield_now();
            }
        }
    });
    daemon.terminate();
    home.check();
}

/// Writes that a delay holds when the layer above them is put in count there before the command returns, and none afterwards.
#[test]
fn no_earlier_operation_is_under_way_when_a_change_is_told() {
    let home = Home::new("layers-earlier");
    let data = text(&home.data);
    let daemon = home.up();
    let file = File::create(home.mount.join("file")).expect("the mount is writable");
    layer(&["add", data, "default", "delay", "90", "--operation", "write"]);
    let ends = Ends(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _holder = Holder(&ends);
        scope.spawn(|| {
            while !ends.have_come() {
                drop(file.write_at(b"x", 0));
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        for _ in 0..5 {
            let passed = |hops: &serde_json::Value| hops[1]["calls"].as_u64().expect("a number");
            let then = passed(&told(&["add", data, "default", "read-only", "--at", "1"]));
            std::thread::sleep(Duration::from_millis(200));
            assert_eq!(passed(&told(&["list", data, "default"])), then);
            layer(&["remove", data, "default", "1"]);
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    drop(file);
    daemon.terminate();
}

#[test]
fn who_takes_a_long_delay_out_does_not_wait_for_it() {
    let home = Home::new("layers-held");
    let data = text(&home.data);
    let daemon = home.up();
    let file = File::create(home.mount.join("file")).expect("the mount is writable");
    layer(&["add", data, "default", "delay", "60000", "--operation", "fsync"]);
    std::thread::scope(|scope| {
        let began = Instant::now();
        let held = scope.spawn(|| file.sync_all());
        std::thread::sleep(Duration::from_millis(500));
        assert!(!held.is_finished(), "it is held");
        assert_eq!(layer(&["remove", data, "default", "1"]), "no layers\n");
        held.join().expect("no panic").expect("it is only slower");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    });
    drop(file);
    daemon.terminate();
}

#[test]
fn layers_are_asked_of_a_daemon_and_mistakes_are_named() {
    let home = Home::new("layers-asked");
    let data = text(&home.data);
    succeed(&["format", data, "--size", "4G"]);
    succeed(&["volume", "create", data, "one"]);
    fail(&["layer", "list", data, "one"], 1, &["no daemon serves", "sinter serve"]);
    let mut serve = crate::daemon::sinter();
    serve.args(["serve", data]);
    let served = Daemon::start(serve);
    fail(&["layer", "list", data, "two"], 1, &["no volume of this name", "two"]);
    fail(&["layer", "remove", data, "one", "1"], 1, &["no such position", "there is no layer"]);
    assert_eq!(run(&["layer", "add", data, "one", "delay", "5", "--operation", "fly"]).status.code(), Some(2));
    // Not mounted: they are there when it is.
    layer(&["add", data, "one", "read-only"]);
    fail(&["layer", "add", data, "one", "fault", "io", "--at", "3"], 1, &["no such position", "3, of 1 to 2"]);
    (1..16).for_each(|_| drop(layer(&["add", data, "one", "delay", "1", "--operation", "lseek"])));
    fail(&["layer", "add", data, "one", "read-only"], 1, &["at most 16 layers"]);
    // They follow their volume to another name.
    succeed(&["volume", "rename", data, "one", "two"]);
    assert_eq!(told(&["list", data, "two"]).as_array().map(Vec::len), Some(16));
    succeed(&["mount", data, "two", text(&home.mount)]);
    assert_eq!(errno(File::create(home.mount.join("new"))), libc::EROFS);
    succeed(&["umount", text(&home.mount)]);
    // What it refuses is what clients ask for: an operator may still delete the volume.
    succeed(&["volume", "delete", data, "two"]);
    succeed(&["volume", "create", data, "two"]);
    assert_eq!(layer(&["list", data, "two"]), "no layers\n");
    served.terminate();
    home.check();
}
