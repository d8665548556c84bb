//! The layout of a tracepoint's records, from the kernel's description of it (the file `format`). Promises that a
//! description that ends early or is odd is refused, and that no record makes a reader go beyond its end.

use base::{Error, Kind, Result};

/// Longest record that a description may speak of: the kernel's own limit for one event.
const RECORD_BYTES_MAX: usize = 8192;

/// The place of a field in its records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Field {
    offset: usize,
    bytes: usize,
}

impl Field {
    /// The field's bytes; None if the record ends before.
    pub fn bytes(self, record: &[u8]) -> Option<&[u8]> {
        record.get(self.offset..self.offset + self.bytes)
    }
    /// The field as a number without sign; None if the record ends before.
    pub fn number(self, record: &[u8]) -> Option<u64> {
        let mut number = [0u8; 8];
        let bytes = self.bytes(record)?;
        assert!(bytes.len() <= number.len(), "numbers were looked up as such");
        if cfg!(target_endian = "little") {
            number[..bytes.len()].copy_from_slice(bytes);
        } else {
            number[8 - bytes.len()..].copy_from_slice(bytes);
        }
        Some(u64::from_ne_bytes(number))
    }
}

/// The description of a tracepoint.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    /// Its number, which each record begins with.
    pub id: u16,
    fields: Vec<(&'a str, Field)>,
}

impl<'a> Layout<'a> {
    /// Reads a description. Errors: `Host` if it is not whole, or not as kernels write it.
    pub fn parse(text: &'a str) -> Result<Layout<'a>> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:")?.trim().parse().ok());
        let lines = text.lines().map(str::trim).filter(|line| line.starts_with("field:"));
        let fields: Option<Vec<_>> = lines.map(field).collect();
        // It is the last line, behind all fields.
        let is_whole = text.lines().any(|line| line.starts_with("print fmt:"));
        match (id, fields) {
            (Some(id), Some(fields)) if is_whole => Ok(Layout { id, fields }),
            _ => Err(odd("is not whole, or not as kernels write it")),
        }
    }
    /// A field that holds a number.
    pub fn number(&self, name: &str) -> Result<Field> {
        self.find(name, |bytes| [1, 2, 4, 8].contains(&bytes))
    }
    /// A field that holds a text of fixed length.
    pub fn text(&self, name: &str) -> Result<Field> {
        self.find(name, |bytes| (1..=64).contains(&bytes))
    }
    fn find(&self, name: &str, fits: impl Fn(usize) -> bool) -> Result<Field> {
        let found = self.fields.iter().find(|(known, _)| *known == name).map(|&(_, field)| field);
        let fitting = found.filter(|field| fits(field.bytes));
        fitting.ok_or_else(|| odd("has another shape than this version of Sinter knows").with(name))
    }
}

fn odd(what: &str) -> Error {
    Error::new(Kind::Host, "the kernel's description of a tracepoint can't be used").with(what)
}

/// `field:char rwbs[10]; offset:34; size:10; signed:0;`; None if it is no such line.
fn field(line: &str) -> Option<(&str, Field)> {
    let mut parts = line.strip_prefix("field:")?.split(';').map(str::trim);
    let declared = parts.next()?.split_whitespace().last()?;
    let name = declared.split('[').next()?;
    let offset: usize = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
    let bytes: usize = parts.next()?.strip_prefix("size:")?.parse().ok()?;
    let ends_within = offset.checked_add(bytes).is_some_and(|end| end <= RECORD_BYTES_MAX);
    ends_within.then_some((name, Field { offset, bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "\
name: block_rq_issue
ID: 2104
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;
\tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;
\tfield:__data_loc char[] cmd;\toffset:60;\tsize:4;\tsigned:0;

print fmt: \"%d\", REC->sector
";

    #[test]
    fn fields_are_found_by_name() {
        let layout = Layout::parse(WHOLE).expect("a kernel's own");
        assert_eq!(layout.id, 2104);
        assert_eq!(layout.number("sector").expect("there"), Field { offset: 16, bytes: 8 });
        assert_eq!(layout.text("rwbs").expect("there"), Field { offset: 34, bytes: 10 });
        assert_eq!(layout.number("cmd").expect("there"), Field { offset: 60, bytes: 4 });
        for (what, refused) in [("absent", layout.number("secto")), ("no number", layout.number("rwbs"))] {
            assert_eq!(refused.expect_err(what).kind, Kind::Host);
        }
    }

    #[test]
    fn a_description_cut_short_anywhere_is_refused() {
        let last = WHOLE.find("print fmt:").expect("there") + "print fmt:".len();
        for end in 0..last {
            let refused = Layout::parse(&WHOLE[..end]).expect_err("cut short");
            assert!(refused.kind == Kind::Host && refused.to_string().contains("not whole"), "{end}: {refused}");
        }
        Layout::parse(&WHOLE[..last]).expect("all fields are there");
    }

    #[test]
    fn odd_descriptions_are_refused() {
        let odd = [
            WHOLE.replace("ID: 2104", "ID: 70000"),
            WHOLE.replace("ID: 2104", "ID: -1"),
            WHOLE.replace("offset:16", "offset:8190"),
            WHOLE.replace("offset:16", "offset:18446744073709551615"),
            WHOLE.replace("size:8", "size:x"),
            WHOLE.replace("offset:16;", ""),
        ];
        assert!(odd.iter().all(|text| Layout::parse(text).is_err()));
    }

    #[test]
    fn a_record_that_ends_early_has_no_such_field() {
        let field = Layout::parse(WHOLE).expect("whole").number("sector").expect("there");
        let record: Vec<u8> = (0..24).collect();
        assert_eq!(field.number(&record), Some(u64::from_ne_bytes([16, 17, 18, 19, 20, 21, 22, 23])));
        assert_eq!((field.number(&record[..23]), field.number(&[])), (None, None));
        let short = Field { offset: 0, bytes: 2 };
        assert_eq!(short.number(&[1, 2, 3]), Some(u64::from(u16::from_ne_bytes([1, 2]))));
    }
}
