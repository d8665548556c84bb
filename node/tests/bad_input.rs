//! Bad input and bad surroundings: each is refused with one clear line, the next step and the right exit code or
//! errno; nothing is lost by it.

use crate::daemon::{Daemon, Home, Scratch, fail, refused, run, sinter, succeed, system, text};
use base::checksum::crc32c;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

const O_DSYNC: i32 = 0o10000;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const ENOTCONN: i32 = 107;
/// The errno of requests that were on their way when the daemon died.
const ECONNABORTED: i32 = 103;
const ECANCELED: i32 = 125;
const EFBIG: i32 = 27;
const ENAMETOOLONG: i32 = 36;

/// A brick with a volume and one file in it, not served.
fn used_brick(name: &str) -> Home {
    let home = Home::new(name);
    let daemon = home.up();
    std::fs::write(home.mount.join("kept"), "kept").expect("the mount is writable");
    daemon.terminate();
    home
}

/// The brick starts and still has its file.
fn is_unharmed(home: &Home) -> String {
    let daemon = home.up();
    assert_eq!(std::fs::read_to_string(home.mount.join("kept")).expect("it is there"), "kept");
    daemon.terminate()
}

#[test]
fn wrong_lines_end_with_code_2_and_a_hint() {
    for line in [&["up", "/d"][..], &["up", "/d", "/m", "--sise", "4G"], &["up", "/d", "/m", "--size", "1G"], &["fly"]]
    {
        let output = run(line);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line:?}: {errors}");
        assert!(errors.contains("--help"), "{line:?}: {errors}");
    }
    assert!(succeed(&["--version"]).starts_with("sinter "));
    assert!(succeed(&["--help"]).contains("Exit codes:"));
    assert!(succeed(&["completions", "bash"]).contains("_sinter"));
    assert!(succeed(&["man"]).contains(".TH sinter"));
    let pages = Scratch::new("pages");
    succeed(&["man", text(pages.path())]);
    assert!(pages.join("sinter-bench-sync.1").exists());
}

#[test]
fn missing_directories_are_named() {
    let home = Home::new("missing");
    let (data, mount) = (text(&home.data), text(&home.mount));
    fail(&["up", &format!("{data}/deep"), mount], 2, &["does not exist", "mkdir -p"]);
    fail(&["up", data, &format!("{mount}/absent")], 2, &["mount point", "does not exist", "mkdir -p"]);
    assert!(!home.data.exists(), "nothing is made for a line that can't work");
    fail(&["serve", data], 2, &["does not exist", "sinter format"]);
    fail(&["check", data], 2, &["does not exist"]);
    fail(&["volume", "list", data], 1, &["no brick", "sinter format"]);
    fail(&["status", mount], 1, &["no daemon serves", "sinter serve"]);
    fail(&["umount", mount], 1, &["nothing is mounted"]);
    fail(&["up", mount, mount], 2, &["contain each other"]);
    std::fs::write(home.mount.join("photo"), "").expect("the scratch directory is writable");
    fail(&["format", mount], 1, &["not empty", "photo"]);
    fail(&["serve", mount], 1, &["not empty", "photo"]);
}

#[test]
fn a_read_only_directory_is_refused() {
    let home = used_brick("read-only");
    system("mount", &["--bind", text(&home.data), text(&home.data)]);
    system("mount", &["-o", "remount,bind,ro", text(&home.data)]);
    home.refused(1, &["Read-only file system", "next step"]);
    // Looking is possible.
    home.check();
    system("umount", &[text(&home.data)]);
    is_unharmed(&home);
}

#[test]
fn a_brick_in_use_is_refused() {
    let home = Home::new("in-use");
    let daemon = home.up();
    let other = home.scratch.directory("other");
    let pid = daemon.pid().to_string();
    let next = format!("sinter mount {} two {}", text(&home.data), text(&other));
    fail(&["up", text(&home.data), text(&other), "--volume", "two"], 3, &["in use", &pid, "next step", &next]);
    fail(&["format", text(&home.data)], 3, &["in use"]);
    fail(&["check", text(&home.data)], 2, &["in use"]);
    std::fs::write(home.mount.join("works"), "").expect("the daemon is not disturbed");
    daemon.terminate();
}

