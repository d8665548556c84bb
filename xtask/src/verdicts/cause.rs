//! The causes that a verdict may name, and how each is brought about at five strengths: tables only.

use super::load::{Load, Places, READ, Sync, Turn};
use super::slow_disk::Delays;
use std::time::Duration;

/// Prefix of the causes that a hybrid brick has too.
const HYBRID: &str = "hybrid-";

/// A cause, by the name that `sinter explain` gives it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cause {
    DeviceSlower,
    DeviceLimit,
    DeviceShared,
    DeviceThrottled,
    Flush,
    CoreBusy,
    CoreTaken,
    Lock,
    IndexPool,
    IndexEngine,
    Background,
    Memory,
    Layer,
    Limit,
    TreeLimit,
    Tenant,
    Clients,
    Disk,
    Destage,
    FlashFull,
    HybridCleaner,
    HybridClients,
    Network,
    Server,
    ServerCores,
    ServerClients,
}

/// Strengths of each.
pub const STRENGTHS: usize = 5;

impl Cause {
    pub const ALL: [Cause; 26] = [
        Cause::DeviceSlower,
        Cause::DeviceLimit,
        Cause::DeviceShared,
        Cause::DeviceThrottled,
        Cause::Flush,
        Cause::CoreBusy,
        Cause::CoreTaken,
        Cause::Lock,
        Cause::IndexPool,
        Cause::IndexEngine,
        Cause::Background,
        Cause::Memory,
        Cause::Layer,
        Cause::Limit,
        Cause::TreeLimit,
        Cause::Tenant,
        Cause::Clients,
        Cause::Disk,
        Cause::Destage,
        Cause::FlashFull,
        Cause::HybridCleaner,
        Cause::HybridClients,
        Cause::Network,
        Cause::Server,
        Cause::ServerCores,
        Cause::ServerClients,
    ];
    /// Its name.
    pub fn id(self) -> &'static str {
        match self {
            Cause::DeviceSlower => "device-slower",
            Cause::DeviceLimit => "device-limit",
            Cause::DeviceShared => "device-shared",
            Cause::DeviceThrottled => "device-throttled",
            Cause::Flush => "flush",
            Cause::CoreBusy => "core-busy",
            Cause::CoreTaken => "core-taken",
            Cause::Lock => "lock",
            Cause::IndexPool => "index-pool",
            Cause::IndexEngine => "index-engine",
            Cause::Background => "background",
            Cause::Memory => "memory",
            Cause::Layer => "layer",
            Cause::Limit => "limit",
            Cause::TreeLimit => "tree-limit",
            Cause::Tenant => "tenant",
            Cause::Clients => "clients",
            Cause::Disk => "disk",
            Cause::Destage => "destage",
            Cause::FlashFull => "flash-full",
            Cause::HybridCleaner => "hybrid-background",
            Cause::HybridClients => "hybrid-clients",
            Cause::Network => "network",
            Cause::Server => "server",
            Cause::ServerCores => "server-cores",
            Cause::ServerClients => "network-clients",
        }
    }
    /// The name that `sinter explain` should give it.
    pub fn verdict(self) -> &'static str {
        match self {
            Cause::TreeLimit => "limit",
            Cause::Tenant => "core-busy",
            Cause::ServerCores => "server",
            Cause::ServerClients => "clients",
            _ => self.id().strip_prefix(HYBRID).unwrap_or(self.id()),
        }
    }
    /// The words with which it should also say whose the cause is: a volume or a tree.
    pub fn subject(self) -> Option<&'static str> {
        match self {
            Cause::Limit => Some("\"volume default\""),
            Cause::TreeLimit => Some("\"tree /tree of volume default\""),
            // The one that has most comes first.
            Cause::Tenant => Some("of their time: neighbour "),
            _ => None,
        }
    }
    /// The cause of this name.
    pub fn named(id: &str) -> Option<Cause> {
        Cause::ALL.into_iter().find(|cause| cause.id() == id)
    }
}

