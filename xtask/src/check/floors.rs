//! Permitted dependencies between packages: edges only downward, heavy dependencies behind their fences. Below
//! packages, `rooms` says the same of their first level.

use crate::check::rooms;
use crate::tree::Tree;

/// A package of the product: what it may depend on, in and outside of the workspace.
struct Room {
    name: &'static str,
    below: &'static [&'static str],
    outside: &'static [&'static str],
}

/// The product, from the ground up. A room that is not here does not exist yet.
const ROOMS: [Room; 15] = [
    Room { name: "base", below: &[], outside: &["crc-fast"] },
    Room { name: "runtime", below: &["base"], outside: &["io-uring", "libc", "rustix"] },
    Room { name: "store", below: &["base", "runtime"], outside: &[] },
    Room { name: "names", below: &["base"], outside: &[] },
    Room { name: "order_raft", below: &["base"], outside: &["raft", "slog"] },
    Room { name: "wire", below: &["base", "runtime"], outside: &["ring", "rustls"] },
    Room { name: "explain", below: &["base", "runtime"], outside: &["serde"] },
    Room { name: "recording", below: &["base"], outside: &["postcard", "serde", "siphasher", "zstd"] },
    Room { name: "index_rocksdb", below: &["store", "base", "runtime"], outside: &["rocksdb"] },
    Room { name: "group", below: &["store", "names", "order_raft", "wire", "base", "runtime"], outside: &[] },
    Room {
        name: "control",
        below: &["wire", "base", "runtime"],
        outside: &["data-encoding", "pem", "rcgen", "ring", "serde", "time", "toml", "x509-parser"],
    },
    Room { name: "layer", below: &["group", "wire", "base", "runtime"], outside: &[] },
    Room { name: "front", below: &["layer", "recording", "base", "runtime"], outside: &["libc", "rustix"] },
    Room {
        name: "console",
        below: &["explain", "runtime"],
        outside: &["axum", "hyper", "hyper-util", "prometheus-client", "serde", "serde_json", "tokio"],
    },
    Room {
        name: "node",
        below: &[
            "front",
            "console",
            "layer",
            "group",
            "control",
            "store",
            "names",
            "order_raft",
            "wire",
            "explain",
            "recording",
            "index_rocksdb",
            "runtime",
            "base",
        ],
        outside: &[
            "clap",
            "clap_complete",
            "clap_mangen",
            "data-encoding",
            "libc",
            "rustix",
            "serde",
            "serde_json",
            "tikv-jemallocator",
            "toml",
            "ratatui",
            "rustls",
            "ureq",
        ],
    },
];

/// May use anything but the fenced engine; nothing uses them.
const WORKSHOP: [&str; 5] = ["sim", "interleave", "bench", "fuzz", "xtask"];

/// The index engine takes minutes to build: only the daemon and the benches pay.
const FENCED: &str = "index_rocksdb";
const MAY_USE_FENCED: [&str; 2] = ["node", "bench"];

/// True if the file at `path` belongs to a package of the product.
pub fn is_product_path(path: &str) -> bool {
    let package = path.split('/').next().unwrap_or(path);
    ROOMS.iter().any(|room| room.name == package)
}

/// Refuses dependencies that the house does not list.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for package in &tree.packages {
        for dependency in &package.dependencies {
            if let Some(why) = refusal(tree, &package.name, dependency) {
                problems.push(format!("{}/Cargo.toml: may not depend on {dependency}: {why}", package.name));
            }
        }
    }
    problems.extend(rooms::check(tree));
    problems
}

fn refusal(tree: &Tree, from: &str, to: &str) -> Option<String> {
    if WORKSHOP.contains(&to) {
        return Some("nothing uses the workshop".to_string());
    }
    if to == FENCED && !MAY_USE_FENCED.contains(&from) {
        return Some(format!("only {} use the index engine", MAY_USE_FENCED.join(" and ")));
    }
    if WORKSHOP.contains(&from) {
        return None;
    }
    let Some(room) = ROOMS.iter().find(|room| room.name == from) else {
        return Some(format!("{from} stands on no floor; give it one in xtask/src/check/floors.rs"));
    };
    let is_room = tree.packages.iter().any(|package| package.name == to);
    let allowed = if is_room { room.below } else { room.outside };
    let list = if allowed.is_empty() { "nothing".to_string() } else { allowed.join(", ") };
    let kind = if is_room { "rooms" } else { "libraries" };
    (!allowed.contains(&to)).then(|| format!("of {kind} it may use {list}"))
}

/// Refuses packages that bring lints of their own.
pub fn lints(tree: &Tree) -> Vec<String> {
    let takes_lints = |text: &str| text.contains("[lints]\nworkspace = true");
    let manifests = tree.files.iter().filter(|(path, _)| path.ends_with("/Cargo.toml"));
    let own = manifests.filter(|(_, file)| !takes_lints(&file.text));
    own.map(|(path, _)| format!("{path}: must say [lints] workspace = true")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Package;

    fn problems(edges: &[(&str, &str)]) -> Vec<String> {
        let names = ["base", "runtime", "store", "front", "group", "sim", "index_rocksdb", "node", "attic"];
        let package = |name: &&str| Package {
            name: name.to_string(),
            dependencies: edges.iter().filter(|(from, _)| from == name).map(|(_, to)| to.to_string()).collect(),
            ..Package::default()
        };
        check(&Tree { packages: names.iter().map(package).collect(), ..Tree::default() })
    }

    #[test]
    fn downward_edges_pass() {
        assert_eq!(problems(&[("store", "base"), ("group", "store"), ("sim", "front"), ("runtime", "libc")]), [""; 0]);
        assert_eq!(problems(&[("node", "index_rocksdb"), ("sim", "anything")]), [""; 0]);
    }

    #[test]
    fn each_wrong_edge_is_refused() {
        let wrong = [
            ("store", "group"),
            ("base", "runtime"),
            ("front", "store"),
            ("store", "sim"),
            ("sim", "index_rocksdb"),
            ("group", "tokio"),
            ("attic", "base"),
        ];
        for edge in wrong {
            assert_eq!(problems(&[edge]).len(), 1, "{edge:?}");
        }
    }

    #[test]
    fn missing_lints_are_refused() {
        let mut tree = Tree::default();
        tree.add("store/Cargo.toml", "[package]\n\n[lints]\nworkspace = true\n");
        tree.add("group/Cargo.toml", "[package]\n");
        assert_eq!(lints(&tree).len(), 1);
    }
}
