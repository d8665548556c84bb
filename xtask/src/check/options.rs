//! A knob is a question that we failed to answer: each option says its unit and bounds, is documented, and there
//! are few of them (decision D7).

use crate::scan::{Scan, closing, is_word, line_of};
use crate::tree::Tree;
use std::collections::BTreeSet;

/// Fewer than this many different options of commands that do something.
const OPTIONS_MAX: usize = 56;
/// Files with commands that only look or measure: their options choose what is shown, and no brick or daemon works
/// differently for them (decision 0054). They need the rest, but are not counted.
const LOOKING: [&str; 2] = ["node/src/cli/bench.rs", "node/src/cli/observe.rs"];
/// Documents of options.
const DOCUMENTED_IN: [&str; 2] = ["SPECIFICATION.md", "docs/options.md"];
/// The file that declares the keys of config files, as `KEYS`, and the one that documents each as a row of a table.
const KEYS_IN: &str = "node/src/config.rs";
const KEYS_DOCUMENTED_IN: &str = "docs/options.md";
/// Types of the standard library, and names of our own, whose values have both.
const NUMERIC: [&str; 15] = [
    "u8", "u16", "u32", "u64", "usize", "i32", "i64", "f32", "f64", "Bytes", "Size", "ByteSize", "Duration", "Seconds",
    "Percent",
];

/// An option as `node` declares it for clap.
struct Declared {
    line: usize,
    /// `--name`; `None` for a positional argument.
    long: Option<String>,
    field: String,
    kind: String,
    help: String,
}

/// Refuses options without help, unit, bounds or documentation, and too many of them.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    let mut names = BTreeSet::new();
    let documents = DOCUMENTED_IN.iter().filter_map(|path| tree.files.get(*path));
    let documents: String = documents.map(|file| file.text.as_str()).collect();
    for (path, scan) in tree.product().filter(|(path, _)| path.starts_with("node/")) {
        if scan.product.contains("Arg::new(") {
            problems.push(format!("{path}: declare options by #[arg], so that this check sees them"));
        }
        for option in declared(&tree.files[path].text, scan) {
            problems.extend(
                faults(&option, &documents).into_iter().map(|fault| format!("{path}:{}: {fault}", option.line)),
            );
            names.extend(option.long.filter(|_| !LOOKING.contains(&path)));
        }
    }
    problems.extend(undocumented_keys(tree));
    if names.len() >= OPTIONS_MAX {
        problems.push(format!("node: {} options; fewer than {OPTIONS_MAX} are allowed", names.len()));
    }
    problems
}

