//! Records on their way to another brick: those that an append names go before it, with their payloads, which may have to be read from the
//! device first.

use super::Replication;
use crate::Groups;
use crate::heal::gather::ToRead;
use crate::replica::codec::{Told, put_told};
use crate::replica::kept::Kept;
use crate::replica::{Replica, pieces};
use crate::state::State;
use base::checksum::crc32c;
use base::limits::BLOCK_BYTES;
use base::{Error, GroupId, Index, Kind, ReplicaId, Result, Term};
use order_raft::{Body, Message};
use runtime::{Event, Lock, Slice};
use std::collections::VecDeque;
use std::sync::Arc;
use store::format::record::Run;
use wire::codec::Sums;
use wire::peer::{PARCEL_BLOCKS_MAX, Parcel, PeerId, QUEUED_BYTES_MAX};

/// Bytes of records that are sent with one append, unless the first one has more. Twice as many may wait for a brick.
const SHIPMENT_BYTES_MAX: usize = QUEUED_BYTES_MAX / 2;
/// Reads that are under way at a time: enough for the rate of a fast drive, few enough to leave it to clients.
const READS_MAX: usize = 32;

/// The messages that are to be sent to one of the others.
pub(crate) struct Way {
    queue: Lock<Queue>,
    came: Event,
}

impl Default for Way {
    fn default() -> Way {
        Way { queue: Lock::new("way", Queue::default()), came: Event::new() }
    }
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Shipment>,
    /// The task has one under way.
    is_busy: bool,
}

impl Way {
    /// Wakes the task.
    pub fn wake(&self) {
        self.came.notify();
    }
}

/// A message and the records that it names.
struct Shipment {
    group: GroupId,
    everyone: Index,
    message: Message,
    records: Vec<Kept>,
}

impl Shipment {
    fn is_in_memory(&self) -> bool {
        self.records.iter().all(|kept| kept.payload.is_in_memory())
    }
}

impl Groups {
    /// Sends a message of a group's order, after the records that it names. One that names a record which is no longer there is not sent:
    /// it is of a term that is over.
    pub(super) fn ship(&self, state: &mut State, to: ReplicaId, mut message: Message) {
        let replication = self.replication();
        let at = replication.others.iter().position(|member| member.replica == to);
        let at = at.expect("the order has messages for the other members");
        let mut records = Vec::new();
        if let Body::Append { previous, entries, .. } = &mut message.body {
            let terms = entries.iter().map(|entry| entry.term);
            match state.replica().records_for(to, previous.index, terms) {
                Some(found) => records = found,
                None => return,
            }
            entries.truncate(records.len());
        }
        let everyone = state.replica().everyone();
        let shipment = Shipment { group: state.group, everyone, message, records };
        let way = &replication.ways[at];
        let mut queue = way.queue.lock();
        if !queue.is_busy && queue.waiting.is_empty() && shipment.is_in_memory() {
            // Under the lock: what comes next goes next.
            let last = shipment.records.last().map(|kept| kept.position.index);
            replication.post(at, shipment);
            drop(queue);
            if let Some(last) = last {
                let now = self.store().runtime.clock.now_ns();
                state.replica().acks.entry(to).or_default().sent(last, now);
            }
            return;
        }
        queue.waiting.push_back(shipment);
        drop(queue);
        way.came.notify();
    }

    /// Sends what has to be read first, one after the other. Ends when the groups close.
    pub(super) async fn run_way(self: Arc<Groups>, at: usize) {
        let way = &self.replication().ways[at];
        loop {
            let ticket = way.came.ticket();
            if self.is_closing() {
                return;
            }
            let next = {
                let mut queue = way.queue.lock();
                let next = queue.waiting.pop_front();
                queue.is_busy = next.is_some();
                next
            };
            let Some(mut shipment) = next else {
                way.came.after(ticket).await;
                continue;
            };
            if let Err(error) = self.read_payloads(&mut shipment).await {
                self.leave_out_records(at, &mut shipment, error.kind);
            }
            self.wait_for_queue(at).await;
            self.replication().post(at, shipment);
        }
    }

    /// Leaves records that can't be read out of an append. The follower is told, and answers the append that is left: if it has got
    /// rows meanwhile it has more than this brick knew.
    fn leave_out_records(&self, at: usize, shipment: &mut Shipment, why: Kind) {
        let last = shipment.records.last().map(|kept| kept.position.index);
        // Memory that is short now may be there later.
        if let Some(last) = last.filter(|_| why != Kind::Host) {
            self.state(shipment.group).state.lock().replica().needs_heal += 1;
            self.tell_lack(shipment.group, self.replication().others[at].replica, Index(last.0 + 1));
        }
        shipment.records.clear();
        if let Body::Append { entries, .. } = &mut shipment.message.body {
            entries.clear();
        }
    }

