//! `cargo xtask disk measure`: the patterns by fio on a disk that is made for it, beside the simulated one.

use super::asked::Form;
use super::patterns::{ALL, Pattern};
use super::place::Disks;
use super::{print_one, simulated};
use crate::flash::fio;
use crate::flash::ground::told;
use crate::flash::undo::Undo;
use runtime::sim::spindle::Verb;
use serde_json::{Value, json};

const DISK_BYTES: u64 = 20 << 30;
/// Served and simulated disk may differ by so much.
const DIFFERENCE_MAX: f64 = 0.1;

/// The rates of a pattern.
struct Row {
    pattern: Pattern,
    served: f64,
    simulated: f64,
}

impl Row {
    fn difference(&self) -> f64 {
        self.served / self.simulated - 1.0
    }
    /// True if both are those of a disk, and agree.
    fn holds(&self) -> bool {
        let (least, most) = self.pattern.rate;
        let fits = |rate: f64| (least..=most).contains(&rate);
        fits(self.served) && fits(self.simulated) && self.difference().abs() <= DIFFERENCE_MAX
    }
    fn line(&self) -> String {
        let ((least, most), unit) = (self.pattern.rate, self.pattern.unit_name());
        let (name, wanted, holds) =
            (self.pattern.name, format!("{least}-{most} {unit}"), if self.holds() { "yes" } else { "no" });
        let percent = self.difference() * 100.0;
        format!("{name:<36} {:>8.1} {:>10.1} {percent:>+7.1}%   {wanted:<13} {holds}", self.served, self.simulated)
    }
    fn json(&self) -> Value {
        let (least, most) = self.pattern.rate;
        json!({
            "pattern": self.pattern.name,
            "unit": self.pattern.unit_name(),
            "served": self.served,
            "simulated": self.simulated,
            "least": least,
            "most": most,
            "holds": self.holds(),
        })
    }
}

/// Runs the command.
pub fn run(disks: &Disks, seconds: u64, form: Form) -> Result<(), String> {
    let name = format!("measure-{}", std::process::id());
    let rows = Undo::during(|undo| {
        let device = disks.make_during(undo, &name, DISK_BYTES)?;
        ALL.iter().map(|pattern| row(pattern, &device, seconds)).collect::<Result<Vec<Row>, String>>()
    })?;
    let mut lines = vec![format!("{:<36} {:>8} {:>10} {:>8}   {:<13} holds", "", "fio", "simulated", "", "a disk")];
    lines.extend(rows.iter().map(Row::line));
    print_one(form, &lines, &Value::from_iter(rows.iter().map(Row::json)));
    match rows.iter().all(Row::holds) {
        true => Ok(()),
        false => Err("served and simulated disk differ, or are none".to_string()),
    }
}

fn row(pattern: &Pattern, device: &str, seconds: u64) -> Result<Row, String> {
    let arguments = pattern.arguments(device, seconds);
    // What else the machine does must not come between the disk's answer and the next request.
    let (before, fio) = (["--fifo", "1", "fio"], arguments.iter().map(String::as_str));
    let said = told("chrt", &before.into_iter().chain(fio).collect::<Vec<_>>())?;
    let kind = if pattern.verb == Verb::Read { "read" } else { "write" };
    let served = pattern.rate_of(fio::read(&said, kind)?.operations_per_second);
    let simulated = pattern.rate_of(simulated::requests_per_second(pattern, DISK_BYTES));
    Ok(Row { pattern: *pattern, served, simulated })
}
