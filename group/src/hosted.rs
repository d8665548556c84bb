//! The groups that the brick hosts, by number. Numbers need not be dense: other bricks host the others.

use crate::Group;
use base::GroupId;

/// The mark of a number whose group is not hosted.
const NONE: u32 = u32::MAX;

/// The hosted groups.
pub(crate) struct Hosted {
    /// All, in ascending order of their numbers.
    groups: Vec<Group>,
    /// Positions by number: that of the group in `groups`, or `NONE`. As long as the highest number needs.
    positions: Vec<u32>,
}

impl Hosted {
    /// These groups, in ascending order of their numbers.
    pub fn new(groups: Vec<Group>) -> Hosted {
        assert!(groups.is_sorted_by(|one, next| one.number < next.number), "a group is hosted once");
        let mut positions = vec![NONE; groups.last().map_or(0, |last| last.number.0 as usize + 1)];
        for (group, position) in groups.iter().zip(0..) {
            positions[group.number.0 as usize] = position;
        }
        Hosted { groups, positions }
    }
    /// The group of this number, if it is hosted.
    #[inline]
    pub fn get(&self, number: GroupId) -> Option<&Group> {
        // A number that is not hosted has no position, or one behind the last group.
        self.groups.get(*self.positions.get(number.0 as usize)? as usize)
    }
    /// The position of a group among those that are hosted, if it is one of them.
    pub fn position(&self, number: GroupId) -> Option<usize> {
        self.positions.get(number.0 as usize).filter(|position| **position != NONE).map(|position| *position as usize)
    }
    /// All hosted groups, in ascending order of their numbers.
    pub fn all(&self) -> &[Group] {
        &self.groups
    }
}
