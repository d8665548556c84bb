//! Reservation of numbers for inodes, cookies and intents. Each number is given out once, even if a crash undoes its
//! use (rule L2): a life of the group gives out only numbers that a durable record has reserved for it, and the next
//! life begins behind them. So a client's file handle never reaches another file.

use crate::Groups;
use crate::order::held::{GroupSet, Held};
use crate::order::record::Record;
use base::{Edit, Kind, Numbers, Result, Sync, VolumeId};
use names::Part;

impl Groups {
    /// Reserves numbers for all groups that have none left, and waits until the reservations are durable. Errors: the
    /// log's.
    pub(crate) async fn reserve_numbers(&self) -> Result<()> {
        self.reserve(0).await
    }

    /// Reserves more numbers once half of them are used, so that nobody has to wait.
    pub(crate) async fn reserve_numbers_ahead(&self) -> Result<()> {
        let count = self.options.numbers_at_once;
        let is_short = |group: &crate::Group| {
            let state = group.state.lock();
            // A group that has given out no number since the start has none reserved, and needs none.
            !state.is_out_of_numbers() && state.short_of_numbers(count / 2, count).is_some()
        };
        if self.states().iter().any(is_short) { self.reserve(count / 2).await } else { Ok(()) }
    }

    async fn reserve(&self, left: u64) -> Result<()> {
        let mut ordered = Vec::new();
        for group in self.states() {
            let number = group.number;
            // Who does not lead a group gives out none of its numbers.
            if self.is_across() && group.state.lock().replica().serves().is_err() {
                continue;
            }
            loop {
                let segment = self.store().log.segment_came.ticket();
                let mut held = Held::new(self, &GroupSet::one(number));
                let state = held.of(number);
                let Some(numbers) = state.short_of_numbers(left, self.options.numbers_at_once) else {
                    // Another task has ordered the reservation, in the log's last batch or an earlier one.
                    ordered.push((group, state.row.reserved));
                    break;
                };
                let part = Part { volume: VolumeId(0), group: number, edits: vec![Edit::Numbers { numbers }] };
                match self.order_record(&mut held, &Record::own(&part), None, Sync::Ordered) {
                    Err(error) if error.kind == Kind::Busy => {
                        drop(held);
                        self.wait_for_segment(segment).await?;
                    }
                    done => {
                        done?;
                        ordered.push((group, numbers));
                        break;
                    }
                }
            }
        }
        assert!(self.is_across() || ordered.len() == self.states().len(), "each group has its numbers");
        self.grant(ordered).await
    }

    async fn grant(&self, ordered: Vec<(&crate::Group, Numbers)>) -> Result<()> {
        self.all_committed(Sync::All, None).await?;
        ordered.into_iter().for_each(|(group, numbers)| group.state.lock().grant(numbers));
        Ok(())
    }
}
