//! Limits of volumes that are mounted: what passes, that they hold at once and after a crash, and that nothing ends later for them.
//! How much passes at least is told only where the machine has time for it: it may be busy with other tests.

use crate::calls::Mapping;
use crate::daemon::{Daemon, Home, fail, run, sinter, succeed, system, text};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 4096;

fn direct(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path).expect("it is there")
}

fn buffered(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("it is there")
}

/// A brick with a file, served.
fn served(name: &str) -> (Home, Daemon) {
    let home = Home::new(name);
    let daemon = home.up();
    std::fs::write(home.mount.join("file"), vec![7; BLOCK * BLOCKS as usize]).expect("there is room");
    (home, daemon)
}

fn set(home: &Home, words: &[&str]) {
    succeed(&[&["volume", "set", text(&home.data), "default"], words].concat());
}

/// The limits that the volume is said to have.
fn told(home: &Home) -> serde_json::Value {
    let told = succeed(&["volume", "info", "--json", text(&home.data), "default"]);
    serde_json::from_str::<serde_json::Value>(&told).expect("JSON")["limits"].clone()
}

/// Runs `during` while `clients` do one thing after the other, and counts what they have done.
fn beside<T>(clients: usize, one: impl Fn(u64) + Sync, during: impl FnOnce(&AtomicU64) -> T) -> T {
    let (done, next, ends) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    one(next.fetch_add(1, Ordering::Relaxed));
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| during(&done)));
        ends.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The numbers of operations done in each of so many seconds.
fn rates(done: &AtomicU64, seconds: u64) -> Vec<f64> {
    let one = |_| {
        let (before, began) = (done.load(Ordering::Relaxed), Instant::now());
        std::thread::sleep(Duration::from_secs(1));
        (done.load(Ordering::Relaxed) - before) as f64 / began.elapsed().as_secs_f64()
    };
    (0..seconds).map(one).collect()
}

#[test]
fn a_limit_holds_at_once_and_after_a_crash_until_it_is_taken_away() {
    let (home, daemon) = served("limits");
    let read = |home: &Home| {
        let file = direct(&home.mount.join("file"));
        move |number: u64| {
            let at = number.wrapping_mul(97) % BLOCKS * BLOCK as u64;
            file.read_exact_at(Mapping::anonymous(BLOCK).bytes_mut(), at).expect("it is readable");
        }
    };
    let free = beside(8, read(&home), |done| {
        let free = rates(done, 2)[1];
        set(&home, &["--iops-max", "500"]);
        std::thread::sleep(Duration::from_secs(1));
        let held = rates(done, 5);
        assert!(held.iter().all(|rate| (350.0..=560.0).contains(rate)), "{held:?}, {free} without a limit");
        free
    });
    assert!(free > 2000.0, "a machine that does {free} a second says nothing");
    assert_eq!(told(&home), serde_json::json!({"iops-max": 500}));
    let listed = succeed(&["volume", "list", text(&home.data)]);
    assert!(listed.contains("iops-max 500"), "{listed}");
    daemon.kill();
    let daemon = home.up();
    beside(8, read(&home), |done| {
        let held = rates(done, 2)[1];
        assert!(held <= 560.0, "it is forgotten: {held}");
        let explained = succeed(&["explain", "--json", text(&home.data), "--seconds", "2"]);
        let verdict = &serde_json::from_str::<serde_json::Value>(&explained).expect("JSON")["verdict"];
        assert_eq!(
            (&verdict["cause"], &verdict["resource"]),
            (&"limit".into(), &"volume default".into()),
            "{verdict:#}"
        );
        set(&home, &["--iops-max", "none"]);
        std::thread::sleep(Duration::from_secs(1));
        assert!(rates(done, 1)[0] > 2000.0, "it is gone");
    });
    let profile = succeed(&["profile", text(&home.data)]);
    assert!(profile.lines().any(|line| line.trim_start().starts_with("limit ")), "{profile}");
    assert_eq!(told(&home), serde_json::json!({}));
    daemon.terminate();
    home.check();
}

