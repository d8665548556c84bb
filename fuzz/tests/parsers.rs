//! Every parser against changed inputs: none panics, none allocates by a length that it has not checked. The canaries
//! must be found. `SINTER_FUZZ=100 cargo test --release -p fuzz` takes a hundred times as many inputs, `SINTER_SEED`
//! others.

use fuzz::{Answer, Plan, TARGETS, Target, fuzz};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::{Path, PathBuf};

thread_local! {
    /// The largest allocation of this thread since it was set to 0.
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

struct Watched;

fn note(bytes: usize) {
    // A thread that is ending has no figure any more.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(bytes)));
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note(bytes);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

#[global_allocator]
static WATCHED: Watched = Watched;

/// Values take more memory than their bytes: an edit of one byte's code is a value of some hundred bytes.
const TIMES: usize = 512;
/// Bytes allocated whatever the input is.
const FIXED_BYTES: usize = 64 << 10;

/// The target's parser, which may not allocate much more than it was given.
fn watched(target: &Target, bytes: &[u8]) -> Answer {
    LARGEST.set(0);
    let answer = (target.run)(bytes);
    let largest = LARGEST.get();
    assert!(largest <= FIXED_BYTES + TIMES * bytes.len(), "{largest} bytes allocated for {} of input", bytes.len());
    answer
}

fn run(target: &Target, usual: u64) -> Result<usize, fuzz::Failure> {
    // Panics are expected here: they would be printed each time.
    let plan = Plan::from_environment(usual);
    let found = fuzz(target, &|bytes| watched(target, bytes), plan);
    match &found {
        Ok(answers) => println!("{}: seed {}, {} inputs, {answers} answers", target.name, plan.seed, plan.inputs),
        Err(failure) => println!("{failure}"),
    }
    found
}

fn target(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("it is listed");
    if let Err(failure) = run(target, target.usual) {
        panic!("{failure}");
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                target(stringify!($name));
            }
        )*
        const TESTED: &[&str] = &[$(stringify!($name)),*];
    };
}
targets! { superblock label device_table segment batch record leaf summary row heal_page request acl recording wire_frame wire_request wire_reply wire_message replica_told replica_pulse }

#[test]
fn every_target_is_run() {
    assert_eq!(TARGETS.map(|target| target.name), TESTED);
}

#[test]
fn a_planted_panic_is_found() {
    let canary = fuzz::canary();
    let failure = run(&canary, canary.usual).expect_err("the canary was not heard");
    assert!(failure.what.contains("sings") && failure.input.len() < 100, "{failure}");
    let again = run(&canary, canary.usual).expect_err("the same seed");
    assert_eq!((again.inputs, again.input), (failure.inputs, failure.input), "a seed gives the same inputs");
}

#[test]
fn a_believed_length_is_found() {
    let greedy = fuzz::greedy();
    let failure = run(&greedy, greedy.usual).expect_err("it allocates what it is told");
    assert!(failure.what.contains("allocated"), "{failure}");
}

fn corpus(target: &Target) -> PathBuf {
    Path::new("corpus").join(target.name)
}

/// Bytes that earlier builds wrote can be read by this one. `REWRITE=1` writes those of this build's encoders.
#[test]
fn the_committed_inputs_are_still_understood() {
    for target in &TARGETS {
        let directory = corpus(target);
        let told: Vec<Answer> = (target.seeds)().iter().map(|input| watched(target, input)).collect();
        if std::env::var("REWRITE").is_ok() {
            std::fs::create_dir_all(&directory).expect("writable");
            for (number, input) in (target.seeds)().iter().enumerate() {
                std::fs::write(directory.join(format!("{number:02}")), input).expect("writable");
            }
        }
        let listed = std::fs::read_dir(&directory).expect("it is committed");
        let mut paths: Vec<_> = listed.map(|entry| entry.expect("readable").path()).collect();
        paths.sort();
        assert!(!paths.is_empty(), "{}: no inputs", target.name);
        for path in paths {
            let answer = watched(target, &std::fs::read(&path).expect("readable"));
            assert!(told.contains(&answer), "{}: not understood as what this build writes", path.display());
        }
    }
}
