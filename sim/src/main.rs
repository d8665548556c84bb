//! Tells the story of one seed, or runs many: `cargo run -p sim --release -- --seed 7`, `-- --seed 0 --seeds 1000`.

use sim::campaign;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    #[cfg(feature = "seeded-bugs")]
    let bug = {
        let name = arguments.iter().position(|argument| argument == "--bug").and_then(|at| arguments.get(at + 1));
        name.and_then(|name| runtime::seeded::Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == *name))
    };
    #[cfg(feature = "seeded-bugs")]
    if let Some(bug) = bug {
        runtime::seeded::set_for_process(bug);
    }
    let (first, count) = (number("--seed").unwrap_or(0), number("--seeds").unwrap_or(1));
    if count == 1 {
        let told = campaign::run_one(first, |seed| {
            sim::scenario::tell(seed, &sim::world::slabs(), &|line| println!("{line}"))
        });
        match told {
            Ok(summary) => println!("every promise was kept: {summary:?}"),
            Err(failure) => {
                println!("seed {first}: {}", failure.what);
                std::process::exit(1);
            }
        }
        return;
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (total, failures) = campaign::run_many(first..first + count, threads, usize::MAX, sim::scenario::run);
    failures.iter().for_each(|failure| println!("{}", campaign::replay(failure)));
    println!("{total:?}, {} failures", failures.len());
    std::process::exit(i32::from(!failures.is_empty()));
}
