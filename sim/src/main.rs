//! Tells the story of one seed, or runs many: `cargo run -p sim --release -- --seed 7`, `-- --seed 0 --seeds 1000`;
//! `--focus Faults` and its like say what the seeds are about, `--bug TailReused` and its like switch a bug on;
//! `--small 1 Writes 17` has the script run instead, and the 17th write of its second life fail.

use sim::campaign;
use sim::scenario::Plan;
use sim::small::{Calls, Trouble};
use sim::workload::Focus;

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
    let focus = arguments.iter().position(|argument| argument == "--focus").and_then(|at| arguments.get(at + 1));
    let focus = focus.and_then(|name| Focus::ALL.into_iter().find(|focus| format!("{focus:?}") == *name));
    let focus = focus.unwrap_or_default();
    let small =
        arguments.iter().position(|argument| argument == "--small").and_then(|at| trouble(&arguments[at + 1..]));
    let plan = |seed| Plan { focus, small, ..Plan::new(seed) };
    let (first, count) = (number("--seed").unwrap_or(0), number("--seeds").unwrap_or(1));
    if count == 1 {
        match campaign::run_one(plan(first), &sim::world::slabs(), &|line| println!("{line}")) {
            Ok(summary) => println!("every promise was kept: {summary:?}"),
            Err(failure) => {
                println!("{failure}");
                std::process::exit(1);
            }
        }
        return;
    }
    let (total, failures) = campaign::run_many(first..first + count, focus, usize::MAX);
    failures.iter().for_each(|failure| println!("{failure}"));
    println!("{total:?}, {} failures", failures.len());
    std::process::exit(i32::from(!failures.is_empty()));
}

/// Life, calls and number, as `Trouble` has them.
fn trouble(words: &[String]) -> Option<Trouble> {
    let [life, calls, nth, ..] = words else { return None };
    let calls = Calls::ALL.into_iter().find(|one| format!("{one:?}") == *calls)?;
    Some(Trouble { life: life.parse().ok()?, calls, nth: nth.parse().ok()? })
}
