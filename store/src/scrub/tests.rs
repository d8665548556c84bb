//! Findings.

use super::{Bad, Why};
use base::{Ino, Life, Place, SegmentId, VolumeId};

#[test]
fn only_what_follows_in_segment_and_file_is_one_finding() {
    let place = |block| Place { segment: SegmentId(3), block };
    let (volume, ino, why) = (VolumeId(1), Ino(9), Why::Differs);
    let bad = Bad { place: place(5), life: Life(2), blocks: 3, volume, ino, offset: 70, why };
    let next = Bad { place: place(8), offset: 73, ..bad };
    assert!(bad.goes_on_with(&next));
    for apart in [
        Bad { place: place(9), ..next },
        Bad { offset: 74, ..next },
        Bad { place: Place { segment: SegmentId(4), block: 8 }, ..next },
        Bad { life: Life(3), ..next },
        Bad { ino: Ino(10), ..next },
        Bad { why: Why::Unreadable, ..next },
    ] {
        assert!(!bad.goes_on_with(&apart), "{apart:?}");
    }
    for (block, told) in [(4, false), (5, true), (7, true), (8, false)] {
        assert_eq!(bad.covers(&Bad { place: place(block), blocks: 1, ..bad }), told, "{block}");
    }
}