#[test]
fn a_mount_point_in_use_is_refused() {
    let home = used_brick("mounted");
    system("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs", text(&home.mount)]);
    home.refused(3, &["mounted there", "next step"]);
    system("umount", &[text(&home.mount)]);
    let daemon = home.up();
    // A live volume of another daemon counts as in use too.
    let other = Home::new("mounted-other");
    fail(&["up", text(&other.data), text(&home.mount), "--size", "4G"], 3, &["mount", "next step"]);
    daemon.terminate();
    is_unharmed(&home);
}

#[test]
fn a_stale_mount_is_taken_over_or_unmounted() {
    let home = used_brick("stale");
    home.up().kill();
    // Attributes may still come from the kernel's cache; a listing does not.
    let dead = std::fs::read_dir(&home.mount).expect_err("its daemon is gone");
    assert!(matches!(dead.raw_os_error(), Some(ENOTCONN | ECONNABORTED | ECANCELED)), "{dead}");
    is_unharmed(&home);
    home.up().kill();
    succeed(&["umount", text(&home.mount)]);
    assert!(std::fs::metadata(&home.mount).is_ok());
    is_unharmed(&home);
}

/// Changes both copies of the superblock and makes their checksums right again.
fn patch_superblock(data: &Path, patch: impl Fn(&mut [u8])) {
    let file = OpenOptions::new().read(true).write(true).open(data.join("superblock")).expect("a brick");
    for copy in 0..2 {
        let mut block = [0; 4096];
        file.read_exact_at(&mut block, copy * 4096).expect("two copies");
        patch(&mut block);
        let crc = crc32c(&block[..4092]);
        block[4092..].copy_from_slice(&crc.to_le_bytes());
        file.write_all_at(&block, copy * 4096).expect("two copies");
    }
}

// Layout of the superblock (store/src/format/superblock.rs): magic, version, state.
const VERSION_AT: usize = 8;
const STATE_AT: usize = 12;
const FORMATTING: u32 = 1;

#[test]
fn a_newer_brick_is_refused() {
    let home = used_brick("newer");
    let set = |version: u32| {
        patch_superblock(&home.data, |block| block[VERSION_AT..][..4].copy_from_slice(&version.to_le_bytes()));
    };
    set(9);
    home.refused(6, &["newer", "format 9", "next step"]);
    fail(&["serve", text(&home.data)], 6, &["newer"]);
    fail(&["check", text(&home.data)], 2, &["newer"]);
    fail(&["format", text(&home.data)], 6, &["newer"]);
    set(1);
    is_unharmed(&home);
}

#[test]
fn a_half_formatted_brick_is_formatted_again() {
    let home = Home::new("half");
    succeed(&["format", text(&home.data), "--size", "4G"]);
    patch_superblock(&home.data, |block| block[STATE_AT..][..4].copy_from_slice(&FORMATTING.to_le_bytes()));
    fail(&["serve", text(&home.data)], 1, &["interrupted", "format"]);
    let errors = home.up().terminate();
    assert!(errors.contains("formatted again"), "{errors}");
    // Cut off before its first block was whole.
    let cut = Home::new("cut");
    std::fs::create_dir(&cut.data).expect("the scratch directory is writable");
    std::fs::write(cut.data.join("superblock"), [0; 8192]).expect("the scratch directory is writable");
    let errors = cut.up().terminate();
    assert!(errors.contains("formatted again"), "{errors}");
}

