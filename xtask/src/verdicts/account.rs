//! Is the clients' time accounted for? What the daemon's ledger and the estimate of the kernel's part tell, beside what fio measures.

use super::asked::Asked;
use super::brick::Brick;
use super::load::{Load, READ, Sync};
use crate::flash::ground::text;
use crate::flash::undo::Undo;
use serde_json::{Value, json};
use std::process::{Command, Stdio};

/// Seconds for which the load runs before `explain` looks, and after it.
const AROUND: u64 = 1;

/// The loads, by name, and the operation that they are to the daemon.
const LOADS: [(&str, &str, Load); 6] = [
    ("random read, depth 1", "read", READ),
    ("random read, depth 32", "read", Load { depth: 32, ..READ }),
    ("random write, depth 1", "write-direct", WRITE),
    ("random write, depth 32", "write-direct", Load { depth: 32, ..WRITE }),
    ("random write, O_DSYNC, depth 1", "write-sync", Load { sync: Sync::Each, ..WRITE }),
    ("random write, O_DSYNC, depth 32", "write-sync", Load { sync: Sync::Each, depth: 32, ..WRITE }),
];
const WRITE: Load = Load { pattern: "randwrite", ..READ };

/// A load's mean latency, as its client has it and as it is accounted for; in microseconds.
pub struct Account {
    name: &'static str,
    client_us: f64,
    daemon_us: f64,
    kernel_us: f64,
}

impl Account {
    /// It as a line.
    pub fn line(&self) -> String {
        let Account { name, client_us, daemon_us, kernel_us } = self;
        let (sum, part) = (daemon_us + kernel_us, (daemon_us + kernel_us) / client_us);
        format!(
            "{name:<32} client {client_us:>8.1} us, daemon {daemon_us:>8.1}, kernel {kernel_us:>7.1}, sum {sum:>8.1}: {part:.3}"
        )
    }
    /// It as JSON.
    pub fn json(&self) -> Value {
        let Account { name, client_us, daemon_us, kernel_us } = self;
        json!({ "load": name, "client_us": client_us, "daemon_us": daemon_us, "kernel_us": kernel_us })
    }
}

/// Runs each load, and has it explained meanwhile.
pub fn run(asked: &Asked, brick: &Brick, undo: &Undo) -> Result<Vec<Account>, String> {
    let mut accounts = Vec::new();
    for (name, operation, load) in LOADS {
        let line = format!(
            "sleep {AROUND}; exec '{}' explain '{}' --seconds {} --json",
            text(&brick.binary),
            text(&brick.data),
            asked.seconds
        );
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", &line]).stdin(Stdio::null()).stdout(Stdio::piped());
        let explaining = command.spawn().map_err(|error| format!("sh: {error}"))?;
        let said = load.measure(&brick.file(), asked.seconds + 2 * AROUND, undo)?;
        let told = explaining.wait_with_output().map_err(|error| format!("sinter explain: {error}"))?;
        let told: Value = serde_json::from_slice(&told.stdout).map_err(|error| format!("sinter explain: {error}"))?;
        let account = account(name, operation, said.mean_us, &told)?;
        eprintln!("{}", account.line());
        accounts.push(account);
    }
    Ok(accounts)
}

fn account(name: &'static str, operation: &str, client_us: f64, told: &Value) -> Result<Account, String> {
    let all = told["operations"].as_array().ok_or("sinter explain told no operations")?;
    let one = all.iter().find(|one| one["name"] == operation);
    let mean_ns = one.and_then(|one| one["mean_ns"].as_f64()).ok_or(format!("{name}: no {operation} was told"))?;
    let kernel_ns = told["transport_ns"].as_f64().ok_or("the kernel was not asked: mount fusectl can't be opened")?;
    Ok(Account { name, client_us, daemon_us: mean_ns / 1000.0, kernel_us: kernel_ns / 1000.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_adds_up() {
        let told = json!({ "operations": [{ "name": "read", "mean_ns": 80_000 }], "transport_ns": 15_500 });
        let account = account("a load", "read", 100.0, &told).expect("it is whole");
        assert!(account.line().ends_with("0.955"), "{}", account.line());
        assert_eq!(account.json()["kernel_us"], 15.5);
        assert!(super::account("a load", "write", 100.0, &told).is_err());
    }
}
