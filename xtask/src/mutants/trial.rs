//! Runs tests, each in a process of its own: first without a mutant, to see which places it reaches and how long it
//! takes, then for each mutant those that reach it.

use crate::mutants::copy::{Binary, Copy};
use crate::mutants::{Mutant, switch};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A test that takes longer is left out: those that matter here are run up to 300 times.
const SLOW: Duration = Duration::from_secs(30);
/// Patience beyond four times the duration without a mutant, for a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(10);
/// A mutant that takes memory without end meets this.
const MEMORY_KIB: u64 = 6 << 20;

/// Seeds of the simulation that run against each mutant, for each of these subjects.
const SEEDS: &str = "12";
const FOCUS: [&str; 6] = ["Any", "DurableWrites", "CrossGroup", "Faults", "Cleaner", "Cuts"];

/// The long forms of the simulation, for which the seeds above stand, and what runs only with seeded bugs.
const LEFT_OUT: [&str; 4] = ["seeds", "faults", "cleaner", "bugs"];

/// A test.
pub struct Test {
    /// Package, target and name.
    pub name: String,
    command: Vec<OsString>,
    directory: PathBuf,
    /// Duration without a mutant.
    pub took: Duration,
    /// The places that it reaches.
    pub reached: BTreeSet<u32>,
}

/// The fate of a mutant.
pub enum End {
    /// A test failed, or did not end.
    Killed { by: String, hung: bool },
    /// Survived: this many tests reach it, and all passed.
    Survived { tests: usize },
}

/// The end of a test.
#[derive(PartialEq, Eq)]
enum Ran {
    Passed,
    Failed,
    Hung,
}

/// All tests of these binaries, and seeds of the simulation. They have not run yet.
pub fn tests(copy: &Copy, binaries: &[Binary]) -> Result<Vec<Test>, String> {
    let mut tests = Vec::new();
    let mut add = |name: String, program: &Path, arguments: &[&str], package: &str| {
        let command = [program.into()].into_iter().chain(arguments.iter().map(OsString::from)).collect();
        let directory = copy.root.join(package);
        tests.push(Test { name, command, directory, took: SLOW, reached: BTreeSet::new() });
    };
    for Binary { package, target, path } in binaries.iter().filter(|one| !LEFT_OUT.contains(&one.target.as_str())) {
        let output = Command::new(path).args(["--list", "--format", "terse"]).output();
        let output = output.map_err(|error| format!("{}: {error}", path.display()))?;
        for name in String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| line.strip_suffix(": test")) {
            let told = format!("{package}/{target} {name}");
            add(told, path, &["--exact", name, "--test-threads=1"], package);
        }
    }
    for focus in FOCUS {
        let arguments = ["--seed", "0", "--seeds", SEEDS, "--focus", focus];
        add(format!("sim {SEEDS} seeds of {focus}"), &copy.program("sim"), &arguments, "sim");
    }
    Ok(tests)
}

impl Test {
    /// Runs it, for `patience` at most.
    fn run(&self, patience: Duration, name: &str, value: &str) -> Result<Ran, String> {
        let mut command = Command::new("sh");
        let script = format!("ulimit -v {MEMORY_KIB}; ulimit -c 0; exec timeout -k 2 \"$@\"");
        command.args(["-c", &script, "sh"]).arg(patience.as_secs().max(1).to_string()).args(&self.command);
        // Some tests take other seeds each day.
        command.env("SINTER_SEED", "0").env(name, value).current_dir(&self.directory);
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        let status = status.map_err(|error| format!("{command:?}: {error}"))?;
        Ok(match status.code() {
            Some(0) => Ran::Passed,
            // What timeout says; 137 if the test did not even heed that.
            Some(124 | 137) => Ran::Hung,
            _ => Ran::Failed,
        })
    }
    /// Runs it without a mutant. False if it takes too long.
    fn measure(&mut self, notes: &Path) -> Result<bool, String> {
        let _ = std::fs::remove_file(notes);
        let started = Instant::now();
        match self.run(SLOW, switch::REACHED, &notes.to_string_lossy())? {
            Ran::Passed => {}
            Ran::Failed => return Err(format!("{} fails without a mutant", self.name)),
            Ran::Hung => return Ok(false),
        }
        self.took = started.elapsed();
        let notes = std::fs::read_to_string(notes).unwrap_or_default();
        self.reached = notes.lines().filter_map(|line| line.parse().ok()).collect();
        Ok(true)
    }
}

/// Runs all tests without a mutant. Those that take too long are left out. The quick ones come first.
pub fn measured(copy: &Copy, tests: Vec<Test>) -> Result<Vec<Test>, String> {
    let slots: Vec<Mutex<(usize, Option<Test>)>> =
        tests.into_iter().enumerate().map(|(at, test)| Mutex::new((at, Some(test)))).collect();
    let outcomes = on_all_cores(&slots, |slot| -> Result<Option<Test>, String> {
        let mut slot = slot.lock().expect("each is taken once");
        let notes = copy.root.join(format!("target/reached-{}", slot.0));
        let Some(mut test) = slot.1.take() else { return Ok(None) };
        if test.measure(&notes)? {
            return Ok(Some(test));
        }
        println!("left out, for it takes more than {} s: {}", SLOW.as_secs(), test.name);
        Ok(None)
    });
    let mut tests: Vec<Test> = outcomes.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    tests.sort_by_key(|test| test.took);
    Ok(tests)
}

/// Runs the tests that reach a mutant, until one fails.
pub fn tried(mutant: &Mutant, tests: &[Test]) -> Result<End, String> {
    let reaching = || tests.iter().filter(|test| test.reached.contains(&mutant.number));
    for test in reaching() {
        match test.run(test.took * 4 + PATIENCE, switch::CHOSEN, &mutant.number.to_string())? {
            Ran::Passed => {}
            ran => return Ok(End::Killed { by: test.name.clone(), hung: ran == Ran::Hung }),
        }
    }
    Ok(End::Survived { tests: reaching().count() })
}

/// Does `work` for each item, on all cores; the answers are in the items' order.
pub fn on_all_cores<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let answers: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(at) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < items.len()) {
                    *answers[at].lock().expect("each is filled once") = Some(work(&items[at]));
                }
            });
        }
    });
    let answer = |slot: Mutex<Option<R>>| slot.into_inner().ok().flatten();
    answers.into_iter().map(|slot| answer(slot).expect("all were worked on")).collect()
}
