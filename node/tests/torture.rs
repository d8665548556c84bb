//! Two clients torture one volume for a while: registers, names, logs, a counter, a bank and a database, from both at once, with the
//! server killed again and again if it is to be. `SINTER_TORTURE_S` says for how long (seconds), `SINTER_KILLS` how often.

use crate::daemon::{Daemon, Home, setting};
use crate::histories::{Call, is_linearizable};
use runtime::random::SplitMix;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Registers, of a block each.
const REGISTERS: u64 = 16;
/// Tokens of the bank, and the directories in which they may lie.
const TOKENS: u64 = 40;
const PLACES: u64 = 4;

/// The state of a run.
struct Run {
    mounts: [PathBuf; 2],
    /// True once nothing more is to be begun.
    is_over: AtomicBool,
    began: Instant,
    /// Errors of fsync, each for a loss that was seen.
    losses: AtomicU64,
    /// Files whose creation was lost.
    stale: AtomicU64,
    /// Kills of the server that have begun.
    kills: AtomicU64,
}

impl Run {
    fn path(&self, worker: usize, name: &str) -> PathBuf {
        self.mounts[worker % 2].join(name)
    }
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }
    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }
}

fn is_stale(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESTALE)
}

/// Appends records to a log of its own, and syncs now and then. What was synced is there for good, once and in order; an error of
/// fsync comes only if a record is gone that was told.
fn log(run: &Run, worker: usize) -> (PathBuf, Vec<u64>) {
    let path = run.path(worker, &format!("log-{worker}"));
    let open = || File::options().append(true).create(true).open(&path).expect("writable");
    let mut file = open();
    file.sync_all().and_then(|()| File::open(path.parent().expect("a mount"))?.sync_all()).expect("durable");
    // Records that are durable, and those that were told since.
    let (mut durable, mut told) = (Vec::new(), Vec::new());
    for number in 0u64.. {
        if !run.goes_on() {
            break;
        }
        file.write_all(&number.to_le_bytes()).expect("no call fails but fsync");
        told.push(number);
        if number % 8 != 7 {
            continue;
        }
        match file.sync_all() {
            Ok(()) => durable.append(&mut told),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
                let there = numbers(&path);
                // A restart took some of those that were told before it, and others were told since.
                let left: Vec<_> = told.iter().filter(|number| there.contains(number)).copied().collect();
                assert!(left.len() < told.len(), "log {worker}: an error of fsync, and nothing is lost");
                assert!(there[..durable.len()] == durable, "log {worker} lost what was synced");
                assert!(there[durable.len()..] == left, "log {worker}: {:?} of {told:?}", &there[durable.len()..]);
                run.losses.fetch_add(1, Ordering::Relaxed);
                told = left;
                file = open();
            }
        }
    }
    if file.sync_all().is_ok() {
        durable.append(&mut told);
    }
    (path, durable)
}

fn numbers(path: &Path) -> Vec<u64> {
    let bytes = fs::read(path).expect("readable");
    bytes.chunks(8).map(|it| u64::from_le_bytes(it.try_into().expect("whole records"))).collect()
}

/// Counts a number up under a lock. Each count is durable when it is told.
fn count(run: &Run, worker: usize) -> u64 {
    let path = run.path(worker, "counter");
    let mut counted = 0;
    while run.goes_on() {
        let mut options = File::options();
        let file = options.read(true).write(true).custom_flags(libc::O_DSYNC).open(&path).expect("it is there");
        // SAFETY: the descriptor is open.
        let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) };
        assert_eq!(locked, 0, "{}", io::Error::last_os_error());
        let mut number = [0; 8];
        file.read_exact_at(&mut number, 0).expect("readable");
        file.write_all_at(&(u64::from_le_bytes(number) + 1).to_le_bytes(), 0).expect("writable");
        counted += 1;
    }
    counted
}

/// Moves tokens between directories; another worker may have moved one before.
fn bank(run: &Run, worker: usize) {
    let mut draw = SplitMix(worker as u64);
    while run.goes_on() {
        let (token, from, to) = (draw.below(TOKENS), draw.below(PLACES), draw.below(PLACES));
        let place = |place| run.path(worker, &format!("bank-{place}/token-{token}"));
        match fs::rename(place(from), place(to)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => panic!("token {token}: {error}"),
        }
    }
}

