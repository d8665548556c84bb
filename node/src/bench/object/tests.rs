use super::super::tests::{course, silent};
use super::super::turns::{alone, ground_name};
use super::*;
use crate::bench::compare::{Figure, beside};
use crate::bench::report::Report;
use crate::scratch::Scratch;
use std::collections::BTreeSet;
use std::path::PathBuf;

const MIB: u64 = 1 << 20;
const MODES: [&str; 6] = ["put", "get cold", "get cold again", "get cached", "get with little memory", "delete"];

fn plan(phase: Phase) -> Plan {
    Plan { threads: 3, bytes: 2 * MIB, seed: 7, phase, time: None }
}

fn measure(plan: &Plan, directory: &Path) -> std::result::Result<Report, Failure> {
    alone(plan, directory, &mut silent())
}

fn modes(report: &Report) -> Vec<&str> {
    report.rows.iter().map(|row| row.mode.as_str()).collect()
}

fn entries(path: &Path) -> usize {
    fs::read_dir(path).expect("it is there").count()
}

fn kept(directory: &Path) -> Objects {
    Objects::new(directory.join(KEPT).join(format!("{}-7", 2 * MIB)), 7)
}

#[test]
fn lengths_are_exponential_around_64_kib_and_follow_from_the_seed() {
    let objects = |seed| Objects::new(PathBuf::new(), seed);
    let (first, same, other) = (objects(1), objects(1), objects(2));
    let lengths = |objects: &Objects| (0..20_000).map(|number| objects.length(number) as u64).collect::<Vec<u64>>();
    let of_first = lengths(&first);
    assert_eq!(of_first, lengths(&same));
    assert_ne!(of_first[..10], lengths(&other)[..10]);
    let mean = of_first.iter().sum::<u64>() / 20_000;
    // Three standard errors of the mean of 20,000 are 2%; 1 - 1/e of an exponential distribution is below its mean, and
    // its square deviation is the mean's square.
    assert!((64_100..67_000).contains(&mean), "{mean}");
    let below = of_first.iter().filter(|length| **length < MEAN_BYTES).count();
    assert!((12_300..13_000).contains(&below), "{below}");
    let deviations = of_first.iter().map(|&length| (length as f64 - mean as f64).powi(2)).sum::<f64>() / 20_000.0;
    assert!((0.95..1.05).contains(&(deviations.sqrt() / mean as f64)), "{deviations}");
    assert!(of_first.iter().all(|length| (1..=MIB).contains(length)));
}

#[test]
fn all_of_an_object_follows_from_its_number_and_the_seed() {
    let [one, same, other] = [3, 3, 4].map(|seed| Objects::new(PathBuf::from("/o"), seed));
    assert_eq!((one.bytes(5), one.attributes(5), one.file(5)), (same.bytes(5), same.attributes(5), same.file(5)));
    assert!(one.bytes(5)[..64] != one.bytes(6)[..64] && one.attributes(5) != one.attributes(6));
    assert!(one.file(5) != other.file(5) && one.attributes(5) != other.attributes(5));
    let attributes: BTreeSet<_> = one.attributes(5).into_iter().collect();
    assert_eq!(attributes.len(), 5, "each has a value of its own");
}

#[test]
fn the_tree_is_deep_and_wide() {
    let objects = Objects::new(PathBuf::from("/o"), 1);
    let files: BTreeSet<PathBuf> = (0..10_000).map(|number| objects.file(number)).collect();
    assert_eq!(files.len(), 10_000, "no two are the same");
    let above = |levels: usize| -> BTreeSet<&Path> {
        files.iter().map(|file| file.ancestors().nth(levels).expect("it is that deep")).collect()
    };
    // All of 256; of 256 x 4096 almost as many as there are objects; a directory for each.
    assert_eq!((above(3).len(), above(1).len()), (256, 10_000));
    assert!(above(2).len() > 9_800);
    assert_eq!(above(4), BTreeSet::from([Path::new("/o")]));
}

#[test]
fn objects_reach_what_is_asked_for() {
    let objects = Objects::new(PathBuf::new(), 1);
    let count = objects.reaching(50 * MIB);
    let sum: u64 = (0..count).map(|number| objects.length(number) as u64).sum();
    assert!(sum >= 50 * MIB && sum - (objects.length(count - 1) as u64) < 50 * MIB, "{count}: {sum}");
}

