//! The sweep: reads of one file with more and more requests in flight, and what they tell of a change before it is made.

use crate::Window;
use crate::model::{Machine, Parts, Point, Usl};
use serde::{Deserialize, Serialize};

/// Requests of others in a sample from which on their p99 means something.
const OTHERS_MIN: usize = 10;
/// The device has a queue if a transfer takes so many times as long as alone ...
const QUEUED: f64 = 1.5;
/// ... and so large a part of all requests in flight is there.
const THERE: f64 = 0.5;
/// The factor by which others' p99 may grow.
const OTHERS_MAX: f64 = 2.0;

/// The client's own figures of a step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Client {
    /// Requests in flight.
    pub in_flight: usize,
    /// Requests per second.
    pub per_second: f64,
    /// Mean time of a request, in microseconds.
    pub mean_us: f64,
    /// The time that 99% of them don't exceed.
    pub p99_us: f64,
    /// CPU time of the machine, per request: without what others took before.
    pub cpu_us: f64,
}

/// A step: what was measured with so many requests in flight. Times are microseconds per request.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Step {
    /// Requests in flight.
    pub in_flight: usize,
    /// Requests per second.
    pub per_second: f64,
    /// Mean time of a request.
    pub mean_us: f64,
    /// The time that 99% of them don't exceed.
    pub p99_us: f64,
    /// CPU time of the machine: without what others took before.
    pub cpu_us: f64,
    /// CPU time of the daemon's busiest core.
    pub core_us: f64,
    /// Transfers of the device per request; less than 1 if some are answered from memory.
    pub transfers: f64,
    /// Time of a transfer.
    pub device_us: f64,
    /// Waits for locks.
    pub lock_us: f64,
    /// The p99 of others' requests, if there are enough.
    pub others_p99_us: Option<f64>,
    /// The rate that the model gives.
    pub modelled: f64,
}

impl Step {
    /// The step that a client has seen within a window. None if the daemon has not seen its requests.
    pub fn of(client: Client, window: &Window, ino: u64) -> Option<Step> {
        let requests = client.per_second * window.seconds();
        let reads = window.operations.iter().find(|operation| operation.name == "read")?;
        if requests <= 0.0 || (reads.total.count as f64) < requests / 2.0 {
            return None;
        }
        let each_us = |ns: f64| ns / 1e3 / requests;
        let core_ns = window.cores.iter().map(|core| core.run_ns).max().unwrap_or(0);
        let cores_ns: u64 = window.cores.iter().map(|core| core.run_ns).sum();
        let device = window.verb("read").filter(|io| io.purpose == "client").map(|io| &io.took);
        let (count, sum_ns) = device.fold((0, 0), |sum, took| (sum.0 + took.count, sum.1 + took.sum_ns));
        Some(Step {
            in_flight: client.in_flight,
            per_second: client.per_second,
            mean_us: client.mean_us,
            p99_us: client.p99_us,
            // Other programs' CPU time before the step says little on a machine that they keep busy: the daemon's own is the least.
            cpu_us: client.cpu_us.max(each_us(cores_ns as f64)),
            core_us: each_us(core_ns as f64),
            transfers: count as f64 / requests,
            device_us: if count > 0 { sum_ns as f64 / count as f64 / 1e3 } else { 0.0 },
            lock_us: each_us(window.stage_ns(&["lock", "range"])),
            others_p99_us: others_p99_us(window, ino),
            modelled: 0.0,
        })
    }
}

/// The p99 of requests that are not about an inode, from the window's sample.
pub fn others_p99_us(window: &Window, ino: u64) -> Option<f64> {
    let others = window.sample.iter().filter(|whole| whole.ino != ino);
    let mut times: Vec<u64> = others.map(|whole| whole.duration_ns).collect();
    times.sort_unstable();
    let at = (times.len() * 99).div_ceil(100).checked_sub(1)?;
    (times.len() >= OTHERS_MIN).then(|| times[at] as f64 / 1e3)
}

/// True if others wait too long with these requests beside them.
pub fn is_too_much(others_before_us: Option<f64>, step: &Step) -> bool {
    others_before_us.zip(step.others_p99_us).is_some_and(|(before_us, now_us)| now_us > OTHERS_MAX * before_us)
}

/// A change, and what it would bring.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Change {
    /// The change.
    pub change: String,
    /// Requests per second then.
    pub per_second: f64,
    /// The gain, as a part of 1.
    pub gain: f64,
}

/// The universal scalability law of the steps.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Law {
    /// The share of a request in which it waits in a line for something shared.
    pub contention: f64,
    /// The share that each other request adds.
    pub crosstalk: f64,
    /// Requests in flight that give most, if more of them give less.
    pub peak: Option<f64>,
}

