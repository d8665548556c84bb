use super::SplitMix;
use super::cases::inode;
use crate::apply_inode;
use crate::write::{Edge, WritePlan, evaluate_write};
use base::limits::{BLOCK_BYTES, FILE_BYTES_MAX, IO_BYTES_MAX};
use base::{At, Edit, FileKind, Ino, Inode, Kind, Time};

const BLOCK: u64 = BLOCK_BYTES as u64;

fn plan(size: u64, at: At, length: u32) -> base::Result<WritePlan> {
    let file = Inode { size, ..inode(FileKind::File) };
    evaluate_write(Ino(1), &file, at, length, false, Time(50))
}

fn edges(size: u64, offset: u64, length: u64) -> (Edge, Edge) {
    let plan = plan(size, At::Offset(offset), length as u32).expect("a good write");
    (plan.head, plan.tail)
}

#[test]
fn edges_merge_only_where_old_bytes_stay() {
    use Edge::{Full, Merge, Zeros};
    assert_eq!(edges(0, 0, BLOCK), (Full, Full));
    assert_eq!(edges(0, 0, 1), (Zeros, Zeros));
    assert_eq!(edges(100, 0, 200), (Zeros, Zeros), "the write covers all that the block has");
    assert_eq!(edges(100, 0, 50), (Merge, Merge));
    assert_eq!(edges(100, 100, 50), (Merge, Merge), "appends within the block");
    assert_eq!(edges(BLOCK, BLOCK, 50), (Zeros, Zeros), "appends at a block's start");
    assert_eq!(edges(BLOCK, BLOCK + 7, 50), (Zeros, Zeros));
    assert_eq!(edges(BLOCK + 1, BLOCK + 7, 50), (Merge, Merge));
    assert_eq!(edges(10 * BLOCK, 1, 2 * BLOCK), (Merge, Merge));
    assert_eq!(edges(10 * BLOCK, BLOCK, 2 * BLOCK), (Full, Full));
    assert_eq!(edges(10 * BLOCK, BLOCK, 2 * BLOCK + 1), (Full, Merge));
    assert_eq!(edges(BLOCK, 1, 2 * BLOCK), (Merge, Zeros));
}

/// Byte by byte: a block needs its old content exactly if some byte below the size is not written.
#[test]
fn edges_agree_with_counting_bytes() {
    let mut random = SplitMix(1);
    let near = |random: &mut SplitMix| random.below(4) * BLOCK + random.below(5).saturating_sub(2).min(BLOCK);
    for _ in 0..3000 {
        let (size, offset) = (near(&mut random), near(&mut random));
        let length = 1 + random.below(3) * BLOCK + random.below(4);
        let WritePlan { first_block, last_block, head, tail, new_size, .. } =
            plan(size, At::Offset(offset), length as u32).expect("a good write");
        assert_eq!((first_block, last_block), (offset / BLOCK, (offset + length - 1) / BLOCK));
        assert_eq!(new_size, (offset + length > size).then_some(offset + length));
        for (block, edge) in [(first_block, head), (last_block, tail)] {
            let mut left =
                (block * BLOCK..(block + 1) * BLOCK).filter(|byte| *byte < offset || *byte >= offset + length);
            let wanted = match left.clone().next() {
                None => Edge::Full,
                Some(_) if left.any(|byte| byte < size) => Edge::Merge,
                Some(_) => Edge::Zeros,
            };
            assert_eq!(edge, wanted, "size {size} offset {offset} length {length}");
            assert_eq!(edge.is_partial(), wanted != Edge::Full);
        }
    }
}

#[test]
fn appends_go_to_the_end() {
    let appended = plan(1000, At::End, 10).expect("a good write");
    assert_eq!((appended.offset, appended.length, appended.new_size), (1000, 10, Some(1010)));
    let file = Inode { size: 1000, ..inode(FileKind::File) };
    let after = apply_inode(Some(file), &appended.extend).expect("still there");
    assert_eq!((after.size, after.mtime, after.ctime), (1010, Time(50), Time(50)));
}

#[test]
pub fn extends_by_max_and_ticks() {
    let file = Inode { size: 1000, ctime: Time(80), mtime: Time(70), mode: 0o6755, ..inode(FileKind::File) };
    let plan = evaluate_write(Ino(1), &file, At::Offset(0), 10, true, Time(50)).expect("a good write");
    assert_eq!(plan.new_size, None);
    assert_eq!(plan.extend, Edit::InodeExtend { ino: Ino(1), size: 10, time: Time(81), kill_privileges: true });
    let after = apply_inode(Some(file), &plan.extend).expect("still there");
    assert_eq!((after.size, after.mtime, after.ctime, after.mode), (1000, Time(81), Time(81), 0o755));
}

#[test]
fn refuses_what_is_no_write_of_a_file() {
    let kind = |result: base::Result<WritePlan>| result.expect_err("refused").kind;
    assert_eq!(kind(plan(0, At::Offset(0), 0)), Kind::Invalid);
    assert_eq!(kind(plan(0, At::Offset(0), IO_BYTES_MAX as u32 + 1)), Kind::Invalid);
    assert_eq!(kind(plan(0, At::Offset(FILE_BYTES_MAX), 1)), Kind::TooLarge);
    assert_eq!(kind(plan(0, At::Offset(u64::MAX), 1)), Kind::TooLarge);
    assert_eq!(kind(plan(FILE_BYTES_MAX, At::End, 1)), Kind::TooLarge);
    assert!(plan(0, At::Offset(FILE_BYTES_MAX - 1), 1).is_ok());
    for (refused, wanted) in [(FileKind::Directory, Kind::IsDirectory), (FileKind::Link, Kind::Invalid)] {
        let result = evaluate_write(Ino(1), &inode(refused), At::Offset(0), 1, false, Time(0));
        assert_eq!(kind(result), wanted);
    }
}
