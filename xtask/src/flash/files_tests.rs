//! Tests of the loads of many files.

use super::*;
use std::collections::BTreeSet;
use std::sync::Mutex;

fn directory(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("sinter-flash-{name}-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("nothing of this name is there");
    directory
}

#[test]
fn each_number_comes_once_whatever_the_threads() {
    for threads in [1, 3, 16] {
        let seen = Mutex::new(Vec::new());
        let done = on_threads(threads, 50, |number| {
            seen.lock().expect("nobody panics").push(number);
            Ok(())
        });
        let done = done.expect("nothing fails");
        let seen = seen.into_inner().expect("nobody panics");
        assert_eq!((done.operations, seen.len(), seen.iter().collect::<BTreeSet<_>>().len()), (50, 50, 50));
        assert!(done.per_second > 0.0 && done.p50_us <= done.p99_us);
    }
}

#[test]
fn an_operation_that_fails_ends_the_load() {
    let fail = |number| if number == 7 { Err(std::io::Error::other("seven")) } else { Ok(()) };
    assert!(on_threads(2, 10, fail).is_err_and(|error| error.to_string() == "seven"));
}

#[test]
fn small_files_are_read_as_they_were_written() {
    let directory = directory("spray");
    let spray = Spray::new(&directory, 250, 5000).expect("a directory can be made");
    assert_eq!(spray.create(4).expect("files can be made").operations, 250);
    assert!(spray.create(1).is_err(), "each is created, not opened again");
    spray.read(3).expect("they hold what was written");
    std::fs::write(spray.path(77), spray.content(78)).expect("a file can be written");
    assert!(spray.read(3).is_err_and(|error| error.to_string().contains("77 holds something else")));
    spray.remove().expect("it can be removed");
    std::fs::remove_dir(directory).expect("nothing else is left");
}

#[test]
fn empty_files_come_and_go() {
    let directory = directory("crowd");
    let crowd = Crowd::new(&directory, 300).expect("a directory can be made");
    crowd.create(4).expect("files can be made");
    crowd.stat(2).expect("all are there");
    crowd.unlink(4).expect("all are there");
    assert!(crowd.stat(1).is_err(), "none is there");
    crowd.remove().expect("nothing is left in it");
    std::fs::remove_dir(directory).expect("nothing else is left");
}

#[test]
fn cold_files_come_once_each_and_neighbours_apart() {
    let order: Vec<usize> = (0..800).map(|number| scattered(number, 800)).collect();
    assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 800);
    assert!(order.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1), "{order:?}");
}
