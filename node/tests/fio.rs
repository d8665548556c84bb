//! fio on a real mount: what it wrote is what it reads, synchronous writers share durability, replay after a kill is
//! bounded, and the daemon stays below its memory bound. They need root, /dev/fuse and fio.

use crate::daemon::{Daemon, Home, succeed, text};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// fio with what all jobs share; `job` is the rest of the line.
fn fio_command(directory: &Path, job: &str) -> Command {
    let mut command = Command::new("fio");
    command.args(["--name=job", "--directory", text(directory), "--output-format=json", "--randrepeat=1"]);
    command.args(["--verify_fatal=1", "--verify_state_save=0", "--fallocate=none"]).args(job.split_whitespace());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn finished(fio: Child, job: &str) -> serde_json::Value {
    let output = fio.wait_with_output().expect("fio can be waited for");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "fio {job}: {}: {errors}\n{said}", output.status);
    // Notes come before the JSON.
    let json = said.find('{').map_or("", |at| &said[at..]);
    serde_json::from_str(json).unwrap_or_else(|error| panic!("fio {job}: {error}: {said}"))
}

/// Runs fio to its end; it must find nothing wrong.
fn fio(directory: &Path, job: &str) -> serde_json::Value {
    finished(fio_command(directory, job).spawn().expect("fio is installed"), job)
}

