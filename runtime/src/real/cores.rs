//! Start and stop of the cores' threads, and the implementation of `Tasks`, the interface to them.

use super::inbox::Inbox;
use super::pool::Pool;
use super::reactor::{self, World};
use super::scheduling;
use crate::tasks::{Flow, MakeTask, Tasks};
use base::ablated::workers;
use base::{Error, Kind, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// The CPUs that this process may use, at least one.
pub(super) fn cpus() -> Vec<usize> {
    // More than 1024 CPUs do not fit in the set: then one core, unpinned, is better than none.
    let set = sched_getaffinity(None).unwrap_or_default();
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect();
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// The core for requests that come from a CPU: the one that runs there. CPUs without a core are spread over all cores.
/// Not to be called on a core, which may use its own CPU only.
pub fn core_of_cpu(cpu: usize, cores: usize) -> usize {
    core_among(&cpus(), cpu, cores)
}

fn core_among(cpus: &[usize], cpu: usize, cores: usize) -> usize {
    cpus.iter().take(cores).position(|&own| own == cpu).unwrap_or(cpu % cores)
}

fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    // If it is refused, the scheduler's choice is as good.
    let _ = sched_setaffinity(None, &set);
}

/// Inboxes for `count` cores.
pub(super) fn inboxes(count: usize) -> Result<Vec<Arc<Inbox>>> {
    (0..count).map(|_| Inbox::new().map(Arc::new)).collect()
}

/// Starts a thread per core, and waits until all run. On an error none is left running.
pub(super) fn start(world: &Arc<World>, cpus: &[usize]) -> Result<Vec<JoinHandle<()>>> {
    let mut threads = Vec::new();
    let (ready, answers) = mpsc::sync_channel(world.inboxes.len());
    let mut first_error = None;
    for index in 0..world.inboxes.len() {
        let (world, ready, cpu) = (world.clone(), ready.clone(), cpus[index % cpus.len()]);
        let is_worker = index + workers() >= world.inboxes.len() && workers() > 0;
        let body = move || {
            if !is_worker {
                pin(cpu);
            }
            scheduling::set_core_priority();
            reactor::run(world, index, |result| ready.send(result).expect("the starter waits for every core"));
        };
        match std::thread::Builder::new().name(format!("sinter-core-{index}")).spawn(body) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                first_error = Some(Error::new(Kind::Host, "no thread for a core").with(error));
                break;
            }
        }
    }
    for _ in 0..threads.len() {
        if let Err(error) = answers.recv().expect("every core answers") {
            first_error.get_or_insert(error);
        }
    }
    match first_error {
        None => Ok(threads),
        Some(error) => {
            stop(world, threads);
            Err(error)
        }
    }
}

/// Ends all cores and waits for their threads.
pub(super) fn stop(world: &Arc<World>, threads: Vec<JoinHandle<()>>) {
    world.inboxes.iter().for_each(|inbox| inbox.stop());
    if let Some(pm_qos) = &world.pm_qos {
        pm_qos.stop();
    }
    for thread in threads {
        thread.join().expect("a panic on a core ends the process");
    }
}

/// The cores and the pools, as the rest of the program uses them.
pub(super) struct Cores {
    pub world: Arc<World>,
    pub pool: Arc<Pool>,
    pub background: Arc<Pool>,
}

impl Cores {
    /// The calling core, if it is one of this world.
    pub fn here(&self) -> Option<usize> {
        let index = |core: &std::rc::Rc<reactor::Core>| Arc::ptr_eq(&core.world, &self.world).then_some(core.index);
        reactor::with_current(index).flatten()
    }
}

impl Cores {
    fn start(&self, core: usize, flow: Option<Arc<Flow>>, make: MakeTask) {
        if self.here() != Some(core) {
            return self.world.inboxes[core].spawn(flow, make);
        }
        let here = reactor::current().expect("just looked");
        // Without the stopping core's tasks nothing would end the new one.
        if !here.is_stopping() {
            here.executor.add(&here.inbox, flow, make());
        }
    }
}

impl Tasks for Cores {
    fn cores(&self) -> usize {
        self.world.inboxes.len()
    }
    fn core(&self) -> usize {
        self.here().unwrap_or(0)
    }
    fn spawn(&self, core: usize, make: MakeTask) {
        self.start(core, None, make);
    }
    fn spawn_in(&self, core: usize, flow: &Arc<Flow>, make: MakeTask) {
        self.start(core, Some(flow.clone()), make);
    }
    fn enter(&self, flow: &Arc<Flow>) -> bool {
        reactor::with_current(|core| core.executor.enter(flow)).unwrap_or(false)
    }
    fn blocking(&self, job: Box<dyn FnOnce() + Send>) {
        // After the end nobody is left to miss the job: the cores, and with them all tasks, ended before the pool.
        let _ = self.pool.run(job);
    }
    fn background(&self, job: Box<dyn FnOnce() + Send>) {
        let _ = self.background.run(job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cpu_has_a_core_its_own_if_there_is_one() {
        let among = |cpus: &[usize], cores| (0..6).map(|cpu| core_among(cpus, cpu, cores)).collect::<Vec<_>>();
        assert_eq!(among(&[0, 1, 2, 3], 4), [0, 1, 2, 3, 0, 1]);
        assert_eq!(among(&[2, 5], 2), [0, 1, 0, 1, 0, 1]);
        assert_eq!(among(&[0, 1, 2, 3], 2), [0, 1, 0, 1, 0, 1]);
        assert_eq!(among(&[0], 3), [0, 1, 2, 0, 1, 2]);
    }
}
