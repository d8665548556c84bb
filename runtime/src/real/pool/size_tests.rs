//! The model beside a server whose jobs, CPUs and device are made up.

use super::size::{LOOK_NS, Look, Parts, SPAN_NS, Size, Sums, THREADS_MAX};
use crate::random::SplitMix;
use std::collections::VecDeque;

/// A step of the server's time.
const STEP_NS: u64 = 10_000;
const SECOND: u64 = 1_000_000_000;

/// The load of a server.
#[derive(Clone, Copy, Debug)]
struct Work {
    /// Clients that ask again once they are answered.
    clients: usize,
    /// Jobs that come by themselves, in a second.
    rate: u64,
    device_ns: u64,
    cpu_ns: u64,
    /// Number of jobs that the device works on at a time.
    parallel: u64,
}

#[derive(Clone, Copy)]
enum Thread {
    Idle,
    Cpu { left_ns: u64, device_ns: u64, is_clients: bool },
    Device { left_ns: u64, is_clients: bool },
}

struct Server {
    work: Work,
    random: SplitMix,
    cores: u64,
    threads: Vec<Thread>,
    /// Times of arrival, and whether a client waits.
    waiting: VecDeque<(u64, bool)>,
    sums: Sums,
    parts: Parts,
    busy_most: usize,
}

impl Server {
    fn new(work: Work, seed: u64) -> Server {
        let waiting = (0..work.clients).map(|_| (0, true)).collect();
        let (sums, parts, threads) = (Sums::default(), Parts::default(), vec![Thread::Idle]);
        Server { work, random: SplitMix(seed), cores: 2, threads, waiting, sums, parts, busy_most: 0 }
    }
    /// A time with this mean: exponential, as far as steps go.
    fn around(&mut self, mean_ns: u64) -> u64 {
        let uniform = (self.random.next() >> 11) as f64 / (1u64 << 53) as f64;
        (mean_ns as f64 * -(1.0 - uniform).ln()) as u64
    }
    fn step(&mut self) {
        let come = self.work.rate as f64 * STEP_NS as f64 / SECOND as f64;
        if ((self.random.next() >> 11) as f64 / (1u64 << 53) as f64) < come {
            self.waiting.push_back((self.sums.now_ns, false));
        }
        for at in 0..self.threads.len() {
            if let Thread::Idle = self.threads[at]
                && let Some((since_ns, is_clients)) = self.waiting.pop_front()
            {
                self.sums.waited_ns += self.sums.now_ns - since_ns;
                let (left_ns, device_ns) = (self.around(self.work.cpu_ns), self.around(self.work.device_ns));
                self.threads[at] = Thread::Cpu { left_ns, device_ns, is_clients };
            }
        }
        let count = |kind: fn(&Thread) -> bool| self.threads.iter().filter(|thread| kind(thread)).count() as u64;
        let on_cpu = count(|thread| matches!(thread, Thread::Cpu { .. }));
        let at_device = count(|thread| matches!(thread, Thread::Device { .. }));
        let part = |places: u64, users: u64| STEP_NS * places.min(users) / users.max(1);
        let (cpu_ns, device_ns) = (part(self.cores, on_cpu), part(self.work.parallel, at_device));
        self.parts.cpu_ns += cpu_ns * on_cpu;
        self.parts.ready_ns += (STEP_NS - cpu_ns) * on_cpu;
        self.sums.busy_ns += (on_cpu + at_device) * STEP_NS;
        self.busy_most = self.busy_most.max((on_cpu + at_device) as usize);
        self.sums.now_ns += STEP_NS;
        for thread in &mut self.threads {
            match thread {
                Thread::Idle => {}
                Thread::Cpu { left_ns, .. } if *left_ns > cpu_ns => *left_ns -= cpu_ns,
                Thread::Cpu { device_ns, is_clients, .. } => {
                    *thread = Thread::Device { left_ns: *device_ns, is_clients: *is_clients };
                }
                Thread::Device { left_ns, .. } if *left_ns > device_ns => *left_ns -= device_ns,
                Thread::Device { is_clients, .. } => {
                    if *is_clients {
                        self.waiting.push_back((self.sums.now_ns, true));
                    }
                    self.sums.done += 1;
                    *thread = Thread::Idle;
                }
            }
        }
    }
    fn look(&mut self) -> Look {
        let busy_most = std::mem::take(&mut self.busy_most);
        Look { sums: self.sums, waiting: self.waiting.len(), threads: self.threads.len(), busy_most }
    }
    fn set_threads(&mut self, wanted: usize) {
        while self.threads.len() < wanted {
            self.threads.push(Thread::Idle);
        }
        // Who is at work ends afterwards.
        for at in (0..self.threads.len()).rev() {
            if self.threads.len() > wanted && matches!(self.threads[at], Thread::Idle) {
                self.threads.remove(at);
            }
        }
    }
    /// Runs for this long, looked at as a pool is; `told` has each look's time and number of threads.
    fn run(&mut self, size: &mut Size, time_ns: u64, mut told: impl FnMut(u64, usize)) {
        let end_ns = self.sums.now_ns + time_ns;
        let mut next_ns = self.sums.now_ns + SPAN_NS;
        while self.sums.now_ns < end_ns {
            self.step();
            let is_called = !self.waiting.is_empty() && next_ns > self.sums.now_ns + LOOK_NS;
            if is_called || self.sums.now_ns >= next_ns {
                let look = self.look();
                let parts = size.asks(&look).then_some(self.parts);
                let wanted = size.wanted(&look, parts);
                self.set_threads(wanted);
                told(self.sums.now_ns, self.threads.len());
                next_ns = self.sums.now_ns + if look.waiting > 0 { LOOK_NS } else { SPAN_NS };
            }
        }
    }
}

