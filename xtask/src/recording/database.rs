//! A PostgreSQL server on a mount, and pgbench.

use crate::flash::ground::{text, told};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Little enough that what is read often reaches the mount.
const SETTINGS: &str = "listen_addresses = ''\nshared_buffers = 32MB\n";

/// A running server.
pub struct Database {
    programs: PathBuf,
    data: PathBuf,
    /// Its socket and messages.
    beside: PathBuf,
}

impl Database {
    /// Makes and starts one, filled by pgbench.
    pub fn create(mount: &Path, beside: &Path, scale: u64) -> Result<Database, String> {
        let versions =
            std::fs::read_dir("/usr/lib/postgresql").map_err(|error| format!("/usr/lib/postgresql: {error}"))?;
        let newest =
            versions.filter_map(|entry| Some(entry.ok()?.path())).max().ok_or("PostgreSQL has no version here")?;
        let (data, own) = (mount.join("database"), beside.join("postgres"));
        for directory in [&data, &own] {
            std::fs::create_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
            told("chown", &["postgres:", text(directory)])?;
        }
        let database = Database { programs: newest.join("bin"), data, beside: own };
        database.run("initdb", &["--auth", "trust", "--no-instructions", "-D", text(&database.data)])?;
        let configuration = database.data.join("postgresql.conf");
        let failed = |error: std::io::Error| format!("{}: {error}", configuration.display());
        let before = std::fs::read_to_string(&configuration).map_err(failed)?;
        let socket = format!("unix_socket_directories = '{}'\n", text(&database.beside));
        std::fs::write(&configuration, before + SETTINGS + &socket).map_err(failed)?;
        let log = database.beside.join("log");
        database.run("pg_ctl", &["-D", text(&database.data), "-l", text(&log), "-t", "120", "-w", "-s", "start"])?;
        println!("filling the database");
        database.run("pgbench", &["-i", "-q", "-s", &scale.to_string()])?;
        database.run("psql", &["-qc", "CHECKPOINT"])?;
        Ok(database)
    }
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--", text(&self.programs.join(program))]).current_dir(&self.beside);
        command.env("PGHOST", &self.beside).env("PGDATABASE", "postgres").stdin(Stdio::null());
        command
    }
    fn run(&self, program: &str, arguments: &[&str]) -> Result<(), String> {
        let mut command = self.command(program);
        let messages = self.beside.join("messages");
        // Not pipes: the server that pg_ctl starts would keep them open.
        let file = || std::fs::OpenOptions::new().create(true).append(true).open(&messages);
        let failed = |error: std::io::Error| format!("{program}: {error}");
        command.args(arguments).stdout(file().map_err(failed)?).stderr(file().map_err(failed)?);
        let status = command.status().map_err(failed)?;
        if status.success() {
            return Ok(());
        }
        Err(format!("{program}: {status}: {}", std::fs::read_to_string(&messages).unwrap_or_default()))
    }
    /// Starts pgbench.
    pub fn bench(&self, clients: u64, rate: Option<u64>, seconds: u64) -> Result<Child, String> {
        let mut command = self.command("pgbench");
        command.args(["-n", "-c", &clients.to_string(), "-T", &seconds.to_string()]);
        if let Some(rate) = rate {
            command.args(["-R", &rate.to_string()]);
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map_err(|error| format!("pgbench: {error}"))
    }
    /// Waits for pgbench, and stops the server.
    pub fn end(&self, mut bench: Child) -> Result<(), String> {
        let status = bench.wait().map_err(|error| format!("pgbench: {error}"))?;
        self.run("pg_ctl", &["-D", text(&self.data), "-m", "fast", "-w", "-s", "stop"])?;
        if status.success() { Ok(()) } else { Err(format!("pgbench: {status}")) }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // A server that still runs would keep the mount busy; one that has ended is left alone.
        drop(self.run("pg_ctl", &["-D", text(&self.data), "-m", "immediate", "-s", "stop"]));
    }
}