/// The brick of a cause, and its daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup {
    /// `--memory-max`. Up to 2G leave no room for a read cache.
    pub memory: &'static str,
    /// The CPUs that the daemon may use.
    pub cpus: Option<&'static str>,
    /// True to keep the index out of memory.
    pub cold: bool,
    pub file: Size,
    /// A load that runs for so many seconds before anything is measured.
    pub before: Option<(Load, u64)>,
    /// The slow disk while nothing is injected; without one the brick lies in its directory, or on tiers.
    pub disk: Option<Delays>,
    pub tiers: Option<Tiers>,
    /// True if there is another volume, mounted and with a file of its own.
    pub neighbour: bool,
    /// True if the brick is served over a network, and a client asks and is asked.
    pub network: bool,
    /// Time between the injection and the question.
    pub settled: Duration,
}

/// The tiers of a hybrid brick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tiers {
    /// Size of the disk in that of the flash.
    pub disk_times: u64,
    /// The volume's policy.
    pub policy: &'static str,
}

/// The size of the file that clients use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    Bytes(u64),
    /// A percentage of the brick's free space.
    Percent(u64),
}

/// The change that brings a cause about.
#[derive(Clone, PartialEq, Debug)]
pub enum Injection {
    /// The disk answers later.
    Disk(Delays),
    /// Clients ask for something else, and all that a hybrid brick's disk does takes so many times as long.
    Spindle(Load, u64),
    /// Clients ask for something else.
    Load(Load),
    /// Clients overwrite while a scrub reads.
    Scrub(Load),
    /// Another program reads the disk, at this depth.
    Beside(u32),
    /// The daemon's requests to its disk are held back to this percentage of their rate.
    Throttle(u64),
    /// Other programs, so many on each CPU, take all that they get of it.
    Hogs(usize),
    /// A switch of the test build.
    Switch(String),
    /// A layer holds each operation, in milliseconds.
    Layer(u64),
    /// The volume gets so many operations per second.
    Limit(u64),
    /// The directory tree of the file gets so many.
    TreeLimit(u64),
    /// Clients of the other volume ask for this beside.
    Neighbour(Load),
    /// The server's end of the link sends no more than so many megabits a second.
    Link(u64),
}

/// A cause at one strength.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    pub setup: Setup,
    /// The requests of clients while nothing is injected.
    pub quiet: Load,
    pub injection: Injection,
    /// The strength, as people say it.
    pub strength: String,
}

const AT_ONCE: Delays = Delays { read_us: 0, write_us: 0, flush_us: 0, channels: 0 };
/// A disk that does 10,000 small requests a second and no more: two CPUs carry that through the whole way.
const NARROW: Delays = Delays { read_us: 400, write_us: 400, flush_us: 0, channels: 4 };
/// A disk that is far away, as large arrays are: it takes long, and as many requests as come.
const FAR: Delays = Delays { read_us: 100_000, write_us: 0, flush_us: 0, channels: 0 };
/// A brick in a directory: the slow disk's server and the loop device above it would take part in causes that are not the device's.
pub const PLAIN: Setup = Setup {
    memory: "1G",
    cpus: None,
    cold: false,
    file: Size::Bytes(1 << 30),
    before: None,
    disk: None,
    tiers: None,
    neighbour: false,
    network: false,
    // What was under way has ended by then.
    settled: Duration::from_secs(1),
};
const ON_DISK: Setup = Setup { disk: Some(AT_ONCE), ..PLAIN };
const WRITE: Load = Load { pattern: "randwrite", ..READ };

