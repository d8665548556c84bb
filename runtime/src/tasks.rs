//! Cores and the blocking pool. A core runs its tasks one at a time. Tasks are long-lived futures that never leave
//! their core, so nothing is allocated or handed over per request (decision D4).

use crate::sync::{AtomicU64, Mutex};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

/// A task's future. It stays on its core, so it need not be `Send`.
pub type Local = Pin<Box<dyn Future<Output = ()>>>;

/// Makes a task's future on the core that will run it.
pub type MakeTask = Box<dyn FnOnce() -> Local + Send>;

/// A tenant's claim to the time that flows share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Weight by which flows divide what is not reserved, 1 to `WEIGHT_MAX`.
    pub weight: u64,
    /// Share that it has at least while it wants it, in percent; 0: none. Reservations above `RESERVE_MAX` together are scaled down.
    pub reserve: u64,
}

/// A tenant, such as a volume, whose tasks share each core's time with those of others, by weight and by what is reserved for it; or a
/// part of one, such as a user of the volume: the parts that have something to do divide its share equally.
#[derive(Debug)]
pub struct Flow {
    tenant: Arc<Tenant>,
    /// A bit by which cores tell each other of it. Two flows may have the same one.
    mask: u64,
    /// Nanoseconds of all cores' time that it has had while others wanted some too.
    served_ns: AtomicU64,
}

/// The part that flows of a tenant have in common.
#[derive(Debug)]
struct Tenant {
    weight: AtomicU64,
    reserve: AtomicU64,
    served_ns: AtomicU64,
}

/// Number of flows that were made.
static FLOWS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

impl Flow {
    /// A flow of a tenant of this weight, 1 to `WEIGHT_MAX`, for which nothing is reserved.
    pub fn new(weight: u64) -> Flow {
        let zero = || AtomicU64::new(0);
        Flow::of(Arc::new(Tenant { weight: AtomicU64::new(weight), reserve: zero(), served_ns: zero() }))
    }
    /// Another flow of its tenant.
    pub fn sibling(&self) -> Flow {
        Flow::of(self.tenant.clone())
    }
    fn of(tenant: Arc<Tenant>) -> Flow {
        let mask = 1 << (FLOWS.fetch_add(1, Ordering::Relaxed) % u64::from(u64::BITS));
        Flow { tenant, mask, served_ns: AtomicU64::new(0) }
    }
    /// A number that all flows of its tenant have, and no others while there are any.
    pub(crate) fn tenant(&self) -> usize {
        Arc::as_ptr(&self.tenant) as usize
    }
    /// Nanoseconds of all cores' time that its tenant has had while other flows wanted some too.
    pub fn served_ns(&self) -> u64 {
        self.tenant.served_ns.load(Ordering::Relaxed)
    }
    /// Adds time that it has had on a core; returns all that it has had.
    pub(crate) fn add_served(&self, ns: u64) -> u64 {
        self.tenant.served_ns.fetch_add(ns, Ordering::Relaxed);
        self.served_ns.fetch_add(ns, Ordering::Relaxed) + ns
    }
    /// Its bit.
    pub fn mask(&self) -> u64 {
        self.mask
    }
    /// Gives its tenant another claim.
    pub fn set_claim(&self, claim: Claim) {
        self.tenant.weight.store(claim.weight, Ordering::Relaxed);
        self.tenant.reserve.store(claim.reserve, Ordering::Relaxed);
    }
    /// Its tenant's claim.
    pub fn claim(&self) -> Claim {
        let Tenant { weight, reserve, .. } = &*self.tenant;
        Claim { weight: weight.load(Ordering::Relaxed), reserve: reserve.load(Ordering::Relaxed) }
    }
}

