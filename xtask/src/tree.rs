//! The input of the checks: the repository's text files and its packages. Loaded once; the checks themselves touch
//! neither disk nor processes, so that their tests can hand them a made-up tree.

use crate::scan::Scan;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository.
#[derive(Default)]
pub struct Tree {
    /// Text files by their path from the root, with `/`.
    pub files: BTreeMap<String, File>,
    /// The workspace's packages.
    pub packages: Vec<Package>,
}

/// A text file; Rust files come scanned.
pub struct File {
    /// Its text.
    pub text: String,
    /// Its scan, if it is Rust.
    pub scan: Option<Scan>,
}

/// A package of the workspace.
#[derive(Default, Debug)]
pub struct Package {
    /// Its name, which is also its directory.
    pub name: String,
    /// Names of packages that it depends on, but for those that only its tests use.
    pub dependencies: Vec<String>,
    /// Files from which its targets are compiled.
    pub roots: Vec<String>,
}

/// Directories beside the packages' own that hold tracked text.
const DIRECTORIES: [&str; 4] = [".ci", ".cargo", "docs", "scripts"];

impl Tree {
    /// Loads the repository at `root`.
    pub fn load(root: &Path) -> Result<Tree, String> {
        let packages = packages(root)?;
        let mut tree = Tree { files: BTreeMap::new(), packages };
        let own = tree.packages.iter().map(|package| package.name.clone());
        let directories: Vec<String> = own.chain(DIRECTORIES.map(str::to_string)).collect();
        tree.read_directory(root, "", &|name| directories.iter().any(|known| known == name))?;
        Ok(tree)
    }
    /// Adds a file.
    pub fn add(&mut self, path: &str, text: &str) {
        let scan = path.ends_with(".rs").then(|| Scan::new(text));
        self.files.insert(path.to_string(), File { text: text.to_string(), scan });
    }
    fn read_directory(&mut self, root: &Path, below: &str, wanted: &dyn Fn(&str) -> bool) -> Result<(), String> {
        let path = root.join(below);
        let listing = std::fs::read_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        for entry in listing {
            let entry = entry.map_err(|error| format!("{}: {error}", path.display()))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let inner = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
            let kind = entry.file_type().map_err(|error| format!("{inner}: {error}"))?;
            if kind.is_dir() && name != "target" && wanted(&name) {
                self.read_directory(root, &inner, &|_| true)?;
            } else if kind.is_file()
                // Of a worktree: it says where the repository lies.
                && name != ".git"
                && let Some(text) = read_text(&entry.path())
            {
                self.add(&inner, &text);
            }
        }
        Ok(())
    }
    /// Rust files: path and scan.
    pub fn rust(&self) -> impl Iterator<Item = (&str, &Scan)> {
        self.files.iter().filter_map(|(path, file)| Some((path.as_str(), file.scan.as_ref()?)))
    }
    /// Rust files that are part of the product or of the workshop's programs, not of their tests.
    pub fn product(&self) -> impl Iterator<Item = (&str, &Scan)> {
        let tests = self.test_files();
        self.rust().filter(move |(path, _)| !tests.contains(*path))
    }
    /// Paths of Rust files that only tests contain.
    fn test_files(&self) -> BTreeSet<String> {
        let mut tests = BTreeSet::new();
        for (path, scan) in self.rust() {
            let in_tests = path.split('/').any(|part| matches!(part, "tests" | "benches" | "examples"));
            if in_tests || path.ends_with("/tests.rs") {
                tests.insert(path.to_string());
            }
            let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
            tests.extend(scan.test_paths.iter().map(|file| format!("{directory}/{file}")));
            for module in &scan.test_modules {
                let candidates = module_files(path, module);
                let below = format!("{}/", candidates[0].trim_end_matches(".rs"));
                let found = self.rust().map(|(other, _)| other);
                let behind = found.filter(|other| candidates.iter().any(|c| c == other) || other.starts_with(&below));
                tests.extend(behind.map(str::to_string));
            }
        }
        tests
    }
}

