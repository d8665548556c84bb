//! Several bricks on one schedule, in true time.

use crate::checks::Checks;
use crate::disk::{Disk, Item};
use crate::host::{Bond, Host, Process, member};
use crate::network::{Network, Packet};
use crate::random::Random;
use base::{Index, ReplicaId, Term};
use order_raft::support::{ASK_EVERY_NS, BrickId, Ended, Epoch, Supports};
use order_raft::{Body, Effects, Message, Moment, Old, Order, Record, Role, Shadow, Stage};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000 * MS;
/// A leader tells a commit by itself after so long.
const NUDGE_NS: u64 = 2 * MS;

#[derive(Debug)]
pub enum Event {
    Arrive { way: (usize, usize), packet: Packet, generation: u64, process: u64 },
    Connected { host: usize, process: u64, to: usize },
    Written { host: usize, process: u64, number: u64 },
    Tick { host: usize, process: u64 },
    Campaign { host: usize, process: u64 },
    Nudge { host: usize, process: u64 },
    Read { host: usize, process: u64, old: Old, shadows: Vec<Shadow> },
    Start { host: usize },
    Heal { way: (usize, usize) },
    Cut { way: (usize, usize) },
    Unhang { host: usize },
    Propose,
    Fault,
}

/// An event's time; its number keeps the order of those at one time.
struct Due(u64, u64, Event);

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    pub steps: u64,
    pub committed: u64,
    pub terms: u64,
    pub starts: u64,
    pub leases_looked_at: u64,
    pub messages: u64,
    pub transfers: u64,
    /// Records that took the place of some of a higher term.
    pub came_back: u64,
}

