//! `sinter cluster`: a cluster on this machine.

use super::brick::{become_daemon, mount_point, refuse_inside};
use super::{print, print_json};
use crate::admin::client::Client;
use crate::admin::protocol::Request;
use crate::backend::Backend;
use crate::cli::{ClusterCommand, ClusterStatus, Dev, MEMORY_BYTES_MIN, PROCESSES, VOLUME_DEFAULT};
use crate::cluster::dev::{Home, brick, existing};
use crate::cluster::state::{self, ClusterState, NodeState};
use crate::cluster::{Cluster, Nodes};
use crate::daemon::{Running, Until, Ways, say};
use crate::failure::{Exit, Failure};
use crate::host::{self, Signals};
use crate::memory;
use crate::remote::{self, Wishes};
use crate::table::{Align, Table, count};
use console::{Addresses, Listening};
use front::fuse::{self, MountOptions};
use runtime::real::Directory;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time for the nodes to find one that leads once a majority serves their bricks.
const PATIENCE: Duration = Duration::from_secs(15);
/// Pause between attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// Runs `sinter cluster ...`.
pub fn run(command: &ClusterCommand) -> Result<Exit, Failure> {
    match command {
        ClusterCommand::Dev(options) => dev(options),
        ClusterCommand::Status(options) => status(options),
    }
}

fn dev(options: &Dev) -> Result<Exit, Failure> {
    let memory_max = share_of_memory(options.memory_max);
    let signals = become_daemon()?;
    // Looked at before anything is made.
    let mount = mount_point(&options.mount)?;
    host::check_may_mount().map_err(|error| Failure::of("can't mount", &error))?;
    fuse::check(&mount).map_err(|error| Failure::of(format!("can't mount at {}", mount.display()), &error))?;
    host::check_address_space(memory_max).map_err(|error| Failure::of("can't start", &error))?;
    let home = Home::open(&options.directory)?;
    refuse_inside(home.directory().path(), &mount)?;
    let cluster = home.cluster(options.size, memory_max)?;
    if host::is_not_empty(&mount) {
        say(&format!("what {} holds is hidden while the volume is mounted there", mount.display()));
    }
    let nodes = Nodes::start(home.directory(), &cluster, memory_max)?;
    let ran = serve(options, (&home, &cluster, &nodes), &mount, memory_max, signals);
    // Comes after the unmount: what that has written back is on the nodes' devices.
    nodes.end();
    ran.map(|()| Exit::Done)
}

/// The bytes of memory that each process gets.
fn share_of_memory(wanted: Option<u64>) -> u64 {
    (wanted.unwrap_or_else(memory::default_max_bytes) / PROCESSES).max(MEMORY_BYTES_MIN)
}

/// Mounts the cluster's volume and serves it until it is unmounted, or somebody asks for the end.
fn serve(
    options: &Dev,
    (home, cluster, nodes): (&Home, &Cluster, &Nodes),
    mount: &Path,
    memory_max: u64,
    signals: Signals,
) -> Result<(), Failure> {
    let directory = home.directory();
    if !has_volume((directory, cluster, nodes), &signals)? {
        say("asked to end before the cluster served: ending");
        return Ok(());
    }
    let remote = remote::open_here(cluster, directory, VOLUME_DEFAULT, Wishes::default(), memory_max)?;
    let state = remote.directory().clone();
    let listening = Listening::at(&Addresses::default()).expect("no address is asked for");
    let backend = (Backend::Remote(remote), Ways::default());
    let running = Running::start(backend, &state, options.transport, signals, listening)?;
    let source = directory.path().display().to_string();
    let wanted = MountOptions { path: mount.to_path_buf(), source, restrictions: Vec::new(), shares: true };
    match running.daemon().mount(VOLUME_DEFAULT, &wanted) {
        Ok(mounted) => {
            let (path, number) = (mounted.path(), mounted.number);
            drop(mounted);
            // Whoever started it may have stopped listening; the mount is what counts.
            drop(print(&running.ready(&format!("volume {VOLUME_DEFAULT} at {}", path.display()))));
            running.wait(Until::Unmounted(number));
            running.end()
        }
        Err(error) => {
            // The first failure is the one to tell.
            drop(running.end());
            Err(Failure::of(format!("can't mount volume {VOLUME_DEFAULT}"), &error))
        }
    }
}

/// Has whoever leads make the volume, if there is none; false, if somebody asked for the end meanwhile.
fn has_volume((directory, cluster, nodes): (&Directory, &Cluster, &Nodes), signals: &Signals) -> Result<bool, Failure> {
    let (mut since, mut last) = (Instant::now(), None);
    loop {
        for node in &cluster.nodes {
            match make_volume(&brick(directory, node)) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(failure) => last = Some(failure),
            }
        }
        // Bricks that replay their logs take their time.
        if nodes.are_starting(cluster.majority()) {
            since = Instant::now();
        }
        if since.elapsed() > PATIENCE {
            let told = state::ask(directory, cluster).health;
            let why = last.map_or(String::new(), |failure: Failure| format!(" ({failure})"));
            let failure = Failure::new(Exit::Failed, format!("the cluster does not serve: {told}{why}"));
            return Err(failure.next(format!("look at the nodes' logs: {}/*.log", directory.path().display())));
        }
        let comes = signals.comes_within(PAUSE);
        if comes.map_err(|error| Failure::io("can't watch for signals", &error))? {
            return Ok(false);
        }
    }
}

/// Asks a node for the volume, and to make it if there is none. False: it is not there yet. Errors: it can't tell, since it does not lead.
fn make_volume(brick: &Path) -> Result<bool, Failure> {
    let Some(mut client) = Client::connect(brick)? else { return Ok(false) };
    let name = VOLUME_DEFAULT.to_string();
    if client.ask(&Request::VolumeInfo { name: name.clone() }).is_ok() {
        return Ok(true);
    }
    client.ask(&Request::VolumeCreate { name, size_bytes: None }).map(|_| true)
}

fn status(options: &ClusterStatus) -> Result<Exit, Failure> {
    let (directory, cluster) = existing(&options.directory)?;
    let state = state::ask(&directory, &cluster);
    match options.json {
        true => print_json(&state)?,
        false => print(&format!("{}\n\n{}", state.health, table(&state)))?,
    }
    Ok(if state.healthy { Exit::Done } else { Exit::Failed })
}

fn table(state: &ClusterState) -> String {
    let columns = [
        ("node", Align::Left),
        ("state", Align::Left),
        ("term", Align::Right),
        ("committed", Align::Right),
        ("applied", Align::Right),
        ("process", Align::Right),
    ];
    let mut table = Table::new(&columns);
    for NodeState { name, state, pid, read_only, replica } in &state.nodes {
        let figure = |figure: Option<u64>| figure.map_or("-".to_string(), count);
        let replica = replica.as_ref();
        let told = match read_only {
            Some(why) => format!("{}: takes no changes: {why}", state.name()),
            None => state.name().to_string(),
        };
        table.row(vec![
            name.clone(),
            told,
            figure(replica.map(|replica| replica.term)),
            figure(replica.map(|replica| replica.committed)),
            figure(replica.map(|replica| replica.applied)),
            pid.map_or("-".to_string(), |pid| pid.to_string()),
        ]);
    }
    table.render()
}
