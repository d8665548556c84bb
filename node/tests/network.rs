//! Volumes that a brick's daemon serves to clients over the network: from two commands on each side to a mount, and what becomes of
//! it when the server is killed. `SINTER_VIA=network` has other modules of this program run over such a mount as well.

use crate::daemon::{Daemon, Home, STATES, fail, held, mounts_below, run, sinter, succeed, text};
use base::VolumeId;
use control::client::Membership;
use control::{ClientName, Grant, Held, Network, Rights, Role, Secret, TOKEN_LIFE_S, Uuid, Wish};
use runtime::real::Directory;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

fn status(of: &str) -> serde_json::Value {
    serde_json::from_str(&succeed(&["status", of, "--json"])).expect("JSON")
}

/// Waits until a command says something.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Bytes on the wire are encrypted, so all goes through the same doors as from another machine.
#[test]
fn a_few_commands_lead_to_a_mount_and_wrong_ones_to_the_right_ones() {
    let home = Home::new("network");
    let place = home.place();
    let mount = text(&home.mount);
    let nowhere = text(&home.scratch.join("membership")).to_string();
    fail(&["mount", &place, mount, "--directory", &nowhere], 1, &["joined no cluster", "sinter client join"]);
    fail(&["mount", "nonsense", mount], 2, &["NAME/VOLUME", "sinter mount BRICK VOLUME"]);
    fail(&["status", &place], 1, &["is not mounted here", "sinter mount"]);
    let server = home.serve(&[]);
    let membership = home.membership();
    let membership = text(&membership);
    let (name, _) = place.split_once('/').expect("a name and a volume");
    let absent = format!("{name}/absent");
    fail(&["mount", &absent, mount, "--directory", membership], 1, &["absent"]);
    assert!(mounts_below(home.scratch.path()).is_empty());

    // A mount on the server itself that can't be made leaves the volume to others; one that is made shares it.
    fail(&["mount", text(&home.data), "default", text(&home.scratch.join("nowhere"))], 1, &["nowhere"]);
    succeed(&["mount", text(&home.data), "default", mount]);
    let beside = home.scratch.directory("beside");
    succeed(&["mount", &place, text(&beside), "--directory", membership]);
    fs::write(home.mount.join("seen"), "at once").expect("writable");
    assert_eq!(fs::read_to_string(beside.join("seen")).expect("it is there"), "at once");
    succeed(&["umount", text(&beside)]);
    until("its daemon ends", || !run(&["status", &place]).status.success());
    succeed(&["umount", mount]);
    let output = run(&["mount", &place, mount, "--directory", membership]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::write(home.mount.join("file"), "over the network").expect("writable");
    let told = status(&place);
    assert_eq!(told["mounts"][0]["path"], mount);
    assert!(told["server"].as_str().is_some_and(|server| server.contains("connections")), "{told}");
    let table = fs::read_to_string("/proc/self/mounts").expect("/proc is mounted");
    assert!(table.lines().any(|line| line.starts_with(&format!("{place} {mount} fuse.sinter "))), "{table}");
    // The same volume again, here and on the server.
    let own = home.scratch.directory("own");
    let elsewhere = home.scratch.directory("elsewhere");
    fail(&["mount", &place, text(&elsewhere), "--directory", membership], 3, &["mount --bind"]);
    succeed(&["mount", text(&home.data), "default", text(&own)]);
    assert_eq!(fs::read_to_string(own.join("file")).expect("it is there"), "over the network");
    succeed(&["umount", text(&own)]);
    fail(&["volume", "list", &place], 1, &["on the server"]);
    succeed(&["profile", &place]);
    succeed(&["explain", &place, "--seconds", "1"]);
    succeed(&["umount", &place]);
    until("its daemon ends", || !run(&["status", &place]).status.success());

    // What was written is there, and nobody may change it through a mount that is read-only.
    succeed(&["mount", &place, mount, "--directory", membership, "--read-only"]);
    assert_eq!(fs::read_to_string(home.mount.join("file")).expect("it is there"), "over the network");
    let refused = fs::write(home.mount.join("other"), "x").expect_err("it is read-only");
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    succeed(&["down", &place]);
    assert!(mounts_below(home.scratch.path()).is_empty());
    server.terminate();
    fail(&["mount", &place, mount, "--directory", membership], 4, &["does not answer", "sinter status"]);
    home.check();
}

/// A mount that does not wait for ever gives errors once its server is away for so long, and works again when it is back; the server hears
/// then what was closed meanwhile.
#[test]
fn a_soft_mount_gives_errors_while_the_server_is_away() {
    let home = Home::new("soft");
    let server = home.serve(&[]);
    let mut command = home.client();
    command.args(["--soft", "2"]);
    let client = Daemon::start(command);
    fs::write(home.mount.join("kept"), "before").expect("writable");
    let file = File::options().read(true).write(true).create_new(true).open(home.mount.join("nameless"));
    let file = file.expect("writable");
    file.sync_all().expect("durable");
    fs::remove_file(home.mount.join("nameless")).expect("it is there");
    server.kill();
    let began = Instant::now();
    let error = fs::write(home.mount.join("late"), "x").expect_err("nobody answers");
    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
    assert!((1..10).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    // More than may be under way at once: none waits, and none keeps anything.
    let began = Instant::now();
    for number in 0..3000 {
        let error = fs::write(home.mount.join(format!("late-{number}")), "x").expect_err("nobody answers");
        assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
    }
    drop(file);
    assert!(began.elapsed() < Duration::from_secs(20), "at once: {:?}", began.elapsed());
    let server = home.serve(&[]);
    until("it is back", || fs::write(home.mount.join("again"), "x").is_ok());
    assert_eq!(fs::read_to_string(home.mount.join("kept")).expect("it is there"), "before");
    client.terminate();
    server.terminate();
    home.check();
}

/// Words that are looked for among all that goes over the network.
const MARK: &[u8] = b"whoever reads along can read this line as well";

/// Passes connections on to the server, and notes whether the words were among what they carried.
fn relay(to: String, seen: Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it listens");
    let pass_on = move |mut from: TcpStream, mut to: TcpStream| {
        let seen = seen.clone();
        std::thread::spawn(move || {
            let (mut piece, mut before) = ([0; 64 << 10], Vec::new());
            while let Ok(count @ 1..) = from.read(&mut piece) {
                before.extend_from_slice(&piece[..count]);
                seen.fetch_or(before.windows(MARK.len()).any(|window| window == MARK), Ordering::Relaxed);
                // The words may lie in two pieces.
                drop(before.drain(..before.len().saturating_sub(MARK.len())));
                if to.write_all(&piece[..count]).is_err() {
                    break;
                }
            }
            drop(to.shutdown(Shutdown::Both));
        });
    };
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(&to) else { continue };
            pass_on(client.try_clone().expect("a descriptor"), server.try_clone().expect("a descriptor"));
            pass_on(server, client);
        }
    });
    address
}

