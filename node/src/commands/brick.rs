//! Commands that open a brick themselves: up, serve, format, check.

use crate::cli::{Format, Serve, Shown, Up};
use crate::failure::{Exit, Failure};

fn not_yet(what: &str) -> Failure {
    Failure::new(Exit::Failed, format!("{what} is being assembled"))
}

/// `sinter up`.
pub fn up(options: &Up) -> Result<Exit, Failure> {
    let _ = options;
    Err(not_yet("up"))
}

/// `sinter format`.
pub fn format(options: &Format) -> Result<Exit, Failure> {
    let _ = options;
    Err(not_yet("format"))
}

/// `sinter serve`.
pub fn serve(options: &Serve) -> Result<Exit, Failure> {
    let _ = options;
    Err(not_yet("serve"))
}

/// `sinter check`.
pub fn check(options: &Shown) -> Result<Exit, Failure> {
    let _ = options;
    Err(not_yet("check"))
}
