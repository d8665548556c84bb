//! The device table of a brick that has several devices: which segments lie on which, and what each is for. Promises that
//! a device's number is never given to another one. It lies in the file `devices`, in two copies; the superblock says
//! which version counts (`Superblock::devices`).

use super::Uuid;
use super::bytes::{Reader, Writer, corrupt};
use base::checksum::crc32c;
use base::limits::{BLOCK_BYTES, DEVICES_MAX, NUMBER_MAX, SEGMENTS_MAX};
use base::{Error, Kind, Result};

const MAGIC: &[u8; 8] = b"SINTERDT";
/// Version of this layout.
const VERSION: u32 = 1;
/// Bytes of a copy: room for the largest table.
pub const TABLE_BYTES: usize = 2 * BLOCK_BYTES;
/// Fields before the rows.
const HEAD_BYTES: usize = 44;
const ROW_BYTES: usize = 16;
const _: () = assert!(HEAD_BYTES + DEVICES_MAX * ROW_BYTES + 4 <= TABLE_BYTES);

/// The number of a device within its brick: 1 is the one that the brick was formatted with. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceId(pub u32);

/// The device that each brick begins with: its files, or its block device.
pub const FIRST: DeviceId = DeviceId(1);

impl std::fmt::Display for DeviceId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}", self.0)
    }
}

/// The kind of work that a device is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Tier {
    /// The log, and all that is read or written often.
    Flash,
    /// Hard disks: blocks that are seldom used, in large runs.
    Disk,
}

impl Tier {
    /// Both, the faster one first.
    pub const ALL: [Tier; 2] = [Tier::Flash, Tier::Disk];

    /// The tier of a name. Errors: `Invalid`.
    pub fn named(name: &str) -> Result<Tier> {
        let found = Tier::ALL.into_iter().find(|tier| tier.name() == name);
        found.ok_or_else(|| Error::new(Kind::Invalid, "no such tier: flash or disk").with(name))
    }
    /// Its name in commands and tables.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Flash => "flash",
            Tier::Disk => "disk",
        }
    }
}

/// A device's part in the brick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Its segments are used.
    InUse,
    /// It gets no more segments, and what lies on it is moved away.
    Leaving,
    /// It has left. Its row stays, so that the numbers of its segments, whose lives the index knows, are given to no other device.
    Gone,
}

impl State {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            State::InUse => "in use",
            State::Leaving => "leaving",
            State::Gone => "gone",
        }
    }
}

/// A device of the brick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceRow {
    /// Its number.
    pub id: DeviceId,
    /// Its tier.
    pub tier: Tier,
    /// Its part.
    pub state: State,
    /// The first of its segments.
    pub first: u32,
    /// Number of its segments.
    pub segments: u32,
}

impl DeviceRow {
    /// The number behind its last segment.
    pub fn end(&self) -> u32 {
        self.first + self.segments
    }
}

/// The table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceTable {
    /// The brick.
    pub uuid: Uuid,
    /// Grows with each version.
    pub sequence: u64,
    /// The number of the next device.
    pub next: DeviceId,
    /// The devices, by their first segments: each segment of the brick lies on exactly one.
    pub rows: Vec<DeviceRow>,
}

