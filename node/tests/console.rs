//! Metrics and console of a daemon that serves: a scraper's parser accepts the page, the console has figures of what happens, only
//! reads that name this machine are answered, and clients, however many and however they behave, leave the data path alone.

use crate::daemon::{Daemon, Home, refused, sinter, succeed, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Anything takes no longer, also beside other tests.
const SOON: Duration = Duration::from_secs(20);
/// Connections of clients that behave badly.
const CLIENTS: usize = 1000;
/// Connections that the daemon serves at once.
const SERVED_MAX: usize = 64;
/// Debian's Python, which has Debian's packages: reads OpenMetrics, and prints each metric's name that has a sample.
const PYTHON: &str = "/usr/bin/python3";
const PARSER: &str = "
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
for family in text_string_to_metric_families(sys.stdin.read()):
    if family.samples:
        print(family.name)
";

/// A port that nobody listens at.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("some port is free")
}

/// A served brick with metrics and console at one address.
fn served(name: &str) -> (Home, Daemon, SocketAddr) {
    let (home, address) = (Home::new(name), free_address());
    let mut command = home.command();
    command.args(["--metrics", &address.to_string(), "--console", &address.to_string()]);
    let daemon = Daemon::start(command);
    (home, daemon, address)
}

/// Sends a head and reads the answer: its status, its head in lower case, its body.
fn exchange(address: SocketAddr, head: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).expect("the daemon listens");
    stream.set_read_timeout(Some(SOON)).expect("a socket");
    stream.write_all(head.as_bytes()).expect("the daemon reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the daemon answers and closes");
    let answer = String::from_utf8(answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("an answer with a head: {answer:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, head.to_lowercase(), body.to_string())
}

fn get(address: SocketAddr, path: &str) -> String {
    let (status, _, body) = exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    assert_eq!(status, 200, "{path}: {body}");
    body
}

/// The value of a metric's sample, which begins so.
fn sample(page: &str, start: &str) -> f64 {
    let value = page.lines().find_map(|line| line.strip_prefix(start)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("{start} is not in\n{page}"))
}

fn work(home: &Home, number: usize) {
    let file = home.mount.join(format!("file-{}", number % 10));
    let content = format!("content {number}");
    std::fs::write(&file, &content).expect("the mount is writable");
    std::fs::File::open(&file).and_then(|file| file.sync_all()).expect("it can be made durable");
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), content);
}

