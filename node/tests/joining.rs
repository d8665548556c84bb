//! Tokens, joining and clients, by commands against a daemon that listens: who comes, who is refused and what it is told, and that
//! nothing listens unless it was asked to.

use crate::daemon::{Daemon, Home, fail, sinter, succeed, system, text};
use serde_json::Value;
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Connections that say nothing: more than the daemon keeps.
const SILENT: usize = 1200;

/// A daemon that serves a new brick with the volume `default`, and listens at a port of its own.
fn listening(name: &str) -> (Home, Daemon) {
    let home = Home::new(name);
    succeed(&["format", text(&home.data), "--size", "4G"]);
    succeed(&["volume", "create", text(&home.data), "default"]);
    let daemon = serve(&home.data, "127.0.0.1:0");
    (home, daemon)
}

fn serve(data: &Path, address: &str) -> Daemon {
    let mut command = sinter();
    command.arg("serve").arg(data).args(["--listen", address, "--name", "store"]);
    Daemon::start(command)
}

fn json(arguments: &[&str]) -> Value {
    let told = succeed(&[arguments, &["--json"]].concat());
    serde_json::from_str(&told).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {told}"))
}

/// A new token; further options of it are `options`.
fn token(home: &Home, options: &[&str]) -> String {
    let base = ["token", "create", text(&home.data), "--volume", "default"];
    json(&[&base, options].concat())["token"].as_str().expect("a token").to_string()
}

fn address(home: &Home) -> String {
    json(&["status", text(&home.data)])["listening"].as_str().expect("it listens").to_string()
}

fn join(token: &str, client: &str, directory: &Path) -> Value {
    json(&["client", "join", token, "--as", client, "--directory", text(directory)])
}

/// A join that is refused; its last line has these parts.
fn refused(token: &str, client: &str, directory: &Path, parts: &[&str]) {
    fail(&["client", "join", token, "--as", client, "--directory", text(directory)], 1, parts);
}

#[test]
fn a_machine_joins_with_a_token_and_is_known_until_it_is_revoked() {
    let (home, daemon) = listening("join");
    let data = text(&home.data);
    let etc = home.scratch.directory("etc");
    let made = token(&home, &["--read-only", "--root-squash"]);
    let joined = join(&made, "c1", &etc);
    assert_eq!((joined["name"].as_str(), joined["client"].as_str()), (Some("store"), Some("c1")));
    let key = std::fs::metadata(etc.join("store.key")).expect("written");
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&key) & 0o777, 0o600);
    // The answer may have been lost: the same machine gets it again.
    let file = std::fs::read(etc.join("store.toml")).expect("written");
    join(&made, "c1", &etc);
    assert_eq!(std::fs::read(etc.join("store.toml")).expect("written"), file);

    let clients = json(&["client", "list", data]);
    assert_eq!(clients[0]["name"], "c1");
    assert_eq!(
        clients[0]["volumes"][0],
        serde_json::json!({ "volume": "default", "read_only": true, "squash_root": true })
    );
    assert!(succeed(&["client", "list", data]).contains("default (read-only, root squashed)"));
    let tokens = json(&["token", "list", data]);
    assert_eq!((&tokens[0]["used_by"][0], &tokens[0]["uses"]), (&"c1".into(), &1.into()));
    assert!(!succeed(&["token", "list", data]).contains(&made[20..60]), "secrets are not shown");

    // Both survive the daemon, whichever way it ends.
    let port = address(&home);
    daemon.kill();
    let daemon = serve(&home.data, &port);
    assert_eq!(json(&["client", "list", data]), clients);
    succeed(&["client", "revoke", data, "c1"]);
    assert!(succeed(&["client", "list", data]).contains("revoked"));
    refused(&token(&home, &[]), "c1", &etc, &["was revoked", "remove its file"]);
    fail(&["client", "revoke", data, "c9"], 1, &["no such client", "sinter client list"]);
    daemon.terminate();
    home.check();
}

