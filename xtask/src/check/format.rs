//! Bytes on disk and their document change together: the document holds a hash of the code that lays them out.

use crate::tree::Tree;

/// Path of the only room that knows the disk format.
const CODE: &str = "store/src/format/";
/// Path of its document (a file or a directory of this name).
const DOCUMENT: &str = "docs/format";
/// The line that holds the hash.
const LINE: &str = "format-hash: ";

/// Hash of the format's product code; comments, white space and tests don't count. `None` while there is no code.
pub fn format_hash(tree: &Tree) -> Option<String> {
    let files: Vec<_> = tree.product().filter(|(path, _)| path.starts_with(CODE)).collect();
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
    let Some(hash) = format_hash(tree) else { return Vec::new() };
    let line = format!("{LINE}{hash}");
    let documents = tree.files.iter().filter(|(path, _)| path.starts_with(DOCUMENT));
    if documents.into_iter().any(|(_, file)| file.text.lines().any(|text| text.trim() == line)) {
        return Vec::new();
    }
    vec![format!(
        "{DOCUMENT}: the code in {CODE} changed: bring the document up to date, then put in the line `{line}`"
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::tree;

    const CODE_TEXT: &str = "//! Head.\nconst MAGIC: &[u8] = b\"SINTER01\";\n";

    fn hash_of(text: &str) -> Option<String> {
        format_hash(&tree(&[("store/src/format/batch.rs", text)]))
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
