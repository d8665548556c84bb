//! Bricks that are made without being served.

use super::{Formatted, check_superblock, format_if_new, further_paths, start};
use crate::cli::Geometry;
use crate::failure::{Exit, Failure};
use base::Error;
use runtime::real::Directory;
use std::path::PathBuf;
use store::device::Foreign;
use store::format::Uuid;
use store::progress::Tell;

/// Makes a brick. Errors: it is one already; what formatting says.
pub fn format(
    data: &Directory,
    geometry: &Geometry,
    force: bool,
    memory_max: u64,
    tell: &Tell,
) -> Result<Formatted, Failure> {
    let failed = |error: Error| Failure::of(format!("can't format {}", data.path().display()), &error);
    let paths = (geometry.first().map(PathBuf::as_path), further_paths(geometry)?);
    let (runtime, reactors) = start(data, paths, memory_max, false).map_err(failed)?;
    let foreign = if force { Foreign::Destroy } else { Foreign::Keep };
    let formatted = format_if_new(data, geometry, foreign, (&runtime, &reactors), tell, "can't format")?;
    formatted.ok_or_else(|| {
        let failure = Failure::new(Exit::Failed, format!("{} is a brick already", data.path().display()));
        failure.next("start it with `sinter up` or `sinter serve`, or give another directory")
    })
}

/// Makes a brick of the directory, or finds the one that it is; its identity.
pub fn format_or_find(data: &Directory, geometry: &Geometry, memory_max: u64, tell: &Tell) -> Result<Uuid, Failure> {
    let failed = |error: Error| Failure::of(format!("can't format {}", data.path().display()), &error);
    let (runtime, reactors) = start(data, (None, Vec::new()), memory_max, false).map_err(failed)?;
    match format_if_new(data, geometry, Foreign::Keep, (&runtime, &reactors), tell, "can't format")? {
        Some(formatted) => Ok(formatted.uuid),
        None => Ok(check_superblock(&runtime, &reactors).map_err(failed)?.uuid),
    }
}
