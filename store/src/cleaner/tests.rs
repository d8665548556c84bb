//! The core against the model of a brick: scripts, and properties over many seeds.

mod batch;
mod destage;
mod hybrid;
mod plant;

use super::{Candidate, Choice, Controller, Mean, Sight, State, Thresholds};
use crate::format::segment::Stream;
use base::SegmentId;
use plant::{Load, Plant, Shape, Window};
use runtime::random::SplitMix;

const MS: u64 = 1_000_000;

fn mean(live: u32, blocks: u32) -> Mean {
    Mean { live, blocks }
}

/// The options of a script beside a mere run.
struct Script {
    name: &'static str,
    plant: Plant,
    delay_max_ns: u64,
}

impl Script {
    fn run(name: &'static str, text: &str) -> Script {
        let lines =
            || text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(' ').collect::<Vec<_>>());
        let given =
            |key: &str| lines().find(|words| words[0] == key).map(|words| words[1].parse::<u64>().expect("a number"));
        let number = |key: &str| given(key).unwrap_or_else(|| panic!("{name}: no {key}"));
        let shape = Shape {
            segments: number("segments") as u32,
            blocks: number("blocks") as u32,
            fill_percent: number("fill_percent"),
            device_ns: number("device_ns"),
            client_ns: number("client_ns"),
            checkpoint_ms: number("checkpoint_ms"),
            slice_ns: given("slice_us").unwrap_or(0) * 1_000,
            checkpoint_every_ms: 5_000,
            seed: 1,
        };
        let mut script = Script { name, plant: Plant::new(shape), delay_max_ns: 0 };
        for words in lines() {
            match words[..] {
                ["run", load, ms] => script.phase(load_of(load), ms.parse().expect("a number")),
                ["delete"] => script.plant.delete_all(),
                ["expect", what, value] => script.expect(what, value),
                [_, _] => {}
                _ => panic!("{name}: {words:?}"),
            }
        }
        script.report();
        script
    }
    fn phase(&mut self, load: Load, ms: u64) {
        self.delay_max_ns = 0;
        for _ in 0..ms {
            self.plant.run(load, MS);
            self.delay_max_ns = self.delay_max_ns.max(self.plant.pace.client_delay_ns);
        }
    }
    fn expect(&self, what: &str, value: &str) {
        let (name, plant) = (self.name, &self.plant);
        if what == "state" {
            return assert_eq!(format!("{:?}", plant.pace.state), value, "{name}");
        }
        let bound: u64 = value.parse().expect("a number");
        let windows = full_seconds(plant);
        let (least, seen) = match what {
            "free_min" => (bound, plant.free_min.into()),
            "free_at_end" => (bound, plant.free().into()),
            "window_min" => (bound, windows.iter().map(|one| one.client_blocks).min().expect("a second passed")),
            "slowest_percent" => (bound, least_of_mean(windows)),
            "steady_percent" => (bound, steadiness(windows)),
            "moved_max" => (plant.moved_blocks, bound),
            "delay_max_us" => (self.delay_max_ns, bound * 1_000),
            "amplification_percent_of_model" => {
                let (seen, model) = amplification(plant);
                ((seen * 100.0) as u64, (model * bound as f64) as u64)
            }
            _ => panic!("{name}: {what} is not known"),
        };
        assert!(least <= seen, "{name}: {what}: {least} is more than {seen}; {}", self.summary());
    }
    fn summary(&self) -> String {
        let (plant, windows) = (&self.plant, full_seconds(&self.plant));
        let rates: Vec<u64> = windows.iter().map(|one| one.client_blocks).collect();
        let (seen, model) = amplification(plant);
        format!(
            "free {} (least {}), amplification {seen:.2} (model {model:.2}), slowest {}%, steady {}%, held {}, checkpoints {}, \
             delay {} us, {:?}, blocks per second {rates:?}",
            plant.free(),
            plant.free_min,
            least_of_mean(windows),
            steadiness(windows),
            plant.held,
            plant.checkpoints,
            plant.pace.client_delay_ns / 1_000,
            plant.pace.state,
        )
    }
    fn report(&self) {
        println!("{}: {}", self.name, self.summary());
    }
}

fn load_of(word: &str) -> Load {
    match word {
        "idle" => Load::Idle,
        "uniform" => Load::Uniform,
        "hot" => Load::Hot,
        "zipf" | "warm" => Load::Zipf,
        "append" => Load::Append,
        _ => panic!("{word} is no load"),
    }
}

