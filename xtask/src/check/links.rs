//! Links between documents lead somewhere.

use crate::tree::Tree;

/// Refuses relative links to files or directories that are not there.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, file) in tree.files.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (number, line) in file.text.lines().enumerate() {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            let dead = targets.filter(|target| !leads_somewhere(tree, path, target));
            problems.extend(dead.map(|target| format!("{path}:{}: nothing is at {target}", number + 1)));
        }
    }
    problems
}

fn leads_somewhere(tree: &Tree, from: &str, target: &str) -> bool {
    let file = target.split('#').next().unwrap_or(target);
    if file.is_empty() || target.contains("://") {
        return true;
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in file.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    let wanted = parts.join("/");
    tree.files.contains_key(&wanted) || tree.files.keys().any(|path| path.starts_with(&format!("{wanted}/")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::tree;

    #[test]
    fn dead_links_are_refused() {
        let with =
            |link: &str| check(&tree(&[("docs/a.md", &format!("see [it]({link}).\n")), ("README.md", "")])).len();
        for good in ["a.md", "../README.md", "../docs/", "a.md#part", "#part", "https://example.org/x"] {
            assert_eq!(with(good), 0, "{good}");
        }
        for dead in ["b.md", "README.md", "../doc/", "../../README.md/x"] {
            assert_eq!(with(dead), 1, "{dead}");
        }
    }
}
