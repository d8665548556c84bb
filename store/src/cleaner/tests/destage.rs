//! The controllers and the destage against the model of a hybrid brick: scripts, and properties over many seeds.

use super::hybrid::{Hybrid, Shape, Window};
use super::plant::Load;
use super::{MS, load_of};
use runtime::random::SplitMix;

/// A script, and where its present phase began.
struct Script {
    name: &'static str,
    brick: Hybrid,
    phase: usize,
}

impl Script {
    fn run(name: &'static str, text: &str) {
        let lines =
            || text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(' ').collect::<Vec<_>>());
        let given =
            |key: &str| lines().find(|words| words[0] == key).map(|words| words[1].parse::<u64>().expect("a number"));
        let number = |key: &str| given(key).unwrap_or_else(|| panic!("{name}: no {key}"));
        let shape = Shape {
            segments: [number("flash_segments") as u32, number("disk_segments") as u32],
            blocks: [number("flash_blocks") as u32, number("disk_blocks") as u32],
            grain: number("grain") as u32,
            fill_percent: number("fill_percent"),
            device_ns: number("device_ns"),
            client_ns: number("client_ns"),
            disk_ns: number("disk_ns"),
            seek_ns: number("seek_ns"),
            flush_ns: number("flush_ns"),
            checkpoint_ms: number("checkpoint_ms"),
            batch_blocks: number("batch_blocks") as usize,
            seed: 1,
        };
        let mut script = Script { name, brick: Hybrid::new(shape), phase: 0 };
        for words in lines() {
            match words[..] {
                ["run", load, seconds] => {
                    script.brick.run(load_of(load), seconds.parse::<u64>().expect("a number") * 1_000 * MS)
                }
                ["phase"] => script.begin_phase(),
                ["disk_percent", percent] => script.brick.disk_percent = percent.parse().expect("a number"),
                ["destage", what] => script.brick.disk_answers = what == "goes",
                ["delete_to", percent] => script.brick.delete_on_flash(percent.parse().expect("a number")),
                ["expect", what, value] => script.expect(what, value),
                [_, _] => {}
                _ => panic!("{name}: {words:?}"),
            }
        }
    }
    fn begin_phase(&mut self) {
        println!("{}: {}", self.name, self.summary());
        self.phase = self.brick.windows.len() - 1;
        self.brick.begin_counts();
    }
    fn windows(&self) -> &[Window] {
        let full = self.brick.windows.len() - 1;
        &self.brick.windows[self.phase..full]
    }
    fn expect(&self, what: &str, value: &str) {
        let (name, brick) = (self.name, &self.brick);
        if what == "state" {
            return assert_eq!(format!("{:?}", brick.tiers[0].pace.state), value, "{name}");
        }
        let bound: u64 = value.parse().expect("a number");
        let windows = self.windows();
        let delay_max_us = windows.iter().map(|one| one.delay_ns).max().expect("a second passed") / 1_000;
        let (least, seen) = match what {
            "mean" => (bound, mean(windows)),
            "window_min" => (bound, slowest(windows)),
            "slowest_percent" => (bound, slowest(windows) * 100 / mean(windows)),
            "free_min" => (bound, brick.tiers[0].free_min.into()),
            "absorbed_percent" => (bound, brick.counts.absorbed_percent()),
            "delay_reached_us" => (bound, delay_max_us),
            "delay_max_us" => (delay_max_us, bound),
            "dirty_delay_max_us" => (brick.counts.dirty_delay_ns / 1_000, bound),
            "copies_percent_max" => (brick.counts.copies_percent(), bound),
            "destaged_max" => (windows.iter().map(|one| one.destaged_blocks).sum(), bound),
            "held_max" => (brick.tiers[0].held, bound),
            _ => panic!("{name}: {what} is not known"),
        };
        assert!(least <= seen, "{name}: {what}: {least} is more than {seen}; {}", self.summary());
    }
    fn summary(&self) -> String {
        let (brick, windows) = (&self.brick, self.windows());
        let sum = |count: fn(&Window) -> u64| windows.iter().map(count).sum::<u64>() / windows.len().max(1) as u64;
        // Each second of a short phase; of a long one, means and slowest seconds of parts.
        let part = |part: &[Window]| (mean(part), slowest(part));
        let rates: Vec<(u64, u64)> = windows.chunks(windows.len() / 60 + 1).map(part).collect();
        format!(
            "mean {} (slowest {}), moved {} on flash, {} to disk, {} on disk; free {} and {} (least {}, {}), \
             {}% and {}% reclaimable, copies {}%, absorbed {}%, delay while dirty {} us, held {:?}, {:?}; {:?}",
            mean(windows),
            slowest(windows),
            sum(|one| one.moved_blocks[0]),
            sum(|one| one.destaged_blocks),
            sum(|one| one.moved_blocks[1]),
            brick.tiers[0].free(),
            brick.tiers[1].free(),
            brick.tiers[0].free_min,
            brick.tiers[1].free_min,
            brick.tiers[0].reclaimable_percent(),
            brick.tiers[1].reclaimable_percent(),
            brick.counts.copies_percent(),
            brick.counts.absorbed_percent(),
            brick.counts.dirty_delay_ns / 1_000,
            [0, 1].map(|tier| brick.tiers[tier].held),
            [0, 1].map(|tier| brick.tiers[tier].pace),
            rates,
        )
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            println!("{}: {}", self.name, self.summary());
        }
    }
}