fn full_seconds(plant: &Plant) -> &[Window] {
    plant.windows.split_last().expect("there is always one").1
}

/// The least of a second's client blocks, in percent of the mean.
fn least_of_mean(windows: &[Window]) -> u64 {
    let sum: u64 = windows.iter().map(|one| one.client_blocks).sum();
    let least = windows.iter().map(|one| one.client_blocks).min().unwrap_or(0);
    (least * 100 * windows.len() as u64).checked_div(sum).unwrap_or(0)
}

/// The same, of the last third.
fn steadiness(windows: &[Window]) -> u64 {
    least_of_mean(&windows[windows.len() * 2 / 3..])
}

/// Blocks written per client block in the second half, and what a model says that cleans the oldest first, under
/// uniform writes: 1 / (1 - u), where (1 - u) / -ln u is the live part of all segments that hold data.
fn amplification(plant: &Plant) -> (f64, f64) {
    let windows = full_seconds(plant);
    let last = &windows[windows.len() / 2..];
    let clients: u64 = last.iter().map(|one| one.client_blocks).sum();
    let moved: u64 = last.iter().map(|one| one.moved_blocks).sum();
    let reclaimable = last.iter().map(|one| f64::from(one.reclaimable)).sum::<f64>() / last.len().max(1) as f64;
    // Two segments are open, half used each.
    let live = plant.logical_blocks() as f64 / plant.blocks_of(1) as f64 / (plant.segments() - reclaimable - 1.0);
    let (mut low, mut high) = (1e-9, 1.0 - 1e-9);
    for _ in 0..60 {
        let middle: f64 = (low + high) / 2.0;
        if (1.0 - middle) / -middle.ln() < live { low = middle } else { high = middle }
    }
    ((clients + moved) as f64 / clients.max(1) as f64, 1.0 / (1.0 - low))
}

macro_rules! scripts {
    ($($name:ident)*) => { $(
        #[test]
        fn $name() {
            Script::run(stringify!($name), include_str!(concat!("testdata/", stringify!($name), ".txt")));
        }
    )* };
}
scripts! { real real_zipf uniform paced burst nearly_full all_live all_dead hot zipf tiny whole large late rest }

/// A brick somewhere between a toy and a small product, with clients that want about what its device gives.
fn shape(seed: u64) -> Shape {
    let random = &mut SplitMix(seed);
    let device_ns = 10_000 << random.below(4);
    let blocks = 512 << random.below(3);
    Shape {
        segments: 24 + random.below(200) as u32,
        blocks,
        fill_percent: 20 + random.below(76),
        device_ns,
        client_ns: device_ns * (8 + random.below(32)) / 8,
        // At most as long as the clients take for two segments: a checkpoint slice is short beside 64 MiB.
        checkpoint_ms: (1 + random.below(2 * u64::from(blocks) * device_ns) / MS).min(200),
        slice_ns: 0,
        checkpoint_every_ms: 5_000,
        seed,
    }
}

fn check_progress(seed: u64, plant: &Plant, steady: bool) {
    let windows = full_seconds(plant);
    let rates: Vec<u64> = windows.iter().map(|one| one.client_blocks).collect();
    let thresholds = plant.controller.thresholds();
    let context = format!("seed {seed}: {:?} {thresholds:?} free least {} {rates:?}", shape(seed), plant.free_min);
    println!("{context}, steady {}%", steadiness(windows));
    assert!(rates.iter().all(|&rate| rate > 0), "a second without progress: {context}");
    assert!(plant.free_min > 0, "the last segment was opened: {context}");
    let needed = plant.free_min <= thresholds.target;
    assert!(plant.moved_blocks > 0 || !needed, "the cleaner starved: {context}");
    assert!(!steady || steadiness(windows) >= 50, "a limit cycle: {context}");
}

#[test]
fn both_sides_make_progress_without_a_limit_cycle() {
    for seed in 1..=24 {
        let mut plant = Plant::new(shape(seed));
        plant.run(Load::Uniform, 24_000 * MS);
        check_progress(seed, &plant, true);
    }
}

#[test]
fn changing_loads_do_not_stop_clients() {
    for seed in 101..=116 {
        let mut plant = Plant::new(shape(seed));
        let random = &mut SplitMix(seed ^ 0xfeed);
        for _ in 0..8 {
            let load = [Load::Uniform, Load::Hot, Load::Zipf][random.below(3) as usize];
            plant.run(load, 3_000 * MS);
        }
        check_progress(seed, &plant, false);
    }
}

