//! Tier hints on a small hybrid brick: where the blocks of files lie after much was written.

use crate::rig::{Rig, Shape, name, pattern};
use base::limits::BLOCK_BYTES;
use base::{At, Ino, LeafKey, Op, Reply, SetHow, Sync, TierPolicy};
use runtime::random::SplitMix;
use store::format::devices::Tier;
use store::format::keys;
use store::format::leaf::{Leaf, Slot};
use store::index::Index;

pub const DISK: (Tier, u64) = (Tier::Disk, 120);
pub const SHAPE: Shape =
    Shape { segments: 40, groups: 2, overlay_bytes: 4 << 20, cache_bytes: 4 << 20, further: &[DISK], ..Shape::SMALL };
const PIECE: usize = 16 << 10;
pub const MIB: usize = 1 << 20;
const LARGE: usize = 256 << 10;

async fn hint(rig: &Rig, ino: Ino, value: &str) {
    let (name, value) = (name("user.sinter.tier"), value.as_bytes().into());
    rig.done(Op::SetXattr { ino, name, value, how: SetHow::Any, kill_setgid: false }).await.expect("a good hint");
}

pub async fn made(rig: &Rig, text: &str) -> Ino {
    rig.create(rig.volume.root, text).await.expect("a new file")
}

async fn hinted(rig: &Rig, text: &str, value: &str) -> Ino {
    let ino = made(rig, text).await;
    hint(rig, ino, value).await;
    ino
}

/// The file's mapped blocks, and how many of them lie on the disk, after a checkpoint.
async fn blocks(rig: &Rig, ino: Ino, bytes: usize) -> (u64, u64) {
    rig.checkpoint().await;
    let (mut all, mut below) = (0, 0);
    for number in 0..(bytes / BLOCK_BYTES) as u64 {
        let (key, at) = LeafKey::of(ino, number);
        let row = rig.index.get(&keys::leaf(rig.volume.id, key)).expect("the model index reads");
        let leaf = row.map(|row| Leaf::decode(&row).expect("it is a leaf")).unwrap_or_default();
        if let Some(Slot::Local { place, .. }) = leaf.get(at) {
            all += 1;
            below += u64::from(u64::from(place.segment.0) >= SHAPE.segments);
        }
    }
    (all, below)
}

/// Writes pieces of files in turns, so that each segment has blocks of all of them. Returns what they hold.
pub async fn interleaved(rig: &Rig, files: &[Ino], bytes: usize) -> Vec<Vec<u8>> {
    let all: Vec<_> = files.iter().map(|ino| pattern(ino.0, bytes)).collect();
    for at in (0..bytes).step_by(PIECE) {
        for (ino, content) in files.iter().zip(&all) {
            let piece = &content[at..at + PIECE];
            rig.write(*ino, At::Offset(at as u64), piece, Sync::Ordered).await.expect("there is room");
        }
        rig.runtime.clock.sleep(2_000_000).await;
    }
    all
}

/// Overwrites a file at random, a few pieces at a time.
pub async fn churn(rig: &Rig, ino: Ino, bytes: usize, rounds: u64) {
    let mut random = SplitMix(ino.0);
    for round in 0..rounds {
        let at = random.below((bytes / PIECE) as u64) * PIECE as u64;
        rig.write(ino, At::Offset(at), &pattern(round, PIECE), Sync::Ordered).await.expect("there is room");
        if round % 64 == 0 {
            rig.checkpoint().await;
        }
        rig.runtime.clock.sleep(4_000_000).await;
    }
}

pub async fn assert_content(rig: &Rig, files: &[Ino], all: &[Vec<u8>]) {
    for (ino, content) in files.iter().zip(all) {
        for at in (0..content.len()).step_by(MIB) {
            assert!(rig.read(*ino, at as u64, MIB).await.expect("it is there") == content[at..at + MIB], "{ino:?}");
        }
    }
}

#[test]
pub fn pinned_blocks_stay_on_flash_when_others_go_down() {
    let mut world = SHAPE.world(1);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, SHAPE).await;
        let pinned = hinted(&rig, "pinned", "flash").await;
        let plain = made(&rig, "plain").await;
        let hot = made(&rig, "hot").await;
        let files = [pinned, plain];
        let all = interleaved(&rig, &files, 9 * MIB).await;
        churn(&rig, hot, 8 * MIB, 6000).await;
        let blocks_of = (9 * MIB / BLOCK_BYTES) as u64;
        let lie = [blocks(&rig, pinned, 9 * MIB).await, blocks(&rig, plain, 9 * MIB).await];
        assert!(lie[0] == (blocks_of, 0) && lie[1].0 == blocks_of && lie[1].1 > 1000, "{lie:?}");
        assert_eq!(rig.groups.unpinned_blocks(), 0);
        assert_content(&rig, &files, &all).await;
        // A restart knows the hints.
        let rig = rig.reopen().await;
        churn(&rig, hot, 8 * MIB, 4000).await;
        assert_eq!(blocks(&rig, pinned, 9 * MIB).await, (blocks_of, 0));
        assert_content(&rig, &files, &all).await;
        rig.close().await;
    });
}

