//! Reads Rust source just well enough for the house rules: blanks out comments, literals and test code, then
//! matches braces. Promises: the blanked text has the same length and lines as the source. It is not a parser:
//! macros are read as plain tokens.

/// The kind of text that a byte of Rust source belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Code,
    Comment,
    Literal,
}

/// A Rust file with its parts blanked out.
pub struct Scan {
    /// Comments blanked out.
    pub uncommented: String,
    /// Comments and the insides of literals blanked out.
    pub code: String,
    /// The product: `code` without test code.
    pub product: String,
    /// Only the comments.
    pub comments: String,
    /// Modules that are declared behind `cfg(test)`.
    pub test_modules: Vec<String>,
    /// Files that such modules name by `#[path]`, from this file's directory.
    pub test_paths: Vec<String>,
    /// All lines of the file, comments included, without those of test code.
    pub product_lines: usize,
}

/// A function and the lines it takes, from `fn` to its last brace.
#[derive(PartialEq, Eq, Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Line of its `fn`, from 1.
    pub line: usize,
    /// Number of its lines.
    pub lines: usize,
}

/// Blanks every byte for which `keep` is false; line ends stay.
fn blank(text: &str, keep: impl Fn(usize) -> bool) -> String {
    let byte = |(at, byte): (usize, u8)| if byte == b'\n' || keep(at) { byte } else { b' ' };
    let bytes = text.bytes().enumerate().map(byte).collect();
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

impl Scan {
    /// Scans a file's text.
    pub fn new(text: &str) -> Scan {
        let parts = parts(text.as_bytes());
        let uncommented = blank(text, |at| parts[at] != Part::Comment);
        let code = blank(text, |at| parts[at] == Part::Code);
        let comments = blank(text, |at| parts[at] == Part::Comment);
        let (mut test_modules, mut test_paths) = (Vec::new(), Vec::new());
        let mut product = code.clone();
        let mut product_lines = text.lines().count();
        for (start, end) in test_items(&code, &uncommented) {
            let words: Vec<&str> = code[start..end].split_whitespace().collect();
            if let Some(at) = words.iter().position(|&word| word == "mod")
                && let Some(name) = words.get(at + 1).and_then(|word| word.strip_suffix(';'))
            {
                test_modules.push(name.to_string());
                let path = uncommented[start..end].split_once("#[path = \"").and_then(|(_, rest)| rest.split_once('"'));
                test_paths.extend(path.map(|(path, _)| path.to_string()));
            }
            product = blank(&product, |at| at < start || at >= end);
            product_lines = product_lines.saturating_sub(text[start..end].lines().count());
        }
        Scan { uncommented, code, product, comments, test_modules, test_paths, product_lines }
    }
    /// Functions of the product that have a body.
    pub fn functions(&self) -> Vec<Function> {
        let text = &self.product;
        words(text, "fn").filter_map(|at| function_at(text, at)).collect()
    }
}

fn function_at(text: &str, at: usize) -> Option<Function> {
    let rest = text[at + 2..].trim_start();
    let name: String = rest.chars().take_while(|&letter| is_word(letter)).collect();
    let end = item_end(text, at)?;
    let has_body = text[..end].ends_with('}');
    if name.is_empty() || !has_body {
        return None;
    }
    Some(Function { name, line: line_of(text, at), lines: text[at..end].matches('\n').count() + 1 })
}

/// Line number, from 1, of a byte.
pub fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// True for what an identifier may hold.
pub fn is_word(letter: char) -> bool {
    letter == '_' || letter.is_alphanumeric()
}

/// Positions of `word` where it stands alone: no identifier runs on at an end at which `word` itself is one.
pub fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let open_start = !word.starts_with(is_word);
    let open_end = !word.ends_with(is_word);
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = text[..at].chars().next_back().is_some_and(is_word);
        let after = text[at + word.len()..].chars().next().is_some_and(is_word);
        (open_start || !before) && (open_end || !after)
    })
}

