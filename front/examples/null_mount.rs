//! Mounts a volume that keeps nothing, to measure what the front and the kernel's FUSE cost without a disk:
//! `null_mount DIRECTORY [SECONDS]`. Every name starting with "f" is a file of 1 GiB; reads give zeros, writes vanish.
//! Afterwards the ledger is printed: where the time of each operation went.

use base::{Attr, DirEntry, Error, FileKind, GroupId, Ino, Inode, Kind, Op, Reply, Result, SessionId, StatFs, Time};
use front::fuse::{self, Entries, Identity, MountOptions, OP_NAMES, Rings, Target};
use layer::{Answer, Call, Context};
use runtime::{Runtime, Shared};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const FILE_BYTES: u64 = 1 << 30;

struct Null {
    zeros: Shared,
}

fn root() -> Ino {
    Ino::new(1, GroupId(0))
}

fn attr(ino: Ino) -> Attr {
    let directory = ino == root();
    let kind = if directory { FileKind::Directory } else { FileKind::File };
    let zero = Time(0);
    let inode = Inode {
        kind,
        mode: 0o777,
        uid: 0,
        gid: 0,
        links: 1,
        rdev: 0,
        project: 0,
        generation: 0,
        size: if directory { 0 } else { FILE_BYTES },
        trim: 0,
        entries: 0,
        parent: root(),
        atime: zero,
        mtime: zero,
        ctime: zero,
        btime: zero,
        dead: false,
        xattrs: base::Attributes::default(),
        guard: base::Guard::default(),
    };
    Attr::new(ino, inode)
}

impl Target for Null {
    async fn call(&self, _: &Context, call: Call) -> Result<Answer> {
        let mut data = None;
        let reply = match call.op {
            Op::Read { length, .. } => {
                data = Some(self.zeros.slice(0..length as usize));
                Reply::Data { length }
            }
            Op::Write { .. } => {
                Reply::Wrote { offset: 0, length: call.data.as_ref().map_or(0, |data| data.len() as u32) }
            }
            Op::Lookup { name, .. } | Op::Create { name, .. } => {
                let bytes = name.as_bytes();
                if bytes[0] != b'f' {
                    return Err(Error::new(Kind::NotFound, "names start with f"));
                }
                let sum = bytes.iter().fold(7u64, |sum, &byte| sum * 31 % 1_000_003 + u64::from(byte));
                Reply::Attr(attr(Ino::new(sum, GroupId(1))))
            }
            Op::GetAttr { ino } | Op::Open { ino, .. } | Op::SetAttr { ino, .. } => Reply::Attr(attr(ino)),
            Op::GetXattr { .. } => return Err(Error::new(Kind::NoAttribute, "no file has any")),
            Op::ReadDir { .. } => Reply::Entries { entries: Vec::<DirEntry>::new(), next_cookie: 3 },
            Op::StatFs => Reply::StatFs(StatFs { size_bytes: 1 << 40, free_bytes: 1 << 40, inodes: 1 }),
            _ => Reply::Done,
        };
        Ok(Answer { reply, data, position: None })
    }
}

fn print(runtime: &Runtime) {
    for row in runtime.ledger.profile() {
        let total = &row.total;
        println!("{:>12} {:>10} mean {:>7} ns", row.name, total.count(), total.sum_ns() / total.count());
        for (stage, figures) in row.stages {
            println!("{:>24} mean {:>7} ns", stage.name(), figures.sum_ns() / total.count());
        }
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().expect("usage: null_mount DIRECTORY [SECONDS [uring]]"));
    let seconds = arguments.next().map_or(u64::MAX >> 1, |text| text.parse().expect("a number of seconds"));
    let over_rings = arguments.next().is_some_and(|name| name == "uring");
    let brick = std::env::temp_dir().join(format!("sinter-null-{}", std::process::id()));
    std::fs::create_dir_all(&brick).expect("a temporary directory");
    let options = runtime::real::Options::new(runtime::real::Directory::open(&brick)?, 1 << 30, OP_NAMES);
    let (runtime, reactors) = runtime::real::start(options)?;
    let rings = over_rings.then(|| Rings::new(&runtime, &Entries::of(&runtime))).transpose()?;
    let mount =
        fuse::mount(&MountOptions { path, source: "null".into(), restrictions: Vec::new(), shares: false }, rings)?;
    let mut zeros = runtime.buffer(1 << 20)?;
    zeros.fill(0);
    let identity = Identity { volume: base::VolumeId(1), root: root(), session: SessionId(1), brick: 7 };
    let serving = fuse::serve_target(&runtime, mount, Arc::new(Null { zeros: zeros.share() }), identity)?;
    if !serving.wait(Duration::from_secs(seconds)) {
        serving.stop(Duration::from_secs(10))?;
    }
    print(&runtime);
    drop(serving);
    drop(reactors);
    let _ = std::fs::remove_dir_all(brick);
    Ok(())
}
