//! The costs of an order: CPU per record on three replicas together, and memory of an idle one. By hand, on a quiet machine:
//! `cargo test --release -p order_raft --test cost -- --ignored --nocapture`.

use base::{Index, ReplicaId};
use order_raft::support::{BrickId, Ended, Epoch, Supports};
use order_raft::{HardState, Member, Moment, Order, Shadow, TermRuns};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// The system's allocator, which counts what is in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn members() -> Vec<Member> {
    (1..=3).map(|number| Member { replica: ReplicaId(number), brick: BrickId(u128::from(number)) }).collect()
}

/// Three replicas whose logs are durable at once and whose messages arrive at once.
struct Three {
    orders: Vec<Order>,
    supports: Supports,
}

impl Three {
    fn new() -> Three {
        let order = |me: &Member| Order::open(me.replica, &members(), HardState::default(), TermRuns::default());
        let supports = Supports::open(Epoch(1), Ended::SupportingNobody, 0);
        let mut three = Three { orders: members().iter().map(order).collect(), supports };
        three.orders[0].campaign(Moment { supports: &three.supports, now: 0 });
        three.settle();
        three
    }
    fn settle(&mut self) {
        let mut is_busy = true;
        while is_busy {
            is_busy = false;
            for at in 0..3 {
                let effects = self.orders[at].take();
                if let Some(ticket) = effects.ticket {
                    self.orders[at].persisted(ticket);
                    is_busy = true;
                }
                let from = ReplicaId(at as u64 + 1);
                for (to, message) in effects.send {
                    let moment = Moment { supports: &self.supports, now: 0 };
                    self.orders[usize::try_from(to.0 - 1).expect("small")].receive(from, message, moment);
                    is_busy = true;
                }
            }
        }
    }
    fn write(&mut self, batch: u32) {
        for crc in 0..batch {
            self.orders[0].propose(Shadow { length: 100, crc, kind: 1 }).expect("it leads");
        }
        self.settle();
    }
}

#[test]
#[ignore = "takes time that only a quiet machine tells"]
#[allow(clippy::disallowed_methods, reason = "it measures the real machine")]
fn records_and_idle_groups() {
    const RECORDS: u32 = 320_000;
    for batch in [1, 16] {
        let mut best = f64::MAX;
        for _ in 0..5 {
            let mut three = Three::new();
            let begun = Instant::now();
            (0..RECORDS / batch).for_each(|_| three.write(batch));
            best = best.min(begun.elapsed().as_secs_f64() * 1e6 / f64::from(RECORDS));
            assert_eq!(three.orders[0].committed(), Index(u64::from(RECORDS) + 1));
        }
        println!("{batch} at once: {best:.2} us per record on three replicas together");
    }
    let before = IN_USE.load(Ordering::Relaxed);
    let mut threes: Vec<Three> = (0..100).map(|_| Three::new()).collect();
    for three in &mut threes {
        (0..100).for_each(|_| three.write(16));
        three.orders[0].nudge();
        three.settle();
    }
    let after = IN_USE.load(Ordering::Relaxed);
    println!(
        "{} bytes of an idle replica, {} by its own account",
        (after - before) / 300,
        threes[0].orders[0].memory()
    );
}
