//! Names and words that have no place in the repository, and the head that each file must have.

use crate::check::floors::is_product_path;
use crate::scan::words;
use crate::tree::Tree;

/// Names of files in which design goes to die: such a file has no subject.
const FILE_NAMES: [&str; 8] = ["util", "utils", "common", "helper", "helpers", "misc", "manager", "managers"];

/// Refuses files and directories named after nothing.
pub fn file_names(tree: &Tree) -> Vec<String> {
    let nameless =
        |path: &str| path.split('/').any(|part| FILE_NAMES.contains(&part.split('.').next().unwrap_or(part)));
    let found = tree.files.keys().filter(|path| nameless(path));
    found.map(|path| format!("{path}: name it after what is in it, not {}", FILE_NAMES.join(", "))).collect()
}

// The lists are joined at compile time, so that this file does not hold the words that it refuses.
const UNFINISHED: [&str; 4] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];
const OUTSIDE: [&str; 5] = [
    concat!("..", "/shared"),
    concat!("/work", "/main"),
    concat!("/work", "/shared"),
    concat!("/tmp", "/h/"),
    concat!("/tmp", "/target-"),
];

fn find(tree: &Tree, refused: &[&str], what_to_do: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, file) in tree.files.iter().filter(|(path, _)| !path.ends_with("LICENSE")) {
        for (number, line) in file.text.lines().enumerate() {
            for word in refused.iter().filter(|word| words(line, word).next().is_some()) {
                problems.push(format!("{path}:{}: {word}: {what_to_do}", number + 1));
            }
        }
    }
    problems
}

/// Refuses marks of unfinished work.
pub fn unfinished(tree: &Tree) -> Vec<String> {
    find(tree, &UNFINISHED, "finish it, or write a decision note and cite its number")
}

/// Refuses text that means nothing to who has only the repository.
pub fn stands_alone(tree: &Tree) -> Vec<String> {
    find(tree, &OUTSIDE, "the repository stands alone")
}

/// Refuses product files without a head.
pub fn heads(tree: &Tree) -> Vec<String> {
    let headless = tree.product().filter(|(path, scan)| is_product_path(path) && !has_head(&scan.comments));
    headless.map(|(path, _)| format!("{path}:1: begin with //! and what the file promises")).collect()
}

fn has_head(comments: &str) -> bool {
    comments.lines().map(str::trim).find(|line| !line.is_empty()).is_some_and(|line| line.starts_with("//!"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::tree;

    #[test]
    fn nameless_files_are_refused() {
        let paths = ["store/src/utils.rs", "store/src/common/mod.rs", "scripts/helper.sh", "docs/misc.md"];
        for path in paths {
            assert_eq!(file_names(&tree(&[(path, "")])).len(), 1, "{path}");
        }
        assert_eq!(file_names(&tree(&[("store/src/uncommon.rs", ""), ("docs/commons.md", "")])), [""; 0]);
    }

    #[test]
    fn unfinished_work_is_refused() {
        for word in UNFINISHED {
            assert_eq!(unfinished(&tree(&[("store/src/a.rs", &format!("// {word}: later\n"))])).len(), 1, "{word}");
        }
        assert_eq!(unfinished(&tree(&[("store/src/a.rs", "todo_list(); // HACKING\n")])), [""; 0]);
    }

    #[test]
    fn outside_places_are_refused() {
        for place in OUTSIDE {
            assert_eq!(stands_alone(&tree(&[("README.md", &format!("see {place}/x.md\n"))])).len(), 1, "{place}");
        }
        assert_eq!(stands_alone(&tree(&[("README.md", "a shared disk, the work of main\n")])), [""; 0]);
    }

    #[test]
    fn headless_files_are_refused() {
        assert_eq!(heads(&tree(&[("store/src/a.rs", "// A.\nfn f() {}\n")])).len(), 1);
        assert_eq!(heads(&tree(&[("store/src/a.rs", "fn f() {}\n")])).len(), 1);
        assert_eq!(heads(&tree(&[("store/src/a.rs", "//! A.\n"), ("store/tests/b.rs", "fn f() {}\n")])), [""; 0]);
    }
}
