//! The operations, and the files that they work on.

use crate::client::{Client, Told};
use crate::kernel::Message;
use base::Ino;
use runtime::random::SplitMix;
use std::collections::VecDeque;

/// One operation.
pub struct Operation {
    /// Its name in tables.
    pub name: &'static str,
    /// Number of times that it is done in a round.
    pub times: u64,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    OverwriteDirect,
    WriteSync,
    AppendFsync,
    WriteLarge,
    ReadLarge,
    ReadAgain,
    Lookup,
    GetAttr,
    CreateWriteFsync,
    Unlink,
    ReadDir,
}

const fn operation(name: &'static str, times: u64, kind: Kind) -> Operation {
    Operation { name, times, kind }
}

/// All operations. So many times that what happens once in a while evens out.
pub const OPERATIONS: [Operation; 12] = [
    operation("read-4k", 1000, Kind::Read),
    operation("overwrite-direct-4k", 1000, Kind::OverwriteDirect),
    operation("write-dsync-4k", 1000, Kind::WriteSync),
    operation("append-fsync-4k", 1000, Kind::AppendFsync),
    // As many as fill a segment: its summary is written once, wherever the round begins.
    operation("write-128k", 512, Kind::WriteLarge),
    operation("read-128k", 200, Kind::ReadLarge),
    operation("lookup", 1000, Kind::Lookup),
    operation("getattr", 1000, Kind::GetAttr),
    operation("create-write-fsync-close", 1000, Kind::CreateWriteFsync),
    operation("unlink", 1000, Kind::Unlink),
    operation("readdirplus-page", 200, Kind::ReadDir),
    operation("read-again-direct-4k", 1000, Kind::ReadAgain),
];

const BLOCK: u64 = 4096;
const LARGE: u64 = 128 << 10;
/// Bytes of the file that is read and overwritten: 4096 blocks, 128 large pieces.
const FILE_BYTES: u64 = 16 << 20;
/// Bytes of that file that are read again: so few that a round reads all of them.
const AGAIN_BYTES: u64 = 64 * BLOCK;
/// Writes past the page cache before they are made durable.
const DIRECT_PER_FSYNC: u64 = 50;
/// Files in the directory whose names are looked up.
const FILES: u64 = 1000;
/// A page of getdents as the kernel asks for it.
const PAGE_BYTES: u32 = 4096;

/// The brick's client, and what it works on.
pub struct Workload {
    client: Client,
    rng: SplitMix,
    payload: Vec<u8>,
    file: Ino,
    appended: Ino,
    files: Vec<Ino>,
    /// Files made for `Kind::CreateWriteFsync` and `Kind::Unlink`, and how many of these are gone.
    made: u64,
    unlinked: u64,
    known: VecDeque<Ino>,
    page_at: u64,
}

