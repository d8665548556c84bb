//! Learning what the device's service usually is: once a second, from the transfers of that second. What was learned is kept
//! in a file of the brick's directory.

use super::kernel;
use super::signals::{cores, io, network, peers};
use base::checksum::crc32c;
use explain::causes::{Part, class_name, is_of_disks};
use explain::snapshot::{Io, Network, Peer, Process};
use explain::{Baseline, Snapshot, Times, Window};
use group::Groups;
use runtime::Runtime;
use runtime::real::{Access, Directory, Probe};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::Client;

/// The file's name.
pub const FILE: &str = "device-baseline";
/// The file's name while it is being written.
const NEW: &str = "device-baseline.new";
/// Interval between two looks: the classes' means are means of a second.
const LOOK: Duration = Duration::from_secs(1);
/// Interval at which what was learned is kept.
const KEEP: Duration = Duration::from_secs(60);
/// Most bytes of the file that are read: all classes with all their seconds have a fifth of it.
const BYTES_MAX: u64 = 4 << 20;

/// The world that is learned from.
struct World {
    runtime: Runtime,
    probe: Probe,
    /// The client, if it is one of a server.
    client: Option<Arc<Client>>,
    /// The brick's groups, if it has a brick.
    groups: Option<Arc<Groups>>,
}

struct Shared {
    baseline: Mutex<Baseline>,
    stopping: Mutex<bool>,
    bell: Condvar,
}

