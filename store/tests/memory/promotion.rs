//! The memory of the promotion: what the allocator has given stays below the stated cap while its map is full, and a look takes
//! none.

use crate::counting::taken;
use base::limits::SEGMENTS_MAX;
use base::{Place, SegmentId};
use store::promote::{Look, Order, Promotion, Read, Reader, Reason, Sight, Size, Step};

const BLOCKS: u32 = 16_384;
const CAP_BYTES: u64 = 32 << 20;

fn place(number: u32) -> Place {
    Place { segment: SegmentId(1000 + number / 60_000), block: (number % 60_000) as u16 }
}

/// Copies single blocks, each in a group of its own, until the map has replaced segments. Returns the number of the last.
fn fill(promotion: &Promotion, bytes_before: i64) -> u32 {
    let mut order = Order::new(BLOCKS);
    let (mut number, mut once, mut free, mut drops) = (0, 0, 0..1000, 0);
    while drops < 20 {
        let sight =
            Sight { free: free.len() as u32, queued: 1, map_is_short: promotion.map_is_short(), ..Sight::default() };
        match order.step(&sight) {
            Step::Take => order.took(SegmentId(free.next().expect("enough are free"))),
            Step::Write(room) => {
                for _ in 0..room.min(256) {
                    number += 16;
                    let read = Read { place: place(number), count: 1, reader: Reader::Client, at_ns: 1 };
                    // Once in thousands of times another name looks the same; then it is copied at once.
                    once += u32::from(promotion.look(read) == Look::Disk);
                    let Look::Admitted(offer) = promotion.look(read) else { panic!("it was read again") };
                    let (_, mut wanted) = offer.runs().next().expect("one block");
                    assert!(promotion.enter(wanted.split(1, order.fill(1)), Reason::ReadAgain, 1));
                }
            }
            Step::CopyAnew(..) => order.copied_anew(),
            Step::Drop(segment, cause) => {
                let entries = promotion.figures().entries;
                let bytes = taken().0 - bytes_before;
                assert!(bytes as u64 <= CAP_BYTES, "{bytes} bytes are taken");
                let per_entry = CAP_BYTES / entries;
                assert!(per_entry <= 30, "{per_entry} bytes for each of {entries} copies");
                promotion.drop_segment(segment, cause, 1);
                order.dropped(segment);
                drops += 1;
            }
            other => panic!("{other:?} while blocks are queued"),
        }
    }
    assert!(once > number / 16 / 1000 * 999, "{once} of {} blocks were new", number / 16);
    number
}

#[test]
fn its_memory_stays_below_its_cap_and_a_look_takes_none() {
    let before = taken().0;
    let promotion = Promotion::new(Size { bytes: CAP_BYTES, segments: SEGMENTS_MAX, blocks: BLOCKS });
    let last = fill(&promotion, before);
    let full = taken();
    for number in (16..=last).step_by(16) {
        let read = Read { place: place(number), count: 1, reader: Reader::Client, at_ns: 1 };
        let look = promotion.look(read);
        assert!(number < last - 100_000 || matches!(look, Look::Copied(_)), "{number} of {last} was copied lately");
    }
    assert_eq!(taken(), full, "looks take no memory");
}