#[test]
fn all_passes_are_told_and_nothing_is_left() {
    let scratch = Scratch::new();
    let report = measure(&plan(Phase::Both), scratch.path()).expect("it can write");
    assert_eq!(modes(&report), MODES);
    let count = Objects::new(PathBuf::new(), 7).reaching(2 * MIB);
    for row in &report.rows {
        assert_eq!((row.operations, row.errors, row.threads), (count, Some(0), 3), "{row:?}");
        assert!(row.p50_ns > 0 && row.p50_ns <= row.p99_ns && row.p99_ns <= row.max_ns, "{row:?}");
        let bytes = row.bytes_per_second / row.per_second * count as f64;
        let expected = if row.mode == "delete" { 0 } else { 2 * MIB };
        assert!((expected..=expected + MIB).contains(&(bytes.round() as u64)), "{row:?}");
    }
    assert!(report.errors() == 0 && report.table().contains("errors") && report.table().contains("objects/s"));
    let json: serde_json::Value = serde_json::from_str(&report.json()).expect("it is JSON");
    assert_eq!((&json["bench"], &json["bytes"], &json["seed"]), (&"object".into(), &(2 * MIB).into(), &7.into()));
    assert_eq!((&json["rows"][5]["errors"], &json["seconds"]), (&0.into(), &serde_json::Value::Null));
    assert!(json["rows"][0]["stolen_percent"].as_u64().is_some_and(|percent| percent <= 100), "{json}");
    assert_eq!(entries(scratch.path()), 0);
}

#[test]
fn objects_of_one_run_are_got_and_deleted_by_others() {
    let scratch = Scratch::new();
    let run = |phase| measure(&plan(phase), scratch.path());
    assert_eq!(run(Phase::Read).expect_err("none").exit, Exit::Usage);
    assert_eq!(modes(&run(Phase::Create).expect("it can write")), MODES[..1]);
    assert_eq!(run(Phase::Create).expect_err("there are some").exit, Exit::Usage);
    let other = measure(&Plan { seed: 8, ..plan(Phase::Read) }, scratch.path()).expect_err("other objects");
    assert!(other.to_string().contains("same options"), "{other}");
    let found = walk(kept(scratch.path()).path());
    let read = run(Phase::Read).expect("they are there");
    assert_eq!((modes(&read), read.errors()), (MODES[1..5].to_vec(), 0));
    assert_eq!(walk(kept(scratch.path()).path()), found, "gets change nothing");
    assert_eq!(modes(&run(Phase::Remove).expect("they are there")), MODES[5..]);
    assert_eq!(entries(scratch.path()), 0);
}

/// All files and directories below a directory.
fn walk(path: &Path) -> BTreeSet<PathBuf> {
    let below = fs::read_dir(path).expect("it is there").map(|entry| entry.expect("it is there").path());
    below.flat_map(|path| if path.is_dir() { walk(&path) } else { BTreeSet::new() }.into_iter().chain([path])).collect()
}

#[test]
fn what_differs_from_what_was_put_is_counted_and_named() {
    type Damage = fn(&Path);
    let damages: [(Damage, &str); 6] = [
        (|file| change(file, |bytes| bytes[700] ^= 1), "byte 700 "),
        (|file| change(file, |bytes| bytes.truncate(9)), "fewer"),
        (|file| change(file, |bytes| bytes.push(1)), "more"),
        (|file| set_attribute(file, &[1; 32]), "the attribute user.object.3 is not"),
        (|file| set_attribute(file, &[1; 33]), "the attribute user.object.3 is not"),
        (|file| fs::remove_file(file).expect("ours"), "No such file"),
    ];
    for (damage, said) in damages {
        let scratch = Scratch::new();
        measure(&plan(Phase::Create), scratch.path()).expect("it can write");
        let objects = kept(scratch.path());
        let longest = (0..10).max_by_key(|number| objects.file(*number).metadata().expect("it is there").len());
        let file = objects.file(longest.expect("there are ten"));
        damage(&file);
        let report = measure(&plan(Phase::Read), scratch.path()).expect("the others can be read");
        // Twice by the last two, which read all twice.
        let errors: Vec<Option<u64>> = report.rows.iter().map(|row| row.errors).collect();
        assert_eq!((errors, report.errors()), (vec![Some(1), Some(1), Some(2), Some(2)], 6));
        let named = |note: &String| note.contains(said) && note.contains(file.to_str().expect("text"));
        assert_eq!(report.notes.iter().filter(|note| named(note)).count(), 4, "{said}: {:?}", report.notes);
        let count = objects.reaching(2 * MIB);
        assert!(report.rows.iter().all(|row| row.operations == count - 1), "{report:?}");
    }
}

