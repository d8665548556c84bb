//! Volumes: creating, listing, describing, changing and deleting them. A running daemon is asked;
//! without one, the brick is opened for the moment.

use super::{ask, print, print_json};
use crate::admin::client::unexpected;
use crate::admin::protocol::{Answer, Request, Volume};
use crate::cli;
use crate::daemon::say;
use crate::failure::{Exit, Failure};
use crate::table::{Align, Table, bytes};
use crate::volumes::named;
use base::limits::RESERVE_MAX;
use std::collections::BTreeMap;
use std::io::IsTerminal;

/// Runs `sinter volume ...`.
pub fn run(command: &cli::Volume) -> Result<Exit, Failure> {
    if let cli::Volume::Delete(of) = command {
        confirm(&of.volume)?;
    }
    let (data, json, request) = match command {
        cli::Volume::Create(of) => {
            let request = Request::VolumeCreate { name: of.volume.name.clone(), size_bytes: of.size };
            (&of.volume.data, of.volume.json, request)
        }
        cli::Volume::List(of) => (&of.data, of.json, Request::VolumeList),
        cli::Volume::Info(of) => (&of.data, of.json, Request::VolumeInfo { name: of.name.clone() }),
        cli::Volume::Set(of) => {
            let request = set(of)?;
            (&of.volume.data, of.volume.json, request)
        }
        cli::Volume::Rename(of) => {
            let request = Request::VolumeRename { name: of.volume.name.clone(), new_name: of.new_name.clone() };
            (&of.volume.data, of.volume.json, request)
        }
        cli::Volume::Delete(of) => {
            let request = Request::VolumeDelete { name: of.volume.name.clone(), force: of.force };
            (&of.volume.data, of.volume.json, request)
        }
    };
    match ask(data, request)? {
        Answer::Volumes(volumes) => {
            if json {
                print_json(&volumes)?
            } else {
                print(&table(&volumes))?
            }
            warn_of_reserves(&volumes);
        }
        Answer::Volume(volume) if json => print_json(&volume)?,
        Answer::Volume(volume) => print(&table(&[volume]))?,
        Answer::Done => {}
        _ => return Err(unexpected()),
    }
    if let cli::Volume::Set(cli::VolumeSet { reserve: Some(_), .. }) = command
        && let Answer::Volumes(volumes) = ask(data, Request::VolumeList)?
    {
        warn_of_reserves(&volumes);
    }
    Ok(Exit::Done)
}

/// Says so if volumes reserve more than there is.
fn warn_of_reserves(volumes: &[Volume]) {
    let name = base::Limit::Reserve.name();
    let reserved: u64 = volumes.iter().filter_map(|volume| volume.limits.get(name)).sum();
    if reserved > RESERVE_MAX {
        let share = RESERVE_MAX as f64 / reserved as f64;
        say(&format!(
            "the volumes reserve {reserved}% of the brick, and {RESERVE_MAX}% can be reserved: while all of them want it, each has \
             {share:.2} of what it reserves (sinter volume set BRICK NAME --{name} PERCENT)"
        ));
    }
}

/// `sinter limit`: limits of a directory tree.
pub fn limit(of: &cli::TreeLimit) -> Result<Exit, Failure> {
    let (name, tree) = (of.volume.name.clone(), Some(of.path.clone()));
    let request = Request::VolumeLimits { name, tree, changed: named(of.limits.changed()) };
    let Answer::Volume(volume) = ask(&of.volume.data, request)? else { return Err(unexpected()) };
    if of.volume.json {
        print_json(&volume)?
    } else {
        print(&trees(&volume))?
    }
    Ok(Exit::Done)
}

/// A volume's limited trees.
fn trees(volume: &Volume) -> String {
    let mut table = Table::new(&[("tree", Align::Left), ("project", Align::Right), ("limits", Align::Left)]);
    for tree in &volume.trees {
        let path = tree
            .path
            .clone()
            .unwrap_or_else(|| format!("inode {}, its path is told after the next checkpoint", tree.inode));
        table.row(vec![path, tree.project.to_string(), limits(&tree.limits)]);
    }
    table.render()
}

/// Changes what is to be changed of a volume, but for the last property, whose request is returned.
fn set(of: &cli::VolumeSet) -> Result<Request, Failure> {
    let name = &of.volume.name;
    let resize = of.size.map(|size| Request::VolumeResize { name: name.clone(), size_bytes: size.bytes() });
    let policy =
        of.policy.map(|policy| Request::VolumePolicy { name: name.clone(), policy: policy.name().to_string() });
    let changed = named(of.changed());
    let limits = (!changed.is_empty()).then(|| Request::VolumeLimits { name: name.clone(), tree: None, changed });
    let mut requests: Vec<Request> = resize.into_iter().chain(policy).chain(limits).collect();
    let last = requests.pop().expect("the command line has one property at least");
    requests.into_iter().try_for_each(|request| ask(&of.volume.data, request).map(drop))?;
    Ok(last)
}