#[test]
fn contents_can_be_read_on_the_way_only_if_both_sides_were_told_so_and_both_warn_of_it() {
    let home = Home::new("clear");
    home.serve(&[]).terminate();
    let serve = |options: &[&str]| {
        let mut command = sinter();
        command.arg("serve").arg(&home.data).args(["--listen", &home.address()]).args(options);
        Daemon::start(command)
    };
    let warns = |of: &str, what: &str| {
        let warnings = status(of)["warnings"].as_array().expect("a list").clone();
        warnings.iter().any(|it| it.as_str().is_some_and(|it| it.contains(what)))
    };
    let (data, place, told) = (text(&home.data), home.place(), &["--wire-encryption", "off"][..]);
    let mut server = serve(told);
    let seen = Arc::new(AtomicBool::new(false));
    let address = relay(home.address(), seen.clone());
    let (name, _) = place.split_once('/').expect("a name and a volume");
    let file = home.membership().join(format!("{name}.toml"));
    let membership = fs::read_to_string(&file).expect("it has joined");
    assert!(membership.contains(&home.address()));
    fs::write(&file, membership.replace(&home.address(), &address.to_string())).expect("writable");
    for (of_client, of_server) in [(true, true), (false, true), (true, false)] {
        if !of_server {
            server.terminate();
            server = serve(&[]);
        }
        seen.store(false, Ordering::Relaxed);
        let mut command = home.client();
        command.args(if of_client { told } else { &[] });
        let client = Daemon::start(command);
        fs::write(home.mount.join("marked"), MARK.repeat(100)).expect("writable");
        File::open(home.mount.join("marked")).and_then(|file| file.sync_all()).expect("durable");
        assert_eq!(seen.load(Ordering::Relaxed), of_client && of_server, "{of_client} {of_server}");
        assert_eq!(warns(data, "contents go unencrypted over the network to clients"), of_server);
        assert_eq!(warns(&place, "contents go unencrypted over the network to the server"), of_client && of_server);
        assert_eq!(warns(&place, "it is encrypted until that is told so too"), of_client && !of_server);
        client.terminate();
    }
    server.terminate();
    home.check();
}

