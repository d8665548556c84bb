//! Bricks that send each other pulses and parcels, on simulated hosts whose network and processes fail, and over real sockets: who is told
//! `connected` has what is sent from then on, in order, or is told that it is over.

mod certificates;

use base::{GroupId, Kind};
use certificates::Signer;
use runtime::net::Address;
use runtime::random::SplitMix;
use runtime::real::{self, Directory};
use runtime::sim::{Fleet, Hosts, LinkPlan, Setup};
use runtime::{Clock, Event, Lock, Runtime, Slice};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use wire::codec::Body;
use wire::codec::hello::{Reason, Refused, VERSIONS, Versions};
use wire::codec::peer::{PeerHello, PeerOk, Purpose};
use wire::lane::{Lane, Reader};
use wire::peer::{Me, PARCEL_BYTES_MAX, PULSE_BYTES_MAX, Parcel, PeerId, PeerService, Peers, Trust};
use wire::{FrameKind, Header, frame};

/// Seeds of a usual run; `SINTER_SEEDS` says otherwise.
const SEEDS: u64 = 60;
const PORT: u16 = 7401;
const CLUSTER: [u8; 16] = [9; 16];
const NAME: &str = "cluster.sinter.internal";
const MS: u64 = 1_000_000;
const BLOCK: usize = 4096;
/// Time within which everything is as it should be again: a connection is found dead in 15 s, and made in as many.
const HEALED_WITHIN_NS: u64 = 90_000 * MS;

fn id(host: usize) -> PeerId {
    PeerId(host as u128 + 1)
}

/// One event at a brick, in the order in which they happened there.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Seen {
    Connected(PeerId, u64),
    Disconnected(PeerId),
    PulsesArrive(PeerId),
    Pulse(PeerId, Vec<u8>),
    /// A parcel has come: the sender's epoch, and the parcel's number there.
    Came(PeerId, u64, u64),
    /// A parcel was sent: its number.
    Sent(PeerId, u64),
}

/// A brick's service: it notes what it is told.
struct Witness {
    runtime: Runtime,
    seen: Lock<Vec<Seen>>,
    /// Nanoseconds that each parcel takes.
    takes_ns: AtomicU64,
    is_held: AtomicBool,
    let_go: Event,
    in_parcel: Lock<BTreeSet<PeerId>>,
}

impl Witness {
    fn note(&self, seen: Seen) {
        self.seen.lock().push(seen);
    }
    fn hold(&self, holds: bool) {
        self.is_held.store(holds, Ordering::SeqCst);
        self.let_go.notify();
    }
    /// True if the last that was told of a peer is that the pair is connected.
    fn is_connected(&self, peer: PeerId) -> bool {
        let told = |seen: &Seen| match seen {
            Seen::Connected(of, _) if *of == peer => Some(true),
            Seen::Disconnected(of) if *of == peer => Some(false),
            _ => None,
        };
        self.seen.lock().iter().rev().find_map(told).unwrap_or(false)
    }
    fn count(&self, is_meant: impl Fn(&Seen) -> bool) -> usize {
        self.seen.lock().iter().filter(|seen| is_meant(seen)).count()
    }
    /// The numbers of a peer's parcels that have come.
    fn numbers(&self, peer: PeerId) -> Vec<u64> {
        let number = |seen: &Seen| match seen {
            Seen::Came(of, _, number) if *of == peer => Some(*number),
            _ => None,
        };
        self.seen.lock().iter().filter_map(number).collect()
    }
}

/// The bytes of a parcel's payload.
fn content(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at / 7 + number) as u8).collect()
}

impl PeerService for Witness {
    fn connected(&self, peer: PeerId, epoch: u64) {
        self.note(Seen::Connected(peer, epoch));
    }
    fn disconnected(&self, peer: PeerId) {
        self.note(Seen::Disconnected(peer));
    }
    fn pulses_arrive(&self, peer: PeerId) {
        self.note(Seen::PulsesArrive(peer));
    }
    fn pulse(&self, peer: PeerId, body: &[u8]) {
        self.note(Seen::Pulse(peer, body.to_vec()));
    }
    async fn parcel(&self, peer: PeerId, parcel: Parcel) {
        let field = |at: usize| u64::from_le_bytes(parcel.body[at..at + 8].try_into().expect("8 bytes"));
        let (epoch, number, bytes) = (field(0), field(8), field(16) as usize);
        assert_eq!(parcel.group, GroupId(number as u32 % 7));
        assert!(parcel.body[24..].iter().all(|byte| *byte == number as u8), "the body of parcel {number}");
        let payload = parcel.payload.first().map_or(Vec::new(), |payload| payload.to_vec());
        assert!(payload == content(number, bytes), "the payload of parcel {number}");
        assert_eq!(parcel.sums.crcs().len() * BLOCK, bytes);
        assert!(self.in_parcel.lock().insert(peer), "one parcel of a peer at a time");
        self.note(Seen::Came(peer, epoch, number));
        self.runtime.clock.sleep(self.takes_ns.load(Ordering::Relaxed)).await;
        loop {
            let ticket = self.let_go.ticket();
            if !self.is_held.load(Ordering::SeqCst) {
                break;
            }
            self.let_go.after(ticket).await;
        }
        self.in_parcel.lock().remove(&peer);
    }
}

/// A process of a brick.
struct Brick {
    me: Me,
    runtime: Runtime,
    witness: Arc<Witness>,
    peers: Arc<Peers<Witness>>,
    /// Parcels that were sent to each peer.
    sent: Lock<BTreeMap<PeerId, u64>>,
}