#[test]
pub fn what_belongs_on_disk_goes_down_when_its_segments_are_cleaned() {
    let mut world = SHAPE.world(2);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, SHAPE).await;
        let low = hinted(&rig, "low", "disk").await;
        let plain = made(&rig, "plain").await;
        let hot = made(&rig, "hot").await;
        // The hot file dies and leaves segments that are worth cleaning; there is so much room that nothing else goes down.
        let all = interleaved(&rig, &[low, plain, hot], 4 * MIB).await;
        churn(&rig, hot, 4 * MIB, 8000).await;
        let blocks_of = (4 * MIB / BLOCK_BYTES) as u64;
        let lie = [blocks(&rig, low, 4 * MIB).await, blocks(&rig, plain, 4 * MIB).await];
        assert!(lie[0].0 == blocks_of && lie[0].1 > blocks_of / 2 && lie[1] == (blocks_of, 0), "{lie:?}");
        assert_content(&rig, &[low, plain], &all).await;
        rig.close().await;
    });
}

#[test]
pub fn a_hint_that_is_taken_away_pins_nothing_any_more() {
    let mut world = SHAPE.world(2);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, SHAPE).await;
        let pinned = hinted(&rig, "pinned", "flash").await;
        let hot = made(&rig, "hot").await;
        let all = interleaved(&rig, &[pinned], 16 * MIB).await;
        churn(&rig, hot, 8 * MIB, 4000).await;
        assert_eq!(blocks(&rig, pinned, 16 * MIB).await.1, 0);
        rig.done(Op::RemoveXattr { ino: pinned, name: name("user.sinter.tier") }).await.expect("it is there");
        rig.runtime.clock.sleep(10_000_000_000).await;
        churn(&rig, hot, 8 * MIB, 4000).await;
        assert!(blocks(&rig, pinned, 16 * MIB).await.1 > 1000);
        assert_content(&rig, &[pinned], &all).await;
        rig.close().await;
    });
}

#[test]
pub fn flash_full_of_pinned_blocks_lets_them_go_before_it_refuses_a_write() {
    let mut world = SHAPE.world(3);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, SHAPE).await;
        let dir = rig.mkdir(rig.volume.root, "pinned").await.expect("a new directory");
        hint(&rig, dir, "flash").await;
        let mut files = Vec::new();
        for number in 0..4 {
            files.push(rig.create(dir, &format!("{number}")).await.expect("a new file"));
        }
        // Twice what flash holds.
        let all = interleaved(&rig, &files, 20 * MIB).await;
        assert!(rig.groups.unpinned_blocks() > 0, "{:?}", rig.groups.cleaner());
        assert_content(&rig, &files, &all).await;
        rig.close().await;
    });
}

async fn set_policy(rig: &Rig, policy: TierPolicy) {
    let answer = rig.call(Op::VolumePolicy { name: name("main"), policy }, None).await.expect("it is there");
    assert!(matches!(answer.reply, Reply::Volume(volume) if volume.policy == policy));
}

#[test]
pub fn nothing_of_a_volume_that_is_for_flash_only_goes_down() {
    let mut world = SHAPE.world(7);
    let runtime = world.runtime();
    world.block_on(async {
        let mut rig = Rig::new(runtime, SHAPE).await;
        set_policy(&rig, TierPolicy::FlashOnly).await;
        let plain = made(&rig, "plain").await;
        // The operator's word goes before that of the file's owner.
        let low = hinted(&rig, "low", "disk").await;
        let hot = made(&rig, "hot").await;
        let files = [plain, low];
        let all = interleaved(&rig, &files, 6 * MIB).await;
        rig.write(low, At::Offset(8 * MIB as u64), &pattern(3, LARGE), Sync::Data).await.expect("there is room");
        for round in 0..2 {
            churn(&rig, hot, 8 * MIB, 4000).await;
            for ino in [plain, low] {
                let below = blocks(&rig, ino, 8 * MIB + LARGE).await.1;
                assert_eq!(
                    (below, rig.groups.destaged_blocks(), rig.groups.unpinned_blocks()),
                    (0, 0, 0),
                    "{ino:?} {round}"
                );
            }
            // A restart knows it.
            rig = rig.reopen().await;
            assert_eq!(rig.groups.volume(&name("main")).await.expect("it is there").policy, TierPolicy::FlashOnly);
        }
        set_policy(&rig, TierPolicy::WriteBack).await;
        rig.runtime.clock.sleep(10_000_000_000).await;
        churn(&rig, hot, 8 * MIB, 6000).await;
        assert!(blocks(&rig, plain, 6 * MIB).await.1 > 500);
        // What lies on disk is read all the same when the policy changes once more.
        set_policy(&rig, TierPolicy::FlashOnly).await;
        assert_content(&rig, &files, &all).await;
        rig.close().await;
    });
}
