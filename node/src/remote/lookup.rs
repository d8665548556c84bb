//! Looking for a server anew while it is away: it may have moved to another address.
//!
//! Promises: whoever asks never waits, since a resolver that does not answer takes half a minute; one look at a time. Absent by design:
//! a look while the server answers.

use base::Result;
use control::Address as Place;
use runtime::net::Address;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time between the beginnings of two looks.
const INTERVAL: Duration = Duration::from_secs(5);

/// The places that a membership names, and their addresses.
pub type Found = (Vec<Place>, Vec<Address>);

/// Looks that are made in a thread of their own.
#[derive(Default)]
pub struct Lookup(Arc<Mutex<Look>>);

#[derive(Default)]
struct Look {
    began: Option<Instant>,
    is_under_way: bool,
    found: Option<Found>,
}

impl Lookup {
    /// The result of a look that was begun before, once. Begins another one if it is time; one that fails has none.
    pub fn turn(&self, look: impl FnOnce() -> Result<Found> + Send + 'static) -> Option<Found> {
        let mut state = self.0.lock().expect("no panic while held");
        if !state.is_under_way && state.began.is_none_or(|began| began.elapsed() >= INTERVAL) {
            (state.began, state.is_under_way) = (Some(Instant::now()), true);
            let there = self.0.clone();
            let look = move || {
                let found = look().ok();
                let mut state = there.lock().expect("no panic while held");
                (state.found, state.is_under_way) = (found, false);
            };
            // Without a thread it is tried again later.
            if std::thread::Builder::new().name("lookup".into()).spawn(look).is_err() {
                state.is_under_way = false;
            }
        }
        state.found.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn nobody_waits_for_a_look() {
        let lookup = Lookup::default();
        let (answer, asked) = sync_channel::<Found>(1);
        let began = Instant::now();
        let look = move || Ok(asked.recv().expect("an answer"));
        assert!(lookup.turn(look).is_none());
        let never = || -> Result<Found> { unreachable!("one look at a time") };
        assert!((0..100).all(|_| lookup.turn(never).is_none()));
        let found: Found = (vec!["store:7400".parse().expect("a place")], Vec::new());
        answer.send(found.clone()).expect("it waits");
        // The next look is five seconds later: there is time for the result of this one.
        let told = loop {
            if let Some(told) = lookup.turn(|| Ok(Found::default())) {
                break told;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "it was found");
            std::thread::yield_now();
        };
        assert_eq!(told, found);
    }
}