/// A brick's peers, by the hosts where they listen.
fn others(hosts: &Hosts, me: usize, count: usize) -> Vec<(PeerId, Address)> {
    (0..count).filter(|other| *other != me).map(|other| (id(other), hosts.links().address(other, PORT))).collect()
}

impl Brick {
    fn start(
        runtime: &Runtime,
        me: Me,
        listen: &Address,
        peers: Vec<(PeerId, Address)>,
        trust: Option<Trust>,
    ) -> Brick {
        let witness = Arc::new(Witness {
            runtime: runtime.clone(),
            seen: Lock::new("seen", Vec::new()),
            takes_ns: AtomicU64::new(0),
            is_held: AtomicBool::new(false),
            let_go: Event::new(),
            in_parcel: Lock::new("in parcel", BTreeSet::new()),
        });
        let peers =
            Peers::start(runtime, witness.clone(), me, Some(listen), peers, trust).expect("nobody listens there");
        Brick { me, runtime: runtime.clone(), witness, peers, sent: Lock::new("sent", BTreeMap::new()) }
    }
    /// Boots a host, and starts its brick there.
    fn boot(hosts: &Hosts, host: usize, count: usize, epoch: u64) -> Brick {
        let runtime = hosts.boot(host, Setup::new(host as u64));
        let me = Me { id: id(host), cluster: CLUSTER, epoch };
        Brick::start(&runtime, me, &hosts.links().address(host, PORT), others(hosts, host, count), None)
    }
    fn slice(&self, bytes: &[u8]) -> Slice {
        let mut buffer = self.runtime.buffer(bytes.len()).expect("memory");
        buffer.copy_from_slice(bytes);
        buffer.share().slice(0..bytes.len())
    }
    /// A parcel of a number, whose payload lies in this many slices of so many blocks.
    fn parcel(&self, number: u64, slices: usize, blocks: usize, more: usize) -> Parcel {
        let payload = content(number, slices * blocks * BLOCK);
        let mut body = [self.me.epoch, number, payload.len() as u64].map(u64::to_le_bytes).concat();
        body.resize(24 + more, number as u8);
        let slices = payload.chunks((blocks * BLOCK).max(1)).map(|part| self.slice(part)).collect();
        Parcel::new(GroupId(number as u32 % 7), body, slices)
    }
    /// The next parcel's number.
    fn number(&self, to: PeerId) -> u64 {
        let mut sent = self.sent.lock();
        let count = sent.entry(to).or_default();
        *count += 1;
        *count - 1
    }
    fn send(&self, to: PeerId, slices: usize, blocks: usize, more: usize) -> u64 {
        let number = self.number(to);
        let parcel = self.parcel(number, slices, blocks, more);
        self.witness.note(Seen::Sent(to, number));
        self.peers.send(to, &parcel);
        number
    }
}

/// Waits until something holds.
async fn until(clock: &Arc<dyn Clock>, what: &str, holds: impl Fn() -> bool) {
    let until_ns = clock.now_ns() + HEALED_WITHIN_NS;
    while !holds() {
        assert!(clock.now_ns() < until_ns, "not within {} s: {what}", HEALED_WITHIN_NS / 1_000 / MS);
        clock.sleep(MS).await;
    }
}

/// Waits until all pairs are connected, as both ends were told.
async fn all_connected(clock: &Arc<dyn Clock>, bricks: &[&Brick]) {
    let is_connected = |one: &Brick, other: &Brick| {
        let reach = one.peers.reach(other.me.id).expect("a peer");
        one.witness.is_connected(other.me.id) && reach.is_connected && reach.epoch == Some(other.me.epoch)
    };
    let pairs = || bricks.iter().flat_map(|one| bricks.iter().map(move |other| (one, other)));
    until(clock, "all are connected", || {
        pairs().filter(|(one, other)| one.me.id != other.me.id).all(|(one, other)| is_connected(one, other))
    })
    .await;
}

/// Checks what must hold of all that a brick has seen.
fn check(brick: &Brick) {
    let mut connected: BTreeMap<PeerId, Option<u64>> = BTreeMap::new();
    // The last parcel of each peer, and whether `connected` was told since.
    let mut last: BTreeMap<PeerId, (u64, u64, bool)> = BTreeMap::new();
    let mut epochs: BTreeMap<PeerId, u64> = BTreeMap::new();
    for seen in brick.witness.seen.lock().iter() {
        match *seen {
            Seen::Connected(peer, epoch) => {
                assert!(epochs.insert(peer, epoch).is_none_or(|before| before <= epoch), "an older process");
                let before = connected.insert(peer, Some(epoch));
                assert!(matches!(before, None | Some(None)), "told twice that {peer} is connected");
                if let Some((_, _, was_told)) = last.get_mut(&peer) {
                    *was_told = true;
                }
            }
            Seen::Disconnected(peer) => {
                let before = connected.insert(peer, None);
                assert!(matches!(before, Some(Some(_))), "told twice that {peer} is not connected");
            }
            Seen::Came(peer, epoch, number) => {
                assert_eq!(connected.get(&peer), Some(&Some(epoch)), "a parcel of who is not connected");
                if let Some((of, before, was_told)) = last.insert(peer, (epoch, number, false)) {
                    let is_next = of == epoch && number == before + 1;
                    let is_later = of < epoch || (of == epoch && number > before);
                    assert!(is_next || (is_later && was_told), "{number} of epoch {epoch} after {before} of {of}");
                }
            }
            Seen::Pulse(..) | Seen::PulsesArrive(_) | Seen::Sent(..) => {}
        }
    }
}

