//! Where the concrete types meet.

use crate::admin::protocol::{Answer, Request};
use crate::failure::{Exit, Failure};
use std::path::Path;

/// Answers one request on a brick that no daemon serves.
pub fn answer_offline(data: &Path, _request: Request) -> Result<Answer, Failure> {
    let failure = Failure::new(Exit::Failed, format!("no daemon serves {}", data.display()));
    Err(failure.next("start one"))
}
