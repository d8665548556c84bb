//! Programs that people run, on a real mount: what they wrote is what they read, and what they were told is durable is
//! there after a crash of the daemon. The long ones are run by hand (`cargo test ... --test programs -- --ignored`).

#[path = "programs/postgres.rs"]
mod postgres;
#[path = "programs/told.rs"]
mod told;

use crate::daemon::{Daemon, Home, Scratch, text};
use crate::tree;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use told::Told;

/// Runs a script in a directory; it must succeed. Its standard output.
fn shell(directory: &Path, script: &str) -> String {
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", script]).current_dir(directory).stdin(Stdio::null());
    // Nothing of whoever runs the test decides what the programs do.
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    let output = command.output().expect("bash is installed");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}: {:?}\n{said}{errors}", output.status);
    said.into_owned()
}

/// A daemon whose device forgets what was not flushed when it is killed, where the build can do that.
fn volatile(home: &Home) -> Daemon {
    let volatile = [("SINTER_TEST_VOLATILE_CACHE", "1")];
    home.up_with(if cfg!(feature = "seeded-bugs") { &volatile } else { &[] })
}

#[test]
fn git_clones_packs_and_finds_all_objects_after_a_kill() {
    let home = Home::new("git");
    let daemon = volatile(&home);
    let repository = home.mount.join("one");
    std::fs::create_dir(&repository).expect("mkdir");
    tree::make(&repository, 400, 7);
    std::fs::remove_dir(repository.join("empty")).expect("git keeps no empty directory");
    let commit = "git add -A; git -c user.name=Sinter -c user.email=sinter@localhost -c core.fsync=all commit -qm";
    shell(&repository, &format!("git init -q; {commit} first"));
    for round in 0..5 {
        let files = format!("git ls-files -z | sed -z -n '{round}~7p'");
        let change = "while IFS= read -r -d '' file; do [ -L \"$file\" ] || echo changed >> \"$file\"; done";
        shell(&repository, &format!("{files} | {change}; {commit} round{round}"));
    }
    shell(&home.mount, "git clone -q --no-hardlinks one two; git -C two gc -q; git -C two fsck --full --strict");
    shell(&home.mount, "diff -r --no-dereference --exclude .git one two; git -C one fsck --full --strict");
    // The clone is not synced by git; after a second all is durable by itself (rule U3).
    std::thread::sleep(Duration::from_secs(2));
    daemon.kill();
    let daemon = home.up();
    shell(&home.mount, "git -C one fsck --full --strict; git -C two fsck --full --strict");
    shell(
        &home.mount,
        "git -C one status --porcelain | wc -l | grep -qx 0; git -C two status --porcelain | wc -l | grep -qx 0",
    );
    daemon.terminate();
    home.check();
}

#[test]
fn tar_and_rsync_bring_back_what_they_took() {
    let home = Home::new("copies");
    let daemon = home.up();
    let source = Scratch::new("copies-source");
    tree::make(source.path(), 1_000, 9);
    let (from, mount) = (text(source.path()), &home.mount);
    shell(
        mount,
        &format!("tar -C {from} --acls --xattrs -cf all.tar .; mkdir tar; tar -C tar --acls --xattrs -xpf all.tar"),
    );
    tree::compare(source.path(), &mount.join("tar"));
    shell(mount, &format!("rsync -aHAX {from}/ rsync/"));
    tree::compare(source.path(), &mount.join("rsync"));
    // Times of a nanosecond come back, so nothing has to be taken again.
    assert_eq!(shell(mount, &format!("rsync -aHAX --itemize-changes {from}/ rsync/")), "");
    assert_eq!(shell(mount, "rsync -aHAX --itemize-changes --checksum --delete tar/ rsync/"), "");
    daemon.terminate();
    home.check();
}

