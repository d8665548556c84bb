//! The tasks of a brick with replicas, and what comes from the others.

use super::Replication;
use super::passes::Passes;
use crate::led::is_silent;
use crate::replica::acks::Acks;
use crate::replica::codec::{Pulse, Told, pulse_bytes, take_pulse, take_told};
use crate::replica::{Replica, Stashed, garbled};
use crate::state::State;
use crate::{Group, Groups};
use base::limits::BULK_BYTES_MIN;
use base::{GroupId, Index, Kind, ReplicaId, Result, Sync};
use order_raft::support::{ASK_EVERY_NS, Ask, BrickId, Epoch, Spell, Stamp, Wish, hangs};
use order_raft::{Body, Member, Message};
use runtime::Runtime;
use runtime::net::Address;
use runtime::seeded::{Bug, active};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::format::record::decode_record;
use wire::peer::{Me, Parcel, PeerId, PeerService, Peers, Reach, Trust};
use wire::tls::Credentials;

/// The pause between looks at what is due: elections, and what followers were not told.
const LOOK_NS: u64 = 20_000_000;
/// The time that a replica leaves to each one that has a lower number: those that ask for votes at the same time get none. A vote
/// takes a few milliseconds, twice, and a busy machine some more.
const TURN_NS: u64 = 100_000_000;
/// The longest time by which a campaign is put off besides.
const JITTER_NS: u64 = 20_000_000;
/// The time that a campaign has before the next one begins, and how often that is doubled: votes may have to wait for slow devices, and
/// a campaign that begins too early ends the one before.
const CAMPAIGN_NS: u64 = 300_000_000;
const DOUBLED_MAX: u32 = 4;
/// The time that a replica with missing blocks leaves to others before it campaigns: reads of these would wait.
const HEALING_WAITS_NS: u64 = 5_000_000_000;
/// The pause before a message that the brick had no room for is tried again.
const AGAIN_NS: u64 = 50_000_000;

/// The things that all groups of a brick depend on besides their own state.
#[derive(PartialEq)]
struct Seen {
    is_silent: bool,
    /// The other bricks: the spells of the support that is given and had, whether each may lead soon, and whether it was heard of lately.
    others: Vec<(Option<Spell>, Option<Spell>, bool, bool)>,
}

/// Tells the other bricks of `addresses` that a process of this brick begins, and with that its former one has ended: whatever they have promised
/// to that one is void, so that another one can lead while this one replays its log. `me`: with the epoch that the process is about to have. The
/// caller holds the brick's lock. Who can't be told waits as ever.
pub fn announce(runtime: &Runtime, me: Me, addresses: Vec<(BrickId, Address)>, trust: Option<Trust>) {
    for (brick, address) in addresses {
        let (there, trust) = (runtime.clone(), trust.clone());
        runtime.spawn(0, move || async move {
            // The first stamp of that epoch: if this process ends before its epoch is durable, the next one has the same, perhaps on a clock that
            // begins anew.
            let asked = Stamp { epoch: Epoch(me.epoch), at: 0 };
            let pulse = pulse_bytes(&Pulse::Ask(Ask { asked, wish: Wish::Nothing, seen: None }));
            drop(wire::peer::announce(&there, me, (PeerId(brick.0), &address), trust.as_ref(), &pulse).await);
        });
    }
}

impl Groups {
    /// Starts the tasks of a brick with replicas.
    pub(crate) fn start_replication(self: &Arc<Groups>) {
        let runtime = &self.store().runtime;
        self.start_healing();
        self.start_across();
        let there = self.clone();
        runtime.spawn(0, move || there.run_applying());
        let there = self.clone();
        runtime.spawn(0, move || there.run_durable());
        let there = self.clone();
        runtime.spawn(0, move || there.run_looking());
        let there = self.clone();
        runtime.spawn(0, move || there.run_stuck());
        for at in 0..self.replication().others.len() {
            let there = self.clone();
            runtime.spawn(0, move || there.run_way(at));
        }
    }

