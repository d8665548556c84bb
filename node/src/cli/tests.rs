//! Good lines are understood, bad ones refused with a hint, and every option says what it takes.

use super::*;
use clap::CommandFactory;
use std::collections::BTreeSet;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

fn refused(line: &str) -> String {
    let error = parse(line).expect_err(line);
    assert!(error.use_stderr(), "{line}");
    assert_eq!(error.exit_code(), 2, "{line}");
    error.to_string()
}

#[test]
fn the_definition_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn up_has_defaults() {
    let Command::Up(up) = parse("sinter up /data /mnt").expect("a good line").command else { panic!("not up") };
    assert_eq!((up.data, up.mount, up.volume), (Some("/data".into()), Some("/mnt".into()), None));
    assert_eq!((up.geometry.size, up.geometry.segment_size, up.geometry.groups), (None, None, None));
    assert_eq!(up.resources.memory_max, None);
}

#[test]
fn sizes_take_suffixes() {
    let line = "sinter up /data /mnt --size 20G --segment-size 1m --groups 8 --memory-max 1073741824 --volume a.b-c_1";
    let Command::Up(up) = parse(line).expect("a good line").command else { panic!("not up") };
    let geometry = (up.geometry.size, up.geometry.segment_size, up.geometry.groups);
    assert_eq!(geometry, (Some(20 << 30), Some(1 << 20), Some(8)));
    assert_eq!((up.resources.memory_max, up.volume.as_deref()), (Some(1 << 30), Some("a.b-c_1")));
}

#[test]
fn sizes_are_read_as_they_are_printed() {
    let size = |text: &str| bytes(text).ok();
    for (text, expected) in [
        ("5GiB", Some(5 << 30)),
        ("5 GiB", Some(5 << 30)),
        ("5gib", Some(5 << 30)),
        ("5GB", Some(5_000_000_000)),
        ("5kb", Some(5_000)),
        ("64M", Some(64 << 20)),
        ("7", Some(7)),
        ("", None),
        ("G", None),
        ("5GiBs", None),
        ("5iB", None),
        ("5.5G", None),
        ("-5G", None),
        ("5€", None),
        ("18446744073709551615T", None),
    ] {
        assert_eq!(size(text), expected, "{text}");
    }
    for bytes_now in [5u64 << 30, 64 << 20, 1 << 40] {
        assert_eq!(size(&crate::table::bytes(bytes_now)), Some(bytes_now));
    }
}

#[test]
fn lists_are_understood() {
    let line = "sinter bench sync /d --writers 1,64 --mode fsync,append-fdatasync --time 1 --size 64K --json --direct";
    let Command::Bench(Bench::Sync(sync)) = parse(line).expect("a good line").command else { panic!("not bench") };
    assert_eq!((sync.writers, sync.mode), (vec![1, 64], vec![SyncMode::Fsync, SyncMode::AppendFdatasync]));
    assert_eq!((sync.target.time, sync.size, sync.target.place.json, sync.direct), (1, Some(64 << 10), true, true));
    let Command::Bench(Bench::Sync(sync)) = parse("sinter bench sync /d").expect("a good line").command else {
        panic!("not bench")
    };
    assert_eq!((sync.writers, sync.mode.len()), (vec![1, 2, 4, 8, 16, 32, 64], 0));
}

