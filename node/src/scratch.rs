//! A directory for one test, removed at its end. Tests only.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// See the module.
pub struct Scratch(PathBuf);

impl Scratch {
    /// An empty directory below the system's directory for temporary files.
    pub fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("sinter-node-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("the temporary directory is writable");
        Scratch(path)
    }
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