/// Every transaction that sqlite3 has said is committed is there after a crash, with each kind of journal.
#[test]
fn sqlite_keeps_what_it_has_committed() {
    let home = Home::new("sqlite");
    for (round, journal) in ["delete", "wal", "truncate", "wal"].into_iter().enumerate() {
        let daemon = volatile(&home);
        let file = home.mount.join(format!("{journal}.db"));
        let setup =
            format!("PRAGMA journal_mode={journal}; CREATE TABLE IF NOT EXISTS told (number INTEGER, filler TEXT);");
        shell(&home.mount, &format!("sqlite3 {} '{setup}' >/dev/null", text(&file)));
        let mut sqlite = Command::new("stdbuf");
        sqlite.args(["-oL", "sqlite3", "-cmd", ".timeout 5000", text(&file)]);
        let insert =
            |number| format!("INSERT INTO told VALUES ({number}, hex(randomblob(300))); SELECT 'told', {number};\n");
        // Of the kinds of journal only WAL is kept in the file. With FULL no sync follows the unlink of a journal, which
        // is the commit of kind `delete`: a power cut may undo the last transaction then, on any file system.
        let ask = format!("PRAGMA journal_mode={journal}; PRAGMA synchronous=EXTRA;\n");
        let told = Told::start(sqlite, &ask, insert, "told|");
        told.wait_for(300 + 100 * round as u64);
        daemon.kill();
        let last = told.end();
        let daemon = home.up();
        let query = "PRAGMA integrity_check; SELECT count(DISTINCT number) FROM told WHERE number <=";
        let said = shell(&home.mount, &format!("sqlite3 {} '{query} {last}'", text(&file)));
        assert_eq!(said, format!("ok\n{last}\n"), "{journal}");
        daemon.terminate();
    }
    home.check();
}

/// Its own checksums find nothing, its sums agree, and every transaction that a client was told of is there.
#[test]
fn postgres_recovers_from_a_kill_of_the_daemon() {
    let home = Home::new("postgres");
    let daemon = volatile(&home);
    let server = postgres::Server::create(&home.mount.join("pg"), home.scratch.path());
    server.start();
    server.bench(&["-i", "-s", "5", "-q"]);
    server.bench(&["-n", "-c", "4", "-j", "2", "-T", "3"]);
    let load = server.bench_beside(600);
    let told = server.told();
    told.wait_for(300);
    daemon.kill();
    let last = told.end();
    server.kill();
    load.end();
    let daemon = home.up();
    server.recover();
    server.verify(last);
    server.bench(&["-n", "-c", "4", "-j", "2", "-T", "3"]);
    server.verify(last);
    server.stop();
    server.verify_checksums();
    daemon.terminate();
    home.check();
}

#[test]
#[ignore = "takes minutes: it builds this repository's crates that need no RocksDB, and runs tests of some"]
fn cargo_builds_and_tests_this_repository() {
    let home = Home::new("cargo");
    let daemon = home.up();
    // Tests run in their package's directory.
    let source = std::env::current_dir().expect("it is there");
    let source = source.parent().map(text).expect("the package lies in the repository");
    shell(
        &home.mount,
        &format!("mkdir source; tar -C {source} --exclude ./target --exclude ./.git -cf - . | tar -C source -xf -"),
    );
    let build =
        "CARGO_TARGET_DIR=$PWD/../target cargo test --quiet --release --locked -p base -p store -p names -p group";
    println!("{}", shell(&home.mount.join("source"), build));
    daemon.terminate();
    home.check();
}

#[test]
#[ignore = "needs the network: npm takes packages from its registry"]
fn npm_installs() {
    let home = Home::new("npm");
    let daemon = home.up();
    std::fs::create_dir(home.mount.join("project")).expect("mkdir");
    let project = home.mount.join("project");
    let packages = "typescript eslint webpack webpack-cli express";
    shell(
        &project,
        &format!(
            "npm init -y >/dev/null; npm install --no-audit --no-fund --omit-lockfile-registry-resolved=false \
             --cache $PWD/../cache {packages} >/dev/null"
        ),
    );
    shell(&project, "npm ls --all >/dev/null; npx --no-install tsc --version; node -e \"require('express')()\"");
    shell(
        &project,
        "npm cache verify --cache $PWD/../cache; rm -rf node_modules; npm ci --offline --no-audit --no-fund --cache $PWD/../cache >/dev/null",
    );
    daemon.terminate();
    home.check();
}
