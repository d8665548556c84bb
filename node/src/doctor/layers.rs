//! The way from the brick down to its disks.

use super::Finding;
use super::facts::{Block, Facts, Layer, Place, Role};

const NAME: &str = "disk";
/// Names of devices that are memory.
const MEMORY: [&str; 2] = ["zram", "ram"];

/// Tells the way of each part of the brick, and what on it costs.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings: Vec<Finding> = facts.places.iter().map(way).collect();
    findings.extend(facts.blocks().into_iter().filter_map(of_block));
    findings
}

fn way(place: &Place) -> Finding {
    let names: Vec<String> = place.layers.iter().map(name).collect();
    let found = format!("{} on {}", place.holds, names.join(" on "));
    match place.layers.last() {
        Some(Layer::Block(block)) if block.role == Role::Disk => match block.rotational {
            // Nobody believes it: virtual disks and bridges to USB claim what they like.
            Some(true) => Finding::ok(NAME, found + "; the kernel claims that it rotates, which may be wrong"),
            _ => Finding::ok(NAME, found),
        },
        _ if names.is_empty() => Finding::unknown(NAME, format!("{}: not found", place.holds)),
        _ => Finding::unknown(NAME, found + "; the disks below are not known"),
    }
}

fn name(layer: &Layer) -> String {
    match layer {
        Layer::Host(host) => host.kind.clone(),
        Layer::Block(block) => match &block.role {
            Role::Disk | Role::Partition { .. } => block.name.clone(),
            Role::Loop { file, .. } => format!("{} ({})", block.name, file.as_deref().unwrap_or("a file")),
            Role::Made { of } => format!("{} ({of})", block.name),
        },
    }
}

fn of_block(block: &Block) -> Option<Finding> {
    let name = &block.name;
    if let Role::Loop { direct: Some(false), .. } = block.role {
        let found = format!("{name} goes through the page cache");
        let fix = format!("losetup --direct-io=on /dev/{name}");
        let gain = "each block is kept in memory and copied once, not twice; not measured by us";
        return Some(Finding::advice(NAME, found, fix, gain));
    }
    let number = MEMORY.iter().find_map(|prefix| name.strip_prefix(prefix));
    number.filter(|number| number.bytes().all(|byte| byte.is_ascii_digit())).map(|_| {
        let gain = "safety: the brick is gone when the machine stops";
        Finding::warning(NAME, format!("{name} is memory"), "put the brick on a disk", gain)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;
    use crate::doctor::facts::Host;

    fn of(blocks: Vec<Block>) -> Vec<Finding> {
        let host = Layer::Host(Host { kind: "ext4".into(), ..Host::default() });
        let blocks = blocks.into_iter().map(|block| Layer::Block(Box::new(block)));
        let places = vec![Place { holds: "brick", layers: [host].into_iter().chain(blocks).collect() }];
        check(&Facts { places, ..Facts::default() })
    }

    #[test]
    fn the_whole_way_is_told() {
        let looped = Role::Loop { file: Some("/img".into()), direct: Some(true) };
        let disk = Block { name: "sda".into(), rotational: Some(true), ..Block::default() };
        let findings = of(vec![Block { name: "loop0".into(), role: looped, ..Block::default() }, disk]);
        let found = "brick on ext4 on loop0 (/img) on sda; the kernel claims that it rotates, which may be wrong";
        assert_eq!((findings.len(), findings[0].state, findings[0].found.as_str()), (1, State::Ok, found));
    }

    #[test]
    fn what_costs_or_loses_on_it_is_told() {
        let looped = Role::Loop { file: None, direct: Some(false) };
        let findings = of(vec![Block { name: "loop7".into(), role: looped, ..Block::default() }]);
        let states: Vec<State> = findings.iter().map(|finding| finding.state).collect();
        assert_eq!(states, [State::Unknown, State::Advice], "nothing tells what lies below the file");
        let named = |name: &str| of(vec![Block { name: name.into(), ..Block::default() }]).pop().expect("one").state;
        assert_eq!([named("zram0"), named("ram1"), named("ramses0")], [State::Warning, State::Warning, State::Ok]);
    }

    #[test]
    fn what_lies_nowhere_is_unknown() {
        let places = vec![Place { holds: "segments", layers: Vec::new() }];
        assert_eq!(check(&Facts { places, ..Facts::default() })[0].state, State::Unknown);
    }
}
