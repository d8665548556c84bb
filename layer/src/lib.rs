//! Floor 4: the stack of layers that an operation passes on its way to the groups, and its reply on the way back.
//!
//! A closed list of layers in a flat loop. Each layer sees the operation on its way down and the reply on its way up,
//! and passes both on by default. No layer knows its neighbours; the stack, not the layer, counts and times every hop
//! (decision D6). A hop allocates nothing (docs/decisions: layer dispatch).
#![forbid(unsafe_code)]

mod delay;
mod fault;
#[cfg(test)]
mod tests;

pub use delay::Delay;
pub use fault::Fault;
pub use group::{Answer, Class, Context, Position};

use base::{Op, Result};
use group::Groups;
use runtime::{Buf, Runtime, Stage};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most layers of a stack: more would be a mistake in a command, and the bound keeps the loop short.
pub const LAYERS_MAX: usize = 16;

/// An operation with its memory.
pub struct Call {
    /// The operation.
    pub op: Op,
    /// The payload: the bytes of a write, exactly as long as the buffer; or memory for a read's answer, which stays
    /// unused if the bytes are in memory already.
    pub data: Option<Buf>,
}

/// A layer's verdict on an operation on its way down.
pub enum Down {
    /// Pass it on to the layer below: the default.
    Pass,
    /// Answer it here: the layers below never see it, those above see the reply.
    Answer(Result<Answer>),
}

/// The layers that exist.
pub enum Layer {
    /// Answers chosen operations with an error.
    Fault(Fault),
    /// Makes chosen operations slower.
    Delay(Delay),
}

impl Layer {
    /// The layer's name in commands and tables.
    pub fn name(&self) -> &'static str {
        match self {
            Layer::Fault(_) => "fault",
            Layer::Delay(_) => "delay",
        }
    }
    async fn down(&self, runtime: &Runtime, call: &Call) -> Down {
        match self {
            Layer::Fault(fault) => fault.down(runtime, call),
            Layer::Delay(delay) => delay.down(runtime, call).await,
        }
    }
    /// Sees the reply on its way up. None of today's layers changes one.
    fn up(&self, answer: Result<Answer>) -> Result<Answer> {
        match self {
            Layer::Fault(_) | Layer::Delay(_) => answer,
        }
    }
}

/// One hop's figures: the operations that passed, and for how long the layer itself held them.
#[derive(Default)]
struct Hop {
    calls: AtomicU64,
    answered: AtomicU64,
    ns: AtomicU64,
}

/// The figures of a hop since the stack was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HopSummary {
    /// The layer.
    pub name: &'static str,
    /// Operations that reached it.
    pub calls: u64,
    /// Operations that it answered itself.
    pub answered: u64,
    /// Nanoseconds that it kept operations on their way down, in all.
    pub ns: u64,
}

/// The layers of one volume above the groups.
pub struct Stack {
    groups: Arc<Groups>,
    layers: Vec<(Layer, Hop)>,
}

impl Stack {
    /// A stack with `layers` from the top down, at most `LAYERS_MAX`.
    pub fn new(groups: Arc<Groups>, layers: Vec<Layer>) -> Stack {
        assert!(layers.len() <= LAYERS_MAX, "a stack has at most {LAYERS_MAX} layers");
        Stack { groups, layers: layers.into_iter().map(|layer| (layer, Hop::default())).collect() }
    }

    /// Passes an operation down the stack and its answer up again.
    pub async fn call(&self, context: &Context, call: Call) -> Result<Answer> {
        let mut met = 0;
        let mut answered = None;
        let runtime = &self.groups.store().runtime;
        for (layer, hop) in &self.layers {
            met += 1;
            let start_ns = runtime.clock.now_ns();
            let down = layer.down(runtime, &call).await;
            hop.calls.fetch_add(1, Ordering::Relaxed);
            hop.ns.fetch_add(runtime.clock.now_ns() - start_ns, Ordering::Relaxed);
            if let Down::Answer(answer) = down {
                hop.answered.fetch_add(1, Ordering::Relaxed);
                answered = Some(answer);
                break;
            }
        }
        // What passes no layer spends nothing in them.
        if met > 0 {
            context.span.mark(Stage::Layers, runtime.stamp());
        }
        let mut answer = match answered {
            Some(answer) => answer,
            None => self.groups.call(context, call.op, call.data).await,
        };
        for (layer, _) in self.layers[..met].iter().rev() {
            answer = layer.up(answer);
        }
        answer
    }

    /// The hops' figures, from the top down.
    pub fn hops(&self) -> Vec<HopSummary> {
        let hop = |(layer, hop): &(Layer, Hop)| HopSummary {
            name: layer.name(),
            calls: hop.calls.load(Ordering::Relaxed),
            answered: hop.answered.load(Ordering::Relaxed),
            ns: hop.ns.load(Ordering::Relaxed),
        };
        self.layers.iter().map(hop).collect()
    }
}