#[test]
fn one_damaged_superblock_is_survived_and_said() {
    let home = used_brick("damaged");
    let damage = |copy: u64| {
        let file = OpenOptions::new().write(true).open(home.data.join("superblock")).expect("a brick");
        file.write_all_at(b"damage", copy * 4096 + 100).expect("two copies");
    };
    damage(0);
    let output = run(&["check", text(&home.data)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("superblock"), "{output:?}");
    let errors = is_unharmed(&home);
    assert!(errors.contains("one copy of the superblock is damaged"), "{errors}");
    damage(0);
    damage(1);
    home.refused(5, &["both copies", "next step"]);
    fail(&["format", text(&home.data)], 5, &["both copies"]);
}

/// A block that is found on the device by its content.
fn marked(number: u64) -> Vec<u8> {
    [0x5eed_0000_0000_0000u64 + number, !number].map(u64::to_le_bytes).concat().repeat(256)
}

/// The offset of a block of this content in the first data file.
fn find_block(home: &Home, content: &[u8]) -> u64 {
    let file = File::open(home.data.join("segments-00000")).expect("a brick in use has segments");
    let mut chunk = vec![0; 1 << 20];
    for offset in (0..1 << 30).step_by(chunk.len()) {
        file.read_exact_at(&mut chunk, offset).expect("the file has 1 GiB");
        if let Some(at) = chunk.chunks(4096).position(|block| block == content) {
            return offset + at as u64 * 4096;
        }
    }
    panic!("the block is not on the device");
}

/// Flips a bit; doing it twice undoes it.
fn flip(home: &Home, at: u64) {
    let options = OpenOptions::new().read(true).write(true).open(home.data.join("segments-00000"));
    let file = options.expect("a brick in use has segments");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("within the file");
    file.write_all_at(&[byte[0] ^ 4], at).expect("within the file");
}

#[test]
fn a_damaged_log_is_refused_and_left_as_it_is() {
    let home = Home::new("log");
    let daemon = home.up();
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).custom_flags(O_DSYNC);
    let file = options.open(home.mount.join("log")).expect("the mount is writable");
    for number in 0..100 {
        file.write_all_at(&marked(number), number * 4096).expect("the mount is writable");
    }
    daemon.kill();
    drop(file);
    // The header block of a batch lies before its payload (rule L3).
    let header = find_block(&home, &marked(20)) - 4096;
    flip(&home, header + 40);
    home.refused(5, &["damaged", "durable", "next step"]);
    let output = run(&["check", text(&home.data)]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("finding: log"), "{output:?}");
    flip(&home, header + 40);
    let daemon = home.up();
    let content = std::fs::read(home.mount.join("log")).expect("it is there");
    let expected: Vec<u8> = (0..100).flat_map(marked).collect();
    assert!(content == expected, "every acknowledged write is there");
    daemon.terminate();
    home.check();
}

#[test]
fn a_lost_index_is_named() {
    let home = used_brick("index");
    let (index, away) = (home.data.join("index"), home.scratch.join("away"));
    std::fs::rename(&index, &away).expect("one file system");
    home.refused(5, &["lost its index", "next step"]);
    fail(&["check", text(&home.data)], 2, &["lost its index"]);
    fail(&["format", text(&home.data)], 1, &["already"]);
    std::fs::rename(&away, &index).expect("one file system");
    is_unharmed(&home);
}

#[test]
fn damaged_data_is_an_error_never_wrong_bytes() {
    let home = used_brick("data");
    let daemon = home.up();
    std::fs::write(home.mount.join("victim"), marked(1)).expect("the mount is writable");
    daemon.terminate();
    let at = find_block(&home, &marked(1));
    flip(&home, at + 1000);
    let daemon = home.up();
    let error = std::fs::read(home.mount.join("victim")).expect_err("its checksum does not match");
    assert_eq!(error.raw_os_error(), Some(EIO));
    assert_eq!(std::fs::read_to_string(home.mount.join("kept")).expect("not damaged"), "kept");
    daemon.terminate();
    flip(&home, at + 1000);
    let daemon = home.up();
    assert!(std::fs::read(home.mount.join("victim")).expect("it is there") == marked(1));
    daemon.terminate();
}