/// Programs wait while the server is away, and get no error; what it is they wait for is told.
#[test]
fn a_server_that_is_killed_is_waited_for() {
    let home = Home::new("waits");
    let mut server = Some(home.serve(&[]));
    let client = Daemon::start(home.client());
    let place = home.place();
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let file = File::options().read(true).write(true).create_new(true).open(home.mount.join("nameless"));
    let file = file.expect("writable");
    let mut nameless = &file;
    nameless.write_all(b"still here").expect("writable");
    nameless.sync_all().expect("durable");
    fs::remove_file(home.mount.join("nameless")).expect("it is there");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut options = File::options();
            options.append(true).create(true).custom_flags(libc::O_DSYNC);
            let mut log = options.open(home.mount.join("log")).expect("writable");
            while !stop.load(Ordering::Relaxed) {
                let number = written.load(Ordering::Relaxed);
                log.write_all(&number.to_le_bytes()).expect("no error while it waits");
                written.store(number + 1, Ordering::Relaxed);
            }
        });
        for round in 0..4 {
            let before = written.load(Ordering::Relaxed);
            until("the writer goes on", || written.load(Ordering::Relaxed) > before + 20 || writer.is_finished());
            server.take().expect("it runs").kill();
            let seen = |told: serde_json::Value| told["warnings"][0].as_str().is_some_and(|it| it.contains("away for"));
            until("the status tells it", || seen(status(&place)));
            if round == 3 {
                // Long enough for the log, too.
                std::thread::sleep(Duration::from_secs(3));
            }
            server = Some(home.serve(&[]));
        }
        let before = written.load(Ordering::Relaxed);
        until("the writer goes on", || written.load(Ordering::Relaxed) > before + 20 || writer.is_finished());
        stop.store(true, Ordering::Relaxed);
    });
    let log = fs::read(home.mount.join("log")).expect("readable");
    let numbers: Vec<u64> = log.chunks(8).map(|it| u64::from_le_bytes(it.try_into().expect("whole"))).collect();
    assert_eq!(numbers, (0..written.load(Ordering::Relaxed)).collect::<Vec<_>>(), "each once");
    let mut text = String::new();
    nameless.seek(SeekFrom::Start(0)).and_then(|_| nameless.read_to_string(&mut text)).expect("it is open");
    assert_eq!(text, "still here");
    // An operator is told within two seconds.
    std::thread::sleep(Duration::from_secs(3));
    drop(file);
    let said = client.terminate();
    assert!(!said.contains("has lost"), "{said}");
    assert!(said.contains("has been away for") && said.contains("is back"), "{said}");
    server.expect("it runs").terminate();
    home.check();
}

/// A mount whose server does not come back can be ended: what waits gets errors then, and the daemon goes.
#[test]
fn a_mount_without_a_server_can_be_ended() {
    let home = Home::new("gone");
    let server = home.serve(&[]);
    let client = Daemon::start(home.client());
    let file = File::create(home.mount.join("file")).expect("writable");
    server.kill();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| file.sync_all());
        std::thread::sleep(Duration::from_secs(1));
        assert!(!waits.is_finished(), "it waits");
        client.signal("TERM");
        let errno = waits.join().expect("no panic").expect_err("nobody answers").raw_os_error();
        assert!([libc::EIO, libc::EINTR, libc::ESHUTDOWN].map(Some).contains(&errno), "{errno:?}");
    });
    drop(file);
    let (status, said) = client.wait();
    assert!(status.code() == Some(1) && said.contains("not closed cleanly"), "{status}: {said}");
    assert!(mounts_below(home.scratch.path()).is_empty());
    home.serve(&[]).terminate();
    home.check();
}

