//! A real daemon on a real mount, for end-to-end tests. They need root and /dev/fuse.

#![allow(dead_code)] // Each test program uses its own part.

pub mod machine;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// Longest time for anything on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(120);

/// The directory below which each mount of a server's volume has one.
pub const STATES: &str = "/run/sinter";

/// Looks again and again until there is what is looked for, and gives it. `look` says what there is instead, which is told if it takes longer
/// than `patience`.
pub fn eventually<T>(patience: Duration, mut look: impl FnMut() -> Result<T, String>) -> T {
    let began = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(told) => assert!(began.elapsed() < patience, "not within {} s: {told}", patience.as_secs()),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A directory of files with keys, made and locked.
pub fn held(path: &Path) -> control::Held {
    std::fs::create_dir(path).expect("writable");
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("its owner");
    let directory = runtime::real::Directory::open(path).expect("just made");
    control::Held::lock(directory, |from, to| std::fs::rename(from, to)).expect("nobody else")
}

/// A number that whoever runs the test sets in the environment, or else the usual one.
pub fn setting(name: &str, usual: u64) -> u64 {
    let number = |text: String| text.parse().unwrap_or_else(|_| panic!("{name} is a number"));
    std::env::var(name).map_or(usual, number)
}

/// The binary under test.
pub fn sinter() -> Command {
    Command::new(env!("CARGO_BIN_EXE_sinter"))
}

/// Runs a command of the binary to its end.
pub fn run(arguments: &[&str]) -> Output {
    sinter().args(arguments).stdin(Stdio::null()).output().expect("the binary runs")
}

/// Runs a command that must succeed; its standard output.
pub fn succeed(arguments: &[&str]) -> String {
    let output = run(arguments);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {:?}: {errors}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// Runs a command that must fail with this exit code and one line that holds all of `parts`.
pub fn fail(arguments: &[&str], code: i32, parts: &[&str]) -> String {
    let output = run(arguments);
    refused(&output, code, parts, &format!("{arguments:?}"))
}

/// Checks that a command failed as it should; its last line of standard error.
pub fn refused(output: &Output, code: i32, parts: &[&str], what: &str) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{what}: {errors}");
    let last = errors.lines().last().unwrap_or_default().to_string();
    for part in parts {
        assert!(last.contains(part), "{what}: {part:?} is not in {last:?}");
    }
    assert!(String::from_utf8_lossy(&output.stdout).is_empty(), "{what}: nothing is ready");
    last
}

/// Runs a line of the shell on a terminal on which somebody types once `prompt` is seen; its exit code and all that is
/// seen there. What is typed earlier would be echoed into the middle of the prompt.
pub fn on_terminal(line: &str, prompt: &str, typed: &str) -> (Option<i32>, String) {
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", line, "/dev/null"]);
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("util-linux is installed");
    let mut terminal = child.stdin.take().expect("it was asked for");
    let mut screen = child.stdout.take().expect("it was asked for");
    let (mut seen, mut part) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&seen).contains(prompt) {
        match screen.read(&mut part).expect("a terminal is read") {
            0 => break,
            bytes => seen.extend_from_slice(&part[..bytes]),
        }
    }
    // A program that ended before its prompt takes nothing.
    drop(terminal.write_all(typed.as_bytes()));
    screen.read_to_end(&mut seen).expect("a terminal is read");
    let status = child.wait().expect("it ends");
    drop(terminal);
    (status.code(), String::from_utf8_lossy(&seen).into_owned())
}

/// Runs a program of the system that must succeed.
pub fn system(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().expect("the program is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
}

/// A directory for one test; mounts below it and the directory itself go when it is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// An empty directory, on a file system that knows direct I/O.
    pub fn new(name: &str) -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sinter-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("the temporary directory is writable");
        Scratch(path)
    }
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
    /// The path of something in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
    /// A directory in it.
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        std::fs::create_dir(&path).expect("the scratch directory is writable");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for _ in 0..10 {
            let below = mounts_below(&self.0);
            for mount in below.iter().rev() {
                drop(Command::new("umount").arg("-l").arg(mount).output());
            }
            if below.is_empty() {
                break;
            }
        }
        drop(std::fs::remove_dir_all(&self.0));
        // A client that was killed has left the directory of its mount.
        let name = self.0.file_name().and_then(|name| name.to_str()).expect("it has a name");
        for place in [name.to_string(), format!("other-{name}")] {
            drop(std::fs::remove_dir_all(Path::new(STATES).join(place)));
        }
    }
}