impl Workload {
    /// Makes the files.
    pub async fn new(client: Client) -> Workload {
        let payload = (0..LARGE).map(|at| (at % BLOCK % 251) as u8).collect();
        let (rng, none) = (SplitMix(1), Ino(0));
        let mut workload = Workload {
            client,
            rng,
            payload,
            file: none,
            appended: none,
            files: Vec::new(),
            made: 0,
            unlinked: 0,
            known: VecDeque::new(),
            page_at: 0,
        };
        workload.file = workload.create("file").await;
        workload.appended = workload.create("appended").await;
        for number in 0..FILE_BYTES / LARGE {
            workload.write(workload.file, number * LARGE, LARGE, 0).await;
        }
        for number in 0..FILES {
            let ino = workload.create(&format!("file-{number:04}")).await;
            workload.files.push(ino);
        }
        workload
    }
    /// Brings the brick into the state in which the operation is measured: nothing is left of other operations, and it
    /// has been done already.
    pub async fn prepare(&mut self, operation: &Operation) {
        if operation.kind == Kind::Unlink {
            while self.made < self.unlinked + 2 * operation.times {
                self.one(Kind::CreateWriteFsync).await;
            }
        }
        self.client.settle().await;
        self.round(operation).await;
    }
    /// Does it as often as it is to be done.
    pub async fn round(&mut self, operation: &Operation) {
        for number in 0..operation.times {
            self.one(operation.kind).await;
            // The log looks at all batches that are not durable yet: without this the world's clock would say how many.
            if operation.kind == Kind::OverwriteDirect && number % DIRECT_PER_FSYNC == 0 {
                self.fsync(self.file).await;
            }
        }
    }
    async fn one(&mut self, kind: Kind) {
        let (block, large) = (self.rng.below(FILE_BYTES / BLOCK) * BLOCK, self.rng.below(FILE_BYTES / LARGE) * LARGE);
        let any = self.rng.below(FILES);
        match kind {
            Kind::Read => self.read(block, BLOCK, 0).await,
            Kind::ReadAgain => self.read(block % AGAIN_BYTES, BLOCK, libc::O_DIRECT).await,
            Kind::ReadLarge => self.read(large, LARGE, 0).await,
            Kind::OverwriteDirect => self.write(self.file, block, BLOCK, libc::O_DIRECT).await,
            Kind::WriteSync => self.write(self.file, block, BLOCK, libc::O_DIRECT | libc::O_DSYNC).await,
            Kind::WriteLarge => self.write(self.file, large, LARGE, 0).await,
            Kind::AppendFsync => {
                self.write(self.appended, 0, BLOCK, libc::O_APPEND).await;
                self.fsync(self.appended).await;
            }
            Kind::Lookup => {
                let message = Message::lookup(self.client.unique(), self.client.root, &format!("file-{any:04}"));
                assert_eq!(self.inode(message).await, self.files[any as usize]);
            }
            Kind::GetAttr => {
                let ino = self.files[any as usize];
                assert_eq!(self.inode(Message::getattr(self.client.unique(), ino)).await, ino);
            }
            Kind::CreateWriteFsync => {
                let ino = self.create(&made(self.made)).await;
                self.made += 1;
                self.known.push_back(ino);
                self.write(ino, 0, BLOCK, 0).await;
                self.fsync(ino).await;
                self.done(Message::release(self.client.unique(), ino)).await;
            }
            Kind::Unlink => {
                let message = Message::unlink(self.client.unique(), self.client.root, &made(self.unlinked));
                self.unlinked += 1;
                self.done(message).await;
                // The kernel forgets at once what nobody has open.
                let ino = self.known.pop_front().expect("it was made");
                self.done(Message::forget(self.client.unique(), ino, 1)).await;
            }
            Kind::ReadDir => {
                let message = Message::read_dir_plus(self.client.unique(), self.client.root, self.page_at, PAGE_BYTES);
                let Told::Next(next) = self.client.request(&message, &[]).await else { panic!("a page is told") };
                self.page_at = next.unwrap_or(0);
            }
        }
    }

    async fn inode(&self, message: Message) -> Ino {
        let Told::Ino(ino) = self.client.request(&message, &[]).await else { panic!("an inode is told") };
        ino
    }
    async fn done(&self, message: Message) {
        assert!(matches!(self.client.request(&message, &[]).await, Told::Done));
    }
    async fn create(&self, name: &str) -> Ino {
        self.inode(Message::create(self.client.unique(), self.client.root, name, libc::O_RDWR | libc::O_CREAT)).await
    }
    async fn fsync(&self, ino: Ino) {
        self.done(Message::fsync(self.client.unique(), ino)).await;
    }
    async fn write(&self, ino: Ino, offset: u64, length: u64, flags: i32) {
        let message = Message::write(self.client.unique(), ino, offset, length as u32, flags);
        let told = self.client.request(&message, &self.payload[..length as usize]).await;
        assert!(matches!(told, Told::Wrote(wrote) if u64::from(wrote) == length));
    }
    async fn read(&self, offset: u64, length: u64, flags: i32) {
        let message = Message::read(self.client.unique(), self.file, offset, length as u32, flags);
        let Told::Bytes(bytes) = self.client.request(&message, &[]).await else { panic!("bytes are told") };
        assert!(bytes[..] == self.payload[..length as usize], "what was written is read");
    }
}

fn made(number: u64) -> String {
    format!("made-{number:06}")
}
