//! The guest's kernel and initramfs: Debian's own kernel with the modules of its NFS and SMB clients, and the host's programs
//! with their libraries. Packages are downloaded and taken apart; nothing is installed.

use crate::flash::ground::{make_directory, text, told};
use std::fs;
use std::path::{Path, PathBuf};

/// A package that only depends on the newest kernel.
const KERNEL: &str = "linux-image-cloud-amd64";
const PACKAGES: [&str; 2] = ["busybox-static", "cifs-utils"];
/// Programs of the host that the guest has, too.
const PROGRAMS: [&str; 5] = ["git", "sqlite3", "flock", "setpriv", "mount.nfs"];
/// Modules of the kernel that the guest may need.
const MODULES: [&str; 13] = [
    "arch/x86/crypto",
    "crypto",
    "drivers/net/net_failover.ko",
    "drivers/net/virtio_net.ko",
    "drivers/virtio",
    "fs/fscache",
    "fs/lockd",
    "fs/netfs",
    "fs/nfs",
    "fs/nfs_common",
    "fs/nls",
    "fs/smb",
    "lib",
];
/// Directories of modules, each with everything below it, that those depend on.
const MODULES_OF_NET: [&str; 3] = ["net/core", "net/dns_resolver", "net/sunrpc"];

/// Files of the guest's own.
const FILES: [(&str, &str); 4] = [
    ("etc/passwd", "root:x:0:0::/:/bin/sh\nguest:x:1000:1000::/tmp:/bin/sh\n"),
    ("etc/group", "root:x:0:\nguest:x:1000:\n"),
    // NFS names owners by number; git refuses what belongs to another.
    ("etc/gitconfig", "[safe]\n\tdirectory = *\n"),
    // What every one of the protocols lets a client do.
    (
        "fsx.toml",
        "flen = 262144\n[opsize]\nmin = 1\nmax = 65536\n[weights]\nread = 10\nwrite = 10\nmapread = 3\nmapwrite = 3\n\
         truncate = 5\nfsync = 0.2\nclose_open = 1\ninvalidate = 0.5\n",
    ),
];

/// Makes `kernel` and `initramfs` in a directory; says the kernel's version.
pub fn make(work: &Path, repository: &Path, script: &Path, fsx: &Path) -> Result<String, String> {
    let packages = work.join("packages");
    let debian = unpacked(&packages)?;
    let root = work.join("root");
    for directory in ["bin", "dev", "etc", "mnt", "proc", "sys", "tmp"] {
        make_directory(&root.join(directory))?;
    }
    told("ln", &["-s", "bin", text(&root.join("sbin"))])?;
    let version = take_kernel(&debian, work, &root)?;
    copy(&debian.join("bin/busybox"), &root.join("bin/busybox"))?;
    for program in PROGRAMS {
        let path = told("sh", &["-c", &format!("command -v {program}")])?;
        take_program(Path::new(&path), program, &root)?;
    }
    take_program(&debian.join("sbin/mount.cifs"), "mount.cifs", &root)?;
    take_program(fsx, "fsx", &root)?;
    copy(script, &root.join("init"))?;
    told("chmod", &["+x", text(&root.join("init"))])?;
    for name in ["netconfig", "protocols"] {
        copy(&Path::new("/etc").join(name), &root.join("etc").join(name))?;
    }
    for (name, content) in FILES {
        fs::write(root.join(name), content).map_err(|error| format!("{name}: {error}"))?;
    }
    let bundle = root.join("repository");
    told("git", &["-C", text(repository), "bundle", "create", "--quiet", text(&bundle), "HEAD"])?;
    let pack = "cd \"$1\" && find . | bin/busybox cpio -o -H newc 2>/dev/null | gzip -1 > ../initramfs";
    told("bash", &["-o", "pipefail", "-c", pack, "pack", text(&root)])?;
    remove(&root)?;
    remove(&packages)?;
    Ok(version)
}

/// Downloads the packages and takes them apart; the directory in which their files are.
fn unpacked(packages: &Path) -> Result<PathBuf, String> {
    make_directory(packages)?;
    told("apt-get", &["-qq", "update"])?;
    let depends = told("apt-cache", &["depends", KERNEL])?;
    let kernel = depends.split_whitespace().find(|word| word.starts_with("linux-image-"));
    let kernel = kernel.filter(|name| *name != KERNEL).or(depends.split_whitespace().last());
    let kernel = kernel.ok_or_else(|| format!("{KERNEL} depends on no kernel: {depends}"))?;
    // Downloads go to the working directory.
    let download = "cd \"$1\" && shift && apt-get -qq -o APT::Sandbox::User=root download \"$@\"";
    told("sh", &[&["-c", download, "download", text(packages), kernel][..], &PACKAGES].concat())?;
    let all = packages.join("all");
    let unpack = "for package in \"$1\"/*.deb; do dpkg-deb -x \"$package\" \"$2\" || exit 1; done";
    told("sh", &["-c", unpack, "unpack", text(packages), text(&all)])?;
    Ok(all)
}

/// The kernel, and those of its modules that the guest may need; says its version.
fn take_kernel(debian: &Path, work: &Path, root: &Path) -> Result<String, String> {
    let versions = debian.join("lib/modules");
    let version = told("ls", &[text(&versions)])?;
    copy(&debian.join(format!("boot/vmlinuz-{version}")), &work.join("kernel"))?;
    let (from, to) = (versions.join(&version), root.join("lib/modules").join(&version));
    make_directory(&to)?;
    for name in ["modules.builtin", "modules.order"] {
        copy(&from.join(name), &to.join(name))?;
    }
    for name in MODULES.iter().chain(&MODULES_OF_NET) {
        let name = Path::new("kernel").join(name);
        let above = to.join(name.parent().expect("it has one above"));
        make_directory(&above)?;
        told("cp", &["-a", text(&from.join(&name)), text(&above)])?;
    }
    told(text(&debian.join("bin/busybox")), &["depmod", "-b", text(root), &version])?;
    Ok(version)
}

/// A program, and the libraries that it names, each where it looks for them.
fn take_program(program: &Path, name: &str, root: &Path) -> Result<(), String> {
    copy(program, &root.join("bin").join(name))?;
    let libraries = told("ldd", &[text(program)])?;
    if let Some(missing) = libraries.lines().find(|line| line.contains("not found")) {
        return Err(format!("{}: {}", program.display(), missing.trim()));
    }
    for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
        let to = root.join(library.trim_start_matches('/'));
        if !to.exists() {
            make_directory(to.parent().expect("it has one above"))?;
            copy(Path::new(library), &to)?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    fs::copy(from, to).map(drop).map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))
}

fn remove(path: &Path) -> Result<(), String> {
    fs::remove_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}