/// Mount points below a path. The tests' paths hold nothing that the mount table escapes.
pub fn mounts_below(path: &Path) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mounts").expect("/proc is mounted");
    let points = table.lines().filter_map(|line| line.split(' ').nth(1));
    points.filter(|point| Path::new(point).starts_with(path)).map(str::to_string).collect()
}

/// A path as text.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("the tests' paths are text")
}

/// A brick's directory and a mount point, in a scratch directory of their own.
pub struct Home {
    /// Holds both.
    pub scratch: Scratch,
    /// The brick.
    pub data: PathBuf,
    /// Its mount point.
    pub mount: PathBuf,
}

impl Home {
    /// Neither formatted nor mounted.
    pub fn new(name: &str) -> Home {
        let scratch = Scratch::new(name);
        let (data, mount) = (scratch.join("data"), scratch.directory("mount"));
        Home { scratch, data, mount }
    }
    /// `sinter up` on both, with a brick of the smallest size; over the transport that `SINTER_TRANSPORT` names, if it does.
    pub fn command(&self) -> Command {
        let mut command = sinter();
        command.arg("up").arg(&self.data).arg(&self.mount).args(["--size", "4G"]);
        if let Some(transport) = std::env::var_os("SINTER_TRANSPORT") {
            command.arg("--transport").arg(transport);
        }
        command
    }
    /// A running daemon. With `SINTER_VIA=network`, one that serves the brick, and a client's that mounts it.
    pub fn up(&self) -> Daemon {
        self.up_with(&[])
    }
    /// The same, with more variables in the environment of the brick's daemon.
    pub fn up_with(&self, environment: &[(&str, &str)]) -> Daemon {
        if std::env::var_os("SINTER_VIA").is_some_and(|via| via == "network") {
            let server = self.serve(environment);
            let mut client = Daemon::start(self.client());
            client.server = Some(Box::new(server));
            return client;
        }
        let mut command = self.command();
        command.envs(environment.iter().copied());
        Daemon::start(command)
    }
    /// A daemon that serves the brick to others, at the same port each time. Makes the brick and its volume if need be.
    pub fn serve(&self, environment: &[(&str, &str)]) -> Daemon {
        let is_new = !self.data.exists();
        if is_new {
            succeed(&["format", text(&self.data), "--size", "4G"]);
            succeed(&["volume", "create", text(&self.data), "default"]);
        }
        let mut command = sinter();
        command.arg("serve").arg(&self.data).args(["--listen", &self.address()]);
        command.envs(environment.iter().copied());
        Daemon::start(command)
    }
    /// The address of its server.
    pub fn address(&self) -> String {
        let file = self.scratch.join("address");
        if !file.exists() {
            let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a free port");
            std::fs::write(&file, free.to_string()).expect("writable");
        }
        std::fs::read_to_string(file).expect("just written")
    }
    /// The place of its volume for clients of its server.
    pub fn place(&self) -> String {
        format!("{}/default", self.scratch.path().file_name().and_then(|name| name.to_str()).expect("a name"))
    }
    /// The directory with the membership of this machine.
    pub fn membership(&self) -> PathBuf {
        self.joined("membership", &self.place(), "test")
    }
    /// The directory of this name with the membership of a client, which calls the server as in `place`.
    fn joined(&self, directory: &str, place: &str, client: &str) -> PathBuf {
        let path = self.scratch.join(directory);
        if !path.exists() {
            self.scratch.directory(directory);
            let token = succeed(&["token", "create", text(&self.data), "--volume", "default", "--json"]);
            let token: serde_json::Value = serde_json::from_str(&token).expect("JSON");
            let (name, _) = place.split_once('/').expect("a name and a volume");
            let token = token["token"].as_str().expect("a token");
            succeed(&["client", "join", token, "--name", name, "--as", client, "--directory", text(&path)]);
        }
        path
    }
    /// The command of a client's daemon that mounts the volume.
    pub fn client(&self) -> Command {
        mounting(&self.membership(), &self.place(), &self.mount)
    }
    /// The place of its volume for another client, which could be another machine.
    pub fn other_place(&self) -> String {
        format!("other-{}", self.place())
    }
    /// The command of a daemon of another client that mounts the volume at a directory.
    pub fn other_client(&self, mount: &Path) -> Command {
        let place = self.other_place();
        mounting(&self.joined("other-membership", &place, "other"), &place, mount)
    }
    /// A daemon that is expected to fail at once.
    pub fn refused(&self, code: i32, parts: &[&str]) -> String {
        let output = self.command().stdin(Stdio::null()).output().expect("the binary runs");
        refused(&output, code, parts, "up")
    }
    /// The offline check finds nothing.
    pub fn check(&self) {
        let output = run(&["check", text(&self.data)]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{said}{errors}");
    }
}

fn mounting(membership: &Path, place: &str, mount: &Path) -> Command {
    let mut command = sinter();
    command.args(["mount", "--foreground", "--directory", text(membership), place]).arg(mount);
    if let Some(transport) = std::env::var_os("SINTER_TRANSPORT") {
        command.arg("--transport").arg(transport);
    }
    command
}

/// A daemon that has said that it is ready.
pub struct Daemon {
    child: Child,
    /// The line that it said.
    pub ready: String,
    /// Standard error so far; complete when the daemon has ended.
    errors: Option<std::thread::JoinHandle<String>>,
    /// The daemon of its brick, if that is another one.
    server: Option<Box<Daemon>>,
}

impl Daemon {
    /// Starts a daemon and waits for its `ready`.
    pub fn start(mut command: Command) -> Daemon {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let mut stderr = child.stderr.take().expect("piped");
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            drop(stderr.read_to_string(&mut text));
            text
        });
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = sync_channel(16);
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        match lines.recv_timeout(PATIENCE) {
            Ok(line) if line.starts_with("ready") => Daemon { child, ready: line, errors: Some(errors), server: None },
            Ok(line) => panic!("not ready: {line}"),
            Err(why) => {
                drop(child.kill());
                let status = child.wait().expect("it can be waited for");
                let ended = if why == RecvTimeoutError::Timeout { "too slow" } else { "ended" };
                panic!("{ended} before ready: {status}: {}", errors.join().expect("no panic"));
            }
        }
    }
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
    /// Bytes of its memory by the name that the kernel gives them: `VmRSS` is what is resident now, `VmHWM` the most so far.
    pub fn memory(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a running process has memory");
        let kibibytes = line.trim_start_matches(':').trim().trim_end_matches("kB").trim();
        kibibytes.parse::<u64>().expect("a number of kB") << 10
    }
    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        system("kill", &[&format!("-{name}"), &self.child.id().to_string()]);
    }
    /// Waits for its end; its status and all that it said on standard error.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                let of_server = self.server.take().map(|server| server.terminate());
                return (status, self.said() + &of_server.unwrap_or_default());
            }
            assert!(Instant::now() < deadline, "the daemon does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    /// Ends it by SIGTERM; it must end cleanly. What it said on standard error.
    pub fn terminate(self) -> String {
        self.signal("TERM");
        let (status, errors) = self.wait();
        assert_eq!(status.code(), Some(0), "{errors}");
        errors
    }
    fn said(&mut self) -> String {
        self.errors.take().map(|errors| errors.join().expect("no panic")).unwrap_or_default()
    }
    /// Kills it as a crash would.
    pub fn kill(mut self) {
        if let Some(server) = self.server.take() {
            server.kill();
        }
        self.child.kill().expect("it runs");
        self.child.wait().expect("it can be waited for");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A test that failed leaves no daemon behind, and shows what it said.
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
        if std::thread::panicking() {
            eprintln!("the daemon said:\n{}", self.said());
        }
    }
}
