//! Rust files that no module declares: they look alive, but nothing compiles them.

use crate::scan::{Scan, is_word, words};
use crate::tree::{Tree, module_files};
use std::collections::BTreeSet;

/// Refuses files that are not reached from a target's root.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut reached: BTreeSet<&str> = BTreeSet::new();
    let mut open: Vec<&str> = tree.packages.iter().flat_map(|package| &package.roots).map(String::as_str).collect();
    while let Some(path) = open.pop() {
        let Some((path, scan)) = tree.rust().find(|(other, _)| *other == path) else { continue };
        if reached.insert(path) {
            let next = declared(path, scan);
            open.extend(tree.rust().map(|(other, _)| other).filter(|other| next.contains(*other)));
        }
    }
    let dead = tree.rust().map(|(path, _)| path).filter(|path| !reached.contains(path));
    dead.map(|path| format!("{path}: no module declares it; declare or delete it")).collect()
}

/// Files that a file declares: `mod name;`, with `#[path]`, or included.
fn declared(path: &str, scan: &Scan) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for at in words(&scan.code, "mod") {
        let name: String = scan.code[at + 3..].trim_start().chars().take_while(|&letter| is_word(letter)).collect();
        files.extend(module_files(path, &name));
    }
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    for marker in ["#[path = \"", "include!(\""] {
        for (at, _) in scan.uncommented.match_indices(marker) {
            let rest = &scan.uncommented[at + marker.len()..];
            files.insert(format!("{directory}/{}", rest.split('"').next().unwrap_or(rest)));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::tree;
    use crate::tree::Package;

    #[test]
    fn undeclared_files_are_refused() {
        let mut tree = tree(&[
            ("store/src/lib.rs", "mod log;\n#[path = \"odd.rs\"]\nmod even;\n// mod gone;\n"),
            ("store/src/log/mod.rs", "mod core;\n#[cfg(test)]\nmod tests;\n"),
            ("store/src/log/core.rs", "mod inner;\n"),
            ("store/src/log/core/inner.rs", ""),
            ("store/src/log/tests.rs", ""),
            ("store/src/odd.rs", ""),
            ("store/tests/model.rs", "mod model_map;\n"),
            ("store/tests/model_map.rs", ""),
            ("store/src/gone.rs", ""),
            ("store/src/inner.rs", ""),
        ]);
        let roots = ["store/src/lib.rs", "store/tests/model.rs"].map(str::to_string).to_vec();
        tree.packages.push(Package { name: "store".to_string(), roots, ..Package::default() });
        let problems = check(&tree);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].starts_with("store/src/gone.rs") && problems[1].starts_with("store/src/inner.rs"));
    }
}
