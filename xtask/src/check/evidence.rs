//! The table of evidence is whole: each rule has a seeded bug that breaks it and a test that fails then, or a reason why
//! one machine can't break it; each seeded bug is placed in the product, and some test switches it on.

use crate::check::rules::is_id;
use crate::scan::words;
use crate::tree::Tree;
use std::collections::BTreeSet;

const TABLE: &str = "docs/evidence.md";
const RULES: &str = "docs/rules.md";
const BUGS: &str = "base/src/seeded.rs";
/// A reason has at least so many letters.
const REASON_MIN: usize = 20;

/// A row: the rule, the bug or `-`, the test that fails or the reason why there is none.
struct Row<'a> {
    line: usize,
    rule: &'a str,
    bug: &'a str,
    test: &'a str,
}

/// Refuses a table that lacks a rule or a bug, or names a test that is not there.
pub fn check(tree: &Tree) -> Vec<String> {
    let text = |path: &str| tree.files.get(path).map_or("", |file| file.text.as_str());
    let (rows, bugs) = (rows(text(TABLE)), bugs(text(BUGS)));
    let mut problems: Vec<String> = rows.iter().filter_map(|row| fault(tree, row, &bugs)).collect();
    let rules = text(RULES).split("**").filter(|word| is_id(word) && !word.starts_with('D'));
    let lacking = rules.filter(|rule| rows.iter().all(|row| row.rule != *rule));
    problems.extend(lacking.map(|rule| format!("{TABLE}: no row for rule {rule}")));
    for bug in bugs {
        if rows.iter().all(|row| row.bug != bug) {
            problems.push(format!("{TABLE}: no row for the seeded bug {bug}"));
        }
        let name = format!("Bug::{bug}");
        let count = |text: &str| words(text, &name).count();
        let placed: usize =
            tree.product().filter(|(path, _)| *path != BUGS).map(|(_, scan)| count(&scan.product)).sum();
        let named: usize = tree.rust().filter(|(path, _)| *path != BUGS).map(|(_, scan)| count(&scan.code)).sum();
        if placed == 0 {
            problems.push(format!("{BUGS}: {bug} is placed nowhere in the product"));
        }
        if named == placed {
            problems.push(format!("{BUGS}: no test switches {bug} on"));
        }
    }
    problems
}

/// Rows of tables whose first cell is a rule's id.
fn rows(text: &str) -> Vec<Row<'_>> {
    fn row((number, line): (usize, &str)) -> Option<Row<'_>> {
        let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
        let &[rule, bug, test] = cells.as_slice() else { return None };
        let (bug, test) = (bug.trim_matches('`'), test.trim_matches('`'));
        is_id(rule).then_some(Row { line: number + 1, rule, bug, test })
    }
    text.lines().enumerate().filter_map(row).collect()
}

/// The variants of the enum.
fn bugs(text: &str) -> BTreeSet<&str> {
    let body =
        text.split_once("pub enum Bug {").and_then(|(_, rest)| rest.split_once('}')).map_or("", |(body, _)| body);
    let names = body.lines().filter_map(|line| line.trim().strip_suffix(','));
    names.filter(|name| name.chars().all(char::is_alphanumeric)).collect()
}

fn fault(tree: &Tree, row: &Row<'_>, bugs: &BTreeSet<&str>) -> Option<String> {
    let Row { line, rule, bug, test } = row;
    if *bug == "-" {
        return (test.len() < REASON_MIN).then(|| format!("{TABLE}:{line}: {rule} has neither a bug nor a reason"));
    }
    if !bugs.contains(bug) {
        return Some(format!("{TABLE}:{line}: {BUGS} has no bug {bug}"));
    }
    let Some((path, function)) = test.rsplit_once("::") else {
        return Some(format!("{TABLE}:{line}: name the test as `file::function`"));
    };
    let found = tree.files.get(path).and_then(|file| file.scan.as_ref()).is_some_and(|scan| {
        let declared = words(&scan.code, function).any(|at| scan.code[..at].trim_end().ends_with("fn"));
        // Tests that a macro makes of a list of names.
        declared || (scan.code.contains("macro_rules!") && words(&scan.code, function).next().is_some())
    });
    (!found).then(|| format!("{TABLE}:{line}: there is no test {test}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::tree;

    const BUG: &str = "pub enum Bug {\n    /// One.\n    Early,\n}\n";
    const HOOK: &str = "fn f() { if active(Bug::Early) {} }\n";
    const TEST: &str = "#[test]\nfn it_is_late() { set(Bug::Early) }\n";

    fn problems(table: &str, hook: &str, test: &str) -> Vec<String> {
        let rules = (RULES, "- **D1** write once\n- **U1** first\n- **Q1** last\n");
        check(&tree(&[rules, (TABLE, table), (BUGS, BUG), ("store/src/a.rs", hook), ("store/tests/b.rs", test)]))
    }

    #[test]
    fn a_whole_table_passes() {
        let table = "| U1 | `Early` | `store/tests/b.rs::it_is_late` |\n| Q1 | - | there is only one machine |\n";
        assert_eq!(problems(table, HOOK, TEST), [""; 0]);
        let inside = format!("{HOOK}#[cfg(test)]\nmod tests {{ fn it_is_late() {{ set(Bug::Early) }} }}\n");
        assert_eq!(problems(&table.replace("tests/b", "src/a"), &inside, ""), [""; 0]);
    }

    #[test]
    fn each_gap_is_refused() {
        let row = "| U1 | `Early` | `store/tests/b.rs::it_is_late` |\n";
        let reason = "| Q1 | - | there is only one machine |\n";
        for (table, hook, test) in [
            (row.to_string(), HOOK, TEST),
            (reason.to_string() + &row.replace("U1", "Q1"), HOOK, TEST),
            (row.to_string() + "| Q1 | - | no |\n", HOOK, TEST),
            (reason.to_string() + &row.replace("it_is_late", "it_was_late"), HOOK, TEST),
            (reason.to_string() + &row.replace("b.rs", "c.rs"), HOOK, TEST),
            (reason.to_string() + row, "", TEST),
            (reason.to_string() + row, HOOK, "fn it_is_late() {}\n"),
        ] {
            assert_eq!(problems(&table, hook, test).len(), 1, "{table}");
        }
        assert_eq!(problems(&(reason.to_string() + &row.replace("Early", "Late")), HOOK, TEST).len(), 2);
    }
}
