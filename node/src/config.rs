//! Config files: the settings of `sinter up` beside its command line. Promises that the command line wins, that a value
//! has the same bounds in both places, and that any mistake is refused with its file and line before anything is
//! touched.

use crate::cli::{self, Geometry, Listen, Resources, Surfaces, Up, WireEncryption};
use crate::directory;
use crate::failure::{Exit, Failure};
use runtime::real::Access;
use std::fmt;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Everything that may stand in a config file, and what it takes: the arguments and options of `sinter up`.
pub const KEYS: [(&str, &str); 15] = [
    ("data", "an absolute path"),
    ("mount", "an absolute path"),
    ("volume", "a name of 1 to 63 bytes"),
    ("size", "bytes, 4G to 1024T, such as \"20G\""),
    ("segment-size", "bytes, a power of two, 1M to 256M, such as \"64M\""),
    ("groups", "a count, 1 to 1024"),
    ("device", "an absolute path"),
    ("flash", "absolute paths with commas between them"),
    ("disk", "absolute paths with commas between them"),
    ("memory-max", "bytes, 256M to 1T, such as \"8G\""),
    ("metrics", "HOST:PORT, such as \"127.0.0.1:9470\""),
    ("console", "HOST:PORT, such as \"127.0.0.1:9470\""),
    ("listen", "HOST:PORT or HOST, such as \"0.0.0.0:7400\""),
    ("name", "1 to 64 letters, digits, dots, dashes and underscores"),
    ("wire-encryption", "\"on\" or \"off\""),
];

/// A config file is a page of text: what is longer is something else.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The settings of a file; others are left to the command line and to defaults.
#[derive(Default, Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Directory of the brick.
    pub data: Option<PathBuf>,
    /// The mount point of the volume.
    pub mount: Option<PathBuf>,
    /// Volume to mount.
    pub volume: Option<String>,
    /// Size of a new brick.
    pub size: Option<u64>,
    /// Segment size of a new brick.
    pub segment_size: Option<u64>,
    /// Groups of a new brick.
    pub groups: Option<u32>,
    /// The brick's block device.
    pub device: Option<PathBuf>,
    /// Flash devices of a new brick.
    pub flash: Option<Vec<PathBuf>>,
    /// Disks of a new brick.
    pub disk: Option<Vec<PathBuf>>,
    /// Memory for everything.
    pub memory_max: Option<u64>,
    /// Address of the metrics.
    pub metrics: Option<SocketAddr>,
    /// Address of the console.
    pub console: Option<SocketAddr>,
    /// Address for clients of other machines.
    pub listen: Option<String>,
    /// Name of the server for them.
    pub name: Option<String>,
    /// Wish for what goes over the network.
    pub wire_encryption: Option<WireEncryption>,
}

/// All that `sinter up` needs to know.
#[derive(Debug)]
pub struct Plan {
    /// Directory of the brick.
    pub data: PathBuf,
    /// The mount point of the volume.
    pub mount: PathBuf,
    /// Volume to mount.
    pub volume: String,
    /// The properties of a new brick.
    pub geometry: Geometry,
    /// The resources that the daemon may take.
    pub resources: Resources,
    /// The addresses at which it serves its figures.
    pub surfaces: Surfaces,
    /// The address at which it serves other machines.
    pub listen: Listen,
}

/// The reason why a file is refused: the line, the mistake there, and what is allowed.
#[derive(PartialEq, Eq, Debug)]
struct Wrong {
    line: usize,
    what: String,
    allowed: String,
}

