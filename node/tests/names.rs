//! Names on a real mount that are more than a file's only one: hard links across directories (which lie in different
//! groups), exchanges, pipes and devices; all of it after a kill as before.

use crate::daemon::{Home, succeed, system, text};
use runtime::random::SplitMix;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Directories: each is born in a group of its own.
const DIRECTORIES: u64 = 12;
const FILES: u64 = 40;

fn exchange(one: &Path, other: &Path) -> std::io::Result<()> {
    let path = |path: &Path| CString::new(path.as_os_str().as_bytes()).expect("no NUL");
    let (one, other) = (path(one), path(other));
    let flags = libc::RENAME_EXCHANGE;
    // SAFETY: a call with strings that outlive it.
    match unsafe { libc::renameat2(libc::AT_FDCWD, one.as_ptr(), libc::AT_FDCWD, other.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Every file has a name in each directory; in every third directory that of its neighbour.
fn verify(mount: &Path) {
    for file in 0..FILES {
        for directory in 0..DIRECTORIES {
            let path = mount.join(format!("d{directory}/f{file}"));
            let wanted = if directory % 3 == 0 { file ^ 1 } else { file };
            assert_eq!(fs::read_to_string(&path).expect("it is there"), wanted.to_string(), "{}", path.display());
            assert_eq!(fs::metadata(&path).expect("stat").nlink(), DIRECTORIES);
        }
    }
    assert!(fs::symlink_metadata(mount.join("pipe")).expect("stat").file_type().is_fifo());
    let null = fs::metadata(mount.join("null")).expect("stat");
    assert!(null.file_type().is_char_device() && null.rdev() == libc::makedev(1, 3));
}

#[test]
fn names_of_every_kind_survive_a_kill() {
    let home = Home::new("names");
    let daemon = home.up();
    let mount = &home.mount;
    (0..DIRECTORIES).for_each(|directory| fs::create_dir(mount.join(format!("d{directory}"))).expect("mkdir"));
    for file in 0..FILES {
        let first = mount.join(format!("d0/f{file}"));
        fs::write(&first, file.to_string()).expect("create");
        for directory in 1..DIRECTORIES {
            fs::hard_link(&first, mount.join(format!("d{directory}/f{file}"))).expect("link");
        }
    }
    for directory in (0..DIRECTORIES).step_by(3) {
        for file in (0..FILES).step_by(2) {
            let path = |file| mount.join(format!("d{directory}/f{file}"));
            exchange(&path(file), &path(file + 1)).expect("exchange");
        }
    }
    system("mkfifo", &[text(&mount.join("pipe"))]);
    system("mknod", &[text(&mount.join("null")), "c", "1", "3"]);
    fs::hard_link(mount.join("d0"), mount.join("d1/loop")).expect_err("a directory has one name");
    fs::create_dir(mount.join("d2/below")).expect("mkdir");
    exchange(&mount.join("d2"), &mount.join("d2/below")).expect_err("no directory lies in itself");
    fs::remove_dir(mount.join("d2/below")).expect("rmdir");
    verify(mount);
    File::open(mount).and_then(|directory| directory.sync_all()).expect("sync");
    system("sync", &["-f", text(mount)]);
    daemon.kill();
    let daemon = home.up();
    verify(mount);
    for directory in 1..DIRECTORIES {
        fs::remove_dir_all(mount.join(format!("d{directory}"))).expect("rm");
    }
    for file in 0..FILES {
        let path = mount.join(format!("d0/f{file}"));
        assert_eq!(fs::metadata(&path).expect("stat").nlink(), 1);
        assert_eq!(fs::read_to_string(&path).expect("it is there"), (file ^ 1).to_string());
    }
    daemon.terminate();
    home.check();
}

fn listed(directory: &Path) -> BTreeSet<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name().into_string().expect("text");
    fs::read_dir(directory).expect("it can be read").map(name).collect()
}

/// Pages of listings that the daemon was asked for.
fn pages_read(home: &Home) -> u64 {
    let told = succeed(&["profile", text(&home.data), "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let pages = told.as_array().and_then(|rows| rows.iter().find(|row| row["name"] == "readdir"));
    pages.map_or(0, |row| row["total"]["count"].as_u64().expect("a number"))
}

#[test]
fn the_kernel_keeps_a_listing_until_an_entry_changes() {
    let home = Home::new("listings");
    let _daemon = home.up();
    let (directory, other) = (home.mount.join("d"), home.mount.join("other"));
    fs::create_dir(&directory).expect("mkdir");
    fs::create_dir(&other).expect("mkdir");
    let mut wanted: BTreeSet<String> = (0..500).map(|number| format!("file-{number}")).collect();
    wanted.iter().for_each(|name| drop(File::create(directory.join(name)).expect("create")));
    fs::write(other.join("moved"), "m").expect("create");
    (0..3).for_each(|_| assert_eq!(listed(&directory), wanted));
    let before = pages_read(&home);
    (0..20).for_each(|_| assert_eq!(listed(&directory), wanted));
    assert_eq!(pages_read(&home), before, "what was listed is kept");
    let mut changed = |change: &dyn Fn(), gone: &str, new: &str| {
        change();
        wanted.remove(gone);
        wanted.extend((!new.is_empty()).then(|| new.to_string()));
        // The first fills what the kernel keeps, the second reads it.
        (0..2).for_each(|_| assert_eq!(listed(&directory), wanted, "after {gone} went and {new} came"));
    };
    let at = |name: &str| directory.join(name);
    changed(&|| drop(File::create(at("new")).expect("create")), "", "new");
    changed(&|| fs::remove_file(at("file-7")).expect("unlink"), "file-7", "");
    changed(&|| fs::rename(at("file-8"), at("renamed")).expect("rename"), "file-8", "renamed");
    changed(&|| fs::rename(at("file-9"), other.join("out")).expect("rename"), "file-9", "");
    changed(&|| fs::rename(other.join("moved"), at("moved")).expect("rename"), "", "moved");
    changed(&|| fs::rename(at("file-10"), at("file-11")).expect("rename"), "file-10", "");
    changed(&|| fs::hard_link(at("new"), at("linked")).expect("link"), "", "linked");
    changed(&|| std::os::unix::fs::symlink("new", at("symbolic")).expect("symlink"), "", "symbolic");
    changed(&|| fs::create_dir(at("inner")).expect("mkdir"), "", "inner");
    changed(&|| exchange(&at("inner"), &other.join("out")).expect("exchange"), "", "");
    assert!(fs::metadata(at("inner")).expect("stat").is_file());
    changed(&|| fs::remove_file(at("inner")).expect("unlink"), "inner", "");
}

/// Makes, renames, links and removes names of its own in a directory that others change and list too, until the time is over. A
/// listing shows what its maker did before it was opened. Returns the number of listings.
fn change_and_list(directory: &Path, worker: u64, until: Instant) -> u64 {
    let own = format!("{worker}-");
    let (mut random, mut listings) = (SplitMix(worker), 0);
    let mut names: Vec<String> = Vec::new();
    for round in 0u64.. {
        let name = format!("{own}{round}");
        let at = |name: &str| directory.join(name);
        let kind = random.below(10);
        let index = random.below(names.len().max(1) as u64) as usize;
        match kind {
            0..4 if names.len() < 200 => drop(File::create(at(&name)).expect("create")),
            4..7 if names.len() < 200 && !names.is_empty() => {
                fs::hard_link(at(&names[index]), at(&name)).expect("link");
            }
            _ if names.len() < 5 => drop(File::create(at(&name)).expect("create")),
            7 => fs::rename(at(&names.swap_remove(index)), at(&name)).expect("rename"),
            _ => {
                fs::remove_file(at(&names.swap_remove(index))).expect("unlink");
                continue;
            }
        }
        names.push(name);
        if round % 8 == 0 {
            if Instant::now() > until {
                break;
            }
            let found: BTreeSet<String> = listed(directory).into_iter().filter(|name| name.starts_with(&own)).collect();
            let wanted: BTreeSet<String> = names.iter().cloned().collect();
            let differs: Vec<_> = found.symmetric_difference(&wanted).collect();
            assert!(differs.is_empty(), "listing {listings} of worker {worker} is wrong about {differs:?}");
            listings += 1;
        }
    }
    listings
}

/// A listing that began without what the kernel keeps went on in what another one had kept meanwhile, with names from before its own
/// start: 429 of 8,656 listings lacked a name that was there, or had one that was gone.
#[test]
fn a_listing_shows_what_was_done_before_it_began() {
    let home = Home::new("since");
    let daemon = home.up();
    let directory = home.mount.join("d");
    fs::create_dir(&directory).expect("mkdir");
    let until = Instant::now() + Duration::from_secs(4);
    let listings: u64 = thread::scope(|scope| {
        let directory = &directory;
        let workers: Vec<_> =
            (1..3).map(|worker| scope.spawn(move || change_and_list(directory, worker, until))).collect();
        workers.into_iter().map(|worker| worker.join().expect("its listings are right")).sum()
    });
    assert!(listings > 200, "{listings} listings are too few to show it");
    daemon.terminate();
    home.check();
}
