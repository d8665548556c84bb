//! The ways in which people who run servers start and end a daemon: config files, the service manager, `sinter down`;
//! and what it keeps from others while it runs.

use crate::daemon::{Daemon, Home, Scratch, fail, mounts_below, refused, run, sinter, succeed, system, text};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
/// "nobody" on Debian: a user who has nothing to do with the brick.
const NOBODY: u32 = 65534;
/// CAP_DAC_OVERRIDE, CAP_SYS_ADMIN, CAP_SYS_NICE, CAP_SYS_RESOURCE.
const KEPT: u64 = 1 << 1 | 1 << 21 | 1 << 23 | 1 << 24;

fn config(home: &Home, more: &str) -> PathBuf {
    let path = home.scratch.join("brick.toml");
    let content = format!("data = {:?}\nmount = {:?}\nsize = \"4G\"\n{more}", text(&home.data), text(&home.mount));
    std::fs::write(&path, content).expect("the scratch directory is writable");
    path
}

#[test]
fn a_config_file_is_enough_and_the_command_line_wins() {
    let home = Home::new("config");
    let file = config(&home, "volume = \"one\"\nmemory-max = \"512M\"\ngroups = 8\n");
    let shown = succeed(&["config", "check", text(&file)]);
    assert!(shown.ends_with("good\n") && shown.contains("one"), "{shown}");
    let start = |more: &[&str]| {
        let mut command = sinter();
        command.arg("up").arg("--config").arg(&file).args(more);
        Daemon::start(command)
    };
    let status = || -> serde_json::Value {
        serde_json::from_str(&succeed(&["status", text(&home.data), "--json"])).expect("JSON")
    };
    let daemon = start(&[]);
    let told = status();
    assert_eq!((&told["mounts"][0]["volume"], &told["groups"]), (&"one".into(), &8.into()));
    assert_eq!(told["memory_max_bytes"], 512 << 20);
    daemon.terminate();
    let daemon = start(&["--volume", "two", "--memory-max", "1G"]);
    let told = status();
    assert_eq!((&told["mounts"][0]["volume"], &told["memory_max_bytes"]), (&"two".into(), &(1u64 << 30).into()));
    daemon.terminate();
}

#[test]
fn a_wrong_config_file_stops_everything_before_it_starts() {
    let home = Home::new("wrong-config");
    let file = config(&home, "sise = 1\n");
    let parts = [":4: unknown key `sise`", "allowed: data, mount", "next step: correct line 4"];
    fail(&["up", "--config", text(&file)], 2, &parts);
    fail(&["config", "check", text(&file)], 2, &parts);
    assert!(!home.data.exists(), "nothing was touched");
    std::fs::write(&file, "volume = \"a\"\n").expect("writable");
    fail(&["config", "check", text(&file)], 1, &["does not say `data`", "data = "]);
    fail(&["up", "--config", text(&file)], 2, &["does not say `data`"]);
    fail(&["config", "check", text(&home.scratch.join("absent"))], 2, &["can't read"]);
}

#[test]
fn the_example_of_a_config_file_is_good() {
    let example = Path::new("packaging/example.toml");
    succeed(&["config", "check", text(example)]);
    // So is each line that is commented out, and together they name every key.
    let content = std::fs::read_to_string(example).expect("it is there");
    let lines = content.lines().map(|line| match line.strip_prefix('#') {
        Some(rest) if rest.split_once(" = ").is_some_and(|(key, _)| !key.contains(' ')) => rest,
        _ => line,
    });
    let scratch = Scratch::new("example");
    let all = scratch.join("all.toml");
    std::fs::write(&all, lines.collect::<Vec<_>>().join("\n")).expect("writable");
    let shown = succeed(&["config", "check", text(&all)]);
    assert!(!shown.contains("not set"), "{shown}");
}

/// A service manager's stand-in, which gets one datagram after the other.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Manager {
    fn new(scratch: &Scratch) -> Manager {
        let path = scratch.join("notify");
        let socket = UnixDatagram::bind(&path).expect("a free name");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Manager { socket, path }
    }
    fn hear(&self) -> String {
        let mut bytes = [0; 4096];
        let count = self.socket.recv(&mut bytes).expect("the daemon tells something");
        String::from_utf8(bytes[..count].to_vec()).expect("text")
    }
}

