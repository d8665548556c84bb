//! The nodes of a cluster on one machine, as processes of this one, each of which serves a brick.
//!
//! Promises: a node that ends unasked is started again, and that is said; none outlives this process. Absent by design: what a node does.

use super::config::{Cluster, Place};
use super::dev::brick;
use crate::daemon::say;
use crate::directory;
use crate::failure::{Exit, Failure};
use crate::host::{self, Process};
use runtime::real::{Access, Directory};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause before a node that has served is started again, as service managers make one.
const PAUSE: Duration = Duration::from_secs(1);
/// The same of one that did not come to serve: what hinders it seldom passes in a second.
const LONG_PAUSE: Duration = Duration::from_secs(10);
/// Time for a node's end, in which it makes a checkpoint. What is durable is so without.
const END: Duration = Duration::from_secs(60);
/// Time between two looks at a node that runs; its end is seen at once.
const WATCH: Duration = Duration::from_secs(3600);

/// The nodes.
pub struct Nodes {
    nodes: Vec<(Arc<Node>, JoinHandle<()>)>,
}

/// A node, and who watches its process.
struct Node {
    name: String,
    brick: PathBuf,
    log: PathBuf,
    memory_max: u64,
    state: Mutex<State>,
    /// Notified when the node is to end.
    ending: Condvar,
}

#[derive(Default)]
struct State {
    is_ending: bool,
    /// It has said that it serves.
    is_ready: bool,
    process: Option<Arc<Process>>,
}

impl Nodes {
    /// Starts the nodes of a cluster. `memory_max`: bytes for each.
    pub fn start(directory: &Directory, cluster: &Cluster, memory_max: u64) -> Result<Nodes, Failure> {
        let mut nodes = Nodes { nodes: Vec::new() };
        for node in &cluster.nodes {
            let Place { name, .. } = node;
            let node = Arc::new(Node {
                name: name.clone(),
                brick: brick(directory, node),
                log: directory.path().join(format!("{name}.log")),
                memory_max,
                state: Mutex::default(),
                ending: Condvar::new(),
            });
            let there = node.clone();
            // The process ends with the thread that starts it.
            let spawned = std::thread::Builder::new().name(format!("node {name}")).spawn(move || there.run());
            match spawned {
                Ok(thread) => nodes.nodes.push((node, thread)),
                Err(error) => {
                    nodes.end();
                    return Err(Failure::io("can't start the nodes", &error));
                }
            }
        }
        Ok(nodes)
    }
    /// True while fewer than `count` nodes serve their bricks, and so many would if those did that are on their way.
    pub fn are_starting(&self, count: usize) -> bool {
        let of = |is: fn(&State) -> bool| self.nodes.iter().filter(|(node, _)| is(&node.state())).count();
        of(|state| state.is_ready) < count && of(|state| state.process.is_some()) >= count
    }
    /// Ends all nodes: each is asked to, and killed if it takes too long.
    pub fn end(self) {
        self.nodes.iter().for_each(|(node, _)| node.ask_to_end());
        let deadline = Instant::now() + END;
        for (node, thread) in self.nodes {
            let process = node.state().process.clone();
            let left = deadline.saturating_duration_since(Instant::now());
            if let Some(process) = process
                && !process.ends_within(left).unwrap_or(false)
            {
                say(&format!("node {} has not ended for {} s, and is killed", node.name, END.as_secs()));
                // It may have ended just now.
                drop(process.kill());
            }
            thread.join().expect("a thread that panics ends the process");
        }
    }
}

impl Node {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }
    fn ask_to_end(&self) {
        let mut state = self.state();
        state.is_ending = true;
        if let Some(process) = &state.process {
            // It may have ended already.
            drop(process.terminate());
        }
        self.ending.notify_all();
    }
    /// Runs the node's process again and again.
    fn run(&self) {
        loop {
            let (ended, pause) = match self.start() {
                Ok(None) => return,
                Ok(Some((child, process, heard))) => self.watch(child, &process, heard),
                Err(error) => (format!("can't be started: {error}"), LONG_PAUSE),
            };
            let state = self.state();
            if state.is_ending {
                return;
            }
            say(&format!("node {} {ended}; it is started again in {} s", self.name, pause.as_secs()));
            let slept = self.ending.wait_timeout_while(state, pause, |state| !state.is_ending);
            if slept.expect("no panic while held").0.is_ending {
                return;
            }
        }
    }
    /// Starts the process; None if it is to end. The length of its log before.
    fn start(&self) -> io::Result<Option<(Child, Arc<Process>, u64)>> {
        let mut log = directory::named_file(&self.log, Access::Append).map_err(io::Error::other)?;
        let heard = log.seek(SeekFrom::End(0))?;
        // An upgrade may have put another program in the place of this one: a node is of the version of the others.
        let own = std::env::current_exe().ok().filter(|own| own.exists());
        let mut command = Command::new(own.unwrap_or_else(|| "/proc/self/exe".into()));
        command.arg0("sinter").arg("serve").arg(&self.brick).args(["--memory-max", &self.memory_max.to_string()]);
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        // They are this process's.
        command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC").env_remove("WATCHDOG_PID");
        host::ending_with_its_starter(&mut command);
        // Held meanwhile: who asks it to end finds it, or keeps it from starting.
        let mut state = self.state();
        if state.is_ending {
            return Ok(None);
        }
        let mut child = command.spawn()?;
        let process = match Process::of(child.id()) {
            Ok(Some(process)) => Arc::new(process),
            other => {
                // Without a hold on it nobody could end it in order.
                drop(child.kill());
                drop(child.wait());
                return Err(other.err().unwrap_or_else(|| io::Error::from_raw_os_error(libc::ESRCH)));
            }
        };
        state.process = Some(process.clone());
        Ok(Some((child, process, heard)))
    }
    /// Waits for the end of the process: how it ended, and the pause before the next. `heard`: the length of its log before.
    fn watch(&self, mut child: Child, process: &Process, heard: u64) -> (String, Duration) {
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let was_ready = stdout.read_line(&mut line).is_ok() && line.starts_with("ready");
        self.state().is_ready = was_ready;
        while !process.ends_within(WATCH).unwrap_or(true) {}
        let status = child.wait();
        let mut state = self.state();
        (state.is_ready, state.process) = (false, None);
        drop(state);
        // The brick may be in use for a moment more, by a node whose starter was killed.
        let is_in_use = status.as_ref().is_ok_and(|status| status.code() == Some(Exit::InUse as i32));
        let pause = if was_ready || is_in_use { PAUSE } else { LONG_PAUSE };
        let mut how = status.map_or_else(|error| error.to_string(), told);
        if !was_ready && let Some(last) = self.said_since(heard) {
            how += &format!(" before it served: {last}");
        }
        (format!("{how} (log: {})", self.log.display()), pause)
    }
    /// The last line in the log behind its first `heard` bytes.
    fn said_since(&self, heard: u64) -> Option<String> {
        let mut file = directory::named_file(&self.log, Access::Read).ok()?;
        file.seek(SeekFrom::Start(heard)).ok()?;
        let mut said = String::new();
        file.read_to_string(&mut said).ok()?;
        said.lines().last().map(|line| line.trim_start_matches("sinter: ").to_string())
    }
}

/// `ended with exit code 4`, `was killed by signal 9`.
fn told(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_string(),
    }
}