    /// Tells groups what the log has made durable. Ends when the groups close, or with the log.
    async fn run_durable(self: Arc<Groups>) {
        let (log, replication) = (&self.store().log, self.replication());
        loop {
            let ticket = replication.waiting_came.ticket();
            if self.is_closing() {
                return;
            }
            let next = replication.waiting.lock().front().copied();
            let Some((batch, _)) = next else {
                replication.waiting_came.after(ticket).await;
                continue;
            };
            if log.wait(batch, Sync::Data, None).await.is_err() {
                // The brick promises nothing any more (rule U4). Others lead its groups from now on.
                return;
            }
            let durable = log.positions().durable;
            assert!(durable >= batch, "batch {batch} is durable");
            let mut due: Vec<_> = {
                let mut waiting = replication.waiting.lock();
                let count = waiting.partition_point(|(batch, _)| *batch <= durable);
                waiting.drain(..count).map(|(_, group)| group).collect()
            };
            due.sort_unstable();
            due.dedup();
            for number in due {
                let mut state = self.state(number).state.lock();
                if let Some(ticket) = state.replica().due(durable) {
                    state.replica().order.persisted(ticket);
                    self.carry_out(&mut state);
                }
            }
        }
    }

    /// Has groups go on that the log had no room for.
    async fn run_stuck(self: Arc<Groups>) {
        let replication = self.replication();
        loop {
            let (stuck, room) = (replication.stuck_came.ticket(), self.store().log.segment_came.ticket());
            if self.is_closing() {
                return;
            }
            let groups = std::mem::take(&mut *replication.stuck.lock());
            if groups.is_empty() {
                replication.stuck_came.after(stuck).await;
                continue;
            }
            for number in &groups {
                self.work_off(&mut self.state(*number).state.lock());
            }
            if replication.stuck.lock().is_empty() {
                continue;
            }
            if self.wait_for_segment(room).await.is_err() {
                self.store().runtime.clock.sleep(LOOK_NS).await;
            }
        }
    }

    /// Asks for support, begins elections, and tells followers what is committed.
    async fn run_looking(self: Arc<Groups>) {
        let clock = self.store().runtime.clock.clone();
        let mut passes = Passes::new(self.states().len());
        let mut ask_ns = 0;
        while !self.is_closing() {
            let now = clock.now_ns();
            if now >= ask_ns {
                ask_ns = now + ASK_EVERY_NS;
                self.ask_for_support(now);
            }
            let hangs = hangs(self.oldest_write(), now);
            let has_changed = |at: usize| {
                let changed = &self.states()[at].has_changed;
                // A load costs less than a swap, and nearly all rest.
                changed.load(Ordering::Relaxed) && changed.swap(false, Ordering::Relaxed)
            };
            for at in passes.due((self.seen(now), hangs), has_changed) {
                let group = &self.states()[at];
                let is_restless = self.look_at(group, now, hangs);
                if self.is_across() {
                    self.look_across(group, now);
                    self.look_home(group, now);
                }
                let is_served = self.look_who_leads(group, now);
                passes.looked_at(at, is_restless || !is_served);
            }
            if self.is_across() {
                self.end_questions(now);
            }
            clock.sleep(LOOK_NS).await;
        }
    }

    /// The things that groups depend on besides their own state, but for what is only a matter of time.
    fn seen(&self, now: u64) -> Seen {
        let replication = self.replication();
        let of = |member: &Member| {
            let may_lead = self.may_soon_lead(member.brick);
            let supports = replication.supports.lock();
            let is_heard = supports.asked_ns(member.brick, now).is_some_and(|asked_ns| !is_silent(asked_ns, now));
            (supports.given(member.brick, now), supports.had(member.brick, now), may_lead, is_heard)
        };
        let others = replication.others.iter().map(of).collect();
        Seen { is_silent: replication.supports.lock().is_silent(now), others }
    }

    fn ask_for_support(&self, now: u64) {
        self.replication().others.iter().for_each(|member| self.ask_brick(member.brick, now));
    }

    fn ask_brick(&self, brick: BrickId, now: u64) {
        // A log that has failed takes no records: its brick leads nothing (rules U4, P6).
        if self.store().log.failed().is_none() {
            let replication = self.replication();
            let ask = replication.supports.lock().ask(brick, self.oldest_write(), now);
            replication.pulse(brick, &Pulse::Ask(ask));
        }
    }

