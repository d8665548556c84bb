//! The scenarios between simulated hosts, and what must hold under their faults.

use crate::scenarios::{ALL, Stage, receive, send, slices};
use base::{Kind, Result};
use runtime::disk;
use runtime::net::{Address, ConnectionId, DEAD_AFTER_NS, ListenerId};
use runtime::random::SplitMix;
use runtime::sim::{BootClock, Fleet, Hosts, LinkPlan, Setup, Side, Survival};
use runtime::tasks::both;
use runtime::{OpenMode, Runtime};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Seeds per property.
const SEEDS: u64 = 20;

const SECOND_NS: u64 = 1_000_000_000;

/// A fleet whose hosts have clocks of their own.
fn fleet(seed: u64, count: usize) -> Fleet {
    let fleet = Fleet::with_patience(seed, 600 * SECOND_NS);
    let mut rng = SplitMix(seed);
    for number in 0..count {
        let clock = BootClock::draw(&mut rng);
        fleet.hosts().boot(number, Setup { clock, ..Setup::new(seed) });
    }
    fleet
}

fn stage(hosts: &Hosts, server: usize, client: usize) -> Stage {
    let [server_runtime, client_runtime] = [server, client].map(|number| hosts.runtime(number));
    let [address, nobody] = [0, 1].map(|port| hosts.links().address(server, port));
    Stage { server: server_runtime, client: client_runtime, address, nobody }
}

#[test]
fn all_scenarios_hold_between_hosts() {
    for seed in 0..SEEDS {
        for (name, scenario) in ALL {
            let mut fleet = fleet(seed, 2);
            println!("{name}, seed {seed}");
            let stage = stage(fleet.hosts(), 1, 0);
            fleet.block_on(scenario(stage));
        }
    }
}

#[test]
fn all_scenarios_hold_on_one_host() {
    for seed in 0..SEEDS / 4 {
        for (name, scenario) in ALL {
            let mut fleet = fleet(seed, 1);
            println!("{name}, seed {seed}");
            let over_tcp = Stage {
                address: Address::Tcp("127.0.0.1:0".parse().expect("an address")),
                nobody: Address::Tcp("127.0.0.1:1".parse().expect("an address")),
                ..stage(fleet.hosts(), 0, 0)
            };
            let [address, nobody] = ["/run/socket", "/run/nobody"].map(|path| Address::Local(PathBuf::from(path)));
            let over_unix = Stage { address, nobody, ..over_tcp.clone() };
            fleet.block_on(async {
                scenario(over_tcp).await;
                scenario(over_unix).await;
            });
        }
    }
}

/// Bytes of a conversation, in each direction.
const TALK_BYTES: usize = 20_000;

/// Sends the bytes of a stream in pieces, and receives those of the other end, until all have come or the connection is over. Whatever
/// comes must be a prefix of what the other end sends. Returns how many came.
async fn talk(runtime: &Runtime, connection: ConnectionId) -> usize {
    let sends = async {
        let mut rng = SplitMix(runtime.random.next_u64());
        let mut from = 0;
        while from < TALK_BYTES {
            let length = (1 + rng.below(5_000) as usize).min(TALK_BYTES - from);
            let piece = 1 + rng.below(2_000) as usize;
            if runtime.net.send(connection, slices(runtime, from, length, piece)).await.1.is_err() {
                break;
            }
            from += length;
        }
        from
    };
    let receives = async {
        let mut rng = SplitMix(runtime.random.next_u64());
        let mut came = 0;
        while came < TALK_BYTES {
            let length = (1 + rng.below(3_000) as usize).min(TALK_BYTES - came);
            match receive(runtime, connection, came, length).await {
                Ok(count) if count > 0 => came += count,
                _ => break,
            }
        }
        came
    };
    both(sends, receives).await.1
}

/// A host that talks with all who come.
fn serve(runtime: &Runtime, address: &Address) -> ListenerId {
    let listener = runtime.net.listen(address).expect("a free address");
    let server = runtime.clone();
    runtime.spawn(0, move || async move {
        while let Ok((connection, _)) = server.net.accept(listener).await {
            let runtime = server.clone();
            server.spawn(connection.0 as usize % 2, move || async move {
                talk(&runtime, connection).await;
                // The other end should have all before it learns of the end.
                let _ = receive(&runtime, connection, 0, 1).await;
                runtime.net.close(connection);
            });
        }
    });
    listener
}

