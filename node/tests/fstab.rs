//! `mount -t sinter`, by hand and from a table like /etc/fstab, with the helper where mount(8) looks for it.

use crate::daemon::{Home, STATES, Scratch, fail, mounts_below, succeed, system, text};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const HELPER: &str = "/sbin/mount.sinter";
/// The path where mount(8) looks for the helper to change a mount: by the type in the mount table.
const HELPER_IN_TABLE: &str = "/sbin/mount.fuse.sinter";
const PATIENCE: Duration = Duration::from_secs(60);

/// The helper in its place. What an installation has there is put back.
struct Helper {
    _alone: std::fs::File,
    before: Option<PathBuf>,
}

impl Helper {
    /// One test at a time: the place is the machine's.
    fn install() -> Helper {
        let alone = std::fs::File::create(std::env::temp_dir().join("sinter-mount-helper.lock")).expect("writable");
        alone.lock().expect("a lock");
        let before = match std::fs::read_link(HELPER) {
            Ok(before) => {
                std::fs::remove_file(HELPER).expect("root may");
                Some(before)
            }
            Err(_) => None,
        };
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sinter"), HELPER).expect("root may, and nothing is there");
        drop(std::fs::remove_file(HELPER_IN_TABLE));
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sinter"), HELPER_IN_TABLE).expect("root may");
        Helper { _alone: alone, before }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        drop(std::fs::remove_file(HELPER));
        drop(std::fs::remove_file(HELPER_IN_TABLE));
        if let Some(before) = &self.before {
            drop(std::os::unix::fs::symlink(before, HELPER));
            drop(std::os::unix::fs::symlink(before, HELPER_IN_TABLE));
        }
    }
}

fn mount(arguments: &[&str]) -> Output {
    Command::new("mount").args(arguments).output().expect("mount is installed")
}

