//! The cost of a message, of 4 KiB if nothing else was said, and its answer between two ends in one process, by what carries it:
//!
//! - `frames`: frames over TCP, without anything that looks into them;
//! - `requests`: writes of a client's session that a server answers at once: numbers, checksums, retries and all. From one core over its
//!   connection, and from both cores over one of each;
//! - with the feature `grpc`, writes as gRPC carries them: `tonic unary`, a call for each, and `tonic stream`, all in one call;
//! - with the feature `ablations`, older designs of ours (`base::ablated`): the requests of both cores over one connection, and frames and
//!   requests that are sent by a system call each.
//!
//!     cargo run --release -p bench [--features grpc,ablations] --bin wire [-- ROUNDS [BYTES]]
//!
//! Each plain and under TLS 1.3, and those of our own also with tags only (`--wire-encryption off`), at depths 1, 8 and 32. Both ends live in this process, so that its CPU time is that of both, and on different
//! CPUs, as those of two machines do: where they share one, nobody has to be woken on another one, and a message costs a quarter. Samples of
//! all ways are interleaved; what is printed is the median.

mod certificates;
#[cfg(feature = "grpc")]
mod grpc;
mod own;

use base::ablated::Ablation;
use bench::figures::median;
use bench::process;
use certificates::Both;
use runtime::Runtime;
use runtime::real::{self, Directory, Reactors};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use wire::tls::Encryption;

/// Bytes of a message's payload, unless the command line says how many; gRPC's has so many in any case.
const PAYLOAD_BYTES: usize = 4096;
/// Bytes of a message's payload in this run.
static PAYLOAD: AtomicUsize = AtomicUsize::new(PAYLOAD_BYTES);
/// Time for which a sample counts.
const SAMPLE: Duration = Duration::from_millis(500);
/// Time between two looks of a way whose turn it is not: with many of them, each of 32 tasks, shorter ones would be seen in what the others
/// cost.
const IDLE: Duration = Duration::from_millis(10);
/// Requests under way at a time.
const DEPTHS: [usize; 3] = [1, 8, 32];
const DEPTH_MAX: usize = DEPTHS[DEPTHS.len() - 1];
/// Rounds of samples, unless the command line says how many; odd, for the median.
const ROUNDS: usize = 5;

/// A way to carry messages, which are counted.
struct Way {
    name: &'static str,
    /// Protection of the messages: `no`, `yes` for TLS, `tags`.
    tls: &'static str,
    /// Older designs that are on while it is measured.
    on: &'static [Ablation],
    /// Messages that may be under way: the samples set it.
    depth: Arc<AtomicUsize>,
    answered: Arc<AtomicU64>,
}

impl Way {
    fn new(name: &'static str, both: Option<&Both>) -> Way {
        let tls = match both.map(|both| both.encryption) {
            None => "no",
            Some(Encryption::On) => "yes",
            Some(Encryption::Off) => "tags",
        };
        Way { name, tls, on: &[], depth: Arc::default(), answered: Arc::default() }
    }
}

/// All ways, plain, under TLS and with tags.
fn ways(runtime: &Runtime) -> Vec<Way> {
    let (encrypted, tagged) = (Both::made(Encryption::On), Both::made(Encryption::Off));
    let mut ways = Vec::new();
    for both in [None, Some(&encrypted), Some(&tagged)] {
        ways.push(own::frames(runtime, both));
        ways.push(own::requests(runtime, "requests", &[1], both));
        ways.push(own::requests(runtime, "requests of two cores", &[0, 1], both));
        #[cfg(feature = "ablations")]
        ways.extend(older(runtime, both));
        #[cfg(feature = "grpc")]
        if both.is_none_or(|both| both.encryption == Encryption::On) {
            ways.extend(grpc::ways(runtime, both));
        }
    }
    ways
}

