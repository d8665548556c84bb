//! Connections, the same tests for the real implementation and for the simulated one.

mod real;
mod scenarios;
mod simulated;
