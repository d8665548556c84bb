//! One simulated file by the durability model of `crate::disk`: the content that readers see, the content that a crash
//! can't take away, and the writes in between. Pure: time and scheduling are the disk's.

use super::image::{ImageFile, Survival};
use super::pages::{Page, Pages, SECTORS, mix};
use crate::random::SplitMix;
use base::limits::BLOCK_BYTES;
use std::sync::Arc;

/// Consecutive pages to be written.
#[derive(Clone)]
pub(super) struct Patch {
    /// Number of the first page.
    pub(super) first: u64,
    /// The pages' bytes.
    pub(super) pages: Vec<Page>,
}

/// A completed write that no flush has made durable; pages that a later durable write replaced are gone from it.
struct Volatile {
    sequence: u64,
    first: u64,
    pages: Vec<Option<Page>>,
    // A flush that covered it failed: later flushes don't cover it again, as on Linux, where a failed fsync marks
    // the pages clean.
    doomed: bool,
}

/// A file's contents.
#[derive(Default)]
pub(super) struct Content {
    live: Pages,
    durable: Pages,
    // In the order of their completion.
    volatile: Vec<Volatile>,
    length: u64,
    durable_length: u64,
    // Lengths set since the last flush that covered one, with the moment of each.
    lengths: Vec<(u64, u64)>,
}

impl Patch {
    /// The bytes of the slices one after the other, as pages from `offset` on.
    pub(super) fn new<'a>(offset: u64, slices: impl Iterator<Item = &'a [u8]>) -> Patch {
        let pages = slices.flat_map(|slice| slice.chunks_exact(BLOCK_BYTES));
        let pages = pages.map(|bytes| {
            let mut page: Page = Arc::new([0; BLOCK_BYTES]);
            Arc::make_mut(&mut page).copy_from_slice(bytes);
            page
        });
        Patch { first: offset / BLOCK_BYTES as u64, pages: pages.collect() }
    }
    /// Number of bytes that it writes.
    pub(super) fn bytes(&self) -> u64 {
        (self.pages.len() * BLOCK_BYTES) as u64
    }
    /// The part of it that is left when the device tears it.
    pub(super) fn tear(&self, pages: &Pages, rng: &mut SplitMix) -> Patch {
        let taken = torn_sectors(self.pages.len() * SECTORS, rng);
        let torn = self.pages.iter().zip(taken.chunks_exact(SECTORS)).enumerate();
        let torn = torn.map(|(at, (page, taken))| mix(pages.get(self.first + at as u64), page, taken));
        Patch { first: self.first, pages: torn.collect() }
    }
}

/// Decides which of `count` sectors reach the medium: the first ones, the last ones, or any. (Any alone would hardly
/// ever give the others.)
fn torn_sectors(count: usize, rng: &mut SplitMix) -> Vec<bool> {
    let edge = rng.below(count as u64 + 1) as usize;
    match rng.below(3) {
        0 => (0..count).map(|sector| sector < edge).collect(),
        1 => (0..count).map(|sector| sector >= edge).collect(),
        _ => (0..count).map(|_| rng.one_in(2)).collect(),
    }
}

impl Content {
    /// A file as a crash left it: all of it durable.
    pub(super) fn from_image(image: &ImageFile) -> Content {
        Content {
            live: image.pages.clone(),
            durable: image.pages.clone(),
            length: image.length,
            durable_length: image.length,
            ..Content::default()
        }
    }
    /// Length of the file in bytes.
    pub(super) fn length(&self) -> u64 {
        self.length
    }
    /// The content that readers see.
    pub(super) fn live(&self) -> &Pages {
        &self.live
    }
    /// Grows the file.
    pub(super) fn grow(&mut self, length: u64, sequence: u64) {
        assert!(length > self.length, "a file only grows");
        self.length = length;
        self.lengths.push((sequence, length));
    }
    /// Gives all space back, durably at once: nobody reads its bytes.
    pub(super) fn release(&mut self) {
        *self = Content::default();
    }
    /// A write completes at moment `sequence`.
    pub(super) fn write(&mut self, patch: Patch, sequence: u64, durable: bool) {
        for (page, bytes) in (patch.first..).zip(&patch.pages) {
            self.live.put(page, bytes.clone());
        }
        let pages = patch.pages.into_iter().map(Some).collect();
        let write = Volatile { sequence, first: patch.first, pages, doomed: false };
        if durable {
            settle(&mut self.durable, &mut self.volatile, write);
        } else {
            self.volatile.push(write);
        }
    }
    /// A flush completes that was submitted at moment `covers`.
    pub(super) fn flush(&mut self, covers: u64) {
        let covered = self.volatile.partition_point(|write| write.sequence <= covers);
        let later = self.volatile.split_off(covered);
        let mut doomed = Vec::new();
        for write in self.volatile.drain(..) {
            match write.doomed {
                true => doomed.push(write),
                false => settle(&mut self.durable, &mut doomed, write),
            }
        }
        self.volatile = doomed;
        self.volatile.extend(later);
        let covered = self.lengths.partition_point(|&(sequence, _)| sequence <= covers);
        self.durable_length =
            self.lengths.drain(..covered).next_back().map_or(self.durable_length, |(_, length)| length);
    }
    /// A flush that was submitted at moment `covers` fails: what it covered stays volatile for good.
    pub(super) fn fail_flush(&mut self, covers: u64) {
        let covered = self.volatile.iter_mut().filter(|write| write.sequence <= covers);
        covered.for_each(|write| write.doomed = true);
    }
    /// Rots the byte at `offset` wherever it is kept.
    pub(super) fn flip(&mut self, offset: u64, mask: u8) {
        let page = offset / BLOCK_BYTES as u64;
        self.live.flip(offset, mask);
        self.durable.flip(offset, mask);
        for write in &mut self.volatile {
            let slot = page.checked_sub(write.first).and_then(|at| write.pages.get_mut(at as usize));
            if let Some(Some(bytes)) = slot {
                Arc::make_mut(bytes)[(offset % BLOCK_BYTES as u64) as usize] ^= mask;
            }
        }
    }
    /// The file after a crash, with `in_flight` writes not yet completed.
    pub(super) fn crash(&self, in_flight: &[&Patch], fates: &mut Fates) -> ImageFile {
        let length = fates.length(self.durable_length, &self.lengths);
        let mut pages = self.durable.clone();
        for write in &self.volatile {
            fates.apply(&mut pages, write.first, &write.pages);
        }
        for patch in fates.shuffle(in_flight) {
            let whole: Vec<_> = patch.pages.iter().cloned().map(Some).collect();
            fates.apply(&mut pages, patch.first, &whole);
        }
        pages.cut(length.div_ceil(BLOCK_BYTES as u64));
        ImageFile { length, pages }
    }
}