#[test]
fn each_token_that_is_wrong_says_why() {
    let (home, daemon) = listening("tokens");
    let data = text(&home.data);
    let new = |name: &str| home.scratch.directory(name);
    let (one, two) = (new("one"), new("two"));

    let used = token(&home, &[]);
    join(&used, "c1", &one);
    refused(&used, "c2", &two, &["was used already", "used by c1", "sinter token create"]);
    refused(&token(&home, &[]), "c1", &two, &["another machine has this name", "sinter client revoke"]);

    let short = token(&home, &["--ttl", "1s"]);
    std::thread::sleep(Duration::from_millis(2100));
    refused(&short, "c2", &two, &["has expired", "sinter token create"]);

    let revoked = token(&home, &[]);
    let id = json(&["token", "list", data]).as_array().expect("a list").last().expect("some")["id"].clone();
    succeed(&["token", "revoke", data, id.as_str().expect("text")]);
    refused(&revoked, "c2", &two, &["was revoked"]);
    fail(&["token", "revoke", data, "nothing"], 1, &["no such token", "sinter token list"]);

    let good = token(&home, &["--uses", "2"]);
    fail(&["client", "join", &good[..good.len() - 9], "--directory", text(&two)], 2, &["cut short"]);
    fail(&["client", "join", "hello", "--directory", text(&two)], 2, &["this is no token"]);
    assert!(!two.join("store.toml").exists(), "nothing was written");
    join(&good, "c2", &two);
    let error = fail(&["token", "create", data, "--volume", "absent"], 1, &["no volume of this name"]);
    assert!(error.contains("sinter volume list"), "{error}");
    daemon.terminate();
}

/// A server that came to the address of another one can't answer in its place.
#[test]
fn a_token_of_another_server_is_refused_by_the_client_itself() {
    let (home, daemon) = listening("first");
    let (made, port) = (token(&home, &[]), address(&home));
    daemon.terminate();
    let (other, daemon) = listening("second");
    daemon.terminate();
    let daemon = serve(&other.data, &port);
    let etc = home.scratch.directory("etc");
    let began = Instant::now();
    refused(&made, "c1", &etc, &["certificate"]);
    assert!(began.elapsed() < Duration::from_secs(10), "it is told at once");
    assert!(json(&["client", "list", text(&other.data)]).as_array().is_some_and(Vec::is_empty));
    daemon.terminate();
}

fn listens(pid: u32) -> bool {
    let output = Command::new("ss").args(["-Hltnp"]).output().expect("iproute2 is installed");
    String::from_utf8_lossy(&output.stdout).contains(&format!("pid={pid},"))
}

#[test]
fn no_port_is_open_unless_it_was_asked_for() {
    let home = Home::new("closed");
    succeed(&["format", text(&home.data), "--size", "4G"]);
    succeed(&["volume", "create", text(&home.data), "default"]);
    let mut command = sinter();
    command.arg("serve").arg(&home.data);
    let daemon = Daemon::start(command);
    assert!(!listens(daemon.pid()));
    for arguments in [&["token", "list"][..], &["client", "list"]] {
        fail(&[arguments, &[text(&home.data)]].concat(), 1, &["does not listen", "--listen"]);
    }
    daemon.terminate();
    assert!(!home.data.join("network").exists(), "no identity is made for nothing");
    let daemon = serve(&home.data, "127.0.0.1:0");
    assert!(listens(daemon.pid()));
    daemon.terminate();
}

#[test]
fn an_address_that_is_taken_or_none_is_refused_with_the_next_step() {
    let (home, daemon) = listening("taken");
    let port = address(&home);
    let other = Home::new("taker");
    succeed(&["format", text(&other.data), "--size", "4G"]);
    let refused = |address: &str, code, parts: &[&str]| {
        fail(&["serve", text(&other.data), "--listen", address], code, parts);
    };
    refused(&port, 3, &["can't listen at"]);
    refused("192.0.2.1:7400", 1, &["can't listen at"]);
    daemon.terminate();
    // What was made on the way is whole.
    serve(&other.data, "127.0.0.1:0").terminate();
    other.check();
}

/// Silent connections are dropped after a while, or for who comes later.
#[test]
fn a_thousand_silent_connections_keep_nobody_out() {
    let (home, daemon) = listening("silent");
    let (made, at) = (token(&home, &[]), address(&home));
    let before = daemon.memory("VmRSS");
    let connect = |_| TcpStream::connect(&at).expect("the daemon takes connections");
    let mut silent: Vec<TcpStream> = (0..SILENT).map(connect).collect();
    join(&made, "c1", &home.scratch.directory("etc"));
    assert!(daemon.memory("VmRSS").saturating_sub(before) < 64 << 20, "each takes little");
    for stream in &mut silent {
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
        let mut said = Vec::new();
        // The end of the stream, or a connection that was reset.
        drop(stream.read_to_end(&mut said));
    }
    daemon.terminate();
}

