//! Three bricks on one machine that replicate each other, as real processes: what was written is there whatever node is killed.

use crate::daemon::{Daemon, Scratch, eventually, fail, mounts_below, refused, run, sinter, succeed, text};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// Longest time for which programs wait when the node that leads is killed.
const STALL: Duration = Duration::from_secs(10);
/// Time for a node that was killed to be started again and to have what it lacks.
const RECOVERY: Duration = Duration::from_secs(60);

/// The nodes' names.
const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// A cluster's directory and a mount point.
struct Cluster {
    scratch: Scratch,
    directory: PathBuf,
    mount: PathBuf,
}

impl Cluster {
    fn new(name: &str) -> Cluster {
        let scratch = Scratch::new(name);
        let (directory, mount) = (scratch.join("c"), scratch.directory("mount"));
        Cluster { scratch, directory, mount }
    }
    fn up(&self) -> Daemon {
        Daemon::start(self.command())
    }
    fn command(&self) -> std::process::Command {
        let mut command = sinter();
        command.args(["cluster", "dev"]).arg(&self.directory).arg(&self.mount);
        command.args(["--size", "4G", "--memory-max", "1G"]);
        command
    }
    /// Starts it once with more options, and ends it.
    fn up_with(&self, more: &[&str]) {
        let mut command = self.command();
        command.args(more);
        Daemon::start(command).terminate();
    }
    fn node(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
    /// The answer of `cluster status`, whose exit code says whether the cluster is healthy, too.
    fn status(&self) -> serde_json::Value {
        let output = run(&["cluster", "status", text(&self.directory), "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(output.status.success(), status["healthy"].as_bool().expect("it says so"), "{status}");
        status
    }
    /// The processes of the nodes: the one that leads, and the others.
    fn processes(&self) -> (u32, Vec<u32>) {
        let status = self.status();
        let nodes = status["nodes"].as_array().expect("a list");
        let pid = |node: &serde_json::Value| node["pid"].as_u64().expect("it runs") as u32;
        let leads = |node: &&serde_json::Value| node["state"] == "leads";
        let leader = nodes.iter().find(leads).unwrap_or_else(|| panic!("nobody leads: {status}"));
        (pid(leader), nodes.iter().filter(|node| !leads(node)).map(pid).collect())
    }
    /// The node that leads.
    fn leader(&self) -> String {
        let status = self.status();
        status["leader"].as_str().unwrap_or_else(|| panic!("nobody leads: {status}")).to_string()
    }
    /// A node's figures, as text of JSON.
    fn snapshot(&self, name: &str) -> String {
        let file = self.scratch.join("snapshot");
        succeed(&["profile", text(&self.node(name)), "--save", text(&file)]);
        fs::read_to_string(file).expect("just written")
    }
    /// Waits until what `cluster status` says begins with this.
    fn until(&self, health: &str) -> serde_json::Value {
        eventually(RECOVERY, || is_so(self.status(), health))
    }
}

/// The state of a cluster if its health begins with this, or else what it is.
pub fn is_so(status: serde_json::Value, health: &str) -> Result<serde_json::Value, String> {
    match status["health"].as_str().is_some_and(|told| told.starts_with(health)) {
        true => Ok(status),
        false => Err(format!("{health}: {status}")),
    }
}

fn signal(name: &str, pid: u32) {
    crate::daemon::system("kill", &[&format!("-{name}"), &pid.to_string()]);
}

fn content(number: usize) -> Vec<u8> {
    (0..20_000).map(|at| (at * 7 + number * 13) as u8).collect()
}

/// Writes a file durably; the time that it took.
fn write(mount: &Path, number: usize) -> Duration {
    let began = Instant::now();
    let mut file = File::create(mount.join(format!("file-{number}"))).expect("the mount takes it");
    file.write_all(&content(number)).and_then(|()| file.sync_all()).expect("durable");
    began.elapsed()
}

/// Writes files durably; the longest time that one took.
fn write_all(mount: &Path, numbers: std::ops::Range<usize>) -> Duration {
    numbers.map(|number| write(mount, number)).max().unwrap_or_default()
}

fn check(mount: &Path, numbers: std::ops::Range<usize>) {
    assert_eq!(fs::read_dir(mount).expect("it is mounted").count(), numbers.end);
    for number in numbers {
        let found = fs::read(mount.join(format!("file-{number}"))).expect("it was written");
        assert!(found == content(number), "file {number} is not as it was written");
    }
}

#[test]
fn files_outlast_the_node_that_leads_and_an_end() {
    let cluster = Cluster::new("cluster");
    let daemon = cluster.up();
    assert!(daemon.ready.starts_with("ready: volume default at "), "{}", daemon.ready);
    cluster.until("healthy: 3 of 3 bricks, n");
    write_all(&cluster.mount, 0..100);

    let (leader, others) = cluster.processes();
    let (first, before) = (cluster.leader(), NODES.map(|name| cluster.snapshot(name)));
    signal("KILL", leader);
    let stall = write_all(&cluster.mount, 100..200);
    println!("the longest write took {} ms", stall.as_millis());
    tells_who_led(&cluster, &first, &before);
    assert!(stall < STALL, "{stall:?}");
    cluster.until("healthy: 3 of 3 bricks, n");
    let (next, _) = cluster.processes();
    assert!(others.contains(&next), "another one leads, or was started anew since");
    check(&cluster.mount, 0..200);
    tells_what_others_take(&cluster);

    // A node that hangs is away, and its place is not taken.
    let (_, others) = cluster.processes();
    signal("STOP", others[0]);
    cluster.until("no further failure tolerated: n");
    write_all(&cluster.mount, 200..220);
    signal("CONT", others[0]);
    cluster.until("healthy: 3 of 3 bricks, n");

    let errors = daemon.terminate();
    assert!(errors.contains("was killed by signal 9") && errors.contains("started again in 1 s"), "{errors}");
    assert!(mounts_below(cluster.scratch.path()).is_empty());
    let status = cluster.until("no majority: n1, n2 and n3 are away");
    assert!(status["nodes"].as_array().expect("a list").iter().all(|node| node["state"] == "away"), "{status}");

    let daemon = cluster.up();
    check(&cluster.mount, 0..220);
    write_all(&cluster.mount, 220..221);
    // An unmount ends it too.
    succeed(&["umount", text(&cluster.mount)]);
    let (status, errors) = daemon.wait();
    assert_eq!(status.code(), Some(0), "{errors}");
    // With etcd beside it, from then on without being asked for; it may be killed.
    let is_announced = || {
        let told = cluster.status()["etcd"].clone();
        if told["nodes"] == serde_json::json!(NODES) { Ok(told) } else { Err(told.to_string()) }
    };
    cluster.up_with(&["--etcd"]);
    let daemon = cluster.up();
    check(&cluster.mount, 0..221);
    let told = eventually(RECOVERY, is_announced);
    let endpoint = told["endpoints"][0].as_str().expect("an address").to_string();
    crate::daemon::system("pkill", &["-KILL", "-f", &format!("etcd.*{endpoint}")]);
    let is_missed = || {
        let told = cluster.status();
        match told["etcd"]["error"].as_str() {
            Some(error) if error.contains("nobody listens") && told["healthy"] == true => Ok(()),
            _ => Err(told.to_string()),
        }
    };
    eventually(RECOVERY, is_missed);
    write_all(&cluster.mount, 221..230);
    daemon.terminate();
}

/// The node that leads now knows that another one did, and that there was a time without anybody.
fn tells_who_led(cluster: &Cluster, first: &str, before: &[String; 3]) {
    let next = cluster.leader();
    assert_ne!(next, first, "it was killed");
    let at = NODES.iter().position(|name| *name == next).expect("one of them");
    let file = cluster.scratch.join("snapshots");
    fs::write(&file, format!("[{},{}]", before[at], cluster.snapshot(&next))).expect("writable");
    let told = succeed(&["explain", "--from", text(&file)]);
    println!("{told}");
    assert!(told.contains(&format!("interrupted: {first}, then {next}")), "{told}");
    assert!(told.contains(&format!("  {first} led before, in term ")), "{told}");
    assert!(told.contains(&format!("  next: look at {first}, which led before")), "{told}");
}

/// The node that leads has the waits for other nodes in its account, and knows how long each one takes.
fn tells_what_others_take(cluster: &Cluster) {
    let status = cluster.status();
    let nodes = status["nodes"].as_array().expect("a list");
    let leads = nodes.iter().find(|node| node["state"] == "leads").expect("one does");
    let peers = leads["replica"]["peers"].as_array().expect("a list");
    let sum = |name: &str| peers.iter().map(|peer| peer[name].as_u64().expect("a number")).sum::<u64>();
    assert!(sum("acknowledged") > 100 && sum("acknowledged_ns") > 0 && sum("needed") > 100, "{peers:?}");
    let brick = cluster.node(leads["name"].as_str().expect("a name"));
    let profile = succeed(&["profile", text(&brick)]);
    let stages = profile.lines().filter_map(|line| line.trim_start().strip_prefix("peer "));
    let count = |line: &str| line.split_whitespace().next()?.replace(',', "").parse::<u64>().ok();
    assert!(stages.filter_map(count).sum::<u64>() > 100, "files were made: {profile}");
}

/// The numbers of groups that the nodes lead, by node.
fn led(status: &serde_json::Value) -> Vec<u64> {
    let nodes = status["nodes"].as_array().expect("a list");
    nodes.iter().map(|node| node["replica"]["leads_groups"].as_u64().unwrap_or_default()).collect()
}

/// The group of a file, which is in its inode number.
fn group_of(path: &Path) -> u64 {
    fs::metadata(path).expect("it is there").ino() & 0xf_ffff
}

#[test]
fn all_nodes_serve_files_and_what_others_lead_goes_on_while_one_is_stopped() {
    let cluster = Cluster::new("several");
    let _daemon = cluster.up();
    let all_lead_two = || match led(&cluster.status()) {
        led if led == [2, 2, 2] => Ok(()),
        led => Err(format!("groups that the nodes lead: {led:?}")),
    };
    eventually(RECOVERY, all_lead_two);
    let dir = |number: usize| cluster.mount.join(format!("dir-{number}"));
    (0..12).for_each(|number| fs::create_dir(dir(number)).expect("the mount takes it"));
    let groups: BTreeSet<u64> = (0..12).map(|number| group_of(&dir(number))).collect();
    assert!(groups.len() > 2, "directories below the top are spread: {groups:?}");
    write(&dir(0), 0);
    for number in 1..12 {
        fs::rename(dir(number - 1).join("file-0"), dir(number).join("file-0")).expect("it moves");
        check(&dir(number), 0..1);
        assert_eq!(fs::read_dir(dir(number - 1)).expect("it is there").count(), 0);
    }
    // Who leads the first group is left alone, so that the root can be looked up.
    let status = cluster.status();
    let is_other = |node: &&serde_json::Value| node["state"] == "follows";
    let stopped = status["nodes"].as_array().and_then(|nodes| nodes.iter().find(is_other)).expect("two follow");
    let pid = stopped["pid"].as_u64().expect("it runs") as u32;
    signal("STOP", pid);
    let began = Instant::now();
    let took: Vec<Duration> = thread::scope(|scope| {
        let writers: Vec<_> = (0..12).map(|number| (number, dir(number))).collect();
        let write = |(number, dir): (usize, PathBuf)| scope.spawn(move || write(&dir, 100 + number));
        let writers: Vec<_> = writers.into_iter().map(write).collect();
        writers.into_iter().map(|writer| writer.join().expect("it writes")).collect()
    });
    signal("CONT", pid);
    let quick = took.iter().filter(|took| **took < Duration::from_secs(1)).count();
    assert!(quick >= 3, "files of groups that others lead are written at once: {took:?}");
    assert!(began.elapsed() < STALL, "the others lead its groups soon: {took:?}");
    for number in 0..12 {
        let found = fs::read(dir(number).join(format!("file-{}", 100 + number))).expect("it was written");
        assert!(found == content(100 + number), "in {number}");
    }
    eventually(RECOVERY, all_lead_two);
}

/// The nodes end with the command, even if that is killed, and nothing is lost.
#[test]
fn a_command_that_is_killed_leaves_no_nodes_behind() {
    let cluster = Cluster::new("orphans");
    let daemon = cluster.up();
    write_all(&cluster.mount, 0..10);
    let (leader, others) = cluster.processes();
    daemon.kill();
    let began = Instant::now();
    for pid in others.into_iter().chain([leader]) {
        while Path::new(&format!("/proc/{pid}")).exists() {
            assert!(began.elapsed() < RECOVERY, "a node goes on without its starter");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let daemon = cluster.up();
    check(&cluster.mount, 0..10);
    daemon.terminate();
}

#[test]
fn a_brick_of_a_cluster_is_never_used_alone() {
    let cluster = Cluster::new("alone");
    let daemon = cluster.up();
    let (directory, n1) = (text(&cluster.directory), cluster.node("n1"));
    let elsewhere = cluster.scratch.directory("elsewhere");
    let elsewhere = text(&elsewhere);
    fail(&["mount", text(&n1), "default", elsewhere], 1, &["no mounts of its own", "sinter mount DIR"]);
    // Two clients have the cluster's volumes, each its own.
    let leads = cluster.status()["leader"].as_str().expect("one leads").to_string();
    succeed(&["volume", "create", text(&cluster.node(&leads)), "other"]);
    succeed(&["mount", directory, "other", elsewhere]);
    fs::write(Path::new(elsewhere).join("seen"), "yes").expect("writable");
    assert!(!cluster.mount.join("seen").exists());
    succeed(&["umount", elsewhere]);
    // A node tells how it sees the cluster.
    assert!(succeed(&["cluster", "status", text(&n1)]).starts_with("healthy: 3 of 3 bricks, n"));
    fail(&["cluster", "status", elsewhere], 2, &["no cluster's directory"]);
    let mut second = sinter();
    second.args(["cluster", "dev", directory, elsewhere]).stdin(Stdio::null());
    refused(&second.output().expect("the binary runs"), 3, &["another process runs", "sinter down"], "a second one");
    daemon.terminate();

    fail(&["up", text(&n1), elsewhere], 1, &["node n1", "can't be used alone"]);
    fail(&["volume", "list", text(&n1)], 1, &["node n1", "can't be used alone"]);
    fail(&["check", text(&n1), "--repair"], 2, &["node n1", "can't be used alone"]);
    // Without its file it is still one of several.
    let file = n1.join("cluster.json");
    let kept = fs::read(&file).expect("it is there");
    fs::remove_file(&file).expect("it is there");
    fail(&["serve", text(&n1)], 1, &["replicate each other", "cluster.json is gone"]);
    fail(&["up", text(&n1), elsewhere], 1, &["cluster.json is gone"]);
    fs::copy(cluster.node("n2").join("cluster.json"), &file).expect("writable");
    fail(&["serve", text(&n1)], 1, &["another than its file"]);
    fs::write(&file, "{").expect("writable");
    fail(&["serve", text(&n1)], 1, &["not as Sinter writes it"]);
    fs::write(&file, kept).expect("writable");
    cluster.up().terminate();
}
