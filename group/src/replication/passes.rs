//! The passes of the task that looks at groups: a group that rests is left out, so that a brick can have a thousand of them.
//!
//! Promises: a group is looked at in the next pass if its own state has changed, or what it depends on besides, or if it has asked for that; each
//! group is looked at in one of `PASSES` anyway.

/// Passes in which all groups are looked at, whatever happens: 1.3 s. Nothing waits for that; it bounds what a change that goes unnoticed could cost.
const PASSES: usize = 64;

/// The passes so far. `T`: what all groups depend on besides their own state.
pub(super) struct Passes<T> {
    seen: Option<T>,
    next: usize,
    is_restless: Vec<bool>,
}

impl<T: PartialEq> Passes<T> {
    /// Those over so many groups.
    pub fn new(groups: usize) -> Passes<T> {
        Passes { seen: None, next: 0, is_restless: vec![false; groups] }
    }
    /// The positions of the groups that this pass looks at, in ascending order. `has_changed`: whether a group's own state has changed since it
    /// was looked at last.
    pub fn due(&mut self, seen: T, has_changed: impl Fn(usize) -> bool) -> Vec<usize> {
        let count = self.is_restless.len();
        let all = self.seen.as_ref() != Some(&seen);
        self.seen = Some(seen);
        let turns = self.next..self.next + count.div_ceil(PASSES);
        self.next = if turns.end >= count { 0 } else { turns.end };
        let is_due = |at: &usize| all || self.is_restless[*at] || turns.contains(at) || has_changed(*at);
        (0..count).filter(is_due).collect()
    }
    /// Notes whether a group that was looked at wants to be looked at in the next pass, too.
    pub fn looked_at(&mut self, at: usize, is_restless: bool) {
        self.is_restless[at] = is_restless;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_rests_is_looked_at_when_something_has_changed() {
        let mut passes = Passes::new(3);
        assert_eq!(passes.due(1, |_| false), [0, 1, 2], "nothing was seen before");
        assert_eq!(passes.due(1, |_| false), [1], "its turn");
        assert_eq!(passes.due(1, |at| at == 0), [0, 2]);
        assert_eq!(passes.due(2, |_| false), [0, 1, 2]);
        passes.looked_at(2, true);
        assert_eq!(passes.due(2, |_| false), [1, 2]);
        passes.looked_at(2, false);
        assert_eq!((0..3).map(|_| passes.due(2, |_| false)).collect::<Vec<_>>(), [[2], [0], [1]]);
    }

    #[test]
    fn all_groups_have_their_turn() {
        for count in [1, 63, 64, 65, 1000] {
            let mut passes = Passes::new(count);
            passes.due((), |_| false);
            let mut due: Vec<_> = (0..PASSES).flat_map(|_| passes.due((), |_| false)).collect();
            due.sort_unstable();
            due.dedup();
            assert_eq!(due.len(), count);
        }
    }
}