/// Checks that all that a brick has sent since it was told `connected` last has come to the other one.
fn check_complete(from: &Brick, to: &Brick) {
    let came: Vec<(u64, u64)> = {
        let number = |seen: &Seen| match seen {
            Seen::Came(of, epoch, number) if *of == from.me.id => Some((*epoch, *number)),
            _ => None,
        };
        to.witness.seen.lock().iter().filter_map(number).collect()
    };
    for seen in from.witness.seen.lock().iter().rev() {
        match *seen {
            Seen::Sent(peer, number) if peer == to.me.id => {
                assert!(came.contains(&(from.me.epoch, number)), "parcel {number} is lost, and nobody was told");
            }
            Seen::Connected(peer, _) | Seen::Disconnected(peer) if peer == to.me.id => return,
            _ => {}
        }
    }
}

/// Sends one more between each two, and waits for all that was sent.
async fn settle(clock: &Arc<dyn Clock>, bricks: &[&Brick]) {
    all_connected(clock, bricks).await;
    let pairs = || bricks.iter().flat_map(|one| bricks.iter().map(move |other| (*one, *other)));
    let mut last = Vec::new();
    for (one, other) in pairs().filter(|(one, other)| one.me.id != other.me.id) {
        last.push((one.me, other, one.send(other.me.id, 1, 1, 0)));
    }
    until(clock, "the last parcels have come", || {
        last.iter().all(|(me, other, number)| {
            let seen = Seen::Came(me.id, me.epoch, *number);
            other.witness.seen.lock().contains(&seen)
        })
    })
    .await;
    bricks.iter().for_each(|brick| check(brick));
    pairs().filter(|(one, other)| one.me.id != other.me.id).for_each(|(one, other)| check_complete(one, other));
}

/// Two bricks on a fleet.
fn two(seed: u64) -> (Fleet, Arc<Hosts>, Brick, Brick) {
    let fleet = Fleet::with_patience(seed, 3_600_000 * MS);
    let hosts = fleet.hosts().clone();
    let (one, other) = (Brick::boot(&hosts, 0, 2, 1), Brick::boot(&hosts, 1, 2, 1));
    (fleet, hosts, one, other)
}

#[test]
fn a_pulse_arrives_as_soon_as_that_is_told() {
    for seed in 0..20 {
        let (mut fleet, hosts, one, other) = two(seed);
        let clock = hosts.clock();
        fleet.block_on(async {
            until(&clock, "the connection of pulses", || {
                one.witness.count(|seen| *seen == Seen::PulsesArrive(id(1))) > 0
            })
            .await;
            one.peers.pulse(id(1), &[7]);
            clock.sleep(1_000 * MS).await;
        });
        assert_eq!(other.witness.count(|seen| *seen == Seen::Pulse(id(0), vec![7])), 1, "seed {seed}");
    }
}

#[test]
fn parcels_arrive_in_order_and_whole_and_pulses_beside_them() {
    for seed in 0..8 {
        let (mut fleet, hosts, one, other) = two(seed);
        let mut rng = SplitMix(seed);
        hosts.links().set_plan(0, 1, LinkPlan::draw(&mut rng));
        hosts.links().set_plan(1, 0, LinkPlan::draw(&mut rng));
        let clock = hosts.clock();
        fleet.block_on(async {
            all_connected(&clock, &[&one, &other]).await;
            let pulses = || other.witness.count(|seen| matches!(seen, Seen::Pulse(..)));
            until(&clock, "a pulse", || {
                one.peers.pulse(id(1), &[0]);
                pulses() > 0
            })
            .await;
            clock.sleep(1_000 * MS).await;
            let before = pulses();
            for round in 0..40 {
                let (slices, blocks) =
                    if rng.one_in(10) { (rng.below(8) as usize, 32) } else { (rng.below(5) as usize, 1) };
                one.send(id(1), slices, blocks, rng.below(3_000) as usize);
                other.send(id(0), blocks % 5, slices, 0);
                one.peers.pulse(id(1), &[round; 100]);
            }
            // The largest there is: 256 slices of one block each, beside the longest message.
            one.send(id(1), 256, 1, PARCEL_BYTES_MAX - 24);
            one.peers.pulse(id(1), &[7; PULSE_BYTES_MAX]);
            until(&clock, "all parcels", || {
                one.witness.numbers(id(1)).len() == 40 && other.witness.numbers(id(0)).len() == 41
            })
            .await;
            until(&clock, "all pulses", || pulses() == before + 41).await;
            settle(&clock, &[&one, &other]).await;
            assert_eq!(other.witness.numbers(id(0)), (0..42).collect::<Vec<_>>());
            assert_eq!(one.witness.count(|seen| matches!(seen, Seen::Connected(..))), 1, "nothing broke");
        });
    }
}

/// Many parcels of several slices each wait while the first ones are sent: what one send takes ends between two of them.
#[test]
fn slices_of_a_parcel_stay_together() {
    let (mut fleet, hosts, one, other) = two(3);
    let clock = hosts.clock();
    fleet.block_on(async {
        all_connected(&clock, &[&one, &other]).await;
        (0..20).for_each(|number| _ = one.send(id(1), 100 + number, 1, 0));
        until(&clock, "all parcels", || other.witness.numbers(id(0)).len() == 20).await;
        settle(&clock, &[&one, &other]).await;
    });
}