/// Clients' figures.
#[derive(Default)]
struct Talks {
    /// True once no more are begun.
    stops: AtomicBool,
    /// Clients that are there.
    clients: AtomicU64,
    /// Conversations of which all bytes came.
    whole: AtomicU64,
    /// Connections that were not made, or broke.
    broken: AtomicU64,
}

fn start_client(runtime: &Runtime, address: &Address, talks: &Arc<Talks>) {
    talks.clients.fetch_add(1, Ordering::Relaxed);
    let (runtime, address, talks) = (runtime.clone(), address.clone(), talks.clone());
    runtime.clone().spawn(1, move || async move {
        while !talks.stops.load(Ordering::Relaxed) {
            let Ok(connection) = runtime.net.connect(&address).await else {
                talks.broken.fetch_add(1, Ordering::Relaxed);
                runtime.clock.sleep(10_000_000).await;
                continue;
            };
            let is_whole = talk(&runtime, connection).await == TALK_BYTES;
            let count = if is_whole { &talks.whole } else { &talks.broken };
            count.fetch_add(1, Ordering::Relaxed);
            runtime.net.close(connection);
            runtime.clock.sleep(300_000_000).await;
        }
        talks.clients.fetch_sub(1, Ordering::Relaxed);
    });
}

/// Does something bad to the way between the hosts 0 and 1, or to host 1. Returns its number.
fn harm(hosts: &Hosts, rng: &mut SplitMix, address: &Address) -> u64 {
    let links = hosts.links();
    let (from, to) = if rng.one_in(2) { (0, 1) } else { (1, 0) };
    let restart = |image| {
        let clock = BootClock::draw(&mut SplitMix(7));
        let runtime = hosts.boot(1, Setup { image: Some(image), clock, ..Setup::new(0) });
        serve(&runtime, address);
    };
    let fault = rng.below(9);
    match fault {
        0 => links.cut(0, 1),
        1 => links.cut_one_way(from, to),
        2 => links.silence(from, to),
        3 => links.reset_after(from, to, rng.below(30_000)),
        4 => links.reset(0, 1),
        5 => links.set_plan(from, to, LinkPlan { trickles: rng.one_in(2), ..LinkPlan::draw(rng) }),
        6 => hosts.pause(rng.below(2) as usize, rng.below(20 * SECOND_NS)),
        7 => restart(hosts.kill(1)),
        _ => restart(hosts.crash(1, Survival::Random)),
    }
    fault
}

/// A run under faults. Returns its fingerprint, and how many conversations were whole and broken.
fn run_under_faults(seed: u64) -> (u64, u64, u64) {
    let mut fleet = fleet(seed, 2);
    let hosts = fleet.hosts().clone();
    let address = hosts.links().address(1, 700);
    let talks = Arc::new(Talks::default());
    let counts = fleet.block_on(async {
        serve(&hosts.runtime(1), &address);
        (0..4).for_each(|_| start_client(&hosts.runtime(0), &address, &talks));
        let (clock, mut rng) = (hosts.clock(), SplitMix(seed ^ 0x6a09_e667));
        for _ in 0..12 {
            clock.sleep(rng.below(2 * SECOND_NS)).await;
            harm(&hosts, &mut rng, &address);
            let most_ns = if rng.one_in(2) { SECOND_NS / 10 } else { 25 * SECOND_NS };
            clock.sleep(rng.below(most_ns)).await;
            if rng.one_in(2) {
                hosts.links().heal_all();
            }
        }
        hosts.links().heal_all();
        for (from, to) in [(0, 1), (1, 0)] {
            hosts.links().set_plan(from, to, LinkPlan { trickles: false, ..hosts.links().plan(from, to) });
        }
        let whole = talks.whole.load(Ordering::Relaxed);
        // A pause may last for 20 s, and what it has met for as long as it takes to count a peer as dead.
        clock.sleep(45 * SECOND_NS).await;
        assert!(talks.whole.load(Ordering::Relaxed) > whole, "seed {seed}: after the faults nothing works");
        talks.stops.store(true, Ordering::Relaxed);
        // A pause may last for 20 s more, and a connection that is dead is noticed after 15.
        for _ in 0..60 {
            clock.sleep(SECOND_NS).await;
        }
        assert_eq!(talks.clients.load(Ordering::Relaxed), 0, "seed {seed}: an I/O has not ended");
        [&talks.whole, &talks.broken].map(|count| count.load(Ordering::Relaxed))
    });
    (fleet.fingerprint(), counts[0], counts[1])
}