/// Keys of config files that have no row under "Config file", and rows of keys that are not there.
fn undocumented_keys(tree: &Tree) -> Vec<String> {
    let (Some(code), Some(page)) = (tree.files.get(KEYS_IN), tree.files.get(KEYS_DOCUMENTED_IN)) else {
        return Vec::new();
    };
    let declared = code.text.split_once("pub const KEYS").and_then(|(_, rest)| rest.split_once("];"));
    let declared = declared.map_or("", |(table, _)| table);
    let keys: BTreeSet<&str> = declared.split("(\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let section = page.text.split_once("## Config file").map_or("", |(_, section)| section);
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let rows: BTreeSet<&str> = rows.collect();
    if keys.is_empty() {
        return vec![format!("{KEYS_IN}: declare the keys of config files in KEYS, so that this check sees them")];
    }
    let missing = keys.difference(&rows).map(|key| format!("{KEYS_IN}: `{key}` has no row in {KEYS_DOCUMENTED_IN}"));
    let unknown = rows.difference(&keys).map(|key| format!("{KEYS_DOCUMENTED_IN}: no config file may hold `{key}`"));
    missing.chain(unknown).collect()
}

fn faults(option: &Declared, documents: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let name = option.long.as_deref().unwrap_or(&option.field);
    if option.help.is_empty() {
        faults.push(format!("{name} has no help"));
    }
    let types: Vec<&str> = option.kind.split(|letter: char| !is_word(letter)).collect();
    let is_numeric = types.iter().any(|name| NUMERIC.contains(name));
    if is_numeric && !has_unit(&option.help) {
        faults.push(format!("help of {name} must name its unit: one of {}", UNITS.join(", ")));
    }
    if is_numeric && !has_bounds(&option.help) {
        faults.push(format!("help of {name} must name its bounds, as \"1 to 64\" or \"at least 1, at most 64\""));
    }
    if let Some(long) = &option.long
        && !documents.contains(&format!("`--{long}"))
    {
        faults.push(format!("`--{long}` is documented neither in {}", DOCUMENTED_IN.join(" nor in ")));
    }
    faults
}

/// One of these words names the unit of a numeric option.
const UNITS: [&str; 7] = ["bytes", "seconds", "milliseconds", "percent", "count", "number", "numbers"];

fn has_unit(help: &str) -> bool {
    help.split(|letter: char| !is_word(letter)).any(|word| UNITS.contains(&word.to_lowercase().as_str()))
}

/// True for "1 to 64" and for "at least 4G and at most 1T".
fn has_bounds(help: &str) -> bool {
    let ends_in_number =
        |text: &str| text.split(' ').next_back().is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    let starts_with_number = |text: &str| text.starts_with(|letter: char| letter.is_ascii_digit());
    let parts: Vec<&str> = help.split(" to ").collect();
    let range = parts.windows(2).any(|pair| ends_in_number(pair[0]) && starts_with_number(pair[1]));
    range || (help.contains("at least ") && help.contains("at most "))
}

fn declared(text: &str, scan: &Scan) -> Vec<Declared> {
    let starts = scan.product.match_indices("#[arg").map(|(at, _)| at);
    starts.filter_map(|at| declared_at(text, scan, at)).collect()
}

fn declared_at(text: &str, scan: &Scan, at: usize) -> Option<Declared> {
    let end = closing(&scan.product, at + 1)?;
    let attribute = &scan.uncommented[at..end];
    let (field, rest) = scan.product[end..].split_once(':')?;
    let field = field.split_whitespace().last()?.to_string();
    let kind = rest.split(['\n', '}']).next()?.trim().trim_end_matches(',').to_string();
    let help_from = |lines: Vec<&str>| -> String {
        let docs = lines.into_iter().map(str::trim).filter_map(|line| line.strip_prefix("///"));
        docs.map(str::trim).collect::<Vec<_>>().join(" ")
    };
    let before: Vec<&str> = text[..at].lines().rev().skip(1).take_while(|line| is_annotation(line)).collect();
    let help = help_from(before.into_iter().rev().collect());
    let long = long_name(attribute, &field);
    Some(Declared { line: line_of(text, at), long, field, kind, help })
}

fn is_annotation(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("///") || line.starts_with("#[")
}

/// The option's name: `long = "name"`, or the field's own after a bare `long`.
fn long_name(attribute: &str, field: &str) -> Option<String> {
    let (_, inner) = attribute.split_once('(')?;
    let part = inner.split([',', ')']).map(str::trim).find(|part| part.split([' ', '=']).next() == Some("long"))?;
    match part.split_once('=') {
        Some((_, name)) => Some(name.trim().trim_matches('"').to_string()),
        None => Some(field.replace('_', "-")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::tree;

    fn problems(fields: &str) -> Vec<String> {
        let text = format!("//! Head.\nstruct Up {{\n{fields}}}\n");
        check(&tree(&[
            ("node/src/options.rs", &text),
            ("docs/options.md", "`--memory-max SIZE`, `--json`, `--size`\n"),
        ]))
    }

    #[test]
    fn good_options_pass() {
        let good = "    /// Memory for everything in bytes, 256M to 1T.\n    #[arg(long, value_parser = parse(1..=2))]\n    \
                    memory_max: Option<u64>,\n    /// Tell it as JSON.\n    #[arg(short, long = \"json\")]\n    pub as_json: bool,\n    \
                    /// The brick.\n    #[arg()]\n    data: PathBuf,\n";
        assert_eq!(problems(good), [""; 0]);
    }

    #[test]
    fn each_fault_is_refused() {
        assert_eq!(problems("    #[arg(long)]\n    json: bool,\n"), ["node/src/options.rs:3: json has no help"]);
        let numeric = |help: &str| problems(&format!("    /// {help}\n    #[arg(long)]\n    size: Vec<u64>,\n")).len();
        assert_eq!(numeric("Bytes of it, at least 1 and at most 8."), 0);
        assert_eq!(numeric("Bytes of it, given to all."), 1);
        assert_eq!(numeric("The size, 1 to 64."), 1);
        assert_eq!(numeric("The size."), 2);
        let undocumented = problems("    /// Faster.\n    #[arg(long)]\n    turbo: bool,\n");
        assert!(undocumented.len() == 1 && undocumented[0].contains("--turbo"), "{undocumented:?}");
        assert_eq!(problems("}\nfn f() { Arg::new(1); \n").len(), 1);
    }

    #[test]
    fn too_many_options_are_refused() {
        let many: String =
            (0..56).map(|n| format!("    /// One.\n    #[arg(long = \"json{n}\")]\n    x: bool,\n")).collect();
        assert!(problems(&many).iter().any(|problem| problem.contains("56 options")));
    }

    #[test]
    fn keys_of_config_files_are_documented_one_by_one() {
        let code = "//! Head.\npub const KEYS: [(&str, &str); 2] = [\n    (\"data\", \"a path\"),\n    (\"size\", \"bytes\"),\n];\n";
        let of = |page: &str| check(&tree(&[(KEYS_IN, code), (KEYS_DOCUMENTED_IN, page)]));
        assert_eq!(of("## Config file\n| `data` | a |\n| `size` | b |\n## More\n| `x` | c |\n"), [""; 0]);
        let missing = of("| `size` | b |\n## Config file\n| `data` | a |\n");
        assert!(missing.len() == 1 && missing[0].contains("`size` has no row"), "{missing:?}");
        let unknown = of("## Config file\n| `data` | a |\n| `size` | b |\n| `sise` | c |\n");
        assert!(unknown.len() == 1 && unknown[0].contains("`sise`"), "{unknown:?}");
        let hidden = check(&tree(&[(KEYS_IN, "//! Head.\n"), (KEYS_DOCUMENTED_IN, "## Config file\n")]));
        assert!(hidden.len() == 1 && hidden[0].contains("KEYS"), "{hidden:?}");
    }
}
