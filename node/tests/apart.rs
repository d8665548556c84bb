//! Two machines: namespaces for networks, mounts and names, a cable between them, and nothing in common but the disk under the brick's
//! directory, which only the server uses. A few commands lead from two empty ones to a volume that both have mounted.

use crate::daemon::machine::{Machine, machines};
use crate::daemon::{Daemon, Home, text};
use std::path::Path;
use std::time::{Duration, Instant};

const SERVER: &str = "10.77.0.1";

/// A server and a client, and a cable between them.
fn two_machines() -> (Machine, Machine) {
    let [server, client] = machines(["store", "desk"]);
    (server, client)
}

#[test]
fn a_few_commands_lead_from_two_empty_machines_to_a_shared_volume() {
    let (server, client) = two_machines();
    let home = Home::new("apart");
    let (brick, own) = (text(&home.data), text(&home.mount));
    let theirs = home.scratch.directory("theirs");
    let up = |options: &[&str]| {
        let mut command = server.sinter();
        command.args(["up", brick, own, "--size", "4G"]).args(options);
        Daemon::start(command)
    };
    // Without --listen nobody listens, and the step that lacks is told.
    let daemon = up(&[]);
    assert_eq!(server.ports(), Vec::<String>::new());
    server.fail(&["token", "create", brick, "--volume", "default"], 1, &["--listen"]);
    daemon.terminate();
    // 1: the server.
    let daemon = up(&["--listen", "0.0.0.0"]);
    assert_eq!(server.ports(), ["0.0.0.0:7400"]);
    client.fail(&["mount", "store/default", text(&theirs)], 1, &["has not joined", "sinter client join TOKEN"]);
    // 2: an invitation.
    let told = server.succeed(&["token", "create", brick, "--volume", "default"]);
    let token = told.split_whitespace().find(|word| word.starts_with("sinter1.")).expect("a token");
    assert!(told.contains("sinter client join"), "the next step: {told}");
    // 3: the client joins, over a cable that is there.
    client.ip("link set cable down");
    client.fail(&["client", "join", token], 4, &[SERVER]);
    client.ip("link set cable up");
    let joined = client.succeed(&["client", "join", token]);
    assert!(joined.contains("sinter mount store/"), "the next step: {joined}");
    // 4: the mount, beside the server's own.
    client.succeed(&["mount", "store/default", text(&theirs)]);
    let (here, there) = (server.path(&home.mount), client.path(&theirs));
    std::fs::write(here.join("from-the-server"), "one").expect("writable");
    assert_eq!(std::fs::read_to_string(there.join("from-the-server")).expect("it is there"), "one");
    std::fs::write(there.join("from-the-client"), "two").expect("writable");
    assert_eq!(std::fs::read_to_string(here.join("from-the-client")).expect("it is there"), "two");
    // 5: who is there.
    let status = server.succeed(&["status", brick]);
    assert!(status.contains("desk") && status.contains(&format!("{}:7400", "0.0.0.0")), "{status}");

    // A cable that is out for a while is waited for.
    client.ip("link set cable down");
    let began = Instant::now();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| std::fs::write(there.join("later"), "three").map(|()| began.elapsed()));
        std::thread::sleep(Duration::from_secs(3));
        client.ip("link set cable up");
        let waited = waiter.join().expect("no panic").expect("no error");
        assert!(waited >= Duration::from_secs(3), "{waited:?}");
    });
    assert_eq!(std::fs::read_to_string(here.join("later")).expect("it is there"), "three");
    client.succeed(&["umount", text(&theirs)]);
    daemon.terminate();
    home.check();
}

/// A mount that waits for its server looks where the server's name leads by now, and where the file of its membership says.
#[test]
fn a_server_that_moved_is_found_again() {
    let (server, client) = two_machines();
    let home = Home::new("moved");
    let brick = text(&home.data);
    let theirs = home.scratch.directory("theirs");
    let hosts = home.scratch.join("hosts");
    let name = |name: &str, address: &str| {
        std::fs::write(&hosts, format!("127.0.0.1 localhost\n{address} {name}\n")).expect("writable");
    };
    name("store.test", SERVER);
    let bound = client.program("mount").args(["--bind", text(&hosts), "/etc/hosts"]).status();
    assert!(bound.expect("util-linux is installed").success());
    let mut command = server.sinter();
    command.args(["up", brick, text(&home.mount), "--size", "4G", "--listen", "0.0.0.0"]);
    let daemon = Daemon::start(command);
    let told = server.succeed(&["token", "create", brick, "--volume", "default", "--address", "store.test"]);
    let token = told.split_whitespace().find(|word| word.starts_with("sinter1.")).expect("a token");
    client.succeed(&["client", "join", token]);
    // It fails rather than wait for ever.
    client.succeed(&["mount", "store/default", text(&theirs), "--soft", "100"]);
    let there = client.path(&theirs);
    std::fs::write(there.join("file"), "before").expect("writable");
    // It has another address, under a name that is new to its clients.
    server.ip(&format!("addr del {SERVER}/24 dev cable"));
    server.ip("addr add 10.77.0.8/24 dev cable");
    let membership = client.path(Path::new("/etc/sinter/store.toml"));
    let content = std::fs::read_to_string(&membership).expect("it is there");
    assert!(content.contains("store.test:7400"), "{content}");
    std::fs::write(&membership, content.replace("store.test:7400", "moved.test:7400")).expect("writable");
    name("moved.test", "10.77.0.8");
    std::fs::write(there.join("file"), "found").expect("it is found");
    let seen = server.path(&home.mount).join("file");
    assert_eq!(std::fs::read_to_string(seen).expect("it is there"), "found");
    client.succeed(&["umount", text(&theirs)]);
    daemon.terminate();
    home.check();
}