#[test]
fn under_faults_prefixes_arrive_and_every_io_ends() {
    let (mut whole, mut broken) = (0, 0);
    for seed in 0..SEEDS / 2 {
        let (_, more_whole, more_broken) = run_under_faults(seed);
        (whole, broken) = (whole + more_whole, broken + more_broken);
    }
    println!("{whole} whole, {broken} broken");
    assert!(whole > 50 * SEEDS && broken > SEEDS, "{whole} whole, {broken} broken");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..3 {
        assert_eq!(run_under_faults(seed), run_under_faults(seed));
    }
    assert_ne!(run_under_faults(1).0, run_under_faults(2).0);
}

/// A connection from host 0 to host 1: the client's end and the server's.
async fn connected(hosts: &Hosts) -> (Runtime, ConnectionId, Runtime, ConnectionId) {
    let (client, server) = (hosts.runtime(0), hosts.runtime(1));
    let listener = server.net.listen(&hosts.links().address(1, 700)).expect("a free address");
    let connecting = client.net.connect(&hosts.links().address(1, 700));
    let (here, there) =
        (connecting.await.expect("somebody listens"), server.net.accept(listener).await.expect("it came").0);
    server.net.close_listener(listener);
    (client, here, server, there)
}

/// The time in seconds that a receive takes until it fails, and its error.
async fn fails_after(hosts: &Hosts, runtime: &Runtime, connection: ConnectionId) -> (u64, Kind) {
    let since_ns = hosts.clock().now_ns();
    let error = receive(runtime, connection, 0, 1).await.expect_err("nothing comes any more");
    ((hosts.clock().now_ns() - since_ns) / SECOND_NS, error.kind)
}

/// Both ends learn of a fault that lets nothing through, in as many seconds as it takes to count a peer as dead.
fn check_dead(harm: fn(&Hosts)) {
    let mut fleet = fleet(1, 2);
    let hosts = fleet.hosts().clone();
    fleet.block_on(async {
        let (client, here, server, there) = connected(&hosts).await;
        harm(&hosts);
        let ends = (fails_after(&hosts, &client, here), fails_after(&hosts, &server, there));
        let expected = (DEAD_AFTER_NS / SECOND_NS, Kind::Interrupted);
        assert_eq!(both(ends.0, ends.1).await, (expected, expected));
    });
}

#[test]
fn a_cut_link_is_noticed_by_both_ends() {
    check_dead(|hosts| hosts.links().cut(0, 1));
    check_dead(|hosts| hosts.links().cut_one_way(0, 1));
    check_dead(|hosts| hosts.links().cut_one_way(1, 0));
    check_dead(|hosts| hosts.links().silence(0, 1));
}

#[test]
fn a_cut_that_is_healed_in_time_loses_nothing() {
    let mut fleet = fleet(2, 2);
    let hosts = fleet.hosts().clone();
    fleet.block_on(async {
        let (client, here, server, there) = connected(&hosts).await;
        hosts.links().cut_one_way(1, 0);
        send(&server, there, 0, 1000).await.expect("its kernel takes it");
        hosts.clock().sleep(10 * SECOND_NS).await;
        hosts.links().heal(0, 1);
        assert_eq!(receive(&client, here, 0, 1000).await, Ok(1000));
        assert!(server.net.way(there).expect("it is open").retransmits > 0);
    });
}