/// The plan of the command line together with the file that it names.
pub fn plan(up: &Up) -> Result<Plan, Failure> {
    let file = up.config.as_deref();
    let settings = file.map(read).transpose()?.unwrap_or_default();
    let need = |given: &Option<PathBuf>, set: Option<PathBuf>, key: &str| {
        given.clone().or(set).ok_or_else(|| missing(file.unwrap_or(Path::new("the command line")), key))
    };
    Ok(Plan {
        data: need(&up.data, settings.data, "data")?,
        mount: need(&up.mount, settings.mount, "mount")?,
        volume: up.volume.clone().or(settings.volume).unwrap_or_else(|| cli::VOLUME_DEFAULT.to_string()),
        geometry: Geometry {
            size: up.geometry.size.or(settings.size),
            segment_size: up.geometry.segment_size.or(settings.segment_size),
            groups: up.geometry.groups.or(settings.groups),
            device: up.geometry.device.clone().or(settings.device.filter(|_| up.geometry.flash.is_empty())),
            flash: given(&up.geometry.flash, settings.flash),
            disk: given(&up.geometry.disk, settings.disk),
        },
        resources: Resources {
            memory_max: up.resources.memory_max.or(settings.memory_max),
            transport: up.resources.transport,
        },
        surfaces: Surfaces {
            metrics: up.surfaces.metrics.or(settings.metrics),
            console: up.surfaces.console.or(settings.console),
        },
        listen: Listen {
            listen: up.listen.listen.clone().or(settings.listen),
            name: up.listen.name.clone().or(settings.name),
            wire_encryption: up.listen.wire_encryption.or(settings.wire_encryption),
        },
    })
}

/// The failure of a file, or a command line, that leaves out what has no default.
pub fn missing(file: &Path, key: &str) -> Failure {
    let failure = Failure::new(Exit::Usage, format!("{} does not say `{key}`", file.display()));
    failure.next(format!("add {key} = \"/a/path\" to it, or give it on the command line"))
}

/// Reads a file. Errors: it can't be read; it is not TOML; a key or a value is not allowed.
pub fn read(path: &Path) -> Result<Settings, Failure> {
    let shown = path.display();
    let failed = |error: std::io::Error| Failure::io(format!("can't read {shown}"), &error).exit(Exit::Usage);
    let mut bytes = Vec::new();
    // It says what root does: whoever could change it would.
    let opened = directory::named_file(path, Access::Read);
    let file = opened.map_err(|error| Failure::of(format!("can't read {shown}"), &error).exit(Exit::Usage))?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    let text = String::from_utf8(bytes).ok().filter(|text| text.len() as u64 <= FILE_BYTES_MAX);
    let text = text.ok_or_else(|| {
        let failure =
            Failure::new(Exit::Usage, format!("{shown} is no text (UTF-8) of at most {FILE_BYTES_MAX} bytes"));
        failure.next("give a config file")
    })?;
    parse(&text).map_err(|Wrong { line, what, allowed }| {
        Failure::new(Exit::Usage, format!("{shown}:{line}: {what}; allowed: {allowed}"))
            .next(format!("correct line {line}; `sinter config check {shown}` looks again"))
    })
}

fn parse(text: &str) -> Result<Settings, Wrong> {
    let line_of = |at: usize| text.as_bytes().iter().take(at).filter(|&&byte| byte == b'\n').count() + 1;
    let table = DeTable::parse(text).map_err(|error| Wrong {
        line: line_of(error.span().map_or(0, |span| span.start)),
        what: error.message().to_string(),
        allowed: "lines of KEY = VALUE (TOML)".to_string(),
    })?;
    let mut settings = Settings::default();
    for (key, value) in table.into_inner() {
        let at = line_of(key.span().start);
        set(&mut settings, key.get_ref(), value.get_ref()).map_err(|(what, allowed)| Wrong {
            line: at,
            what,
            allowed,
        })?;
    }
    Ok(settings)
}

