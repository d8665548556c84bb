//! Mutants: the product with one small change each, which its tests should notice. A change that they don't notice is in
//! a line on which no test rests, or it changes nothing that matters. All mutants are built at once, into a copy of the
//! repository, each behind a switch; a trial is a run of the tests that reach it.

mod copy;
mod rewrite;
mod sites;
#[cfg_attr(not(test), expect(dead_code, reason = "its function runs in the copy"))]
mod switch;
#[cfg(test)]
mod tests;
mod trial;

use crate::scan::line_of;
use crate::tree::{Tree, root};
use copy::Copy;
use sites::Site;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use trial::{End, Test};

const HELP: &str = "\
cargo xtask mutants [--seed S] [--count N] [--packages A,B] [--only N,N]

  S: which mutants are drawn, usually 1; N of them, usually 300; of packages store,names,group. Those are left out of
     which docs/mutants.md tells why nobody could notice them.
  --only: of those drawn, the ones with these numbers (a survivor, after a test was written)
  Errors if fewer than nine of ten are killed.
";

/// Packages that can be mutated. Each is tested by its own tests, by those of `group`, and by the simulation.
const PACKAGES: [&str; 3] = ["store", "names", "group"];
/// Files beside the product that only tests and simulation use.
const APART: [&str; 1] = ["store/src/index/model.rs"];
/// Mutants that change nothing that a user or an operator could notice, each with the reason.
const EQUAL: &str = "docs/mutants.md";
/// Packages whose tests run.
const TESTED: [&str; 4] = ["store", "names", "group", "sim"];

/// One change of the product.
pub struct Mutant {
    /// Its place among all that there are.
    pub number: u32,
    pub path: String,
    pub line: usize,
    pub site: Site,
}

/// The options on the command line.
struct Asked {
    seed: u64,
    count: usize,
    packages: Vec<String>,
    only: Vec<u32>,
}

fn read(arguments: &[String]) -> Result<Asked, String> {
    let packages = PACKAGES.map(str::to_string).to_vec();
    let mut asked = Asked { seed: 1, count: 300, packages, only: Vec::new() };
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { return Err(HELP.to_string()) };
        let wrong = |_| format!("{name} {value}: not a number");
        match name.as_str() {
            "--seed" => asked.seed = value.parse().map_err(wrong)?,
            "--count" => asked.count = value.parse().map_err(wrong)?,
            "--packages" => asked.packages = value.split(',').map(str::to_string).collect(),
            "--only" => asked.only = value.split(',').map(str::parse).collect::<Result<_, _>>().map_err(wrong)?,
            _ => return Err(HELP.to_string()),
        }
    }
    match asked.packages.iter().find(|package| !PACKAGES.contains(&package.as_str())) {
        Some(other) => Err(format!("no mutants of {other}\n\n{HELP}")),
        None => Ok(asked),
    }
}

/// Draws mutants, builds them, and tries each.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let asked = read(arguments)?;
    let mut all = all(&Tree::load(&root())?, &asked.packages)?;
    println!("{} possible mutants in {}; seed {}", all.len(), asked.packages.join(", "), asked.seed);
    let (possible, equal) = (all.len(), equal()?);
    all.retain(|mutant| !equal.contains(&(mutant.path.clone(), mutant.site.told.clone())));
    println!("{} are left out: nobody could notice them, {EQUAL} tells why", possible - all.len());
    // Some will be refused by the compiler.
    let mut mutants = drawn(all, asked.seed, asked.count + asked.count / 3 + 10);
    let copy = Copy::new(&mutants)?;
    let packages: Vec<&str> = asked.packages.iter().map(String::as_str).collect();
    let refused = copy.refuse(&mut mutants, &packages)?;
    println!("{refused} of {} drawn do not compile", refused + mutants.len());
    let binaries = copy.tests(&TESTED)?;
    println!("built in {}", copy.root.display());
    let tests = trial::measured(&copy, trial::tests(&copy, &binaries)?)?;
    let took: f64 = tests.iter().map(|test| test.took.as_secs_f64()).sum();
    println!("{} tests pass without a mutant, one after the other in {took:.0} s", tests.len());
    mutants.truncate(asked.count);
    if !asked.only.is_empty() {
        mutants.retain(|mutant| asked.only.contains(&mutant.number));
    }
    judge(&mutants, &tests)
}

