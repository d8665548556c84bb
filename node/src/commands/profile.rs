//! `sinter profile`: where the time of a daemon's requests went.

use super::{layer, print, print_json};
use crate::admin::client::{Client, unexpected};
use crate::admin::protocol::{Answer, Operation, Request, Times};
use crate::cli::{Profile, Shown};
use crate::failure::{Exit, Failure};
use crate::table::{Align, Table, count, duration};
use explain::snapshot::Whole;
use std::cmp::Reverse;

/// Asks the daemon and shows its answer.
pub fn run(options: &Profile) -> Result<Exit, Failure> {
    let request = if options.history { Request::History } else { Request::Profile };
    match Client::need(&options.data)?.ask(&request)? {
        Answer::Profile(profile) if options.json => print_json(&profile)?,
        Answer::Profile(profile) if profile.volumes.is_empty() => print(&profile_table(&profile.operations))?,
        Answer::Profile(profile) => {
            let (operations, layers) = (profile_table(&profile.operations), layer::table_of_volumes(&profile.volumes));
            print(&format!("{operations}\n{layers}"))?;
        }
        Answer::History(past) if options.json => print_json(&past)?,
        Answer::History(past) => print(&history_table(&past))?,
        _ => return Err(unexpected()),
    }
    Ok(Exit::Done)
}

/// One row per operation, then one per stage; a stage's share is of its operation's whole time.
fn profile_table(operations: &[Operation]) -> String {
    let right = Align::Right;
    let mut table = Table::new(&[
        ("operation", Align::Left),
        ("count", right),
        ("share", right),
        ("min", right),
        ("mean", right),
        ("p50", right),
        ("p99", right),
        ("max", right),
        ("hops", right),
    ]);
    let mut row = |name: String, times: &Times, share: String, hops: String| {
        let figures = [times.min_ns, times.mean_ns, times.p50_ns, times.p99_ns, times.max_ns].map(duration);
        let mut cells = vec![name, count(times.count), share];
        cells.extend(figures);
        cells.push(hops);
        table.row(cells);
    };
    for operation in operations {
        row(operation.name.clone(), &operation.total, String::new(), count(operation.hops));
        let whole = total_ns(&operation.total).max(1.0);
        for stage in &operation.stages {
            let share = format!("{:.1}%", 100.0 * total_ns(&stage.times) / whole);
            row(format!("  {}", stage.stage), &stage.times, share, String::new());
        }
    }
    table.render()
}

fn total_ns(times: &Times) -> f64 {
    times.mean_ns as f64 * times.count as f64
}

/// Shows the slowest requests.
pub fn slow(options: &Shown) -> Result<Exit, Failure> {
    let Answer::History(mut past) = Client::need(&options.data)?.ask(&Request::Slow)? else { return Err(unexpected()) };
    past.sort_by_key(|whole| Reverse(whole.duration_ns));
    if options.json {
        print_json(&past)?
    } else {
        print(&history_table(&past))?
    }
    Ok(Exit::Done)
}

/// One row per operation; when it ended is told against the last one. Of its stages, those that took most.
fn history_table(past: &[Whole]) -> String {
    let right = Align::Right;
    let mut table = Table::new(&[
        ("ended", right),
        ("operation", Align::Left),
        ("took", right),
        ("inode", right),
        ("user", right),
        ("thread", right),
        ("mostly in", Align::Left),
    ]);
    let last_ns = past.iter().map(|one| one.end_ns).max().unwrap_or(0);
    for one in past {
        let mut stages: Vec<_> = one.stages.iter().collect();
        stages.sort_by_key(|(_, ns)| Reverse(*ns));
        let stages: Vec<_> = stages.iter().take(3).map(|(stage, ns)| format!("{stage} {}", duration(*ns))).collect();
        table.row(vec![
            format!("-{}", duration(last_ns - one.end_ns)),
            one.name.clone(),
            duration(one.duration_ns),
            one.ino.to_string(),
            one.uid.to_string(),
            one.thread.to_string(),
            stages.join(", "),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::protocol::StageTimes;

    #[test]
    fn a_profile_reads_well() {
        let times = |mean_ns| Times { count: 2, min_ns: 1000, mean_ns, p50_ns: 1500, p99_ns: 2500, max_ns: 3000 };
        let stages = vec![StageTimes { stage: "flush".into(), times: times(1500) }];
        let operations = [Operation { name: "fsync".into(), total: times(2000), hops: 3, stages }];
        let expected = "\
operation  count  share      min     mean      p50      p99      max  hops
fsync          2         1.00 us  2.00 us  1.50 us  2.50 us  3.00 us     3
  flush        2  75.0%  1.00 us  1.50 us  1.50 us  2.50 us  3.00 us
";
        assert_eq!(profile_table(&operations), expected);
    }

    #[test]
    fn a_history_reads_well() {
        let past = |name: &str, end_ns, duration_ns, stages: &[(&str, u64)]| Whole {
            name: name.into(),
            end_ns,
            duration_ns,
            stages: stages.iter().map(|(stage, ns)| (stage.to_string(), *ns)).collect(),
            ino: 7,
            uid: 1000,
            thread: 42,
        };
        let stages = [("front", 1000), ("queue", 9000), ("write", 40_000), ("flush", 950_000)];
        let table = history_table(&[past("read", 1_000, 50_000, &[]), past("fsync", 3_001_000, 1_000_000, &stages)]);
        let expected = "   ended  operation     took  inode  user  thread  mostly in
-3.00 ms  read       50.0 us      7  1000      42
   -0 ns  fsync      1.00 ms      7  1000      42  flush 950 us, write 40.0 us, queue 9.00 us
";
        assert_eq!(table, expected);
        assert_eq!(history_table(&[]), "ended  operation  took  inode  user  thread  mostly in\n");
    }
}
