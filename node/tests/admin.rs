//! The admin socket of a daemon that serves: whatever its own user or root sends there, files are served, others are
//! answered, and neither memory nor descriptors run out.

use crate::daemon::{Daemon, Home, on_terminal, refused, sinter, succeed, system, text};
use runtime::random::SplitMix;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Lines of random bytes: about a second of them. `SINTER_FUZZ` multiplies.
const LINES: u64 = 5_000;
/// The longest line, and more.
const LONG_BYTES: usize = 1 << 20;
/// Far more than the daemon serves at once.
const IDLE: usize = 500;
/// An operator waits no longer.
const SOON: Duration = Duration::from_secs(20);

fn connect(home: &Home) -> BufReader<UnixStream> {
    let stream = UnixStream::connect(home.data.join("admin.sock")).expect("the daemon listens");
    stream.set_read_timeout(Some(SOON)).expect("it is a socket");
    BufReader::new(stream)
}

/// The reply to a line; None if the daemon ended the connection.
fn reply(connection: &mut BufReader<UnixStream>, line: &[u8]) -> Option<String> {
    connection.get_mut().write_all(line).ok()?;
    let mut reply = String::new();
    (connection.read_line(&mut reply).expect("an answer or the end, and soon") > 0).then_some(reply)
}

fn descriptors(daemon: &Daemon) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("it runs").count()
}

/// Files are served and operators are answered.
fn is_well(home: &Home) {
    let began = Instant::now();
    let file = home.mount.join("file");
    std::fs::write(&file, "text").expect("the mount is writable");
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), "text");
    assert!(succeed(&["status", text(&home.data)]).contains("state"));
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[test]
fn nothing_that_is_sent_there_harms_who_is_served() {
    let home = Home::new("admin");
    let daemon = home.up();
    is_well(&home);
    let (before, memory) = (descriptors(&daemon), daemon.memory("VmRSS"));
    garbage(&home);
    is_well(&home);
    let mut half = connect(&home);
    half.get_mut().write_all(b"{\"request\":\"sta").expect("the daemon reads");
    long_lines(&home);
    is_well(&home);
    assert!(reply(&mut half, b"tus\"}\n").is_some_and(|reply| reply.contains("answer")), "it had time");
    let idle: Vec<_> = (0..IDLE).map(|_| connect(&home)).collect();
    is_well(&home);
    let most = descriptors(&daemon);
    assert!(most < before + 250, "{most} descriptors, {before} before");
    drop((idle, half));
    let deadline = Instant::now() + SOON;
    while descriptors(&daemon) > before + 4 {
        assert!(Instant::now() < deadline, "{} descriptors, {before} before", descriptors(&daemon));
        std::thread::sleep(Duration::from_millis(50));
    }
    let grown = daemon.memory("VmRSS").saturating_sub(memory);
    assert!(grown < 64 << 20, "{grown} bytes more");
    daemon.terminate();
    home.check();
}

/// Lines that are no request, some of them nearly one: each is refused in one line, and the next is read.
fn garbage(home: &Home) {
    const ALMOST: &[u8] = b"{\"request\":\"volume_info\",\"name\":\"none\"}";
    let times = crate::daemon::setting("SINTER_FUZZ", 1);
    let mut rng = SplitMix(crate::daemon::setting("SINTER_SEED", 1));
    let mut connection = connect(home);
    for number in 0..LINES * times {
        let mut line = if rng.one_in(2) { ALMOST.to_vec() } else { vec![0; rng.below(300) as usize] };
        let changes = if line.starts_with(b"{") { 1 + rng.below(4) } else { line.len() as u64 };
        for _ in 0..changes.min(line.len() as u64) {
            let at = rng.below(line.len() as u64) as usize;
            line[at] = rng.next() as u8;
        }
        line.retain(|byte| *byte != b'\n');
        line.push(b'\n');
        let told = reply(&mut connection, &line).unwrap_or_else(|| panic!("line {number}: {line:?} ended it"));
        assert!(told.starts_with("{\"refusal\":{") && told.len() < 4096, "line {number}: {line:?}: {told}");
    }
}

/// Lines without an end: refused, and the connection ends.
fn long_lines(home: &Home) {
    for _ in 0..20 {
        let mut connection = connect(home);
        // The daemon reads no more of it than a request may have.
        drop(connection.get_mut().write_all(&vec![b'{'; LONG_BYTES]));
        let mut told = Vec::new();
        drop(connection.read_to_end(&mut told));
        let told = String::from_utf8_lossy(&told).into_owned();
        assert!(told.is_empty() || told.contains("too long"), "{told}");
    }
}

#[test]
fn who_deletes_a_volume_at_a_terminal_is_asked() {
    let home = Home::new("asked");
    let daemon = home.up();
    let names = || succeed(&["volume", "list", text(&home.data)]);
    succeed(&["volume", "create", text(&home.data), "precious"]);
    let line = format!("{} volume delete {} precious", env!("CARGO_BIN_EXE_sinter"), text(&home.data));
    for typed in ["n\n", "\n", "yess\n", "\x04"] {
        let (code, seen) = on_terminal(&line, "[y/N] ", typed);
        assert!(code == Some(1) && seen.contains("delete volume precious") && seen.contains("not deleted"), "{seen}");
        assert!(names().contains("precious"));
    }
    let (code, seen) = on_terminal(&line, "[y/N] ", "y\n");
    assert!(code == Some(0) && !names().contains("precious"), "{seen}");
    daemon.terminate();
}

#[test]
fn a_command_whose_daemon_dies_does_not_blame_the_device() {
    let home = Home::new("died");
    let daemon = home.up();
    daemon.signal("STOP");
    let mut grow = sinter();
    grow.args(["grow", text(&home.data), "--size", "8G"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let grow = grow.spawn().expect("the binary runs");
    // It has asked by then, or finds nobody who listens: the kernel takes its question in any case.
    std::thread::sleep(Duration::from_millis(500));
    daemon.kill();
    let output = grow.wait_with_output().expect("it ends");
    let last = refused(&output, 1, &["ended before it answered", "look at its last messages"], "grow");
    assert!(!last.contains("device"), "{last}");
    system("umount", &["--lazy", text(&home.mount)]);
}