#[test]
fn delay_is_monotone_in_free_segments() {
    for seed in 1..=8 {
        let mut plant = Plant::new(Shape { fill_percent: 90, ..shape(seed) });
        for _ in 0..200 {
            plant.run(Load::Uniform, 20 * MS);
            let sight = plant.sight();
            let delay_ns = |free| plant.controller.clone().step(&Sight { free, ..sight }).client_delay_ns;
            let delays_ns: Vec<u64> = (0..=sight.segments).map(delay_ns).collect();
            assert!(delays_ns.is_sorted_by(|one, two| one >= two), "{delays_ns:?}");
            assert!(*delays_ns.last().expect("some") == 0, "an empty brick slows nobody");
        }
    }
}

/// The pace to which clients are throttled must not set the pace of the cleaner that they wait for, nor must the time
/// that small slices take.
#[test]
fn held_clients_and_small_slices_do_not_slow_each_other_down() {
    let mut controller = Controller::new(512);
    // As many as the controller has told, once cleaning has begun; before that, 26,000 in a second.
    let (mut client_blocks, mut moved_blocks, mut delay_ns) = (0, 0, 0);
    let victim = Some(mean(12_000, 16_384));
    let mut last = None;
    for step in 1..=1_000 {
        let now_ns = step * 20 * MS;
        client_blocks += 20 * MS / delay_ns.max(38_000);
        moved_blocks += if step > 500 { 4 } else { 0 };
        let free = if step > 500 { 20 } else { 100 };
        let sight = Sight { now_ns, free, segments: 512, client_blocks, moved_blocks, victim, ..Sight::default() };
        let pace = controller.step(&sight);
        delay_ns = pace.client_delay_ns;
        last = Some(pace);
    }
    let slice_blocks = last.expect("it was stepped").slice_blocks;
    assert!(slice_blocks >= 100 && delay_ns < MS / 2, "{slice_blocks} blocks, {delay_ns} ns");
}

/// A host that takes both cores for a while makes moves look slow; slices that follow from this must not keep it so.
#[test]
fn slow_moves_are_forgotten_when_they_are_fast_again() {
    let mut controller = Controller::new(512);
    let mut sight = Sight { free: 14, segments: 512, victim: Some(mean(12_000, 16_384)), ..Sight::default() };
    let mut pace = controller.step(&sight);
    let mut run = |until_ns: u64, move_ns: u64| {
        while sight.now_ns < until_ns {
            let passed_ns = u64::from(pace.slice_blocks) * move_ns + pace.pause_ns;
            sight.now_ns += passed_ns;
            sight.moved_blocks += u64::from(pace.slice_blocks);
            sight.client_blocks += passed_ns / pace.client_delay_ns.max(40_000);
            pace = controller.step(&sight);
        }
        pace
    };
    let slow = run(20_000 * MS, 3 * MS);
    assert!(slow.client_delay_ns > MS, "{slow:?}");
    let fast = run(30_000 * MS, 20_000);
    assert!(fast.client_delay_ns < MS / 4 && fast.slice_blocks > 100, "{fast:?}");
}

/// The same while clients rest, whatever speed was measured last.
#[test]
fn slow_moves_are_forgotten_while_clients_rest() {
    for slow_ns in (0..50).map(|step| MS / 5 + step * MS / 97) {
        let mut controller = Controller::new(96);
        let mut sight = Sight { free: 7, segments: 96, victim: Some(mean(11_000, 16_384)), ..Sight::default() };
        let mut pace = controller.step(&sight);
        let mut run = |until_ns: u64, move_ns: u64| {
            while sight.now_ns < until_ns {
                sight.now_ns += u64::from(pace.slice_blocks) * move_ns + pace.pause_ns;
                sight.moved_blocks += u64::from(pace.slice_blocks);
                pace = controller.step(&sight);
            }
            sight.moved_blocks
        };
        let slow = run(20_000 * MS, slow_ns);
        let learned = run(23_000 * MS, 20_000);
        let fast = run(24_000 * MS, 20_000) - learned;
        assert!(slow > 0 && fast > 20_000, "{fast} blocks in a second after moves of {slow_ns} ns");
    }
}

