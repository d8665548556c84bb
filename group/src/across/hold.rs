//! The side of a group that another one asks: it tells what it has, and holds it.

use crate::order::held::{GroupSet, Held};
use crate::order::record::Record;
use crate::replica::across::{Answer, Ask, Found, Want};
use crate::state::State;
use crate::state::across::turn;
use crate::state::load::Wanted;
use crate::{Group, Groups};
use base::{Edit, Error, Index, Ino, IntentId, Kind, Result, Sync, Term, VolumeId};
use names::{Part, Seen};
use runtime::seeded::{Bug, active};

enum Step {
    Load(Wanted),
    Numbers,
    Segment,
    /// The pieces, and the record up to which all has to be committed before they may be told.
    Found((Term, Index), Vec<Found>),
}

/// The refusal of what is held for another change.
fn busy() -> Error {
    Error::new(Kind::Busy, "another change of several groups comes first")
}

impl Want {
    /// The inode that it is about; None of a number for one that there is not yet.
    fn ino(&self, group: base::GroupId) -> Option<Ino> {
        match self {
            Want::Inode(ino) | Want::Entry(ino, _) | Want::Xattrs(ino) | Want::Opens(ino) => Some(*ino),
            Want::Fresh => None,
            Want::Turn => Some(turn(group)),
        }
    }
}

impl Groups {
    /// Answers a question, once all that the answer tells is committed.
    pub(super) async fn answer_ask(&self, group: &Group, ask: Ask) -> Answer {
        match self.find_pieces(group, ask).await {
            Ok(found) => Answer::Found(found),
            Err(error) if error.kind == Kind::Busy => Answer::Busy,
            Err(_) => Answer::Elsewhere,
        }
    }

    async fn find_pieces(&self, group: &Group, mut ask: Ask) -> Result<Vec<Found>> {
        if ask.wants.iter().any(|want| want.ino(group.number).is_some_and(|ino| ino.group() != group.number)) {
            return Err(Error::new(Kind::Stale, "a group is asked for what another one has"));
        }
        loop {
            let segment = self.store().log.segment_came.ticket();
            match self.try_find(group, &mut ask)? {
                Step::Load(wanted) => self.load(ask.volume, vec![wanted], None).await?,
                Step::Numbers => self.reserve_numbers().await?,
                Step::Segment => self.wait_for_segment(segment).await?,
                Step::Found(record, found) => {
                    if !active(Bug::HoldUncommitted) {
                        self.replicated(group.number, record).await?;
                    }
                    return Ok(found);
                }
            }
        }
    }

    fn try_find(&self, group: &Group, ask: &mut Ask) -> Result<Step> {
        let mut held = Held::new(self, &GroupSet::one(group.number));
        let state = held.of(group.number);
        let term = state.replica().serves()?;
        if !self.has_lease(state) {
            return Err(crate::replica::elsewhere());
        }
        let mut found = Vec::with_capacity(ask.wants.len());
        let mut at = 0;
        while let Some(want) = ask.wants.get(at).cloned() {
            at += 1;
            if want.ino(group.number).is_some_and(|ino| state.across.bars(ask.volume, ino, ask.id)) {
                return Err(busy());
            }
            // Who has begun to lead has to know first which sessions may have it open.
            if matches!(want, Want::Opens(_)) && !self.knows_opens(state) {
                return Err(busy());
            }
            match look(state, ask, &want) {
                Ok(piece) => found.extend(piece),
                Err(wanted) => return Ok(Step::Load(wanted)),
            }
            // Whoever wants an entry wants to know what it is of.
            if let Some(Found::Entry(_, _, Some(entry))) = found.last()
                && entry.ino.group() == group.number
                && !ask.wants.contains(&Want::Inode(entry.ino))
            {
                ask.wants.push(Want::Inode(entry.ino));
            }
        }
        let fresh = ask.wants.contains(&Want::Fresh).then(|| Ino::new(state.row.next_ino, group.number));
        if fresh.is_some() && state.is_out_of_numbers() {
            return Ok(Step::Numbers);
        }
        if let Some(id) = ask.id.filter(|_| ask.holds) {
            let inos = ask.wants.iter().filter_map(|want| want.ino(group.number)).chain(fresh);
            match self.hold(&mut held, group, (id, ask.volume), inos.collect()) {
                Err(error) if error.kind == Kind::Busy => return Ok(Step::Segment),
                held => held?,
            }
        }
        let state = held.of(group.number);
        if let Some(ino) = fresh {
            assert!(ino.sequence() == state.row.next_ino, "a number is given once");
            state.row.next_ino += 1;
            state.check_granted();
            found.push(Found::Fresh(ino));
        }
        Ok(Step::Found((term, state.row.applied), found))
    }

    /// Holds inodes for a change, beside those that are held for it already.
    fn hold(
        &self,
        held: &mut Held<'_>,
        group: &Group,
        (id, volume): (IntentId, VolumeId),
        inos: Vec<Ino>,
    ) -> Result<()> {
        let state = held.of(group.number);
        let mut all = state.across.held_for(id).to_vec();
        let before = all.len();
        inos.into_iter().for_each(|ino| {
            if !all.contains(&ino) {
                all.push(ino);
            }
        });
        if all.len() == before && state.across.holds.contains_key(&id) {
            return Ok(());
        }
        let edits = vec![Edit::LockPut { id, inos: all.into() }];
        assert!(!edits.is_empty() && id.number > 0, "a hold is of a change");
        let part = Part { volume, group: group.number, edits };
        self.order_record(held, &Record::own(&part), None, Sync::Ordered).map(drop)
    }

    /// Holds nothing for a change any more that will never be decided. Errors: those of the log, and `Elsewhere`.
    pub(super) async fn drop_hold(&self, group: &Group, id: IntentId) -> Result<()> {
        let wanted = |state: &mut State| {
            state.replica().serves()?;
            Ok(state.across.holds.contains_key(&id).then(|| vec![Edit::LockDrop { id }]))
        };
        let dropped = self.order_when(group.number, VolumeId(0), wanted).await;
        group.ranges.notify();
        dropped.map(drop)
    }
}

/// A piece of a group's state; None of what there is nothing to tell of here. Errors: the row that has to be read first.
fn look(state: &mut State, ask: &Ask, want: &Want) -> std::result::Result<Option<Found>, Wanted> {
    let volume = ask.volume;
    Ok(Some(match want {
        Want::Inode(ino) => {
            let (seen, counted) = state.counted_inode(volume, *ino);
            let Seen::Known(inode) = seen else { return Err(Wanted::Inode(*ino)) };
            let with_blocks = |inode| Some((inode, state.blocks(volume, *ino, &inode, counted)?));
            let described = inode.map(with_blocks);
            Found::Inode(*ino, described.map_or(Ok(None), |known| known.map(Some).ok_or(Wanted::Inode(*ino)))?)
        }
        Want::Entry(dir, name) => match state.entry(volume, *dir, name) {
            Seen::Known(entry) => Found::Entry(*dir, name.clone(), entry),
            _ => return Err(Wanted::Entry(*dir, name.clone())),
        },
        Want::Xattrs(ino) => match state.xattrs(volume, *ino) {
            Seen::Known(all) => Found::Xattrs(*ino, all),
            _ => return Err(Wanted::Xattrs(*ino)),
        },
        Want::Opens(ino) => Found::Opens(*ino, state.holds_for((volume, ask.session), *ino)),
        Want::Fresh | Want::Turn => return Ok(None),
    }))
}
