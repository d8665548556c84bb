//! Bytes on disk and on the wire change together with their documents: each document holds a hash of the code that lays them out.

use crate::tree::Tree;

/// A format: the only rooms that know its bytes, and their document (a file or a directory of this name).
struct Format {
    code: &'static [&'static str],
    document: &'static str,
}

const FORMATS: [Format; 2] = [
    Format { code: &["store/src/format/"], document: "docs/format" },
    Format { code: &["wire/src/codec/", "wire/src/frame.rs"], document: "docs/wire.md" },
];

/// The line that holds the hash.
const LINE: &str = "format-hash: ";

/// Hashes of the formats' product code, with their documents; comments, white space and tests don't count. Formats without code
/// have none.
pub fn format_hashes(tree: &Tree) -> Vec<(&'static str, String)> {
    FORMATS.iter().filter_map(|format| Some((format.document, hash_of(tree, format.code)?))).collect()
}

fn hash_of(tree: &Tree, code: &[&str]) -> Option<String> {
    let files: Vec<_> = tree.product().filter(|(path, _)| code.iter().any(|code| path.starts_with(code))).collect();
    // FNV-1a, 64 bits (Fowler, Noll, Vo): against accidents, not against malice.
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut add = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    for (path, scan) in &files {
        path.bytes().for_each(&mut add);
        // `product` has literals blanked out, so it only tells which bytes belong to tests.
        let blank_in_product = |at: usize| scan.product.as_bytes()[at] == scan.code.as_bytes()[at];
        let kept = scan.uncommented.bytes().enumerate().filter(|(at, byte)| blank_in_product(*at) && *byte > b' ');
        kept.for_each(|(_, byte)| add(byte));
    }
    (!files.is_empty()).then(|| format!("{hash:016x}"))
}

/// Refuses a document that belongs to other code.
pub fn check(tree: &Tree) -> Vec<String> {
    let outdated = |(document, hash): &(&str, String)| {
        let line = format!("{LINE}{hash}");
        let mut documents = tree.files.iter().filter(|(path, _)| path.starts_with(document));
        !documents.any(|(_, file)| file.text.lines().any(|text| text.trim() == line))
    };
    let problem = |(document, hash): (&str, String)| {
        format!("{document}: its code changed: bring the document up to date, then put in the line `{LINE}{hash}`")
    };
    format_hashes(tree).into_iter().filter(outdated).map(problem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::tree;

    const CODE_TEXT: &str = "//! Head.\nconst MAGIC: &[u8] = b\"SINTER01\";\n";

    fn hash_of(text: &str) -> Option<String> {
        format_hashes(&tree(&[("store/src/format/batch.rs", text)])).pop().map(|(_, hash)| hash)
    }

    #[test]
    fn the_document_must_hold_the_hash() {
        let hash = hash_of(CODE_TEXT).expect("there is code");
        let with =
            |document: &str| check(&tree(&[("store/src/format/batch.rs", CODE_TEXT), ("docs/format.md", document)]));
        assert_eq!(with(&format!("# Format\n\nformat-hash: {hash}\n")), [""; 0]);
        assert_eq!(with("format-hash: 0000000000000000\n").len(), 1);
        assert_eq!(with("").len(), 1);
        assert_eq!(check(&tree(&[])), [""; 0]);
        let wire = ("wire/src/codec/op.rs", CODE_TEXT);
        let [(document, hash)] = &format_hashes(&tree(&[wire]))[..] else { panic!("it has a hash") };
        assert_eq!(check(&tree(&[wire, (document, &format!("{LINE}{hash}"))])), [""; 0]);
        assert_eq!(check(&tree(&[wire, ("docs/format.md", &format!("{LINE}{hash}"))])).len(), 1);
    }

    #[test]
    fn only_code_counts() {
        assert_eq!(hash_of(CODE_TEXT), hash_of(&CODE_TEXT.replace("Head", "Title").replace(" = ", "  =  ")));
        let with_tests = format!("{CODE_TEXT}#[cfg(test)]\nmod tests {{ const X: u8 = 1; }}\n");
        assert_eq!(hash_of(CODE_TEXT), hash_of(&with_tests));
        assert_ne!(hash_of(CODE_TEXT), hash_of(&CODE_TEXT.replace("SINTER01", "SINTER02")));
        assert_ne!(hash_of(CODE_TEXT), hash_of(&CODE_TEXT.replace("MAGIC", "MAGIK")));
    }
}
