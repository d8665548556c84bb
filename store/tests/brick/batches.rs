//! The places of the log's batches in an image of a disk. Tests of the groups use it too.

use runtime::sim::DiskImage;
use store::format::batch::BatchHeader;

/// The file of the first segments.
pub const DATA: &str = "segments-00000";

/// Batches in the log's order: byte offset of its header, the header.
pub fn batches(image: &DiskImage) -> Vec<(u64, BatchHeader)> {
    let blocks = image.length(DATA).expect("the file was made") / 4096;
    let at = |block: u64| {
        let bytes = image.read(DATA, block * 4096, 16 * 4096).expect("the file was made");
        let header = BatchHeader::peek(&bytes).ok()?;
        let whole = &bytes[..usize::from(header.header_blocks) * 4096];
        BatchHeader::check(whole).ok().map(|(header, _)| (block * 4096, header))
    };
    let mut found: Vec<_> = (0..blocks).filter_map(at).collect();
    found.sort_by_key(|(_, header)| header.number);
    found
}
