//! `cargo xtask ablate`: what each of our decisions is worth, by older designs in their place on one brick and one build; and
//! whether models tell that before it is measured.
//!
//! Promises: predictions are made and kept before what they predict is measured; a design and ours are measured right after
//! each other, in the same places; everything is taken back whatever happens. Absent by design: older designs that do worse than
//! they would have to (`base::ablated` has them all).

mod asked;
mod design;
mod predict;
mod ran;
mod report;
mod threads;

use crate::flash::ground::{self, Ground};
use crate::flash::measure;
use crate::flash::rows::Place;
use crate::flash::sides::Side;
use crate::flash::undo::Undo;
use crate::observation;
use asked::Asked;
use design::{Design, OURS};
use predict::{ASKED, FULL, KNOWN, RAW, Runs, predictions};
use ran::{Kind, Ran, ran};
use report::Report;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The feature of the build that has older designs.
const FEATURE: &str = "ablations";
/// The variable that switches them on.
const VARIABLE: &str = "SINTER_TEST_ABLATIONS";
/// Options of the daemon: with so little memory there is no read cache, and reads come from the device.
const OPTIONS: [&str; 2] = ["--memory-max", "2G"];
/// Places that no measurement reads: they teach a daemon that was just started where blocks lie.
const ELSEWHERE: u64 = 1_000_003;

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<(), String> {
    if arguments.is_empty() || arguments.iter().any(|argument| argument == "--help" || argument == "help") {
        print!("{}", asked::HELP);
        return Ok(());
    }
    let mut asked = Asked::read(arguments)?;
    ground::need_root()?;
    ground::install(&[("fio", "fio"), ("xfsprogs", "mkfs.xfs"), ("util-linux", "losetup")])?;
    if asked.sinter.is_none() {
        asked.sinter = Some(observation::built(&["--features", FEATURE], FEATURE)?);
        // The product comes last, so that what lies where builds lie is one to use.
        observation::built(&[], "product")?;
    }
    std::fs::create_dir_all(&asked.out).map_err(|error| format!("--out {}: {error}", asked.out.display()))?;
    Undo::during(|undo| all(&asked, undo))
}

/// Sets everything up, measures what models need, predicts, and measures what was predicted.
fn all(asked: &Asked, undo: &Undo) -> Result<(), String> {
    ground::allow_uring(undo)?;
    let ground = Ground::new(asked.work.clone(), (asked.size_gib + 2) << 30, undo)?;
    let mut facts = ground::described(&ground.root, false);
    ground.make_xfs(asked.size_gib, undo)?;
    facts.push(("XFS", format!("{} GiB, {}", asked.size_gib, ground.device())));
    let binary = asked.sinter.as_deref().ok_or("no build with older designs")?;
    let raw = Side::raw(&ground, Place::Xfs)?;
    // A half of it, so that a quarter is left beside the file system's own files.
    let sinter = Side::sinter(&ground, Place::Xfs, "sinter", binary, asked.size_gib / 2, undo)?;
    measure::lay_out(&raw, undo)?;
    measure::lay_out(&sinter, undo)?;
    let mut bench = Bench { asked, sides: [raw, sinter], undo };
    let known = bench.known()?;
    let cpus = std::thread::available_parallelism().map_err(|error| format!("the number of CPUs: {error}"))?;
    let predictions = predictions(&known, &asked.designs, cpus.get())?;
    let text = report::predicted(&predictions, &known);
    written(&asked.out.join("predicted.json"), &pretty(&text))?;
    let (mut pairs, mut others) = (BTreeMap::new(), Runs::new());
    for round in 1..=asked.rounds {
        bench.pairs(round, &mut pairs)?;
        bench.ours_at(round, &mut others)?;
    }
    let (rounds, seconds, designs) = (asked.rounds, asked.seconds, asked.designs.clone());
    let report = Report { facts, rounds, seconds, designs, known, predictions, pairs, asked: others };
    let (json, markdown) = (pretty(&report.json()), report.markdown());
    written(&asked.out.join("ablate.json"), &json)?;
    written(&asked.out.join("ablate.md"), &markdown)?;
    print!("{}", if asked.is_json { &json } else { &markdown });
    Ok(())
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("these are plain values") + "\n"
}

fn written(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The file system below and the brick, and how they are measured.
struct Bench<'a> {
    asked: &'a Asked,
    /// The file system below, and the brick.
    sides: [Side; 2],
    undo: &'a Undo,
}

