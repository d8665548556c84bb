//! The media that a brick lies on: where its segments are, in files or on a block device, the file of its superblock, and the room
//! that the file system of its directory has.

pub mod device_table;
pub mod geometry;
pub mod host;
pub mod superblock_file;
