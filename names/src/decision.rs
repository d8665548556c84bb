//! A decision, and how it is put together from edits of one or several groups (rule M3).
//!
//! If several groups are concerned, the first decides: its record holds an intent that repeats the edits of the other
//! groups, the followers. A follower applies its edits once, possibly later. So these edits state differences (add,
//! max, put, drop), and do not depend on anything that a record in between could have changed.

use crate::view::{Stop, View};
use base::{Edit, Follow, GroupId, Ino, Intent, Outcome, Reply, VolumeId};

/// Parts of a decision at most: a rename touches five inodes.
const PARTS_MAX: usize = 5;

/// The edits of one group, which it applies as one record.
#[derive(Clone, PartialEq, Debug)]
pub struct Part {
    /// The volume that the edits change.
    pub volume: VolumeId,
    /// The group that applies them.
    pub group: GroupId,
    /// The edits, in order.
    pub edits: Vec<Edit>,
}

/// The result of an evaluation: edits for each group, the reply, and the small outcome kept for requests that are
/// delivered twice.
///
/// No parts: nothing changes. One part: one group's record. Several: `parts[0]` decides and ends with the `IntentPut`,
/// whose `follow` repeats the edits of the others; each of those ends with `FollowedPut`, which `follow` does not
/// repeat.
#[derive(Clone, PartialEq, Debug)]
pub struct Decision {
    /// The records to order, by group.
    pub parts: Vec<Part>,
    /// The answer.
    pub reply: Reply,
    /// The part of the answer that suffices to give it again (rule R1).
    pub outcome: Outcome,
}

impl Decision {
    /// A decision that changes nothing.
    pub(crate) fn unchanged(reply: Reply, outcome: Outcome) -> Decision {
        Decision { parts: Vec::new(), reply, outcome }
    }
}

/// Edits collected by group; the deciding group is the first.
pub(crate) struct Draft {
    parts: Vec<Part>,
}

impl Draft {
    /// A draft with the deciding group.
    pub(crate) fn new(volume: VolumeId, group: GroupId) -> Draft {
        Draft { parts: vec![Part { volume, group, edits: Vec::with_capacity(4) }] }
    }

    /// Adds an edit for the group of `ino`: of the inode, or of an entry in the directory `ino`.
    pub(crate) fn edit(&mut self, ino: Ino, edit: Edit) {
        let volume = self.parts[0].volume;
        self.edit_in(volume, ino.group(), edit);
    }

    /// Adds an edit for a group in another volume than the deciding one's.
    pub(crate) fn edit_in(&mut self, volume: VolumeId, group: GroupId, edit: Edit) {
        match self.parts.iter_mut().find(|part| part.group == group && part.volume == volume) {
            Some(part) => part.edits.push(edit),
            None => self.parts.push(Part { volume, group, edits: vec![edit] }),
        }
    }

    /// Makes a decision of the draft. If several groups are concerned, the deciding group gets an intent.
    pub(crate) fn decide(mut self, view: &mut dyn View, reply: Reply, outcome: Outcome) -> Result<Decision, Stop> {
        assert!(self.parts.iter().all(|part| !part.edits.is_empty()), "a group without edits has no part");
        assert!(self.parts.len() <= PARTS_MAX, "a decision concerns {} groups", self.parts.len());
        let (deciding, others) = self.parts.split_first_mut().expect("a draft begins with its deciding group");
        if !others.is_empty() {
            let id = view.fresh_intent(deciding.group)?;
            assert!(id.group == deciding.group, "an intent is of the group that decides it");
            let follow = others
                .iter()
                .map(|part| Follow { volume: part.volume, group: part.group, edits: part.edits.clone() })
                .collect();
            others.iter_mut().for_each(|part| part.edits.push(Edit::FollowedPut { id }));
            deciding.edits.push(Edit::IntentPut(Intent { id, follow }));
        }
        Ok(Decision { parts: self.parts, reply, outcome })
    }
}