#[test]
fn the_service_manager_hears_that_the_volume_is_served_and_lives() {
    let home = Home::new("notify");
    let manager = Manager::new(&home.scratch);
    let mut command = home.command();
    command.env("NOTIFY_SOCKET", &manager.path).env("WATCHDOG_USEC", "2000000");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the binary runs");
    // On a busy machine the start may take long enough to be told of.
    let first = loop {
        let heard = manager.hear();
        if !heard.starts_with("STATUS=starting: ") {
            break heard;
        }
    };
    // At this very moment the mount answers.
    let served = std::fs::write(home.mount.join("file"), "here").is_ok() && !mounts_below(&home.mount).is_empty();
    let beats: Vec<String> = (0..2).map(|_| manager.hear()).collect();
    system("kill", &["-TERM", &child.id().to_string()]);
    let status = child.wait().expect("it can be waited for");
    assert!(first.starts_with("READY=1\nSTATUS=volume default at "), "{first}");
    assert!(served, "READY=1 comes once the mount serves");
    assert_eq!(beats, ["WATCHDOG=1", "WATCHDOG=1"]);
    let last = loop {
        let heard = manager.hear();
        if heard != "WATCHDOG=1" {
            break heard;
        }
    };
    assert!(last.starts_with("STOPPING=1\n"), "{last}");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn the_service_manager_never_hears_that_a_failed_start_is_ready() {
    let home = Home::new("notify-failed");
    let manager = Manager::new(&home.scratch);
    let mut command = home.command();
    // No block device: it fails when everything else has been looked at.
    command.env("NOTIFY_SOCKET", &manager.path).args(["--device", "/dev/null"]);
    let output = command.stdin(Stdio::null()).output().expect("the binary runs");
    assert_ne!(output.status.code(), Some(0));
    manager.socket.set_nonblocking(true).expect("a socket");
    assert!(manager.socket.recv(&mut [0; 64]).is_err(), "nothing was said");
}

/// The lines of one of the package's units that say something.
fn unit(name: &str) -> Vec<String> {
    let content = std::fs::read_to_string(Path::new("packaging").join(name)).expect("it is there");
    let lines = content.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_string).collect()
}

const UNIT: &str = "sinter@.service";
const UNIT_THAT_LISTENS: &str = "sinter-listen@.service";