#[test]
fn a_host_without_fuse_is_named() {
    let home = Home::new("no-fuse");
    let script = "mount -t tmpfs none /dev && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_sinter"), "up"]);
    command.arg(&home.data).arg(&home.mount).args(["--size", "4G"]);
    let output = command.stdin(std::process::Stdio::null()).output().expect("unshare is installed");
    refused(&output, 4, &["/dev/fuse", "next step"], "without /dev/fuse");
    assert!(!home.data.exists(), "nothing is formatted for a host that can't mount");
    let script = "mount -t tmpfs none /dev && mknod /dev/fuse c 1 3 && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_sinter"), "up"]);
    let output = command.arg(&home.data).arg(&home.mount).output().expect("unshare is installed");
    refused(&output, 4, &["/dev/fuse", "mknod /dev/fuse c 10 229"], "with a false /dev/fuse");
    // Without the right to mount.
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin", env!("CARGO_BIN_EXE_sinter"), "up"]);
    let output = command.arg(&home.data).arg(&home.mount).output().expect("setpriv is installed");
    refused(&output, 1, &["CAP_SYS_ADMIN"], "without the right to mount");
    assert!(!home.data.exists());
    // Nothing is left that stands in the way of a second try.
    home.up().terminate();
}

#[test]
fn a_file_system_that_is_too_small_is_refused() {
    let home = Home::new("small");
    std::fs::create_dir(&home.data).expect("the scratch directory is writable");
    system("mount", &["-t", "tmpfs", "-o", "size=64m", "tmpfs", text(&home.data)]);
    fail(&["format", text(&home.data)], 1, &["room", "next step"]);
    home.refused(1, &["free", "next step"]);
}

/// A brick on a file system of its own, so that it can be filled without filling the machine's.
fn on_own_file_system(home: &Home, bytes: u64) {
    let image = home.scratch.join("image");
    File::create(&image).and_then(|file| file.set_len(bytes)).expect("the scratch directory is writable");
    system("mkfs.ext4", &["-q", "-m", "0", text(&image)]);
    std::fs::create_dir(&home.data).expect("the scratch directory is writable");
    system("mount", &["-o", "loop", text(&image), text(&home.data)]);
}

/// Writes files of 8 MiB until there is no space; their number.
fn fill(directory: &Path) -> usize {
    let content = vec![7; 8 << 20];
    for number in 0.. {
        let made = File::create(directory.join(format!("fill-{number}")));
        let done = made.and_then(|mut file| file.write_all(&content).and_then(|()| file.sync_all()));
        if let Err(error) = done {
            assert_eq!(error.raw_os_error(), Some(ENOSPC), "{error}");
            return number;
        }
    }
    unreachable!("no disk is endless")
}

#[test]
fn a_full_disk_is_enospc_and_loses_nothing() {
    let home = Home::new("full");
    on_own_file_system(&home, 5 << 30);
    let daemon = home.up();
    std::fs::write(home.mount.join("kept"), "kept").expect("the mount is writable");
    // Somebody else takes the rest of the file system: the brick can't make its files any more.
    let free = Command::new("df").args(["--output=avail", "-B1", text(&home.data)]).output().expect("df is installed");
    let free: u64 =
        String::from_utf8_lossy(&free.stdout).lines().last().expect("a figure").trim().parse().expect("bytes");
    // Less than half the ballast (32 MiB of this brick) would be short, and nothing new let in.
    system("fallocate", &["-l", &(free - (48 << 20)).to_string(), text(&home.data.join("other"))]);
    let filled = fill(&home.mount);
    assert!(filled > 0, "the space that the brick has is used");
    assert_eq!(std::fs::read_to_string(home.mount.join("kept")).expect("it is there"), "kept");
    // Deleting works on a full brick (rule K5).
    for number in 0..=filled {
        drop(std::fs::remove_file(home.mount.join(format!("fill-{number}"))));
    }
    let left = std::fs::read_dir(&home.mount).expect("it can be listed").count();
    assert_eq!(left, 1, "only what was kept is left");
    daemon.signal("TERM");
    let (status, errors) = daemon.wait();
    // Without room for the last checkpoint the log keeps everything, and the daemon says so.
    assert!(status.success() || errors.contains("no space left"), "{status}: {errors}");
    std::fs::remove_file(home.data.join("other")).expect("it was made above");
    is_unharmed(&home);
    home.check();
}

