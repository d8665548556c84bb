//! Every byte that the store puts on a device, and nothing else: the one room that knows these layouts.
//! `docs/format/` draws them. Little-endian throughout, except index keys, whose order is their meaning.

pub mod batch;
pub mod bytes;
pub mod charge;
pub mod devices;
pub mod edits;
pub mod keys;
pub mod label;
pub mod layers;
pub mod leaf;
pub mod passages;
pub mod purge;
pub mod record;
pub mod reserve;
pub mod scrub;
pub mod segment;
pub mod summary;
pub mod superblock;
#[cfg(test)]
mod tests;
pub mod usage;
pub mod values;

/// A brick's identity, random at format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// A short number of the brick: two bricks hardly ever have the same.
    pub fn mark(self) -> u32 {
        let words = self.0.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        words.fold(0, |mark, word| mark ^ word)
    }
}

impl std::fmt::Display for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let dash = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}