#[test]
fn the_units_are_ones_that_systemd_accepts() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("skipped: no systemd-analyze");
        return;
    }
    let scratch = Scratch::new("unit");
    for name in [UNIT, UNIT_THAT_LISTENS] {
        let content = unit(name).join("\n");
        assert!(content.contains("ExecStart=/usr/bin/sinter up"));
        let here = scratch.join(name);
        let verify = |content: &str| {
            std::fs::write(&here, content).expect("writable");
            let mut command = Command::new("systemd-analyze");
            let output = command.args(["verify", "--man=no", text(&here)]).output().expect("it runs");
            (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let content = content.replace("/usr/bin/sinter", env!("CARGO_BIN_EXE_sinter"));
        let (good, said) = verify(&content);
        assert!(good && said.is_empty(), "{said}");
        let (_, said) = verify(&content.replace("WatchdogSec", "WatchdogSecs"));
        assert!(said.contains("WatchdogSecs"), "the test can fail: {said}");
        std::fs::write(&here, &content).expect("the other one is read with it");
        // A mount namespace of its own would hide the volume from the host.
        for line in content.lines() {
            let key = line.split('=').next().unwrap_or_default();
            let hides =
                ["ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateMounts", "ReadWritePaths"];
            assert!(!hides.contains(&key), "{line}");
        }
    }
}

#[test]
fn only_the_unit_of_a_brick_that_listens_has_the_network() {
    let (own, listens) = (unit(UNIT), unit(UNIT_THAT_LISTENS));
    let only = |these: &[String], those: &[String]| -> Vec<String> {
        let only = these.iter().filter(|line| !those.contains(line) && !line.starts_with("Description="));
        only.cloned().collect()
    };
    assert_eq!(only(&own, &listens), ["After=local-fs.target", "RestrictAddressFamilies=AF_UNIX", "IPAddressDeny=any"]);
    let network = [
        "Wants=network-online.target",
        "After=local-fs.target network-online.target nss-lookup.target",
        "Conflicts=sinter@%i.service",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
    ];
    assert_eq!(only(&listens, &own), network);
    let console = ["[Service]", "RestrictAddressFamilies=AF_INET AF_INET6", "IPAddressAllow=localhost"];
    assert_eq!(unit("console.conf"), console);
}

/// Runs a program that may make sockets of this machine's files alone: what `RestrictAddressFamilies=AF_UNIX` does.
const WITHOUT_NETWORK: &str = "import ctypes, os, platform, struct, sys\n\
    socket = {'x86_64': 41, 'aarch64': 198}[platform.machine()]\n\
    rules = [(0x20, 0, 0, 0), (0x15, 0, 3, socket), (0x20, 0, 0, 16), (0x15, 1, 0, 1), (6, 0, 0, 0x50061), (6, 0, 0, 0x7fff0000)]\n\
    code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *rule) for rule in rules))\n\
    program = struct.pack('HxxxxxxQ', len(rules), ctypes.addressof(code))\n\
    libc = ctypes.CDLL(None, use_errno=True)\n\
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0, ctypes.get_errno()\n\
    os.execv(sys.argv[1], sys.argv[1:])\n";

#[test]
fn a_daemon_without_network_serves_its_mount_and_says_what_needs_more() {
    let home = Home::new("no-network");
    let restricted = |options: &[&str]| {
        let up = home.command();
        let mut command = Command::new("python3");
        command.args(["-c", WITHOUT_NETWORK]).arg(up.get_program()).args(up.get_args()).args(options);
        command
    };
    for option in [["--listen", "127.0.0.1:0"], ["--console", "127.0.0.1:0"]] {
        let output = restricted(&option).stdin(Stdio::null()).output().expect("python is installed");
        refused(&output, 2, &["can't listen", "sinter-listen@NAME", "console.conf"], option[0]);
    }
    let daemon = Daemon::start(restricted(&[]));
    std::fs::write(home.mount.join("file"), "kept").expect("the mount is writable");
    succeed(&["status", text(&home.data)]);
    daemon.terminate();
    home.check();
}

#[test]
fn down_ends_a_daemon_and_keeps_everything() {
    let home = Home::new("down");
    let data = text(&home.data);
    fail(&["down", data], 1, &["no brick"]);
    let daemon = home.up();
    std::fs::write(home.mount.join("file"), "kept").expect("the mount is writable");
    let told: serde_json::Value = serde_json::from_str(&succeed(&["down", data, "--json"])).expect("JSON");
    assert_eq!((&told["served"], &told["ended"]), (&true.into(), &true.into()));
    assert_eq!(told["pid"], daemon.pid());
    // It had ended when the command returned.
    assert!(mounts_below(&home.mount).is_empty() && !home.data.join("admin.sock").exists());
    let (status, errors) = daemon.wait();
    assert!(status.code() == Some(0) && errors.contains("asked to end"), "{errors}");
    home.check();
    assert!(succeed(&["down", data]).contains("no daemon serves"), "nothing to do is no failure");
    let daemon = home.up();
    assert_eq!(std::fs::read(home.mount.join("file")).expect("it is there"), b"kept");
    assert!(succeed(&["down", data]).contains("has ended after"));
    assert_eq!(daemon.wait().0.code(), Some(0));
}

#[test]
fn down_says_when_a_daemon_does_not_end() {
    let home = Home::new("down-late");
    let daemon = home.up();
    // An open file keeps the mount: the daemon is patient with its programs.
    let open = std::fs::File::create(home.mount.join("open")).expect("the mount is writable");
    fail_json(&["down", text(&home.data), "--timeout", "1", "--json"], 3);
    // It still tells what it waits for, and who asks again waits for the same end.
    assert!(succeed(&["status", text(&home.data)]).contains("for 1 open file (1 of process"));
    let told: serde_json::Value = serde_json::from_str(&succeed(&["down", text(&home.data), "--json"])).expect("JSON");
    assert_eq!((&told["served"], &told["ended"], &told["pid"]), (&true.into(), &true.into(), &daemon.pid().into()));
    assert_eq!(succeed(&["down", text(&home.data)]), format!("no daemon serves {}\n", text(&home.data)));
    drop(open);
    assert_eq!(daemon.wait().0.code(), Some(0));
    home.check();
}

#[test]
fn every_command_has_a_page_and_is_completed() {
    let scratch = Scratch::new("pages");
    succeed(&["man", text(scratch.path())]);
    let page =
        |name: &str| std::fs::read_to_string(scratch.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let help = succeed(&["--help"]);
    let listed = help.split("Commands:").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("a list");
    let commands: Vec<&str> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.contains(&"up") && commands.contains(&"down") && commands.len() > 10, "{commands:?}");
    let scripts = ["bash", "zsh", "fish"].map(|shell| succeed(&["completions", shell]));
    for command in &commands {
        assert!(page(&format!("sinter-{command}.1")).contains(".SH SYNOPSIS"), "{command}");
        assert!(scripts.iter().all(|script| script.contains(command)), "{command} is not completed");
    }
    assert!(page("sinter.1").contains("Exit codes") && page("sinter-config-check.1").contains("file"));
    let helper = page("mount.sinter.8");
    assert!(helper.contains(".TH mount.sinter 8") && helper.contains("memory\\-max=BYTES"), "{helper}");
}

/// A command that fails, and tells how as JSON.
fn fail_json(arguments: &[&str], code: i32) {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(told["ended"], false, "{told}");
}

/// Has other users reach a file below the temporary directory.
fn open_to_everyone(path: &Path) {
    for above in path.ancestors().take_while(|above| above.starts_with(std::env::temp_dir())) {
        if above != std::env::temp_dir() {
            std::fs::set_permissions(above, PermissionsExt::from_mode(0o755)).expect("our own");
        }
    }
}

#[test]
fn another_user_can_tell_the_daemon_nothing() {
    let home = Home::new("another-user");
    let program = home.scratch.join("sinter");
    std::fs::copy(env!("CARGO_BIN_EXE_sinter"), &program).expect("room for a copy");
    let daemon = home.up();
    let socket = home.data.join("admin.sock");
    let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&home.data), mode(&socket)), (0o700, 0o600));
    open_to_everyone(&program);
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments).stdin(Stdio::null()).uid(NOBODY).gid(NOBODY);
        command.output().expect("the copy runs")
    };
    let data = text(&home.data);
    // First the directory keeps them out, then the socket's mode, and in the end the daemon itself.
    refused(&as_nobody(&["status", data]), 1, &["ermission"], "a private directory");
    std::fs::set_permissions(&home.data, PermissionsExt::from_mode(0o755)).expect("our own");
    refused(&as_nobody(&["status", data]), 1, &["ermission"], "a private socket");
    std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o666)).expect("our own");
    for command in ["status", "down"] {
        refused(&as_nobody(&[command, data]), 1, &["only root and the daemon's own user"], command);
    }
    succeed(&["status", data]);
    daemon.terminate();
}

