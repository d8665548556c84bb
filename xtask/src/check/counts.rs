//! Figures of packages that may only shrink: each has a file of lines `count package`.

use crate::tree::Tree;
use std::collections::BTreeMap;

/// Places of what is counted, by package.
pub type Places<'a> = BTreeMap<&'a str, Vec<String>>;

/// The figures that a file stores, by package: lines of `figure package`, and comments.
pub fn stored<'a>(tree: &'a Tree, file: &str) -> BTreeMap<&'a str, usize> {
    fn entry(line: &str) -> Option<(&str, usize)> {
        let (figure, package) = line.split_once(' ')?;
        Some((package, figure.parse().ok()?))
    }
    let text = tree.files.get(file).map_or("", |file| file.text.as_str());
    text.lines().filter(|line| !line.starts_with('#')).filter_map(entry).collect()
}

/// A figure of each package.
pub struct Figure {
    /// The file that stores it.
    pub stored: &'static str,
    /// The file's first line.
    pub title: &'static str,
    /// A message's words for what is counted.
    pub counted: &'static str,
    /// The way to have less of it.
    pub remedy: &'static str,
    /// A package's figure may lag behind its stored one by this much.
    pub slack: usize,
}

impl Figure {
    /// Refuses more places than are stored for the package, and a stored figure that lags.
    pub fn check(&self, tree: &Tree, found: &Places) -> Vec<String> {
        let stored = stored(tree, self.stored);
        let mut problems = Vec::new();
        for (package, places) in found {
            let (now, allowed) = (places.len(), stored.get(package).copied().unwrap_or(0));
            if now > allowed {
                problems.push(format!("{package}: {now} {}, at most {allowed} may: {}", self.counted, self.remedy));
            } else if now + self.slack < allowed {
                problems.push(format!("{}: {package} has {now} by now; keep it so: cargo xtask ratchet", self.stored));
            }
        }
        problems
    }
    /// The file's text after today's shrinking; a figure that has grown stays as it was stored.
    pub fn lowered(&self, tree: &Tree, found: &Places) -> String {
        let stored = stored(tree, self.stored);
        let mut text = format!("# {}, per package: may only shrink (cargo xtask ratchet).\n", self.title);
        for (package, places) in found {
            let count = places.len().min(stored.get(package).copied().unwrap_or(0));
            if count > 0 {
                text += &format!("{count} {package}\n");
            }
        }
        text
    }
}
