//! The recording of a daemon's operations, for who takes it over the admin socket. The daemon writes no file: it hands out the
//! bytes of one.

use base::{Attr, Error, FileKind, Ino, Kind, Result, VolumeId};
use recording::{Begin, Deed, End, Entry, FileShape, Inode, NameKey, Operation, Writer};
use runtime::Runtime;
use runtime::ledger::{Taped, Taping};
use rustix::rand::{GetRandomFlags, getrandom};
use std::collections::HashSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A recording of which nothing is taken for so long has lost its command, and ends.
const ABANDONED: Duration = Duration::from_secs(10);
/// Most inodes whose first sight is noted. One more than these is described by what is done to it alone.
const KNOWN_MAX: usize = 1 << 20;
/// Most inodes that are looked at for one answer: a moment's work for a core.
const LOOKED_AT_MAX: usize = 1024;

/// An inode of a volume.
type Place = (u32, u64);

/// The daemon's recorder: one recording at a time.
#[derive(Default)]
pub struct Recorder {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of the last recording.
    number: u64,
    current: Option<Current>,
}

/// A recording under way.
struct Current {
    taping: Taping,
    /// Time at which something was taken last.
    taken: Instant,
    /// The inodes that have been met.
    known: HashSet<Place>,
}

/// A part of a recording.
pub struct Part {
    /// The recording's number.
    pub number: u64,
    /// The next bytes of its file.
    pub bytes: Vec<u8>,
}

impl Recorder {
    /// Begins a recording. `volumes`: their numbers and root directories. Errors: `Busy` if one is under way.
    pub fn begin(&self, runtime: &Runtime, volumes: Vec<(u32, u64)>) -> Result<Part> {
        let mut state = self.state.lock().expect("no panic while held");
        state.forget_abandoned();
        if state.current.is_some() {
            return Err(Error::new(Kind::Busy, "somebody else records this brick: wait for the end of that recording"));
        }
        if !runtime::OBSERVED {
            return Err(Error::new(Kind::Unsupported, "this build observes no requests: record with another one"));
        }
        let taping = runtime.ledger.start_tapes(new_key()?, runtime.clock.now_ns());
        state.number += 1;
        state.current = Some(Current { taping, taken: Instant::now(), known: HashSet::new() });
        let begin = Begin { version: crate::VERSION.to_string(), volumes };
        Ok(Part { number: state.number, bytes: Writer::begin(begin).finish() })
    }
    /// The operations since the last part; the last one ends the recording. `look`: the attributes of inodes, as far as they
    /// still exist.
    pub fn take(
        &self,
        runtime: &Runtime,
        number: u64,
        last: bool,
        look: impl FnOnce(Vec<(VolumeId, Ino)>) -> Result<Vec<(VolumeId, Attr)>>,
    ) -> Result<Part> {
        let mut state = self.state.lock().expect("no panic while held");
        let ours = state.number == number;
        let Some(current) = state.current.as_mut().filter(|_| ours) else {
            return Err(Error::new(Kind::Interrupted, "the recording has ended, as nothing was taken for 10 s"));
        };
        current.taken = Instant::now();
        let duration_ns = current.taping.age_ns(runtime.clock.now_ns());
        let mut writer = Writer::default();
        current.put(&mut writer, look)?;
        if last {
            writer.add(&Entry::End(End { dropped: current.taping.dropped(), duration_ns }));
            state.current = None;
        }
        Ok(Part { number, bytes: writer.finish() })
    }
    /// Ends a recording whose command is gone.
    pub fn forget_abandoned(&self) {
        // While it is held, somebody takes.
        if let Ok(mut state) = self.state.try_lock() {
            state.forget_abandoned();
        }
    }
}

impl State {
    fn forget_abandoned(&mut self) {
        self.current.take_if(|current| current.taken.elapsed() > ABANDONED);
    }
}

impl Current {
    fn put(
        &mut self,
        writer: &mut Writer,
        look: impl FnOnce(Vec<(VolumeId, Ino)>) -> Result<Vec<(VolumeId, Attr)>>,
    ) -> Result<()> {
        let operations: Vec<Operation> = self.taping.take().iter().map(told).collect();
        let unknown = self.meet(&operations);
        let found = if unknown.is_empty() { Vec::new() } else { look(unknown)? };
        for (volume, attr) in found {
            let inode = Inode { volume: volume.0, ino: attr.ino.0, shape: shape(&attr), size: attr.inode.size };
            writer.add(&Entry::Inode(inode));
        }
        operations.into_iter().for_each(|operation| writer.add(&Entry::Operation(operation)));
        Ok(())
    }
    /// Notes the inodes of these operations. Returns those that are met for the first time and were not made by one of them.
    fn meet(&mut self, operations: &[Operation]) -> Vec<(VolumeId, Ino)> {
        // Cores are emptied one after the other: an inode may be used before it is made, so to speak.
        let made = operations.iter().filter(|operation| makes(operation.deed));
        self.known.extend(made.map(|operation| (operation.volume, operation.made)));
        let mut unknown = Vec::new();
        for operation in operations {
            for ino in [operation.ino, operation.new_parent, operation.made] {
                let place = (operation.volume, ino);
                let is_new = ino != 0 && self.known.len() < KNOWN_MAX && unknown.len() < LOOKED_AT_MAX;
                if is_new && self.known.insert(place) {
                    unknown.push((VolumeId(operation.volume), Ino(ino)));
                }
            }
        }
        unknown
    }
}

/// A key that nobody can guess, and nobody keeps.
fn new_key() -> Result<NameKey> {
    let mut bytes = [0; 16];
    let got = getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|error| Error::os("the kernel gives no random bytes", error.raw_os_error()))?;
    assert_eq!(got, bytes.len(), "getrandom(2) gives up to 256 bytes at once");
    let (first, second) = bytes.split_at(8);
    Ok([first, second].map(|half| u64::from_le_bytes(half.try_into().expect("eight bytes"))))
}

fn makes(deed: Deed) -> bool {
    use Deed::{Create, CreateNode, MakeDir, MakeNode, SymLink, TempFile};
    matches!(deed, Create | CreateNode | MakeDir | MakeNode | SymLink | TempFile)
}

fn told(taped: &Taped) -> Operation {
    let operation = Operation::of_words(taped.words).expect("the front puts operations on the tapes");
    let Taped { start_ns, duration_ns, device_ns, reply_ns, .. } = *taped;
    Operation { start_ns, duration_ns, device_ns, reply_ns, ..operation }
}

fn shape(attr: &Attr) -> FileShape {
    match attr.inode.kind {
        FileKind::File => FileShape::File,
        FileKind::Directory => FileShape::Directory,
        FileKind::Link => FileShape::SymLink,
        _ => FileShape::Other,
    }
}
