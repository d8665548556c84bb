//! The cost of a hop of the stack, for four ways to pass an operation down through layers that let it pass:
//!
//! - `boxed`: each layer calls the next and returns a boxed future;
//! - `flat`: a loop over a closed list of layers, which answer a step; no recursion;
//! - `flat-async`: the same, but a layer's way down may wait;
//! - `static`: layers nested in each other's types.
//!
//!     cargo run --release -p bench --bin layer_dispatch
//!
//! The bottom answers at once, or (`waits`) is pending once, as a device read is. Samples of all ways are interleaved.

mod allocations;
mod ways;

use base::{Ino, Op, Reply, Result};
use bench::figures::median;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use ways::Nested;

/// Requests per sample: some 10 ms.
const REQUESTS: u64 = 100_000;
/// Samples per way; odd, for the median.
const SAMPLES: usize = 31;
/// Layers in the stack.
const LAYERS: usize = 4;

/// Runs a future on this thread, polling again at once when it waits.
fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
}

/// Nanoseconds per request of one sample.
fn sample(request: &dyn Fn(&mut Op) -> Result<Reply>) -> f64 {
    let start = Instant::now();
    for number in 0..REQUESTS {
        let mut op = Op::Read { ino: Ino(number), offset: number << 12, length: 4096 };
        let reply = request(black_box(&mut op));
        assert!(black_box(reply).is_ok());
    }
    start.elapsed().as_nanos() as f64 / REQUESTS as f64
}

/// Answers one operation through a stack.
type Request = Box<dyn Fn(&mut Op) -> Result<Reply>>;

/// One way through a stack, above a bottom that waits or not.
struct Way {
    name: &'static str,
    waits: bool,
    layers: usize,
    request: Request,
    samples: Vec<f64>,
}

/// A way without and with layers, for both bottoms.
fn way(name: &'static str, make: fn(usize, bool) -> Request) -> Vec<Way> {
    let cases = [(false, 0), (false, LAYERS), (true, 0), (true, LAYERS)];
    let one = |(waits, layers)| Way { name, waits, layers, request: make(layers, waits), samples: Vec::new() };
    cases.map(one).into()
}

fn ways() -> Vec<Way> {
    let boxed = way("boxed", |layers, waits| {
        let stack = ways::boxed(layers, waits);
        Box::new(move |op| run(stack.call(op)))
    });
    let flat = way("flat", |layers, waits| {
        let stack = ways::Flat::new(layers, waits);
        Box::new(move |op| run(stack.call(op)))
    });
    let flat_async = way("flat-async", |layers, waits| {
        let stack = ways::Flat::new(layers, waits);
        Box::new(move |op| run(stack.call_async(op)))
    });
    let nested = way("static", |layers, waits| match layers {
        0 => {
            let stack = ways::Bottom { waits };
            Box::new(move |op| run(ways::Nested::call(&stack, op)))
        }
        _ => {
            let stack = ways::nested(waits);
            Box::new(move |op| run(stack.call(op)))
        }
    });
    [boxed, flat, flat_async, nested].into_iter().flatten().collect()
}

fn main() {
    let mut ways = ways();
    for _ in 0..SAMPLES {
        for way in &mut ways {
            way.samples.push(sample(&*way.request));
        }
    }
    println!("{} layers, medians of {SAMPLES} interleaved samples of {REQUESTS} requests", LAYERS);
    println!("bytes: Op {}, Result<Reply> {}", size_of::<Op>(), size_of::<Result<Reply>>());
    println!(
        "{:>11} {:>6} {:>11} {:>11} {:>8} {:>13}",
        "way", "waits", "ns, 0 lay.", "ns, 4 lay.", "ns/hop", "allocs/request"
    );
    for pair in ways.chunks(2) {
        let [bare, full] = pair else { unreachable!("ways are added in pairs") };
        assert!(bare.layers == 0 && full.layers == LAYERS && bare.waits == full.waits);
        let (bare_ns, full_ns) = (median(&bare.samples), median(&full.samples));
        let before = allocations::count();
        sample(&*full.request);
        let allocated = (allocations::count() - before) as f64 / REQUESTS as f64;
        let hop_ns = (full_ns - bare_ns) / LAYERS as f64;
        println!("{:>11} {:>6} {bare_ns:>11.1} {full_ns:>11.1} {hop_ns:>8.2} {allocated:>13.2}", full.name, full.waits);
    }
}
