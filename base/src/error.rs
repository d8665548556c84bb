//! The product's one error type. Callers act on the kind or on its remedy, never on the text.

use std::fmt;

/// The kind of an error. The list is closed, so that every kind has an errno and a remedy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// No such entry, inode or volume.
    NotFound,
    /// The name is taken.
    Exists,
    /// The directory has entries.
    NotEmpty,
    /// A directory is needed.
    NotDirectory,
    /// A directory can't be used here.
    IsDirectory,
    /// A name is over 255 bytes.
    NameTooLong,
    /// An argument is out of its domain.
    Invalid,
    /// Offset or size over the maximum.
    TooLarge,
    /// Too many links.
    TooManyLinks,
    /// EXDEV: the inode would leave its project.
    OtherProject,
    /// The caller may not do this.
    Permission,
    /// The inode has no attribute of this name.
    NoAttribute,
    /// The handle or inode number is of an inode that is gone.
    Stale,
    /// The object, or this version of Sinter, does not support the operation.
    Unsupported,
    /// No free segment, or no space for this kind of change: data, names and deletions stop at different levels (rule
    /// K5).
    NoSpace,
    /// The volume holds as much as its size allows.
    Quota,
    /// The brick or mount takes no changes.
    ReadOnly,
    /// EDEADLK: the owner of a lock would wait for itself.
    Deadlock,
    /// ENOLCK: a mount has as many locks as one may have.
    NoLocks,
    /// The session is over, or the request is older than what its client has the answers of.
    Fenced,
    /// Another brick leads the group, or soon will: who asks there gets the answer. Nobody but routers sees it.
    Elsewhere,
    /// Another process or mount uses the brick, volume or directory.
    Busy,
    /// A device, or the kernel, refused an I/O.
    Io,
    /// Bytes contradict their checksum or format.
    Corrupt,
    /// Written by a newer version.
    Newer,
    /// The deadline passed or the daemon is stopping.
    Interrupted,
    /// The host lacks something that is needed (io_uring, FUSE, memory).
    Host,
}

/// The action by which a caller answers an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remedy {
    /// Tell the client: its request can't be done as asked.
    RefuseClient,
    /// Ask again later; nothing was changed.
    Retry,
    /// Another copy or a repair tool is needed.
    Repair,
    /// The brick must stop taking changes.
    StopBrick,
    /// The operator must change the host or the command.
    Operator,
}

impl Kind {
    /// Every kind, for tests that cover them all.
    pub const ALL: [Kind; 27] = [
        Kind::NotFound,
        Kind::Exists,
        Kind::NotEmpty,
        Kind::NotDirectory,
        Kind::IsDirectory,
        Kind::NameTooLong,
        Kind::Invalid,
        Kind::TooLarge,
        Kind::TooManyLinks,
        Kind::OtherProject,
        Kind::Permission,
        Kind::NoAttribute,
        Kind::Stale,
        Kind::Unsupported,
        Kind::NoSpace,
        Kind::Quota,
        Kind::ReadOnly,
        Kind::Deadlock,
        Kind::NoLocks,
        Kind::Fenced,
        Kind::Elsewhere,
        Kind::Busy,
        Kind::Io,
        Kind::Corrupt,
        Kind::Newer,
        Kind::Interrupted,
        Kind::Host,
    ];

    /// The kind's name in commands and in the catalogue. It never changes.
    pub fn name(self) -> &'static str {
        match self {
            Kind::NotFound => "not-found",
            Kind::Exists => "exists",
            Kind::NotEmpty => "not-empty",
            Kind::NotDirectory => "not-directory",
            Kind::IsDirectory => "is-directory",
            Kind::NameTooLong => "name-too-long",
            Kind::Invalid => "invalid",
            Kind::TooLarge => "too-large",
            Kind::TooManyLinks => "too-many-links",
            Kind::OtherProject => "other-project",
            Kind::Permission => "permission",
            Kind::NoAttribute => "no-attribute",
            Kind::Stale => "stale",
            Kind::Unsupported => "unsupported",
            Kind::NoSpace => "no-space",
            Kind::Quota => "quota",
            Kind::ReadOnly => "read-only",
            Kind::Deadlock => "deadlock",
            Kind::NoLocks => "no-locks",
            Kind::Fenced => "fenced",
            Kind::Elsewhere => "elsewhere",
            Kind::Busy => "busy",
            Kind::Io => "io",
            Kind::Corrupt => "corrupt",
            Kind::Newer => "newer",
            Kind::Interrupted => "interrupted",
            Kind::Host => "host",
        }
    }
    /// The kind of this name.
    pub fn of_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The Linux errno (positive) that a file system client sees.
    pub fn errno(self) -> i32 {
        match self {
            Kind::NotFound => 2,
            Kind::Io | Kind::Corrupt | Kind::Fenced => 5,
            Kind::Elsewhere => 11,
            Kind::Busy => 16,
            Kind::Exists => 17,
            Kind::NotDirectory => 20,
            Kind::IsDirectory => 21,
            Kind::Invalid | Kind::Newer => 22,
            Kind::TooLarge => 27,
            Kind::NoSpace => 28,
            Kind::ReadOnly => 30,
            Kind::TooManyLinks => 31,
            Kind::OtherProject => 18,
            Kind::Deadlock => 35,
            Kind::NameTooLong => 36,
            Kind::NoLocks => 37,
            Kind::NotEmpty => 39,
            Kind::Permission => 1,
            Kind::NoAttribute => 61,
            Kind::Stale => 116,
            Kind::Quota => 122,
            Kind::Unsupported => 95,
            Kind::Interrupted => 4,
            Kind::Host => 38,
        }
    }

    /// The caller's answer to an error of this kind.
    pub fn remedy(self) -> Remedy {
        match self {
            Kind::Corrupt => Remedy::Repair,
            Kind::Io => Remedy::StopBrick,
            Kind::Busy | Kind::Interrupted | Kind::Elsewhere => Remedy::Retry,
            Kind::Newer | Kind::Host | Kind::ReadOnly => Remedy::Operator,
            _ => Remedy::RefuseClient,
        }
    }
}

/// An error: its kind, what failed, and context for the operator.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    /// The kind, by which callers decide what to do.
    pub kind: Kind,
    /// A sentence that says what was refused or failed and, where possible, the next step.
    pub what: &'static str,
    /// Names, numbers and causes.
    pub context: Option<Box<str>>,
}

/// Result with the product's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error without context; allocates nothing.
    pub fn new(kind: Kind, what: &'static str) -> Error {
        Error { kind, what, context: None }
    }
    /// Appends context to the context that the error has already.
    pub fn with(mut self, context: impl fmt::Display) -> Error {
        let text = match self.context.take() {
            Some(before) => format!("{before}; {context}"),
            None => context.to_string(),
        };
        self.context = Some(text.into_boxed_str());
        self
    }
    /// An I/O error of the operating system, by its positive errno.
    pub fn os(what: &'static str, errno: i32) -> Error {
        let kind = match errno {
            2 => Kind::NotFound,
            1 | 13 => Kind::Permission,
            11 | 16 => Kind::Busy,
            17 => Kind::Exists,
            20 => Kind::NotDirectory,
            28 => Kind::NoSpace,
            122 => Kind::Quota,
            30 => Kind::ReadOnly,
            38 => Kind::Host,
            _ => Kind::Io,
        };
        Error::new(kind, what).with(std::io::Error::from_raw_os_error(errno))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        match &self.context {
            Some(context) => write!(f, ": {context}"),
            None => Ok(()),
        }
    }
}
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind)
    }
}
impl std::error::Error for Error {}