#[test]
fn limits_have_their_errnos() {
    let home = Home::new("limits");
    let daemon = home.up();
    let long = "n".repeat(256);
    let error = File::create(home.mount.join(&long)).expect_err("too long");
    assert_eq!(error.raw_os_error(), Some(ENAMETOOLONG));
    let longest = home.mount.join("n".repeat(255));
    let file = File::create(&longest).expect("the longest name");
    let end = base::limits::FILE_BYTES_MAX;
    file.write_all_at(b"end", end - 3).expect("the last bytes of the largest file");
    let error = file.write_all_at(b"over", end).expect_err("beyond the maximum");
    assert_eq!(error.raw_os_error(), Some(EFBIG));
    let error = file.set_len(end + 1).expect_err("beyond the maximum");
    assert_eq!(error.raw_os_error(), Some(EFBIG));
    assert_eq!(file.metadata().expect("still there").len(), end);
    drop(file);
    std::fs::remove_file(&longest).expect("it can be removed");
    daemon.terminate();
    home.check();
}

#[test]
fn an_unknown_test_switch_does_nothing_in_the_product() {
    let home = Home::new("switch");
    let mut command = home.command();
    command.env("SINTER_TEST_BUG", "NoSuchBug");
    if cfg!(feature = "seeded-bugs") {
        let output = command.output().expect("the binary runs");
        refused(&output, 2, &["NoSuchBug", "AckBeforeFlush"], "an unknown bug");
    } else {
        let errors = Daemon::start(command).terminate();
        assert!(!errors.contains("TEST BUILD"), "{errors}");
    }
    for threads in ["0", "65", "many"] {
        let mut command = home.command();
        command.env("SINTER_TEST_POOL_THREADS", threads);
        if cfg!(feature = "seeded-bugs") {
            let output = command.output().expect("the binary runs");
            refused(&output, 2, &["SINTER_TEST_POOL_THREADS", "from 1 to 64"], threads);
        } else {
            let errors = Daemon::start(command).terminate();
            assert!(!errors.contains("TEST BUILD"), "{errors}");
        }
    }
    assert!(sinter().arg("--version").env("SINTER_TEST_BUG", "x").status().expect("the binary runs").success());
}

/// A user that nobody is.
const STRANGER: u32 = 54_321;

/// Every command that opens a brick by its directory, and how it is called.
fn commands<'a>(data: &'a str, mount: &'a str) -> Vec<Vec<&'a str>> {
    vec![
        vec!["up", data, mount, "--size", "4G"],
        vec!["serve", data],
        vec!["format", data, "--size", "4G"],
        vec!["check", data],
        vec!["check", data, "--repair"],
        vec!["grow", data],
        vec!["volume", "list", data],
        vec!["status", data],
        vec!["down", data],
    ]
}

