//! The tables, as Markdown and as JSON.

use super::design::{Design, OURS};
use super::predict::{ASKED, FULL, Predictions, Runs};
use super::ran::{Kind, Ran};
use crate::flash::figures::{Figure, Ratio, ratio};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A prediction within this part of what was measured is right.
const RIGHT: f64 = 0.15;

/// All that was measured and predicted.
pub struct Report {
    pub facts: Vec<(&'static str, String)>,
    pub rounds: u64,
    pub seconds: u64,
    pub designs: Vec<Design>,
    /// The measurements from which predictions were made.
    pub known: Runs,
    pub predictions: Predictions,
    /// Pairs of rounds with `FULL` requests in flight: what a design is compared with, and the design.
    pub pairs: BTreeMap<(&'static str, Kind), Vec<(Ran, Ran)>>,
    /// Our rate with the other numbers of requests in flight that were predicted.
    pub asked: Runs,
}

/// A design's row.
struct Row {
    kind: Kind,
    name: &'static str,
    title: &'static str,
    beside: &'static str,
    ran: Ran,
    /// The design's rate to that of what it is compared with.
    ratio: Ratio,
    predicted: f64,
}

/// The error of a prediction, as a part of what was measured.
fn off(predicted: f64, measured: f64) -> f64 {
    predicted / measured - 1.0
}

impl Report {
    fn rows(&self) -> Vec<Row> {
        let row = |(kind, design): (Kind, &Design)| {
            let pairs = self.pairs.get(&(design.name, kind))?;
            let figures = |of: fn(&(Ran, Ran)) -> Ran| {
                let figure = |pair| Figure { value: of(pair).per_second, ..Figure::default() };
                pairs.iter().map(figure).collect::<Vec<_>>()
            };
            let ratio = ratio(&figures(|pair| pair.1), &figures(|pair| pair.0))?;
            let ran = Ran::median(&pairs.iter().map(|pair| pair.1).collect::<Vec<_>>());
            let predicted = *self.predictions.designs.get(&(design.name, kind))?;
            let Design { name, title, beside, .. } = design;
            Some(Row { kind, name, title, beside, ran, ratio, predicted })
        };
        let all = Kind::ALL.into_iter().flat_map(|kind| self.designs.iter().map(move |design| (kind, design)));
        all.filter_map(row).collect()
    }
    /// Ours, of all pairs that have it.
    fn ours(&self, kind: Kind) -> Option<Ran> {
        let with_ours = self.designs.iter().filter(|design| design.beside == OURS);
        let pairs = with_ours.filter_map(|design| self.pairs.get(&(design.name, kind))).flatten();
        let ours: Vec<Ran> = pairs.map(|pair| pair.0).collect();
        (!ours.is_empty()).then(|| Ran::median(&ours))
    }
    /// Requests in flight, our rate, and what was predicted.
    fn in_flight(&self) -> Vec<(Kind, usize, f64, f64)> {
        let one = |(kind, in_flight): (Kind, usize)| {
            let measured = match in_flight {
                FULL => self.ours(kind)?.per_second,
                _ => Ran::median(self.asked.get(&(OURS, kind, in_flight))?).per_second,
            };
            Some((kind, in_flight, measured, *self.predictions.in_flight.get(&(kind, in_flight))?))
        };
        let all = Kind::ALL.into_iter().flat_map(|kind| ASKED.map(|in_flight| (kind, in_flight)));
        all.filter_map(one).collect()
    }
    /// Number of predictions within `RIGHT`, and of all.
    fn right(&self) -> (usize, usize) {
        let of_rows = self.rows().into_iter().map(|row| off(row.predicted, row.ratio.median));
        let of_points = self.in_flight().into_iter().map(|(.., measured, predicted)| off(predicted, measured));
        let all: Vec<f64> = of_rows.chain(of_points).collect();
        (all.iter().filter(|off| off.abs() <= RIGHT).count(), all.len())
    }
    /// Both tables.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        let facts: Vec<String> = self.facts.iter().map(|(name, fact)| format!("{name}: {fact}")).collect();
        text += &format!("{}\n\n{} rounds, {} s each.\n\n", facts.join("; "), self.rounds, self.seconds);
        text += "| 4 KiB, 32 in flight | requests/s | compared with | ratio | CPU us | p50 us | p99 us | predicted | off |\n";
        text += "|---|---|---|---|---|---|---|---|---|\n";
        let rows = self.rows();
        for kind in Kind::ALL {
            // Nothing may have been compared with ours itself.
            if let Some(ours) = self.ours(kind) {
                text += &format!("| {}: ours | {} | | |\n", kind.name(), cells(&ours, "", ""));
            }
            for row in rows.iter().filter(|row| row.kind == kind) {
                let Row { title, beside, ran, ratio: Ratio { median, low, high }, predicted, .. } = row;
                let ratio = format!("{median:.2} ({low:.2}..{high:.2})");
                let off = off(*predicted, *median) * 100.0;
                text += &format!("| {title} | {} | {predicted:.2} | {off:+.0}% |\n", cells(ran, beside, &ratio));
            }
        }
        text += "\n| ours | in flight | requests/s | predicted | off |\n|---|---|---|---|---|\n";
        for (kind, in_flight, measured, predicted) in self.in_flight() {
            let off = off(predicted, measured) * 100.0;
            text += &format!("| {} | {in_flight} | {measured:.0} | {predicted:.0} | {off:+.0}% |\n", kind.name());
        }
        let (right, all) = self.right();
        text + &format!("\n{right} of {all} predictions within {:.0}%.\n", RIGHT * 100.0)
    }
    /// The same for programs, with all rounds.
    pub fn json(&self) -> Value {
        let rows = self.rows().into_iter().map(|row| {
            let Ratio { median, low, high } = row.ratio;
            let rounds = self.pairs[&(row.name, row.kind)].iter();
            json!({
                "design": row.name, "title": row.title, "beside": row.beside, "kind": row.kind.name(), "ran": told(&row.ran),
                "ratio": median, "ratio_low": low, "ratio_high": high,
                "predicted_ratio": row.predicted, "off": off(row.predicted, median),
                "rounds": rounds.map(|(other, design)| [told(other), told(design)]).collect::<Vec<_>>(),
            })
        });
        let points = self.in_flight().into_iter().map(|(kind, in_flight, measured, predicted)| {
            json!({ "kind": kind.name(), "in_flight": in_flight, "per_second": measured,
                "predicted": predicted, "off": off(predicted, measured) })
        });
        let ours = Kind::ALL.into_iter().filter_map(|kind| Some((kind.name(), told(&self.ours(kind)?))));
        let (right, all) = self.right();
        json!({
            "facts": self.facts.iter().cloned().collect::<BTreeMap<_, _>>(),
            "rounds": self.rounds, "seconds": self.seconds,
            "ours": ours.collect::<BTreeMap<_, _>>(),
            "designs": rows.collect::<Vec<_>>(), "in_flight": points.collect::<Vec<_>>(),
            "predictions": { "right": right, "of": all, "within": RIGHT },
            "known": measured(&self.known),
        })
    }
}

/// Rate, what it is compared with and the ratio, CPU time and latencies.
fn cells(ran: &Ran, beside: &str, ratio: &str) -> String {
    let Ran { per_second, p50_us, p99_us, daemon_us, machine_us, .. } = ran;
    format!("{per_second:.0} | {beside} | {ratio} | {daemon_us:.1} of {machine_us:.1} | {p50_us:.0} | {p99_us:.0}")
}

fn told(ran: &Ran) -> Value {
    let Ran { per_second, p50_us, p99_us, daemon_us, machine_us, thread_us } = ran;
    json!({ "per_second": per_second, "p50_us": p50_us, "p99_us": p99_us, "daemon_us": daemon_us,
        "machine_us": machine_us, "thread_us": thread_us })
}

fn measured(runs: &Runs) -> Value {
    let one = |((design, kind, in_flight), all): (&(&str, Kind, usize), &Vec<Ran>)| {
        json!({ "design": design, "kind": kind.name(), "in_flight": in_flight,
            "rounds": all.iter().map(told).collect::<Vec<_>>() })
    };
    runs.iter().map(one).collect()
}

/// The predictions for programs, as they are kept before anything of it is measured.
pub fn predicted(predictions: &Predictions, known: &Runs) -> Value {
    let designs = predictions.designs.iter().map(|((design, kind), ratio)| {
        let parts = &predictions.parts[&(*design, *kind)];
        json!({ "design": design, "kind": kind.name(), "predicted_ratio": ratio, "parts": format!("{parts:?}") })
    });
    let points = predictions.in_flight.iter().map(|((kind, in_flight), per_second)| {
        json!({ "kind": kind.name(), "in_flight": in_flight, "predicted": per_second })
    });
    let laws = predictions.laws.iter().map(|(kind, law)| {
        let told = json!({ "rate1": law.rate1, "contention": law.contention, "crosstalk": law.crosstalk });
        (kind.name(), told)
    });
    json!({ "designs": designs.collect::<Vec<_>>(), "in_flight": points.collect::<Vec<_>>(),
        "laws": laws.collect::<BTreeMap<_, _>>(), "known": measured(known) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(per_second: f64) -> Ran {
        Ran { per_second, p50_us: 400.0, p99_us: 900.0, daemon_us: 8.0, machine_us: 20.0, thread_us: 4.0 }
    }

    fn report() -> Report {
        let mut predictions = Predictions::default();
        let (mut pairs, mut asked) = (BTreeMap::new(), Runs::new());
        for kind in Kind::ALL {
            predictions.designs.insert(("queue", kind), 0.55);
            predictions.in_flight.extend([((kind, 8), 30_000.0), ((kind, FULL), 80_000.0)]);
            let rates = [(60_000.0, 30_000.0), (62_000.0, 31_000.0), (50_000.0, 24_000.0)];
            pairs.insert(("queue", kind), rates.map(|(ours, theirs)| (ran(ours), ran(theirs))).to_vec());
            asked.insert((OURS, kind, 8), vec![ran(31_000.0)]);
        }
        let designs = vec![Design::named("queue").expect("it is one")];
        let (facts, known) = (vec![("kernel", "6.18".to_string())], Runs::new());
        Report { facts, rounds: 3, seconds: 1, designs, known, predictions, pairs, asked }
    }

    #[test]
    fn the_table_tells_rates_ratios_and_how_far_predictions_are_off() {
        let text = report().markdown();
        assert!(text.contains("| read: ours | 60000 |  |  | 8.0 of 20.0 | 400 | 900 |"), "{text}");
        let row = "| one core fetches all requests | 30000 | ours | 0.50 (0.48..0.50) | 8.0 of 20.0 | 400 | 900 | 0.55 | +10% |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("| write | 8 | 31000 | 30000 | -3% |"), "{text}");
        assert!(text.contains("| read | 32 | 60000 | 80000 | +33% |"), "{text}");
        assert!(text.contains("4 of 6 predictions within 15%"), "{text}");
    }

    #[test]
    fn json_has_the_same_and_all_rounds() {
        let json = report().json();
        assert_eq!(json["designs"][0]["rounds"].as_array().map(Vec::len), Some(3));
        assert_eq!((&json["predictions"]["right"], &json["predictions"]["of"]), (&json!(4), &json!(6)));
        assert_eq!(json["ours"]["write"]["per_second"], json!(60_000.0));
    }
}
