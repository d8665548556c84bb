//! The rows of replicas in a checkpoint: replay begins behind the votes that made their promises.

use crate::format::superblock::{REPLICA_ROWS, REPLICAS};
use crate::format::values::{self, ReplicaRow};
use crate::index::IndexEdit;
use crate::{Store, format::keys};
use base::GroupId;
use runtime::seeded::{Bug, active};

/// The row of a replica.
pub(super) fn row(store: &Store, group: GroupId, replica: ReplicaRow) -> Option<IndexEdit> {
    let features = store.superblock.lock().features.incompatible;
    let marked = features & REPLICAS != 0 || active(Bug::FeatureUnmarked);
    assert!(marked, "a brick is marked before one of its replicas promises anything");
    // A brick that a build before has marked may come here before its second mark is durable.
    let before = replica.before.filter(|_| features & REPLICA_ROWS != 0);
    let row = IndexEdit::Put(keys::promise(group), values::encode_replica(&ReplicaRow { before, ..replica }));
    (!active(Bug::VoteForgotten)).then_some(row)
}
