//! Good files are understood, bad ones refused with their line and what is allowed, and the command line wins.

use super::*;
use crate::cli::{Cli, Command};
use crate::scratch::Scratch;
use clap::{CommandFactory, Parser};
use store::format::devices::Tier;

const FULL: &str = "\
# A brick.
data = \"/srv/brick\"
mount = '/mnt/sinter'
volume = \"home\"
size = \"20G\"
segment-size = 1048576
groups = 8
device = \"/dev/nvme0n1\"
flash = \"/dev/nvme0n1, /dev/nvme1n1\"
disk = \"/dev/sda\"
memory-max = \"1G\"
metrics = \"127.0.0.1:9470\"
console = \"localhost:9471\"
listen = \"10.0.0.5\"
name = \"store\"
wire-encryption = \"off\"
";

fn up(line: &str) -> Up {
    let Command::Up(up) = Cli::try_parse_from(line.split_whitespace()).expect("a good line").command else {
        panic!("not up")
    };
    up
}

#[test]
fn a_full_file_is_understood_and_the_command_line_wins() {
    let scratch = Scratch::new();
    let file = scratch.path().join("a.toml");
    std::fs::write(&file, FULL).expect("writable");
    let shown = file.display();
    let plan = super::plan(&up(&format!("sinter up --config {shown}"))).expect("complete");
    assert_eq!((plan.data, plan.mount, plan.volume), ("/srv/brick".into(), "/mnt/sinter".into(), "home".to_string()));
    let geometry = plan.geometry;
    assert_eq!((geometry.size, geometry.segment_size, geometry.groups), (Some(20 << 30), Some(1 << 20), Some(8)));
    assert_eq!((&geometry.device, plan.resources.memory_max), (&Some("/dev/nvme0n1".into()), Some(1 << 30)));
    let further = [(Tier::Flash, "/dev/nvme1n1".into()), (Tier::Disk, "/dev/sda".into())];
    assert_eq!(geometry.further(), further);
    let address = |text: &str| Some(text.parse().expect("an address"));
    let surfaces = plan.surfaces;
    assert_eq!((surfaces.metrics, surfaces.console), (address("127.0.0.1:9470"), address("127.0.0.1:9471")));
    assert_eq!((plan.listen.listen.as_deref(), plan.listen.name.as_deref()), (Some("10.0.0.5:7400"), Some("store")));
    assert_eq!(plan.listen.wire_encryption, Some(cli::WireEncryption::Off));
    let line =
        format!("sinter up /d /m --console [::1]:1 --config {shown} --volume v --size 4G --segment-size 2M --groups 9");
    let more = "--device /dev/x --memory-max 2G --wire-encryption on";
    let plan = super::plan(&up(&format!("{line} {more}"))).expect("complete");
    assert_eq!(plan.listen.wire_encryption, Some(cli::WireEncryption::On));
    assert_eq!((plan.data, plan.mount, plan.volume), ("/d".into(), "/m".into(), "v".to_string()));
    let geometry = plan.geometry;
    assert_eq!((geometry.size, geometry.segment_size, geometry.groups), (Some(4 << 30), Some(2 << 20), Some(9)));
    assert_eq!((geometry.device, plan.resources.memory_max), (Some("/dev/x".into()), Some(2 << 30)));
    let surfaces = plan.surfaces;
    assert_eq!((surfaces.metrics, surfaces.console), (address("127.0.0.1:9470"), address("[::1]:1")));
}

#[test]
fn what_no_one_says_has_a_default_or_is_asked_for() {
    let plan = super::plan(&up("sinter up /d /m")).expect("complete");
    assert_eq!((plan.volume.as_str(), plan.geometry.size, plan.resources.memory_max), ("default", None, None));
    let scratch = Scratch::new();
    let file = scratch.path().join("a.toml");
    for (text, missing) in [("", "`data`"), ("data = \"/d\"\n", "`mount`")] {
        std::fs::write(&file, text).expect("writable");
        let failure = super::plan(&up(&format!("sinter up --config {}", file.display()))).expect_err(missing);
        assert!(failure.exit == Exit::Usage && failure.to_string().contains(missing), "{failure}");
    }
}

#[test]
fn every_argument_of_up_may_stand_in_a_file() {
    let command = Cli::command();
    let up = command.find_subcommand("up").expect("a command");
    // What is hidden is for measurements and tests, none of which needs a file.
    let shown = up.get_arguments().filter(|argument| !argument.is_hide_set());
    let arguments = shown.map(|argument| argument.get_id().as_str().replace('_', "-"));
    let mut arguments: Vec<String> = arguments.filter(|name| !matches!(name.as_str(), "config" | "help")).collect();
    let mut keys: Vec<String> = KEYS.iter().map(|(key, _)| key.to_string()).collect();
    arguments.sort();
    keys.sort();
    assert_eq!(keys, arguments);
    // Each is taken over: the table names no key that nobody reads.
    let settings = parse(FULL).expect("good");
    assert!(!settings.to_string().contains("not set"), "{settings}");
    assert_eq!(settings.to_string().lines().count(), KEYS.len());
}

