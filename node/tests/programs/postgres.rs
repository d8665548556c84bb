//! A PostgreSQL server of its own, as the user `postgres`.

use super::told::Told;
use crate::daemon::{system, text};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A server's data and where its programs are.
pub struct Server {
    programs: PathBuf,
    data: PathBuf,
    /// Holds the socket and the server's own messages.
    beside: PathBuf,
}

/// A program that runs beside the test.
pub struct Beside(Child);

impl Beside {
    /// Ends it, if it has not ended by itself.
    pub fn end(mut self) {
        drop(self.0.kill());
        self.0.wait().expect("it can be waited for");
    }
}

impl Server {
    /// A new database cluster with checksums.
    pub fn create(data: &Path, scratch: &Path) -> Server {
        let versions = std::fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL is installed");
        let newest = versions.map(|entry| entry.expect("readable").path()).max().expect("there is a version");
        let beside = scratch.join("postgres");
        for directory in [data, &beside] {
            std::fs::create_dir(directory).expect("mkdir");
            system("chown", &["postgres:", text(directory)]);
        }
        let server = Server { programs: newest.join("bin"), data: data.to_path_buf(), beside };
        server.run("initdb", &["--data-checksums", "--auth", "trust", "--no-instructions", "-D", text(data)]);
        let socket = format!("unix_socket_directories = '{}'\nlisten_addresses = ''\n", text(&server.beside));
        let configuration = data.join("postgresql.conf");
        let before = std::fs::read_to_string(&configuration).expect("initdb wrote it");
        std::fs::write(&configuration, before + &socket).expect("writable");
        server
    }
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--", text(&self.programs.join(program))]);
        command.env("PGHOST", &self.beside).env("PGDATABASE", "postgres").current_dir(&self.beside);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program).args(arguments).output().expect("runuser is installed");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        let log = std::fs::read_to_string(self.beside.join("log")).unwrap_or_default();
        assert!(output.status.success(), "{program} {arguments:?}: {said}{errors}\n{log}");
        said
    }
    /// Starts it after it was killed.
    pub fn recover(&self) {
        // Where nobody has waited for the killed process yet, it would say that it still runs.
        for lock in [self.data.join("postmaster.pid"), self.beside.join(".s.PGSQL.5432.lock")] {
            drop(std::fs::remove_file(lock));
        }
        self.start();
    }
    /// Starts it.
    pub fn start(&self) {
        let log = self.beside.join("log");
        self.run("pg_ctl", &["-D", text(&self.data), "-l", text(&log), "-t", "120", "-w", "-s", "start"]);
    }
    /// Stops it in order.
    pub fn stop(&self) {
        self.run("pg_ctl", &["-D", text(&self.data), "-m", "fast", "-w", "-s", "stop"]);
    }
    /// Kills what is left of it.
    pub fn kill(&self) {
        // Its directory answers no more: only its processes know where they belong.
        let pattern = format!("postgres -D {}", text(&self.data));
        let find = || Command::new("pgrep").args(["-f", &pattern]).output().expect("pgrep is installed").stdout;
        for _ in 0..100 {
            let found = String::from_utf8(find()).expect("numbers");
            if found.is_empty() {
                return;
            }
            found.lines().for_each(|pid| drop(Command::new("kill").args(["-KILL", pid]).status()));
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("the server does not end");
    }
    /// Runs pgbench to its end; unless told `-n`, it empties its history first.
    pub fn bench(&self, arguments: &[&str]) {
        let said = self.run("pgbench", arguments);
        println!("{said}");
    }
    /// Runs pgbench beside the test.
    pub fn bench_beside(&self, seconds: u32) -> Beside {
        let mut command = self.command("pgbench");
        command.args(["-n", "-c", "3", "-T", &seconds.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        Beside(command.spawn().expect("runuser is installed"))
    }
    /// A client that is told which of its transactions are committed.
    pub fn told(&self) -> Told {
        self.run("psql", &["-qc", "CREATE TABLE told (number int)"]);
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "runuser", "-u", "postgres", "--", text(&self.programs.join("psql")), "-qAt"]);
        command.env("PGHOST", &self.beside).env("PGDATABASE", "postgres").current_dir(&self.beside);
        let insert = |number| format!("INSERT INTO told VALUES ({number}) RETURNING 'told' || number;\n");
        Told::start(command, "", insert, "told")
    }
    /// Everything that was told is there, and the sums of pgbench's tables agree.
    pub fn verify(&self, told: u64) {
        let query = format!(
            "SELECT (SELECT count(DISTINCT number) FROM told WHERE number <= {told}) = {told}, \
             (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history), \
             (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(delta) FROM pgbench_history), \
             (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(delta) FROM pgbench_history)"
        );
        assert_eq!(self.run("psql", &["-qAtc", &query]), "t|t|t|t\n");
    }
    /// Every page of every file matches its checksum.
    pub fn verify_checksums(&self) {
        let said = self.run("pg_checksums", &["--check", "-D", text(&self.data)]);
        assert!(said.contains("Bad checksums:  0"), "{said}");
    }
}