/// A program that waits for a server can be killed; signals that kill nobody interrupt nothing.
#[test]
fn a_program_that_waits_can_be_killed() {
    const TICKS: &str = "import os, signal, sys\n\
        signal.signal(signal.SIGALRM, lambda *_: None)\n\
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)\n\
        file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_DSYNC)\n\
        print('open', flush=True)\n\
        sys.stdin.readline()\n\
        os.write(file, b'x' * 65536)\n\
        print('written', flush=True)\n\
        signal.setitimer(signal.ITIMER_REAL, 0)\n";
    let home = Home::new("killed");
    let server = home.serve(&[]);
    let client = Daemon::start(home.client());
    let start = |name: &str| {
        let mut python = Command::new("python3");
        python.arg("-c").arg(TICKS).arg(home.mount.join(name)).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = python.spawn().expect("python is installed");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        assert_eq!(lines.next().expect("a line").expect("text"), "open");
        (child, lines)
    };
    let ((mut killed, _), (mut waits, mut lines)) = (start("killed"), start("waits"));
    // Files that a crash takes back are stale.
    File::open(&home.mount).and_then(|directory| directory.sync_all()).expect("durable");
    server.kill();
    for child in [&mut killed, &mut waits] {
        child.stdin.as_mut().expect("piped").write_all(b"go\n").expect("it reads");
    }
    std::thread::sleep(Duration::from_secs(1));
    let began = Instant::now();
    killed.kill().expect("it runs");
    killed.wait().expect("it ends");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(waits.try_wait().expect("it can be asked").is_none(), "signals that are handled end no wait");
    let server = home.serve(&[]);
    assert_eq!(lines.next().expect("a line").expect("text"), "written");
    assert!(waits.wait().expect("it ends").success());
    client.terminate();
    server.terminate();
    home.check();
}

/// Changes that were told and not durable may go with the server's machine: fsync says so, to each handle once.
#[test]
#[cfg(feature = "seeded-bugs")]
fn an_fsync_tells_what_the_server_has_lost() {
    let home = Home::new("lost");
    let volatile = [("SINTER_TEST_VOLATILE_CACHE", "1")];
    let mut server = home.serve(&volatile);
    let client = Daemon::start(home.client());
    let path = home.mount.join("file");
    fs::write(&path, "before").expect("writable");
    File::open(&path).and_then(|file| file.sync_all()).expect("durable");
    let (one, other) = (File::options().write(true).open(&path), File::options().write(true).open(&path));
    let (one, other) = (one.expect("it is there"), other.expect("it is there"));
    let mut losses = 0;
    for round in 0..5 {
        one.write_all_at(format!("round {round}").as_bytes(), 0).expect("written");
        server.kill();
        server = home.serve(&volatile);
        let (first, second) = (one.sync_all(), other.sync_all());
        assert_eq!(first.is_err(), second.is_err(), "both or none");
        // Once each.
        one.sync_all().and_then(|()| other.sync_all()).expect("it was told");
        let Err(error) = first else { continue };
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        losses += 1;
    }
    assert!(losses > 0, "five kills have lost nothing");
    File::options().write(true).open(&path).and_then(|file| file.sync_all()).expect("opened later");
    drop((one, other));
    // An operator is told within two seconds.
    std::thread::sleep(Duration::from_secs(3));
    let said = client.terminate();
    assert!(said.contains("has lost changes that nobody had made durable"), "{said}");
    server.terminate();
    home.check();
}

