//! Directory listings: the index's page under the overlay's changes, walked by cookie, so that a listing is stable
//! while the directory changes (rule M2).

use crate::state::load::Wanted;
use crate::state::overlay::CookieEntry;
use crate::{Answer, CATALOGUE, Groups};
use base::limits::DIR_ENTRIES_MAX;
use base::{DirEntry, Error, Ino, Kind, Reply, Result, Volume};
use names::Seen;
use runtime::Stage;
use runtime::tasks::run_blocking;
use std::collections::BTreeMap;
use store::format::{keys, values};
use wire::Context;

type Page = BTreeMap<u64, CookieEntry>;

/// Largest number of inodes looked up under one acquisition of the lock: some microseconds.
const TOLD_AT_ONCE: usize = 64;

impl Groups {
    /// Entries of `dir` after `after`, at most `count`.
    pub(crate) async fn read_dir(
        &self,
        context: &Context,
        dir: Ino,
        after: u64,
        count: u32,
        plus: bool,
    ) -> Result<Answer> {
        if self.is_across() {
            Box::pin(self.free_to_list(context, dir)).await?;
        }
        if !self.attributes(context, dir).await?.inode.is_directory() {
            return Err(Error::new(Kind::NotDirectory, "only directories can be listed"));
        }
        let count = (count as usize).clamp(1, DIR_ENTRIES_MAX);
        let (page, next_cookie) = self.page(context, dir, after, count).await?;
        self.listed(context, dir);
        context.span.mark(Stage::Index, self.stamp());
        let mut entries: Vec<DirEntry> = page
            .into_iter()
            .map(|(cookie, (name, ino, kind))| DirEntry { cookie, ino, kind, name, attr: None })
            .collect();
        if plus {
            let filled = self.fill_attributes(context, dir, &mut entries).await;
            if filled.is_err() && context.keeps {
                // The client does not get this answer, so it does not learn of these inodes.
                let told = entries.iter().filter(|entry| entry.attr.is_some());
                told.for_each(|entry| drop(self.forget(context, entry.ino, 1)));
            }
            filled?;
        }
        Ok(Answer { reply: Reply::Entries { entries, next_cookie }, data: None, position: None })
    }

    fn listed(&self, context: &Context, dir: Ino) {
        let mut state = self.state(dir.group()).state.lock();
        // An access time is not worth a read of the index: if the inode has left the cache, it is not updated.
        if let Seen::Known(Some(inode)) = state.inode(context.volume, dir) {
            self.accessed(context, &mut state, dir, &inode);
        }
    }

    /// A page, and the cookie that the group would give out next.
    async fn page(&self, context: &Context, dir: Ino, after: u64, count: usize) -> Result<(Page, u64)> {
        let group = self.state(dir.group());
        loop {
            let (merges, young) = {
                let state = group.state.lock();
                (state.merges, state.is_young(dir))
            };
            let (mut page, full) =
                if young { (Page::new(), false) } else { self.indexed_page(context, dir, after, count).await? };
            let state = group.state.lock();
            if state.merges != merges {
                continue;
            }
            // Beyond the last row of a full page the index was not read: overlay entries there must wait.
            let end = if full { page.last_key_value().map_or(u64::MAX, |(&cookie, _)| cookie) } else { u64::MAX };
            for generation in state.frozen.as_deref().into_iter().chain([&state.active]) {
                let Some(cookies) = generation.cookies.get(&(context.volume, dir)) else { continue };
                for (&cookie, entry) in cookies.range(after.saturating_add(1)..=end) {
                    match entry {
                        Some(entry) => page.insert(cookie, entry.clone()),
                        None => page.remove(&cookie),
                    };
                }
            }
            let next_cookie = state.row.next_cookie;
            drop(state);
            if page.is_empty() && full {
                assert!(end > after, "a listing goes on behind cookie {end}");
                // Every row of the page has been removed in the overlay: read on behind the page.
                return Box::pin(self.page(context, dir, end, count)).await;
            }
            while page.len() > count {
                page.pop_last();
            }
            return Ok((page, next_cookie));
        }
    }

    /// The index's part of a page, and whether there is more.
    async fn indexed_page(&self, context: &Context, dir: Ino, after: u64, count: usize) -> Result<(Page, bool)> {
        let index = self.store().index.clone();
        let (from, to) = keys::cookies_after(context.volume, dir, after);
        let read = move || -> Result<(Page, bool)> {
            let rows = index.scan(&from, &to, count)?;
            let full = rows.len() == count;
            let entry =
                |(key, value): (Vec<u8>, Vec<u8>)| Ok((keys::cookie_number(&key), values::decode_cookie(&value)?));
            Ok((rows.into_iter().map(entry).collect::<Result<_>>()?, full))
        };
        self.in_pool(Some(&context.span), read).await
    }

    async fn fill_attributes(&self, context: &Context, dir: Ino, entries: &mut [DirEntry]) -> Result<()> {
        for _ in 0..2 {
            let mut missing = Vec::new();
            // Files lie in the group of their directory, so mostly one chunk has all entries.
            let known = |entry: &DirEntry| !self.is_across() || entry.ino.group() == dir.group();
            let same = |one: &DirEntry, other: &DirEntry| one.ino.group() == other.ino.group();
            for of_group in entries.chunk_by_mut(same).flat_map(|entries| entries.chunks_mut(TOLD_AT_ONCE)) {
                // Those of groups that another brick may lead are told there.
                if !known(&of_group[0]) {
                    continue;
                }
                self.tell_inodes(context, of_group, &mut missing);
            }
            if missing.is_empty() {
                return Ok(());
            }
            self.load(context.volume, missing, Some(&context.span)).await?;
        }
        Ok(())
    }

    /// Sets the attributes of entries whose inodes belong to one group. The client then knows these inodes.
    fn tell_inodes(&self, context: &Context, entries: &mut [DirEntry], missing: &mut Vec<Wanted>) {
        let mut state = self.state(entries[0].ino.group()).state.lock();
        for entry in entries.iter_mut().filter(|entry| entry.attr.is_none()) {
            let (seen, counted) = state.counted_inode(context.volume, entry.ino);
            match seen {
                Seen::Known(Some(inode)) => {
                    if context.keeps {
                        state.known.told((context.volume, context.session), entry.ino, inode.links == 0);
                    }
                    entry.attr = Some(state.attributes(context.volume, entry.ino, inode, counted));
                }
                Seen::Known(None) => {}
                _ => missing.push(Wanted::Inode(entry.ino)),
            }
        }
    }

    /// All volumes, by name.
    pub async fn volumes(&self) -> Result<Vec<Volume>> {
        let group = self.state(CATALOGUE);
        loop {
            let merges = group.state.lock().merges;
            let index = self.store().index.clone();
            let read = move || {
                let (from, to) = keys::volumes();
                index.scan(&from, &to, usize::MAX)
            };
            let rows = run_blocking(&*self.store().runtime.tasks, read).await?;
            let stored: Result<Vec<_>> = rows.iter().map(|(_, value)| values::decode_volume(value)).collect();
            let mut volumes: BTreeMap<_, _> =
                stored?.into_iter().map(|volume| (volume.name.clone(), Some(volume))).collect();
            let state = group.state.lock();
            if state.merges != merges {
                continue;
            }
            for generation in state.frozen.as_deref().into_iter().chain([&state.active]) {
                volumes.extend(generation.volumes.iter().map(|(name, volume)| (name.clone(), volume.clone())));
            }
            return Ok(volumes.into_values().flatten().collect());
        }
    }
}
