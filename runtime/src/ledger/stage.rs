//! The stages of a request.

/// Named places where a request spends time; every nanosecond of it belongs to exactly one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Waiting for the core: what the request waited for has come, and the core does something else first.
    Core,
    /// Parsing the request.
    Front,
    /// Passing the stack of layers.
    Layers,
    /// Waiting for the volume's limits, which an operator has set.
    Limit,
    /// Waiting for buffer memory, which `memory_max` bounds.
    Buffer,
    /// Waiting for space: writers are slowed down while the cleaner is behind (rule K4), and wait for free segments and
    /// for checkpoints that count space again.
    Space,
    /// Waiting for a checkpoint to count the space of a volume that has reached its size.
    Quota,
    /// Waiting for the log: the bytes of records that are ordered but not written yet are bounded.
    Backlog,
    /// Waiting for an overlapping range of the same file, or for the token of renames.
    Range,
    /// Waiting for a lock that another thread holds.
    Lock,
    /// Evaluation, ordering and insertion into the overlay, under the group's lock.
    Order,
    /// Waiting for a thread of the pool, to read the index.
    Pool,
    /// Reading the index after a miss.
    Index,
    /// Waiting under the concurrency limit of the device.
    Held,
    /// Waiting in the log until the batch is formed and submitted.
    Queue,
    /// The device write: of the batch, or of a large payload.
    Write,
    /// The device flush.
    Flush,
    /// Waiting for other bricks: until enough of them have the record on their devices (rule P1). In a cluster only.
    Peer,
    /// Reading data from the device.
    Read,
    /// Computing and comparing checksums.
    Verify,
    /// Being at the server in a stage that its client has too (core, front, layers, buffer, lock, other, reply); at clients only.
    Server,
    /// Being on the way to the server and back: from the hand-over to the answer, less what the server has booked; at clients only.
    Wire,
    /// Time that no other stage claims.
    Other,
    /// Handing the reply to the client.
    Reply,
}

impl Stage {
    /// All stages, in the order in which a request meets them.
    pub const ALL: [Stage; 24] = [
        Stage::Core,
        Stage::Front,
        Stage::Layers,
        Stage::Limit,
        Stage::Buffer,
        Stage::Space,
        Stage::Quota,
        Stage::Backlog,
        Stage::Range,
        Stage::Lock,
        Stage::Order,
        Stage::Pool,
        Stage::Index,
        Stage::Held,
        Stage::Queue,
        Stage::Write,
        Stage::Flush,
        Stage::Peer,
        Stage::Read,
        Stage::Verify,
        Stage::Server,
        Stage::Wire,
        Stage::Other,
        Stage::Reply,
    ];
    /// True for a stage that both a server and the process of its client have: at the client, the server's time in it is `Server`.
    pub fn is_of_both_ends(self) -> bool {
        use Stage::{Buffer, Core, Front, Layers, Lock, Other, Reply};
        matches!(self, Core | Front | Layers | Buffer | Lock | Other | Reply)
    }
    /// The stage's name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Core => "core",
            Stage::Front => "front",
            Stage::Layers => "layers",
            Stage::Limit => "limit",
            Stage::Buffer => "buffer",
            Stage::Space => "space",
            Stage::Quota => "quota",
            Stage::Backlog => "backlog",
            Stage::Range => "range",
            Stage::Lock => "lock",
            Stage::Order => "order",
            Stage::Pool => "pool",
            Stage::Index => "index",
            Stage::Held => "held",
            Stage::Queue => "queue",
            Stage::Write => "write",
            Stage::Flush => "flush",
            Stage::Peer => "peer",
            Stage::Read => "read",
            Stage::Verify => "verify",
            Stage::Server => "server",
            Stage::Wire => "wire",
            Stage::Other => "other",
            Stage::Reply => "reply",
        }
    }
}
