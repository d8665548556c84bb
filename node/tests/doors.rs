//! The real servers of other protocols over a mount, configured as the manual says: NFS-Ganesha and Samba, each in network
//! and mount namespaces of its own. They are restarted, and so is the daemon; the kernel's caches are dropped in between.
//! Handles of files outlive all of that, and open nothing of another brick under the same device number; `SINTER_HANDLES` sets
//! the number of files (1,000 if not set). Kernel clients: `cargo xtask guest`.
//! Needs root, /dev/fuse, and Debian's `nfs-ganesha-vfs`, `libnfs-utils`, `samba`, `samba-vfs-modules` and `smbclient`.

use crate::daemon::{Scratch, text};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// One at a time: a mount that comes and goes takes the device number that another wants to have again.
static ALONE: Mutex<()> = Mutex::new(());

/// The text of the first block of a page that is marked as `language`.
fn block(page: &str, language: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operate").join(page);
    let page = fs::read_to_string(path).expect("the manual has the page");
    let lines = page.lines().skip_while(|line| *line != format!("```{language}")).skip(1);
    let block: String = lines.take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect();
    assert!(!block.is_empty(), "the page has no {language}");
    block
}

fn run(script: &str, configuration: &str) -> String {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let work = Scratch::new("doors");
    let config = work.join("configuration");
    fs::write(&config, configuration).expect("the scratch directory is writable");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/doors").join(script);
    let mut command = Command::new("unshare");
    // What the script starts ends with it.
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]);
    command.args(["bash", text(&script), env!("CARGO_BIN_EXE_sinter"), text(work.path()), text(&config)]);
    let output = command.output().expect("unshare is installed");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {said}{errors}", output.status);
    said.into_owned()
}

#[test]
fn ganesha_exports_a_mount_as_the_manual_says() {
    println!("{}", run("nfs.sh", &block("nfs.md", "ganesha")));
}

#[test]
fn samba_exports_a_mount_as_the_manual_says() {
    run("smb.sh", &block("smb.md", "samba"));
}

/// The drop-ins of the manual are units that systemd takes, with the mount that they name.
#[test]
fn units_of_the_manual_bind_servers_to_the_mount() {
    for page in ["nfs.md", "smb.md"] {
        let unit = block(page, "systemd");
        assert!(unit.contains("BindsTo=srv-sinter.mount\nAfter=srv-sinter.mount\n"), "{unit}");
        let work = Scratch::new("units");
        fs::write(work.join("served.service"), format!("{unit}[Service]\nExecStart=/bin/true\n")).expect("writable");
        fs::write(work.join("srv-sinter.mount"), "[Mount]\nWhat=/brick\nWhere=/srv/sinter\n").expect("writable");
        let path = work.join("served.service");
        let mut command = Command::new("systemd-analyze");
        command.env("SYSTEMD_UNIT_PATH", format!("{}:", text(work.path()))).args(["verify", text(&path)]);
        let output = command.output().expect("systemd is installed");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && !errors.contains("served.service"), "{errors}");
    }
}
