//! Manual pages and shell completions, made from the command line's own definition so that they can't disagree with it.

use super::{fstab, print};
use crate::cli::Cli;
use crate::failure::{Exit, Failure};
use clap::CommandFactory;
use std::path::Path;

/// Prints the completion script of a shell.
pub fn completions(shell: clap_complete::Shell) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "sinter", &mut script);
    print(&String::from_utf8(script).expect("completion scripts are text"))?;
    Ok(Exit::Done)
}

/// Prints the main page, or writes one page per command into a directory.
pub fn man(directory: Option<&Path>) -> Result<Exit, Failure> {
    match directory {
        Some(directory) => {
            let what = || format!("can't write manual pages to {}", directory.display());
            clap_mangen::generate_to(Cli::command(), directory).map_err(|error| Failure::io(what(), &error))?;
            // Helpers of mount(8) are of section 8, as it is.
            let helper = clap_mangen::Man::new(fstab::command()).section("8");
            let mut page = Vec::new();
            let made = helper.render(&mut page).and_then(|()| std::fs::write(directory.join("mount.sinter.8"), page));
            made.map_err(|error| Failure::io(what(), &error))?;
        }
        None => {
            let mut page = Vec::new();
            let made = clap_mangen::Man::new(Cli::command()).render(&mut page);
            made.map_err(|error| Failure::io("can't make the manual page", &error))?;
            print(&String::from_utf8(page).expect("manual pages are text"))?;
        }
    }
    Ok(Exit::Done)
}
