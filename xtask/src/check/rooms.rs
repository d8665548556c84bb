//! Rooms of a package, the first level of files and folders below `src`, name only rooms below them.

use crate::scan::{closing, is_word, line_of, words};
use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// A package with its rooms from the ground up: each may name what is listed beside it, which must come before it.
/// Whatever `lib.rs` holds belongs to all of them, and `lib.rs` may name them all.
struct House {
    package: &'static str,
    rooms: &'static [(&'static str, &'static [&'static str])],
}

/// More rooms than this on one level are a hall.
const ROOMS_MAX: usize = 20;

const HOUSES: [House; 2] = [
    House {
        package: "group",
        rooms: &[
            ("hosted", &[]),
            ("led", &[]),
            ("replica", &[]),
            ("state", &["replica"]),
            ("order", &["replica", "state"]),
            ("across", &["order", "replica", "state"]),
            ("change", &["across", "order", "replica", "state"]),
            ("data", &["order", "state"]),
            ("agents", &["data", "order", "state"]),
            ("heal", &["agents", "replica", "state"]),
            ("replication", &["across", "change", "heal", "hosted", "led", "replica", "state"]),
            ("open", &["agents", "hosted", "order", "replication", "state"]),
        ],
    },
    House {
        package: "store",
        rooms: &[
            ("format", &[]),
            ("cleaner", &["format"]),
            ("progress", &[]),
            ("read_cache", &[]),
            ("device", &["format"]),
            ("index", &["format"]),
            ("media", &["format"]),
            ("log", &["format", "media"]),
            ("recovery", &["format", "media", "progress"]),
            ("space", &["cleaner", "format", "index"]),
            ("segments", &["cleaner", "format", "log", "media", "space"]),
            ("checkpoint", &["format", "index", "segments", "space"]),
            ("promote", &["format", "log", "read_cache", "segments"]),
            ("scrub", &["format", "index", "segments"]),
            ("brick", &["device", "format", "media"]),
            ("grow", &["brick", "device", "format", "media", "segments"]),
            (
                "open",
                &[
                    "device",
                    "format",
                    "index",
                    "log",
                    "media",
                    "progress",
                    "promote",
                    "read_cache",
                    "recovery",
                    "scrub",
                    "segments",
                    "space",
                ],
            ),
            ("check", &["format", "index", "open", "progress", "recovery", "segments", "space"]),
            ("heal", &["check", "checkpoint", "format", "index", "open", "space"]),
            ("repair", &["check", "format", "index", "open", "progress", "recovery", "segments", "space"]),
        ],
    },
];

/// Refuses edges between rooms that the house does not list, rooms without a place, and places without a room.
pub fn check(tree: &Tree) -> Vec<String> {
    HOUSES.iter().flat_map(|house| problems(tree, house)).collect()
}

fn problems(tree: &Tree, house: &House) -> Vec<String> {
    let package = house.package;
    let files: Vec<_> = tree
        .product()
        .filter_map(|(path, scan)| Some((path, Module::at(path, package)?, scan.product.as_str())))
        .collect();
    let rooms: BTreeSet<&str> = files.iter().map(|(_, module, _)| module.room).filter(|room| *room != "lib").collect();
    if rooms.is_empty() {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for room in rooms.iter().filter(|room| house.below(room).is_none()) {
        problems.push(format!("{package}/src/{room}: has no place among the package's rooms: {PLACES}"));
    }
    for (room, _) in house.rooms.iter().filter(|(room, _)| !rooms.contains(room)) {
        problems.push(format!("{package}/src/{room}: is not there any more: {PLACES}"));
    }
    if rooms.len() > ROOMS_MAX {
        problems.push(format!("{package}/src: {} rooms on one level, of at most {ROOMS_MAX}", rooms.len()));
    }
    let root = files.iter().find(|(_, module, _)| module.room == "lib").map_or("", |(.., text)| text);
    let names = names_in_root(root, &rooms);
    for (path, module, text) in files.iter().filter(|(_, module, _)| module.room != "lib") {
        let below = house.below(module.room).unwrap_or_default();
        for (at, name) in named(text, module.depth) {
            let Some(&to) = names.get(name) else { continue };
            if to != module.room && !below.contains(&to) {
                let (line, room) = (line_of(text, at), module.room);
                problems.push(format!("{path}:{line}: {package}::{room} may not name {package}::{to}: {PLACES}"));
            }
        }
    }
    problems
}

/// Advice that ends each problem.
const PLACES: &str = "edges point downward as listed in xtask/src/check/rooms.rs";

impl House {
    fn below(&self, room: &str) -> Option<&'static [&'static str]> {
        self.rooms.iter().find(|(name, _)| *name == room).map(|(_, below)| *below)
    }
}

/// A file's place in its package.
struct Module<'a> {
    /// The first level.
    room: &'a str,
    /// The number of `super` that lead from it to the root.
    depth: usize,
}

