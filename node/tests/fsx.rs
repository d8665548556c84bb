//! fsx on a real mount: random operations on one file each, compared byte by byte, in several modes side by side.
//!
//! `FSX_OPERATIONS=10000000 FSX_SEED=7` by hand; the seed is printed.

mod daemon;
#[path = "daemon/tools.rs"]
mod tools;

use daemon::Home;
use std::process::Command;
use std::time::SystemTime;

/// Of all modes together.
const OPERATIONS: u64 = 200_000;

/// Name, its part of all operations in percent (mapped pages are written back one by one), largest size, largest operation,
/// alignment, and how often it does what.
const MODES: [(&str, u64, u64, u64, u64, &str); 4] = [
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

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn files_hold_what_was_written() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let seed = number("FSX_SEED").unwrap_or(now.as_nanos() as u64 % 1_000_000_007);
    let all = number("FSX_OPERATIONS").unwrap_or(OPERATIONS);
    println!("FSX_SEED={seed}, {all} operations");
    let home = Home::new("fsx");
    let daemon = home.up();
    std::thread::scope(|scope| {
        for (at, (name, share, flen, max, align, weights)) in MODES.into_iter().enumerate() {
            let (home, tool, count) = (&home, tools::tool("fsx"), all * share / 100);
            scope.spawn(move || {
                let file = home.scratch.join(&format!("{name}.toml"));
                // Room for no bytes is refused, as it should be. Aligned, the tool asks for none near the end, so it does not there.
                let sizes = format!("min = {align}\nmax = {max}\nalign = {align}");
                let text = format!("flen = {flen}\n[opsize]\n{sizes}\n[weights]\n{weights}\n");
                std::fs::write(&file, text).expect("writable");
                let mut command = Command::new(tool);
                command.arg("-f").arg(&file).args(["-N", &count.to_string(), "-S", &(seed + at as u64).to_string()]);
                command.arg("-P").arg(home.scratch.path()).arg(home.mount.join(name));
                let (passed, said) = tools::said(&mut command);
                let last: Vec<_> = said.lines().rev().take(40).collect();
                assert!(passed, "{name}, FSX_SEED={seed}:\n{}", last.into_iter().rev().collect::<Vec<_>>().join("\n"));
            });
        }
    });
    daemon.terminate();
    home.check();
}
