//! The costs of an operation besides time, compared with stored figures: instructions and allocations do not depend on
//! how busy the machine is. `sim/examples/operations` does the operations on a simulated machine; Callgrind counts.

mod measure;
mod ratchet;
mod share;
#[cfg(test)]
mod tests;

use crate::tree::root;
use measure::Measured;
use ratchet::{FIGURES, STORED, Stored};
use serde_json::{Value, json};

const HELP: &str = "\
cargo xtask instructions [--json] [--write]
cargo xtask instructions --observation [--json]

  Counts instructions and allocations of each operation, and refuses more than is stored. Takes half a minute.
  --write: store what has changed. A figure that has grown needs its reason in the commit.
  --observation: count a build too that observes nothing, tell which share of the instructions observation takes, and
                 refuse more than is allowed. Twice as long.
";

/// Measures, tells, and compares or stores.
pub fn run(arguments: &[String]) -> Result<(), String> {
    if arguments.iter().any(|argument| argument == "--observation") {
        return share::run(arguments);
    }
    let known = ["--json", "--write"];
    if arguments.iter().any(|argument| !known.contains(&argument.as_str())) {
        return Err(HELP.to_string());
    }
    let [as_json, write] = known.map(|option| arguments.iter().any(|argument| argument == option));
    let path = root().join(STORED);
    let stored = match std::fs::read_to_string(&path) {
        Ok(text) => Stored::parse(&text)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Stored::default(),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    let measured = measure::measure(true)?;
    let problems = ratchet::problems(&stored, &measured.figures);
    if as_json {
        println!("{:#}", as_value(&stored, &measured, &problems));
    } else {
        print!("{}", table(&stored, &measured.figures));
    }
    if write {
        let text = ratchet::updated(&stored, &measured.figures).text();
        return std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()));
    }
    if stored.tools != measured.figures.tools {
        let (now, then) = (&measured.figures.tools, &stored.tools);
        eprintln!("Counted with {now}, stored with {then}: instructions are not held. To store them: --write");
    }
    if problems.is_empty() {
        return Ok(());
    }
    let profiles = measured.profiles.display();
    Err(format!(
        "{}\n{} problems. Where instructions go: callgrind_annotate --auto=no {profiles}/OPERATION; where allocations are \
         made:\ncargo run --release -p sim --example operations sites OPERATION. What has shrunk, and what is worth its cost \
         (say why in the\ncommit): cargo xtask instructions --write",
        problems.join("\n"),
        problems.len()
    ))
}

/// The change of a figure in percent; None without an earlier one.
fn change(before: u64, now: u64) -> Option<f64> {
    (before > 0).then(|| (now as f64 / before as f64 - 1.0) * 100.0)
}

fn table(stored: &Stored, measured: &Stored) -> String {
    let mut text = format!("{:<26}", "operation");
    for figure in &FIGURES {
        text += &format!(" {:>12} {:>10} {:>7}", figure.name, "stored", "change");
    }
    text.push('\n');
    for (name, cost) in &measured.costs {
        text += &format!("{name:<26}");
        for (number, figure) in FIGURES.iter().enumerate() {
            let before = stored.cost(name).map(|cost| cost[number]);
            let change = before.and_then(|before| change(before, cost[number]));
            text += &format!(
                " {:>12} {:>10} {:>7}",
                figure.shown(cost[number]),
                before.map_or("-".to_string(), |before| figure.shown(before)),
                change.map_or("-".to_string(), |percent| format!("{percent:+.1}%")),
            );
        }
        text.push('\n');
    }
    text
}

fn as_value(stored: &Stored, measured: &Measured, problems: &[String]) -> Value {
    let operation = |(name, cost): &(String, ratchet::Cost)| {
        let mut value = json!({ "operation": name });
        for (number, figure) in FIGURES.iter().enumerate() {
            let before = stored.cost(name).map(|cost| figure.number(cost[number]));
            value[figure.name] = json!({ "measured": figure.number(cost[number]), "stored": before });
        }
        value
    };
    let operations: Vec<Value> = measured.figures.costs.iter().map(operation).collect();
    json!({
        "tools": measured.figures.tools,
        "stored_tools": stored.tools,
        "profiles": measured.profiles,
        "operations": operations,
        "problems": problems,
    })
}
