//! Discards: flash that is not told what is free moves it about when it makes room.

use super::Finding;
use super::facts::{Block, Facts, Host, Layer, Place, Role};

const NAME: &str = "discard";
const SPARE: &str = "leave a tenth of each flash drive unpartitioned, best before its first use";
const GAIN: &str = "steadier writes on a drive that is nearly full; not measured by us";

/// Checks whether what is free is told to the disks, for each part of the brick.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    facts.places.iter().map(|place| of_place(place, facts.trim_timer)).collect()
}

fn of_place(place: &Place, timer: Option<bool>) -> Finding {
    let blocks = place.layers.iter().filter_map(|layer| match layer {
        Layer::Block(block) => Some((&**block, block.discard_bytes_max)),
        Layer::Host(_) => None,
    });
    // Partitions tell nothing of their own.
    let known: Vec<(&Block, u64)> = blocks.filter_map(|(block, most)| Some((block, most?))).collect();
    let Some(&(top, _)) = known.first() else {
        return Finding::unknown(NAME, format!("{}: nothing below tells whether it takes discards", place.holds));
    };
    if let Some((none, _)) = known.iter().find(|(_, most)| *most == 0) {
        let found = format!("{} takes none: what is free is not told to the disk", none.name);
        let fix = match none.role {
            Role::Disk | Role::Partition { .. } => SPARE,
            Role::Loop { .. } => "put the brick on the disk itself instead of into a file",
            Role::Made { .. } => {
                "have it pass them on (dm-crypt: cryptsetup refresh --allow-discards --persistent NAME)"
            }
        };
        return Finding::advice(NAME, found, fix, GAIN);
    }
    let top = &top.name;
    match place.layers.first() {
        Some(Layer::Host(host)) => of_host(host, top, timer),
        _ => Finding::ok(NAME, format!("{top}: taken; the daemon discards what it frees")),
    }
}

/// Room that a file system frees, apart from the brick: segments keep theirs.
fn of_host(host: &Host, top: &str, timer: Option<bool>) -> Finding {
    let point = &host.point;
    let online = host.options.iter().any(|option| option == "discard");
    let weekly = match timer {
        Some(true) => "",
        Some(false) => "; systemctl enable --now fstrim.timer",
        None => "; and a weekly fstrim",
    };
    match (online, timer) {
        // XFS and btrfs have a worker for it.
        (true, _) if host.kind == "ext4" => Finding::advice(
            NAME,
            format!("{point}: at each deletion, within ext4's commits"),
            format!("mount -o remount,nodiscard {point}, and the same in /etc/fstab{weekly}"),
            "no fsync waits for the discards of what the index deletes; not measured by us",
        ),
        (true, _) => Finding::ok(NAME, format!("{point}: at each deletion")),
        (false, Some(true)) => Finding::ok(NAME, format!("{point}: weekly, by fstrim.timer")),
        (false, Some(false)) => Finding::advice(
            NAME,
            format!("{point}: {top} takes discards, but fstrim.timer is off"),
            "systemctl enable --now fstrim.timer",
            GAIN,
        ),
        (false, None) => Finding::unknown(NAME, format!("{point}: {top} takes discards; no systemd tells who trims")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    fn of(host: Option<(&str, &str)>, most: &[Option<u64>], trim_timer: Option<bool>) -> State {
        let block = |&discard_bytes_max: &Option<u64>| {
            Layer::Block(Box::new(Block { name: "sda".into(), discard_bytes_max, ..Block::default() }))
        };
        let host = host.map(|(kind, option)| {
            Layer::Host(Host { kind: kind.into(), options: vec![option.into()], ..Host::default() })
        });
        let layers = host.into_iter().chain(most.iter().map(block)).collect();
        let places = vec![Place { holds: "brick", layers }];
        check(&Facts { places, trim_timer, ..Facts::default() })[0].state
    }

    #[test]
    fn each_layer_must_take_them() {
        assert_eq!(of(None, &[Some(1 << 30), Some(1 << 30)], None), State::Ok);
        assert_eq!(of(None, &[None, Some(1 << 30)], None), State::Ok, "a partition does not say");
        assert_eq!(of(None, &[Some(1 << 30), Some(0)], None), State::Advice);
        assert_eq!(of(None, &[None], None), State::Unknown);
        let made = Block { role: Role::Made { of: "crypt".into() }, discard_bytes_max: Some(0), ..Block::default() };
        let fix = check(&crate::doctor::tests::on(made)).remove(0).fix.expect("there is one");
        assert!(fix.contains("pass them on"), "{fix}");
    }

    #[test]
    fn somebody_trims_the_file_system() {
        let takes = [Some(1 << 30)];
        assert_eq!(of(Some(("ext4", "discard")), &takes, Some(true)), State::Advice);
        assert_eq!(of(Some(("xfs", "discard")), &takes, None), State::Ok);
        assert_eq!(of(Some(("ext4", "rw")), &takes, Some(true)), State::Ok);
        assert_eq!(of(Some(("ext4", "rw")), &takes, Some(false)), State::Advice);
        assert_eq!(of(Some(("ext4", "rw")), &takes, None), State::Unknown);
        assert_eq!(of(Some(("ext4", "rw")), &[Some(0)], Some(true)), State::Advice);
    }
}
