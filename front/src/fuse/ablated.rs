//! Older designs of serving, for `cargo xtask ablate` (`base::ablated`): requests go from the thread that fetches them to a
//! worker thread, and answers from the thread that made them to another. Workers are cores behind those that have CPUs of
//! their own. Entries of rings always go home with their answers (docs/decisions/0023 has why they don't move).

use super::channel::{Back, Message};
use super::serve::{Core, Leave, Served, Target, run_entry};
use base::Result;
#[cfg(feature = "ablations")]
use base::ablated::{Ablation, is_on};
use base::ablated::{WORKERS, workers};
use runtime::real::RingEntry;
use runtime::{Arrival, Buf};
use std::pin::pin;
use std::sync::atomic::Ordering;

impl<T: Target> Served<T> {
    /// The thread that a request or an answer is handed to: one of the workers in turn; from a worker, a core.
    fn other(&self) -> usize {
        let cores = self.cores.len() - workers();
        if self.home < cores { cores + self.home().shared.turns.next() % WORKERS } else { self.home % cores }
    }
    fn at(self, home: usize) -> Served<T> {
        Served { home, ..self }
    }
    /// Hands a request that was read from the descriptor to a worker.
    pub(super) fn hand_down(&self, message: Message, payload: Option<Result<Buf>>, arrival: Arrival) {
        let shared = self.home().shared.clone();
        // The reader is one of them still, so the count can't be zero before.
        shared.tasks.fetch_add(1, Ordering::Relaxed);
        let (from, to) = (self.home, self.other());
        let served = Served { cores: self.cores.clone(), home: to, user: self.user.clone(), _leave: Leave(shared) };
        let arrival = arrival.hopped();
        served.spawn(to, move |served| handle_read(served, from, message, payload, arrival));
    }
    /// Hands an entry with its request to a worker.
    pub(super) fn hand_entry_down(
        self,
        entry: RingEntry,
        message: Message,
        payload: Option<Result<Buf>>,
        arrival: Arrival,
    ) {
        let (from, to) = (self.home, self.other());
        let arrival = arrival.hopped();
        self.at(to).spawn(to, move |served| handle_entry(served, from, entry, message, payload, arrival));
    }
    /// The way back for the answer to a request that `reader` has read, handled where this is served.
    #[cfg(not(feature = "ablations"))]
    #[inline(always)]
    pub(super) fn way_back<'a>(&self, reader: &'a Core<T>, _: Option<usize>) -> Back<'a> {
        Back::Device(&reader.device)
    }
    /// The way back for the answer to a request that `reader` has read, handled where this is served: by another thread, if
    /// that is switched on; `writer` if there is one, else the next in turn.
    #[cfg(feature = "ablations")]
    pub(super) fn way_back<'a>(&self, reader: &'a Core<T>, writer: Option<usize>) -> Back<'a> {
        if !is_on(Ablation::HandBack) {
            return Back::Device(&reader.device);
        }
        let tasks = reader.handler.runtime.tasks.clone();
        Back::Away(away::Away::new(reader.device.clone(), tasks, writer.unwrap_or_else(|| self.other())))
    }
}

async fn handle_read<T: Target>(
    served: Served<T>,
    from: usize,
    message: Message,
    payload: Option<Result<Buf>>,
    arrival: Arrival,
) {
    let handler = &served.home().handler;
    let arrival = arrival.taken(handler.runtime.stamp());
    let mut back = served.way_back(&served.cores[from], Some(from));
    pin!(handler.handle(message, payload, arrival, &mut back)).await;
}

async fn handle_entry<T: Target>(
    served: Served<T>,
    from: usize,
    entry: RingEntry,
    message: Message,
    payload: Option<Result<Buf>>,
    arrival: Arrival,
) {
    let arrival = arrival.taken(served.home().handler.runtime.stamp());
    let entry = served.home().answer(entry, message, payload, arrival).await;
    served.at(from).spawn(from, move |served| run_entry(served, entry));
}

/// Answers that another thread writes.
#[cfg(feature = "ablations")]
pub(super) mod away {
    use crate::fuse::channel::write;
    use runtime::{Slice, Tasks};
    use std::fs::File;
    use std::sync::Arc;

    /// The way to the thread that writes an answer. That the kernel does not take it is not noticed: an interrupted open
    /// counts until its mount ends.
    pub struct Away {
        device: Arc<File>,
        tasks: Arc<dyn Tasks>,
        writer: usize,
        kept: Option<Slice>,
    }

    impl Away {
        /// A way to core number `writer`.
        pub fn new(device: Arc<File>, tasks: Arc<dyn Tasks>, writer: usize) -> Away {
            Away { device, tasks, writer, kept: None }
        }
        /// Notes the buffer behind the answer's bytes, which need not be copied then.
        pub fn keep(&mut self, bytes: &Slice) {
            self.kept = Some(bytes.clone());
        }
        /// Hands an answer over.
        pub fn send(&mut self, head: &[u8], tail: &[u8]) {
            let (head, device): (Box<[u8]>, _) = (head.into(), self.device.clone());
            let kept = self.kept.take();
            let copy: Box<[u8]> = if kept.is_some() { Box::default() } else { tail.into() };
            let written = async move {
                let _ = write(&device, &head, kept.as_deref().unwrap_or(&copy));
            };
            self.tasks.spawn(self.writer, Box::new(move || Box::pin(written)));
        }
    }
}
