//! A future on a thread that is not a core.

use super::current_core;
use crate::sync::{Thread, current, park};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Unpark>) {
        self.0.unpark();
    }
}

/// Runs a future on the calling thread, which must not be a core: for start-up, tests and pool jobs. Transfers work
/// in it; `Clock::sleep` and `readable` do not.
pub fn block_on<F: Future>(future: F) -> F::Output {
    assert!(current_core().is_none(), "a core must not block");
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        park();
    }
}
