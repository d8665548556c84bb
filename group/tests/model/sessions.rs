//! Nothing is left of a session that is over (rules R1, R2).

use crate::rig::{Rig, Shape, name, pattern};
use base::{GroupId, Holder, Kind, Op, SessionId};
use group::{Kept, Scope};
use runtime::random::SplitMix;
use runtime::sim::{Survival, World};
use std::collections::BTreeSet;
use store::format::keys;
use store::index::Index;

/// The sessions of which the index has results.
fn kept(rig: &Rig) -> BTreeSet<SessionId> {
    let of_group = |group| {
        let (from, to) = keys::sessions(GroupId(group));
        rig.index.scan(&from, &to, usize::MAX).expect("the model index reads")
    };
    (0..rig.groups.store().groups).flat_map(of_group).map(|(key, _)| keys::session_id(&key)).collect()
}

#[test]
pub fn nothing_is_left_of_a_session_that_is_over() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let first = Rig::new(runtime, Shape::SMALL).await;
        let other = first.client(5, first.new_volume("other").await);
        for rig in [&first, &other] {
            rig.groups.begin_session(rig.volume.id, rig.session).await.expect("nothing to end");
        }
        let open = first.unlinked().await;
        let open_too = other.unlinked().await;
        let once = first.context();
        let made = || Op::Create { parent: first.volume.root, name: name("once"), mode: 0o600, exclusive: true };
        for _ in 0..2 {
            first.call_as(&once, made(), None).await.expect("made, and told again");
        }
        first.checkpoint().await;
        assert_eq!(kept(&first), BTreeSet::from([first.session, other.session]));
        let next = first.client(9, first.volume.clone());
        next.groups.begin_session(next.volume.id, next.session).await.expect("a healthy brick ends a session");
        assert_eq!(next.attr(Op::GetAttr { ino: open }).await.err(), Some(Kind::Stale), "it was open only there");
        assert!(other.read(open_too, 0, 50_000).await == Ok(pattern(1, 50_000)), "another volume's session goes on");
        let again = first.call_as(&once, made(), None).await;
        assert_eq!(again.map(|_| ()).map_err(|error| error.kind), Err(Kind::Exists), "the answer is forgotten");
        next.done(Op::SyncAll).await.expect("a healthy brick syncs");
        next.checkpoint().await;
        assert_eq!(kept(&next), BTreeSet::from([other.session]));
        next.groups.end_sessions(Scope::All, other.volume.id).await.expect("a healthy brick ends a session");
        assert_eq!(other.attr(Op::GetAttr { ino: open_too }).await.err(), Some(Kind::Stale));
        drop((first, other));
        // What a process leaves goes when the next one begins.
        next.create(next.volume.root, "more").await.expect("a new file");
        next.checkpoint().await;
        assert_eq!(kept(&next), BTreeSet::from([next.session]));
        let rig = next.reopen().await;
        rig.groups.forget_sessions().await.expect("a healthy brick forgets");
        rig.checkpoint().await;
        assert_eq!(kept(&rig), BTreeSet::new());
        rig.settle().await;
        assert_eq!(rig.groups.store().segments().live_blocks, 0);
        rig.reopen().await;
    });
}

fn holder(rig: &Rig) -> Holder {
    Holder { client: name("far"), volume: rig.volume.id, locks: false }
}

