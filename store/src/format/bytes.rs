//! Reading and writing fields, bounds always checked.

use base::{Error, Kind, Result};

/// Appends fields to a byte vector.
pub struct Writer<'a>(pub &'a mut Vec<u8>);

impl Writer<'_> {
    /// One byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }
    /// Two bytes, little-endian.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    /// Four bytes, little-endian.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    /// Eight bytes, little-endian.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    /// Eight bytes, little-endian, two's complement.
    pub fn i64(&mut self, value: i64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    /// Bytes as they are, without length.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.0.extend_from_slice(value);
        self
    }
    /// A 16-bit length, then the bytes.
    pub fn counted(&mut self, value: &[u8]) -> &mut Self {
        self.u16(u16::try_from(value.len()).expect("counted fields are below 64 KiB"));
        self.bytes(value)
    }
}

/// Takes fields off a byte slice; anything missing is `Corrupt`.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }
    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        if count > self.rest.len() {
            return Err(Error::new(Kind::Corrupt, "a structure ends before its last field"));
        }
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        Ok(taken)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.bytes(N)?.try_into().expect("bytes() returned N bytes"))
    }
    /// One byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }
    /// Two bytes.
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    /// Eight bytes, signed.
    pub fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.array()?))
    }
    /// A 16-bit length, then as many bytes.
    pub fn counted(&mut self) -> Result<&'a [u8]> {
        let count = self.u16()?;
        self.bytes(usize::from(count))
    }
    /// Sixteen bytes.
    pub fn uuid(&mut self) -> Result<super::Uuid> {
        Ok(super::Uuid(self.array()?))
    }
    /// The bytes that have not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
    /// True at the end.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

/// `Corrupt`, naming the structure.
pub fn corrupt(what: &'static str) -> Error {
    Error::new(Kind::Corrupt, what)
}
