//! Two bricks that ask and answer each other, each by its own clock.

use super::*;

const A: BrickId = BrickId(1);
const B: BrickId = BrickId(2);
const S: Nanos = 1_000_000_000;

/// B asks A; the answer comes at `later` by B's clock. True if it is a grant.
fn ask(a: &mut Supports, b: &mut Supports, at_a: Nanos, at_b: Nanos, later: Nanos) -> bool {
    let ask = b.ask(A, None, at_b);
    let answer = a.asked(B, ask, at_a).expect("it is the latest");
    b.answered(A, answer, later);
    answer.spell.is_some()
}

/// A supports B, as of times 10 s and 20 s of their clocks.
fn supported() -> (Supports, Supports) {
    let open = |epoch, now| Supports::open(Epoch(epoch), Ended::SupportingNobody, now);
    let (mut a, mut b) = (open(5, 9 * S), open(7, 19 * S));
    assert!(!ask(&mut a, &mut b, 10 * S, 20 * S, 20 * S), "B has not heard A yet");
    assert!(ask(&mut a, &mut b, 10 * S, 20 * S, 20 * S + 1));
    (a, b)
}

#[test]
fn support_counts_from_its_asking_and_ends_for_the_asker_first() {
    let (mut a, mut b) = supported();
    let spell = a.given(B, 12 * S - 1);
    assert_eq!(spell, Some(Spell { epoch: Epoch(5), number: 1 }));
    assert_eq!((a.given(B, 12 * S), b.had(A, 20 * S)), (None, spell));
    assert!(b.had(A, 20 * S + COUNTED_NS).is_some() && b.had(A, 20 * S + COUNTED_NS + 1).is_none());
    // Asked for again in time it is the same spell, however late the answer comes.
    assert!(ask(&mut a, &mut b, 11 * S, 21 * S, 22 * S));
    assert_eq!((a.given(B, 13 * S - 1), b.had(A, 21 * S + COUNTED_NS - 1)), (spell, spell));
    assert_eq!(b.had(A, 21 * S + COUNTED_NS), None);
    // Later it is another one.
    assert!(ask(&mut a, &mut b, 14 * S, 24 * S, 24 * S));
    assert_eq!(b.had(A, 24 * S), Some(Spell { epoch: Epoch(5), number: 2 }));
}

#[test]
fn who_hears_nothing_is_supported_no_longer() {
    let (mut a, mut b) = supported();
    for second in 11..20 {
        let ask = b.ask(A, None, (second + 10) * S);
        let granted = a.asked(B, ask, second * S).expect("it is the latest").spell.is_some();
        assert_eq!(granted, second < 14, "B heard A last at 10 s, now it is {second} s");
    }
    assert_eq!(a.given(B, 15 * S), None, "4 s, and what was promised before");
}

#[test]
fn a_question_that_comes_late_or_of_an_earlier_process_changes_nothing() {
    let (mut a, mut b) = supported();
    let early = b.ask(A, None, 21 * S);
    assert!(ask(&mut a, &mut b, 11 * S, 21 * S, 21 * S));
    assert_eq!(a.asked(B, early, 11 * S), None);
    let mut second = Supports::open(Epoch(8), Ended::Somehow, 22 * S);
    let answer = a.asked(B, second.ask(A, None, 22 * S), 12 * S).expect("it is the latest");
    assert_eq!((answer.spell, a.given(B, 12 * S)), (None, None), "the process that had support is gone");
    assert_eq!(a.asked(B, b.ask(A, None, 23 * S), 13 * S), None);
    // The first answer to a process grants nothing, so it asks again.
    assert!(second.answered(A, answer, 22 * S) && !second.answered(A, answer, 22 * S));
    // An answer to the process before counts nothing for this one.
    let before = Answer { asked: early.asked, answered: answer.answered, spell: Some(9) };
    assert!(!second.answered(A, before, 22 * S));
    assert_eq!(second.had(A, 22 * S), None);
}

#[test]
fn what_was_given_back_does_not_come_back() {
    let (mut a, mut b) = supported();
    let late = a.asked(B, b.ask(A, None, 21 * S), 11 * S).expect("it is the latest");
    let asks = b.give_back(21 * S);
    assert_eq!(b.had(A, 21 * S), None);
    b.answered(A, late, 21 * S);
    assert_eq!(b.had(A, 21 * S), None, "it was asked for before");
    for (to, ask) in asks {
        assert_eq!((to, ask.wish), (A, Wish::Freedom));
        a.asked(B, ask, 11 * S);
    }
    assert_eq!(a.given(B, 11 * S), None);
    assert!(ask(&mut a, &mut b, 12 * S, 22 * S, 22 * S));
    assert_eq!(b.had(A, 22 * S), Some(Spell { epoch: Epoch(5), number: 2 }));
}

#[test]
fn an_answer_to_what_was_not_asked_counts_nothing() {
    let (_, mut b) = supported();
    let answered = Stamp { epoch: Epoch(5), at: 11 * S };
    for spell in [1, 9] {
        b.answered(A, Answer { asked: Stamp { epoch: Epoch(7), at: 30 * S }, answered, spell: Some(spell) }, 21 * S);
    }
    let ends = 20 * S + COUNTED_NS;
    assert_eq!(b.had(A, ends - 1), Some(Spell { epoch: Epoch(5), number: 1 }));
    assert_eq!(b.had(A, ends + 1), None);
}

#[test]
fn a_hung_log_asks_for_nothing() {
    let (_, mut b) = supported();
    assert_eq!(b.ask(A, Some(20 * S), 20 * S + HUNG_NS - 1).wish, Wish::Support);
    assert_eq!(b.ask(A, Some(20 * S), 20 * S + HUNG_NS).wish, Wish::Nothing);
    assert_eq!(b.ask(A, None, 22 * S).wish, Wish::Support);
}

#[test]
fn who_has_just_begun_may_be_silent() {
    let (mut a, mut b) = supported();
    assert!(b.is_new(BrickId(3), 90 * S), "nothing was heard of it");
    assert!(b.is_new(A, 20 * S + SILENCE_NS - 1) && !b.is_new(A, 20 * S + SILENCE_NS));
    ask(&mut a, &mut b, 15 * S, 25 * S, 25 * S);
    assert!(!b.is_new(A, 25 * S), "it is the same process");
    let mut second = Supports::open(Epoch(6), Ended::Somehow, 16 * S);
    ask(&mut second, &mut b, 16 * S, 26 * S, 26 * S);
    assert!(b.is_new(A, 26 * S + 1));
}

#[test]
fn a_start_is_silent_unless_the_end_before_left_no_promise() {
    let crashed = Supports::open(Epoch(1), Ended::Somehow, 50 * S);
    assert!(crashed.is_silent(50 * S + PROMISE_NS) && !crashed.is_silent(50 * S + SILENCE_NS));
    assert!(!Supports::open(Epoch(1), Ended::SupportingNobody, 50 * S).is_silent(50 * S));
    let (mut a, mut b) = supported();
    assert!(!a.supports_nobody(20 * S), "it may still promise");
    a.end();
    assert!(!a.supports_nobody(11 * S) && a.supports_nobody(12 * S));
    assert!(!ask(&mut a, &mut b, 11 * S, 21 * S, 21 * S));
    let mut crashed = Supports::open(Epoch(6), Ended::Somehow, 9 * S);
    crashed.end();
    assert!(!crashed.supports_nobody(10 * S), "nor has the process before ended its promises");
}
