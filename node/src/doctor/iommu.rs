//! IOMMUs: in strict mode each transfer waits until its translation is forgotten everywhere.

use super::Finding;
use super::facts::Facts;

const NAME: &str = "iommu";
const STRICT: &str = "DMA";
const GAIN: &str = "less CPU time per transfer; not measured by us. A broken or hostile device may then reach the memory of \
                    a transfer for some milliseconds after its end";

/// Checks the mode in which the disks' transfers are translated, or else that of all devices.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let disks: Vec<_> = facts.disks().filter_map(|disk| Some((disk, disk.iommu.as_ref()?))).collect();
    if !disks.is_empty() {
        return disks.into_iter().map(|(disk, (kind, group))| of_disk(&disk.name, kind, group)).collect();
    }
    let strict = facts.iommu.types.iter().any(|kind| kind == STRICT);
    vec![match &facts.iommu.names {
        None => Finding::unknown(NAME, "the kernel does not tell"),
        Some(names) if names.is_empty() => Finding::ok(NAME, "none in use"),
        Some(_) if !strict => Finding::ok(NAME, "strict for no device"),
        Some(_) if facts.places.is_empty() => Finding::advice(
            NAME,
            "strict for some devices",
            "iommu.strict=0 on the kernel's command line, and a restart; with DATA the disk's own is looked at",
            GAIN,
        ),
        // Heads of several NVMe controllers lie below none of them.
        Some(_) => Finding::unknown(NAME, "strict for some devices; whether for the brick's disks is not known"),
    }]
}

fn of_disk(disk: &str, kind: &str, group: &str) -> Finding {
    match kind {
        STRICT => {
            let fix = format!(
                "echo DMA-FQ >/sys/kernel/iommu_groups/{group}/type; for good: iommu.strict=0 on the kernel's command line"
            );
            Finding::advice(NAME, format!("{disk}: strict"), fix, GAIN)
        }
        "DMA-FQ" => Finding::ok(NAME, format!("{disk}: lazy")),
        "identity" => Finding::ok(NAME, format!("{disk}: nothing is translated")),
        other => Finding::unknown(NAME, format!("{disk}: a domain of type {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;
    use crate::doctor::facts::{Block, Iommu};
    use crate::doctor::tests::on;

    #[test]
    fn the_disks_own_group_counts() {
        let of = |kind: &str| {
            let block = Block { name: "nvme0n1".into(), iommu: Some((kind.into(), "14".into())), ..Block::default() };
            let iommu = Iommu { names: Some(vec!["dmar0".into()]), types: vec!["DMA".into()] };
            check(&Facts { iommu, ..on(block) }).remove(0)
        };
        let strict = of("DMA");
        assert!(strict.state == State::Advice && strict.fix.expect("there is one").contains("/14/type"));
        assert_eq!([of("DMA-FQ").state, of("identity").state], [State::Ok; 2]);
        assert_eq!(of("\u{7f}").state, State::Unknown);
    }

    #[test]
    fn without_a_disk_all_groups_count() {
        let of = |names: &[&str], types: &[&str]| {
            let list = |of: &[&str]| of.iter().map(|name| name.to_string()).collect();
            let iommu = Iommu { names: Some(list(names)), types: list(types) };
            check(&Facts { iommu, ..Facts::default() })[0].state
        };
        assert_eq!(of(&[], &[]), State::Ok);
        assert_eq!(of(&["dmar0"], &["DMA-FQ", "identity"]), State::Ok);
        assert_eq!(of(&["dmar0"], &["DMA", "identity"]), State::Advice);
        let iommu = Iommu { names: Some(vec!["dmar0".into()]), types: vec!["DMA".into()] };
        let disk = on(Block { name: "nvme0n1".into(), ..Block::default() });
        assert_eq!(check(&Facts { iommu, ..disk })[0].state, State::Unknown);
    }
}
