//! The kernel's account of a daemon's requests and disks, on a live mount: it agrees with the ledger, it names who else uses
//! the disk, and what can't be told is said.

mod daemon;

use daemon::{Daemon, Home, fail, run, sinter, succeed, system, text};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Number of each of the operations that are repeated.
const TIMES: u64 = 500;
/// Attempts to have a window open when the work begins.
const ATTEMPTS: usize = 5;

/// A window in which a daemon's tracepoints are on.
struct Window(Child);

impl Window {
    /// Asks for it, and waits until the daemon has opened its tracepoints.
    fn open(home: &Home, daemon: &Daemon, seconds: &str) -> Window {
        let mut command = sinter();
        command.args(["trace", text(&home.data), "--time", seconds, "--json"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
        let deadline = Instant::now() + Duration::from_secs(20);
        while !has_events(daemon.pid()) {
            assert!(Instant::now() < deadline, "the tracepoints are opened");
            std::thread::sleep(Duration::from_millis(1));
        }
        Window(child)
    }
    fn end(self) -> Output {
        self.0.wait_with_output().expect("it runs")
    }
    /// The window as the command tells it.
    fn told(self) -> serde_json::Value {
        let output = self.end();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

/// True if a process has events of perf.
fn has_events(pid: u32) -> bool {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
    let leads = |entry: std::io::Result<std::fs::DirEntry>| std::fs::read_link(entry.ok()?.path()).ok();
    open.filter_map(leads).any(|target| target.as_os_str() == "anon_inode:[perf_event]")
}

/// The kernel's CLOCK_MONOTONIC.
fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) }, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Does some work within a window; what the window tells.
fn around(home: &Home, daemon: &Daemon, seconds: &str, work: impl Fn()) -> serde_json::Value {
    for _ in 0..ATTEMPTS {
        let window = Window::open(home, daemon, seconds);
        let began_ns = now_ns();
        work();
        let ended_ns = now_ns();
        let told = window.told();
        let number = |name: &str| told[name].as_u64().expect("a number");
        // The tracepoints were there, but not yet on; or a busy machine took too long for the work.
        if number("began_ns") <= began_ns && ended_ns <= number("began_ns") + number("lasted_ns") {
            return told;
        }
    }
    panic!("the work never fell into the window");
}

fn direct(path: &Path, more: i32) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).custom_flags(libc::O_DIRECT | more).open(path).expect("it is writable")
}

fn reads_and_writes(mount: &Path) {
    let mut buffer = vec![7u8; 8192];
    let start = buffer.as_ptr().align_offset(4096);
    let block = &mut buffer[start..start + 4096];
    let (plain, durable) = (direct(&mount.join("plain"), 0), direct(&mount.join("durable"), libc::O_DSYNC));
    for at in 0..TIMES {
        plain.write_all_at(block, at * 4096).expect("there is room");
        durable.write_all_at(block, at % 8 * 4096).expect("there is room");
    }
    (0..TIMES).for_each(|at| plain.read_exact_at(block, at * 4096).expect("just written"));
}

/// Some of everything that programs ask of a file system.
fn everything(mount: &Path) {
    let at = |name: &str| mount.join(name);
    std::fs::create_dir(at("dir")).expect("new");
    let file = File::create(at("file")).expect("new");
    file.write_all_at(b"buffered", 0).expect("there is room");
    file.set_len(100_000).expect("it may be longer");
    system("fallocate", &["-l", "1M", text(&at("file"))]);
    file.sync_all().expect("durable");
    // SAFETY: a descriptor of ours.
    assert_eq!(unsafe { libc::lseek(std::os::fd::AsRawFd::as_raw_fd(&file), 0, libc::SEEK_HOLE) }, 4096);
    drop(file);
    symlink("file", at("link")).expect("new");
    std::fs::read_link(at("link")).expect("just made");
    std::fs::hard_link(at("file"), at("other")).expect("new");
    std::fs::rename(at("other"), at("dir/other")).expect("free");
    system("mkfifo", &[text(&at("pipe"))]);
    std::fs::set_permissions(at("file"), PermissionsExt::from_mode(0o600)).expect("ours");
    system("setfattr", &["-n", "user.x", "-v", "1", text(&at("file"))]);
    system("getfattr", &["-d", text(&at("file"))]);
    system("setfattr", &["-x", "user.x", text(&at("file"))]);
    system("df", &[text(mount)]);
    drop(OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(mount).expect("without a name"));
    assert_eq!(std::fs::read_dir(mount).expect("readable").count(), 6);
    std::fs::remove_file(at("dir/other")).expect("there");
    std::fs::remove_dir(at("dir")).expect("empty");
    ["file", "link", "pipe"].iter().for_each(|name| std::fs::remove_file(at(name)).expect("there"));
}

