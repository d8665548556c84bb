//! Floor 4: the stack of layers that an operation passes on its way to the groups, and its reply on the way back.
//!
//! A closed list of layers in a flat loop. Each layer sees the operation on its way down and the reply on its way up,
//! and passes both on by default. No layer knows its neighbours; the stack, not the layer, counts and times every hop
//! (decision D6). A hop allocates nothing (docs/decisions: layer dispatch).
//!
//! Layers are put in, taken out and moved while operations pass (docs/decisions/0050). Promises: an operation meets the
//! layers of before a change or those of after it, never a mix; one that begins after `put` has returned meets those of after it.
//! Absent by design: knowing when the last operation that met the layers of before has ended (a front's gate counts its
//! requests).
#![forbid(unsafe_code)]

mod change;
mod delay;
mod fault;
mod leading;
mod limit;
mod read_only;
mod rights;
mod service;
mod target;
#[cfg(test)]
mod tests;

pub use change::{Change, Plan};
pub use group::{Answer, Context, Position};
pub use leading::{Leading, Tenures};
pub use limit::LimitSummary;
pub use rights::{Gate, Recognised, Right};
pub use service::Served;
pub use target::Target;
pub use wire::client::{NUMBER_BITS, handle_since, number_of};
pub use wire::codec::hello::{Caches, Caching};
pub use wire::{Client, Share, Sharer};

use base::limits::WEIGHT;
use base::{Layer, Limit, Limits, Op, Result, SessionId};
use delay::Delay;
use fault::Fault;
use limit::{Limiter, Trees};
use read_only::ReadOnly;
use runtime::seeded::{Bug, active};
use runtime::tasks::{Claim, Flow};
use runtime::{Buf, Lock, Runtime, Stage};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// An operation with its memory.
pub struct Call {
    /// The operation.
    pub op: Op,
    /// The payload: the bytes of a write, exactly as long as the buffer; or memory for a read's answer, which stays
    /// unused if the bytes are in memory already.
    pub data: Option<Buf>,
}

/// A layer's verdict on an operation on its way down.
enum Down {
    /// Pass it on to the layer below: the default.
    Pass,
    /// Pass it on: the layer has changed it, or its context.
    Changed,
    /// Answer it here: the layers below never see it, those above see the reply.
    Answer(Result<Answer>),
}

/// A layer as it runs: its parameters, and what it remembers.
enum Running {
    ReadOnly(ReadOnly),
    Delay(Delay),
    Fault(Fault),
}

impl Running {
    fn of(layer: Layer) -> Running {
        match layer {
            Layer::ReadOnly => Running::ReadOnly(ReadOnly),
            Layer::Delay { operations, ns } => Running::Delay(Delay::new(operations, ns)),
            Layer::Fault { operations, kind, every } => Running::Fault(Fault::new(operations, kind, every)),
        }
    }
    /// Sees an operation on its way down. `replaced`: the stack has other layers by now, so nothing should wait here.
    async fn down(&self, runtime: &Runtime, context: &mut Context, call: &mut Call, replaced: &AtomicBool) -> Down {
        match self {
            Running::ReadOnly(read_only) => read_only.down(context, call),
            Running::Delay(delay) => delay.down(runtime, call, replaced).await,
            Running::Fault(fault) => fault.down(call),
        }
    }
    /// Sees the reply on its way up. None of today's layers changes one.
    fn up(&self, answer: Result<Answer>) -> Result<Answer> {
        match self {
            Running::ReadOnly(_) | Running::Delay(_) | Running::Fault(_) => answer,
        }
    }
}

/// One hop's figures: the operations that passed, and for how long the layer itself held them.
#[derive(Default)]
struct Hop {
    calls: AtomicU64,
    answered: AtomicU64,
    changed: AtomicU64,
    ns: AtomicU64,
}

/// The figures of a hop since its layer was put in, or the daemon was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HopSummary {
    /// The layer.
    pub layer: Layer,
    /// Operations that reached it.
    pub calls: u64,
    /// Operations that it answered itself.
    pub answered: u64,
    /// Operations that it changed and passed on.
    pub changed: u64,
    /// Nanoseconds that it kept operations on their way down, in all.
    pub ns: u64,
}

/// A layer in its place, with its figures: it keeps them wherever it is moved.
struct Placed {
    layer: Layer,
    running: Running,
    hop: Hop,
}

