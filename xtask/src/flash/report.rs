//! The table, as Markdown for docs and as JSON.

use crate::flash::asked;
use crate::flash::figures::{Figure, Outcome, Ratio, Target, judged, median_of, p50_us, ratio};
use crate::flash::rows::{self, Place, Point, Row, Unit};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The names under which the file system below and the peer's volumes are measured.
pub const RAW: &str = "raw";
const PEER: &str = "gluster-";
/// Said of a run with copies.
pub const COPIES_TOLD: &str = "three, all on this one machine and its device (raw: one). Sinter: nodes with 2G of memory each, which cache no \
                               data, and a client, TLS between all; for cold rows the client is mounted anew, and nodes go on. GlusterFS: \
                               replica 3, no TLS. CPU is that of all nodes or bricks and of the mount; glusterd and its self-heal daemon \
                               don't count";

/// The measurements of a row: each side's figures, one per round.
pub struct Measured {
    pub place: Place,
    pub point: Option<Point>,
    pub row: Row,
    pub sides: BTreeMap<String, Vec<Figure>>,
}

/// All that there is to report.
pub struct Report {
    /// Machine, versions and settings.
    pub facts: Vec<(&'static str, String)>,
    /// The builds of Sinter, by name.
    pub builds: Vec<String>,
    pub rounds: u64,
    pub seconds: u64,
    pub rows: Vec<Measured>,
}

impl Measured {
    fn side(&self, name: &str) -> Option<&[Figure]> {
        self.sides.get(name).map(Vec::as_slice)
    }
    /// The better of the peer's volumes in this row.
    pub fn peer(&self) -> Option<(&str, &[Figure])> {
        let median = |figures: &Vec<Figure>| {
            let value = median_of(figures, |figure| figure.value);
            // What is idle should use little.
            if self.row.unit.is_rate() { value } else { -value }
        };
        let peers = self.sides.iter().filter(|(name, _)| name.starts_with(PEER));
        let best = peers.max_by(|(_, one), (_, other)| median(one).total_cmp(&median(other)))?;
        Some((best.0, best.1))
    }
    /// Ours to theirs. Only rates have one: of what is idle, the other may use nothing at all.
    fn ratio(&self, ours: &[Figure], theirs: Option<&[Figure]>) -> Option<Ratio> {
        ratio(ours, theirs.filter(|_| self.row.unit.is_rate())?)
    }
    /// The outcome of the row's target for a build.
    pub fn outcome(&self, build: &str) -> Option<Outcome> {
        let peer = self.peer().map(|(_, figures)| figures);
        Some(judged(&self.row.target, self.side(build)?, self.side(RAW), peer))
    }
}

fn with_unit(value: f64, unit: Unit) -> String {
    match unit {
        Unit::PerSecond => format!("{}/s", grouped(value)),
        Unit::MegabytesPerSecond => format!("{} MB/s", grouped(value)),
        Unit::PercentOfCore | Unit::Percent => format!("{value:.2}%"),
        Unit::Times => format!("{value:.2}"),
        Unit::Count => grouped(value),
        Unit::Gigabytes => format!("{value:.1} GB"),
    }
}

/// A number with commas between thousands.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Value, latency and the CPU that daemons and the machine took per operation.
fn cell(figures: Option<&[Figure]>, unit: Unit, has_daemons: bool) -> String {
    let Some(figures) = figures else { return "-".to_string() };
    let mut text = with_unit(median_of(figures, |figure| figure.value), unit);
    if !unit.is_rate() {
        return text;
    }
    if let Some(p50) = p50_us(figures) {
        text += &format!(", p50 {}", grouped(p50));
    }
    let (daemon, machine) = (median_of(figures, |one| one.daemon_us), median_of(figures, |one| one.machine_us));
    let cpu = |us: f64| if us < 100.0 { format!("{us:.1}") } else { grouped(us) };
    text + &if has_daemons { format!("; {} of {}", cpu(daemon), cpu(machine)) } else { format!("; {}", cpu(machine)) }
}

fn ratio_cell(ratio: Option<Ratio>) -> String {
    ratio.map_or_else(|| "-".to_string(), |Ratio { median, low, high }| format!("{median:.2} ({low:.2}..{high:.2})"))
}

/// A target in words.
fn told(target: &Target, unit: Unit) -> String {
    let mut parts = Vec::new();
    parts.extend(target.of_raw.map(|least| format!("{least} raw")));
    parts.extend(target.of_peer.map(|least| format!("{least} GlusterFS")));
    parts.extend(target.above_raw_us.map(|most| format!("p50 at most {most} us above raw")));
    parts.extend(target.p50_us.map(|most| format!("p50 at most {most} us")));
    parts.extend(target.daemon_us.map(|most| format!("CPU at most {most} us")));
    let percent = if matches!(unit, Unit::PercentOfCore | Unit::Percent) { "%" } else { "" };
    parts.extend(target.below.map(|most| format!("below {most}{percent}")));
    parts.extend(target.at_least.map(|least| format!("at least {least}{percent}")));
    parts.join(", ")
}

/// All rows: name, title and target. Then those of three copies.
pub fn rows_told() -> String {
    let shown = |tasks: Vec<rows::Task>| {
        let rows = tasks.into_iter().flat_map(|task| task.rows);
        let line = |row: Row| format!("{:<20} {}; target: {}\n", row.name, row.title, told(&row.target, row.unit));
        rows.map(line).collect::<String>()
    };
    let one = shown([rows::all(), rows::steady()].concat());
    format!("{one}\nwith --copies {}:\n{}", asked::COPIES, shown(rows::copied()))
}

fn outcome_cell(outcome: &Outcome) -> String {
    match outcome {
        Outcome::NoTarget => String::new(),
        Outcome::Met => "yes".to_string(),
        Outcome::Missed(what) => format!("**no**: {}", what.join(", ")),
        Outcome::Open(what) => format!("open: {} not measured", what.join(", ")),
    }
}

impl Report {
    fn table_rows(&self) -> impl Iterator<Item = &Measured> {
        self.rows.iter().filter(|measured| measured.point.is_none())
    }
    /// The document.
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "`cargo xtask flash`, {} rounds in which sides take turns, each measurement {} s. A value is the median of the \
             rounds, a ratio the median of the rounds' ratios (and where the sign test finds the true one in 95 of 100 cases; of \
             less than six rounds, the least and the largest).\nBehind a value: the median \
             latency and, after the semicolon, the CPU time per operation in microseconds, the daemons' and the whole \
             machine's with the load itself.\nGlusterFS is the better of two volumes in each row, tuned (t) or with its \
             defaults (d). Raw and bricks lie on one XFS on a loop file with direct I/O, but for rows that say ext4.\nBefore \
             each measurement everything is made durable and daemons come to rest; where I/O is direct or cold, the kernel's \
             caches are dropped; for cold rows Sinter is also stopped and started, and GlusterFS mounted anew. Cold files are \
             read in another order than they were made in.\n\n",
            self.rounds, self.seconds
        );
        for (name, value) in &self.facts {
            text += &format!("- {name}: {value}\n");
        }
        let stolen = self.rows.iter().flat_map(|row| row.sides.values().flatten()).map(|figure| figure.stolen);
        let most = stolen.fold(0.0, f64::max) * 100.0;
        text += &format!("- taken by the host of all CPU time in a measurement: {most:.1}% at most\n");
        if self.table_rows().next().is_some() {
            self.builds.iter().for_each(|build| text += &self.table(build));
            text += &self.between_builds();
        }
        text
    }
    fn table(&self, build: &str) -> String {
        let mut text = format!(
            "\n| | raw | {build} | GlusterFS | {build} / raw | {build} / GlusterFS | target | met |\n|{}\n",
            "---|".repeat(8)
        );
        for measured in self.table_rows() {
            let (row, raw) = (&measured.row, measured.side(RAW));
            let Some(ours) = measured.side(build) else { continue };
            let peer = measured.peer();
            let which = match peer {
                Some((name, _)) => format!(" ({})", &name[PEER.len()..][..1]),
                None => String::new(),
            };
            let outcome = measured.outcome(build).map(|outcome| outcome_cell(&outcome)).unwrap_or_default();
            text += &format!(
                "| {} | {} | {} | {}{which} | {} | {} | {} | {outcome} |\n",
                row.title,
                cell(raw, row.unit, false),
                cell(Some(ours), row.unit, true),
                cell(peer.map(|(_, figures)| figures), row.unit, true),
                ratio_cell(measured.ratio(ours, raw)),
                ratio_cell(measured.ratio(ours, peer.map(|(_, peer)| peer))),
                told(&row.target, row.unit),
            );
        }
        text
    }
    /// Each further build against the first.
    pub fn between_builds(&self) -> String {
        let Some((first, others)) = self.builds.split_first() else { return String::new() };
        let mut text = String::new();
        for other in others {
            text += &format!("\n| | {first} | {other} | {other} / {first} |\n|---|---|---|---|\n");
            for measured in self.table_rows() {
                let (Some(before), Some(after)) = (measured.side(first), measured.side(other)) else { continue };
                let unit = measured.row.unit;
                text += &format!(
                    "| {} | {} | {} | {} |\n",
                    measured.row.title,
                    cell(Some(before), unit, true),
                    cell(Some(after), unit, true),
                    ratio_cell(measured.ratio(after, Some(before)))
                );
            }
        }
        text
    }
    /// Everything, each round's figures too.
    pub fn json(&self) -> Value {
        let facts: BTreeMap<&str, &str> = self.facts.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let rows: Vec<Value> = self.rows.iter().map(|measured| self.row_json(measured)).collect();
        json!({ "facts": facts, "builds": self.builds, "rounds": self.rounds, "seconds": self.seconds, "rows": rows })
    }
    fn row_json(&self, measured: &Measured) -> Value {
        let Measured { row, place, point, .. } = measured;
        let figure = |one: &Figure| {
            json!({
                "value": one.value, "p50_us": one.p50_us, "p99_us": one.p99_us, "daemon_us": one.daemon_us,
                "machine_us": one.machine_us, "stolen": one.stolen,
            })
        };
        let sides: BTreeMap<&str, Vec<Value>> =
            measured.sides.iter().map(|(name, all)| (name.as_str(), all.iter().map(figure).collect())).collect();
        let against = |ours: &[Figure], theirs: Option<&[Figure]>| {
            measured
                .ratio(ours, theirs)
                .map(|Ratio { median, low, high }| json!({ "median": median, "low": low, "high": high }))
        };
        let peer = measured.peer();
        let of_build = |build: &String| {
            let ours = measured.side(build)?;
            let outcome = measured.outcome(build)?;
            let met = match &outcome {
                Outcome::Met => Some(true),
                Outcome::Missed(_) => Some(false),
                Outcome::NoTarget | Outcome::Open(_) => None,
            };
            let (raw, peer) = (against(ours, measured.side(RAW)), against(ours, peer.map(|(_, peer)| peer)));
            let judged = json!({ "of_raw": raw, "of_peer": peer, "met": met, "outcome": outcome_cell(&outcome) });
            Some((build.clone(), judged))
        };
        let judged: BTreeMap<String, Value> = self.builds.iter().filter_map(of_build).collect();
        json!({
            "name": row.name, "title": row.title, "unit": format!("{:?}", row.unit), "place": format!("{place:?}"),
            "target": told(&row.target, row.unit), "sides": sides, "peer": peer.map(|(name, _)| name), "judged": judged,
            "point": point.map(|point| json!({ "curve": point.curve, "axis": point.axis, "at": point.at })),
        })
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
