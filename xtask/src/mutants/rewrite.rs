//! Writes a source file with switches: of each place both what is there and its change, and the number by which a process
//! chooses the change.

use crate::mutants::sites::{Change, Site};
use std::collections::BTreeMap;
use std::ops::Range;

/// A file with switches, and where in it each one lies.
pub struct Rewritten {
    pub text: String,
    /// Bytes of the new text, by number.
    pub places: BTreeMap<u32, Range<usize>>,
}

/// Writes `text` with a switch for each site, by its number.
pub fn rewritten(text: &str, sites: &[(u32, &Site)]) -> Rewritten {
    let mut ordered = sites.to_vec();
    // Who contains others comes before them.
    ordered.sort_by_key(|(number, site)| (site.place.start, std::cmp::Reverse(site.place.end), *number));
    let mut writer = Writer { text, new: Rewritten { text: String::new(), places: BTreeMap::new() } };
    writer.write(0..text.len(), &ordered);
    writer.new
}

struct Writer<'a> {
    text: &'a str,
    new: Rewritten,
}

impl Writer<'_> {
    /// Writes these bytes, with the switches within them.
    fn write(&mut self, bytes: Range<usize>, mut sites: &[(u32, &Site)]) {
        let mut at = bytes.start;
        while let [(number, site), rest @ ..] = sites {
            self.copy(at..site.place.start);
            let inner = rest.iter().take_while(|(_, other)| other.place.end <= site.place.end).count();
            let start = self.new.text.len();
            self.switch(*number, site, &rest[..inner]);
            self.new.places.insert(*number, start..self.new.text.len());
            at = site.place.end;
            sites = &rest[inner..];
        }
        self.copy(at..bytes.end);
    }
    fn switch(&mut self, number: u32, site: &Site, inner: &[(u32, &Site)]) {
        let on = format!("::base::mutants::on({number})");
        match &site.change {
            Change::Expression(changed) => {
                self.new.text += &format!("(if {on} {{ {changed} }} else {{ ");
                self.write(site.place.clone(), inner);
                self.new.text += " })";
            }
            Change::LeftOut => {
                self.new.text += &format!("if !{on} {{ ");
                self.write(site.place.clone(), inner);
                self.new.text += " }";
            }
            Change::Returns(value) => {
                self.new.text += &format!(" if {on} {{ return {value}; }} ");
                // Another one begins in the same place.
                self.write(site.place.clone(), inner);
            }
        }
    }
    fn copy(&mut self, bytes: Range<usize>) {
        self.new.text += &self.text[bytes];
    }
}
