//! One question to `sinter explain` while a cause is there.

use super::asked::Asked;
use super::cause::{Cause, Injection, Plan, plan};
use super::explained;
use super::inject::World;
use crate::flash::ground::text;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// The load runs before each question but the first for this part of `--learn`.
const AGAIN: u32 = 10;

/// A cause at a strength, for the nth time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trial {
    pub cause: Cause,
    strength: usize,
    time: u64,
}

impl Trial {
    /// All that is asked for of a cause.
    pub fn all(asked: &Asked, cause: Cause) -> Vec<Trial> {
        let times = (1..=asked.times).flat_map(|time| asked.strengths.iter().map(move |strength| (time, *strength)));
        times.map(|(time, strength)| Trial { cause, strength, time }).collect()
    }
    /// Its name for people.
    pub fn title(&self) -> String {
        format!("{} {}, time {}", self.cause.id(), plan(self.cause, self.strength).strength, self.time)
    }
    fn path(&self, asked: &Asked, ending: &str) -> PathBuf {
        asked.out.join(format!("{}-{}-{}.{ending}", self.cause.id(), self.strength + 1, self.time))
    }
    /// The file of its snapshots.
    pub fn snapshots(&self, asked: &Asked) -> PathBuf {
        self.path(asked, "snapshots")
    }
    /// Itself, and the cause that was named, if that is known.
    pub fn told(self, asked: &Asked) -> Option<(Trial, String)> {
        let text = std::fs::read_to_string(self.path(asked, "json")).ok()?;
        let json: Value = serde_json::from_str(&text).ok()?;
        Some((self, json["got"].as_str()?.to_string()))
    }
    /// Brings the cause about, asks, and takes it back.
    fn run(&self, asked: &Asked, world: &World, learn: Duration) -> Result<String, String> {
        let Plan { setup, quiet, injection, strength } = plan(self.cause, self.strength);
        let file = world.brick.file();
        let mut load = quiet.start(&file, world.undo)?;
        std::thread::sleep(learn);
        if let Injection::Load(other) | Injection::Scrub(other) | Injection::Spindle(other, _) = injection {
            load.stop(world.undo)?;
            load = other.start(&file, world.undo)?;
        }
        let injected = world.inject(&injection)?;
        std::thread::sleep(setup.settled);
        let (seconds, snapshots) = (asked.seconds.to_string(), self.snapshots(asked));
        let subject = world.brick.subject();
        let words = ["explain", text(&subject), "--seconds", &seconds, "--json", "--save", text(&snapshots)];
        let said = world.brick.sinter(&words);
        let has_ended = load.has_ended();
        world.take_back(injected)?;
        load.stop(world.undo)?;
        if has_ended {
            return Err(format!("{}: the load ended too early", self.title()));
        }
        let said = said?;
        let verdict = explained::read(&said)?;
        // A right cause that says nothing of whose it is, or names another, is not right.
        let names = self.cause.subject().is_none_or(|subject| said.contains(subject));
        let got = if names { verdict.cause } else { format!("{} of another", verdict.cause) };
        let json = json!({
            "expected": self.cause.verdict(),
            "strength": strength,
            "time": self.time,
            "got": got,
            "explained": verdict.json,
        });
        // By another name first: what is there is whole.
        let (path, new) = (self.path(asked, "json"), self.path(asked, "new"));
        let written = std::fs::write(&new, format!("{json:#}\n")).and_then(|()| std::fs::rename(&new, &path));
        written.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(got)
    }
}

/// Trials of a cause that are still to be made.
pub fn left(asked: &Asked, cause: Cause) -> Vec<Trial> {
    Trial::all(asked, cause).into_iter().filter(|trial| trial.told(asked).is_none()).collect()
}

/// Asks for all strengths of a cause, as often as is wanted.
pub fn run(asked: &Asked, cause: Cause, world: &World) -> Result<(), String> {
    let mut learn = Duration::from_secs(asked.learn);
    for trial in left(asked, cause) {
        let got = trial.run(asked, world, learn)?;
        let is_right = if got == cause.verdict() { "right" } else { got.as_str() };
        eprintln!("{}: {is_right}", trial.title());
        learn = Duration::from_secs(asked.learn) / AGAIN;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_not_asked_again() {
        let out = std::env::temp_dir().join(format!("sinter-verdicts-{}", std::process::id()));
        std::fs::create_dir_all(&out).expect("a test's directory can be written");
        let words = ["--out", out.to_str().expect("it is text"), "--strengths", "2", "--times", "2"];
        let asked = Asked::read(&words.map(str::to_string)).expect("these are options");
        let all = left(&asked, Cause::Flush);
        assert_eq!(all.len(), 4);
        std::fs::write(all[1].path(&asked, "json"), r#"{"got": "flush"}"#).expect("it can be written");
        std::fs::write(all[2].path(&asked, "json"), r#"{"got""#).expect("it can be written");
        assert_eq!(left(&asked, Cause::Flush), [all[0], all[2], all[3]]);
        assert_eq!(all[1].told(&asked), Some((all[1], "flush".to_string())));
        assert_eq!(left(&asked, Cause::Lock).len(), 4);
        std::fs::remove_dir_all(&out).expect("it is there");
    }
}