    /// Waits while the other brick takes what was read more slowly than the device gives it: too much in the queue would end the connection.
    async fn wait_for_queue(&self, at: usize) {
        let replication = self.replication();
        if let Some(peers) = replication.peers() {
            peers.room(PeerId(replication.others[at].brick.0)).await;
        }
    }

    /// Reads the payloads that are not in memory. Errors: `Corrupt` if a block is no longer where it was.
    async fn read_payloads(&self, shipment: &mut Shipment) -> Result<()> {
        // From the first read to the last one: no place is used for something else meanwhile.
        let _pin = self.store().pin();
        let Shipment { records, .. } = shipment;
        let absent: Vec<usize> = (0..records.len()).filter(|at| !records[*at].payload.is_in_memory()).collect();
        let runs = |record: &usize| {
            let to_read = |(at, run): (usize, &Run)| ToRead { run: *run, of: (*record, at) };
            records[*record].payload.runs.iter().enumerate().map(to_read).collect::<Vec<_>>()
        };
        let to_read = absent.iter().flat_map(runs).collect();
        for ((record, _), slice) in self.gather(to_read, READS_MAX).await {
            records[record].payload.slices.push(slice?);
        }
        let is_whole = |kept: &Kept| {
            let blocks = kept.payload.slices.iter().flat_map(|slice| slice.chunks(BLOCK_BYTES));
            blocks.map(crc32c).eq(kept.payload.crcs.iter().copied())
        };
        match absent.into_iter().all(|record| is_whole(&records[record])) {
            true => Ok(()),
            false => Err(Error::new(Kind::Corrupt, "a record's blocks are no longer where they were written")),
        }
    }
}

impl Replica {
    /// The first records of an append, as many as are sent at once. What is left out is asked for when the follower has answered: either it
    /// has these alone, or it refuses the appends that the order has sent meanwhile, which begin behind what it has, and so travel without
    /// records. None if one is no longer there.
    fn records_for(&mut self, to: ReplicaId, previous: Index, terms: impl Iterator<Item = Term>) -> Option<Vec<Kept>> {
        let matched = self.order.matched(to);
        if self.cut_at.get(&to).is_some_and(|cut_at| previous > *cut_at && matched <= *cut_at) {
            return Some(Vec::new());
        }
        self.cut_at.remove(&to);
        let (mut records, mut bytes) = (Vec::new(), 0);
        for (number, term) in (1..).zip(terms) {
            let index = Index(previous.0 + number);
            let kept = self.kept.get(index).filter(|kept| kept.position.term == term)?;
            bytes += kept.bytes.len() + kept.payload.crcs.len() * BLOCK_BYTES;
            if bytes > SHIPMENT_BYTES_MAX && !records.is_empty() {
                self.cut_at.insert(to, Index(index.0 - 1));
                break;
            }
            records.push(kept.clone());
        }
        Some(records)
    }
}

impl Replication {
    fn post(&self, at: usize, shipment: Shipment) {
        let Shipment { group, everyone, message, records } = shipment;
        let Some(peers) = self.peers() else { return };
        let to = PeerId(self.others[at].brick.0);
        let send = |told: &Told, payload: Vec<Slice>, crcs: &[u32]| {
            let mut body = Vec::with_capacity(256);
            put_told(&mut body, told);
            let sums = Sums::known(0, crcs.iter().copied().collect());
            peers.send(to, &Parcel { group, body, payload, sums });
        };
        for Kept { bytes, payload, .. } in records {
            let crcs = &payload.crcs;
            let pieces = pieces(crcs.len()).max(1);
            for piece in 0..pieces {
                let (from, to) = (piece * PARCEL_BLOCKS_MAX, crcs.len().min((piece + 1) * PARCEL_BLOCKS_MAX));
                let told = match piece {
                    0 => Told::Record { bytes: bytes.to_vec(), more: (pieces - 1) as u8 },
                    _ => Told::Piece,
                };
                send(&told, payload.part(from..to), &crcs[from..to]);
            }
        }
        send(&Told::Message { from: self.me.replica, everyone, message }, Vec::new(), &[]);
    }
}
