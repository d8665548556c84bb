//! Reads ahead what lies on disks, for clients that read files in order (`data::streams`): each unit by a task of its own, so that
//! streams on several disks don't wait for each other.

use crate::Groups;
use std::sync::Arc;

/// Units for each disk that are read at the same time: while one is looked up, or ends, the other keeps the disk busy. More of
/// them would take the disk from one to the other and back.
const UNITS_PER_DISK: usize = 2;

/// The task. Ends when the groups close or the log fails.
pub async fn run(groups: Arc<Groups>) {
    loop {
        let ticket = groups.streams.came.ticket();
        if groups.is_closing() || groups.store().log.failed().is_some() {
            return groups.streams.end();
        }
        let Some(asked) = groups.streams.take(UNITS_PER_DISK * groups.store().destage().len()) else {
            groups.streams.came.after(ticket).await;
            continue;
        };
        let (there, tasks) = (groups.clone(), &groups.store().runtime.tasks);
        let read = |asked| async move {
            there.read_unit(asked).await;
            there.streams.done();
        };
        tasks.spawn(tasks.core(), Box::new(move || Box::pin(read(asked))));
    }
}
