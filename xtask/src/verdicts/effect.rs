//! The effect of each cause on its load, by fio's own figures: proof that it was brought about.

use super::asked::Asked;
use super::cause::{Cause, Injection, Plan, plan};
use super::inject::World;
use super::load::Said;
use serde_json::{Value, json};

/// The effect of a cause at one strength.
pub struct Effect {
    cause: Cause,
    strength: String,
    without: Said,
    with: Said,
}

impl Effect {
    /// It as a line: rate, mean, median and 99th percentile without and with, and the ratio of the means.
    pub fn line(&self) -> String {
        let Effect { cause, strength, without, with } = self;
        let said = |said: &Said| {
            let Said { per_second, mean_us, p50_us, p99_us } = said;
            format!("{per_second:>7.0}/s {mean_us:>9.1} {p50_us:>9.1} {p99_us:>9.1} us")
        };
        let ratio = with.mean_us / without.mean_us;
        format!("{:<16} {strength:<20} {}   {}   x{ratio:.2}", cause.id(), said(without), said(with))
    }
    /// It as JSON.
    pub fn json(&self) -> Value {
        let said = |said: &Said| {
            let Said { per_second, mean_us, p50_us, p99_us } = said;
            json!({ "per_second": per_second, "mean_us": mean_us, "p50_us": p50_us, "p99_us": p99_us })
        };
        json!({
            "cause": self.cause.id(),
            "strength": self.strength,
            "without": said(&self.without),
            "with": said(&self.with),
        })
    }
}

/// Measures each strength beside the load alone, in turns.
pub fn run(asked: &Asked, cause: Cause, world: &World) -> Result<Vec<Effect>, String> {
    let file = world.brick.file();
    let mut effects = Vec::new();
    for strength in &asked.strengths {
        let Plan { quiet, injection, strength, .. } = plan(cause, *strength);
        let without = quiet.measure(&file, asked.seconds, world.undo)?;
        let load = match injection {
            Injection::Load(other) | Injection::Scrub(other) | Injection::Spindle(other, _) => other,
            _ => quiet,
        };
        // What limits a rate counts it first.
        let running = quiet.start(&file, world.undo)?;
        let injected = world.inject(&injection)?;
        running.stop(world.undo)?;
        let with = load.measure(&file, asked.seconds, world.undo);
        world.take_back(injected)?;
        let effect = Effect { cause, strength, without, with: with? };
        eprintln!("{}", effect.line());
        effects.push(effect);
    }
    Ok(effects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_is_told_in_both_forms() {
        let without = Said { per_second: 10_000.0, mean_us: 100.0, p50_us: 90.0, p99_us: 200.0 };
        let with = Said { per_second: 4_000.0, mean_us: 250.0, p50_us: 240.0, p99_us: 900.0 };
        let effect = Effect { cause: Cause::Flush, strength: "+150 us".to_string(), without, with };
        assert!(effect.line().ends_with("x2.50"), "{}", effect.line());
        assert_eq!(effect.json()["with"]["p50_us"], 240.0);
        assert_eq!(effect.json()["cause"], "flush");
    }
}