#[test]
fn pulses_come_while_parcels_wait() {
    let (mut fleet, hosts, one, other) = two(5);
    let clock = hosts.clock();
    fleet.block_on(async {
        all_connected(&clock, &[&one, &other]).await;
        other.witness.hold(true);
        (0..10).for_each(|_| _ = one.send(id(1), 1, 256, 0));
        until(&clock, "the first parcel", || other.witness.numbers(id(0)).len() == 1).await;
        clock.sleep(1_000 * MS).await;
        one.peers.pulse(id(1), b"alive");
        let pulse = Seen::Pulse(id(0), b"alive".to_vec());
        until(&clock, "a pulse", || other.witness.seen.lock().contains(&pulse)).await;
        assert_eq!(other.witness.numbers(id(0)), [0]);
        other.witness.hold(false);
        settle(&clock, &[&one, &other]).await;
        assert_eq!(other.witness.numbers(id(0)), (0..11).collect::<Vec<_>>());
    });
}

/// The number of times that each was told `connected`.
fn told(bricks: [&Brick; 2]) -> [usize; 2] {
    bricks.map(|brick| brick.witness.count(|seen| matches!(seen, Seen::Connected(..))))
}

#[test]
fn both_ends_are_told_whatever_was_cut() {
    for seed in 0..4 {
        let cuts: [fn(&Hosts); 5] = [
            |hosts| hosts.links().cut(0, 1),
            |hosts| hosts.links().cut_one_way(0, 1),
            |hosts| hosts.links().cut_one_way(1, 0),
            |hosts| hosts.links().silence(0, 1),
            |hosts| hosts.links().silence(1, 0),
        ];
        for cut in cuts {
            let (mut fleet, hosts, one, other) = two(seed);
            let clock = hosts.clock();
            fleet.block_on(async {
                settle(&clock, &[&one, &other]).await;
                let before = told([&one, &other]);
                cut(&hosts);
                one.send(id(1), 1, 3, 10);
                other.send(id(0), 1, 3, 10);
                until(&clock, "both notice", || !one.witness.is_connected(id(1)) && !other.witness.is_connected(id(0)))
                    .await;
                // Nothing is kept for later.
                let lost = one.send(id(1), 1, 1, 0);
                clock.sleep(20_000 * MS).await;
                hosts.links().heal(0, 1);
                settle(&clock, &[&one, &other]).await;
                assert!(!other.witness.numbers(id(0)).contains(&lost));
                let after = told([&one, &other]);
                assert!(after[0] > before[0] && after[1] > before[1], "{before:?} {after:?}");
            });
        }
    }
}

/// A connection is broken off at every byte of its beginning, and of the parcels behind it.
#[test]
fn a_connection_may_break_at_any_byte() {
    for (seed, bytes) in (0..700).step_by(5).chain((700..60_000).step_by(1_700)).enumerate() {
        for way in [(0, 1), (1, 0)] {
            let mut fleet = Fleet::with_patience(seed as u64, 3_600_000 * MS);
            let hosts = fleet.hosts().clone();
            let one = Brick::boot(&hosts, 0, 2, 1);
            hosts.links().reset_after(way.0, way.1, bytes);
            let other = Brick::boot(&hosts, 1, 2, 1);
            let clock = hosts.clock();
            fleet.block_on(async {
                for _ in 0..20 {
                    clock.sleep(3 * MS).await;
                    one.send(id(1), 1, 1, 0);
                    other.send(id(0), 1, 0, 100);
                }
                hosts.links().heal_all();
                settle(&clock, &[&one, &other]).await;
            });
        }
    }
}

#[test]
fn a_peer_that_reads_slowly_costs_bounded_memory_and_its_connection() {
    let (mut fleet, hosts, one, other) = two(1);
    let clock = hosts.clock();
    fleet.block_on(async {
        all_connected(&clock, &[&one, &other]).await;
        other.witness.hold(true);
        let mut sent = 0;
        while told([&one, &other])[0] == 1 {
            one.send(id(1), 1, 256, 0);
            sent += 1;
            clock.sleep(20 * MS).await;
            assert!(sent < 60, "the queue has a bound");
        }
        // 32 MiB wait, and some are on their way: the sender's send, the network, and the receiver's two.
        assert!((32..40).contains(&sent), "{sent} parcels of 1 MiB");
        assert!(one.runtime.slabs.bytes() < 128 << 20, "{} bytes", one.runtime.slabs.bytes());
        assert_eq!(other.witness.numbers(id(0)), [0], "the first one is still held");
        let error = one.peers.reach(id(1)).and_then(|reach| reach.error).expect("why it broke");
        assert!(error.to_string().contains("too slowly"), "{error}");
        clock.sleep(5_000 * MS).await;
        other.witness.hold(false);
        settle(&clock, &[&one, &other]).await;
        let numbers = other.witness.numbers(id(0));
        assert!(numbers.len() < 10, "the others were dropped: {numbers:?}");
    });
}

