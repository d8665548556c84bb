//! The commands: each checks its input, does one thing, prints its result to standard output.

mod bench;
mod brick;
mod callers;
mod check;
mod client;
mod cluster;
mod config;
mod devices;
mod doctor;
mod down;
mod etcd;
mod explain;
mod figures;
mod fstab;
mod layer;
mod mount;
mod pages;
mod profile;
mod record;
mod replay;
mod scrub;
mod snapshots;
mod start;
mod status;
mod sweep;
mod tiers;
mod token;
mod top;
mod trace;
mod umount;
mod volume;

pub use fstab::{is_mount_helper, run as mount_helper};

use crate::admin::client::Client;
use crate::admin::protocol::{Answer, Request};
use crate::assembly;
use crate::cli::{Cli, ClusterCommand, Command};
use crate::directory;
use crate::failure::{Exit, Failure};
use crate::host;
use crate::memory;
use std::io::Write;
use std::path::Path;

/// Runs a command; the exit code if it could be done.
pub fn run(cli: Cli) -> Result<Exit, Failure> {
    let is_daemon = match &cli.command {
        Command::Up(_) | Command::Serve(_) | Command::Cluster(ClusterCommand::Dev(_)) => true,
        Command::Mount(options) => options.foreground,
        _ => false,
    };
    if !is_daemon {
        host::end_on_broken_pipe();
    }
    match cli.command {
        Command::Up(options) => brick::up(&options),
        Command::Format(options) => brick::format(&options),
        Command::Serve(options) => brick::serve(&options),
        Command::Mount(options) => mount::run(&options),
        Command::Umount(options) => umount::run(&options),
        Command::Volume(command) => volume::run(&command),
        Command::Limit(options) => volume::limit(&options),
        Command::Layer(command) => layer::run(&command),
        Command::Token(command) => token::run(&command),
        Command::Client(command) => client::run(&command),
        Command::Cluster(command) => cluster::run(&command),
        Command::Grow(options) => brick::grow(&options),
        Command::Brick(command) => devices::run(&command),
        Command::Tiers(options) => tiers::run(&options),
        Command::Down(options) => down::run(&options),
        Command::Config(command) => config::run(&command),
        Command::Status(options) => status::run(&options),
        Command::Check(options) => check::run(&options),
        Command::Scrub(command) => scrub::run(&command),
        Command::Profile(options) => profile::run(&options),
        Command::Explain(options) => explain::run(&options),
        Command::Top(options) => top::run(&options),
        Command::Trace(options) => trace::run(&options),
        Command::Slow(options) => profile::slow(&options),
        Command::Record(options) => record::run(&options),
        Command::Replay(options) => replay::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Bench(command) => bench::run(&command),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { directory } => pages::man(directory.as_deref()),
    }
}

/// Asks a brick's daemon; without one the brick is opened for the moment.
fn ask(data: &Path, request: Request) -> Result<Answer, Failure> {
    match Client::connect(data)? {
        Some(mut client) => client.ask(&request),
        None => assembly::answer_offline(&directory::existing(data)?, request, memory::default_max_bytes()),
    }
}

/// Reads a whole file of at most so many bytes; `too_large` is the failure of a larger one.
fn read_at_most(file: &Path, bytes_max: u64, too_large: impl FnOnce() -> Failure) -> Result<Vec<u8>, Failure> {
    let failed = |error: &std::io::Error| Failure::io(format!("can't read {}", file.display()), error);
    let bytes = std::fs::metadata(file).map_err(|error| failed(&error))?.len();
    if bytes > bytes_max {
        return Err(too_large());
    }
    std::fs::read(file).map_err(|error| failed(&error))
}

/// Prints a result.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::io("can't write to standard output", &error))
}

/// Prints a value as JSON.
fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).expect("replies are plain data, which is JSON");
    print(&(text + "\n"))
}