impl Placed {
    fn new(layer: Layer) -> Arc<Placed> {
        Arc::new(Placed { layer, running: Running::of(layer), hop: Hop::default() })
    }
    /// One hop on the way down.
    async fn down(&self, runtime: &Runtime, context: &mut Context, call: &mut Call, replaced: &AtomicBool) -> Down {
        let start_ns = runtime.clock.now_ns();
        let down = self.running.down(runtime, context, call, replaced).await;
        let Hop { calls, answered, changed, ns } = &self.hop;
        calls.fetch_add(1, Ordering::Relaxed);
        ns.fetch_add(runtime.clock.now_ns() - start_ns, Ordering::Relaxed);
        match &down {
            Down::Pass => 0,
            Down::Changed => changed.fetch_add(1, Ordering::Relaxed),
            Down::Answer(_) => answered.fetch_add(1, Ordering::Relaxed),
        };
        down
    }
    fn summary(&self) -> HopSummary {
        HopSummary {
            layer: self.layer,
            calls: self.hop.calls.load(Ordering::Relaxed),
            answered: self.hop.answered.load(Ordering::Relaxed),
            changed: self.hop.changed.load(Ordering::Relaxed),
            ns: self.hop.ns.load(Ordering::Relaxed),
        }
    }
}

/// The layers between two changes. An operation keeps those that it has met first.
#[derive(Default)]
struct Layers {
    placed: Vec<Arc<Placed>>,
    /// True once others have taken their place.
    replaced: AtomicBool,
}

/// Users of a volume that have a flow each. A core looks at all flows in each of its turns.
const USERS_MAX: usize = 8;
/// Bits of what a stack has above the groups.
const LAYERS: u8 = 1;
const LIMITS: u8 = 2;
const TREES: u8 = 4;

/// The limits and layers of one volume above the groups.
pub struct Stack {
    target: Target,
    /// `LAYERS`, `LIMITS` and `TREES`, as far as there are any: without either, an operation looks at nothing else.
    more: AtomicU8,
    layers: Lock<Arc<Layers>>,
    limiter: Limiter,
    trees: Trees,
    flow: Arc<Flow>,
    /// The flows of users, by user id.
    users: Lock<Vec<(u32, Arc<Flow>)>>,
}

impl Stack {
    /// A stack with `layers` from the top down, at most `LAYERS_MAX`, below `limits`.
    pub fn new(target: impl Into<Target>, layers: &[Layer], limits: &Limits) -> Stack {
        let target = target.into();
        let limiter = Limiter::new(limits, target.runtime().clock.now_ns());
        let stack = Stack {
            target,
            more: AtomicU8::new(0),
            layers: Lock::new("layers", Arc::default()),
            limiter,
            trees: Trees::new(),
            flow: Arc::new(Flow::new(WEIGHT)),
            users: Lock::new("users", Vec::new()),
        };
        stack.put(Plan::of(layers));
        let none = Limits::NONE;
        stack.limit(if active(Bug::LimitForgotten) { &none } else { limits });
        stack
    }

    /// Passes an operation down the stack and its answer up again.
    pub async fn call(&self, context: &Context, call: Call) -> Result<Answer> {
        match self.more.load(Ordering::Acquire) {
            // Here and not in a function of its own: each that an answer passes copies it.
            0 => match &self.target {
                Target::Local(groups) => groups.call(context, call.op, call.data).await,
                Target::Cluster(client) => Box::pin(client.call(context, call.op, call.data)).await,
            },
            more => self.hold_and_pass(context, call, more).await,
        }
    }

    /// The same through limits and layers.
    async fn hold_and_pass(&self, context: &Context, call: Call, more: u8) -> Result<Answer> {
        self.hold(context, &call, more).await;
        // Layers that came while it was held are met too.
        if self.more.load(Ordering::Acquire) & LAYERS != 0 {
            return self.pass(context, call).await;
        }
        self.target.call(context, call.op, call.data).await
    }

    /// Performs an operation that has passed the volume's layers elsewhere: its limits hold.
    pub async fn call_below_layers(&self, context: &Context, call: Call) -> Result<Answer> {
        self.hold(context, &call, self.more.load(Ordering::Acquire)).await;
        self.target.call(context, call.op, call.data).await
    }