    /// The time since when the oldest transfer of the log under way has been so.
    fn oldest_write(&self) -> Option<u64> {
        self.store().log.oldest_pending_ns().filter(|_| !active(Bug::HungDiskLeads))
    }

    /// True if the group is to be looked at in the next pass, too.
    fn look_at(&self, group: &Group, now: u64, hangs: bool) -> bool {
        let mut state = group.state.lock();
        let (lacks, leads_alone) =
            self.at_this_moment(&mut state, |order, moment| (order.lacks_leader(moment), order.has_lease(moment)));
        let is_under_way = !state.across.holds.is_empty() || !state.across.decided.is_empty();
        let replica = state.replica();
        let is_restless = lacks || is_under_way || replica.serves.is_some() != leads_alone;
        match (replica.serves.is_some(), leads_alone) {
            (true, false) if !active(Bug::LeaseUnasked) => self.end_service(&mut state),
            // It may have waited for its lease.
            (false, true) => self.replication().wake(group.number),
            _ => {}
        }
        // Who hangs begins nothing: its vote for itself would become durable too late, and keep others from leading (rule P6).
        if hangs {
            return is_restless;
        }
        let replica = state.replica();
        // Whose rows are of no position leads nothing; who lacks blocks lets the others go first.
        if replica.takes_rows() {
            return is_restless;
        }
        let patience_ns = if replica.heal.is_some() { HEALING_WAITS_NS } else { 0 };
        if !lacks {
            replica.campaigns_no_more();
            let is_news = replica.is_news_of_everyone();
            if replica.order.is_leader() && (replica.nudges || is_news || !leads_alone) {
                replica.nudges = false;
                replica.order.nudge();
                self.carry_out(&mut state);
            }
            return is_restless;
        }
        let jitter_ns = self.store().runtime.random.next_u64() % JITTER_NS;
        let turn_ns = self.turn_of(group.number, replica) * TURN_NS + jitter_ns;
        let due = *replica.campaigns_ns.get_or_insert(now + turn_ns + patience_ns);
        if now >= due {
            let campaign_ns = CAMPAIGN_NS << replica.campaigns.min(DOUBLED_MAX);
            replica.campaigns_ns = Some(now + campaign_ns + turn_ns);
            replica.campaigns += 1;
            self.at_this_moment(&mut state, |order, moment| order.campaign(moment));
            self.carry_out(&mut state);
        }
        is_restless
    }

    /// The number of other replicas whose turn to campaign comes before this one's: not of the last leader, which has just ended if there is an
    /// election. Each group begins with another one, so that all bricks lead some.
    fn turn_of(&self, group: GroupId, replica: &Replica) -> u64 {
        let Replication { me, others, members, .. } = self.replication();
        let leader = replica.order.leader();
        let place = |own: ReplicaId| {
            let number = members.iter().filter(|member| member.replica < own).count();
            // The first one is its home.
            (number + group.0 as usize) % members.len()
        };
        let comes_first = |other: &&Member| place(other.replica) < place(me.replica) && Some(other.replica) != leader;
        others.iter().filter(comes_first).count() as u64
    }

    /// Connects to the other bricks of `addresses`, and listens for them. `trust`: None where nobody else can connect. Errors: those of
    /// `Net::listen`.
    pub fn reach_others(
        self: &Arc<Groups>,
        cluster: [u8; 16],
        listen: &Address,
        addresses: Vec<(BrickId, Address)>,
        trust: Option<Trust>,
    ) -> Result<()> {
        let id = PeerId(self.replication().me.brick.0);
        let me = Me { id, cluster, epoch: self.store().epoch };
        let addresses = addresses.into_iter().map(|(brick, address)| (PeerId(brick.0), address)).collect();
        let peers = Peers::start(&self.store().runtime, self.clone(), me, Some(listen), addresses, trust)?;
        assert!(self.replication().peers.set(Arc::downgrade(&peers)).is_ok(), "a brick connects to the others once");
        Ok(())
    }

    /// Has new connections to another brick be made to another address.
    pub fn move_to(&self, brick: BrickId, address: Address) {
        self.replication().peers().inspect(|peers| peers.move_to(PeerId(brick.0), address));
    }

    /// Has new connections to and from the other bricks use other credentials.
    pub fn renew_credentials(&self, credentials: Credentials) {
        self.replication().peers().inspect(|peers| peers.renew(credentials));
    }

