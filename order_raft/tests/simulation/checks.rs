//! Things that must hold in every step, as seen from outside.

use crate::disk::Records;
use base::{Index, ReplicaId, Term};
use order_raft::Shadow;
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Checks {
    /// The replica, and its process, that led in each term.
    leaders: BTreeMap<Term, (usize, u64)>,
    /// All that was ever told as committed, from index 1.
    committed: Vec<(Term, Shadow)>,
    votes: BTreeMap<(usize, Term), ReplicaId>,
}

impl Checks {
    pub fn committed(&self) -> u64 {
        self.committed.len() as u64
    }
    pub fn terms(&self) -> usize {
        self.leaders.len()
    }
    pub fn leads(&mut self, term: Term, host: usize, process: u64) {
        let first = *self.leaders.entry(term).or_insert((host, process));
        assert_eq!(first, (host, process), "two leaders in term {term}");
    }
    pub fn votes(&mut self, host: usize, term: Term, candidate: ReplicaId) {
        let first = *self.votes.entry((host, term)).or_insert(candidate);
        assert_eq!(first, candidate, "host {host} voted twice in term {term}");
    }
    /// A host tells records as committed, up to `index`; `from` is what it has told before. `disks` are all hosts' durable
    /// records.
    pub fn commits(&mut self, from: u64, index: Index, records: &Records, disks: &[&Records]) {
        for at in from + 1..=index.0 {
            let Some(record) = records.get(&at).copied() else {
                assert!(at <= self.committed(), "{at} is committed, and its host does not have it");
                continue;
            };
            if at <= self.committed() {
                let known = self.committed[usize::try_from(at - 1).expect("a small number")];
                assert_eq!(record, known, "record {at} was committed as another one");
                continue;
            }
            assert_eq!(at, self.committed() + 1, "commits have no gaps");
            let durable = disks.iter().filter(|disk| disk.get(&at) == Some(&record)).count();
            assert!(2 * durable > disks.len(), "record {at} is told as committed and {durable} have it durable");
            self.committed.push(record);
        }
    }
}
