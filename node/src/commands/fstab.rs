//! `mount.sinter`: what mount(8) runs for file systems of type `sinter`, by hand or for a line of /etc/fstab, and as
//! `mount.fuse.sinter` to remount, since that is the type in the mount table. The binary acts as this helper when it is called
//! by either name.
//!
//! Promises: it returns when the volume answers; it starts a daemon only if none serves the brick, in a session of its
//! own, and that daemon ends when its last volume is unmounted. It never formats: a file system that is missing below a
//! brick's directory must not make an empty brick there.

use super::mount::{absolute, text_of};
use super::{mount, start};
use crate::admin::client::Client;
use crate::admin::protocol::{Answer, Request};
use crate::cli::{self, WireEncryption};
use crate::config::Settings;
use crate::failure::{Exit, Failure};
use crate::remote::{MEMBERSHIPS, Place};
use clap::{CommandFactory, Parser};
use front::fuse::Restriction;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The names by which mount(8) calls: the type of a line of /etc/fstab, and that in the mount table.
const NAME: &str = "mount.sinter";
const NAME_IN_TABLE: &str = "mount.fuse.sinter";
/// Exit codes that mount(8) passes on: wrong usage, and a mount that failed.
const USAGE: u8 = 1;
const FAILED: u8 = 32;
/// A brick that is in use may be on its way up or down: at boot all lines of /etc/fstab are mounted at once, and an
/// unmounted brick's daemon ends a moment later.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);

/// The permitted options of a volume's mount.
const ALLOWED: &str = "volume=NAME, memory-max=BYTES, device=PATH, log=FILE, directory=DIR, soft=SECONDS, wire-encryption=on|off, ro, nosuid, nodev, noexec, noatime, nodiratime, strictatime, lazytime, sync, dirsync, idmap, remount";
/// The same for its manual page.
const OPTIONS: &str = "\
Options after -o, separated by commas:
  volume=NAME       volume to mount: a name of 1 to 63 bytes [default: default]
  memory-max=BYTES  memory of a daemon that is started, 256M to 1T [default: 25% of the machine's or the control group's]
  device=PATH       where the brick's block device is now [default: as at the last start]
  log=FILE          where a daemon that is started writes [default: the journal, else /var/log/sinter/BRICK.log]
  directory=DIR     of NAME/VOLUME: the files that `sinter client join` wrote [default: /etc/sinter]
  soft=SECONDS      of NAME/VOLUME: errors (EIO) once the server is away for so long, 1 to 86400 [default: wait]
  wire-encryption=off
                    of NAME/VOLUME: contents go unencrypted if the server has this too, for networks that are separated [default: on]
  ro nosuid nodev noexec noatime nodiratime
                    as for every file system
  strictatime lazytime
                    taken, without effect: access times move as with relatime, and are written lazily anyway
  sync dirsync      each change, or each change of names, is durable when it is told
  idmap             bound copies of the mount may have ids mapped, as containers want it
  remount           changes these of a mount, sync and dirsync for writes only, idmap not; all others are without effect

Options of mount(8) and systemd (nofail, noauto, _netdev, x-systemd.automount ...) may stand among them.

A daemon is started unless one serves the brick (of NAME/VOLUME: that volume) already; it ends when its last volume is unmounted. Mounting never
formats: see sinter-format(1) and sinter-volume-create(1).

Exit codes:
   0  mounted
   1  wrong command line or option
  32  failed

Lines of /etc/fstab, for a brick of this machine and for a volume of a server that this machine has joined as prod:
  /srv/brick  /mnt/home  sinter  volume=home,nofail  0  0
  prod/home   /mnt/home  sinter  _netdev,nofail      0  0";
/// Options for mount(8) or systemd, and the names of what is so anyway.
const IGNORED: [&str; 25] = [
    "",
    "rw",
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "_netdev",
    "suid",
    "dev",
    "exec",
    "async",
    "atime",
    "diratime",
    "relatime",
    "norelatime",
    "nostrictatime",
    "nolazytime",
    // What the mount table shows of each FUSE mount, and mount(8) gives back at a remount.
    "default_permissions",
    "allow_other",
    "silent",
];

/// Mount a volume of a Sinter brick or server; called by mount(8).
#[derive(Parser, Debug)]
#[command(name = NAME, version = crate::VERSION, after_help = OPTIONS)]
struct Helper {
    /// Directory of the brick, or NAME/VOLUME
    data: PathBuf,
    /// Directory at which the volume appears
    mount: PathBuf,
    /// Options, separated by commas
    #[arg(short)]
    options: Vec<String>,
    /// Ignore unknown options
    #[arg(short)]
    sloppy: bool,
    /// Do everything but mount
    #[arg(short)]
    fake: bool,
    /// For mount(8): without effect
    #[arg(short)]
    no_table: bool,
    /// For mount(8): without effect
    #[arg(short)]
    verbose: bool,
    /// For mount(8): the type, without effect
    #[arg(short = 't')]
    kind: Option<String>,
}

