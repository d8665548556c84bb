//! A volume's one rename token (rule M3): whoever moves a directory to another parent holds it while the walk up the
//! parents and the change itself last, so that two such moves can't close a loop.

use runtime::Event;
use std::sync::atomic::{AtomicBool, Ordering};

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
            if !self.taken.swap(true, Ordering::Acquire) {
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
        self.token.taken.store(false, Ordering::Release);
        self.token.back.notify();
    }
}
