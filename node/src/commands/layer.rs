//! `sinter layer`: a volume's layers are listed, put in, taken out and moved by the brick's daemon.

use super::{print, print_json};
use crate::admin::client::{Client, unexpected};
use crate::admin::protocol::{self, Answer, Hop, Layered, Request, Users};
use crate::cli::{self, NewLayer, Place};
use crate::daemon::say;
use crate::failure::{Exit, Failure};
use crate::table::{Align, Table, count, duration};

const MS_NS: u64 = 1_000_000;

/// Asks the daemon, and shows the layers as they are then.
pub fn run(command: &cli::Layer) -> Result<Exit, Failure> {
    let (data, json, request) = match command {
        cli::Layer::List(of) => (&of.data, of.json, Request::LayerList { volume: of.volume.clone() }),
        cli::Layer::Add(add) => {
            let (layer, Place { at, json }) = asked(&add.layer);
            (&add.data, *json, Request::LayerAdd { volume: add.volume.clone(), layer, at: *at })
        }
        cli::Layer::Remove(remove) => {
            let of = &remove.of;
            (&of.data, of.json, Request::LayerRemove { volume: of.volume.clone(), at: remove.position })
        }
        cli::Layer::Move(moved) => {
            let (of, from, to) = (&moved.of, moved.from, moved.to);
            (&of.data, of.json, Request::LayerMove { volume: of.volume.clone(), from, to })
        }
    };
    let mut client = Client::need(data)?;
    // Before they are hung up on, so that they come and learn of the change.
    let users = changed(&request).and_then(|volume| users(&mut client, volume));
    match client.ask(&request)? {
        Answer::Layers(hops) if json => print_json(&hops)?,
        Answer::Layers(hops) if hops.is_empty() => print("no layers\n")?,
        Answer::Layers(hops) => print(&table(&hops))?,
        _ => return Err(unexpected()),
    }
    users.iter().flat_map(followers).for_each(|line| say(&line));
    Ok(Exit::Done)
}

/// The volume whose layers a request changes.
fn changed(request: &Request) -> Option<&str> {
    match request {
        Request::LayerAdd { volume, .. } | Request::LayerRemove { volume, .. } | Request::LayerMove { volume, .. } => {
            Some(volume)
        }
        _ => None,
    }
}

/// The users of a volume that clients of other machines have. A daemon that can't tell is no reason to change nothing.
fn users(client: &mut Client, volume: &str) -> Option<Users> {
    let Ok(Answer::Status(status)) = client.ask(&Request::Status) else { return None };
    status.users.into_iter().find(|users| users.volume == volume)
}

/// Lines that tell which clients follow a change, and when.
fn followers(users: &Users) -> Vec<String> {
    let line = |when: &str, names: &[String]| {
        (!names.is_empty()).then(|| format!("these clients follow {when}: {}", names.join(", ")))
    };
    let lines = [line("within seconds", &users.clients), line("when they are heard of again", &users.silent)];
    lines.into_iter().flatten().collect()
}

fn asked(layer: &NewLayer) -> (protocol::Layer, &Place) {
    match layer {
        NewLayer::ReadOnly { place } => (protocol::Layer::ReadOnly, place),
        NewLayer::Delay { ms, operation, place } => {
            (protocol::Layer::Delay { operation: operation.clone(), ns: ms * MS_NS }, place)
        }
        NewLayer::Fault { error, every, operation, place } => {
            let (operation, error) = (operation.clone(), error.clone());
            (protocol::Layer::Fault { operation, error, every: *every }, place)
        }
    }
}

const FIGURES: [(&str, Align); 7] = [
    ("position", Align::Right),
    ("layer", Align::Left),
    ("parameters", Align::Left),
    ("calls", Align::Right),
    ("answered", Align::Right),
    ("changed", Align::Right),
    ("held (mean)", Align::Right),
];

fn table(hops: &[Hop]) -> String {
    let mut table = Table::new(&FIGURES);
    hops.iter().for_each(|hop| table.row(row(hop)));
    table.render()
}

/// The layers of several volumes.
pub fn table_of_volumes(volumes: &[Layered]) -> String {
    let columns: Vec<_> = [("volume", Align::Left)].into_iter().chain(FIGURES).collect();
    let mut table = Table::new(&columns);
    for Layered { volume, layers } in volumes {
        layers.iter().for_each(|hop| table.row([vec![volume.clone()], row(hop)].concat()));
    }
    table.render()
}

fn row(hop: &Hop) -> Vec<String> {
    let (name, parameters) = match &hop.layer {
        protocol::Layer::ReadOnly => ("read-only", String::new()),
        protocol::Layer::Delay { operation, ns } => ("delay", format!("{}: {}", of(operation), duration(*ns))),
        protocol::Layer::Fault { operation, error, every } => {
            ("fault", format!("{}: {error}, one in {}", of(operation), count(*every)))
        }
    };
    let counts = [hop.calls, hop.answered, hop.changed].map(count);
    let mut cells = vec![hop.position.to_string(), name.to_string(), parameters];
    cells.extend(counts);
    cells.push(duration(hop.held_mean_ns));
    cells
}

fn of(operation: &Option<String>) -> &str {
    operation.as_deref().unwrap_or("all")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_read_well() {
        let hop =
            |position, layer, held_mean_ns| Hop { position, layer, calls: 1200, answered: 1, changed: 2, held_mean_ns };
        let delay = protocol::Layer::Delay { operation: Some("read".into()), ns: 5_000_000 };
        let fault = protocol::Layer::Fault { operation: None, error: "io".into(), every: 100 };
        let layers = vec![hop(1, protocol::Layer::ReadOnly, 30), hop(2, delay, 5_000_000), hop(3, fault, 40)];
        let expected = "\
position  layer      parameters           calls  answered  changed  held (mean)
       1  read-only                       1,200         1        2        30 ns
       2  delay      read: 5.00 ms        1,200         1        2      5.00 ms
       3  fault      all: io, one in 100  1,200         1        2        40 ns
";
        assert_eq!(table(&layers), expected);
        let users = Users { clients: vec!["a".into(), "b".into()], silent: vec!["c".into()], ..Users::default() };
        let lines =
            ["these clients follow within seconds: a, b", "these clients follow when they are heard of again: c"];
        assert_eq!(followers(&users), lines);
        assert!(followers(&Users::default()).is_empty());
        let volumes = [Layered { volume: "home".into(), layers: layers[..1].to_vec() }];
        let expected = "\
volume  position  layer      parameters  calls  answered  changed  held (mean)
home           1  read-only              1,200         1        2        30 ns
";
        assert_eq!(table_of_volumes(&volumes), expected);
    }
}
