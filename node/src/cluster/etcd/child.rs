//! An etcd of one member as a child process, for a cluster on one machine.
//!
//! Promises: it listens on this machine alone, and does not outlive its starter. Absent by design: another start after its end, so that one
//! can kill it and see that the cluster serves on.

use super::super::config::Cluster;
use super::super::dev::brick;
use super::{Access, register};
use crate::daemon::say;
use crate::directory;
use crate::failure::{Exit, Failure};
use crate::host::{self, Process};
use base::Error;
use runtime::real::{Access as Opening, Directory};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The directory of its data in the cluster's, and the file of its log.
const DIRECTORY: &str = "etcd";
const LOG: &str = "etcd.log";
/// Time for its start, which takes about a second, and the pause between looks.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(100);
/// Time for its end.
const END: Duration = Duration::from_secs(5);

/// The process.
pub struct Etcd(Child);

impl Etcd {
    /// True if a cluster's directory has the data of one.
    pub fn is_in(directory: &Directory) -> bool {
        directory.path().join(DIRECTORY).is_dir()
    }
    /// Starts it, has it know the cluster, and has each node use it.
    pub fn start(directory: &Directory, cluster: &Cluster) -> Result<Etcd, Failure> {
        let failed = |error: Error| Failure::of("can't start etcd", &error);
        let data = directory::make(&directory.path().join(DIRECTORY))?;
        let log = directory::named_file(&directory.path().join(LOG), Opening::Append).map_err(failed)?;
        let both = log.try_clone().map_err(|error| Failure::io("can't start etcd", &error))?;
        let [clients, peers] = [free_port()?, free_port()?].map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(data.path()).args(["--name", "sinter", "--logger", "zap"]);
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("sinter={peers}")]);
        command.current_dir("/").stdin(Stdio::null()).stdout(log).stderr(both);
        host::ending_with_its_starter(&mut command);
        let child = command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                let failure = Failure::new(Exit::Failed, "there is no etcd on this machine");
                failure.next("install it (Debian: apt install etcd-server), or leave --etcd out")
            }
            _ => Failure::io("can't start etcd", &error),
        })?;
        let etcd = Etcd(child);
        let access = Access::new(std::slice::from_ref(&clients), [None; 3]).map_err(failed)?;
        let began = Instant::now();
        while let Err(error) = register(&access, cluster) {
            if began.elapsed() > PATIENCE {
                let shown = directory.path().join(LOG).display().to_string();
                etcd.end();
                return Err(failed(error).next(format!("look at its log: {shown}")));
            }
            std::thread::sleep(PAUSE);
        }
        for node in &cluster.nodes {
            let there = Directory::open(&brick(directory, node)).and_then(|there| access.write(&there));
            there.map_err(failed)?;
        }
        say(&format!("etcd at {clients}"));
        Ok(etcd)
    }
    /// Ends it.
    pub fn end(mut self) {
        if let Ok(Some(process)) = Process::of(self.0.id()) {
            // It may have ended already; what it has not done within its time is of no use to anybody.
            drop(process.terminate());
            if !process.ends_within(END).unwrap_or(false) {
                drop(process.kill());
            }
        }
        drop(self.0.wait());
    }
}

/// A port of this machine that nobody uses now. Somebody may take it before etcd does: then etcd does not start, and says so.
fn free_port() -> Result<u16, Failure> {
    let failed = |error: std::io::Error| Failure::io("no port is free for etcd", &error);
    Ok(TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).map_err(failed)?.port())
}