/// Asks a person before a volume goes; a script has been written with care.
fn confirm(of: &cli::VolumeNamed) -> Result<(), Failure> {
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Ok(());
    }
    eprint!("sinter: delete volume {} of {} with everything in it? [y/N] ", of.name, of.data.display());
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    match read.is_ok() && ["y", "yes"].contains(&line.trim().to_lowercase().as_str()) {
        true => Ok(()),
        false => Err(Failure::new(Exit::Failed, format!("volume {} was not deleted", of.name))),
    }
}

fn table(volumes: &[Volume]) -> String {
    let columns = [
        ("volume", Align::Left),
        ("id", Align::Right),
        ("size", Align::Right),
        ("used", Align::Right),
        ("inodes", Align::Right),
        ("policy", Align::Left),
        ("limits", Align::Left),
        ("created (UTC)", Align::Left),
        ("mounted at", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for volume in volumes {
        let mounts: Vec<&str> = volume.mounts.iter().chain(&volume.detached).map(String::as_str).collect();
        let mounts = mounts.join(", ");
        let size = volume.size_bytes.map_or("as the brick".to_string(), bytes);
        let (used, inodes) = (bytes(volume.used_bytes), volume.inodes.to_string());
        let (id, policy, limits) = (volume.id.to_string(), volume.policy.clone(), limits(&volume.limits));
        table.row(vec![volume.name.clone(), id, size, used, inodes, policy, limits, utc(volume.created_ns), mounts]);
    }
    table.render()
}

/// `iops-max 1000, write-bandwidth-max 50 MiB/s, burst 5 ms`; `none` without any.
fn limits(limits: &BTreeMap<String, u64>) -> String {
    let one = |(name, value): (&String, &u64)| match base::Limit::of(name) {
        Ok(limit) if limit.is_bandwidth() => format!("{name} {}/s", bytes(*value)),
        Ok(base::Limit::Burst) => format!("{name} {value} ms"),
        Ok(base::Limit::Reserve) => format!("{name} {value}%"),
        _ => format!("{name} {value}"),
    };
    if limits.is_empty() { "none".to_string() } else { limits.iter().map(one).collect::<Vec<_>>().join(", ") }
}

/// `2026-11-21 06:48:45`, from nanoseconds since 1970 (days to dates after Howard Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms").
pub fn utc(ns: i64) -> String {
    let seconds = ns.div_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days are counted from 1 March of year 0, so that leap days come last; 146,097 days are 400 years.
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        let cases = [
            (0, "1970-01-01 00:00:00"),
            (-1, "1969-12-31 23:59:59"),
            (951_782_400_000_000_000, "2000-02-29 00:00:00"),
            (1_795_243_725_999_999_999, "2026-11-21 06:48:45"),
            (4_102_444_799_000_000_000, "2099-12-31 23:59:59"),
        ];
        for (ns, expected) in cases {
            assert_eq!(utc(ns), expected);
        }
    }

    #[test]
    fn volumes_read_well() {
        let volume = Volume {
            id: 1,
            name: "default".into(),
            root: 5,
            created_ns: 0,
            size_bytes: Some(1 << 30),
            used_bytes: 1 << 20,
            inodes: 17,
            policy: "write-back".into(),
            limits: [("burst", 5), ("iops-max", 1000), ("write-bandwidth-max", 50 << 20)]
                .map(|(name, value)| (name.to_string(), value))
                .into(),
            trees: Vec::new(),
            mounts: vec!["/a".into(), "/b".into()],
            detached: Vec::new(),
            open: None,
        };
        let told = table(std::slice::from_ref(&volume));
        let (head, row) = told.split_once('\n').expect("two lines");
        assert_eq!(
            head,
            "volume   id   size   used  inodes  policy      limits                                                   \
             created (UTC)        mounted at"
        );
        assert_eq!(
            row,
            "default   1  1 GiB  1 MiB      17  write-back  burst 5 ms, iops-max 1000, write-bandwidth-max 50 MiB/s  \
             1970-01-01 00:00:00  /a, /b\n"
        );
        let free = Volume { limits: BTreeMap::new(), ..volume };
        assert!(table(&[free]).contains("  write-back  none "));
    }
}