pub struct World {
    pub now: u64,
    pub random: Random,
    pub hosts: Vec<Host>,
    pub network: Network,
    pub checks: Checks,
    pub figures: Figures,
    due: BinaryHeap<Reverse<Due>>,
    events: u64,
    processes: u64,
    pub records: u32,
    /// True while faults happen.
    pub is_stormy: bool,
    pub proposes: bool,
    /// True if bricks ask for support as soon as they reach each other.
    asks_at_once: bool,
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let count = if random.chance(300) { 5 } else { 3 + random.index(2) };
        let host = |number: usize, random: &mut Random| Host {
            member: member(number),
            epoch: 0,
            ended: if random.chance(500) { Ended::SupportingNobody } else { Ended::Somehow },
            disk: Disk::default(),
            process: None,
            offset: random.within(0..1_000 * S),
            drift_ppm: random.within(0..100_001) as i64 - 50_000,
        };
        let hosts = (0..count).map(|number| host(number, &mut random)).collect();
        let mut world = World {
            now: 0,
            random,
            hosts,
            network: Network::default(),
            checks: Checks::default(),
            figures: Figures::default(),
            due: BinaryHeap::new(),
            events: 0,
            processes: 0,
            records: 0,
            is_stormy: true,
            proposes: true,
            asks_at_once: seed.is_multiple_of(2),
        };
        (0..count).for_each(|host| world.start(host));
        world.at(world.now, Event::Propose);
        world
    }
    pub fn at(&mut self, time: u64, event: Event) {
        self.events += 1;
        self.due.push(Reverse(Due(time, self.events, event)));
    }
    pub fn after(&mut self, time: u64, event: Event) {
        self.at(self.now + time, event);
    }
    /// Lets events happen until `end`.
    pub fn run(&mut self, end: u64) {
        while self.due.peek().is_some_and(|due| due.0.0 <= end) {
            let Reverse(Due(time, _, event)) = self.due.pop().expect("it was there");
            self.now = time;
            self.figures.steps += 1;
            self.happen(event);
            self.look();
        }
        self.now = end;
    }
    /// Looks whether all holds that holds between any two events.
    fn look(&mut self) {
        let mut leased = (0..self.hosts.len()).filter(|host| self.hosts[*host].has_lease(self.now));
        let Some(leader) = leased.next() else { return };
        let other = leased.next();
        assert_eq!(other, None, "{leader} and another have leases at {}", self.now);
        self.figures.leases_looked_at += 1;
        let (host, all) = (&self.hosts[leader], self.checks.committed());
        let process = host.process.as_ref().expect("who has a lease is there");
        assert!(process.order.committed().0 >= all, "a read at {leader} lacks record {all}");
        let hangs = host.disk.under_way.is_some_and(|write| self.now - write.since > 4 * S);
        assert!(!hangs, "{leader} leads with a hung disk");
    }
    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { way, packet, generation, process } => self.arrive(way, packet, generation, process),
            Event::Connected { host, process, to } => {
                let replica = self.hosts[to].member.replica;
                self.tell(host, process, |process, _| process.order.reconnected(replica));
                self.ask_at_once(host, process, to);
            }
            Event::Written { host, process, number } => self.written(host, process, number),
            Event::Tick { host, process } => self.tick(host, process),
            Event::Campaign { host, process } => {
                self.tell(host, process, |process, now| {
                    process.campaign_is_due = false;
                    if wants_to_lead(process, now) {
                        process.order.campaign(Moment { supports: &process.supports, now });
                    }
                });
            }
            Event::Nudge { host, process } => self.tell(host, process, |process, _| {
                process.nudge_is_due = false;
                process.order.nudge();
            }),
            Event::Read { host, process, old, shadows } => {
                self.tell(host, process, |process, _| process.order.found(old, shadows));
            }
            Event::Start { host } => self.start(host),
            Event::Heal { way } => self.heal(way),
            Event::Cut { way } => {
                if self.is_stormy {
                    self.network.cut(way);
                }
            }
            Event::Unhang { host } => self.unhang(host),
            Event::Propose => self.propose(),
            Event::Fault => self.fault(),
        }
    }
    /// Tells a process something, if it is still there, and does what its order wants.
    pub fn tell(&mut self, host: usize, number: u64, event: impl FnOnce(&mut Process, u64)) {
        let now = self.hosts[host].clock(self.now);
        let Some(process) = self.hosts[host].process.as_mut().filter(|process| process.number == number) else {
            return;
        };
        event(process, now);
        let effects = process.order.take();
        self.perform(host, effects);
    }
    fn arrive(&mut self, way: (usize, usize), packet: Packet, generation: u64, number: u64) {
        // Of a connection that is no more, some of what was under way had arrived already.
        if generation != self.network.generation(way) && self.random.chance(700) {
            return;
        }
        let (from, host) = (self.hosts[way.0].member, way.1);
        match packet {
            Packet::Order(message) => self.tell(host, number, |process, now| {
                // A leader that hands over serves no reads any more in its term, and one of a later term would not be
                // there if the one before had its lease: nobody is bound to either.
                match message.body {
                    Body::Release => process.let_go = process.let_go.max(message.term),
                    Body::Vote { released: true, .. } | Body::Append { .. } => {
                        process.let_go = process.let_go.max(Term(message.term.0 - 1));
                    }
                    _ => {}
                }
                process.order.receive(from.replica, message, Moment { supports: &process.supports, now });
            }),
            Packet::Ask(ask) => {
                let now = self.hosts[host].clock(self.now);
                let Some(process) = self.hosts[host].process.as_mut().filter(|process| process.number == number) else {
                    return;
                };
                if let Some(answer) = process.supports.asked(from.brick, ask, now) {
                    self.send((way.1, way.0), Packet::Answer(answer));
                }
            }
            Packet::Answer(answer) => {
                let mut is_first = false;
                self.tell(host, number, |process, now| {
                    is_first = process.supports.answered(from.brick, answer, now);
                });
                if is_first {
                    self.ask_at_once(host, number, way.0);
                }
            }
        }
    }
    /// A process asks without waiting for its time, in half of all worlds: nothing may depend on that.
    fn ask_at_once(&mut self, host: usize, number: u64, to: usize) {
        if self.asks_at_once {
            self.ask(host, number, to);
        }
    }
    /// A process asks another brick for support.
    fn ask(&mut self, host: usize, number: u64, to: usize) {
        let now = self.hosts[host].clock(self.now);
        let oldest = self.hosts[host].disk.under_way.map(|write| self.hosts[host].clock(write.since));
        let brick: BrickId = self.hosts[to].member.brick;
        let process = self.hosts[host].process.as_mut().filter(|process| process.number == number);
        if let Some(process) = process {
            let ask = process.supports.ask(brick, oldest, now);
            self.send((host, to), Packet::Ask(ask));
        }
    }
    pub fn send(&mut self, way: (usize, usize), packet: Packet) {
        let Some(process) = self.hosts[way.1].process.as_ref().map(|process| process.number) else { return };
        let Some(time) = self.network.arrival(way, &packet, self.now, &mut self.random) else { return };
        let generation = self.network.generation(way);
        self.at(time, Event::Arrive { way, packet, generation, process });
    }
    fn perform(&mut self, host: usize, effects: Effects) {
        assert_eq!((effects.heal, effects.lost), (vec![], vec![]), "nobody lost anything");
        if let Some((term, Some(candidate))) = effects.vote {
            self.check_bond(host, term, candidate);
        }
        let process = self.hosts[host].process.as_mut().expect("it has effects");
        let void = effects.void_from.map(|from| process.records.split_off(&from.0)).unwrap_or_default();
        let comes_back =
            |record: &Record| void.get(&record.position.index.0).is_some_and(|old| old.0 > record.position.term);
        self.figures.came_back += effects.append.iter().filter(|record| comes_back(record)).count() as u64;
        let mut items: Vec<Item> = effects.vote.map(|(term, vote)| Item::Vote(term, vote)).into_iter().collect();
        for record in &effects.append {
            process.records.insert(record.position.index.0, (record.position.term, record.shadow));
            items.push(Item::Record(*record));
        }
        if !items.is_empty() && process.committed > process.hinted {
            process.hinted = process.committed;
            items.push(Item::Commit(Index(process.committed)));
        }
        assert_eq!(effects.ticket.is_some(), !items.is_empty(), "what is to be durable has a number");
        self.hosts[host].disk.append(items, effects.ticket);
        self.begin_write(host);
        for (to, message) in effects.send {
            self.check_message(host, to, &message);
            self.figures.messages += 1;
            let to = usize::try_from(to.0 - 1).expect("a small number");
            self.send((host, to), Packet::Order(message));
        }
        if let Some(commit) = effects.commit {
            self.commit(host, commit);
        }
        if let Some((term, role)) = effects.role {
            self.role(host, term, role);
        }
        for old in effects.old {
            let process = self.hosts[host].process.as_ref().expect("it has effects");
            let longest = if self.is_stormy { 4 * S } else { 20 * MS };
            let shadows = process.records.range(old.first.0..old.end.0).map(|(_, record)| record.1).collect();
            let (number, time) = (process.number, self.random.within(MS..longest));
            self.after(time, Event::Read { host, process: number, old, shadows });
        }
    }
    /// A vote is not given against a leader whose support stands and whose term was acknowledged under it.
    fn check_bond(&self, host: usize, term: Term, candidate: ReplicaId) {
        let (voter, now) = (&self.hosts[host], self.hosts[host].clock(self.now));
        let process = voter.process.as_ref().expect("it votes");
        let Some(Bond { leader, spell, term: led }) = process.bond else { return };
        let stands = process.supports.given(leader.brick, now) == Some(spell);
        let is_against = stands && leader.replica != candidate && led > process.let_go;
        assert!(!is_against, "{host} votes for {candidate} in {term} and supports {leader:?}");
    }
    fn check_message(&mut self, host: usize, to: ReplicaId, message: &Message) {
        match message.body {
            Body::Voted { stage: Stage::Vote, granted: true, .. } => self.checks.votes(host, message.term, to),
            Body::Vote { stage: Stage::Vote, .. } => {
                self.checks.votes(host, message.term, self.hosts[host].member.replica);
            }
            Body::Appended { .. } | Body::Refused { .. } => {
                let leader = member(usize::try_from(to.0 - 1).expect("a small number"));
                let process = self.hosts[host].process.as_mut().expect("it sends");
                if let (Some(spell), true) = (message.under, process.order.leader() == Some(to)) {
                    process.bond = Some(Bond { leader, spell, term: message.term });
                }
            }
            _ => {}
        }
    }
    pub fn begin_write(&mut self, host: usize) {
        let Some((number, time)) = self.hosts[host].disk.begin(self.now, &mut self.random) else { return };
        let Some(process) = self.hosts[host].process.as_ref().map(|process| process.number) else { return };
        self.after(time, Event::Written { host, process, number });
    }
    fn written(&mut self, host: usize, process: u64, number: u64) {
        if self.hosts[host].process.as_ref().is_none_or(|there| there.number != process) {
            return;
        }
        let ticket = self.hosts[host].disk.done(number);
        self.begin_write(host);
        if let Some(ticket) = ticket {
            self.tell(host, process, |process, _| process.order.persisted(ticket));
        }
    }
    fn unhang(&mut self, host: usize) {
        let disk = &mut self.hosts[host].disk;
        disk.hangs = false;
        if let (true, Some(write)) = (disk.is_stuck, disk.under_way) {
            let process = self.hosts[host].process.as_ref().map(|process| process.number);
            self.written(host, process.expect("a crash ends what is stuck"), write.number);
        }
    }
    fn commit(&mut self, host: usize, commit: Index) {
        let disks: Vec<_> = self.hosts.iter().map(|host| &host.disk.settled).collect();
        let process = self.hosts[host].process.as_ref().expect("it has effects");
        self.checks.commits(process.committed, commit, &process.records, &disks);
        let process = self.hosts[host].process.as_mut().expect("it has effects");
        process.committed = commit.0;
        let number = process.number;
        if process.order.is_leader() && !std::mem::replace(&mut process.nudge_is_due, true) {
            self.after(NUDGE_NS, Event::Nudge { host, process: number });
        }
    }
    fn role(&mut self, host: usize, term: Term, role: Role) {
        let process = self.hosts[host].process.as_mut().expect("it has effects");
        process.released = None;
        if let Role::Leader(first) = role {
            assert_eq!(process.records.get(&first.0), Some(&(term, Shadow::TERM)), "a term begins with its record");
            let number = process.number;
            self.checks.leads(term, host, number);
        }
        self.consider(host);
    }
    /// Plans an election if the replica knows of no leader that its brick supports.
    fn consider(&mut self, host: usize) {
        let now = self.hosts[host].clock(self.now);
        let process = self.hosts[host].process.as_mut().expect("it is there");
        if wants_to_lead(process, now) && !std::mem::replace(&mut process.campaign_is_due, true) {
            let number = process.number;
            let jitter = self.random.within(0..150 * MS);
            self.after(jitter, Event::Campaign { host, process: number });
        }
    }
    /// A brick's work every 400 ms of its clock.
    fn tick(&mut self, host: usize, number: u64) {
        if self.hosts[host].process.as_ref().is_none_or(|process| process.number != number) {
            return;
        }
        let wait = self.hosts[host].true_time(ASK_EVERY_NS);
        self.after(wait, Event::Tick { host, process: number });
        for to in (0..self.hosts.len()).filter(|to| *to != host) {
            self.ask(host, number, to);
        }
        let has_lease = self.hosts[host].has_lease(self.now);
        self.tell(host, number, |process, now| {
            // A leader whose followers acknowledged it in an earlier spell asks them again.
            if !has_lease && process.order.is_leader() {
                process.order.nudge();
            }
            if process.released.is_some_and(|since| now - since > S) {
                process.order.resign();
            }
        });
        self.consider(host);
        self.truncate(host);
        let now = self.hosts[host].clock(self.now);
        let process = self.hosts[host].process.as_ref().expect("it was there");
        let may_end = process.is_ending && process.supports.supports_nobody(now) && self.hosts[host].disk.is_clean();
        if may_end {
            self.stop(host, Ended::SupportingNobody);
        }
    }
    /// Lets go of records that everybody has.
    fn truncate(&mut self, host: usize) {
        if !self.random.chance(50) {
            return;
        }
        let committed = self.hosts[host].process.as_ref().map_or(0, |process| process.committed);
        let ends = self.hosts.iter().map(|host| host.disk.settled.last_key_value().map_or(0, |last| *last.0));
        let all = ends.min().unwrap_or(0).min(committed);
        let Some(record) = self.hosts[host].disk.settled.get(&all).copied() else { return };
        if self.hosts.iter().any(|host| host.disk.settled.get(&all) != Some(&record)) {
            return;
        }
        let process = self.hosts[host].process.as_mut().expect("it was there");
        process.records = process.records.split_off(&(all + 1));
        let number = process.number;
        self.tell(host, number, |process, _| process.order.keep_from(Index(all + 1)));
        let to = order_raft::Position { index: Index(all), term: record.0 };
        self.hosts[host].disk.append([Item::Truncated(to)], None);
        self.begin_write(host);
    }
    pub fn start(&mut self, host: usize) {
        if self.hosts[host].process.is_some() {
            return;
        }
        self.figures.starts += 1;
        self.processes += 1;
        let (number, clock) = (self.processes, self.hosts[host].clock(self.now));
        let members: Vec<_> = self.hosts.iter().map(|host| host.member).collect();
        let this = &mut self.hosts[host];
        this.epoch += 1;
        let found = this.disk.replay();
        let ended = std::mem::replace(&mut this.ended, Ended::Somehow);
        let order = Order::open(this.member.replica, &members, found.hard, found.runs);
        let committed = order.committed().0;
        this.process = Some(Process {
            number,
            order,
            supports: Supports::open(Epoch(this.epoch), ended, clock),
            records: found.records,
            committed,
            hinted: committed,
            campaign_is_due: false,
            nudge_is_due: false,
            released: None,
            bond: None,
            let_go: Term(0),
            is_ending: false,
        });
        let wait = self.random.within(0..50 * MS);
        self.after(wait, Event::Tick { host, process: number });
        for other in (0..self.hosts.len()).filter(|other| *other != host) {
            for way in [(host, other), (other, host)] {
                self.network.renew(way);
                self.connected(way.0, way.1);
            }
        }
    }
    pub fn connected(&mut self, host: usize, to: usize) {
        let Some(process) = self.hosts[host].process.as_ref().map(|process| process.number) else { return };
        let time = self.random.within(MS..50 * MS);
        self.after(time, Event::Connected { host, process, to });
    }
    pub fn stop(&mut self, host: usize, ended: Ended) {
        if self.hosts[host].process.take().is_some() {
            let this = &mut self.hosts[host];
            this.disk.crash(&mut self.random);
            this.ended = ended;
            let wait = self.random.within(MS..4 * S);
            self.after(wait, Event::Start { host });
        }
    }
    pub fn heal(&mut self, way: (usize, usize)) {
        if self.network.is_cut(way) {
            self.network.heal(way);
            self.connected(way.0, way.1);
            self.connected(way.1, way.0);
        }
    }
    fn propose(&mut self) {
        let wait = self.random.within(MS..80 * MS);
        self.after(wait, Event::Propose);
        let host = self.random.index(self.hosts.len());
        if self.proposes {
            self.propose_at(host);
        }
    }
    pub fn propose_at(&mut self, host: usize) {
        let Some(number) = self.hosts[host].process.as_ref().map(|process| process.number) else { return };
        let count = 1 + self.random.index(4);
        let first = self.records + 1;
        self.records += count as u32;
        self.tell(host, number, |process, _| {
            for crc in first..first + count as u32 {
                if process.order.propose(Shadow { length: crc, crc, kind: 1 }).is_err() {
                    break;
                }
            }
        });
    }
    fn fault(&mut self) {
        crate::faults::fault(self);
    }
}

fn wants_to_lead(process: &Process, now: u64) -> bool {
    process.order.lacks_leader(Moment { supports: &process.supports, now }) && !process.is_ending
}
