//! Campaigns: the long forms of tests that each change runs in a short form. They run the same tests with larger
//! numbers, handed over in the environment.

use std::process::Command;

/// A campaign: which tests it runs, and the variable that says how long.
struct Campaign {
    name: &'static str,
    about: &'static str,
    arguments: &'static [&'static str],
    variable: &'static str,
    usual: &'static str,
}

const CAMPAIGNS: [Campaign; 12] = [
    Campaign {
        name: "seeds",
        about: "simulated machines, one per seed: faults, crashes, checkers",
        arguments: &["-p", "sim", "--"],
        variable: "SINTER_SEEDS",
        usual: "10000",
    },
    Campaign {
        name: "replicas",
        about: "replicas of one group, one set per seed: clocks that differ, cuts, kills, slow and hung disks",
        arguments: &["-p", "order_raft", "--test", "simulation", "--", "replicas_agree"],
        variable: "SINTER_SEEDS",
        usual: "20000",
    },
    Campaign {
        name: "fuzz",
        about: "parsers against changed inputs, so many times as many as for each change; SINTER_SEED=n: others",
        arguments: &["-p", "fuzz", "--"],
        variable: "SINTER_FUZZ",
        usual: "100",
    },
    Campaign {
        name: "kill",
        about: "the real daemon killed under load on a real mount; nothing acknowledged as durable may be lost",
        arguments: &["-p", "node", "--test", "mounted", "--", "kill::"],
        variable: "SINTER_KILLS",
        usual: "200",
    },
    Campaign {
        name: "full",
        about: "a brick on a real mount filled to its last block and emptied, in rounds; and killed while it is full",
        arguments: &["-p", "node", "--test", "mounted", "--", "full::"],
        variable: "SINTER_FULL_ROUNDS",
        usual: "10",
    },
    Campaign {
        name: "soak",
        about: "seconds of churn on a nearly full brick: content, space to the byte, memory, the slowest operations",
        arguments: &["-p", "node", "--test", "soak", "--"],
        variable: "SINTER_SOAK",
        usual: "3600",
    },
    Campaign {
        name: "beside",
        about: "many files and a large sparse one deleted beside clients, whose operations take three times as long at most",
        arguments: &["-p", "node", "--test", "mounted", "--", "beside::"],
        variable: "SINTER_BESIDE",
        usual: "1000000",
    },
    Campaign {
        name: "many",
        about: "so many files in a tree, and 100,000 in one directory, within a gibibyte of memory",
        arguments: &["-p", "node", "--test", "mounted", "--", "many::"],
        variable: "SINTER_MANY",
        usual: "1000000",
    },
    Campaign {
        name: "handles",
        about: "handles of so many files, through NFS-Ganesha too: its restart, remounts, another brick under the same device",
        arguments: &["-p", "node", "--test", "mounted", "--", "handles::", "doors::"],
        variable: "SINTER_HANDLES",
        usual: "10000",
    },
    Campaign {
        name: "fsx",
        about: "so many random operations on files, compared byte by byte, in four modes",
        arguments: &["-p", "node", "--test", "mounted", "--", "fsx::"],
        variable: "FSX_OPERATIONS",
        usual: "10000000",
    },
    Campaign {
        name: "stress",
        about: "stress-ng's file system stressors, each for so many seconds; 95 take an hour",
        arguments: &["-p", "node", "--test", "mounted", "--", "stress::"],
        variable: "SINTER_STRESS",
        usual: "95",
    },
    Campaign {
        name: "everything",
        about: "seconds of churn, fsx, stress-ng, trees, SQLite and scrubs at once on one mount",
        arguments: &["-p", "node", "--test", "mounted", "--", "everything::"],
        variable: "SINTER_EVERYTHING",
        usual: "3600",
    },
];

/// The text of `cargo xtask campaign --help`.
pub fn help() -> String {
    let mut text = "cargo xtask campaign NAME [COUNT]\n\n".to_string();
    for campaign in &CAMPAIGNS {
        let Campaign { name, about, variable, usual, .. } = campaign;
        text += &format!("  {name:<10} {about}\n             COUNT is handed over as {variable}; usually {usual}\n");
    }
    text + "\nOther variables of the tests pass through, SINTER_SEED=n for one: the first seed, hence a failed one again.\n"
}

/// The command that runs a campaign.
fn command(name: &str, count: Option<&str>) -> Result<Command, String> {
    let Some(campaign) = CAMPAIGNS.iter().find(|campaign| campaign.name == name) else {
        return Err(format!("no campaign {name}\n\n{}", help()));
    };
    let count = count.unwrap_or(campaign.usual);
    if count.parse::<u64>().is_err() {
        return Err(format!("{count} is not a count"));
    }
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["test", "--release", "--features", "seeded-bugs"]).args(campaign.arguments);
    command.arg("--nocapture").env(campaign.variable, count);
    Ok(command)
}

/// Runs a campaign to its end.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let [name, rest @ ..] = arguments else { return Err(help()) };
    if name == "--help" || name == "help" {
        print!("{}", help());
        return Ok(());
    }
    let mut command = command(name, rest.first().map(String::as_str))?;
    command.current_dir(crate::tree::root());
    println!("{command:?}");
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("campaign {name} failed: {status}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn campaigns_hand_their_count_over() {
        let shown = format!("{:?}", command("kill", Some("7")).expect("there is such a campaign"));
        assert!(shown.contains("SINTER_KILLS=\"7\"") && shown.contains("kill::"), "{shown}");
        let shown = format!("{:?}", command("seeds", None).expect("there is such a campaign"));
        assert!(shown.contains("SINTER_SEEDS=\"10000\""), "{shown}");
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(command("nap", None).is_err() && command("kill", Some("many")).is_err());
    }
}
