//! Charts of reports, as SVG: bars of rates, ratios with their intervals, and a line over time. Decision 0019 tells why by hand.

use std::fmt::Write;

/// Pixels.
const WIDTH: f64 = 900.0;
const LEFT: f64 = 300.0;
const RIGHT: f64 = 130.0;
const TOP: f64 = 50.0;
const LINE: f64 = 24.0;
/// Colours that are told apart by who confuses red and green, too.
const BLUE: &str = "#0072b2";
const ORANGE: &str = "#d55e00";
const GREY: &str = "#888888";

/// One bar, and how long it is compared to the longest of its kind.
pub struct Bar {
    /// Left of it.
    pub label: String,
    /// Bars of one kind share a scale: rates of different operations can't be compared.
    pub kind: String,
    /// Its length.
    pub value: f64,
    /// Right of it.
    pub text: String,
}

/// A ratio with its interval.
pub struct Dot {
    /// Left of it.
    pub label: String,
    /// The ratio, and the ends of its interval.
    pub ratio: [f64; 3],
    /// Right of it.
    pub text: String,
}

/// A picture that grows from top to bottom.
struct Canvas {
    body: String,
    height: f64,
}

impl Canvas {
    fn new(title: &str, rows: usize) -> Canvas {
        let mut canvas = Canvas { body: String::new(), height: TOP + LINE * (rows as f64 + 1.0) };
        canvas.text(10.0, 24.0, "start", title, 15);
        canvas
    }
    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.body, "{element}").expect("writing to a string works");
    }
    fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str, size: u32) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        self.add(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" font-size="{size}">{text}</text>"#
        ));
    }
    fn line(&mut self, from: [f64; 2], to: [f64; 2], colour: &str) {
        let ([x1, y1], [x2, y2]) = (from, to);
        self.add(format_args!(r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{colour}"/>"#));
    }
    fn render(self) -> String {
        let Canvas { body, height } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
        )
    }
}

