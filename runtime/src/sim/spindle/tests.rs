use super::geometry::{ROTATION_NS, SECTOR_NS, TRACK_BYTES};
use super::*;
use crate::random::SplitMix;

const SECOND_NS: u64 = 1_000_000_000;
const DISK_BYTES: u64 = 20 << 30;
const BLOCK: u64 = 4 << 10;
const MIB: u64 = 1 << 20;

/// A load that keeps so many requests of one kind and size under way, each at a place that the test says.
struct Load {
    spindle: Spindle,
    verb: Verb,
    bytes: u64,
    count: u64,
    now_ns: u64,
}

impl Load {
    fn new(verb: Verb, bytes: u64) -> Load {
        Load { spindle: Spindle::new(DISK_BYTES), verb, bytes, count: 0, now_ns: 0 }
    }
    fn queue(&mut self, offset: u64) {
        self.count += 1;
        self.spindle.queue(self.now_ns, Ask::new(self.count, self.verb, offset, self.bytes));
    }
    /// Runs for so many seconds; requests per second.
    fn run(&mut self, depth: u64, seconds: u64, mut place: impl FnMut() -> u64) -> u64 {
        (0..depth).for_each(|_| self.queue(place()));
        let (began_ns, mut done) = (self.now_ns, 0);
        while self.now_ns < began_ns + seconds * SECOND_NS {
            self.now_ns = self.spindle.next_ns().expect("requests are under way");
            for _ in self.spindle.complete(self.now_ns) {
                done += 1;
                self.queue(place());
            }
        }
        done / seconds
    }
}

fn anywhere(bytes: u64) -> impl FnMut() -> u64 {
    let mut rng = SplitMix(7);
    move || rng.below(DISK_BYTES / bytes) * bytes
}

fn onward(bytes: u64) -> impl FnMut() -> u64 {
    let mut next = (DISK_BYTES / 3).next_multiple_of(bytes);
    move || {
        next += bytes;
        next - bytes
    }
}

#[test]
fn the_arm_takes_a_millisecond_to_the_next_track_8_in_the_mean_and_16_for_all() {
    let geometry = Geometry { bytes: DISK_BYTES };
    let tracks = DISK_BYTES.div_ceil(TRACK_BYTES);
    assert_eq!(geometry.seek_ns(5, TRACK_BYTES - 1), 0);
    assert_eq!(geometry.seek_ns(TRACK_BYTES - 1, TRACK_BYTES), 1_000_000);
    assert_eq!(geometry.seek_ns((tracks - 1) * TRACK_BYTES, 0), 16_000_000);
    let mut rng = SplitMix(1);
    let sum: u64 = (0..20_000).map(|_| geometry.seek_ns(rng.below(DISK_BYTES), rng.below(DISK_BYTES))).sum();
    assert!((7_900..8_100).contains(&(sum / 20_000 / 1_000)), "{sum}");
    let growing: Vec<u64> = (0..tracks).map(|track| geometry.seek_ns(0, track * TRACK_BYTES)).collect();
    assert!(growing.is_sorted());
}

#[test]
fn what_has_passed_is_the_inverse_of_when_it_passes() {
    let geometry = Geometry { bytes: DISK_BYTES };
    let mut rng = SplitMix(2);
    for _ in 0..10_000 {
        let (from, bytes) = (rng.below(1 << 20) * 512, (1 + rng.below(20_000)) * 512);
        let took_ns = geometry.transfer_ns(from, from + bytes);
        assert_eq!(geometry.reached(from, took_ns), from + bytes);
        assert!(geometry.reached(from, took_ns - 1) < from + bytes);
    }
}

#[test]
fn at_random_it_does_60_to_95_requests_a_second_one_by_one_and_150_to_220_of_32() {
    for verb in [Verb::Read, Verb::Write] {
        let alone = Load::new(verb, BLOCK).run(1, 100, anywhere(BLOCK));
        assert!((60..=95).contains(&alone), "{alone}");
        let many = Load::new(verb, BLOCK).run(32, 100, anywhere(BLOCK));
        assert!((150..=220).contains(&many), "{many}");
    }
}

#[test]
fn more_than_its_queue_holds_gain_nothing() {
    let rates = [32, 256].map(|depth| Load::new(Verb::Read, BLOCK).run(depth, 100, anywhere(BLOCK)));
    assert!(rates[0].abs_diff(rates[1]) * 50 < rates[0], "{rates:?}");
}

