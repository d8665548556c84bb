//! The rows `flood`, `users` and `names`: clients of one mount. One with hundreds of asynchronous requests beside one that waits for each;
//! one user's many clients beside another user's one; names that are looked up cold beside writers.

use super::brick::Brick;
use super::fair::beside;
use crate::flash::figures::median;
use crate::flash::ground::{text, told};
use crate::flash::undo::Undo;
use crate::hybrid::report::{Report, Wish};
use crate::verdicts::load::{Load, READ, Said, lay_out};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of the small client's file: more than the daemon's read cache.
const FILE_BYTES: u64 = 1 << 30;
/// More asynchronous requests than a mount has entries.
const FLOOD: Load = Load { jobs: 2, depth: 256, ..READ };
/// Any two users, and the number of clients of the second: fewer than a mount has entries, and as many.
const USERS: [u32; 2] = [1001, 1000];
const CLIENTS: [u32; 4] = [4, 16, 32, 64];
/// Directories, and files in each: more inodes than are looked up in one measurement.
const DIRECTORIES: u64 = 400;
const FILES: u64 = 100;
/// Writers beside the look-ups, many and polite.
const WRITERS: [u32; 2] = [64, 4];

/// Measures the row `flood`.
pub fn flood(brick: &Brick, (rounds, seconds): (u64, u64), report: &mut Report, undo: &Undo) -> Result<(), String> {
    let small = brick.file(0).with_file_name("small");
    lay_out(&small, FILE_BYTES, undo)?;
    let (mut alone, mut pairs): (Vec<Said>, Vec<(Said, Said)>) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        alone.push(READ.measure(&small, seconds, undo)?);
        let measure = || READ.measure(&small, seconds, undo);
        pairs.push(beside((&FLOOD, &brick.file(0), seconds), undo, measure)?);
    }
    let of = |part: fn(&(Said, Said)) -> f64| median(&pairs.iter().map(part).collect::<Vec<_>>());
    let own = median(&alone.iter().map(|said| said.per_second).collect::<Vec<_>>());
    let mut add = |name: &str, value, unit| report.add("flood", name, value, unit, Wish::None);
    add("512 asynchronous reads in flight", of(|pair| pair.1.per_second), "/s");
    add("a client that waits for each read, alone", own, "/s");
    add("the same beside them", of(|pair| pair.0.per_second), "/s");
    add("its p99 beside them", of(|pair| pair.0.p99_us), "us");
    Ok(())
}

/// Measures the row `users`.
pub fn users(brick: &Brick, (rounds, seconds): (u64, u64), report: &mut Report, undo: &Undo) -> Result<(), String> {
    let small = brick.file(0).with_file_name("users");
    lay_out(&small, FILE_BYTES, undo)?;
    for path in [small.as_path(), &brick.file(0)] {
        told("chmod", &["666", text(path)])?;
    }
    let one = Load { uid: Some(USERS[0]), ..READ };
    let loads = [
        ("4 KiB reads", READ),
        ("4 KiB writes", Load { pattern: "randwrite", ..READ }),
        ("1 MiB reads", Load { block_bytes: 1 << 20, ..READ }),
    ];
    for (name, load) in loads {
        for jobs in CLIENTS {
            let many = Load { jobs, uid: Some(USERS[1]), ..load };
            let during = || one.measure(&small, seconds, undo);
            let pairs = (0..rounds).map(|_| beside((&many, &brick.file(0), seconds), undo, during));
            let pairs = pairs.collect::<Result<Vec<(Said, Said)>, String>>()?;
            let of = |part: fn(&(Said, Said)) -> f64| median(&pairs.iter().map(part).collect::<Vec<_>>());
            let (small, p99, large) =
                (of(|pair| pair.0.per_second), of(|pair| pair.0.p99_us), of(|pair| pair.1.per_second));
            report.add("users", format!("{name}, {jobs} clients: the other user's one"), small, "/s", Wish::None);
            report.note("users", format!("{name}, {jobs} clients: {large:.0}/s; the other's p99 {p99:.0} us"));
        }
    }
    Ok(())
}

/// Measures the row `names`.
pub fn names(brick: &Brick, (rounds, seconds): (u64, u64), report: &mut Report, undo: &Undo) -> Result<(), String> {
    let tree = brick.file(0).with_file_name("tree");
    make(&tree)?;
    let (file, mut seen): (_, [Vec<[f64; 2]>; 3]) = (brick.file(0), Default::default());
    for _ in 0..rounds {
        seen[0].push(look(&tree, seconds)?);
        for (depth, seen) in WRITERS.into_iter().zip(&mut seen[1..]) {
            let writers = Load { pattern: "randwrite", depth, ..READ };
            let load = (&writers, &*file, 2 * seconds + 1);
            seen.push(beside(load, undo, || look(&tree, seconds))?.0);
        }
    }
    for (which, what) in ["stat", "ls of 100"].into_iter().enumerate() {
        let of = |seen: &[[f64; 2]]| median(&seen.iter().map(|both| both[which]).collect::<Vec<_>>());
        let [alone, many, polite] = [0, 1, 2].map(|row: usize| of(&seen[row]));
        report.add("names", format!("cold {what}: p99 alone"), alone, "us", Wish::None);
        report.add("names", format!("cold {what}: p99 beside 4 writes"), polite, "us", Wish::None);
        let name = format!("cold {what}: p99 beside 64 writes");
        // Three times alone, or one and a half times that beside polite ones.
        report.add("names", name, many, "us", Wish::MostIfAlone((3.0 * alone).max(1.5 * polite)));
    }
    Ok(())
}

fn make(tree: &Path) -> Result<(), String> {
    for directory in 0..DIRECTORIES {
        let directory = tree.join(directory.to_string());
        let made = std::fs::create_dir_all(&directory)
            .and_then(|()| (0..FILES).try_for_each(|file| std::fs::write(directory.join(file.to_string()), b"x")));
        made.map_err(|error| format!("{}: {error}", directory.display()))?;
    }
    Ok(())
}

/// Looks up files, then lists directories, none of which the kernel knows any more. The 99th percentile of each, in microseconds.
fn look(tree: &Path, seconds: u64) -> Result<[f64; 2], String> {
    let failed = |error: std::io::Error| format!("{}: {error}", tree.display());
    let mut p99 = [0.0; 2];
    for (which, p99) in p99.iter_mut().enumerate() {
        // Names and inodes.
        std::fs::write("/proc/sys/vm/drop_caches", "2").map_err(failed)?;
        let (began, mut times) = (Instant::now(), Vec::new());
        for number in 0..DIRECTORIES * FILES {
            if began.elapsed() > Duration::from_secs(seconds) || which == 1 && number == DIRECTORIES {
                break;
            }
            // By turns in all directories, so that a look-up does not follow the one before it.
            let directory = tree.join((number * 7 % DIRECTORIES).to_string());
            let started = Instant::now();
            match which {
                0 => {
                    std::fs::metadata(directory.join((number / DIRECTORIES).to_string())).map(|_| ()).map_err(failed)?
                }
                _ => drop(std::fs::read_dir(&directory).map_err(failed)?.collect::<Vec<_>>()),
            }
            times.push(started.elapsed());
        }
        times.sort_unstable();
        *p99 = times[times.len() * 99 / 100].as_secs_f64() * 1e6;
    }
    Ok(p99)
}
