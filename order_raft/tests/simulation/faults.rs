//! Faults, and the end of a run.

use crate::network::Packet;
use crate::world::{Event, Figures, MS, S, World};
use order_raft::support::Ended;

/// One fault, and the plan of the next.
pub fn fault(world: &mut World) {
    if !world.is_stormy {
        return;
    }
    let wait = world.random.within(50 * MS..1_500 * MS);
    world.after(wait, Event::Fault);
    let count = world.hosts.len();
    let host = world.random.index(count);
    let other = (host + 1 + world.random.index(count - 1)) % count;
    let time = world.random.within(10 * MS..7 * S);
    match world.random.within(0..18) {
        0 | 1 => cut(world, &[(host, other), (other, host)], time),
        2 | 3 => cut(world, &[(host, other)], time),
        4 => {
            let ways: Vec<_> = others(count, host).flat_map(|other| [(host, other), (other, host)]).collect();
            cut(world, &ways, time);
        }
        5 => {
            // It hears nothing, or is not heard.
            let deaf = world.random.chance(500);
            let ways: Vec<_> =
                others(count, host).map(|other| if deaf { (other, host) } else { (host, other) }).collect();
            cut(world, &ways, time);
        }
        6 | 7 => world.stop(host, Ended::Somehow),
        8 => {
            for host in 0..count {
                world.stop(host, Ended::Somehow);
            }
        }
        9 => end(world, host),
        10 => {
            world.hosts[host].disk.hangs = true;
            world.after(time, Event::Unhang { host });
        }
        11 => world.hosts[host].disk.slowness = world.random.within(0..300 * MS),
        12 | 13 => {
            let (is_support, by) = (world.random.chance(700), world.random.within(0..2 * S));
            let until = world.now + time;
            world.network.make_late((host, other), is_support, until, by);
        }
        14 => {
            let leader = (0..count).find(|host| world.hosts[*host].has_lease(world.now)).unwrap_or(host);
            hear_late(world, leader);
        }
        15 => give_back(world),
        _ => transfer(world, other),
    }
}

fn others(count: usize, host: usize) -> impl Iterator<Item = usize> {
    (0..count).filter(move |other| *other != host)
}

fn cut(world: &mut World, ways: &[(usize, usize)], time: u64) {
    for way in ways {
        world.network.cut(*way);
        world.after(time, Event::Heal { way: *way });
    }
}

/// A host hears everything late, and soon is not heard: answers to its last questions come when others stop to keep them.
fn hear_late(world: &mut World, host: usize) {
    let until = world.now + 4 * S;
    for other in others(world.hosts.len(), host) {
        world.network.make_late((other, host), true, until, 2 * S);
        world.network.make_late((other, host), false, until, 8 * S);
        let wait = world.random.within(300 * MS..900 * MS);
        world.after(wait, Event::Cut { way: (host, other) });
        world.after(wait + 4 * S, Event::Heal { way: (host, other) });
    }
}

/// A leader gives back its support, and leads no longer.
fn give_back(world: &mut World) {
    let Some(host) = (0..world.hosts.len()).find(|host| world.hosts[*host].has_lease(world.now)) else { return };
    let now = world.hosts[host].clock(world.now);
    let process = world.hosts[host].process.as_mut().expect("who has a lease is there");
    for (to, ask) in process.supports.give_back(now) {
        let to = usize::try_from(to.0 - 100).expect("a small number");
        world.send((host, to), Packet::Ask(ask));
    }
    assert!(!world.hosts[host].has_lease(world.now), "what was given back counts no longer");
}

/// Begins a clean end: the host stops once it supports nobody.
fn end(world: &mut World, host: usize) {
    if let Some(process) = &mut world.hosts[host].process {
        process.is_ending = true;
        process.supports.end();
    }
}

fn transfer(world: &mut World, to: usize) {
    let target = world.hosts[to].member.replica;
    for host in others(world.hosts.len(), to) {
        let Some(number) = world.hosts[host].process.as_ref().map(|process| process.number) else { continue };
        let mut done = false;
        world.tell(host, number, |process, now| {
            done = process.order.transfer(target).is_ok();
            if done && process.released.is_none() {
                process.released = Some(now);
            }
        });
        world.figures.transfers += u64::from(done);
    }
}

/// Ends all faults.
fn calm(world: &mut World) {
    world.is_stormy = false;
    world.network.calm();
    for host in 0..world.hosts.len() {
        world.hosts[host].disk.slowness = 0;
        world.at(world.now, Event::Unhang { host });
        for other in others(world.hosts.len(), host) {
            world.heal((host, other));
        }
    }
}

/// A whole run: faults, then one host that is cut one way, then none; what it did.
pub fn run(seed: u64) -> Figures {
    let mut world = World::new(seed);
    world.after(world.now, Event::Fault);
    let storm = world.random.within(15 * S..40 * S);
    world.run(storm);
    calm(&mut world);
    // Clean ends that were begun end within the time of a promise, and restarts within four seconds.
    world.run(world.now + 8 * S);
    if world.random.chance(500) {
        one_way(&mut world);
    }
    calm(&mut world);
    world.run(world.now + 12 * S);
    world.proposes = false;
    world.run(world.now + S);
    converged(&mut world);
    Figures { committed: world.checks.committed(), terms: world.checks.terms() as u64, ..world.figures }
}

/// The others have a leader though one hears nothing, or is not heard.
fn one_way(world: &mut World) {
    let count = world.hosts.len();
    let leader = (0..count).find(|host| world.hosts[*host].has_lease(world.now));
    let host = leader.unwrap_or_else(|| world.random.index(count));
    let deaf = world.random.chance(500);
    for other in others(count, host) {
        world.network.cut(if deaf { (other, host) } else { (host, other) });
    }
    // Deafness takes 4 s to show, support 2 s to end, then comes an election; clocks differ.
    world.run(world.now + 12 * S);
    let leader = (0..count).find(|other| *other != host && world.hosts[*other].has_lease(world.now));
    let leader = leader.unwrap_or_else(|| panic!("a host that is cut one way ({deaf}) stalls the others"));
    let before = world.checks.committed();
    world.propose_at(leader);
    world.run(world.now + S);
    assert!(world.checks.committed() > before, "the others commit nothing");
}

fn converged(world: &mut World) {
    let all = world.checks.committed();
    let leaders: Vec<_> = (0..world.hosts.len()).filter(|host| world.hosts[*host].has_lease(world.now)).collect();
    assert_eq!(leaders.len(), 1, "no leader once all is well");
    let before = world.checks.committed();
    world.propose_at(leaders[0]);
    world.run(world.now + S);
    assert!(world.checks.committed() > before && all > 0, "nothing is committed once all is well");
    let all = world.checks.committed();
    for (number, host) in world.hosts.iter().enumerate() {
        let process = host.process.as_ref().unwrap_or_else(|| panic!("{number} is not there"));
        let (committed, last) = (process.order.committed().0, process.order.last().index.0);
        assert_eq!((committed, last), (all, all), "{number} is behind: committed, last");
        // What it keeps of it; a note of what it keeps no longer may be under way.
        let durable = host.disk.settled.last_key_value().map_or(all, |last| *last.0);
        assert_eq!(durable, all, "{number} does not have all of it durable");
    }
}
