//! `sinter token`: tokens, with which other machines join.

use super::{print, print_json};
use crate::admin::client::{Client, unexpected};
use crate::admin::protocol::{Answer, Granted, Invited, NetworkRequest, Request, TokenMade};
use crate::cli::{TokenCommand, TokenCreate};
use crate::failure::{Exit, Failure};
use crate::table::{Align, Table};
use serde::Serialize;
use std::path::Path;
use std::time::SystemTime;

/// Asks the daemon.
pub fn run(command: &TokenCommand) -> Result<Exit, Failure> {
    match command {
        TokenCommand::Create(options) => create(options)?,
        TokenCommand::List(options) => {
            let Answer::Tokens(tokens) = ask(&options.data, NetworkRequest::Tokens)? else {
                return Err(unexpected());
            };
            listed(options.json, &tokens, "no tokens", table)?;
        }
        TokenCommand::Revoke(options) => {
            let id = options.id.clone();
            ask(&options.data, NetworkRequest::RevokeToken { id })?;
            match options.json {
                true => print_json(&serde_json::json!({ "revoked": options.id }))?,
                false => print(&format!("revoked token {}; who has joined with it stays\n", options.id))?,
            }
        }
    }
    Ok(Exit::Done)
}

/// Prints a list: JSON, or the table of what there is at this time.
pub(super) fn listed<T: Serialize>(
    json: bool,
    items: &[T],
    none: &str,
    table: impl FnOnce(&[T], u64) -> String,
) -> Result<(), Failure> {
    match items {
        _ if json => print_json(&items),
        [] => print(&format!("{none}\n")),
        _ => print(&table(items, now_s())),
    }
}

/// Asks the daemon of a brick, which has to listen.
pub(super) fn ask(data: &Path, ask: NetworkRequest) -> Result<Answer, Failure> {
    Client::need(data)?.ask(&Request::Network { ask })
}

fn create(options: &TokenCreate) -> Result<(), Failure> {
    let request = NetworkRequest::CreateToken {
        volumes: options.volume.clone(),
        read_only: options.read_only,
        squash_root: options.root_squash,
        life_s: options.ttl,
        uses: options.uses,
        addresses: options.address.clone(),
    };
    let Answer::Token(made) = ask(&options.data, request)? else { return Err(unexpected()) };
    if options.json {
        return print_json(&made);
    }
    let TokenMade { id, token, addresses, .. } = &made;
    let machines = if options.uses == 1 { "one machine".to_string() } else { format!("{} machines", options.uses) };
    let life = span(options.ttl);
    print(&format!(
        "{token}\n\nToken {id} lets {machines} join within {life}, at {}. It is a secret. On the other machine:\n  \
         sinter client join {token}\n",
        addresses.join(" or ")
    ))
}

/// The time in seconds since 1970.
pub(super) fn now_s() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}

/// Rights as a cell of a table.
pub(super) fn rights(volumes: &[Granted]) -> String {
    let one = |granted: &Granted| {
        let limits = [(granted.read_only, "read-only"), (granted.squash_root, "root squashed")];
        let limits: Vec<&str> = limits.iter().filter_map(|(is_there, name)| is_there.then_some(*name)).collect();
        match limits.is_empty() {
            true => granted.volume.clone(),
            false => format!("{} ({})", granted.volume, limits.join(", ")),
        }
    };
    volumes.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The time until then, or `over`.
pub(super) fn left(until_s: u64, now_s: u64) -> String {
    match until_s.checked_sub(now_s) {
        None | Some(0) => "over".to_string(),
        Some(left_s) => span(left_s),
    }
}

/// A time in the largest unit of which it has two.
fn span(seconds: u64) -> String {
    let units = [(86_400, "days"), (3600, "h"), (60, "min")];
    let unit = units.into_iter().find(|(unit_s, _)| seconds >= 2 * unit_s);
    let (unit_s, name) = unit.unwrap_or((1, "s"));
    format!("{} {name}", seconds / unit_s)
}

fn table(tokens: &[Invited], now_s: u64) -> String {
    let columns = ["id", "state", "works for", "uses", "used by", "volumes"].map(|name| (name, Align::Left));
    let mut table = Table::new(&columns);
    for token in tokens {
        let used = token.used_by.len();
        let state = match (token.revoked_s, token.expires_s <= now_s) {
            (Some(_), _) => "revoked",
            (None, true) => "expired",
            _ if used >= token.uses as usize => "used up",
            _ => "good",
        };
        table.row(vec![
            token.id.clone(),
            state.to_string(),
            left(token.expires_s, now_s),
            format!("{used} of {}", token.uses),
            token.used_by.join(", "),
            rights(&token.volumes),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_of_which_there_are_two() {
        assert_eq!([86_400, 119, 120, 2 * 86_400].map(span), ["24 h", "119 s", "2 min", "2 days"]);
        assert_eq!((left(5, 5), left(6, 5)), ("over".to_string(), "1 s".to_string()));
    }

    #[test]
    fn tokens_read_well() {
        let volumes = vec![
            Granted { volume: "home".into(), read_only: true, squash_root: true },
            Granted { volume: "work".into(), read_only: false, squash_root: false },
        ];
        let good =
            Invited { id: "aa".into(), volumes, expires_s: 3700, uses: 2, used_by: vec!["c1".into()], revoked_s: None };
        let states = [
            (good.clone(), "good"),
            (Invited { revoked_s: Some(1), ..good.clone() }, "revoked"),
            (Invited { expires_s: 100, ..good.clone() }, "expired"),
            (Invited { uses: 1, ..good.clone() }, "used up"),
        ];
        for (token, state) in states {
            let text = table(&[token], 100);
            let row: Vec<&str> =
                text.lines().nth(1).expect("a row").split("  ").filter(|cell| !cell.is_empty()).collect();
            assert_eq!(row[1].trim(), state, "{text}");
            assert!(text.contains("home (read-only, root squashed), work"), "{text}");
        }
    }
}
