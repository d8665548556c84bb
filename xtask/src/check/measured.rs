//! A figure that nothing feeds lies by its silence: each stage of the ledger is marked, each counter counted
//! somewhere in the product.

use crate::check::floors::is_product_path;
use crate::scan::{is_word, item_end, words};
use crate::tree::Tree;

/// Structs with these endings hold figures.
const COUNTER_STRUCTS: [&str; 3] = ["Counters", "Counts", "Figures"];

/// Refuses stages and counters that nothing feeds.
pub fn check(tree: &Tree) -> Vec<String> {
    let product: Vec<(&str, &str)> = tree
        .product()
        .filter(|(path, _)| is_product_path(path))
        .map(|(path, scan)| (path, scan.product.as_str()))
        .collect();
    let mut problems = Vec::new();
    for &(path, text) in &product {
        if let Some(body) = words(text, "enum Stage").find_map(|at| block(text, at)) {
            let unmarked = names(body, ',').into_iter().filter(|stage| !is_marked(&product, path, stage));
            problems.extend(unmarked.map(|stage| format!("{path}: Stage::{stage} is marked nowhere")));
        }
        for body in counter_structs(text) {
            let uncounted = names(body, ':').into_iter().filter(|field| !is_counted(&product, field));
            problems.extend(uncounted.map(|field| format!("{path}: counter {field} is counted nowhere")));
        }
    }
    problems
}

/// The block of the item at `at`, without its braces.
fn block(text: &str, at: usize) -> Option<&str> {
    let end = item_end(text, at)?;
    let open = at + text[at..end].find('{')?;
    text.get(open + 1..end - 1)
}

fn counter_structs(text: &str) -> Vec<&str> {
    let mut bodies = Vec::new();
    for at in words(text, "struct") {
        let name: String = text[at + 6..].trim_start().chars().take_while(|&letter| is_word(letter)).collect();
        if COUNTER_STRUCTS.iter().any(|ending| name.ends_with(ending)) {
            bodies.extend(block(text, at));
        }
    }
    bodies
}

/// Identifiers that stand right before `mark` on a line: variants before a comma, fields before a colon.
fn names(body: &str, mark: char) -> Vec<&str> {
    let before_mark = |line| {
        let (head, _): (&str, &str) = str::split_once(line, mark)?;
        let name = head.trim().rsplit(' ').next()?;
        (!name.is_empty() && name.chars().all(is_word)).then_some(name)
    };
    body.lines().filter_map(before_mark).collect()
}

/// True if a product file other than the one that declares the stage names it, or that one gives it time.
fn is_marked(product: &[(&str, &str)], declared_in: &str, stage: &str) -> bool {
    let name = format!("Stage::{stage}");
    let given = [format!(".mark({name},"), format!(".add({name},")];
    product.iter().any(|(path, text)| match *path == declared_in {
        true => given.iter().any(|call| text.contains(call)),
        false => words(text, &name).next().is_some(),
    })
}

/// Calls that only look at a figure; any other call is taken to feed it.
const READS: [&str; 6] = [".load(", ".get(", ".summary(", ".add_to(", ".clone(", ".to_string("];

/// True if the product feeds a field of this name somewhere.
fn is_counted(product: &[(&str, &str)], field: &str) -> bool {
    let access = format!(".{field}");
    product.iter().any(|(_, text)| {
        words(text, &access).any(|at| {
            let rest = text[at + access.len()..].trim_start();
            let indexed =
                rest.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(_, rest)| rest.trim_start());
            let rest = indexed.unwrap_or(rest);
            let line = text[..at].rsplit('\n').next().unwrap_or_default();
            let assigned = rest.starts_with("= ") || rest.starts_with("+= ") || rest.starts_with("-= ");
            assigned
                || line.contains("bump(&")
                || (rest.starts_with('.') && !READS.iter().any(|read| rest.starts_with(read)))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::tree;

    const STAGES: &str = "pub enum Stage {\n    /// One.\n    Read,\n    Write,\n}\nfn all() { Stage::Write; }\n";

    #[test]
    fn unmarked_stages_are_refused() {
        let marks = |text| check(&tree(&[("runtime/src/ledger.rs", STAGES), ("store/src/a.rs", text)]));
        assert_eq!(marks("fn f() { m(Stage::Read); m(Stage::Write); }\n"), [""; 0]);
        assert_eq!(marks("fn f() { m(Stage::Read); }\n"), ["runtime/src/ledger.rs: Stage::Write is marked nowhere"]);
    }

    #[test]
    fn uncounted_counters_are_refused() {
        let counters = "pub struct LogCounters {\n    pub batches: u64,\n    waits: Histogram,\n}\n";
        let counts = |text| check(&tree(&[("store/src/log.rs", counters), ("store/src/a.rs", text)]));
        assert_eq!(counts("fn f() { x.batches += 1; x.waits.record(1); }\n"), [""; 0]);
        assert_eq!(counts("fn f() { x.batches[i] += 1; bump(&x.waits, 1); }\n"), [""; 0]);
        assert_eq!(counts("fn f() { x.batches == 1; x.waits.summary(); }\n").len(), 2);
    }
}
