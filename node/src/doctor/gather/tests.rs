//! Trees as machines have them, and trees of junk.

use super::*;
use crate::doctor::facts::{CpuQuota, Hypervisor, Layer, Limit, Role};
use crate::doctor::{Finding, State, examine};
use crate::scratch::Scratch;
use std::os::unix::fs::symlink;

/// A machine's files, below a directory of their own.
struct Machine(Scratch);

impl Machine {
    fn new(files: &[(&str, &str)]) -> Machine {
        let machine = Machine(Scratch::new());
        for (path, text) in files {
            machine.write(path, text.as_bytes());
        }
        machine
    }
    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }
    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.at(path);
        std::fs::create_dir_all(path.parent().expect("below the scratch directory")).expect("writable");
        std::fs::write(path, bytes).expect("writable");
    }
    /// A link as sysfs has them: relative.
    fn link(&self, path: &str, target: &str) {
        let path = self.at(path);
        std::fs::create_dir_all(path.parent().expect("below the scratch directory")).expect("writable");
        symlink(target, path).expect("writable");
    }
    fn tree(&self) -> Tree {
        Tree::new(self.0.path())
    }
    fn facts(&self, brick: Option<&Brick>) -> Facts {
        gather(&self.tree(), brick, || ())
    }
}

/// A server: the brick on ext4 in an image, which lies on XFS on a partition of an NVMe drive behind an IOMMU.
fn server() -> Machine {
    let machine = Machine::new(&[
        (
            "proc/self/mountinfo",
            "22 1 259:1 / / rw,relatime - xfs /dev/nvme0n1p1 rw,attr2\n\
             30 22 7:0 / /srv/brick rw,noatime shared:1 - ext4 /dev/loop0 rw,discard\n\
             31 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        ),
        ("sys/devices/pci0/drive/nvme0n1/dev", "259:0\n"),
        ("sys/devices/pci0/drive/nvme0n1/queue/scheduler", "none [mq-deadline] kyber\n"),
        ("sys/devices/pci0/drive/nvme0n1/queue/rotational", "0\n"),
        ("sys/devices/pci0/drive/nvme0n1/queue/write_cache", "write back\n"),
        ("sys/devices/pci0/drive/nvme0n1/queue/fua", "1\n"),
        ("sys/devices/pci0/drive/nvme0n1/queue/nr_requests", "1023\n"),
        ("sys/devices/pci0/drive/nvme0n1/queue/logical_block_size", "512\n"),
        ("sys/devices/pci0/drive/nvme0n1/queue/physical_block_size", "4096\n"),
        ("sys/devices/pci0/drive/nvme0n1/queue/discard_max_bytes", "2199023255040\n"),
        ("sys/devices/pci0/drive/nvme0n1/mq/0/cpu_list", "0\n"),
        ("sys/devices/pci0/drive/nvme0n1/mq/1/cpu_list", "1\n"),
        ("sys/devices/pci0/drive/nvme0n1/alignment_offset", "0\n"),
        ("sys/devices/pci0/drive/nvme0n1/nvme0n1p1/dev", "259:1\n"),
        ("sys/devices/pci0/drive/nvme0n1/nvme0n1p1/partition", "1\n"),
        ("sys/devices/pci0/drive/nvme0n1/nvme0n1p1/start", "2048\n"),
        ("sys/devices/virtual/block/loop0/dev", "7:0\n"),
        ("sys/devices/virtual/block/loop0/loop/backing_file", "/images/brick.img\n"),
        ("sys/devices/virtual/block/loop0/loop/dio", "0\n"),
        ("sys/kernel/iommu_groups/14/type", "DMA\n"),
        ("sys/class/iommu/dmar0/name", ""),
    ]);
    machine.link("sys/dev/block/259:0", "../../devices/pci0/drive/nvme0n1");
    machine.link("sys/dev/block/259:1", "../../devices/pci0/drive/nvme0n1/nvme0n1p1");
    machine.link("sys/dev/block/7:0", "../../devices/virtual/block/loop0");
    machine.link("sys/devices/pci0/drive/iommu_group", "../../../kernel/iommu_groups/14");
    machine
}

fn brick() -> Brick {
    Brick { path: "/srv/brick/data".into(), ..Brick::default() }
}

fn names(place: &Place) -> Vec<String> {
    let name = |layer: &Layer| match layer {
        Layer::Host(host) => host.kind.clone(),
        Layer::Block(block) => block.name.clone(),
    };
    place.layers.iter().map(name).collect()
}

#[test]
fn a_brick_is_followed_down_to_its_disk() {
    let machine = server();
    let facts = machine.facts(Some(&brick()));
    assert_eq!(names(&facts.places[0]), ["ext4", "loop0", "xfs", "nvme0n1p1", "nvme0n1"]);
    let blocks = facts.blocks();
    assert_eq!(blocks[0].role, Role::Loop { file: Some("/images/brick.img".into()), direct: Some(false) });
    assert_eq!(blocks[1].role, Role::Partition { start_bytes: Some(1 << 20) });
    let disk = blocks[2];
    assert_eq!((disk.requests, disk.queues, disk.fua, disk.rotational), (Some(1023), Some(2), Some(true), Some(false)));
    assert_eq!(disk.iommu, Some(("DMA".to_string(), "14".to_string())));
    let advised = |check: &str| {
        let about = |finding: &&Finding| finding.check == check && finding.state == State::Advice;
        examine(&facts).iter().find(about).map(|finding| finding.found.clone()).unwrap_or_default()
    };
    assert_eq!(advised("scheduler"), "nvme0n1: mq-deadline");
    assert_eq!(advised("iommu"), "nvme0n1: strict");
    assert_eq!(advised("disk"), "loop0 goes through the page cache");
}

#[test]
fn a_device_of_the_bricks_own_is_a_place_of_its_own() {
    let machine = server();
    let own = Brick { device: Some(Device::Found(259, 0)), ..brick() };
    let facts = machine.facts(Some(&own));
    let places: Vec<(&str, usize)> = facts.places.iter().map(|place| (place.holds, place.layers.len())).collect();
    assert_eq!(places, [("index", 5), ("segments", 1)]);
    assert_eq!(facts.disks().count(), 1, "both lie on one disk");
    let missing = machine.facts(Some(&Brick { device: Some(Device::Missing), ..brick() }));
    assert!(missing.places[1].layers.is_empty());
}

#[test]
fn devices_made_of_devices_are_followed_and_loops_end() {
    let machine = Machine::new(&[
        ("proc/self/mountinfo", "22 1 0:30 / / rw - btrfs /dev/mapper/big rw\n"),
        ("dev/dm-0", ""),
        ("sys/devices/dm-0/dev", "253:0"),
        ("sys/devices/dm-0/dm/name", "big"),
        ("sys/devices/sda/dev", "8:0"),
        ("sys/devices/sda/device/scsi_disk/0:0:0:0/cache_type", "write back"),
        ("sys/devices/sda/queue/write_cache", "write through"),
        ("sys/devices/sdb/dev", "8:16"),
    ]);
    machine.link("dev/mapper/big", "../dm-0");
    machine.link("sys/class/block/dm-0", "../../devices/dm-0");
    machine.link("sys/dev/block/253:0", "../../devices/dm-0");
    machine.link("sys/devices/dm-0/slaves/sda", "../../sda");
    machine.link("sys/devices/dm-0/slaves/sdb", "../../sdb");
    machine.link("sys/devices/sdb/slaves/dm-0", "../../dm-0");
    let facts = machine.facts(Some(&Brick { path: "/data".into(), ..Brick::default() }));
    assert_eq!(names(&facts.places[0]), ["btrfs", "dm-0", "sda", "sdb"]);
    assert_eq!(facts.blocks()[0].role, Role::Made { of: "big".into() });
    let unsafe_cache = |finding: &Finding| finding.check == "write cache" && finding.state == State::Warning;
    assert!(examine(&facts).iter().any(unsafe_cache));
}

#[test]
fn what_is_there_once_is_read() {
    let machine = Machine::new(&[
        ("proc/sys/kernel/osrelease", "6.12.0-18-amd64\n"),
        ("proc/sys/kernel/io_uring_disabled", "2\n"),
        ("proc/cpuinfo", "processor: 0\nflags\t\t: fpu hypervisor\n"),
        ("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2  partition\t1024\t8\t-2\n"),
        ("proc/filesystems", "nodev\tsysfs\nnodev\tfuse\n\text4\n"),
        ("sys/module/fuse/parameters/enable_uring", "N\n"),
        ("sys/class/dmi/id/sys_vendor", "QEMU\n"),
        ("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state1/name", "C6\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "133\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "1\n"),
        ("sys/devices/system/cpu/cpu1/cpuidle/state1/name", "C6\n"),
        ("sys/devices/system/cpu/cpu1/cpuidle/state1/latency", "140\n"),
        ("sys/devices/system/cpu/cpu1/cpuidle/state1/disable", "0\n"),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
        ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n"),
        ("run/systemd/system/x", ""),
        ("dev/fuse", ""),
    ]);
    let facts = machine.facts(None);
    assert_eq!((facts.kernel.version, facts.kernel.uring_disabled), (Some((6, 12)), Some(2)));
    assert!(matches!(&facts.hypervisor, Some(Hypervisor { maker: Some(maker) }) if maker == "QEMU"));
    assert_eq!(facts.swap.as_ref().expect("it is there")[0].used_bytes, 8192);
    assert_eq!((facts.fuse.known, facts.fuse.device, facts.fuse.uring.as_deref()), (Some(true), Some(true), Some("N")));
    let [state] = &facts.idle.states[..] else { panic!("{:?}", facts.idle) };
    assert_eq!((state.exit_us, state.disabled), (140, false), "the worst CPU counts");
    assert_eq!(facts.idle.bounded, Some(false), "there is no such file");
    assert_eq!(facts.frequency.governors, ["powersave"]);
    assert_eq!(facts.trim_timer, Some(false));
}

#[test]
fn a_daemons_limits_and_groups_are_its_own() {
    let machine = Machine::new(&[
        (
            "proc/self/mountinfo",
            "31 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
             32 1 0:27 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
             33 1 0:28 / /cg/blkio rw - cgroup cgroup rw,blkio\n",
        ),
        ("proc/77/cgroup", "5:cpu,cpuacct:/x\n4:blkio:/y\n0::/system.slice/sinter.service\n"),
        (
            "proc/77/limits",
            "Limit  Soft  Hard\nMax file size   unlimited  unlimited  bytes\nMax open files   1024  524288  files\n",
        ),
        ("proc/77/status", "Name:\tsinter\nVmSwap:\t      12 kB\n"),
        ("proc/77/task/78/comm", "sinter-pm-qos\n"),
        ("sys/fs/cgroup/system.slice/sinter.service/io.max", "8:0 rbps=max wbps=1048576 riops=max wiops=max\n"),
        ("sys/fs/cgroup/system.slice/cpu.max", "50000 100000\n"),
        ("sys/fs/cgroup/system.slice/cpu.stat", "usage_usec 5\nnr_throttled 3\n"),
        ("sys/fs/cgroup/system.slice/memory.high", "max\n"),
        ("cg/cpu/x/cpu.cfs_quota_us", "-1\n"),
        ("cg/cpu/x/cpu.cfs_period_us", "100000\n"),
        ("cg/blkio/y/blkio.throttle.read_bps_device", "8:0 4096\n"),
        ("cg/blkio/y/blkio.throttle.write_iops_device", "8:0 10\n8:16 20\n"),
    ]);
    let facts = machine.facts(Some(&Brick { daemon: Some(77), ..brick() }));
    let process = &facts.process;
    assert_eq!(process.open_files, Some((Limit::Of(1024), Limit::Of(524_288))));
    assert_eq!((process.swapped_bytes, facts.idle.bounded), (Some(12 << 10), Some(true)));
    let groups = process.groups.as_ref().expect("they are known");
    let paths: Vec<&str> = groups.iter().map(|group| group.path.as_str()).collect();
    assert_eq!(paths, ["/cg/blkio/y", "/sys/fs/cgroup/system.slice/sinter.service", "/sys/fs/cgroup/system.slice"]);
    let io = |number: &str, limits: &str| (number.to_string(), limits.to_string());
    assert_eq!(groups[0].io, [io("8:0", "rbps=4096 wiops=10"), io("8:16", "wiops=20")]);
    assert_eq!(groups[1].io, [io("8:0", "wbps=1048576")]);
    assert_eq!(groups[2].cpu, Some(CpuQuota { us: 50_000, period_us: 100_000 }));
    assert_eq!((groups[2].throttled, groups[2].memory_bytes_high), (Some(3), None));
}

#[test]
fn changes_are_those_within_the_window() {
    let machine = Machine::new(&[]);
    let write = |sectors: u64, busy_ms: u64, stolen: u64, own: u64, other: u64| {
        let disks = format!("8 0 sda 1 1 {sectors} 1 1 1 100 1 0 {busy_ms} 9 0 0 0 0 0 0\nshort line\n");
        machine.write("proc/diskstats", disks.as_bytes());
        machine.write("proc/stat", format!("cpu  100 0 0 {} 0 0 0 {stolen} 0 0\ncpu0 1\n", 1000 - stolen).as_bytes());
        machine.write("proc/vmstat", b"pswpin 5\npswpout 7\n");
        for (process, moved) in [("self", own), ("77", own), ("4000001", other)] {
            let text = format!("rchar: 1\nread_bytes: {moved}\nwrite_bytes: 100\ncancelled_write_bytes: 7\n");
            machine.write(&format!("proc/{process}/io"), text.as_bytes());
        }
    };
    write(100, 10, 100, 0, 0);
    machine.write("proc/4000001/comm", b"rsync\n");
    let served = Brick { daemon: Some(77), ..brick() };
    let window = gather(&machine.tree(), Some(&served), || write(2100, 60, 100, 3000, 7000)).window;
    let [disk] = &window.disks[..] else { panic!("{window:?}") };
    assert_eq!((disk.name.as_str(), disk.bytes, disk.busy_ms), ("sda", 2000 * 512, 50));
    assert_eq!(window.own_bytes, Some(6000), "the daemon's and this process's");
    assert_eq!(window.other, Some(("rsync".to_string(), 4_000_001, 7000)));
    assert_eq!((window.swapped_pages, window.stolen_percent), (Some(0), None), "no tick went by");
    assert!(window.stolen_percent_ever.is_some_and(|percent| (9.0..9.2).contains(&percent)), "{window:?}");
}

#[test]
fn nothing_is_known_of_an_empty_tree() {
    let machine = Machine::new(&[]);
    let states: Vec<Finding> = examine(&machine.facts(Some(&brick())));
    // An absent file of PM QoS is no more than that: without idle states it does not matter.
    assert!(states.iter().all(|finding| finding.state == State::Unknown), "{states:#?}");
}

/// Every file of the trees above, with junk in its place.
#[test]
fn junk_is_unknown_and_never_a_panic() {
    let junk: [&[u8]; 9] = [
        b"",
        b"\n\n\n",
        b"\xff\xfe\0\0\x1b[31m",
        b"-1",
        b"18446744073709551616 18446744073709551616",
        b"18446744073709551615 0\n8:0 x\n",
        b": : : :\n0::\n0::/..\n::/\n",
        b"[[]][ ]",
        b"22 1 259:1 / / rw - \n - - -\n1 1 7:0 / /srv/brick rw - ext4 /dev/ rw\ncpu 1 2\ncpu  18446744073709551615 1 1 1 1 1 1 1\n",
    ];
    let mut files = Vec::new();
    for bytes in junk {
        let machine = server();
        for name in
            ["stat", "vmstat", "diskstats", "swaps", "filesystems", "cpuinfo", "77/io", "77/limits", "77/status"]
        {
            machine.write(&format!("proc/{name}"), b"");
        }
        for name in ["77/cgroup", "self/cgroup", "self/io", "77/task/1/comm", "sys/kernel/osrelease"] {
            machine.write(&format!("proc/{name}"), b"");
        }
        files.clear();
        list(machine.0.path(), &mut files);
        for file in &files {
            std::fs::write(file, bytes).expect("writable");
        }
        let brick = Brick { daemon: Some(77), device: Some(Device::Found(7, 0)), ..brick() };
        let findings = examine(&machine.facts(Some(&brick)));
        let warned = findings.iter().find(|finding| finding.state == State::Warning && finding.check != "limits");
        assert!(warned.is_none(), "{bytes:?}: {warned:?}");
        let shown = findings.iter().flat_map(|finding| finding.found.chars());
        assert!(shown.into_iter().all(|letter| !letter.is_control()), "{bytes:?}: {findings:?}");
    }
    assert!(files.len() > 30, "junk was in them");
}

/// A directory in the place of each file, and files in the place of directories.
#[test]
fn files_and_directories_may_be_exchanged() {
    let machine = server();
    let mut files = Vec::new();
    list(machine.0.path(), &mut files);
    for file in &files {
        std::fs::remove_file(file).expect("it is there");
        std::fs::create_dir(file).expect("writable");
    }
    assert!(examine(&machine.facts(Some(&brick()))).iter().all(|finding| finding.state != State::Warning));
    let machine = Machine::new(&[("proc", "1"), ("sys", "1"), ("dev", "1"), ("run", ""), ("etc", "")]);
    assert!(examine(&machine.facts(Some(&brick()))).iter().all(|finding| finding.state == State::Unknown));
}

/// All regular files below a directory.
fn list(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("it is there") {
        let entry = entry.expect("readable");
        let kind = entry.file_type().expect("it tells");
        if kind.is_dir() {
            list(&entry.path(), files);
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
}
