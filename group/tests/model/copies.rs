//! Copies on flash of what is read from a disk again: clients are served from them, and always have what the file has.

use crate::rig::{Rig, SEGMENT_BYTES, Shape, pattern, seeds};
use base::limits::BLOCK_BYTES;
use base::{At, Ino, Sync};
use runtime::random::SplitMix;
use runtime::sim::{Survival, World};
use store::format::devices::Tier;
use store::promote::{Figures, Reason};

const SHAPE: Shape =
    Shape { segments: 64, further: &[(Tier::Disk, 200)], groups: 4, cache_bytes: 8 << 20, ..Shape::SMALL };
const FILE_BYTES: usize = 256 << 10;
const PIECE_BYTES: usize = 64 << 10;
/// More than the flash holds.
const FILES: u64 = 100 * SEGMENT_BYTES / FILE_BYTES as u64;

type Files = Vec<(Ino, Vec<u8>)>;

/// A hybrid brick with more files than its flash holds: those that were written first are on the disk.
async fn filled(runtime: runtime::Runtime) -> (Rig, Files) {
    let rig = Rig::new(runtime, SHAPE).await;
    let mut files = Vec::new();
    for number in 0..FILES {
        let file = rig.create(rig.volume.root, &format!("f{number}")).await.expect("a new file");
        let bytes = pattern(number, FILE_BYTES);
        rig.write(file, At::Offset(0), &bytes, Sync::Ordered).await.expect("there is room");
        files.push((file, bytes));
        if number % 16 == 0 {
            rig.checkpoint().await;
        }
    }
    pause(&rig).await;
    (rig, files)
}

/// Long enough for the cleaner and the copies to come to rest.
async fn pause(rig: &Rig) {
    for _ in 0..20 {
        rig.runtime.clock.sleep(1_000_000_000).await;
        rig.checkpoint().await;
    }
}

fn figures(rig: &Rig) -> Figures {
    rig.groups.store().promotion.figures()
}

fn count(rig: &Rig, reason: Reason) -> u64 {
    rig.groups.store().promotion.counts()[reason as usize].1
}

async fn read(rig: &Rig, (file, expected): &(Ino, Vec<u8>), offset: usize, length: usize) {
    let bytes = rig.read(*file, offset as u64, length).await.expect("it is there");
    assert!(bytes == expected[offset..(offset + length).min(expected.len())], "{file:?}: {length} at {offset}");
}

/// Reads a file in pieces; the blocks that were found in copies and on the disk.
async fn read_all(rig: &Rig, file: &(Ino, Vec<u8>)) -> (u64, u64) {
    let before = figures(rig);
    for offset in (0..FILE_BYTES).step_by(PIECE_BYTES) {
        read(rig, file, offset, PIECE_BYTES).await;
    }
    let now = figures(rig);
    (now.found - before.found, now.missed - before.missed)
}

#[test]
pub fn what_is_read_from_the_disk_again_is_on_flash() {
    let mut world = SHAPE.world(1);
    let runtime = world.runtime();
    world.block_on(async {
        let (rig, files) = filled(runtime).await;
        let mut hot = Vec::new();
        for file in &files {
            let (found, missed) = read_all(&rig, file).await;
            assert_eq!(found, 0, "nothing has a copy");
            if missed == (FILE_BYTES / BLOCK_BYTES) as u64 && hot.len() < 8 {
                hot.push(file);
            }
        }
        assert!(hot.len() == 8, "the oldest files are on the disk");
        for time in 0..4 {
            for file in &hot {
                let (found, missed) = read_all(&rig, file).await;
                let blocks = found + missed;
                assert!(blocks == (FILE_BYTES / BLOCK_BYTES) as u64, "it is on the disk");
                assert!(if time < 2 { found == 0 } else { missed == 0 }, "{found} of {blocks} at time {time}");
            }
            pause(&rig).await;
        }
        assert!(rig.groups.store().copies.segments(0).held > 0);
        assert_eq!(count(&rig, Reason::Bad), 0);
        rig.close().await;
    });
}

