use super::patterns::ALL;
use super::*;
use crate::served::{Pace, Verb};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

#[test]
fn the_simulated_disk_has_the_rates_of_a_disk() {
    for pattern in ALL {
        let rate = pattern.rate_of(simulated::requests_per_second(&pattern, 20 << 30));
        let (least, most) = pattern.rate;
        assert!((least..=most).contains(&rate), "{}: {rate}", pattern.name);
    }
}

#[test]
fn answers_come_when_the_spindle_has_turned_and_the_backing_file_is_done_whichever_is_last() {
    let (bytes, began) = (1 << 30, Instant::now());
    let turning = Turning::start(bytes).expect("a thread");
    let (told, heard) = sync_channel(8);
    let answer = |ticket, number: u64| {
        let told = told.clone();
        turning.answer(ticket, move || told.send((number, began.elapsed())).expect("the test listens"));
    };
    // While the first is served two more come: the last of them is nearer.
    let tickets = [0, bytes / 2, 1 << 20].map(|offset| turning.came(Verb::Write, offset, 4096));
    tickets.into_iter().zip(0..).for_each(|(ticket, number)| answer(ticket, number));
    let first: Vec<(u64, Duration)> = heard.iter().take(3).collect();
    assert_eq!(first.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 2, 1]);
    assert!(first[2].1 > first[1].1 + Duration::from_millis(8), "{first:?}");
    // A flush waits for nothing; a backing file that is late is waited for.
    answer(turning.came(Verb::Flush, 0, 0), 3);
    let ticket = turning.came(Verb::Read, 0, 4096);
    std::thread::sleep(Duration::from_millis(60));
    answer(ticket, 4);
    assert_eq!(heard.iter().take(2).map(|(number, _)| number).collect::<Vec<_>>(), [3, 4]);
    let counters = turning.figures().and_then(|text| counted::read(&text)).expect("it tells its figures");
    assert_eq!((counters.writes, counters.reads, counters.written_bytes), (3, 1, 12_288));
}

#[test]
fn a_spindle_is_as_slow_as_it_is_told() {
    let turning = Turning::start(1 << 30).expect("a thread");
    let (told, heard) = sync_channel(8);
    for (text, is_heeded) in [("slowness 0", false), ("slow 3", false), ("slowness 1000000\n", true)] {
        assert_eq!(turning.change(text), is_heeded, "{text}");
    }
    turning.answer(turning.came(Verb::Write, 0, 4096), move || told.send(()).expect("the test listens"));
    assert!(heard.recv_timeout(Duration::from_millis(100)).is_err(), "it stands still");
    assert!(turning.change("slowness 1"));
    assert!(heard.recv_timeout(Duration::from_secs(10)).is_ok(), "it turns again");
}