/// A hexadecimal field of /proc/PID/status.
fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name}"));
    u64::from_str_radix(line.trim(), 16).expect("a number")
}

#[test]
fn every_thread_of_a_daemon_has_dropped_what_it_does_not_need() {
    let home = Home::new("privileges");
    let daemon = home.up();
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).expect("it runs");
    // A container's root may have fewer to begin with, but more than are kept.
    let own = field(&std::fs::read_to_string("/proc/self/status").expect("we run"), "CapEff:");
    assert_ne!(own & !KEPT, 0, "these tests need root");
    let mut threads = 0;
    for task in tasks {
        let status = task.expect("listed").path().join("status");
        // A thread may have ended since it was listed.
        let Ok(status) = std::fs::read_to_string(status) else { continue };
        let field = |name: &str| field(&status, name);
        for name in ["CapEff:", "CapPrm:"] {
            assert_eq!(field(name) & !KEPT, 0, "{name}\n{status}");
        }
        assert_eq!(field("CapEff:"), own & KEPT, "root keeps what it needs\n{status}");
        assert_eq!((field("CapInh:"), field("CapBnd:") & !KEPT, field("NoNewPrivs:")), (0, 0, 1), "{status}");
        threads += 1;
    }
    assert!(threads > 2, "{threads} threads");
    // What it kept is enough for a second mount, in another user's directory, and for its end.
    let theirs = home.scratch.directory("theirs");
    let point = theirs.join("point");
    std::fs::create_dir(&point).expect("our own");
    std::os::unix::fs::chown(&theirs, Some(NOBODY), Some(NOBODY)).expect("root may");
    std::fs::set_permissions(&theirs, PermissionsExt::from_mode(0o700)).expect("root may");
    succeed(&["volume", "create", text(&home.data), "second"]);
    succeed(&["mount", text(&home.data), "second", text(&point)]);
    std::fs::write(point.join("file"), "here").expect("the mount is writable");
    daemon.terminate();
    assert!(mounts_below(home.scratch.path()).is_empty());
    home.check();
}