/// Files in which `mod name;` of the file `path` may lie.
pub fn module_files(path: &str, name: &str) -> [String; 2] {
    let (directory, file) = path.rsplit_once('/').unwrap_or((".", path));
    let stem = file.trim_end_matches(".rs");
    let is_root = matches!(stem, "lib" | "main" | "mod" | "build") || ends_in_target_directory(directory);
    let base = if is_root { directory.to_string() } else { format!("{directory}/{stem}") };
    [format!("{base}/{name}.rs"), format!("{base}/{name}/mod.rs")]
}

/// Files directly in these directories are compiled as programs of their own.
fn ends_in_target_directory(directory: &str) -> bool {
    let parts: Vec<&str> = directory.split('/').collect();
    matches!(parts[..], [_, "tests" | "benches" | "examples"] | [_, "src", "bin"])
}

/// A file's text; nothing if it is not text (test images, say).
fn read_text(path: &Path) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// Asks cargo for the workspace's packages.
fn packages(root: &Path) -> Result<Vec<Package>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    let prefix = format!("{}/", root.display());
    Ok(list(&metadata["packages"]).iter().map(|package| read_package(package, &prefix)).collect())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}

fn read_package(package: &Value, prefix: &str) -> Package {
    let root = |target: &Value| text(&target["src_path"]).trim_start_matches(prefix).to_string();
    Package {
        name: text(&package["name"]),
        // What only tests use does not reach the product; the fence around heavy dependencies is cargo's lock file.
        dependencies: list(&package["dependencies"])
            .iter()
            .filter(|dependency| dependency["kind"] != "dev")
            .map(|dependency| text(&dependency["name"]))
            .collect(),
        roots: list(&package["targets"]).iter().map(root).collect(),
    }
}

/// The repository's root: the directory above this package.
pub fn root() -> PathBuf {
    // Not the path that it was built in: checkouts may share a build.
    let own = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let own = PathBuf::from(own);
    own.parent().expect("xtask lies in the workspace").to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_lie_where_rust_looks_for_them() {
        assert_eq!(module_files("store/src/lib.rs", "log"), ["store/src/log.rs", "store/src/log/mod.rs"]);
        assert_eq!(
            module_files("store/src/log/core.rs", "a"),
            ["store/src/log/core/a.rs", "store/src/log/core/a/mod.rs"]
        );
        assert_eq!(module_files("store/tests/model.rs", "a"), ["store/tests/a.rs", "store/tests/a/mod.rs"]);
        assert_eq!(module_files("bench/src/bin/run.rs", "a")[0], "bench/src/bin/a.rs");
    }

    #[test]
    fn tests_are_told_from_the_product() {
        let mut tree = Tree::default();
        tree.add(
            "a/src/lib.rs",
            "mod kept;\n#[cfg(test)]\nmod script;\n#[cfg(test)]\n#[path = \"odd.rs\"]\nmod even;\n",
        );
        for path in ["a/src/kept.rs", "a/src/script/mod.rs", "a/src/script/deep.rs", "a/src/odd.rs"] {
            tree.add(path, "");
        }
        for path in ["a/tests/b.rs", "a/src/log/tests.rs", "a/benches/c.rs", "a/examples/d.rs"] {
            tree.add(path, "");
        }
        let product: Vec<&str> = tree.product().map(|(path, _)| path).collect();
        assert_eq!(product, ["a/src/kept.rs", "a/src/lib.rs"]);
    }

    #[test]
    fn this_repository_is_read() {
        let tree = Tree::load(&root()).expect("cargo metadata works");
        let own = tree.packages.iter().find(|package| package.name == "xtask").expect("this package is there");
        assert_eq!(
            (own.roots.as_slice(), own.dependencies.as_slice()),
            (
                &["xtask/src/main.rs", "xtask/tests/disk.rs"].map(str::to_string)[..],
                &["base", "explain", "proc-macro2", "runtime", "rustix", "serde_json", "syn"].map(str::to_string)[..]
            )
        );
        assert!(tree.files.contains_key("README.md") && tree.files.contains_key("xtask/src/tree.rs"));
    }
}