impl Module<'_> {
    fn at<'a>(path: &'a str, package: &str) -> Option<Module<'a>> {
        let inner = path.strip_prefix(package)?.strip_prefix("/src/")?.strip_suffix(".rs")?;
        let inner = inner.strip_suffix("/mod").unwrap_or(inner);
        let room = inner.split('/').next().unwrap_or(inner);
        Some(Module { room, depth: inner.split('/').count() })
    }
}

/// Names that the root has, with the rooms that they stand for: the rooms themselves and what `lib.rs` takes from them.
fn names_in_root<'a>(root: &'a str, rooms: &BTreeSet<&'a str>) -> BTreeMap<&'a str, &'a str> {
    let mut names: BTreeMap<&str, &str> = rooms.iter().map(|room| (*room, *room)).collect();
    for at in words(root, "use") {
        let path = root[at + 3..].trim_start();
        let path = path[..path.find(';').unwrap_or(0)].trim_start_matches("crate::").trim_start_matches("self::");
        let Some((first, rest)) = path.split_once("::") else { continue };
        let Some(&room) = rooms.get(first.trim()) else { continue };
        let leaves = rest.split([',', '{', '}']).filter_map(|leaf| leaf.trim().rsplit([':', ' ']).next());
        names.extend(leaves.filter(|leaf| !leaf.is_empty()).map(|leaf| (leaf, room)));
    }
    names
}

/// Names of the root that a file's text uses, with where it does: what follows `crate::`, or as many `super::` as lead there.
fn named(text: &str, depth: usize) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let up = "super::".repeat(depth);
    for prefix in ["crate::", up.as_str()] {
        for (at, _) in text.match_indices(prefix) {
            if text[..at].ends_with(|letter: char| is_word(letter) || letter == ':' || letter == '$') {
                continue;
            }
            let rest = at + prefix.len();
            match closing(text, rest).filter(|_| text[rest..].starts_with('{')) {
                Some(end) => found.extend(first_names(&text[rest + 1..end - 1]).map(|name| (at, name))),
                None => found.push((at, name_at(&text[rest..]))),
            }
        }
    }
    found
}

/// The first name of each path in a list of a `use`.
fn first_names(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0usize;
    let parts = list.split(move |letter: char| {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    });
    parts.map(|part| name_at(part.trim_start()))
}

fn name_at(text: &str) -> &str {
    &text[..text.find(|letter: char| !is_word(letter)).unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::tree;

    /// A whole `group` with one more file.
    fn problems_with(path: &str, text: &str) -> Vec<String> {
        let rooms = ["across", "agents", "change", "data", "heal", "order", "replica", "replication", "state"]
            .map(|room| format!("group/src/{room}/mod.rs"));
        let mut files = vec![("group/src/lib.rs", "pub use agents::{clean, forget};\nuse order::token::Token;\n")];
        files.extend(["group/src/hosted.rs", "group/src/led.rs", "group/src/open.rs"].map(|path| (path, "")));
        files.extend(rooms.iter().map(|path| (path.as_str(), "")));
        files.push((path, text));
        check(&tree(&files))
    }

    #[test]
    fn rooms_are_listed_from_the_ground_up() {
        for house in HOUSES {
            for (at, (room, below)) in house.rooms.iter().enumerate() {
                let before = |name: &&str| house.rooms[..at].iter().any(|(earlier, _)| earlier == name);
                assert!(below.iter().all(before), "{}::{room} names a room above it", house.package);
            }
        }
    }

    #[test]
    fn downward_edges_pass() {
        for text in [
            "use crate::state::State;\nuse crate::{Groups, state::{Range, agents}};\n",
            "use wire::Context;\nfn f() { crate::closing() }\n",
            "use super::held::Held;\nuse names::agents;\nuse other::crate_agents::x;\n",
            "#[cfg(test)]\nmod tests { use crate::agents::clean; }\n",
            "// crate::agents\n",
        ] {
            assert_eq!(problems_with("group/src/order/held.rs", text), [""; 0], "{text}");
        }
        assert_eq!(problems_with("group/src/open.rs", "use crate::agents::clean;\n"), [""; 0]);
    }

    #[test]
    fn each_wrong_edge_is_refused() {
        for text in [
            "use crate::agents::clean;\n",
            "use crate::{Groups, state::State, data::write};\n",
            "fn f() { crate::change::first_groups() }\n",
            "use super::super::open::rests_on;\n",
            // By another name, which the root gives it.
            "use crate::clean::Status;\n",
            "use crate::{Groups, forget};\n",
        ] {
            assert_eq!(problems_with("group/src/order/held.rs", text).len(), 1, "{text}");
        }
        assert_eq!(problems_with("group/src/state/mod.rs", "use super::order::held;\n").len(), 1);
        assert_eq!(problems_with("group/src/state/load.rs", "use crate::Token;\n").len(), 1);
    }

    #[test]
    fn each_room_has_a_place() {
        assert_eq!(problems_with("group/src/attic.rs", "").len(), 1);
        assert_eq!(problems_with("group/src/attic/mod.rs", "").len(), 1);
        let few = check(&tree(&[("group/src/lib.rs", ""), ("group/src/open.rs", "")]));
        assert_eq!(few.len(), HOUSES[0].rooms.len() - 1);
    }
}
