//! The rows of replicas in a checkpoint: replay begins behind the votes that made their promises.

use crate::format::superblock::REPLICAS;
use crate::format::values::{self, ReplicaRow};
use crate::index::IndexEdit;
use crate::{Store, format::keys};
use base::GroupId;
use runtime::seeded::{Bug, active};

/// The row of a replica.
pub(super) fn row(store: &Store, group: GroupId, replica: ReplicaRow) -> Option<IndexEdit> {
    let marked = store.superblock.lock().features.incompatible & REPLICAS != 0 || active(Bug::FeatureUnmarked);
    assert!(marked, "a brick is marked before one of its replicas promises anything");
    let row = IndexEdit::Put(keys::promise(group), values::encode_replica(&replica));
    (!active(Bug::VoteForgotten)).then_some(row)
}
