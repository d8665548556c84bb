//! The controllers and the destage against the model of a hybrid brick: scripts, and properties over many seeds.

use super::super::{
    Candidate, Choice, Controller, Destaged, Destination, Held, Mean, Pace, Pins, Sight, State, Thresholds, Tiering,
    run_ns,
};
use super::hybrid::{Hybrid, Shape, Window};
use super::plant::Load;
use super::{MS, load_of};
use crate::format::segment::Stream;
use base::{Life, SegmentId};
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
            "smooth_percent" => (bound, smoothness(windows)),
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

/// The least part, in percent, that a second has of the one before, as long as there was much to have.
fn smoothness(windows: &[Window]) -> u64 {
    let pairs = windows.windows(2).filter(|pair| pair[0].client_blocks >= 500);
    pairs.map(|pair| pair[1].client_blocks * 100 / pair[0].client_blocks).min().unwrap_or(100)
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
scripts! { c2 slow_disk stop burst c3 tail hot warm fits tiny }

/// A brick somewhere between a toy and a small product, with clients that want up to four times what its disk takes.
fn shape(seed: u64) -> Shape {
    let random = &mut SplitMix(seed);
    let grain = 1 << (2 + random.below(4));
    let blocks = grain << (6 + random.below(3));
    let device_ns = 10_000 << random.below(3);
    let segment_ns = u64::from(blocks) * device_ns;
    let segments = [16 + random.below(300) as u32, 16 + random.below(300) as u32];
    let disk_blocks = blocks << random.below(3);
    // Up to nine tenths of what is usable on both tiers.
    let usable =
        |segments: u32, blocks: u32, marks: Thresholds| u64::from(segments - marks.reserve) * u64::from(blocks);
    let usable = usable(segments[0], blocks, Thresholds::tiered(segments[0]))
        + usable(segments[1], disk_blocks, Thresholds::new(segments[1]));
    let all = u64::from(segments[0] * blocks) + u64::from(segments[1] * disk_blocks);
    Shape {
        segments,
        blocks: [blocks, disk_blocks],
        grain,
        fill_percent: (45 + random.below(46)) * usable / all,
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

fn check_progress(seed: u64, brick: &Hybrid, from: usize) {
    let windows = &brick.windows[from..brick.windows.len() - 1];
    let rates: Vec<u64> = windows.iter().map(|one| one.client_blocks).collect();
    let free_min = [0, 1].map(|tier| brick.tiers[tier].free_min);
    let context = format!("seed {seed}: {:?} least free {free_min:?} {rates:?}", brick.shape);
    assert!(rates.iter().all(|&rate| rate > 0), "a second without progress: {context}");
    assert!(free_min.iter().all(|&free| free > 0), "the last segment was opened: {context}");
    let needed = free_min[0] <= brick.tiers[0].controller.thresholds().target;
    let emptied: u64 = windows.iter().map(|one| one.destaged_blocks + one.moved_blocks[0]).sum();
    assert!(emptied > 0 || !needed, "nothing was emptied: {context}");
}

#[test]
fn all_make_progress_without_a_limit_cycle() {
    for seed in 1..=24 {
        let mut brick = Hybrid::new(shape(seed));
        brick.run(Load::Uniform, 240_000 * MS);
        check_progress(seed, &brick, 0);
        let windows = &brick.windows[..brick.windows.len() - 1];
        let last = &windows[windows.len() * 2 / 3..];
        let (mean, fastest) = (mean(last), last.iter().map(|one| one.client_blocks).max().expect("some"));
        assert!(slowest(last) * 2 >= mean, "seed {seed}: a limit cycle: {} of {mean}", slowest(last));
        assert!(fastest <= mean * 3 / 2, "seed {seed}: {fastest} in a second, {mean} in the mean");
    }
}

#[test]
fn changing_loads_and_a_disk_that_comes_and_goes_do_not_stop_clients() {
    for seed in 101..=112 {
        let mut brick = Hybrid::new(shape(seed));
        let random = &mut SplitMix(seed ^ 0xfeed);
        for _ in 0..6 {
            brick.disk_percent = [100, 100, 50, 20][random.below(4) as usize];
            let load = [Load::Uniform, Load::Hot, Load::Zipf][random.below(3) as usize];
            let from = brick.windows.len();
            brick.run(load, 20_000 * MS);
            check_progress(seed, &brick, from);
            brick.run(Load::Idle, random.below(5_000) * MS);
        }
    }
}

#[test]
fn delay_of_a_hybrid_brick_is_monotone_in_free_segments() {
    for seed in 1..=8 {
        let mut brick = Hybrid::new(shape(seed));
        for _ in 0..200 {
            brick.run(Load::Uniform, 20 * MS);
            for tier in [0, 1] {
                let sight = brick.sight(tier);
                let controller = &brick.tiers[tier].controller;
                let delay_ns = |free| controller.clone().step(&Sight { free, ..sight }).client_delay_ns;
                let delays_ns: Vec<u64> = (0..=sight.segments).map(delay_ns).collect();
                assert!(delays_ns.is_sorted_by(|one, two| one >= two), "{delays_ns:?}");
                assert!(*delays_ns.last().expect("some") == 0, "an empty tier slows nobody");
            }
        }
    }
}

const SEGMENTS: u32 = 320;
const BLOCKS: u32 = 16_384;

/// Flash above a disk, with victims for the destage alone, four fifths live.
fn sight_of(free: u32, destaged: Destaged) -> Sight {
    let victim = Some(Mean { live: BLOCKS / 5 * 4, blocks: BLOCKS });
    Sight { free, segments: SEGMENTS, destaged: Some(Destaged { victim, ..destaged }), ..Sight::default() }
}

/// Steps a controller for some seconds, while clients write as fast as they may, 10,000 blocks per second at most, and so many
/// blocks are destaged per second.
fn step_for(controller: &mut Controller, sight: &mut Sight, seconds: u64, destaged: u64) -> Pace {
    let mut pace = controller.step(sight);
    for _ in 0..seconds * 50 {
        sight.now_ns += 20 * MS;
        sight.client_blocks += 20 * MS / pace.client_delay_ns.max(MS / 10);
        let seen = sight.destaged.as_mut().expect("there is a disk");
        seen.busy_ns += 20 * MS;
        seen.blocks += destaged / 50;
        pace = controller.step(sight);
    }
    pace
}

#[test]
fn a_disk_that_does_not_answer_slows_clients_before_flash_is_short() {
    let mut controller = Controller::new(SEGMENTS);
    let Thresholds { target, .. } = Thresholds::tiered(SEGMENTS);
    let mut sight = sight_of(target, Destaged::default());
    let mut delay_ns = step_for(&mut controller, &mut sight, 10, 8_000).client_delay_ns;
    assert!(delay_ns < MS / 10, "destage is fast, and nothing short: {delay_ns}");
    for _ in 0..4 {
        let slower_ns = step_for(&mut controller, &mut sight, 4, 0).client_delay_ns;
        assert!(slower_ns > delay_ns, "{slower_ns} ns after {delay_ns}");
        delay_ns = slower_ns;
    }
    assert!(delay_ns > MS, "{delay_ns}");
    let later_ns = step_for(&mut controller, &mut sight, 10, 8_000).client_delay_ns;
    assert!(later_ns < MS / 10, "forgotten after ten seconds: {later_ns}");
}

#[test]
fn destage_keeps_the_clients_pace_and_goes_all_out_when_flash_is_short() {
    let Thresholds { low, target, high, ahead, .. } = Thresholds::tiered(SEGMENTS);
    let rate = |free| {
        let mut controller = Controller::new(SEGMENTS);
        step_for(&mut controller, &mut sight_of(free, Destaged::default()), 20, 20_000).destage_rate
    };
    // Four blocks go down for five that clients write.
    let at_target = rate(target);
    assert!((7_000..9_000).contains(&at_target), "{at_target}");
    assert!((1..at_target).contains(&rate((target + high) / 2)) && rate(high + 1) == 0);
    assert_eq!(rate(low - 1), u64::MAX);
    let resting = |free| {
        let mut controller = Controller::new(SEGMENTS);
        let sight = sight_of(free, Destaged::default());
        let steps =
            (0..100).map(|second| controller.step(&Sight { now_ns: second * 1_000 * MS, ..sight }).destage_rate);
        steps.last()
    };
    assert_eq!([ahead - 1, ahead].map(resting), [Some(u64::MAX), Some(0)], "while clients rest");
}

/// A segment of which some is left keeps all of its room.
#[test]
fn what_has_joined_goes_down_although_no_more_is_to_follow() {
    let rate = |left_blocks| {
        let mut controller = Controller::new(SEGMENTS);
        let destaged = Some(Destaged { left_blocks, ..Destaged::default() });
        controller.step(&Sight { free: 8, segments: SEGMENTS, destaged, ..Sight::default() }).destage_rate
    };
    assert_eq!((rate(0), rate(1)), (0, u64::MAX));
}

/// The controller looks again before a slice has filled a segment: in the simulation segments are small.
#[test]
fn slices_of_a_disk_are_long_but_no_longer_than_half_a_segment() {
    let longest = |blocks| {
        let mut controller = Controller::of_disk(16);
        let victim = Some(Mean { live: blocks / 2, blocks });
        controller.step(&Sight { free: 1, segments: 16, victim, ..Sight::default() }).slice_blocks
    };
    assert_eq!([65_536, 1_024, 256].map(longest), [1_024, 512, 128]);
}

#[test]
fn flash_keeps_more_free_as_soon_as_there_is_a_disk() {
    let mut controller = Controller::new(SEGMENTS);
    let sight = sight_of(100, Destaged::default());
    for (destaged, marks) in [(None, Thresholds::new(SEGMENTS)), (sight.destaged, Thresholds::tiered(SEGMENTS))] {
        controller.step(&Sight { destaged, ..sight });
        assert_eq!(controller.thresholds(), marks);
    }
    for segments in (8..5_000).chain([100_000, 1_000_000, u32::MAX]) {
        let marks = Thresholds::tiered(segments);
        let Thresholds { reserve, floor, low, target, high, ahead } = marks;
        assert!(0 < floor && floor < low && low < target && target < high && high <= ahead && ahead < segments);
        assert!(reserve < 16 || ahead <= reserve, "{segments}");
        assert!((2..=64).contains(&marks.batch_max()) && marks.batch_max() as u32 <= reserve.max(8) / 4);
    }
}

fn candidate(segment: u32, live: u32, age: u64, stream: Stream) -> Candidate {
    Candidate { segment: SegmentId(segment), live, blocks: 100, age, stream, pinned: 0 }
}

fn tiering(flash_live: u64, disk_live: u64, state: State) -> Tiering {
    let held = |live| Held { segments: SEGMENTS, live, blocks: 32_000 };
    Tiering::new(held(flash_live), held(disk_live), state)
}

#[test]
fn young_survivors_get_a_second_time_on_flash_and_old_ones_go_down() {
    let (stay, down) = (Some(Destination::Stay), Some(Destination::Down));
    let to = |tiering: &Tiering, live, age, stream| tiering.destination(&candidate(1, live, age, stream));
    // Of 294 segments that can be held, three quarters are live: half of a turn of the flash makes a segment old.
    let full = tiering(22_050, 16_000, State::Idle);
    assert_eq!([150, 170].map(|age| to(&full, 10, age, Stream::Bulk)), [stay, down]);
    assert_eq!([150, 170].map(|age| to(&full, 10, age, Stream::Commit)), [stay, down]);
    assert_eq!([30, 45].map(|age| to(&full, 10, age, Stream::Cold)), [stay, down]);
    assert_eq!([75, 76].map(|live| to(&full, live, 9, Stream::Bulk)), [stay, None], "a full one waits until it is old");
    assert_eq!(to(&full, 100, 170, Stream::Bulk), down, "nothing of it needs to be dead");
    // The fuller the flash, the sooner.
    let ages = [18_000, 19_000, 20_000, 22_000, 24_000, 26_000, 32_000].map(|live| {
        let tiering = tiering(live, 16_000, State::Idle);
        (0..1_000).find(|&age| to(&tiering, 10, age, Stream::Bulk) == down)
    });
    assert_eq!(ages[0], None, "less than five eighths: nothing goes down");
    assert!(ages[1..].is_sorted_by(|one, two| one > two || *two == Some(80)) && ages[6] == Some(80), "{ages:?}");
    // A disk that is full, or holds all it may, takes nothing; then all stays that gains anything.
    for shut in [tiering(22_050, 16_000, State::Full), tiering(22_050, 28_800, State::Idle)] {
        assert_eq!([10, 90].map(|live| to(&shut, live, 170, Stream::Cold)), [stay, stay]);
    }
    assert_eq!(to(&tiering(22_050, 28_700, State::Slowing), 10, 170, Stream::Bulk), down);
    // While room is short and nothing else is to be had, all goes down, if it can.
    let pressed = |live, state| tiering(live, 16_000, state).pressed();
    assert_eq!([10, 100].map(|live| to(&pressed(10_000, State::Idle), live, 0, Stream::Bulk)), [down, down]);
    assert_eq!(to(&pressed(22_050, State::Full), 90, 170, Stream::Cold), stay);
}

#[test]
fn each_victim_of_flash_has_one_way() {
    let full = tiering(22_050, 16_000, State::Idle);
    let of = |mut choice: Choice| std::iter::from_fn(move || choice.take()).map(|one| one.0).collect::<Vec<_>>();
    let candidates = [
        candidate(1, 20, 10, Stream::Bulk),
        candidate(2, 90, 10, Stream::Bulk),
        candidate(3, 100, 300, Stream::Bulk),
        candidate(4, 40, 200, Stream::Commit),
        candidate(5, 30, 100, Stream::Cold),
        candidate(6, 0, 1, Stream::Cold),
    ];
    assert_eq!(of(Choice::staying(&candidates, 9, &full)), [6, 1]);
    assert_eq!(of(Choice::destaged(&candidates, 9, &full)), [5, 4, 3], "young to old");
    assert_eq!(of(Choice::destaged(&candidates, 2, &full)), [5, 4], "an old one costs too much of the disk's time");
    let mut choice = Choice::destaged(&candidates, 2, &full);
    assert_eq!((choice.peek(), choice.mean()), (Some((SegmentId(5), 30)), Some(Mean { live: 35, blocks: 100 })));
    assert!(choice.contains(SegmentId(4)) && !choice.contains(SegmentId(3)));
    assert!(choice.take() == Some(SegmentId(5)) && !choice.contains(SegmentId(5)));
}

#[test]
fn pinned_blocks_stay_until_flash_is_full_of_them() {
    let pinned = |live, age, pinned| Candidate { pinned, ..candidate(1, live, age, Stream::Bulk) };
    let (stay, down) = (Some(Destination::Stay), Some(Destination::Down));
    let full = tiering(22_050, 16_000, State::Idle);
    let to = |tiering: &Tiering, one: Candidate| tiering.destination(&one);
    assert_eq!([1, 74, 75].map(|count| to(&full, pinned(90, 170, count))), [down; 3], "the others go down");
    assert_eq!(to(&full, pinned(90, 170, 76)), None, "hardly anything would be gained");
    assert_eq!(to(&full, pinned(70, 170, 70)), stay, "what is left is moved within flash");
    let pressed = full.pressed();
    assert_eq!([75, 76].map(|count| to(&pressed, pinned(90, 0, count))), [down, None], "also while room is short");
    let fuller = |live| to(&full.fuller(), pinned(live, 9, live));
    assert_eq!([87, 88].map(fuller), [stay, None], "rather than letting pins go, fuller ones are moved");
    let last = pressed.unpinned();
    assert!(pressed.pins_hold() && !last.pins_hold());
    assert_eq!([76, 90].map(|count| to(&last, pinned(90, 0, count))), [down, down], "nobody is refused a write");
    let shut = tiering(22_050, 28_800, State::Idle);
    assert_eq!(to(&shut.pressed().unpinned(), pinned(90, 170, 90)), stay, "a full disk takes nothing of it");
    assert!(full.goes_down() && !shut.goes_down());
}

#[test]
fn a_choice_counts_what_is_pinned_as_neither_moved_nor_gained() {
    let full = tiering(22_050, 16_000, State::Idle);
    let candidates = [
        Candidate { pinned: 60, ..candidate(1, 80, 300, Stream::Bulk) },
        candidate(2, 80, 300, Stream::Bulk),
        Candidate { pinned: 90, ..candidate(3, 95, 300, Stream::Bulk) },
        Candidate { pinned: 30, ..candidate(4, 40, 10, Stream::Bulk) },
    ];
    let down = Choice::destaged(&candidates, 9, &full);
    assert_eq!((down.peek(), down.mean()), (Some((SegmentId(1), 20)), Some(Mean { live: 71, blocks: 100 })));
    assert!(down.contains(SegmentId(2)) && !down.contains(SegmentId(3)) && !down.contains(SegmentId(4)));
    let down = Choice::destaged(&candidates, 9, &full.pressed().unpinned());
    assert_eq!(down.mean(), Some(Mean { live: 73, blocks: 100 }));
    assert!((1..5).all(|number| down.contains(SegmentId(number))));
    let stays = Choice::staying(&candidates, 9, &full);
    assert_eq!((stays.peek(), stays.mean()), (Some((SegmentId(4), 40)), Some(Mean { live: 40, blocks: 100 })));
}

#[test]
fn the_choice_is_told_what_is_known_of_pins() {
    let life = |segment: SegmentId| Life(segment.0);
    let mut pins = Pins::default();
    pins.note(SegmentId(1), Life(1), 30);
    pins.note(SegmentId(2), Life(1), 30);
    pins.note(SegmentId(3), Life(3), 0);
    let told = |pins: &mut Pins| {
        let mut candidates = [1, 2, 3, 4].map(|number| candidate(number, 20 * number, 9, Stream::Cold));
        pins.tell(&mut candidates, life);
        candidates.map(|one| one.pinned)
    };
    assert_eq!(told(&mut pins), [20, 0, 0, 0], "no more than live, and of this life alone");
    assert_eq!(pins.blocks(), 30);
    pins.note(SegmentId(4), Life(4), 30);
    pins.follow(0, 100_000 * MS);
    assert_eq!(told(&mut pins), [20, 0, 0, 30]);
    pins.follow(1, 100_000 * MS);
    assert_eq!(told(&mut pins), [0; 4], "a hint has changed");
    pins.note(SegmentId(4), Life(4), 30);
    pins.follow(2, 109_000 * MS);
    assert_eq!(told(&mut pins), [0, 0, 0, 30], "not again so soon");
    pins.follow(2, 110_000 * MS);
    assert_eq!(told(&mut pins), [0; 4]);
}

#[test]
fn the_next_runs_wait_for_the_slower_of_both_tiers() {
    let (second, most) = (1_000 * MS, u64::MAX);
    assert_eq!(run_ns(256, 0, 5), None, "it rests");
    assert_eq!(run_ns(256, most, 0), Some(0));
    assert_eq!(run_ns(256, 256, 0), Some(second));
    assert_eq!(run_ns(256, 256, MS), Some(second), "the flash's pace");
    assert_eq!(run_ns(256, 512, 4 * MS), Some(1_024 * MS), "the disk's delay");
    assert_eq!(run_ns(most, 1, most), Some(most));
}
