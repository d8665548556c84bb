use super::delays::Schedule;
use super::*;
use crate::served::{NAME, Pace, Verb};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Instant;

const US: Duration = Duration::from_micros(1);

fn slow(text: &str) -> Schedule {
    let mut schedule = Schedule::default();
    schedule.set(Delays::read(text).expect("a test knows the names"));
    schedule
}

#[test]
fn delays_are_read_as_they_were_written() {
    let delays = Delays { read_us: 79, write_us: 30, flush_us: 2000, channels: 4 };
    assert_eq!(Delays::read(&delays.text()), Ok(delays));
    assert_eq!(Delays::read(""), Ok(Delays::default()));
    for line in ["read", "read soon", "rea 3"] {
        assert_eq!(Delays::read(&format!("write 1\n{line}\n")), Err(line.to_string()));
    }
}

#[test]
fn each_verb_has_a_delay_of_its_own() {
    let (mut schedule, now) = (slow("read 79\nflush 500\n"), Instant::now());
    let due = [Verb::Read, Verb::Write, Verb::Flush].map(|verb| schedule.due(verb, now) - now);
    assert_eq!(due, [79 * US, Duration::ZERO, 500 * US]);
}

#[test]
fn without_channels_all_delays_run_at_once() {
    let (mut schedule, now) = (slow("read 100\n"), Instant::now());
    assert!((0..50).all(|_| schedule.due(Verb::Read, now) == now + 100 * US));
}

#[test]
fn more_than_its_channels_wait_for_one() {
    let (mut schedule, now) = (slow("read 100\nwrite 100\nflush 7\nchannels 2\n"), Instant::now());
    let verbs = [Verb::Read, Verb::Write, Verb::Read, Verb::Flush, Verb::Read, Verb::Read];
    let due = verbs.map(|verb| (schedule.due(verb, now) - now).as_micros());
    assert_eq!(due, [100, 100, 200, 7, 200, 300]);
    // Much later all are free again.
    assert_eq!(schedule.due(Verb::Read, now + 1000 * US), now + 1100 * US);
    schedule.set(Delays { read_us: 100, ..Delays::default() });
    assert_eq!(schedule.due(Verb::Read, now), now + 100 * US);
}

#[test]
fn late_answers_come_in_the_order_in_which_they_are_due() {
    let late = Late::start().expect("a thread");
    let (told, heard) = std::sync::mpsc::sync_channel(4);
    let ask = |us: u64| {
        let (told, began) = (told.clone(), Instant::now());
        late.set(Delays { read_us: us, ..Delays::default() });
        late.answer(Verb::Read, move || told.send((us, began.elapsed())).expect("the test listens"));
    };
    // The first one is alone, and waits where it came.
    std::thread::scope(|scope| {
        scope.spawn(|| ask(40_000));
        while !late.is_waited_for_alone() {
            std::thread::yield_now();
        }
        [60_000, 10_000, 20_000].into_iter().for_each(ask);
    });
    let heard: Vec<(u64, Duration)> = heard.iter().take(4).collect();
    assert_eq!(heard.iter().map(|(us, _)| *us).collect::<Vec<_>>(), [10_000, 20_000, 40_000, 60_000]);
    assert!(heard.iter().all(|(us, took)| took.as_micros() >= u128::from(*us)), "{heard:?}");
}

/// Unmounts and removes what a test has made, whatever happens.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        drop(std::process::Command::new("umount").args(["-l".as_ref(), self.0.join("mount").as_os_str()]).status());
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// The median of what it takes to do something 101 times.
fn median(mut what: impl FnMut(u64)) -> Duration {
    let mut times: Vec<Duration> = (0..101)
        .map(|number| {
            let began = Instant::now();
            what(number);
            began.elapsed()
        })
        .collect();
    times.sort();
    times[50]
}

/// Needs root, /dev/fuse and a disk that takes direct I/O: where `cargo` builds.
#[test]
fn a_live_disk_keeps_bytes_and_is_late_by_what_is_set() {
    let own = std::env::current_exe().expect("this program has a path");
    let place = Place(own.with_file_name(format!("slow-disk-{}", std::process::id())));
    let (backing, mount) = (place.0.join("backing"), place.0.join("mount"));
    std::fs::create_dir_all(&mount).expect("the build's directory can be written");
    std::fs::write(&backing, vec![7; 1 << 20]).expect("it can be written");
    let late = Arc::new(Late::start().expect("a thread"));
    let threads = served::start(&backing, &mount, late.clone()).expect("this test needs root and /dev/fuse");
    let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let file = File::options().read(true).write(true).custom_flags(direct).open(mount.join(NAME)).expect("it is there");
    let mut memory = vec![0u8; 8192];
    let begin = memory.as_ptr().align_offset(4096);
    let mut read = |number: u64| file.read_exact_at(&mut memory[begin..begin + 4096], number * 4096).expect("it reads");
    let quick = median(&mut read);
    late.set(Delays { read_us: 2000, flush_us: 4000, ..Delays::default() });
    let slow = median(&mut read);
    let flushed = median(|_| file.sync_data().expect("it flushes"));
    late.set(Delays::default());
    assert!(slow >= Duration::from_millis(2) && slow < quick + Duration::from_millis(4), "{quick:?} {slow:?}");
    assert!(flushed >= Duration::from_millis(4), "{flushed:?}");
    assert_eq!(memory[begin..begin + 4096], [7; 4096]);
    memory[begin..begin + 4096].fill(9);
    file.write_all_at(&memory[begin..begin + 4096], 8192).expect("it writes");
    assert!(file.read_at(&mut memory[begin..begin + 4096], 1 << 20).is_ok_and(|bytes| bytes == 0), "it has an end");
    drop(file);
    assert_eq!(std::fs::read(&backing).expect("it is there")[8190..8194], [7, 7, 9, 9]);
    assert!(!mount.join("other").exists());
    // Its threads end when it is unmounted.
    drop(place);
    threads.into_iter().for_each(|thread| thread.join().expect("no thread panicked"));
}
