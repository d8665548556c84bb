//! Every call of the disk and of the index fails once: a small life is run again and again, each time with another call
//! failing, until there is none left to fail (rule U4). Whichever it is: no panic, no hang, no answer that is not true, and
//! whatever a client was told to be durable is there after a restart on a healthy machine.

use sim::campaign;
use sim::scenario::Plan;
use sim::small::{Calls, LIVES, Trouble};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Decides the latencies of the machine.
const SEED: u64 = 7;

/// Runs the script with each of these calls failing in turn; returns how many there are in each life.
fn each(calls: Calls) -> [u64; LIVES as usize] {
    let mut counts = [0; LIVES as usize];
    for (life, count) in (0..).zip(&mut counts) {
        let (next, end) = (AtomicU64::new(1), AtomicU64::new(u64::MAX));
        let failures = Mutex::new(Vec::new());
        let work = || {
            let slabs = sim::world::slabs();
            while end.load(Ordering::Relaxed) == u64::MAX && failures.lock().expect("no panic").len() < 3 {
                let nth = next.fetch_add(1, Ordering::Relaxed);
                let small = Some(Trouble { life, calls, nth });
                match campaign::run_one(Plan { small, ..Plan::new(SEED) }, &slabs, &|_| {}) {
                    Ok(summary) if summary.faults == 0 => drop(end.fetch_min(nth, Ordering::Relaxed)),
                    Ok(_) => {}
                    Err(failure) => {
                        failures.lock().expect("no panic").push(failure.to_string());
                        // A panic may have left its slabs locked.
                        return;
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(work);
            }
        });
        let failures = failures.into_inner().expect("no panic");
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        *count = end.into_inner() - 1;
    }
    println!("{calls:?}: {counts:?} in the two lives");
    counts
}

#[test]
fn each_read_fails_once() {
    let [first, second] = each(Calls::Reads);
    assert!(first > 10 && second > 20, "a brick is opened, cleaned and read");
}

#[test]
fn each_write_fails_once() {
    let [first, second] = each(Calls::Writes);
    assert!(first > 30 && second > 15);
}

#[test]
fn each_write_finds_no_space_once() {
    let [first, second] = each(Calls::FullWrites);
    assert!(first > 30 && second > 15);
}

#[test]
fn each_flush_fails_once() {
    let [first, second] = each(Calls::Flushes);
    assert!(first > 10 && second > 5);
}

#[test]
fn each_file_that_is_made_fails_once() {
    let [first, _] = each(Calls::Space);
    assert!(first >= 4, "the superblock and the segments' file: made, and given their room");
    each(Calls::Files);
    each(Calls::Names);
}

#[test]
fn each_call_of_the_index_fails_once() {
    let [first, second] = each(Calls::IndexReads);
    assert!(first > 30 && second > 30);
    let [first, second] = each(Calls::IndexWrites);
    assert!(first >= 6, "each checkpoint is a write and a persist: {first}, {second}");
}

#[test]
fn the_cleaner_works_in_the_small_life() {
    let small = Some(Trouble { life: 0, calls: Calls::Reads, nth: u64::MAX });
    let told = campaign::run_one(Plan { small, ..Plan::new(SEED) }, &sim::world::slabs(), &|_| {});
    let summary = told.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(summary.moved > 100 && summary.faults == 0, "{summary:?}");
}
