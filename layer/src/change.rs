//! Changes of a stack: planned first, so that the catalogue can be told of the result before operations meet it.

use super::{LAYERS, Layers, Placed, Stack};
use base::limits::LAYERS_MAX;
use base::{Error, Kind, Layer, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A change of a stack. Positions count from 1, from the top down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Put a layer in, so that it has this position afterwards; at the bottom without one.
    Add { layer: Layer, at: Option<usize> },
    /// Take the layer at this position out.
    Remove { at: usize },
    /// Move a layer, so that it has the position `to` afterwards.
    Move { from: usize, to: usize },
}

/// A stack's layers after a change. Layers that stay keep their figures.
pub struct Plan(Vec<Arc<Placed>>);

impl Plan {
    pub(super) fn of(layers: &[Layer]) -> Plan {
        assert!(layers.len() <= LAYERS_MAX, "a stack has at most {LAYERS_MAX} layers");
        Plan(layers.iter().map(|layer| Placed::new(*layer)).collect())
    }
    /// The layers, from the top down.
    pub fn layers(&self) -> Box<[Layer]> {
        self.0.iter().map(|placed| placed.layer).collect()
    }
}

impl Stack {
    /// The layers as they will be after a change. Whoever plans sees to it that nobody else does until the plan is put in place or
    /// given up. Errors: `Invalid` for parameters out of bounds, a position that there is not, or too many layers.
    pub fn plan(&self, change: &Change) -> Result<Plan> {
        let mut placed = self.layers.lock().placed.clone();
        let count = placed.len();
        match *change {
            Change::Add { layer, at } => {
                if count == LAYERS_MAX {
                    return Err(Error::new(Kind::Invalid, "a volume has at most 16 layers"));
                }
                let at = index(at.unwrap_or(count + 1), count + 1)?;
                placed.insert(at, Placed::new(layer.checked()?));
            }
            Change::Remove { at } => drop(placed.remove(index(at, count)?)),
            Change::Move { from, to } => {
                let (from, to) = (index(from, count)?, index(to, count)?);
                let moved = placed.remove(from);
                placed.insert(to, moved);
            }
        }
        Ok(Plan(placed))
    }

    /// The layers as they were changed elsewhere; None if they are so already. Those that stay keep their figures.
    pub fn plan_of(&self, layers: &[Layer]) -> Option<Plan> {
        let mut before = self.layers.lock().placed.clone();
        if before.iter().map(|placed| &placed.layer).eq(layers) {
            return None;
        }
        let kept = |layer: &Layer| {
            let found = before.iter().position(|placed| placed.layer == *layer);
            found.map_or_else(|| Placed::new(*layer), |at| before.remove(at))
        };
        assert!(layers.len() <= LAYERS_MAX, "a stack has at most {LAYERS_MAX} layers");
        Some(Plan(layers.iter().map(kept).collect()))
    }

    /// Puts a plan in place: every operation that begins from now on meets its layers. Operations that a delay layer holds
    /// are let go soon, and go on through the layers of before.
    pub fn put(&self, Plan(placed): Plan) {
        let has_layers = !placed.is_empty();
        let after = Arc::new(Layers { placed, replaced: AtomicBool::new(false) });
        let before = std::mem::replace(&mut *self.layers.lock(), after);
        self.set_more(LAYERS, has_layers);
        before.replaced.store(true, Ordering::Relaxed);
    }
}

/// The index of a position, of `count`.
fn index(position: usize, count: usize) -> Result<usize> {
    if (1..=count).contains(&position) {
        return Ok(position - 1);
    }
    let positions = match count {
        0 => "there is no layer".to_string(),
        _ => format!("{position}, of 1 to {count}"),
    };
    Err(Error::new(Kind::Invalid, "no such position (sinter layer list)").with(positions))
}