#[test]
fn a_write_after_the_one_before_loses_a_turn() {
    let mut load = Load::new(Verb::Write, BLOCK);
    let rate = load.run(1, 10, onward(BLOCK));
    assert!((110..=125).contains(&rate), "{rate}");
    let counters = load.spindle.counters();
    // The first of a track is spared: it lies as far away as the arm and a command take.
    assert!(counters.turns_lost * 100 > counters.writes * 99, "{counters:?}");
    assert_eq!(counters.seeks, 1);
}

#[test]
fn a_write_beside_the_one_before_loses_none() {
    for (bytes, depth) in [(64 * 1024, 4), (MIB, 2)] {
        let mut load = Load::new(Verb::Write, bytes);
        let rate = load.run(depth, 10, onward(bytes)) * bytes / 1_000_000;
        assert!((120..=150).contains(&rate), "{rate} MB/s");
        assert_eq!(load.spindle.counters().turns_lost, 0);
    }
}

#[test]
fn reads_in_sequence_find_what_passed_meanwhile() {
    for (bytes, least) in [(BLOCK, 50), (64 * 1024, 120), (MIB, 120)] {
        let mut load = Load::new(Verb::Read, bytes);
        let rate = load.run(1, 10, onward(bytes)) * bytes / 1_000_000;
        assert!((least..=150).contains(&rate), "{rate} MB/s of {bytes}");
        let counters = load.spindle.counters();
        assert_eq!((counters.seeks, counters.turns_lost, counters.buffered), (1, 0, counters.reads - 1));
    }
}

/// The time that a request takes which comes when all is quiet.
fn taken(spindle: &mut Spindle, now_ns: u64, verb: Verb, offset: u64, bytes: u64) -> u64 {
    spindle.queue(now_ns, Ask::new(0, verb, offset, bytes));
    while spindle.current.is_none() {
        spindle.advance(spindle.next_ns().expect("a request waits"));
    }
    let done_ns = spindle.next_ns().expect("it is served");
    assert_eq!(spindle.complete(done_ns).len(), 1);
    done_ns - now_ns
}

#[test]
fn the_buffer_grows_until_it_is_full_and_goes_on_when_it_is_read() {
    let mut spindle = Spindle::new(DISK_BYTES);
    taken(&mut spindle, 0, Verb::Read, 0, MIB);
    let sent_ns = COMMAND_NS + MIB * 2;
    // A second later the head has long stopped: the next 4 MiB are there, and no more.
    for number in 1..=4 {
        assert_eq!(taken(&mut spindle, SECOND_NS * number, Verb::Read, MIB * number, MIB), sent_ns);
    }
    // The head went on with each of them.
    let before = spindle.counters();
    assert_eq!(taken(&mut spindle, SECOND_NS * 5, Verb::Read, MIB * 5, 3 * MIB), COMMAND_NS + 6 * MIB);
    let three_ns = taken(&mut spindle, SECOND_NS * 6, Verb::Read, MIB * 8, 5 * MIB);
    // 4 MiB are there, the fifth comes from the platter within a turn and the time of 1 MiB.
    assert!(three_ns < COMMAND_NS + 2 * ROTATION_NS + 10 * MIB, "{three_ns}");
    assert_eq!(spindle.counters().buffered, before.buffered + 2);
}

#[test]
fn a_write_elsewhere_stops_the_buffer_and_one_of_its_bytes_empties_it() {
    let far = DISK_BYTES / 2;
    for (written, is_kept) in [(far, true), (MIB + BLOCK, false)] {
        let mut spindle = Spindle::new(DISK_BYTES);
        taken(&mut spindle, 0, Verb::Read, 0, MIB);
        taken(&mut spindle, SECOND_NS, Verb::Write, written, BLOCK);
        let again_ns = taken(&mut spindle, 2 * SECOND_NS, Verb::Read, MIB, MIB);
        assert_eq!(again_ns == COMMAND_NS + 2 * MIB, is_kept, "{again_ns}");
    }
    let mut spindle = Spindle::new(DISK_BYTES);
    taken(&mut spindle, 0, Verb::Read, 0, MIB);
    taken(&mut spindle, SECOND_NS, Verb::Write, far, BLOCK);
    // The head is elsewhere: what the buffer does not have whole comes from the platter.
    let rest_ns = taken(&mut spindle, 3 * SECOND_NS, Verb::Read, 4 * MIB, 2 * MIB);
    assert!(rest_ns > COMMAND_NS + 12 * MIB, "{rest_ns}");
}

