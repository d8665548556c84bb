//! The costs of operations besides time: each is done so many times on a simulated machine, as the kernel asks for it, after
//! as many that do not count. Counted are the instructions (by Callgrind, below which `cargo xtask instructions` runs
//! this) and allocations of the product alone; see `counted`.
//!
//!     cargo run --release -p sim --example operations                 allocations: operation, times, count, bytes
//!     cargo run --release -p sim --example operations sites [NAME]    where they are made

mod client;
mod counted;
mod kernel;
mod operations;
mod outside;

use client::Client;
use operations::{OPERATIONS, Workload};
use runtime::sim::{Setup, World};

/// Any will do; always the same.
const SEED: u64 = 1;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (sites, wanted) = match arguments[..] {
        [] => (false, None),
        ["sites"] => (true, None),
        ["sites", name] => (true, Some(name)),
        _ => panic!("arguments: none, or sites [NAME]"),
    };
    let names = front::fuse::OP_NAMES;
    let mut world = World::with(Setup { cores: 1, names, ..Setup::new(SEED) });
    let runtime = outside::behind_doors(world.runtime(), names);
    world.block_on(async {
        let mut workload = Workload::new(Client::new(runtime).await).await;
        if sites {
            counted::note_sites();
        }
        for operation in OPERATIONS.iter().filter(|operation| wanted.is_none_or(|name| name == operation.name)) {
            workload.prepare(operation).await;
            let allocated = counted::measured(workload.round(operation)).await;
            println!("{}\t{}\t{}\t{}", operation.name, operation.times, allocated.count, allocated.bytes);
            for (site, times) in counted::take_sites() {
                println!("  {times:>6} {site}");
            }
        }
    });
}