/// A brick made by hand: it says what it likes.
async fn greeting(hosts: &Hosts, from: usize, hello: &PeerHello) -> (Arc<Lane>, Reader, Result<PeerOk, Refused>) {
    let runtime = hosts.runtime(from);
    let connection = runtime.net.connect(&hosts.links().address(1, PORT)).await.expect("it listens");
    let lane = Lane::start(&runtime, connection, None);
    let mut reader = Reader::new(&runtime, &lane);
    lane.outbox.push(None, |out| hello.frame(out, Header::new(FrameKind::PeerHello)));
    let came = reader.next().await.expect("a frame").expect("the stream goes on");
    let answer = match came.header.kind {
        FrameKind::PeerOk => Ok(PeerOk::decode(reader.body()).expect("it is whole")),
        _ => Err(Refused::decode(reader.body()).expect("it is whole")),
    };
    (lane, reader, answer)
}

fn hello(epoch: u64, purpose: Purpose) -> PeerHello {
    let (who, whom) = (id(0), id(1));
    PeerHello { versions: VERSIONS, features: 0, cluster: CLUSTER, who, whom, epoch, purpose, lane: 0 }
}

#[test]
fn who_is_no_peer_is_refused_in_words() {
    let (mut fleet, hosts, one, other) = two(2);
    let clock = hosts.clock();
    fleet.block_on(async {
        all_connected(&clock, &[&one, &other]).await;
        let before = told([&one, &other]);
        let good = hello(1, Purpose::Append);
        let newer = Versions { lowest: VERSIONS.highest + 1, highest: VERSIONS.highest + 1 };
        for (hello, reason, text) in [
            (PeerHello { cluster: [1; 16], ..good.clone() }, Reason::Cluster, "another cluster"),
            (PeerHello { who: id(7), ..good.clone() }, Reason::Member, "none of this brick's peers"),
            (PeerHello { whom: id(2), ..good.clone() }, Reason::Member, "this is brick"),
            (PeerHello { who: id(1), ..good.clone() }, Reason::Itself, "to itself"),
            (PeerHello { epoch: 0, ..good.clone() }, Reason::Epoch, "is over"),
            (PeerHello { versions: newer, ..good.clone() }, Reason::Version, "upgrade"),
            (PeerHello { lane: 1, ..good.clone() }, Reason::Protocol, "one connection of each purpose"),
        ] {
            let (lane, _, answer) = greeting(&hosts, 0, &hello).await;
            let refused = answer.expect_err("it is refused");
            assert!(refused.reason == reason && refused.text.contains(text), "{refused:?}");
            lane.close(&hosts.runtime(0));
        }
        clock.sleep(3_000 * MS).await;
        assert_eq!(told([&one, &other]), before, "nobody else's connection was touched");
        settle(&clock, &[&one, &other]).await;
    });
}

#[test]
fn a_brick_at_a_wrong_address_is_told_so() {
    for (address, text) in [(1, "to itself"), (2, "this is brick")] {
        let mut fleet = Fleet::with_patience(4, 3_600_000 * MS);
        let hosts = fleet.hosts().clone();
        let runtime = hosts.boot(1, Setup::new(1));
        let third = Brick::boot(&hosts, 2, 3, 1);
        let peers = vec![(id(0), hosts.links().address(address, PORT))];
        let me = Me { id: id(1), cluster: CLUSTER, epoch: 1 };
        let brick = Brick::start(&runtime, me, &hosts.links().address(1, PORT), peers, None);
        let clock = hosts.clock();
        fleet.block_on(async {
            until(&clock, "it is refused", || {
                let error = brick.peers.reach(id(0)).expect("a peer").error;
                error.is_some_and(|error| error.kind == Kind::Permission && error.to_string().contains(text))
            })
            .await;
        });
        assert!(brick.witness.seen.lock().is_empty() && third.witness.seen.lock().is_empty());
    }
}

#[test]
fn nothing_of_a_replaced_connection_comes_after_the_first_of_the_new_one() {
    for seed in 0..10 {
        let mut fleet = Fleet::with_patience(seed, 3_600_000 * MS);
        let hosts = fleet.hosts().clone();
        // Host 0 answers as brick 0, but for its hellos, which the test says.
        let runtime = hosts.boot(0, Setup::new(0));
        let nowhere = vec![(id(1), hosts.links().address(9, PORT))];
        let me = Me { id: id(0), cluster: CLUSTER, epoch: 1 };
        let quiet = Brick::start(&runtime, me, &hosts.links().address(0, PORT), nowhere, None);
        let other = Brick::boot(&hosts, 1, 2, 1);
        let clock = hosts.clock();
        fleet.block_on(async {
            let send = |lane: &Lane, number: u64| {
                let parcel = quiet.parcel(number, 0, 0, 5_000);
                let header = Header { group: parcel.group, ..Header::new(FrameKind::Parcel) };
                lane.outbox.push(None, |out| {
                    frame::put(out, header, 0, |out| {
                        wire::codec::peer::ParcelBody::put(out, &parcel.sums, &parcel.body);
                    });
                });
            };
            let (first, ..) = greeting(&hosts, 0, &hello(1, Purpose::Append)).await;
            until(&clock, "connected", || other.witness.is_connected(id(0))).await;
            other.witness.takes_ns.store(10 * MS, Ordering::Relaxed);
            (0..20).for_each(|number| send(&first, number));
            until(&clock, "some parcels", || other.witness.numbers(id(0)).len() > 2).await;
            let (second, _, answer) = greeting(&hosts, 0, &hello(1, Purpose::Append)).await;
            assert_eq!(answer.map(|ok| ok.epoch), Ok(1));
            (100..105).for_each(|number| send(&second, number));
            (20..40).for_each(|number| send(&first, number));
            until(&clock, "the last one", || other.witness.numbers(id(0)).contains(&104)).await;
            clock.sleep(2_000 * MS).await;
            let numbers = other.witness.numbers(id(0));
            let (of_first, of_second) = numbers.split_at(numbers.len() - 5);
            assert_eq!(of_second, [100, 101, 102, 103, 104]);
            assert_eq!(of_first, (0..of_first.len() as u64).collect::<Vec<_>>(), "a prefix");
            assert!(of_first.len() < 20, "the first connection ended when the second came");
            let told = other.witness.seen.lock().clone();
            let last = told.iter().rposition(|seen| matches!(seen, Seen::Connected(..))).expect("told");
            assert_eq!(told.get(last + 1), Some(&Seen::Came(id(0), 1, 100)), "it is told before the first parcel");
            let end = told.iter().rposition(|seen| matches!(seen, Seen::Disconnected(..))).expect("told");
            assert!(!told[end..last].iter().any(|seen| matches!(seen, Seen::Came(..))), "nothing comes in between");
        });
    }
}