/// The plan of a cause at a strength, counted from 0.
pub fn plan(cause: Cause, strength: usize) -> Plan {
    let one = |of: [u64; STRENGTHS]| of[strength];
    let plan = |setup, quiet, injection, strength| Plan { setup, quiet, injection, strength };
    match cause {
        Cause::DeviceSlower => {
            let us = one([30, 60, 80, 160, 400]);
            let slower = Delays { read_us: us, write_us: us, ..AT_ONCE };
            plan(ON_DISK, READ, Injection::Disk(slower), format!("+{us} us"))
        }
        Cause::Flush => {
            let us = one([300, 600, 1200, 2500, 5000]);
            let slower = Delays { flush_us: us, ..AT_ONCE };
            let committed = Load { sync: Sync::After, ..WRITE };
            plan(ON_DISK, committed, Injection::Disk(slower), format!("+{us} us"))
        }
        Cause::DeviceLimit | Cause::DeviceShared => {
            let depth = one([8, 12, 16, 32, 64]) as u32;
            let (setup, quiet) = (Setup { disk: Some(NARROW), ..PLAIN }, Load { depth: 4, ..READ });
            let injection = match cause {
                Cause::DeviceLimit => Injection::Load(Load { depth, ..READ }),
                _ => Injection::Beside(depth / 2),
            };
            let strength = if cause == Cause::DeviceLimit { depth } else { depth / 2 };
            plan(setup, quiet, injection, format!("depth {strength}"))
        }
        Cause::DeviceThrottled => {
            let percent = one([70, 50, 30, 20, 10]);
            let load = Load { depth: 4, ..READ };
            plan(ON_DISK, load, Injection::Throttle(percent), format!("to {percent}%"))
        }
        Cause::Clients => {
            let think_us = one([300, 600, 1000, 3000, 10_000]);
            let idle = Load { think_us, ..READ };
            plan(PLAIN, Load { depth: 4, ..READ }, Injection::Load(idle), format!("think {think_us} us"))
        }
        Cause::CoreBusy | Cause::Tenant | Cause::CoreTaken | Cause::Memory => of_the_machine(cause, strength),
        Cause::Lock
        | Cause::IndexPool
        | Cause::IndexEngine
        | Cause::Background
        | Cause::Layer
        | Cause::Limit
        | Cause::TreeLimit => of_the_program(cause, strength),
        Cause::Network | Cause::Server | Cause::ServerCores | Cause::ServerClients => of_the_network(cause, strength),
        _ => of_tiers(cause, strength),
    }
}

/// Causes around the daemon: CPUs and memory.
fn of_the_machine(cause: Cause, strength: usize) -> Plan {
    let one = |of: [u64; STRENGTHS]| of[strength];
    match cause {
        Cause::CoreBusy | Cause::Tenant => {
            // Clients have the other CPU, and all that they read is in the read cache once each block was read. Of 32 KiB the
            // daemon has more to do than they, with checksums and copies; of 4 KiB it sleeps for a third of the time.
            let read = Load { cpus: Some("1"), block_bytes: 32 << 10, ..READ };
            let before = Some((Load { depth: 32, ..read }, 8));
            let neighbour = cause == Cause::Tenant;
            let setup =
                Setup { memory: "4G", cpus: Some("0"), file: Size::Bytes(64 << 20), before, neighbour, ..PLAIN };
            let jobs = one([16, 20, 24, 28, 32]) as u32;
            let more = Load { jobs, ..read };
            let injection = if neighbour { Injection::Neighbour(more) } else { Injection::Load(more) };
            Plan { setup, quiet: read, injection, strength: format!("{jobs} clients") }
        }
        Cause::CoreTaken => {
            let count = one([1, 2, 3, 4, 6]) as usize;
            // The daemon is to be the one that waits.
            let quiet = Load { turn: Turn::First, ..READ };
            Plan { setup: PLAIN, quiet, injection: Injection::Hogs(count), strength: format!("{count} on each CPU") }
        }
        _ => {
            // Its memory bounds how many requests the daemon takes at a time. Only a disk that takes long, but many at once,
            // would do more of them: with 1G it does three times as many of the last.
            let setup = Setup { memory: "256M", disk: Some(FAR), ..PLAIN };
            let depth = one([64, 80, 96, 112, 128]) as u32;
            let quiet = Load { block_bytes: 256 << 10, depth: 8, ..READ };
            let injection = Injection::Load(Load { jobs: 8, depth, ..quiet });
            Plan { setup, quiet, injection, strength: format!("8 at depth {depth}") }
        }
    }
}

