//! Files and functions stay small. What was too large when the limit came is listed in `ratchet.txt` and may only
//! shrink.

use crate::tree::Tree;
use std::collections::BTreeMap;

/// The file that lists today's excess.
pub const RATCHET: &str = "xtask/ratchet.txt";

/// A file above this is more than one room (the largest of Garage's 173 files has 965 lines).
const FILE_LINES_MAX: usize = 800;
/// A function above this does not fit on a screen.
const FUNCTION_LINES_MAX: usize = 70;

/// Excess: `path`, or `path function`, and its lines. Functions of one name in a file share an entry.
fn excess(tree: &Tree) -> BTreeMap<String, usize> {
    let mut excess = BTreeMap::new();
    for (path, scan) in tree.product() {
        if scan.product_lines > FILE_LINES_MAX {
            excess.insert(path.to_string(), scan.product_lines);
        }
        for function in scan.functions().into_iter().filter(|function| function.lines > FUNCTION_LINES_MAX) {
            let lines = excess.entry(format!("{path} {}", function.name)).or_default();
            *lines = function.lines.max(*lines);
        }
    }
    excess
}

/// The list as it is stored: `lines path [function]`.
fn listed(tree: &Tree) -> BTreeMap<String, usize> {
    let Some(file) = tree.files.get(RATCHET) else { return BTreeMap::new() };
    let entry = |line: &str| {
        let (lines, name) = line.split_once(' ')?;
        Some((name.to_string(), lines.parse().ok()?))
    };
    file.text.lines().filter(|line| !line.starts_with('#')).filter_map(entry).collect()
}

/// Refuses what is too large and not listed, and a list that is longer than it need be.
pub fn check(tree: &Tree) -> Vec<String> {
    let (excess, listed) = (excess(tree), listed(tree));
    let mut problems = Vec::new();
    for (name, &lines) in &excess {
        let allowed = listed.get(name).copied().unwrap_or(0);
        if lines > allowed {
            let max = if name.contains(' ') { FUNCTION_LINES_MAX } else { FILE_LINES_MAX };
            problems.push(format!("{name}: {lines} lines; at most {}", allowed.max(max)));
        }
    }
    for (name, &lines) in &listed {
        if excess.get(name).is_none_or(|&now| now < lines) {
            problems.push(format!("{RATCHET}: {name} has shrunk; keep it so: cargo xtask ratchet"));
        }
    }
    problems
}

/// The list after today's shrinking; what is new and too large does not get in.
pub fn lowered(tree: &Tree) -> String {
    let excess = excess(tree);
    let mut text =
        "# Files and functions that are larger than allowed: may only shrink (cargo xtask ratchet).\n".to_string();
    for (name, &lines) in &listed(tree) {
        if let Some(&now) = excess.get(name) {
            text += &format!("{} {name}\n", now.min(lines));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::tree;

    fn function(lines: usize) -> String {
        format!("fn long() {{{}}}\n", "\n".repeat(lines - 1))
    }

    #[test]
    fn limits_are_held() {
        assert_eq!(check(&tree(&[("store/src/a.rs", &function(70))])), [""; 0]);
        assert_eq!(check(&tree(&[("store/src/a.rs", &function(71))])).len(), 1);
        assert_eq!(check(&tree(&[("store/src/a.rs", &"//\n".repeat(800))])), [""; 0]);
        assert_eq!(check(&tree(&[("store/src/a.rs", &"//\n".repeat(801))])).len(), 1);
    }

    #[test]
    fn tests_may_be_long() {
        assert_eq!(check(&tree(&[("store/src/tests.rs", &"fn x() {}\n".repeat(900))])), [""; 0]);
        let inline = format!("fn x() {{}}\n#[cfg(test)]\nmod tests {{\n{}}}\n", function(100));
        assert_eq!(check(&tree(&[("store/src/a.rs", &inline)])), [""; 0]);
    }

    #[test]
    fn the_list_may_only_shrink() {
        let with = |lines, list| tree(&[("store/src/a.rs", &function(lines)), (RATCHET, list)]);
        assert_eq!(check(&with(80, "80 store/src/a.rs long\n")), [""; 0]);
        assert_eq!(check(&with(81, "80 store/src/a.rs long\n")).len(), 1);
        assert_eq!(check(&with(79, "80 store/src/a.rs long\n")).len(), 1);
        assert_eq!(check(&with(60, "80 store/src/a.rs long\n")).len(), 1);
        assert!(lowered(&with(79, "80 store/src/a.rs long\n")).ends_with("79 store/src/a.rs long\n"));
        assert!(!lowered(&with(60, "80 store/src/a.rs long\n")).contains("long\n"));
        assert!(!lowered(&with(90, "")).contains("a.rs"));
    }
}
