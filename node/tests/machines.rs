//! Three machines that become a cluster, and a client: few commands from empty directories to a volume that any one of the three may leave.

use crate::cluster::is_so;
use crate::daemon::machine::{Machine, machines};
use crate::daemon::{Daemon, Scratch, eventually, held, run, sinter, succeed, text};
use control::client::Membership;
use control::{ClientName, Held, Network, Rights, Role, Secret, ServerWish, Uuid, Wish};
use runtime::real::Directory;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Time within which a cluster is as it should be.
const PATIENCE: Duration = Duration::from_secs(40);
/// Longest time for which a program waits when the node that leads is killed: others are given six seconds to lead.
const STALL: Duration = Duration::from_secs(10);

/// A machine with the directory of its brick.
pub struct Node {
    pub machine: Machine,
    pub data: PathBuf,
}

impl Node {
    fn make(&self, arguments: &[&str]) -> String {
        let size = ["--data", text(&self.data), "--size", "4G", "--memory-max", "256M"];
        self.machine.succeed(&[&["cluster"], arguments, &size[..]].concat())
    }
    pub fn status(&self) -> serde_json::Value {
        let output = self.machine.run(&["cluster", "status", text(&self.data), "--json"]);
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
    /// The process that serves its brick.
    fn pid(&self) -> u32 {
        let told = self.machine.succeed(&["status", text(&self.data), "--json"]);
        let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
        told["pid"].as_u64().expect("a number") as u32
    }
    pub fn kill(&self) {
        crate::daemon::system("kill", &["-KILL", &self.pid().to_string()]);
    }
    /// Serves its brick in the foreground.
    pub fn serve(&self) -> Daemon {
        let mut command = self.machine.sinter();
        command.args(["serve", text(&self.data), "--memory-max", "256M"]);
        Daemon::start(command)
    }
    /// Waits until the node says this of its cluster; what it says.
    pub fn until(&self, health: &str) -> serde_json::Value {
        eventually(PATIENCE, || is_so(self.status(), health))
    }
}

/// Three machines without a cluster, and a fourth one.
pub fn world(name: &str) -> (Scratch, [Node; 3], Machine) {
    let scratch = Scratch::new(name);
    let [one, two, three, client] = machines(["n1", "n2", "n3", "desk"]);
    let mut number = 0;
    let nodes = [one, two, three].map(|machine| {
        number += 1;
        Node { machine, data: scratch.join(&format!("brick-{number}")) }
    });
    (scratch, nodes, client)
}

pub fn token_of(told: &str) -> String {
    told.split_whitespace().find(|word| word.starts_with("sinter1.")).expect("a token").to_string()
}

/// The node that leads, as the first that knows tells.
pub fn leader(nodes: &[Node; 3]) -> usize {
    let named = |node: &Node| node.status()["leader"].as_str().map(str::to_string);
    let name = eventually(PATIENCE, || nodes.iter().find_map(named).ok_or_else(|| "nobody leads".to_string()));
    name[1..].parse::<usize>().expect("n1 to n3") - 1
}

/// Writes files durably; the longest time that one took.
pub fn write_all(directory: &Path, numbers: std::ops::Range<usize>) -> Duration {
    let write = |number: usize| {
        let began = Instant::now();
        let mut file = File::create(directory.join(number.to_string())).expect("the mount takes it");
        file.write_all(&[number as u8; 5000]).and_then(|()| file.sync_all()).expect("durable");
        began.elapsed()
    };
    numbers.map(write).max().unwrap_or_default()
}

pub fn check(directory: &Path, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let found = fs::read(directory.join(number.to_string())).expect("it was written");
        assert!(found == [number as u8; 5000], "file {number} is not as it was written");
    }
}

