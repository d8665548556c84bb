//! The ways. All do the same work per hop: look at the operation, count it, and look at the reply.

use base::{Op, Reply, Result};
use runtime::tasks::yield_now;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;

/// The work of every layer: nothing that would stop an operation.
#[derive(Default)]
pub struct Work {
    seen: Cell<u64>,
    replied: Cell<u64>,
}

impl Work {
    fn down(&self, op: &Op) {
        self.seen.set(self.seen.get() + u64::from(op.mutates()) + 1);
    }
    fn up(&self, reply: &Result<Reply>) {
        self.replied.set(self.replied.get() + u64::from(reply.is_ok()));
    }
}

/// The groups below the stack.
pub struct Bottom {
    pub waits: bool,
}

impl Bottom {
    async fn answer(&self, op: &Op) -> Result<Reply> {
        if self.waits {
            yield_now().await;
        }
        match op {
            Op::Read { length, .. } => Ok(Reply::Data { length: *length }),
            _ => Ok(Reply::Done),
        }
    }
}

type Pending<'a> = Pin<Box<dyn Future<Output = Result<Reply>> + 'a>>;

/// Boxed futures: a layer knows the next one.
pub trait Boxed {
    fn call<'a>(&'a self, op: &'a mut Op) -> Pending<'a>;
}

impl Boxed for Bottom {
    fn call<'a>(&'a self, op: &'a mut Op) -> Pending<'a> {
        Box::pin(self.answer(op))
    }
}

struct BoxedLayer {
    work: Work,
    next: Box<dyn Boxed>,
}

impl Boxed for BoxedLayer {
    fn call<'a>(&'a self, op: &'a mut Op) -> Pending<'a> {
        Box::pin(async move {
            self.work.down(op);
            let reply = self.next.call(op).await;
            self.work.up(&reply);
            reply
        })
    }
}

/// A stack of boxed layers.
pub fn boxed(layers: usize, waits: bool) -> Box<dyn Boxed> {
    let mut stack: Box<dyn Boxed> = Box::new(Bottom { waits });
    for _ in 0..layers {
        stack = Box::new(BoxedLayer { work: Work::default(), next: stack });
    }
    stack
}

/// The closed list: four variants, so that a hop is a real choice between layers.
enum Layer {
    Cache(Work),
    Ahead(Work),
    Quota(Work),
    Fault(Work),
}

/// A layer's verdict on the way down.
enum Step {
    Pass,
    Answer(Result<Reply>),
}

impl Layer {
    fn new(number: usize) -> Layer {
        let work = Work::default();
        match number % 4 {
            0 => Layer::Cache(work),
            1 => Layer::Ahead(work),
            2 => Layer::Quota(work),
            _ => Layer::Fault(work),
        }
    }
    fn down(&self, op: &mut Op) -> Step {
        match self {
            Layer::Cache(work) | Layer::Ahead(work) | Layer::Quota(work) => work.down(op),
            Layer::Fault(work) => {
                work.down(op);
                if matches!(op, Op::StatFs) {
                    return Step::Answer(Ok(Reply::Done));
                }
            }
        }
        Step::Pass
    }
    async fn down_async(&self, op: &mut Op) -> Step {
        match self {
            // The layer that could wait.
            Layer::Quota(work) => {
                work.down(op);
                if matches!(op, Op::SyncAll) {
                    yield_now().await;
                }
                Step::Pass
            }
            _ => self.down(op),
        }
    }
    fn up(&self, reply: &mut Result<Reply>) {
        match self {
            Layer::Cache(work) | Layer::Ahead(work) | Layer::Quota(work) | Layer::Fault(work) => work.up(reply),
        }
    }
}

/// A loop down and a loop up; the list can be replaced between any two requests.
pub struct Flat {
    layers: Vec<Layer>,
    bottom: Bottom,
}

impl Flat {
    pub fn new(layers: usize, waits: bool) -> Flat {
        Flat { layers: (0..layers).map(Layer::new).collect(), bottom: Bottom { waits } }
    }
    pub async fn call(&self, op: &mut Op) -> Result<Reply> {
        let mut depth = 0;
        let reply = loop {
            let Some(layer) = self.layers.get(depth) else { break self.bottom.answer(op).await };
            match layer.down(op) {
                Step::Pass => depth += 1,
                Step::Answer(reply) => break reply,
            }
        };
        self.up(depth, reply)
    }
    pub async fn call_async(&self, op: &mut Op) -> Result<Reply> {
        let mut depth = 0;
        let reply = loop {
            let Some(layer) = self.layers.get(depth) else { break self.bottom.answer(op).await };
            match layer.down_async(op).await {
                Step::Pass => depth += 1,
                Step::Answer(reply) => break reply,
            }
        };
        self.up(depth, reply)
    }
    fn up(&self, depth: usize, mut reply: Result<Reply>) -> Result<Reply> {
        self.layers[..depth].iter().rev().for_each(|layer| layer.up(&mut reply));
        reply
    }
}

/// Layers in each other's types; the order is fixed when the program is built.
pub trait Nested {
    fn call(&self, op: &mut Op) -> impl Future<Output = Result<Reply>>;
}

impl Nested for Bottom {
    fn call(&self, op: &mut Op) -> impl Future<Output = Result<Reply>> {
        self.answer(op)
    }
}

/// A layer above another.
pub struct Above<N> {
    work: Work,
    next: N,
}

impl<N: Nested> Nested for Above<N> {
    async fn call(&self, op: &mut Op) -> Result<Reply> {
        self.work.down(op);
        let reply = self.next.call(op).await;
        self.work.up(&reply);
        reply
    }
}

/// Four layers above the bottom.
pub fn nested(waits: bool) -> impl Nested {
    let above = |next| Above { work: Work::default(), next };
    let third = Above { work: Work::default(), next: Above { work: Work::default(), next: above(Bottom { waits }) } };
    Above { work: Work::default(), next: third }
}