/// Causes within the daemon.
fn of_the_program(cause: Cause, strength: usize) -> Plan {
    let one = |of: [u64; STRENGTHS]| of[strength];
    let cold = Setup { cold: true, ..PLAIN };
    let switched = |setup, quiet, text: String| {
        let injection = Injection::Switch(text.clone());
        Plan { setup, quiet, injection, strength: text }
    };
    match cause {
        Cause::Lock => switched(PLAIN, Load { depth: 4, ..READ }, lock_held(strength)),
        Cause::IndexPool => switched(cold, READ, format!("pool-delayed {}", one([500, 1000, 2000, 4000, 8000]))),
        // The first is as much as the third of `device-slower` and must never be called so.
        Cause::IndexEngine => switched(cold, READ, format!("engine-delayed {}", one([80, 300, 600, 1200, 3000]))),
        Cause::Background => {
            let before = Some((Load { depth: 32, ..WRITE }, 30));
            let setup = Setup { file: Size::Percent(90), before, ..PLAIN };
            let depth = one([4, 8, 16, 24, 32]) as u32;
            let injection = Injection::Scrub(Load { depth, ..WRITE });
            Plan { setup, quiet: READ, injection, strength: format!("depth {depth}") }
        }
        Cause::Limit | Cause::TreeLimit => {
            let iops = one([4000, 2000, 1000, 300, 50]);
            let quiet = Load { depth: 8, ..READ };
            let injection = if cause == Cause::Limit { Injection::Limit(iops) } else { Injection::TreeLimit(iops) };
            Plan { setup: PLAIN, quiet, injection, strength: format!("{iops} a second") }
        }
        _ => {
            let ms = one([1, 2, 4, 8, 16]);
            let quiet = Load { depth: 4, ..READ };
            Plan { setup: PLAIN, quiet, injection: Injection::Layer(ms), strength: format!("{ms} ms") }
        }
    }
}

/// The switch that has the groups' locks held for so many microseconds, so many times a second.
fn lock_held(strength: usize) -> String {
    let (held_us, times) = ([1000, 1000, 1000, 2000, 2000][strength], [300, 400, 500, 300, 400][strength]);
    format!("lock-held {held_us} {times}")
}

/// Causes that a client of a server sees.
fn of_the_network(cause: Cause, strength: usize) -> Plan {
    let one = |of: [u64; STRENGTHS]| of[strength];
    let plain = Setup { network: true, ..PLAIN };
    let (setup, injection, strength) = match cause {
        Cause::Network => {
            // The quiet load has 400 to 600 megabits a second here.
            let megabits = one([200, 150, 100, 50, 20]);
            (plain, Injection::Link(megabits), format!("{megabits} Mb/s"))
        }
        Cause::Server => {
            // A read takes 150 to 300 us in all here: the first is a third of that.
            let us = one([100, 200, 400, 800, 1600]);
            let slower = Delays { read_us: us, ..AT_ONCE };
            (Setup { network: true, ..ON_DISK }, Injection::Disk(slower), format!("its disk +{us} us"))
        }
        Cause::ServerCores => {
            // It looks late at what comes, and has it no longer than before.
            let text = lock_held(strength);
            (plain, Injection::Switch(text.clone()), text)
        }
        _ => {
            let think_us = one([300, 600, 1000, 3000, 10_000]);
            (plain, Injection::Load(Load { think_us, ..READ }), format!("think {think_us} us"))
        }
    };
    Plan { setup, quiet: Load { depth: 4, ..READ }, injection, strength }
}

/// A brick on flash and a wide disk, and a file of which less than half fits on flash.
const HYBRID_BRICK: Setup = Setup {
    file: Size::Bytes(13 << 29),
    tiers: Some(Tiers { disk_times: 4, policy: "write-back" }),
    // What is free of flash by then lasts no longer.
    settled: Duration::from_secs(10),
    ..PLAIN
};
/// Writers that want all that flash and CPUs give.
const WRITERS: Load = Load { jobs: 32, ..WRITE };