#[test]
fn reads_and_writes_have_bandwidths_of_their_own() {
    let (home, daemon) = served("limits-bandwidth");
    set(&home, &["--write-bandwidth-max", "8M", "--burst", "20"]);
    let file = direct(&home.mount.join("file"));
    let write = |number: u64| {
        file.write_all_at(Mapping::anonymous(256 << 10).bytes(), number % 64 * (256 << 10)).expect("it is writable");
    };
    beside(4, write, |done| {
        std::thread::sleep(Duration::from_secs(1));
        let rates = rates(done, 4);
        // Four of 256 KiB are a MiB.
        assert!(rates.iter().all(|rate| (20.0..=36.0).contains(rate)), "{rates:?}");
        let began = Instant::now();
        for number in 0..100 {
            file.read_exact_at(Mapping::anonymous(BLOCK).bytes_mut(), number * BLOCK as u64).expect("it is readable");
        }
        assert!(began.elapsed() < Duration::from_secs(2), "reads have no limit: {:?}", began.elapsed());
    });
    // What was stored through a mapping is written by the kernel, and counts too.
    let mut mapped =
        Mapping::of(&buffered(&home.mount.join("file")), 16 << 20, libc::MAP_SHARED).expect("it can be mapped");
    mapped.bytes_mut().fill(9);
    let began = Instant::now();
    mapped.sync();
    assert!(began.elapsed() > Duration::from_millis(1700), "16 MiB in {:?}", began.elapsed());
    drop(mapped);
    drop(file);
    daemon.terminate();
    home.check();
}

/// Thirty look-ups wait, one passes each second: files go, data gets durable, and the daemon ends without waiting for them.
#[test]
fn removals_syncs_and_the_end_wait_for_no_limit() {
    let (home, daemon) = served("limits-end");
    let path = home.mount.join("file");
    let file = buffered(&path);
    set(&home, &["--iops-max", "1"]);
    std::thread::scope(|scope| {
        for number in 0..30 {
            let missing = home.mount.join(format!("missing-{number}"));
            scope.spawn(move || drop(std::fs::metadata(missing)));
        }
        std::thread::sleep(Duration::from_millis(500));
        let began = Instant::now();
        file.sync_all().expect("nothing is in its way");
        file.set_len(0).expect("it gets shorter");
        drop(file);
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        daemon.terminate();
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    });
    home.check();
}

#[test]
fn limits_are_set_on_a_brick_at_rest_and_mistakes_change_nothing() {
    let home = Home::new("limits-asked");
    let data = text(&home.data);
    succeed(&["format", data, "--size", "4G"]);
    succeed(&["volume", "create", data, "default"]);
    set(&home, &["--iops-max", "1000000000", "--read-bandwidth-max", "1T", "--burst", "60000"]);
    let all = serde_json::json!({"iops-max": 1_000_000_000u64, "read-bandwidth-max": 1u64 << 40, "burst": 60000});
    assert_eq!(told(&home), all);
    for (option, value) in [
        ("--iops-max", "0"),
        ("--iops-max", "1000000001"),
        ("--iops-max", "18446744073709551616"),
        ("--iops-max", "-1"),
        ("--iops-max", "many"),
        ("--bandwidth-max", "0"),
        ("--bandwidth-max", "63K"),
        ("--write-bandwidth-max", "2T"),
        ("--burst", "0"),
        ("--burst", "60001"),
        ("--weight", "0"),
        ("--weight", "1001"),
        ("--reserve", "0"),
        ("--reserve", "91"),
        ("--reserve", "half"),
    ] {
        let refused = run(&["volume", "set", data, "default", &format!("{option}={value}")]);
        assert_eq!(refused.status.code(), Some(2), "{option} {value}: {refused:?}");
    }
    fail(&["volume", "set", data, "another", "--iops-max", "5"], 1, &["no such volume"]);
    assert_eq!(told(&home), all);
    set(&home, &["--iops-max", "none", "--read-bandwidth-max", "none", "--burst", "none"]);
    assert_eq!(told(&home), serde_json::json!({}));
    set(&home, &["--write-iops-max", "5", "--weight", "300", "--reserve", "60%"]);
    succeed(&["volume", "rename", data, "default", "other"]);
    succeed(&["volume", "rename", data, "other", "default"]);
    assert_eq!(told(&home), serde_json::json!({"write-iops-max": 5, "weight": 300, "reserve": 60}));
    // More than there is to reserve is said to be, by the change and by each list, until it is no longer.
    succeed(&["volume", "create", data, "second"]);
    let warned = |words: &[&str]| {
        let output = run(&[&["volume"], words].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).contains("reserve 110% of the brick, and 90% can be reserved")
    };
    assert!(warned(&["set", data, "second", "--reserve", "50"]) && warned(&["list", data]));
    assert!(!warned(&["set", data, "second", "--reserve", "30"]) && !warned(&["list", data]));
    home.check();
}

