//! The cores of a daemon from its start to its end.

use base::{Error, Kind, Result};
use runtime::real::Reactors;
use std::sync::{Arc, Mutex};

/// The cores of a daemon, until they are stopped.
pub struct Cores {
    reactors: Mutex<Option<Arc<Reactors>>>,
    /// The error of whoever comes afterwards.
    stopped: &'static str,
}

impl Cores {
    /// Running cores.
    pub fn new(reactors: Reactors, stopped: &'static str) -> Cores {
        Cores { reactors: Mutex::new(Some(Arc::new(reactors))), stopped }
    }
    /// The cores. Errors: they are stopped.
    pub fn get(&self) -> Result<Arc<Reactors>> {
        let reactors = self.reactors.lock().expect("no panic while held");
        reactors.clone().ok_or_else(|| Error::new(Kind::Interrupted, self.stopped))
    }
    /// Stops them. Nobody uses them any more.
    pub fn stop(&self) {
        let reactors = self.reactors.lock().expect("no panic while held").take();
        let alone = reactors.map(Arc::try_unwrap);
        alone.into_iter().for_each(|alone| alone.ok().expect("nobody uses cores that are being stopped").stop());
    }
}