    /// The state of the connections to another brick; None of one that is no member, or before `reach_others`.
    pub fn reach(&self, brick: BrickId) -> Option<Reach> {
        self.replication().peers()?.reach(PeerId(brick.0))
    }

    /// A pulse of another brick has come. Errors: `Corrupt`.
    fn pulsed(&self, from: BrickId, bytes: &[u8]) -> Result<()> {
        let now = self.store().runtime.clock.now_ns();
        let replication = self.replication();
        if replication.member(from).is_none() {
            return Ok(());
        }
        match take_pulse(bytes)? {
            Pulse::Ask(ask) => {
                let answer = replication.supports.lock().asked(from, ask, now);
                if let Some(answer) = answer {
                    replication.pulse(from, &Pulse::Answer(answer));
                }
            }
            Pulse::Answer(answer) => {
                let is_first = replication.supports.lock().answered(from, answer, now);
                if is_first {
                    self.ask_brick(from, now);
                }
            }
        }
        Ok(())
    }

    /// Notes that messages to another brick arrive from now on; of those before, and of that one's, some may be lost.
    fn reconnected(&self, brick: BrickId) {
        let Some(member) = self.replication().member(brick) else { return };
        for group in self.states() {
            let mut state = group.state.lock();
            let lost = state.replica().unstash(brick);
            self.drop_stashed(lost);
            state.replica().acks.get_mut(&member.replica).into_iter().for_each(Acks::lost);
            state.replica().order.reconnected(member.replica);
            self.carry_out(&mut state);
        }
    }

    /// A parcel of another brick has come. They are given one after the other, in their order. Errors: `Corrupt` for one that no
    /// replica sends: the connection is not to be trusted; those of the device, for a large payload.
    async fn parcel_came(&self, from: BrickId, parcel: &Parcel) -> Result<()> {
        let Some(sender) = self.replication().member(from) else { return Ok(()) };
        let Some(group) = self.hosted(parcel.group) else { return Ok(()) };
        match take_told(&parcel.body)? {
            Told::Record { bytes, more } => {
                let record = decode_record(&bytes)?;
                if record.group != group.number {
                    return Err(garbled("a record of another group"));
                }
                let (crcs, slices) = (parcel.sums.crcs().to_vec(), parcel.payload.clone());
                let stashed = Stashed { from, record, bytes: bytes.into(), slices, crcs, more, tickets: Vec::new() };
                stashed.check()?;
                group.state.lock().replica().stash(stashed)
            }
            Told::Piece => {
                let mut state = group.state.lock();
                let last = state.replica().stash.iter_mut().rev().find(|stashed| stashed.from == from);
                let last = last.filter(|last| last.more > 0).ok_or_else(|| garbled("a piece of no payload"))?;
                last.crcs.extend_from_slice(parcel.sums.crcs());
                last.slices.extend(parcel.payload.iter().cloned());
                last.more -= 1;
                last.check()
            }
            Told::Message { from: replica, everyone, message } if sender.replica == replica => {
                // What the order refuses is sent again, and must not take room each time.
                let takes = {
                    let mut state = group.state.lock();
                    let replica = state.replica();
                    !replica.takes_rows() && replica.order.may_take(&message)
                };
                if takes {
                    self.place_stashed(group, from).await?;
                }
                self.message_came(group, sender, everyone, message)
            }
            Told::Message { .. } => Err(garbled("a brick speaks for another one")),
            Told::Heal(heal) => {
                self.heal_came(group, sender, heal, parcel.payload.clone());
                Ok(())
            }
            Told::Across(across) => {
                self.across_came(sender, group.number, across);
                Ok(())
            }
        }
    }