/// The limits of a volume's directory trees, as they are told.
fn trees(home: &Home) -> serde_json::Value {
    let told = succeed(&["volume", "info", "--json", text(&home.data), "default"]);
    serde_json::from_str::<serde_json::Value>(&told).expect("JSON")["trees"].clone()
}

#[test]
fn a_directory_tree_has_limits_of_its_own_which_its_new_files_have_too() {
    let (home, daemon) = served("limits-tree");
    let (tree, deep) = (home.mount.join("tree"), home.mount.join("tree/a/b"));
    std::fs::create_dir_all(&deep).expect("the mount is writable");
    std::fs::write(deep.join("old"), vec![7; BLOCK * BLOCKS as usize]).expect("there is room");
    // Whatever is in it.
    std::os::unix::fs::symlink("old", deep.join("link")).expect("a link");
    std::fs::write(deep.join("fixed"), "").expect("there is room");
    system("chattr", &["+i", text(&deep.join("fixed"))]);
    let limit = |words: &[&str]| succeed(&[&["limit", text(&home.data), "default", "/tree"], words].concat());
    let said = limit(&["--iops-max", "300"]);
    assert!(said.contains("iops-max 300"), "{said}");
    std::fs::write(tree.join("new"), vec![7; BLOCK * BLOCKS as usize]).expect("there is room");
    let reads = |path: &Path| {
        let file = direct(path);
        move |number: u64| {
            let at = number.wrapping_mul(97) % BLOCKS * BLOCK as u64;
            file.read_exact_at(Mapping::anonymous(BLOCK).bytes_mut(), at).expect("it is readable");
        }
    };
    let held = |path: &Path| beside(8, reads(path), |done| rates(done, 2)[1]);
    for path in [deep.join("old"), tree.join("new")] {
        let rate = held(&path);
        assert!(rate <= 340.0, "{}: {rate}", path.display());
    }
    let free = held(&home.mount.join("file"));
    assert!(free > 1000.0, "what is outside has no limit: {free}");
    // What would get around it has to be copied.
    let error = std::fs::hard_link(home.mount.join("file"), tree.join("link")).expect_err("it is of another project");
    assert_eq!(error.raw_os_error(), Some(libc::EXDEV));
    daemon.kill();
    let daemon = home.up();
    let rate = held(&deep.join("old"));
    assert!(rate <= 340.0, "it is forgotten: {rate}");
    let told = trees(&home);
    assert_eq!((told[0]["path"].as_str(), &told[0]["limits"]), (Some("/tree"), &serde_json::json!({"iops-max": 300})));
    // A tree within has its own limits alone, until they are taken away.
    let inner = |words: &[&str]| succeed(&[&["limit", text(&home.data), "default", "/tree/a"], words].concat());
    inner(&["--read-iops-max", "900"]);
    let rate = held(&deep.join("old"));
    assert!(rate > 340.0 && rate <= 1000.0, "of the outer and the inner one: {rate}");
    inner(&["--read-iops-max", "none"]);
    let rate = held(&deep.join("old"));
    assert!(rate <= 340.0, "it is in the outer one again: {rate}");
    limit(&["--iops-max", "none"]);
    assert_eq!(trees(&home), serde_json::json!([]));
    assert!(held(&deep.join("old")) > 1000.0, "it is gone");
    std::fs::hard_link(home.mount.join("file"), tree.join("link")).expect("all is of one project again");
    // The limits of a tree that is removed go with the next change, though it is still open.
    inner(&["--iops-max", "5"]);
    let _open = File::open(tree.join("a")).expect("it is there");
    system("chattr", &["-i", text(&deep.join("fixed"))]);
    std::fs::remove_dir_all(tree.join("a")).expect("nobody uses it");
    limit(&["--iops-max", "700"]);
    let told = trees(&home);
    assert_eq!((told[0]["path"].as_str(), told.as_array().map(Vec::len)), (Some("/tree"), Some(1)), "{told}");
    for (path, part) in [("/absent", "no such name"), ("/file", "director"), ("/", "volume set")] {
        fail(&["limit", text(&home.data), "default", path, "--iops-max", "5"], 1, &[part]);
    }
    daemon.terminate();
    home.check();
}