/// A figure of `sinter status`.
fn figure(home: &Home, name: &str) -> u64 {
    let status = succeed(&["status", text(&home.data), "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).expect("status is JSON");
    let mut figures = status["figures"].as_array().expect("figures").iter();
    let found = figures.find(|figure| figure["name"] == name);
    found.unwrap_or_else(|| panic!("no figure {name}"))["value"].as_u64().expect("a number")
}

#[test]
fn fio_reads_what_it_wrote() {
    let home = Home::new("fio-verify");
    let daemon = home.up();
    let jobs = [
        "--rw=write --bs=64k --size=24m --direct=0 --filename=sequential",
        "--rw=write --bs=1m --size=32m --direct=1 --filename=sequential-direct",
        "--rw=randwrite --bs=4k --size=6m --direct=0 --filename=random",
        "--rw=randwrite --bs=4k --size=6m --direct=1 --filename=random-direct --ioengine=libaio --iodepth=8",
        "--rw=randwrite --bsrange=512-1m --bs_unaligned=1 --size=16m --direct=0 --filename=mixed",
        "--rw=randwrite --bssplit=512/20:4k/30:68k/30:1m/20 --size=16m --direct=1 --filename=mixed-direct",
        "--rw=randrw --bsrange=512-64k --size=6m --direct=0 --filename=both",
    ];
    for job in jobs {
        fio(&home.mount, &format!("{job} --verify=crc32c --do_verify=1"));
    }
    daemon.terminate();
    home.check();
    // Once more from the brick itself: nothing that the kernel cached is left.
    let daemon = home.up();
    for job in &jobs[..4] {
        fio(&home.mount, &format!("{job} --verify=crc32c --verify_only=1"));
    }
    daemon.terminate();
}

#[test]
fn fio_reads_after_a_kill_what_it_wrote_synchronously() {
    let home = Home::new("fio-dsync");
    let daemon = home.up();
    let job = "--rw=randwrite --bs=4k --size=6m --sync=dsync --filename=synchronous --verify=crc32c";
    fio(&home.mount, &format!("{job} --do_verify=0"));
    daemon.kill();
    let daemon = home.up();
    fio(&home.mount, &format!("{job} --verify_only=1"));
    daemon.terminate();
    home.check();
}

/// The rates of synchronous writers in a few seconds.
struct Synchronous {
    writes_per_second: f64,
    writes: u64,
    batches: u64,
}

fn synchronous(home: &Home, writers: u32) -> Synchronous {
    // The files are made first: their making is not what is measured.
    let job = format!("--rw=randwrite --bs=4k --size=4m --sync=dsync --numjobs={writers} --group_reporting");
    fio(&home.mount, &job.replace("--sync=dsync", "--end_fsync=1").replace("--bs=4k", "--bs=1m"));
    let before = figure(home, "log batches");
    let said = fio(&home.mount, &format!("{job} --time_based --runtime=3"));
    let batches = figure(home, "log batches") - before;
    let write = &said["jobs"][0]["write"];
    let writes = write["total_ios"].as_u64().expect("fio counts writes");
    Synchronous { writes_per_second: write["iops"].as_f64().expect("fio measures"), writes, batches }
}

/// One durable batch is on its way at a time, and the next gathers who comes meanwhile.
const WRITES_PER_BATCH_MIN: f64 = 5.0;
/// Least ratio of the throughput of 16 writers to that of one.
const SPEEDUP_MIN: f64 = 4.0;

#[test]
fn synchronous_writers_share_durability() {
    let home = Home::new("fio-shared");
    let daemon = home.up();
    let mut seen = Vec::new();
    // Other tests run on the same machine, and others' on its host: a measurement beside them is repeated. Seen there: six
    // synchronous writes per second, for a minute.
    for _ in 0..10 {
        let (one, many) = (synchronous(&home, 1), synchronous(&home, 16));
        let per_batch = many.writes as f64 / many.batches.max(1) as f64;
        let speedup = many.writes_per_second / one.writes_per_second;
        println!("{per_batch:.1} writes per batch, {speedup:.1} times one writer's {:.0}/s", one.writes_per_second);
        if per_batch >= WRITES_PER_BATCH_MIN && speedup >= SPEEDUP_MIN {
            daemon.terminate();
            return;
        }
        seen.push((per_batch, speedup));
    }
    panic!("(writes per batch, times one writer's throughput): {seen:?}");
}

#[test]
fn replay_after_a_kill_takes_seconds() {
    let home = Home::new("fio-replay");
    let daemon = home.up();
    let job = "--rw=randwrite --bs=4k --size=64m --numjobs=4 --fdatasync=64 --time_based --runtime=5";
    fio(&home.mount, job);
    let replay = figure(&home, "replay bytes now");
    daemon.kill();
    let began = Instant::now();
    let daemon = home.up();
    println!("{replay} bytes of log replayed, ready after {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(5), "{replay} bytes of log: ready after {:?}", began.elapsed());
    daemon.terminate();
}

#[test]
fn who_reads_directly_finds_again_what_was_read() {
    const BLOCKS: u64 = (16 << 20) / 4096;
    let home = Home::new("fio-again");
    let mut command = home.command();
    command.args(["--memory-max", "4G"]);
    let daemon = Daemon::start(command);
    for seed in [1, 2] {
        let job = "--rw=randwrite --bs=4k --size=16m --direct=1 --filename=f --verify=crc32c";
        let job = format!("{job} --randrepeat=0 --randseed={seed}");
        fio(&home.mount, &format!("{job} --do_verify=0"));
        for time in 0..3 {
            let found = figure(&home, "blocks read from the read cache");
            fio(&home.mount, &format!("{job} --verify_only=1"));
            let found = figure(&home, "blocks read from the read cache") - found;
            assert_eq!(found, time / 2 * BLOCKS, "content {seed}, time {time}");
        }
    }
    // The kernel keeps this itself.
    let figures = || (figure(&home, "read cache bytes"), figure(&home, "blocks not in the read cache"));
    let before = figures();
    fio(&home.mount, "--rw=read --bs=64k --size=16m --filename=f --direct=0");
    assert_eq!(figures(), before);
    daemon.terminate();
    home.check();
}

#[test]
fn the_daemon_stays_below_its_memory_bound() {
    const BOUND: u64 = 512 << 20;
    let home = Home::new("fio-memory");
    let mut command = home.command();
    command.args(["--memory-max", "512M"]);
    let daemon = Daemon::start(command);
    let job = "--rw=randrw --bsrange=4k-1m --size=32m --numjobs=8 --time_based --runtime=6 --direct=1 \
               --ioengine=libaio --iodepth=8";
    let mut fio = fio_command(&home.mount, job).spawn().expect("fio is installed");
    let mut most = 0;
    // Its output is a few KiB: less than the pipe holds, so it ends without being read.
    while fio.try_wait().expect("fio can be waited for").is_none() {
        most = most.max(daemon.memory("VmRSS"));
        std::thread::sleep(Duration::from_millis(50));
    }
    finished(fio, job);
    println!("at most {} MiB", most >> 20);
    assert!(most <= BOUND, "{most} bytes");
    daemon.terminate();
    home.check();
}