#[test]
fn a_directory_that_others_can_change_is_refused_by_every_command() {
    let home = used_brick("others");
    let (data, mount) = (text(&home.data), text(&home.mount));
    let mode = |mode: &str| system("chmod", &[mode, data]);
    let all_refuse = |parts: &[&str]| {
        for line in commands(data, mount) {
            let code = if line[0] == "check" { 2 } else { 1 };
            fail(&line, code, parts);
        }
    };
    std::os::unix::fs::chown(&home.data, Some(STRANGER), None).expect("root may");
    all_refuse(&["user 54321", "chown"]);
    std::os::unix::fs::chown(&home.data, Some(0), None).expect("root may");
    mode("0777");
    all_refuse(&["others may write", "chmod go-w"]);
    mode("0700");
    let link = home.scratch.join("link");
    std::os::unix::fs::symlink(data, &link).expect("writable");
    fail(&["check", text(&link)], 2, &["symbolic link", data]);
    fail(&["status", text(&link)], 1, &["symbolic link", data]);
    is_unharmed(&home);
}

#[test]
fn nothing_in_a_bricks_directory_leads_out_of_it() {
    let home = used_brick("links");
    let (data, mount) = (text(&home.data), text(&home.mount));
    let victim = home.scratch.join("victim");
    std::fs::write(&victim, "precious").expect("writable");
    let device_free = ["lock", "superblock", "index/PERSISTED", "index/LOG", "index/CURRENT", "admin.sock"];
    for name in device_free {
        let (path, away) = (home.data.join(name), home.scratch.join("away"));
        for kind in ["link", "pipe"] {
            let had = std::fs::rename(&path, &away).is_ok();
            match kind {
                "link" => std::os::unix::fs::symlink(&victim, &path).expect("writable"),
                _ => system("mkfifo", &[text(&path)]),
            }
            for line in commands(data, mount) {
                // A daemon makes its socket anew, and `status` knows of no other file; none waits for the pipe.
                let socket = name == "admin.sock" && ["up", "serve", "check", "format"].contains(&line[0]);
                if !socket && (name == "admin.sock" || line[0] != "status") {
                    let output =
                        Command::new("timeout").arg("20").arg(env!("CARGO_BIN_EXE_sinter")).args(&line).output();
                    let output = output.expect("timeout is installed");
                    let errors = String::from_utf8_lossy(&output.stderr);
                    let code = output.status.code();
                    let known = line[0] == "down" && name != "lock" && name != "admin.sock";
                    assert!(
                        known || code.is_some_and(|code| (1..=6).contains(&code)),
                        "{name} {line:?} {code:?} {errors}"
                    );
                }
            }
            std::fs::remove_file(&path).expect("it is still the link or the pipe");
            if had {
                std::fs::rename(&away, &path).expect("writable");
            }
            assert_eq!(std::fs::read_to_string(&victim).expect("there"), "precious", "{name}");
        }
    }
    // What a format makes, it makes for itself.
    let fresh = home.scratch.directory("fresh");
    std::os::unix::fs::symlink(&victim, fresh.join("lock")).expect("writable");
    fail(&["format", text(&fresh), "--size", "4G"], 1, &["lock", "remove it"]);
    assert_eq!(std::fs::read_to_string(&victim).expect("there"), "precious");
    is_unharmed(&home);
}

