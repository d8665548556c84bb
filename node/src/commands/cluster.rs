//! `sinter cluster`: a cluster on this machine.

use super::brick::{become_daemon, mount_point, refuse_inside};
use super::{etcd as etcd_commands, print, print_json, start};
use crate::admin::client::Client;
use crate::admin::protocol::Request;
use crate::assembly;
use crate::backend::Backend;
use crate::cli::{
    ClusterCommand, ClusterJoin, ClusterStatus, Create, Dev, Geometry, MEMORY_BYTES_MIN, NewNode, PROCESSES,
    VOLUME_DEFAULT,
};
use crate::cluster::dev::{Home, brick, existing};
use crate::cluster::etcd;
use crate::cluster::forming::{self, First};
use crate::cluster::state::{self, ClusterState, NodeState};
use crate::cluster::{Cluster, GROUPS, Member, Nodes};
use crate::daemon::{Running, Until, Ways, say};
use crate::directory;
use crate::failure::{Exit, Failure};
use crate::host::{self, Signals};
use crate::memory;
use crate::network::{own_hosts, with_port};
use crate::progress::Progress;
use crate::remote::{self, Wishes};
use crate::table::{Align, Table, count, duration};
use console::{Addresses, Listening};
use control::{Address, ClientName, Role, Token};
use front::fuse::{self, MountOptions};
use runtime::real::Directory;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};
use store::format::Uuid;

/// Time for the nodes to find one that leads once a majority serves their bricks.
const PATIENCE: Duration = Duration::from_secs(15);
/// Pause between attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// Runs `sinter cluster ...`.
pub fn run(command: &ClusterCommand) -> Result<Exit, Failure> {
    match command {
        ClusterCommand::Create(options) => create(options),
        ClusterCommand::Join(options) => join(options),
        ClusterCommand::Dev(options) => dev(options),
        ClusterCommand::Status(options) => status(options),
        ClusterCommand::Move(options) => etcd_commands::move_node(options),
        ClusterCommand::RecoverDirectory(options) => etcd_commands::recover(options),
    }
}

fn create(options: &Create) -> Result<Exit, Failure> {
    let cluster: ClientName = parsed(&options.cluster)?;
    // Looked at before anything is made.
    let etcd = etcd_commands::access(&options.etcd)?;
    if let Some(etcd) = &etcd {
        let free = etcd::check_name_is_free(etcd, cluster.as_str());
        free.map_err(|error| Failure::of(format!("can't make the cluster {cluster}"), &error))?;
    }
    let node = Making::start(&options.node, &format!("cluster {cluster}"))?;
    let (name, brick) = (node.name.clone(), node.brick);
    let first = First {
        cluster: &cluster,
        node: &name,
        brick,
        addresses: node.addresses.clone(),
        wanted: options.nodes.into(),
    };
    let token = forming::create(&node.data, &first, super::token::now_s())?.to_text();
    let more = etcd_commands::announce(&node.data, etcd.as_ref(), &options.etcd)?;
    node.serve(&options.node).map_err(|failure| {
        // Nobody else has the token.
        let data = node.data.path().display();
        failure.next(format!(
            "then start it with sinter serve {data}; on the others: sinter cluster join {token} --data DIR{more}"
        ))
    })?;
    let (address, others) = (&node.addresses.0, options.nodes - 1);
    if options.node.json {
        let told = serde_json::json!({ "cluster": cluster.to_string(), "node": name.to_string(),
                                       "address": address.to_string(), "nodes": options.nodes, "token": token });
        print_json(&told)?;
        return Ok(Exit::Done);
    }
    print(&format!(
        "{cluster}: {name} at {address} is the first of {} nodes. On each of the other {others} machines, within an hour:\n  \
         sinter cluster join {token} --data DIR{more}\nThe token is a secret. How far it is: sinter cluster status {}\n",
        options.nodes,
        options.node.data.display()
    ))?;
    Ok(Exit::Done)
}

fn join(options: &ClusterJoin) -> Result<Exit, Failure> {
    let failed = |error: base::Error| Failure::of("can't join", &error);
    let token: Token =
        super::client::read_token(&options.token)?.parse().map_err(|error| failed(error).exit(Exit::Usage))?;
    if token.role != Role::Server {
        let failure = Failure::new(Exit::Usage, "this is the token of a client");
        return Err(
            failure.next("sinter client join TOKEN; a node's token is the one that `sinter cluster create` printed")
        );
    }
    let etcd = etcd_commands::access(&options.etcd)?;
    if let Some(etcd) = &etcd {
        etcd::check_has_name(etcd, token.name.as_str()).map_err(failed)?;
    }
    let node = Making::start(&options.node, &format!("cluster {}", token.name))?;
    let cluster = forming::join(&node.data, token, (&node.name, node.brick), node.addresses.clone())?;
    if let Some(etcd) = etcd {
        etcd.write(&node.data).map_err(failed)?;
    }
    node.serve(&options.node)?;
    let (there, wanted) = (cluster.nodes.len(), cluster.wanted);
    let named = cluster.name.as_ref().map(ToString::to_string).unwrap_or_default();
    if options.node.json {
        let told = serde_json::json!({ "cluster": named, "node": node.name.to_string(),
                                       "address": node.addresses.0.to_string(), "nodes": wanted, "joined": there });
        print_json(&told)?;
        return Ok(Exit::Done);
    }
    let data = options.node.data.display();
    let next = match cluster.is_whole() {
        true => format!(
            "All are there. Whoever leads (sinter cluster status {data}) makes volumes: sinter volume create DATA NAME"
        ),
        false => format!("How far it is: sinter cluster status {data}"),
    };
    print(&format!("{} has joined {named}: {there} of {wanted} nodes. {next}\n", node.name))?;
    Ok(Exit::Done)
}