#[test]
fn six_lines_lead_from_empty_machines_to_a_volume_that_outlasts_any_of_them() {
    let (scratch, nodes, client) = world("machines");
    let [one, two, three] = &nodes;
    let theirs = scratch.directory("theirs");
    // 1: the first node. Nobody else but nodes may come yet.
    let told = one.make(&["create", "prod"]);
    let token = token_of(&told);
    assert!(told.contains("sinter cluster join"), "the next step: {told}");
    one.until("1 of 3 nodes have joined: n1");
    client.fail(&["client", "join", &token], 2, &["sinter cluster join"]);
    one.machine.fail(&["cluster", "create", "prod", "--data", text(&one.data)], 1, &["cluster prod already"]);
    one.machine.fail(&["up", text(&one.data), text(&theirs)], 1, &["node n1 of a cluster"]);
    // 2 and 3: the others, of which one takes a name and then an address that are taken.
    let two_more = ["--data", text(&two.data), "--size", "4G"];
    let refused = |more: &[&str], says: &str| {
        two.machine.fail(&[&["cluster", "join", &token], &two_more[..], more].concat(), 1, &[says]);
    };
    refused(&["--name", "n1"], "has this name");
    refused(&["--address", "10.77.0.1"], "has this address");
    assert!(two.make(&["join", &token]).contains("2 of 3 nodes"));
    assert!(three.make(&["join", &token]).contains("3 of 3 nodes"));
    nodes.iter().for_each(|node| drop(node.until("healthy: 3 of 3 bricks, n")));
    // A further one is refused.
    let fourth = client.run(&["cluster", "join", &token, "--data", text(&scratch.join("fourth")), "--size", "4G"]);
    assert!(!fourth.status.success(), "{fourth:?}");
    // 4: a volume and a token for it, at the node that leads; others name it.
    let lead = leader(&nodes);
    let (leads, follows) = (&nodes[lead], &nodes[(lead + 1) % 3]);
    let create = |data: &Path| ["token", "create", text(data), "--volume", "home"].map(str::to_string);
    let words = create(&follows.data);
    let name = format!("n{}", lead + 1);
    follows.machine.fail(&words.each_ref().map(String::as_str), 1, &["another node of the cluster leads", &name]);
    leads.machine.succeed(&["volume", "create", text(&leads.data), "home"]);
    assert!(!leads.machine.succeed(&["volume", "list", text(&leads.data)]).contains(".network"));
    let token = token_of(&leads.machine.succeed(&create(&leads.data).each_ref().map(String::as_str)));
    // 5 and 6: a client.
    client.succeed(&["client", "join", &token]);
    client.succeed(&["mount", "prod/home", text(&theirs)]);
    let there = client.path(&theirs);
    write_all(&there, 0..50);

    // The node that leads is killed: the client waits for the next, which knows tokens and clients.
    leads.kill();
    let stall = write_all(&there, 50..100);
    println!("the longest write took {} ms", stall.as_millis());
    assert!(stall < STALL, "{stall:?}");
    check(&there, 0..100);
    leads.until(&format!("this node, {name}, does not run"));
    let next = &nodes[leader(&nodes)];
    assert!(next.machine.succeed(&["client", "list", text(&next.data)]).contains("desk"));
    assert!(next.machine.succeed(&["token", "list", text(&next.data)]).contains("used up"));
    let daemon = leads.serve();
    nodes.iter().for_each(|node| drop(node.until("healthy: 3 of 3 bricks, n")));

    // A cable that is out is one machine less, whichever it is.
    for node in &nodes {
        node.machine.ip("link set cable down");
        write_all(&there, 100..150);
        node.machine.ip("link set cable up");
        nodes.iter().for_each(|node| drop(node.until("healthy: 3 of 3 bricks, n")));
    }
    check(&there, 0..150);
    client.succeed(&["umount", text(&theirs)]);
    daemon.terminate();
    for node in nodes.iter().filter(|node| node.data != leads.data) {
        node.machine.succeed(&["down", text(&node.data)]);
    }
}