#[test]
fn commands_believe_no_strangers_socket_and_no_strangers_config() {
    let home = Home::new("stranger");
    let data = home.scratch.directory("data");
    let listen = "import os,socket,sys,time\ns=socket.socket(socket.AF_UNIX)\nos.setuid(54321)\ns.bind(sys.argv[1])\n\
                  s.listen(8)\nprint('ready',flush=True)\ntime.sleep(60)";
    system("chmod", &["1777", text(&data)]);
    let mut stranger = Command::new("python3")
        .args(["-c", listen, text(&data.join("admin.sock"))])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("python3 is installed");
    let mut line = String::new();
    let out = stranger.stdout.take().expect("piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("it says so");
    fail(&["status", text(&data)], 1, &["somebody else than root"]);
    fail(&["down", text(&data)], 1, &["somebody else than root"]);
    stranger.kill().expect("it runs");
    stranger.wait().expect("ours");
    let file = home.scratch.join("up.toml");
    std::fs::write(&file, "data = \"/a\"\nmount = \"/b\"\n").expect("writable");
    succeed(&["config", "check", text(&file)]);
    std::os::unix::fs::chown(&file, Some(STRANGER), None).expect("root may");
    fail(&["config", "check", text(&file)], 2, &["another user", "user 54321"]);
    std::os::unix::fs::symlink("/etc/passwd", home.scratch.join("link.toml")).expect("writable");
    fail(&["config", "check", text(&home.scratch.join("link.toml"))], 2, &["link"]);
}

/// The output of a daemon under a shell's limits.
fn limited(limit: &str, arguments: &[&str]) -> std::process::Output {
    let script = format!("{limit}; exec \"$@\"");
    let mut command = Command::new("bash");
    command.args(["-c", &script, "bash", env!("CARGO_BIN_EXE_sinter")]).args(arguments);
    command.stdin(std::process::Stdio::null()).output().expect("bash is installed")
}

#[test]
fn limits_of_the_shell_are_named() {
    let home = Home::new("limits");
    let (data, mount) = (text(&home.data), text(&home.mount));
    let up = ["up", data, mount, "--size", "4G"];
    refused(&limited("ulimit -v 1000000", &up), 4, &["ulimit -v", "--memory-max"], "little address space");
    refused(&limited("ulimit -n 20", &up), 4, &["ulimit -n"], "few files");
    // A file that may not grow is an error before anything is begun, and no signal's death.
    let other = text(&home.scratch.join("other")).to_string();
    for arguments in [&up[..], &["format", &other, "--size", "4G"]] {
        refused(&limited("ulimit -f 100", arguments), 4, &["ulimit -f"], "small files");
    }
    assert!(!home.scratch.join("other").exists());
    // What may be raised is.
    assert!(limited("ulimit -S -f 100 -n 20", &["format", &other, "--size", "4G"]).status.success());
}

#[test]
fn what_is_odd_is_warned_of_and_errors_are_json_where_that_is_asked_for() {
    let home = Home::new("warned");
    std::fs::write(home.mount.join("hidden"), "").expect("writable");
    let mut command = home.command();
    command.args(["--memory-max", "1T"]);
    let said = Daemon::start(command).terminate();
    assert!(said.contains("is hidden while") && said.contains("--memory-max is 1 TiB, more than"), "{said}");
    let data = text(&home.data);
    let json = |arguments: &[&str], code: i32| -> serde_json::Value {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        serde_json::from_slice(&output.stdout).expect("one document")
    };
    let error = json(&["status", data, "--json"], 1);
    assert!(error["exit_code"] == 1 && error["next_step"].as_str().is_some_and(|step| step.contains("sinter serve")));
    assert_eq!(json(&["grow", data, "--size", "4G", "--json"], 0)["before_bytes"].as_u64(), Some(4 << 30));
    let other = home.scratch.join("other");
    assert_eq!(json(&["format", text(&other), "--size", "4GiB", "--json"], 0)["size_bytes"].as_u64(), Some(4 << 30));
    let file = home.scratch.join("up.toml");
    std::fs::write(&file, "data = \"/a\"\nmount = \"/b\"\nsize = \"5GB\"\n").expect("writable");
    assert_eq!(json(&["config", "check", text(&file), "--json"], 0)["size"].as_u64(), Some(5_000_000_000));
    let daemon = Daemon::start({
        let mut command = sinter();
        command.args(["serve", text(&other)]);
        command
    });
    succeed(&["volume", "create", text(&other), "one"]);
    let point = text(&home.mount);
    assert_eq!(json(&["mount", text(&other), "one", point, "--json"], 0)["mount"].as_str(), Some(point));
    assert_eq!(json(&["umount", point, "--json"], 0)["mount"].as_str(), Some(point));
    let output = run(&["mount", text(&other), "one", point]);
    assert!(output.status.success() && String::from_utf8_lossy(&output.stderr).contains("is hidden while"));
    daemon.terminate();
}
