//! Lines that people and programs give the binary, changed at random: none makes it panic.

use crate::admin::protocol::{Answer, Layer, Request, Response};
use crate::cli::Cli;
use clap::Parser;
use fuzz::{Plan, Target, fuzz};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

fn hold(target: &Target) {
    let plan = Plan::from_environment(target.usual);
    fuzz(target, &target.run, plan).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn no_command_line_can_harm() {
    fn seeds() -> Vec<Vec<u8>> {
        let lines = [
            "sinter up /data /mnt --size 20G --segment-size 1m --groups 8 --memory-max 1073741824 --volume a.b-c_1",
            "sinter up --config /etc/sinter/a.toml",
            "sinter format /d --device /dev/x --force",
            "sinter bench sync /d --writers 1,64 --mode fsync,append-fdatasync --time 1 --size 64K --json --direct",
            "sinter volume create /d name --size 4G",
            "sinter layer add /d name delay 5 --operation read --at 1",
            "sinter check /d",
        ];
        lines.map(|line| line.as_bytes().to_vec()).to_vec()
    }
    fn run(bytes: &[u8]) -> fuzz::Answer {
        let words = bytes.split(|byte| *byte == b' ').map(|word| OsString::from_vec(word.to_vec()));
        match Cli::try_parse_from(words) {
            Ok(_) => 1,
            Err(error) => 2 + format!("{:?}", error.kind()).len() as u64,
        }
    }
    const WORDS: &[&str] =
        &[" ", " --", " -", "=", ",", "--size", "--help", "18446744073709551615", "1024T", "K", "--json", "\u{0}", "é"];
    hold(&Target { name: "command-line", seeds, run, words: WORDS, usual: 20_000 });
}

#[test]
fn no_line_on_the_admin_socket_can_harm() {
    fn seeds() -> Vec<Vec<u8>> {
        let delay = Layer::Delay { operation: Some("read".to_string()), ns: 5_000_000 };
        let requests = [
            Request::Status,
            Request::VolumeCreate { name: "home".to_string(), size_bytes: Some(1 << 30) },
            Request::VolumeRename { name: "home".to_string(), new_name: "house".to_string() },
            Request::VolumeResize { name: "home".to_string(), size_bytes: None },
            Request::VolumePolicy { name: "home".to_string(), policy: "flash-only".to_string() },
            Request::VolumeLimits {
                name: "home".to_string(),
                tree: Some("/a".to_string()),
                changed: [("iops-max".to_string(), 5)].into(),
            },
            Request::LayerAdd { volume: "home".to_string(), layer: delay, at: Some(1) },
            Request::LayerMove { volume: "home".to_string(), from: 1, to: 2 },
            Request::Umount { path: "/mnt".to_string(), lazy: true },
            Request::Grow { size_bytes: None },
        ];
        let replies = [Response::Answer(Answer::Done), Response::Answer(Answer::Grown { before_bytes: 1, bytes: 2 })];
        let requests = requests.iter().map(|request| serde_json::to_vec(request).expect("requests are JSON"));
        requests.chain(replies.iter().map(|reply| serde_json::to_vec(reply).expect("replies are JSON"))).collect()
    }
    fn run(bytes: &[u8]) -> fuzz::Answer {
        let request = serde_json::from_slice::<Request>(bytes);
        if let Ok(request) = &request {
            let line = serde_json::to_vec(request).expect("requests are JSON");
            assert!(serde_json::from_slice::<Request>(&line).is_ok_and(|again| again == *request), "{request:?}");
        }
        let reply = serde_json::from_slice::<Response>(bytes);
        u64::from(request.is_ok()) << 1 | u64::from(reply.is_ok())
    }
    const WORDS: &[&str] = &["\"", "{", "}", "[", "null", ":", ",", "\\u0000", "1e999", "-1", "request", "true"];
    hold(&Target { name: "admin", seeds, run, words: WORDS, usual: 500_000 });
}
