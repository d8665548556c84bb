//! Slots of I/O (`runtime::transfer`): their waiter, their device, and the owner of their buffer.

use crate::{Bytes, CHUNK, large};
use interleave::buffer::{Buf, Slabs};
use interleave::disk::FileId;
use interleave::explore;
use interleave::real::block_on;
use interleave::transfer::{Done, Purpose, Request, Slot, SlotPool, Start};
use loom::thread::{spawn, yield_now};
use std::sync::Arc;

fn read(buffer: Buf) -> Request {
    Request::Read { file: FileId(0), offset: 0, buffer, start: Start::AtOnce }
}

/// The address of a buffer.
fn place(buffer: &[u8]) -> usize {
    buffer.as_ptr() as usize
}

/// Fills the buffer of a slot, as a device does: the one that it was shown first. A `late` one keeps the slot for a moment
/// after it has finished.
fn perform(slot: Arc<Slot>, bytes: &Bytes, late: bool) {
    let shown = slot.with_request(|request| match request {
        Request::Read { buffer, .. } => place(buffer),
        _ => unreachable!("the scene only reads"),
    });
    slot.with_request(|request| {
        let Request::Read { buffer, .. } = request else { unreachable!("the scene only reads") };
        assert_eq!(place(buffer), shown, "the slot holds another buffer than the device was shown");
        bytes.write(buffer);
    });
    slot.finish(Ok(()));
    if late {
        yield_now();
    }
}

fn buffer_of(done: Done) -> Buf {
    done.result.expect("it was performed");
    done.buffer.expect("a read hands its buffer back")
}

fn the_client_goes(late: bool) {
    explore(5, move || {
        let (slabs, bytes, pool) = (Slabs::new(1, CHUNK), Bytes::new(), SlotPool::new());
        let (first, second) = (large(&slabs).expect("there are two"), large(&slabs).expect("there are two"));
        let expected = place(&second);
        let (slot, transfer) = pool.start(Purpose::Other, read(first));
        let there = bytes.clone();
        let device = spawn(move || perform(slot, &there, late));
        drop(transfer);
        let (slot, transfer) = pool.start(Purpose::Other, read(second));
        perform(slot, &bytes, late);
        let buffer = buffer_of(block_on(transfer));
        assert_eq!(place(&buffer), expected);
        bytes.read(&buffer);
        device.join().expect("no panic");
        let first = large(&slabs).expect("the device is done with it");
        bytes.write(&first);
    });
}

#[test]
fn a_slot_keeps_its_buffer_until_the_device_is_done() {
    the_client_goes(false);
    the_client_goes(true);
}

#[cfg(feature = "seeded-bugs")]
#[test]
fn a_slot_that_is_freed_early_is_noticed() {
    assert!(base::seeded::fails(|| the_client_goes(false), base::seeded::Bug::SlotFreedEarly));
}

#[test]
fn whoever_waits_for_an_io_gets_its_own_buffer_and_the_slot_serves_again() {
    let scene = |late: bool| {
        let (slabs, bytes, pool) = (Slabs::new(1, CHUNK), Bytes::new(), SlotPool::new());
        let mut buffer = large(&slabs).expect("there are two");
        let mut devices = Vec::new();
        for _ in 0..2 {
            let expected = place(&buffer);
            let (slot, transfer) = pool.start(Purpose::Other, read(buffer));
            let there = bytes.clone();
            devices.push(spawn(move || perform(slot, &there, late)));
            buffer = buffer_of(block_on(transfer));
            assert_eq!(place(&buffer), expected);
            bytes.read(&buffer);
        }
        devices.into_iter().for_each(|device| device.join().expect("no panic"));
    };
    explore(5, move || scene(false));
    explore(5, move || scene(true));
}
