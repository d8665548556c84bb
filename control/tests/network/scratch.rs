//! A directory for one test, removed at its end.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("sinter-control-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("the temporary directory is writable");
        Scratch(path)
    }
    pub fn path(&self) -> &Path {
        &self.0
    }
    /// Locks it, as who assembles the real world does.
    pub fn lock(&self) -> base::Result<control::Held> {
        lock(&self.0)
    }
}

pub fn lock(path: &Path) -> base::Result<control::Held> {
    control::Held::lock(runtime::real::Directory::open(path)?, |from, to| std::fs::rename(from, to))
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
