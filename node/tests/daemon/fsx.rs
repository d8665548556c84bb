//! fsx, which does random operations on one file and compares it byte by byte.

use super::tools;
use crate::daemon::Home;
use std::process::Command;

/// Name, its part of all operations in percent (mapped pages are written back one by one), largest size, largest operation,
/// alignment, and how often it does what.
pub type Mode = (&'static str, u64, u64, u64, u64, &'static str);

/// One of them may run beside the others.
pub const MODES: [Mode; 4] = [
    (
        "plain",
        50,
        256 << 10,
        64 << 10,
        1,
        "read = 10\nwrite = 10\nmapread = 0\nmapwrite = 0\ntruncate = 5\nclose_open = 2",
    ),
    (
        "mapped",
        5,
        256 << 10,
        64 << 10,
        1,
        "read = 5\nwrite = 5\nmapread = 10\nmapwrite = 10\ntruncate = 3\ninvalidate = 1",
    ),
    (
        "sparse",
        20,
        4 << 20,
        300 << 10,
        1,
        "read = 10\nwrite = 6\nmapread = 3\nmapwrite = 3\ntruncate = 4\npunch_hole = 6\nposix_fallocate = 3\n\
         sendfile = 2\ncopy_file_range = 4\nposix_fadvise = 3\nclose_open = 1",
    ),
    (
        "blocks",
        25,
        1 << 20,
        128 << 10,
        4096,
        "read = 10\nwrite = 10\nmapread = 2\nmapwrite = 2\ntruncate = 3\npunch_hole = 3\n\
         fsync = 1\nfdatasync = 1\ncopy_file_range = 3\nclose_open = 1",
    ),
];

/// Operations of one process at most: the tool keeps each mapping that it made, and each change of the file walks
/// through all of them, until the kernel grants it no more (65,530 are usual).
const ROUND_OPERATIONS: u64 = 20_000;

/// Runs this many operations of a mode on the mount's file of its name, in rounds, each with a seed of its own.
pub fn run(home: &Home, mode: Mode, operations: u64, seed: u64) {
    for round in 0..operations.div_ceil(ROUND_OPERATIONS) {
        let left = operations - round * ROUND_OPERATIONS;
        run_round(home, mode, left.min(ROUND_OPERATIONS), seed + 1_000_003 * round);
        if round % 25 == 24 {
            println!("{}: {} of {operations}", mode.0, (round + 1) * ROUND_OPERATIONS);
        }
    }
}

fn run_round(home: &Home, (name, _, flen, max, align, weights): Mode, operations: u64, seed: u64) {
    let file = home.scratch.join(&format!("{name}.toml"));
    // Room for no bytes is refused, as it should be. Aligned, the tool asks for none near the end, so it does not there.
    let sizes = format!("min = {align}\nmax = {max}\nalign = {align}");
    let text = format!("flen = {flen}\n[opsize]\n{sizes}\n[weights]\n{weights}\n");
    std::fs::write(&file, text).expect("writable");
    let mut command = Command::new(tools::tool("fsx"));
    command.arg("-f").arg(&file).args(["-N", &operations.to_string(), "-S", &seed.to_string()]);
    command.arg("-P").arg(home.scratch.path()).arg(home.mount.join(name));
    let (passed, said) = tools::said(&mut command);
    let last: Vec<_> = said.lines().rev().take(40).collect();
    assert!(passed, "{name}, seed {seed}:\n{}", last.into_iter().rev().collect::<Vec<_>>().join("\n"));
}
