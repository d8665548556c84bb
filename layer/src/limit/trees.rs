//! Limits of directory trees: one limiter for each project of a volume that has limits of its own.

use super::{LimitSummary, Limiter};
use base::Limits;
use runtime::Lock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The limiters of a volume's trees, by project.
pub(crate) struct Trees {
    all: Lock<Arc<BTreeMap<u32, Arc<Limiter>>>>,
}

impl Trees {
    pub fn new() -> Trees {
        Trees { all: Lock::new("limits of trees", Arc::default()) }
    }
    /// Puts other limits in place. A tree that keeps any keeps its lines; where none are left, all that waits passes. True if any tree
    /// has limits.
    pub fn change(&self, limits: &Limits, now_ns: u64) -> bool {
        let mut all = self.all.lock();
        let of = |(project, tree): (u32, &base::Tree)| match all.get(&project) {
            Some(limiter) => {
                limiter.change(&tree.limits, now_ns);
                (project, limiter.clone())
            }
            None => (project, Arc::new(Limiter::new(&tree.limits, now_ns))),
        };
        let new: BTreeMap<u32, Arc<Limiter>> = limits.trees().map(of).collect();
        let gone = all.iter().filter(|(project, _)| !new.contains_key(project));
        gone.for_each(|(_, limiter)| limiter.change(&Limits::NONE, now_ns));
        let any = !new.is_empty();
        *all = Arc::new(new);
        any
    }
    /// The limiter of a project's tree.
    pub fn of(&self, project: u32) -> Option<Arc<Limiter>> {
        self.all.lock().get(&project).cloned()
    }
    /// The figures of all, by project.
    pub fn summaries(&self) -> Vec<(u32, LimitSummary)> {
        let all = self.all.lock().clone();
        all.iter().map(|(project, limiter)| (*project, limiter.summary())).collect()
    }
}
