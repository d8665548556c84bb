//! Assertions state what the code around them relies on. How many there are in a thousand lines of each package of the
//! product, and of all files called core.rs together, is stored in `assertions.txt`, and may only grow. Comments, blank
//! lines and tests are no lines, and an `expect` is no assertion.

use crate::check::counts::stored;
use crate::check::floors::is_product_path;
use crate::scan::{Scan, words};
use crate::tree::Tree;
use std::collections::BTreeMap;

/// The file that stores each package's density.
pub const STORED: &str = "xtask/assertions.txt";

/// The macros that assert. A relation of constants is a `const _` with one of them.
const MACROS: [&str; 6] =
    ["assert!", "assert_eq!", "assert_ne!", "debug_assert!", "debug_assert_eq!", "debug_assert_ne!"];

/// The name under which the pure cores are counted together.
const CORES: &str = "core.rs";

/// The number of assertions that may be missing, or more than stored, before anybody must act: two branches that each
/// add a few lines or assertions don't have to store the same line.
const SLACK: usize = 4;

/// Assertions, and the lines that they are among.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Count {
    assertions: usize,
    lines: usize,
}

impl Count {
    fn of(scan: &Scan) -> Count {
        Count {
            assertions: MACROS.iter().map(|name| words(&scan.product, name).count()).sum(),
            lines: scan.product.lines().filter(|line| !line.trim().is_empty()).count(),
        }
    }
    fn add(&mut self, other: Count) {
        self.assertions += other.assertions;
        self.lines += other.lines;
    }
    /// Assertions per thousand lines, rounded down.
    fn density(self) -> usize {
        (self.assertions * 1000).checked_div(self.lines).unwrap_or(0)
    }
    /// The number of assertions that make a density.
    fn for_density(self, density: usize) -> usize {
        self.lines * density / 1000
    }
}

/// The counts of all packages of the product, and of the cores.
fn counts(tree: &Tree) -> BTreeMap<String, Count> {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for (path, scan) in tree.product().filter(|(path, _)| is_product_path(path)) {
        let count = Count::of(scan);
        let package = path.split('/').next().unwrap_or(path);
        counts.entry(package.to_string()).or_default().add(count);
        if path.rsplit('/').next() == Some(CORES) {
            counts.entry(CORES.to_string()).or_default().add(count);
        }
    }
    counts
}

/// Refuses fewer assertions than are stored for the package, and a stored density that lags.
pub fn check(tree: &Tree) -> Vec<String> {
    let stored = stored(tree, STORED);
    let mut problems = Vec::new();
    for (package, count) in counts(tree) {
        let density = stored.get(package.as_str()).copied().unwrap_or(0);
        let Count { assertions, lines } = count;
        if assertions + SLACK < count.for_density(density) {
            problems.push(format!(
                "{package}: {assertions} assertions in {lines} lines; {density} per thousand were there before: state \
                 what the new lines rely on (cargo xtask assertions {package} shows where there are few)"
            ));
        } else if assertions > count.for_density(density + 1) + SLACK {
            let now = count.density();
            problems
                .push(format!("{STORED}: {package} has {now} per thousand by now; keep it so: cargo xtask ratchet"));
        }
    }
    problems
}

/// The densities after today's growth; one that has fallen stays as it was stored.
pub fn raised(tree: &Tree) -> String {
    let stored = stored(tree, STORED);
    let mut text = "# Assertions per thousand lines, tests aside: may only grow (cargo xtask ratchet).\n".to_string();
    for (package, count) in counts(tree) {
        let density = count.density().max(stored.get(package.as_str()).copied().unwrap_or(0));
        text += &format!("{density} {package}\n");
    }
    text
}

