//! A real process on real files, killed again and again: what it has answered is there afterwards.

use super::scratch::{Scratch, lock};
use super::*;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// The variable that makes a process of this test the one that is killed.
const DIRECTORY: &str = "SINTER_TEST_CONTROL_DIRECTORY";
const ROUNDS: u64 = 25;

#[test]
fn what_a_killed_process_has_answered_is_there() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        serve(directory.as_ref());
    }
    let scratch = Scratch::new();
    drop(Network::create(scratch.lock().expect("free"), CLUSTER, BRICK, NOW_S).expect("empty"));
    let (mut joined, mut revoked) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "kill::what_a_killed_process_has_answered_is_there", "--nocapture"])
            .env(DIRECTORY, scratch.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut take = |line: std::io::Result<String>| {
            let line = line.expect("text");
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            match words[..] {
                ["joined", name, serial] => joined.push((name.to_string(), serial.to_string())),
                ["revoked", name] => revoked.push(name.to_string()),
                _ => {}
            }
        };
        // It has said something, and is at its next change: now a little time, another one in each round.
        lines.by_ref().take(8).for_each(&mut take);
        (0..round).for_each(|_| drop(key()));
        child.kill().expect("it runs until then");
        lines.for_each(take);
        child.wait().expect("it was killed");
        let network = reopen(scratch.lock().expect("the dead hold no lock")).expect("whole");
        for (name, serial) in &joined {
            let client = &network.clients()[&name.parse::<ClientName>().expect("a name")];
            assert!(client.certificates.iter().any(|it| it.serial.to_string() == *serial), "{name} was let in");
            let uses = network.tokens().iter().flat_map(|token| &token.used).filter(|it| it.name.as_str() == name);
            assert_eq!(uses.count(), 1, "{name} used one token up");
        }
        for name in &revoked {
            assert!(network.clients()[&name.parse::<ClientName>().expect("a name")].revoked_s.is_some(), "{name}");
        }
    }
    assert!(joined.len() > 50 && revoked.len() > 12, "it came to work: {} and {}", joined.len(), revoked.len());
}

/// Lets clients in and revokes them, and says so, until it is killed.
fn serve(directory: &std::path::Path) -> ! {
    let mut network = reopen(lock(directory).expect("the one before is dead")).expect("whole");
    let mut said = std::io::stdout();
    let first = network.clients().len() as u64;
    for number in first.. {
        let (name, secret) =
            (format!("c{number}"), Secret(u128::from(std::process::id() as u64 * 10_000 + number).to_le_bytes()));
        network.create_token(wish(&[1]), secret, place(), NOW_S).expect("room");
        let chain = network.admit(&secret, &request(&key()), &name, NOW_S).expect("invited");
        writeln!(said, "joined {name} {}", identity(&chain).serial).expect("the parent reads");
        if number % 3 == 0 {
            network.revoke_client(&name, NOW_S).expect("just joined");
            writeln!(said, "revoked {name}").expect("the parent reads");
        }
    }
    unreachable!("numbers don't end")
}