impl Bench<'_> {
    /// Starts the daemon with a design, measures, and tells what was measured of each.
    fn turn(&mut self, design: &Design, round: u64, wanted: &[(Kind, usize)]) -> Result<Vec<Ran>, String> {
        self.sides[1].restart(design.over, &[(VARIABLE, &design.switches())], &OPTIONS, self.undo)?;
        ran(&self.sides[1], Kind::Read, FULL, 1, ELSEWHERE + round, self.undo)?;
        self.measured(1, design.name, round, wanted)
    }
    fn measured(&self, side: usize, name: &str, round: u64, wanted: &[(Kind, usize)]) -> Result<Vec<Ran>, String> {
        let mut all = Vec::new();
        for &(kind, in_flight) in wanted {
            // Work that writes have left would count for the next measurement.
            measure::settle(&self.sides)?;
            let one = ran(&self.sides[side], kind, in_flight, self.asked.seconds, round, self.undo)?;
            let Ran { per_second, daemon_us, machine_us, .. } = one;
            let kind = kind.name();
            eprintln!("{name}: {kind} with {in_flight}: {per_second:.0}/s, CPU {daemon_us:.1} of {machine_us:.1} us");
            all.push(one);
        }
        Ok(all)
    }
    /// The measurements from which predictions are made, in half as many rounds.
    fn known(&mut self) -> Result<Runs, String> {
        let mut runs = Runs::new();
        let wanted = each(&KNOWN);
        for round in 1..=self.asked.rounds.div_ceil(2) {
            eprintln!("what models need: round {round}");
            let below = [(Kind::Read, 1), (Kind::Read, FULL)];
            let all = self.measured(0, RAW, round, &below)?;
            add(&mut runs, RAW, &below, &all);
            for design in self.designs() {
                let all = self.turn(&design, round, &wanted)?;
                add(&mut runs, design.name, &wanted, &all);
            }
        }
        Ok(runs)
    }
    /// All designs that are measured: ours, what others are compared with, and the asked ones.
    fn designs(&self) -> Vec<Design> {
        let mut designs = vec![Design::ours()];
        for design in self.asked.designs.iter().flat_map(|design| [design.other(), design.clone()]) {
            if !designs.contains(&design) {
                designs.push(design);
            }
        }
        designs
    }
    /// Each design and the one that it is compared with, one right after the other; who is first changes from round to round.
    fn pairs(&mut self, round: u64, pairs: &mut Pairs) -> Result<(), String> {
        eprintln!("what was predicted: round {round}");
        let wanted = each(&[FULL]);
        for design in &self.asked.designs {
            let (other, is_first) = (design.other(), round.is_multiple_of(2));
            let (first, second) = if is_first { (design, &other) } else { (&other, design) };
            let (one, two) = (self.turn(first, round, &wanted)?, self.turn(second, round, &wanted)?);
            let (others, theirs) = if is_first { (two, one) } else { (one, two) };
            for (&(kind, _), pair) in wanted.iter().zip(others.into_iter().zip(theirs)) {
                pairs.entry((design.name, kind)).or_default().push(pair);
            }
        }
        Ok(())
    }
    /// Ours with the other numbers of requests in flight that were predicted.
    fn ours_at(&mut self, round: u64, others: &mut Runs) -> Result<(), String> {
        let numbers: Vec<usize> = ASKED.into_iter().filter(|&number| number != FULL).collect();
        let wanted = each(&numbers);
        let all = self.turn(&Design::ours(), round, &wanted)?;
        add(others, OURS, &wanted, &all);
        Ok(())
    }
}

/// Rounds of what a design is compared with and of the design itself, by design and kind.
type Pairs = BTreeMap<(&'static str, Kind), Vec<(Ran, Ran)>>;

/// Both kinds with each of these numbers of requests in flight.
fn each(numbers: &[usize]) -> Vec<(Kind, usize)> {
    Kind::ALL.into_iter().flat_map(|kind| numbers.iter().map(move |&number| (kind, number))).collect()
}

fn add(runs: &mut Runs, design: &'static str, wanted: &[(Kind, usize)], all: &[Ran]) {
    for (&(kind, in_flight), &one) in wanted.iter().zip(all) {
        runs.entry((design, kind, in_flight)).or_default().push(one);
    }
}
