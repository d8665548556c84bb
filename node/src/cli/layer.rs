//! `sinter layer`: the layers of a volume.

use super::volume_name;
use base::limits::{LAYER_DELAY_NS_MAX, LAYER_EVERY_MAX, LAYERS_MAX};
use base::{Kind, Operations};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, value_parser};
use std::path::PathBuf;

/// Milliseconds for which a layer holds an operation at most.
const MS_MAX: u64 = LAYER_DELAY_NS_MAX / 1_000_000;

/// `sinter layer`.
#[derive(Subcommand, Debug)]
pub enum Layer {
    /// List a volume's layers from the top down, with their figures
    List(Layered),
    /// Put a layer into a volume's stack, mounted or not
    Add(LayerAdd),
    /// Take a layer out of a volume's stack, mounted or not
    Remove(LayerRemove),
    /// Move a layer to another position
    Move(LayerMove),
}

/// A volume whose layers are meant.
#[derive(Args, Debug)]
pub struct Layered {
    /// Directory of the brick; its daemon must be running
    pub data: PathBuf,
    /// The volume's name
    #[arg(value_parser = volume_name)]
    pub volume: String,
    /// Print JSON [default: a table]
    #[arg(long)]
    pub json: bool,
}

/// `sinter layer add`.
#[derive(Args, Debug)]
pub struct LayerAdd {
    /// Directory of the brick; its daemon must be running
    pub data: PathBuf,
    /// The volume's name
    #[arg(value_parser = volume_name)]
    pub volume: String,
    /// The layer
    #[command(subcommand)]
    pub layer: NewLayer,
}

/// A layer that is put in, and its parameters.
#[derive(Subcommand, Debug)]
pub enum NewLayer {
    /// Refuse changes with EROFS, and leave access times as they are
    ReadOnly {
        #[command(flatten)]
        place: Place,
    },
    /// Hold operations for a time
    Delay {
        /// Milliseconds for which each is held, 1 to 60000
        #[arg(value_parser = value_parser!(u64).range(1..=MS_MAX))]
        ms: u64,
        /// Name of the operations that it acts on [default: all that clients wait for]
        #[arg(long, value_name = "NAME", value_parser = operation_names())]
        operation: Option<String>,
        #[command(flatten)]
        place: Place,
    },
    /// Answer operations with an error
    Fault {
        /// The error
        #[arg(value_parser = error_names())]
        error: String,
        /// One operation in how many, a count, 1 to 1000000000
        #[arg(default_value_t = 1, value_parser = value_parser!(u64).range(1..=LAYER_EVERY_MAX))]
        every: u64,
        /// Name of the operations that it acts on [default: all that clients wait for]
        #[arg(long, value_name = "NAME", value_parser = operation_names())]
        operation: Option<String>,
        #[command(flatten)]
        place: Place,
    },
}

/// The place of a layer that is put in.
#[derive(Args, Debug)]
pub struct Place {
    /// Position that it gets, a number counted from the top, 1 to 16 [default: the lowest]
    #[arg(long, value_name = "POSITION", value_parser = position())]
    pub at: Option<u64>,
    /// Print JSON [default: a table]
    #[arg(long)]
    pub json: bool,
}

/// `sinter layer remove`.
#[derive(Args, Debug)]
pub struct LayerRemove {
    #[command(flatten)]
    pub of: Layered,
    /// Position of the layer, a number counted from the top, 1 to 16
    #[arg(value_parser = position())]
    pub position: u64,
}

/// `sinter layer move`.
#[derive(Args, Debug)]
pub struct LayerMove {
    #[command(flatten)]
    pub of: Layered,
    /// Position of the layer, a number counted from the top, 1 to 16
    #[arg(value_parser = position())]
    pub from: u64,
    /// Position that it gets, a number counted from the top, 1 to 16
    #[arg(value_parser = position())]
    pub to: u64,
}

fn position() -> clap::builder::RangedU64ValueParser {
    value_parser!(u64).range(1..=LAYERS_MAX as u64)
}

fn operation_names() -> PossibleValuesParser {
    PossibleValuesParser::new(Operations::names())
}

fn error_names() -> PossibleValuesParser {
    PossibleValuesParser::new(Kind::ALL.map(Kind::name))
}