/// All mutants of these packages.
fn all(tree: &Tree, packages: &[String]) -> Result<Vec<Mutant>, String> {
    let mut all = Vec::new();
    let own = |path: &str| {
        packages.iter().any(|package| path.starts_with(&format!("{package}/src/"))) && !APART.contains(&path)
    };
    for (path, _) in tree.product().filter(|(path, _)| own(path)) {
        let text = &tree.files[path].text;
        for site in sites::sites(text).map_err(|error| format!("{path}: {error}"))? {
            let line = line_of(text, site.place.start);
            all.push(Mutant { number: all.len() as u32, path: path.to_string(), line, site });
        }
    }
    Ok(all)
}

/// The mutants of the list: file, and what is told of the change. A line is "- `file` `` change ``: reason".
fn equal() -> Result<BTreeSet<(String, String)>, String> {
    let text = std::fs::read_to_string(root().join(EQUAL)).map_err(|error| format!("{EQUAL}: {error}"))?;
    let read = |line: &str| {
        let (path, rest) = line.split_once("` `` ")?;
        let (told, why) = rest.split_once(" ``: ")?;
        (!why.is_empty()).then(|| (path.to_string(), told.to_string()))
    };
    let lines = text.lines().filter_map(|line| line.strip_prefix("- `"));
    lines.map(|line| read(line).ok_or_else(|| format!("{EQUAL}: not understood: {line}"))).collect()
}

/// Draws `count` mutants, in the order that the seed gives. The draw depends on the content of a mutant, not on its
/// position: a change of the product affects only the mutants that it makes or removes, so that the others can be tried
/// again.
fn drawn(all: Vec<Mutant>, seed: u64, count: usize) -> Vec<Mutant> {
    // Which of those that are told alike in its file this one is.
    let mut alike: BTreeMap<(String, String), u32> = BTreeMap::new();
    let mut keyed: Vec<(u64, Mutant)> = Vec::new();
    for mutant in all {
        let turn = alike.entry((mutant.path.clone(), mutant.site.told.clone())).or_default();
        *turn += 1;
        keyed.push((key(seed, &[&mutant.path, &mutant.site.told, &turn.to_string()]), mutant));
    }
    keyed.sort_by_key(|(key, _)| *key);
    keyed.into_iter().take(count).map(|(_, mutant)| mutant).collect()
}

/// FNV-1a over the words, then mixed as by SplitMix64, for FNV alone spreads short texts badly.
fn key(seed: u64, words: &[&str]) -> u64 {
    let bytes = words.iter().flat_map(|word| word.bytes().chain([0]));
    let mut mixed = bytes.fold(0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Tries all mutants and says what became of them.
fn judge(mutants: &[Mutant], tests: &[Test]) -> Result<(), String> {
    let (started, done) = (Instant::now(), AtomicUsize::new(0));
    let ends = trial::on_all_cores(mutants, |mutant| {
        let end = trial::tried(mutant, tests)?;
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        let left = started.elapsed().as_secs() as usize * (mutants.len() - done) / done;
        println!("{done}/{}, {left} s left: {}", mutants.len(), told(mutant, &end));
        Ok::<_, String>(end)
    });
    let ends = ends.into_iter().collect::<Result<Vec<_>, _>>()?;
    let (mut survivors, mut killed) = (Vec::new(), 0);
    // Of each package: how many were killed, and how many there are.
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (mutant, end) in mutants.iter().zip(&ends) {
        let count = counts.entry(mutant.path.split('/').next().unwrap_or_default()).or_default();
        count.1 += 1;
        match end {
            End::Killed { .. } => (count.0, killed) = (count.0 + 1, killed + 1),
            End::Survived { .. } => survivors.push((&mutant.path, mutant.line, told(mutant, end))),
        }
    }
    survivors.sort();
    println!();
    survivors.iter().for_each(|(_, _, told)| println!("{told}"));
    counts.iter().for_each(|(package, (killed, all))| println!("{package}: {killed} of {all} killed"));
    println!("{killed} of {} killed", mutants.len());
    if killed * 10 >= mutants.len() * 9 { Ok(()) } else { Err("fewer than nine of ten are killed".to_string()) }
}

/// A mutant and its end, for people.
fn told(mutant: &Mutant, end: &End) -> String {
    let end = match end {
        End::Killed { by, hung: false } => format!("killed by {by}"),
        End::Killed { by, hung: true } => format!("hangs in {by}"),
        End::Survived { tests: 0 } => "SURVIVED, no test reaches it".to_string(),
        End::Survived { tests } => format!("SURVIVED {tests} tests"),
    };
    let Mutant { number, path, line, site } = mutant;
    format!("#{number} {path}:{line}: {}: {end}", site.told)
}
