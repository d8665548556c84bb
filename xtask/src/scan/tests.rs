use super::*;

const SOURCE: &str = r####"
//! unwrap() in a comment
fn short() -> char { '{' }
fn text<'a>(x: &'a str) -> String {
    /* a { /* nested { */ */
    let raw = r#"fn "{" not_code() {"#;
    format!("{x} }} \" {raw}")
}
trait Door {
    fn open(&self);
}
#[cfg(feature = "seeded-bugs")]
fn bug() {}
#[cfg(not(feature = "seeded-bugs"))]
fn kept() {}
#[cfg(test)]
mod tests {
    fn unwrap_here() {
        None::<u8>.unwrap();
    }
}
#[cfg(test)]
#[path = "odd.rs"]
mod script;
"####;

#[test]
fn functions_are_found_with_their_lines() {
    let functions = Scan::new(SOURCE).functions();
    let names: Vec<_> = functions.iter().map(|function| (function.name.as_str(), function.lines)).collect();
    assert_eq!(names, [("short", 1), ("text", 5), ("kept", 1)]);
    assert_eq!(functions[1].line, 4);
}

#[test]
fn comments_literals_and_tests_are_not_code() {
    let scan = Scan::new(SOURCE);
    assert!(!scan.code.contains("not_code") && !scan.code.contains("nested"));
    assert!(scan.uncommented.contains("not_code") && !scan.uncommented.contains("nested"));
    assert!(scan.comments.contains("unwrap() in a comment") && !scan.comments.contains("fn short"));
    assert!(scan.code.contains(".unwrap()") && !scan.product.contains("unwrap"));
    assert_eq!((scan.test_modules, scan.test_paths), (vec!["script".to_string()], vec!["odd.rs".to_string()]));
    assert_eq!(scan.code.len(), SOURCE.len());
    assert_eq!(scan.code.lines().count(), SOURCE.lines().count());
}

#[test]
fn test_code_does_not_count_as_product() {
    // Two lines of the seeded bug, six of the inline module, three of the module declared elsewhere.
    assert_eq!(Scan::new(SOURCE).product_lines, SOURCE.lines().count() - 2 - 6 - 3);
    assert_eq!(Scan::new("#![cfg(test)]\nfn x() {}\n").functions(), []);
}

#[test]
fn lifetimes_and_characters_are_told_apart() {
    let scan = Scan::new("fn f<'a>(x: &'a u8) { let c = ['\\'', '\"', 'é', '{']; }\nfn g() {}\n");
    assert_eq!(scan.functions().len(), 2);
}

#[test]
fn words_stand_alone() {
    assert_eq!(words("fn fnord(xfn) fn", "fn").collect::<Vec<_>>(), [0, 14]);
    assert_eq!(words("a.unwrap() b.unwrap_or(1)", ".unwrap()").count(), 1);
}
