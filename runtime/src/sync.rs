//! The primitives that own waiting code is built of: atomics, mutexes, parked threads and thread locals of the standard
//! library. The package `interleave` compiles the same files with a model checker's primitives in this place, and tries
//! every order of their steps (decision note 0048).
//!
//! Absent by design: `Arc`, because wakers are made of the standard library's, and `Condvar`, which nothing needs.

pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
pub use std::sync::{Mutex, MutexGuard};
pub use std::thread::{Thread, current, park};
pub use std::thread_local;
