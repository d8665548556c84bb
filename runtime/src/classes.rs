//! Classes of sizes and depths: durations of transfers and requests of different classes don't compare.

/// Number of classes of size: up to 4 KiB, 16 KiB, 64 KiB, 256 KiB, and more.
pub const SIZES: usize = 5;
/// Number of classes of depth: 1, 2 or 3, 4 to 7, 8 to 15, 16 to 31, and more under way.
pub const DEPTHS: usize = 6;

/// The class of so many bytes.
pub fn size(bytes: usize) -> usize {
    (bytes.div_ceil(4096).max(1).next_power_of_two().ilog2() as usize).div_ceil(2).min(SIZES - 1)
}

/// Bytes up to which a class of size goes; the last one goes further.
pub fn bytes_max(size: usize) -> u64 {
    4096 << (2 * size)
}

/// The class of one of so many that are under way.
pub fn depth(under_way: usize) -> usize {
    (under_way.max(1).ilog2() as usize).min(DEPTHS - 1)
}

/// The least number under way of a class of depth.
pub fn depth_min(depth: usize) -> u64 {
    1 << depth
}
