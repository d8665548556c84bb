//! The figures of a run, and which of them are as they should be.

use super::asked::{Form, Strictness};
use serde_json::{Value, json};

/// The wish for a figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Wish {
    None,
    /// The least value, on a machine that does nothing else.
    LeastIfAlone(f64),
    /// The least value, whatever else the machine does.
    Least(f64),
    /// The greatest value, on a machine that does nothing else.
    MostIfAlone(f64),
    /// The greatest value, whatever else the machine does.
    Most(f64),
    /// Nothing at all, whatever else the machine does.
    Zero,
    /// Nothing at all, on a machine that does nothing else.
    ZeroIfAlone,
}

/// A figure.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    row: &'static str,
    name: String,
    value: f64,
    unit: &'static str,
    wish: Wish,
}

/// All that was seen.
#[derive(Default)]
pub struct Report {
    figures: Vec<Figure>,
    notes: Vec<(&'static str, String)>,
}

impl Figure {
    /// False: it is not as it should be.
    fn holds(&self) -> bool {
        match self.wish {
            Wish::None => true,
            Wish::Least(least) | Wish::LeastIfAlone(least) => self.value >= least,
            Wish::Most(most) | Wish::MostIfAlone(most) => self.value <= most,
            Wish::Zero | Wish::ZeroIfAlone => self.value == 0.0,
        }
    }
    fn fails(&self, strictness: Strictness) -> bool {
        let is_fault = matches!(self.wish, Wish::Zero | Wish::Least(_) | Wish::Most(_));
        !self.holds() && (strictness == Strictness::All || is_fault)
    }
    fn wished(&self) -> String {
        match self.wish {
            Wish::None => String::new(),
            Wish::Least(least) | Wish::LeastIfAlone(least) => format!("at least {least}"),
            Wish::Most(most) | Wish::MostIfAlone(most) => format!("at most {most:.3}"),
            Wish::Zero | Wish::ZeroIfAlone => "none".to_string(),
        }
    }
    fn line(&self) -> String {
        let digits = if self.value.fract() == 0.0 {
            0
        } else if self.value.abs() < 10.0 {
            3
        } else {
            1
        };
        let holds = match (self.wish, self.holds()) {
            (Wish::None, _) => "",
            (_, true) => "yes",
            (_, false) => "no",
        };
        let Figure { row, name, value, unit, .. } = self;
        let line = format!("{row:<11} {name:<44} {value:>12.digits$} {unit:<5} {:<14} {holds}", self.wished());
        line.trim_end().to_string()
    }
    fn json(&self) -> Value {
        let holds = (self.wish != Wish::None).then_some(self.holds());
        json!({ "row": self.row, "name": self.name, "value": self.value, "unit": self.unit, "wish": self.wished(), "holds": holds })
    }
}

impl Report {
    /// Adds a figure, and tells it at once.
    pub fn add(&mut self, row: &'static str, name: impl Into<String>, value: f64, unit: &'static str, wish: Wish) {
        let figure = Figure { row, name: name.into(), value, unit, wish };
        eprintln!("{}", figure.line());
        self.figures.push(figure);
    }
    /// Adds what is no figure.
    pub fn note(&mut self, row: &'static str, text: impl Into<String>) {
        let text = text.into();
        eprintln!("{row:<11} {text}");
        self.notes.push((row, text));
    }
    /// A figure that was added.
    pub fn value(&self, row: &str, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.row == row && figure.name == name).map(|figure| figure.value)
    }
    /// True if all is as it should be.
    #[cfg(test)]
    pub fn holds(&self) -> bool {
        self.figures.iter().all(Figure::holds)
    }
    /// Prints all. Errors: the names of the figures that are not as they should be.
    pub fn print(&self, form: Form, strictness: Strictness) -> Result<(), String> {
        match form {
            Form::Table => {
                self.figures.iter().for_each(|figure| println!("{}", figure.line()));
                self.notes.iter().for_each(|(row, text)| println!("{row:<11} {text}"));
            }
            Form::Json => {
                let notes = self.notes.iter().map(|(row, text)| json!({ "row": row, "note": text }));
                let figures = Value::from_iter(self.figures.iter().map(Figure::json));
                println!("{}", json!({ "figures": figures, "notes": Value::from_iter(notes) }));
            }
        }
        let failed = self.figures.iter().filter(|figure| figure.fails(strictness));
        let failed: Vec<String> = failed.map(|figure| format!("{}: {}", figure.row, figure.name)).collect();
        if failed.is_empty() { Ok(()) } else { Err(format!("not as it should be: {}", failed.join("; "))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_is_missed_fails_unless_the_machine_excuses_it() {
        let figure = |value, wish| Figure { row: "overwrite", name: "mean".to_string(), value, unit: "/s", wish };
        for (value, wish, all, faults) in [
            (14.9, Wish::LeastIfAlone(15.0), true, false),
            (15.0, Wish::LeastIfAlone(15.0), false, false),
            (0.9, Wish::Least(1.0), true, true),
            (1.1, Wish::Most(1.0), true, true),
            (1.1, Wish::MostIfAlone(1.0), true, false),
            (1.0, Wish::Most(1.0), false, false),
            (1.0, Wish::Zero, true, true),
            (0.0, Wish::Zero, false, false),
            (1.0, Wish::ZeroIfAlone, true, false),
            (1.0, Wish::None, false, false),
        ] {
            let figure = figure(value, wish);
            assert_eq!(figure.fails(Strictness::All), all, "{figure:?}");
            assert_eq!(figure.fails(Strictness::Faults), faults, "{figure:?}");
        }
    }

    #[test]
    fn a_figure_is_found_by_row_and_name() {
        let mut report = Report::default();
        report.add("bare", "rate", 200.0, "/s", Wish::None);
        assert_eq!(report.value("bare", "rate"), Some(200.0));
        assert_eq!(report.value("overwrite", "rate"), None);
        assert!(report.print(Form::Json, Strictness::All).is_ok());
        report.add("stopped", "errors", 2.0, "", Wish::Zero);
        assert_eq!(
            report.print(Form::Table, Strictness::Faults),
            Err("not as it should be: stopped: errors".to_string())
        );
    }
}