/// The directory of a mount's daemon is there while the daemon is, and one that takes its place at that moment has its own.
#[test]
fn a_mount_that_ended_leaves_nothing_and_the_next_one_may_come_at_once() {
    let home = Home::new("leaves");
    let server = home.serve(&[]);
    let (place, membership) = (home.place(), home.membership());
    let (name, _) = place.split_once('/').expect("a name and a volume");
    let (states, mount) = (Path::new(STATES).join(name), text(&home.mount));
    let mounting = |at: &Path| run(&["mount", &place, text(at), "--directory", text(&membership)]);
    fail(&["mount", &format!("{name}/absent"), mount, "--directory", text(&membership)], 1, &["absent"]);
    assert!(!states.exists(), "a mount that was refused");
    for end in ["TERM", "umount", "down"] {
        let client = Daemon::start(home.client());
        assert!(states.join("default/admin.sock").exists());
        match end {
            "TERM" => client.signal("TERM"),
            end => drop(succeed(&[end, &place])),
        }
        assert!(client.wait().0.success() && !states.exists(), "{end}");
    }
    assert!(succeed(&["down", &place]).contains("no daemon serves"), "nothing to do is no failure");
    // What a killed one has left is taken by the next, which takes it along; what is somebody else's stays.
    Daemon::start(home.client()).kill();
    drop(Command::new("umount").arg("-l").arg(&home.mount).output());
    assert!(states.join("default/lock").exists());
    let client = Daemon::start(home.client());
    fs::write(states.join("default/notes"), "mine").expect("root may");
    client.terminate();
    assert_eq!(fs::read_dir(states.join("default")).expect("it stays").count(), 1);
    fs::remove_file(states.join("default/notes")).expect("it is there");
    for round in 0..10 {
        assert!(mounting(&home.mount).status.success());
        let mounted = std::thread::scope(|scope| {
            let down = scope.spawn(|| run(&["down", &place]));
            let mounted = mounting(&home.mount);
            assert!(down.join().expect("no panic").status.success(), "round {round}");
            mounted
        });
        let said = String::from_utf8_lossy(&mounted.stderr);
        assert!(mounted.status.success() || said.contains("has one mount"), "round {round}: {said}");
        assert!(!mounted.status.success() || run(&["status", &place]).status.success(), "round {round}: it is found");
        succeed(&["down", &place]);
        assert!(mounts_below(home.scratch.path()).is_empty() && !states.exists(), "round {round}");
    }
    server.terminate();
    home.check();
}

/// Both sides tell whether a volume is shared, and the server by whom.
#[test]
fn the_status_tells_who_has_a_volume_and_who_is_silent() {
    let home = Home::new("users");
    let server = home.serve(&[]);
    let (data, place) = (text(&home.data).to_string(), home.place());
    let users = || status(&data)["users"].clone();
    assert_eq!(users(), serde_json::json!([]));
    let one = Daemon::start(home.client());
    let alone =
        serde_json::json!([{ "volume": "default", "shared": false, "clients": ["test"], "silent": [], "here": false }]);
    assert_eq!(users(), alone);
    assert_eq!(status(&place)["shared"], false);
    let (other, own) = (home.scratch.directory("other"), home.scratch.directory("own"));
    let two = Daemon::start(home.other_client(&other));
    succeed(&["mount", &data, "default", text(&own)]);
    assert!(succeed(&["status", &data]).contains("default: shared by other, test and this machine\n"));
    assert!(succeed(&["status", &home.other_place()]).contains("yes: others have it mounted too"));
    assert_eq!(status(&place)["shared"], true);
    two.kill();
    drop(Command::new("umount").arg("-l").arg(&other).output());
    until("it is silent", || users()[0]["silent"] == serde_json::json!(["other"]));
    assert_eq!(users()[0]["shared"], true, "with the server's own mount");
    succeed(&["umount", text(&own)]);
    until("its mount is gone", || succeed(&["status", &data]).contains("default: test alone; other is silent\n"));
    until("nobody shares with one that is silent", || status(&place)["shared"] == false);
    one.terminate();
    server.terminate();
    home.check();
}

