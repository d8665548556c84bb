//! `cargo xtask console`: the console in a real browser, headless Chromium, on a brick under load. A script drives the browser
//! by WebDriver; it needs Python's standard library alone.

use crate::flash::ground;
use crate::observation::built;
use crate::tree::root;
use std::process::Command;

const HELP: &str = "\
cargo xtask console --out DIR

  Builds Sinter, serves a brick in a temporary directory with load on it, and looks at its console in headless Chromium, as root:
  no error in the browser's console, figures in every panel, a way through it by keyboard, 360 pixels and a desktop's width, both
  themes. Leaves screenshots in DIR, for somebody to look at. Installs Debian's chromium, chromium-driver, fio and python3 if they
  are missing.
";

/// Packages that the script needs besides Sinter, each with a program of it.
const PACKAGES: [(&str, &str); 4] =
    [("chromium", "chromium"), ("chromium-driver", "chromedriver"), ("fio", "fio"), ("python3", "python3")];

/// Builds Sinter and runs the script.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let [option, directory] = arguments else {
        print!("{HELP}");
        return if arguments.iter().any(|argument| argument == "--help") {
            Ok(())
        } else {
            Err("--out DIR".to_string())
        };
    };
    if option != "--out" {
        return Err(format!("{option}: only --out DIR is known"));
    }
    ground::install(&PACKAGES)?;
    let sinter = built(&[], "console")?;
    let script = root().join("xtask/src/console/browser.py");
    run_program(Command::new("python3").arg(script).arg(sinter).arg(directory))
}

fn run_program(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}
