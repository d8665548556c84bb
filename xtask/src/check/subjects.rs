//! Doc comments begin with their subject or their verb: with the name of the thing ("The bytes that ...") or with what
//! it does ("Counts ..."). A comment that opens with a question word, a preposition or a conjunction ("What is left",
//! "Of these", "So many at most") makes its reader wait for the subject, or do without one. How many such comments each
//! package still has is stored in `subjects.txt`, and may only shrink.

use crate::check::counts::{Figure, Places};
use crate::tree::Tree;
use std::collections::BTreeMap;

/// The file that stores each package's figure.
pub const STORED: &str = "xtask/subjects.txt";

const FIGURE: Figure = Figure {
    stored: STORED,
    title: "Doc comments without a leading subject",
    counted: "doc comments open without a subject",
    remedy: "begin the new ones with what the thing is or does (cargo xtask subjects PACKAGE lists them)",
    // Two branches which each mend a comment don't have to store the same line.
    slack: 8,
};

/// Words that no doc comment opens with, capitalised as they stand there.
const REFUSED: [&str; 60] = [
    // Question words, and their relatives.
    "What", "Whatever", "Who", "Whoever", "Whom", "Whose", "Which", "Where", "Wherever", "When", "Whenever", "Why",
    "How", "Whether", "That", // Prepositions.
    "Of", "As", "By", "From", "For", "In", "On", "At", "To", "With", "Without", "Within", "Into", "Behind", "Beside",
    "Besides", "Beyond", "Between", "Before", "After", "Above", "Below", "Beneath", "Under", "Against", "Among",
    "Through", "Upon", "Since", "Until", "While", "During", "Despite", "Instead", "Per",
    // Conjunctions and the like.
    "So", "And", "Or", "But", "If", "Because", "Than", "Not", "Once", "Also",
];

/// True if a doc comment's text opens with none of the refused words.
fn has_subject(text: &str) -> bool {
    let text = text.trim_start_matches(|letter: char| !letter.is_alphanumeric() && letter != '`');
    let word: String = text.chars().take_while(|letter| letter.is_alphabetic()).collect();
    !REFUSED.contains(&word.as_str())
}

/// The first line of each doc comment of a file, by line number from 1: a comment is a run of lines of one kind.
fn openings(comments: &str) -> impl Iterator<Item = (usize, &str)> {
    let marked =
        |line: &'_ str| ["///", "//!"].into_iter().find(|mark| line.starts_with(mark) && !line.starts_with("////"));
    let mut before = None;
    comments.lines().enumerate().filter_map(move |(at, line)| {
        let line = line.trim();
        let mark = marked(line);
        let begins = mark.is_some() && mark != before;
        before = mark;
        begins.then(|| (at + 1, line[3..].trim()))
    })
}

/// Doc comments without a subject: per package, where they are.
fn missing(tree: &Tree) -> Places<'_> {
    let mut missing = Places::new();
    for (path, scan) in tree.rust() {
        let package = path.split('/').next().unwrap_or(path);
        let places = missing.entry(package).or_default();
        let without = openings(&scan.comments).filter(|(_, text)| !has_subject(text));
        places.extend(without.map(|(line, text)| format!("{path}:{line}: {text}")));
    }
    missing
}

/// Refuses more doc comments without a subject than are stored for the package, and a stored figure that lags.
pub fn check(tree: &Tree) -> Vec<String> {
    FIGURE.check(tree, &missing(tree))
}

/// The figures after today's shrinking.
pub fn lowered(tree: &Tree) -> String {
    FIGURE.lowered(tree, &missing(tree))
}

/// The places of a package's doc comments without a subject, for who wants to mend them.
pub fn listed(tree: &Tree, package: &str) -> Vec<String> {
    missing(tree).remove(package).unwrap_or_default()
}

/// A table: doc comments without a subject and all doc comments, by package.
pub fn table(tree: &Tree) -> Vec<String> {
    let mut all: BTreeMap<&str, usize> = BTreeMap::new();
    for (path, scan) in tree.rust() {
        *all.entry(path.split('/').next().unwrap_or(path)).or_default() += openings(&scan.comments).count();
    }
    let missing = missing(tree);
    all.iter().map(|(package, all)| format!("{package:<14} {:>5} of {all:>5}", missing[package].len())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::tree;

    #[test]
    fn openings_without_a_subject_are_told_from_those_with_one() {
        for text in ["What it does.", "Who asks", "Of these, the first.", "So many at most.", "As `new`.", "(Where?)"] {
            assert!(!has_subject(text), "{text}");
        }
        for text in ["The bytes.", "Counts bytes.", "True if any.", "Office hours.", "Assembles.", "`what` it says", ""]
        {
            assert!(has_subject(text), "{text}");
        }
    }

    #[test]
    fn a_comment_is_a_run_of_lines_and_only_its_first_counts() {
        let text = "//! The head.\n//! What follows.\n\n/// A.\n/// As before.\n//// Of no use.\n// So it is.\nfn a() {}\n    /// How b.\n";
        let found = tree(&[("store/src/a.rs", text)]);
        assert_eq!(listed(&found, "store"), ["store/src/a.rs:9: How b."]);
        let literal = tree(&[("store/src/a.rs", "const A: &str = \"\n/// What?\n\";\n")]);
        assert!(listed(&literal, "store").is_empty(), "a literal is no comment");
        assert_eq!(table(&found), ["store              1 of     3"]);
    }

    #[test]
    fn a_package_may_only_shrink() {
        let with = |comments: usize, list| {
            tree(&[("store/src/a.rs", &"/// How.\nfn a() {}\n".repeat(comments)), (STORED, list)])
        };
        assert_eq!(check(&with(10, "10 store\n")), [""; 0]);
        assert_eq!(check(&with(11, "10 store\n")).len(), 1);
        assert_eq!(check(&with(1, "10 group\n")).len(), 1, "another package's figure is of no use");
        assert_eq!(check(&with(2, "10 store\n")), [""; 0]);
        assert_eq!(check(&with(1, "10 store\n")).len(), 1, "the stored figure lags");
        assert!(lowered(&with(1, "10 store\n")).ends_with("\n1 store\n"));
        assert!(lowered(&with(11, "10 store\n")).ends_with("\n10 store\n"));
        assert!(!lowered(&with(0, "10 store\n")).contains("store"));
    }
}
