//! A cluster whose nodes announce themselves in etcd, which goes away, is wiped, is full, is another one, and comes back: nothing of the
//! cluster depends on it, and each wrong step says what to do.

use crate::daemon::machine::Machine;
use crate::daemon::{Daemon, eventually, text};
use crate::machines::{Node, check, leader, token_of, world, write_all};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time within which a node has looked at etcd: it does every four seconds, and a call takes five at most.
const LOOKS: Duration = Duration::from_secs(30);
/// The place where it listens: the fourth machine.
const ENDPOINT: &str = "https://10.77.0.4:2379";

/// Time for which etcd is away while nodes that lead are killed, one after the other: `SINTER_ETCD_AWAY_S` seconds, else one kill.
fn outage() -> Duration {
    let told = std::env::var("SINTER_ETCD_AWAY_S").ok();
    Duration::from_secs(told.map_or(0, |told| told.parse().expect("a number of seconds")))
}

/// The files of an authority, of etcd and of the nodes, in a directory.
struct Certificates(PathBuf);

impl Certificates {
    fn make(directory: PathBuf) -> Certificates {
        let script = r#"
            key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
            for ca in ca other; do openssl req -x509 $key -days 2 -subj /CN=$ca -keyout $ca.key -out $ca.pem; done
            printf 'subjectAltName=IP:10.77.0.4\nextendedKeyUsage=serverAuth,clientAuth\n' >extensions
            for name in etcd:ca node:ca stranger:other; do
                ca=${name#*:} name=${name%:*}
                openssl req $key -subj /CN=$name -keyout $name.key -out $name.csr
                openssl x509 -req -in $name.csr -CA $ca.pem -CAkey $ca.key -CAcreateserial -days 2 -extfile extensions -out $name.pem
            done"#;
        let made = Command::new("sh").args(["-ec", script]).current_dir(&directory).output().expect("a shell");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Certificates(directory)
    }
    fn path(&self, name: &str) -> String {
        text(&self.0.join(name)).to_string()
    }
    /// The options for who comes with this certificate, and believes this authority.
    fn options(&self, own: &str, ca: &str) -> Vec<String> {
        let (ca, cert, key) =
            (self.path(&format!("{ca}.pem")), self.path(&format!("{own}.pem")), self.path(&format!("{own}.key")));
        ["--etcd", ENDPOINT, "--etcd-ca", &ca, "--etcd-cert", &cert, "--etcd-key", &key].map(str::to_string).to_vec()
    }
}

/// An etcd that serves who comes with a certificate.
struct Etcd<'a>(Child, &'a Machine, &'a Certificates);

impl<'a> Etcd<'a> {
    fn start(machine: &'a Machine, files: &'a Certificates, data: &Path, more: &[&str]) -> Etcd<'a> {
        let mut command = machine.program("etcd");
        command.arg("--data-dir").arg(data).args([
            "--listen-client-urls",
            ENDPOINT,
            "--advertise-client-urls",
            ENDPOINT,
        ]);
        command.args(["--cert-file", &files.path("etcd.pem"), "--key-file", &files.path("etcd.key")]);
        command.args(["--client-cert-auth", "--trusted-ca-file", &files.path("ca.pem"), "--logger", "zap"]).args(more);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("etcd-server is installed");
        let etcd = Etcd(child, machine, files);
        eventually(LOOKS, || etcd.ask(&["endpoint", "health"]));
        etcd
    }
    /// Runs etcdctl; what it says.
    fn ask(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = self.1.program("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", ENDPOINT, "--cacert", &self.2.path("ca.pem")]);
        command.args(["--cert", &self.2.path("node.pem"), "--key", &self.2.path("node.key")]).args(arguments);
        let output = command.output().expect("etcd-client is installed");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() { Ok(told) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    }
    /// The keys that it has.
    fn keys(&self) -> Vec<String> {
        let told = self.ask(&["get", "--prefix", "--keys-only", "/sinter/"]).expect("it answers");
        told.split_whitespace().map(str::to_string).collect()
    }
}