fn parsed(name: &str) -> Result<ClientName, Failure> {
    name.parse().map_err(|error| Failure::of("can't take this name", &error).exit(Exit::Usage))
}

/// A node that is being made: its brick is formatted.
struct Making {
    data: Directory,
    name: ClientName,
    brick: Uuid,
    /// The addresses where it serves clients, and where it listens for bricks.
    addresses: (Address, Address),
}

impl Making {
    fn start(options: &NewNode, what: &str) -> Result<Making, Failure> {
        host::make_files_private();
        let failed = |error: base::Error| Failure::of(format!("can't make a node of {what}"), &error);
        let name = match &options.name {
            Some(name) => parsed(name)?,
            None => crate::network::own_name().map_err(failed)?,
        };
        let addresses = addresses(options.address.as_deref()).map_err(failed)?;
        let data = directory::make(&options.data)?;
        if let Some(member) = Member::read(&data).map_err(failed)? {
            let named = member.cluster().name.as_ref().map(ToString::to_string).unwrap_or_default();
            let text = format!("{} is a brick of cluster {named} already", data.path().display());
            return Err(
                Failure::new(Exit::Failed, text).next(format!("start it: sinter serve {}", data.path().display()))
            );
        }
        let geometry = Geometry {
            size: options.size,
            segment_size: None,
            groups: Some(GROUPS),
            device: None,
            flash: Vec::new(),
            disk: Vec::new(),
        };
        let memory_max = options.memory_max.unwrap_or_else(memory::default_max_bytes);
        let progress = Progress::new("formatting", None);
        let brick = assembly::format_or_find(&data, &geometry, memory_max, &progress.tell())?;
        progress.clear();
        Ok(Making { data, name, brick, addresses })
    }
    /// Serves the brick in the background.
    fn serve(&self, options: &NewNode) -> Result<(), Failure> {
        let mut arguments: Vec<OsString> = vec!["serve".into(), self.data.path().into()];
        if let Some(bytes) = options.memory_max {
            arguments.extend(["--memory-max".into(), bytes.to_string().into()]);
        }
        start::daemon(&arguments, &self.data.path().display().to_string(), None)
    }
}

/// The addresses for clients, and for bricks at the next port.
pub(super) fn addresses(wanted: Option<&str>) -> base::Result<(Address, Address)> {
    let text = match wanted {
        Some(text) => text.to_string(),
        None => with_port(&own_hosts(false)?[0].to_string()),
    };
    let clients: Address = text.parse()?;
    let (host, port) = text.rsplit_once(':').expect("an address has a port");
    let next = port.parse::<u16>().ok().and_then(|port| port.checked_add(1));
    let next = next.ok_or_else(|| {
        base::Error::new(base::Kind::Invalid, "the port behind the last is none: give one below 65535").with(port)
    })?;
    Ok((clients, format!("{host}:{next}").parse()?))
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
    let has_etcd = options.etcd || etcd::Etcd::is_in(home.directory());
    let etcd = has_etcd.then(|| etcd::Etcd::start(home.directory(), &cluster)).transpose()?;
    let ran = Nodes::start(home.directory(), &cluster, memory_max).and_then(|nodes| {
        let ran = serve(options, (&home, &cluster, &nodes), &mount, memory_max, signals);
        // Comes after the unmount: what that has written back is on the nodes' devices.
        nodes.end();
        ran
    });
    etcd.into_iter().for_each(etcd::Etcd::end);
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
    let of_node = Directory::open(&options.directory).ok().and_then(|data| Member::read(&data).ok().flatten());
    let state = match of_node {
        Some(member) => state::ask_node(&options.directory, &member),
        None => {
            let (directory, cluster) = existing(&options.directory)?;
            state::ask(&directory, &cluster)
        }
    };
    let etcd = state.etcd.as_ref().map_or(String::new(), |etcd| format!("{}\n", state::told_of_etcd(etcd)));
    match options.json {
        true => print_json(&state)?,
        false if state.nodes.is_empty() => print(&format!("{}\n", state.health))?,
        false => print(&format!("{}\n{etcd}\n{}", state.health, table(&state)))?,
    }
    Ok(if state.healthy { Exit::Done } else { Exit::Failed })
}

fn table(cluster: &ClusterState) -> String {
    let columns = [
        ("node", Align::Left),
        ("state", Align::Left),
        ("leads groups", Align::Right),
        ("term", Align::Right),
        ("committed", Align::Right),
        ("applied", Align::Right),
        ("acknowledges", Align::Right),
        ("process", Align::Right),
    ];
    let mut table = Table::new(&columns);
    for NodeState { name, state, pid, read_only, error, replica } in &cluster.nodes {
        let figure = |figure: Option<u64>| figure.map_or("-".to_string(), count);
        let replica = replica.as_ref();
        let told = match (read_only, error) {
            (Some(why), _) => format!("{}: takes no changes: {why}", state.name()),
            (None, Some(why)) => format!("{}: {why}", state.name()),
            (None, None) => state.name().to_string(),
        };
        table.row(vec![
            name.clone(),
            told,
            replica.map_or("-".to_string(), |replica| format!("{} of {}", replica.leads_groups, replica.groups)),
            figure(replica.map(|replica| replica.term)),
            figure(replica.map(|replica| replica.committed)),
            figure(replica.map(|replica| replica.applied)),
            cluster.acknowledges_ns(name).map_or("-".to_string(), duration),
            pid.map_or("-".to_string(), |pid| pid.to_string()),
        ]);
    }
    table.render()
}