#[test]
fn a_scrapers_parser_accepts_the_page_and_the_dashboard_finds_its_metrics() {
    let (home, daemon, address) = served("metrics");
    succeed(&["volume", "set", text(&home.data), "default", "--iops-max", "1000000"]);
    (0..50).for_each(|number| work(&home, number));
    let page = get(address, "/metrics");
    assert!(sample(&page, "sinter_request_duration_seconds_count{operation=\"fsync\"}") >= 50.0);
    assert!(sample(&page, "sinter_log_bytes_total") > 0.0 && sample(&page, "sinter_space_free_bytes") > 1e9);
    let mut child = Command::new(PYTHON)
        .args(["-c", PARSER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Debian's python3 and python3-prometheus-client are installed");
    child.stdin.take().expect("piped").write_all(page.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "the parser refuses the page:\n{page}");
    let parsed = String::from_utf8(output.stdout).expect("text");
    let parsed: BTreeSet<&str> = parsed.lines().collect();
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    // A brick without layers; errors are not in everyday work.
    let without = ["sinter_layer_calls", "sinter_layer_held_seconds", "sinter_request_errors"];
    let wanted: BTreeSet<&str> = types.filter(|name| !without.contains(name)).collect();
    let missing: Vec<_> = wanted.difference(&parsed).collect();
    assert!(wanted.len() > 30 && missing.is_empty(), "{missing:?} of\n{page}");
    daemon.terminate();
}

#[test]
fn errors_are_counted_by_operation_and_kind() {
    let (home, daemon, address) = served("errors");
    succeed(&["layer", "add", text(&home.data), "default", "fault", "no-space", "1", "--operation", "mkdir"]);
    (0..3).for_each(|number| {
        let error = std::fs::create_dir(home.mount.join(format!("{number}"))).expect_err("the layer refuses");
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    });
    let page = get(address, "/metrics");
    assert_eq!(sample(&page, "sinter_request_errors_total{operation=\"mkdir\",kind=\"no-space\"}"), 3.0);
    assert!(sample(&page, "sinter_layer_calls_total{volume=\"default\",layer=\"layer 1 (fault)\"}") >= 3.0);
    daemon.terminate();
}

#[test]
fn the_console_tells_what_happens_while_somebody_watches() {
    let (home, daemon, address) = served("console");
    let page = get(address, "/");
    for (path, kind) in
        [("/console.js", "text/javascript"), ("/console.css", "text/css"), ("/uPlot.js", "text/javascript")]
    {
        assert!(page.contains(&format!("\"{path}\"")), "{path} in\n{page}");
        let (status, head, body) = exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert!(status == 200 && head.contains(&format!("content-type: {kind}")) && body.len() > 500, "{path}: {head}");
    }
    let deadline = Instant::now() + SOON;
    let told = loop {
        (0..20).for_each(|number| work(&home, number));
        let told: Value = serde_json::from_str(&get(address, "/view?after=0")).expect("JSON");
        let points = told["points"].as_array().expect("a list").len();
        if points >= 2 && told["last"]["explanation"]["operations"].as_array().is_some_and(|all| !all.is_empty()) {
            break told;
        }
        assert!(Instant::now() < deadline, "{told:#}");
    };
    assert_eq!(told["brick"], text(&home.data.canonicalize().expect("it is there")));
    let last = told["points"].as_array().and_then(|points| points.last()).expect("some");
    assert!(last["operations"]["fsync"]["rate"].as_f64().is_some_and(|rate| rate > 1.0), "{last:#}");
    assert!(last["cores"].as_array().is_some_and(|cores| !cores.is_empty()), "{last:#}");
    let tables = &told["last"];
    for list in ["io", "locks", "pools", "slowest"] {
        assert!(tables[list].as_array().is_some_and(|rows| !rows.is_empty()), "{list} in {tables:#}");
    }
    assert!(
        tables["explanation"]["verdict"]["sentence"].as_str().is_some_and(|text| text.ends_with('.')),
        "{tables:#}"
    );
    assert_eq!(tables["liveness"].as_array().map(Vec::len), Some(10));
    // Only what is new, and to who asks wrongly what is wrong.
    let at = last["at"].as_f64().expect("a number");
    let newer: Value = serde_json::from_str(&get(address, &format!("/view?after={at}"))).expect("JSON");
    assert!(newer["points"].as_array().is_some_and(|points| points.len() <= 2), "{newer:#}");
    assert_eq!(exchange(address, "GET /view?after=x HTTP/1.1\r\nHost: localhost\r\n\r\n").0, 400);
    // It ends at once although it is watched.
    let began = Instant::now();
    daemon.terminate();
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    home.check();
}

#[test]
fn only_reads_that_name_this_machine_are_answered() {
    let (_home, daemon, address) = served("console-refuses");
    let head = |request: &str, host: &str| exchange(address, &format!("{request} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let (status, told, body) = head("HEAD /metrics", "localhost");
    assert!(status == 200 && body.is_empty() && told.contains("content-type: application/openmetrics-text"), "{told}");
    for request in ["POST /metrics", "PUT /", "DELETE /view", "OPTIONS /metrics"] {
        assert_eq!(head(request, "localhost").0, 405, "{request}");
    }
    for host in ["attacker.example", "attacker.example:9470", "127.0.0.1.attacker.example", "192.0.2.1"] {
        assert_eq!(head("GET /metrics", host).0, 421, "{host}");
    }
    assert_eq!(exchange(address, "GET /metrics HTTP/1.0\r\n\r\n").0, 421, "no host");
    assert_eq!(head("GET /../etc/passwd", "localhost").0, 404);
    for path in ["/", "/metrics", "/view", "/none"] {
        let (_, told, _) = head(&format!("GET {path}"), "localhost");
        for header in [
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;",
            "x-content-type-options: nosniff",
            "cache-control: no-store",
        ] {
            assert!(told.contains(header), "{path}: {header} is not in {told}");
        }
        assert!(!told.contains("access-control-allow"), "{path}: {told}");
    }
    daemon.terminate();
}

fn descriptors(daemon: &Daemon) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("it runs").count()
}

/// Lets this process have so many more descriptors.
fn raise_limit(more: usize) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a limit of ours.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur = limit.rlim_max.min(limit.rlim_cur.max(256) + more as u64);
    // SAFETY: as above.
    let raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert!(known == 0 && raised == 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_thousand_clients_that_stay_or_never_read_leave_the_data_path_alone() {
    let (home, daemon, address) = served("console-flood");
    (0..20).for_each(|number| work(&home, number));
    get(address, "/view");
    let (before, memory) = (descriptors(&daemon), daemon.memory("VmRSS"));
    raise_limit(CLIENTS);
    // A third says nothing, a third begins to ask, a third asks for a page and never reads it.
    let heads = ["", "GET /view HTTP/1.1\r\nHost: loc", "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"];
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let mut stream = TcpStream::connect(address).expect("the kernel takes it");
        // Whoever came long before gave way, which it may notice here.
        drop(stream.write_all(heads[number % heads.len()].as_bytes()));
        clients.push(stream);
        if number % 50 == 0 {
            work(&home, number);
            let most = descriptors(&daemon);
            assert!(most <= before + SERVED_MAX + 8, "{most} descriptors, {before} before");
        }
    }
    let began = Instant::now();
    assert!(succeed(&["status", text(&home.data)]).contains("state"));
    let page = get(address, "/metrics");
    assert!(sample(&page, "sinter_request_duration_seconds_count{operation=\"fsync\"}") > 20.0);
    assert!(get(address, "/view").contains("\"points\""));
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let grown = daemon.memory("VmRSS").saturating_sub(memory);
    assert!(grown < 64 << 20, "{grown} bytes more");
    // Those that stay are sent away in time.
    let deadline = Instant::now() + SOON;
    while descriptors(&daemon) > before + 8 {
        assert!(Instant::now() < deadline, "{} descriptors, {before} before", descriptors(&daemon));
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(clients);
    daemon.terminate();
    home.check();
}

#[test]
fn addresses_that_cannot_be_had_are_told_before_anything_is_touched() {
    let home = Home::new("console-address");
    let up = |arguments: &[&str]| {
        let mut command = sinter();
        command.arg("up").arg(&home.data).arg(&home.mount).args(["--size", "4G"]).args(arguments);
        command.stdin(Stdio::null()).output().expect("the binary runs")
    };
    for option in ["--metrics", "--console"] {
        let output = up(&[option, "0.0.0.0:9470"]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains("can be reached from other machines") && told.contains("SSH"), "{told}");
    }
    let taken = TcpListener::bind("127.0.0.1:0").expect("some port is free");
    let address = taken.local_addr().expect("bound").to_string();
    let parts = [&format!("can't listen at {address}"), "Address already in use", "another port"];
    refused(&up(&["--console", &address]), 1, &parts, "up");
    assert!(!home.data.exists(), "nothing was made");
}
