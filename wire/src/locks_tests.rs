use super::*;
use base::lock::Mode;
use runtime::random::SplitMix;

const VOLUME: VolumeId = VolumeId(3);
const INO: Ino = Ino(77);

fn lock(owner: u64, mode: Mode, first: u64, last: u64) -> Owned {
    let lock = FileLock { ino: INO, family: Family::Range, mode, owner, pid: 1, first, last };
    Owned { session: SessionId(owner / 10), lock }
}
fn exclusive(owner: u64, first: u64, last: u64) -> Owned {
    lock(owner, Mode::Exclusive, first, last)
}
fn shared(owner: u64, first: u64, last: u64) -> Owned {
    lock(owner, Mode::Shared, first, last)
}
fn whole(owner: u64, mode: Mode) -> Owned {
    let Owned { session, lock } = lock(owner, mode, 0, u64::MAX);
    Owned { session, lock: FileLock { family: Family::Whole, ..lock } }
}

/// True if the lock was taken.
fn takes(locks: &mut Locks, wanted: Owned) -> bool {
    locks.take(VOLUME, wanted, false, 0).expect("few locks").0.is_none()
}
fn queues(locks: &mut Locks, wanted: Owned, now_ns: u64) -> bool {
    locks.take(VOLUME, wanted, true, now_ns).expect("few locks").0.is_none()
}
fn held(locks: &Locks) -> Vec<(u64, Mode, u64, u64)> {
    let mut held: Vec<_> =
        locks.held().map(|held| (held.lock.owner, held.lock.mode, held.lock.first, held.lock.last)).collect();
    held.sort_unstable_by_key(|held| (held.0, held.2));
    held
}

#[test]
fn ranges_are_cut_and_joined() {
    let mut locks = Locks::default();
    assert!(takes(&mut locks, exclusive(10, 0, 99)));
    assert!(takes(&mut locks, shared(10, 40, 49)));
    use Mode::{Exclusive, Shared};
    assert_eq!(held(&locks), [(10, Exclusive, 0, 39), (10, Shared, 40, 49), (10, Exclusive, 50, 99)]);
    assert!(!takes(&mut locks, shared(20, 45, 60)), "50 to 60 is another's");
    assert!(takes(&mut locks, shared(20, 45, 49)));
    assert!(locks.release(VOLUME, &exclusive(10, 0, 44)).is_empty());
    assert_eq!(held(&locks), [(10, Shared, 45, 49), (10, Exclusive, 50, 99), (20, Shared, 45, 49)]);
    locks.release(VOLUME, &shared(20, 0, u64::MAX));
    assert!(takes(&mut locks, exclusive(10, 45, 49)) && takes(&mut locks, exclusive(10, 100, u64::MAX)));
    assert_eq!(held(&locks), [(10, Exclusive, 45, u64::MAX)]);
    let found = locks.test(VOLUME, &shared(11, 0, 45)).expect("it is in the way");
    assert_eq!((found.lock.owner, found.session), (10, SessionId(1)));
    assert_eq!(locks.test(VOLUME, &shared(11, 0, 44)), None);
    assert_eq!(locks.test(VOLUME, &whole(11, Mode::Exclusive)), None, "another family");
    locks.end(SessionId(1));
    assert!(locks.files.is_empty() && locks.counts.is_empty());
}

#[test]
fn who_asks_first_gets_it_first() {
    let mut locks = Locks::default();
    assert!(queues(&mut locks, exclusive(10, 0, 9), 0));
    assert!(!queues(&mut locks, exclusive(20, 5, 6), 1) && !queues(&mut locks, shared(30, 0, 9), 2));
    assert_eq!(locks.release(VOLUME, &exclusive(10, 0, 9)), [exclusive(20, 5, 6)], "the first in the queue is told");
    assert!(!takes(&mut locks, shared(30, 6, 6)), "the place is in the way like the lock");
    assert!(!queues(&mut locks, shared(30, 0, 9), 3), "it comes second");
    assert!(queues(&mut locks, exclusive(20, 5, 6), 4));
    assert_eq!(locks.release(VOLUME, &exclusive(20, 0, 9)), [shared(30, 0, 9)]);
    assert!(queues(&mut locks, shared(30, 0, 9), 5));
    assert_eq!(locks.wanted_sessions(), BTreeSet::from([SessionId(1), SessionId(2)]));
    assert!(locks.wanted_sessions().is_empty());
}

#[test]
fn a_place_that_nobody_asks_for_is_given_up() {
    let mut locks = Locks::default();
    assert!(queues(&mut locks, exclusive(10, 0, 9), 0));
    assert!(!queues(&mut locks, exclusive(20, 0, 9), 0) && !queues(&mut locks, exclusive(30, 0, 9), 1));
    locks.release(VOLUME, &exclusive(10, 0, 9));
    assert!(!queues(&mut locks, exclusive(30, 0, 9), LOCK_PLACE_NS), "the place before it counts");
    assert!(queues(&mut locks, exclusive(30, 0, 9), LOCK_PLACE_NS + 1));
    assert!(!queues(&mut locks, exclusive(40, 0, 9), LOCK_PLACE_NS + 1));
    assert_eq!(locks.leave(VOLUME, &exclusive(40, 0, 9)), [], "who leaves is told nothing");
    assert_eq!(locks.end(SessionId(3)), []);
    assert!(locks.files.is_empty() && locks.counts.is_empty());
}