/// The projects of a directory and of all that is in it.
fn projects(tree: &Path) -> BTreeSet<u32> {
    let listed = |arguments: &[&str]| {
        let said = Command::new("lsattr").args(arguments).arg(tree).output().expect("it runs").stdout;
        String::from_utf8(said).expect("text")
    };
    let all = listed(&["-p", "-R"]) + &listed(&["-p", "-d"]);
    all.lines().filter_map(|line| line.trim_start().split_once(' ')?.0.parse().ok()).collect()
}

/// Kills the daemon ever later in a change of limits, until only a part of the tree has it. True if one was cut off so.
fn cut_off(home: &Home, mut daemon: Daemon, limit: &[&str]) -> bool {
    for delay_ms in [5, 10, 20, 30, 50, 80] {
        let mut command = sinter().args(limit).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
        std::thread::sleep(Duration::from_millis(delay_ms));
        daemon.kill();
        command.wait().expect("it ends");
        daemon = home.up();
        if projects(&home.mount.join("tree")).len() > 1 {
            daemon.terminate();
            return true;
        }
    }
    daemon.terminate();
    false
}

/// A limit that was cut off in the middle of a tree can be given again, here on a brick at rest, and the tree is then whole.
#[test]
fn a_tree_that_was_limited_in_part_is_limited_whole_the_next_time() {
    const FILES: usize = 20_000;
    let (home, daemon) = served("limits-cut-off");
    for directory in (0..FILES / 500).map(|number| home.mount.join(format!("tree/{number}"))) {
        std::fs::create_dir_all(&directory).expect("the mount is writable");
        (0..500).for_each(|file| drop(File::create(directory.join(file.to_string())).expect("there is room")));
    }
    // It does not hold who looks at all these files.
    let limit = |value| ["limit", text(&home.data), "default", "/tree", "--write-iops-max", value];
    let first = cut_off(&home, daemon, &limit("300"));
    succeed(&limit("300"));
    let daemon = home.up();
    let limited = projects(&home.mount.join("tree"));
    assert!(limited.len() == 1 && limited.iter().all(|project| *project >= 1 << 30), "{limited:?}");
    let second = cut_off(&home, daemon, &limit("none"));
    succeed(&limit("none"));
    let daemon = home.up();
    assert_eq!(projects(&home.mount.join("tree")), BTreeSet::from([0]));
    assert!(first || second, "no kill came in the middle");
    daemon.terminate();
    home.check();
}
