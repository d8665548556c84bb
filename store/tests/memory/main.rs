//! The memory of what the store keeps for each segment or block: what the allocator has given stays below the stated bounds.

mod counting;
mod promotion;
mod segments;
