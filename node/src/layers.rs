//! Layers as the admin socket tells them.

use crate::admin::protocol::{Hop, Layer};
use base::{Error, Kind, Operations, Result};
use explain::snapshot::LayerFigures;
use layer::HopSummary;

/// A volume's layers with their figures.
pub fn told(hops: &[HopSummary]) -> Vec<Hop> {
    let hop = |(number, hop): (u64, &HopSummary)| Hop {
        position: number,
        layer: described(&hop.layer),
        calls: hop.calls,
        answered: hop.answered,
        changed: hop.changed,
        held_mean_ns: hop.ns.checked_div(hop.calls).unwrap_or(0),
    };
    (1..).zip(hops).map(hop).collect()
}

/// The figures of a volume's layers, for snapshots.
pub fn figures(volume: &str, hops: &[HopSummary]) -> Vec<LayerFigures> {
    let figures = |(number, hop): (u64, &HopSummary)| LayerFigures {
        volume: volume.to_string(),
        layer: format!("layer {number} ({})", hop.layer.name()),
        calls: hop.calls,
        held_ns: hop.ns,
    };
    (1..).zip(hops).map(figures).collect()
}

fn described(layer: &base::Layer) -> Layer {
    let operation = |operations: &Operations| operations.name().map(str::to_string);
    match layer {
        base::Layer::ReadOnly => Layer::ReadOnly,
        base::Layer::Delay { operations, ns } => Layer::Delay { operation: operation(operations), ns: *ns },
        base::Layer::Fault { operations, kind, every } => {
            Layer::Fault { operation: operation(operations), error: kind.name().to_string(), every: *every }
        }
    }
}

/// The layer that somebody asks for. Errors: `Invalid` for names that there are not; numbers are checked by who takes it.
pub fn asked(layer: &Layer) -> Result<base::Layer> {
    Ok(match layer {
        Layer::ReadOnly => base::Layer::ReadOnly,
        Layer::Delay { operation, ns } => {
            base::Layer::Delay { operations: Operations::of(operation.as_deref())?, ns: *ns }
        }
        Layer::Fault { operation, error, every } => {
            let unknown = || Error::new(Kind::Invalid, "no error has this name").with(error);
            let kind = Kind::of_name(error).ok_or_else(unknown)?;
            base::Layer::Fault { operations: Operations::of(operation.as_deref())?, kind, every: *every }
        }
    })
}