#[test]
fn a_request_far_away_is_served_beside_many_near_ones() {
    let mut load = Load::new(Verb::Read, BLOCK);
    let (mut rng, mut count) = (SplitMix(3), 0);
    // One in a hundred is at the other end of the disk, all others within four tracks.
    load.run(32, 60, || {
        count += 1;
        if count % 100 == 0 { DISK_BYTES - BLOCK } else { rng.below(4 * TRACK_BYTES / BLOCK) * BLOCK }
    });
    let longest_ms = load.spindle.counters().longest_ns / 1_000_000;
    assert!((1_000..2_200).contains(&longest_ms), "{longest_ms} ms");
}

/// The ids of requests that come at set times, in the order in which they end, if the drive is asked at these and so often.
fn order(step_ns: u64) -> Vec<u64> {
    let (mut spindle, mut rng, mut ended) = (Spindle::new(DISK_BYTES), SplitMix(4), Vec::new());
    let (mut now_ns, mut asked_ns) = (0, step_ns);
    for id in 0..2_000 {
        now_ns += rng.below(12_000_000);
        while asked_ns < now_ns {
            ended.extend(spindle.complete(asked_ns));
            asked_ns += step_ns;
        }
        let (verb, offset) = (if rng.one_in(2) { Verb::Read } else { Verb::Write }, rng.below(1 << 22) * BLOCK);
        spindle.queue(now_ns, Ask::new(id, verb, offset, BLOCK));
    }
    while let Some(next_ns) = spindle.next_ns() {
        ended.extend(spindle.complete(next_ns));
    }
    ended
}

#[test]
fn the_drive_decides_alike_however_late_it_is_asked() {
    let often = order(100_000);
    assert_eq!(often, order(70_000_000));
    assert!(!often.is_sorted(), "some were overtaken");
}

#[test]
fn a_slow_drive_has_that_part_of_its_rate_whatever_it_does() {
    for (verb, bytes, depth) in [(Verb::Read, BLOCK, 32), (Verb::Write, MIB, 2), (Verb::Read, MIB, 1)] {
        let rates = [1, 5].map(|slowness| {
            let mut load = Load::new(verb, bytes);
            load.spindle.set_slowness(0, slowness);
            if depth == 32 { load.run(depth, 100, anywhere(bytes)) } else { load.run(depth, 30, onward(bytes)) }
        });
        assert!((rates[1] * 5).abs_diff(rates[0]) * 20 < rates[0], "{verb:?} {bytes} {rates:?}");
    }
}

#[test]
fn a_drive_that_is_slow_for_a_while_ends_later_by_that() {
    let far = DISK_BYTES / 2;
    let well_ns = taken(&mut Spindle::new(DISK_BYTES), 0, Verb::Write, far, BLOCK);
    let mut spindle = Spindle::new(DISK_BYTES);
    spindle.queue(0, Ask::new(0, Verb::Write, far, BLOCK));
    spindle.set_slowness(1_000_000, u64::MAX);
    assert!(spindle.next_ns() > Some(SECOND_NS) && spindle.complete(SECOND_NS).is_empty(), "it stands still");
    spindle.set_slowness(SECOND_NS, 1);
    while spindle.complete(spindle.next_ns().expect("it goes on")).is_empty() {}
    assert_eq!(spindle.time.callers(spindle.now_ns), well_ns + SECOND_NS - 1_000_000);
}

#[test]
fn a_stalled_request_keeps_the_drive_from_others() {
    let mut spindle = Spindle::new(DISK_BYTES);
    spindle.queue(0, Ask { stall_ns: SECOND_NS, ..Ask::new(0, Verb::Write, 0, BLOCK) });
    spindle.queue(0, Ask::new(1, Verb::Write, BLOCK, BLOCK));
    assert!(spindle.complete(SECOND_NS).is_empty());
    assert_eq!(spindle.complete(SECOND_NS + 3 * ROTATION_NS), [0, 1]);
    assert!(spindle.counters().longest_ns > SECOND_NS + SECTOR_NS);
}