/// Bars, each as long as its share of the greatest of its kind.
pub fn bars(title: &str, bars: &[Bar]) -> String {
    let mut canvas = Canvas::new(title, bars.len());
    for (at, bar) in bars.iter().enumerate() {
        let y = TOP + LINE * at as f64;
        let same = bars.iter().filter(|other| other.kind == bar.kind).map(|other| other.value);
        let width = (WIDTH - LEFT - RIGHT) * bar.value / same.fold(f64::MIN_POSITIVE, f64::max);
        canvas.text(LEFT - 8.0, y + 14.0, "end", &bar.label, 12);
        canvas.add(format_args!(r#"<rect x="{LEFT}" y="{y:.1}" width="{width:.1}" height="16" fill="{BLUE}"/>"#));
        canvas.text(LEFT + width + 6.0, y + 14.0, "start", &bar.text, 12);
    }
    canvas.render()
}

/// Ratios on a logarithmic scale, on which twice is as far from 1 as half.
pub fn dots(title: &str, dots: &[Dot]) -> String {
    let mut canvas = Canvas::new(title, dots.len());
    // Far outliers would press everything else together.
    let far = |value: f64| value.clamp(1.0 / 16.0, 16.0).log2();
    let most = dots.iter().flat_map(|dot| dot.ratio).map(|value| far(value).abs()).fold(1.0, f64::max);
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    let x = |value: f64| middle + far(value) / most * (WIDTH - LEFT - RIGHT) / 2.0;
    let bottom = canvas.height - LINE;
    for mark in [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0].into_iter().filter(|mark| far(*mark).abs() <= most) {
        canvas.line([x(mark), TOP - 8.0], [x(mark), bottom], if mark == 1.0 { "black" } else { "#dddddd" });
        canvas.text(x(mark), bottom + 14.0, "middle", &format!("{mark}"), 11);
    }
    for (at, dot) in dots.iter().enumerate() {
        let y = TOP + LINE * at as f64 + 8.0;
        let [ratio, low, high] = dot.ratio;
        let colour = if low > 1.0 {
            BLUE
        } else if high < 1.0 {
            ORANGE
        } else {
            GREY
        };
        canvas.text(LEFT - 8.0, y + 4.0, "end", &dot.label, 12);
        canvas.line([x(low), y], [x(high), y], colour);
        canvas.add(format_args!(r#"<circle cx="{:.1}" cy="{y:.1}" r="5" fill="{colour}"/>"#, x(ratio)));
        canvas.text(WIDTH - RIGHT + 10.0, y + 4.0, "start", &dot.text, 12);
    }
    canvas.render()
}

/// A value per second.
pub fn over_time(title: &str, values: &[u64]) -> String {
    let mut canvas = Canvas::new(title, 12);
    let most = values.iter().copied().max().unwrap_or(0).max(1) as f64;
    let (left, right, bottom) = (90.0, WIDTH - 20.0, canvas.height - LINE);
    let x = |second: usize| left + (right - left) * second as f64 / (values.len().max(2) - 1) as f64;
    let y = |value: f64| bottom - (bottom - TOP) * value / most;
    for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let value = most * part;
        canvas.line([left, y(value)], [right, y(value)], "#dddddd");
        canvas.text(left - 8.0, y(value) + 4.0, "end", &crate::table::count(value as u64), 11);
    }
    canvas.text(right, bottom + 16.0, "end", &format!("{} s", values.len()), 11);
    let points: Vec<String> =
        values.iter().enumerate().map(|(at, value)| format!("{:.1},{:.1}", x(at), y(*value as f64))).collect();
    canvas.add(format_args!(r#"<polyline fill="none" stroke="{BLUE}" points="{}"/>"#, points.join(" ")));
    canvas.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of an attribute of all elements of a kind.
    fn attributes(picture: &str, element: &str, name: &str) -> Vec<f64> {
        let of = |line: &str| line.split_once(&format!(" {name}=\""))?.1.split('"').next()?.parse().ok();
        picture.lines().filter(|line| line.starts_with(&format!("<{element} "))).filter_map(of).collect()
    }

    #[test]
    fn bars_share_the_scale_of_their_kind() {
        let bar = |kind: &str, value| Bar { label: "a<b&c".into(), kind: kind.into(), value, text: "x".into() };
        let picture = bars("bars", &[bar("read", 10.0), bar("read", 5.0), bar("write", 1.0), bar("none", 0.0)]);
        let full = WIDTH - LEFT - RIGHT;
        assert_eq!(attributes(&picture, "rect", "width"), [full, full / 2.0, full, 0.0]);
        assert!(picture.contains("a&lt;b&amp;c") && picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    }

    #[test]
    fn ratios_lie_around_one() {
        let dot = |ratio| Dot { label: "l".into(), ratio, text: "t".into() };
        let picture =
            dots("dots", &[dot([1.0, 0.9, 1.1]), dot([2.0, 1.5, 3.0]), dot([0.5, 0.4, 0.6]), dot([1e9, 1e9, 1e9])]);
        let at = attributes(&picture, "circle", "cx");
        assert!((at[1] - at[0] - (at[0] - at[2])).abs() < 0.2 && at[0] == 535.0, "{at:?}");
        assert!(at[3] <= WIDTH - RIGHT);
        assert_eq!(
            [GREY, BLUE, ORANGE].map(|colour| picture.matches(&format!("r=\"5\" fill=\"{colour}\"")).count()),
            [1, 2, 1]
        );
    }

    #[test]
    fn a_line_reaches_from_the_first_second_to_the_last() {
        let picture = over_time("line", &[0, 10, 5]);
        assert!(picture.contains("points=\"90.0,338.0 485.0,50.0 880.0,194.0\""), "{picture}");
        assert!(over_time("none", &[]).ends_with("</svg>\n"));
    }
}