#[test]
fn every_command_is_understood() {
    let lines = [
        "sinter up --config /etc/sinter/a.toml",
        "sinter up --config /etc/sinter/a.toml /d /m",
        "sinter config check /etc/sinter/a.toml",
        "sinter format /d --size 4G",
        "sinter serve /d --memory-max 256M",
        "sinter serve /d --until-unmounted",
        "sinter serve /d --listen 0.0.0.0 --name a.b-c",
        "sinter up /d /m --listen [::]:7400",
        "sinter serve /d --listen a --wire-encryption off",
        "sinter mount a/b /m --wire-encryption on",
        "sinter token create /d --volume a b --read-only --root-squash --ttl 30d --uses 1024 --address h:1 10.0.0.5 --json",
        "sinter token list /d --json",
        "sinter token revoke /d 0123456789ab --json",
        "sinter client join - --name a --as b --directory /e --json",
        "sinter client list /d --json",
        "sinter client revoke /d a --json",
        "sinter down /d --timeout 1 --json",
        "sinter cluster dev /d /m --size 4G --memory-max 1G",
        "sinter cluster status /d --json",
        "sinter cluster create prod --data /d --etcd https://a:2379,https://b:2379 --etcd-ca /c --etcd-cert /d --etcd-key /e",
        "sinter cluster recover-directory /d --json",
        "sinter cluster recover-directory /d --etcd http://a:2379",
        "sinter cluster move /d 10.0.0.9:7400 --node n3",
        "sinter cluster dev /d /m --etcd",
        "sinter mount /d default /m",
        "sinter umount /m --lazy",
        "sinter volume create /d a",
        "sinter volume list /d --json",
        "sinter volume info /d a --json",
        "sinter volume delete /d a",
        "sinter volume set /d a --size 1M --json",
        "sinter volume set /d a --size none",
        "sinter volume rename /d a b --json",
        "sinter layer list /d a --json",
        "sinter layer add /d a read-only",
        "sinter layer add /d a delay 5 --operation read --at 1 --json",
        "sinter layer add /d a fault io",
        "sinter layer add /d a fault no-space 100 --operation write-sync",
        "sinter layer remove /d a 1 --json",
        "sinter layer move /d a 2 1",
        "sinter umount /d a --timeout 5 --json",
        "sinter status /d --json",
        "sinter check /d --json",
        "sinter profile /d --json --history",
        "sinter profile /d --of locks --since /tmp/a --save /tmp/b --json",
        "sinter profile /d --watch 5 --of io",
        "sinter trace /d --perfetto /tmp/a --seconds 1 --json",
        "sinter top /d --seconds 5 --rounds 2 --json",
        "sinter bench random /d --jobs 1 --depth 64",
        "sinter bench metadata /d --threads 1 --files 10 --time 1",
        "sinter bench commit-mix /d --writers 8 --size 64M --beside /e --rounds 2",
        "sinter bench streams /d --streams 100000 --bit-rate 8000000 --size 4M --svg /tmp/a.svg",
        "sinter bench scorecard /d --beside /e --files 100 --size 1M --json",
        "sinter bench seq /d --jobs 2 --depth 32 --block-size 64K --size 1G",
        "sinter bench smallfile /d --threads 1,64 --file-size 1,1M --exponential --files 10 --phase read",
        "sinter bench object /d --bytes 16G --threads 64 --seed 4294967295 --time 60 --phase create --json",
        "sinter bench object /d --beside /e --rounds 2",
        "sinter completions bash",
        "sinter man",
        "sinter man /pages",
    ];
    for line in lines {
        assert!(parse(line).is_ok(), "{line}");
    }
}