impl Drop for Etcd<'_> {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn run(node: &Node, arguments: &[&str], more: &[String]) -> std::process::Output {
    let more = more.iter().map(String::as_str);
    node.machine.run(&arguments.iter().copied().chain(more).collect::<Vec<_>>())
}

fn refused(node: &Node, arguments: &[&str], more: &[String], says: &[&str]) {
    let output = run(node, arguments, more);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && says.iter().all(|part| said.contains(part)), "{arguments:?} {more:?}: {said}");
}

/// Waits until a node says of etcd that these nodes run, or has this error.
fn until(node: &Node, expected: Result<&[&str], &str>) {
    eventually(LOOKS, || {
        let told = node.status()["etcd"].clone();
        let is_so = match expected {
            Ok(names) => told["error"].is_null() && told["nodes"] == serde_json::json!(names),
            Err(part) => told["error"].as_str().is_some_and(|error| error.contains(part)),
        };
        if is_so { Ok(()) } else { Err(format!("{expected:?}: {told}")) }
    });
}

fn recovered(node: &Node) -> u64 {
    let output = run(node, &["cluster", "recover-directory", text(&node.data), "--json"], &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    told["keys"].as_u64().expect("a number")
}

const ALL: Result<&[&str], &str> = Ok(&["n1", "n2", "n3"]);

#[test]
fn a_cluster_needs_no_etcd_and_finds_its_nodes_by_it() {
    let (scratch, nodes, desk) = world("etcd");
    let [one, two, three] = &nodes;
    let files = Certificates::make(scratch.directory("certificates"));
    let right = files.options("node", "ca");

    // Wrong steps, before anything is made.
    let create = ["cluster", "create", "prod", "--data", text(&one.data), "--size", "4G", "--memory-max", "256M"];
    refused(one, &create, &right, &["etcd", "10.77.0.4"]);
    let etcd = Etcd::start(&desk, &files, &scratch.join("etcd-1"), &[]);
    refused(one, &create, &files.options("node", "other"), &["certificate", "--etcd-ca"]);
    refused(one, &create, &files.options("stranger", "ca"), &["certificate"]);
    refused(one, &create, &["--etcd".into(), "http://10.77.0.4:2379".into()], &["etcd"]);
    refused(one, &create, &["--etcd".into(), "10.77.0.4".into()], &["http://HOST:PORT"]);
    assert!(!one.data.exists());
    assert_eq!(etcd.keys(), Vec::<String>::new());

    // A cluster that uses it.
    let made = run(one, &create, &right);
    let told = String::from_utf8_lossy(&made.stdout).into_owned();
    assert!(made.status.success() && told.contains("--etcd https://10.77.0.4:2379 --etcd-ca FILE"), "{told}{made:?}");
    let token = token_of(&told);
    for node in [two, three] {
        let join = ["cluster", "join", &token, "--data", text(&node.data), "--size", "4G", "--memory-max", "256M"];
        let joined = run(node, &join, &right);
        assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
    }
    nodes.iter().for_each(|node| drop(node.until("healthy: 3 of 3 bricks, n")));
    nodes.iter().for_each(|node| until(node, ALL));
    let beside = scratch.join("second");
    let second = ["cluster", "create", "prod", "--data", text(&beside), "--size", "4G"];
    refused(two, &second, &right, &["another cluster has this name"]);
    assert_eq!((recovered(one), etcd.keys().len()), (0, 8), "a name, the whole, three members, of which all run");

    let leads = &nodes[leader(&nodes)];
    leads.machine.succeed(&["volume", "create", text(&leads.data), "home"]);
    let told = leads.machine.succeed(&["token", "create", text(&leads.data), "--volume", "home"]);
    desk.succeed(&["client", "join", &token_of(&told)]);
    let (first, later) = (scratch.directory("first"), scratch.directory("later"));
    desk.succeed(&["mount", "prod/home", text(&first)]);
    let there = desk.path(&first);
    write_all(&there, 0..20);

    // Without it: a failover, a new mount, and a start of all nodes.
    drop(etcd);
    nodes.iter().for_each(|node| until(node, Err("nobody listens")));
    let began = Instant::now();
    let mut served = [const { None::<Daemon> }; 3];
    loop {
        let lead = leader(&nodes);
        match served[lead].take() {
            Some(daemon) => daemon.kill(),
            None => nodes[lead].kill(),
        }
        write_all(&there, 20..40);
        served[lead] = Some(nodes[lead].serve());
        nodes.iter().for_each(|node| drop(node.until("healthy: 3 of 3 bricks, n")));
        check(&there, 0..40);
        if began.elapsed() >= outage() {
            break;
        }
    }
    desk.succeed(&["umount", text(&first)]);
    for (node, served) in nodes.iter().zip(served) {
        match served {
            Some(daemon) => drop(daemon.terminate()),
            None => drop(node.machine.succeed(&["down", text(&node.data)])),
        }
    }
    let mut daemons = nodes.each_ref().map(Node::serve).map(Some);
    nodes.iter().for_each(|node| drop(node.until("healthy: 3 of 3 bricks, n")));
    desk.succeed(&["mount", "prod/home", text(&later)]);
    let there = desk.path(&later);
    check(&there, 0..40);
    write_all(&there, 40..60);

    // Wiped, and full: nothing is written until somebody says so.
    let etcd = Etcd::start(&desk, &files, &scratch.join("etcd-2"), &["--quota-backend-bytes", "1"]);
    nodes.iter().for_each(|node| until(node, Err("recover-directory")));
    refused(two, &["cluster", "recover-directory", text(&two.data)], &[], &["etcd is full"]);
    drop(etcd);
    let etcd = Etcd::start(&desk, &files, &scratch.join("etcd-3"), &[]);
    nodes.iter().for_each(|node| until(node, Err("recover-directory")));
    assert_eq!(etcd.keys(), Vec::<String>::new());
    assert_eq!(recovered(two), 5);
    nodes.iter().for_each(|node| until(node, ALL));

    // A node that ends says so; one whose address is another one from now on is found by the others.
    drop(daemons[2].take().expect("it runs").terminate());
    until(one, Ok(&["n1", "n2"]));
    three.machine.ip("addr add 10.77.0.13/24 dev cable");
    three.machine.ip("addr del 10.77.0.3/24 dev cable");
    three.machine.ip("addr add 10.77.0.13/24 dev cable");
    refused(two, &["cluster", "move", text(&two.data), "10.77.0.22"], &[], &["a daemon serves"]);
    refused(three, &["cluster", "move", text(&three.data), "10.77.0.2"], &[], &["two have the address"]);
    let moved = three.machine.succeed(&["cluster", "move", text(&three.data), "10.77.0.13"]);
    assert!(moved.contains("the others learn it from etcd"), "{moved}");
    daemons[2] = Some(three.serve());
    nodes.iter().for_each(|node| drop(node.until("healthy: 3 of 3 bricks, n")));
    nodes.iter().for_each(|node| until(node, ALL));
    assert!(std::fs::read_to_string(one.data.join("cluster.json")).expect("there").contains("10.77.0.13:7401"));

    // Somebody else's keys in the cluster's place are left alone.
    let keys = etcd.keys();
    let meta = keys.iter().find(|key| key.ends_with("/meta")).expect("it is there");
    etcd.ask(&["put", meta, r#"{"name":"test","nodes":3}"#]).expect("it answers");
    until(one, Err("something else in the place of this cluster"));
    refused(one, &["cluster", "recover-directory", text(&one.data)], &[], &["something else"]);
    write_all(&there, 60..80);
    check(&there, 0..80);
    desk.succeed(&["umount", text(&later)]);
    daemons.into_iter().flatten().for_each(|daemon| drop(daemon.terminate()));
}
