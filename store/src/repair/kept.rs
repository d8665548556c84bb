//! The choice of records behind a bad batch that still count. A group's records build on each other, and a change
//! between groups ties them together. The records kept make a state that a crash could have left, if each group had a
//! log of its own.

use crate::format::passages::Cut;
use crate::format::record::{Logged, Record};
use crate::format::{keys, values};
use crate::index::Index as Engine;
use crate::recovery::Replayed;
use crate::recovery::standing::Standing;
use base::{Edit, GroupId, Index, Intent, IntentId, Result};
use std::collections::{BTreeMap, BTreeSet};

/// The position of a record: its group, and its number there.
type At = (GroupId, Index);

/// The index's state of changes between groups.
struct Known {
    applied: Vec<Index>,
    next_intent: Vec<u64>,
    standing: BTreeMap<IntentId, Intent>,
    followed: BTreeSet<(GroupId, IntentId)>,
}

impl Known {
    fn read(index: &dyn Engine, groups: u32) -> Result<Known> {
        let mut known = Known {
            applied: Vec::new(),
            next_intent: Vec::new(),
            standing: BTreeMap::new(),
            followed: BTreeSet::new(),
        };
        for group in (0..groups).map(GroupId) {
            let row = index.get(&keys::group(group))?;
            let row = row.map_or(Ok(values::GroupRow::fresh()), |row| values::decode_group(&row))?;
            known.applied.push(row.applied);
            known.next_intent.push(row.next_intent);
            let (from, to) = keys::intents(group);
            for (_, value) in index.scan(&from, &to, usize::MAX)? {
                let intent = values::decode_intent(&value)?;
                known.standing.insert(intent.id, intent);
            }
            let (from, to) = keys::followed_all(group);
            let rows = index.scan(&from, &to, usize::MAX)?;
            known.followed.extend(rows.iter().map(|(key, _)| (group, keys::followed_id(key))));
        }
        Ok(known)
    }
    fn has(&self, group: GroupId) -> bool {
        (group.0 as usize) < self.applied.len()
    }
    fn applied(&self, group: GroupId) -> Index {
        self.applied.get(group.0 as usize).copied().unwrap_or_default()
    }
    /// True if the intent was made before the index was.
    fn made(&self, id: IntentId) -> bool {
        self.next_intent.get(id.group.0 as usize).is_some_and(|next| id.number < *next)
    }
}

/// The positions of the log's records about changes between groups.
#[derive(Default)]
struct Told {
    puts: BTreeMap<IntentId, At>,
    follows: BTreeMap<(GroupId, IntentId), At>,
    drops: BTreeMap<IntentId, At>,
}

/// The cuts after which all that is left builds on what is left. `records`: what can be read, in its order; `through`: the
/// last batch.
pub fn cuts(index: &dyn Engine, groups: u32, records: &[Replayed], through: u64) -> Result<Vec<Cut>> {
    let known = Known::read(index, groups)?;
    let mut standing = Standing::default();
    records.iter().for_each(|replayed| standing.take(&replayed.logged));
    let void = standing.void();
    let left = (0..).zip(records).filter(|(number, _)| !void.contains(number));
    let records = left.filter_map(|(_, replayed)| match &replayed.logged {
        Logged::Record(record) => Some(record),
        Logged::Moves(_) | Logged::Vote(_) => None,
    });
    let records: Vec<&Record> = records.collect();
    let mut first = gaps(&known, &records);
    let told = told(&records);
    loop {
        let kept = |(group, index): At| {
            index <= known.applied(group) || (known.has(group) && first.get(&group).is_none_or(|cut| index < *cut))
        };
        let young = records.iter().filter(|record| record.index > known.applied(record.group));
        let mut left = young.filter(|record| kept((record.group, record.index)));
        let Some(record) = left.find(|record| !stands(record, &known, &told, &kept)) else { break };
        first.insert(record.group, record.index);
    }
    Ok(first.into_iter().map(|(group, from)| Cut { group, from, through }).collect())
}

/// Groups that lack a record, and all of groups that don't exist.
fn gaps(known: &Known, records: &[&Record]) -> BTreeMap<GroupId, Index> {
    let (mut last, mut first) = (BTreeMap::new(), BTreeMap::new());
    for record in records {
        let last = last.entry(record.group).or_insert_with(|| known.applied(record.group));
        if !known.has(record.group) {
            first.insert(record.group, Index(0));
        } else if record.index.0 > last.0 + 1 {
            first.entry(record.group).or_insert(Index(last.0 + 1));
        }
        *last = (*last).max(record.index);
    }
    first
}

fn told(records: &[&Record]) -> Told {
    let mut told = Told::default();
    for record in records {
        let at = (record.group, record.index);
        for edit in &record.edits {
            match edit {
                Edit::IntentPut(intent) => drop(told.puts.insert(intent.id, at)),
                Edit::IntentDrop { id } => drop(told.drops.insert(*id, at)),
                Edit::FollowedPut { id } => drop(told.follows.insert((record.group, *id), at)),
                _ => {}
            }
        }
    }
    told
}

/// True if all is kept that a record builds on in other groups.
fn stands(record: &Record, known: &Known, told: &Told, kept: &dyn Fn(At) -> bool) -> bool {
    let followed = |intent: &Intent| {
        intent.follow.iter().all(|follow| {
            let key = (follow.group, intent.id);
            told.follows.get(&key).map_or(known.followed.contains(&key), |at| kept(*at))
        })
    };
    record.edits.iter().all(|edit| match edit {
        // Decided in view of the others, with edits of theirs: one append, so all of it is in the log.
        Edit::IntentPut(intent) => followed(intent),
        Edit::FollowedPut { id } => told.puts.get(id).map_or(known.made(*id), |at| kept(*at)),
        // One that a start had to redo; the others stand or fall with the record that put them.
        Edit::IntentDrop { id } => told.puts.contains_key(id) || known.standing.get(id).is_none_or(followed),
        // Without the mark a start would do the change a second time.
        Edit::FollowedDrop { id } => match told.drops.get(id) {
            Some(at) => kept(*at),
            None => known.made(*id) && !known.standing.contains_key(id),
        },
        _ => true,
    })
}