/// Overwritten, read and destaged in turns, with flash that is wanted for something else now and then, and crashes.
#[test]
pub fn clients_have_what_the_file_has_whatever_becomes_of_copies() {
    let mut sums = [0; 4];
    for seed in seeds(0..4) {
        let mut world = SHAPE.world(seed);
        let mut rng = SplitMix(seed);
        let runtime = world.runtime();
        let (mut rig, mut files) = world.block_on(filled(runtime));
        for life in 0..3 {
            let lost = life > 0;
            if lost {
                let survival = [Survival::Nothing, Survival::Random, Survival::Everything][rng.below(3) as usize];
                world
                    .block_on(rig.groups.store().log.wait(rig.groups.store().log.last_batch(), Sync::All, None))
                    .expect("a healthy log");
                world.run_for(rng.below(2_000_000));
                world = World::from_image(seed, world.crash_as(survival, &mut rng));
                let runtime = world.runtime();
                rig = world.block_on(rig.after_crash(runtime, 0));
            }
            world.block_on(lead_a_life(&rig, &mut files, &mut rng));
            sums[0] += figures(&rig).found;
            sums[1] += count(&rig, Reason::GaveWay);
            sums[2] += count(&rig, Reason::ReadAgain);
            sums[3] += count(&rig, Reason::Bad);
        }
        world.block_on(rig.close());
    }
    assert!(sums[..3].iter().all(|&sum| sum > 0) && sums[3] == 0, "{sums:?}");
}

async fn lead_a_life(rig: &Rig, files: &mut Files, rng: &mut SplitMix) {
    for round in 0..600 {
        let number = if rng.one_in(3) { rng.below(FILES) } else { rng.below(10) } as usize;
        let blocks = rng.below(FILE_BYTES as u64 / BLOCK_BYTES as u64);
        let offset = blocks as usize * BLOCK_BYTES;
        match rng.below(40) {
            0 => {
                let bytes = pattern(rng.next(), BLOCK_BYTES);
                files[number].1[offset..offset + BLOCK_BYTES].copy_from_slice(&bytes);
                rig.write(files[number].0, At::Offset(offset as u64), &bytes, Sync::Ordered).await.expect("a write");
            }
            // Flash is wanted at once.
            1 if round % 7 == 0 => {
                for number in 0..40 {
                    let number = (FILES - 1 - number) as usize;
                    files[number].1 = pattern(rng.next(), FILE_BYTES);
                    let (file, bytes) = &files[number];
                    rig.write(*file, At::Offset(0), bytes, Sync::Ordered).await.expect("a write");
                }
                rig.checkpoint().await;
            }
            2 => rig.runtime.clock.sleep(rng.below(3_000_000_000)).await,
            3 => rig.checkpoint().await,
            _ => read(rig, &files[number], offset, 1 + rng.below(FILE_BYTES as u64 / 2) as usize).await,
        }
    }
}

/// A crash in the middle of copying, a clean end, and a start: no flash is lost to copies.
#[test]
pub fn segments_of_copies_are_free_after_a_start() {
    for (seed, survival) in [(1, Survival::Nothing), (2, Survival::Random), (3, Survival::Everything)] {
        let mut world = SHAPE.world(seed);
        let runtime = world.runtime();
        let (rig, held) = world.block_on(async {
            let (rig, files) = filled(runtime).await;
            for _ in 0..4 {
                for file in &files[..120] {
                    read_all(&rig, file).await;
                }
                pause(&rig).await;
            }
            let held = rig.groups.store().copies.segments(0).held;
            (rig, held)
        });
        assert!(held > 8, "{held} segments");
        let free = |rig: &Rig| {
            let flash = rig.groups.store().segments_of(store::format::devices::Tier::Flash);
            flash.free_segments + flash.emptied_segments
        };
        let before = free(&rig);
        // Those that streams had open or ready.
        let open = 7;
        let mut after = World::from_image(seed, world.crash_as(survival, &mut SplitMix(seed)));
        let runtime = after.runtime();
        after.block_on(async {
            let rig = rig.after_crash(runtime, 0).await;
            let now = free(&rig);
            assert!(
                now + open >= before + u64::from(held),
                "{before} were free, {held} held copies, {now} are free now"
            );
            let rig = rig.reopen().await;
            assert!(free(&rig) + open >= before + u64::from(held));
            rig.close().await;
        });
    }
}