/// Makes one write durable; the data of `earlier` writes in its place can no longer come back.
fn settle(durable: &mut Pages, earlier: &mut [Volatile], write: Volatile) {
    let end = write.first + write.pages.len() as u64;
    for other in earlier {
        assert!(other.sequence < write.sequence, "writes become durable in the order of their completion");
        let other_end = other.first + other.pages.len() as u64;
        for page in write.first.max(other.first)..end.min(other_end) {
            other.pages[(page - other.first) as usize] = None;
        }
    }
    for (page, bytes) in (write.first..).zip(write.pages) {
        if let Some(bytes) = bytes {
            durable.put(page, bytes);
        }
    }
}

/// Decides what a crash takes away.
pub(super) struct Fates<'a> {
    survival: Survival,
    rng: &'a mut SplitMix,
    // Chances of (whole, torn) in 16 for this crash; the rest is lost. Drawn per crash, since real crashes differ:
    // in one the cache had just been written out, in another it was full.
    whole: u64,
    torn: u64,
}

impl<'a> Fates<'a> {
    /// The decisions for one crash.
    pub(super) fn new(survival: Survival, rng: &'a mut SplitMix) -> Fates<'a> {
        let (whole, torn) = match rng.below(3) {
            0 => (5, 6),
            1 => (13, 2),
            _ => (1, 2),
        };
        Fates { survival, rng, whole, torn }
    }
    /// Decides whether a change survives that survives as a whole or not at all.
    pub(super) fn survives(&mut self) -> bool {
        match self.survival {
            Survival::Nothing => false,
            Survival::Everything => true,
            Survival::Random => self.rng.below(16) < self.whole + self.torn / 2,
        }
    }
    fn length(&mut self, durable: u64, later: &[(u64, u64)]) -> u64 {
        let survivors = match self.survival {
            Survival::Nothing => 0,
            Survival::Everything => later.len(),
            Survival::Random => self.rng.below(later.len() as u64 + 1) as usize,
        };
        later[..survivors].last().map_or(durable, |&(_, length)| length)
    }
    fn shuffle<'p>(&mut self, patches: &[&'p Patch]) -> Vec<&'p Patch> {
        let mut rest = patches.to_vec();
        let mut order = Vec::with_capacity(rest.len());
        while !rest.is_empty() {
            order.push(rest.swap_remove(self.rng.below(rest.len() as u64) as usize));
        }
        order
    }
    fn fate(&mut self) -> Fate {
        match self.survival {
            Survival::Nothing => Fate::Lost,
            Survival::Everything => Fate::Whole,
            Survival::Random => match self.rng.below(16) {
                draw if draw < self.whole => Fate::Whole,
                draw if draw < self.whole + self.torn => Fate::Torn,
                _ => Fate::Lost,
            },
        }
    }
    fn apply(&mut self, pages: &mut Pages, first: u64, write: &[Option<Page>]) {
        let taken = match self.fate() {
            Fate::Lost => return,
            Fate::Whole => vec![true; write.len() * SECTORS],
            Fate::Torn => torn_sectors(write.len() * SECTORS, self.rng),
        };
        for ((page, bytes), taken) in (first..).zip(write).zip(taken.chunks_exact(SECTORS)) {
            let Some(bytes) = bytes else { continue };
            if !taken.contains(&false) {
                pages.put(page, bytes.clone());
            } else if taken.contains(&true) {
                pages.put(page, mix(pages.get(page), bytes, taken));
            }
        }
    }
}

enum Fate {
    Whole,
    Torn,
    Lost,
}