/// All that a sweep tells.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Sweep {
    /// The steps.
    pub steps: Vec<Step>,
    /// The shares of their time in which CPUs, the busiest core and the device are busy at the last step.
    pub busy: Vec<(String, f64)>,
    /// None with less than three steps.
    pub law: Option<Law>,
    /// Changes at the last step, the one that brings most first.
    pub changes: Vec<Change>,
}

/// The device behind the steps: a transfer's time alone and the most requests per second, which is not known until it queues.
fn device(steps: &[Step]) -> Option<(f64, f64)> {
    let with_device = steps.iter().filter(|step| step.transfers > 0.0 && step.device_us > 0.0);
    let alone = with_device.clone().min_by_key(|step| step.in_flight)?;
    let last = with_device.max_by_key(|step| step.in_flight)?;
    let alone_us = alone.device_us * alone.transfers;
    // Rate times time (Little's law).
    let present = last.per_second / 1e6 * last.transfers * last.device_us;
    let queues = last.device_us > QUEUED * alone.device_us && present > THERE * last.in_flight as f64;
    let most = steps.iter().map(|step| step.per_second).fold(0.0, f64::max);
    Some((alone_us, if queues { most } else { f64::INFINITY }))
}

/// Fits the models to the steps, and tells what changes would bring. `cpus`: those that others leave. None without a step.
pub fn swept(mut steps: Vec<Step>, cpus: f64) -> Option<Sweep> {
    let machine = Machine { cpus, device: device(&steps) };
    let point = |step: &Step| Point {
        in_flight: step.in_flight,
        per_second: step.per_second,
        cpu_us: step.cpu_us,
        thread_us: step.core_us,
    };
    let parts = Parts::of(machine, &steps.iter().map(point).collect::<Vec<_>>())?;
    steps.iter_mut().for_each(|step| step.modelled = parts.rate(step.in_flight));
    let last = steps.iter().max_by_key(|step| step.in_flight)?;
    let now = parts.rate(last.in_flight);
    let wider = Parts { machine: Machine { cpus: cpus + 1.0, ..machine }, ..parts };
    let mut changed = vec![
        ("half the CPU time per request".to_string(), parts.with_cpu(0.5).rate(last.in_flight)),
        ("one more CPU".to_string(), wider.rate(last.in_flight)),
        (format!("{} requests in flight", 2 * last.in_flight), parts.rate(2 * last.in_flight)),
    ];
    if machine.device.is_some() {
        changed.push(("a device twice as fast".to_string(), parts.with_device(0.5).rate(last.in_flight)));
    }
    let mut changes: Vec<Change> = changed
        .into_iter()
        .map(|(change, per_second)| Change { change, per_second, gain: per_second / now - 1.0 })
        .collect();
    changes.sort_by(|one, other| other.gain.total_cmp(&one.gain));
    let rate_us = last.per_second / 1e6;
    let mut busy = vec![
        ("CPUs".to_string(), rate_us * last.cpu_us / cpus),
        ("the busiest core's thread".to_string(), rate_us * last.core_us),
    ];
    busy.extend(machine.device.filter(|(_, most)| most.is_finite()).map(|_| ("the device".to_string(), 1.0)));
    let rates: Vec<_> = steps.iter().map(|step| (step.in_flight as f64, step.per_second)).collect();
    let law = Usl::fit(&rates).map(|law| {
        let peak = Some(law.peak()).filter(|peak| *peak < 1000.0);
        Law { contention: law.contention, crosstalk: law.crosstalk, peak }
    });
    Some(Sweep { steps, busy, law, changes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::parts::Demand;
    use crate::snapshot::{Io, Operation, Whole};
    use crate::times::Times;
    use crate::window::CoreWindow;

    /// Steps of a machine with two CPUs and a device that gives `most` requests per second.
    fn steps(most: f64) -> Vec<Step> {
        let machine = Machine { cpus: 2.0, device: Some((40.0, most)) };
        let (cpu, thread) = (Demand { each_us: 15.0, shared_us: 10.0 }, Demand { each_us: 3.0, shared_us: 1.0 });
        let parts = Parts { machine, cpu, thread, delay_us: 5.0, excess: 1.0 };
        let step = |in_flight| {
            let per_second = parts.rate(in_flight);
            // The device's times include the wait in its queue, as its figures do.
            let device_us = if most.is_finite() { 40f64.max(in_flight as f64 / most * 1e6) } else { 40.0 };
            let (cpu_us, core_us) = (cpu.at(in_flight), thread.at(in_flight));
            Step { in_flight, per_second, cpu_us, core_us, transfers: 1.0, device_us, ..Step::default() }
        };
        [1, 2, 4, 8, 16, 32, 64].map(step).to_vec()
    }

    #[test]
    fn a_device_that_is_slow_beside_a_long_delay_is_no_queue() {
        let mut delayed = steps(f64::INFINITY);
        for step in &mut delayed {
            step.per_second = step.in_flight as f64 / 10_000.0 * 1e6;
            step.device_us = if step.in_flight == 1 { 40.0 } else { 400.0 };
        }
        let sweep = swept(delayed, 2.0).expect("steps");
        assert!(gain(&sweep, "128 requests") > 0.9 && gain(&sweep, "device") < 0.1, "{sweep:?}");
        assert_eq!(sweep.busy.len(), 2);
    }

    fn gain(sweep: &Sweep, change: &str) -> f64 {
        sweep.changes.iter().find(|one| one.change.contains(change)).expect("it is told").gain
    }

    #[test]
    fn what_limits_is_what_a_change_helps() {
        let slow = swept(steps(30_000.0), 2.0).expect("steps");
        assert!(gain(&slow, "device") > 0.8 && gain(&slow, "CPU time") < 0.05, "{slow:?}");
        assert_eq!(slow.changes[0].change, "a device twice as fast");
        assert!(slow.busy.iter().any(|(name, _)| name == "the device"));
        let fast = swept(steps(f64::INFINITY), 2.0).expect("steps");
        assert!(gain(&fast, "device") < 0.02 && gain(&fast, "CPU time") > 0.3, "{fast:?}");
        assert!(fast.busy[0].1 > 0.9, "{fast:?}");
        assert!(fast.steps.iter().all(|step| (step.modelled / step.per_second - 1.0).abs() < 0.1), "{fast:?}");
        let law = slow.law.expect("seven steps");
        assert!((0.05..0.5).contains(&law.contention), "{law:?}");
    }

    #[test]
    fn few_steps_are_told_without_a_law_and_none_is_nothing() {
        let few = swept(steps(30_000.0)[..2].to_vec(), 2.0).expect("two steps");
        assert!(few.law.is_none() && few.changes.len() == 4);
        assert_eq!(swept(Vec::new(), 2.0), None);
    }

    fn window(reads: u64) -> Window {
        let times = |count, sum_ns| Times { count, sum_ns, ..Times::default() };
        let whole = |number: u64| Whole { ino: number % 2, duration_ns: 1000 * number, ..Whole::default() };
        Window {
            ns: 1_000_000_000,
            operations: vec![Operation {
                name: "read".to_string(),
                total: times(reads, 0),
                stages: [("lock".to_string(), times(5, 2_000_000))].into(),
                ..Operation::default()
            }],
            io: vec![
                Io { purpose: "client".into(), verb: "read".into(), took: times(500, 20_000_000), ..Io::default() },
                Io { purpose: "log".into(), verb: "read".into(), took: times(9, 9_000_000), ..Io::default() },
            ],
            cores: [(3_000_000, 0), (4_000_000, 9)]
                .map(|(run_ns, wait_ns)| CoreWindow { run_ns, wait_ns, turns: 1 })
                .to_vec(),
            sample: (1..=40).map(whole).collect(),
            ..Window::default()
        }
    }

    #[test]
    fn a_step_is_told_per_request() {
        let client = Client { in_flight: 4, per_second: 1000.0, mean_us: 70.0, p99_us: 90.0, cpu_us: 25.0 };
        let step = Step::of(client, &window(1100), 1).expect("the daemon has seen them");
        assert_eq!(step.cpu_us, 25.0);
        let busy = Step::of(Client { cpu_us: 1.0, ..client }, &window(1100), 1).expect("as before");
        assert_eq!(busy.cpu_us, 7.0, "both cores have worked for it");
        assert_eq!((step.core_us, step.transfers, step.device_us, step.lock_us), (4.0, 0.5, 40.0, 2.0));
        // Those of inode 0: 2, 4 ... 40 microseconds.
        assert_eq!(step.others_p99_us, Some(40.0));
        assert!(is_too_much(Some(19.0), &step) && !is_too_much(Some(21.0), &step) && !is_too_much(None, &step));
        assert_eq!(Step::of(client, &window(100), 1), None, "they went elsewhere");
        let few = Window { sample: window(1).sample[..10].to_vec(), ..window(1) };
        assert_eq!(others_p99_us(&few, 1), None);
        assert_eq!(others_p99_us(&Window::default(), 1), None);
    }
}