impl DeviceTable {
    /// The table of a brick whose `segments` segments lie in one place.
    pub fn of_one(uuid: Uuid, segments: u32) -> DeviceTable {
        let row = DeviceRow { id: FIRST, tier: Tier::Flash, state: State::InUse, first: 0, segments };
        DeviceTable { uuid, sequence: 0, next: DeviceId(2), rows: vec![row] }
    }
    /// Number of segments of the brick.
    pub fn segments(&self) -> u32 {
        self.rows.last().map_or(0, DeviceRow::end)
    }
    /// Bytes of a copy.
    pub fn encode(&self) -> Vec<u8> {
        assert!((1..=DEVICES_MAX).contains(&self.rows.len()), "`decode` refuses a table of {}", self.rows.len());
        let mut out = Vec::with_capacity(TABLE_BYTES);
        let mut writer = Writer(&mut out);
        writer.bytes(MAGIC).u32(VERSION).bytes(&self.uuid.0).u64(self.sequence).u32(self.next.0);
        writer.u32(self.rows.len() as u32);
        for row in &self.rows {
            let tier = if row.tier == Tier::Flash { 1 } else { 2 };
            let state = match row.state {
                State::InUse => 1,
                State::Leaving => 2,
                State::Gone => 3,
            };
            writer.u32(row.id.0).u8(tier).u8(state).bytes(&[0; 2]).u32(row.first).u32(row.segments);
        }
        out.resize(TABLE_BYTES - 4, 0);
        let crc = crc32c(&out);
        Writer(&mut out).u32(crc);
        out
    }
    /// Checks and reads a copy. Errors: `Corrupt`, `Newer`.
    pub fn decode(bytes: &[u8]) -> Result<DeviceTable> {
        let bytes = bytes.get(..TABLE_BYTES).ok_or_else(|| corrupt("the device table is cut short"))?;
        let (body, crc) = bytes.split_at(TABLE_BYTES - 4);
        let mut reader = Reader::new(body);
        if reader.bytes(8)? != MAGIC {
            return Err(corrupt("not a device table"));
        }
        if Reader::new(crc).u32()? != crc32c(body) {
            return Err(corrupt("the device table fails its checksum"));
        }
        if reader.u32()? > VERSION {
            return Err(Error::new(Kind::Newer, "a newer version wrote the device table; upgrade this machine"));
        }
        let (uuid, sequence, next) = (reader.uuid()?, reader.u64()?, DeviceId(reader.u32()?));
        let count = reader.u32()? as usize;
        if count > DEVICES_MAX {
            return Err(corrupt("the device table has more rows than a brick has devices"));
        }
        let rows = (0..count).map(|_| take_row(&mut reader)).collect::<Result<Vec<_>>>()?;
        let table = DeviceTable { uuid, sequence, next, rows };
        table.check()?;
        Ok(table)
    }
    /// A right checksum does not say that the values make sense.
    fn check(&self) -> Result<()> {
        let mut end = 0;
        let mut ids = std::collections::BTreeSet::new();
        for row in &self.rows {
            let whole = row.first == end && (1..=SEGMENTS_MAX).contains(&row.segments);
            if !whole || row.end() > SEGMENTS_MAX || row.id >= self.next || row.id < FIRST || !ids.insert(row.id) {
                return Err(corrupt("the device table has a row that contradicts the others").with(format!("{row:?}")));
            }
            end = row.end();
        }
        let is_first = |row: &DeviceRow| (row.id, row.tier, row.state) == (FIRST, Tier::Flash, State::InUse);
        let first = self.rows.first().is_some_and(is_first);
        match first && self.sequence < NUMBER_MAX {
            true => Ok(()),
            false => Err(corrupt("the device table does not begin with the brick's first device")),
        }
    }
}

fn take_row(reader: &mut Reader<'_>) -> Result<DeviceRow> {
    let id = DeviceId(reader.u32()?);
    let tier = match reader.u8()? {
        1 => Tier::Flash,
        2 => Tier::Disk,
        _ => return Err(corrupt("the device table names no known tier")),
    };
    let state = match reader.u8()? {
        1 => State::InUse,
        2 => State::Leaving,
        3 => State::Gone,
        _ => return Err(corrupt("the device table names no known state")),
    };
    reader.bytes(2)?;
    Ok(DeviceRow { id, tier, state, first: reader.u32()?, segments: reader.u32()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> DeviceTable {
        let mut table = DeviceTable::of_one(Uuid([7; 16]), 100);
        let disk =
            |id, first| DeviceRow { id: DeviceId(id), tier: Tier::Disk, state: State::InUse, first, segments: 50 };
        table.rows.extend([disk(3, 100), DeviceRow { state: State::Leaving, ..disk(5, 150) }]);
        table.rows.push(DeviceRow { state: State::Gone, ..disk(4, 200) });
        DeviceTable { sequence: 9, next: DeviceId(6), ..table }
    }

    #[test]
    fn it_reads_what_it_wrote_and_nothing_else() {
        let bytes = table().encode();
        assert_eq!(DeviceTable::decode(&bytes), Ok(table()));
        assert_eq!(table().segments(), 250);
        for at in (0..TABLE_BYTES).step_by(13) {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert_eq!(DeviceTable::decode(&bad).expect_err("a byte differs").kind, Kind::Corrupt, "byte {at}");
        }
        assert_eq!(DeviceTable::decode(&bytes[..4096]).expect_err("half of it").kind, Kind::Corrupt);
    }

    #[test]
    fn values_that_contradict_each_other_are_refused_under_a_right_checksum() {
        let changes: [fn(&mut DeviceTable); 9] = [
            |table| table.rows[1].first = 99,
            |table| table.rows[1].segments = 0,
            |table| table.rows[2].segments = SEGMENTS_MAX,
            |table| table.rows[2].id = DeviceId(3),
            |table| table.rows[2].id = DeviceId(6),
            |table| table.rows[0].id = DeviceId(2),
            |table| table.rows[0].tier = Tier::Disk,
            |table| table.rows[0].state = State::Leaving,
            |table| table.sequence = NUMBER_MAX,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut bad = table();
            change(&mut bad);
            let refused = DeviceTable::decode(&bad.encode()).expect_err("it can't be");
            assert_eq!(refused.kind, Kind::Corrupt, "change {number}");
        }
    }
}
