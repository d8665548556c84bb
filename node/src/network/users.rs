//! The users of volumes that clients of other machines have, as `sinter status` tells them.

use crate::admin::protocol::{Attached, Mounted, Users};
use std::collections::BTreeMap;

/// The users of each volume that a client has a session for.
pub fn users(attached: &[Attached], mounts: &[Mounted]) -> Vec<Users> {
    let mut volumes: BTreeMap<&str, Users> = BTreeMap::new();
    for session in attached {
        let of = volumes.entry(&session.volume).or_insert_with(|| Users {
            volume: session.volume.clone(),
            here: mounts.iter().any(|mounted| mounted.volume == session.volume),
            ..Users::default()
        });
        let list = if session.connected { &mut of.clients } else { &mut of.silent };
        list.push(session.client.clone());
        // Sessions come in any order.
        list.sort();
    }
    let counted = volumes.into_values().map(|users| {
        // Nobody takes one that is silent into account for long: it has to ask before it goes on.
        let shared = users.clients.len() + usize::from(users.here) > 1;
        Users { shared, ..users }
    });
    counted.collect()
}

impl Users {
    /// A line: `home: shared by desk, lab and this machine; attic is silent`.
    pub fn told(&self) -> String {
        let own = self.here.then_some("this machine");
        let there: Vec<&str> = self.clients.iter().map(String::as_str).chain(own).collect();
        let silent: Vec<&str> = self.silent.iter().map(String::as_str).collect();
        let awake = match there.as_slice() {
            [] => None,
            [one] => Some(format!("{one} alone")),
            _ => Some(format!("shared by {}", listed(&there))),
        };
        let asleep = match silent.len() {
            0 => None,
            1 => Some(format!("{} is silent", listed(&silent))),
            _ => Some(format!("{} are silent", listed(&silent))),
        };
        format!("{}: {}", self.volume, awake.into_iter().chain(asleep).collect::<Vec<_>>().join("; "))
    }
}

/// Names as they are read out: `a, b and c`.
fn listed(names: &[&str]) -> String {
    match names.split_last() {
        Some((last, [])) => last.to_string(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_told_by_volume() {
        let attached = |(client, volume, connected): (&str, &str, bool)| Attached {
            client: client.into(),
            volume: volume.into(),
            connected,
        };
        let all = [("desk", "a", true), ("desk", "b", true), ("lab", "b", true), ("attic", "b", false)];
        let more = [("lab", "c", true), ("attic", "d", false), ("cellar", "d", false)];
        let sessions: Vec<_> = all.into_iter().chain(more).map(attached).collect();
        let mounts = ["b", "c", "e"].map(|volume| Mounted { volume: volume.into(), ..Mounted::default() });
        let users = users(&sessions, &mounts);
        let told: Vec<String> = users.iter().map(Users::told).collect();
        let lines = [
            "a: desk alone",
            "b: shared by desk, lab and this machine; attic is silent",
            "c: shared by lab and this machine",
            "d: attic and cellar are silent",
        ];
        assert_eq!(told, lines);
        assert_eq!(users.iter().map(|users| users.shared).collect::<Vec<_>>(), [false, true, true, false]);
    }
}
