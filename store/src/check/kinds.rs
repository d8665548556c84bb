//! The kind of an inode, as told by its row, its names and its content. Check and repair ask the same witnesses, so
//! that the check finds no fault with what the repair has mended.

use base::FileKind;

/// The kind that an inode's names tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Named {
    /// The kind told by the last name.
    pub kind: Option<FileKind>,
    /// Others say something else.
    torn: bool,
}

impl Named {
    /// Another name says this.
    pub fn add(&mut self, kind: FileKind) {
        self.torn |= self.kind.is_some_and(|said| said != kind);
        self.kind = Some(kind);
    }
    /// True if a name says anything else.
    pub fn contradict(&self, kind: FileKind) -> bool {
        self.torn || self.kind.is_some_and(|said| said != kind)
    }
}

/// All that tells of which kind an inode is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Witnesses {
    /// It is a volume's root.
    pub root: bool,
    /// Something lies in it.
    pub entries: bool,
    /// A leaf maps data of it.
    pub data: bool,
    /// There is a target of it.
    pub target: bool,
    /// Its names.
    pub names: Named,
    /// Its row.
    pub row: Option<FileKind>,
}

impl Witnesses {
    /// The inode's kind. Its content proves it, if it has any. Else its names tell it, each of which is two rows, if
    /// all agree; else its row.
    pub fn kind(&self) -> Option<FileKind> {
        if self.root {
            return Some(FileKind::Directory);
        }
        let proofs = [(self.entries, FileKind::Directory), (self.data, FileKind::File), (self.target, FileKind::Link)];
        let proved = proofs.iter().find(|(has, _)| *has).map(|(_, kind)| *kind);
        let told = if self.names.torn { [self.row, self.names.kind] } else { [self.names.kind, self.row] };
        let mut told = told.into_iter().flatten();
        // Where proofs contradict each other, that one is right which somebody confirms.
        let confirmed = told.clone().find(|kind| proofs.contains(&(true, *kind)));
        confirmed.or(proved).or_else(|| told.next())
    }
}

/// A kind in words.
pub(crate) fn word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Link => "symbolic link",
        FileKind::Fifo => "named pipe",
        FileKind::Socket => "socket",
        FileKind::Character => "character device",
        FileKind::BlockDevice => "block device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FileKind::{Directory, Fifo, File, Link, Socket};

    fn named(kinds: &[FileKind]) -> Named {
        let mut named = Named::default();
        kinds.iter().for_each(|kind| named.add(*kind));
        named
    }

    #[test]
    fn names_that_are_not_at_one_contradict_everything() {
        assert!(!named(&[]).contradict(File));
        assert!(!named(&[File, File]).contradict(File) && named(&[File, File]).contradict(Link));
        for torn in [[File, Link], [Link, File]] {
            assert!(named(&torn).contradict(File) && named(&torn).contradict(Link));
        }
    }

    #[test]
    fn contents_come_before_names_and_names_before_the_row() {
        let none = Witnesses::default();
        assert_eq!(none.kind(), None);
        let row = Witnesses { row: Some(Fifo), ..none };
        assert_eq!(row.kind(), Some(Fifo));
        let names = Witnesses { names: named(&[Socket, Socket]), ..row };
        assert_eq!(names.kind(), Some(Socket));
        // Names that say two things don't decide, unless nothing else is left.
        let torn = Witnesses { names: named(&[Socket, File]), ..row };
        assert_eq!(torn.kind(), Some(Fifo));
        assert_eq!(Witnesses { row: None, ..torn }.kind(), Some(File));
        for told in [none, row, names, torn] {
            assert_eq!(Witnesses { entries: true, ..told }.kind(), Some(Directory));
            assert_eq!(Witnesses { data: true, ..told }.kind(), Some(File));
            assert_eq!(Witnesses { target: true, ..told }.kind(), Some(Link));
            assert_eq!(Witnesses { root: true, data: true, ..told }.kind(), Some(Directory));
        }
    }

    #[test]
    fn of_contents_that_contradict_each_other_the_confirmed_ones_are_right() {
        let all = Witnesses { entries: true, data: true, target: true, ..Witnesses::default() };
        assert_eq!(all.kind(), Some(Directory));
        for kind in [Directory, File, Link] {
            assert_eq!(Witnesses { names: named(&[kind]), row: Some(Fifo), ..all }.kind(), Some(kind));
            assert_eq!(Witnesses { names: named(&[Fifo]), row: Some(kind), ..all }.kind(), Some(kind));
        }
    }
}