/// Full victims are left for later while clients rest: blocks moved now would be moved again.
#[test]
fn the_fuller_the_victim_the_less_is_cleaned_ahead() {
    let Thresholds { target, high, ahead, .. } = Thresholds::new(16_000);
    for (live, goal) in [(4_000, ahead), (8_000, ahead), (9_000, high), (12_000, high), (13_000, target)] {
        for (free, cleans) in [(goal - 1, true), (goal, false)] {
            let mut controller = Controller::new(16_000);
            let sight = Sight { free, segments: 16_000, victim: Some(mean(live, 16_384)), ..Sight::default() };
            let last = (0..100).map(|second| controller.step(&Sight { now_ns: second * 1_000 * MS, ..sight })).last();
            let pace = last.expect("it was stepped");
            assert_eq!(pace.slice_blocks > 0, cleans, "{live} live, {free} free: {pace:?}");
        }
    }
}

/// A host without room hides segments, down to none.
#[test]
fn a_brick_of_few_segments_or_none_is_stepped_too() {
    for segments in 0..64 {
        let mut controller = Controller::new(segments);
        for (step, free) in (0..=segments).rev().enumerate() {
            let now_ns = (step as u64 + 1) * MS;
            let victim = (free < segments).then_some(mean(100, 1_000));
            let sight = Sight { now_ns, free, segments, victim, ..Sight::default() };
            let delay_ns = controller.step(&sight).client_delay_ns;
            assert!(delay_ns <= 50 * MS, "{segments} segments, {free} free: {delay_ns}");
        }
    }
}

#[test]
fn marks_lie_in_order_within_the_reserve() {
    for segments in (8..5_000).chain([100_000, 1_000_000, u32::MAX]) {
        let Thresholds { reserve, floor, low, target, high, ahead } = Thresholds::new(segments);
        assert!(0 < floor && floor < low && low < target && target < high && high <= ahead, "{segments}");
        assert!(ahead < segments && (reserve < 12 || ahead <= reserve), "{segments}");
        assert!(reserve < 16 || high <= reserve * 5 / 8, "{segments}: most dead space would be left for victims");
    }
    let victims_max = |segments| Thresholds::new(segments).victims_max();
    assert_eq!([12, 64, 300, 512, 100_000].map(victims_max), [4, 5, 10, 16, 16]);
    let marks = |reserve, floor, low, target, high, ahead| Thresholds { reserve, floor, low, target, high, ahead };
    assert_eq!(Thresholds::new(12), marks(6, 2, 4, 5, 6, 6));
    assert_eq!(Thresholds::new(160), marks(16, 4, 6, 8, 10, 12));
    assert_eq!(Thresholds::new(16_000), marks(1_600, 4, 68, 132, 196, 804));
}

fn candidate(segment: u32, live: u32, age: u64) -> Candidate {
    Candidate { segment: SegmentId(segment), live, blocks: 100, age, stream: Stream::Bulk, pinned: 0 }
}

fn taken(mut choice: Choice) -> Vec<u32> {
    std::iter::from_fn(|| choice.take()).map(|segment| segment.0).collect()
}

fn chosen(candidates: &[Candidate], max: usize) -> Vec<u32> {
    taken(Choice::new(candidates, max))
}

/// The cleaner moves nothing while it waits for a checkpoint that frees the segments it has emptied, and its state
/// tells clients so.
#[test]
fn who_waits_for_checkpoints_moves_less_in_the_same_time() {
    let delay_ns = |emptied| {
        let mut controller = Controller::new(512);
        let mut sight = Sight { free: 1, segments: 512, victim: Some(mean(12_000, 16_384)), ..Sight::default() };
        let mut pace = controller.step(&sight);
        for step in 1..100 {
            let emptied = if step < 90 { emptied } else { 0 };
            (sight.now_ns, sight.client_blocks, sight.emptied) = (step * 10 * MS, 100 * step, emptied);
            pace = controller.step(&sight);
        }
        pace.client_delay_ns
    };
    let (without, with) = (delay_ns(0), delay_ns(1));
    assert!(with > without * 5 / 4, "{with} ns, {without} ns without");
}

