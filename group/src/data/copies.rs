//! Reads of blocks whose home is on disk: from their copies on flash if there are some (`store::promote`), else from the
//! disk, and what is worth it is copied afterwards. A copy that can't be read or differs from its checksum is forgotten,
//! and the disk is read: clients never see the difference (rule K8).

use super::read::Begun;
use crate::Groups;
use base::limits::BLOCK_BYTES;
use base::{Crcs, Kind, Place, Result};
use runtime::{Buf, Need, Stage, Start};
use store::promote::{Look, Offer, Parts, Read, Reader};
use wire::Context;

/// The way to blocks.
pub(super) enum Via {
    /// They are read on disk, and some of them are copied then.
    Disk(Box<Offer>),
    /// Their copies are in one piece.
    Copy(Place),
    /// Their copies are in several.
    Pieces(Box<Parts>),
}

impl Via {
    /// The place to read at, if it is one.
    pub fn place(&self, home: Place) -> Place {
        if let Via::Copy(copy) = self { *copy } else { home }
    }
}

impl Groups {
    /// The way to blocks that a client asks for; None: they are read at home, and nothing comes of it. The reader's pin lives.
    pub(super) fn via(&self, reader: Reader, (place, blocks): (Place, u32)) -> Option<Via> {
        if self.store().is_on_disk(place) { self.look_for_copies((place, blocks), reader) } else { None }
    }
    #[cold]
    fn look_for_copies(&self, (place, count): (Place, u32), reader: Reader) -> Option<Via> {
        let store = self.store();
        let at_ns = store.runtime.clock.now_ns();
        assert!(count > 0 && store.is_on_disk(place), "what is on flash needs no copy there");
        match store.promotion.look(Read { place, count, reader, at_ns }) {
            Look::Disk => None,
            Look::Admitted(offer) => Some(Via::Disk(Box::new(offer))),
            Look::Copied(parts) => match parts.whole() {
                Some(copy) => Some(Via::Copy(copy)),
                None => Some(Via::Pieces(Box::new(parts))),
            },
        }
    }
    /// The place at which blocks are read that nobody has asked for yet.
    pub(super) fn place_ahead(&self, place: Place, blocks: u32) -> Place {
        match self.store().is_on_disk(place) {
            true => self.look_for_copies((place, blocks), Reader::Ahead).map_or(place, |via| via.place(place)),
            false => place,
        }
    }

    /// Reads blocks whose copies are in several pieces, all of them at the same time.
    pub(super) async fn read_pieces(
        &self,
        context: &Context,
        parts: &Parts,
        (home, crcs): (Place, &Crcs),
        mut buffer: Buf,
    ) -> Result<Buf> {
        let mut begun = Vec::new();
        for (place, blocks) in parts.iter() {
            let room = self.buffer(context, blocks as usize * BLOCK_BYTES, Need::Continuing).await?;
            begun.push((place, self.store().begin_read(place, room, Start::AtOnce)?));
        }
        let (mut at, mut is_whole) = (0, true);
        for (place, transfer) in begun {
            let done = transfer.await;
            self.mark_device(&context.span, Stage::Read, (done.held_ns, done.ended));
            let piece = done.buffer.expect("a read hands its buffer back");
            let (first, end) = (at, at + piece.len());
            let of_piece = crcs.as_slice()[first / BLOCK_BYTES..end / BLOCK_BYTES].iter().copied();
            if done.result.is_err() || store::verify(&piece, of_piece).is_err() {
                self.forget_copies(home.advance((first / BLOCK_BYTES) as u32), place, piece.len() / BLOCK_BYTES);
                is_whole = false;
            }
            buffer[first..end].copy_from_slice(&piece);
            at = end;
        }
        assert!(at == buffer.len(), "the pieces are all of what was asked for");
        context.span.mark(Stage::Verify, self.stamp());
        if is_whole { Ok(buffer) } else { self.read_home(context, (home, crcs), buffer).await }
    }
    /// Reads blocks at home, as their copy is bad.
    pub(super) async fn read_home(&self, context: &Context, (place, crcs): (Place, &Crcs), buffer: Buf) -> Result<Buf> {
        let transfer = self.store().begin_read(place, buffer, Start::AtOnce)?;
        let begun = Begun { transfer, place, crcs, at: 0, keep: false, via: None };
        Box::pin(self.end_read(context, begun)).await
    }
    /// Forgets the copies of a run of blocks.
    pub(super) fn forget_copies(&self, home: Place, copy: Place, blocks: usize) {
        assert!(self.store().is_on_disk(home) && !self.store().is_on_disk(copy), "copies are on flash");
        let at_ns = self.store().runtime.clock.now_ns();
        for number in 0..blocks as u32 {
            self.store().promotion.forget(home.advance(number), copy.advance(number), at_ns);
        }
    }
}

/// True for errors of a copy that its home does not share.
pub(super) fn is_of_copy(kind: Kind) -> bool {
    matches!(kind, Kind::Corrupt | Kind::Io)
}
