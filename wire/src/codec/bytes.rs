//! Fields of bodies, little-endian, bounds always checked. Each value has one encoding only, so that what decodes encodes to the
//! same bytes.

use base::{Error, Kind, Result};

/// Appends fields.
pub(super) struct Put<'a>(pub &'a mut Vec<u8>);

impl Put<'_> {
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.0.extend_from_slice(value);
        self
    }
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }
    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.u8(u8::from(value))
    }
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    pub fn i64(&mut self, value: i64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    /// An 8-bit length, then the bytes.
    pub fn short(&mut self, value: &[u8]) -> &mut Self {
        self.u8(u8::try_from(value.len()).expect("names are below 256 bytes"));
        self.bytes(value)
    }
    /// A 32-bit length, then the bytes.
    pub fn long(&mut self, value: &[u8]) -> &mut Self {
        self.count(value.len()).bytes(value)
    }
    /// A last field, which is left out if it is empty: whoever knows nothing of it reads and writes what was always there. Else a
    /// 32-bit length, then the bytes.
    pub fn last(&mut self, value: &[u8], bytes_max: usize) -> &mut Self {
        assert!(value.len() <= bytes_max, "a last field keeps to its bound: {} bytes of {bytes_max}", value.len());
        if value.is_empty() { self } else { self.long(value) }
    }
    /// A last count, which is left out if it is 1.
    pub fn last_count(&mut self, count: u32) -> &mut Self {
        assert!(count > 0, "there is one at least");
        if count == 1 { self } else { self.u32(count) }
    }
    fn count(&mut self, count: usize) -> &mut Self {
        self.u32(u32::try_from(count).expect("a message has fewer items"))
    }
    /// A 32-bit number of items, then each by `put`.
    pub fn items<T>(&mut self, items: &[T], put: impl for<'x> Fn(&'x mut Self, &T) -> &'x mut Self) -> &mut Self {
        self.count(items.len());
        items.iter().for_each(|item| _ = put(self, item));
        self
    }
    /// A 1 and the value, or a 0.
    pub fn option<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T) -> &mut Self) -> &mut Self {
        self.bool(value.is_some());
        match value {
            Some(value) => put(self, value),
            None => self,
        }
    }
}

/// Takes fields off bytes; what is missing or impossible is `Corrupt`.
pub(super) struct Take<'a>(&'a [u8]);

impl<'a> Take<'a> {
    /// The value that `take` takes off `bytes`, which has none left then.
    pub fn all<T>(bytes: &'a [u8], take: impl FnOnce(&mut Take<'a>) -> Result<T>) -> Result<T> {
        let mut fields = Take(bytes);
        let value = take(&mut fields)?;
        if fields.0.is_empty() { Ok(value) } else { Err(corrupt("a message has bytes after its end")) }
    }
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some((taken, rest)) = self.0.split_at_checked(count) else {
            return Err(corrupt("a message ends before its last field"));
        };
        self.0 = rest;
        Ok(taken)
    }
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.bytes(N)?.try_into().expect("bytes() returned N bytes"))
    }
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }
    pub fn bool(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(corrupt("a message has a truth value that is neither")),
        }
    }
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    pub fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.array()?))
    }
    pub fn short(&mut self) -> Result<&'a [u8]> {
        let count = self.u8()?;
        self.bytes(usize::from(count))
    }
    pub fn long(&mut self) -> Result<&'a [u8]> {
        let count = self.u32()?;
        self.bytes(count as usize)
    }
    /// A last field, empty if there is none.
    pub fn last(&mut self, bytes_max: usize) -> Result<&'a [u8]> {
        if self.0.is_empty() {
            return Ok(&[]);
        }
        let value = self.long()?;
        let fits = (1..=bytes_max).contains(&value.len());
        if fits { Ok(value) } else { Err(corrupt("a message has a last field that is empty or too long")) }
    }
    /// A last field, at most this; 1 if there is none.
    pub fn last_count(&mut self, most: u32) -> Result<u32> {
        if self.0.is_empty() {
            return Ok(1);
        }
        let count = self.u32()?;
        let fits = (2..=most).contains(&count);
        if fits { Ok(count) } else { Err(corrupt("a message has a last count that is out of its range")) }
    }
    pub fn option<T>(&mut self, take: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        if self.bool()? { take(self).map(Some) } else { Ok(None) }
    }
    /// A count and as many items, each of which takes at least a byte: no memory is taken for items that can't be there.
    pub fn items<T>(&mut self, mut take: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let count = self.u32()? as usize;
        if count > self.0.len() {
            return Err(corrupt("a message ends before its last item"));
        }
        // Not collected: an iterator of results has no size from which memory would be taken at once.
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(take(self)?);
        }
        Ok(items)
    }
    /// Bits of which only those of `known` may be set.
    pub fn bits(&mut self, known: u8) -> Result<u8> {
        let bits = self.u8()?;
        if bits & !known == 0 { Ok(bits) } else { Err(corrupt("a message has a bit that is not known")) }
    }
}

/// `Corrupt`, naming what is wrong.
pub(super) fn corrupt(what: &'static str) -> Error {
    Error::new(Kind::Corrupt, what)
}
