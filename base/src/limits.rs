//! Every bound of the product in one place. Units are in the names.

/// Unit of mapping and of checksums.
pub const BLOCK_BYTES: usize = 4096;
/// Blocks mapped by one leaf: 256 KiB of a file.
pub const BLOCKS_PER_LEAF: usize = 64;
/// Bits of an inode number that name its group (rule M1).
pub const GROUP_BITS: u32 = 20;
/// Groups that `format` creates, so that cross-group code runs from day one (rule M1).
pub const GROUPS_DEFAULT: u32 = 64;
/// Largest number of groups of a brick: each takes memory of its own.
pub const GROUPS_MAX: u32 = 4096;
/// Largest number of devices of a brick, those included that were removed from it. A device that holds much is better than
/// many that hold little, and a brick whose one device fails is repaired as a whole.
pub const DEVICES_MAX: usize = 64;
/// Largest number of segments of a brick: 64 TiB in segments of the usual size, and a table of 50 MB in memory. Of each segment of
/// flash the live bitmap comes to that, 2 KiB.
pub const SEGMENTS_MAX: u32 = 1 << 20;
/// Bound of everything that is counted up one by one: batches, records, cookies, epochs. No machine lives long enough
/// to reach it, so adding to a counter needs no check for overflow.
pub const NUMBER_MAX: u64 = 1 << 62;
/// Longest name in a directory, as in POSIX on Linux.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes that an inode with a name of medium length takes. `df -i` reports as many free inodes as fit into the free
/// space.
pub const NAMED_INODE_BYTES: u64 = 256;
/// Longest symbolic link target: PATH_MAX less its terminating zero.
pub const TARGET_BYTES_MAX: usize = 4095;
/// Longest name of an extended attribute: XATTR_NAME_MAX.
pub const XATTR_NAME_BYTES_MAX: usize = NAME_BYTES_MAX;
/// Largest value of an extended attribute: XATTR_SIZE_MAX.
pub const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;
/// Longest list of all names of an inode's attributes, each with its zero: XATTR_LIST_MAX. A longer one could not be
/// listed.
pub const XATTR_LIST_BYTES_MAX: usize = 64 << 10;
/// Largest sum of names and values of an inode's attributes: they are one row of the index, and are read as a whole.
pub const XATTRS_BYTES_MAX: usize = 256 << 10;
/// Largest number of entries of an access control list: two lists (8 KiB each) fit twice into the record of a directory
/// that inherits them.
pub const ACL_ENTRIES_MAX: usize = 1000;
/// Largest file: 16 TiB; the kernel asks for no more from 4 KiB-page file systems of this kind.
pub const FILE_BYTES_MAX: u64 = 16 << 40;
/// Largest payload of one operation: what FUSE carries with max_pages 256.
pub const IO_BYTES_MAX: usize = 1 << 20;
/// Smallest payload that goes to the bulk stream; smaller ones go to the commit stream (decision D2).
pub const BULK_BYTES_MIN: usize = 128 << 10;
/// Segment size in production; simulation uses small ones.
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 << 20;
/// Smallest segment: enough for the largest commit batch, its header and the summary.
pub const SEGMENT_BYTES_MIN: u64 = 1 << 20;
/// Largest segment: block numbers within a segment have 16 bits.
pub const SEGMENT_BYTES_MAX: u64 = 256 << 20;
/// Largest number of blocks of a batch header, which holds the batch's records. Nearly all headers take one block; a
/// record with the largest extended attribute takes most.
pub const HEADER_BLOCKS_MAX: usize = 17;
/// Largest number of requests that a session may have open at once: a client gives out number `n` only when it has the answers of
/// all up to `n - 1024`. So the results of those need not be kept (rule P9). FUSE has no more requests under way on a connection.
pub const SESSION_OPEN_MAX: u64 = 1024;
/// Bytes of data of a session's open requests at which a client asks nothing more until some have ended: 16 of the largest, more than a
/// fast network has on its way. A client that keeps to it is never kept waiting with its other messages.
pub const SESSION_BYTES_MAX: usize = 16 << 20;
/// Bytes of data under way of a connection at which a server reads no more of it: one request more than a client may ask for.
pub const CONNECTION_BYTES_MAX: usize = SESSION_BYTES_MAX + IO_BYTES_MAX;
/// Most locks of files and places in queues for them that a session may have: far more than programs have. All of one file are looked at
/// for each, within tens of microseconds.
pub const SESSION_LOCKS_MAX: usize = 1 << 13;
/// Time for which a place in the queue for a lock is kept after it was asked for last, in nanoseconds. Clients ask each second.
pub const LOCK_PLACE_NS: u64 = 5_000_000_000;
/// Terms of a group that are remembered with their first records: as many starts may lie between a change and the fsync that asks
/// for it (rule P3).
pub const TERMS_MAX: usize = 64;
/// Longest time until unsynced changes become durable (rule U3), in nanoseconds.
pub const DURABLE_WITHIN_NS: u64 = 1_000_000_000;
/// Longest estimated time of a replay after a crash (rule X2), in nanoseconds.
pub const REPLAY_NS_MAX: u64 = 5_000_000_000;
/// Largest number of entries that one directory read returns: bounds the memory of a reply.
pub const DIR_ENTRIES_MAX: usize = 1024;
/// Largest number of open directories of a mount for which the end of their listing is remembered: 48 MiB, where the
/// kernel takes a hundred times as much for the open directories themselves.
pub const LISTED_HANDLES_MAX: usize = 1 << 20;
/// Largest number of links of one inode, as on XFS.
pub const LINKS_MAX: u32 = 1 << 31;
/// Longest name of a volume: short, as it appears in paths and commands.
pub const VOLUME_NAME_BYTES_MAX: usize = 63;
/// Most layers of a volume: more would be a mistake in a command, and the bound keeps the way of an operation short.
pub const LAYERS_MAX: usize = 16;
/// Longest time for which a delay layer holds an operation: half of the time after which kernels tell of a task that hangs.
pub const LAYER_DELAY_NS_MAX: u64 = 60_000_000_000;
/// A fault layer fails at least one operation in so many: rarer faults are no test.
pub const LAYER_EVERY_MAX: u64 = 1_000_000_000;
/// Most operations per second to which a volume can be limited: one each nanosecond, the clock's unit.
pub const LIMIT_IOPS_MAX: u64 = 1_000_000_000;
/// Least bandwidth to which a volume can be limited: the largest request, of 1 MiB, takes 16 s then.
pub const LIMIT_BANDWIDTH_MIN: u64 = 64 << 10;
/// Largest bandwidth to which a volume can be limited: beyond any machine's memory.
pub const LIMIT_BANDWIDTH_MAX: u64 = 1 << 40;
/// Longest time on which clients of a limited volume can catch up at once.
pub const LIMIT_BURST_MS_MAX: u64 = 60_000;
/// The usual time of a burst, where nobody has said another. A request that was held goes a little late, by the timer and the core;
/// what it is late by is caught up, or a limit of 1,000 operations per second would let 900 pass. A hundredth of a second is 1% in
/// each second.
pub const LIMIT_BURST_MS: u64 = 10;
/// Weight of a volume where nobody has said another, and the greatest: a hundredth of the usual share to ten times it.
pub const WEIGHT: u64 = 100;
/// See `WEIGHT`.
pub const WEIGHT_MAX: u64 = 1000;
/// Largest share of a brick's time that may be reserved, in percent, for one volume and for all together: volumes without a reservation
/// must come to an end beside them.
pub const RESERVE_MAX: u64 = 90;
/// The first project that is given to a directory tree with limits: below are those that people choose for themselves.
pub const TREE_PROJECT_MIN: u32 = 1 << 30;
/// Largest number of directory trees of a volume that have limits: each request that is held looks among them.
pub const LIMITED_TREES_MAX: usize = 64;
/// Smallest brick (rule X5).
pub const BRICK_BYTES_MIN: u64 = 4 << 30;
/// Least free space for the index of a brick whose segments lie on a device: RocksDB's own files and its compaction
/// take that much.
pub const INDEX_BYTES_MIN: u64 = 1 << 30;
/// Share of a larger brick that its index needs: one part in 50. A leaf of 64 blocks takes about 1.3 KiB per 256 KiB of
/// data, and small files take more.
pub const INDEX_PARTS: u64 = 50;
/// Largest ballast file, which holds space back for the index in the file system that holds the brick's directory.
/// Memory bounds what a checkpoint writes, so a larger brick needs no more.
pub const BALLAST_BYTES_MAX: u64 = 4 << 30;
/// Highest rate at which freed segments of a device are discarded, in bytes per second: about the rate at which drives
/// overwrite. Discards delay reads and writes.
pub const DISCARD_BYTES_PER_SECOND: u64 = 1 << 30;

const _: () = assert!(SEGMENT_BYTES_MAX / BLOCK_BYTES as u64 == 1 << 16);
const _: () = assert!(SEGMENT_BYTES_MIN <= SEGMENT_BYTES_DEFAULT && SEGMENT_BYTES_DEFAULT <= SEGMENT_BYTES_MAX);
const _: () = assert!(GROUPS_DEFAULT <= GROUPS_MAX && GROUPS_MAX <= 1 << GROUP_BITS);
const _: () = assert!(BULK_BYTES_MIN.is_multiple_of(BLOCK_BYTES) && IO_BYTES_MAX.is_multiple_of(BLOCK_BYTES));
