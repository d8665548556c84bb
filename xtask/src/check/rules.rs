//! Rules are cited by id, so an id must lead to its rule. The ids are defined in `docs/rules.md` and
//! `docs/mission.md`, each as `**id**`.

use crate::scan::{is_word, words};
use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

const DEFINED_IN: [&str; 2] = ["docs/rules.md", "docs/mission.md"];

/// Words after which ids follow.
const CITE: [&str; 5] = ["rule", "rules", "decision", "decisions", "mission"];

/// An id: one capital letter and a number.
pub fn is_id(word: &str) -> bool {
    let mut letters = word.chars();
    let first = letters.next().is_some_and(|letter| letter.is_ascii_uppercase());
    let number = letters.as_str();
    first && (1..=2).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit())
}

fn defined(tree: &Tree) -> BTreeSet<String> {
    let documents = DEFINED_IN.iter().filter_map(|path| tree.files.get(*path));
    let bold = documents.flat_map(|file| file.text.split("**"));
    bold.filter(|word| is_id(word)).map(str::to_string).collect()
}

/// Ids that a text cites: "rule X1", "rules M1, M4 and U3".
fn cited(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for at in CITE.iter().flat_map(|word| words(text, word).map(move |at| at + word.len())) {
        let mut rest = &text[at..];
        while let Some((id, after)) = next_id(rest) {
            found.push(id.to_string());
            rest = after;
        }
    }
    found
}

/// The id with which `text` goes on, if it does, and what follows.
fn next_id(text: &str) -> Option<(&str, &str)> {
    // A comment may break its line within a list of ids.
    let mut text = text.trim_start_matches(|letter: char| letter.is_whitespace() || ",/!".contains(letter));
    for joint in ["and ", "or ", "to "] {
        text = text.strip_prefix(joint).unwrap_or(text);
    }
    let end = text.find(|letter| !is_word(letter)).unwrap_or(text.len());
    is_id(&text[..end]).then(|| text.split_at(end))
}

/// The files that cite each id.
pub fn citations(tree: &Tree) -> BTreeMap<String, BTreeSet<String>> {
    let mut by_id: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for id in defined(tree) {
        by_id.entry(id).or_default();
    }
    for (path, file) in tree.files.iter().filter(|(path, _)| !path.starts_with("xtask/")) {
        for id in cited(&file.text) {
            by_id.entry(id).or_default().insert(path.clone());
        }
    }
    by_id
}

/// Refuses citations of ids that are not defined.
pub fn check(tree: &Tree) -> Vec<String> {
    let defined = defined(tree);
    let mut problems = Vec::new();
    for (id, paths) in citations(tree).into_iter().filter(|(id, _)| !defined.contains(id)) {
        problems.extend(
            paths.iter().map(|path| format!("{path}: cites {id}, which {} don't define", DEFINED_IN.join(", "))),
        );
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::tree;

    #[test]
    fn ids_are_found() {
        assert_eq!(cited("(rule X1). L2 cache"), ["X1"]);
        assert_eq!(cited("by rules M1, M4 and U3; decision D12"), ["M1", "M4", "U3", "D12"]);
        assert_eq!(cited("the rule is U3; ruler L1; rule no. 5"), [""; 0]);
    }

    #[test]
    fn unknown_ids_are_refused() {
        let rules = ("docs/rules.md", "- **U1** first\n- **D1** write once\n");
        assert_eq!(check(&tree(&[rules, ("store/src/a.rs", "// rule U1, decision D1\n")])), [""; 0]);
        let problems = check(&tree(&[rules, ("store/src/a.rs", "// rules U1, U9\n"), ("README.md", "rule L7\n")]));
        assert_eq!(problems.len(), 2, "{problems:?}");
    }
}