/// Causes of hybrid bricks.
fn of_tiers(cause: Cause, strength: usize) -> Plan {
    let one = |of: [u64; STRENGTHS]| of[strength];
    match cause {
        Cause::Disk => {
            let (percent, depth) = (one([2, 10, 30, 60, 100]) as u32, one([1, 2, 4, 8, 16]) as u32);
            let quiet = Load { places: Places::First(0), ..READ };
            let injection = Injection::Load(Load { places: Places::First(percent), depth, ..READ });
            let setup = Setup { settled: PLAIN.settled, ..HYBRID_BRICK };
            Plan { setup, quiet, injection, strength: format!("{percent}% at depth {depth}") }
        }
        Cause::Destage => {
            let slowness = one([3, 4, 5, 6, 8]);
            let setup = Setup { before: Some((WRITERS, 20)), ..HYBRID_BRICK };
            let injection = Injection::Spindle(WRITERS, slowness);
            Plan { setup, quiet: WRITE, injection, strength: format!("{slowness} times as slow") }
        }
        Cause::FlashFull => {
            let tiers = Some(Tiers { disk_times: 1, policy: "flash-only" });
            let setup = Setup { file: Size::Bytes(3500 << 20), tiers, before: Some((WRITERS, 30)), ..HYBRID_BRICK };
            written(setup, strength)
        }
        Cause::HybridCleaner => {
            let tiers = Some(Tiers { disk_times: 1, policy: "write-back" });
            let setup = Setup { file: Size::Percent(90), tiers, before: Some((WRITERS, 60)), ..HYBRID_BRICK };
            written(setup, strength)
        }
        _ => {
            let think_us = one([300, 600, 1000, 3000, 10_000]);
            // A device answers rare requests later than dense ones: what is usual is learned from such.
            let quiet = Load { think_us: 2000, ..WRITE };
            let setup = Setup { before: Some((WRITERS, 20)), ..HYBRID_BRICK };
            let injection = Injection::Load(Load { think_us, ..WRITE });
            Plan { setup, quiet, injection, strength: format!("think {think_us} us") }
        }
    }
}

/// More and more writers.
fn written(setup: Setup, strength: usize) -> Plan {
    let jobs = [12, 16, 24, 32, 48][strength];
    let injection = Injection::Load(Load { jobs, ..WRITE });
    Plan { setup, quiet: WRITE, injection, strength: format!("{jobs} writers") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_cause_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = Cause::ALL.map(Cause::id).into();
        assert_eq!(names.len(), Cause::ALL.len());
        assert!(Cause::ALL.into_iter().all(|cause| Cause::named(cause.id()) == Some(cause)));
        assert_eq!(Cause::named("none"), None);
    }

    #[test]
    fn what_is_done_to_the_slow_disk_finds_one() {
        for cause in Cause::ALL {
            let Plan { setup, injection, .. } = plan(cause, 0);
            let needs = matches!(injection, Injection::Disk(_) | Injection::Beside(_) | Injection::Throttle(_));
            assert!(!needs || setup.disk.is_some(), "{cause:?}");
            assert!(setup.disk.is_none() || setup.tiers.is_none(), "{cause:?}");
            assert!(!matches!(injection, Injection::Spindle(..)) || setup.tiers.is_some(), "{cause:?}");
            assert!(!matches!(injection, Injection::Neighbour(_)) || setup.neighbour, "{cause:?}");
            assert!(!matches!(injection, Injection::Link(_)) || setup.network, "{cause:?}");
        }
    }

    #[test]
    fn strengths_of_a_cause_differ_in_nothing_but_the_injection() {
        for cause in Cause::ALL {
            let plans: Vec<Plan> = (0..STRENGTHS).map(|strength| plan(cause, strength)).collect();
            assert!(plans.iter().all(|plan| plan.setup == plans[0].setup && plan.quiet == plans[0].quiet), "{cause:?}");
            let told: BTreeSet<String> = plans.iter().map(|plan| plan.strength.clone()).collect();
            assert_eq!(told.len(), STRENGTHS, "{cause:?}: {told:?}");
            let differ = |other: &Plan| plans.iter().filter(|plan| plan.injection == other.injection).count() == 1;
            assert!(plans.iter().all(differ), "{cause:?}");
        }
    }
}
