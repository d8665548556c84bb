//! A device that has done all I/O by the next time that its core looks.

use super::eventfd::Signal;
use super::figures::Figures;
use super::files::Files;
use super::ring::Ring;
use super::socket::Call;
use crate::stamp::Stamp;
use crate::transfer::Slot;
use base::Result;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

#[expect(dead_code, reason = "nothing is polled")]
pub enum Event {
    Nothing,
    Finished(Arc<Slot>, Result<()>, Stamp),
    Wake(Waker),
    Called(Call, i32),
}

pub struct Device {
    signal: Arc<Signal>,
    under_way: VecDeque<Arc<Slot>>,
}

impl Device {
    pub fn new(_ring: Ring, signal: Arc<Signal>, _figures: Arc<Figures>) -> Device {
        Device { signal, under_way: VecDeque::new() }
    }
    pub fn start(&mut self, slot: Arc<Slot>, _flow: usize, _files: &Files) -> Option<(Arc<Slot>, Result<()>)> {
        self.under_way.push_back(slot);
        None
    }
    pub fn call(&mut self, call: Call) {
        match call {}
    }
    pub fn cancel_calls(&mut self) {}
    pub fn set_shared(&mut self, _shared: bool) {}
    pub fn weigh(&mut self, _flow: usize, _weight: u64) {}
    pub fn complete(&mut self, _files: &Files) -> Option<Event> {
        self.under_way.pop_front().map(|slot| Event::Finished(slot, Ok(()), Stamp(0)))
    }
    pub fn has_completions(&self) -> bool {
        !self.under_way.is_empty()
    }
    pub fn in_flight(&self) -> usize {
        self.under_way.len()
    }
    pub fn unsubmitted(&self) -> usize {
        0
    }
    pub fn is_urgent(&self) -> bool {
        false
    }
    pub fn submit(&mut self) {}
    pub fn sleep_until(&mut self, _due_ns: Option<u64>) {
        if self.under_way.is_empty() {
            self.signal.sleep();
        }
    }
    pub fn release(&self) {}
}