const US: u64 = 1_000;

const fn clients(clients: usize, device_ns: u64, cpu_ns: u64) -> Work {
    Work { clients, rate: 0, device_ns, cpu_ns, parallel: 64 }
}

const fn rate(rate: u64, device_ns: u64, cpu_ns: u64) -> Work {
    Work { clients: 0, rate, device_ns, cpu_ns, parallel: 64 }
}

/// Clients that wait for their answers: of a fast device, of one that has as much as it can, and of the CPU.
const CLOSED: [Work; 7] = [
    clients(1, 80 * US, 20 * US),
    clients(4, 80 * US, 20 * US),
    clients(8, 80 * US, 10 * US),
    clients(128, 80 * US, 20 * US),
    Work { parallel: 16, ..clients(32, 1000 * US, 20 * US) },
    clients(64, 10_000 * US, 20 * US),
    clients(16, 0, 500 * US),
];

/// Jobs that come by chance.
const OPEN: [Work; 4] = [
    rate(500, 200 * US, 30 * US),
    rate(5_000, 1000 * US, 30 * US),
    rate(2_000, 5000 * US, 30 * US),
    rate(15_000, 80 * US, 80 * US),
];

/// The least and the highest number of threads within a minute, after the first two seconds of a load.
fn in_a_minute(work: Work, seed: u64) -> (usize, usize) {
    let (mut server, mut size) = (Server::new(work, seed), Size::new(2, None));
    server.run(&mut size, 2 * SECOND, |_, _| {});
    let (mut least, mut most) = (server.threads.len(), server.threads.len());
    server.run(&mut size, 60 * SECOND, |_, threads| (least, most) = (least.min(threads), most.max(threads)));
    (least, most)
}

#[test]
fn threads_are_steady_under_a_steady_load() {
    for (seed, work) in (1..).zip(CLOSED) {
        let (least, most) = in_a_minute(work, seed);
        assert!(most - least <= 1, "{least} to {most}: {work:?}");
    }
}