    /// Places the large payloads that a brick has sent.
    async fn place_stashed(&self, group: &Group, from: BrickId) -> Result<()> {
        let is_large = |stashed: &Stashed| {
            let bytes: usize = stashed.slices.iter().map(|slice| slice.len()).sum();
            stashed.from == from && bytes >= BULK_BYTES_MIN && stashed.tickets.is_empty()
        };
        loop {
            let found = {
                let mut state = group.state.lock();
                let stash = &mut state.replica().stash;
                stash.iter().position(is_large).map(|at| stash.swap_remove(at))
            };
            let Some(mut stashed) = found else { return Ok(()) };
            let mut placed = Ok(());
            for slice in &stashed.slices {
                match self.store().bulk.place(slice.clone()).await {
                    Ok(ticket) => stashed.tickets.push(ticket),
                    Err(error) => {
                        placed = Err(error);
                        break;
                    }
                }
            }
            if placed.is_err() {
                // It is placed anew when its message is tried again.
                stashed.tickets.drain(..).for_each(|ticket| self.store().bulk.close(ticket));
            }
            group.state.lock().replica().stash(stashed)?;
            placed?;
        }
    }

    fn message_came(&self, group: &Group, sender: Member, everyone: Index, message: Message) -> Result<()> {
        let mut state = group.state.lock();
        let replica = state.replica();
        replica.named = replica.unstash(sender.brick);
        let leads = matches!(message.body, Body::Append { .. } | Body::Release);
        if leads && replica.takes_rows() {
            // It has no room for records, and is not to lead.
            replica.fed_by = Some(sender.brick);
            let unused = std::mem::take(&mut replica.named);
            self.drop_stashed(unused);
            return Ok(());
        }
        if matches!(message.body, Body::Release) && replica.heal.is_some() {
            return Ok(());
        }
        let sound = replica.has_all_of(&message);
        if sound.is_ok() {
            replica.everyone = replica.everyone.max(everyone);
            let answers = matches!(message.body, Body::Appended { .. });
            let committed = replica.order.committed();
            self.at_this_moment(&mut state, |order, moment| order.receive(sender.replica, message, moment));
            if answers {
                self.note_ack(&mut state, sender.replica, committed);
            }
            self.carry_out(&mut state);
        }
        let unused = std::mem::take(&mut state.replica().named);
        self.drop_stashed(unused);
        sound
    }

    /// Notes that a follower has acknowledged something. `committed`: the commit index before.
    fn note_ack(&self, state: &mut State, from: ReplicaId, committed: Index) {
        let now = self.store().runtime.clock.now_ns();
        let replica = state.replica();
        let (matched, since) = (replica.order.matched(from), replica.order.committed().0 - committed.0);
        let acks = replica.acks.entry(from).or_default();
        acks.acknowledged(matched, now);
        acks.needed += since;
    }

    /// Drops what a brick sent and the order did not take.
    pub(crate) fn drop_stashed(&self, unused: Vec<Stashed>) {
        let tickets = unused.into_iter().flat_map(|stashed| stashed.tickets);
        tickets.for_each(|ticket| self.store().bulk.close(ticket));
    }
}

impl PeerService for Groups {
    fn connected(&self, peer: PeerId, _epoch: u64) {
        self.reconnected(BrickId(peer.0));
    }
    fn disconnected(&self, _peer: PeerId) {}
    fn pulses_arrive(&self, peer: PeerId) {
        // If this brick's process is new, the other one waits for the former one's promise to run out until it hears of that.
        let brick = BrickId(peer.0);
        if self.replication().member(brick).is_some() {
            self.ask_brick(brick, self.store().runtime.clock.now_ns());
        }
    }
    fn pulse(&self, peer: PeerId, body: &[u8]) {
        // One that nobody says is worth no more than one that was lost.
        let _ = self.pulsed(BrickId(peer.0), body);
    }
    async fn parcel(&self, peer: PeerId, parcel: Parcel) {
        // What the brick has no room for now it may have later. What makes no sense is dropped: the order goes on from the next connection.
        while let Err(error) = self.parcel_came(BrickId(peer.0), &parcel).await {
            if matches!(error.kind, Kind::Corrupt | Kind::Newer)
                || self.store().log.failed().is_some()
                || self.is_closing()
            {
                if let Some(group) = self.hosted(parcel.group) {
                    group.state.lock().replica().needs_heal += 1;
                }
                return;
            }
            self.store().runtime.clock.sleep(AGAIN_NS).await;
        }
    }
}

impl Replication {
    fn pulse(&self, to: BrickId, pulse: &Pulse) {
        if let Some(peers) = self.peers() {
            peers.pulse(PeerId(to.0), &pulse_bytes(pulse));
        }
    }
}
