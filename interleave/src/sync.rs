//! The model checker's own forms of the primitives that the product's files take from `runtime::sync`.

pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
pub use loom::sync::{Mutex, MutexGuard};
pub use loom::thread::{Thread, current, park};

/// Turns a constant of the standard library's `thread_local!` into an expression, as loom's wants it.
macro_rules! of_thread {
    ($(#[$attribute:meta])* $visible:vis static $name:ident: $type:ty = const { $value:expr };) => {
        loom::thread_local!($(#[$attribute])* $visible static $name: $type = $value;);
    };
}
pub(crate) use of_thread as thread_local;
