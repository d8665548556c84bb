//! Block sizes and alignment: a block of 4 KiB that touches two of the device's makes it read before it writes.

use super::Finding;
use super::facts::{Block, Facts, Role};
use crate::table::bytes;
use base::limits::BLOCK_BYTES;

const NAME: &str = "block size";
const OURS: u64 = BLOCK_BYTES as u64;

/// Checks the blocks of each device, and where they begin.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let blocks = facts.blocks();
    // The coarsest below a partition decides where it may begin.
    let unit = blocks.iter().filter_map(|block| block.physical_bytes).max().unwrap_or(OURS).max(OURS);
    blocks.into_iter().filter_map(|block| of_block(block, unit)).collect()
}

/// A finding for each disk, and for what lies above one if it is not as it should be.
fn of_block(block: &Block, unit: u64) -> Option<Finding> {
    let name = &block.name;
    let misaligned = |found: String| {
        let fix = "make it anew, beginning at a multiple of 1 MiB (parted -a optimal); that loses its data";
        Finding::warning(NAME, found, fix, "fewer reads before writes in the device; not measured by us")
    };
    if let Role::Partition { start_bytes } = block.role {
        return match start_bytes {
            Some(start) if start % unit != 0 => {
                Some(misaligned(format!("{name} begins at byte {start}, no multiple of {}", bytes(unit))))
            }
            _ => None,
        };
    }
    if let Some(logical) = block.logical_bytes.filter(|logical| *logical > OURS) {
        return Some(Finding::warning(
            NAME,
            format!("{name}: sectors of {}, more than a block of a brick", bytes(logical)),
            "use another device, or format it with sectors of 4096 bytes (nvme format --lbaf)",
            "it works: a brick's device with such sectors is refused",
        ));
    }
    if let Some(off) = block.misaligned_bytes.filter(|off| *off != 0) {
        return Some(misaligned(format!("{name}: its blocks are {} out of step with those below", bytes(off))));
    }
    if block.role != Role::Disk {
        return None;
    }
    Some(match (block.logical_bytes, block.physical_bytes) {
        (Some(logical), Some(physical)) => {
            Finding::ok(NAME, format!("{name}: {} logical, {} physical, aligned", bytes(logical), bytes(physical)))
        }
        _ => Finding::unknown(NAME, format!("{name}: the kernel does not tell")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;
    use crate::doctor::facts::{Layer, Place};

    fn of(blocks: Vec<Block>) -> Vec<State> {
        let named = |(at, block): (usize, Block)| Layer::Block(Box::new(Block { name: format!("b{at}"), ..block }));
        let layers = blocks.into_iter().enumerate().map(named).collect();
        let facts = Facts { places: vec![Place { holds: "brick", layers }], ..Facts::default() };
        check(&facts).into_iter().map(|finding| finding.state).collect()
    }
    fn disk(logical: u64, physical: u64) -> Block {
        Block { logical_bytes: Some(logical), physical_bytes: Some(physical), ..Block::default() }
    }
    fn partition(start: u64) -> Block {
        Block { role: Role::Partition { start_bytes: Some(start) }, ..Block::default() }
    }

    #[test]
    fn partitions_begin_at_blocks_of_the_disk() {
        assert_eq!(of(vec![partition(1 << 20), disk(512, 4096)]), [State::Ok]);
        assert_eq!(of(vec![partition(63 * 512), disk(512, 512)]), [State::Warning, State::Ok]);
        assert_eq!(of(vec![partition(4096), disk(512, 16384)]), [State::Warning, State::Ok]);
    }

    #[test]
    fn sectors_are_no_larger_than_blocks() {
        assert_eq!(of(vec![disk(4096, 4096)]), [State::Ok]);
        assert_eq!(of(vec![disk(16384, 16384)]), [State::Warning]);
        assert_eq!(of(vec![Block { misaligned_bytes: Some(512), ..disk(512, 4096) }]), [State::Warning]);
        assert_eq!(of(vec![Block::default()]), [State::Unknown]);
    }
}
