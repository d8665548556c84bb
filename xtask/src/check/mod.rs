//! The house rules that a machine can hold. Each check is a pure function from the tree to a list of problems;
//! each has a test which shows that it fails on a bad example, and one that runs it on this repository.

mod assertions;
mod banned;
mod counts;
mod dead;
mod evidence;
mod floors;
mod format;
mod links;
mod measured;
mod options;
mod rooms;
mod rules;
mod size;
mod stations;
mod subjects;
mod unsafe_code;
mod words;

pub use assertions::table as assertions_table;
pub use format::format_hashes;
pub use rules::citations;
pub use subjects::{listed, table};

use crate::tree::Tree;

/// A file that stores what may only shrink, or only grow, and the function that makes its text after today's change.
pub type Ratchet = (&'static str, fn(&Tree) -> String);

/// All such files.
pub const RATCHETS: [Ratchet; 4] = [
    (size::RATCHET, size::lowered),
    (subjects::STORED, subjects::lowered),
    (unsafe_code::STORED, unsafe_code::lowered),
    (assertions::STORED, assertions::raised),
];

/// One rule of the house.
pub struct Check {
    /// Its name in `cargo xtask check NAME`.
    pub name: &'static str,
    /// The fault that it refuses.
    pub about: &'static str,
    /// Finds the problems: one line of text each, `path:line: what, and what to do`.
    pub run: fn(&Tree) -> Vec<String>,
}

/// All checks.
pub const ALL: [Check; 19] = [
    Check { name: "floors", about: "dependencies that point upward or past a fence", run: floors::check },
    Check { name: "file-names", about: "files called util, common, helper, misc or manager", run: words::file_names },
    Check { name: "size", about: "files over 800 and functions over 70 product lines", run: size::check },
    Check { name: "banned", about: "calls that leave the measured, simulated world", run: banned::calls },
    Check { name: "unsafe", about: "unsafe code outside its rooms, or more than stored", run: unsafe_code::check },
    Check { name: "unfinished", about: "marks of unfinished work", run: words::unfinished },
    Check { name: "stages", about: "stages and counters that nothing feeds", run: measured::check },
    Check { name: "options", about: "options without unit, bounds or documentation", run: options::check },
    Check { name: "format", about: "a disk format that changed without its document", run: format::check },
    Check { name: "dead-files", about: "Rust files that no module declares", run: dead::check },
    Check { name: "rules", about: "citations of rules that don't exist", run: rules::check },
    Check { name: "evidence", about: "rules and seeded bugs without a test that notices", run: evidence::check },
    Check { name: "stands-alone", about: "text that names places outside the repository", run: words::stands_alone },
    Check { name: "heads", about: "product files that don't say what they are for", run: words::heads },
    Check { name: "subjects", about: "more doc comments without a leading subject than stored", run: subjects::check },
    Check { name: "assertions", about: "fewer assertions per thousand lines than stored", run: assertions::check },
    Check { name: "links", about: "links that lead nowhere", run: links::check },
    Check { name: "stations", about: "a map that names functions which are not there", run: stations::check },
    Check { name: "lints", about: "packages that don't take the workspace's lints", run: floors::lints },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of made-up files.
    pub fn tree(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        files.iter().for_each(|(path, text)| tree.add(path, text));
        tree
    }

    #[test]
    fn this_repository_passes() {
        let tree = Tree::load(&crate::tree::root()).expect("the repository can be read");
        let problems: Vec<String> = ALL.iter().flat_map(|check| (check.run)(&tree)).collect();
        assert!(problems.is_empty(), "\n{}", problems.join("\n"));
    }

    #[test]
    fn names_differ() {
        for (at, check) in ALL.iter().enumerate() {
            assert!(ALL[..at].iter().all(|other| other.name != check.name), "{}", check.name);
        }
    }
}
