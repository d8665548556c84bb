//! The command line of `sinter cluster`.

use super::{
    MEMORY_BYTES_MAX, MEMORY_BYTES_MIN, Transport, address, brick_bytes, bytes_within, client_name, memory_bytes,
};
use clap::{Args, Subcommand, value_parser};
use std::path::PathBuf;

/// The processes that share the memory: three nodes and the mount.
pub const PROCESSES: u64 = 4;

/// `sinter cluster`.
#[derive(Subcommand, Debug)]
pub enum ClusterCommand {
    /// Make a cluster of which this machine's brick is the first node, start it, and print the command by which the others join
    Create(Create),
    /// Make a brick on this machine, let it join a cluster with a token, and start it
    Join(ClusterJoin),
    /// Run three bricks on this machine that replicate each other, and mount their volume `default`, until SIGINT, SIGTERM or an
    /// unmount; makes the bricks on first use
    Dev(Dev),
    /// Tell which nodes of a cluster are there, which one leads, and whether it outlasts a failure: exit code 1 if not
    Status(ClusterStatus),
    /// Tell the other nodes, by etcd, that this one has another address from its next start on; its daemon must not run
    Move(ClusterMove),
    /// Write what a node knows of its cluster into an etcd that has lost it, or is another one, and have the node use it from now on
    RecoverDirectory(RecoverDirectory),
}

/// `sinter cluster create`.
#[derive(Args, Debug)]
pub struct Create {
    /// Name of the cluster, by which clients call it: 1 to 64 letters, digits, dots, dashes and underscores
    #[arg(value_parser = client_name)]
    pub cluster: String,
    /// Number of nodes (a count), 3 to 5: the volumes are there once all have joined, and as long as more than half of them run
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u8).range(3..=5), default_value_t = 3)]
    pub nodes: u8,
    /// The node
    #[command(flatten)]
    pub node: NewNode,
    /// The etcd
    #[command(flatten)]
    pub etcd: EtcdOptions,
}

/// The way to etcd.
#[derive(Args, Debug, Clone)]
pub struct EtcdOptions {
    /// Endpoints of an etcd in which the nodes announce their addresses, each http://HOST:PORT or https://HOST:PORT, with commas between them [default: none, the nodes know each other from their own files]
    #[arg(long, value_name = "ENDPOINTS", value_delimiter = ',')]
    pub etcd: Vec<String>,
    /// File of the authorities of etcd's certificates, in PEM; read again when it is needed, as are the other two [default: those that the system trusts]
    #[arg(long, value_name = "FILE", requires = "etcd")]
    pub etcd_ca: Option<PathBuf>,
    /// File of the certificate with which this node comes to etcd, in PEM [default: it comes without]
    #[arg(long, value_name = "FILE", requires = "etcd_key")]
    pub etcd_cert: Option<PathBuf>,
    /// File of that certificate's key, in PEM [default: none, it goes with the certificate]
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    pub etcd_key: Option<PathBuf>,
}

/// `sinter cluster move`.
#[derive(Args, Debug)]
pub struct ClusterMove {
    /// Directory of the node's brick
    pub data: PathBuf,
    /// Address at which clients will reach this machine, HOST:PORT or HOST, port 7400 unless said; the other nodes reach it at the next port
    #[arg(value_parser = address)]
    pub address: String,
    /// Name of the node that moves, to tell another node of it where there is no etcd [default: the node of this brick]
    #[arg(long, value_name = "NAME", value_parser = client_name)]
    pub node: Option<String>,
    /// Print JSON [default: the next command]
    #[arg(long)]
    pub json: bool,
}

/// `sinter cluster recover-directory`.
#[derive(Args, Debug)]
pub struct RecoverDirectory {
    /// Directory of a node's brick; its daemon may run
    pub data: PathBuf,
    /// The etcd
    #[command(flatten)]
    pub etcd: EtcdOptions,
    /// Print JSON [default: a line]
    #[arg(long)]
    pub json: bool,
}

/// `sinter cluster join`.
#[derive(Args, Debug)]
pub struct ClusterJoin {
    /// The token, as `sinter cluster create` printed it; `-`: a line of standard input
    pub token: String,
    /// The node
    #[command(flatten)]
    pub node: NewNode,
    /// The etcd
    #[command(flatten)]
    pub etcd: EtcdOptions,
}

/// A node that is to be made.
#[derive(Args, Debug)]
pub struct NewNode {
    /// Directory of the node's brick; made if only its last component is missing [default: none, it must be given]
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Name of the node: 1 to 64 letters, digits, dots, dashes and underscores [default: the host's name]
    #[arg(long, value_name = "NAME", value_parser = client_name)]
    pub name: Option<String>,
    /// Address at which clients reach this machine, HOST:PORT or HOST, port 7400 unless said; the other nodes reach it at the next port [default: this machine's first address]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub address: Option<String>,
    /// Size of the brick in bytes, at least 4G and at most 1024T; the nodes should have the same [default: 80% of the free space]
    #[arg(long, value_name = "BYTES", value_parser = brick_bytes)]
    pub size: Option<u64>,
    /// Memory for everything in bytes, 256M to 1T [default: 25% of the machine's or the control group's, 256M at least]
    #[arg(long, value_name = "BYTES", value_parser = memory_bytes)]
    pub memory_max: Option<u64>,
    /// Print JSON [default: the next command]
    #[arg(long)]
    pub json: bool,
}

/// `sinter cluster dev`.
#[derive(Args, Debug)]
pub struct Dev {
    /// Directory of the cluster, with its bricks, sockets and logs; made if only its last component is missing
    pub directory: PathBuf,
    /// Directory at which the volume appears
    pub mount: PathBuf,
    /// Size of each new brick in bytes, at least 4G and at most 1024T [default: a third of 80% of the free space]
    #[arg(long, value_name = "BYTES", value_parser = brick_bytes)]
    pub size: Option<u64>,
    /// Memory for everything, which its four processes share, in bytes, 1G to 1T [default: 25% of the machine's or the control group's, 1G at least]
    #[arg(long, value_name = "BYTES", value_parser = memory_of_all)]
    pub memory_max: Option<u64>,
    /// Run an etcd beside the nodes, in which they announce themselves (Debian's package etcd-server) [default: no etcd]
    #[arg(long)]
    pub etcd: bool,
    /// Transport of the kernel's requests, to measure and to test [default: auto, which takes what measured faster]
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Transport::Auto, hide = true)]
    pub transport: Transport,
}

/// `sinter cluster status`.
#[derive(Args, Debug)]
pub struct ClusterStatus {
    /// Directory of the cluster, or of a node's brick: then as that node sees it
    pub directory: PathBuf,
    /// Print JSON [default: a line and a table]
    #[arg(long)]
    pub json: bool,
}

/// Reads the bound of the memory of all processes.
fn memory_of_all(text: &str) -> Result<u64, String> {
    bytes_within(text, PROCESSES * MEMORY_BYTES_MIN, MEMORY_BYTES_MAX)
}
