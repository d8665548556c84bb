//! Histories of registers that several clients read and write.

use std::collections::{BTreeSet, HashSet};

/// A call of a register. Values are written once; a register holds zero at first.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub register: u64,
    pub is_write: bool,
    pub value: u64,
    pub began_ns: u64,
    /// `u64::MAX` for a write that nobody knows the outcome of: it may have been done at any time, or never.
    pub ended_ns: u64,
}

/// True if calls of one register can be put in an order that agrees with their times and values (Wing and Gong, 1993, with Lowe's memory
/// of what was tried).
pub fn is_linearizable(mut calls: Vec<Call>) -> bool {
    calls.sort_unstable_by_key(|call| call.began_ns);
    let mut tried = HashSet::new();
    // All calls before `from` are done, and of later ones those in the set.
    let mut stack = vec![(0usize, BTreeSet::new(), 0u64)];
    while let Some((from, done, value)) = stack.pop() {
        let left = || (from..calls.len()).filter(|at| !done.contains(at));
        if left().all(|at| calls[at].ended_ns == u64::MAX) {
            return true;
        }
        if !tried.insert((from, done.clone(), value)) {
            continue;
        }
        let mut first_end = u64::MAX;
        let mut open = Vec::new();
        for at in left() {
            if calls[at].began_ns > first_end {
                break;
            }
            first_end = first_end.min(calls[at].ended_ns);
            open.push(at);
        }
        for at in open.into_iter().filter(|at| calls[*at].began_ns <= first_end) {
            let call = calls[at];
            if !call.is_write && call.value != value {
                continue;
            }
            let (mut from, mut done) = (from, done.clone());
            done.insert(at);
            while done.remove(&from) {
                from += 1;
            }
            stack.push((from, done, call.value));
        }
    }
    false
}

#[test]
fn an_old_value_is_noticed() {
    let call = |is_write, value, began_ns, ended_ns| Call { register: 0, is_write, value, began_ns, ended_ns };
    let (write, lost) = (call(true, 1, 0, 10), call(true, 2, 20, u64::MAX));
    assert!(is_linearizable(vec![write, call(false, 0, 5, 9), call(false, 1, 11, 12)]));
    assert!(!is_linearizable(vec![write, call(false, 1, 5, 6), call(false, 0, 7, 8)]), "it was seen before");
    assert!(!is_linearizable(vec![write, call(false, 0, 11, 12)]), "it had ended");
    assert!(is_linearizable(vec![write, lost, call(false, 1, 21, 22), call(false, 2, 90, 91)]));
    assert!(!is_linearizable(vec![write, lost, call(false, 2, 21, 22), call(false, 1, 90, 91)]));
}
