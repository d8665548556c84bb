//! Floor 4: the stack.
#![forbid(unsafe_code)]
use base::{Op, Reply, Result};
pub use group::{Class, Context};
use runtime::{Buf, Slice};

/// An operation with its payload (a write's bytes: exactly the buffer's length).
pub struct Call {
    /// What is asked.
    pub op: Op,
    /// The bytes of a write.
    pub data: Option<Buf>,
}

/// A reply with its payload (a read's bytes).
pub struct Answer {
    /// What is told.
    pub reply: Reply,
    /// The bytes of a read.
    pub data: Option<Slice>,
}

/// The layers of one volume above the groups.
pub struct Stack {}

impl Stack {
    /// Passes an operation down the stack.
    pub async fn call(&self, context: &Context, call: Call) -> Result<Answer> {
        let _ = (context, call);
        Err(base::Error::new(base::Kind::Unsupported, "the stack is being built"))
    }
}