#[test]
fn a_changed_payload_ends_the_connection_and_does_not_arrive() {
    let (mut fleet, hosts, one, other) = two(6);
    let clock = hosts.clock();
    fleet.block_on(async {
        settle(&clock, &[&one, &other]).await;
        let before = told([&one, &other]);
        let good = one.send(id(1), 2, 1, 0);
        // Its checksums are of other blocks.
        let bad = one.number(id(1));
        let parcel = Parcel { sums: one.parcel(bad + 1, 2, 1, 0).sums, ..one.parcel(bad, 2, 1, 0) };
        one.peers.send(id(1), &parcel);
        one.send(id(1), 2, 1, 0);
        until(&clock, "both notice", || {
            let after = told([&one, &other]);
            after[0] > before[0] && after[1] > before[1]
        })
        .await;
        let error = other.peers.reach(id(0)).and_then(|reach| reach.error).expect("why it broke");
        assert!(error.to_string().contains("fails its checksum"), "{error}");
        assert_eq!(other.witness.numbers(id(0)).last(), Some(&good));
        settle(&clock, &[&one, &other]).await;
    });
}

#[test]
fn a_message_that_belongs_elsewhere_ends_the_connection() {
    for (purpose, kind, body) in [
        (Purpose::Append, FrameKind::PeerPulse, vec![1; 10]),
        (Purpose::Append, FrameKind::Parcel, vec![0; 3]),
        (Purpose::Pulse, FrameKind::Parcel, vec![0; 8]),
        (Purpose::Pulse, FrameKind::PeerPulse, vec![1; PULSE_BYTES_MAX + 1]),
    ] {
        let (mut fleet, hosts, one, other) = two(7);
        let clock = hosts.clock();
        fleet.block_on(async {
            all_connected(&clock, &[&one, &other]).await;
            let (lane, mut reader, answer) = greeting(&hosts, 0, &hello(1, purpose)).await;
            assert!(answer.is_ok());
            lane.outbox.push(None, |out| frame::put(out, Header::new(kind), 0, |out| out.extend_from_slice(&body)));
            let came = reader.next().await.expect("a frame").expect("it says why");
            assert_eq!(came.header.kind, FrameKind::Refused, "{purpose:?} {kind:?}");
            assert_eq!(Refused::decode(reader.body()).map(|refused| refused.reason), Ok(Reason::Protocol));
            assert_eq!(other.witness.count(|seen| matches!(seen, Seen::Pulse(..) | Seen::Came(..))), 0);
            lane.close(&hosts.runtime(0));
            settle(&clock, &[&one, &other]).await;
        });
    }
}

#[test]
fn a_process_that_was_killed_and_started_has_a_higher_epoch_and_the_older_one_no_say() {
    for seed in 0..10 {
        let (mut fleet, hosts, one, other) = two(seed);
        let clock = hosts.clock();
        fleet.block_on(async {
            settle(&clock, &[&one, &other]).await;
            (0..30).for_each(|_| _ = other.send(id(0), 1, 4, 0));
            hosts.kill(1);
            let restarted = Brick::boot(&hosts, 1, 2, 2);
            settle(&clock, &[&one, &restarted]).await;
            check(&other);
            assert_eq!(one.peers.reach(id(1)).and_then(|reach| reach.epoch), Some(2));
            let seen = one.witness.seen.lock().clone();
            let at = seen.iter().position(|seen| *seen == Seen::Connected(id(1), 2)).expect("told");
            assert!(!seen[at..].iter().any(|seen| matches!(seen, Seen::Came(_, 1, _))));
            // The other way round: what is late of the older process is refused.
            let late = PeerHello { who: id(1), whom: id(0), ..hello(1, Purpose::Append) };
            let runtime = hosts.runtime(1);
            let connection = runtime.net.connect(&hosts.links().address(0, PORT)).await.expect("it listens");
            let lane = Lane::start(&runtime, connection, None);
            let mut reader = Reader::new(&runtime, &lane);
            lane.outbox.push(None, |out| late.frame(out, Header::new(FrameKind::PeerHello)));
            reader.next().await.expect("a frame").expect("the stream goes on");
            assert_eq!(Refused::decode(reader.body()).map(|refused| refused.reason), Ok(Reason::Epoch));
        });
    }
}

