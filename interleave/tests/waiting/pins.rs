//! Readers in flight (`store::pins`): a freed place is written again after everybody who looked it up has read it.

use crate::Watched;
use interleave::explore;
use interleave::pins::{Leaving, Pins};
use interleave::sync::Mutex;
use loom::thread::spawn;
use std::sync::Arc;

/// A block that is moved from its old place to a new one, back and so on.
struct Brick {
    pins: Pins,
    /// Maps the block to its place.
    map: Mutex<usize>,
    leaving: Mutex<Leaving<usize>>,
    places: [Watched; 3],
}

impl Brick {
    fn new() -> Arc<Brick> {
        Arc::new(Brick {
            pins: Pins::new(2),
            map: Mutex::new(0),
            leaving: Mutex::default(),
            places: [Watched::new(), Watched::new(), Watched::new()],
        })
    }
    fn read(&self, core: usize) {
        let pin = self.pins.pin(core);
        let place = *self.map.lock().expect("no panic while held");
        self.places[place].read();
        drop(pin);
    }
    /// Moves the block to a place that nobody knows, and frees the old one.
    fn move_to(&self, place: usize) {
        self.places[place].write();
        let old = std::mem::replace(&mut *self.map.lock().expect("no panic while held"), place);
        self.leaving.lock().expect("no panic while held").extend([old]);
    }
    /// Writes what was freed and nobody reads.
    fn write_unread(&self) {
        let unread = self.leaving.lock().expect("no panic while held").take_unread(&self.pins);
        unread.into_iter().for_each(|place| self.places[place].write());
    }
}

fn a_block_is_moved_beneath_its_reader() {
    explore(5, || {
        let brick = Brick::new();
        let other = brick.clone();
        let reader = spawn(move || (0..2).for_each(|_| other.read(1)));
        for place in [1, 2] {
            brick.move_to(place);
            brick.write_unread();
        }
        reader.join().expect("no panic");
        (0..2).for_each(|_| brick.write_unread());
        assert_eq!(brick.leaving.lock().expect("no panic while held").count(), 0, "nobody reads any more");
    });
}

#[test]
fn a_place_is_written_again_after_all_who_looked_it_up() {
    a_block_is_moved_beneath_its_reader();
}

#[cfg(feature = "seeded-bugs")]
#[test]
fn readers_that_are_counted_early_are_noticed() {
    assert!(base::seeded::fails(a_block_is_moved_beneath_its_reader, base::seeded::Bug::PinsReadEarly));
}

#[test]
fn two_readers_on_two_cores_are_both_waited_for() {
    explore(4, || {
        let brick = Brick::new();
        let readers: Vec<_> = (0..2)
            .map(|core| {
                let brick = brick.clone();
                spawn(move || brick.read(core))
            })
            .collect();
        brick.move_to(1);
        brick.write_unread();
        readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
        brick.write_unread();
        assert_eq!(brick.leaving.lock().expect("no panic while held").count(), 0, "nobody reads any more");
    });
}