/// Makes small files and looks at them again; every other one is synced, with its name. After a crash those that were not may be gone,
/// and are stale then: only after one, and only if their name, which one record had made with the file, leads nowhere, or to the file
/// before it, whose removal is lost too.
fn files(run: &Run, worker: usize) {
    let path = run.path(worker, &format!("file-{worker}"));
    let directory = File::open(path.parent().expect("a mount")).expect("it is there");
    let mut kills_before = 0;
    for number in 0u64.. {
        if !run.goes_on() {
            return;
        }
        let kills = run.kills.load(Ordering::SeqCst);
        let file = match File::create_new(&path) {
            Ok(file) => file,
            Err(error) => {
                // A crash has taken the removal back, which nobody had synced.
                assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{error}");
                assert!(
                    run.kills.load(Ordering::SeqCst) > kills_before,
                    "worker {worker}, file {number}: its name is there again, and no kill"
                );
                fs::remove_file(&path).expect("it is there again");
                kills_before = kills;
                continue;
            }
        };
        kills_before = kills;
        // A file that is lost at once may be stale for this.
        let own = file.metadata().map(|known| known.ino());
        let is_synced = number % 2 == 0 && file.sync_all().and_then(|()| directory.sync_all()).is_ok();
        let gone = |error: &io::Error| {
            assert!(is_stale(error) || error.kind() == io::ErrorKind::NotFound, "{error}");
            assert!(!is_synced, "worker {worker}, file {number} was synced: {error}");
            assert!(run.kills.load(Ordering::SeqCst) > kills, "worker {worker}, file {number}, and no kill: {error}");
            let there = fs::symlink_metadata(&path).map(|there| there.ino());
            let is_lost = match (&there, &own) {
                (Err(error), _) => error.kind() == io::ErrorKind::NotFound,
                (Ok(there), Ok(own)) => there != own,
                (Ok(_), Err(_)) => true,
            };
            assert!(is_lost, "worker {worker}, file {number} is {own:?}, and the name leads to {there:?}: {error}");
            let handle = file.metadata().expect_err("the name is lost with its file");
            assert!(is_stale(&handle), "{handle}");
            run.stale.fetch_add(1, Ordering::Relaxed);
        };
        if let Err(error) = (&file).write_all(b"some bytes").and_then(|()| file.metadata()) {
            gone(&error);
            continue;
        }
        if let Err(error) = fs::remove_file(&path) {
            gone(&error);
        }
    }
}

/// Writes and reads registers past every cache.
fn registers(run: &Run, worker: usize, values: &AtomicU64) -> Vec<Call> {
    let mut options = File::options();
    let file = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(run.path(worker, "registers"));
    let (file, mut draw, mut calls) = (file.expect("it is there"), SplitMix(worker as u64), Vec::new());
    let mut block = Block([0; 4096]);
    while run.goes_on() {
        let (register, is_write) = (draw.below(REGISTERS), draw.below(3) == 0);
        let mut value = values.fetch_add(u64::from(is_write), Ordering::Relaxed) + 1;
        let began_ns = run.now_ns();
        if is_write {
            block.0[..8].copy_from_slice(&value.to_le_bytes());
            file.write_all_at(&block.0, register * 4096).expect("writable");
        } else {
            file.read_exact_at(&mut block.0, register * 4096).expect("readable");
            value = u64::from_le_bytes(block.0[..8].try_into().expect("eight bytes"));
        }
        calls.push(Call { register, is_write, value, began_ns, ended_ns: run.now_ns() });
        std::thread::sleep(Duration::from_millis(draw.below(3)));
    }
    calls
}

#[repr(align(4096))]
struct Block([u8; 4096]);

