//! The workshop's foreman: `cargo xtask check` holds the house rules, `cargo xtask campaign` runs the long tests.
//! All checks also run as tests of this package.

mod ablate;
mod campaign;
mod check;
mod console;
mod disk;
mod flash;
mod guest;
mod hybrid;
mod instructions;
mod mutants;
mod observation;
mod product;
mod recording;
mod scan;
mod schedule;
mod served;
mod torture;
mod tree;
mod verdicts;

use std::process::ExitCode;
use tree::Tree;

const HELP: &str = "\
cargo xtask check [NAME ...]    hold the house rules (all, or the named ones)
cargo xtask list                the house rules
cargo xtask ratchet             store how far sizes, doc comments and unsafe code have shrunk, and assertions grown
cargo xtask subjects [PACKAGE]  doc comments that open without a subject: how many, or those of a package
cargo xtask assertions [PACKAGE]  assertions per thousand lines, of all packages or of a package's files
cargo xtask format-hash         the hashes that the documents of disk and wire format must hold
cargo xtask citations           each rule, and the files that cite it
cargo xtask product BINARY      refuse a binary that holds seeded bugs
cargo xtask campaign NAME ...   a long test; see cargo xtask campaign --help
cargo xtask instructions        what operations cost, against what is stored; see cargo xtask instructions --help
cargo xtask mutants ...         do the tests notice small changes of the product? see cargo xtask mutants --help
cargo xtask flash ...           Sinter, the file system below and GlusterFS in turns; see cargo xtask flash --help
cargo xtask guest ...           kernel clients of NFS and SMB over a mount; see cargo xtask guest --help
cargo xtask observation ...     what observing requests costs in throughput; see cargo xtask observation --help
cargo xtask console ...         the console in headless Chromium; see cargo xtask console --help
cargo xtask disk ...            hard disks for tests, as loop devices; see cargo xtask disk --help
cargo xtask hybrid ...          flash in front of a hard disk: is there a cliff? see cargo xtask hybrid --help
cargo xtask schedule ...        what clients take from each other, and whether limits are kept; see cargo xtask schedule --help
cargo xtask cluster-torture ... three bricks that are killed and cut off under clients which check; see cargo xtask cluster-torture --help
cargo xtask ablate ...          what older designs in the place of ours cost, and what models predict; see cargo xtask ablate --help
cargo xtask recording ...       does a replay do what was recorded? see cargo xtask recording --help
cargo xtask verdicts ...        does `sinter explain` name the cause of slowness? see cargo xtask verdicts --help
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    let Some((command, rest)) = arguments.split_first() else { return Err(HELP.to_string()) };
    match (command.as_str(), rest) {
        ("check", names) => check_all(names),
        ("list", []) => {
            check::ALL.iter().for_each(|check| println!("{:<14} refuses {}", check.name, check.about));
            Ok(())
        }
        ("ratchet", []) => lower_ratchet(),
        ("subjects", packages) => {
            print_subjects(&load()?, packages);
            Ok(())
        }
        ("assertions", packages @ ([] | [_])) => {
            let lines = check::assertions_table(&load()?, packages.first().map(String::as_str));
            lines.iter().for_each(|line| println!("{line}"));
            Ok(())
        }
        ("format-hash", []) => {
            for (document, hash) in check::format_hashes(&load()?) {
                println!("{document}: format-hash: {hash}");
            }
            Ok(())
        }
        ("citations", []) => {
            print_citations(&load()?);
            Ok(())
        }
        ("product", [binary]) => check_product(binary),
        ("campaign", rest) => campaign::run(rest),
        ("instructions", rest) => instructions::run(rest),
        ("mutants", rest) => mutants::run(rest),
        ("flash", rest) => flash::run(rest),
        ("guest", rest) => guest::run(rest),
        ("observation", rest) => observation::run(rest),
        ("ablate", rest) => ablate::run(rest),
        ("recording", rest) => recording::run(rest),
        ("verdicts", rest) => verdicts::run(rest),
        ("console", rest) => console::run(rest),
        ("disk", rest) => disk::run(rest),
        ("hybrid", rest) => hybrid::run(rest),
        ("schedule", rest) => schedule::run(rest),
        ("cluster-torture", rest) => torture::run(rest),
        ("help" | "--help", _) => {
            print!("{HELP}");
            Ok(())
        }
        _ => Err(HELP.to_string()),
    }
}

fn load() -> Result<Tree, String> {
    Tree::load(&tree::root())
}

fn check_all(names: &[String]) -> Result<(), String> {
    if let Some(name) = names.iter().find(|name| check::ALL.iter().all(|check| check.name != **name)) {
        return Err(format!("no check {name}; see cargo xtask list"));
    }
    let tree = load()?;
    let wanted = |check: &&check::Check| names.is_empty() || names.iter().any(|name| name == check.name);
    let mut problems = Vec::new();
    for check in check::ALL.iter().filter(wanted) {
        problems.extend((check.run)(&tree).into_iter().map(|problem| format!("[{}] {problem}", check.name)));
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(format!("{}\n{} problems", problems.join("\n"), problems.len()))
}

fn lower_ratchet() -> Result<(), String> {
    let tree = load()?;
    for (path, lowered) in check::RATCHETS {
        let stored = tree::root().join(path);
        std::fs::write(&stored, lowered(&tree)).map_err(|error| format!("{}: {error}", stored.display()))?;
    }
    Ok(())
}

fn print_subjects(tree: &Tree, packages: &[String]) {
    let listed = packages.iter().flat_map(|package| check::listed(tree, package));
    let lines = if packages.is_empty() { check::table(tree) } else { listed.collect() };
    lines.iter().for_each(|line| println!("{line}"));
}

fn print_citations(tree: &Tree) {
    for (id, paths) in check::citations(tree) {
        println!("{id:<4} {}", paths.into_iter().collect::<Vec<_>>().join(" "));
    }
}

fn check_product(binary: &str) -> Result<(), String> {
    let declaration = tree::root().join(product::DECLARED_IN);
    let declaration =
        std::fs::read_to_string(&declaration).map_err(|error| format!("{}: {error}", declaration.display()))?;
    let bytes = std::fs::read(binary).map_err(|error| format!("{binary}: {error}"))?;
    product::check(&declaration, &bytes)
}
