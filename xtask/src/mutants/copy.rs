//! The copy of the repository in which mutants are built and run. The repository itself is never touched.

use crate::mutants::Mutant;
use crate::mutants::rewrite::{Rewritten, rewritten};
use crate::tree::root;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Each round shows errors that those of the round before have hidden; three or four are usual.
const ROUNDS_MAX: usize = 30;

/// The copy.
pub struct Copy {
    /// Its directory.
    pub root: PathBuf,
    /// Files in which mutants were drawn.
    paths: BTreeSet<String>,
}

/// A test binary.
pub struct Binary {
    pub package: String,
    /// Name of the target that it tests.
    pub target: String,
    pub path: PathBuf,
}

impl Copy {
    /// Copies what git knows of the repository, with what was changed since, and `mutants` with their switches.
    pub fn new(mutants: &[Mutant]) -> Result<Copy, String> {
        let paths = mutants.iter().map(|mutant| mutant.path.clone()).collect();
        let copy = Copy { root: std::env::temp_dir().join("sinter-mutants"), paths };
        let held = copy.held(mutants)?;
        let listing = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
        let listing = listing.map_err(|error| format!("git ls-files: {error}"))?.stdout;
        for path in String::from_utf8_lossy(&listing).split_terminator('\0') {
            let from = root().join(path);
            // What holds mutants comes with them; a file that was deleted is listed until that is committed.
            if !held.contains_key(path) && from.is_file() {
                let bytes = std::fs::read(&from).map_err(|error| format!("{}: {error}", from.display()))?;
                let base = (path == "base/src/lib.rs").then(|| [&bytes[..], b"\npub mod mutants;\n"].concat());
                copy.write(path, &base.unwrap_or(bytes))?;
            }
        }
        copy.write("base/src/mutants.rs", include_bytes!("switch.rs"))?;
        Ok(copy)
    }
    /// The files that hold mutants, with their switches, which are written if they differ.
    fn held(&self, mutants: &[Mutant]) -> Result<BTreeMap<String, Rewritten>, String> {
        let mut held = BTreeMap::new();
        for path in &self.paths {
            let text = std::fs::read_to_string(root().join(path)).map_err(|error| format!("{path}: {error}"))?;
            let here = mutants.iter().filter(|mutant| mutant.path == *path);
            let here: Vec<_> = here.map(|mutant| (mutant.number, &mutant.site)).collect();
            let new = rewritten(&text, &here);
            self.write(path, new.text.as_bytes())?;
            held.insert(path.clone(), new);
        }
        Ok(held)
    }
    /// Writes a file unless it has this content: cargo goes by the time of the last change.
    fn write(&self, path: &str, content: &[u8]) -> Result<(), String> {
        let path = self.root.join(path);
        if std::fs::read(&path).is_ok_and(|there| there == content) {
            return Ok(());
        }
        let written = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        written.and_then(|()| std::fs::write(&path, content)).map_err(|error| format!("{}: {error}", path.display()))
    }
    /// Leaves out mutants that the compiler refuses, until it takes the rest; says how many were left out.
    pub fn refuse(&self, mutants: &mut Vec<Mutant>, packages: &[&str]) -> Result<usize, String> {
        let before = mutants.len();
        for _ in 0..ROUNDS_MAX {
            let held = self.held(mutants)?;
            let messages = self.cargo(&["check", "--keep-going"], packages)?;
            let errors = messages.iter().map(|line| &line["message"]).filter(|message| message["level"] == "error");
            let errors: Vec<&Value> = errors.filter(|error| !spans(error).is_empty()).collect();
            if errors.is_empty() {
                let done = messages.iter().any(|line| line["success"] == true);
                return if done { Ok(before - mutants.len()) } else { Err("the copy does not build".to_string()) };
            }
            let mut refused = BTreeSet::new();
            for error in errors {
                let text = || error["rendered"].as_str().unwrap_or_default().to_string();
                refused.insert(blamed(error, &held).ok_or_else(text)?);
            }
            mutants.retain(|mutant| !refused.contains(&mutant.number));
        }
        Err(format!("errors after {ROUNDS_MAX} rounds"))
    }
    /// Builds the tests of these packages.
    pub fn tests(&self, packages: &[&str]) -> Result<Vec<Binary>, String> {
        let messages = self.cargo(&["test", "--no-run"], packages)?;
        let mut binaries = Vec::new();
        for line in messages.iter().filter(|line| line["profile"]["test"] == true) {
            let (Some(path), Some(manifest)) = (line["executable"].as_str(), line["manifest_path"].as_str()) else {
                continue;
            };
            let directory = Path::new(manifest).parent().and_then(Path::file_name);
            binaries.push(Binary {
                package: directory.map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
                target: line["target"]["name"].as_str().unwrap_or_default().to_string(),
                path: PathBuf::from(path),
            });
        }
        let built = messages.iter().any(|line| line["success"] == true);
        if built { Ok(binaries) } else { Err("the tests of the copy do not build".to_string()) }
    }
    /// Runs cargo for some packages; its messages.
    fn cargo(&self, arguments: &[&str], packages: &[&str]) -> Result<Vec<Value>, String> {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(arguments).args(["--release", "--locked", "--quiet", "--message-format=json"]);
        command.args(packages.iter().flat_map(|package| ["-p", package]));
        // Nobody looks at lines here, and the build is the longer for them.
        command.env("CARGO_PROFILE_RELEASE_DEBUG", "false").env("CARGO_TARGET_DIR", self.root.join("target"));
        let output = command.current_dir(&self.root).stderr(Stdio::null()).output();
        let output = output.map_err(|error| format!("{command:?}: {error}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }
    /// The sources' own program `name`, once the tests are built.
    pub fn program(&self, name: &str) -> PathBuf {
        self.root.join("target/release").join(name)
    }
}

/// All places that an error names, those that it is about first: file, and bytes in it.
fn spans(error: &Value) -> Vec<(String, usize, usize)> {
    let list = |value: &Value| value["spans"].as_array().cloned().unwrap_or_default();
    let mut all = list(error);
    all.sort_by_key(|span| span["is_primary"] != true);
    all.extend(error["children"].as_array().into_iter().flatten().flat_map(list));
    let number = |value: &Value| value.as_u64().unwrap_or(0) as usize;
    let read = |span: Value| {
        let path = span["file_name"].as_str()?.to_string();
        Some((path, number(&span["byte_start"]), number(&span["byte_end"])))
    };
    all.into_iter().filter_map(read).collect()
}

/// The mutant to which an error is due: the innermost around a place that it names, else the last before it.
fn blamed(error: &Value, held: &BTreeMap<String, Rewritten>) -> Option<u32> {
    let spans = spans(error);
    let around = spans.iter().find_map(|(path, start, end)| {
        let touches = held.get(path)?.places.iter().filter(|(_, place)| place.start < *end && *start < place.end);
        touches.min_by_key(|(_, place)| place.len())
    });
    let before = || {
        spans.iter().find_map(|(path, start, _)| {
            let earlier = held.get(path)?.places.iter().filter(|(_, place)| place.start <= *start);
            earlier.max_by_key(|(_, place)| place.start)
        })
    };
    around.or_else(before).map(|(&number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn held() -> BTreeMap<String, Rewritten> {
        let places = BTreeMap::from([(1, 10..50), (2, 20..30), (3, 60..70)]);
        BTreeMap::from([("a.rs".to_string(), Rewritten { text: String::new(), places })])
    }

    fn error(start: usize, end: usize) -> Value {
        json!({"spans": [{"file_name": "a.rs", "byte_start": start, "byte_end": end, "is_primary": true}]})
    }

    #[test]
    fn the_innermost_mutant_is_blamed_and_else_the_one_before() {
        assert_eq!(blamed(&error(22, 25), &held()), Some(2));
        assert_eq!(blamed(&error(12, 15), &held()), Some(1));
        assert_eq!(blamed(&error(55, 56), &held()), Some(2));
        assert_eq!(blamed(&error(80, 90), &held()), Some(3));
        assert_eq!(blamed(&error(1, 2), &held()), None);
    }

    #[test]
    fn what_an_error_is_about_comes_first() {
        let mut both = error(62, 64);
        let other = json!({"file_name": "a.rs", "byte_start": 22, "byte_end": 25, "is_primary": false});
        both["spans"].as_array_mut().expect("a list").insert(0, other);
        assert_eq!(blamed(&both, &held()), Some(3));
    }
}
