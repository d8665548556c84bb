//! The product's binary never holds the bugs that tests switch on (feature `seeded-bugs`) or the older designs that are
//! measured against ours (feature `ablations`), and never goes without what observes its requests (feature `unobserved`).

/// The file that declares the bugs.
pub const DECLARED_IN: &str = "base/src/seeded.rs";

/// Part of the mangled names of the switch that exists only with the feature; in both of rustc's manglings.
const SWITCH: &str = "6seeded6switch";

/// The same of the older designs' switches (feature `ablations`), and the variable that names them.
const ABLATIONS: [&str; 2] = ["7ablated6switch", "SINTER_TEST_ABLATIONS"];

/// The suffix of a version built without observation.
const UNOBSERVED: &str = "-unobserved";

/// Looks for the switch, for the bugs' names and for what must not be left out, in a binary.
pub fn check(declaration: &str, binary: &[u8]) -> Result<(), String> {
    let (_, body) =
        declaration.split_once("pub enum Bug {").ok_or("no enum Bug any more: bring this check up to date")?;
    let body = body.split('}').next().unwrap_or_default();
    if !declaration.contains("mod switch") {
        return Err("no module seeded::switch any more: bring this check up to date".to_string());
    }
    let names = body.lines().filter_map(|line| line.trim().strip_suffix(','));
    let names: Vec<&str> = names.filter(|name| name.chars().all(char::is_alphanumeric)).chain([SWITCH]).collect();
    let features = names.iter().map(|name| (*name, "seeded-bugs"));
    let features = features.chain(ABLATIONS.map(|name| (name, "ablations"))).chain([(UNOBSERVED, "unobserved")]);
    match held(binary, &features.collect::<Vec<_>>()) {
        Some((name, feature)) => Err(format!("the binary holds {name}: it was built with the feature {feature}")),
        None => Ok(()),
    }
}

/// One of the texts that the bytes hold, in one pass over them: a binary has a hundred megabytes, and the texts are a hundred.
fn held<'a>(bytes: &[u8], texts: &[(&'a str, &'a str)]) -> Option<(&'a str, &'a str)> {
    let pair = |bytes: &[u8]| usize::from(bytes[0]) << 8 | usize::from(bytes[1]);
    let mut begins = vec![false; 1 << 16];
    texts.iter().for_each(|(text, _)| begins[pair(text.as_bytes())] = true);
    let candidates = bytes.windows(2).enumerate().filter(|(_, window)| begins[pair(window)]);
    let found = |(at, _)| texts.iter().find(|(text, _)| bytes[at..].starts_with(text.as_bytes())).copied();
    candidates.filter_map(found).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARATION: &str = "pub enum Bug {\n    /// One.\n    TailReused,\n    AckEarly,\n}\nmod switch {}\n";

    #[test]
    fn a_binary_with_bugs_is_refused() {
        assert_eq!(check(DECLARATION, b"clean binary"), Ok(()));
        assert!(check(DECLARATION, b"...AckEarly...").is_err());
        assert!(check(DECLARATION, b"...0.1.0-unobserved...").is_err());
        assert!(check(DECLARATION, b"...SINTER_TEST_ABLATIONS...").is_err());
        assert!(check(DECLARATION, b"_ZN4base7ablated6switch2ON17h0E").is_err());
        assert!(check(DECLARATION, b"_ZN7runtime6seeded6switch7PROCESS17h0E").is_err());
    }

    #[test]
    fn a_changed_declaration_is_noticed() {
        assert!(check("mod switch {}", b"").is_err());
        assert!(check("pub enum Bug {\n}", b"").is_err());
    }
}
