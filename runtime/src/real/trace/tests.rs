use super::*;
use crate::real::Directory;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

/// Runs something in a thread that has no capabilities.
pub(super) fn powerless<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    let none = CapabilitySet::empty();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
            set_capabilities(None, sets).expect("anybody may give them away");
            run()
        });
        thread.join().expect("no panic")
    })
}

/// A file on a disk, opened past the page cache.
struct OnDisk {
    path: PathBuf,
    file: File,
    disks: Vec<Disk>,
}

impl OnDisk {
    fn new(name: &str, bytes: usize) -> OnDisk {
        let path = std::env::temp_dir().join(format!("sinter-trace-{name}-{}", std::process::id()));
        std::fs::write(&path, vec![1; bytes]).expect("the temporary directory is writable");
        File::open(&path).and_then(|file| file.sync_all()).expect("it is on the disk");
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(&path).expect("just made");
        let disks = below(&Directory::open(path.parent().expect("it has one")).expect("it is there"));
        OnDisk { path, file, disks }
    }
    fn numbers(&self) -> Vec<u32> {
        self.disks.iter().map(|disk| disk.number).collect()
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        std::fs::remove_file(&self.path).expect("just made");
    }
}

fn devices(on: &OnDisk, io: Sampling, run: impl FnOnce()) -> DeviceAccount {
    let devices = on.numbers();
    let wanted = Wanted { connections: &[], requests: Sampling::All, devices: &devices, io };
    let mut tracing = Tracer::open(&wanted).and_then(Tracer::start).expect("the tests run as root");
    run();
    tracing.follow(Duration::from_millis(50), || true).expect("nobody ends it");
    let window = tracing.end().expect("the kernel tells");
    assert!(window.lasted_ns >= 50_000_000 && window.requests.is_err());
    window.devices.expect("asked for")
}

/// Reads the first blocks of a file one by one, in an aligned buffer.
fn read(on: &OnDisk, blocks: u64) {
    let mut buffer = vec![0u8; 8192];
    let start = buffer.as_ptr().align_offset(4096);
    for block in 0..blocks {
        on.file.read_exact_at(&mut buffer[start..start + 4096], block * 4096).expect("it is that long");
    }
}

#[test]
fn every_read_of_a_disk_is_told_with_its_duration_and_its_reader() {
    let on = OnDisk::new("reads", 4 << 20);
    let account = devices(&on, Sampling::All, || read(&on, 500));
    let small = |class: &account::Class| class.1 == Verb::Read && class.2.bytes_max == Some(4096);
    let told: Vec<_> = account.services.iter().filter(|(class, _)| small(class)).collect();
    let count: u64 = told.iter().map(|(_, service)| service.times.count()).sum();
    // The kernel does not tell the end of each: those are counted as not ended.
    let all = count + account.unmatched.not_ended;
    assert!(all >= 500, "{count} of {all}, {:?}", account.unmatched);
    assert!(told.iter().all(|(_, service)| service.times.min_ns() > 0 && service.one_in == 1));
    let own: u64 = account.issuers.iter().filter(|(by, _)| by.own).map(|(_, issued)| issued.read_bytes).sum();
    assert!(own >= 500 * 4096, "{:?}", account.issuers);
    assert_eq!(account.unmatched.lost, 0);
}

#[test]
fn sparse_windows_look_at_one_small_read_in_64() {
    // Long enough for a dozen of the chosen stretches, wherever they are.
    let on = OnDisk::new("sparse", 48 << 20);
    let blocks = (48 << 20) / 4096;
    let account = devices(&on, Sampling::Sparse, || read(&on, blocks));
    let own: u64 = account.issuers.iter().filter(|(by, _)| by.own).map(|(_, issued)| issued.count).sum();
    assert!((blocks / 2..blocks * 2).contains(&own), "scaled, about as many as were read: {own} of {blocks}");
    let class = (account.services.iter()).find(|(class, _)| class.1 == Verb::Read && class.2.bytes_max == Some(4096));
    assert_eq!(class.expect("some were chosen").1.one_in, 64);
}

#[test]
fn a_window_that_is_cut_short_says_so() {
    let on = OnDisk::new("cut", 4096);
    let (connections, devices) = ([1], on.numbers());
    let wanted =
        Wanted { connections: &connections, requests: Sampling::Sparse, devices: &devices, io: Sampling::Sparse };
    let mut tracing = Tracer::open(&wanted).and_then(Tracer::start).expect("the tests run as root");
    let cut = tracing.follow(Duration::from_secs(3600), || false).expect_err("it would last for an hour");
    assert_eq!(cut.kind, Kind::Interrupted);
}

#[test]
fn a_thread_without_rights_is_told_what_it_needs() {
    let wanted = Wanted { connections: &[1], requests: Sampling::All, devices: &[1], io: Sampling::All };
    let refused = powerless(|| Tracer::open(&wanted).map(drop)).expect_err("no capabilities");
    assert!(refused.kind == Kind::Host && refused.to_string().contains("CAP_SYS_ADMIN"), "{refused}");
}

#[test]
fn nothing_to_trace_is_an_error() {
    let wanted = Wanted { connections: &[], requests: Sampling::All, devices: &[], io: Sampling::All };
    assert_eq!(Tracer::open(&wanted).map(drop).expect_err("nothing is wanted").kind, Kind::NotFound);
}

#[test]
fn lists_of_cpus_are_understood() {
    assert_eq!(numbers("0-3,5,7-8"), Some(vec![0, 1, 2, 3, 5, 7, 8]));
    assert_eq!(numbers("0"), Some(vec![0]));
    assert!([numbers(""), numbers("0-"), numbers("a"), numbers("0-99999999")].iter().all(Option::is_none));
    assert!(!online().is_empty());
}