/// A node is off while clients change more than the others keep for it: it gets the group anew, and then all blocks that it lacks.
#[test]
fn a_node_that_was_off_for_long_heals() {
    /// The nodes keep some 21,000 records for it, with the memory that they have: 3,500 of each group.
    const FILES: usize = 6_500;
    let (scratch, nodes, client) = world("heals");
    let [one, two, three] = &nodes;
    let theirs = scratch.directory("theirs");
    let token = token_of(&one.make(&["create", "prod"]));
    [two, three].into_iter().for_each(|node| drop(node.make(&["join", &token])));
    nodes.iter().for_each(|node| drop(node.until("healthy: 3 of 3 bricks, n")));
    let lead = leader(&nodes);
    let leads = &nodes[lead];
    leads.machine.succeed(&["volume", "create", text(&leads.data), "home"]);
    let told = leads.machine.succeed(&["token", "create", text(&leads.data), "--volume", "home"]);
    client.succeed(&["client", "join", &token_of(&told)]);
    client.succeed(&["mount", "prod/home", text(&theirs)]);
    let there = client.path(&theirs);
    write_all(&there, 0..100);
    fs::write(there.join("kept"), vec![7; 8 << 20]).expect("there is room");
    fs::write(there.join("changed"), vec![8; 4 << 20]).expect("there is room");
    let away = &nodes[(lead + 1) % 3];
    away.kill();
    std::thread::scope(|scope| {
        for part in 0..4 {
            let directory = there.join(format!("part-{part}"));
            scope.spawn(move || {
                fs::create_dir(&directory).expect("writable");
                (0..FILES).for_each(|file| drop(File::create(directory.join(file.to_string())).expect("writable")));
            });
        }
    });
    fs::write(there.join("changed"), vec![9; 5 << 20]).expect("there is room");
    (0..50).for_each(|number| fs::remove_file(there.join(number.to_string())).expect("it is there"));
    // A checkpoint, after which they keep no more.
    std::thread::sleep(Duration::from_secs(3));
    let daemon = away.serve();
    let status = |node: &Node| node.status()["nodes"][(lead + 1) % 3].clone();
    // Each leads some groups.
    let others = || [lead, (lead + 2) % 3].map(|at| nodes[at].status()["nodes"][at]["replica"].clone());
    let whole = || {
        let told = status(away);
        let lacks = |replica: &serde_json::Value| {
            let peers = replica["peers"].as_array().expect("a list");
            peers.iter().filter_map(|peer| peer["lacks"].as_u64()).sum::<u64>()
        };
        let lacks: Vec<_> = others().iter().map(lacks).collect();
        let is_whole = told["state"] == "follows" && told["replica"]["heal"].is_null() && lacks == [0, 0];
        is_whole.then_some(()).ok_or_else(|| format!("{told}, others lack {lacks:?}"))
    };
    eventually(PATIENCE, whole);
    let needed = others().iter().filter_map(|replica| replica["needs_heal"].as_u64()).sum::<u64>();
    assert!(needed > 0, "it was not away for long enough");
    nodes.iter().for_each(|node| drop(node.until("healthy: 3 of 3 bricks, n")));
    // With the third one off, what is written from now on rests on it.
    let third = &nodes[(lead + 2) % 3];
    third.kill();
    write_all(&there, 100..120);
    check(&there, 50..120);
    client.succeed(&["umount", text(&theirs)]);
    leads.machine.succeed(&["down", text(&leads.data)]);
    daemon.terminate();
    let told = away.machine.succeed(&["check", "--data", text(&away.data)]);
    assert!(!told.contains("missing"), "{told}");
}

#[test]
fn a_cluster_that_is_being_formed_outlasts_kills_and_ends() {
    let (scratch, nodes, client) = world("forming");
    let [one, two, three] = &nodes;
    let token = token_of(&one.make(&["create", "prod"]));
    two.make(&["join", &token]);
    // Their daemons have no socket yet: they are known by their bricks.
    for node in [one, two] {
        crate::daemon::system("pkill", &["-KILL", "-f", &format!("serve {}", text(&node.data))]);
    }
    // The second one waits for the first.
    let second = two.serve();
    two.until("2 of 3 nodes have joined: n1 and n2");
    three.machine.fail(&["cluster", "join", &token, "--data", text(&three.data), "--size", "4G"], 4, &["10.77.0.1"]);
    let first = one.serve();
    assert!(first.ready.starts_with("ready: cluster prod waits"), "{}", first.ready);
    first.terminate();
    let first = one.serve();
    three.make(&["join", &token]);
    nodes.iter().for_each(|node| drop(node.until("healthy: 3 of 3 bricks, n")));
    // All end, and come back without a word of the first.
    drop(client);
    first.terminate();
    second.terminate();
    three.machine.succeed(&["down", text(&three.data)]);
    // One that was killed after the last node had joined, and before the others were told, tells them still.
    File::create(one.data.join("forming")).expect("writable");
    let daemons = nodes.each_ref().map(Node::serve);
    assert!(daemons[0].ready.contains("waits for all its nodes"), "{}", daemons[0].ready);
    nodes.iter().for_each(|node| drop(node.until("healthy: 3 of 3 bricks, n")));
    assert!(!one.data.join("forming").exists());
    daemons.into_iter().for_each(|daemon| drop(daemon.terminate()));
    drop(scratch);
}