#[test]
fn a_machine_that_is_off_is_noticed_late_and_a_killed_process_at_once() {
    for (seed, kills) in [(1, false), (2, true)] {
        let mut fleet = fleet(seed, 2);
        let hosts = fleet.hosts().clone();
        fleet.block_on(async {
            let (client, here, ..) = connected(&hosts).await;
            if kills {
                drop(hosts.kill(1))
            } else {
                drop(hosts.crash(1, Survival::Nothing))
            }
            let since_ns = hosts.clock().now_ns();
            let told = receive(&client, here, 0, 1).await;
            assert!(matches!(&told, Ok(0)) && kills || told.is_err_and(|error| error.kind == Kind::Interrupted));
            let took_ns = hosts.clock().now_ns() - since_ns;
            assert!(if kills { took_ns < SECOND_NS } else { took_ns >= DEAD_AFTER_NS }, "{took_ns} ns");
            // Nobody is there to be asked.
            let error = client.net.connect(&hosts.links().address(1, 700)).await.expect_err("nobody is there");
            let answers = error.to_string().contains("nobody answers");
            assert_eq!((error.kind, answers), (Kind::Host, !kills), "{error}");
        });
    }
}

#[test]
fn a_host_that_boots_again_breaks_off_what_it_had() {
    let mut fleet = fleet(3, 2);
    let hosts = fleet.hosts().clone();
    fleet.block_on(async {
        let (client, here, ..) = connected(&hosts).await;
        let image = hosts.crash(1, Survival::Nothing);
        hosts.clock().sleep(SECOND_NS).await;
        hosts.boot(1, Setup { image: Some(image), ..Setup::new(0) });
        assert_eq!(fails_after(&hosts, &client, here).await, (0, Kind::Interrupted));
    });
}

#[test]
fn a_reset_comes_at_its_byte() {
    for bytes in [0, 1, 777, 4999] {
        let mut fleet = fleet(bytes, 2);
        let hosts = fleet.hosts().clone();
        fleet.block_on(async {
            let (client, here, server, there) = connected(&hosts).await;
            hosts.links().reset_after(1, 0, bytes);
            let sends = async { send(&server, there, 0, 5000).await.map(|()| 0) };
            let receives = async {
                let mut came = 0;
                let error = loop {
                    match receive(&client, here, came, 1).await {
                        Ok(count) => came += count,
                        Err(error) => break error,
                    }
                };
                assert_eq!((came as u64, error.kind), (bytes, Kind::Interrupted));
                Result::Ok(0)
            };
            let _ = both(sends, receives).await;
            assert_eq!(fails_after(&hosts, &server, there).await, (0, Kind::Interrupted));
        });
    }
}

#[test]
fn no_machine_has_an_unknown_address() {
    let mut fleet = fleet(4, 1);
    let hosts = fleet.hosts().clone();
    fleet.block_on(async {
        let client = hosts.runtime(0);
        let since_ns = hosts.clock().now_ns();
        let error = client.net.connect(&hosts.links().address(9, 700)).await.expect_err("nobody is there");
        assert!(error.kind == Kind::Host && error.to_string().contains("nobody answers"), "{error}");
        assert_eq!((hosts.clock().now_ns() - since_ns) / SECOND_NS, DEAD_AFTER_NS / SECOND_NS);
        let elsewhere = Address::Tcp("192.168.1.1:700".parse().expect("an address"));
        let error = client.net.connect(&elsewhere).await.expect_err("no way leads there");
        assert!(error.kind == Kind::Host && error.to_string().contains("no way"), "{error}");
        assert_eq!(client.net.listen(&elsewhere).expect_err("it is another's").kind, Kind::Invalid);
    });
}