/// The parsed options.
#[derive(Default, PartialEq, Eq, Debug)]
struct Wanted {
    settings: Settings,
    log: Option<PathBuf>,
    restrictions: Vec<String>,
    /// Directory with the files of memberships, of a server's volume.
    directory: Option<PathBuf>,
    /// Seconds for which a server that is away is waited for.
    soft: Option<u64>,
    /// The form of what goes over the network, of a server's volume.
    encryption: WireEncryption,
    /// True to change the mount there; nothing is mounted.
    remount: bool,
}

/// The helper's command line, for its manual page.
pub fn command() -> clap::Command {
    Helper::command()
}

/// True if this process was called as the helper.
pub fn is_mount_helper() -> bool {
    let called = std::env::args_os().next().map(PathBuf::from);
    called.is_some_and(|path| path.file_name().is_some_and(|name| name == NAME || name == NAME_IN_TABLE))
}

/// Runs as the helper; the exit code for mount(8).
pub fn run() -> u8 {
    let helper = match Helper::try_parse() {
        Ok(helper) => helper,
        Err(error) => {
            drop(error.print());
            return if error.use_stderr() { USAGE } else { 0 };
        }
    };
    match mounted(&helper) {
        Ok(()) => 0,
        Err(failure) => {
            eprintln!("{NAME}: {failure}");
            if failure.exit == Exit::Usage { USAGE } else { FAILED }
        }
    }
}

