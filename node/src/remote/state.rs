//! The directory of a mount's daemon, with its socket and its lock: it is there while the daemon is.
//!
//! Promises: whoever has the lock of such a directory has that of the one which is found under its name. To that end all who
//! make or remove one take turns, and the lock is taken within the turn. Nothing is removed that a daemon has not put there.
//! Absent by design: the lock itself, which is the brick's kind, and is taken by the cores' start.

use crate::admin::SOCKET;
use crate::directory;
use crate::failure::Failure;
use crate::host;
use base::{Error, Kind, Result};
use runtime::real::{Access, Directory};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The lock's name.
const LOCK: &str = "lock";
/// Longest wait for a turn. At boot all lines of /etc/fstab are mounted at once, and each has its turn while its cores start.
const TURN: Duration = Duration::from_secs(30);

/// A directory that is there, and that nobody else removes or locks before this is dropped.
pub struct Making {
    states: Directory,
    directory: Directory,
}

/// The directory of a daemon that has its lock. It is removed with this.
pub struct State {
    states: PathBuf,
    directory: Directory,
    is_removed: AtomicBool,
}

/// Makes the directory of a mount, in one below that of all, or takes one that a killed daemon has left.
pub fn make(states: &Path, path: PathBuf) -> std::result::Result<Making, Failure> {
    host::make_files_private();
    let failed = |error: std::io::Error| Failure::io(format!("can't make {}", path.display()), &error);
    std::fs::create_dir_all(states).map_err(failed)?;
    let turn = turn(states).map_err(|error| Failure::of(format!("can't make {}", path.display()), &error))?;
    std::fs::create_dir_all(path.parent().expect("it lies below the others")).map_err(failed)?;
    Ok(Making { states: turn, directory: directory::make(&path)? })
}

/// Waits until nobody else makes or removes a directory. Errors: `Busy`, if somebody does for long.
fn turn(states: &Path) -> Result<Directory> {
    let began = Instant::now();
    let states = Directory::open(states)?;
    while !states.hold()? {
        if began.elapsed() > TURN {
            let what = "another mount or its end takes long here: look whether a sinter process was stopped (T in `ps`), \
                        and try again";
            return Err(Error::new(Kind::Busy, what).with(states.path().display()));
        }
    }
    Ok(states)
}

impl Making {
    /// The directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }
    /// Lets others have their turn: this process has the lock.
    pub fn locked(self) -> State {
        let states = self.states.path().to_path_buf();
        State { states, directory: self.directory, is_removed: AtomicBool::new(false) }
    }
    /// Removes what was made in vain, unless it is another daemon's.
    pub fn give_up(self) {
        let is_free = match self.directory.file(LOCK, Access::Read) {
            Ok(lock) => lock.try_lock().is_ok(),
            Err(error) => error.kind == Kind::NotFound,
        };
        if is_free {
            remove(&self.directory);
        }
    }
}

impl State {
    /// The directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }
    /// Removes it, and the one above if that is empty then. The lock is still this process's.
    pub fn remove(&self) {
        // Without a turn it stays, as that of a killed daemon does: the next mount takes it.
        if !self.is_removed.swap(true, Ordering::Relaxed)
            && let Ok(_turn) = turn(&self.states)
        {
            remove(&self.directory);
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Removes a daemon's directory. One with something else in it stays, and so does one above that has others.
fn remove(directory: &Directory) {
    for name in [SOCKET, LOCK] {
        drop(std::fs::remove_file(directory.at(name)));
    }
    let path = directory.path();
    if std::fs::remove_dir(path).is_ok() {
        drop(std::fs::remove_dir(path.parent().expect("it lies below the others")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    fn place(states: &Path) -> PathBuf {
        states.join("prod/home")
    }
    /// Takes the lock as the cores' start does; None if somebody has it.
    fn lock(directory: &Directory) -> Option<File> {
        let made = directory.file(LOCK, Access::Create);
        let lock = made.or_else(|_| directory.file(LOCK, Access::Write)).expect("the directory is there");
        lock.try_lock().is_ok().then_some(lock)
    }

    #[test]
    fn nothing_is_left_and_nothing_of_others_is_removed() {
        let scratch = Scratch::new();
        let (states, prod) = (scratch.path().join("run"), scratch.path().join("run/prod"));
        let state = || {
            let making = make(&states, place(&states)).expect("ours");
            let lock = lock(making.directory()).expect("nobody has it");
            (making.locked(), lock)
        };
        drop(state());
        assert!(!prod.exists() && states.exists());
        std::fs::create_dir_all(prod.join("other")).expect("writable");
        drop(state());
        assert!(!prod.join("home").exists() && prod.join("other").exists(), "another volume's");
        let (there, lock) = state();
        make(&states, place(&states)).expect("ours").give_up();
        assert!(prod.join("home/lock").exists(), "it is locked");
        std::fs::write(prod.join("home/notes"), "mine").expect("writable");
        drop((there, lock));
        assert!(prod.join("home/notes").exists() && !prod.join("home/lock").exists());
        make(&states, place(&states)).expect("ours").give_up();
        std::fs::remove_file(prod.join("home/notes")).expect("it is there");
        make(&states, place(&states)).expect("ours").give_up();
        assert!(!prod.join("home").exists(), "made in vain");
    }

    #[test]
    fn who_has_the_lock_has_that_of_the_directory_which_is_there() {
        let scratch = Scratch::new();
        let states = scratch.path().join("run");
        let rounds = || {
            let mut held = 0;
            for _ in 0..300 {
                let making = make(&states, place(&states)).expect("ours");
                let Some(lock) = lock(making.directory()) else {
                    making.give_up();
                    continue;
                };
                let state = making.locked();
                let found = std::fs::metadata(states.join("prod/home/lock")).expect("the directory is there");
                assert_eq!(found.ino(), lock.metadata().expect("it is open").ino());
                held += 1;
                drop((state, lock));
            }
            held
        };
        // A busy machine may let one of them have all its turns.
        let held: u32 = std::thread::scope(|scope| {
            let threads = [0; 4].map(|_| scope.spawn(rounds));
            threads.into_iter().map(|thread| thread.join().expect("the lock is the directory's")).sum()
        });
        assert!(held > 0, "never held");
        assert!(!states.join("prod").exists());
    }
}
