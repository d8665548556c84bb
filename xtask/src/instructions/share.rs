//! The share of observation in the costs: the same operations in a build that observes nothing.

use super::HELP;
use super::measure;
use super::ratchet::Stored;
use serde_json::{Value, json};

/// Hundredths of an operation's instructions that observation may take (mission N1).
const PERCENT_MAX: f64 = 2.0;

/// An operation's instructions with and without observation.
#[derive(Debug, PartialEq)]
pub struct Share {
    name: String,
    with: u64,
    without: u64,
}

impl Share {
    fn percent(&self) -> f64 {
        (1.0 - self.without as f64 / self.with as f64) * 100.0
    }
}

/// Counts both, tells, and refuses a share that is too large.
pub fn run(arguments: &[String]) -> Result<(), String> {
    if arguments.iter().any(|argument| !["--observation", "--json"].contains(&argument.as_str())) {
        return Err(HELP.to_string());
    }
    let without = measure::measure(false)?.figures;
    let with = measure::measure(true)?.figures;
    let shares = shares(&with, &without)?;
    if arguments.iter().any(|argument| argument == "--json") {
        println!("{:#}", as_value(&with.tools, &shares));
    } else {
        print!("{}", table(&shares));
    }
    let problems = problems(&shares);
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

fn shares(with: &Stored, without: &Stored) -> Result<Vec<Share>, String> {
    let share = |(name, [with, ..]): &(String, super::ratchet::Cost)| {
        let [without, ..] = without.cost(name).ok_or_else(|| format!("{name}: not counted without observation"))?;
        Ok(Share { name: name.clone(), with: *with, without })
    };
    with.costs.iter().map(share).collect()
}

/// Operations of which observation takes too much.
fn problems(shares: &[Share]) -> Vec<String> {
    let too_much = shares.iter().filter(|share| share.percent() > PERCENT_MAX);
    let told = |share: &Share| {
        format!(
            "{}: observation takes {:.1}% of its instructions, and may take {PERCENT_MAX}%",
            share.name,
            share.percent()
        )
    };
    too_much.map(told).collect()
}

fn table(shares: &[Share]) -> String {
    let mut text =
        format!("{:<26} {:>12} {:>12} {:>12} {:>7}\n", "operation", "observed", "unobserved", "difference", "share");
    for share in shares {
        let Share { name, with, without } = share;
        let (difference, percent) = (*with as i64 - *without as i64, share.percent());
        text += &format!("{name:<26} {with:>12} {without:>12} {difference:>12} {percent:>6.1}%\n");
    }
    text
}

fn as_value(tools: &str, shares: &[Share]) -> Value {
    let operation = |share: &Share| {
        json!({
            "operation": share.name, "observed": share.with, "unobserved": share.without, "percent": share.percent(),
        })
    };
    let operations: Vec<Value> = shares.iter().map(operation).collect();
    json!({ "tools": tools, "percent_max": PERCENT_MAX, "operations": operations, "problems": problems(shares) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(costs: &[(&str, u64)]) -> Stored {
        let costs = costs.iter().map(|(name, instructions)| (name.to_string(), [*instructions, 0, 0]));
        Stored { tools: String::new(), costs: costs.collect() }
    }

    #[test]
    fn more_than_is_allowed_is_refused() {
        let with = stored(&[("read", 10_000), ("write", 10_000), ("stat", 100)]);
        let shares = shares(&with, &stored(&[("read", 9_801), ("write", 9_790), ("stat", 101)]));
        let shares = shares.expect("both were counted");
        assert_eq!(problems(&shares), ["write: observation takes 2.1% of its instructions, and may take 2%"]);
        assert!(table(&shares).contains("write                             10000         9790          210    2.1%"));
    }

    #[test]
    fn an_operation_that_only_one_build_knows_is_an_error() {
        assert!(shares(&stored(&[("read", 1)]), &stored(&[])).is_err_and(|error| error.contains("read")));
    }
}