/// Makes names that both clients want: each is got once. Directories and links likewise.
fn names(run: &Run, worker: usize, got: &Mutex<BTreeMap<u64, u32>>) {
    for number in 0u64.. {
        if !run.goes_on() {
            return;
        }
        let path = run.path(worker, &format!("names/name-{}", number % 500));
        let made = match number % 3 {
            0 => File::options().write(true).create_new(true).open(&path).map(drop),
            1 => fs::create_dir(&path),
            _ => fs::hard_link(run.path(worker, "counter"), &path),
        };
        match made {
            Ok(()) => {
                let is_there = fs::symlink_metadata(&path);
                assert!(is_there.is_ok(), "{}: {is_there:?}", path.display());
                let gone = if number % 3 == 1 { fs::remove_dir(&path) } else { fs::remove_file(&path) };
                gone.unwrap_or_else(|error| panic!("{}: only who made it removes it: {error}", path.display()));
                *got.lock().expect("no panic").entry(number % 3).or_default() += 1;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }
}

/// Counts rows up in a database that both clients have open. Its locks are POSIX ones; it syncs the removal of its journal, too, without
/// which a crash may take back what was committed last. The number of transactions, and of those that got
/// an error of fsync: they may have been done.
fn database(run: &Run, worker: usize) -> (u64, u64) {
    const PROGRAM: &str = "import sqlite3, sys, os\n\
        def opened():\n\
        \x20   base = sqlite3.connect(sys.argv[1], timeout=120, isolation_level=None)\n\
        \x20   base.execute('PRAGMA synchronous = EXTRA')\n\
        \x20   return base\n\
        base, count, doubts = opened(), 0, 0\n\
        while not os.path.exists(sys.argv[2]):\n\
        \x20   try:\n\
        \x20       base.execute('BEGIN IMMEDIATE')\n\
        \x20       base.execute('UPDATE counts SET count = count + 1 WHERE number = ?', (count % 10,))\n\
        \x20       base.execute('COMMIT')\n\
        \x20       count += 1\n\
        \x20   except sqlite3.OperationalError as error:\n\
        \x20       if 'I/O' not in str(error): raise\n\
        \x20       doubts += 1\n\
        \x20       base.close()\n\
        \x20       base = opened()\n\
        print(count, doubts)\n";
    let mut python = Command::new("python3");
    let over = run.path(worker, "over");
    let output = python.arg("-c").arg(PROGRAM).arg(run.path(worker, "database")).arg(over).output();
    let output = output.expect("python is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (count, doubts) = text.trim().split_once(' ').expect("two numbers");
    (count.parse().expect("a number"), doubts.parse().expect("a number"))
}

fn sql(path: &Path, statement: &str) -> String {
    let output = Command::new("sqlite3").arg(path).arg(statement).output().expect("sqlite3 is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

/// Prepares what the workers share.
fn prepare(mount: &Path) {
    fs::write(mount.join("counter"), 0u64.to_le_bytes()).expect("writable");
    fs::write(mount.join("registers"), vec![0; REGISTERS as usize * 4096]).expect("writable");
    fs::create_dir(mount.join("names")).expect("a fresh name");
    (0..PLACES).for_each(|place| fs::create_dir(mount.join(format!("bank-{place}"))).expect("a fresh name"));
    (0..TOKENS).for_each(|token| fs::write(mount.join(format!("bank-0/token-{token}")), "x").expect("writable"));
    let rows = (0..10).map(|number| format!("INSERT INTO counts VALUES ({number}, 0);")).collect::<String>();
    sql(&mount.join("database"), &format!("CREATE TABLE counts (number INTEGER PRIMARY KEY, count INTEGER); {rows}"));
    for entry in fs::read_dir(mount).expect("readable") {
        File::open(entry.expect("readable").path()).and_then(|file| file.sync_all()).expect("durable");
    }
    for token in 0..TOKENS {
        File::open(mount.join(format!("bank-0/token-{token}"))).and_then(|file| file.sync_all()).expect("durable");
    }
    File::open(mount).and_then(|mount| mount.sync_all()).expect("durable");
}

/// Runs all jobs from both clients, until the time is over and the server was killed that often; behind a cache that forgets what
/// was not flushed.
fn torture(name: &str, seconds: u64, kills: u64) {
    let home = Home::new(name);
    let volatile = [("SINTER_TEST_VOLATILE_CACHE", "1")];
    let environment: &[(&str, &str)] = if kills > 0 { &volatile } else { &[] };
    let mut server = Some(home.serve(environment));
    let one = Daemon::start(home.client());
    let other = home.scratch.directory("other");
    let two = Daemon::start(home.other_client(&other));
    prepare(&home.mount);
    let run = Run {
        mounts: [home.mount.clone(), other],
        is_over: AtomicBool::new(false),
        began: Instant::now(),
        losses: AtomicU64::new(0),
        stale: AtomicU64::new(0),
        kills: AtomicU64::new(0),
    };
    let (values, got) = (AtomicU64::new(0), Mutex::default());
    let (run, values, got, server) = (&run, &values, &got, &mut server);
    std::thread::scope(|scope| {
        let workers = || 0..4usize;
        let logs: Vec<_> = workers().map(|worker| scope.spawn(move || log(run, worker))).collect();
        let counts: Vec<_> = workers().map(|worker| scope.spawn(move || count(run, worker))).collect();
        let databases: Vec<_> = workers().take(2).map(|worker| scope.spawn(move || database(run, worker))).collect();
        workers().take(2).for_each(|worker| drop(scope.spawn(move || bank(run, worker))));
        let mut calls = Vec::new();
        if kills > 0 {
            workers().take(2).for_each(|worker| drop(scope.spawn(move || files(run, worker))));
        } else {
            // What a server shows that is killed before it is durable, others have seen: this is for one that lives.
            calls = workers().map(|worker| scope.spawn(move || registers(run, worker, values))).collect();
            workers().take(2).for_each(|worker| drop(scope.spawn(move || names(run, worker, got))));
        }
        let pause = Duration::from_millis(1000 * seconds / (kills + 1));
        let mut draw = SplitMix(77);
        for _ in 0..kills {
            std::thread::sleep(pause.mul_f64(0.5 + draw.below(100) as f64 / 100.0));
            run.kills.fetch_add(1, Ordering::SeqCst);
            server.take().expect("it runs").kill();
            *server = Some(home.serve(environment));
        }
        std::thread::sleep(Duration::from_secs(seconds).saturating_sub(run.began.elapsed()));
        run.is_over.store(true, Ordering::Relaxed);
        fs::write(run.path(0, "over"), "").expect("writable");

        for log in logs {
            let (path, durable) = log.join().expect("its promises hold");
            let there = numbers(&path);
            assert!(there.is_sorted_by(|one, next| one < next), "{}: nothing twice, and in order", path.display());
            let all: BTreeSet<_> = there.into_iter().collect();
            assert!(durable.iter().all(|number| all.contains(number)), "{}: what was synced is there", path.display());
        }
        let counted: u64 = counts.into_iter().map(|count| count.join().expect("its promises hold")).sum();
        let counter = fs::read(run.path(1, "counter")).expect("readable");
        assert_eq!(u64::from_le_bytes(counter.try_into().expect("eight bytes")), counted, "the counter");
        let rows = databases.into_iter().map(|base| base.join().expect("its promises hold"));
        let (rows, doubts) = rows.fold((0, 0), |(rows, doubts), (one, doubt)| (rows + one, doubts + doubt));
        let path = run.path(1, "database");
        assert_eq!(sql(&path, "PRAGMA integrity_check"), "ok");
        let sum: u64 = sql(&path, "SELECT sum(count) FROM counts").parse().expect("a number");
        assert!((rows..=rows + doubts).contains(&sum), "{sum} transactions, not {rows} and perhaps {doubts} more");
        assert!(kills > 0 || doubts == 0, "no error without a kill");
        let mut calls: Vec<_> = calls.into_iter().flat_map(|calls| calls.join().expect("its promises hold")).collect();
        let called = calls.len();
        for register in 0..REGISTERS {
            let of_it: Vec<_> = calls.extract_if(.., |call| call.register == register).collect();
            assert!(is_linearizable(of_it), "register {register}");
        }
        let got = got.lock().expect("no panic").clone();
        println!(
            "{kills} kills, {counted} counts, {rows} transactions and {doubts} with errors, {called} calls of registers, names {got:?}, {} errors of fsync, {} stale",
            run.losses.load(Ordering::Relaxed),
            run.stale.load(Ordering::Relaxed)
        );
    });
    let tokens = (0..PLACES).flat_map(|place| fs::read_dir(run.path(0, &format!("bank-{place}"))).expect("readable"));
    let mut tokens: Vec<_> = tokens.map(|entry| entry.expect("readable").file_name()).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), TOKENS as usize, "each token lies in one place");
    one.terminate();
    two.terminate();
    server.take().expect("it runs").terminate();
    home.check();
}

#[test]
fn two_clients_see_one_volume() {
    torture("torture", setting("SINTER_TORTURE_S", 8), 0);
}

#[test]
#[cfg(feature = "seeded-bugs")]
fn nothing_that_was_synced_is_lost_when_the_server_is_killed() {
    let kills = setting("SINTER_KILLS", 4);
    torture("kills", 2 * kills, kills);
}
