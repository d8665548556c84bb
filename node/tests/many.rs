//! Many files on a real mount whose daemon has 1 GiB of memory at most: 100,000 in one directory, and a tree of `SINTER_MANY`
//! (20,000 if not set; 1,000,000 take minutes), each listed, looked at after a restart, and removed by `rm -rf`.

use crate::daemon::{Daemon, Home, system, text};
use crate::space::{settle, space};
use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

const MEMORY_MAX: u64 = 1 << 30;
const IN_ONE: u64 = 100_000;
const PER_DIRECTORY: u64 = 1_000;
const THREADS: u64 = 4;

fn in_tree() -> u64 {
    crate::daemon::setting("SINTER_MANY", 20_000)
}

fn start(home: &Home) -> Daemon {
    let mut command = home.command();
    command.args(["--memory-max", &format!("{}M", MEMORY_MAX >> 20)]);
    Daemon::start(command)
}

/// The path of the file of a number.
fn file(root: &Path, number: u64) -> PathBuf {
    if number < IN_ONE {
        return root.join(format!("one/file-{number}"));
    }
    let directory = number / PER_DIRECTORY;
    root.join(format!("tree/{}/{directory}/file-{number}", directory % 10))
}

/// Does something to each file, with several threads.
fn each(root: &Path, what: &str, act: impl Fn(&Path, u64) + Sync) {
    let (begin, count) = (Instant::now(), IN_ONE + in_tree());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let act = &act;
            scope.spawn(move || {
                // A directory has one thread, so that creating takes no turns on its lock.
                let mine = |number: &u64| number / PER_DIRECTORY % THREADS == thread;
                (0..count).filter(mine).for_each(|number| act(&file(root, number), number));
            });
        }
    });
    println!("{what}: {:.0} per second", count as f64 / begin.elapsed().as_secs_f64());
}

fn timed(what: &str, act: impl FnOnce()) {
    let begin = Instant::now();
    act();
    println!("{what}: {:.1} s", begin.elapsed().as_secs_f64());
}

#[test]
fn many_files_work_within_the_bound_of_memory() {
    let home = Home::new("many");
    let daemon = start(&home);
    let root = home.mount.join("root");
    fs::create_dir_all(root.join("one")).expect("mkdir");
    for directory in IN_ONE / PER_DIRECTORY..(IN_ONE + in_tree()) / PER_DIRECTORY + 1 {
        fs::create_dir_all(root.join(format!("tree/{}/{directory}", directory % 10))).expect("mkdir");
    }
    // One in ten has a byte in it.
    each(&root, "create", |path, number| {
        let file = File::create_new(path).expect("create");
        if number % 10 == 0 {
            std::io::Write::write_all(&mut &file, b"x").expect("write");
        }
    });
    timed("list", || {
        let names: HashSet<_> =
            fs::read_dir(root.join("one")).expect("list").map(|one| one.expect("list").file_name()).collect();
        assert_eq!(names.len() as u64, IN_ONE);
    });
    let early = daemon.memory("VmHWM");
    daemon.terminate();
    let daemon = start(&home);
    each(&root, "stat after a restart", |path, number| {
        let is = fs::symlink_metadata(path).expect("stat");
        assert_eq!((is.nlink(), is.size()), (1, u64::from(number % 10 == 0)), "{}", path.display());
    });
    timed("rm -rf", || system("rm", &["-rf", text(&root)]));
    assert_eq!(fs::read_dir(&home.mount).expect("list").count(), 0);
    // What was cut is freed in steps.
    assert!((0..100).any(|_| settle(&home).logical == 0), "{:?}", space(&home));
    let most = early.max(daemon.memory("VmHWM"));
    println!("resident memory: {} MiB at most", most >> 20);
    assert!(most < MEMORY_MAX, "{most} bytes");
    daemon.terminate();
    home.check();
}