#[test]
fn nothing_is_told_after_the_stop_and_all_connections_end() {
    let (mut fleet, hosts, one, other) = two(8);
    let clock = hosts.clock();
    fleet.block_on(async {
        settle(&clock, &[&one, &other]).await;
        other.peers.stop();
        let seen = other.witness.seen.lock().len();
        until(&clock, "the other end notices", || !one.witness.is_connected(id(1))).await;
        one.send(id(1), 1, 1, 0);
        clock.sleep(5_000 * MS).await;
        assert_eq!(other.witness.seen.lock().len(), seen);
        assert!(!one.witness.is_connected(id(1)));
        // The place is free, and the same brick can start again.
        let me = Me { epoch: 2, ..other.me };
        let listen = hosts.links().address(1, PORT);
        let again = Brick::start(&hosts.runtime(1), me, &listen, others(&hosts, 1, 2), None);
        settle(&clock, &[&one, &again]).await;
    });
}

#[test]
fn a_brick_is_known_by_its_certificate() {
    let mut fleet = Fleet::with_patience(9, 3_600_000 * MS);
    let hosts = fleet.hosts().clone();
    let signer = Signer::new();
    let runtimes = [0, 1, 2].map(|host| hosts.boot(host, Setup::new(1)));
    let made: Vec<_> = runtimes.iter().map(|runtime| signer.server(NAME, runtime)).collect();
    let owners: Vec<_> =
        made.iter().enumerate().map(|(host, (_, certificate))| (certificate.clone(), id(host))).collect();
    let brick_of: wire::peer::BrickOf = Arc::new(move |certificate: &[u8]| {
        let owner = owners.iter().find(|(of, _)| **of == *certificate);
        owner.map(|(_, brick)| *brick).ok_or_else(|| base::Error::new(Kind::Permission, "a certificate of nobody"))
    });
    let start = |host: usize, shows: usize| {
        let (credentials, brick_of) = (made[shows].0.clone(), brick_of.clone());
        let trust = Trust { credentials, server_name: NAME.into(), brick_of };
        let me = Me { id: id(host), cluster: CLUSTER, epoch: 1 };
        let listen = hosts.links().address(host, PORT);
        Brick::start(&runtimes[host], me, &listen, others(&hosts, host, 3), Some(trust))
    };
    // Brick 2 shows the certificate of brick 0.
    let (one, other, liar) = (start(0, 0), start(1, 1), start(2, 0));
    let clock = hosts.clock();
    fleet.block_on(async {
        all_connected(&clock, &[&one, &other]).await;
        (0..10).for_each(|number| _ = one.send(id(1), number, 2, 1_000));
        until(&clock, "all parcels", || other.witness.numbers(id(0)).len() == 10).await;
        until(&clock, "it is found out", || {
            let error = other.peers.reach(id(2)).and_then(|reach| reach.error);
            error.is_some_and(|error| error.to_string().contains("not of the brick"))
        })
        .await;
        clock.sleep(5_000 * MS).await;
        assert!(liar.witness.seen.lock().is_empty());
        let of_liar = |seen: &Seen| matches!(seen, Seen::Connected(of, _) if *of == id(2));
        assert_eq!(one.witness.count(of_liar) + other.witness.count(of_liar), 0);
        check(&one);
        check(&other);
    });
}

