//! fsx on a real mount: random operations on one file each, compared byte by byte, in several modes side by side.
//!
//! `FSX_OPERATIONS=10000000 FSX_SEED=7` by hand; the seed is printed.

use crate::daemon::Home;
use crate::fsx_runs;
use std::time::SystemTime;

/// Number of operations of all modes together.
const OPERATIONS: u64 = 140_000;

#[test]
fn files_hold_what_was_written() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let seed = crate::daemon::setting("FSX_SEED", now.as_nanos() as u64 % 1_000_000_007);
    let all = crate::daemon::setting("FSX_OPERATIONS", OPERATIONS);
    println!("FSX_SEED={seed}, {all} operations");
    let home = Home::new("fsx");
    let daemon = home.up();
    std::thread::scope(|scope| {
        for (at, mode) in fsx_runs::MODES.into_iter().enumerate() {
            let home = &home;
            scope.spawn(move || fsx_runs::run(home, mode, all * mode.1 / 100, seed + at as u64));
        }
    });
    daemon.terminate();
    home.check();
}
