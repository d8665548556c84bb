//! Looking at config files before a daemon is started with them.

use super::{print, print_json};
use crate::cli;
use crate::config;
use crate::failure::{Exit, Failure};

/// Runs `sinter config ...`.
pub fn run(command: &cli::Config) -> Result<Exit, Failure> {
    let cli::Config::Check { file, json } = command;
    let settings = config::read(file)?;
    for (key, value) in [("data", &settings.data), ("mount", &settings.mount)] {
        if value.is_none() {
            // A service gives nothing on its command line.
            return Err(config::missing(file, key).exit(Exit::Failed));
        }
    }
    match json {
        true => print_json(&settings.json())?,
        false => print(&format!("{settings}good\n"))?,
    }
    Ok(Exit::Done)
}
