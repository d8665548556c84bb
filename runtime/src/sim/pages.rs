//! Sparse contents of a simulated file: 4 KiB pages, shared until written, so that a copy costs one reference per MiB
//! of data.

use base::limits::BLOCK_BYTES;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Size of a device's atomic write: the unit of tearing.
pub(super) const SECTOR_BYTES: usize = 512;
/// Sectors of a page.
pub(super) const SECTORS: usize = BLOCK_BYTES / SECTOR_BYTES;
/// Pages under one reference: 1 MiB, so that copying a file's map and un-sharing a part of it both stay small.
const EXTENT_PAGES: usize = 256;

/// One page's bytes.
pub(super) type Page = Arc<[u8; BLOCK_BYTES]>;

type Extent = [Option<Page>; EXTENT_PAGES];

/// Pages by number; missing ones read as zero.
#[derive(Clone, Default)]
pub(super) struct Pages {
    extents: BTreeMap<u64, Arc<Extent>>,
}

fn locate(page: u64) -> (u64, usize) {
    (page / EXTENT_PAGES as u64, (page % EXTENT_PAGES as u64) as usize)
}

impl Pages {
    /// A page, if it was ever written.
    pub(super) fn get(&self, page: u64) -> Option<&Page> {
        let (extent, slot) = locate(page);
        self.extents.get(&extent)?[slot].as_ref()
    }
    /// Replaces a page.
    pub(super) fn put(&mut self, page: u64, bytes: Page) {
        let (extent, slot) = locate(page);
        let extent = self.extents.entry(extent).or_insert_with(|| Arc::new([const { None }; EXTENT_PAGES]));
        Arc::make_mut(extent)[slot] = Some(bytes);
    }
    /// Forgets all pages from `page` up.
    pub(super) fn cut(&mut self, page: u64) {
        let (extent, slot) = locate(page);
        let mut tail = self.extents.split_off(&extent);
        if slot > 0
            && let Some(mut edge) = tail.remove(&extent)
        {
            Arc::make_mut(&mut edge)[slot..].fill(None);
            self.extents.insert(extent, edge);
        }
    }
    /// Copies bytes out, from `offset` on.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        let mut done = 0;
        while done < into.len() {
            let at = offset + done as u64;
            let within = (at % BLOCK_BYTES as u64) as usize;
            let take = (BLOCK_BYTES - within).min(into.len() - done);
            let target = &mut into[done..done + take];
            match self.get(at / BLOCK_BYTES as u64) {
                Some(page) => target.copy_from_slice(&page[within..within + take]),
                None => target.fill(0),
            }
            done += take;
        }
    }
    /// Changes one byte of a page by exclusive or; a page that was never written is left alone if `mask` finds none.
    pub(super) fn flip(&mut self, offset: u64, mask: u8) {
        let number = offset / BLOCK_BYTES as u64;
        let mut page = self.get(number).cloned().unwrap_or_else(|| Arc::new([0; BLOCK_BYTES]));
        Arc::make_mut(&mut page)[(offset % BLOCK_BYTES as u64) as usize] ^= mask;
        self.put(number, page);
    }
    /// Numbers and bytes of all pages that were written, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Page)> {
        self.extents.iter().flat_map(|(&extent, pages)| {
            let first = extent * EXTENT_PAGES as u64;
            pages.iter().enumerate().filter_map(move |(slot, page)| Some((first + slot as u64, page.as_ref()?)))
        })
    }
}

/// `old` with those sectors of `new` for which `taken` says so.
pub(super) fn mix(old: Option<&Page>, new: &Page, taken: &[bool]) -> Page {
    assert_eq!(taken.len(), SECTORS);
    let mut page = old.cloned().unwrap_or_else(|| Arc::new([0; BLOCK_BYTES]));
    let bytes = Arc::make_mut(&mut page);
    for (sector, _) in taken.iter().enumerate().filter(|(_, taken)| **taken) {
        let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
        bytes[range.clone()].copy_from_slice(&new[range]);
    }
    page
}
