//! `sinter profile`: where the time of a daemon's requests went.

use super::callers::{Callers, Process};
use super::figures::Figures;
use super::snapshots::{self, look};
use super::{layer, print, print_json};
use crate::admin::client::{Client, unexpected};
use crate::admin::protocol::{Answer, Operation, Request, Times};
use crate::cli::{Profile, ProfileOf, Shown};
use crate::failure::{Exit, Failure};
use crate::table::{Align, Table, count, duration};
use explain::Window;
use explain::snapshot::Whole;
use serde::Serialize;
use std::cmp::Reverse;
use std::time::Duration;

/// Asks the daemon and shows its answer.
pub fn run(options: &Profile) -> Result<Exit, Failure> {
    let mut client = Client::need(&options.data)?;
    if let Some(seconds) = options.watch {
        return watch(options, &mut client, Duration::from_secs(seconds));
    }
    let whole = options.of == ProfileOf::Operations && options.since.is_none() && options.save.is_none();
    if options.history || whole {
        return since_start(options, &mut client);
    }
    let after = look(&mut client, 0)?;
    let window = match &options.since {
        Some(file) => {
            snapshots::window(&snapshots::read(file, ("a snapshot", "sinter profile DATA --save FILE"))?, &after)?
        }
        None => Window::since_start(&after).ok_or_else(snapshots::not_in_order)?,
    };
    if let Some(file) = &options.save {
        snapshots::save(file, &after)?;
    }
    show(options, &window)?;
    Ok(Exit::Done)
}

/// Shows what the daemon has counted since its start, with the figures of layers, or its last operations.
fn since_start(options: &Profile, client: &mut Client) -> Result<Exit, Failure> {
    let request = if options.history { Request::History } else { Request::Profile };
    match client.ask(&request)? {
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

/// Shows the figures of each interval, until the program is ended or the daemon is.
fn watch(options: &Profile, client: &mut Client, interval: Duration) -> Result<Exit, Failure> {
    let mut before = look(client, 0)?;
    loop {
        std::thread::sleep(interval);
        let after = look(client, 0)?;
        show(options, &snapshots::window(&before, &after)?)?;
        before = after;
    }
}

/// Shows a window: for people under a line that tells its length.
fn show(options: &Profile, window: &Window) -> Result<(), Failure> {
    let figures = Figures::of(window, options.of);
    match (options.json, options.watch) {
        (true, None) => print_json(&figures),
        (true, Some(_)) => print(&(serde_json::to_string(&figures).expect("figures are plain data") + "\n")),
        (false, _) => print(&format!("{:.1} s\n{}\n", figures.seconds, figures.rows.table())),
    }
}

/// One row per operation, then one per stage; a stage's share is of its operation's whole time.
pub fn profile_table(operations: &[Operation]) -> String {
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

/// A slow request, and what is known of its caller and its file.
#[derive(Serialize)]
struct Slow {
    #[serde(flatten)]
    whole: Whole,
    #[serde(flatten)]
    caller: Option<Process>,
    /// A path of its inode, if the caller's process has it open.
    path: Option<String>,
}

/// Shows the slowest requests.
pub fn slow(options: &Shown) -> Result<Exit, Failure> {
    let mut client = Client::need(&options.data)?;
    let Answer::History(mut past) = client.ask(&Request::Slow)? else { return Err(unexpected()) };
    past.sort_by_key(|whole| Reverse(whole.duration_ns));
    let mut callers = Callers::of(&mut client)?;
    let known = |whole: Whole| {
        let (caller, path) = (callers.process(whole.thread), callers.path(whole.thread, whole.ino));
        Slow { whole, caller, path }
    };
    let past: Vec<Slow> = past.into_iter().map(known).collect();
    if options.json {
        print_json(&past)?
    } else {
        print(&slow_table(&past))?
    }
    Ok(Exit::Done)
}

/// The columns of a history, and the caller's command and the path, where they are known.
fn slow_table(past: &[Slow]) -> String {
    let mut table = history(&[("command", Align::Left), ("file", Align::Left)]);
    let last_ns = past.iter().map(|one| one.whole.end_ns).max().unwrap_or(0);
    for Slow { whole, caller, path } in past {
        let mut row = history_row(whole, last_ns);
        row.push(caller.as_ref().map_or(String::new(), |caller| format!("{} ({})", caller.command, caller.pid)));
        row.push(path.clone().unwrap_or_default());
        table.row(row);
    }
    table.render()
}

/// A table whose first columns tell of a request.
fn history(more: &[(&str, Align)]) -> Table {
    let right = Align::Right;
    let heads = [
        ("ended", right),
        ("operation", Align::Left),
        ("took", right),
        ("inode", right),
        ("user", right),
        ("thread", right),
        ("mostly in", Align::Left),
    ];
    Table::new(&[&heads[..], more].concat())
}

/// A request in these columns: when it ended is told against the last one; of its stages, those that took most.
fn history_row(one: &Whole, last_ns: u64) -> Vec<String> {
    let mut stages: Vec<_> = one.stages.iter().collect();
    stages.sort_by_key(|(_, ns)| Reverse(*ns));
    let stages: Vec<_> = stages.iter().take(3).map(|(stage, ns)| format!("{stage} {}", duration(*ns))).collect();
    vec![
        format!("-{}", duration(last_ns - one.end_ns)),
        one.name.clone(),
        duration(one.duration_ns),
        one.ino.to_string(),
        one.uid.to_string(),
        one.thread.to_string(),
        stages.join(", "),
    ]
}

/// One row per operation.
fn history_table(past: &[Whole]) -> String {
    let mut table = history(&[]);
    let last_ns = past.iter().map(|one| one.end_ns).max().unwrap_or(0);
    past.iter().for_each(|one| table.row(history_row(one, last_ns)));
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
            ..Whole::default()
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