#[test]
fn bricks_talk_over_real_sockets() {
    let directory = std::env::temp_dir().join(format!("sinter-peers-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("the temporary directory can be written");
    let there = Directory::open(&directory).expect("ours");
    let options = real::Options { cores: Some(2), ..real::Options::new(there, 256 << 20, &[]) };
    let (runtime, reactors) = real::start(options).expect("io_uring works here");
    let address = |host: usize| Address::Local(directory.join(format!("brick-{host}")));
    let start = |host: usize| {
        let peers = (0..3).filter(|other| *other != host).map(|other| (id(other), address(other))).collect();
        let me = Me { id: id(host), cluster: CLUSTER, epoch: 1 };
        Brick::start(&runtime, me, &address(host), peers, None)
    };
    let bricks = [start(0), start(1), start(2)];
    let clock = runtime.clock.clone();
    let waited = reactors.run(0, move || async move {
        let bricks = bricks.each_ref();
        all_connected(&clock, &bricks).await;
        for round in 0..200 {
            for (one, other) in [(0, 1), (1, 2), (2, 0), (1, 0)] {
                bricks[one].send(id(other), round % 4, 2, 50);
            }
            if round % 50 == 0 {
                clock.sleep(MS).await;
            }
        }
        settle(&clock, &bricks).await;
        // On a busy machine a connection may be replaced at the beginning, and what was under way be lost: then both ends are told.
        let of_two = |seen: &Seen| matches!(seen, Seen::Connected(peer, _) if *peer == id(2));
        if bricks[1].witness.count(of_two) == 1 {
            assert_eq!(bricks[2].witness.numbers(id(1)), (0..201).collect::<Vec<_>>());
        }
        until(&clock, "pulses, of which some may be lost", || {
            bricks[0].peers.pulse(id(1), &[1; 64]);
            bricks[1].witness.count(|seen| matches!(seen, Seen::Pulse(..))) >= 200
        })
        .await;
        bricks.iter().for_each(|brick| brick.peers.stop());
    });
    assert!(waited.is_ok());
    reactors.stop();
    std::fs::remove_dir_all(directory).expect("the test made it");
}

/// One thing that goes wrong, or right, between hosts.
fn disturb(hosts: &Hosts, rng: &mut SplitMix, (one, other): (usize, usize)) {
    let links = hosts.links();
    match rng.below(9) {
        0 => links.cut(one, other),
        1 => links.cut_one_way(one, other),
        2 => links.silence(one, other),
        3 => links.reset(one, other),
        4 => links.reset_after(one, other, rng.below(100_000)),
        5 => links.set_plan(one, other, LinkPlan::draw(rng)),
        6 => hosts.pause(one, 1 + rng.below(3_000 * MS)),
        _ => links.heal(one, other),
    }
}

/// Three bricks under a seed; returns how many parcels came, and how often somebody was told that a pair is connected.
fn run(seed: u64) -> (usize, usize) {
    const HOSTS: usize = 3;
    let mut fleet = Fleet::with_patience(seed, 36_000_000 * MS);
    let hosts = fleet.hosts().clone();
    let mut bricks: Vec<Brick> = (0..HOSTS).map(|host| Brick::boot(&hosts, host, HOSTS, 1)).collect();
    let mut over: Vec<Brick> = Vec::new();
    let (mut rng, clock) = (SplitMix(seed ^ 0x5eed), hosts.clock());
    fleet.block_on(async {
        for _ in 0..80 {
            let one = rng.below(HOSTS as u64) as usize;
            let other = (one + 1 + rng.below(HOSTS as u64 - 1) as usize) % HOSTS;
            match rng.below(20) {
                0 => {
                    hosts.kill(one);
                    let epoch = bricks[one].me.epoch + 1;
                    let started = Brick::boot(&hosts, one, HOSTS, epoch);
                    over.push(std::mem::replace(&mut bricks[one], started));
                }
                1..7 => disturb(&hosts, &mut rng, (one, other)),
                7 => bricks[one].witness.takes_ns.store(rng.below(50 * MS), Ordering::Relaxed),
                8 => bricks[one].peers.pulse(id(other), &[3; 40]),
                _ => {
                    for _ in 0..rng.below(12) {
                        let large = if rng.one_in(20) { 64 } else { 1 };
                        bricks[one].send(id(other), rng.below(4) as usize, large, rng.below(500) as usize);
                    }
                }
            }
            clock.sleep(1 << rng.below(34)).await;
        }
        hosts.links().heal_all();
        let bricks: Vec<&Brick> = bricks.iter().collect();
        bricks.iter().for_each(|brick| brick.witness.takes_ns.store(0, Ordering::Relaxed));
        settle(&clock, &bricks).await;
        over.iter().for_each(check);
        let all = || bricks.iter().copied().chain(&over);
        let count = |is_meant: fn(&Seen) -> bool| all().map(|brick| brick.witness.count(is_meant)).sum();
        (count(|seen| matches!(seen, Seen::Came(..))), count(|seen| matches!(seen, Seen::Connected(..))))
    })
}

#[test]
fn whatever_goes_wrong_parcels_come_in_order_once_and_losses_are_told() {
    let seeds = std::env::var("SINTER_SEEDS").map_or(SEEDS, |seeds| seeds.parse().expect("a number of seeds"));
    let (mut came, mut connected) = (0, 0);
    for seed in 0..seeds {
        let ran = catch_unwind(AssertUnwindSafe(|| run(seed)));
        let (of_run, told) = ran.unwrap_or_else(|panic| {
            println!("seed {seed}");
            std::panic::resume_unwind(panic)
        });
        came += of_run;
        connected += told;
    }
    // Nothing that is tested here may be missing.
    assert!(came as u64 > 50 * seeds && connected as u64 > 10 * seeds, "{came} parcels, {connected} times connected");
    println!("{came} parcels, {connected} times connected");
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    for seed in 0..3 {
        assert_eq!(run(seed), run(seed));
    }
}

/// Neither end waits for its own next attempt: who is connected to connects too.
#[test]
fn a_brick_that_comes_back_is_connected_at_once() {
    for seed in 0..10 {
        let (mut fleet, hosts, one, _) = two(seed);
        let clock = hosts.clock();
        fleet.block_on(async {
            hosts.kill(1);
            // Long enough for attempts to be rare.
            clock.sleep(20_000 * MS).await;
            let back = Brick::boot(&hosts, 1, 2, 2);
            clock.sleep(100 * MS).await;
            assert!(one.witness.is_connected(id(1)) && back.witness.is_connected(id(0)), "seed {seed}");
            settle(&clock, &[&one, &back]).await;
        });
    }
}

#[test]
fn those_who_say_nothing_keep_no_brick_out() {
    let mut fleet = Fleet::with_patience(1, 3_600_000 * MS);
    let hosts = fleet.hosts().clone();
    let other = Brick::boot(&hosts, 1, 2, 1);
    let runtime = hosts.boot(2, Setup::new(2));
    let clock = hosts.clock();
    fleet.block_on(async {
        let mut silent = Vec::new();
        for _ in 0..1_500 {
            silent.push(runtime.net.connect(&hosts.links().address(1, PORT)).await.expect("it is taken"));
        }
        let one = Brick::boot(&hosts, 0, 2, 1);
        let began_ns = clock.now_ns();
        settle(&clock, &[&one, &other]).await;
        assert!(clock.now_ns() - began_ns < 5_000 * MS, "before their time to say something is over");
        // The first of them went for later ones.
        let buffer = runtime.buffer(BLOCK).expect("memory");
        let (_, received) = runtime.net.receive(silent[0], buffer, 1).await;
        assert!(matches!(received, Ok(0)) || received.is_err());
        assert!(clock.now_ns() - began_ns < 5_000 * MS, "not for saying nothing for ten seconds");
        assert!(other.runtime.slabs.bytes() < 64 << 20, "{} bytes", other.runtime.slabs.bytes());
    });
}