#[test]
fn bad_lines_are_refused_with_a_hint() {
    let cases = [
        ("sinter", "Usage"),
        ("sinter fly", "unrecognized subcommand"),
        ("sinter up /d", "<MOUNT>"),
        ("sinter volume set /d a", "--size"),
        ("sinter volume set /d a --size 1K", "1M to 1024T"),
        ("sinter volume rename /d a .b", "not starting with"),
        ("sinter up /d /m /more", "unexpected argument"),
        ("sinter up /d /m --sise 4G", "--size"),
        ("sinter up /d /m --size", "value is required"),
        ("sinter up /d /m --size big", "whole number of bytes"),
        ("sinter up /d /m --size 4.5G", "whole number of bytes"),
        ("sinter up /d /m --size +4G", "whole number of bytes"),
        ("sinter up /d /m --size G", "whole number of bytes"),
        ("sinter up /d /m --size=-1", "whole number of bytes"),
        ("sinter up /d /m --size 4095M", "4G to 1024T"),
        ("sinter up /d /m --size 1025T", "4G to 1024T"),
        ("sinter up /d /m --size 99999999999T", "more bytes"),
        ("sinter up /d /m --segment-size 3M", "power of two"),
        ("sinter up /d /m --segment-size 512K", "1M to 256M"),
        ("sinter up /d /m --segment-size 512M", "1M to 256M"),
        ("sinter up /d /m --groups 0", "1 to 1024"),
        ("sinter up /d /m --groups many", "1 to 1024"),
        ("sinter up /d /m --memory-max 255M", "256M to 1T"),
        ("sinter up /d /m --volume a/b", "letters, digits"),
        ("sinter up /d /m --volume .hidden", "letters, digits"),
        ("sinter volume create /d ä", "letters, digits"),
        ("sinter volume create /d", "<NAME>"),
        ("sinter volume", "Usage"),
        ("sinter bench sync /d --writers 65", "1..=64"),
        ("sinter bench sync /d --writers 1,,2", "invalid value"),
        ("sinter bench sync /d --mode osync", "overwrite-dsync"),
        ("sinter bench sync /d --time 0", "1..=3600"),
        ("sinter bench sync /d --size 100000", "multiple of 4096"),
        ("sinter bench random /d --jobs 65", "1..=64"),
        ("sinter bench sync /d --rounds 3", "--beside"),
        ("sinter bench sync /d --beside /e --rounds 1", "2..=1000"),
        ("sinter bench seq /d --block-size 2M", "4K to 1M"),
        ("sinter bench seq /d --block-size 5000", "multiple of 4096"),
        ("sinter bench smallfile /d --file-size 2M", "1 to 1M bytes"),
        ("sinter bench smallfile /d --phase write", "create"),
        ("sinter bench object", "<DIRECTORY>"),
        ("sinter bench object /d --bytes 0", "1M to 1T bytes"),
        ("sinter bench object /d --threads 0", "1..=64"),
        ("sinter bench object /d --seed 4294967296", "not in 0..=4294967295"),
        ("sinter bench object /d --time 0", "1..=3600"),
        ("sinter layer add /d a", "Usage"),
        ("sinter layer add /d a mirror", "unexpected argument"),
        ("sinter layer add /d a delay 0", "1..=60000"),
        ("sinter layer add /d a delay 5 --operation fly", "write-sync"),
        ("sinter layer add /d a delay 5 --operation release", "write-sync"),
        ("sinter layer add /d a fault lightning", "no-space"),
        ("sinter layer add /d a fault io 0", "1..=1000000000"),
        ("sinter layer remove /d a 17", "1..=16"),
        ("sinter serve /d --listen 10.0.0.5:x", "HOST:PORT"),
        ("sinter serve /d --listen a --name -", "letter or digit"),
        ("sinter serve /d --listen a --wire-encryption none", "possible values: on, off"),
        ("sinter mount /d a /m --wire-encryption off", "cannot be used with"),
        ("sinter cluster dev /d /m --memory-max 512M", "must be 1G to 1T"),
        ("sinter cluster create prod --data /d --etcd-ca /c", "--etcd"),
        ("sinter cluster create prod --data /d --etcd https://a:1 --etcd-cert /c", "--etcd-key"),
        ("sinter cluster move /d", "<ADDRESS>"),
        ("sinter token create /d", "--volume"),
        ("sinter token create /d --volume a --ttl 31d", "1s to 30d"),
        ("sinter token create /d --volume a --ttl 0", "1s to 30d"),
        ("sinter token create /d --volume a --uses 1025", "1..=1024"),
        ("sinter client join", "<TOKEN>"),
        ("sinter completions dos", "bash"),
    ];
    for (line, hint) in cases {
        let text = refused(line);
        assert!(text.contains(hint), "{line}: {hint:?} is not in\n{text}");
        assert!(text.contains("--help") || text.contains("Usage"), "{line}:\n{text}");
    }
    let long = format!("sinter volume create /d {}", "x".repeat(64));
    assert!(refused(&long).contains("63 bytes"));
}

#[test]
fn help_and_version_are_not_failures() {
    for (line, expected) in [
        ("sinter --version", concat!("sinter ", env!("CARGO_PKG_VERSION"))),
        ("sinter --help", "Exit codes:"),
        ("sinter up --help", "--memory-max"),
    ] {
        let shown = parse(line).expect_err("shown instead of parsed");
        assert_eq!((shown.use_stderr(), shown.exit_code()), (false, 0));
        assert!(shown.to_string().contains(expected), "{line}:\n{shown}");
    }
}

/// All arguments of all commands, with the command's name.
fn arguments(command: &clap::Command) -> Vec<(String, clap::Arg)> {
    let own = command.get_arguments().map(|argument| (command.get_name().to_string(), argument.clone()));
    own.chain(command.get_subcommands().flat_map(arguments)).collect()
}

#[test]
fn every_option_says_what_it_takes_and_there_are_few() {
    // Commands that only look or measure: their options need the rest, but change no brick and no daemon (decision 0054).
    let looking: Vec<String> = Cli::command()
        .get_subcommands()
        .filter(|command| ["bench", "explain", "profile", "top", "trace"].contains(&command.get_name()))
        .flat_map(|command| command.get_subcommands().chain([command]).map(|command| command.get_name().to_string()))
        .collect();
    let all = arguments(&Cli::command());
    let mut names = BTreeSet::new();
    for (command, argument) in &all {
        let help = argument.get_help().map(|help| help.to_string()).unwrap_or_default();
        let name = argument.get_id();
        assert!(!help.is_empty(), "{command}: {name} has no help");
        let Some(long) = argument.get_long() else { continue };
        if !looking.contains(command) {
            names.insert(long);
        }
        let shown = !argument.get_default_values().is_empty() && !argument.is_hide_default_value_set();
        assert!(shown || help.contains("[default: "), "{command}: --{name} does not say its default");
    }
    // Decision D7.
    assert!(names.len() < 56, "{names:?}");
}
