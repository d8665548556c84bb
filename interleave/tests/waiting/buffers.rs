//! Buffers (`runtime::buffer`): their owners, loans and slabs.

use crate::{Bytes, CHUNK, LARGE, large};
use interleave::buffer::{CLASS_BYTES, Need, Slabs};
use interleave::explore;
use loom::thread::spawn;
use std::sync::Arc;

#[test]
fn the_next_owner_of_a_buffer_comes_after_all_who_shared_it() {
    explore(5, || {
        let (slabs, bytes) = (Arc::new(Slabs::new(1, CHUNK)), Bytes::new());
        let (kept, buffer) = (large(&slabs), large(&slabs).expect("there are two"));
        bytes.write(&buffer);
        let shared = buffer.share();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (slice, bytes) = (shared.slice(0..1), bytes.clone());
                spawn(move || bytes.read(&slice))
            })
            .collect();
        drop(shared);
        // The one that the chunk has left, as soon as it is free.
        if let Some(next) = large(&slabs) {
            bytes.write(&next);
        }
        readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
        assert!(large(&slabs).is_some() && kept.is_some());
    });
}

#[test]
fn a_loan_ends_after_all_uses_of_the_buffer() {
    explore(5, || {
        let (slabs, bytes) = (Slabs::new(1, CHUNK), Bytes::new());
        let (loan, lent) = large(&slabs).expect("there are two").lend();
        let there = bytes.clone();
        let user = spawn(move || there.write(&lent));
        let loan = match loan.back() {
            Ok(back) => return bytes.write(&back),
            Err(loan) => loan,
        };
        user.join().expect("no panic");
        bytes.write(&loan.back().ok().expect("nobody has it any more"));
    });
}

#[test]
fn a_chunk_serves_one_class_at_a_time() {
    explore(5, || {
        let (slabs, bytes) = (Arc::new(Slabs::new(1, CHUNK)), Bytes::new());
        let use_one = |slabs: &Slabs, bytes: &Bytes, length: usize| {
            if let Ok(buffer) = slabs.take(0, length, Need::Finishing) {
                bytes.write(&buffer);
            }
        };
        let (there, other) = (slabs.clone(), bytes.clone());
        let thread = spawn(move || use_one(&there, &other, CLASS_BYTES[3]));
        use_one(&slabs, &bytes, LARGE);
        thread.join().expect("no panic");
        assert!(slabs.bytes() <= CHUNK);
        assert!(large(&slabs).is_some(), "nobody uses the chunk");
    });
}