/// Nodes whose certificates are older than 60 days get other ones from whoever leads, which go on serving and being believed.
#[test]
fn old_certificates_of_nodes_are_renewed() {
    const AGE_S: u64 = 61 * 24 * 60 * 60;
    let scratch = Scratch::new("renewals");
    let now_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs() - AGE_S;
    let (cluster, name): (_, ClientName) = (Uuid([7; 16]), "prod".parse().expect("a name"));
    let bricks = ["n1", "n2", "n3"].map(|node| {
        let data = scratch.join(node);
        succeed(&["format", text(&data), "--size", "4G", "--groups", "1"]);
        let brick = Daemon::start({
            let mut command = sinter();
            command.args(["serve", text(&data), "--memory-max", "256M"]);
            command
        });
        let status: serde_json::Value =
            serde_json::from_str(&succeed(&["status", text(&data), "--json"])).expect("JSON");
        brick.terminate();
        (node, data, status["brick"].as_str().and_then(|brick| brick.parse::<Uuid>().ok()).expect("an identity"))
    });
    // As if all had been made then.
    let mut network = Network::create(held(&bricks[0].1.join("network")), cluster, bricks[0].2, now_s).expect("new");
    let port = |at: usize| 17_400 + 10 * at;
    let address = |port: usize| format!("127.0.0.1:{port}").parse::<control::Address>().expect("an address");
    let mut nodes = Vec::new();
    for (at, (node, data, brick)) in bricks.iter().enumerate() {
        let wish = Wish { role: Role::Server, rights: Rights::none(), uses: 1, life_s: 60 };
        let place = (name.clone(), vec![address(port(0))]);
        let token = network.create_token(wish, Secret([at as u8 + 1; 16]), place, now_s).expect("a token");
        let files = held(&data.join("membership"));
        let joining = control::client::begin(&files, &name, token.clone()).expect("nothing there");
        let (clients, peers) = (address(port(at)), address(port(at) + 1));
        let wanted = ServerWish { brick: *brick, name: node.parse().expect("a name"), clients, peers };
        let chain = network.admit_server(&token.secret, &joining.request, &wanted, now_s).expect("invited");
        joining.finish(chain).expect("its own");
        nodes.push(serde_json::json!({ "name": node, "brick": brick.to_string().replace('-', ""), "replica": at + 1,
            "clients": wanted.clients.to_string(), "peers": wanted.peers.to_string() }));
    }
    let state = network.encoded();
    drop(network);
    for (at, (_, data, brick)) in bricks.iter().enumerate() {
        if at > 0 {
            drop(Network::install(held(&data.join("network")), &state, cluster).expect("whole"));
        }
        let hex = |uuid: Uuid| uuid.to_string().replace('-', "");
        let file = serde_json::json!({ "version": 2, "cluster": hex(cluster), "brick": hex(*brick), "name": "prod",
            "wanted": 3, "nodes": nodes });
        fs::write(data.join("cluster.json"), file.to_string()).expect("writable");
    }
    let certificate = |data: &Path| {
        let held =
            Held::lock(Directory::open(&data.join("membership")).expect("there"), |from, to| fs::rename(from, to));
        held.ok().map(|files| Membership::read(&files, &name).expect("whole").certificate)
    };
    let before = bricks.each_ref().map(|(_, data, _)| certificate(data).expect("nobody else"));
    let serve = |data: &Path| {
        let mut command = sinter();
        command.args(["serve", text(data), "--memory-max", "256M"]);
        Daemon::start(command)
    };
    let daemons = bricks.each_ref().map(|(_, data, _)| serve(data));
    for (at, (_, data, _)) in bricks.iter().enumerate() {
        until("it is renewed", || certificate(data).is_some_and(|now| now != before[at]));
    }
    // A node that is started anew is believed by its new certificate.
    let [first, second, third] = daemons;
    second.terminate();
    let second = serve(&bricks[1].1);
    let health = || {
        let told = run(&["cluster", "status", text(&bricks[1].1), "--json"]);
        let told: serde_json::Value = serde_json::from_slice(&told.stdout).expect("JSON");
        told["healthy"].as_bool() == Some(true)
    };
    until("all are there", health);
    [first, second, third].into_iter().for_each(|daemon| drop(daemon.terminate()));
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    eventually(PATIENCE, || is_so().then_some(()).ok_or_else(|| what.to_string()));
}
