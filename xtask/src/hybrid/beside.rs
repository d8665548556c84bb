//! The row `beside`: a small synchronous writer alone and beside a massive commit, on the brick and in turns on one that is all
//! flash. Both are filled as far.

use super::asked::Asked;
use super::brick::{Brick, number};
use super::report::{Report, Wish};
use crate::flash::ground::{Ground, text};
use crate::flash::undo::Undo;
use serde_json::Value;
use std::path::Path;

const ROW: &str = "beside";
/// The writer's p99 beside the commit, in that alone, that is wanted; or that of the brick without a disk, and this much more.
const TIMES_MOST: f64 = 2.0;
const OF_ALL_FLASH_MOST: f64 = 1.1;
/// One writer; both measurements of each round and side take so many seconds; what the massive commit writes before its fsync.
const WORK: [&str; 8] = ["--writers", "1", "--time", "5", "--size", "512M", "--rounds", "5"];

/// The name of the brick that is all flash.
const ALL_FLASH: &str = "beside-all-flash";

/// Measures both.
pub fn run(
    asked: &Asked,
    binary: &Path,
    (ground, brick): (&Ground, &Brick),
    report: &mut Report,
    undo: &Undo,
) -> Result<(), String> {
    let place = (&*ground.root.join(ALL_FLASH), asked.flash_bytes);
    let all_flash = Brick::all_flash(asked, binary, place, &[], undo)?;
    all_flash.fill(undo)?;
    eprintln!("a small writer, and a massive commit");
    let work = ["commit-mix", text(brick.mount()), "--beside", text(all_flash.mount())];
    told(&brick.bench(&[&work[..], &WORK].concat(), undo)?, report)
}

fn told(told: &Value, report: &mut Report) -> Result<(), String> {
    let line = |mode: &str, figure: &str| {
        let found = told["lines"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|line| line["mode"] == mode && line["figure"] == figure);
        let found = found.ok_or_else(|| format!("sinter bench commit-mix tells no {figure} of {mode}"))?;
        Ok::<_, String>([number(found, "here")?, number(found, "beside")?])
    };
    let mut add = |name: &str, value: f64, unit, wish| report.add(ROW, name, value, unit, wish);
    let sides = ["hybrid", "all flash"];
    let (alone, beside) = (line("small alone", "p99")?, line("small beside", "p99")?);
    let (rate, massive) = (line("small beside", "rate")?, line("massive", "rate")?);
    for (at, side) in sides.iter().enumerate() {
        add(&format!("{side}: p99 alone"), alone[at] / 1e6, "ms", Wish::None);
        add(&format!("{side}: p99 beside"), beside[at] / 1e6, "ms", Wish::None);
        add(&format!("{side}: small writes beside"), rate[at], "/s", Wish::None);
        // Its writes are of 1 MiB.
        add(&format!("{side}: massive commit"), massive[at], "MiB/s", Wish::None);
    }
    let [here, there] = line("small beside", "p99-times-alone")?;
    add("all flash: p99 beside in that alone", there, "", Wish::None);
    let most = TIMES_MOST.max(there * OF_ALL_FLASH_MOST);
    add("hybrid: p99 beside in that alone", here, "", Wish::MostIfAlone(most));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_brick_without_a_disk_may_be_slow_too() {
        let lines = |there: f64| {
            let line =
                |(mode, figure): (&str, &str)| json!({ "mode": mode, "figure": figure, "here": 3.0, "beside": there });
            let all = [("small alone", "p99"), ("small beside", "p99"), ("small beside", "rate"), ("massive", "rate")];
            let mut lines = all.map(line).to_vec();
            lines.push(line(("small beside", "p99-times-alone")));
            json!({ "lines": lines })
        };
        for (there, holds) in [(1.0, false), (2.7, false), (2.8, true)] {
            let mut report = Report::default();
            told(&lines(there), &mut report).expect("all is told");
            assert_eq!(report.holds(), holds, "{there}");
        }
        assert!(told(&json!({ "lines": [] }), &mut Report::default()).is_err());
    }
}
