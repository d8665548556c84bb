//! The binary `sinter`: the command line and the assembly of the real world. Everything else is below.
//!
//! Promises: one line on standard error for every failure, an exit code that scripts can act on; a broken
//! invariant (panic) ends the process at once instead of going on with a state that nobody understands.

#[cfg(feature = "ablations")]
mod ablations;
mod admin;
mod affected;
mod assembly;
mod backend;
mod bench;
mod cli;
mod cluster;
mod commands;
mod config;
mod cores;
mod daemon;
mod directory;
mod doctor;
mod ending;
mod failure;
#[cfg(test)]
mod fuzz_tests;
mod host;
mod join;
mod layers;
mod log;
mod memory;
mod network;
mod notify;
mod observe;
mod proc;
mod progress;
mod remote;
mod replay;
#[cfg(test)]
mod scratch;
mod scrub;
mod table;
#[cfg(feature = "seeded-bugs")]
mod test_switches;
mod tiers;
mod trees;
mod volumes;

use clap::Parser;
use failure::Exit;
use std::process::ExitCode;

/// The package's version. A build of the workshop that observes nothing says so: it must not be used.
const VERSION: &str = match runtime::OBSERVED {
    true => env!("CARGO_PKG_VERSION"),
    false => concat!(env!("CARGO_PKG_VERSION"), "-unobserved"),
};

/// glibc's allocator keeps more of what many threads take and give back with each hour (decision 0016).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    abort_on_panic();
    host::let_large_files_fail();
    // mount(8) finds its helper by name, and wants other exit codes than scripts do.
    if commands::is_mount_helper() {
        return ExitCode::from(commands::mount_helper());
    }
    let code = match cli::Cli::try_parse() {
        Ok(cli) => match commands::run(cli) {
            Ok(exit) => exit as u8,
            Err(failure) => {
                if wants_json() {
                    println!("{}", failure.json());
                }
                eprintln!("sinter: {failure}");
                failure.exit as u8
            }
        },
        Err(error) => {
            // Help and version end here too: they go to standard output with code 0.
            drop(error.print());
            if error.use_stderr() { Exit::Usage as u8 } else { Exit::Done as u8 }
        }
    };
    ExitCode::from(code)
}

/// Errors are for programs too, if what is asked for is. The command line has been understood: this is no path's name.
fn wants_json() -> bool {
    std::env::args_os().skip(1).take_while(|argument| argument != "--").any(|argument| argument == "--json")
}

/// A panic is a broken invariant: say so, then stop all threads. What was acknowledged as durable is on the device.
fn abort_on_panic() {
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        say(panic);
        eprintln!(
            "sinter: a bug ended this process; nothing acknowledged as durable is lost; please report the lines above"
        );
        std::process::abort();
    }));
}
