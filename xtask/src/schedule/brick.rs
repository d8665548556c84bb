//! A brick with two volumes, each mounted and with a file.

use crate::flash::ground::{Ground, make_directory, text, told};
use crate::flash::sides::{Places, in_own_session, serve};
use crate::flash::undo::Undo;
use crate::verdicts::load::lay_out;
use std::path::{Path, PathBuf};
use std::process::Child;

/// The volumes.
pub const VOLUMES: [&str; 2] = ["default", "other"];
/// More than the read cache of a daemon with this much memory.
const FILE_BYTES: u64 = 1 << 30;
const MEMORY: &str = "1G";

/// The brick.
pub struct Brick {
    binary: PathBuf,
    data: PathBuf,
    mounts: [PathBuf; 2],
    daemon: (Child, String),
}

impl Brick {
    /// Makes and mounts it.
    pub fn make(binary: &Path, ground: &Ground, undo: &Undo) -> Result<Brick, String> {
        let [data, log] = ["data", "log"].map(|name| ground.root.join(name));
        let mounts = VOLUMES.map(|volume| ground.root.join(volume));
        for mount in &mounts {
            make_directory(mount)?;
        }
        let places = Places { binary, brick: &data, mount: &mounts[0], log: &log };
        let daemon = serve(in_own_session(), places, &["--size", "6G", "--memory-max", MEMORY], undo)?;
        let brick = Brick { binary: binary.to_path_buf(), data, mounts, daemon };
        let data = text(&brick.data);
        brick.sinter(&["volume", "create", data, VOLUMES[1]])?;
        brick.sinter(&["mount", data, VOLUMES[1], text(&brick.mounts[1])])?;
        (0..2).try_for_each(|volume| lay_out(&brick.file(volume), FILE_BYTES, undo))?;
        Ok(brick)
    }
    /// A volume's file.
    pub fn file(&self, volume: usize) -> PathBuf {
        self.mounts[volume].join("file")
    }
    /// Changes the first volume.
    pub fn set(&self, words: &[&str]) -> Result<(), String> {
        self.sinter(&[&["volume", "set", text(&self.data), VOLUMES[0]], words].concat()).map(drop)
    }
    /// Ends the daemon.
    pub fn remove(self, undo: &Undo) -> Result<(), String> {
        self.sinter(&["down", text(&self.data)])?;
        let (mut daemon, how) = self.daemon;
        daemon.wait().map_err(|error| format!("{}: {error}", self.binary.display()))?;
        undo.forget(&how)
    }
    fn sinter(&self, arguments: &[&str]) -> Result<String, String> {
        told(text(&self.binary), arguments)
    }
}