fn mean(windows: &[Window]) -> u64 {
    windows.iter().map(|one| one.client_blocks).sum::<u64>() / windows.len().max(1) as u64
}

fn slowest(windows: &[Window]) -> u64 {
    windows.iter().map(|one| one.client_blocks).min().unwrap_or(0)
}

macro_rules! scripts {
    ($($name:ident)*) => { $(
        #[test]
        fn $name() {
            Script::run(stringify!($name), include_str!(concat!("../testdata/hybrid/", stringify!($name), ".txt")));
        }
    )* };
}
scripts! { c2 tiny slow_disk stop burst c3 tail hot warm }

/// A brick somewhere between a toy and a small product, with clients that want up to four times what its disk takes.
fn shape(seed: u64) -> Shape {
    let random = &mut SplitMix(seed);
    let grain = 1 << (2 + random.below(4));
    let blocks = grain << (6 + random.below(3));
    let device_ns = 10_000 << random.below(3);
    let segment_ns = u64::from(blocks) * device_ns;
    Shape {
        segments: [16 + random.below(300) as u32, 16 + random.below(300) as u32],
        blocks: [blocks, blocks << random.below(3)],
        grain,
        fill_percent: 40 + random.below(40),
        device_ns,
        client_ns: device_ns * (1 + random.below(8)),
        disk_ns: 20_000 << random.below(2),
        seek_ns: MS * (4 + random.below(8)),
        flush_ns: MS * (5 + random.below(20)),
        // At most as long as the clients take for two segments: a checkpoint slice is short beside 64 MiB.
        checkpoint_ms: (1 + 2 * segment_ns / MS).min(200),
        batch_blocks: (blocks as usize) << random.below(5),
        seed,
    }
}

#[test]
fn all_make_progress_without_a_limit_cycle() {
    for seed in 1..=24 {
        let mut brick = Hybrid::new(shape(seed));
        brick.run(Load::Uniform, 120_000 * MS);
        let windows = &brick.windows[..brick.windows.len() - 1];
        let last = &windows[windows.len() * 2 / 3..];
        let rates: Vec<u64> = windows.iter().map(|one| one.client_blocks).collect();
        println!(
            "{seed} {:?} {:?} {} {} free {} {} least {} {} {rates:?}",
            brick.shape,
            brick.tiers[0].controller.thresholds(),
            mean(last),
            slowest(last),
            brick.tiers[0].free(),
            brick.tiers[1].free(),
            brick.tiers[0].free_min,
            brick.tiers[1].free_min
        );
    }
}