/// A client on another machine keeps through a crash of the brick what it has open without a name, and its results; what nobody
/// has open is freed once all such clients of the volume have told, or are over.
#[test]
pub fn clients_of_other_machines_keep_their_open_files_through_a_crash() {
    let mut world = World::new(2);
    let runtime = world.runtime();
    let (rig, [kept, left, of_second]) = world.block_on(async {
        let rig = Rig::new(runtime.clone(), Shape::SMALL).await;
        let second = rig.client(900, rig.volume.clone());
        for rig in [&rig, &second] {
            rig.groups.admit_session(Scope::All, rig.session, &holder(rig)).await.expect("a healthy brick admits");
        }
        let inodes = [rig.unlinked().await, rig.unlinked().await, second.unlinked().await];
        let once = rig.context_of(500);
        rig.call_as(&once, Op::MakeDir { parent: rig.volume.root, name: name("once"), mode: 0o755 }, None)
            .await
            .expect("made");
        rig.done(Op::SyncAll).await.expect("a healthy brick syncs");
        (rig, inodes)
    });
    let image = world.crash_as(Survival::Nothing, &mut SplitMix(2));
    let mut world = World::from_image(2, image);
    let runtime = world.runtime();
    world.block_on(async {
        let after = rig.after_crash(runtime, 0).await;
        after.groups.forget_sessions().await.expect("a healthy brick forgets");
        let (first, second) = (after.client(rig.session.0, rig.volume.clone()), after.client(900, rig.volume.clone()));
        // Their next requests have numbers behind those of before the crash.
        (0..600).for_each(|_| _ = (first.context(), second.context()));
        let known = first.groups.network_sessions(Scope::All);
        assert_eq!(known.len(), 2);
        assert!(known.iter().all(|known| !known.has_told && known.holder == holder(&rig)));
        let is_there = async |ino| first.attr(Op::GetAttr { ino }).await.is_ok();
        let again = Op::MakeDir { parent: rig.volume.root, name: name("once"), mode: 0o755 };
        first.call_as(&first.context_of(500), again, None).await.expect("it is told again");
        // Each part of what the first one has, twice: its connection broke in between.
        let mine = |ino| Kept { ino, opens: 1, told: 0 };
        for _ in 0..2 {
            first.groups.reclaim(Scope::All, rig.session, &[mine(kept)], (true, false)).await.expect("known");
        }
        assert!(is_there(kept).await && is_there(left).await && is_there(of_second).await, "not all have told");
        first.groups.reclaim(Scope::All, rig.session, &[], (false, true)).await.expect("known");
        assert!(is_there(left).await, "the second one may have it open");
        // A file that is removed now stays too.
        let file = first.create(rig.volume.root, "file").await.expect("a new file");
        first.done(Op::Unlink { parent: rig.volume.root, name: name("file") }).await.expect("it is there");
        first.done(Op::Release { ino: file }).await.expect("it is open");
        assert!(is_there(file).await);
        second.groups.end_session(Scope::All, SessionId(900)).await.expect("a healthy brick ends a session");
        assert!(is_there(kept).await, "its client has told that it has it open");
        assert!(!is_there(left).await && !is_there(of_second).await && !is_there(file).await);
        first.done(Op::Release { ino: kept }).await.expect("it is open");
        assert!(!is_there(kept).await, "it was open once");
        let over = second.groups.reclaim(Scope::All, SessionId(900), &[], (true, true)).await;
        assert_eq!(over.map_err(|error| error.kind), Err(Kind::Fenced));
        drop((first, second));
        after.close().await;
    });
}

/// A change that a crash took is told as lost to a client that names its position, also when its index is used again; one that is
/// durable never is, nor is any that another copy of the brick made (rule P3).
#[test]
pub fn a_change_that_a_crash_took_is_told_as_lost() {
    let mut world = World::new(3);
    let runtime = world.runtime();
    let mut told = Vec::new();
    let (rig, begun) = world.block_on(async {
        let rig = Rig::new(runtime.clone(), Shape::SMALL).await;
        let begun =
            rig.groups.admit_session(Scope::All, rig.session, &holder(&rig)).await.expect("a healthy brick admits");
        let make = async |text: &str| {
            let op = Op::Create { parent: rig.volume.root, name: name(text), mode: 0o644, exclusive: true };
            rig.call(op, None).await.expect("a new file").position.expect("it was ordered")
        };
        told.push(make("durable").await);
        rig.done(Op::SyncAll).await.expect("a healthy brick syncs");
        told.extend([make("lost").await, make("lost too").await]);
        assert!(told.iter().all(|position| !rig.groups.is_lost(position, begun.start)));
        (rig, begun)
    });
    let mut world = World::from_image(3, world.crash_as(Survival::Nothing, &mut SplitMix(3)));
    let runtime = world.runtime();
    world.block_on(async {
        let after = rig.after_crash(runtime, 0).await;
        let lost = |rig: &Rig| [0, 1, 2].map(|at| rig.groups.is_lost(&told[at], begun.start));
        assert_eq!(lost(&after), [false, true, true], "nothing was ordered since");
        for number in 0..5 {
            after.create(rig.volume.root, &number.to_string()).await.expect("a new file");
        }
        assert_eq!(lost(&after), [false, true, true], "their indices are those of other changes now");
        let again =
            after.groups.admit_session(Scope::All, rig.session, &holder(&rig)).await.expect("a healthy brick admits");
        assert!(again.term > begun.term && again.start != begun.start);
        assert_eq!(lost(&after), [false, true, true]);
        assert!(after.groups.is_lost(&told[0], begun.start + 1), "another process has told it");
        // The index holds the terms.
        let after = after.reopen().await;
        assert_eq!(lost(&after), [false, true, true]);
        after.close().await;
    });
}