/// A volume that is not mounted anywhere is deleted, and the right to it leads nowhere.
#[test]
fn a_right_to_a_volume_that_is_gone_is_shown_as_such() {
    let (home, daemon) = listening("gone");
    let data = text(&home.data);
    join(&token(&home, &[]), "c1", &home.scratch.directory("etc"));
    succeed(&["volume", "delete", data, "default"]);
    succeed(&["volume", "create", data, "default"]);
    assert!(succeed(&["client", "list", data]).contains("(deleted)"));
    daemon.terminate();
}

/// A format of the brick's identity that was interrupted is begun anew; one that is damaged is never replaced.
#[test]
fn an_identity_is_made_whole_or_not_at_all() {
    let (home, daemon) = listening("identity");
    daemon.terminate();
    let network = home.data.join("network");
    std::fs::rename(&network, home.data.join("network.new")).expect("it is there");
    std::fs::write(home.data.join("network.new/state"), "half").expect("writable");
    serve(&home.data, "127.0.0.1:0").terminate();
    assert!(network.exists() && !home.data.join("network.new").exists());
    let state = network.join("state");
    let whole = std::fs::read(&state).expect("written");
    std::fs::write(&state, &whole[..whole.len() / 2]).expect("writable");
    fail(&["serve", text(&home.data), "--listen", "127.0.0.1:0"], 5, &["damaged", "backup"]);
    assert_eq!(std::fs::read(&state).expect("there").len(), whole.len() / 2);
    std::fs::write(&state, &whole).expect("writable");
    system("chmod", &["644", text(&state)]);
    fail(&["serve", text(&home.data), "--listen", "127.0.0.1:0"], 1, &["can be read by others", "chmod 600"]);
}

/// Who is revoked is out at once: what it has mounted gets errors, and its certificate leads nowhere.
#[test]
fn a_client_that_is_revoked_is_out_at_once() {
    let home = Home::new("revoked");
    let server = home.serve(&[]);
    let client = Daemon::start(home.client());
    std::fs::write(home.mount.join("file"), "before").expect("writable");
    let data = text(&home.data);
    let name = json(&["status", data])["clients"][0]["client"].as_str().expect("it is there").to_string();
    assert!(succeed(&["status", data]).contains(&format!("default: {name} alone")));
    fail(&["volume", "delete", data, "default"], 3, &["a client of another machine", "--force"]);
    let began = Instant::now();
    succeed(&["client", "revoke", data, &name]);
    let error = std::fs::write(home.mount.join("file"), "after").expect_err("it is out");
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    assert!(began.elapsed() < Duration::from_secs(10), "it is told at once");
    assert_eq!(json(&["status", data])["clients"].as_array().map(Vec::len), Some(0));
    drop(client);
    let (place, elsewhere) = (home.place(), home.scratch.directory("elsewhere"));
    let membership = home.membership();
    fail(&["mount", &place, text(&elsewhere), "--directory", text(&membership)], 1, &["was revoked"]);
    // The volume is free, and has what was written before.
    succeed(&["mount", data, "default", text(&elsewhere)]);
    assert_eq!(std::fs::read(elsewhere.join("file")).expect("readable"), b"before");
    succeed(&["umount", text(&elsewhere)]);
    server.terminate();
    home.check();
}

/// A volume that a client has mounted is deleted if somebody insists: its programs get errors.
#[test]
fn a_volume_is_deleted_under_a_client_only_by_force() {
    let home = Home::new("forced");
    let server = home.serve(&[]);
    let client = Daemon::start(home.client());
    std::fs::write(home.mount.join("file"), "before").expect("writable");
    succeed(&["volume", "delete", text(&home.data), "default", "--force"]);
    std::fs::write(home.mount.join("file"), "after").expect_err("the volume is gone");
    drop(client);
    server.terminate();
    home.check();
}
