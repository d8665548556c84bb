//! The condition that tasks wait for (`runtime::Event`), and the rename token, which is made of it.

use crate::{Flag, Watched};
use interleave::explore;
use interleave::real::block_on;
use interleave::token::Token;
use loom::thread::spawn;
use std::sync::Arc;

#[test]
fn everyone_who_waits_for_an_event_sees_it() {
    explore(5, || {
        let flag = Flag::new();
        let other = flag.clone();
        let waiter = spawn(move || block_on(other.wait()));
        let other = flag.clone();
        let setter = spawn(move || other.set());
        block_on(flag.wait());
        waiter.join().expect("no panic");
        setter.join().expect("no panic");
    });
}

#[test]
fn one_at_a_time_has_the_rename_token() {
    explore(5, || {
        let shared = Arc::new((Token::default(), Watched::new()));
        let take = |shared: &(Token, Watched)| {
            block_on(async {
                let guard = shared.0.take().await;
                shared.1.write();
                drop(guard);
            });
        };
        let other = shared.clone();
        let thread = spawn(move || take(&other));
        take(&shared);
        thread.join().expect("no panic");
        assert_eq!(shared.1.read(), 2);
    });
}
