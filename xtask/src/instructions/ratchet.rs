//! The stored figures, and what is said of measured ones that differ.

/// The file that stores the figures.
pub const STORED: &str = "xtask/operations.txt";

/// The costs of one operation, in the order of `FIGURES`.
pub type Cost = [u64; FIGURES.len()];

/// One of the figures of a cost.
pub struct Figure {
    /// Its name in tables.
    pub name: &'static str,
    /// It is kept in so many parts of one.
    pub parts: u64,
    /// Permitted difference from the stored figure: this many percent ...
    percent: u64,
    /// ... and so many of its parts it may differ from what is stored.
    slack: u64,
}

/// All figures, each of one operation.
pub const FIGURES: [Figure; 3] = [
    // A compiler that inlines something else moves a percent.
    Figure { name: "instructions", parts: 1, percent: 3, slack: 0 },
    // An allocation more is a hundred parts. A table that happens to grow within a round is less than ten.
    Figure { name: "allocations", parts: 100, percent: 0, slack: 10 },
    // The same table's bytes.
    Figure { name: "bytes", parts: 1, percent: 3, slack: 128 },
];
/// Depends on compiler and libraries; the other figures on the product alone.
const INSTRUCTIONS: usize = 0;

impl Figure {
    /// The figure as a number.
    pub fn number(&self, parts: u64) -> f64 {
        parts as f64 / self.parts as f64
    }
    /// The figure in a table.
    pub fn shown(&self, parts: u64) -> String {
        if self.parts == 1 { parts.to_string() } else { format!("{:.2}", self.number(parts)) }
    }
    fn may_differ(&self, stored: u64) -> u64 {
        stored * self.percent / 100 + self.slack
    }
    fn has_grown(&self, stored: u64, now: u64) -> bool {
        now > stored + self.may_differ(stored)
    }
    fn has_shrunk(&self, stored: u64, now: u64) -> bool {
        now + self.may_differ(stored) < stored
    }
}

/// Figures, and what they were measured with.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Stored {
    /// Compiler, counter and C library.
    pub tools: String,
    /// Operations by name, in the order in which they are measured.
    pub costs: Vec<(String, Cost)>,
}

const HEAD: &str = "# What an operation costs: instructions, allocations, bytes of these. May only shrink, but for a reason \
                    (cargo xtask instructions).\n";
const TOOLS: &str = "# Measured with ";

impl Stored {
    /// Reads the list.
    pub fn parse(text: &str) -> Result<Stored, String> {
        let mut stored = Stored::default();
        for (number, line) in text.lines().enumerate() {
            if let Some(tools) = line.strip_prefix(TOOLS) {
                stored.tools = tools.to_string();
            } else if !line.starts_with('#') {
                let entry =
                    entry(line).ok_or_else(|| format!("{STORED}:{}: not three figures and a name", number + 1))?;
                stored.costs.push(entry);
            }
        }
        Ok(stored)
    }
    /// The list as it is stored.
    pub fn text(&self) -> String {
        let mut text = format!("{HEAD}{TOOLS}{}\n", self.tools);
        for (name, cost) in &self.costs {
            let shown: Vec<String> = FIGURES.iter().zip(cost).map(|(figure, &parts)| figure.shown(parts)).collect();
            text += &format!("{} {name}\n", shown.join(" "));
        }
        text
    }
    /// The costs of an operation.
    pub fn cost(&self, name: &str) -> Option<Cost> {
        self.costs.iter().find(|(other, _)| other == name).map(|(_, cost)| *cost)
    }
}

fn entry(line: &str) -> Option<(String, Cost)> {
    let mut words = line.split(' ');
    let mut cost = Cost::default();
    for (parts, figure) in cost.iter_mut().zip(&FIGURES) {
        *parts = (words.next()?.parse::<f64>().ok()? * figure.parts as f64).round() as u64;
    }
    let name = words.next()?;
    words.next().is_none().then(|| (name.to_string(), cost))
}

/// Differences between the stored and the measured figures.
pub fn problems(stored: &Stored, measured: &Stored) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, cost) in &measured.costs {
        let Some(before) = stored.cost(name) else {
            problems.push(format!("{name}: nothing is stored of it"));
            continue;
        };
        for (number, figure) in FIGURES.iter().enumerate() {
            if number == INSTRUCTIONS && stored.tools != measured.tools {
                continue;
            }
            let (before, now) = (before[number], cost[number]);
            let told = format!("{} {} were stored, {} it takes", figure.shown(before), figure.name, figure.shown(now));
            if figure.has_grown(before, now) {
                let most = figure.shown(before + figure.may_differ(before));
                problems.push(format!("{name}: {told}: at most {most}"));
            } else if figure.has_shrunk(before, now) {
                problems.push(format!("{name}: {told}: it has shrunk; keep it so"));
            }
        }
    }
    let gone = stored.costs.iter().filter(|(name, _)| measured.cost(name).is_none());
    problems.extend(gone.map(|(name, _)| format!("{name}: stored, and no operation any more")));
    problems
}

/// The list brought up to date: what has hardly changed stays, or many small steps up would pass unseen.
pub fn updated(stored: &Stored, measured: &Stored) -> Stored {
    let mut updated = measured.clone();
    for (name, cost) in &mut updated.costs {
        let Some(before) = stored.cost(name) else { continue };
        for (number, figure) in FIGURES.iter().enumerate() {
            let (then, now) = (before[number], cost[number]);
            let comparable = number != INSTRUCTIONS || stored.tools == measured.tools;
            if comparable && !figure.has_grown(then, now) && !figure.has_shrunk(then, now) {
                cost[number] = then;
            }
        }
    }
    updated
}