/// The end of the item that starts at `at`: after its `;`, after the brace that closes its first block, or where the
/// block around it ends. `text` must be code without literals and comments.
pub fn item_end(text: &str, at: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (offset, byte) in text.bytes().enumerate().skip(at) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                if depth == 0 {
                    return Some(offset);
                }
                depth -= 1;
                if depth == 0 && byte == b'}' {
                    return Some(offset + 1);
                }
            }
            b';' if depth == 0 => return Some(offset + 1),
            _ => {}
        }
    }
    None
}

/// Position after the bracket that closes the one at `open`. `text` must be code without literals and comments.
pub fn closing(text: &str, open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (offset, byte) in text.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(offset + 1);
        }
    }
    None
}

/// Ranges of items that only tests contain: those behind `cfg(test)` or the test feature, and `#[test]` functions.
fn test_items(code: &str, uncommented: &str) -> Vec<(usize, usize)> {
    let mut ranges = Vec::new();
    if uncommented.trim_start().starts_with("#![cfg(test)]") {
        return vec![(0, code.len())];
    }
    for (start, _) in code.match_indices("#[") {
        let inside = ranges.last().is_some_and(|&(_, end)| start < end);
        let Some(after) = closing(code, start + 1) else { continue };
        let attribute = &uncommented[start..after];
        if inside || !is_test_attribute(attribute) {
            continue;
        }
        let end = item_end(code, after).unwrap_or(code.len());
        ranges.push((start, end));
    }
    ranges
}

/// Features that no product is built with.
const TEST_FEATURES: [&str; 2] = ["\"seeded-bugs\"", "\"ablations\""];

fn is_test_attribute(attribute: &str) -> bool {
    let behind = attribute.starts_with("#[cfg(") && !attribute.contains("not(");
    let names_tests =
        words(attribute, "test").next().is_some() || TEST_FEATURES.iter().any(|feature| attribute.contains(feature));
    attribute == "#[test]" || (behind && names_tests)
}

/// The part of each byte.
fn parts(text: &[u8]) -> Vec<Part> {
    let mut parts = vec![Part::Code; text.len()];
    let mut at = 0;
    while at < text.len() {
        let (part, end) = token(text, at);
        // A literal keeps its quotes, so that what stands around it stays apart.
        let inner = if part == Part::Literal { at + 1..end.saturating_sub(1).max(at + 1) } else { at..end };
        for position in inner {
            if let Some(slot) = parts.get_mut(position) {
                *slot = part;
            }
        }
        at = end.max(at + 1);
    }
    parts
}

/// The comment, literal or single byte of code that starts at `at`, and its end.
fn token(text: &[u8], at: usize) -> (Part, usize) {
    let rest = &text[at..];
    let after_word = at > 0 && is_word(char::from(text[at - 1]));
    if rest.starts_with(b"//") {
        let length = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
        return (Part::Comment, at + length);
    }
    if rest.starts_with(b"/*") {
        return (Part::Comment, at + block_comment(rest));
    }
    if let Some(length) = raw_string(rest).filter(|_| !after_word) {
        return (Part::Literal, at + length);
    }
    match rest[0] {
        b'"' => (Part::Literal, at + quoted(rest, b'"')),
        b'\'' if is_char(rest) => (Part::Literal, at + quoted(rest, b'\'')),
        _ => (Part::Code, at + 1),
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// Length of a raw string that starts here, with its prefix.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let prefix = rest.iter().take(2).take_while(|byte| byte.is_ascii_alphabetic()).count();
    if !rest[..prefix].ends_with(b"r") {
        return None;
    }
    let hashes = rest[prefix..].iter().take_while(|&&byte| byte == b'#').count();
    if rest.get(prefix + hashes) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let body = prefix + hashes + 1;
    let end = rest[body..].windows(close.len()).position(|window| window == close);
    Some(end.map_or(rest.len(), |end| body + end + close.len()))
}

/// Length of a literal from its opening to its closing quote.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// Tells a character literal from a lifetime.
fn is_char(rest: &[u8]) -> bool {
    match rest.get(1) {
        Some(b'\\') => true,
        Some(byte) if byte.is_ascii() => rest.get(2) == Some(&b'\''),
        Some(_) => true,
        None => false,
    }
}

#[cfg(test)]
mod tests;
