//! Switches for the older designs of `base::ablated`, compiled in only with the feature `ablations`. Never in a product build.

use crate::cli::Transport;
use crate::daemon::say;
use crate::failure::{Exit, Failure};
use base::ablated::{Ablation, is_on, switch_on};

/// The variable that lists what is on, separated by commas.
const VARIABLE: &str = "SINTER_TEST_ABLATIONS";

/// Reads the switches from the environment, and says what is on.
pub fn apply() -> Result<(), Failure> {
    let Some(names) = std::env::var_os(VARIABLE) else { return Ok(()) };
    let names = names.to_string_lossy().into_owned();
    let on = of_names(&names).map_err(|wrong| {
        let known = Ablation::ALL.map(Ablation::name).join(", ");
        let failure = Failure::new(Exit::Usage, format!("{VARIABLE}={names}: there is no {wrong}"));
        failure.next(format!("some of {known}"))
    })?;
    if !on.is_empty() {
        say(&format!("WARNING: TEST BUILD: this process works as older designs do ({VARIABLE}={names})"));
    }
    switch_on(&on);
    Ok(())
}

fn of_names(names: &str) -> Result<Vec<Ablation>, String> {
    let one = |name: &str| {
        let known = Ablation::ALL.into_iter().find(|ablation| ablation.name() == name);
        known.ok_or_else(|| name.to_string())
    };
    names.split(',').filter(|name| !name.is_empty()).map(one).collect()
}

/// The transport of requests: that of the older design, if it is on.
pub fn transport(asked: Transport) -> Transport {
    if is_on(Ablation::DevFuse) { Transport::Dev } else { asked }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_unknown_ones_told() {
        assert_eq!(of_names(""), Ok(vec![]));
        assert_eq!(of_names("queue,hand-back"), Ok(vec![Ablation::Queue, Ablation::HandBack]));
        assert_eq!(of_names("queue,warp"), Err("warp".to_string()));
    }
}