fn mounted(arguments: &[&str]) {
    let output = mount(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn refused(arguments: &[&str], code: i32, parts: &[&str]) {
    let output = mount(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    parts.iter().for_each(|part| assert!(said.contains(part), "{arguments:?}: {part:?} is not in {said}"));
}

/// A brick with volumes, and nobody who serves it.
fn brick(home: &Home, volumes: &[&str]) -> String {
    succeed(&["format", text(&home.data), "--size", "4G"]);
    volumes.iter().for_each(|name| drop(succeed(&["volume", "create", text(&home.data), name])));
    text(&home.data).to_string()
}

/// A log beside the brick, so that a test leaves nothing in /var/log.
fn options(home: &Home, more: &str) -> String {
    format!("log={},{more}", text(&home.scratch.join("log")))
}

fn log(home: &Home) -> String {
    std::fs::read_to_string(home.scratch.join("log")).expect("the daemon's log")
}

/// The daemon ends by itself once nothing is mounted: the brick can be checked, and has nothing to replay.
fn ended_cleanly(home: &Home) {
    let started = Instant::now();
    while home.data.join("admin.sock").exists() {
        assert!(started.elapsed() < PATIENCE, "the daemon goes on: {}", log(home));
        std::thread::sleep(Duration::from_millis(20));
    }
    succeed(&["down", text(&home.data)]);
    let said = log(home);
    assert!(said.trim_end().ends_with("was unmounted: ending"), "it ended without a complaint: {said}");
    home.check();
}

fn at(home: &Home, name: &str) -> PathBuf {
    home.scratch.directory(name)
}

#[test]
fn what_is_mounted_unmounted_and_mounted_again_is_there() {
    let (_helper, home) = (Helper::install(), Home::new("fstab"));
    let (data, point) = (brick(&home, &["home"]), text(&home.mount).to_string());
    let options = options(&home, "volume=home,memory-max=512M,nofail,noauto,_netdev,x-systemd.automount");
    mounted(&["-t", "sinter", &data, &point, "-o", &options]);
    // It answers now; mount(8) has returned, and nothing of it holds a terminal.
    std::fs::write(home.mount.join("file"), "kept").expect("the mount is writable");
    let status: serde_json::Value = serde_json::from_str(&succeed(&["status", &data, "--json"])).expect("JSON");
    assert_eq!((&status["memory_max_bytes"], &status["mounts"][0]["volume"]), (&(512 << 20).into(), &"home".into()));
    let pid = status["pid"].as_u64().expect("a number").to_string();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let session = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(3)).expect("the session");
    assert_eq!(session, pid, "it has a session of its own");
    system("umount", &[&point]);
    // At once: the daemon may still be ending.
    mounted(&["-t", "sinter", &data, &point, "-o", &options]);
    assert_eq!(std::fs::read(home.mount.join("file")).expect("it is there"), b"kept");
    system("umount", &[&point]);
    ended_cleanly(&home);
    assert!(!log(&home).contains("replayed"), "it was closed cleanly: {}", log(&home));
}

#[test]
fn a_table_mounts_bricks_and_volumes_and_can_be_repeated() {
    let _helper = Helper::install();
    let (one, two) = (Home::new("fstab-one"), Home::new("fstab-two"));
    let bricks = [brick(&one, &["a", "b"]), brick(&two, &["a"])];
    let points = [at(&one, "a"), at(&one, "b"), at(&two, "a")];
    let line = |brick: &str, point: &Path, home: &Home, more: &str| {
        format!("{brick} {} sinter {} 0 0\n", text(point), options(home, more))
    };
    let table = one.scratch.join("fstab");
    let lines = [
        line(&bricks[0], &points[0], &one, "volume=a,nofail"),
        line(&bricks[0], &points[1], &one, "volume=b,nosuid,noexec,ro"),
        line(&bricks[1], &points[2], &two, "volume=a"),
    ];
    std::fs::write(&table, lines.concat()).expect("writable");
    // The second time all is mounted already, which is no failure.
    for _ in 0..2 {
        mounted(&["-a", "-T", text(&table)]);
        assert_eq!(mounts_below(one.scratch.path()).len() + mounts_below(two.scratch.path()).len(), 3);
    }
    std::fs::write(points[0].join("file"), "first").expect("the mount is writable");
    std::fs::write(points[2].join("file"), "second").expect("the mount is writable");
    let refused = std::fs::write(points[1].join("file"), "never").expect_err("read-only");
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    let flags = std::fs::read_to_string("/proc/self/mounts").expect("/proc is mounted");
    let entry = flags.lines().find(|line| line.contains(text(&points[1]))).expect("it is mounted");
    assert!(["ro", "nosuid", "noexec"].iter().all(|flag| entry.contains(flag)), "{entry}");
    // One volume's end is not that of another one of the same brick.
    system("umount", &[text(&points[0])]);
    assert!(std::fs::metadata(&points[1]).is_ok());
    succeed(&["status", &bricks[0]]);
    mounted(&["-a", "-T", text(&table)]);
    assert_eq!(std::fs::read(points[0].join("file")).expect("it is there"), b"first");
    points.iter().for_each(|point| system("umount", &[text(point)]));
    ended_cleanly(&one);
    ended_cleanly(&two);
}

#[test]
fn lines_mounted_at_the_same_moment_share_one_daemon() {
    let (_helper, home) = (Helper::install(), Home::new("fstab-race"));
    let names = ["a", "b", "c", "d"];
    let data = brick(&home, &names);
    let points = names.map(|name| at(&home, name));
    let options = names.map(|name| options(&home, &format!("volume={name}")));
    std::thread::scope(|scope| {
        for (point, options) in points.iter().zip(&options) {
            let data = &data;
            scope.spawn(move || mounted(&["-t", "sinter", data, text(point), "-o", options]));
        }
    });
    assert_eq!(mounts_below(home.scratch.path()).len(), 4);
    succeed(&["down", &data]);
    assert_eq!(mounts_below(home.scratch.path()).len(), 0);
    home.check();
}

#[test]
fn wrong_lines_are_refused_and_leave_nothing_behind() {
    let (_helper, home) = (Helper::install(), Home::new("fstab-wrong"));
    let (data, point) = (brick(&home, &["a"]), text(&home.mount).to_string());
    let mounted_with = |options: &str| ["-t", "sinter", &data, &point, "-o", options].map(str::to_string);
    let wrong = [
        ("fast", 1, "option \"fast\": unknown; allowed: volume=NAME"),
        ("volumes=a", 1, "allowed: volume=NAME"),
        ("memory-max=1", 1, "256M to 1T"),
        ("size=4G", 1, "sinter format"),
        ("volume=absent", 32, "no volume of this name"),
        ("volume=a,device=/dev/null", 32, "the daemon did not start"),
    ];
    for (more, code, part) in wrong {
        let arguments = mounted_with(&options(&home, more));
        refused(&arguments.each_ref().map(String::as_str), code, &["mount.sinter: ", part]);
        assert!(mounts_below(&home.mount).is_empty());
        // No daemon stays that nobody wants.
        succeed(&["down", &data]);
    }
    let absent = options(&home, "volume=a");
    refused(&["-t", "sinter", &data, &format!("{point}/absent"), "-o", &absent], 32, &["mount"]);
    succeed(&["down", &data]);
    // A missing file system below a brick's directory must not make a brick.
    let empty = at(&home, "empty");
    refused(&["-t", "sinter", text(&empty), &point, "-o", &absent], 32, &["sinter format"]);
    assert!(std::fs::read_dir(&empty).expect("it is there").all(|entry| entry.expect("listed").file_name() == "lock"));
    fail(&["status", text(&empty)], 1, &["no daemon"]);
    let scratch = Scratch::new("fstab-absent");
    refused(&["-t", "sinter", text(&scratch.join("no")), &point, "-o", &absent], 32, &["no brick"]);
    home.check();
}

/// systemd mounts a line with `_netdev` once the network is there, and unmounts it before it goes.
#[test]
fn a_line_for_a_servers_volume_is_mounted_with_the_network() {
    let (_helper, home) = (Helper::install(), Home::new("fstab-network"));
    let server = home.serve(&[]);
    let (place, point) = (home.place(), text(&home.mount).to_string());
    let options = options(&home, &format!("_netdev,nofail,soft=60,directory={}", text(&home.membership())));
    let table = home.scratch.join("table");
    std::fs::write(&table, format!("{place} {point} sinter {options} 0 0\n")).expect("writable");
    let units = home.scratch.directory("units");
    let generator = Command::new("/usr/lib/systemd/system-generators/systemd-fstab-generator")
        .env("SYSTEMD_FSTAB", &table)
        .args([&units, &units, &units])
        .output();
    match generator {
        Ok(_) => {
            let wants = std::fs::read_dir(units.join("remote-fs.target.wants")).expect("a unit that needs the network");
            assert_eq!(wants.count(), 1);
        }
        Err(error) => eprintln!("skipped: no systemd: {error}"),
    }
    for round in 0..2 {
        for _ in 0..2 {
            // The second time there is nothing to do.
            mounted(&["-a", "-T", text(&table)]);
            assert_eq!(mounts_below(&home.mount), [point.as_str()]);
        }
        std::fs::write(home.mount.join(round.to_string()), "kept").expect("the mount is writable");
        assert_eq!(std::fs::read_to_string(home.mount.join("0")).expect("it is there"), "kept");
        system("umount", &[&point]);
    }
    let (name, _) = place.split_once('/').expect("a name and a volume");
    let started = Instant::now();
    while Path::new(STATES).join(name).exists() {
        assert!(started.elapsed() < PATIENCE, "the daemon goes on: {}", log(&home));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(log(&home).trim_end().ends_with("was unmounted: ending"), "{}", log(&home));
    server.terminate();
    home.check();
}

#[test]
fn a_log_that_was_rotated_is_opened_anew_and_no_link_is_followed() {
    let (_helper, home) = (Helper::install(), Home::new("rotated"));
    let (data, point) = (brick(&home, &["default"]), text(&home.mount).to_string());
    let victim = home.scratch.join("victim");
    std::fs::write(&victim, "precious").expect("writable");
    std::os::unix::fs::symlink(&victim, home.scratch.join("log")).expect("writable");
    refused(&["-t", "sinter", &data, &point, "-o", &options(&home, "noauto")], 32, &["log", "link"]);
    assert_eq!(std::fs::read_to_string(&victim).expect("there"), "precious");
    std::fs::remove_file(home.scratch.join("log")).expect("the link");
    mounted(&["-t", "sinter", &data, &point, "-o", &options(&home, "noauto")]);
    std::fs::rename(home.scratch.join("log"), home.scratch.join("log.1")).expect("writable");
    // The line of the package's file for logrotate, for this test's daemon alone.
    let rule =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/logrotate")).expect("it is there");
    let line = rule.lines().find(|line| line.trim_start().starts_with("pkill")).expect("it signals");
    let line = line.replace("serve .*", &format!("serve {data} .*"));
    let line = line.replace("mount --foreground", &format!("mount --foreground .* {} ", home.place()));
    let rotated = || {
        system("sh", &["-c", &line]);
        let began = Instant::now();
        while !home.scratch.join("log").exists() {
            assert!(began.elapsed() < PATIENCE, "the log is not opened anew");
            std::thread::sleep(Duration::from_millis(20));
        }
        std::fs::write(home.mount.join("file"), "here").expect("it goes on");
    };
    rotated();
    system("umount", &[&point]);
    ended_cleanly(&home);
    assert!(log(&home).contains("opened anew"), "{}", log(&home));
    // That of a server's volume is another command.
    let server = home.serve(&[]);
    let directory = format!("directory={}", text(&home.membership()));
    mounted(&["-t", "sinter", &home.place(), &point, "-o", &options(&home, &directory)]);
    std::fs::rename(home.scratch.join("log"), home.scratch.join("log.2")).expect("writable");
    rotated();
    succeed(&["down", &home.place()]);
    server.terminate();
}

/// The flags that the mount table shows.
fn flags(point: &Path) -> String {
    let table = std::fs::read_to_string("/proc/self/mounts").expect("/proc is mounted");
    let mut lines = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    lines.find(|fields| fields[1] == text(point)).expect("it is mounted")[3].to_string()
}

#[test]
fn a_mount_can_be_changed() {
    let (_helper, home) = (Helper::install(), Home::new("fstab-remount"));
    let (data, point) = (brick(&home, &["a"]), text(&home.mount).to_string());
    mounted(&["-t", "sinter", &data, &point, "-o", &options(&home, "volume=a,strictatime,lazytime")]);
    let file = home.mount.join("file");
    std::fs::write(&file, "1").expect("the mount is writable");
    let open = std::fs::File::options().write(true).open(&file).expect("the mount is writable");
    refused(&["-o", "remount,ro", &point], 32, &["can't remount"]);
    drop(open);
    // The kernel tells a moment later that it was closed.
    let started = Instant::now();
    while !mount(&["-o", "remount,ro", &point]).status.success() {
        assert!(started.elapsed() < PATIENCE, "nobody writes any more");
    }
    assert!(flags(&home.mount).starts_with("ro,"));
    let refused = std::fs::write(&file, "2").expect_err("read-only");
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    mounted(&["-o", "remount,rw,nosuid", &point]);
    let changed = flags(&home.mount);
    assert!(["rw", "nosuid"].iter().all(|flag| changed.split(',').any(|it| it == *flag)), "{changed}");
    std::fs::write(&file, "3").expect("the mount is writable");
    system("umount", &[&point]);
    ended_cleanly(&home);
}

#[test]
fn a_synchronous_mount_keeps_what_it_was_told() {
    let (_helper, home) = (Helper::install(), Home::new("fstab-sync"));
    let (data, point) = (brick(&home, &["a"]), text(&home.mount).to_string());
    for (round, more) in ["volume=a,sync", "volume=a,dirsync"].into_iter().enumerate() {
        mounted(&["-t", "sinter", &data, &point, "-o", &options(&home, more)]);
        let status: serde_json::Value = serde_json::from_str(&succeed(&["status", &data, "--json"])).expect("JSON");
        for number in 0..50 {
            std::fs::create_dir(home.mount.join(format!("{round}-{number}"))).expect("the mount is writable");
        }
        if round == 0 {
            std::fs::write(home.mount.join("0-49/file"), "kept").expect("the mount is writable");
        }
        system("kill", &["-KILL", &status["pid"].to_string()]);
        system("umount", &["-l", &point]);
        mounted(&["-t", "sinter", &data, &point, "-o", &options(&home, "volume=a")]);
        for number in 0..50 {
            assert!(home.mount.join(format!("{round}-{number}")).is_dir(), "{more}: directory {number} was told");
        }
        assert_eq!(std::fs::read(home.mount.join("0-49/file")).expect("it was told"), b"kept");
        succeed(&["down", &data]);
    }
    home.check();
}

#[test]
fn a_mount_waits_for_a_daemon_that_is_ending() {
    let (_helper, home) = (Helper::install(), Home::new("fstab-ending"));
    let (data, point) = (brick(&home, &["a"]), text(&home.mount).to_string());
    mounted(&["-t", "sinter", &data, &point, "-o", &options(&home, "volume=a")]);
    let open = std::fs::File::create(home.mount.join("file")).expect("the mount is writable");
    crate::daemon::fail(&["down", &data, "--timeout", "1"], 3, &["has not ended"]);
    let elsewhere = at(&home, "elsewhere");
    std::thread::scope(|scope| {
        scope.spawn(|| mounted(&["-t", "sinter", &data, text(&elsewhere), "-o", &options(&home, "volume=a")]));
        std::thread::sleep(Duration::from_secs(1));
        drop(open);
    });
    assert!(elsewhere.join("file").exists() && !log(&home).contains("replayed"));
    system("umount", &[text(&elsewhere)]);
    ended_cleanly(&home);
}