#[test]
fn victims_are_chosen_by_cost_and_benefit() {
    // Of those chosen the dead ones come first, the others by age.
    assert_eq!(chosen(&[candidate(1, 50, 9), candidate(2, 10, 5), candidate(3, 0, 99)], 9), [3, 2, 1]);
    let full = candidate(1, 100, 1_000);
    assert_eq!(chosen(&[full], 9), [0; 0]);
    // Of 16,384 blocks header and summary take 192, and it takes 256 more to tell where the others went.
    let segment =
        |live| Candidate { segment: SegmentId(1), live, blocks: 16_384, age: 9, stream: Stream::Bulk, pinned: 0 };
    assert_eq!(chosen(&[segment(16_384 - 192)], 9), [0; 0], "all that it can hold lives: moving it makes no room");
    assert_eq!(chosen(&[segment(16_384 - 192 - 512)], 9), [1]);
    let (dead, young, old) = (candidate(2, 0, 0), candidate(3, 40, 10), candidate(4, 70, 100));
    assert_eq!(chosen(&[full, old, young, dead], 9), [2, 3, 4], "the dead first, then young to old");
    assert_eq!(chosen(&[full, old, young, dead], 2), [2, 4], "an old one frees its space for longer");
    assert_eq!(chosen(&[full, old, young, dead], 1), [2]);
    assert_eq!(chosen(&[old, young], 0), [0; 0]);
    assert_eq!(chosen(&[candidate(8, 50, 5), candidate(7, 50, 5), candidate(6, 50, 5)], 2), [6, 7]);
    assert_eq!(chosen(&[candidate(1, 60, 0), candidate(2, 50, 0)], 1), [2], "the youngest compare by what lives");
}

#[test]
fn what_cheap_victims_gain_is_kept_for_the_dear_ones_behind_them() {
    assert_eq!((Choice::default().mean(), Choice::default().surplus_blocks()), (None, 0));
    let victims = [candidate(1, 0, 1), candidate(2, 20, 2), candidate(3, 20, 3), candidate(4, 80, 4)];
    let mut choice = Choice::new(&victims, 9);
    assert_eq!(choice.mean(), Some(mean(40, 100)), "what is dead costs nothing");
    let mut surpluses = Vec::new();
    while let Some(segment) = choice.take() {
        choice.note_emptied(segment);
        surpluses.push(choice.surplus_blocks());
    }
    // 180 blocks are gained for 120 moves: 30 for each 20.
    assert_eq!(surpluses, [0, 50, 100, 0]);
    let mut nearly_dead = Choice::new(&[candidate(1, 1, 1), candidate(2, 99, 2)], 9);
    assert_eq!(nearly_dead.mean(), Some(mean(1, 100)), "one that is full is no victim");
    nearly_dead = Choice::new(&[candidate(1, 1, 1), candidate(2, 79, 2)], 9);
    nearly_dead.take();
    nearly_dead.note_emptied(SegmentId(1));
    assert_eq!(nearly_dead.surplus_blocks(), 99 - 120 / 80);
    let mut dead = Choice::new(&victims[..1], 9);
    assert_eq!((dead.mean(), dead.take(), dead.is_empty()), (Some(mean(0, 100)), Some(SegmentId(1)), true));
    // One that is left as it is gains nothing, and those that are dearer than the rest have no surplus.
    let mut dear_first = Choice::new(&[candidate(1, 90, 1), candidate(2, 10, 2), candidate(3, 10, 3)], 9);
    dear_first.take();
    dear_first.note_emptied(SegmentId(1));
    assert_eq!(dear_first.surplus_blocks(), 0);
    dear_first.take();
    dear_first.take();
    dear_first.note_emptied(SegmentId(3));
    assert_eq!(dear_first.surplus_blocks(), 0, "190 for 110 moves, of which 100 have gained 100");
}

#[test]
fn victims_are_those_of_a_full_sort() {
    let random = &mut SplitMix(5);
    for _ in 0..200 {
        let count = 1 + random.below(60) as u32;
        let one = |segment| candidate(segment, random.below(101) as u32, random.below(1_000));
        let candidates: Vec<Candidate> = (0..count).map(one).collect();
        let max = random.below(20) as usize;
        let score = |one: &Candidate| f64::from(100 - one.live) * (one.age + 1) as f64 / f64::from(100 + one.live);
        let mut sorted: Vec<&Candidate> = candidates.iter().filter(|one| one.live < 97).collect();
        sorted.sort_by(|one, two| (one.live > 0).cmp(&(two.live > 0)).then(score(two).total_cmp(&score(one))));
        sorted.truncate(max);
        let mut expected: Vec<u64> = sorted.iter().map(|one| (score(one) * 1e6) as u64).collect();
        let victims = chosen(&candidates, max);
        let mut seen: Vec<u64> = victims.iter().map(|&id| (score(&candidates[id as usize]) * 1e6) as u64).collect();
        expected.sort_unstable();
        seen.sort_unstable();
        assert_eq!(seen, expected);
    }
}