/// A table of assertions, lines and density: by package, or by file if a package is named.
pub fn table(tree: &Tree, package: Option<&str>) -> Vec<String> {
    let line = |name: &str, count: Count| {
        let Count { assertions, lines } = count;
        format!("{assertions:>4} in {lines:>5} lines, {:>3} per thousand  {name}", count.density())
    };
    let Some(package) = package else {
        return counts(tree).iter().map(|(name, count)| line(name, *count)).collect();
    };
    let below = format!("{package}/");
    let core = format!("/{CORES}");
    let wanted = |path: &str| path.starts_with(&below) || (package == CORES && path.ends_with(&core));
    let files = tree.product().filter(|(path, _)| is_product_path(path) && wanted(path));
    files.map(|(path, scan)| line(path, Count::of(scan))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::tree;

    const PLAIN: &str = "fn f() {\n    g();\n}\n";
    const ASSERTS: &str = "fn f() {\n    assert!(g());\n}\n";

    fn count(text: &str) -> (usize, usize) {
        let count = Count::of(&Scan::new(text));
        (count.assertions, count.lines)
    }

    #[test]
    fn assertions_are_counted_where_they_are_code() {
        assert_eq!(count(ASSERTS), (1, 3));
        assert_eq!(count("const _: () = assert!(A < B);\n"), (1, 1));
        assert_eq!(count("debug_assert!(a);\nassert_eq!(a, b);\nassert_ne!(a, b);\ndebug_assert_eq!(a, b);\n"), (4, 4));
        for none in ["// assert!(a)\n\n", "/// assert!(a)\n", "/* assert!(a)\n */\n"] {
            assert_eq!(count(none), (0, 0), "{none}");
        }
        assert_eq!(count("f(\"assert!(a)\").expect(\"b\");\nmy_assert!(a);\n"), (0, 2));
        assert_eq!(count("#[cfg(test)]\nmod tests {\n    fn f() {\n        assert!(g());\n    }\n}\n"), (0, 0));
    }

    #[test]
    fn a_package_may_only_grow_denser() {
        // 300 lines, and as many assertions as files of three lines have one.
        let with = |dense: usize, list: &str| {
            let text = ASSERTS.repeat(dense) + &PLAIN.repeat(100 - dense);
            tree(&[("store/src/a.rs", &text), (STORED, list)])
        };
        assert_eq!(check(&with(6, "20 store\n")), [""; 0]);
        assert_eq!(check(&with(2, "20 store\n")), [""; 0], "so many may be missing");
        assert_eq!(check(&with(1, "20 store\n")).len(), 1);
        assert_eq!(check(&with(1, "20 group\n")), [""; 0], "another package's figure is of no use");
        assert_eq!(check(&with(11, "20 store\n")).len(), 1, "the stored figure lags");
        assert_eq!(check(&with(10, "20 store\n")), [""; 0]);
        assert!(raised(&with(12, "20 store\n")).ends_with("\n40 store\n"));
        assert!(raised(&with(3, "20 store\n")).ends_with("\n20 store\n"), "it does not fall");
        assert!(raised(&with(3, "")).ends_with("\n10 store\n"));
    }

    #[test]
    fn cores_are_counted_together_and_tests_and_the_workshop_are_not() {
        let files = [
            ("store/src/log/core.rs", ASSERTS),
            ("store/src/scrub/core.rs", PLAIN),
            ("group/src/lib.rs", PLAIN),
            ("store/src/tests.rs", ASSERTS),
            ("store/tests/a.rs", ASSERTS),
            ("sim/src/lib.rs", ASSERTS),
        ];
        let found = counts(&tree(&files));
        let named: Vec<_> = found.iter().map(|(name, count)| (name.as_str(), count.assertions, count.lines)).collect();
        assert_eq!(named, [("core.rs", 1, 6), ("group", 0, 3), ("store", 1, 6)]);
        assert_eq!(table(&tree(&files), None)[0], "   1 in     6 lines, 166 per thousand  core.rs");
        assert_eq!(table(&tree(&files), Some("store")).len(), 2);
        assert_eq!(table(&tree(&files), Some("core.rs")).len(), 2);
        assert_eq!(table(&tree(&files), Some("group")).len(), 1);
    }
}
