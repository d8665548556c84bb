//! Nothing is left of a session that is over (rules R1, R2).

use crate::rig::{Rig, Shape, name, pattern};
use base::{GroupId, Kind, Op, SessionId};
use runtime::sim::World;
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
        next.groups.end_session(other.volume.id).await.expect("a healthy brick ends a session");
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
