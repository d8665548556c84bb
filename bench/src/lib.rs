//! The workshop's measurements. Each binary answers one question that a decision note (`docs/decisions`) cites, and
//! prints what the note quotes. Nothing in the product uses this.

pub mod figures;
pub mod process;
