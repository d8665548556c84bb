//! One core: the product's reactor, executor and inbox, on stand-ins for what belongs to the kernel.

#[path = "../../../runtime/src/real/block_on.rs"]
mod block_on;
mod device;
mod eventfd;
#[path = "../../../runtime/src/real/executor.rs"]
mod executor;
#[path = "../../../runtime/src/real/inbox.rs"]
mod inbox;
#[path = "../../../runtime/src/real/pool/queue.rs"]
pub mod queue;
#[expect(dead_code, reason = "what is left out calls the rest of it")]
#[path = "../../../runtime/src/real/reactor.rs"]
mod reactor;
#[path = "../../../runtime/src/real/shares.rs"]
mod shares;

pub use block_on::block_on;

use crate::tasks::{Flow, MakeTask};
use crate::transfer::{Purpose, Request, SlotPool, Transfer};
use inbox::Inbox;
use loom::thread::JoinHandle;
use std::sync::Arc;

/// A panic is to be reported by the checker.
mod abort {
    pub struct AbortOnPanic;

    impl Drop for AbortOnPanic {
        fn drop(&mut self) {}
    }
}

/// No timers.
mod clock {
    use std::task::Waker;

    #[derive(Default)]
    pub struct Timers;

    impl Timers {
        pub fn next_ns(&self) -> Option<u64> {
            None
        }
        pub fn pop(&mut self, _now_ns: u64) -> Option<Waker> {
            None
        }
    }

    pub fn now_ns() -> u64 {
        0
    }
}

/// Nothing is measured.
mod figures {
    pub struct Figures;

    impl Figures {
        pub fn turn(&self) {}
        pub fn sleep(&self) -> u64 {
            0
        }
        pub fn run(&self) -> bool {
            false
        }
        pub fn stamp_ns(&self) -> u64 {
            0
        }
        pub fn control_ns(&self) -> u64 {
            0
        }
        pub fn ran_since(&self, _start_ns: u64) {}
    }
}

/// No files.
mod files {
    pub struct Files;

    impl Files {
        pub fn lock_fd(&self) -> Option<i32> {
            None
        }
    }
}

/// No connections.
mod listener {
    pub struct Network;
}

/// No calls.
mod socket {
    use super::reactor::Core;

    pub enum Call {}

    impl Call {
        pub const CANCELLED: i32 = 0;

        pub fn end(self, _core: &Core, _result: i32) {
            match self {}
        }
    }
}

/// No ring.
mod ring {
    use base::Result;

    pub struct Ring;

    impl Ring {
        pub fn new() -> Result<Ring> {
            Ok(Ring)
        }
        pub fn hold(&self, _fd: i32) -> Result<()> {
            Ok(())
        }
    }
}

/// Nobody keeps CPUs awake.
mod pm_qos {
    pub struct PmQos;

    impl PmQos {
        pub fn sleeps(&self, _count: u64) {}
    }
}

/// The core that the calling thread is, if it is one.
pub fn current_core() -> Option<usize> {
    reactor::with_current(|core| core.index)
}

/// Has the running task change to another flow, as the product's cores do.
pub fn enter(flow: &Arc<Flow>) -> bool {
    reactor::with_current(|core| core.executor.enter(flow)).unwrap_or(false)
}

/// The way to a core from other threads.
#[derive(Clone)]
pub struct Door(Arc<reactor::World>);

impl Door {
    /// Has a task run on the core.
    pub fn spawn(&self, make: MakeTask) {
        self.0.inboxes[0].spawn(None, make);
    }
    /// Starts an I/O, as the product does for threads that are not cores.
    pub fn submit(&self, request: Request) -> Transfer {
        let (slot, transfer) = self.0.foreign_slots.start(Purpose::Other, request);
        self.0.inboxes[0].submit(slot);
        transfer
    }
    /// Has the core end.
    pub fn stop(&self) {
        self.0.inboxes[0].stop();
    }
}

/// Starts a core's thread.
pub fn start() -> (Door, JoinHandle<()>) {
    let world = Arc::new(reactor::World {
        inboxes: vec![Arc::new(Inbox::new().expect("nothing to run out of"))],
        figures: vec![Arc::new(figures::Figures)],
        files: files::Files,
        net: listener::Network,
        active: vec![reactor::Active::default()],
        foreign_slots: SlotPool::new(),
        pm_qos: None,
    });
    let door = Door(world.clone());
    let core = loom::thread::spawn(move || reactor::run(world, 0, |ready| ready.expect("nothing to run out of")));
    (door, core)
}
