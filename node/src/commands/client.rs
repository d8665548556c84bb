//! `sinter client`: clients of a brick, and joining as one.

use super::token::{ask, left, listed, rights};
use super::{print, print_json};
use crate::admin::client::unexpected;
use crate::admin::protocol::{Answer, Joined, NetworkRequest};
use crate::cli::{ClientCommand, ClientJoin, ClientRevoke};
use crate::failure::{Exit, Failure};
use crate::join;
use crate::table::{Align, Table};
use control::{ClientName, Role, Token};
use std::io::BufRead;

/// Asks the daemon, or joins a server.
pub fn run(command: &ClientCommand) -> Result<Exit, Failure> {
    match command {
        ClientCommand::Join(options) => join(options)?,
        ClientCommand::List(options) => {
            let Answer::Clients(clients) = ask(&options.data, NetworkRequest::Clients)? else {
                return Err(unexpected());
            };
            listed(options.json, &clients, "no clients", table)?;
        }
        ClientCommand::Revoke(options) => revoke(options)?,
    }
    Ok(Exit::Done)
}

fn revoke(options: &ClientRevoke) -> Result<(), Failure> {
    let name = options.name.clone();
    ask(&options.data, NetworkRequest::RevokeClient { name })?;
    match options.json {
        true => print_json(&serde_json::json!({ "revoked": options.name })),
        false => print(&format!("revoked client {}: what it had mounted has ended\n", options.name)),
    }
}

fn join(options: &ClientJoin) -> Result<(), Failure> {
    let failed = |error: base::Error| Failure::of("can't join", &error);
    let token: Token = read_token(&options.token)?.parse().map_err(|error| failed(error).exit(Exit::Usage))?;
    if token.role != Role::Client {
        let failure = Failure::new(Exit::Usage, "this is the token of a cluster's node");
        return Err(failure
            .next("sinter cluster join TOKEN --data DIR; one for clients: sinter token create DATA --volume VOLUME"));
    }
    let name = match &options.name {
        Some(name) => name.parse::<ClientName>().map_err(failed)?,
        None => token.name.clone(),
    };
    let client = match &options.client {
        Some(client) => client.parse::<ClientName>(),
        None => crate::network::own_name(),
    };
    let client = client.map_err(failed)?;
    let membership = join::join(&options.directory, &name, &client, token)?;
    let file = options.directory.join(format!("{name}.toml"));
    if options.json {
        let (cluster, name) = (membership.cluster.to_string(), name.to_string());
        let client = client.to_string();
        return print_json(&serde_json::json!({ "name": name, "client": client, "cluster": cluster, "file": file }));
    }
    print(&format!(
        "joined {name} as {client}, as {} says. To mount a volume that the token is for:\n  sinter mount {name}/VOLUME DIRECTORY\n",
        file.display()
    ))
}

/// The token as it was given; a dash is for a line of standard input, which no list of processes shows.
pub(super) fn read_token(given: &str) -> Result<String, Failure> {
    if given != "-" {
        return Ok(given.to_string());
    }
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.map(|_| line).map_err(|error| Failure::io("can't read the token from standard input", &error))
}

fn table(clients: &[Joined], now_s: u64) -> String {
    let columns = ["name", "state", "certificate for", "volumes", "mounted"].map(|name| (name, Align::Left));
    let mut table = Table::new(&columns);
    for client in clients {
        let state = match (client.revoked_s, client.mounted.values().any(|connected| *connected)) {
            (Some(_), _) => "revoked",
            (None, true) => "connected",
            (None, false) => "away",
        };
        table.row(vec![
            client.name.clone(),
            state.to_string(),
            left(client.valid_until_s, now_s),
            rights(&client.volumes),
            client.mounted.keys().cloned().collect::<Vec<_>>().join(", "),
        ]);
    }
    table.render()
}
