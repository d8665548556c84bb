//! Unsafe code stands where a package calls the kernel or manages memory, and there is no more of it than stored in
//! `unsafe.txt`: what rustix or the standard library does safely is done by them (decision note 0049).

use crate::check::counts::{Figure, Places};
use crate::check::floors::is_product_path;
use crate::scan::{line_of, words};
use crate::tree::Tree;

/// The file that stores each package's figure.
pub const STORED: &str = "xtask/unsafe.txt";

const FIGURE: Figure = Figure {
    stored: STORED,
    title: "Uses of the word unsafe in the product, tests aside",
    counted: "uses of the word unsafe",
    remedy: "call rustix or the standard library, or have one function for what several do",
    slack: 0,
};

/// The rooms that may hold unsafe code: each is the one place where its package calls the kernel. The workshop's
/// benches count allocations, and a global allocator is unsafe by its trait.
const ROOMS: [&str; 5] = ["runtime/src/real", "runtime/src/buffer.rs", "front/src/fuse", "node/src/host.rs", "bench/"];

/// Refuses unsafe code elsewhere, and more of it than is stored. Tests may call the kernel; clippy sees to it that they too say
/// why that is sound.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, scan) in tree.product().filter(|(path, _)| !ROOMS.iter().any(|room| path.starts_with(room))) {
        let places = words(&scan.product, "unsafe");
        problems.extend(
            places.map(|at| format!("{path}:{}: unsafe only in {}", line_of(&scan.product, at), ROOMS.join(", "))),
        );
    }
    problems.extend(FIGURE.check(tree, &places(tree)));
    problems
}

/// The figures after today's shrinking.
pub fn lowered(tree: &Tree) -> String {
    FIGURE.lowered(tree, &places(tree))
}

/// Unsafe blocks, functions and implementations of the product, by package.
fn places(tree: &Tree) -> Places<'_> {
    let mut places = Places::new();
    for (path, scan) in tree.product().filter(|(path, _)| is_product_path(path)) {
        let found = words(&scan.product, "unsafe").map(|at| format!("{path}:{}", line_of(&scan.product, at)));
        places.entry(path.split('/').next().unwrap_or(path)).or_default().extend(found);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::tree;

    #[test]
    fn unsafe_code_stays_in_its_rooms() {
        let text = "fn f() { unsafe { g() } }\n";
        assert_eq!(check(&tree(&[("sim/src/a.rs", text)])).len(), 1);
        assert_eq!(check(&tree(&[("store/src/a.rs", text), (STORED, "1 store\n")])).len(), 1);
        assert_eq!(check(&tree(&[("front/tests/a.rs", text)])), [""; 0]);
        let rooms = [("runtime/src/real/ring.rs", text), ("front/src/fuse/door.rs", text)];
        let stored = (STORED, "1 front\n1 runtime\n");
        assert_eq!(check(&tree(&[rooms[0], rooms[1], stored])), [""; 0]);
        assert_eq!(check(&tree(&[("store/src/a.rs", "#![forbid(unsafe_code)]\n")])), [""; 0]);
    }

    #[test]
    fn there_is_no_more_of_it_than_stored() {
        let text =
            "unsafe impl Send for A {}\n// unsafe\nfn f() { unsafe { g() } }\n#[test]\nfn t() { unsafe { g() } }\n";
        let with = |list| tree(&[("runtime/src/real/a.rs", text), ("bench/src/a.rs", text), (STORED, list)]);
        assert_eq!(check(&with("2 runtime\n")), [""; 0]);
        assert_eq!(check(&with("1 runtime\n")).len(), 1, "one was planted");
        assert_eq!(check(&with("2 front\n")).len(), 1, "another package's figure is of no use");
        assert_eq!(check(&with("3 runtime\n")).len(), 1, "the stored figure lags");
        assert!(lowered(&with("3 runtime\n")).ends_with("\n2 runtime\n"));
        assert!(lowered(&with("1 runtime\n")).ends_with("\n1 runtime\n"));
    }
}