#[test]
fn a_deletion_on_a_full_brick_is_found() {
    let mut controller = Controller::new(100);
    let mut sight = Sight { free: 4, segments: 100, client_blocks: 7, ..Sight::default() };
    let mut checkpoints = 0;
    for _ in 0..500 {
        sight.now_ns += 20 * MS;
        checkpoints += u32::from(controller.step(&sight).checkpoint);
    }
    assert!((5..=11).contains(&checkpoints), "about one in a second: {checkpoints}");
    assert_eq!(controller.step(&sight).state, State::Full);
    sight.emptied = 3;
    sight.now_ns += 100 * MS;
    let pace = controller.step(&sight);
    assert!(pace.checkpoint && pace.state == State::Slowing, "{pace:?}");
    (sight.free, sight.emptied) = (40, 0);
    assert_eq!(controller.step(&sight).client_delay_ns, 0);
    for state in [State::Idle, State::Ahead, State::Cleaning, State::Slowing, State::Full] {
        assert!(!state.reason().is_empty() && !state.reason().ends_with('.'));
    }
}

#[test]
fn pinned_segments_do_not_cause_checkpoint_after_checkpoint() {
    let mut controller = Controller::new(100);
    let mut checkpoints = 0;
    for step in 0..500 {
        checkpoints += u32::from(
            controller
                .step(&Sight {
                    now_ns: step * 20 * MS,
                    free: 9,
                    emptied: 5,
                    segments: 100,
                    client_blocks: step * 100,
                    moved_blocks: step,
                    victim: Some(mean(8_000, 16_000)),
                    ..Sight::default()
                })
                .checkpoint,
        );
    }
    assert!((5..=11).contains(&checkpoints), "about one in a second: {checkpoints}");
}

/// The first checkpoint after a long time comes before segments wait for it, once clients have written a few segments.
#[test]
fn shortly_before_cleaning_begins_there_is_a_checkpoint() {
    let wants = |free, segments_written: u64| {
        let mut controller = Controller::new(512);
        let victim = Some(mean(16_000, 16_384));
        let start = Sight { free: 100, segments: 512, victim, ..Sight::default() };
        controller.step(&start);
        let client_blocks = segments_written * 16_384;
        controller.step(&Sight { now_ns: 300 * MS, free, client_blocks, ..start }).checkpoint
    };
    // Cleaning begins at 22 segments, and two steps of six before that is near.
    assert!(wants(34, 6) && !wants(35, 6) && !wants(34, 5));
}

/// Deletions are not counted: a brick that is short of segments looks for what they left once in a second. One that is not
/// rests while nobody writes.
#[test]
fn who_is_short_looks_once_in_a_second_for_what_died() {
    let Thresholds { low, target, .. } = Thresholds::new(100);
    let wants = |free, client_blocks| {
        let mut controller = Controller::new(100);
        let start = Sight { free, segments: 100, victim: Some(mean(16_000, 16_384)), ..Sight::default() };
        controller.step(&start);
        controller.step(&Sight { now_ns: 1_000 * MS, client_blocks, ..start }).checkpoint
    };
    assert_eq!([low, low + 1].map(|free| wants(free, 0)), [true, false], "nobody writes");
    assert_eq!([target, target + 1].map(|free| wants(free, 1)), [true, false], "somebody writes a little");
}

/// Bugs from the list that these tests notice, each with the test that fails with it.
#[cfg(feature = "seeded-bugs")]
#[test]
fn each_bug_is_noticed_by_its_test() {
    use runtime::seeded::{Bug, fails};
    const NOTICED: [(Bug, fn()); 4] = [
        (Bug::VictimsByNumber, victims_are_chosen_by_cost_and_benefit),
        (Bug::DelayUnfelt, uniform),
        (Bug::GlideMissing, held_clients_and_small_slices_do_not_slow_each_other_down),
        (Bug::SurplusSpent, real_zipf),
    ];
    let missed: Vec<_> = NOTICED.iter().filter(|(bug, test)| !fails(*test, *bug)).map(|(bug, _)| bug).collect();
    assert!(missed.is_empty(), "went unnoticed: {missed:?}");
}