/// Layers run on clients, which follow a change at the server while they have the volume mounted, whatever it is called by then.
#[test]
fn a_change_of_layers_reaches_clients() {
    let home = Home::new("layered");
    let server = home.serve(&[]);
    let client = Daemon::start(home.client());
    let data = text(&home.data).to_string();
    fs::write(home.mount.join("file"), "before").expect("writable");
    let output = run(&["layer", "add", &data, "default", "read-only"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("follow within seconds: test"), "{said}");
    let refused = || fs::write(home.mount.join("new"), "x").map_err(|error| error.raw_os_error());
    until("the client is read-only", || refused() == Err(Some(libc::EROFS)));
    assert_eq!(fs::read_to_string(home.mount.join("file")).expect("it is there"), "before");
    succeed(&["volume", "rename", &data, "default", "other"]);
    succeed(&["layer", "remove", &data, "other", "1"]);
    until("the client may write again", || refused().is_ok());
    let said = client.terminate();
    assert!(said.contains("layers: there are 1 now") && said.contains("layers: there are 0 now"), "{said}");
    server.terminate();
    home.check();
}

/// A client that dies without a word leaves its volume to others after a while.
#[test]
fn a_dead_clients_volume_is_given_to_the_next() {
    let home = Home::new("next");
    let server = home.serve(&[]);
    Daemon::start(home.client()).kill();
    drop(Command::new("umount").arg("-l").arg(&home.mount).output());
    let client = Daemon::start(home.client());
    fs::write(home.mount.join("file"), "x").expect("writable");
    client.terminate();
    server.terminate();
    home.check();
}

/// A certificate that is older than 60 days is replaced by the client's daemon, without a word to programs.
#[test]
fn an_old_certificate_is_renewed_while_the_volume_is_mounted() {
    const AGE_S: u64 = 61 * 24 * 60 * 60;
    let home = Home::new("renewed");
    succeed(&["format", text(&home.data), "--size", "4G"]);
    succeed(&["volume", "create", text(&home.data), "default"]);
    let mut serve = sinter();
    serve.arg("serve").arg(&home.data);
    let server = Daemon::start(serve);
    let brick: Uuid = status(text(&home.data))["brick"].as_str().and_then(|it| it.parse().ok()).expect("an identity");
    let volumes: serde_json::Value =
        serde_json::from_str(&succeed(&["volume", "list", text(&home.data), "--json"])).expect("JSON");
    server.terminate();

    // As if all had been made then.
    let now_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs() - AGE_S;
    let mut network =
        Network::create(held(&home.data.join("network")), Uuid([7; 16]), brick, now_s).expect("a new identity");
    let volume = VolumeId(volumes[0]["id"].as_u64().expect("a number") as u32);
    let grant = Grant { volume, read_only: false, root_squash: false };
    let rights = Rights::new([grant]).expect("one");
    let wish = Wish { role: Role::Client, rights, uses: 1, life_s: TOKEN_LIFE_S };
    let address = vec![home.address().parse().expect("an address")];
    let place = home.place();
    let (name, _) = place.split_once('/').expect("a name and a volume");
    let name: ClientName = name.parse().expect("a name");
    let token = network.create_token(wish, Secret([9; 16]), (name.clone(), address), now_s).expect("a token");
    let membership = home.scratch.join("membership");
    let files = held(&membership);
    let joining = control::client::begin(&files, &name, token.clone()).expect("nothing there");
    let chain = network.admit(&token.secret, &joining.request, "test", now_s).expect("it has a token");
    let before = joining.finish(chain).expect("its own").certificate;
    drop((files, network));

    let server = home.serve(&[]);
    let client = Daemon::start(home.client());
    let certificate = || {
        let held = Held::lock(Directory::open(&membership).expect("it is there"), |from, to| fs::rename(from, to));
        held.map(|files| Membership::read(&files, &name).expect("whole").certificate)
    };
    until("it is renewed", || certificate().is_ok_and(|now| now != before));
    // The new one is good.
    server.kill();
    let server = home.serve(&[]);
    fs::write(home.mount.join("file"), "x").expect("writable");
    let said = client.terminate();
    assert!(said.contains("certificate was renewed"), "{said}");
    server.terminate();
    home.check();
}

/// A client's figures account for both machines: its own stages, the way, and the server's; the server's for what clients ask.
#[test]
fn a_profile_accounts_for_both_machines() {
    let home = Home::new("account");
    let server = home.serve(&[]);
    let client = Daemon::start(home.client());
    let path = home.mount.join("file");
    fs::write(&path, vec![7; 1 << 20]).expect("writable");
    let file = File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(&path).expect("it is there");
    let mut room = vec![0; 2 * 4096];
    let skip = room.as_ptr().align_offset(4096);
    for number in 0..2000 {
        let block = &mut room[skip..skip + 4096];
        file.read_exact_at(block, number % 256 * 4096).expect("it is there");
        if number % 10 == 0 {
            file.write_all_at(block, number % 256 * 4096).and_then(|()| file.sync_data()).expect("writable");
        }
    }
    drop(file);
    let profile = |of: &str| -> serde_json::Value {
        serde_json::from_str(&succeed(&["profile", of, "--of", "operations", "--json"])).expect("JSON")
    };
    let of = |profile: &serde_json::Value, name: &str| {
        let all = profile["operations"].as_array().expect("a list");
        all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name}: {profile:#}")).clone()
    };
    let sum = |times: &serde_json::Value| {
        let [count, mean_ns] = ["count", "mean_ns"].map(|name| times[name].as_u64().expect("a number"));
        count * mean_ns
    };
    let stages = |one: &serde_json::Value| -> BTreeMap<String, u64> {
        let all = one["stages"].as_array().expect("stages").iter();
        all.map(|stage| (stage["stage"].as_str().expect("a name").to_string(), sum(&stage["times"]))).collect()
    };
    let (at_client, at_server) = (profile(&home.place()), profile(text(&home.data)));
    for (name, needs) in [("read", ["wire", "server", "read"]), ("fsync", ["wire", "server", "flush"])] {
        let (client, server) = (of(&at_client, name), of(&at_server, name));
        let spent = stages(&client);
        for stage in needs {
            assert!(spent.get(stage).is_some_and(|ns| *ns > 0), "{name} at the client has no {stage}: {spent:?}");
        }
        assert_eq!(server["total"]["count"], client["total"]["count"], "{name}: {server:#} {client:#}");
        let (all, at_server, booked) = (sum(&client["total"]), sum(&server["total"]), spent.values().sum::<u64>());
        assert!(booked.abs_diff(all) <= all / 50, "{name}: {booked} ns of {all} are booked: {spent:?}");
        let told = all - spent["wire"];
        assert!(at_server < all && at_server * 9 / 10 < told, "{name}: {at_server} ns at the server, {told} told");
    }
    client.terminate();
    server.terminate();
    home.check();
}

/// A client's verdict names the server's part and what holds requests back there; a server that is away is told while it is.
#[test]
fn a_clients_verdict_tells_the_way_from_the_server() {
    let home = Home::new("verdict");
    let server = home.serve(&[]);
    let client = Daemon::start(home.client());
    fs::write(home.mount.join("file"), vec![7; 1 << 20]).expect("writable");
    let file = File::options().read(true).custom_flags(libc::O_DIRECT).open(home.mount.join("file")).expect("there");
    let explained = || -> serde_json::Value {
        let told = succeed(&["explain", &home.place(), "--seconds", "2", "--json"]);
        serde_json::from_str::<serde_json::Value>(&told).expect("JSON")["verdict"].clone()
    };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = &over;
        // It closes the file, else the client could not unmount.
        let reader = scope.spawn(move || {
            let mut room = vec![0; 2 * 4096];
            let skip = room.as_ptr().align_offset(4096);
            while !ends.load(Ordering::Relaxed) {
                file.read_exact_at(&mut room[skip..skip + 4096], 0).expect("it waits for a server that is away");
            }
        });
        succeed(&["volume", "set", text(&home.data), "default", "--iops-max", "100"]);
        let verdict = explained();
        assert!(verdict["cause"] == "limit" && verdict["resource"].to_string().contains("limits at"), "{verdict:#}");
        succeed(&["volume", "set", text(&home.data), "default", "--iops-max", "none"]);
        server.kill();
        std::thread::sleep(Duration::from_millis(500));
        let verdict = explained();
        assert!(verdict["cause"] == "network" && verdict["sentence"].to_string().contains("is away"), "{verdict:#}");
        let server = home.serve(&[]);
        over.store(true, Ordering::Relaxed);
        reader.join().expect("its reads go on");
        client.terminate();
        server.terminate();
    });
    home.check();
}