/// The cores and pools that run futures and blocking jobs.
pub trait Tasks: Send + Sync {
    /// Number of cores, at least 1.
    fn cores(&self) -> usize;
    /// The calling core; 0 when called from outside a core (pool threads, start-up).
    fn core(&self) -> usize;
    /// Starts a task on a core. It must yield within about 100 us of CPU work.
    fn spawn(&self, core: usize, make: MakeTask);
    /// Starts a task that belongs to a flow.
    fn spawn_in(&self, core: usize, flow: &Arc<Flow>, make: MakeTask) {
        let _ = flow;
        self.spawn(core, make);
    }
    /// Makes the running task one of another flow once it waits, and has it go on in that flow's turn. False if it is one of that
    /// flow already, or if flows are not told apart: it must not wait for that then.
    fn enter(&self, flow: &Arc<Flow>) -> bool {
        let _ = flow;
        false
    }
    /// Runs a blocking job that a client waits for in the adaptive pool.
    fn blocking(&self, job: Box<dyn FnOnce() + Send>);
    /// Runs a blocking job that no client waits for, after all threads that have other work.
    fn background(&self, job: Box<dyn FnOnce() + Send>) {
        self.blocking(job);
    }
}

struct Shot<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

/// Waits for a blocking job's result.
pub struct Answer<T> {
    shot: Arc<Mutex<Shot<T>>>,
}

impl<T> Future for Answer<T> {
    type Output = T;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut shot = self.shot.lock().expect("a job that panics ends the process");
        match shot.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                shot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Runs `job`, for which a client waits, in the pool, and waits for its result without blocking the core.
pub fn run_blocking<T: Send + 'static>(tasks: &dyn Tasks, job: impl FnOnce() -> T + Send + 'static) -> Answer<T> {
    let (job, answer) = answered(job);
    tasks.blocking(job);
    answer
}

/// Runs `job`, for which no client waits, in the pool, and waits for its result without blocking the core.
pub fn run_background<T: Send + 'static>(tasks: &dyn Tasks, job: impl FnOnce() -> T + Send + 'static) -> Answer<T> {
    let (job, answer) = answered(job);
    tasks.background(job);
    answer
}

/// A job for a pool, and the future of its result.
fn answered<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> (Box<dyn FnOnce() + Send>, Answer<T>) {
    let shot = Arc::new(Mutex::new(Shot { value: None, waker: None }));
    let there = shot.clone();
    let job = move || {
        let value = job();
        let mut shot = there.lock().expect("a job that panics ends the process");
        shot.value = Some(value);
        if let Some(waker) = shot.waker.take() {
            waker.wake();
        }
    };
    (Box::new(job), Answer { shot })
}

/// Runs two futures at the same time, on one task. Returns the results of both.
pub async fn both<T>(first: impl Future<Output = T>, second: impl Future<Output = T>) -> (T, T) {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let (mut one, mut other) = (None, None);
    std::future::poll_fn(|context| {
        if one.is_none()
            && let Poll::Ready(value) = first.as_mut().poll(context)
        {
            one = Some(value);
        }
        if other.is_none()
            && let Poll::Ready(value) = second.as_mut().poll(context)
        {
            other = Some(value);
        }
        if one.is_some() && other.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (one.expect("both are there"), other.expect("both are there"))
}

/// Runs futures at the same time, on one task. Returns their results, in their order.
pub async fn all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut results: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    std::future::poll_fn(|context| {
        for (future, result) in futures.iter_mut().zip(&mut results).filter(|(_, result)| result.is_none()) {
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                *result = Some(value);
            }
        }
        if results.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().map(|result| result.expect("all have ended")).collect()
}

/// Waits until one of two futures has ended. True if it was the first, which counts if both have.
pub async fn either(first: impl Future<Output = ()>, second: impl Future<Output = ()>) -> bool {
    let (mut first, mut second) = (pin!(first), pin!(second));
    std::future::poll_fn(|context| match (first.as_mut().poll(context), second.as_mut().poll(context)) {
        (Poll::Ready(()), _) => Poll::Ready(true),
        (_, Poll::Ready(())) => Poll::Ready(false),
        _ => Poll::Pending,
    })
    .await
}

/// Makes the running task one of another flow, and waits for that flow's turn.
pub async fn enter(tasks: &dyn Tasks, flow: &Arc<Flow>) {
    let mut has_turn = !tasks.enter(flow);
    std::future::poll_fn(move |_| if std::mem::replace(&mut has_turn, true) { Poll::Ready(()) } else { Poll::Pending })
        .await
}

/// Lets other tasks of the core run once.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(move |context| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}