/// The thread that learns; it ends with `stop`.
pub struct Learner {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Learner {
    /// Starts to learn, from where the file left off. A file that is damaged counts as none.
    pub fn start(
        data: Directory,
        (runtime, probe): (Runtime, Probe),
        client: Option<Arc<Client>>,
        groups: Option<Arc<Groups>>,
    ) -> Learner {
        let baseline = Mutex::new(read(&data).unwrap_or_default());
        let shared = Arc::new(Shared { baseline, stopping: Mutex::new(false), bell: Condvar::new() });
        let (there, world) = (shared.clone(), World { runtime, probe, client, groups });
        let learn = move || {
            runtime::real::set_batch_policy();
            learn(&there, &data, &world);
        };
        // Without the thread nothing is learned, and `explain` says so.
        let thread = std::thread::Builder::new().name("sinter-learn".into()).spawn(learn).ok();
        Learner { shared, thread: Mutex::new(thread) }
    }
    /// The service learned so far.
    pub fn baseline(&self) -> Baseline {
        self.shared.baseline.lock().expect("no panic while held").clone()
    }
    /// Ends, and keeps what was learned.
    pub fn stop(&self) {
        *self.shared.stopping.lock().expect("no panic while held") = true;
        self.shared.bell.notify_all();
        let thread = self.thread.lock().expect("no panic while held").take();
        if let Some(thread) = thread {
            thread.join().expect("a thread that panics ends the process");
        }
    }
}

impl Drop for Learner {
    fn drop(&mut self) {
        self.stop();
    }
}

fn learn(shared: &Shared, data: &Directory, world: &World) {
    // None after a second without I/O: then nothing more is read.
    let (mut before, mut seen) = (None, world.seen());
    let (mut kept, mut known) = (Instant::now(), 0);
    loop {
        let stopping = shared.stopping.lock().expect("no panic while held");
        // Not a second more if it was told to stop while it looked.
        let (stopping, _) =
            shared.bell.wait_timeout_while(stopping, LOOK, |stopping| !*stopping).expect("no panic while held");
        let is_over = *stopping;
        drop(stopping);
        if !is_over {
            let now = world.seen();
            let after = (now != seen).then(|| world.look(now.clone()));
            if let Some(window) = before.zip(after.as_ref()).and_then(|(before, after)| Window::between(&before, after))
            {
                known += teach(&mut shared.baseline.lock().expect("no panic while held"), &window, &world.runtime);
            }
            (before, seen) = (after, now);
        }
        if known > 0 && (is_over || kept.elapsed() >= KEEP) {
            // What can't be kept is learned again.
            let _ = write(data, &shared.baseline.lock().expect("no panic while held").clone());
            (kept, known) = (Instant::now(), 0);
        }
        if is_over {
            return;
        }
    }
}

impl World {
    /// The figures of transfers and requests so far.
    fn seen(&self) -> (Vec<Io>, Option<Network>, Vec<Peer>) {
        // The connections themselves change all the time, also while nobody asks for anything.
        let network = self.client.as_ref().map(|client| network("", client));
        let requests =
            |Network { trips, alarms, late_ns, .. }| Network { trips, alarms, late_ns, ..Network::default() };
        let mut peers = self.groups.as_deref().map(peers).unwrap_or_default();
        // The same holds for these.
        peers.iter_mut().for_each(|peer| (peer.round_trip_ns, peer.retransmits) = (0, 0));
        (io(&self.probe), network.map(requests), peers)
    }
    fn look(&self, (io, network, peers): (Vec<Io>, Option<Network>, Vec<Peer>)) -> Snapshot {
        let process = Process { threads: kernel::threads(), ..Process::default() };
        let (at_ns, cores) = (self.runtime.clock.now_ns(), cores(&self.probe));
        Snapshot { at_ns, io, network, peers, cores, process, ..Snapshot::default() }
    }
}

/// Teaches a second's transfers of flash; those of all purposes count, since a device does not know them. At a client it teaches the
/// requests to the server: their time on the way, and at the server; at a node that leads a cluster, the acknowledgements of the others. Returns
/// the number of classes.
fn teach(baseline: &mut Baseline, window: &Window, runtime: &Runtime) -> usize {
    let mut classes: BTreeMap<(String, u64, u64), (u64, f64)> = BTreeMap::new();
    let mut add = |verb: String, (bytes_max, depth): (u64, u64), times: &Times, less_ns: f64| {
        let (count, sum_ns) = classes.entry((verb, bytes_max, depth)).or_default();
        *count += times.count;
        *sum_ns += (times.sum_ns as f64 - less_ns * times.count as f64).max(0.0);
    };
    for io in window.io.iter().filter(|io| !is_of_disks(&io.purpose)) {
        add(io.verb.clone(), (io.bytes_max, io.depth), &io.took, window.look_ns());
    }
    for trips in window.network.iter().flat_map(|network| &network.trips) {
        let class = (trips.bytes_max, trips.depth);
        for part in Part::ALL {
            add(part.class_name(&trips.verb), class, part.times(trips), part.less_ns(window));
        }
    }
    for peer in &window.peers {
        for acks in &peer.acks {
            let times = Times { count: acks.count, sum_ns: acks.took_ns, ..Times::default() };
            add(class_name(&peer.brick), (0, acks.depth), &times, 0.0);
        }
    }
    for ((verb, bytes_max, depth), &(count, sum_ns)) in &classes {
        let mean_ns = (sum_ns / count.max(1) as f64) as u64;
        baseline.learn((verb, *bytes_max, *depth), count, mean_ns, runtime.random.next_u64());
    }
    classes.len()
}

/// The file: a checksum in hexadecimal digits, a line's end, and JSON.
fn read(data: &Directory) -> Option<Baseline> {
    let mut text = Vec::new();
    data.file(FILE, Access::Read).ok()?.take(BYTES_MAX).read_to_end(&mut text).ok()?;
    let (checksum, json) = text.split_at_checked(text.iter().position(|&byte| byte == b'\n')? + 1)?;
    let checksum = u32::from_str_radix(std::str::from_utf8(checksum).ok()?.trim_end(), 16).ok()?;
    if checksum != crc32c(json) {
        return None;
    }
    serde_json::from_slice(json).ok()
}

fn write(data: &Directory, baseline: &Baseline) -> std::io::Result<()> {
    let json = serde_json::to_vec(baseline)?;
    match std::fs::remove_file(data.at(NEW)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = data.file(NEW, Access::Create).map_err(std::io::Error::other)?;
    file.write_all(format!("{:08x}\n", crc32c(&json)).as_bytes())?;
    file.write_all(&json)?;
    std::fs::rename(data.at(NEW), data.at(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn what_was_learned_is_read_again_and_damage_is_none() {
        let scratch = Scratch::new();
        let data = Directory::open(scratch.path()).expect("ours");
        assert_eq!(read(&data), None);
        let mut baseline = Baseline::default();
        (0..5).for_each(|second| baseline.learn(("read", 4096, 1), 100, 50_000, second));
        write(&data, &baseline).expect("writable");
        write(&data, &baseline).expect("writable");
        assert_eq!(read(&data), Some(baseline));
        let whole = std::fs::read(data.at(FILE)).expect("just written");
        for at in 0..whole.len() {
            let mut bad = whole.clone();
            bad[at] ^= 1;
            std::fs::write(data.at(FILE), &bad).expect("writable");
            assert_eq!(read(&data), None, "byte {at}");
            std::fs::write(data.at(FILE), &whole[..at]).expect("writable");
            assert_eq!(read(&data), None, "cut at {at}");
        }
    }
}
