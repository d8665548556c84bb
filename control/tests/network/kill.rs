//! A real process on real files, killed again and again: what it has answered is there afterwards.

use super::scratch::{Scratch, lock};
use super::*;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The variable that makes a process of this test the one that is killed.
const DIRECTORY: &str = "SINTER_TEST_CONTROL_DIRECTORY";
const ROUNDS: u64 = 25;
/// Rounds until a slow machine has come to work.
const ROUNDS_MAX: u64 = 300;

#[test]
fn what_a_killed_process_has_answered_is_there() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        serve(directory.as_ref());
    }
    let scratch = Scratch::new();
    drop(Network::create(scratch.lock().expect("free"), CLUSTER, BRICK, NOW_S).expect("empty"));
    let (mut joined, mut revoked) = (Vec::new(), Vec::new());
    let is_enough = |joined: usize, revoked: usize| joined > 20 && revoked > 5;
    for round in 0..ROUNDS_MAX {
        if round >= ROUNDS && is_enough(joined.len(), revoked.len()) {
            break;
        }
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "kill::what_a_killed_process_has_answered_is_there", "--nocapture"])
            .env(DIRECTORY, scratch.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let killer = std::thread::spawn(move || {
            // Longer each time, so that some are killed at once and some amid their work.
            std::thread::sleep(Duration::from_micros(3_000 + round % 30 * 3_731));
            child.kill().expect("it runs until then");
            child.wait().expect("it was killed");
        });
        for line in output.lines() {
            let line = line.expect("text");
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            match words[..] {
                ["joined", name, serial] => joined.push((name.to_string(), serial.to_string())),
                ["revoked", name] => revoked.push(name.to_string()),
                _ => {}
            }
        }
        killer.join().expect("it has killed");
        let network = Network::open(scratch.lock().expect("the dead hold no lock")).expect("whole");
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
    assert!(is_enough(joined.len(), revoked.len()), "it came to work: {} and {}", joined.len(), revoked.len());
}

/// Lets clients in and revokes them, and says so, until it is killed.
fn serve(directory: &std::path::Path) -> ! {
    let mut network = Network::open(lock(directory).expect("the one before is dead")).expect("whole");
    let mut said = std::io::stdout();
    let first = network.clients().len() as u64;
    for number in first.. {
        let (name, secret) =
            (format!("c{number}"), Secret(u128::from(std::process::id() as u64 * 10_000 + number).to_le_bytes()));
        network.create_token(wish(&[1]), secret, addresses(), NOW_S).expect("room");
        let chain = network.admit(&secret, &request(&key()), &name, NOW_S).expect("invited");
        writeln!(said, "joined {name} {}", identity(&chain).serial).expect("the parent reads");
        if number % 3 == 0 {
            network.revoke_client(&name, NOW_S).expect("just joined");
            writeln!(said, "revoked {name}").expect("the parent reads");
        }
    }
    unreachable!("numbers don't end")
}