fn operation<'a>(told: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let operations = told["requests"]["operations"].as_array().expect("a list");
    operations.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name}: {told:#}"))
}

#[test]
fn kernel_and_ledger_count_the_same_requests_and_the_kernel_sees_them_for_longer() {
    let home = Home::new("trace-agree");
    let daemon = home.up();
    let told = around(&home, &daemon, "3", || {
        reads_and_writes(&home.mount);
        everything(&home.mount);
    });
    assert_eq!((&told["requests"]["absent"], &told["requests"]["one_in"]), (&serde_json::Value::Null, &1.into()));
    let operations = told["requests"]["operations"].as_array().expect("a list");
    for one in operations.iter().filter(|one| !one["ledger"].is_null()) {
        assert_eq!(one["kernel"]["count"], one["ledger"]["count"], "{one:#}");
    }
    let known = [
        "lookup",
        "getattr",
        "setattr",
        "readlink",
        "create",
        "tmpfile",
        "mkdir",
        "symlink",
        "link",
        "unlink",
        "rmdir",
        "rename",
        "release",
        "readdir",
        "read",
        "write",
        "fsync",
        "statfs",
        "fallocate",
        "lseek",
        "setxattr",
        "getxattr",
        "removexattr",
    ];
    for name in known {
        assert!(operation(&told, name)["ledger"]["count"].as_u64() > Some(0), "{name}: {told:#}");
    }
    let count = |name| operation(&told, name)["kernel"]["count"].as_u64().expect("a number");
    assert_eq!((count("read"), count("write")), (TIMES, 2 * TIMES + 1));
    for name in ["read", "write"] {
        let one = operation(&told, name);
        let mean = |of: &str| one[of]["mean_ns"].as_u64().expect("a number");
        assert!(mean("kernel") >= mean("ledger") && mean("ledger") > 0, "{one:#}");
        assert!(one["transport_ns"].as_i64() >= Some(0), "{one:#}");
        assert!(one["kernel"]["p99_ns"].as_u64() >= one["kernel"]["p50_ns"].as_u64(), "{one:#}");
    }
    let uncounted = &told["requests"]["uncounted"];
    let all = ["begun_before", "not_ended", "lost"].map(|name| uncounted[name].as_u64());
    assert_eq!(all, [Some(0); 3], "{told:#}");
    daemon.terminate();
}

#[test]
fn there_is_one_window_at_a_time_and_an_end_cuts_it_short() {
    let home = Home::new("trace-alone");
    let data = text(&home.data);
    fail(&["trace", data], 1, &["no brick"]);
    let daemon = home.up();
    let window = Window::open(&home, &daemon, "5");
    fail(&["trace", data, "--time", "0.01"], 3, &["another window", "wait for its end"]);
    let began = Instant::now();
    succeed(&["down", data]);
    let output = window.end();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && errors.contains("cut short"), "{errors}");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    drop(daemon.wait());
    fail(&["trace", data], 1, &["no daemon serves"]);
}

#[test]
fn windows_have_bounds_and_tables() {
    let home = Home::new("trace-table");
    let data = text(&home.data);
    let daemon = home.up();
    for seconds in ["0", "5.1", "-1", "soon", "NaN"] {
        let refused = run(&["trace", data, &format!("--time={seconds}")]);
        let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && errors.contains("0.001 to 5"), "{seconds}: {errors}");
    }
    let table = succeed(&["trace", data, "--time", "0.05"]);
    assert!(table.starts_with("Requests, 5") && table.contains("\nDevices below the brick, "), "{table}");
    assert!(table.contains("ledger mean  transport") && table.contains("issued by"), "{table}");
    assert!(!has_events(daemon.pid()), "nothing is left");
    daemon.terminate();
}

/// Root of a user namespace may mount, and is told nothing by the kernel's tracepoints.
#[test]
fn a_daemon_without_the_hosts_rights_says_what_it_needs() {
    let home = Home::new("trace-refused");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", env!("CARGO_BIN_EXE_sinter"), "up"]);
    command.arg(&home.data).arg(&home.mount).args(["--size", "4G"]);
    let daemon = Daemon::start(command);
    fail(&["trace", text(&home.data), "--time", "0.1"], 4, &["tracepoints", "CAP_SYS_ADMIN"]);
    daemon.terminate();
}
