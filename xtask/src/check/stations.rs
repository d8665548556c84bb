//! The map names files and functions: they are there, and each station of a life names some.

use crate::scan::words;
use crate::tree::Tree;

const MAP: &str = "ARCHITECTURE.md";
/// Sections whose numbered stations each name a function.
const LIVES: [&str; 2] = ["## Life of a small durable write", "## Life of a read"];
/// Words that declare a name at which the map may point.
const DECLARED_BY: [&str; 5] = ["fn", "struct", "enum", "trait", "const"];

/// Refuses names of functions or types that are not in their file, and stations without any.
pub fn check(tree: &Tree) -> Vec<String> {
    let Some(map) = tree.files.get(MAP) else { return Vec::new() };
    let mut problems = Vec::new();
    for (number, line) in map.text.lines().enumerate() {
        let dead = names(line).filter(|(file, name)| !is_there(tree, file, name));
        problems.extend(dead.map(|(file, name)| format!("{MAP}:{}: there is no {file}::{name}", number + 1)));
    }
    for life in LIVES {
        let body = map.text.split_once(life).map_or("", |(_, rest)| rest.split("\n## ").next().unwrap_or(rest));
        for station in stations(body) {
            if names(&station).next().is_none() {
                let begin: String = station.chars().take(40).collect();
                problems.push(format!("{MAP}: a station names no `file::function`: {begin}"));
            }
        }
    }
    problems
}

/// Finds what stands in a text as `file::name`.
fn names(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter_map(|quoted| quoted.rsplit_once("::").filter(|(file, _)| file.ends_with(".rs")))
}

fn is_there(tree: &Tree, file: &str, name: &str) -> bool {
    let Some(scan) = tree.files.get(file).and_then(|file| file.scan.as_ref()) else { return false };
    words(&scan.product, name).any(|at| {
        let before = scan.product[..at].trim_end();
        DECLARED_BY.iter().any(|word| words(before, word).any(|found| found + word.len() == before.len()))
    })
}

/// The items of a numbered list, each with the lines that belong to it.
fn stations(body: &str) -> Vec<String> {
    let mut stations: Vec<String> = Vec::new();
    let mut within = false;
    for line in body.lines() {
        let number = line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        within = number || (within && line.starts_with(' '));
        match stations.last_mut().filter(|_| within && !number) {
            Some(station) => station.extend([" ", line.trim()]),
            None if number => stations.push(line.to_string()),
            None => {}
        }
    }
    stations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::tree;

    const CODE: &str = "pub struct Log;\nimpl Log {\n    pub(crate) async fn append<'a>() {}\n}\n// fn gone() {}\n";

    fn problems(map: &str) -> Vec<String> {
        check(&tree(&[(MAP, map), ("store/src/log.rs", CODE)]))
    }

    #[test]
    fn what_is_there_passes() {
        let life = "# A\n\n## Life of a read\n\nText.\n\n1. *log.* First\n   `store/src/log.rs::append`.\n2. `store/src/log.rs::Log`\n\nMore.\n";
        assert_eq!(problems(life), [""; 0]);
        assert_eq!(problems("`names::evaluate` and `log.rs`\n"), [""; 0]);
    }

    #[test]
    fn what_is_not_there_is_refused() {
        for name in ["store/src/log.rs::gone", "store/src/log.rs::appen", "log.rs::append", "store/src/log.rs::impl"] {
            assert_eq!(problems(&format!("See `{name}`.\n")).len(), 1, "{name}");
        }
        let silent =
            "## Life of a read\n\n1. First\n   `append`.\n2. `store/src/log.rs::Log`\n\n## Else\n\n1. Silent.\n";
        assert_eq!(problems(silent).len(), 1);
    }
}