    /// Waits as limits want it.
    async fn hold(&self, context: &Context, call: &Call, more: u8) {
        let runtime = self.target.runtime();
        if more & TREES != 0
            && let Some(limiter) = self.tree_of(context, call).await
            && limiter.pass(runtime, call).await
        {
            context.span.mark(Stage::Limit, runtime.stamp());
        }
        if more & LIMITS != 0 && self.limiter.pass(runtime, call).await {
            context.span.mark(Stage::Limit, runtime.stamp());
        }
    }

    /// The limits of the tree that an operation's inode belongs to.
    async fn tree_of(&self, context: &Context, call: &Call) -> Option<Arc<Limiter>> {
        if !limit::may_hold(call) {
            return None;
        }
        self.trees.of(self.target.project(context, call.op.home()?).await)
    }

    /// Changes the limits and the share, for what waits and for every operation that begins from now on.
    pub fn limit(&self, limits: &Limits) {
        let now_ns = self.target.runtime().clock.now_ns();
        self.limiter.change(limits, now_ns);
        let treed = self.trees.change(limits, now_ns);
        self.set_more(TREES, treed);
        self.set_more(LIMITS, limits.all().any(|(limit, _)| limit.is_rate()));
        let (weight, reserve) = (limits.get(Limit::Weight).unwrap_or(WEIGHT), limits.get(Limit::Reserve).unwrap_or(0));
        self.flow.set_claim(Claim { weight, reserve });
    }
    /// The session with the server that has the volume; None if this process has it.
    pub fn remote(&self) -> Option<&Arc<wire::Client>> {
        match &self.target {
            Target::Local(_) => None,
            Target::Cluster(client) => Some(client),
        }
    }
    /// The session of a mount of this number, for a volume that other mounts may have too.
    pub fn sharer(&self, session: SessionId) -> Option<Arc<dyn Sharer>> {
        match &self.target {
            Target::Local(groups) => Some(Arc::new(groups.local_session(session)?)),
            Target::Cluster(client) => Some(client.clone()),
        }
    }
    /// The flow of the volume's operations.
    pub fn flow(&self) -> &Arc<Flow> {
        &self.flow
    }
    /// The flow of a user's operations. The first `USERS_MAX` users have one each; those who come later share these (stochastic fairness
    /// queueing, McKenney, 1990).
    pub fn flow_of(&self, uid: u32) -> Arc<Flow> {
        let mut users = self.users.lock();
        if let Some((_, flow)) = users.iter().find(|(other, _)| *other == uid) {
            return flow.clone();
        }
        if users.len() == USERS_MAX {
            return users[uid as usize % USERS_MAX].1.clone();
        }
        let flow = if users.is_empty() { self.flow.clone() } else { Arc::new(self.flow.sibling()) };
        users.push((uid, flow.clone()));
        flow
    }
    /// The figures of the limits of directory trees, by project.
    pub fn held_in_trees(&self) -> Vec<(u32, LimitSummary)> {
        self.trees.summaries()
    }
    /// The figures of the limits.
    pub fn held(&self) -> LimitSummary {
        self.limiter.summary()
    }
    fn set_more(&self, bit: u8, is_there: bool) {
        match is_there {
            true => self.more.fetch_or(bit, Ordering::Release),
            false => self.more.fetch_and(!bit, Ordering::Release),
        };
    }

    /// The same through layers. They change a copy of the context: the caller may ask for more in its name.
    async fn pass(&self, context: &Context, mut call: Call) -> Result<Answer> {
        let layers = self.layers.lock().clone();
        let runtime = self.target.runtime();
        let mut own = context.copied();
        let mut met = 0;
        let mut answered = None;
        for placed in &layers.placed {
            met += 1;
            if let Down::Answer(answer) = placed.down(runtime, &mut own, &mut call, &layers.replaced).await {
                answered = Some(answer);
                break;
            }
        }
        own.span.mark(Stage::Layers, runtime.stamp());
        let mut answer = match answered {
            Some(answer) => answer,
            None => self.target.call(&own, call.op, call.data).await,
        };
        context.span.take_over(&own.span);
        for placed in layers.placed[..met].iter().rev() {
            answer = placed.running.up(answer);
        }
        answer
    }

    /// The hops' figures, from the top down.
    pub fn hops(&self) -> Vec<HopSummary> {
        self.layers.lock().placed.iter().map(|placed| placed.summary()).collect()
    }
}