#[test]
fn a_paused_host_runs_nothing_and_its_timers_are_late() {
    let mut fleet = fleet(5, 2);
    let hosts = fleet.hosts().clone();
    let ticks = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    for (number, ticks) in ticks.iter().enumerate() {
        let (runtime, ticks) = (hosts.runtime(number), ticks.clone());
        runtime.clone().spawn(0, move || async move {
            loop {
                runtime.clock.sleep(10_000_000).await;
                ticks.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let count = || [0, 1].map(|number: usize| ticks[number].load(Ordering::Relaxed));
    fleet.run_for(SECOND_NS);
    let before = count();
    assert!(before.iter().all(|&count| (90..=110).contains(&count)), "{before:?}");
    hosts.pause(1, 5 * SECOND_NS);
    fleet.run_for(4 * SECOND_NS);
    let paused = count();
    assert!(paused[1] == before[1] && paused[0] > before[0] + 300, "{before:?} {paused:?}");
    fleet.run_for(2 * SECOND_NS);
    assert!(count()[1] > paused[1] + 50);
}

#[test]
fn clocks_differ_from_host_to_host() {
    let mut fleet = Fleet::new(6);
    let hosts = fleet.hosts().clone();
    for (number, gains_ppm) in [(0, -50_000), (1, 50_000)] {
        let clock = BootClock { shows_ns: 1 + number as u64 * SECOND_NS, gains_ppm };
        hosts.boot(number, Setup { clock, ..Setup::new(0) });
    }
    let shown = || [0, 1].map(|number| hosts.runtime(number).clock.now_ns());
    let (wall, before) = (hosts.runtime(0).clock.wall(), shown());
    fleet.run_for(100 * SECOND_NS);
    let after = shown();
    assert_eq!([0, 1].map(|number: usize| (after[number] - before[number]) / SECOND_NS), [95, 105]);
    // Who sleeps for a second by a slow clock sleeps longer.
    let sleep = |number: usize| {
        let (runtime, clock) = (hosts.runtime(number), hosts.clock());
        async move {
            let since_ns = clock.now_ns();
            runtime.clock.sleep(SECOND_NS).await;
            (clock.now_ns() - since_ns) / 1_000_000
        }
    };
    assert_eq!(fleet.block_on(async { (sleep(0).await, sleep(1).await) }), (1052, 952));
    hosts.jump_wall(0, -3_600 * SECOND_NS as i64);
    assert!(hosts.runtime(0).clock.wall() < wall && shown()[0] > before[0]);
}

#[test]
fn a_host_that_crashes_at_a_step_boots_from_its_disk_while_the_others_go_on() {
    let mut fleet = fleet(7, 2);
    let hosts = fleet.hosts().clone();
    let ended = Arc::new(AtomicBool::new(false));
    let write = |runtime: &Runtime, byte: u8| {
        let (runtime, ended) = (runtime.clone(), ended.clone());
        runtime.clone().spawn(0, move || async move {
            let file = runtime.disk.open("data", OpenMode::Create).expect("a new name");
            runtime.disk.allocate(file, 8192).expect("there is space");
            runtime.disk.sync_names().expect("no fault is planned");
            disk::flush(&*runtime.disk, file).await.expect("no fault is planned");
            for page in 0..2 {
                let mut buffer = runtime.buffer(4096).expect("memory is left");
                buffer.fill(byte);
                let slices = vec![buffer.share().slice(0..4096)];
                disk::write(&*runtime.disk, file, page * 4096, slices, true).await.1.expect("no fault is planned");
            }
            ended.store(true, Ordering::Relaxed);
        });
    };
    // Names, length, the submission and the end of the first write; the second one's submission does not happen.
    hosts.crash_at_step(1, 5, Side::Before);
    write(&hosts.runtime(1), 5);
    fleet.run_for(SECOND_NS);
    assert!(!hosts.is_up(1) && hosts.is_up(0) && !ended.load(Ordering::Relaxed));
    let image = hosts.crash(1, Survival::Nothing);
    let runtime = hosts.boot(1, Setup { image: Some(image), ..Setup::new(0) });
    fleet.block_on(async {
        let file = runtime.disk.open("data", OpenMode::Existing).expect("its name was durable");
        let (buffer, result) = disk::read(&*runtime.disk, file, 0, runtime.buffer(8192).expect("memory is left")).await;
        result.expect("no fault is planned");
        assert_eq!((buffer[0], buffer[4095], buffer[4096]), (5, 5, 0));
    });
    write(&hosts.runtime(0), 6);
    fleet.run_until_idle();
    assert!(ended.load(Ordering::Relaxed));
}