#[test]
fn chance_adds_threads_and_takes_none() {
    for (seed, work) in (1..).zip(OPEN) {
        let (mut server, mut size) = (Server::new(work, seed), Size::new(2, None));
        server.run(&mut size, 2 * SECOND, |_, _| {});
        let (early, mut before) = (server.threads.len(), server.threads.len());
        server.run(&mut size, 58 * SECOND, |_, threads| {
            assert!(threads >= before, "{threads} after {before}: {work:?}");
            before = threads;
        });
        assert!(before <= early + early.div_ceil(3), "{early}, then {before}: {work:?}");
    }
}

#[test]
fn a_number_by_the_model_serves_as_much_as_the_best_that_is_set_by_hand() {
    for work in CLOSED {
        let done = |pinned| {
            let (mut server, mut size) = (Server::new(work, 7), Size::new(2, pinned));
            server.run(&mut size, SECOND / 10, |_, _| {});
            let before = server.sums.done;
            server.run(&mut size, SECOND, |_, _| {});
            server.sums.done - before
        };
        let (found, best) = (done(None), [1, 2, 4, 8, 16, 32, 64].map(|threads| done(Some(threads))));
        let best = best.into_iter().max().expect("there are some");
        assert!(found * 100 >= best * 95, "{found} instead of {best}: {work:?}");
    }
}

#[test]
fn jobs_that_wait_for_a_device_have_threads_within_a_millisecond() {
    let (mut server, mut size) = (Server::new(clients(40, 20_000 * US, 0), 1), Size::new(2, None));
    server.run(&mut size, 3 * LOOK_NS, |_, _| {});
    assert!(server.threads.len() >= 40, "{}", server.threads.len());
}

#[test]
fn jobs_that_need_the_cpu_never_outnumber_the_cores() {
    let (mut server, mut size) = (Server::new(clients(100, 0, 300 * US), 1), Size::new(2, None));
    server.run(&mut size, 5 * SECOND, |_, threads| assert!(threads <= 2, "{threads}"));
}

#[test]
fn threads_for_a_device_leave_once_jobs_need_the_cpu() {
    let (mut server, mut size) = (Server::new(clients(40, 5000 * US, 10 * US), 1), Size::new(2, None));
    server.run(&mut size, SECOND, |_, _| {});
    assert_eq!(server.threads.len(), 40);
    (server.work.device_ns, server.work.cpu_ns) = (0, 300 * US);
    server.run(&mut size, 4 * SECOND, |_, _| {});
    assert!(server.threads.len() <= 3, "{}", server.threads.len());
}

#[test]
fn a_pool_without_jobs_has_one_thread_after_a_minute() {
    let (mut server, mut size) = (Server::new(clients(40, 5000 * US, 10 * US), 1), Size::new(2, None));
    server.run(&mut size, SECOND, |_, _| {});
    server.work.clients = 0;
    server.waiting.clear();
    server.threads.iter_mut().for_each(|thread| *thread = Thread::Idle);
    server.run(&mut size, 50 * SECOND, |_, threads| assert_eq!(threads, 40));
    server.run(&mut size, 12 * SECOND, |_, _| {});
    assert_eq!(server.threads.len(), 1);
}

#[test]
fn long_jobs_of_the_cpu_keep_no_other_waiting_for_good() {
    let (mut server, mut size) = (Server::new(clients(4, 0, 1000 * SECOND), 1), Size::new(2, None));
    server.run(&mut size, SECOND / 10, |_, _| {});
    assert_eq!(server.threads.len(), 4, "each has begun");
}

#[test]
fn a_number_that_is_set_stays() {
    for pinned in [1, 7, THREADS_MAX] {
        let (mut server, mut size) = (Server::new(clients(100, 500 * US, 300 * US), 1), Size::new(2, Some(pinned)));
        server.run(&mut size, SECOND / 100, |_, threads| assert_eq!(threads, pinned));
    }
}
