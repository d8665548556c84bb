//! Files that others may have left in a directory, or may still change there. Root only: the tests give files to
//! others.

use super::*;
use rustix::fs::{FileType, mknodat};
use std::os::unix::fs::{PermissionsExt, chown, symlink};

/// A user id that no user has.
const STRANGER: u32 = 54_321;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("sinter-directory-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&path));
        std::fs::create_dir(&path).expect("the temporary directory is writable");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("ours");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
}

fn refused<T>(result: Result<T>, part: &str) {
    match result {
        Err(error) => assert!(error.to_string().contains(part), "{error}"),
        Ok(_) => panic!("not refused: {part}"),
    }
}

/// True if this test can give files away.
fn is_root() -> bool {
    geteuid().is_root()
}

#[test]
fn a_directory_is_ours_and_nobody_else_changes_it() {
    let scratch = Scratch::new("ours");
    let brick = scratch.0.join("brick");
    refused(Directory::open(&brick), "No such file");
    std::fs::create_dir(&brick).expect("ours");
    for (bits, others) in [(0o700, false), (0o755, false), (0o1777, false), (0o775, true), (0o757, true)] {
        mode(&brick, bits);
        match others {
            false => drop(Directory::open(&brick).expect("safe")),
            true => refused(Directory::open(&brick), "others may write"),
        }
    }
    mode(&brick, 0o755);
    let link = scratch.0.join("link");
    symlink(&brick, &link).expect("ours");
    refused(Directory::open(&link), "symbolic link");
    refused(Directory::open(&scratch.0.join("link/")), "symbolic link");
    // Links above it are its owner's affair.
    std::fs::create_dir(brick.join("deep")).expect("ours");
    let deep = Directory::open(&link.join("deep")).expect("a directory");
    assert_eq!(deep.path(), brick.canonicalize().expect("there").join("deep"));
    if is_root() {
        chown(&brick, Some(STRANGER), None).expect("root may");
        refused(Directory::open(&brick), "user 54321");
    }
}

#[test]
fn an_index_is_changed_by_nobody_else_at_all() {
    let scratch = Scratch::new("index");
    let brick = Directory::open(&scratch.0).expect("ours");
    let index = scratch.0.join("index");
    std::fs::create_dir(&index).expect("ours");
    brick.child("index").expect("safe").check_regular().expect("empty");
    mode(&index, 0o1777);
    refused(brick.child("index"), "others may write");
    mode(&index, 0o700);
    let child = brick.child("index").expect("safe");
    std::fs::write(index.join("CURRENT"), "x").expect("ours");
    child.check_regular().expect("a file");
    symlink("/etc/passwd", index.join("LOG")).expect("ours");
    refused(child.check_regular(), "LOG");
    symlink(&index, scratch.0.join("other")).expect("ours");
    assert_eq!(brick.child("other").expect_err("a link").kind, Kind::NotDirectory);
}

#[test]
fn no_link_is_followed_and_no_pipe_waited_for() {
    let scratch = Scratch::new("links");
    let victim = scratch.0.join("victim");
    std::fs::write(&victim, "precious").expect("ours");
    std::fs::create_dir(scratch.0.join("brick")).expect("ours");
    let brick = Directory::open(&scratch.0.join("brick")).expect("ours");
    let inside = |name: &str| scratch.0.join("brick").join(name);
    symlink(&victim, inside("link")).expect("ours");
    symlink(scratch.0.join("new"), inside("dangling")).expect("ours");
    mknodat(CWD, inside("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("ours");
    std::fs::create_dir(inside("directory")).expect("ours");
    let began = Instant::now();
    for name in ["link", "dangling", "pipe", "directory"] {
        for access in [Access::Read, Access::Write, Access::Append] {
            refused(brick.file(name, access), "remove it");
        }
        assert_eq!(brick.file(name, Access::Create).expect_err("taken").kind, Kind::Exists, "{name}");
    }
    assert!(began.elapsed().as_secs() < 5, "a pipe was waited for");
    assert!(!scratch.0.join("new").exists());
    assert_eq!(std::fs::read_to_string(&victim).expect("there"), "precious");
}

#[test]
fn files_of_others_and_with_other_names_are_refused() {
    let scratch = Scratch::new("files");
    let brick = Directory::open(&scratch.0).expect("ours");
    drop(brick.file("one", Access::Create).expect("new"));
    drop(brick.file("one", Access::Append).expect("there"));
    drop(brick.file("log", Access::Append).expect("made"));
    std::fs::hard_link(scratch.0.join("one"), scratch.0.join("two")).expect("ours");
    brick.file("two", Access::Read).expect("reading harms nobody");
    refused(brick.file("two", Access::Write), "hard link");
    if is_root() {
        chown(scratch.0.join("log"), Some(STRANGER), None).expect("root may");
        refused(brick.file("log", Access::Append), "user 54321");
    }
}

#[test]
fn what_it_holds_stays_the_same_whatever_its_path_becomes() {
    let scratch = Scratch::new("moved");
    let (brick, away) = (scratch.0.join("brick"), scratch.0.join("away"));
    std::fs::create_dir(&brick).expect("ours");
    let opened = Directory::open(&brick).expect("ours");
    assert!(opened.hold().expect("locks work") && !Directory::open(&brick).expect("ours").hold().expect("locks work"));
    std::fs::rename(&brick, &away).expect("ours");
    std::fs::create_dir(&brick).expect("ours");
    drop(opened.file("file", Access::Create).expect("new"));
    std::fs::write(opened.at("other"), "x").expect("ours");
    assert!(away.join("file").exists() && away.join("other").exists());
    assert_eq!(std::fs::read_dir(&brick).expect("there").count(), 0);
}

#[test]
fn a_file_that_many_make_at_once_is_everybodys() {
    let scratch = Scratch::new("race");
    let brick = Directory::open(&scratch.0).expect("safe");
    for round in 0..50 {
        let name = format!("log-{round}");
        let together = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    together.wait();
                    brick.file(&name, Access::Append).expect("made, or there")
                });
            }
        });
    }
}