fn mounted(helper: &Helper) -> Result<(), Failure> {
    let wanted = wanted(&helper.options.join(","), helper.sloppy)?;
    let path = absolute(&helper.mount)?;
    if helper.fake {
        return Ok(());
    }
    if wanted.remount {
        let restrictions: Vec<_> = wanted.restrictions.iter().filter_map(|name| Restriction::of(name)).collect();
        let remounted = front::fuse::remount(&path, &restrictions);
        return remounted.map_err(|error| Failure::of("can't remount", &error));
    }
    if let Some(place) = helper.data.to_str().and_then(|text| text.parse().ok()) {
        return of_server(place, path, wanted);
    }
    // Kept with its links: mount(8) recognises the line of /etc/fstab by it.
    let data = absolute(&helper.data)?;
    let request = Request::Mount {
        volume: wanted.settings.volume.clone().unwrap_or_else(|| cli::VOLUME_DEFAULT.to_string()),
        path: text_of(&path)?,
        source: Some(text_of(&data)?),
        restrictions: wanted.restrictions.clone(),
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (mut client, ours) = match Client::connect(&data)? {
            Some(client) => (client, false),
            None => match start(&data, &wanted) {
                Ok(()) => (Client::need(&data)?, true),
                Err(failure) if failure.exit == Exit::InUse && Instant::now() < deadline => {
                    std::thread::sleep(PAUSE);
                    continue;
                }
                Err(failure) => return Err(failure),
            },
        };
        let Err(failure) = client.ask(&request) else { return Ok(()) };
        if ours {
            // Nobody else wants it; the first failure is the one to tell.
            drop(client.ask(&Request::Shutdown));
            return Err(failure);
        }
        if !is_ending(&data)? || Instant::now() >= deadline {
            return Err(failure);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Mounts a volume of a server.
fn of_server(place: Place, path: PathBuf, wanted: Wanted) -> Result<(), Failure> {
    let Wanted { settings, log, restrictions, directory, soft, encryption, .. } = wanted;
    if settings.volume.is_some() || settings.device.is_some() {
        let failure =
            Failure::new(Exit::Usage, format!("volume= and device= are for bricks; {place} names its volume"));
        return Err(failure.next("take them out of the options"));
    }
    let directory = directory.unwrap_or_else(|| MEMBERSHIPS.into());
    let memory_max = settings.memory_max;
    let source = mount::Source::Server(place);
    mount::Wanted { source, path, restrictions, memory_max, soft, encryption, directory, log }.mount()
}

/// True if the brick's daemon is on its way down, or is gone.
pub(super) fn is_ending(data: &Path) -> Result<bool, Failure> {
    Ok(ends(Client::connect(data)?))
}

/// True if there is no daemon, or if it is on its way down.
pub(super) fn ends(client: Option<Client>) -> bool {
    let Some(mut client) = client else { return true };
    // One that does not answer has just ended.
    client.ask(&Request::Status).map_or(true, |answer| match answer {
        Answer::Status(status) => status.ending.is_some(),
        _ => false,
    })
}

/// Reads the options of a mount.
fn wanted(options: &str, sloppy: bool) -> Result<Wanted, Failure> {
    let mut wanted = Wanted::default();
    for option in options.split(',') {
        let refused = |why: &str| {
            let failure = Failure::new(Exit::Usage, format!("option {option:?}: {why}; allowed: {ALLOWED}"));
            failure.next("correct it in /etc/fstab, or after -o")
        };
        match option.split_once('=') {
            _ if option.starts_with("x-") || option.starts_with("X-") || option.starts_with("comment=") => {}
            Some((key @ ("volume" | "memory-max" | "device"), value)) => {
                wanted.settings.take(key, value).map_err(|why| refused(&why))?;
            }
            Some(("directory", path)) if Path::new(path).is_absolute() => wanted.directory = Some(path.into()),
            Some(("soft", text)) => match text.parse().ok().filter(|seconds| (1..=cli::SOFT_S_MAX).contains(seconds)) {
                Some(seconds) => wanted.soft = Some(seconds),
                None => return Err(refused("not a number of seconds, 1 to 86400")),
            },
            Some(("wire-encryption", text)) => {
                wanted.encryption = cli::wire_encryption(text).map_err(|why| refused(&why))?;
            }
            Some(("log", path)) if Path::new(path).is_absolute() => wanted.log = Some(path.into()),
            Some(("log" | "directory", _)) => return Err(refused("not an absolute path")),
            Some(("size" | "segment-size" | "groups", _)) => {
                return Err(refused("given to `sinter format`, which makes bricks; mounting never does"));
            }
            None if IGNORED.contains(&option) => {}
            None if Restriction::of(option).is_some() => wanted.restrictions.push(option.to_string()),
            None if option == "remount" => wanted.remount = true,
            Some(("user_id" | "group_id" | "max_read" | "blksize", _)) => {}
            _ if sloppy => {}
            _ => return Err(refused("unknown")),
        }
    }
    Ok(wanted)
}

/// Starts a daemon and waits until it serves the brick.
fn start(data: &Path, wanted: &Wanted) -> Result<(), Failure> {
    let mut all: Vec<OsString> = vec!["serve".into(), data.into(), "--until-unmounted".into()];
    all.extend(arguments(&wanted.settings));
    start::daemon(&all, &data.to_string_lossy(), wanted.log.as_deref())
}

fn arguments(settings: &Settings) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    if let Some(device) = &settings.device {
        arguments.extend(["--device".into(), device.into()]);
    }
    if let Some(bytes) = settings.memory_max {
        arguments.extend(["--memory-max".into(), bytes.to_string().into()]);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_understood() {
        let line = "rw,nofail,volume=home,memory-max=1G,device=/dev/x,log=/l,wire-encryption=off,ro,nosuid,x-systemd.automount,comment=a b";
        let wanted = wanted(line, false).expect("all are known");
        let settings = Settings {
            volume: Some("home".into()),
            memory_max: Some(1 << 30),
            device: Some("/dev/x".into()),
            ..Settings::default()
        };
        assert_eq!(
            wanted,
            Wanted {
                settings,
                log: Some("/l".into()),
                restrictions: vec!["ro".into(), "nosuid".into()],
                directory: None,
                soft: None,
                encryption: WireEncryption::Off,
                remount: false
            }
        );
    }

    #[test]
    fn what_is_unknown_or_out_of_bounds_is_refused() {
        let cases = [
            ("volumes=a", "unknown"),
            ("data=/x", "unknown"),
            ("fast", "unknown"),
            ("volume=a/b", "letters"),
            ("memory-max=1", "256M to 1T"),
            ("size=4G", "sinter format"),
            ("log=here", "absolute"),
            ("wire-encryption=none", "on or off"),
            ("device=sda", "absolute"),
        ];
        for (line, why) in cases {
            let failure = wanted(line, false).expect_err(line);
            assert_eq!(failure.exit, Exit::Usage, "{line}");
            let text = failure.to_string();
            assert!(text.contains(why) && text.contains("allowed: volume=NAME"), "{line}: {text}");
        }
        assert!(wanted("fast,volumes=a", true).is_ok(), "mount -s ignores what it does not know");
        assert!(wanted("volume=a/b", true).is_err(), "but not what is wrong");
    }
}
