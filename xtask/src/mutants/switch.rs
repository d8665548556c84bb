//! The switch of the mutants. The copy of the repository has this file in its `base`, where all rooms reach it.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::{Mutex, OnceLock};

/// Number of the mutant that is on.
pub const CHOSEN: &str = "SINTER_MUTANT";
/// File that takes the numbers of the mutants whose place was reached, a line each.
pub const REACHED: &str = "SINTER_MUTANTS_REACHED";

/// The request to this process.
struct Asked {
    chosen: Option<u32>,
    reached: Option<Mutex<(BTreeSet<u32>, File)>>,
}

/// True if mutant `number` is on.
pub fn on(number: u32) -> bool {
    static ASKED: OnceLock<Asked> = OnceLock::new();
    let asked = ASKED.get_or_init(|| {
        let file =
            std::env::var_os(REACHED).and_then(|path| OpenOptions::new().append(true).create(true).open(path).ok());
        Asked {
            chosen: std::env::var(CHOSEN).ok().and_then(|text| text.parse().ok()),
            reached: file.map(|file| Mutex::new((BTreeSet::new(), file))),
        }
    });
    if let Some(Ok(mut reached)) = asked.reached.as_ref().map(Mutex::lock)
        && reached.0.insert(number)
    {
        // Each at once: the process may end in any way.
        let _ = writeln!(reached.1, "{number}");
    }
    asked.chosen == Some(number)
}