fn change(file: &Path, how: impl Fn(&mut Vec<u8>)) {
    let mut bytes = fs::read(file).expect("ours");
    how(&mut bytes);
    fs::write(file, bytes).expect("ours");
}

fn set_attribute(file: &Path, value: &[u8]) {
    rustix::fs::setxattr(file, "user.object.3", value, rustix::fs::XattrFlags::REPLACE).expect("it has one");
}

#[test]
fn an_object_that_cannot_be_deleted_is_counted() {
    let scratch = Scratch::new();
    measure(&plan(Phase::Create), scratch.path()).expect("it can write");
    fs::remove_file(kept(scratch.path()).file(2)).expect("it is there");
    let report = measure(&plan(Phase::Remove), scratch.path()).expect("the others can be deleted");
    assert_eq!((report.errors(), entries(scratch.path())), (1, 0), "{report:?}");
}

#[test]
fn a_put_that_fails_ends_the_bench_and_nothing_is_left() {
    // The longest path that the system takes has room for an object's temporary name, but not for its last one.
    for (phase, own) in [(Phase::Both, ground_name("")), (Phase::Create, KEPT.to_string())] {
        let scratch = Scratch::new();
        let set = format!("/{own}/{}-7/", 2 * MIB);
        let length = 4095 - set.len() - "tmp/0123456789abcdef".len();
        let mut directory = scratch.path().to_str().expect("text").to_string();
        while directory.len() < length {
            directory += "/";
            directory += &"d".repeat((length - directory.len()).clamp(1, 200));
        }
        fs::create_dir_all(&directory).expect("its path is short enough");
        let failure = measure(&plan(phase), Path::new(&directory)).expect_err("the path is too long");
        assert!(failure.to_string().contains("File name too long"), "{failure}");
        assert_eq!(entries(Path::new(&directory)), 0);
    }
}

#[test]
fn what_has_no_room_is_refused_before_anything_is_written() {
    let scratch = Scratch::new();
    let refused = measure(&Plan { bytes: 1 << 50, ..plan(Phase::Both) }, scratch.path()).expect_err("no room");
    assert!(refused.to_string().contains("free, too little for 1024 TiB of objects; next step: lower"), "{refused}");
    assert_eq!(entries(scratch.path()), 0);
    let missing = measure(&plan(Phase::Both), &scratch.path().join("absent")).expect_err("not there");
    assert!(missing.exit == Exit::Usage && missing.to_string().contains("is not a directory"), "{missing}");
}

#[test]
fn an_interruption_and_the_time_of_a_pass_end_it_early() {
    let scratch = Scratch::new();
    let report = alone(&plan(Phase::Both), scratch.path(), &mut course(true)).expect("it can write");
    assert_eq!((report.rows.len(), entries(scratch.path())), (0, 0));
    let timed = Plan { time: Some(Duration::ZERO), ..plan(Phase::Both) };
    let count = Objects::new(PathBuf::new(), 7).reaching(2 * MIB);
    let ends_early = || {
        let report = measure(&timed, scratch.path()).expect("it can write");
        let operations: Vec<u64> = report.rows.iter().map(|row| row.operations).collect();
        assert_eq!((operations[0], operations[5]), (count, count), "all are put and deleted");
        operations[1..5].iter().all(|&gets| gets < count)
    };
    // On a busy machine the threads may have read all before anybody sees that the time is over.
    assert!((0..20).any(|_| ends_early()), "gets have an end");
}

#[test]
fn two_directories_are_measured_in_turns_with_their_errors() {
    let scratch = [Scratch::new(), Scratch::new()];
    let comparison =
        beside(&plan(Phase::Both), [scratch[0].path(), scratch[1].path()], 2, &mut silent()).expect("it can write");
    let lines = comparison.lines.iter().filter(|line| line.figure == Figure::Errors);
    assert_eq!(lines.map(|line| line.mode.as_str()).collect::<Vec<&str>>(), MODES);
    assert_eq!((comparison.errors(), scratch.map(|scratch| entries(scratch.path()))), (0, [0, 0]));
    let mut failed = comparison;
    let line = failed.lines.iter_mut().find(|line| line.figure == Figure::Errors).expect("there is one");
    line.beside_rounds[1] = 3.0;
    assert_eq!(failed.errors(), 3);
}
