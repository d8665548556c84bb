//! Simulated.
