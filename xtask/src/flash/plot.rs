//! Plots of the curves, as SVG.

use crate::flash::figures::{Figure, median_of};
use crate::flash::report::Measured;
use std::collections::{BTreeMap, BTreeSet};

/// Inner width and height, and the room around for words.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 80.0;
const TOP: f64 = 40.0;
/// One for each side; readable on white and on black.
const COLOURS: [&str; 5] = ["#2a7fbf", "#d9541e", "#3a9d4f", "#9b59b6", "#888888"];

/// A side's curve: where, and the median there.
type Line = Vec<(u32, f64)>;

/// A plot for each curve and axis: name of the file and SVG.
pub fn all(rows: &[Measured]) -> Vec<(String, String)> {
    let mut plots: BTreeMap<(&str, &str), BTreeMap<&str, Line>> = BTreeMap::new();
    for measured in rows {
        let Some(point) = measured.point else { continue };
        let lines = plots.entry((point.curve, point.axis)).or_default();
        for (side, figures) in &measured.sides {
            lines.entry(side).or_default().push((point.at, median_of(figures, |figure: &Figure| figure.value)));
        }
    }
    let one = |((curve, axis), lines)| (format!("flash-{curve}-{axis}.svg"), svg(curve, axis, &lines));
    plots.into_iter().map(one).collect()
}

/// The axis doubles from mark to mark.
fn across(at: u32, last: u32) -> f64 {
    let span = f64::from(last).log2().max(1.0);
    LEFT + WIDTH * f64::from(at).log2() / span
}

fn svg(curve: &str, axis: &str, lines: &BTreeMap<&str, Line>) -> String {
    let marks: BTreeSet<u32> = lines.values().flatten().map(|(at, _)| *at).collect();
    let last = marks.last().copied().unwrap_or(1);
    let most = lines.values().flatten().map(|(_, value)| *value).fold(1.0, f64::max);
    let up = |value: f64| TOP + HEIGHT * (1.0 - value / most);
    let (width, height, bottom) = (LEFT + WIDTH + 20.0, TOP + HEIGHT + 90.0, TOP + HEIGHT);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"13\" fill=\"#888888\">\n<text x=\"{LEFT}\" y=\"20\">{curve}, 4 KiB per operation, operations per \
         second over {axis}</text>\n"
    );
    for part in 0..=4 {
        let value = most * f64::from(part) / 4.0;
        let (y, right) = (up(value), LEFT + WIDTH);
        text += &format!("<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#88888855\"/>\n");
        text += &format!("<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value:.0}</text>\n", LEFT - 8.0, y + 4.0);
    }
    for at in &marks {
        let x = across(*at, last);
        text += &format!("<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{at}</text>\n", bottom + 20.0);
    }
    for (number, (side, line)) in lines.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let points: Vec<String> =
            line.iter().map(|(at, value)| format!("{:.1},{:.1}", across(*at, last), up(*value))).collect();
        let points = points.join(" ");
        text += &format!("<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n");
        let x = LEFT + 130.0 * number as f64;
        text += &format!("<text x=\"{x}\" y=\"{}\" fill=\"{colour}\">{side}</text>\n", bottom + 55.0);
    }
    text + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::rows;

    #[test]
    fn each_curve_is_drawn_from_its_first_point_to_its_last() {
        let measured = rows::curves().into_iter().map(|task| {
            let at = f64::from(task.point.expect("it is a curve's").at);
            let figures = vec![Figure { value: at * 100.0, ..Figure::default() }];
            let sides = [("raw".to_string(), figures)].into();
            Measured { place: task.place, point: task.point, row: task.rows[0].clone(), sides }
        });
        let plots = all(&measured.collect::<Vec<_>>());
        let names: Vec<&str> = plots.iter().map(|(name, _)| name.as_str()).collect();
        let reads = ["flash-random-read-depth.svg", "flash-random-read-jobs.svg"];
        assert_eq!(names, [reads, ["flash-random-write-depth.svg", "flash-random-write-jobs.svg"]].concat());
        let (top, right, bottom) = (TOP, LEFT + WIDTH, TOP + HEIGHT);
        let (first, last) = (bottom - HEIGHT / 64.0, format!("{right:.1},{top:.1}"));
        let drawn = &plots[0].1;
        assert!(drawn.contains(&format!("points=\"{LEFT:.1},{first:.1} ")), "{drawn}");
        assert!(drawn.contains(&format!(" {last}\"")) && drawn.ends_with("</svg>\n"), "{drawn}");
    }
}
