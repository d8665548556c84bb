//! The primitives of which our own waiting code is built: atomics, mutexes, parked threads and thread locals of the
//! standard library. The package `interleave` compiles that code with a model checker's primitives instead, and tries
//! every order of its steps (decision note 0048).
//!
//! Absent by design: `Arc`, because wakers are made of the standard library's, and `Condvar`, which nothing needs.

pub use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
pub use std::sync::{Mutex, MutexGuard};
pub use std::thread::{Thread, current, park};
pub use std::thread_local;
