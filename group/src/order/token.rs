//! A token that one task holds at a time, even across awaits; other tasks wait for it. The groups have two. The rename
//! token: a task that moves a directory to another parent holds it during the walk up the parents and the change
//! itself, so that two such moves can't close a loop (rule M3). The checkpoint token: while a task holds it, no other
//! task makes a checkpoint.

use runtime::Event;
use runtime::sync::AtomicBool;
use std::sync::atomic::Ordering;

/// The token; waiters are woken when it is given back.
#[derive(Default)]
pub struct Token {
    taken: AtomicBool,
    back: Event,
}

impl Token {
    /// Waits for the token.
    pub async fn take(&self) -> TokenGuard<'_> {
        loop {
            let ticket = self.back.ticket();
            if self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return TokenGuard { token: self };
            }
            self.back.after(ticket).await;
        }
    }
}

/// Gives the token back when dropped.
pub struct TokenGuard<'a> {
    token: &'a Token,
}

impl Drop for TokenGuard<'_> {
    fn drop(&mut self) {
        let taken = self.token.taken.swap(false, Ordering::AcqRel);
        assert!(taken, "a token is given back by its holder");
        self.token.back.notify();
    }
}