#[test]
fn who_would_wait_for_itself_is_told() {
    let mut locks = Locks::default();
    assert!(queues(&mut locks, exclusive(10, 0, 0), 0) && queues(&mut locks, exclusive(20, 1, 1), 0));
    assert!(queues(&mut locks, exclusive(30, 2, 2), 0));
    assert!(!queues(&mut locks, exclusive(10, 1, 1), 0) && !queues(&mut locks, exclusive(20, 2, 2), 0));
    let deadlock = locks.take(VOLUME, exclusive(30, 0, 0), true, 0).map_err(|error| error.kind);
    assert_eq!(deadlock, Err(Kind::Deadlock));
    assert!(!takes(&mut locks, exclusive(30, 0, 0)), "who does not wait is only told that it is taken");
    assert_eq!(locks.end(SessionId(2)), [exclusive(10, 1, 1)]);
}

#[test]
fn who_has_a_lock_does_not_wait_for_those_who_wait_for_it() {
    let mut locks = Locks::default();
    assert!(queues(&mut locks, exclusive(10, 0, 99), 0) && !queues(&mut locks, exclusive(20, 0, 99), 0));
    assert!(queues(&mut locks, exclusive(10, 0, 49), 0) && queues(&mut locks, exclusive(10, 90, 120), 0));
    assert!(queues(&mut locks, shared(10, 0, 120), 0), "also in another mode");
    assert!(!queues(&mut locks, shared(30, 0, 9), 0), "others do");
}

#[test]
fn a_lock_of_a_whole_file_is_given_up_before_it_changes_its_mode() {
    let mut locks = Locks::default();
    assert!(takes(&mut locks, whole(10, Mode::Shared)) && takes(&mut locks, whole(20, Mode::Shared)));
    assert!(!queues(&mut locks, whole(10, Mode::Exclusive), 0));
    assert!(queues(&mut locks, whole(20, Mode::Shared), 0), "what it has it keeps");
    assert_eq!(locks.release(VOLUME, &whole(20, Mode::Shared)), [whole(10, Mode::Exclusive)]);
    assert!(queues(&mut locks, whole(10, Mode::Exclusive), 0));
}

#[test]
fn sessions_are_bounded_and_have_back_what_they_had() {
    let mut locks = Locks::default();
    for at in 0..SESSION_LOCKS_MAX as u64 {
        assert!(takes(&mut locks, exclusive(10, 2 * at, 2 * at)));
    }
    let more = locks.take(VOLUME, exclusive(11, u64::MAX, u64::MAX), false, 0).map_err(|error| error.kind);
    assert_eq!(more, Err(Kind::NoLocks));
    assert!(!locks.reclaim(VOLUME, exclusive(11, u64::MAX, u64::MAX)));
    assert!(locks.reclaim(VOLUME, exclusive(21, u64::MAX, u64::MAX)), "another session");
    assert!(!locks.reclaim(VOLUME, exclusive(30, 0, u64::MAX)), "somebody has it");
    let has = |owner| locks.held().any(|held| held.lock.owner == owner);
    assert!(has(10) && !has(11));
}

/// A client's cores hear answers in another order than the server gave them: the second owner's lock was not noted, and was given to somebody
/// else by the next server.
#[test]
fn a_lock_is_told_to_the_next_server_although_the_former_owners_release_is_still_to_be_answered() {
    let (first, second) = (whole(11, Mode::Exclusive), whole(12, Mode::Exclusive));
    let (mut client, mut server) = (Locks::default(), Locks::default());
    client.note(VOLUME, first);
    client.note(VOLUME, second);
    let told: Vec<Owned> = client.held().copied().collect();
    assert!(told.iter().all(|lock| server.reclaim(VOLUME, *lock)), "both were given");
    drop((client.release(VOLUME, &first), server.release(VOLUME, &first)));
    for locks in [&mut client, &mut server] {
        assert_eq!(held(locks), [(12, Mode::Exclusive, 0, u64::MAX)]);
        assert!(!takes(locks, first) && !takes(locks, whole(21, Mode::Shared)));
    }
    assert!(!server.reclaim(VOLUME, whole(21, Mode::Exclusive)), "another session has it");
}

/// Owners, each with a mode per byte, as a plain model of ranges has them.
#[test]
fn it_is_as_a_byte_by_byte_model() {
    for seed in 0..200 {
        let mut rng = SplitMix(seed);
        let mut locks = Locks::default();
        let mut model = [[None::<Mode>; 16]; 4];
        for _ in 0..300 {
            let owner = rng.below(4) as usize;
            let (one, other) = (rng.below(16), rng.below(16));
            let (first, last) = (one.min(other), one.max(other));
            let mode = if rng.below(2) == 0 { Mode::Shared } else { Mode::Exclusive };
            let wanted = lock(owner as u64 * 10, mode, first, last);
            let bytes = first as usize..=last as usize;
            if rng.below(3) == 0 {
                locks.release(VOLUME, &wanted);
                model[owner][bytes].fill(None);
                continue;
            }
            let excludes =
                |had: &Option<Mode>| *had == Some(Mode::Exclusive) || had.is_some() && mode == Mode::Exclusive;
            let others = (0..4).filter(|other| *other != owner);
            let is_free = !others.clone().any(|other| model[other][bytes.clone()].iter().any(excludes));
            assert_eq!(locks.test(VOLUME, &wanted).is_none(), is_free, "seed {seed}");
            assert_eq!(takes(&mut locks, wanted), is_free, "seed {seed}");
            if is_free {
                model[owner][bytes].fill(Some(mode));
            }
        }
        let count: usize = locks.counts.values().sum();
        assert_eq!(count, locks.held().count(), "seed {seed}");
        for (owner, bytes) in model.iter().enumerate() {
            for (byte, mode) in bytes.iter().enumerate() {
                let has = |held: &&Owned| {
                    let range = held.lock.first..=held.lock.last;
                    held.lock.owner == owner as u64 * 10 && range.contains(&(byte as u64))
                };
                assert_eq!(locks.held().find(has).map(|held| held.lock.mode), *mode, "seed {seed}");
            }
        }
    }
}
