//! A simulated directory that can end before each step, or fail it, and all that may be found afterwards: a killed process
//! leaves what it did; a power cut leaves any part of what was not flushed.

use base::{Error, Kind, Result};
use control::Files;
use control::files::Found;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A directory; clones are the same one.
#[derive(Clone, Default)]
pub struct World(Rc<RefCell<Inner>>);

#[derive(Clone, Default)]
struct Inner {
    contents: Vec<Content>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Changes of names that are not durable: (name, what it names then).
    changes: Vec<Vec<(String, Option<usize>)>>,
    /// Steps until the end or a failure.
    steps_left: Option<usize>,
    steps: usize,
    /// True if the steps after that one succeed again: the device was full for a moment.
    fails_once: bool,
    readable: bool,
}

#[derive(Clone, Default)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
}

impl World {
    /// Ends the world after this many steps.
    pub fn end_after(&self, steps: usize) {
        let mut inner = self.0.borrow_mut();
        (inner.steps_left, inner.fails_once) = (Some(steps), false);
    }
    /// Fails one step after this many.
    pub fn fail_after(&self, steps: usize) {
        let mut inner = self.0.borrow_mut();
        (inner.steps_left, inner.fails_once) = (Some(steps), true);
    }
    /// Steps taken so far.
    pub fn steps(&self) -> usize {
        self.0.borrow().steps
    }
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let inner = self.0.borrow();
        inner.names.get(name).map(|&at| inner.contents[at].now.clone())
    }
    /// Puts a file there, durably.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut inner = self.0.borrow_mut();
        let at = inner.contents.len();
        inner.contents.push(Content { now: bytes.to_vec(), durable: bytes.to_vec() });
        inner.names.insert(name.to_string(), at);
        inner.durable_names.insert(name.to_string(), at);
    }
    /// Opens all files to others.
    pub fn open_to_others(&self) {
        self.0.borrow_mut().readable = true;
    }
    /// A copy of it, at rest and whole.
    pub fn copy(&self) -> World {
        let mut inner = self.0.borrow().clone();
        (inner.steps_left, inner.fails_once) = (None, false);
        World(Rc::new(RefCell::new(inner)))
    }
    /// All that a restart may find.
    pub fn images(&self) -> Vec<World> {
        let inner = self.0.borrow();
        let mut images = vec![self.copy()];
        for kept in 0..1u32 << inner.changes.len() {
            let mut names = inner.durable_names.clone();
            let changes = inner.changes.iter().enumerate().filter(|(at, _)| kept >> at & 1 == 1);
            for (name, target) in changes.flat_map(|(_, change)| change) {
                match target {
                    Some(target) => names.insert(name.clone(), *target),
                    None => names.remove(name),
                };
            }
            for bytes in [|it: &Content| it.durable.clone(), |it: &Content| it.now.clone(), torn] {
                let world = World::default();
                for (name, &at) in &names {
                    world.put(name, &bytes(&inner.contents[at]));
                }
                images.push(world);
            }
        }
        images
    }
}

/// The first half has come, the second has not.
fn torn(content: &Content) -> Vec<u8> {
    if content.now == content.durable { content.now.clone() } else { content.now[..content.now.len() / 2].to_vec() }
}

impl Inner {
    /// Counts a step; an error if it does not come about.
    fn step(&mut self) -> Result<()> {
        match self.steps_left {
            Some(0) => {
                if self.fails_once {
                    self.steps_left = None;
                }
                Err(Error::new(Kind::NoSpace, "simulated"))
            }
            left => {
                self.steps_left = left.map(|left| left - 1);
                self.steps += 1;
                Ok(())
            }
        }
    }
}

impl Files for World {
    fn read(&self, name: &str, bytes_max: usize) -> Result<Option<Found>> {
        let is_open_to_others = self.0.borrow().readable;
        let bytes = self.bytes(name).inspect(|bytes| assert!(bytes.len() <= bytes_max));
        Ok(bytes.map(|bytes| Found { bytes, is_open_to_others }))
    }
    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let mut inner = self.0.borrow_mut();
        let at = match inner.names.get(name).copied() {
            Some(at) => at,
            None => {
                let at = inner.contents.len();
                inner.contents.push(Content::default());
                inner.names.insert(name.to_string(), at);
                inner.changes.push(vec![(name.to_string(), Some(at))]);
                at
            }
        };
        // An end within the step leaves a part.
        inner.contents[at].now = bytes[..bytes.len() / 3].to_vec();
        inner.step()?;
        inner.contents[at].now = bytes.to_vec();
        Ok(())
    }
    fn flush(&self, name: &str) -> Result<()> {
        let mut inner = self.0.borrow_mut();
        inner.step()?;
        let at = inner.names[name];
        inner.contents[at].durable = inner.contents[at].now.clone();
        Ok(())
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut inner = self.0.borrow_mut();
        inner.step()?;
        let at = inner.names.remove(from).expect("it was written");
        inner.names.insert(to.to_string(), at);
        inner.changes.push(vec![(from.to_string(), None), (to.to_string(), Some(at))]);
        Ok(())
    }
    fn sync_names(&self) -> Result<()> {
        let mut inner = self.0.borrow_mut();
        inner.step()?;
        inner.durable_names = inner.names.clone();
        inner.changes.clear();
        Ok(())
    }
    fn shown(&self, name: &str) -> String {
        format!("/brick/network/{name}")
    }
}