/// Older designs of ours.
#[cfg(feature = "ablations")]
fn older(runtime: &Runtime, both: Option<&Both>) -> [Way; 3] {
    let (one_connection, each): (&[_], &[_]) = (&[Ablation::OneConnection], &[Ablation::WritePerMessage]);
    [
        Way { on: one_connection, ..own::requests(runtime, "the same, one connection", &[0, 1], both) },
        Way { name: "frames, a write each", on: each, ..own::frames(runtime, both) },
        Way { on: each, ..own::requests(runtime, "requests, a write each", &[1], both) },
    ]
}

/// Switches these older designs on, and all others off.
fn switch_on(on: &[Ablation]) {
    #[cfg(feature = "ablations")]
    base::ablated::switch_on(on);
    #[cfg(not(feature = "ablations"))]
    assert!(on.is_empty(), "this build has none");
}

/// Messages per second, and microseconds of CPU time per message.
fn sample(way: &Way, depth: usize) -> (f64, f64) {
    switch_on(way.on);
    way.depth.store(depth, Ordering::Relaxed);
    // Others fall silent, and this one gets going.
    std::thread::sleep(SAMPLE / 10);
    let (before, cpu_before, start) = (way.answered.load(Ordering::Relaxed), process::cpu_ns(), Instant::now());
    std::thread::sleep(SAMPLE);
    let count = (way.answered.load(Ordering::Relaxed) - before) as f64;
    let (cpu_ns, took) = ((process::cpu_ns() - cpu_before) as f64, start.elapsed().as_secs_f64());
    way.depth.store(0, Ordering::Relaxed);
    (count / took, cpu_ns / 1000.0 / count)
}

/// Keeps all CPUs awake until it is dropped, where that is allowed: the runtime does so while its own messages are dense (decision 0018), and
/// a peer is not to be measured without it.
fn awake() -> Option<File> {
    // A descriptor without a number is the strictest of all requests.
    File::options().write(true).open("/dev/cpu_dma_latency").ok()
}

fn started() -> (Runtime, Reactors, std::path::PathBuf) {
    let directory = std::env::temp_dir().join(format!("sinter-wire-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("the temporary directory can be written");
    let there = Directory::open(&directory).expect("ours");
    // There are up to 16 ways, and each may have all its messages in memory at both ends.
    let bytes = (256 << 20) + PAYLOAD.load(Ordering::Relaxed) as u64 * DEPTH_MAX as u64 * 32;
    let options = real::Options { cores: Some(2), ..real::Options::new(there, bytes, &[]) };
    let (runtime, reactors) = real::start(options).expect("io_uring works here");
    (runtime, reactors, directory)
}

fn main() {
    let number = |at| std::env::args().nth(at).map(|number| number.parse::<usize>().expect("a number"));
    let rounds = number(1).unwrap_or(ROUNDS);
    PAYLOAD.store(number(2).unwrap_or(PAYLOAD_BYTES), Ordering::Relaxed);
    let (runtime, reactors, directory) = started();
    let awake = awake();
    let ways = ways(&runtime);
    let mut samples = vec![Vec::new(); ways.len() * DEPTHS.len()];
    for _ in 0..rounds {
        for (at, way) in ways.iter().enumerate() {
            for (depth_at, &depth) in DEPTHS.iter().enumerate() {
                samples[at * DEPTHS.len() + depth_at].push(sample(way, depth));
            }
        }
    }
    println!("{:<24} {:<4} {:>5} {:>12} {:>16}", "way", "TLS", "depth", "messages/s", "us CPU/message");
    for (at, samples) in samples.iter().enumerate() {
        let (way, depth) = (&ways[at / DEPTHS.len()], DEPTHS[at % DEPTHS.len()]);
        let rates: Vec<_> = samples.iter().map(|sample| sample.0).collect();
        let costs: Vec<_> = samples.iter().map(|sample| sample.1).collect();
        let Way { name, tls, .. } = way;
        println!("{name:<24} {tls:<4} {depth:>5} {:>12.0} {:>16.2}", median(&rates), median(&costs));
    }
    drop(awake);
    reactors.stop();
    std::fs::remove_dir_all(directory).expect("it was made here");
}