/// Ends a daemon whose socket, or whole directory, somebody removed.
fn ends_without(name: &str, remove: impl Fn(&Home), end: impl Fn(&Home, &Daemon)) -> std::process::ExitStatus {
    let home = Home::new(name);
    let daemon = home.up();
    std::fs::write(home.mount.join("file"), "here").expect("the mount is writable");
    remove(&home);
    let began = std::time::Instant::now();
    end(&home, &daemon);
    let (status, said) = daemon.wait();
    assert!(began.elapsed().as_secs() < 60, "{name}: {said}");
    assert!(mounts_below(home.scratch.path()).is_empty(), "{name}: {said}");
    status
}

#[test]
fn a_daemon_ends_although_its_socket_or_its_directory_is_gone() {
    let socket = |home: &Home| std::fs::remove_file(home.data.join("admin.sock")).expect("it is there");
    let term = |_: &Home, daemon: &Daemon| daemon.signal("TERM");
    let umount = |home: &Home, _: &Daemon| system("umount", &[text(&home.mount)]);
    let down = |home: &Home, _: &Daemon| drop(succeed(&["down", text(&home.data)]));
    assert!(ends_without("no-socket-term", socket, term).success());
    assert!(ends_without("no-socket-umount", socket, umount).success());
    assert!(ends_without("no-socket-down", socket, down).success());
    // Its last checkpoint has no directory to go to: it says so, and ends.
    let all = |home: &Home| std::fs::remove_dir_all(&home.data).expect("root may");
    ends_without("no-directory-term", all, term);
}

#[test]
fn a_stopped_daemon_is_waited_for_no_longer_than_told() {
    let home = Home::new("stopped");
    let daemon = home.up();
    daemon.signal("STOP");
    let began = std::time::Instant::now();
    fail(&["down", text(&home.data), "--timeout", "3"], 1, &["not answered for 3 s"]);
    assert!(began.elapsed().as_secs() < 6, "{:?}", began.elapsed());
    // Nobody takes its connections in: their queue fills, and who comes next is told too.
    let socket = home.data.join("admin.sock");
    let waiting: Vec<_> = (0..200).map_while(|_| connect_at_once(&socket)).collect();
    let began = std::time::Instant::now();
    fail(&["down", text(&home.data), "--timeout", "3"], 1, &["not answered for 3 s"]);
    assert!(began.elapsed().as_secs() < 6, "{:?}", began.elapsed());
    drop(waiting);
    daemon.signal("CONT");
    daemon.terminate();
}

/// A connection, if the queue has room for it.
fn connect_at_once(socket: &std::path::Path) -> Option<std::os::unix::net::UnixStream> {
    let (sender, connected) = std::sync::mpsc::sync_channel(1);
    let socket = socket.to_path_buf();
    std::thread::spawn(move || sender.send(std::os::unix::net::UnixStream::connect(socket)));
    connected.recv_timeout(std::time::Duration::from_millis(500)).ok().and_then(Result::ok)
}

#[test]
fn a_hangup_ends_no_daemon() {
    let home = Home::new("hangup");
    let daemon = home.up();
    daemon.signal("HUP");
    succeed(&["status", text(&home.data)]);
    std::fs::write(home.mount.join("file"), "here").expect("it goes on");
    assert!(daemon.terminate().contains("SIGHUP: there is no log file"));
}
