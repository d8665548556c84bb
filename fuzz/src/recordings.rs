//! Files of recordings, and the plans that are made of them: as they are, with the right checksums, and as entries of a frame.

use crate::targets::{Answer, answer};
use base::checksum::crc32c;
use recording::file::{framed, head_bytes};
use recording::{Begin, Deed, End, Entry, FileShape, Flags, Inode, Operation, Plan, Reading, Writer, read};

/// Bytes of a file's head and of a frame's.
const HEAD_BYTES: usize = 16;

/// Entries of every kind.
fn entries() -> Vec<Entry> {
    let inode = Inode { volume: 1, ino: 7, shape: FileShape::File, size: 5000 };
    let operation = |(number, deed): (u64, Deed)| Operation {
        flags: Flags(number as u16 * 0x0101),
        volume: 1,
        new_parent: number % 3,
        made: 5 + number % 5,
        name: 70 + number % 4,
        new_name: 70 + number % 3,
        offset: number << 12,
        length: 4096,
        start_ns: 100 * number,
        duration_ns: 150,
        ..Operation::new(deed, 2 + number % 6)
    };
    let operations = (0..).zip(Deed::ALL).map(operation).map(Entry::Operation);
    let end = Entry::End(End { dropped: 1, duration_ns: 5000 });
    [Entry::Inode(inode)].into_iter().chain(operations).chain([end]).collect()
}

fn file(entries: &[Entry]) -> Vec<u8> {
    let mut writer = Writer::begin(Begin { version: "0.1.0".to_string(), volumes: vec![(1, 2), (3, 4)] });
    entries.iter().for_each(|entry| writer.add(entry));
    writer.finish()
}

/// Files, and what their frames hold.
pub fn seeds() -> Vec<Vec<u8>> {
    let all = entries();
    let plain = all.iter().flat_map(recording::file::encoded).collect();
    vec![file(&all), file(&all[..3]), plain]
}

/// The file with the right checksums of its head and its first frame, as far as that is whole.
fn resealed(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    seal(&mut bytes, 0, 12, 12)?;
    let length = u32::from_le_bytes(*bytes.get(HEAD_BYTES..)?.first_chunk()?) as usize;
    seal(&mut bytes, 2 * HEAD_BYTES, (2 * HEAD_BYTES).checked_add(length)?, HEAD_BYTES + 8);
    seal(&mut bytes, HEAD_BYTES, HEAD_BYTES + 12, HEAD_BYTES + 12)?;
    Some(bytes)
}

/// Puts the checksum of a range at a place.
fn seal(bytes: &mut [u8], from: usize, to: usize, at: usize) -> Option<()> {
    let checksum = crc32c(bytes.get(from..to)?);
    bytes.get_mut(at..at + 4)?.copy_from_slice(&checksum.to_le_bytes());
    Some(())
}

fn planned(bytes: &[u8]) -> Answer {
    let read = read(bytes);
    answer(&read, |reading| {
        let is_whole = matches!(reading, Reading::Whole(_));
        let plan = Plan::of(&reading.clone().recording());
        let implied = plan.steps.iter().filter(|step| step.way == recording::plan::Way::Implied).count();
        u64::from(is_whole) | (plan.nodes.len().min(15) as u64) << 1 | (implied.min(3) as u64) << 5
    })
}

/// Reads a file in each of the three ways.
pub fn run(bytes: &[u8]) -> Answer {
    let entries = planned(&[head_bytes(), framed(bytes)].concat());
    let sealed = resealed(bytes).map_or(0, |sealed| planned(&sealed));
    planned(bytes) ^ sealed.rotate_left(1) ^ entries.rotate_left(2)
}