#[test]
fn bad_files_are_refused_with_their_line_and_what_is_allowed() {
    let cases = [
        ("\nsise = 1\n", 2, "unknown key `sise`", "data, mount, volume, size"),
        ("data = \"/d\"\n\n[mount]\n", 3, "`mount` can't be a table", "an absolute path"),
        ("size = true\n", 1, "can't be true or false", "4G to 1024T"),
        ("size = 4.5\n", 1, "can't be a fraction", "4G to 1024T"),
        ("size = \"4.5G\"\n", 1, "whole number of bytes", "4G to 1024T"),
        ("size = \"1G\"\n", 1, "must be 4G to 1024T", "4G to 1024T"),
        ("size = -1\n", 1, "whole number of bytes", "4G to 1024T"),
        ("segment-size = \"3M\"\n", 1, "power of two", "1M to 256M"),
        ("segment_size = \"1M\"\n", 1, "unknown key `segment_size`", "segment-size"),
        ("groups = \"8\"\n", 1, "can't be a string", "1 to 1024"),
        ("groups = 0\n", 1, "1 to 1024", "1 to 1024"),
        ("groups = [8]\n", 1, "can't be a list", "1 to 1024"),
        ("memory-max = \"1\"\n", 1, "must be 256M to 1T", "256M to 1T"),
        ("data = \"srv\"\n", 1, "not an absolute path", "an absolute path"),
        ("data = 5\n", 1, "can't be a number", "an absolute path"),
        ("metrics = 9470\n", 1, "can't be a number", "HOST:PORT"),
        ("console = \"0.0.0.0:9470\"\n", 1, "can be reached from other machines", "127.0.0.1:9470"),
        ("wire-encryption = \"none\"\n", 1, "must be on or off", "\"on\" or \"off\""),
        ("listen = \"a b\"\n", 1, "an address is HOST:PORT", "HOST:PORT or HOST"),
        ("name = \"-a\"\n", 1, "begins with a letter", "1 to 64 letters"),
        ("volume = \"a/b\"\n", 1, "letters, digits", "1 to 63 bytes"),
        ("volume = 1979-05-27\n", 1, "can't be a date", "1 to 63 bytes"),
        ("data = \"/d\"\ndata = \"/e\"\n", 2, "duplicate", "KEY = VALUE"),
        ("data = \"/d\"\nmount = /m\n", 2, "", "KEY = VALUE"),
        ("data\n", 1, "", "KEY = VALUE"),
    ];
    for (text, line, what, allowed) in cases {
        let wrong = parse(text).expect_err(text);
        assert_eq!(wrong.line, line, "{text:?}: {wrong:?}");
        assert!(wrong.what.contains(what) && wrong.allowed.contains(allowed), "{text:?}: {wrong:?}");
    }
}

#[test]
fn what_is_no_config_file_is_refused() {
    let scratch = Scratch::new();
    let absent = read(&scratch.path().join("absent")).expect_err("not there");
    assert_eq!(absent.exit, Exit::Usage);
    assert!(read(scratch.path()).is_err(), "a directory");
    let file = scratch.path().join("file");
    for bytes in [vec![0xff; 10], vec![b'#'; 65 << 10]] {
        std::fs::write(&file, bytes).expect("writable");
        let refused = read(&file).expect_err("not a config file");
        assert!(refused.to_string().contains("no text"), "{refused}");
    }
    std::fs::write(&file, "\n\nsise = 1").expect("writable");
    let refused = read(&file).expect_err("unknown").to_string();
    assert!(
        refused.contains("file:3: unknown key `sise`; allowed: data, ") && refused.contains("config check"),
        "{refused}"
    );
}

/// No text makes the parser panic, and what it takes is within bounds.
#[test]
fn no_text_can_harm() {
    fn seeds() -> Vec<Vec<u8>> {
        [FULL, "", "size = 5\n[table]\nkey = [1, 2]\n"].map(|text| text.as_bytes().to_vec()).to_vec()
    }
    fn run(bytes: &[u8]) -> fuzz::Answer {
        let Ok(text) = std::str::from_utf8(bytes) else { return 0 };
        match parse(text) {
            Ok(settings) => {
                assert!(settings.size.is_none_or(|size| size >= 4 << 30) && settings.groups != Some(0), "{settings:?}");
                1
            }
            Err(wrong) => {
                assert!(wrong.line <= text.lines().count() + 1, "{wrong:?}");
                2 + wrong.what.len() as u64
            }
        }
    }
    const WORDS: &[&str] =
        &["=", "\"", "'''", "[", "]", "{", "\n", "size", "groups", "1e9", "-1", "0x7f", "\\u0000", "4G"];
    let target = fuzz::Target { name: "config", seeds, run, words: WORDS, usual: 200_000 };
    fuzz::fuzz(&target, &target.run, fuzz::Plan::from_environment(target.usual))
        .unwrap_or_else(|failure| panic!("{failure}"));
}
