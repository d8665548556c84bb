//! The records of a log that have become void: where a group has replicas, a record at an index that came before voids the one that was
//! there, and all after it, whatever their terms. Pure. A group of one replica has none.

use crate::format::record::Logged;
use base::{GroupId, Index};
use std::collections::{BTreeMap, BTreeSet};

/// The standing records of a log, as it is read. Takes 16 bytes for each record of a group.
#[derive(Default)]
pub struct Standing {
    /// Number of records taken.
    taken: u64,
    /// The records that stand, by group: index and number, both rising.
    stands: BTreeMap<GroupId, Vec<(Index, u64)>>,
    void: BTreeSet<u64>,
}

impl Standing {
    /// Takes the next record of the log.
    pub fn take(&mut self, logged: &Logged) {
        let number = self.taken;
        self.taken += 1;
        let Logged::Record(record) = logged else { return };
        let stands = self.stands.entry(record.group).or_default();
        let first = stands.partition_point(|(index, _)| *index < record.index);
        self.void.extend(stands.drain(first..).map(|(_, number)| number));
        stands.push((record.index, number));
    }
    /// The numbers of the void ones, the first record that was taken being 0.
    pub fn void(self) -> BTreeSet<u64> {
        self.void
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::{Record, Vote};
    use base::{Outcome, RequestId, SessionId, Term, VolumeId};

    #[test]
    fn a_record_voids_what_is_there_and_after_it() {
        let record = |(group, index, term)| {
            let (volume, session, request, outcome) = (VolumeId(1), SessionId(0), RequestId(0), Outcome::Done);
            let (group, index, term, edits) = (GroupId(group), Index(index), Term(term), Vec::new());
            Logged::Record(Record { group, term, index, volume, session, request, outcome, edits })
        };
        let mut standing = Standing::default();
        for at in [(1, 5, 2), (1, 6, 2), (2, 5, 2), (1, 7, 2)] {
            standing.take(&record(at));
        }
        standing.take(&Logged::Vote(Vote { group: GroupId(1), term: Term(3), voted_for: None }));
        // The record of the higher term becomes void in its turn.
        for at in [(1, 6, 4), (2, 6, 2), (1, 6, 2), (1, 7, 2)] {
            standing.take(&record(at));
        }
        assert_eq!(standing.void(), BTreeSet::from([1, 3, 5]));
    }
}