/// Takes over one value. Errors: what is wrong, and what is allowed.
fn set(settings: &mut Settings, key: &str, value: &DeValue<'_>) -> Result<(), (String, String)> {
    let Some((_, takes)) = KEYS.iter().find(|(known, _)| *known == key) else {
        let known: Vec<&str> = KEYS.iter().map(|(known, _)| *known).collect();
        return Err((format!("unknown key `{key}`"), known.join(", ")));
    };
    let is_number = key == "groups";
    let text = match value {
        DeValue::Integer(number) if is_number || takes.starts_with("bytes") => number.to_string(),
        DeValue::String(text) if !is_number => text.to_string(),
        other => return Err((format!("`{key}` can't be {}", kind(other)), takes.to_string())),
    };
    settings.take(key, &text).map_err(|why| (format!("`{key}` is {text:?}: {why}"), takes.to_string()))
}

/// The kind of a value, in words.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

impl Settings {
    /// Takes over the value of a known key, held to the bounds of the command line.
    pub fn take(&mut self, key: &str, text: &str) -> Result<(), String> {
        match key {
            "data" => self.data = Some(absolute(text)?),
            "mount" => self.mount = Some(absolute(text)?),
            "volume" => self.volume = Some(cli::volume_name(text)?),
            "size" => self.size = Some(cli::brick_bytes(text)?),
            "segment-size" => self.segment_size = Some(cli::segment_bytes(text)?),
            "groups" => self.groups = Some(cli::group_count(text)?),
            "device" => self.device = Some(absolute(text)?),
            "flash" => self.flash = Some(all_absolute(text)?),
            "disk" => self.disk = Some(all_absolute(text)?),
            "memory-max" => self.memory_max = Some(cli::memory_bytes(text)?),
            "metrics" => self.metrics = Some(console::address::parse(text)?),
            "console" => self.console = Some(console::address::parse(text)?),
            "listen" => self.listen = Some(cli::address(text)?),
            "name" => self.name = Some(cli::client_name(text)?),
            "wire-encryption" => self.wire_encryption = Some(cli::wire_encryption(text)?),
            _ => return Err("not known".to_string()),
        }
        Ok(())
    }
}

/// Files are read by daemons, whose working directory is anything.
fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err("not an absolute path".to_string()) }
}

/// The devices of the command line, else those of the file.
fn given(line: &[PathBuf], file: Option<Vec<PathBuf>>) -> Vec<PathBuf> {
    if line.is_empty() { file.unwrap_or_default() } else { line.to_vec() }
}

fn all_absolute(text: &str) -> Result<Vec<PathBuf>, String> {
    text.split(',').map(|path| absolute(path.trim())).collect()
}

impl Settings {
    /// The settings, by key; sizes in bytes.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "data": self.data,
            "mount": self.mount,
            "volume": self.volume,
            "size": self.size,
            "segment-size": self.segment_size,
            "groups": self.groups,
            "device": self.device,
            "flash": self.flash,
            "disk": self.disk,
            "memory-max": self.memory_max,
            "metrics": self.metrics,
            "console": self.console,
            "listen": self.listen,
            "name": self.name,
            "wire-encryption": self.wire_encryption.map(WireEncryption::word),
        })
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let paths = |paths: &Option<Vec<PathBuf>>| {
            let shown = paths.as_ref()?.iter().map(|path| path.display().to_string());
            Some(shown.collect::<Vec<_>>().join(", "))
        };
        let bytes = |value: &Option<u64>| value.map(crate::table::exact_bytes);
        let values = [
            path(&self.data),
            path(&self.mount),
            self.volume.clone(),
            bytes(&self.size),
            bytes(&self.segment_size),
            self.groups.map(|count| count.to_string()),
            path(&self.device),
            paths(&self.flash),
            paths(&self.disk),
            bytes(&self.memory_max),
            self.metrics.map(|address| address.to_string()),
            self.console.map(|address| address.to_string()),
            self.listen.clone(),
            self.name.clone(),
            self.wire_encryption.map(|wish| wish.word().to_string()),
        ];
        for ((key, _), value) in KEYS.iter().zip(values) {
            writeln!(f, "{key:<15} {}", value.as_deref().unwrap_or("not set"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
