//! Places that are changed, places that are spared, and the look of files with switches.

use super::rewrite::rewritten;
use super::sites::{Site, sites};
use super::*;

const SOURCE: &str = r#"//! a == b
const LIMIT: u64 = 1 << 4;
const fn twice(a: u64) -> u64 {
    a * 2
}
#[derive(Debug)]
struct Pair([u8; 2]);
impl std::fmt::Display for Pair {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}", self.0[0] + 1)
    }
}
fn less(a: u64, b: u64) -> bool {
    assert!(a + b > 1);
    if let Some(c) = a.checked_sub(b) && c > 3 {
        return false;
    }
    a < b || active(Bug::Unfair)
}
fn clamp(list: &mut Vec<u64>, most: u64) {
    if active(Bug::Unclamped) && !list.is_empty() {
        list.push(9);
    }
    list.push(most.max(7));
    match most {
        5 if !list.is_empty() => {}
        _ => {}
    }
}
#[cfg(test)]
mod tests {
    fn t() -> bool {
        1 == 2
    }
}
"#;

fn found() -> Vec<Site> {
    sites(SOURCE).expect("it parses")
}

#[test]
fn only_what_runs_in_the_product_is_changed() {
    let told: Vec<String> = found().into_iter().map(|site| site.told).collect();
    let expected = [
        "less returns true at once",
        "less returns false at once",
        "> becomes >= in `c > 3`",
        "3 becomes 4 in `if let Some(c) = a.checked_sub(b) && c > 3 {`",
        "false becomes true in `return false;`",
        "< becomes <= in `a < b`",
        "clamp returns at once",
        "left out `list.push(most.max(7));`",
        "max becomes min in `most.max(7)`",
        "7 becomes 8 in `list.push(most.max(7));`",
        "always true in `!list.is_empty()`",
        "! is left out in `!list.is_empty()`",
    ];
    assert_eq!(told, expected);
}

#[test]
fn switches_stand_within_switches() {
    let text = "fn f(a: u64) -> bool {\n    if a + 1 < 3 {\n        g();\n    }\n    true\n}\n";
    let all = sites(text).expect("it parses");
    let numbered: Vec<(u32, &Site)> = (0..).zip(&all).collect();
    let new = rewritten(text, &numbered);
    let expected = "fn f(a: u64) -> bool { if ::base::mutants::on(0) { return true; }  if ::base::mutants::on(1) { return false; } \n    \
        if (if ::base::mutants::on(2) { true } else { \
        (if ::base::mutants::on(3) { false } else { \
        (if ::base::mutants::on(4) { (a + 1) <= (3) } else { \
        (if ::base::mutants::on(5) { (a) - (1) } else { a + (if ::base::mutants::on(6) { 2 } else { 1 }) }) < \
        (if ::base::mutants::on(7) { 4 } else { 3 }) }) }) }) {\n        \
        if !::base::mutants::on(8) { g(); }\n    }\n    (if ::base::mutants::on(9) { false } else { true })\n}\n";
    assert_eq!(new.text, expected);
    assert_eq!(&new.text[new.places[&7].clone()], "(if ::base::mutants::on(7) { 4 } else { 3 })");
    assert!(new.places[&4].start < new.places[&5].start && new.places[&5].end < new.places[&4].end);
}

#[test]
fn what_is_written_anew_is_rust_and_the_rest_stays() {
    let all = found();
    let numbered: Vec<(u32, &Site)> = (0..).zip(&all).collect();
    let new = rewritten(SOURCE, &numbered);
    assert!(sites(&new.text).is_ok(), "{}", new.text);
    assert_eq!(new.places.len(), all.len());
    assert_eq!(rewritten(SOURCE, &[]).text, SOURCE);
    let head = SOURCE.find("fn less").expect("it is there");
    let tail = SOURCE.find("#[cfg(test)]").expect("it is there");
    assert!(new.text.starts_with(&SOURCE[..head]) && new.text.ends_with(&SOURCE[tail..]));
}

#[test]
fn a_seed_draws_the_same_mutants_again() {
    let asked = read(&["--packages".to_string(), "names".to_string()]).expect("a good command line");
    let tree = Tree::load(&root()).expect("the repository can be read");
    let draw = |seed: u64| -> Vec<u32> {
        let all = all(&tree, &asked.packages).expect("it parses");
        drawn(all, seed, 20).into_iter().map(|mutant| mutant.number).collect()
    };
    assert_eq!((draw(1), draw(1).len()), (draw(1), 20));
    assert_ne!(draw(1), draw(2));
    let once: std::collections::BTreeSet<u32> = draw(3).into_iter().collect();
    assert_eq!(once.len(), 20, "none is drawn twice");
}

#[test]
fn a_draw_stays_as_it_is_when_something_else_changes() {
    let mutants = |source: &str| -> Vec<Mutant> {
        let sites = sites(source).expect("it parses").into_iter().enumerate();
        sites.map(|(at, site)| Mutant { number: at as u32, path: "a.rs".into(), line: at, site }).collect()
    };
    let told = |source: &str| -> Vec<String> {
        drawn(mutants(source), 1, usize::MAX).into_iter().map(|mutant| mutant.site.told).collect()
    };
    let longer = SOURCE.replace("fn less", "fn before(a: u64) -> bool {\n    a == 9\n}\nfn less");
    let mut with_more = told(&longer);
    assert_eq!(with_more.len(), told(SOURCE).len() + 4);
    with_more.retain(|told| !told.contains("before") && !told.contains('9'));
    assert_eq!(with_more, told(SOURCE));
}

#[test]
fn what_is_listed_as_equal_is_one_mutant_each() {
    let tree = Tree::load(&root()).expect("the repository can be read");
    let all = all(&tree, &PACKAGES.map(str::to_string)).expect("it parses");
    let all: Vec<_> = all.into_iter().map(|mutant| (mutant.path, mutant.site.told)).collect();
    let times = |one| all.iter().filter(|other| *other == one).count();
    let listed = equal().expect("it can be read");
    let wrong: Vec<_> = listed.iter().map(|one| (one, times(one))).filter(|(_, times)| *times != 1).collect();
    assert!(wrong.is_empty(), "docs/mutants.md lists what is no mutant any more, or several: {wrong:#?}");
}

#[test]
fn a_bad_command_line_is_refused() {
    let refused = |words: &[&str]| read(&words.iter().map(ToString::to_string).collect::<Vec<_>>()).is_err();
    assert!(
        refused(&["--seed"]) && refused(&["--seed", "x"]) && refused(&["--packages", "node"]) && refused(&["-v", "1"])
    );
    assert!(!refused(&["--seed", "2", "--count", "10", "--packages", "names,store", "--only", "3,4"]));
}

#[test]
fn nothing_is_on_where_nothing_was_asked_for() {
    assert!(!switch::on(0) && !switch::on(1));
}
